//! Compiling in a child process (P9; row 11): what it costs is the child's, it ends with whoever waits for it, and nothing
//! that is not whole is loaded.

use crate::support::{House, components};
use agent_plugins::{CodeSource, CompilerCommand, HostLimits, LoadError, LoadEvent, Sandbox, SandboxOptions};
use std::path::PathBuf;
use std::time::Duration;

fn own(arguments: &[&str]) -> CompilerCommand {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_agent-host"));
    CompilerCommand { program, arguments: arguments.iter().map(Into::into).collect() }
}

fn shell(script: &str) -> CompilerCommand {
    let script = script.replace("COMPILER", &format!("'{}' compile-component", env!("CARGO_BIN_EXE_agent-host")));
    CompilerCommand { program: "/bin/sh".into(), arguments: ["-c".into(), script.into()].into() }
}

/// Without a cache, so that everything is compiled.
fn sandbox(compiler: CompilerCommand, compile_time: Duration) -> Sandbox {
    let limits = HostLimits { compile_time, ..HostLimits::default() };
    Sandbox::new(SandboxOptions { compiler: Some(compiler), limits, ..SandboxOptions::default() }).unwrap()
}

/// A component whose one function takes a compiler long: so many additions, none of which can be left out.
pub(crate) fn bomb(additions: usize) -> Vec<u8> {
    let work = "local.get 0 local.get 0 i64.const 3 i64.rotl i64.add local.tee 0 i64.const 5 i64.xor local.set 0\n";
    let text = format!(
        r#"(component
            (core module $m (func (export "f") (param i64) (result i64) {} local.get 0))
            (core instance $i (instantiate $m))
            (func $f (param "n" u64) (result u64) (canon lift (core func $i "f")))
            (instance $e (export "call" (func $f)))
            (export "agent-host:plugin/tool@0.1.0" (instance $e)))"#,
        work.repeat(additions)
    );
    wat::parse_str(text).unwrap()
}

/// Compilers that this process has started and that have not ended.
fn compilers() -> usize {
    let own = std::process::id().to_string();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let is_compiler = |folder: PathBuf| {
        let words = std::fs::read(folder.join("cmdline")).unwrap_or_default();
        let status = std::fs::read_to_string(folder.join("status")).unwrap_or_default();
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).map(str::trim);
        parent == Some(&own) && String::from_utf8_lossy(&words).contains("compile-component")
    };
    processes.filter(|entry| is_compiler(entry.path())).count()
}

/// P9: what the child compiles is what runs.
#[tokio::test(flavor = "multi_thread")]
async fn p9_a_child_compiles_what_runs() {
    let sandbox = sandbox(own(&["compile-component"]), Duration::from_secs(300));
    let found = std::sync::Mutex::new(None);
    let watch = |event: LoadEvent| {
        if let LoadEvent::Loaded { code, .. } = event {
            *found.lock().unwrap() = Some(code);
        }
    };
    let plugin = sandbox.load_file_with(&components().join("calc.wasm"), &watch).await.unwrap();
    assert_eq!(*found.lock().unwrap(), Some(CodeSource::Compiled));
    assert!(plugin.tools().iter().any(|tool| tool.name == "calc.evaluate"), "it was asked for its tools");
}

/// Row 11: a compile bomb ends at its time with its process, and meanwhile others are loaded and called.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn row_11_a_compile_bomb_ends_with_its_child() {
    let hurried = sandbox(own(&["compile-component"]), Duration::from_millis(700));
    let compiling = hurried.load_bytes("bomb", bomb(400_000));
    let house = House::new(&["calc"]).await;
    let (refused, generation) = tokio::join!(compiling, house.generation());
    assert!(matches!(refused, Err(LoadError::CompileTime(_))), "{refused:?}");
    assert_eq!(generation.plugins().count(), 1);
    for _ in 0..500 {
        if compilers() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("a compiler is left behind");
}

/// Row 11: one that takes too much memory is stopped, and the reason says so.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn row_11_a_compiler_has_its_own_memory() {
    let small = sandbox(shell("ulimit -d 300000; exec COMPILER"), Duration::from_secs(120));
    let refused = small.load_bytes("bomb", bomb(400_000)).await.unwrap_err();
    assert!(matches!(&refused, LoadError::Compile { reason } if reason.contains("stopped")), "{refused}");
}

/// P9: nothing that is damaged, cut or not there is loaded, and each says what is the matter.
#[tokio::test(flavor = "multi_thread")]
async fn p9_only_whole_output_is_loaded() {
    let gone = CompilerCommand { program: "/nowhere/agent-host".into(), arguments: Vec::new() };
    for (compiler, problem) in [
        (shell("COMPILER | head -c 5000"), "damaged"),
        (shell("COMPILER | tr 'a' 'b'"), "not usable"),
        (shell("cat"), "not usable"),
        (shell("exec true"), "it is cut"),
        (shell("echo too hot >&2; exit 1"), "too hot"),
        (shell("kill -9 $$"), "stopped"),
        (gone, "cannot be used"),
    ] {
        let shown = format!("{compiler:?}");
        let sandbox = sandbox(compiler, Duration::from_secs(300));
        let refused = sandbox.load_file(&components().join("calc.wasm")).await.unwrap_err();
        assert!(matches!(refused, LoadError::Compile { .. }), "{shown}: {refused}");
        assert!(refused.to_string().contains(problem), "{shown}: {refused}");
    }
}
