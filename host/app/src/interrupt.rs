//! Handles signals. The first Ctrl-C cancels the current work and leaves the session consistent (L29). A second
//! Ctrl-C, or Ctrl-\, ends the process immediately. SIGTERM or a closed terminal ends the process but cancels nothing:
//! the turn stays open and can be resumed. Ctrl-Z suspends the process, and restores the terminal's modes while the
//! process is suspended.

use crate::exit::Exit;
#[cfg(unix)]
use crate::terminal::KeyboardMode;
use crate::terminal::Terminal;
use agent_mcp::McpServers;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
#[cfg(unix)]
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Current activity of the process. The activity determines how the process handles Ctrl-C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    /// The process prepares or runs a turn.
    Turn,
    /// The process waits for the user to type a line.
    Prompt,
    /// The process serves requests.
    Serve,
}

/// Handles the signals of this process. All clones share the same state.
#[derive(Clone, Debug)]
pub(crate) struct Interrupts {
    /// The current activity, and the token that is cancelled when the activity must stop.
    current: Arc<Mutex<(Activity, CancellationToken)>>,
    /// Token that is cancelled when the process must end.
    exiting: CancellationToken,
    servers: Arc<OnceLock<Vec<McpServers>>>,
    break_line: Arc<AtomicBool>,
    /// Notified each time that the process continues after Ctrl-Z.
    #[cfg(unix)]
    resumed: Arc<Notify>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signal {
    /// Ctrl-C: cancel the current work.
    Interrupt,
    /// SIGTERM, or a closed terminal: end the process and leave the turn open.
    Terminate,
    /// Ctrl-\: end the process immediately.
    Quit,
}

impl Interrupts {
    /// Starts handling signals until the process ends. Must be called within the tokio runtime.
    pub(crate) fn listen(terminal: Terminal) -> Self {
        let current = (Activity::Turn, CancellationToken::new());
        let interrupts = Self {
            current: Arc::new(Mutex::new(current)),
            exiting: terminal.exiting(),
            servers: Arc::default(),
            break_line: Arc::default(),
            #[cfg(unix)]
            resumed: Arc::default(),
        };
        let listening = interrupts.clone();
        tokio::spawn(async move {
            let mut signals = match Signals::new() {
                Ok(signals) => signals,
                Err(error) => return tracing::warn!("cannot handle signals such as Ctrl-C: {error}"),
            };
            loop {
                listening.handle(signals.next().await, &terminal);
            }
        });
        interrupts
    }

    /// Sets the current activity. The returned token is cancelled when the activity must stop.
    pub(crate) fn begin(&self, activity: Activity) -> CancellationToken {
        let token = self.exiting.child_token();
        *self.current() = (activity, token.clone());
        token
    }

    /// Registers the MCP servers whose processes [`Interrupts::leave_at_once`] kills. Only the first call has
    /// an effect.
    pub(crate) fn kill_servers_on_exit(&self, servers: impl IntoIterator<Item = McpServers>) {
        // One call is enough, because a process opens only one agent, and `servers` includes the servers of
        // its delegates.
        let _ = self.servers.set(servers.into_iter().collect());
    }

    /// Returns true if the process must end because it received SIGTERM or its terminal was closed.
    pub(crate) fn is_exiting(&self) -> bool {
        self.exiting.is_cancelled()
    }

    /// Returns a flag that is set when the line editor must stop and discard the line that is being typed.
    pub(crate) fn break_line(&self) -> Arc<AtomicBool> {
        self.break_line.clone()
    }

    /// Makes Ctrl-Z restore the keyboard's original mode before it suspends the process.
    pub(crate) fn restore_keyboard_on_suspend(&self, terminal: Terminal) {
        #[cfg(unix)]
        let resumed = self.resumed.clone();
        #[cfg(unix)]
        tokio::spawn(async move {
            if let Err(error) = handle_suspensions(&terminal, &resumed).await {
                tracing::warn!("cannot handle Ctrl-Z: {error}");
            }
        });
        #[cfg(not(unix))]
        drop(terminal);
    }

    /// Suspends the process as Ctrl-Z does, and waits until the process continues. The line editor needs this function,
    /// because Ctrl-Z sends no signal while the editor reads from the keyboard.
    #[cfg(unix)]
    pub(crate) async fn suspend(&self) -> std::io::Result<()> {
        use rustix::process::{Signal, kill_current_process_group};
        let resumed = self.resumed.notified();
        tokio::pin!(resumed);
        resumed.as_mut().enable();
        kill_current_process_group(Signal::TSTP)?;
        resumed.await;
        Ok(())
    }

    /// Does nothing, because processes cannot be suspended on this system.
    #[cfg(not(unix))]
    pub(crate) async fn suspend(&self) -> std::io::Result<()> {
        Ok(())
    }

    fn handle(&self, signal: Signal, terminal: &Terminal) {
        let (activity, token) = self.current().clone();
        match signal {
            Signal::Quit => self.leave_at_once(terminal),
            _ if token.is_cancelled() => self.leave_at_once(terminal),
            Signal::Interrupt => {
                token.cancel();
                match activity {
                    Activity::Turn => terminal.note("cancelling; press Ctrl-C again to exit immediately"),
                    Activity::Serve => terminal.note("press Ctrl-C again to exit immediately"),
                    Activity::Prompt => {}
                }
            }
            Signal::Terminate => {
                self.break_line.store(true, Ordering::Relaxed);
                self.exiting.cancel();
            }
        }
    }

    /// Kills the processes that this process has started, and then exits.
    pub(crate) fn leave_at_once(&self, terminal: &Terminal) -> ! {
        self.servers.get().into_iter().flatten().for_each(McpServers::kill);
        #[cfg(unix)]
        kill_children();
        terminal.idle();
        let _ = terminal.restore_keyboard();
        std::process::exit(i32::from(Exit::Cancelled.code()));
    }

    fn current(&self) -> MutexGuard<'_, (Activity, CancellationToken)> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Kills the child processes, such as toolchains, and all processes in their process groups. The children are found in
/// `/proc`, so the function does nothing on systems other than Linux.
#[cfg(unix)]
fn kill_children() {
    use rustix::process::{Pid, Signal, kill_process, kill_process_group};
    for thread in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let children = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|child| child.parse().ok()).filter_map(Pid::from_raw) {
            // If a child does not lead a process group, only the child itself is killed. A child that has already
            // exited is not an error.
            let _ = kill_process_group(child, Signal::KILL).or_else(|_| kill_process(child, Signal::KILL));
        }
    }
}

/// On each Ctrl-Z, restores the keyboard's original mode and suspends the process until it receives SIGCONT.
#[cfg(unix)]
async fn handle_suspensions(terminal: &Terminal, resumed: &Notify) -> std::io::Result<()> {
    use rustix::process::{Signal, getpid, kill_process};
    use tokio::signal::unix::{SignalKind, signal};
    let mut suspended = signal(SignalKind::from_raw(Signal::TSTP.as_raw()))?;
    let mut continued = signal(SignalKind::from_raw(Signal::CONT.as_raw()))?;
    while suspended.recv().await.is_some() {
        let mode_before = terminal.restore_keyboard();
        kill_process(getpid(), Signal::STOP)?;
        // The shell restores the terminal's modes for this process before it sends SIGCONT.
        continued.recv().await;
        if mode_before == KeyboardMode::NoEcho {
            terminal.turn_off_echo();
        }
        resumed.notify_waiters();
    }
    Ok(())
}

#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    quit: tokio::signal::unix::Signal,
    /// `None` if the process was started with `nohup`, because such a process keeps running after its terminal
    /// is closed.
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

/// Returns true if the process ignores SIGHUP because it was started with `nohup`. Always returns false on systems
/// other than Linux.
#[cfg(unix)]
fn ignores_hangups() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // The lowest bit of the mask represents signal 1, which is SIGHUP.
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
