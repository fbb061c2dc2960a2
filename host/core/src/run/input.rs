//! The inputs of a run: what the driver reports to it.

use super::batch::Batch;
use super::budget::PromptBudget;
use super::config::LoopConfig;
use super::depth::{MAX_JSON_DEPTH, is_too_deep};
use super::end::TurnError;
use super::planning::{PlanBudgets, PlannerReply};
use super::state::{MAX_QUEUED_PROMPT_BYTES, MAX_QUEUED_PROMPTS, Mask, QueuedPrompt, Run};
use super::turn::{Phase, PinnedAgent, PinnedPlugin};
use crate::approval::{ApprovalAnswer, ApprovalVerdict, LastingGrant, ReapprovalRequest};
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
        /// The limits of the turn.
        config: LoopConfig,
        /// The plugin versions that the turn is pinned to.
        plugins: Vec<PinnedPlugin>,
        /// What else the turn keeps of its agent.
        #[serde(default)]
        pinned: Option<PinnedAgent>,
        /// Trace context that it belongs to.
        trace: TraceContext,
    },
    /// The prompt has been built (L2).
    Context {
        /// The prompt with which the turn begins.
        context: TurnContext,
    },
    /// The messages to evict have been summarised (L27).
    Summarised(Summarised),
    /// The model has replied completely.
    Reply(ResolvedReply),
    /// The model has not replied (M3).
    ModelFailed(ModelFailure),
    /// The intents to run these calls are about to be committed. The calls run only after the commit.
    Dispatched {
        /// The calls that [`super::Action::Dispatch`] named.
        calls: Vec<DispatchedCall>,
    },
    /// A running call has finished.
    Outcome {
        /// Id of the tool call.
        call: CallId,
        /// The complete result.
        result: CallResult,
    },
    /// The validators and the output schema have decided (L12).
    Verdict(OutputVerdict),
    /// Something that the loop needs has failed permanently. The turn ends with this error.
    Failed(TurnError),
    /// Somebody cancels the turn (L29).
    Cancel,
    /// The state was read after its host had stopped. None of its calls is running (D3).
    Recover,
    /// A running call has requested a service instead of returning a result (P2).
    Pending {
        /// Id of the tool call.
        call: CallId,
        /// What the call waits for now.
        awaits: Awaited,
        /// Cost of running the call.
        cost: CallCost,
    },
    /// A running call has requested a service that needs approval, as if the model had called that service (P2, L17).
    #[serde(rename = "held")]
    ServiceNeedsApproval {
        /// Id of the tool call.
        call: CallId,
        /// The request to the service.
        request: UnapprovedRequest,
        /// Identity of the service's tool. The answer is bound to it.
        digest: Digest,
        /// Cost of running the call.
        cost: CallCost,
    },
    /// The answer to an outstanding call has arrived (L10).
    Respond {
        /// Id of the tool call.
        call: CallId,
        /// Who answers. Only an answer from the source that the call waits for is accepted.
        from: Answerer,
        /// The complete result.
        result: CallResult,
    },
    /// The time limit of an outstanding call has passed.
    Expire {
        /// Id of the tool call.
        call: CallId,
    },
    /// A user has answered the approval request for some or all of its calls (L17).
    Approval {
        /// The answers, at least one.
        answers: Vec<ApprovalAnswer>,
    },
    /// These calls were about to run but are no longer approved: the tool has changed, the grant was revoked, or the
    /// configuration now requires an approval. A user is asked again (L17).
    #[serde(rename = "ask_again")]
    RequestReapproval {
        /// The calls, each with the identity of its tool.
        calls: Vec<ReapprovalRequest>,
    },
    /// A call that was about to run must not run. It gets this error as its result (L17).
    Forbidden {
        /// Id of the tool call.
        call: CallId,
        /// Error for the model.
        error: ToolError,
    },
    /// A user has decided about a call whose outcome is unknown (D3).
    Resolve {
        /// Id of the tool call.
        call: CallId,
        /// The user's decision.
        decision: Decision,
    },
    /// Requests were denied to plugins that work for the turn between its calls: its context builder, or a call that
    /// continues elsewhere (P6).
    Denied {
        /// The denials, at least one, each with the call that made the request.
        denials: Vec<(Option<CallId>, Denial)>,
    },
    /// A prompt has arrived while the turn is open. It is queued until the turn has ended.
    #[serde(rename = "keep")]
    QueuePrompt {
        /// The prompt.
        prompt: QueuedPrompt,
    },
    /// Removes the last turn from the view. It stays stored (D5).
    Undo,
    /// A plugin has called the host's model while it worked for the turn (P5).
    #[serde(rename = "asked")]
    PluginUsedModel {
        /// Name of the plugin.
        plugin: String,
        /// How often the plugin called the model, and the tokens that it used.
        used: ModelUse,
    },
}

/// A model that has not replied, and how the host proceeds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelFailure {
    /// The model, as `provider/model`.
    pub model: String,
    /// What happened and what to do.
    pub message: String,
    /// Whether the same request may succeed later.
    #[serde(default, rename = "prospect")]
    pub retryability: Retryability,
    /// How the host proceeds.
    pub then: AfterFailure,
}

/// Whether a failed model request may succeed later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Retryability {
    /// A retry may succeed: the model was busy or unreachable.
    #[default]
    #[serde(rename = "later")]
    Retryable,
    /// The same request will fail again.
    #[serde(rename = "never")]
    Permanent,
}

impl Retryability {
    pub(super) fn is_retryable(&self) -> bool {
        *self == Self::Retryable
    }
}

/// How the host proceeds after a model has not replied. Nothing of a partial reply has been acted on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterFailure {
    /// Call the same model again.
    Retry {
        /// Wait before the next attempt, in milliseconds.
        wait_ms: u64,
    },
    /// Use another model of the chain for the rest of the turn.
    Next {
        /// Index of the model in the chain, after that of the failed model.
        #[serde(rename = "place")]
        model_index: u32,
        /// The model, as `provider/model`.
        model: String,
        /// Token budget for the new model.
        budget: PromptBudget,
    },
    /// No other model is left.
    GiveUp,
}

/// The prompt with which a turn begins.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TurnContext {
    /// System sections in the order in which they are sent.
    pub sections: Vec<Section>,
    /// Sections that precede the input, if the builder makes no messages.
    pub preface: Vec<Section>,
    /// What happens to the earlier turns.
    pub history: History,
    /// Messages that begin the turn. Empty: the input itself.
    pub messages: Vec<Message>,
    /// The builder's state for the steps.
    pub state: Option<Vec<u8>>,
    /// Token budget of the window.
    pub budget: PromptBudget,
    /// Tools that the model is offered, by the names that their authors gave them (L25). None: all tools.
    #[serde(default)]
    pub offered: Option<Vec<String>>,
    /// Token budgets of the planner and the executor, for a planned turn (L24). None: the turn has no plan.
    #[serde(default)]
    pub plan: Option<PlanBudgets>,
}

/// A summary of messages, and its cost. It does not count as an interaction (L4), but its tokens count (L5).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summarised {
    /// Text of the summary, including what was summarised earlier. A text that is too long is cut.
    pub text: String,
    /// Files that the calls touched, the most recent last.
    pub files: Vec<String>,
    /// The model that wrote the summary, as `provider/model`, or `extract` if the host wrote it.
    pub by: String,
    /// Token counts as the provider reported them. Zero if no model was called (L5).
    #[serde(default)]
    pub usage: Usage,
}

/// A call whose intent is committed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DispatchedCall {
    /// Id of the tool call.
    pub call: CallId,
    /// Arguments from the call's record, for the event.
    pub arguments: Value,
    /// What the call waits for from now on. None: the host runs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awaits: Option<Awaited>,
}

/// What an outstanding call waits for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Awaited {
    /// What the call waits for.
    pub cause: WaitCause,
    /// Event that is sent with the same commit. None: there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<OutgoingEvent>,
}

/// Who may answer an outstanding call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answerer {
    /// The service that got the request (L10).
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

/// A plugin's service request that needs approval. The request itself is a stored text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnapprovedRequest {
    /// The service, by the name of its tool.
    pub service: String,
    /// Digest of the request's text.
    pub request: Digest,
}

impl DispatchedCall {
    /// Makes an entry for a call that the host runs.
    pub fn running(call: CallId, arguments: Value) -> Self {
        Self { call, arguments, awaits: None }
    }
}

/// One complete reply, with its calls resolved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResolvedReply {
    /// Text that the model wrote.
    pub text: String,
    /// The model's calls, looked up and checked against their schemas (L7, L8).
    pub calls: Vec<ResolvedCall>,
    /// Why the model stopped. A text that was cut never counts as a complete answer.
    pub stop: StopReason,
    /// The model that answered, as `provider/model`.
    pub model: String,
    /// Token counts as the provider reported them.
    pub usage: Usage,
    /// Data that the provider wants returned with the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<Replay>,
    /// Media that were masked for this call and stay masked (P4).
    #[serde(default)]
    pub masks: Vec<Mask>,
    /// Calls in the text that could not be read (L20).
    #[serde(default)]
    pub unreadable: Vec<UnreadableCall>,
    /// The text with those calls, as the model wrote it. Empty if there are none.
    #[serde(default)]
    pub written: String,
    /// The planner's reply (L24). None: the planner was not called.
    #[serde(default)]
    pub plan: Option<PlannerReply>,
}

/// A call of a reply, looked up in the registry of tools.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResolvedCall {
    /// Name of the tool as its author wrote it, or as the model wrote it if there is no such tool.
    pub name: String,
    /// The arguments as the model wrote them.
    pub arguments: Value,
    /// Where the tool comes from. None: there is no such tool.
    pub source: Option<ToolSource>,
    /// What may be done with the call.
    pub disposition: Disposition,
    /// Whether the call needs approval.
    #[serde(default)]
    pub approval: Approval,
}

/// Whether a call needs approval before it runs (L17).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Approval {
    /// The call needs no approval.
    #[default]
    NotNeeded,
    /// A user must be asked about the tool with this identity.
    Needed(Digest),
    /// A user approved the tool earlier. The call runs only while the tool is the one in this grant.
    Remembered(LastingGrant),
}

/// What may be done with a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Disposition {
    /// The call may run.
    Ready {
        /// Priority of the tool. Only calls with the highest priority in a reply run (L6).
        priority: i32,
        /// Whether the call must run alone (L9).
        sequential: bool,
        /// Whether the call may run again after a crash without asking (D3).
        repeatable: bool,
    },
    /// There is no such tool (L7).
    NotFound {
        /// Message for the model.
        message: String,
    },
    /// The arguments violate the tool's schema (L8).
    Refused(ToolError),
    /// The agent lacks a grant that the call needs, or its configuration denies the call (P6, L17).
    Withheld {
        /// Message for the model.
        message: String,
        /// Denial for users.
        denial: Denial,
    },
    /// The call ends the turn once the other calls of its batch have their results (L18).
    Breaks(LoopBreak),
}

/// What the checks decided about an output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputVerdict {
    /// The output ends the turn.
    Accepted(OutputData),
    /// The model tries again within its limits.
    Rejected {
        /// The plugin that rejected the output, or `output schema`.
        by: String,
        /// The problems, at least one.
        problems: Vec<Violation>,
    },
}

/// What to do about a call whose outcome is unknown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Run the call again, with the same id.
    Retry,
    /// Tell the model that the call failed, with this message.
    Failed(String),
    /// Use this text as the call's result.
    Result(String),
}

/// Why an input was not applied. Except for [`InputError::Inconsistent`], the state has not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// A turn is open.
    #[error("turn {0} of this session has not ended; continue it or cancel it first")]
    TurnOpen(u32),
    /// No turn is open.
    #[error("no turn of this session is open")]
    NoTurn,
    /// The turn waits for something else.
    #[error("the turn is not waiting for {0}")]
    Unexpected(&'static str),
    /// The view contains no turn.
    #[error("there is no turn to undo")]
    NothingToUndo,
    /// The queue of prompts is full.
    #[error(
        "the session queues at most {MAX_QUEUED_PROMPTS} prompts, or {} KiB of them, until its open turn has ended; try again then",
        MAX_QUEUED_PROMPT_BYTES >> 10
    )]
    NoRoomForPrompt,
    /// The arguments are nested so deeply that they could not be read again.
    #[error("the edited arguments of call {0} have more than {MAX_JSON_DEPTH} levels")]
    TooDeep(CallId),
    /// The open batch has no such call.
    #[error("call {0} is not one of the open calls of this turn")]
    UnknownCall(CallId),
    /// The call does not wait for this input, which is a duplicate or too late.
    #[error("call {0} is not waiting for this; it is {1}")]
    Settled(CallId, &'static str),
    /// The state contradicts itself, although the input fits it.
    #[error("the state of the session contradicts itself: {0}; restore the session and try again")]
    Inconsistent(&'static str),
}

impl Run {
    /// Checks whether the input fits the state.
    pub(super) fn check(&self, input: &Input) -> Result<(), InputError> {
        if let Input::Start { .. } = input {
            return if self.is_open() { Err(InputError::TurnOpen(self.turns)) } else { Ok(()) };
        }
        if *input == Input::Undo {
            return match self.is_open() {
                true => Err(InputError::TurnOpen(self.turns)),
                false if self.view.is_empty() => Err(InputError::NothingToUndo),
                false => Ok(()),
            };
        }
        let turn = self.turn.as_ref().filter(|turn| !turn.is_over()).ok_or(InputError::NoTurn)?;
        match (input, &turn.phase) {
            (Input::QueuePrompt { prompt }, _) => self.check_room_for(prompt),
            (
                Input::Failed(_)
                | Input::Cancel
                | Input::Recover
                | Input::PluginUsedModel { .. }
                | Input::Denied { .. },
                _,
            )
            | (Input::Context { .. }, Phase::Building)
            | (Input::Summarised(_), Phase::Summarising { .. })
            | (Input::Reply(_), Phase::Calling { .. })
            | (Input::Verdict(_), Phase::Validating { .. } | Phase::Working(Batch { completion: Some(_), .. })) => {
                Ok(())
            }
            (Input::ModelFailed(failure), Phase::Calling { .. }) => match failure.then {
                AfterFailure::Next { model_index, .. } if model_index <= turn.model_index => {
                    Err(InputError::Unexpected("an earlier model"))
                }
                _ => Ok(()),
            },
            (Input::Dispatched { calls }, Phase::Working(batch)) => {
                batch.check_dispatch(calls, turn.config.parallel_calls)
            }
            (Input::Outcome { call, .. }, Phase::Working(batch)) => batch.check_running(call),
            (Input::Resolve { call, .. }, Phase::Working(batch)) => batch.check_unknown(call),
            (Input::Pending { call, .. } | Input::ServiceNeedsApproval { call, .. }, Phase::Working(batch)) => {
                batch.check_running(call)
            }
            (Input::Respond { call, from, .. }, Phase::Working(batch)) => batch.check_answer(call, *from),
            (Input::Expire { call }, Phase::Working(batch)) => batch.check_outstanding(call),
            (Input::Approval { answers }, Phase::Working(batch)) => {
                batch.check_awaiting_approval(answers.iter().map(|answer| &answer.call))?;
                answers.iter().find_map(too_deep).map_or(Ok(()), |call| Err(InputError::TooDeep(call.clone())))
            }
            (Input::RequestReapproval { calls }, Phase::Working(batch)) => {
                batch.check_reapproval(calls.iter().map(|request| &request.call))
            }
            (Input::Forbidden { call, .. }, Phase::Working(batch)) => batch.check_waiting(call),
            (
                Input::Outcome { call, .. }
                | Input::Resolve { call, .. }
                | Input::Pending { call, .. }
                | Input::ServiceNeedsApproval { call, .. }
                | Input::Respond { call, .. }
                | Input::Forbidden { call, .. }
                | Input::Expire { call },
                _,
            ) => Err(InputError::UnknownCall(call.clone())),
            (Input::Approval { .. } | Input::RequestReapproval { .. }, _) => Err(InputError::Unexpected("an approval")),
            (Input::Context { .. }, _) => Err(InputError::Unexpected("a context")),
            (Input::Summarised(_), _) => Err(InputError::Unexpected("a summary")),
            (Input::Reply(_) | Input::ModelFailed(_), _) => Err(InputError::Unexpected("a reply")),
            (Input::Dispatched { .. }, _) => Err(InputError::Unexpected("a dispatch of calls")),
            (Input::Verdict(_), _) => Err(InputError::Unexpected("a verdict")),
            (Input::Start { .. } | Input::Undo, _) => Err(InputError::TurnOpen(turn.number)),
        }
    }
}

impl Run {
    /// Checks that the queue has room for the prompt.
    fn check_room_for(&self, prompt: &QueuedPrompt) -> Result<(), InputError> {
        let size = |prompt: &QueuedPrompt| serde_json::to_vec(prompt).map_or(usize::MAX, |json| json.len());
        let bytes = self.queued_prompts.iter().map(size).fold(size(prompt), usize::saturating_add);
        match self.queued_prompts.len() < MAX_QUEUED_PROMPTS && bytes <= MAX_QUEUED_PROMPT_BYTES {
            true => Ok(()),
            false => Err(InputError::NoRoomForPrompt),
        }
    }
}

/// The call of an answer whose edited arguments are nested too deeply to be read again.
fn too_deep(answer: &ApprovalAnswer) -> Option<&CallId> {
    match &answer.verdict {
        ApprovalVerdict::Granted { edited: Some(edited), .. } if is_too_deep(edited) => Some(&answer.call),
        _ => None,
    }
}
