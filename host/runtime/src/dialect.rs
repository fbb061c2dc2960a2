//! The text dialect around one model call: tools and calls are put into words before it, and read from its words (L20).

use crate::model_step::Outgoing;
use crate::registry::Registry;
use crate::session::Session;
use agent_core::message::{Message, Part, Role};
use agent_core::model::{Delta, Reply};
use agent_core::prompt;
use agent_core::run::{Approval, Asked, Disposition, ResolvedCall};
use agent_core::text_dialect::{self, Meant, TaggedReader, ToolDialect, UnreadableCall, in_words, schema_sections};
use tokio::sync::mpsc::{Receiver, Sender};

/// What a reply's text says beside its words.
#[derive(Default)]
pub(crate) struct InWords {
    pub(crate) calls: Vec<ResolvedCall>,
    pub(crate) unreadable: Vec<UnreadableCall>,
    /// With the calls that could not be read.
    pub(crate) written: String,
}

/// What the watchers are shown of a reply's pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// All of it.
    Whole,
    /// The text without the calls in it.
    WithoutCalls,
    /// Its thinking: a plan is no text for the user (L24).
    Thinking,
}

impl Shown {
    pub(crate) fn of(dialect: ToolDialect, asked: Asked) -> Self {
        match (asked, dialect) {
            (Asked::Planner, _) => Shown::Thinking,
            (_, ToolDialect::Text) => Shown::WithoutCalls,
            (_, ToolDialect::Native) => Shown::Whole,
        }
    }
}

impl Session {
    /// In the text dialect: the tools as sections of the turn's message, calls and results as texts.
    pub(crate) fn put_in_words(&self, outgoing: &mut Outgoing) {
        if self.shared.agent.config().tool_dialect == ToolDialect::Native {
            return;
        }
        let registry = self.shared.agent.registry();
        let request = &mut outgoing.request;
        let tools = std::mem::take(&mut request.tools);
        let sourced = tools.iter().map(|tool| (tool, registry.source_of(&tool.author_name)));
        let sections = prompt::texts(&schema_sections(sourced)).into_iter().map(Part::Text);
        let (sections, place) = (sections.collect::<Vec<_>>(), self.turns_message(&outgoing.ids));
        match place.and_then(|place| request.messages.get_mut(place)).filter(|message| message.role == Role::User) {
            Some(message) => drop(message.parts.splice(0..0, sections)),
            None if sections.is_empty() => {}
            None => request.messages.push(Message { role: Role::User, parts: sections, seen_count: 0 }),
        }
        let messages = std::mem::take(&mut request.messages);
        request.messages = in_words(messages, &|name| registry.address_of(name));
    }

    /// The calls in a reply's text, looked up; its text is left without them.
    pub(crate) fn read_words(&self, reply: &mut Reply) -> InWords {
        let mut read = InWords::default();
        if self.shared.agent.config().tool_dialect == ToolDialect::Native {
            return read;
        }
        let (text, calls) = text_dialect::read(&reply.text);
        for call in calls {
            match call {
                Ok(call) => read.calls.push(self.shared.agent.registry().resolve_tagged(&call)),
                Err(error) => read.unreadable.push(error),
            }
        }
        if read.calls.is_empty() && read.unreadable.is_empty() {
            read.unreadable = self.quoted_calls(&text);
        }
        let written = std::mem::replace(&mut reply.text, text);
        if !read.unreadable.is_empty() {
            read.written = written;
        }
        read
    }

    /// Calls in the code of a reply that has no others, of tools that are there: the model is told once in a turn that they did not
    /// run. After that they are what the answer is about.
    fn quoted_calls(&self, text: &str) -> Vec<UnreadableCall> {
        if self.run.turn.as_ref().is_none_or(|turn| turn.told_of_quoted) {
            return Vec::new();
        }
        let registry = self.shared.agent.registry();
        let is_there = |call: &text_dialect::TaggedCall| {
            !matches!(registry.resolve_tagged(call).disposition, Disposition::NotFound { .. })
        };
        let quoted = text_dialect::quoted(text).into_iter().filter(|(call, _)| is_there(call));
        quoted.map(|(_, unreadable)| unreadable).collect()
    }

    /// Place of the message with which the open turn began, in the prompt.
    fn turns_message(&self, ids: &[u64]) -> Option<usize> {
        let first = self.run.sent().find(|entry| entry.turn == self.run.turns)?.id;
        ids.iter().position(|id| *id == first)
    }
}

/// Passes on what is shown, until the reply ends.
pub(crate) async fn relay(shown: Shown, mut deltas: Receiver<Delta>, watchers: Sender<Delta>) {
    let (mut reader, mut pieces) = (TaggedReader::default(), Vec::new());
    while let Some(delta) = deltas.recv().await {
        match (delta, shown) {
            (Delta::Text(_), Shown::Thinking) => {}
            (Delta::Text(text), Shown::WithoutCalls) => reader.text(&text, &mut pieces),
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

impl Registry {
    /// Looks a call up that a model wrote in its text (L20).
    pub(crate) fn resolve_tagged(&self, call: &text_dialect::TaggedCall) -> ResolvedCall {
        let address = text_dialect::ToolAddress { server: call.server.clone(), tool: call.tool.clone() };
        let tools = self.tools().map(|tool| (tool.definition.name.as_str(), &tool.source));
        let arguments = call.arguments.to_string();
        let text_dialect::ToolAddress { server, tool } = &address;
        let message = match address.among(tools) {
            Meant::One(name) => return self.resolve_by_author(name, &arguments),
            Meant::Several(names) => {
                format!("several MCP servers have a tool `{tool}`: call it as `{}`", names.join("` or `"))
            }
            Meant::Nothing => match address.names().iter().find(|name| self.is_absent(name)) {
                Some(name) => return self.resolve_by_author(name, &arguments),
                None => format!("`{server}` has no tool `{tool}`; {}", self.known()),
            },
        };
        let (disposition, approval) = (Disposition::NotFound { message }, Approval::NotNeeded);
        let (name, arguments) = (address.tool, call.arguments.clone());
        ResolvedCall { name, arguments, source: None, disposition, approval }
    }
}
