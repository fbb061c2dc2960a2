//! Machines that allow a process little: what ends it otherwise without a word is one line that names the limit.

use crate::exit::{Exit, Failure};
use rustix::process::{Resource, getrlimit};
use std::fs::File;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

/// Bytes of the stack that the program's own work has, whatever the limit of the first thread is (`ulimit -s`).
const STACK_BYTES: usize = 8 << 20;
/// Files that are opened to see whether the limit of open files is reached.
const PROBES: usize = 16;
/// Between two looks at the processor time that is left.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);
/// Processor time that is left when the process ends by itself. Each processor may use as much between two looks.
const RESERVE: Duration = Duration::from_millis(100);
/// Signals of Linux and of the BSDs: the limits of processor time and of the size of a file.
const SIGXCPU: i32 = 24;
const SIGXFSZ: i32 = 25;
/// What `execute` panics with, and so does tokio, where no thread can be started.
const NO_THREAD: [&str; 2] = ["failed to spawn thread", "spawn worker thread"];

/// Runs the program on a thread whose stack is large enough.
pub(crate) fn on_large_stack(program: fn() -> ExitCode) -> ExitCode {
    say_when_threads_are_scarce();
    let thread = std::thread::Builder::new().name("main".to_owned()).stack_size(STACK_BYTES).spawn(program);
    match thread {
        // A panic has been printed already.
        Ok(thread) => thread.join().unwrap_or(ExitCode::from(101)),
        Err(error) => {
            let failure = named(Failure::refused(format!("a thread cannot be started: {error}")));
            say(&failure.message);
            failure.exit.into()
        }
    }
}

/// A panic since no thread can be started is no fault of the program.
fn say_when_threads_are_scarce() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let said = panic.payload_as_str().unwrap_or_default();
        if NO_THREAD.iter().any(|words| said.contains(words)) {
            let failure = named(Failure::refused(said));
            say(&failure.message);
            std::process::exit(Exit::Refused.code().into());
        }
        usual(panic);
    }));
}

/// Watches the limits whose signals would end the process. To be called in the runtime.
pub(crate) fn watch() {
    use tokio::signal::unix::{SignalKind, signal};
    // With a handler, a write beyond the limit is an error that can be told.
    if let Err(error) = signal(SignalKind::from_raw(SIGXFSZ)) {
        tracing::debug!(%error, "a file that becomes too large ends the process");
    }
    let Some(seconds) = getrlimit(Resource::Cpu).current else { return };
    if let Ok(mut signals) = signal(SignalKind::from_raw(SIGXCPU)) {
        tokio::spawn(async move {
            signals.recv().await;
            no_time_left(seconds);
        });
    }
    // Where the last limit is the first one, there is no signal but the one that kills.
    let watched = std::thread::Builder::new().name("processor-time".to_owned()).spawn(move || {
        while used().is_none_or(|used| used + RESERVE < Duration::from_secs(seconds)) {
            std::thread::sleep(BETWEEN_LOOKS);
        }
        no_time_left(seconds);
    });
    if let Err(error) = watched {
        tracing::debug!(%error, "the limit of processor time is not watched");
    }
}

/// Processor time that this process has used.
fn used() -> Option<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Some(Duration::new(u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?))
}

/// As after a crash: what was committed stays, and a turn goes on when the session is gone on with.
fn no_time_left(seconds: u64) -> ! {
    say(&format!(
        "this process has used the {seconds} s of processor time that it may have (`ulimit -t`): raise the limit; \
         `agent-host --continue` goes on with an interrupted turn"
    ));
    std::process::exit(Exit::Refused.code().into());
}

/// Whoever could show it better may not be there.
fn say(message: &str) {
    let _ = writeln!(std::io::stderr(), "error: {message}");
}

/// A failure with the limit of the system that it comes from, where it comes from one: then nothing but that limit is to blame.
pub(crate) fn named(failure: Failure) -> Failure {
    match limit_behind(&failure.message) {
        Some(limit) => Failure { exit: Exit::Refused, message: format!("{}\n{limit}", failure.message) },
        None => failure,
    }
}

fn limit_behind(message: &str) -> Option<String> {
    let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
    if says(&["Too many open files", "os error 24", "unable to open database file"]) && has_no_files_left(message) {
        let most = getrlimit(Resource::Nofile).current.unwrap_or_default();
        return Some(format!(
            "this process may have {most} files open at once (`ulimit -n`), which is too few: raise the limit"
        ));
    }
    let bytes = |resource| getrlimit(resource).current;
    if says(&["File too large", "os error 27", "disk I/O error"])
        && let Some(most) = bytes(Resource::Fsize)
    {
        return Some(format!(
            "a file that this process writes may have {most} bytes (`ulimit -f`), which is too few: raise the limit"
        ));
    }
    if says(&["Cannot allocate memory", "os error 12", "out of memory"])
        && let Some(most) = bytes(Resource::As).or_else(|| bytes(Resource::Data))
    {
        let most = most >> 20;
        return Some(format!(
            "this process may use {most} MiB of address space (`ulimit -v`), which is too little: raise the limit"
        ));
    }
    let is_about_threads =
        says(&["thread cannot be started", "threads cannot be started", "spawn worker thread", "spawn thread"]);
    if is_about_threads || says(&["Resource temporarily unavailable", "os error 11"]) {
        let most =
            bytes(Resource::Nproc).map(|most| format!("{most} processes and threads of this user")).unwrap_or_default();
        let most = if most.is_empty() { "few threads".to_owned() } else { most };
        return Some(format!("the system allows {most} (`ulimit -u`, or the limit of the container): raise the limit"));
    }
    None
}

/// Whether the limit of open files is what an error comes from. Files that were open then may be closed by now.
fn has_no_files_left(message: &str) -> bool {
    let few = getrlimit(Resource::Nofile).current.is_some_and(|most| most < 64);
    let opened: Result<Vec<_>, _> = (0..PROBES).map(|_| File::open("/dev/null")).collect();
    few || opened.is_err() || message.contains("Too many open files")
}
