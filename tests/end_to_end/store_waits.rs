//! While another process locks the store, or while the disk of the store is full, a turn of the real binary waits. When
//! the store can be written again, the turn continues, and no result is lost (row 46).

use crate::host_files::IntruderFolder;
use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The operations that the plugin call performs. The call first creates the file `tree/begun`, so that the test knows
/// that the call is running. The call ends while the store cannot be written.
const OPERATIONS: &str = "write tree/begun x; sleep 1000; write tree/after x";

/// The time for which the store is blocked. This time is longer than the time after which the host reports that it
/// waits for the store.
const BLOCKED_TIME: Duration = Duration::from_secs(10);

fn intruder_folder() -> IntruderFolder {
    let folder = IntruderFolder::new("[plugins.intruder.grants]\nask = false\nwrite = [\"tree\"]\n", OPERATIONS);
    std::fs::create_dir(folder.path("tree")).unwrap();
    folder
}

fn wait_for(path: &Path, running: &mut Child) {
    let started = Instant::now();
    while !path.exists() {
        assert!(started.elapsed().as_secs() < 60 && running.try_wait().unwrap().is_none(), "the call does not start");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Checks in the output that the turn has finished, and that its call has exactly one result.
fn check_finished(stdout: &str, stderr: &str) {
    let events = stdout.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let results = events.filter(|event| event["type"].as_str().is_some_and(|kind| kind.starts_with("tool_result")));
    assert_eq!(results.count(), 1, "{stdout}\n{stderr}");
    assert!(stdout.contains("Done."), "{stdout}\n{stderr}");
    assert!(stderr.contains("can be written again, after"), "{stderr}");
}

/// Row 46: A turn waits while another process locks the store, and continues when the store is unlocked.
#[test]
fn row_46_a_turn_waits_for_a_locked_store() {
    let folder = intruder_folder();
    let mut running = folder.command(&["--agent", "agent.toml", "--json", "Go."]).spawn().unwrap();
    wait_for(&folder.path("tree/begun"), &mut running);
    let connection = rusqlite::Connection::open(folder.path("data/agent-host.db")).unwrap();
    connection.busy_timeout(Duration::from_secs(10)).unwrap();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    std::thread::sleep(BLOCKED_TIME);
    assert!(
        folder.path("tree/after").exists() && running.try_wait().unwrap().is_none(),
        "the call has ended, but the turn has not"
    );
    connection.execute_batch("ROLLBACK").unwrap();
    let output = running.wait_with_output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");
    check_finished(&stdout, &stderr);
    if cfg!(target_os = "linux") {
        assert!(
            stderr.contains(&format!("another process ({}", std::process::id())),
            "the message names the other process: {stderr}"
        );
    }
}

/// A shell script that runs the host with a separate file system for the data folder. The script fills this file system
/// while the call runs, and later deletes the data with which it filled the file system.
const SMALL_DISK_SCRIPT: &str = "mount -t tmpfs -o size=24m,mode=700 none data || exit 77
\"$@\" & host=$!
while [ ! -e tree/begun ]; do kill -0 $host || exit 78; sleep 0.05; done
dd if=/dev/zero of=data/filler bs=4k 2>/dev/null
sleep 10
[ -e tree/after ] && kill -0 $host || exit 79
rm data/filler
wait $host";

/// Row 46: A turn waits while the disk is full, and continues when there is free space. The test needs a kernel that
/// allows this user to create a file system.
#[test]
#[cfg(target_os = "linux")]
fn row_46_a_turn_waits_for_disk_space() {
    let folder = intruder_folder();
    std::fs::create_dir_all(folder.path("data")).unwrap();
    let host = folder.command(&["--agent", "agent.toml", "--json", "Go."]);
    let mut inside = Command::new("unshare");
    inside.args(["--user", "--map-root-user", "--mount", "sh", "-c", SMALL_DISK_SCRIPT, "sh"]);
    inside.arg(host.get_program()).args(host.get_args()).current_dir(folder.path(""));
    inside.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = match inside.output() {
        Ok(output) if output.status.code() != Some(77) && !lacks_permission(&output.stderr) => output,
        other => {
            let required = std::env::var_os("AGENT_HOST_REQUIRE_PEERS").is_some();
            assert!(!required, "this user must be able to create a file system here: {other:?}");
            // The test runner captures the output of `eprintln!`, so this code writes to stderr directly.
            let _ = writeln!(std::io::stderr(), "SKIPPED: this user cannot create a file system");
            return;
        }
    };
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{:?}\n{stdout}\n{stderr}", output.status);
    assert!(stderr.contains("no space left for the database"), "{stderr}");
    check_finished(&stdout, &stderr);
}

/// Returns whether stderr contains the error that `unshare` prints if it has no permission to create the file system.
fn lacks_permission(errors: &[u8]) -> bool {
    String::from_utf8_lossy(errors).starts_with("unshare:")
}
