//! Releases the session's lease while its turn waits, so that another process can deliver what the turn waits for.

use super::Chat;
use crate::exit::Failure;
use crate::terminal::turn::{Format, SessionUse, TurnView};
use agent_core::run::Action;
use agent_runtime::{OpenSession, Session, SessionError};
use agent_store::StoreError;

/// Who holds the session's lease while the person types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionHolder {
    /// This process.
    Here,
    /// Any process may take it. The session had this revision when it was released.
    Lent(u64),
}

impl Chat<'_> {
    /// Releases the lease if the session's turn is suspended.
    pub(super) async fn lend(&mut self) -> Result<SessionHolder, Failure> {
        if !matches!(self.session.state().action(), Action::Suspended(_)) {
            return Ok(SessionHolder::Here);
        }
        self.session.release_lease().await.map_err(Failure::failed)?;
        Ok(SessionHolder::Lent(self.session.revision()))
    }

    /// Takes the lease again and loads the current state of the session. Returns false if another process holds the
    /// lease.
    pub(super) async fn take_back(&mut self, holder: SessionHolder) -> Result<bool, Failure> {
        let SessionHolder::Lent(revision) = holder else { return Ok(true) };
        let which = OpenSession::Existing(self.session.subject().to_owned());
        let opened = match Session::open(&self.host, self.agent.clone(), which).await {
            Err(SessionError::Store(error @ StoreError::Busy { .. })) => {
                self.warn(error.to_string());
                return Ok(false);
            }
            opened => opened.map_err(Failure::refused)?,
        };
        self.view =
            TurnView::new(self.terminal, (Format::Terminal, SessionUse::Interactive), &opened, self.storage.clone());
        self.session = opened;
        if self.session.revision() != revision {
            self.continue_after_other_process().await?;
        }
        Ok(true)
    }

    /// Shows what another process did with the turn, and continues the turn if it can run again.
    async fn continue_after_other_process(&mut self) -> Result<(), Failure> {
        match self.session.state().action() {
            Action::Suspended(_) => Ok(()),
            _ if self.session.state().is_open() => {
                self.hint("another process delivered what the turn waited for, so the turn continues:");
                self.turn(None).await
            }
            _ => {
                self.hint("another process continued the turn, and it ended like this:");
                self.turn(None).await
            }
        }
    }
}
