//! Requests to a session. A session accepts requests while a turn runs, while the turn waits, and while no turn is open.
//! If another process has the session open, a request is stored as JSON until that process handles it (F2).

mod sending;
mod session_names;
mod stored;

use crate::agent::UserName;
use agent_core::approval::GrantScope;
use agent_core::cloud_event::CloudEvent;
use agent_core::event::Wait;
use agent_core::message::{CallId, TurnInput};
use agent_core::plugin::TraceContext;
use agent_core::run::Decision;
use agent_core::tool::{ClientTool, Violation};
use agent_plugins::NewMediaItem;
pub use sending::send_to_holder;
pub(crate) use sending::{GRACE, Outcome, not_answered, outcome_of};
use serde::{Deserialize, Serialize};
use serde_json::Value;
pub use session_names::{SessionKind, SessionName, begins_unattended};
use std::path::PathBuf;
pub(crate) use stored::{answer_to_json, request_from_json, request_to_json};
use tokio::sync::oneshot;

/// A user's decision about one call that waits for an approval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApprovalDecision {
    /// Id of the call that waits for the decision.
    pub call: CallId,
    /// Whether the user allows or denies the call.
    pub verdict: Verdict,
}

/// A user's verdict on a call: whether the call may run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
///
/// ```
/// use agent_core::message::TurnInput;
/// use agent_runtime::{DuringTurn, Prompt};
///
/// let prompt = Prompt::new(TurnInput::Text("Answer in German.".to_owned()));
/// let steering = Prompt { during_turn: DuringTurn::Steer, ..prompt };
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prompt {
    /// The input.
    pub input: TurnInput,
    /// Images and other media items that belong to the input. They are stored in the session before the prompt is.
    #[serde(with = "stored::media_items")]
    pub attachments: Vec<NewMediaItem>,
    /// What happens to the prompt if a turn is open. If no turn is open, the prompt begins a turn.
    pub during_turn: DuringTurn,
    /// The user for whom the turn works. `None` means the user in the agent's configuration. A prompt that is queued
    /// begins a turn for the user of the open turn, so its user must be the same.
    pub user: Option<UserName>,
    /// Trace context of the event that contained the prompt.
    pub trace: Option<TraceContext>,
    /// The last turn that the sender knows. If another turn has begun since, the prompt is refused with
    /// [`RequestProblem::Conflict`]. `None` means that the prompt may follow any turn.
    pub after_turn: Option<u32>,
    /// Tools that the program which sends the prompt offers to the model for this turn, and whose calls it runs itself
    /// (I3). A prompt with tools must begin a turn, so it is refused while a turn is open.
    pub client_tools: Vec<ClientTool>,
}

impl Prompt {
    /// Returns a prompt without attachments, which waits until an open turn has ended.
    pub fn new(input: TurnInput) -> Self {
        Self {
            input,
            attachments: Vec::new(),
            during_turn: DuringTurn::Queue,
            user: None,
            trace: None,
            after_turn: None,
            client_tools: Vec::new(),
        }
    }
}

/// The result of a call of a client's tool (I3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientResult {
    /// Id of the call.
    pub call: CallId,
    /// The result, as the model sees it.
    pub text: String,
    /// Whether the call failed.
    pub is_error: bool,
}

/// What happens to a prompt that arrives while a turn is open (I9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DuringTurn {
    /// The prompt begins a turn when the open turn has ended.
    #[default]
    Queue,
    /// The prompt is added to the open turn before its next model call.
    Steer,
    /// The prompt is refused with [`RequestProblem::Conflict`].
    Refuse,
}

/// What a request asks a session to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionRequest {
    /// Begin a turn with this prompt, or queue the prompt if a turn is open.
    Prompt(Prompt),
    /// Begin the first turn of the session with this prompt. If the session already has a turn, nothing changes, and the
    /// answer is [`Accepted::Duplicate`].
    FirstPrompt(Prompt),
    /// Take the answer of a service, or the answer to an approval request, as an event (I6).
    Respond(Box<CloudEvent>),
    /// Take the results of calls of the client's tools (I3).
    TakeResults(Vec<ClientResult>),
    /// Take these decisions about calls that wait for an approval (L17).
    Approve(Vec<ApprovalDecision>),
    /// Run a call that waits for an approval in advance, on copies of the files that it changes, and answer with the changes;
    /// see [`Session::rehearse`](crate::Session::rehearse). Nothing is changed or stored. Fails with
    /// [`RequestProblem::Conflict`] if the call does not wait for an approval.
    Rehearse {
        /// Id of the call.
        call: CallId,
    },
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
    /// Close the session, unless a turn runs. A turn that waits stays open, and continues when the session is opened again.
    Close,
    /// Undo the last turn (D5). Fails with [`RequestProblem::Conflict`] if a turn is open.
    Undo,
    /// Continue the open turn, because something for which it waited may have happened: a deadline has passed, or the
    /// turn of a delegated session has ended.
    Continue,
}

/// What the session did with a request. Everything that the variant describes is committed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
    /// The call would make these changes to files. Nothing was changed.
    Rehearsed {
        /// The changes, in the order of the files' paths.
        changes: Vec<ProposedChange>,
    },
    /// The call already has exactly this answer, or the session already has its first prompt. Nothing was changed.
    Duplicate,
    /// The call already has another result. Nothing was changed.
    Late,
    /// The turn was cancelled, or no turn was open.
    Cancelled,
    /// The last turn was undone.
    Undone,
    /// The turn continues.
    Continued,
    /// The session is being closed.
    Closed,
}

/// A change to a text file that a call would make, according to a rehearsal of the call on copies of its files; see
/// [`Session::rehearse`](crate::Session::rehearse).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProposedChange {
    /// Path of the file on the host.
    pub path: PathBuf,
    /// The present content. `None` means that the file does not exist.
    pub old: Option<String>,
    /// The content after the call. `None` means that the call removes the file.
    pub new: Option<String>,
}

/// The reason why a session rejected a request. The session is not changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct RequestError {
    /// The kind of the problem.
    pub kind: RequestProblem,
    /// Description of the problem, and how to solve it.
    pub message: String,
}

/// The kind of the problem with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
    /// Id of the stored request, if another process has sent it. The commit that carries the request out stores the answer
    /// with this id.
    pub(crate) stored: Option<String>,
}

impl PendingRequest {
    /// Creates a request of this process, and the receiver of its answer.
    pub(crate) fn new(request: SessionRequest) -> (Self, oneshot::Receiver<Result<Accepted, RequestError>>) {
        let (reply, answer) = oneshot::channel();
        (Self { request, reply, stored: None }, answer)
    }
}

/// The channel for the answer to a request. If the channel is closed without an answer, the session was closed before it
/// handled the request.
pub(crate) type RequestReply = oneshot::Sender<Result<Accepted, RequestError>>;

impl RequestError {
    pub(crate) fn new(kind: RequestProblem, message: impl ToString) -> Self {
        Self { kind, message: message.to_string() }
    }
}
