//! Releases the session's lease while its turn waits, so that another process can record the answer that the turn
//! waits for.

use super::Chat;
use crate::exit::Failure;
use crate::terminal::turn::{Format, SessionUse, TurnView};
use agent_core::run::Action;
use agent_runtime::{OpenSession, Session, SessionError};
use agent_store::StoreError;

/// State of the session's lease while the user types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseState {
    /// This process has the lease.
    Held,
    /// This process released the lease when the session had this revision. Any process may acquire the lease.
    Released(u64),
}

impl Chat<'_> {
    /// Releases the lease if the session's turn is suspended.
    pub(super) async fn release_lease_while_waiting(&mut self) -> Result<LeaseState, Failure> {
        if !matches!(self.session.state().action(), Action::Suspended(_)) {
            return Ok(LeaseState::Held);
        }
        self.session.release_lease().await.map_err(Failure::failed)?;
        Ok(LeaseState::Released(self.session.revision()))
    }

    /// Acquires the lease again and loads the current state of the session. Returns false if another process has
    /// the lease.
    pub(super) async fn reacquire_lease(&mut self, lease: LeaseState) -> Result<bool, Failure> {
        let LeaseState::Released(revision) = lease else { return Ok(true) };
        let target = OpenSession::Existing(self.session.subject().to_owned());
        let opened = match Session::open(&self.host, self.agent.clone(), target).await {
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

    /// Reports that another process changed the session. If the turn can run again, continues the turn; otherwise,
    /// shows the turn's result.
    async fn continue_after_other_process(&mut self) -> Result<(), Failure> {
        match self.session.state().action() {
            Action::Suspended(_) => Ok(()),
            _ if self.session.state().is_open() => {
                self.hint("another process delivered the answer that the turn waited for, so the turn continues:");
                self.turn(None).await
            }
            _ => {
                self.hint("another process continued the turn, and the turn ended as follows:");
                self.turn(None).await
            }
        }
    }
}
