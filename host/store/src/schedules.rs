//! The times at which schedules begin turns (I9). The schedules themselves are in the agents' configuration files.

use crate::StoreError;
use async_trait::async_trait;
use serde::Serialize;

/// Stores when each schedule runs next. Whether a run has begun is known from its session, so a lost or repeated update
/// never begins a run twice.
#[async_trait]
pub trait Schedules: Send + Sync {
    /// Returns the schedules of an agent that have been stored, by name. At most [`MAX_PAGE`](crate::MAX_PAGE).
    async fn schedules(&self, agent: &str) -> Result<Vec<ScheduleState>, StoreError>;

    /// Stores the state of a schedule, and replaces the state with the same agent and name.
    async fn set_schedule(&self, state: ScheduleState) -> Result<(), StoreError>;

    /// Removes the state of a schedule. If no state is stored, nothing changes.
    async fn remove_schedule(&self, agent: &str, name: &str) -> Result<(), StoreError>;
}

/// When a schedule runs next.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ScheduleState {
    /// Name of the agent.
    pub agent: String,
    /// Name of the schedule in the agent's configuration.
    pub name: String,
    /// The times of the schedule as they were configured when `due` was computed.
    pub definition: String,
    /// Next time at which the schedule runs, in milliseconds since the Unix epoch.
    pub due: i64,
    /// Last time for which the schedule ran, in milliseconds since the Unix epoch. `None` if it never ran.
    pub last_run: Option<i64>,
    /// Id (subject) of the session of the last run. `None` if the schedule never ran.
    pub last_session: Option<String>,
}
