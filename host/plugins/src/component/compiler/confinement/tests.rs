//! Tests of the confinement of the compiler process (P15). Each test runs in its own process.

use super::*;
use std::io::Write;
use std::net::TcpListener;
use std::process::Command;

/// Environment variable that is set in the process in which a test may confine itself.
const TEST_ALONE: &str = "AGENT_HOST_TEST_ALONE";

/// Returns true if this process may confine itself. In the process of the test runner, starts a shell that opens a
/// file and then runs this test in a new process. Checks that the test succeeds in the new process, and returns false.
fn is_own_process(test: &str) -> bool {
    if std::env::var_os(TEST_ALONE).is_some() {
        return true;
    }
    let program = std::env::current_exe().expect("this program");
    let script = format!(
        "exec 9</dev/null; exec '{}' --exact component::compiler::confinement::tests::{test} --nocapture --test-threads=1",
        program.display()
    );
    let output = Command::new("/bin/sh").args(["-c", &script]).env(TEST_ALONE, "1").output().expect("the shell runs");
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains(DONE_TEXT), "{text}");
    false
}

/// Text that a test in its own process prints at its end.
const DONE_TEXT: &str = "all steps were done";

fn print_done() {
    writeln!(std::io::stdout(), "{DONE_TEXT}").expect("the parent listens");
}

// P15: the compiler process has no open descriptors except its pipes, even if the host has inherited
// another descriptor.
#[test]
fn inherited_descriptors_are_closed() {
    if !is_own_process("inherited_descriptors_are_closed") {
        return;
    }
    let inherited = std::path::Path::new("/proc/self/fd/9");
    assert!(inherited.symlink_metadata().is_ok(), "the shell has opened the descriptor");
    close_inherited_descriptors();
    assert!(inherited.symlink_metadata().is_err(), "the descriptor is still open");
    print_done();
}

// P15, row 36: the compiler process cannot open files or sockets and cannot start programs, but it can allocate memory
// and start threads.
#[test]
fn compiler_process_is_confined() {
    if !is_own_process("compiler_process_is_confined") {
        return;
    }
    let program = std::env::current_exe().expect("this program");
    let new = std::env::temp_dir().join(format!("agent-host-never-written-{}", std::process::id()));
    let parent = rustix::process::getppid().expect("a parent");
    let confinement = confine_this_process();
    // The kernel of the test machine must enforce both parts of the confinement: the system call filter and the
    // access rules.
    assert!(confinement.seccomp && confinement.landlock, "this kernel lacks {:?}", confinement.missing());
    assert!(std::fs::File::open(&program).is_err(), "a file was opened");
    assert!(std::fs::read_dir("/").is_err(), "a folder was read");
    assert!(std::fs::write(&new, b"x").is_err(), "a file was written");
    assert!(std::fs::create_dir(&new).is_err(), "a folder was created");
    assert!(TcpListener::bind("127.0.0.1:0").is_err(), "a socket was opened");
    assert!(std::os::unix::net::UnixDatagram::unbound().is_err(), "a local socket was opened");
    assert!(Command::new("/bin/true").spawn().is_err(), "a program was started");
    assert!(rustix::process::kill_process(parent, rustix::process::Signal::CONT).is_err(), "a signal was sent");
    let sum: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| vec![1_u8; 4 << 20].len())).collect();
        threads.into_iter().map(|thread| thread.join().expect("the thread ends")).sum()
    });
    assert_eq!(sum, 32 << 20);
    print_done();
}
