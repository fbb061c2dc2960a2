//! While a turn waits for somebody else, nobody here needs the session: other processes may bring what it waits for.

use super::Chat;
use crate::exit::Failure;
use crate::terminal::turn::{Format, TurnView, Use};
use agent_core::run::Action;
use agent_runtime::{OpenSession, Session, SessionError};
use agent_store::StoreError;

/// Whose the session is while somebody types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// This process's.
    Here,
    /// Anybody's: it had this revision.
    Lent(u64),
}

impl Chat<'_> {
    /// Lets others have the session where its turn waits.
    pub(super) async fn lend(&mut self) -> Result<Held, Failure> {
        if !matches!(self.session.state().action(), Action::Suspended(_)) {
            return Ok(Held::Here);
        }
        self.session.lend().await.map_err(Failure::failed)?;
        Ok(Held::Lent(self.session.revision()))
    }

    /// Has the session again, as others have left it; says whether it has.
    pub(super) async fn take_back(&mut self, held: Held) -> Result<bool, Failure> {
        let Held::Lent(revision) = held else { return Ok(true) };
        let which = OpenSession::Existing(self.session.subject().to_owned());
        let opened = match Session::open(&self.host, self.agent.clone(), which).await {
            Err(SessionError::Store(error @ StoreError::Busy { .. })) => {
                self.warn(error.to_string());
                return Ok(false);
            }
            opened => opened.map_err(Failure::refused)?,
        };
        self.view = TurnView::new(self.terminal, (Format::Terminal, Use::Interactive), &opened, self.kept.clone());
        self.session = opened;
        if self.session.revision() != revision {
            self.go_on_from_elsewhere().await?;
        }
        Ok(true)
    }

    /// Shows what has become of the turn, and goes on with it where it is ready for that.
    async fn go_on_from_elsewhere(&mut self) -> Result<(), Failure> {
        match self.session.state().action() {
            Action::Suspended(_) => Ok(()),
            _ if self.session.state().is_open() => {
                self.hint("what the turn waited for came meanwhile, so it goes on:");
                self.turn(None).await
            }
            _ => {
                self.hint("the turn went on in another process, and ended so:");
                self.turn(None).await
            }
        }
    }
}
