//! Runs a server as a child process in a separate process group, and ensures that the processes of this group end with
//! the server.

use crate::configuration::{ChildCommand, ServerConfig};
use crate::error::printable;
use crate::redaction::redaction_for;
use agent_core::redaction::Redaction;
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Time between the signal that asks a process to exit and the signal that kills the process.
const TERMINATION_TIME: Duration = Duration::from_millis(500);
/// Time limit that replaces the configured close time and [`TERMINATION_TIME`] if the host must stop quickly.
const QUICK_STOP_TIME: Duration = Duration::from_millis(40);
/// Maximum time to read the rest of the standard error output after the process has exited.
const STDERR_DRAIN_TIME: Duration = Duration::from_millis(500);
/// Maximum number of bytes that are logged from one line of standard error.
const MAX_LOGGED_LINE_BYTES: usize = 1 << 10;
/// Maximum number of bytes that are logged in total from the standard error of one process.
const MAX_LOGGED_BYTES: usize = 256 << 10;
/// Maximum number of lines that an error message quotes from the end of stderr.
const QUOTED_LINES: usize = 3;
/// Maximum number of characters that an error message quotes from one line of stderr.
const MAX_QUOTED_CHARACTERS: usize = 300;

/// A running child process. Dropping this value ends the process and all other processes in its process group.
pub(crate) struct Child {
    /// This token is cancelled when the process has ended.
    ended: CancellationToken,
    /// This token is cancelled when the process has closed its standard error output, or when the host stops reading
    /// this output.
    stderr_closed: CancellationToken,
    last_lines: Arc<LastLines>,
    /// Dropping this guard asks the process to exit.
    stop: DropGuard,
}

/// A process that was just started, with the pipes to its standard input and from its standard output.
pub(crate) struct StartedChild {
    pub(crate) child: Child,
    pub(crate) stdin: ChildStdin,
    pub(crate) stdout: ChildStdout,
}

impl Child {
    /// Starts the process. When the host later asks the process to exit, the process gets the configured close time
    /// before the host ends it with signals.
    pub(crate) fn start(
        config: &ServerConfig,
        command: &ChildCommand,
        groups: &ProcessGroups,
    ) -> io::Result<StartedChild> {
        let mut process_command = Command::new(&command.command);
        process_command.args(&command.args).env_clear().envs(&command.env).kill_on_drop(true);
        #[cfg(unix)]
        process_command.process_group(0);
        process_command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(directory) = &command.directory {
            process_command.current_dir(directory);
        }
        let mut process = process_command.spawn()?;
        let group = groups.add(process.id());
        let missing = || io::Error::other("a pipe to the process is missing");
        let stdin = process.stdin.take().ok_or_else(missing)?;
        let stdout = process.stdout.take().ok_or_else(missing)?;
        let stderr = process.stderr.take().ok_or_else(missing)?;
        let last_lines = Arc::new(LastLines::default());
        let (stop, ended, stderr_closed) =
            (CancellationToken::new(), CancellationToken::new(), CancellationToken::new());
        let logging = log_stderr((config.name.clone(), redaction_for(config)), stderr, last_lines.clone());
        tokio::spawn(log_until_closed(logging, ended.clone(), stderr_closed.clone().drop_guard()));
        let guard = ended.clone().drop_guard();
        let shutdown = Shutdown {
            stop: stop.clone(),
            quick_stop: groups.quick_stop_token(),
            close_time: config.limits.close_time,
        };
        tokio::spawn(supervise(process, (group, guard), shutdown));
        Ok(StartedChild { child: Self { ended, stderr_closed, last_lines, stop: stop.drop_guard() }, stdin, stdout })
    }

    /// Waits until the process has closed its standard error output, or until the host stops reading this output.
    pub(crate) async fn stderr_closed(&self) {
        self.stderr_closed.cancelled().await;
    }

    /// Ends the process and all other processes in its process group, and waits until they have ended.
    pub(crate) async fn end(self) {
        let Self { ended, stop, .. } = self;
        drop(stop);
        ended.cancelled().await;
    }

    /// Returns the last lines on standard error in a form that can be appended to an error message. If the process
    /// wrote no lines to standard error, returns an empty string.
    pub(crate) fn last_stderr_lines(&self) -> String {
        let lines = self.last_lines.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        if lines.is_empty() {
            String::new()
        } else {
            format!("; its last lines on standard error: {}", lines.join(" / "))
        }
    }
}

/// The process groups of all servers that are running. A host that must exit immediately can use this value to kill
/// all groups.
#[derive(Clone, Default)]
pub(crate) struct ProcessGroups {
    ids: Arc<Mutex<BTreeSet<u32>>>,
    quick_stop: Arc<Mutex<CancellationToken>>,
}

impl ProcessGroups {
    /// Shortens the remaining time that the host gives the running process groups to exit.
    pub(crate) fn shorten_grace_periods(&self) {
        let mut quick_stop = self.quick_stop.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *quick_stop).cancel();
    }

    /// Returns a token that is cancelled by the next call to [`Self::shorten_grace_periods`].
    pub(crate) fn quick_stop_token(&self) -> CancellationToken {
        self.quick_stop.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Kills all processes in the running process groups.
    pub(crate) fn kill(&self) {
        for group in self.ids().iter() {
            signal(*group, StopSignal::Kill);
        }
    }

    fn add(&self, group: Option<u32>) -> ProcessGroup {
        self.ids().extend(group);
        ProcessGroup { group, groups: self.clone() }
    }

    fn ids(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The process group of one server. Dropping this value kills all remaining processes of the group. The operating
/// system does not reuse a group id while a process of the group exists.
struct ProcessGroup {
    group: Option<u32>,
    groups: ProcessGroups,
}

impl ProcessGroup {
    fn signal(&self, stop_signal: StopSignal) {
        if let Some(group) = self.group {
            signal(group, stop_signal);
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.signal(StopSignal::Kill);
        if let Some(group) = self.group {
            self.groups.ids().remove(&group);
        }
    }
}

/// Signal that the host can send to a process group.
#[derive(Clone, Copy)]
enum StopSignal {
    /// Asks the processes of the group to exit.
    Terminate,
    /// Kills the processes of the group immediately.
    Kill,
}

#[cfg(unix)]
fn signal(group: u32, stop_signal: StopSignal) {
    use rustix::process::{Pid, Signal, kill_process_group};
    let signal = match stop_signal {
        StopSignal::Terminate => Signal::TERM,
        StopSignal::Kill => Signal::KILL,
    };
    if let Some(group) = i32::try_from(group).ok().and_then(Pid::from_raw) {
        // Ignore the error, because the only possible error is that the group no longer has any processes.
        let _ = kill_process_group(group, signal);
    }
}

/// Does nothing, because process groups are not supported on this system. On such a system, the host can end only the
/// process that it started, through the handle of that process.
#[cfg(not(unix))]
fn signal(_: u32, _: StopSignal) {}

/// Tokens and time limits that determine when and how a process is ended.
struct Shutdown {
    /// This token is cancelled when the host no longer needs the process.
    stop: CancellationToken,
    /// This token is cancelled when the host must stop quickly, so that the process gets less time to exit.
    quick_stop: CancellationToken,
    /// Time for the process to exit after its standard input is closed.
    close_time: Duration,
}

impl Shutdown {
    /// Waits for the process and returns whether it exits within `time`. If the host must stop quickly, the process
    /// gets only [`QUICK_STOP_TIME`] from then on.
    async fn exits_within(&self, process: &mut tokio::process::Child, time: Duration) -> bool {
        let quick_stop_timeout = async {
            self.quick_stop.cancelled().await;
            tokio::time::sleep(QUICK_STOP_TIME).await;
        };
        tokio::select! {
            _ = process.wait() => true,
            () = tokio::time::sleep(time) => false,
            () = quick_stop_timeout => false,
        }
    }
}

/// Waits until the process exits. If `shutdown.stop` is cancelled before that, ends the process. This future owns the
/// process group, so all processes of the group are also killed if the runtime is dropped. `_ended` is dropped last and
/// thereby reports that the process has ended.
async fn supervise(mut process: tokio::process::Child, (group, _ended): (ProcessGroup, DropGuard), shutdown: Shutdown) {
    tokio::select! {
        _ = process.wait() => {}
        () = shutdown.stop.cancelled() => {
            // The connection closes the standard input of the process. In the protocol, this is the request to the
            // server to exit.
            if !shutdown.exits_within(&mut process, shutdown.close_time).await {
                group.signal(StopSignal::Terminate);
                if !shutdown.exits_within(&mut process, TERMINATION_TIME).await {
                    group.signal(StopSignal::Kill);
                    let _ = process.start_kill();
                    let _ = process.wait().await;
                }
            }
        }
    }
    drop(group);
}

/// Logs the standard error output of the process until the pipe is closed. Logging also stops [`STDERR_DRAIN_TIME`]
/// after the process has ended, because a child process that has left the process group may keep the pipe open forever.
async fn log_until_closed(logging: impl Future<Output = ()>, ended: CancellationToken, _stderr_closed: DropGuard) {
    let drain_timeout = async {
        ended.cancelled().await;
        tokio::time::sleep(STDERR_DRAIN_TIME).await;
    };
    tokio::select! {
        () = logging => {}
        () = drain_timeout => {}
    }
}

/// The last lines that a process wrote to standard error, for error messages.
#[derive(Default)]
struct LastLines(Mutex<VecDeque<String>>);

impl LastLines {
    fn push(&self, line: &str) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == QUOTED_LINES {
            lines.pop_front();
        }
        lines.push_back(printable(line, MAX_QUOTED_CHARACTERS));
    }
}

/// Reads and logs the standard error output of the process. Output beyond the limits is read but not logged, because
/// the process would block if nobody read its output.
async fn log_stderr(server: (String, Redaction), mut stderr: impl AsyncRead + Unpin, last_lines: Arc<LastLines>) {
    let (mut piece, mut line, mut logged) = (vec![0; 4096], Vec::new(), 0);
    while let Ok(length @ 1..) = stderr.read(&mut piece).await {
        for part in piece[..length].split_inclusive(|byte| *byte == b'\n') {
            let remaining = MAX_LOGGED_LINE_BYTES.saturating_sub(line.len());
            line.extend_from_slice(&part[..part.len().min(remaining)]);
            if part.ends_with(b"\n") {
                log_line(&server, &line, &mut logged, &last_lines);
                line.clear();
            }
        }
    }
    log_line(&server, &line, &mut logged, &last_lines);
}

fn log_line((server, redaction): &(String, Redaction), line: &[u8], logged: &mut usize, last_lines: &LastLines) {
    let text = redaction.text(String::from_utf8_lossy(line).into_owned());
    let text = text.trim_end();
    if text.is_empty() {
        return;
    }
    last_lines.push(text);
    if *logged > MAX_LOGGED_BYTES {
        return;
    }
    *logged += text.len();
    match *logged > MAX_LOGGED_BYTES {
        true => tracing::info!(server, "further output on standard error is not logged"),
        false => tracing::info!(server, "{}", printable(text, MAX_LOGGED_LINE_BYTES)),
    }
}
