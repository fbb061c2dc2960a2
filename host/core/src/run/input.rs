//! The inputs of a run: the results and events that the driver reports.

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

/// An input of a run: a result or an event that the driver reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "only one input exists at a time, and it is consumed at once")]
pub enum Input {
    /// A turn begins (L1).
    Start {
        /// The prompt, event data or message that begins the turn.
        input: TurnInput,
        /// The limits of the turn.
        config: LoopConfig,
        /// The plugin versions to which the turn is pinned.
        plugins: Vec<PinnedPlugin>,
        /// The agent's settings, other than plugin versions, to which the turn is pinned. `None` means that the turn
        /// uses the agent's current settings.
        #[serde(default)]
        pinned: Option<PinnedAgent>,
        /// Trace context to which the turn belongs.
        trace: TraceContext,
    },
    /// The prompt has been built (L2).
    Context {
        /// The prompt with which the turn begins.
        context: TurnContext,
    },
    /// A summary of the messages to evict has been written (L27).
    Summarised(Summarised),
    /// The model has replied completely.
    Reply(ResolvedReply),
    /// The model call has failed (M3).
    ModelFailed(ModelFailure),
    /// The calls are about to run. The calls run only after the change for this input is committed.
    Dispatched {
        /// Some or all of the calls in [`super::Action::Dispatch`].
        calls: Vec<DispatchedCall>,
    },
    /// A running call has finished.
    Outcome {
        /// Id of the tool call.
        call: CallId,
        /// The final result of the call.
        result: CallResult,
    },
    /// The validators and the output schema have accepted or rejected the output (L12).
    Verdict(OutputVerdict),
    /// A component that the loop needs has failed permanently. The turn ends with this error.
    Failed(TurnError),
    /// The turn is cancelled (L29).
    Cancel,
    /// The state was restored after the host had stopped. No call that the state contains is running (D3).
    Recover,
    /// A running call has requested a service instead of returning a result (P2).
    Pending {
        /// Id of the tool call.
        call: CallId,
        /// The response for which the call waits from now on.
        awaits: Awaited,
        /// Cost of running the call.
        cost: CallCost,
    },
    /// A running call has requested a service, and this request needs approval. The same rules apply as if the model
    /// had called the service's tool (P2, L17).
    #[serde(rename = "held")]
    ServiceNeedsApproval {
        /// Id of the tool call.
        call: CallId,
        /// The request to the service.
        request: UnapprovedRequest,
        /// Identity of the service's tool. The user's answer is only valid for this identity.
        digest: Digest,
        /// Cost of running the call.
        cost: CallCost,
    },
    /// The response to an outstanding call has arrived (L10).
    Respond {
        /// Id of the tool call.
        call: CallId,
        /// Sender of the response. The run only accepts a response from the sender that the call waits for.
        from: Answerer,
        /// The final result of the call.
        result: CallResult,
    },
    /// The time limit of an outstanding call has passed.
    Expire {
        /// Id of the tool call.
        call: CallId,
    },
    /// A user has approved or denied some or all of the calls in an approval request (L17).
    Approval {
        /// The user's answers. The list is not empty.
        answers: Vec<ApprovalAnswer>,
    },
    /// Some calls that were about to run are no longer approved: the tool has changed, the grant was revoked, or the
    /// configuration now requires an approval. A user is asked for a new approval (L17).
    #[serde(rename = "ask_again")]
    RequestReapproval {
        /// The calls that are no longer approved, each with the current identity of its tool.
        calls: Vec<ReapprovalRequest>,
    },
    /// A call that was about to run must not run. The call gets this error as its result (L17).
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
    /// The host denied requests that plugins made for the turn (P6). These denials are not reported with the result of
    /// a call, for example because a context builder made the request or because the call was stopped.
    Denied {
        /// The denials. The list is not empty. Each denial has the id of the call that made the denied request, or None
        /// if no call made the request.
        denials: Vec<(Option<CallId>, Denial)>,
    },
    /// A prompt has arrived while the turn is open, or while earlier prompts wait for their turns. The prompt is queued until the
    /// turns before it have ended.
    #[serde(rename = "keep")]
    QueuePrompt {
        /// The prompt to add to the queue.
        prompt: QueuedPrompt,
    },
    /// The last turn is removed from the view. The messages of the turn stay stored (D5).
    Undo,
    /// A plugin has called the host's model while it worked for the turn (P5).
    #[serde(rename = "asked")]
    PluginUsedModel {
        /// Name of the plugin.
        plugin: String,
        /// Number of model calls by the plugin, and the tokens that these calls used.
        used: ModelUse,
    },
    /// A model call of the turn has used tokens, but there is no reply that counts them: the call was stopped, the stream broke,
    /// or the reply was not used (O4).
    ModelSpent {
        /// The usage, which may be an estimate.
        usage: Usage,
    },
}

/// A failed model call, and how the host proceeds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelFailure {
    /// The model, as `provider/model`.
    pub model: String,
    /// Description of the failure, and advice on how to fix it.
    pub message: String,
    /// Whether the same request may succeed later.
    #[serde(default, rename = "prospect")]
    pub retryability: Retryability,
    /// What the host does after the failure.
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
    /// If the same request were sent again, it would fail in the same way.
    #[serde(rename = "never")]
    Permanent,
}

impl Retryability {
    pub(super) fn is_retryable(&self) -> bool {
        *self == Self::Retryable
    }
}

/// How the host proceeds after a failed model call. If a part of a reply arrived before the failure, that part
/// is discarded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterFailure {
    /// Call the same model again.
    Retry {
        /// Time until the next attempt, in milliseconds.
        wait_ms: u64,
    },
    /// Use a later model of the agent's chain of models for the rest of the turn.
    Next {
        /// Index of the model in the agent's chain of models. The index is greater than the index of the failed model.
        #[serde(rename = "place")]
        model_index: u32,
        /// The model, as `provider/model`.
        model: String,
        /// Token budget of prompts to this model.
        budget: PromptBudget,
    },
    /// The model call fails for good, because the chain contains no further model.
    GiveUp,
}

/// The prompt with which a turn begins.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TurnContext {
    /// System sections in the order in which they are sent.
    pub sections: Vec<Section>,
    /// Sections that precede the input if the context builder returned no messages.
    pub preface: Vec<Section>,
    /// Whether the messages of earlier turns are sent to the model.
    pub history: History,
    /// Messages that begin the turn. If the list is empty, the turn begins with the message for its input.
    pub messages: Vec<Message>,
    /// State that the context builder receives again before each step. `None` means that the context builder has
    /// no state.
    pub state: Option<Vec<u8>>,
    /// Token budget of the prompt.
    pub budget: PromptBudget,
    /// Names of the tools that are offered to the model, as the tools' authors wrote them (L25). `None` means that all
    /// tools are offered.
    #[serde(default)]
    pub offered: Option<Vec<String>>,
    /// Token budgets of the planner and the executor, for a planned turn (L24). `None` means that the turn has no plan.
    #[serde(default)]
    pub plan: Option<PlanBudgets>,
    /// Ids of the memories that were recalled for the turn (D4).
    #[serde(default)]
    pub recalled: Vec<String>,
}

/// A summary of messages, and its cost. The model call for a summary does not count as an interaction (L4), but its
/// tokens are added to the tokens of the turn (L5).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summarised {
    /// Text of the summary. The text replaces the text of the earlier summary and includes what the earlier summary
    /// said. A text that is too long is cut.
    pub text: String,
    /// Names of the files that the calls in the summarised messages used, the most recent file last.
    pub files: Vec<String>,
    /// The model that wrote the summary, as `provider/model`, or `extract` if the host wrote it.
    pub by: String,
    /// Token counts as the provider reported them. Zero if no model was called (L5).
    #[serde(default)]
    pub usage: Usage,
}

/// A call that is about to run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DispatchedCall {
    /// Id of the tool call.
    pub call: CallId,
    /// Arguments from the call's record, which are copied into the call's event.
    pub arguments: Value,
    /// The external response for which the call waits from now on. `None` means that the host runs the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awaits: Option<Awaited>,
}

/// The external response for which an outstanding call waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Awaited {
    /// The kind of response for which the call waits.
    pub cause: WaitCause,
    /// Event that the host sends after the commit, such as the request to a service. `None` means that the host sends
    /// no event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<OutgoingEvent>,
}

/// The sender of the response to an outstanding call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answerer {
    /// The service that received the request (L10).
    Service,
    /// The agent to which the call delegated work (L16).
    Agent,
    /// The user who was asked a question (L18).
    User,
    /// The client program to which the called tool belongs (I3).
    Client,
}

impl Answerer {
    /// Whether a call with this cause waits for a response from this sender.
    pub(super) fn may_answer(self, cause: &WaitCause) -> bool {
        match cause {
            WaitCause::Service { .. } => self == Answerer::Service,
            WaitCause::Agent { .. } => self == Answerer::Agent,
            WaitCause::Answer { .. } => self == Answerer::User,
            WaitCause::Client => self == Answerer::Client,
            WaitCause::Approval { .. } | WaitCause::OutcomeUnknown => false,
        }
    }
}

/// A plugin's service request that needs approval. The store contains the text of the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnapprovedRequest {
    /// Name of the service's tool.
    pub service: String,
    /// Digest of the request's stored text.
    pub request: Digest,
}

impl DispatchedCall {
    /// Creates an entry for a call that the host runs itself.
    pub fn running(call: CallId, arguments: Value) -> Self {
        Self { call, arguments, awaits: None }
    }
}

/// A complete reply of a model. Each call of the reply has already been looked up in the registry of tools.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResolvedReply {
    /// Text that the model wrote.
    pub text: String,
    /// The model's calls, looked up and checked against their schemas (L7, L8).
    pub calls: Vec<ResolvedCall>,
    /// Why the model stopped. A reply that was cut is never accepted as an answer.
    pub stop: StopReason,
    /// The model that answered, as `provider/model`.
    pub model: String,
    /// Token counts as the provider reported them.
    pub usage: Usage,
    /// Data that the host must return to the provider when it sends the reply again. `None` means that the provider
    /// sent no such data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<Replay>,
    /// Media items that were masked for this model call and stay masked (P4).
    #[serde(default)]
    pub masks: Vec<Mask>,
    /// Estimated number of tokens by which media policies shortened the prompt of this model call (P4).
    #[serde(default)]
    pub saved_tokens: u64,
    /// Calls that the model wrote into its text and that the host could not parse (L20).
    #[serde(default)]
    pub unreadable: Vec<UnreadableCall>,
    /// The text as the model wrote it, including the calls in `unreadable`. Empty if `unreadable` is empty.
    #[serde(default)]
    pub written: String,
    /// The planner's reply (L24). `None` means that the planner was not called.
    #[serde(default)]
    pub plan: Option<PlannerReply>,
}

/// A call of a reply, after the host has looked up the call's tool in the registry of tools.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResolvedCall {
    /// Name of the tool as its author wrote it. If the tool does not exist, the name is as the model wrote it.
    pub name: String,
    /// The arguments as the model wrote them.
    pub arguments: Value,
    /// Where the tool comes from. `None` means that the tool does not exist.
    pub source: Option<ToolSource>,
    /// Whether the call may run.
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
    /// A user must be asked to approve the call. The tool has this identity.
    Needed(Digest),
    /// A user approved the tool earlier. The call only runs if the tool still has the identity in this grant.
    Remembered(LastingGrant),
}

/// Whether a call may run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Disposition {
    /// The call may run.
    Ready {
        /// Priority of the tool. In each reply, only the calls with the highest priority run (L6).
        priority: i32,
        /// Whether the call must run alone (L9).
        sequential: bool,
        /// Whether the host may run the call again after a crash without asking the user (D3).
        repeatable: bool,
    },
    /// The tool does not exist (L7).
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
        /// The denial, which is shown to users.
        denial: Denial,
    },
    /// The call ends the turn or asks the user a question, after the other calls of its batch have finished (L18).
    Breaks(LoopBreak),
}

/// The result of validating an output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputVerdict {
    /// The output is accepted and ends the turn.
    Accepted(OutputData),
    /// The output is rejected. The model is asked for a better output unless a limit of the turn has been reached.
    Rejected {
        /// The plugin that rejected the output, or `output schema`.
        by: String,
        /// The problems that were found in the output. The list is not empty.
        problems: Vec<Violation>,
    },
}

/// A user's decision about a call whose outcome is unknown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Run the call for a second time, with the same id.
    Retry,
    /// Tell the model that the call failed, with this message.
    Failed(String),
    /// Use this text as the call's result.
    Result(String),
}

/// Why an input was not applied. After each of these errors except [`InputError::Inconsistent`], the state
/// is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// The input is only valid if no turn is open, but a turn is open.
    #[error("turn {0} of this session has not ended; continue it or cancel it first")]
    TurnOpen(u32),
    /// The input is only valid if a turn is open, but no turn is open.
    #[error("no turn of this session is open")]
    NoTurn,
    /// The turn is not waiting for this input.
    #[error("the turn is not waiting for {0}")]
    Unexpected(&'static str),
    /// The view contains no turn that could be undone.
    #[error("there is no turn to undo")]
    NothingToUndo,
    /// The session's queue of prompts has no room for a further prompt.
    #[error(
        "the session's queue is full: while a turn is open, at most {MAX_QUEUED_PROMPTS} prompts with a total of {} \
         KiB can wait; try again when the turn has ended",
        MAX_QUEUED_PROMPT_BYTES >> 10
    )]
    NoRoomForPrompt,
    /// The edited arguments are nested so deeply that a stored state with them could not be parsed.
    #[error("the edited arguments of call {0} are nested more than {MAX_JSON_DEPTH} levels deep")]
    TooDeep(CallId),
    /// The open batch does not contain the call that the input names.
    #[error("call {0} is not one of the open calls of this turn")]
    UnknownCall(CallId),
    /// The call is not waiting for this input. The input is a duplicate or arrived too late.
    #[error("call {0} is not waiting for this input; it is {1}")]
    Settled(CallId, &'static str),
    /// The state contradicts itself, although the input was valid in this state.
    #[error("the state of the session contradicts itself: {0}; restore the session and try again")]
    Inconsistent(&'static str),
}

impl Run {
    /// Checks whether the input is valid in the current state.
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
        if let Input::QueuePrompt { prompt } = input
            && !self.queued_prompts.is_empty()
        {
            return self.check_queue_capacity(prompt);
        }
        let turn = self.turn.as_ref().filter(|turn| !turn.is_over()).ok_or(InputError::NoTurn)?;
        match (input, &turn.phase) {
            (Input::QueuePrompt { prompt }, _) => self.check_queue_capacity(prompt),
            (
                Input::Failed(_)
                | Input::Cancel
                | Input::Recover
                | Input::PluginUsedModel { .. }
                | Input::ModelSpent { .. }
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
            (Input::Expire { call }, Phase::Working(batch)) => batch.check_expiring(call),
            (Input::Approval { answers }, Phase::Working(batch)) => {
                batch.check_awaiting_approval(answers.iter().map(|answer| &answer.call))?;
                answers.iter().find_map(too_deep_call).map_or(Ok(()), |call| Err(InputError::TooDeep(call.clone())))
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
    /// Checks that the prompt fits into the queue.
    fn check_queue_capacity(&self, prompt: &QueuedPrompt) -> Result<(), InputError> {
        let size = |prompt: &QueuedPrompt| serde_json::to_vec(prompt).map_or(usize::MAX, |json| json.len());
        let bytes = self.queued_prompts.iter().map(size).fold(size(prompt), usize::saturating_add);
        match self.queued_prompts.len() < MAX_QUEUED_PROMPTS && bytes <= MAX_QUEUED_PROMPT_BYTES {
            true => Ok(()),
            false => Err(InputError::NoRoomForPrompt),
        }
    }
}

/// Returns the id of the call that an approval answer refers to, if the edited arguments in the answer are nested
/// too deeply.
fn too_deep_call(answer: &ApprovalAnswer) -> Option<&CallId> {
    match &answer.verdict {
        ApprovalVerdict::Granted { edited: Some(edited), .. } if is_too_deep(edited) => Some(&answer.call),
        _ => None,
    }
}
