//! Compiling in a child process (P9; row 11). The limits of memory and time apply only to the child process. The child
//! process ends when its caller ends, and its output is never loaded if it is incomplete.

use crate::support::{TestHost, components};
use agent_plugins::{CodeSource, CompilerCommand, HostLimits, LoadError, LoadEvent, Sandbox, SandboxOptions};
use std::path::PathBuf;
use std::time::Duration;

fn own_compiler(arguments: &[&str]) -> CompilerCommand {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_agent-host"));
    CompilerCommand { program, arguments: arguments.iter().map(Into::into).collect() }
}

fn shell_compiler(script: &str) -> CompilerCommand {
    let script = script.replace("COMPILER", &format!("'{}' compile-component", env!("CARGO_BIN_EXE_agent-host")));
    CompilerCommand { program: "/bin/sh".into(), arguments: ["-c".into(), script.into()].into() }
}

/// Creates a sandbox without a cache, so that every component is compiled.
fn sandbox(compiler: CompilerCommand, compile_time: Duration) -> Sandbox {
    let limits = HostLimits { compile_time, ..HostLimits::default() };
    Sandbox::new(SandboxOptions { compiler: Some(compiler), limits, ..SandboxOptions::default() }).unwrap()
}

/// Creates a component that takes a long time to compile. The component's only function contains `additions` additions,
/// which the compiler cannot optimise away.
pub(crate) fn compile_bomb(additions: usize) -> Vec<u8> {
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

/// Returns the number of compiler processes that this process has started and that have not ended.
fn count_compilers() -> usize {
    let own_id = std::process::id().to_string();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let is_compiler = |folder: PathBuf| {
        let command_line = std::fs::read(folder.join("cmdline")).unwrap_or_default();
        let status = std::fs::read_to_string(folder.join("status")).unwrap_or_default();
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).map(str::trim);
        parent == Some(&own_id) && String::from_utf8_lossy(&command_line).contains("compile-component")
    };
    processes.filter(|entry| is_compiler(entry.path())).count()
}

/// P9: The host runs the code that the child process compiled.
#[tokio::test(flavor = "multi_thread")]
async fn p9_runs_the_output_of_a_child_compiler() {
    let sandbox = sandbox(own_compiler(&["compile-component"]), Duration::from_secs(300));
    let found = std::sync::Mutex::new(None);
    let watch = |event: LoadEvent| {
        if let LoadEvent::Loaded { code, .. } = event {
            *found.lock().unwrap() = Some(code);
        }
    };
    let plugin = sandbox.load_file_with(&components().join("calc.wasm"), &watch).await.unwrap();
    assert_eq!(*found.lock().unwrap(), Some(CodeSource::Compiled));
    assert!(plugin.tools().iter().any(|tool| tool.name == "calc.evaluate"), "the compiled plugin lists its tools");
}

/// Row 11: If a component takes too long to compile, its compiler process is killed at the deadline. Until the
/// deadline, other plugins can be loaded and called.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn row_11_stops_a_compile_bomb_with_its_process() {
    let short_time = sandbox(own_compiler(&["compile-component"]), Duration::from_millis(700));
    let compiling = short_time.load_bytes("bomb", compile_bomb(400_000));
    let test_host = TestHost::new(&["calc"]).await;
    let (refused, generation) = tokio::join!(compiling, test_host.generation());
    assert!(matches!(refused, Err(LoadError::CompileTimeout(_))), "{refused:?}");
    assert_eq!(generation.plugins().count(), 1);
    for _ in 0..500 {
        if count_compilers() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("a compiler process is still running");
}

/// Row 11: If a compiler process uses too much memory, the process is stopped, and the error reports this.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn row_11_limits_the_memory_of_a_compiler() {
    let small = sandbox(shell_compiler("ulimit -d 300000; exec COMPILER"), Duration::from_secs(120));
    let refused = small.load_bytes("bomb", compile_bomb(400_000)).await.unwrap_err();
    assert!(matches!(&refused, LoadError::Compile { reason } if reason.contains("stopped")), "{refused}");
}

/// P9: Damaged, truncated or missing output is not loaded, and each case has its own error.
#[tokio::test(flavor = "multi_thread")]
async fn p9_loads_only_complete_output() {
    let missing_compiler = CompilerCommand { program: "/nowhere/agent-host".into(), arguments: Vec::new() };
    for (compiler, problem) in [
        (shell_compiler("COMPILER | head -c 5000"), "damaged"),
        (shell_compiler("COMPILER | tr 'a' 'b'"), "cannot be used"),
        (shell_compiler("cat"), "cannot be used"),
        (shell_compiler("exec true"), "it is incomplete"),
        (shell_compiler("echo too hot >&2; exit 1"), "too hot"),
        (shell_compiler("kill -9 $$"), "stopped"),
        (missing_compiler, "cannot be used"),
    ] {
        let compiler_text = format!("{compiler:?}");
        let sandbox = sandbox(compiler, Duration::from_secs(300));
        let refused = sandbox.load_file(&components().join("calc.wasm")).await.unwrap_err();
        assert!(matches!(refused, LoadError::Compile { .. }), "{compiler_text}: {refused}");
        assert!(refused.to_string().contains(problem), "{compiler_text}: {refused}");
    }
}
