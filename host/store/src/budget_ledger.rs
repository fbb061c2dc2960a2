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

/// Whose charges are added up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChargeFilter {
    /// Only these agents. `None` means all agents.
    pub agents: Option<Vec<String>>,
    /// Only this user. `None` means all users, and the work without a user.
    pub user: Option<String>,
}

/// What was charged to one agent for one user in one interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntervalCharge {
    /// Position of the beginning of the interval in the given bounds.
    pub interval: usize,
    /// Configured name of the agent.
    pub agent: String,
    /// Name of the user. `None` means the work without a user.
    pub user: Option<String>,
    /// What was charged.
    pub spending: Spending,
}

/// Reads what was charged. Deleting a session frees the budget of the session, but neither the budget of its agent nor the
/// budget of its user.
#[async_trait]
pub trait BudgetLedger: Send + Sync {
    /// Returns for each element what was charged to it, at one moment. For an unknown session, agent or user, nothing was
    /// charged.
    async fn charged(&self, to: Vec<ChargedTo>) -> Result<Vec<Spending>, StoreError>;

    /// Adds up what was charged to each agent for each user in each interval, ordered by interval, agent and user. An
    /// interval begins with one of the bounds and ends before the next one, and the last interval does not end. The bounds are
    /// increasing times in microseconds since the beginning of 1970 in UTC, each of which is rounded down to a quarter of an
    /// hour. Intervals without charges are left out. Work of sessions that were deleted is included.
    async fn charged_in_intervals(
        &self,
        bounds: Vec<i64>,
        filter: ChargeFilter,
    ) -> Result<Vec<IntervalCharge>, StoreError>;
}
