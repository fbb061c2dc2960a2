//! What a turn leaves in its user's long-term memory (D4): its interactions with tools, and how it ended. A failed write
//! never fails the turn; ids are made from places, so that writing again changes nothing.

use crate::builtins::name;
use crate::session::{Session, Shared};
use agent_core::message::{Content, MessageId, Part, StoredMessage, ToolCall, ToolResult};
use agent_core::plugin::Lifecycle;
use agent_core::run::{Output, StepPlan, TurnEnd, TurnError};
use agent_memory::{MadeBy, Memory, MemoryFilter, MemoryKind, Store};
use std::sync::Arc;

/// Characters of the question and of the answer that are remembered.
const ANSWERED_CHARACTERS: usize = 2_000;
/// Characters of the question that an interaction with tools answered.
const ASKED_CHARACTERS: usize = 500;
/// Characters of a call's arguments, of its result, and of an error.
const ARGUMENT_CHARACTERS: usize = 300;
const RESULT_CHARACTERS: usize = 1_000;
const ERROR_CHARACTERS: usize = 200;
/// Characters of all calls of one reply.
const CALLS_CHARACTERS: usize = 4_000;

/// What of its user's long-term memory an agent uses (D4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryUse {
    /// It recalls how turns of all agents of the user ended, and what its own tools brought; it remembers both.
    #[default]
    User,
    /// The same of its own alone. What it remembers is recalled by the user's other agents as far as theirs say.
    Agent,
    /// It recalls and remembers nothing.
    Off,
}

impl Shared {
    /// What the session may find in long-term memory; none where that is nothing. What tools brought another agent stays with
    /// that one, whose grants they had, and who works for another session is told all by the task (L16). What is of this very
    /// session stands in its history.
    pub(crate) fn recalls(&self) -> Option<MemoryFilter> {
        let config = self.agent.config();
        let user = config.user.clone().filter(|_| self.delegated_by.is_none())?;
        let agents = match config.memory {
            MemoryUse::User => MadeBy::ThisOrEndings(config.name.clone()),
            MemoryUse::Agent => MadeBy::ThisAlone(config.name.clone()),
            MemoryUse::Off => return None,
        };
        Some(MemoryFilter { user, agents, but_of: Some(self.subject.clone()) })
    }
}

/// Something to remember under its id.
type Remembered = (String, Memory);

impl Session {
    /// What the results that the coming step answers leave behind: one memory for all calls of a reply. It follows from
    /// the stored state, so a crash before it was written loses nothing.
    pub(crate) async fn interaction_before(&mut self, plan: &StepPlan) -> Option<Remembered> {
        let is_new = plan.lifecycle == Lifecycle::ToolResult && plan.attempt == 1;
        if is_new { self.interaction().await } else { None }
    }

    /// What a turn leaves behind when it is over.
    pub(crate) async fn ending(&mut self) -> Option<Remembered> {
        let turn = self.run.turn.as_ref()?;
        let end = turn.end()?.clone();
        // What was taken back is not remembered again when the session is taken up once more.
        if !self.run.view.iter().any(|entry| entry.turn == turn.number) {
            return None;
        }
        match end {
            TurnEnd::Finished(output) => self.final_answer(&output),
            // Its last results were never answered.
            TurnEnd::Failed(TurnError::InteractionsExhausted { .. }) => self.interaction().await,
            TurnEnd::Failed(_) | TurnEnd::Cancelled => None,
        }
    }

    fn final_answer(&self, output: &Output) -> Option<Remembered> {
        let (kind, word) = match output.limit_reached {
            true => (MemoryKind::Limit, "limit"),
            false => (MemoryKind::Final, "final"),
        };
        let answered = match &output.data {
            serde_json::Value::String(text) => beginning(text, ANSWERED_CHARACTERS),
            json => beginning(&json.to_string(), ANSWERED_CHARACTERS),
        };
        let text = format!("Asked: {}\nAnswered: {answered}", self.asked(ANSWERED_CHARACTERS)?);
        self.memory(kind, word, text)
    }

    async fn interaction(&mut self) -> Option<Remembered> {
        let turn = self.run.turn.as_ref()?;
        let (number, from, step) = (turn.number, turn.latest_from, turn.interactions);
        self.remembers()?;
        let entries = self.run.view.iter().filter(|entry| entry.turn == number && entry.id >= from);
        let ids: Vec<MessageId> = entries.map(|entry| entry.id).collect();
        let messages = match self.load(&ids).await {
            Ok(messages) => messages,
            Err(error) => {
                tracing::warn!(session = %self.run.session, %error, "the calls of tools were not remembered");
                return None;
            }
        };
        let called = called(&messages)?;
        let text = format!("Asked: {}\n{called}", self.asked(ASKED_CHARACTERS)?);
        self.memory(MemoryKind::Tool, &format!("tool/{step}"), text)
    }

    fn asked(&self, characters: usize) -> Option<String> {
        let turn = self.run.turn.as_ref()?;
        Some(beginning(&turn.input.message().plain_text(), characters))
    }

    /// For whom; none where nothing is remembered.
    fn remembers(&self) -> Option<String> {
        let config = self.shared.agent.config();
        config.user.clone().filter(|_| config.memory != MemoryUse::Off)
    }

    fn memory(&self, kind: MemoryKind, word: &str, text: String) -> Option<Remembered> {
        let user = self.remembers()?;
        let (agent, session, turn) = (self.run.agent.clone(), self.run.session.clone(), self.run.turns);
        let id = format!("{session}/{turn}/{word}");
        Some((id, Memory { user, kind, agent, session, turn, text, written: None }))
    }
}

/// Writes what there is to write.
pub(crate) async fn write(store: Arc<dyn Store>, remembered: Option<Remembered>) {
    let Some((id, memory)) = remembered else { return };
    let session = memory.session.clone();
    if let Err(error) = store.add(&id, memory).await {
        tracing::warn!(%session, %error, "`{id}` was not remembered");
    }
}

/// The calls of these messages with their results; nothing where there are none. What only reads what is stored here
/// already is left out.
fn called(messages: &[Arc<StoredMessage>]) -> Option<String> {
    let parts = || messages.iter().flat_map(|message| &message.parts);
    let results = parts().filter_map(|part| match part {
        Part::ToolResult(result) if ![name::MEMORY_SEARCH, name::READ_RESULT].contains(&&*result.name) => Some(result),
        _ => None,
    });
    let asked = |result: &ToolResult| {
        parts().find_map(|part| match part {
            Part::ToolCall(call) if call.id == result.call_id => Some(call),
            _ => None,
        })
    };
    let lines: Vec<String> = results.map(|result| line(asked(result), result)).collect();
    (!lines.is_empty()).then(|| beginning(&lines.join("\n"), CALLS_CHARACTERS))
}

fn line(call: Option<&ToolCall>, result: &ToolResult) -> String {
    let arguments = call.map(|call| beginning(&call.arguments.to_string(), ARGUMENT_CHARACTERS)).unwrap_or_default();
    let contents = result.content.iter().map(|content| match content {
        Content::Text(text) => text.clone(),
        Content::Json(json) => json.to_string(),
        Content::Media(media) => format!("[{}]", media.mime_type),
    });
    let (word, characters) = if result.is_error { ("Failed", ERROR_CHARACTERS) } else { ("Result", RESULT_CHARACTERS) };
    let contents = beginning(&contents.collect::<Vec<_>>().join("\n"), characters);
    format!("Called: {} {arguments}\n{word}: {contents}", result.name)
}

fn beginning(text: &str, characters: usize) -> String {
    text.chars().take(characters).collect()
}
