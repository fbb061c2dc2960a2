//! What a run is told.

use super::batch::Batch;
use super::budget::PromptBudget;
use super::config::LoopConfig;
use super::depth::{MAX_JSON_DEPTH, is_too_deep};
use super::end::TurnError;
use super::planning::{MadePlan, PlanBudgets};
use super::state::{KeptPrompt, MAX_KEPT_BYTES, MAX_KEPT_PROMPTS, Mask, Run};
use super::turn::{Phase, PinnedAgent, PinnedPlugin};
use crate::approval::{ApprovalAnswer, ApprovalVerdict, AskedAgain, LastingGrant};
use crate::change::{CallResult, Denial};
use crate::event::WaitCause;
use crate::loop_break::LoopBreak;
use crate::message::{CallId, Digest, Message, Replay, TurnInput};
use crate::model::{StopReason, Usage};
use crate::outgoing_event::OutgoingEvent;
use crate::plugin::{History, OutputData, Section, TraceContext};
use crate::text_dialect::UnreadableCall;
use crate::tool::{CallCost, ModelUse, ToolError, ToolSource, Violation};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What has happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// An input begins a turn (L1).
    Start {
        /// The input.
        input: TurnInput,
        /// The bounds of the turn.
        config: LoopConfig,
        /// The generation it is pinned to.
        plugins: Vec<PinnedPlugin>,
        /// What else of its agent it keeps.
        #[serde(default)]
        pinned: Option<PinnedAgent>,
        /// The trace it belongs to.
        trace: TraceContext,
    },
    /// The prompt has been built (L2).
    Context {
        /// What it is.
        context: TurnContext,
    },
    /// What the messages that are to leave the view say, in short (L27).
    Summarised(Summarised),
    /// The model has replied, whole.
    Reply(RepliedStep),
    /// The model has not replied (M3).
    ModelFailed(ModelFailure),
    /// The intents of these calls are about to be committed; they run only after the commit.
    Dispatched {
        /// As [`super::Action::Dispatch`] named them.
        calls: Vec<DispatchedCall>,
    },
    /// A running call has come out.
    Outcome {
        /// Which.
        call: CallId,
        /// Whole.
        result: CallResult,
    },
    /// The validators and the output schema have decided (L12).
    Verdict(OutputVerdict),
    /// Something that the loop cannot go on without has failed for good; the turn ends with this error.
    Failed(TurnError),
    /// Somebody stops the turn (L29).
    Cancel,
    /// The state has been read after its host had gone; nothing of it is running any more (D3).
    Recover,
    /// A running call has asked for a service instead of bringing a result (P2).
    Pending {
        /// Which.
        call: CallId,
        /// What it waits for now.
        awaits: Awaited,
        /// What running it has cost.
        cost: CallCost,
    },
    /// A running call has asked for a service that somebody must allow first, as if the model had called it (P2, L17).
    Held {
        /// Which.
        call: CallId,
        /// What it asks for.
        request: HeldRequest,
        /// Of the service's tool: the answer is bound to it.
        digest: Digest,
        /// What running it has cost.
        cost: CallCost,
    },
    /// The answer to an outstanding call has come (L10).
    Respond {
        /// Which.
        call: CallId,
        /// Who answers. An answer is taken only from whom the call waits for.
        from: Answerer,
        /// Whole.
        result: CallResult,
    },
    /// An outstanding call is waited for no longer.
    Expire {
        /// Which.
        call: CallId,
    },
    /// Somebody has answered the approval request, for some of its calls or for all (L17).
    Approval {
        /// At least one.
        answers: Vec<ApprovalAnswer>,
    },
    /// These calls were about to run, and nobody has allowed them as they would run now: the tool is another one, the
    /// grant was taken back, or the configuration asks now. Somebody is asked again (L17).
    AskAgain {
        /// Which.
        calls: Vec<AskedAgain>,
    },
    /// A call that was about to run must not: it gets this error instead (L17).
    Forbidden {
        /// Which.
        call: CallId,
        /// For the model.
        error: ToolError,
    },
    /// Somebody has decided about a call whose outcome is unknown (D3).
    Resolve {
        /// Which.
        call: CallId,
        /// How.
        decision: Decision,
    },
    /// Refused to plugins that work for the turn between its calls: its context builder, or a call that goes on
    /// elsewhere (P6).
    Denied {
        /// At least one, each with the call that wanted it.
        denials: Vec<(Option<CallId>, Denial)>,
    },
    /// A prompt has come while the turn is open: it is asked when the turn has ended.
    Keep {
        /// The prompt.
        prompt: KeptPrompt,
    },
    /// The last turn that is still in the view leaves it; it stays stored (D5).
    Undo,
    /// A plugin has asked the host's model while it worked for the turn (P5).
    Asked {
        /// Its name.
        plugin: String,
        /// What came of it.
        used: ModelUse,
    },
}

/// A model that has not replied, and what the host does about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelFailure {
    /// `provider/model`.
    pub model: String,
    /// What happened and what to do.
    pub message: String,
    /// Whether it was worth asking the same again.
    #[serde(default)]
    pub prospect: Prospect,
    /// What comes next.
    pub then: AfterFailure,
}

/// Whether what a model did not answer may be answered later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Prospect {
    /// It may: the model was busy, or out of reach.
    #[default]
    Later,
    /// The same request will fail again.
    Never,
}

impl Prospect {
    /// What is not stored.
    pub(super) fn is_later(&self) -> bool {
        *self == Self::Later
    }
}

/// What comes after a model that has not replied. Nothing of its reply has been acted on, since a reply counts only whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterFailure {
    /// The same model once more.
    Retry {
        /// Waited before it, in milliseconds.
        wait_ms: u64,
    },
    /// Another model of the chain, for the rest of the turn.
    Next {
        /// Place in the chain, behind that of the one that failed.
        place: u32,
        /// `provider/model`.
        model: String,
        /// Its window.
        budget: PromptBudget,
    },
    /// No other model is left.
    GiveUp,
}

/// The prompt with which a turn begins.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TurnContext {
    /// In the order in which they are sent.
    pub sections: Vec<Section>,
    /// Before the input, where the builder makes no messages.
    pub preface: Vec<Section>,
    /// What becomes of the earlier turns.
    pub history: History,
    /// Begin the turn. Empty: the input itself.
    pub messages: Vec<Message>,
    /// For the steps.
    pub state: Option<Vec<u8>>,
    /// Of the window.
    pub budget: PromptBudget,
    /// The tools that the model is offered, by their authors' names (L25). None: all of them.
    #[serde(default)]
    pub offered: Option<Vec<String>>,
    /// Where the turn is to go by a plan: the windows of those who make it and carry it out (L24).
    #[serde(default)]
    pub plan: Option<PlanBudgets>,
}

/// A summary of messages, and what it has cost. It is no interaction of the turn (L4), but its tokens count (L5).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summarised {
    /// What they were about, what was summarised earlier included. What is too long is cut.
    pub text: String,
    /// Files that their calls touched, the last one last.
    pub files: Vec<String>,
    /// `provider/model` that wrote it; `extract` where the host did.
    pub by: String,
    /// As the provider counted; nothing where no model was asked (L5).
    #[serde(default)]
    pub usage: Usage,
}

/// A call whose intent is committed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DispatchedCall {
    /// Which.
    pub call: CallId,
    /// From its record, for the event.
    pub arguments: Value,
    /// What it waits for from here on; none: the host runs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awaits: Option<Awaited>,
}

/// What an outstanding call waits for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Awaited {
    /// For whom or what.
    pub cause: WaitCause,
    /// Handed on in the same commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<OutgoingEvent>,
}

/// Who may answer an outstanding call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answerer {
    /// The service that was asked (L10).
    Service,
    /// The agent that works for the call (L16).
    Agent,
    /// The user who was asked a question (L18).
    User,
}

impl Answerer {
    /// Whether a call with this cause waits for such an answer.
    pub(super) fn may_answer(self, cause: &WaitCause) -> bool {
        match cause {
            WaitCause::Service { .. } => self == Answerer::Service,
            WaitCause::Agent { .. } => self == Answerer::Agent,
            WaitCause::Answer { .. } => self == Answerer::User,
            WaitCause::Approval | WaitCause::OutcomeUnknown => false,
        }
    }
}

/// What a plugin has asked of a service and somebody must allow first. The request itself is a stored text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldRequest {
    /// The service, by the name of its tool.
    pub service: String,
    /// Digest of the request's text.
    pub request: Digest,
}

impl DispatchedCall {
    /// A call that the host runs.
    pub fn running(call: CallId, arguments: Value) -> Self {
        Self { call, arguments, awaits: None }
    }
}

/// One whole reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RepliedStep {
    /// What the model wrote.
    pub text: String,
    /// Its calls, looked up and checked against their schemas (L7, L8).
    pub calls: Vec<ResolvedCall>,
    /// Why the model stopped: a text that was cut is never taken as a whole answer.
    pub stop: StopReason,
    /// `provider/model` that answered.
    pub model: String,
    /// As the provider counted.
    pub usage: Usage,
    /// What the provider wants back with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<Replay>,
    /// Media that were masked for this call and stay so (P4).
    #[serde(default)]
    pub masks: Vec<Mask>,
    /// Calls in its text that could not be read (L20).
    #[serde(default)]
    pub unreadable: Vec<UnreadableCall>,
    /// The text with those calls, as the model wrote it; empty where there are none.
    #[serde(default)]
    pub written: String,
    /// What the planner's reply is (L24).
    #[serde(default)]
    pub plan: Option<MadePlan>,
}

/// A call of a reply, looked up in the registry of tools.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResolvedCall {
    /// As its author wrote it; as the model wrote it where there is no such tool.
    pub name: String,
    /// As the model wrote them.
    pub arguments: Value,
    /// Where the tool comes from.
    pub source: Option<ToolSource>,
    /// What may be done with it.
    pub disposition: Disposition,
    /// Whether somebody must allow it first.
    #[serde(default)]
    pub approval: Approval,
}

/// Whether a call must be allowed before it runs (L17).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Approval {
    /// It need not be.
    #[default]
    NotNeeded,
    /// Somebody must be asked about the tool of this digest.
    Needed(Digest),
    /// Somebody has been, earlier; it runs only while the tool is the one that this names.
    Remembered(LastingGrant),
}

/// What may be done with a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Disposition {
    /// It may run.
    Ready {
        /// Only the highest of a reply runs (L6).
        priority: i32,
        /// Alone (L9).
        sequential: bool,
        /// Again without asking, after a crash (D3).
        repeatable: bool,
    },
    /// There is no such tool (L7).
    NotFound {
        /// For the model.
        message: String,
    },
    /// Its arguments violate its schema (L8).
    Refused(ToolError),
    /// The agent is not granted what it needs, or its configuration denies it (P6, L17).
    Withheld {
        /// For the model.
        message: String,
        /// For people.
        denial: Denial,
    },
    /// It ends the turn, once the others of its batch have their results (L18).
    Breaks(LoopBreak),
}

/// What became of an output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputVerdict {
    /// It ends the turn.
    Accepted(OutputData),
    /// The model tries again, while it may.
    Rejected {
        /// A plugin, or `output schema`.
        by: String,
        /// At least one.
        problems: Vec<Violation>,
    },
}

/// What to do about a call whose outcome is unknown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Run it again, with the same id.
    Retry,
    /// The model is told that it failed.
    Failed(String),
    /// This is its result.
    Result(String),
}

/// An input that does not fit the state. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A turn is open.
    #[error("turn {0} of this session has not ended: go on with it, or cancel it, first")]
    TurnOpen(u32),
    /// No turn is open.
    #[error("no turn of this session is open")]
    NoTurn,
    /// The turn waits for something else.
    #[error("the turn does not wait for {0}")]
    Unexpected(&'static str),
    /// There is no turn in the view.
    #[error("there is no turn to undo")]
    NothingToUndo,
    /// The session keeps as many prompts as it can.
    #[error(
        "the session keeps at most {MAX_KEPT_PROMPTS} prompts and {} KiB of them until its open turn has ended: ask again then",
        MAX_KEPT_BYTES >> 10
    )]
    NoRoomForPrompt,
    /// Nothing so deep could be read again.
    #[error("the changed arguments of call {0} have more than {MAX_JSON_DEPTH} levels")]
    TooDeep(CallId),
    /// There is no such call in the batch.
    #[error("call {0} is not one of the open calls of this turn")]
    UnknownCall(CallId),
    /// The call does not wait for this; a duplicate or late answer.
    #[error("call {0} does not wait for this: it is {1}")]
    Settled(CallId, &'static str),
}

impl Run {
    /// Whether the input fits the state.
    pub(super) fn check(&self, input: &Input) -> Result<(), Refused> {
        if let Input::Start { .. } = input {
            return if self.is_open() { Err(Refused::TurnOpen(self.turns)) } else { Ok(()) };
        }
        if *input == Input::Undo {
            return match self.is_open() {
                true => Err(Refused::TurnOpen(self.turns)),
                false if self.view.is_empty() => Err(Refused::NothingToUndo),
                false => Ok(()),
            };
        }
        let turn = self.turn.as_ref().filter(|turn| !turn.is_over()).ok_or(Refused::NoTurn)?;
        match (input, &turn.phase) {
            (Input::Keep { prompt }, _) => self.check_room_for(prompt),
            (Input::Failed(_) | Input::Cancel | Input::Recover | Input::Asked { .. } | Input::Denied { .. }, _)
            | (Input::Context { .. }, Phase::Building)
            | (Input::Summarised(_), Phase::Summarising { .. })
            | (Input::Reply(_), Phase::Calling { .. })
            | (Input::Verdict(_), Phase::Validating { .. } | Phase::Working(Batch { completion: Some(_), .. })) => {
                Ok(())
            }
            (Input::ModelFailed(failure), Phase::Calling { .. }) => match failure.then {
                AfterFailure::Next { place, .. } if place <= turn.place => Err(Refused::Unexpected("an earlier model")),
                _ => Ok(()),
            },
            (Input::Dispatched { calls }, Phase::Working(batch)) => {
                batch.check_dispatch(calls, turn.config.parallel_calls)
            }
            (Input::Outcome { call, .. }, Phase::Working(batch)) => batch.check_running(call),
            (Input::Resolve { call, .. }, Phase::Working(batch)) => batch.check_unknown(call),
            (Input::Pending { call, .. } | Input::Held { call, .. }, Phase::Working(batch)) => {
                batch.check_running(call)
            }
            (Input::Respond { call, from, .. }, Phase::Working(batch)) => batch.check_answer(call, *from),
            (Input::Expire { call }, Phase::Working(batch)) => batch.check_outstanding(call),
            (Input::Approval { answers }, Phase::Working(batch)) => {
                batch.check_asked(answers.iter().map(|answer| &answer.call))?;
                answers.iter().find_map(too_deep).map_or(Ok(()), |call| Err(Refused::TooDeep(call.clone())))
            }
            (Input::AskAgain { calls }, Phase::Working(batch)) => {
                batch.check_ask_again(calls.iter().map(|asked| &asked.call))
            }
            (Input::Forbidden { call, .. }, Phase::Working(batch)) => batch.check_waiting(call),
            (
                Input::Outcome { call, .. }
                | Input::Resolve { call, .. }
                | Input::Pending { call, .. }
                | Input::Held { call, .. }
                | Input::Respond { call, .. }
                | Input::Forbidden { call, .. }
                | Input::Expire { call },
                _,
            ) => Err(Refused::UnknownCall(call.clone())),
            (Input::Approval { .. } | Input::AskAgain { .. }, _) => Err(Refused::Unexpected("an approval")),
            (Input::Context { .. }, _) => Err(Refused::Unexpected("a context")),
            (Input::Summarised(_), _) => Err(Refused::Unexpected("a summary")),
            (Input::Reply(_) | Input::ModelFailed(_), _) => Err(Refused::Unexpected("a reply")),
            (Input::Dispatched { .. }, _) => Err(Refused::Unexpected("calls to be dispatched")),
            (Input::Verdict(_), _) => Err(Refused::Unexpected("a verdict")),
            (Input::Start { .. } | Input::Undo, _) => Err(Refused::TurnOpen(turn.number)),
        }
    }
}

impl Run {
    /// Prompts are kept as far as there is room for them in the state.
    fn check_room_for(&self, prompt: &KeptPrompt) -> Result<(), Refused> {
        let size = |prompt: &KeptPrompt| serde_json::to_vec(prompt).map_or(usize::MAX, |json| json.len());
        let bytes = self.kept.iter().map(size).fold(size(prompt), usize::saturating_add);
        match self.kept.len() < MAX_KEPT_PROMPTS && bytes <= MAX_KEPT_BYTES {
            true => Ok(()),
            false => Err(Refused::NoRoomForPrompt),
        }
    }
}

/// The call of an answer whose arguments could be written and not read again.
fn too_deep(answer: &ApprovalAnswer) -> Option<&CallId> {
    match &answer.verdict {
        ApprovalVerdict::Granted { edited: Some(edited), .. } if is_too_deep(edited) => Some(&answer.call),
        _ => None,
    }
}
