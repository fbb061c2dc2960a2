//! The agent loop as a value: it says what to do next and is told what happened.
//!
//! [`Run`] holds one session's state and never its history: ids, token counts and the open turn. [`Run::action`] is a pure
//! function of that state; [`Run::apply`] takes one [`Input`] and returns the [`Change`] to commit with the new state.
//! The same state and the same input always give the same next action, so a session goes on wherever its state is read.

mod authority;
mod batch;
mod budget;
mod config;
mod delegation;
mod depth;
mod dialect;
mod effort;
mod end;
mod eviction;
mod failure;
mod finishing;
mod fork;
mod input;
mod planning;
mod refusal;
mod repetition;
mod state;
mod step;
#[cfg(test)]
mod stored;
mod swap;
mod transition;
mod turn;
mod waiting;

pub use authority::{Dropped, ImportTerms};
pub use budget::PromptBudget;
pub use config::{Announced, AtLimit, Emission, LoopConfig, UnitWeights, Weight};
pub use end::{Output, TurnCost, TurnEnd, TurnError};
pub use eviction::SummaryPlan;
pub use failure::FALLBACK_TEXT;
pub use fork::{CutPlaces, NoPlace};
pub use input::{
    AfterFailure, Answerer, Approval, Awaited, Decision, DispatchedCall, Disposition, HeldRequest, Input, ModelFailure,
    OutputVerdict, Prospect, Refused, RepliedStep, ResolvedCall, Summarised, TurnContext,
};
pub use planning::{Asked, MadePlan, Offer, Plan, PlanBudgets, PlannedStep};
pub use refusal::MAX_CALLS;
pub use state::{Entry, KeptPrompt, MAX_KEPT_BYTES, MAX_KEPT_PROMPTS, Mask, RestoreError, Run};
pub use turn::{PinnedAgent, PinnedPlugin, StepPlan, Turn};

use crate::approval::Leave;
use crate::change::Change;
use crate::event::Suspension;
use crate::message::CallId;
use serde::{Deserialize, Serialize};

/// What a run wants done next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Nothing: no turn is open. [`Input::Start`] begins one.
    Idle,
    /// Ask the context builder's `init`, or assemble the host's own prompt; answer with [`Input::Context`].
    BuildContext,
    /// Messages are to leave the view: say in short what they say, and answer with [`Input::Summarised`] (L27).
    Summarise(SummaryPlan),
    /// Send the view to the model; answer with [`Input::Reply`].
    CallModel(StepPlan),
    /// Commit [`Input::Dispatched`] for these calls, then run them; answer each with [`Input::Outcome`].
    Dispatch(Vec<Dispatch>),
    /// Nothing until the outcome of a running call comes.
    AwaitOutcome,
    /// Ask the validators in order, then the output schema; answer with [`Input::Verdict`].
    Validate(Validation),
    /// Nothing until somebody answers, decides or cancels: [`Input::Respond`], [`Input::Approval`], [`Input::Resolve`].
    Suspended(Suspension),
    /// The turn is over. [`Input::Start`] begins the next.
    Ended,
}

/// One call to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dispatch {
    /// Which: its record has the name and the arguments.
    pub call: CallId,
    /// From 1.
    pub attempt: u32,
    /// What allowed it, where it had to be allowed (L17). It must not run where that does not hold for the tool and the
    /// arguments as they are now: answer with [`Input::AskAgain`] or [`Input::Forbidden`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted: Option<Leave>,
    /// The tool has run already and has asked for this: it is handed on, and the tool does not run again (P2). The leave is
    /// for the service's tool and the request's data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<HeldRequest>,
}

/// An output to validate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Validation {
    /// The reply without a tool call, or the result of `task_completion` as text.
    pub text: String,
    /// The result of `task_completion` as the model wrote it (L18).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<serde_json::Value>,
    /// From 1.
    pub attempt: u32,
    /// 0: a rejection ends the turn.
    pub corrections_left: u32,
}

impl Run {
    /// What to do next. Pure: asking twice gives the same answer.
    pub fn action(&self) -> Action {
        match &self.turn {
            None => Action::Idle,
            Some(turn) => turn.action(self),
        }
    }

    /// Whether the host runs this call now. What was handed on, or ends the turn, it does not run.
    pub fn is_running(&self, call: &CallId) -> bool {
        matches!(&self.turn, Some(turn) if turn.is_running(call))
    }

    /// Takes one input. On `Err` nothing has changed.
    pub fn apply(&mut self, input: Input) -> Result<Change, Refused> {
        self.check(&input)?;
        let mut change = Change::default();
        self.transition(input, &mut change);
        Ok(change)
    }
}
