//! A server's process: started in a group of its own, and never left behind, whatever becomes of the host's own code.

use crate::configuration::{ChildCommand, ServerConfig};
use crate::error::shown;
use crate::redaction;
use agent_core::redaction::Redaction;
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio_util::sync::{CancellationToken, DropGuard};

/// From the signal that asks a process to end to the one that ends it.
const TERMINATION_TIME: Duration = Duration::from_millis(500);
/// The same two waits where the host has no time: for a process to end by itself, and to do so when it is told.
const HURRIED_TIME: Duration = Duration::from_millis(40);
/// From the end of a process to the end of its log.
const LAST_WORDS_TIME: Duration = Duration::from_millis(500);
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
    silent: CancellationToken,
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
        starting.args(&command.args).env_clear().envs(&command.env).kill_on_drop(true);
        #[cfg(unix)]
        starting.process_group(0);
        starting.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(directory) = &command.directory {
            starting.current_dir(directory);
        }
        let mut process = starting.spawn()?;
        let group = groups.add(process.id());
        let missing = || io::Error::other("a pipe is missing");
        let stdin = process.stdin.take().ok_or_else(missing)?;
        let stdout = process.stdout.take().ok_or_else(missing)?;
        let stderr = process.stderr.take().ok_or_else(missing)?;
        let said = Arc::new(LastLines::default());
        let (stop, ended, silent) = (CancellationToken::new(), CancellationToken::new(), CancellationToken::new());
        let logging = log((config.name.clone(), redaction::of(config)), stderr, said.clone());
        tokio::spawn(until_silent(logging, ended.clone(), silent.clone().drop_guard()));
        let guard = ended.clone().drop_guard();
        let ending = Ending { stop: stop.clone(), hurry: groups.hurry_token(), close_time: config.limits.close_time };
        tokio::spawn(supervise(process, (group, guard), ending));
        Ok(Started { child: Self { ended, silent, said, stop: stop.drop_guard() }, stdin, stdout })
    }

    /// Waits until the process has said all that it says on standard error.
    pub(crate) async fn silent(&self) {
        self.silent.cancelled().await;
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
pub(crate) struct Groups {
    all: Arc<Mutex<BTreeSet<u32>>>,
    hurry: Arc<Mutex<CancellationToken>>,
}

impl Groups {
    /// Those that run now, and are ending or are to end, get no more than a moment for it.
    pub(crate) fn hurry(&self) {
        let mut hurry = self.hurry.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *hurry).cancel();
    }

    /// Cancelled when those that run now are to hurry.
    pub(crate) fn hurry_token(&self) -> CancellationToken {
        self.hurry.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Kills all.
    pub(crate) fn kill(&self) {
        for group in self.all().iter() {
            signal(*group, Word::Kill);
        }
    }

    fn add(&self, group: Option<u32>) -> Group {
        self.all().extend(group);
        Group { group, among: self.clone() }
    }

    fn all(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The processes of one group. Dropping it kills all that are left; the operating system gives the number of a group to
/// nobody else while one of them lives.
struct Group {
    group: Option<u32>,
    among: Groups,
}

impl Group {
    fn signal(&self, word: Word) {
        if let Some(group) = self.group {
            signal(group, word);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Word::Kill);
        if let Some(group) = self.group {
            self.among.all().remove(&group);
        }
    }
}

/// What a group is told.
#[derive(Clone, Copy)]
enum Word {
    /// To end.
    Terminate,
    /// Nothing: it is ended.
    Kill,
}

#[cfg(unix)]
fn signal(group: u32, word: Word) {
    use rustix::process::{Pid, Signal, kill_process_group};
    let signal = match word {
        Word::Terminate => Signal::TERM,
        Word::Kill => Signal::KILL,
    };
    if let Some(group) = i32::try_from(group).ok().and_then(Pid::from_raw) {
        // The only error is that nobody is left.
        let _ = kill_process_group(group, signal);
    }
}

/// Elsewhere the process alone is ended, by its handle.
#[cfg(not(unix))]
fn signal(_: u32, _: Word) {}

/// When and how fast a process is to end.
struct Ending {
    stop: CancellationToken,
    hurry: CancellationToken,
    close_time: Duration,
}

impl Ending {
    /// Whether the process ends within the time, or within a moment where there is no time.
    async fn waits_for(&self, process: &mut tokio::process::Child, time: Duration) -> bool {
        let hurried = async {
            self.hurry.cancelled().await;
            tokio::time::sleep(HURRIED_TIME).await;
        };
        tokio::select! {
            _ = process.wait() => true,
            () = tokio::time::sleep(time) => false,
            () = hurried => false,
        }
    }
}

/// Waits for the end of the process or for the word to end it. The group outlives the process within this future, so
/// that also a runtime that is torn down kills both; `_ended` tells of it last.
async fn supervise(mut process: tokio::process::Child, (group, _ended): (Group, DropGuard), ending: Ending) {
    tokio::select! {
        _ = process.wait() => {}
        () = ending.stop.cancelled() => {
            // Its input is being closed, which is the protocol's way to say it.
            if !ending.waits_for(&mut process, ending.close_time).await {
                group.signal(Word::Terminate);
                if !ending.waits_for(&mut process, TERMINATION_TIME).await {
                    group.signal(Word::Kill);
                    let _ = process.start_kill();
                    let _ = process.wait().await;
                }
            }
        }
    }
    drop(group);
}

/// Logs until the pipe is closed; a process that left the group, and outlives it, may hold it open for ever.
async fn until_silent(logging: impl Future<Output = ()>, ended: CancellationToken, _silent: DropGuard) {
    let last_words = async {
        ended.cancelled().await;
        tokio::time::sleep(LAST_WORDS_TIME).await;
    };
    tokio::select! {
        () = logging => {}
        () = last_words => {}
    }
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
async fn log(server: (String, Redaction), mut stderr: impl AsyncRead + Unpin, said: Arc<LastLines>) {
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

fn tell((server, redaction): &(String, Redaction), line: &[u8], logged: &mut usize, said: &LastLines) {
    let text = redaction.text(String::from_utf8_lossy(line).into_owned());
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
