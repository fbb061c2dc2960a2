//! The server side of the protocol (I4): offers tools to MCP clients over standard input and output, or over HTTP. What is
//! offered is behind the trait [`Offer`], so that this module contains only the protocol.

mod content;
mod handler;
mod http;
mod questions;
mod stdio;
mod tools;

pub use http::{HttpEndpoint, HttpRefusal};
pub use stdio::{StdioEnd, serve_stdio};

use agent_core::plugin::TraceContext;
use agent_core::tool::Traits;
use async_trait::async_trait;
use serde_json::{Map, Value};

/// Maximum size of one message of a client, in bytes.
pub const MAX_CLIENT_MESSAGE_BYTES: usize = 4 << 20;

/// What is offered to one client. Each client has its own value, so that no client can use the calls of another client.
#[async_trait]
pub trait Offer: Send + Sync + 'static {
    /// Returns a sentence about the tools, for the client's model.
    fn instructions(&self) -> String;

    /// Returns the tools, in a fixed order.
    async fn tools(&self) -> Result<Vec<OfferedTool>, OfferError>;

    /// Returns a value that changes whenever the list of tools changes.
    fn list_version(&self) -> String;

    /// Waits until the list of tools has another version than `seen`, and returns the new version.
    async fn list_changed(&self, seen: &str) -> String;

    /// Begins a call. `tool` is the name in the list of tools. If the client has repeated a call that waits for an answer,
    /// the waiting call is continued instead, so that it has only one effect.
    /// `trace` is the trace context in the request, to which the turn of the call belongs (I6).
    async fn begin(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
        trace: Option<TraceContext>,
    ) -> Result<Box<dyn OpenCall>, OfferError>;

    /// Continues a call that was put aside. Fails unless the call belongs to this client, and has this tool and these
    /// arguments.
    async fn resume(
        &self,
        handle: &str,
        tool: &str,
        arguments: Map<String, Value>,
    ) -> Result<Box<dyn OpenCall>, OfferError>;
}

/// A call that runs or waits for answers. Dropping the value cancels the call.
#[async_trait]
pub trait OpenCall: Send {
    /// Waits for the next update. After [`CallUpdate::Done`], the call must not be used any more. If the future is dropped,
    /// an update may be lost, so the call can then only be cancelled.
    async fn next(&mut self) -> Result<CallUpdate, OfferError>;

    /// Stores the user's answers to questions of the last [`CallUpdate::Waits`], each with the id of its question.
    async fn answer(&mut self, answers: Vec<(String, Answer)>) -> Result<(), OfferError>;

    /// Puts a waiting call aside, so that [`Offer::resume`] can continue it. Returns the handle, which no other client can
    /// guess or use.
    async fn put_aside(self: Box<Self>) -> Result<String, OfferError>;

    /// Ends the request of a call that waits, because the client cannot ask its user. The call keeps waiting. Returns a
    /// result that says how to answer the questions, and that the call can be repeated afterwards.
    async fn leave_waiting(self: Box<Self>) -> CallOutput;

    /// Cancels the call, and returns after the cancellation was stored.
    async fn cancel(self: Box<Self>);
}

/// A tool that is offered.
#[derive(Clone, Debug, PartialEq)]
pub struct OfferedTool {
    /// Name of the tool, which is unique in the list.
    pub name: String,
    /// Title for users.
    pub title: Option<String>,
    /// Description for the client's model.
    pub description: String,
    /// JSON Schema of the arguments.
    pub input_schema: Value,
    /// JSON Schema of the structured result.
    pub output_schema: Option<Value>,
    /// What the tool declares about itself.
    pub traits: Traits,
}

/// What happened in a call.
#[derive(Clone, Debug, PartialEq)]
pub enum CallUpdate {
    /// The call made progress, which this text describes.
    Progress(String),
    /// The call waits until the user has answered these questions. The list is not empty.
    Waits(Vec<Question>),
    /// The call has ended.
    Done(CallOutput),
}

/// A question to the user of the client.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// Id of the question, which is unique among the questions of the call.
    pub id: String,
    /// What the user is asked.
    pub kind: QuestionKind,
}

/// What a user is asked.
#[derive(Clone, Debug, PartialEq)]
pub enum QuestionKind {
    /// Whether a tool may run (L17).
    Approval {
        /// Name of the tool.
        tool: String,
        /// The exact arguments with which the tool would run.
        arguments: Value,
        /// The configuration key that requires the approval, or `the tool itself`.
        because: String,
        /// What the tool declares about itself.
        traits: Traits,
    },
    /// A question of an agent, which the user answers with a text (L18).
    Text(String),
}

/// The answer of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The tool may run once.
    AllowOnce,
    /// The tool may run now and later in the same session.
    AllowForSession,
    /// The tool must not run, for this reason.
    Deny(String),
    /// The answer to a question of an agent.
    Text(String),
}

/// The result of a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallOutput {
    /// The complete content, in order.
    pub content: Vec<OutputContent>,
    /// The result as structured data.
    pub structured: Option<Value>,
    /// Whether the call failed.
    pub is_error: bool,
}

impl CallOutput {
    /// Returns the result of a call that failed with this message.
    pub fn error(message: impl Into<String>) -> Self {
        Self { content: vec![OutputContent::Text(message.into())], structured: None, is_error: true }
    }
}

/// One item of a result.
#[derive(Clone, Debug, PartialEq)]
pub enum OutputContent {
    /// A text.
    Text(String),
    /// An image, an audio recording or another media item.
    Media {
        /// The bytes of the item.
        bytes: Vec<u8>,
        /// IANA media type.
        mime_type: String,
        /// URI that identifies the item.
        uri: String,
    },
}

/// Why the host refused a request of a client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct OfferError {
    /// The kind of the problem.
    pub kind: OfferProblem,
    /// Description of the problem for the client, without data of the host.
    pub message: String,
}

/// The kind of a problem with a request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfferProblem {
    /// The client does not have the right for the request.
    Forbidden,
    /// The request names a tool or a call that does not exist, or has invalid content.
    Invalid,
    /// The client has too many calls, or the host is busy. The same request may succeed later.
    Busy,
    /// The host failed.
    Failed,
}

impl OfferError {
    /// Creates an error.
    pub fn new(kind: OfferProblem, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}
