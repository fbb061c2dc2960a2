//! The text dialect of tool calls (L20): writes tools and calls as text before a model call, and reads calls from the
//! text of the reply.

use super::action::ActionContext;
use super::outgoing::OutgoingPrompt;
use crate::prompts;
use agent_core::model::{Delta, Reply};
use agent_core::prompt;
use agent_core::run::{Disposition, ModelRole, ResolvedCall};
use agent_core::text_dialect::{self, TaggedReader, ToolDialect, UnreadableCall, schema_sections};
use tokio::sync::mpsc::{Receiver, Sender};

/// The tool calls that a model has written in the text of a reply.
#[derive(Default)]
pub(super) struct TextCalls {
    pub(super) calls: Vec<ResolvedCall>,
    pub(super) unreadable: Vec<UnreadableCall>,
    /// The reply's original text, including the calls, or an empty text if every call could be read.
    pub(super) written: String,
}

/// Selects the pieces of a streamed reply that the watchers receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamFilter {
    /// The watchers receive all pieces.
    Whole,
    /// The watchers receive all pieces, but the tool calls are removed from the text.
    WithoutCalls,
    /// The watchers do not receive the text, because a plan is not text for the user (L24). The watchers still receive
    /// the thinking.
    Thinking,
}

impl StreamFilter {
    pub(super) fn of(dialect: ToolDialect, role: ModelRole) -> Self {
        match (role, dialect) {
            (ModelRole::Planner, _) => StreamFilter::Thinking,
            (_, ToolDialect::Text) => StreamFilter::WithoutCalls,
            (_, ToolDialect::Native) => StreamFilter::Whole,
        }
    }
}

/// If the agent uses the text dialect, writes the tools as sections of the turn's first message, and writes calls and
/// results as text. Returns the sections.
pub(super) fn write_tools_as_text(context: &ActionContext<'_>, outgoing: &mut OutgoingPrompt) -> Vec<String> {
    if context.services.agent.config().tool_dialect == ToolDialect::Native {
        return Vec::new();
    }
    let registry = context.services.agent.registry();
    let sourced = outgoing.request.tools.iter().map(|tool| (tool, registry.source_of(&tool.author_name)));
    let sections = prompt::texts(&schema_sections(sourced));
    let index = position_of_turn(context, &outgoing.ids);
    prompts::write_as_text(&mut outgoing.request, index, sections.clone(), &|name| registry.address_of(name));
    sections
}

/// Reads and resolves the calls in a reply's text, and removes these calls from the text.
pub(super) fn read_text_calls(context: &ActionContext<'_>, reply: &mut Reply) -> TextCalls {
    let mut read = TextCalls::default();
    if context.services.agent.config().tool_dialect == ToolDialect::Native {
        return read;
    }
    let (text, calls) = text_dialect::read(&reply.text);
    for call in calls {
        match call {
            Ok(call) => read.calls.push(context.services.agent.registry().resolve_tagged(&call)),
            Err(error) => read.unreadable.push(error),
        }
    }
    if read.calls.is_empty() && read.unreadable.is_empty() {
        read.unreadable = quoted_calls(context, &text);
    }
    let written = std::mem::replace(&mut reply.text, text);
    if !read.unreadable.is_empty() {
        read.written = written;
    }
    read
}

/// If the reply contains no tool calls outside of code blocks, returns the calls of existing tools in its code blocks.
/// The caller informs the model that calls in code blocks did not run, but only once per turn. In later replies of the
/// turn, calls in code blocks are treated as a part of the answer.
fn quoted_calls(context: &ActionContext<'_>, text: &str) -> Vec<UnreadableCall> {
    if context.run.turn.as_ref().is_none_or(|turn| turn.told_about_quoted_calls) {
        return Vec::new();
    }
    let registry = context.services.agent.registry();
    let exists = |call: &text_dialect::TaggedCall| {
        !matches!(registry.resolve_tagged(call).disposition, Disposition::NotFound { .. })
    };
    let quoted = text_dialect::quoted_calls(text).into_iter().filter(|(call, _)| exists(call));
    quoted.map(|(_, unreadable)| unreadable).collect()
}

/// Returns the index, in the prompt, of the message that started the open turn.
fn position_of_turn(context: &ActionContext<'_>, ids: &[u64]) -> Option<usize> {
    let first = context.run.sent().find(|entry| entry.turn == context.run.turns)?.id;
    ids.iter().position(|id| *id == first)
}

/// Forwards those pieces of the reply that the watchers may receive, until the reply ends.
pub(super) async fn forward_visible_pieces(filter: StreamFilter, mut deltas: Receiver<Delta>, watchers: Sender<Delta>) {
    let (mut reader, mut pieces) = (TaggedReader::default(), Vec::new());
    while let Some(delta) = deltas.recv().await {
        match (delta, filter) {
            (Delta::Text(_), StreamFilter::Thinking) => {}
            (Delta::Text(text), StreamFilter::WithoutCalls) => reader.text(&text, &mut pieces),
            (Delta::Clear, _) => {
                reader = TaggedReader::default();
                pieces.push(Delta::Clear);
            }
            (delta, _) => pieces.push(delta),
        }
        for piece in pieces.drain(..) {
            let _ = watchers.send(piece).await;
        }
    }
    reader.finish(&mut pieces);
    for piece in pieces {
        let _ = watchers.send(piece).await;
    }
}
