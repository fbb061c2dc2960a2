//! The words of the planner (L24).

use serde::{Deserialize, Serialize};

/// One step of a plan: a tool that probably fits, and what is to be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanStep {
    /// As its author wrote it.
    pub tool: String,
    /// In the planner's words.
    pub task: String,
}
