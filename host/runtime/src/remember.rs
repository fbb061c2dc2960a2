//! What a turn leaves in its user's long-term memory (D4): its interactions with tools, and how it ended. It is committed with
//! what it follows from, as an effect of the outbox (D6), so that it is written once, and a write that fails waits there.

use crate::builtins::name;
use crate::session::{Session, Shared};
use agent_core::change::{Body, CallRecord, CallResult, Change, OutboxEffect, OutboxItem};
use agent_core::loop_break;
use agent_core::memory::{Memory, MemoryKind};
use agent_core::message::{CallId, Content};
use agent_core::run::{Input, Run, Turn, TurnEnd, TurnError};
use agent_core::tool::ToolSource;
use agent_store::{MadeBy, MemoryFilter, OutboxFilter, Store, StoreError, StoredOutboxItem};

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
/// The host's own tools whose calls are no interaction to remember: they read what is stored here already, or say how the turn ends.
const LEFT_OUT: [&str; 4] =
    [name::MEMORY_SEARCH, name::READ_RESULT, loop_break::name::TASK_COMPLETION, loop_break::name::CONVERSE];
/// Items of an outbox that are read at once.
const PAGE: usize = 100;

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

/// Where the results come from that a change brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Results {
    /// From tools, and from those who answer for them.
    Tools,
    /// From the host: the turn is stopped, and what has not finished is given up.
    GivenUp,
}

impl Results {
    pub(crate) fn of(input: &Input) -> Self {
        if matches!(input, Input::Cancel | Input::Failed(_)) { Self::GivenUp } else { Self::Tools }
    }
}

impl Session {
    /// Adds what the change leaves in long-term memory: one memory for all calls of a reply, once they have their results,
    /// and one for an answer or an ending at the limit.
    pub(crate) async fn note_memories(&mut self, after: &Run, results: Results, change: &mut Change) {
        let config = self.shared.agent.config();
        let (Some(user), Some(turn)) = (config.user.clone(), &after.turn) else { return };
        if config.memory == MemoryUse::Off || !self.run.is_open() && !after.is_open() {
            return;
        }
        let interaction = self.interaction(turn, results, change).await;
        let ending = turn.end().filter(|end| self.is_worth_remembering(end)).and_then(|end| ending(turn, end));
        for (kind, word, text) in interaction.into_iter().chain(ending) {
            let (agent, session, number) = (after.agent.clone(), after.session.clone(), turn.number);
            let id = format!("{session}/{number}/{word}");
            let memory = Memory { user: user.clone(), kind, agent, session, turn: number, text, written: None };
            let effect = OutboxEffect::Remember { id, memory };
            change.outbox.push(OutboxItem { id: format!("remember/{number}/{word}"), effect });
        }
    }

    /// What a program without words of its own answers are results, which are remembered as such, and words that are always the
    /// same.
    fn is_worth_remembering(&self, end: &TurnEnd) -> bool {
        let TurnEnd::Finished(output) = end else { return true };
        let mut models = self.shared.agent.models().all();
        models.all(|model| model.is_language_model() || model.facts().model.to_string() != output.model)
    }

    async fn interaction(&mut self, turn: &Turn, results: Results, change: &Change) -> Option<Remembered> {
        let of_result = change.messages.iter().filter_map(|message| match &message.body {
            Body::ResultOf(call) => Some(call.clone()),
            Body::Parts(_) => None,
        });
        let ids: Vec<CallId> = of_result.filter(|call| results == Results::Tools || !change.finishes(call)).collect();
        if ids.is_empty() {
            return None;
        }
        let calls = match self.calls_after(&ids, change).await {
            Ok(calls) => calls,
            Err(error) => {
                tracing::warn!(session = %self.run.session, %error, "the calls of tools were not remembered");
                return None;
            }
        };
        let text = format!("Asked: {}\n{}", asked(turn, ASKED_CHARACTERS), called(&calls)?);
        Some((MemoryKind::Tool, format!("tool/{}", turn.interactions), text))
    }
}

/// Its kind, its place in the turn, and its text.
type Remembered = (MemoryKind, String, String);

fn ending(turn: &Turn, end: &TurnEnd) -> Option<Remembered> {
    let (kind, came) = match end {
        TurnEnd::Finished(output) => {
            let answered = match &output.data {
                serde_json::Value::String(text) => beginning(text, ANSWERED_CHARACTERS),
                json => beginning(&json.to_string(), ANSWERED_CHARACTERS),
            };
            let kind = if output.limit_reached { MemoryKind::Limit } else { MemoryKind::Final };
            (kind, format!("Answered: {answered}"))
        }
        // What was written last was no answer, and is none later.
        TurnEnd::Failed(TurnError::InteractionsExhausted { interactions, reason, .. }) => {
            let reason = beginning(reason, ERROR_CHARACTERS);
            (MemoryKind::Limit, format!("Not answered after {interactions} model calls: {reason}"))
        }
        TurnEnd::Failed(_) | TurnEnd::Cancelled => return None,
    };
    Some((kind, kind.as_str().to_owned(), format!("Asked: {}\n{came}", asked(turn, ANSWERED_CHARACTERS))))
}

fn asked(turn: &Turn, characters: usize) -> String {
    beginning(&turn.input.message().plain_text(), characters)
}

/// Writes a memory that a commit has asked for. Another process may have written it long before: where its turn has been taken
/// back since, or its session deleted, it is not remembered again.
pub(crate) async fn remember(
    store: &dyn Store,
    item: &StoredOutboxItem,
    (id, memory): (&str, &Memory),
) -> Result<(), StoreError> {
    let memory = Memory { written: Some(item.created.clone()), ..memory.clone() };
    let turn = memory.turn;
    store.add(id, memory).await?;
    if is_void(store, item, turn).await? {
        store.forget_turn(&item.session, turn).await?;
    }
    Ok(())
}

async fn is_void(store: &dyn Store, item: &StoredOutboxItem, turn: u32) -> Result<bool, StoreError> {
    let mut after = item.number - 1;
    loop {
        let items = match store.outbox(Some(&item.session), OutboxFilter::All, after, PAGE).await {
            Err(StoreError::NoSession { .. }) => return Ok(true),
            items => items?,
        };
        if items.iter().any(|later| later.item.effect == OutboxEffect::Forget { turn }) {
            return Ok(true);
        }
        match items.last() {
            Some(last) if items.len() == PAGE => after = last.number,
            // The item itself is there as long as its session is.
            last => return Ok(last.is_none() && after < item.number),
        }
    }
}

/// The calls with their results; nothing where there are none.
fn called(calls: &[CallRecord]) -> Option<String> {
    let is_own = |call: &CallRecord| call.source == Some(ToolSource::BuiltIn);
    let lines = calls.iter().filter(|call| !is_own(call) || !LEFT_OUT.contains(&&*call.name));
    let lines: Vec<String> = lines.filter_map(|call| Some(line(call, call.result.as_ref()?))).collect();
    (!lines.is_empty()).then(|| beginning(&lines.join("\n"), CALLS_CHARACTERS))
}

fn line(call: &CallRecord, result: &CallResult) -> String {
    let arguments = beginning(&call.effective_arguments().to_string(), ARGUMENT_CHARACTERS);
    let contents = result.content.iter().map(|content| match content {
        Content::Text(text) => text.clone(),
        Content::Json(json) => json.to_string(),
        Content::Media(media) => format!("[{}]", media.mime_type),
    });
    let (word, characters) = if result.is_error { ("Failed", ERROR_CHARACTERS) } else { ("Result", RESULT_CHARACTERS) };
    let contents = beginning(&contents.collect::<Vec<_>>().join("\n"), characters);
    format!("Called: {} {arguments}\n{word}: {contents}", call.name)
}

fn beginning(text: &str, characters: usize) -> String {
    text.chars().take(characters).collect()
}
