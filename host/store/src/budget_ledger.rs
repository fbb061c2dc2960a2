//! What was charged to turns, sessions, agents and users, for their budgets (O4). A commit charges its usage
//! ([`Charge`](crate::Charge)).

use crate::StoreError;
use agent_core::budget::Spending;
use async_trait::async_trait;

/// To whom usage was charged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChargedTo {
    /// One turn, including the work that it has delegated.
    Turn {
        /// Subject that identifies the session.
        session: String,
        /// Number of the turn.
        turn: u32,
    },
    /// One session, including the work that it has delegated.
    Session {
        /// Subject that identifies the session.
        session: String,
    },
    /// An agent, from this time on.
    Agent {
        /// Configured name of the agent.
        agent: String,
        /// Microseconds since the beginning of 1970 in UTC. The time is rounded down to a quarter of an hour.
        since: i64,
    },
    /// A user, from this time on.
    User {
        /// Name of the user. `None` means the work without a user.
        user: Option<String>,
        /// Microseconds since the beginning of 1970 in UTC. The time is rounded down to a quarter of an hour.
        since: i64,
    },
}

/// Reads what was charged. Deleting a session frees the budget of the session, but neither the budget of its agent nor the
/// budget of its user.
#[async_trait]
pub trait BudgetLedger: Send + Sync {
    /// Returns for each element what was charged to it, at one moment. For an unknown session, agent or user, nothing was
    /// charged.
    async fn charged(&self, to: Vec<ChargedTo>) -> Result<Vec<Spending>, StoreError>;
}
