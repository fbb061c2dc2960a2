//! Builds the spans of a turn from its committed events and step records. Everything here is a pure function of stored
//! data, so that every process builds the same spans.
//!
//! A turn is one trace, or a part of the trace of the event that began it. The span of the turn has the kind AGENT. Below
//! it are the steps (CHAIN), and below each step the model call (LLM), the tool calls (TOOL) and the checks (GUARDRAIL).
//! Below a tool call are its host calls. The turn of another agent that does the work of a call is below the call.

mod checks;
mod commits;
mod content_writer;
mod context;
mod host_calls;
mod messages;
mod model_calls;
mod record_bodies;
mod tool_calls;
mod turn;

pub(crate) use commits::commit_spans;
pub(crate) use messages::message_text;
pub(crate) use record_bodies::{Positions, Prompt, QuestionBody, SummaryBody, TraceBody, body_of};

use crate::content::Scrubber;
use agent_core::change::CallRecord;
use agent_core::message::{CallId, MessageId, StoredMessage};
use agent_store::{ExportPosition, StoredTurn};
use std::collections::BTreeMap;

/// The stored data of a turn from which its spans are built.
pub(crate) struct TurnData<'d> {
    pub(crate) session: &'d str,
    pub(crate) stored: &'d StoredTurn,
    /// The position up to which the turn was exported. The spans after this position are built.
    pub(crate) position: ExportPosition,
    pub(crate) scrubber: &'d Scrubber,
    /// The calls that the events after the position name.
    pub(crate) calls: BTreeMap<CallId, CallRecord>,
    /// The latest messages of the prompts. Empty if no content is exported.
    pub(crate) messages: BTreeMap<MessageId, StoredMessage>,
    /// The ids of the messages of each prompt that are exported, and how many messages are left out, by the number of the
    /// prompt's record.
    pub(crate) prompts: BTreeMap<u64, (Vec<MessageId>, usize)>,
    /// The texts to which the records refer, by digest. Empty if no content is exported.
    pub(crate) texts: BTreeMap<String, String>,
    /// The input and the output of the turn. Only known if the turn has ended and content is exported.
    pub(crate) input: Option<String>,
    pub(crate) output: Option<String>,
}
