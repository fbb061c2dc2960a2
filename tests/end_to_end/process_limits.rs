//! The host on machines with strict process limits. Either the host works with fewer resources, or it reports in one
//! line which limit is too low and exits with code 2.

use crate::support::{call_reply, components, script, text_reply};
use serde_json::json;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Creates a folder with a plugin and a model script that calls the plugin.
fn plugin_folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("plugins")).unwrap();
    std::fs::copy(components().join("calc.wasm"), folder.path().join("plugins/calc.wasm")).unwrap();
    let replies = [call_reply(&[("calc.evaluate", json!({"expression": "1+1"}))]), text_reply("It is two.")];
    std::fs::write(folder.path().join("script.json"), script(&replies).to_string()).unwrap();
    folder
}

/// Runs the binary under limits that a shell sets. Returns the exit code of the binary, and its stdout followed by
/// its stderr.
fn run_with_limits(limits: &str, folder: &Path, arguments: &str) -> (Option<i32>, String) {
    let program = env!("CARGO_BIN_EXE_agent-host");
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{limits} && exec '{program}' {arguments} --data data")]).current_dir(folder);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.code(), text)
}

const ASK: &str = "--plugins plugins --model scripted:script.json Go.";

/// Plugins work in a process with a small stack, and in a process with less address space than the engine reserves
/// by default.
#[test]
fn a_small_stack_or_address_space_is_enough() {
    let folder = plugin_folder();
    for limits in ["ulimit -s 256", "ulimit -v 4000000", "ulimit -v 4000000 && ulimit -s 256"] {
        let (code, text) = run_with_limits(limits, folder.path(), ASK);
        assert!(code == Some(0) && text.contains("It is two."), "{limits}: {text}");
        assert_eq!(limits.contains("-v"), text.contains("`ulimit -v`"), "the limit is reported: {text}");
    }
}

/// If an operation fails because a process limit is too low, the error names the limit and not the operation.
#[test]
fn names_a_limit_that_is_too_low() {
    for (limits, named) in [("ulimit -n 20", "`ulimit -n`"), ("ulimit -f 10", "`ulimit -f`")] {
        let folder = plugin_folder();
        let (code, text) = run_with_limits(limits, folder.path(), ASK);
        assert!(code == Some(2) && text.contains(named), "{limits}: {code:?} {text}");
        assert!(!text.contains("panicked"), "{text}");
    }
}

/// If no threads can be started, the host prints one line that names the limit. The limit does not apply to root. If
/// the test runs as root, it therefore runs the program as another user, who needs a copy of the program that everyone
/// may execute.
#[test]
#[cfg(target_os = "linux")]
fn reports_a_thread_limit_that_is_too_low() {
    use std::os::unix::fs::PermissionsExt;
    let folder = plugin_folder();
    let program = folder.path().join("agent-host");
    std::fs::copy(env!("CARGO_BIN_EXE_agent-host"), &program).unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    // The first three limits prevent the start of different threads: the first thread, a worker of the runtime, and the
    // thread that interrupts plugins.
    for (threads, expected) in [(1, Some(2)), (3, Some(2)), (8, Some(2)), (64, Some(0))] {
        // Other processes of the same user count towards the limit, so the test uses a user id that no other
        // process has.
        let user = (700_000 + std::process::id()).to_string();
        let mut command = match rustix::process::geteuid().is_root() {
            true => {
                let mut command = Command::new("setpriv");
                command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "--inh-caps=-all", "bash"]);
                command
            }
            // Other processes of the current user count towards the limit, so the outcome is certain only for
            // low limits.
            false if expected == Some(0) => continue,
            false => Command::new("bash"),
        };
        command.args(["-c", &format!("ulimit -u {threads} && exec ./agent-host {ASK} --data data-{threads}")]);
        let output =
            command.current_dir(folder.path()).env("HOME", folder.path()).stdin(Stdio::null()).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), expected, "ulimit -u {threads}: {stderr}");
        assert_eq!(stderr.contains("`ulimit -u`"), expected == Some(2), "ulimit -u {threads}: {stderr}");
        assert!(!stderr.contains("panicked"), "{stderr}");
    }
}

/// If the process reaches its limit of processor time, the host reports this limit, even if the system would kill the
/// process without a warning signal.
#[test]
fn reports_exhausted_processor_time() {
    let folder = plugin_folder();
    let endless = "(component (core module $m (func $run loop br 0 end) (start $run)) (core instance $i (instantiate $m))\
                   (core module $n (func (export \"f\"))) (core instance $j (instantiate $n))\
                   (func (export \"f\") (canon lift (core func $j \"f\"))))";
    std::fs::write(folder.path().join("endless.wasm"), wat::parse_str(endless).unwrap()).unwrap();
    for limits in ["ulimit -t 2", "ulimit -S -t 2"] {
        let (code, text) = run_with_limits(limits, folder.path(), "plugin inspect endless.wasm");
        assert!(code == Some(2) && text.contains("`ulimit -t`"), "{limits}: {code:?} {text}");
    }
}
