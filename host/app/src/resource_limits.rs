//! Handles resource limits of the operating system. If a limit stops the process, an error message names the limit.

use crate::exit::{Exit, Failure};
use rustix::process::{Resource, getrlimit};
use std::fs::File;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

/// Stack size in bytes of the thread that runs the program. The limit of the main thread (`ulimit -s`) has no effect on
/// this thread.
const STACK_BYTES: usize = 8 << 20;
/// Number of files that the host opens to find out whether the process has reached its limit on open files.
const PROBE_FILES: usize = 16;
/// Interval between checks of the remaining processor time.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Remaining processor time at which the process exits by itself. The value is larger than the time that all processors
/// together can use between two checks.
const RESERVE: Duration = Duration::from_millis(250);
/// Number of the signal that Linux and the BSDs send when a process reaches its limit of processor time.
const SIGXCPU: i32 = 24;
/// Number of the signal that Linux and the BSDs send when a write exceeds the limit of file sizes.
const SIGXFSZ: i32 = 25;
/// Parts of the panic messages that the standard library and tokio print if no thread can be started.
const THREAD_PANICS: [&str; 2] = ["failed to spawn thread", "spawn worker thread"];

/// Maximum number of arenas of glibc's allocator. By default, glibc creates one arena per thread, up to eight arenas
/// per processor. If one thread allocates memory and another thread frees it, the memory stays in the arena of the
/// first thread. For example, the host uses 537 MB to fork a session of 100,000 messages with the default number of
/// arenas, and 179 MB with two arenas.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const ARENAS: i32 = 2;

/// Limits the number of the allocator's arenas to [`ARENAS`]. Must be called before any thread is started.
pub(crate) fn use_few_arenas() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        #[expect(unsafe_code, reason = "no crate offers this call, which only sets a number inside the allocator")]
        // SAFETY: `mallopt` has no preconditions, and no other thread runs yet.
        let is_set = unsafe { libc::mallopt(libc::M_ARENA_MAX, ARENAS) };
        debug_assert_eq!(is_set, 1, "glibc supports this parameter");
    }
}

/// Runs the program on a new thread with a stack of [`STACK_BYTES`].
pub(crate) fn on_large_stack(program: fn() -> ExitCode) -> ExitCode {
    explain_thread_panics();
    let thread = std::thread::Builder::new().name("main".to_owned()).stack_size(STACK_BYTES).spawn(program);
    match thread {
        // The panic hook has already printed the message of a panic.
        Ok(thread) => thread.join().unwrap_or(ExitCode::from(101)),
        Err(error) => {
            let failure = explain(Failure::refused(format!("a thread cannot be started: {error}")));
            print_error(&failure.message);
            failure.exit.into()
        }
    }
}

/// Installs a panic hook. If the standard library panics because a limit of the system prevents a new thread, the hook
/// prints an error message that explains the limit. Other panics are printed as usual.
fn explain_thread_panics() {
    let default_hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let message = panic.payload_as_str().unwrap_or_default();
        if THREAD_PANICS.iter().any(|words| message.contains(words)) {
            let failure = explain(Failure::refused(message));
            print_error(&failure.message);
            std::process::exit(Exit::Refused.code().into());
        }
        default_hook(panic);
    }));
}

/// Watches the limits on file sizes and processor time, whose signals would end the process. Must be called within the
/// tokio runtime.
pub(crate) fn watch() {
    use tokio::signal::unix::{SignalKind, signal};
    // If the process handles the signal SIGXFSZ, a write beyond the file size limit returns an error instead of ending
    // the process.
    if let Err(error) = signal(SignalKind::from_raw(SIGXFSZ)) {
        tracing::debug!(%error, "cannot handle SIGXFSZ; a write beyond the file size limit will end the process");
    }
    let Some(seconds) = getrlimit(Resource::Cpu).current else { return };
    if let Ok(mut signals) = signal(SignalKind::from_raw(SIGXCPU)) {
        tokio::spawn(async move {
            signals.recv().await;
            exit_at_time_limit(seconds);
        });
    }
    // If the soft and hard limits are equal, the kernel sends only SIGKILL, so a thread also checks the used processor
    // time.
    let watched = std::thread::Builder::new().name("processor-time".to_owned()).spawn(move || {
        while used_time().is_none_or(|used| used + RESERVE < Duration::from_secs(seconds)) {
            std::thread::sleep(CHECK_INTERVAL);
        }
        exit_at_time_limit(seconds);
    });
    if let Err(error) = watched {
        tracing::debug!(%error, "cannot watch the limit of processor time");
    }
}

/// Returns the processor time that this process has used. Returns None if the clock's value is invalid.
fn used_time() -> Option<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Some(Duration::new(u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?))
}

/// Exits the process without cleanup. Committed data is not lost, and an interrupted turn resumes when the user
/// continues the session.
fn exit_at_time_limit(seconds: u64) -> ! {
    print_error(&format!(
        "this process has used up its limit of {seconds} s of processor time (`ulimit -t`): raise the limit; \
         `agent-host --continue` continues an interrupted turn"
    ));
    std::process::exit(Exit::Refused.code().into());
}

/// Prints directly to stderr, because the [`Terminal`](crate::terminal::Terminal) may not exist yet.
fn print_error(message: &str) {
    let _ = writeln!(std::io::stderr(), "error: {message}");
}

/// If a resource limit caused the failure, adds a line that names the limit, and changes the exit code to "refused".
pub(crate) fn explain(failure: Failure) -> Failure {
    match exceeded_limit(&failure.message) {
        Some(limit) => Failure { exit: Exit::Refused, message: format!("{}\n{limit}", failure.message) },
        None => failure,
    }
}

fn exceeded_limit(message: &str) -> Option<String> {
    let mentions = |words: &[&str]| words.iter().any(|word| message.contains(word));
    if mentions(&["Too many open files", "(os error 24)", "unable to open database file"]) && has_no_files_left(message)
    {
        let max_files = getrlimit(Resource::Nofile).current.unwrap_or_default();
        return Some(format!(
            "this process may open at most {max_files} files at a time (`ulimit -n`), which is too few: raise the limit"
        ));
    }
    let limit_of = |resource| getrlimit(resource).current;
    if mentions(&["File too large", "(os error 27)", "disk I/O error"])
        && let Some(max_bytes) = limit_of(Resource::Fsize)
    {
        return Some(format!(
            "this process may write files of at most {max_bytes} bytes (`ulimit -f`), which is too small: raise the limit"
        ));
    }
    if mentions(&["Cannot allocate memory", "(os error 12)", "out of memory"])
        && let Some(max_bytes) = limit_of(Resource::As).or_else(|| limit_of(Resource::Data))
    {
        let max_mib = max_bytes >> 20;
        return Some(format!(
            "this process may use at most {max_mib} MiB of address space (`ulimit -v`), which is too little: raise the limit"
        ));
    }
    let is_about_threads =
        mentions(&["thread cannot be started", "threads cannot be started", "spawn worker thread", "spawn thread"]);
    if is_about_threads || mentions(&["Resource temporarily unavailable", "(os error 11)"]) {
        let allowed = limit_of(Resource::Nproc)
            .map(|limit| format!("{limit} processes and threads of this user"))
            .unwrap_or_default();
        let allowed = if allowed.is_empty() { "too few threads".to_owned() } else { allowed };
        return Some(format!("the system allows {allowed} (`ulimit -u`, or the container's limit): raise the limit"));
    }
    None
}

/// Checks whether the limit on open files caused an error. It is not sufficient to open some files as a test, because
/// files that were open when the error occurred may have been closed in the meantime.
fn has_no_files_left(message: &str) -> bool {
    let is_limit_low = getrlimit(Resource::Nofile).current.is_some_and(|limit| limit < 64);
    let probe: Result<Vec<_>, _> = (0..PROBE_FILES).map(|_| File::open("/dev/null")).collect();
    is_limit_low || probe.is_err() || message.contains("Too many open files")
}
