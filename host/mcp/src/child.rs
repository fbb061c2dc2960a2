//! A server's process: started in a group of its own, and never left behind, whatever becomes of the host's own code.

use crate::configuration::{ChildCommand, ServerConfig};
use crate::error::shown;
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio_util::sync::{CancellationToken, DropGuard};

/// From the signal that asks a process to end to the one that ends it.
const TERMINATION_TIME: Duration = Duration::from_millis(500);
/// Bytes of one line of standard error that are logged.
const LOGGED_LINE: usize = 1 << 10;
/// Bytes of standard error that are logged of one process.
const LOGGED_BYTES: usize = 256 << 10;
/// Last lines that an error message quotes.
const QUOTED_LINES: usize = 3;
/// Characters of such a line.
const QUOTED_CHARACTERS: usize = 300;

/// A process that runs, or has ended. Dropping it ends the process and all that it started.
pub(crate) struct Child {
    ended: CancellationToken,
    said: Arc<LastLines>,
    stop: DropGuard,
}

/// A process that has just been started, with the ends of its pipes.
pub(crate) struct Started {
    pub(crate) child: Child,
    pub(crate) stdin: ChildStdin,
    pub(crate) stdout: ChildStdout,
}

impl Child {
    /// Starts the process. It is given the configured time to end by itself when it is to end.
    pub(crate) fn start(config: &ServerConfig, command: &ChildCommand, groups: &Groups) -> io::Result<Started> {
        let mut starting = Command::new(&command.command);
        starting.args(&command.args).env_clear().envs(&command.env).process_group(0).kill_on_drop(true);
        starting.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(directory) = &command.directory {
            starting.current_dir(directory);
        }
        let mut process = starting.spawn()?;
        let group = groups.add(process.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)));
        let missing = || io::Error::other("a pipe is missing");
        let stdin = process.stdin.take().ok_or_else(missing)?;
        let stdout = process.stdout.take().ok_or_else(missing)?;
        let stderr = process.stderr.take().ok_or_else(missing)?;
        let said = Arc::new(LastLines::default());
        tokio::spawn(log(config.name.clone(), stderr, said.clone()));
        let (stop, ended) = (CancellationToken::new(), CancellationToken::new());
        let guard = ended.clone().drop_guard();
        tokio::spawn(supervise(process, (group, guard), stop.clone(), config.limits.close_time));
        Ok(Started { child: Self { ended, said, stop: stop.drop_guard() }, stdin, stdout })
    }

    /// Waits until the process has ended by itself.
    pub(crate) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// Ends it, and waits until it and all that it started are gone.
    pub(crate) async fn end(self) {
        let Self { ended, stop, .. } = self;
        drop(stop);
        ended.cancelled().await;
    }

    /// Its last words on standard error, for a message; empty without any.
    pub(crate) fn last_words(&self) -> String {
        let lines = self.said.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        if lines.is_empty() { String::new() } else { format!("; its last words: {}", lines.join(" / ")) }
    }
}

/// All groups of processes that run: for the end of a host that waits for nothing any more.
#[derive(Clone, Default)]
pub(crate) struct Groups(Arc<Mutex<BTreeMap<i32, Pid>>>);

impl Groups {
    /// Kills all.
    pub(crate) fn kill(&self) {
        for group in self.all().values() {
            signal(*group, Signal::KILL);
        }
    }

    fn add(&self, group: Option<Pid>) -> Group {
        self.all().extend(group.map(|group| (group.as_raw_nonzero().get(), group)));
        Group { group, among: self.clone() }
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<i32, Pid>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The processes of one group. Dropping it kills all that are left; the operating system gives the number of a group to
/// nobody else while one of them lives.
struct Group {
    group: Option<Pid>,
    among: Groups,
}

impl Group {
    fn signal(&self, word: Signal) {
        if let Some(group) = self.group {
            signal(group, word);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        if let Some(group) = self.group {
            self.among.all().remove(&group.as_raw_nonzero().get());
        }
    }
}

fn signal(group: Pid, signal: Signal) {
    // The only error is that nobody is left.
    let _ = kill_process_group(group, signal);
}

/// Waits for the end of the process or for the word to end it. The group outlives the process within this future, so
/// that also a runtime that is torn down kills both; `_ended` tells of it last.
async fn supervise(
    mut process: tokio::process::Child,
    (group, _ended): (Group, DropGuard),
    stop: CancellationToken,
    close_time: Duration,
) {
    tokio::select! {
        _ = process.wait() => {}
        () = stop.cancelled() => {
            // Its input is being closed, which is the protocol's way to say it.
            if tokio::time::timeout(close_time, process.wait()).await.is_err() {
                group.signal(Signal::TERM);
                if tokio::time::timeout(TERMINATION_TIME, process.wait()).await.is_err() {
                    group.signal(Signal::KILL);
                    let _ = process.wait().await;
                }
            }
        }
    }
    drop(group);
}

#[derive(Default)]
struct LastLines(Mutex<VecDeque<String>>);

impl LastLines {
    fn push(&self, line: &str) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == QUOTED_LINES {
            lines.pop_front();
        }
        lines.push_back(shown(line, QUOTED_CHARACTERS));
    }
}

/// Reads all that a process says on standard error, so that it never blocks, and logs what is within the bounds.
async fn log(server: String, mut stderr: impl AsyncRead + Unpin, said: Arc<LastLines>) {
    let (mut piece, mut line, mut logged) = (vec![0; 4096], Vec::new(), 0);
    while let Ok(length @ 1..) = stderr.read(&mut piece).await {
        for part in piece[..length].split_inclusive(|byte| *byte == b'\n') {
            let room = LOGGED_LINE.saturating_sub(line.len());
            line.extend_from_slice(&part[..part.len().min(room)]);
            if part.ends_with(b"\n") {
                tell(&server, &line, &mut logged, &said);
                line.clear();
            }
        }
    }
    tell(&server, &line, &mut logged, &said);
}

fn tell(server: &str, line: &[u8], logged: &mut usize, said: &LastLines) {
    let text = String::from_utf8_lossy(line);
    let text = text.trim_end();
    if text.is_empty() {
        return;
    }
    said.push(text);
    if *logged > LOGGED_BYTES {
        return;
    }
    *logged += text.len();
    match *logged > LOGGED_BYTES {
        true => tracing::info!(server, "says more on standard error than is logged"),
        false => tracing::info!(server, "{}", shown(text, LOGGED_LINE)),
    }
}
