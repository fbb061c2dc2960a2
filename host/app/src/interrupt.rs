//! Signals: Ctrl-C once cancels what runs and leaves the session consistent (L29), twice leaves at once. A request to
//! end, or a terminal that was closed, cancels nothing: the turn stops and stays open, so that it can go on later, and the process
//! ends. Ctrl-\ leaves at once. Ctrl-Z gives the terminal back while the process sleeps.

use crate::exit::Exit;
#[cfg(unix)]
use crate::terminal::Silenced;
use crate::terminal::Terminal;
use agent_mcp::McpServers;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio_util::sync::CancellationToken;

/// What goes on when a signal comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// A turn, or what leads to one.
    Turn,
    /// Somebody is asked for a line.
    Prompt,
}

/// What the signals of this process do. Clones are one.
#[derive(Clone, Debug)]
pub(crate) struct Interrupts {
    current: Arc<Mutex<(Doing, CancellationToken)>>,
    leaving: CancellationToken,
    servers: Arc<OnceLock<Vec<McpServers>>>,
    break_line: Arc<AtomicBool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signal {
    /// Ctrl-C.
    Interrupt,
    /// The process is to end, or its terminal was closed: the open turn goes on later.
    Terminate,
    /// Ctrl-\: it is to end at once.
    Quit,
}

impl Interrupts {
    /// Listens for as long as the process lives.
    pub(crate) fn listen(terminal: Terminal) -> Self {
        let current = (Doing::Turn, CancellationToken::new());
        let interrupts = Self {
            current: Arc::new(Mutex::new(current)),
            leaving: terminal.leaving(),
            servers: Arc::default(),
            break_line: Arc::default(),
        };
        let listening = interrupts.clone();
        tokio::spawn(async move {
            let mut signals = match Signals::new() {
                Ok(signals) => signals,
                Err(error) => return tracing::warn!("signals cannot be watched: {error}"),
            };
            loop {
                listening.take(signals.next().await, &terminal);
            }
        });
        interrupts
    }

    /// Something begins, and the token is cancelled when it is to stop.
    pub(crate) fn begin(&self, doing: Doing) -> CancellationToken {
        let token = self.leaving.child_token();
        *self.current() = (doing, token.clone());
        token
    }

    /// Leaving at once ends the processes of these servers, too.
    pub(crate) fn end_with_us(&self, servers: impl IntoIterator<Item = McpServers>) {
        // One agent is asked in a process, once; those below it come with it.
        let _ = self.servers.set(servers.into_iter().collect());
    }

    /// Whether the process is to end.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.is_cancelled()
    }

    /// Set when a line that is being typed is to be given up.
    pub(crate) fn break_line(&self) -> Arc<AtomicBool> {
        self.break_line.clone()
    }

    /// From now on, Ctrl-Z gives the keyboard back before the process sleeps.
    pub(crate) fn give_keyboard_back(terminal: Terminal) {
        #[cfg(unix)]
        tokio::spawn(async move {
            if let Err(error) = suspensions(&terminal).await {
                tracing::warn!("Ctrl-Z cannot be watched: {error}");
            }
        });
        #[cfg(not(unix))]
        drop(terminal);
    }

    fn take(&self, signal: Signal, terminal: &Terminal) {
        let (doing, token) = self.current().clone();
        match signal {
            Signal::Quit => self.leave_at_once(terminal),
            _ if token.is_cancelled() => self.leave_at_once(terminal),
            Signal::Interrupt => {
                token.cancel();
                if doing == Doing::Turn {
                    terminal.note("cancelling; once more to leave at once");
                }
            }
            Signal::Terminate => {
                self.break_line.store(true, Ordering::Relaxed);
                self.leaving.cancel();
            }
        }
    }

    /// Ends the process, and what it has started.
    pub(crate) fn leave_at_once(&self, terminal: &Terminal) -> ! {
        self.servers.get().into_iter().flatten().for_each(McpServers::kill);
        #[cfg(unix)]
        end_children();
        terminal.idle();
        let _ = terminal.restore_keyboard();
        std::process::exit(i32::from(Exit::Cancelled.code()));
    }

    fn current(&self) -> MutexGuard<'_, (Doing, CancellationToken)> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Toolchains lead groups of their own, which nobody ends where this process does not come to it. Elsewhere than on Linux
/// nobody tells whose children they are.
#[cfg(unix)]
fn end_children() {
    use rustix::process::{Pid, Signal, kill_process, kill_process_group};
    for thread in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let children = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|child| child.parse().ok()).filter_map(Pid::from_raw) {
            // Whoever leads no group is ended alone; who is gone already is not missed.
            let _ = kill_process_group(child, Signal::KILL).or_else(|_| kill_process(child, Signal::KILL));
        }
    }
}

/// At each Ctrl-Z, sleeps until somebody wakes the process up, with the keyboard as it was found.
#[cfg(unix)]
async fn suspensions(terminal: &Terminal) -> std::io::Result<()> {
    use rustix::process::{Signal, getpid, kill_process};
    use tokio::signal::unix::{SignalKind, signal};
    let mut suspended = signal(SignalKind::from_raw(Signal::TSTP.as_raw()))?;
    let mut continued = signal(SignalKind::from_raw(Signal::CONT.as_raw()))?;
    while suspended.recv().await.is_some() {
        let keyboard = terminal.restore_keyboard();
        kill_process(getpid(), Signal::STOP)?;
        // By now the shell has set the terminal as it likes it for this process.
        continued.recv().await;
        if keyboard == Silenced::Was {
            terminal.silence_keyboard();
        }
    }
    Ok(())
}

#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    quit: tokio::signal::unix::Signal,
    /// None where whoever started the process has said that it outlives its terminal.
    hangup: Option<tokio::signal::unix::Signal>,
}

#[cfg(unix)]
impl Signals {
    fn new() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let hangup = if ignores_hangups() { None } else { Some(signal(SignalKind::hangup())?) };
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(Self { interrupt, terminate, quit: signal(SignalKind::quit())?, hangup })
    }

    async fn next(&mut self) -> Signal {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => Signal::Interrupt,
            _ = self.terminate.recv() => Signal::Terminate,
            _ = self.quit.recv() => Signal::Quit,
            _ = hangup => Signal::Terminate,
        }
    }
}

/// Whether the process was started with `nohup`. Elsewhere than on Linux nobody tells.
#[cfg(unix)]
fn ignores_hangups() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // The first bit stands for the first signal, which is this one.
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) -> Signal {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        Signal::Interrupt
    }
}
