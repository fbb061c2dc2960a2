//! Creates the memories of a turn for the user's long-term memory (D4). The memories describe the turn's tool calls and
//! how the turn ended. A memory is committed as an outbox effect together with the change that the memory describes
//! (D6), so the memory is written once, and a failed write is retried.

use crate::agent::MemoryUse;
use crate::history::LoadedHistory;
use crate::host::SessionServices;
use crate::tools::builtins::name;
use agent_core::change::{Body, CallRecord, CallResult, Change, OutboxEffect, OutboxItem};
use agent_core::loop_break;
use agent_core::memory::{Memory, MemoryKind};
use agent_core::message::{CallId, Content};
use agent_core::run::{Input, Run, Turn, TurnEnd, TurnError};
use agent_core::tool::{ToolError, ToolSource};

/// In a memory about the end of a turn, the question and the answer each have at most this number of characters.
const QUESTION_OR_ANSWER_CHARACTERS: usize = 2_000;
/// Maximum number of characters of the user's question in a memory about tool calls.
const QUESTION_CHARACTERS: usize = 500;
/// Maximum number of characters of a call's arguments in a memory.
const ARGUMENT_CHARACTERS: usize = 300;
/// Maximum number of characters of a call's result in a memory.
const RESULT_CHARACTERS: usize = 1_000;
/// Maximum number of characters of an error's text in a memory.
const ERROR_CHARACTERS: usize = 200;
/// Maximum number of characters of the text that describes all calls of one model reply in a memory.
const CALLS_CHARACTERS: usize = 4_000;
/// Names of the host's own tools whose calls are not remembered. These tools only read data that the host has already
/// stored, or end the turn.
const NOT_REMEMBERED: [&str; 4] =
    [name::MEMORY_SEARCH, name::READ_RESULT, loop_break::name::TASK_COMPLETION, loop_break::name::CONVERSE];

/// Who created the results of calls that have finished: the tools or the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResultOrigin {
    /// The results come from the tools, or from the users and services that answer calls.
    Tools,
    /// The host created the results, because the turn was stopped and its unfinished calls were abandoned.
    Abandoned,
}

impl ResultOrigin {
    pub(crate) fn of(input: &Input) -> Self {
        if matches!(input, Input::Cancel | Input::Failed(_)) { Self::Abandoned } else { Self::Tools }
    }
}

/// Adds the memories that result from a change. If the change completes the results of all calls of a model reply, a
/// memory about these calls is added. If the turn ends with an answer or at a limit, a memory about the end of the turn
/// is added. `before` and `after` are the states of the run before and after the change.
pub(crate) async fn add_memories(
    services: &SessionServices,
    history: &mut LoadedHistory,
    (before, after): (&Run, &Run),
    results: ResultOrigin,
    change: &mut Change,
) {
    let config = services.agent.config();
    let (Some(user), Some(turn)) = (config.user.clone(), &after.turn) else { return };
    if config.memory == MemoryUse::Off || !before.is_open() && !after.is_open() {
        return;
    }
    let interaction = memory_of_calls(history, turn, results, change).await;
    let ending = turn.end().filter(|end| is_worth_remembering(services, end)).and_then(|end| memory_of_end(turn, end));
    for (kind, suffix, text) in interaction.into_iter().chain(ending) {
        let (agent, session, number) = (after.agent.clone(), after.session.clone(), turn.number);
        let id = format!("{session}/{number}/{suffix}");
        let (user, project) = (user.clone(), config.project.clone());
        let memory = Memory { user, kind, agent, session, turn: number, project, text, written: None };
        let effect = OutboxEffect::Remember { id, memory };
        change.outbox.push(OutboxItem { id: format!("remember/{number}/{suffix}"), effect });
    }
}

/// Returns whether the end of a turn is worth remembering. An answer that was not written by a language model is not
/// worth remembering: it consists of fixed phrases and of tool results, and the tool results are remembered separately.
fn is_worth_remembering(services: &SessionServices, end: &TurnEnd) -> bool {
    let TurnEnd::Finished(output) = end else { return true };
    let mut models = services.agent.models().all();
    models.all(|model| model.is_language_model() || model.info().model.to_string() != output.model)
}

async fn memory_of_calls(
    history: &mut LoadedHistory,
    turn: &Turn,
    results: ResultOrigin,
    change: &Change,
) -> Option<MemoryText> {
    let of_result = change.messages.iter().filter_map(|message| match &message.body {
        Body::ResultOf(call) => Some(call.clone()),
        Body::Parts(_) => None,
    });
    let is_of_tool = |call: &CallId| results == ResultOrigin::Tools || !change.finishes(call);
    let ids: Vec<CallId> = of_result.filter(is_of_tool).collect();
    if ids.is_empty() {
        return None;
    }
    let calls = match history.calls_after(&ids, change).await {
        Ok(calls) => calls,
        Err(error) => {
            tracing::warn!(session = history.session(), %error, "could not load tool calls to remember them");
            return None;
        }
    };
    let text = format!("Asked: {}\n{}", input_text(turn, QUESTION_CHARACTERS), describe_calls(&calls)?);
    Some((MemoryKind::Tool, format!("tool/{}", turn.interactions), text))
}

/// The kind of a memory, the suffix of the memory's id, and the memory's text. The suffix is unique in the turn.
type MemoryText = (MemoryKind, String, String);

fn memory_of_end(turn: &Turn, end: &TurnEnd) -> Option<MemoryText> {
    let (kind, result) = match end {
        TurnEnd::Finished(output) => {
            let answered = match &output.data {
                serde_json::Value::String(text) => truncated(text, QUESTION_OR_ANSWER_CHARACTERS),
                json => truncated(&json.to_string(), QUESTION_OR_ANSWER_CHARACTERS),
            };
            let kind = if output.limit_reached { MemoryKind::Limit } else { MemoryKind::Final };
            (kind, format!("Answered: {answered}"))
        }
        // The last reply of the model did not answer the user, so the memory contains no answer.
        TurnEnd::Failed(TurnError::InteractionsExhausted { interactions, reason, .. }) => {
            let reason = truncated(reason, ERROR_CHARACTERS);
            (MemoryKind::Limit, format!("Not answered after {interactions} model calls: {reason}"))
        }
        TurnEnd::Failed(_) | TurnEnd::Cancelled => return None,
    };
    let question = input_text(turn, QUESTION_OR_ANSWER_CHARACTERS);
    Some((kind, kind.as_str().to_owned(), format!("Asked: {question}\n{result}")))
}

fn input_text(turn: &Turn, max_characters: usize) -> String {
    truncated(&turn.input.message().plain_text(), max_characters)
}

/// Returns a text that describes calls and their results. Returns `None` if none of the calls is worth remembering.
fn describe_calls(calls: &[CallRecord]) -> Option<String> {
    let is_own = |call: &CallRecord| call.source == Some(ToolSource::BuiltIn);
    let lines = calls.iter().filter(|call| !is_own(call) || !NOT_REMEMBERED.contains(&&*call.name));
    // A denied call has found out nothing, and may be allowed in the next session.
    let lines = lines.filter(|call| !call.result.as_ref().is_some_and(is_denied));
    let lines: Vec<String> = lines.filter_map(|call| Some(describe_call(call, call.result.as_ref()?))).collect();
    (!lines.is_empty()).then(|| truncated(&lines.join("\n"), CALLS_CHARACTERS))
}

fn is_denied(result: &CallResult) -> bool {
    let [Content::Text(text)] = &result.content[..] else { return false };
    result.is_error && matches!(serde_json::from_str(text), Ok(ToolError::Denied { .. }))
}

fn describe_call(call: &CallRecord, result: &CallResult) -> String {
    let arguments = truncated(&call.effective_arguments().to_string(), ARGUMENT_CHARACTERS);
    let contents = result.content.iter().map(|content| match content {
        Content::Text(text) => text.clone(),
        Content::Json(json) => json.to_string(),
        Content::Media(media) => format!("[{}]", media.mime_type),
    });
    let (label, max_characters) =
        if result.is_error { ("Failed", ERROR_CHARACTERS) } else { ("Result", RESULT_CHARACTERS) };
    let contents = truncated(&contents.collect::<Vec<_>>().join("\n"), max_characters);
    format!("Called: {} {arguments}\n{label}: {contents}", call.name)
}

fn truncated(text: &str, max_characters: usize) -> String {
    text.chars().take(max_characters).collect()
}
