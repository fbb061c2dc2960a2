//! Delegation: the agents to which a session may delegate work, and the sessions that do the work (L16; row 13).

use super::batch::CallProgress;
use super::config::LoopConfig;
use super::state::Run;
use super::turn::{Phase, Turn};
use crate::budget::Budgets;
use crate::event::WaitCause;
use crate::message::CallId;
use crate::tool::ToolError;

impl Run {
    /// Checks whether the open turn may delegate to an agent. The error is a message for the model.
    ///
    /// An agent that is already in the chain of delegations would wait for itself, so delegating to such an agent is an
    /// error. [`LoopConfig::max_depth`] limits the length of the chain.
    pub fn may_delegate(&self, agent: &str) -> Result<(), ToolError> {
        let Some(Turn { config, .. }) = &self.turn else {
            return Err(ToolError::Failed { message: "no turn is open".to_owned() });
        };
        let chain: Vec<&str> = self.delegation.iter().map(String::as_str).chain([self.agent.as_str()]).collect();
        let shown = chain.join(" → ");
        if chain.contains(&agent) {
            let message = format!(
                "the agent `{agent}` is already working above this call ({shown}), so it would wait for itself: do the \
                 work without it"
            );
            return Err(ToolError::Denied { message });
        }
        // The first agent of the chain works for the user, so it is not the target of a delegation.
        if chain.len() > config.max_depth as usize {
            let message = format!(
                "work may be delegated at most {} times, and this is the limit ({shown}): do the work without the agent \
                 `{agent}`",
                config.max_depth
            );
            return Err(ToolError::Denied { message });
        }
        Ok(())
    }

    /// Returns the calls of the open batch that wait for another agent's output, each with the subject of that agent's
    /// session.
    pub fn delegations(&self) -> Vec<(CallId, String)> {
        let Some(Turn { phase: Phase::Working(batch), .. }) = &self.turn else { return Vec::new() };
        let delegated = batch.calls.iter().filter_map(|call| match &call.state {
            CallProgress::Outstanding { awaits: WaitCause::Agent { session } } => {
                Some((call.id.clone(), session.clone()))
            }
            _ => None,
        });
        delegated.collect()
    }

    /// Creates the state of a new session in which another agent works for this session.
    pub fn delegated(&self, session: impl Into<String>, agent: impl Into<String>) -> Run {
        let mut run = Run::new(session, agent);
        run.delegated_by = Some(self.session.clone());
        run.delegation = self.delegation.iter().chain([&self.agent]).cloned().collect();
        run
    }

    /// Returns the limits of a turn to which the open turn delegates work. These are the limits in `own`, but
    /// `max_depth` is at most the `max_depth` of the open turn. The work also counts towards the budgets of the open turn
    /// and of all turns that have delegated it (O4).
    pub fn delegate_limits(&self, own: LoopConfig) -> LoopConfig {
        let Some(turn) = &self.turn else { return own };
        let delegators = turn.config.budgets.delegators_of_child(&self.session, turn.number);
        let (max_depth, budgets) = (own.max_depth.min(turn.config.max_depth), Budgets { delegators, ..own.budgets });
        LoopConfig { max_depth, budgets, ..own }
    }
}
