//! Requests to a session that is open in this process. A session accepts requests while a turn runs, while the turn
//! waits, and while no turn is open.

use crate::agent::UserName;
use agent_core::approval::GrantScope;
use agent_core::cloud_event::CloudEvent;
use agent_core::event::Wait;
use agent_core::message::{CallId, TurnInput};
use agent_core::plugin::TraceContext;
use agent_core::run::Decision;
use agent_core::tool::Violation;
use serde_json::Value;
use tokio::sync::oneshot;

/// A user's decision about one call that waits for an approval.
#[derive(Clone, Debug, PartialEq)]
pub struct ApprovalDecision {
    /// Id of the call that waits for the decision.
    pub call: CallId,
    /// Whether the user allows or denies the call.
    pub verdict: Verdict,
}

/// A user's verdict on a call: whether the call may run.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The user allows the call.
    Allow {
        /// Whether the approval is valid only for this call or also for later calls, and for how long.
        scope: GrantScope,
        /// The arguments as the user has changed them. The call runs with these arguments instead of the model's
        /// arguments. `None` if the user did not change the arguments. If the arguments were changed and the approval
        /// is remembered, the approval is valid only for the changed arguments.
        edited: Option<Value>,
    },
    /// The user denies the call.
    Deny {
        /// The user's reason for the denial. The model is shown this reason. `None` if the user gave no reason.
        reason: Option<String>,
    },
}

/// A prompt for a session.
#[derive(Clone, Debug, PartialEq)]
pub struct Prompt {
    /// The input.
    pub input: TurnInput,
    /// Whether the prompt is added to the open turn before its next model call (I9). Without this flag, and if no turn is
    /// open, the prompt begins a turn.
    pub steers: bool,
    /// The user for whom the turn works. `None` means the user in the agent's configuration. A prompt that is queued
    /// begins a turn for the user of the open turn, so its user must be the same.
    pub user: Option<UserName>,
    /// Trace context of the event that contained the prompt.
    pub trace: Option<TraceContext>,
}

/// What a request asks a session to do.
#[derive(Clone, Debug, PartialEq)]
pub enum SessionRequest {
    /// Begin a turn with this prompt, or queue the prompt if a turn is open.
    Prompt(Prompt),
    /// Take the answer of a service, or the answer to an approval request, as an event (I6).
    Respond(Box<CloudEvent>),
    /// Take these decisions about calls that wait for an approval (L17).
    Approve(Vec<ApprovalDecision>),
    /// Take this answer to a question of the model (L18).
    Answer {
        /// Id of the call that asked the question.
        call: CallId,
        /// The answer.
        text: String,
    },
    /// Take this decision about a call whose outcome is unknown (D3).
    Resolve {
        /// Id of the call.
        call: CallId,
        /// The decision.
        decision: Decision,
    },
    /// Cancel the open turn (L29).
    Cancel,
    /// Continue the open turn, because something for which it waited may have happened: a deadline has passed, or the
    /// turn of a delegated session has ended.
    Continue,
}

/// What the session did with a request. Everything that the variant describes is committed.
#[derive(Clone, Debug, PartialEq)]
pub enum Accepted {
    /// A turn with this number began.
    Started {
        /// Number of the turn, starting at 1.
        turn: u32,
    },
    /// The prompt was queued. It is added to the open turn if it steers the turn, and otherwise begins a turn when the
    /// open turn has ended.
    Queued,
    /// The answer or decision was stored.
    Stored {
        /// Violations of the schema that was stored with the call. If the list is not empty, the model receives an error
        /// instead of the answer.
        violations: Vec<Violation>,
        /// What the turn still waits for.
        waits: Vec<Wait>,
    },
    /// The call already has exactly this answer. Nothing was changed.
    Duplicate,
    /// The call already has another result. Nothing was changed.
    Late,
    /// The turn was cancelled, or no turn was open.
    Cancelled,
    /// The turn continues.
    Continued,
}

/// The reason why a session rejected a request. The session is not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RequestError {
    /// The kind of the problem.
    pub kind: RequestProblem,
    /// Description of the problem, and how to solve it.
    pub message: String,
}

/// The kind of the problem with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestProblem {
    /// The session, the agent or the call does not exist.
    NotFound,
    /// The session does not accept this request in its current state.
    Conflict,
    /// The content of the request is invalid.
    Invalid,
    /// The session cannot be used at the moment, for example because another process has it open. The same request may
    /// succeed later.
    Unavailable,
    /// The host failed.
    Failed,
}

/// A request with the channel for its answer.
pub(crate) struct PendingRequest {
    pub(crate) request: SessionRequest,
    pub(crate) reply: RequestReply,
}

/// The channel for the answer to a request. If the channel is closed without an answer, the session was closed before it
/// handled the request.
pub(crate) type RequestReply = oneshot::Sender<Result<Accepted, RequestError>>;

impl RequestError {
    pub(crate) fn new(kind: RequestProblem, message: impl ToString) -> Self {
        Self { kind, message: message.to_string() }
    }
}
