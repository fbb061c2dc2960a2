//! Rows 36 and 37: Malicious components attack the component parser and the compiler. The tests pass the malicious
//! components to the real binary and to its compiler process.

pub(crate) mod attacks;

use crate::scene::run_exclusively;
use crate::support::{agent_host, components};
use agent_plugins::{
    CodeSource, CompilerCommand, DirectoryScan, HostLimits, LoadError, LoadEvent, PluginDirectory, Quarantine, Sandbox,
    SandboxOptions, digest_of,
};
use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A timeout that a host exceeds only if it hangs. Even on a busy machine, a working host needs less time.
const HANG_TIMEOUT: Duration = Duration::from_secs(300);

fn run(folder: &TempDir, arguments: &[&str]) -> Output {
    let mut command = agent_host();
    command.current_dir(folder.path()).args(arguments).stdin(Stdio::null());
    command.env("AGENT_HOST_DATA", folder.path().join("data")).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let start = Instant::now();
    while child.try_wait().expect("the child can be waited for and killed").is_none() {
        if start.elapsed() > HANG_TIMEOUT {
            child.kill().expect("the child can be waited for and killed");
            panic!("the command {arguments:?} hangs");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output().expect("the output can be read")
}

fn all_output(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Creates a working folder whose plugin folder contains one harmless plugin.
fn plugin_folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary directory");
    std::fs::create_dir(folder.path().join("plugins")).expect("the folder can be created");
    std::fs::copy(components().join("calc.wasm"), folder.path().join("plugins/calc.wasm"))
        .expect("the component can be copied");
    folder
}

fn child(arguments: &str) -> CompilerCommand {
    let script = arguments.replace("CHILD", &format!("'{}' compile-component", env!("CARGO_BIN_EXE_agent-host")));
    CompilerCommand { program: "/bin/sh".into(), arguments: ["-c".into(), script.into()].into() }
}

fn sandbox(folder: &Path, compiler: CompilerCommand, limits: HostLimits) -> Sandbox {
    let cache_directory = Some(folder.join("cache"));
    let options = SandboxOptions { cache_directory, compiler: Some(compiler), limits, ..SandboxOptions::default() };
    Sandbox::new(options).expect("the sandbox starts")
}

/// Row 36: If the start function of a component never ends, the host stops it at the time limit. The component is then
/// in quarantine and is not started a second time.
#[test]
fn row_36_does_not_retry_an_instantiation_that_never_ends() {
    let folder = plugin_folder();
    let code = "(component (core module $m (func $run loop br 0 end) (start $run)) (core instance $i (instantiate $m))\n\
                (core module $n (func (export \"f\"))) (core instance $j (instantiate $n))\n\
                (func (export \"f\") (canon lift (core func $j \"f\"))))";
    std::fs::write(folder.path().join("plugins/endless.wasm"), wat::parse_str(code).expect("a component"))
        .expect("the file can be written");
    let first = all_output(&run(&folder, &["plugin", "inspect", "plugins/endless.wasm"]));
    assert!(first.contains("time of"), "{first}");
    let second = all_output(&run(&folder, &["plugin", "inspect", "plugins/endless.wasm"]));
    assert!(second.contains("it is in quarantine"), "{second}");
    let listed = all_output(&run(&folder, &["plugin", "quarantine"]));
    assert!(listed.contains("endless"), "{listed}");
}

/// Row 36: If a malicious component is inspected, the host refuses it, prints the reason, and exits normally.
#[test]
fn row_36_refuses_each_attack_with_its_reason() {
    run_exclusively(async {
        let folder = plugin_folder();
        for (name, bytes) in attacks::all_attacks() {
            let file = format!("{name}.wasm");
            std::fs::write(folder.path().join(&file), bytes).expect("the file can be written");
            let output = run(&folder, &["plugin", "inspect", &file]);
            let text = all_output(&output);
            // A process that is killed by a signal has no exit code.
            assert_eq!(output.status.code(), Some(2), "{name}: {text}");
            assert!(text.contains(&file) && text.len() < 4_000, "{name}: {text}");
            assert!(!text.contains("panicked"), "{name}: {text}");
        }
    });
}

/// Row 36: If the plugin folder contains all malicious components, the harmless plugin in the folder still works, even
/// after the host is started a second time.
#[test]
fn row_36_a_folder_of_attacks_does_not_affect_other_plugins() {
    run_exclusively(async {
        let folder = plugin_folder();
        let attacks = attacks::all_attacks();
        for (name, bytes) in &attacks {
            std::fs::write(folder.path().join(format!("plugins/{name}.wasm")), bytes).expect("the file can be written");
        }
        for start in ["first", "second"] {
            let text = all_output(&run(&folder, &["plugin", "list", "plugins"]));
            assert!(text.contains("calc.evaluate"), "{start}: {text}");
            for (name, _) in &attacks {
                assert!(text.contains(&format!("{name}.wasm: ")), "{start}, {name}: {text}");
            }
        }
    });
}

/// Row 36: A malicious file in a watched folder is reported, and the watcher continues.
#[test]
fn row_36_the_watcher_survives_an_attack() {
    run_exclusively(async {
        let folder = plugin_folder();
        let sandbox = sandbox(folder.path(), child("exec CHILD"), HostLimits::default());
        let mut directory = PluginDirectory::new(sandbox, folder.path().join("plugins"));
        std::fs::write(folder.path().join("plugins/deep.wasm"), attacks::nested_types(628, 0x41))
            .expect("the file can be written");
        let start = Instant::now();
        loop {
            assert!(start.elapsed() < HANG_TIMEOUT, "the plugin folder does not settle");
            tokio::time::sleep(Duration::from_millis(50)).await;
            if let DirectoryScan::Settled(seen) = directory.scan().await.expect("the folder can be scanned") {
                assert_eq!(seen.plugins.len(), 1, "the harmless plugin is in use");
                let problem = seen.problems.first().map(|(_, problem)| problem.to_string()).unwrap_or_default();
                assert!(problem.contains("nested more than 100 levels deep"), "{problem}");
                return;
            }
        }
    });
}

/// Row 36: A file that kills the child process is not compiled again until it changes or a user releases it. The host
/// stores the reason why the file is not compiled.
#[test]
fn row_36_quarantines_a_file_that_kills_the_child() {
    run_exclusively(async {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let starts = folder.path().join("starts");
        let script = format!("echo >> '{}'; kill -SEGV $$", starts.display());
        let started = || std::fs::read_to_string(&starts).unwrap_or_default().lines().count();
        let calc = std::fs::read(components().join("calc.wasm")).expect("the component is built");
        let load = async |bytes: &[u8]| {
            let sandbox = sandbox(folder.path(), child(&script), HostLimits::default());
            sandbox.load_bytes("calc", bytes.to_vec()).await.expect_err("the child process dies")
        };
        let first = load(&calc).await;
        assert!(first.to_string().contains("SIGSEGV") && first.to_string().contains("in quarantine"), "{first}");
        let second = load(&calc).await;
        assert!(matches!(&second, LoadError::Quarantined { reason, .. } if reason.contains("SIGSEGV")), "{second}");
        assert_eq!(started(), 1, "the file was not compiled again");
        // A changed copy of the file has another digest, so it is not in quarantine and is compiled.
        let changed = [calc.as_slice(), &[0, 2, 1, b'x']].concat();
        assert!(matches!(load(&changed).await, LoadError::Compile { .. }));
        assert_eq!(started(), 2);
        // The quarantine applies only to the limits of the failed attempt, so with a longer time limit the file is
        // compiled again.
        let longer_limits = HostLimits { compile_time: Duration::from_secs(40), ..HostLimits::default() };
        let refused = sandbox(folder.path(), child(&script), longer_limits).load_bytes("calc", calc.clone()).await;
        assert!(matches!(refused, Err(LoadError::Compile { .. })), "{refused:?}");
        assert_eq!(started(), 3);
        // The user releases the file from quarantine.
        let quarantine = Quarantine::new(&folder.path().join("cache"));
        let entries = quarantine.list();
        assert!(entries.iter().any(|entry| entry.digest == digest_of(&calc) && entry.name == "calc"), "{entries:?}");
        assert!(quarantine.release(&digest_of(&calc)).expect("the entry can be removed"));
        let sandbox = sandbox(folder.path(), child("exec CHILD"), HostLimits::default());
        sandbox.load_bytes("calc", calc).await.expect("this child process does not crash");
    });
}

/// Row 37: A child process announces a report or compiled code whose size exceeds the limits, and then writes output
/// without end. The host stops reading the child's output.
#[test]
fn row_37_reads_no_more_of_a_childs_output_than_the_limits_allow() {
    run_exclusively(async {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let calc = std::fs::read(components().join("calc.wasm")).expect("the component is built");
        // The header of the child's answer contains the digest of the engine, the digest of the answer, the size of the
        // report and the size of the code.
        for sizes in [[1_u64 << 40, 0], [0, 1 << 40], [u64::MAX, u64::MAX], [64 << 20, 1 << 10], [1 << 10, 2 << 30]] {
            let header: String =
                sizes.iter().flat_map(|size| size.to_le_bytes()).map(|byte| format!("\\{byte:03o}")).collect();
            let script = format!("head -c 64 /dev/zero; printf '{header}'; exec cat /dev/zero");
            let lying_child = sandbox(folder.path(), child(&script), HostLimits::default());
            let loading = tokio::time::timeout(Duration::from_secs(60), lying_child.load_bytes("calc", calc.clone()));
            let refused =
                loading.await.expect("the host stops reading").expect_err("the announced sizes are too large");
            assert!(matches!(refused, LoadError::Compile { .. }), "{sizes:?}: {refused}");
            assert!(!refused.to_string().contains("quarantine"), "the component is not to blame: {refused}");
        }
    });
}

/// Row 36: On the command line, the user sees a compile bomb that was stopped, and can release it from quarantine.
#[test]
fn row_36_shows_and_releases_quarantined_files() {
    run_exclusively(async {
        let folder = plugin_folder();
        let agent = "plugin_directory = \"plugins\"\n[host.limits]\ncompile_ms = 1000\n";
        std::fs::write(folder.path().join("agent.toml"), agent).expect("the file can be written");
        let bomb = attacks::nested_blocks(1_000_000);
        std::fs::write(folder.path().join("plugins/bomb.wasm"), &bomb).expect("the file can be written");
        // A busy machine may give the compiler too little processor time to reach a limit. The command says so, and is repeated.
        let list = || {
            let mut outputs = (0..10).map(|_| all_output(&run(&folder, &["plugin", "list", "--agent", "agent.toml"])));
            outputs
                .find(|text| !text.contains("because the machine is busy"))
                .expect("the compiler gets processor time")
        };
        // Which limit the bomb reaches first depends on how fast the compiler is.
        let is_stopped = |text: &str| text.contains("processor time") || text.contains("memory limit");
        let first = list();
        assert!(is_stopped(&first) && first.contains("calc.evaluate"), "{first}");
        let second = list();
        assert!(second.contains("it is in quarantine") && second.contains("calc.evaluate"), "{second}");
        let listing = all_output(&run(&folder, &["plugin", "quarantine"]));
        let digest = digest_of(&bomb);
        assert!(listing.contains(digest.as_str()) && is_stopped(&listing), "{listing}");
        let released = run(&folder, &["plugin", "quarantine", "--release", &digest.hex()[..12]]);
        assert!(released.status.success(), "{}", all_output(&released));
        assert!(all_output(&run(&folder, &["plugin", "quarantine"])).contains("no component is in quarantine"));
        assert!(!list().contains("it is in quarantine"));
    });
}

/// P15: The host compares a component with the lock file before it starts a child process to parse the component.
#[test]
fn p15_checks_the_lock_file_before_starting_a_child() {
    run_exclusively(async {
        let folder = plugin_folder();
        let locked = digest_of(b"the locked component");
        let lock = format!(
            "format = 1\n[[plugin]]\nname = \"deep\"\nversion = \"1.0.0\"\nreference = \"https://plugins.example/deep.wasm\"\n\
             component = \"{locked}\"\n"
        );
        std::fs::write(folder.path().join("plugins/plugins.lock"), lock).expect("the file can be written");
        std::fs::write(folder.path().join("plugins/deep.wasm"), attacks::nested_types(628, 0x41))
            .expect("the file can be written");
        let text = all_output(&run(&folder, &["plugin", "list", "plugins"]));
        assert!(text.contains("it is not the locked file") && !text.contains("nested"), "{text}");
    });
}

/// Row 37: A component with a sparse memory image is compiled to little code. Code that is too large is
/// refused before it is written, so the cache stays small.
#[test]
fn row_37_limits_compiled_code() {
    run_exclusively(async {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let sandbox = sandbox(folder.path(), child("exec CHILD"), HostLimits::default());
        // The host would accept each of these sparse memory images alone. Together, the memory images are too large
        // for a component of this size.
        let many_images = attacks::sparse_images(60, (1 << 20) - 65_536);
        let refused = sandbox.load_bytes("many", many_images).await.expect_err("the code is too large");
        assert!(matches!(refused, LoadError::CodeTooLarge(_)), "{refused}");
        // Larger memory images are not copied into the compiled code, so the compiled code is small. The component is
        // refused only because it has no tools.
        let refused = sandbox
            .load_bytes("sparse", attacks::sparse_images(60, 16 << 20))
            .await
            .expect_err("the component has no tools");
        assert!(matches!(refused, LoadError::NothingOffered { .. }), "{refused}");
        assert!(bytes_below(&folder.path().join("cache")) < 1 << 20);
    });
}

pub(crate) fn bytes_below(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .map(|entry| {
            let metadata = entry.metadata().expect("the file exists");
            if metadata.is_dir() { bytes_below(&entry.path()) } else { metadata.len() }
        })
        .sum()
}

/// Row 37: If the cache is full, the host deletes the least recently used code. The host never deletes the code of a
/// loaded plugin.
#[test]
fn row_37_the_cache_evicts_least_recently_used_code() {
    run_exclusively(async {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let calc = std::fs::read(components().join("calc.wasm")).expect("the component is built");
        let version = |number: u8| [calc.as_slice(), &[0, 2, 1, b'a' + number]].concat();
        let load = async |sandbox: &Sandbox, number: u8| {
            let source = Mutex::new(None);
            let watch = |event: LoadEvent| {
                if let LoadEvent::Loaded { code, .. } = event {
                    *source.lock().expect("no panic") = Some(code);
                }
            };
            let plugin = sandbox.load_bytes_with("calc", version(number), &watch).await.expect("the plugin is valid");
            let source = source.lock().expect("no panic").take().expect("the plugin was loaded");
            (plugin, source)
        };
        let measuring = sandbox(folder.path(), child("exec CHILD"), HostLimits::default());
        drop(load(&measuring, 0).await);
        let size = bytes_below(&folder.path().join("cache"));
        let limits = HostLimits { cache: 3 * size + size / 2, ..HostLimits::default() };
        let small = sandbox(folder.path(), child("exec CHILD"), limits);
        let loaded = load(&small, 0).await;
        assert_eq!(loaded.1, CodeSource::Cache);
        for number in 1..6 {
            tokio::time::sleep(Duration::from_millis(20)).await;
            drop(load(&small, number).await);
            assert!(bytes_below(&folder.path().join("cache")) <= limits.cache, "{number}");
        }
        // The code of the loaded plugin is the least recently used code, but it is still in the cache. The code of the
        // last two components is in the cache because it was used most recently.
        let second_sandbox = sandbox(folder.path(), child("exec CHILD"), limits);
        for (number, expected) in [(0, CodeSource::Cache), (4, CodeSource::Cache), (5, CodeSource::Cache)] {
            assert_eq!(load(&second_sandbox, number).await.1, expected, "{number}");
        }
        assert_eq!(load(&second_sandbox, 1).await.1, CodeSource::Compiled, "this code was deleted from the cache");
        drop(loaded);
    });
}

/// P15: The host loads a plugin whose code is in the cache without starting a child process.
#[test]
fn p15_a_start_with_cached_plugins_starts_no_child() {
    run_exclusively(async {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let calc = components().join("calc.wasm");
        let first = sandbox(folder.path(), child("exec CHILD"), HostLimits::default());
        first.load_file(&calc).await.expect("the plugin is valid");
        let second = sandbox(folder.path(), child("exit 1"), HostLimits::default());
        second.load_file(&calc).await.expect("the code of the plugin is in the cache");
    });
}
