//! With the real binary: while the store is locked by another process, or its disk is full, a turn waits and then goes on, and no
//! result is lost (row 46).

use crate::host_files::Place;
use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The call shows that it runs, and ends while nothing can be stored.
const OPERATIONS: &str = "write tree/begun x; sleep 1000; write tree/after x";

/// Longer than the host waits in silence.
const HINDERED: Duration = Duration::from_secs(10);

fn place() -> Place {
    let place = Place::new("[plugins.intruder.grants]\nask = false\nwrite = [\"tree\"]\n", OPERATIONS);
    std::fs::create_dir(place.path("tree")).unwrap();
    place
}

fn wait_for(path: &Path, running: &mut Child) {
    let started = Instant::now();
    while !path.exists() {
        assert!(started.elapsed().as_secs() < 60 && running.try_wait().unwrap().is_none(), "the call does not begin");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The turn has its answer, and the call one result.
fn check(said: &str, told: &str) {
    let events = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let results = events.filter(|event| event["type"].as_str().is_some_and(|kind| kind.starts_with("tool_result")));
    assert_eq!(results.count(), 1, "{said}\n{told}");
    assert!(said.contains("Done."), "{said}\n{told}");
    assert!(told.contains("can be written again, after"), "{told}");
}

/// Row 46: another process locks the store while a call runs.
#[test]
fn row_46_a_turn_waits_for_a_lock_and_loses_no_result() {
    let place = place();
    let mut running = place.command(&["--agent", "agent.toml", "--json", "Go."]).spawn().unwrap();
    wait_for(&place.path("tree/begun"), &mut running);
    let other = rusqlite::Connection::open(place.path("data/agent-host.db")).unwrap();
    other.busy_timeout(Duration::from_secs(10)).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    std::thread::sleep(HINDERED);
    assert!(
        place.path("tree/after").exists() && running.try_wait().unwrap().is_none(),
        "the call is done, the turn is not"
    );
    other.execute_batch("ROLLBACK").unwrap();
    let output = running.wait_with_output().unwrap();
    let (said, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{told}");
    check(&said, &told);
    if cfg!(target_os = "linux") {
        assert!(told.contains(&format!("another process ({}", std::process::id())), "who has it is named: {told}");
    }
}

/// A file system of its own for the data folder, filled while the call runs and freed again.
const IN_A_SMALL_DISK: &str = "mount -t tmpfs -o size=24m,mode=700 none data || exit 77
\"$@\" & host=$!
while [ ! -e tree/begun ]; do kill -0 $host || exit 78; sleep 0.05; done
dd if=/dev/zero of=data/filler bs=4k 2>/dev/null
sleep 10
[ -e tree/after ] && kill -0 $host || exit 79
rm data/filler
wait $host";

/// Row 46: the disk is full while a call runs. It needs a kernel that lets this user make a file system.
#[test]
#[cfg(target_os = "linux")]
fn row_46_a_turn_waits_for_room_and_loses_no_result() {
    let place = place();
    std::fs::create_dir_all(place.path("data")).unwrap();
    let host = place.command(&["--agent", "agent.toml", "--json", "Go."]);
    let mut inside = Command::new("unshare");
    inside.args(["--user", "--map-root-user", "--mount", "sh", "-c", IN_A_SMALL_DISK, "sh"]);
    inside.arg(host.get_program()).args(host.get_args()).current_dir(place.path(""));
    inside.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = match inside.output() {
        Ok(output) if output.status.code() != Some(77) && !starts_not(&output.stderr) => output,
        other => {
            let required = std::env::var_os("AGENT_HOST_REQUIRE_PEERS").is_some();
            assert!(!required, "this user must be able to make a file system here: {other:?}");
            // Not `eprintln!`, which the test runner keeps to itself.
            let _ = writeln!(std::io::stderr(), "SKIPPED: this user can make no file system of its own");
            return;
        }
    };
    let (said, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{:?}\n{said}\n{told}", output.status);
    assert!(told.contains("no room for the database"), "{told}");
    check(&said, &told);
}

/// What `unshare` says where it may do nothing.
fn starts_not(errors: &[u8]) -> bool {
    String::from_utf8_lossy(errors).starts_with("unshare:")
}
