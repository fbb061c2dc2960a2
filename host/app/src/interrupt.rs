//! Ctrl-C: once cancels what runs and leaves the session consistent (L29), twice leaves at once.

use crate::exit::Exit;
use crate::terminal::Terminal;
use tokio_util::sync::CancellationToken;

/// Listens for as long as the process lives; the token is cancelled at the first signal.
pub(crate) fn listen(terminal: Terminal) -> CancellationToken {
    let token = CancellationToken::new();
    let cancelled = token.clone();
    tokio::spawn(async move {
        let mut signals = match Signals::new() {
            Ok(signals) => signals,
            Err(error) => return tracing::warn!("signals cannot be watched: {error}"),
        };
        signals.next().await;
        cancelled.cancel();
        terminal.note("cancelling; once more to leave at once");
        signals.next().await;
        std::process::exit(i32::from(Exit::Cancelled.code()));
    });
    token
}

#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
