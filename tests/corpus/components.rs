//! Components that hurt whoever parses or compiles them, offered to the real binary and its examining child: rows 36 and 37.

pub(crate) mod attacks;

use crate::scene::alone;
use crate::support::components;
use agent_plugins::{
    CodeSource, CompilerCommand, HostLimits, LoadError, LoadEvent, Look, PluginDirectory, Quarantine, Sandbox,
    SandboxOptions, digest_of,
};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Far more than any of this takes, on a busy machine too.
const LONG: Duration = Duration::from_secs(300);

fn run(ground: &TempDir, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_agent-host"));
    command.current_dir(ground.path()).args(arguments).stdin(Stdio::null());
    command.env("AGENT_HOST_DATA", ground.path().join("data")).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let begun = Instant::now();
    while child.try_wait().expect("it is ours").is_none() {
        if begun.elapsed() > LONG {
            child.kill().expect("it is ours");
            panic!("{arguments:?} does not end");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output().expect("it has ended")
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A folder of plugins with an honest one in it.
fn ground() -> TempDir {
    let ground = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(ground.path().join("plugins")).expect("made");
    std::fs::copy(components().join("calc.wasm"), ground.path().join("plugins/calc.wasm")).expect("copied");
    ground
}

fn child(arguments: &str) -> CompilerCommand {
    let script = arguments.replace("CHILD", &format!("'{}' compile-component", env!("CARGO_BIN_EXE_agent-host")));
    CompilerCommand { program: "/bin/sh".into(), arguments: ["-c".into(), script.into()].into() }
}

fn sandbox(folder: &Path, compiler: CompilerCommand, limits: HostLimits) -> Sandbox {
    let cache_directory = Some(folder.join("cache"));
    let options = SandboxOptions { cache_directory, compiler: Some(compiler), limits, ..SandboxOptions::default() };
    Sandbox::new(options).expect("a sandbox")
}

/// Row 36: a component that computes for ever when it is started costs that time once.
#[test]
fn row_36_an_endless_start_is_not_tried_again() {
    let ground = ground();
    let code = "(component (core module $m (func $run loop br 0 end) (start $run)) (core instance $i (instantiate $m))\n\
                (core module $n (func (export \"f\"))) (core instance $j (instantiate $n))\n\
                (func (export \"f\") (canon lift (core func $j \"f\"))))";
    std::fs::write(ground.path().join("plugins/endless.wasm"), wat::parse_str(code).expect("a component"))
        .expect("written");
    let first = said(&run(&ground, &["plugin", "inspect", "plugins/endless.wasm"]));
    assert!(first.contains("time of"), "{first}");
    let again = said(&run(&ground, &["plugin", "inspect", "plugins/endless.wasm"]));
    assert!(again.contains("it is in quarantine"), "{again}");
    let listed = said(&run(&ground, &["plugin", "quarantine"]));
    assert!(listed.contains("endless"), "{listed}");
}

/// Row 36: every one of them is refused with its reason when it is inspected, and the host ends in order.
#[test]
fn row_36_each_attack_is_refused_by_name() {
    alone(async {
        let ground = ground();
        for (name, bytes) in attacks::all() {
            let file = format!("{name}.wasm");
            std::fs::write(ground.path().join(&file), bytes).expect("written");
            let output = run(&ground, &["plugin", "inspect", &file]);
            let text = said(&output);
            // What ends by a signal has no code.
            assert_eq!(output.status.code(), Some(2), "{name}: {text}");
            assert!(text.contains(&file) && text.len() < 4_000, "{name}: {text}");
            assert!(!text.contains("panicked"), "{name}: {text}");
        }
    });
}

/// Row 36: dropped into the folder together, they keep neither the honest plugin from serving nor later starts from working.
#[test]
fn row_36_a_folder_of_attacks_leaves_the_rest_working() {
    alone(async {
        let ground = ground();
        let attacks = attacks::all();
        for (name, bytes) in &attacks {
            std::fs::write(ground.path().join(format!("plugins/{name}.wasm")), bytes).expect("written");
        }
        for start in ["first", "second"] {
            let text = said(&run(&ground, &["plugin", "list", "plugins"]));
            assert!(text.contains("calc.evaluate"), "{start}: {text}");
            for (name, _) in &attacks {
                assert!(text.contains(&format!("{name}.wasm: ")), "{start}, {name}: {text}");
            }
        }
    });
}

/// Row 36: a file that is dropped into a watched folder is reported, and the watcher goes on.
#[test]
fn row_36_a_watched_folder_outlives_an_attack() {
    alone(async {
        let ground = ground();
        let sandbox = sandbox(ground.path(), child("exec CHILD"), HostLimits::default());
        let mut directory = PluginDirectory::new(sandbox, ground.path().join("plugins"));
        std::fs::write(ground.path().join("plugins/deep.wasm"), attacks::nested_types(628, 0x41)).expect("written");
        let begun = Instant::now();
        loop {
            assert!(begun.elapsed() < LONG, "it does not come to rest");
            tokio::time::sleep(Duration::from_millis(50)).await;
            if let Look::Quiet(seen) = directory.look().await.expect("a look") {
                assert_eq!(seen.plugins.len(), 1, "the honest one serves");
                let problem = seen.problems.first().map(|(_, problem)| problem.to_string()).unwrap_or_default();
                assert!(problem.contains("nested more than 100 deep"), "{problem}");
                return;
            }
        }
    });
}

/// Row 36: what ends the child is not tried again, until its file changes or somebody lets it out; and the reason is kept.
#[test]
fn row_36_what_kills_the_child_is_quarantined() {
    alone(async {
        let folder = tempfile::tempdir().expect("a directory");
        let starts = folder.path().join("starts");
        let script = format!("echo >> '{}'; kill -SEGV $$", starts.display());
        let started = || std::fs::read_to_string(&starts).unwrap_or_default().lines().count();
        let calc = std::fs::read(components().join("calc.wasm")).expect("it is built");
        let load = async |bytes: &[u8]| {
            let sandbox = sandbox(folder.path(), child(&script), HostLimits::default());
            sandbox.load_bytes("calc", bytes.to_vec()).await.expect_err("the child dies")
        };
        let first = load(&calc).await;
        assert!(first.to_string().contains("SIGSEGV") && first.to_string().contains("in quarantine"), "{first}");
        let second = load(&calc).await;
        assert!(matches!(&second, LoadError::Quarantined { reason, .. } if reason.contains("SIGSEGV")), "{second}");
        assert_eq!(started(), 1, "it was not tried again");
        // Other bytes are another file.
        let changed = [calc.as_slice(), &[0, 2, 1, b'x']].concat();
        assert!(matches!(load(&changed).await, LoadError::Compile { .. }));
        assert_eq!(started(), 2);
        // Other limits are another trial.
        let patient = HostLimits { compile_time: Duration::from_secs(40), ..HostLimits::default() };
        let refused = sandbox(folder.path(), child(&script), patient).load_bytes("calc", calc.clone()).await;
        assert!(matches!(refused, Err(LoadError::Compile { .. })), "{refused:?}");
        assert_eq!(started(), 3);
        // Somebody looks, and lets it out.
        let quarantine = Quarantine::new(&folder.path().join("cache"));
        let all = quarantine.list();
        assert!(all.iter().any(|entry| entry.digest == digest_of(&calc) && entry.name == "calc"), "{all:?}");
        assert!(quarantine.release(&digest_of(&calc)).expect("removed"));
        let sandbox = sandbox(folder.path(), child("exec CHILD"), HostLimits::default());
        sandbox.load_bytes("calc", calc).await.expect("a child that lives");
    });
}

/// Row 37: a child that claims a report or code beyond its limits, and would write for ever, is not read, however much there is.
#[test]
fn row_37_the_host_reads_no_more_than_the_limits_allow() {
    alone(async {
        let folder = tempfile::tempdir().expect("a directory");
        let calc = std::fs::read(components().join("calc.wasm")).expect("it is built");
        // Digests of the engine and of the answer, and the sizes of the report and of the code.
        for sizes in [[1_u64 << 40, 0], [0, 1 << 40], [u64::MAX, u64::MAX], [64 << 20, 1 << 10], [1 << 10, 2 << 30]] {
            let header: String =
                sizes.iter().flat_map(|size| size.to_le_bytes()).map(|byte| format!("\\{byte:03o}")).collect();
            let script = format!("head -c 64 /dev/zero; printf '{header}'; exec cat /dev/zero");
            let liar = sandbox(folder.path(), child(&script), HostLimits::default());
            let loading = tokio::time::timeout(Duration::from_secs(60), liar.load_bytes("calc", calc.clone()));
            let refused = loading.await.expect("the host reads no further").expect_err("a lie");
            assert!(matches!(refused, LoadError::Compile { .. }), "{sizes:?}: {refused}");
            assert!(!refused.to_string().contains("quarantine"), "the component is not to blame: {refused}");
        }
    });
}

/// Row 36, by hand: a compile bomb is stopped once, told of, and let out.
#[test]
fn row_36_people_see_why_and_let_it_out() {
    alone(async {
        let ground = ground();
        let agent = "plugin_directory = \"plugins\"\n[host.limits]\ncompile_ms = 1000\n";
        std::fs::write(ground.path().join("agent.toml"), agent).expect("written");
        let bomb = attacks::nested_blocks(1_000_000);
        std::fs::write(ground.path().join("plugins/bomb.wasm"), &bomb).expect("written");
        let list = || said(&run(&ground, &["plugin", "list", "--agent", "agent.toml"]));
        let first = list();
        assert!(first.contains("processor time") && first.contains("calc.evaluate"), "{first}");
        let second = list();
        assert!(second.contains("it is in quarantine") && second.contains("calc.evaluate"), "{second}");
        let shown = said(&run(&ground, &["plugin", "quarantine"]));
        let digest = digest_of(&bomb);
        assert!(shown.contains(digest.as_str()) && shown.contains("processor time"), "{shown}");
        let released = run(&ground, &["plugin", "quarantine", "--release", &digest.hex()[..12]]);
        assert!(released.status.success(), "{}", said(&released));
        assert!(said(&run(&ground, &["plugin", "quarantine"])).contains("no component is in quarantine"));
        assert!(!list().contains("it is in quarantine"));
    });
}

/// P15: bytes are compared with the lock before anything looks into them: no child is started for them.
#[test]
fn p15_the_lock_is_asked_before_the_child() {
    alone(async {
        let ground = ground();
        let locked = digest_of(b"what is locked");
        let lock = format!(
            "format = 1\n[[plugin]]\nname = \"deep\"\nversion = \"1.0.0\"\nreference = \"https://plugins.example/deep.wasm\"\n\
             component = \"{locked}\"\n"
        );
        std::fs::write(ground.path().join("plugins/plugins.lock"), lock).expect("written");
        std::fs::write(ground.path().join("plugins/deep.wasm"), attacks::nested_types(628, 0x41)).expect("written");
        let text = said(&run(&ground, &["plugin", "list", "plugins"]));
        assert!(text.contains("it is not the locked file") && !text.contains("nested"), "{text}");
    });
}

/// Row 37: sparse images don't grow into code; what would grow is refused before it is written, and the cache stays small.
#[test]
fn row_37_compiled_code_is_bounded() {
    alone(async {
        let folder = tempfile::tempdir().expect("a directory");
        let sandbox = sandbox(folder.path(), child("exec CHILD"), HostLimits::default());
        // What is allowed to be sparse adds up to more than a small component may have.
        let many = attacks::sparse_images(60, (1 << 20) - 65_536);
        let refused = sandbox.load_bytes("many", many).await.expect_err("too much code");
        assert!(matches!(refused, LoadError::CodeTooLarge(_)), "{refused}");
        // Larger images are not laid out at all: it compiles to little, and offers nothing.
        let refused =
            sandbox.load_bytes("sparse", attacks::sparse_images(60, 16 << 20)).await.expect_err("it is empty");
        assert!(matches!(refused, LoadError::NothingOffered { .. }), "{refused}");
        assert!(bytes_below(&folder.path().join("cache")) < 1 << 20);
    });
}

pub(crate) fn bytes_below(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .map(|entry| {
            let metadata = entry.metadata().expect("there");
            if metadata.is_dir() { bytes_below(&entry.path()) } else { metadata.len() }
        })
        .sum()
}

/// Row 37: the cache keeps to its size by deleting what was used least recently, and nothing that a loaded plugin runs from.
#[test]
fn row_37_the_cache_evicts_by_use() {
    alone(async {
        let folder = tempfile::tempdir().expect("a directory");
        let calc = std::fs::read(components().join("calc.wasm")).expect("it is built");
        let version = |number: u8| [calc.as_slice(), &[0, 2, 1, b'a' + number]].concat();
        let load = async |sandbox: &Sandbox, number: u8| {
            let source = Mutex::new(None);
            let watch = |event: LoadEvent| {
                if let LoadEvent::Loaded { code, .. } = event {
                    *source.lock().expect("no panic") = Some(code);
                }
            };
            let plugin = sandbox.load_bytes_with("calc", version(number), &watch).await.expect("an honest plugin");
            let source = source.lock().expect("no panic").take().expect("it was loaded");
            (plugin, source)
        };
        let measuring = sandbox(folder.path(), child("exec CHILD"), HostLimits::default());
        drop(load(&measuring, 0).await);
        let size = bytes_below(&folder.path().join("cache"));
        let limits = HostLimits { cache: 3 * size + size / 2, ..HostLimits::default() };
        let small = sandbox(folder.path(), child("exec CHILD"), limits);
        let held = load(&small, 0).await;
        assert_eq!(held.1, CodeSource::Cache);
        for number in 1..6 {
            tokio::time::sleep(Duration::from_millis(20)).await;
            drop(load(&small, number).await);
            assert!(bytes_below(&folder.path().join("cache")) <= limits.cache, "{number}");
        }
        // The one in use was used least recently, and is there; so are the last two.
        let fresh = sandbox(folder.path(), child("exec CHILD"), limits);
        for (number, expected) in [(0, CodeSource::Cache), (4, CodeSource::Cache), (5, CodeSource::Cache)] {
            assert_eq!(load(&fresh, number).await.1, expected, "{number}");
        }
        assert_eq!(load(&fresh, 1).await.1, CodeSource::Compiled, "it had to go");
        drop(held);
    });
}

/// P15: plugins whose code is in the cache need no child.
#[test]
fn p15_a_start_with_cached_plugins_starts_no_child() {
    alone(async {
        let folder = tempfile::tempdir().expect("a directory");
        let calc = components().join("calc.wasm");
        let first = sandbox(folder.path(), child("exec CHILD"), HostLimits::default());
        first.load_file(&calc).await.expect("an honest plugin");
        let second = sandbox(folder.path(), child("exit 1"), HostLimits::default());
        second.load_file(&calc).await.expect("its code is in the cache");
    });
}
