//! Imports messages. The role and the number of tokens of a message, and the data about the message in the view, are
//! computed from the message itself.

use super::media::replace_descriptions_in_parts;
use super::{Claims, Import, damaged, parse_items};
use crate::transfer::TransferError;
use crate::transfer::document::{Batch, List};
use crate::transfer::staging::Staging;
use agent_core::change::{Body, Change, NewMessage};
use agent_core::message::{CallId, Part, Role, ToolCall};
use agent_core::tokens;
use agent_core::view::result_text;
use agent_store::CallFilter;
use std::collections::HashMap;

/// Number of calls that one query loads. The number is small because each call may have a long result.
const CALLS_PER_READ: usize = 16;

/// The facts about a stored call that are needed to check messages.
#[derive(Clone, Copy)]
struct CallFacts {
    has_result: bool,
    /// Size of the text of the call's result, in bytes.
    bytes: usize,
    /// Number of tokens of the media in the call's result.
    media: u32,
}

impl Import {
    pub(super) async fn store_messages(
        &mut self,
        batch: Batch,
        staging: &mut Staging<'_>,
    ) -> Result<(), TransferError> {
        let messages: Vec<(usize, NewMessage)> = parse_items(List::Messages, batch)?;
        let calls = self.calls_of(&messages, staging).await?;
        let limit = self.run.turn.as_ref().map_or(0, |turn| turn.config.result_characters) as usize;
        let mut change = Change::default();
        for (index, mut message) in messages {
            self.messages += 1;
            let location = format!("messages[{index}]");
            if message.id != self.messages {
                return Err(damaged(location, format!("message {} is missing", self.messages)));
            }
            self.check_turn(List::Messages, index, message.turn)?;
            check_role(&message, &calls).map_err(|problem| damaged(&location, problem))?;
            if let Body::Parts(parts) = &mut message.body {
                replace_descriptions_in_parts(parts, &location, staging).await?;
                // No user sees this data, and only the provider can verify it. A forged item could instruct the model.
                let count = parts.len();
                parts.retain(|part| !matches!(part, Part::Replay(_)));
                self.replays += u64::from(parts.len() < count);
                // A replay must give context builders the same messages as before, without these texts.
                for part in parts.iter_mut().filter(|_| self.claims == Claims::Discarded) {
                    if let Part::Preface(text) = part {
                        *part = Part::Text(std::mem::take(text));
                        self.hidden_texts += 1;
                    }
                }
            }
            if message.role == Role::System {
                message.role = Role::User;
                self.system_messages += 1;
            }
            message.tokens = tokens_of(&message, &calls, limit);
            self.record_facts(&message);
            change.messages.push(message);
        }
        Ok(staging.add(change, Vec::new(), Vec::new()).await?)
    }

    /// Stores the facts about this message that are needed later to check and complete the session's state.
    fn record_facts(&mut self, message: &NewMessage) {
        if let Some(entry) = self.view.get_mut(&message.id) {
            *entry = Some((message.turn, message.role, message.tokens));
        }
        let from = self.run.turn.as_ref().map_or(0, |turn| turn.begun_until);
        if message.turn == self.run.turns && message.role == Role::Assistant && from > 0 && message.id >= from {
            self.replies = self.replies.saturating_add(1);
        }
        let Body::Parts(parts) = &message.body else { return };
        for call in written_calls(parts) {
            if let Some(open) = self.open.get_mut(&call.id) {
                open.is_written = true;
            }
        }
    }

    /// Loads the records of the calls that appear in these messages, either as a call of the model or as a tool result.
    /// Each record must equal the call that the model wrote, so that a user who approves the call sees the call that
    /// will run.
    async fn calls_of(
        &self,
        messages: &[(usize, NewMessage)],
        staging: &Staging<'_>,
    ) -> Result<HashMap<CallId, CallFacts>, TransferError> {
        let mut written: HashMap<&CallId, Vec<&ToolCall>> = HashMap::new();
        let mut ids: Vec<&CallId> = Vec::new();
        for (_, message) in messages {
            match &message.body {
                Body::ResultOf(call) => ids.push(call),
                Body::Parts(parts) => {
                    for call in written_calls(parts) {
                        written.entry(&call.id).or_default().push(call);
                        ids.push(&call.id);
                    }
                    ids.extend(parts.iter().filter_map(answered_call));
                }
            }
        }
        ids.sort();
        ids.dedup();
        let mut found = HashMap::new();
        for ids in ids.chunks(CALLS_PER_READ) {
            let ids = ids.iter().map(|id| (*id).clone()).collect();
            for record in staging.store.calls(staging.session(), CallFilter::Ids(ids)).await? {
                let mut as_written = written.get(&record.id).into_iter().flatten();
                if as_written.any(|call| record.name != call.name || record.arguments != call.arguments) {
                    let problem = format!("the record of `{}` differs from the call that the model wrote", record.id);
                    return Err(damaged("calls", problem));
                }
                let content = record.result.as_ref().map(|result| &result.content);
                let facts = CallFacts {
                    has_result: content.is_some(),
                    bytes: content.map_or(0, |content| result_text(content).len()),
                    media: content.map_or(0, |content| tokens::of_media(content)),
                };
                found.insert(record.id, facts);
            }
        }
        Ok(found)
    }

    /// Checks the number of messages, and that every open call occurs in a message of the model. This function must not
    /// be called before the last message was read.
    pub(super) fn check_messages(&self) -> Result<(), TransferError> {
        if self.run.next_message != self.messages + 1 {
            let (count, messages) = (self.run.next_message.saturating_sub(1), self.messages);
            let problem = format!("the document has {messages} messages, but the state counts {count}");
            return Err(damaged("messages", problem));
        }
        match self.open.iter().find(|(_, open)| !open.is_written) {
            Some((call, _)) => {
                Err(damaged("calls", format!("no message of the model contains the open call `{call}`")))
            }
            None => Ok(()),
        }
    }
}

fn written_calls(parts: &[Part]) -> impl Iterator<Item = &ToolCall> {
    parts.iter().filter_map(|part| match part {
        Part::ToolCall(call) => Some(call),
        _ => None,
    })
}

fn answered_call(part: &Part) -> Option<&CallId> {
    match part {
        Part::ToolResult(result) => Some(&result.call_id),
        _ => None,
    }
}

/// Checks the role of a message. Tool results must be in messages of tools, and calls must be in messages of the model.
/// Each result must belong to a recorded call.
fn check_role(message: &NewMessage, calls: &HashMap<CallId, CallFacts>) -> Result<(), String> {
    let role = message.role.as_str();
    let parts = match &message.body {
        Body::ResultOf(call) if !calls.get(call).is_some_and(|call| call.has_result) => {
            return Err(format!("the call `{call}` has no result"));
        }
        Body::ResultOf(_) if message.role == Role::Tool => return Ok(()),
        Body::ResultOf(_) => return Err(format!("a tool's result has the role `{role}`")),
        Body::Parts(parts) => parts,
    };
    let mut results = parts.iter().filter_map(answered_call);
    if let Some(call) = results.clone().find(|call| !calls.contains_key(*call)) {
        return Err(format!("the message answers the call `{call}`, which has no record"));
    }
    let is_tool = message.role == Role::Tool;
    if is_tool != results.next().is_some() {
        return Err(format!("a message with the role `{role}` cannot have these parts"));
    }
    if message.role != Role::Assistant && written_calls(parts).next().is_some() {
        return Err(format!("a message with the role `{role}` calls a tool"));
    }
    Ok(())
}

/// Returns the number of tokens that a message uses in the prompt. The result is never smaller than the number of
/// tokens of the message's content.
fn tokens_of(message: &NewMessage, calls: &HashMap<CallId, CallFacts>, limit: usize) -> u32 {
    match &message.body {
        Body::Parts(parts) => tokens::of_parts(parts),
        Body::ResultOf(call) => {
            let (bytes, media) = calls.get(call).map(|call| (call.bytes, call.media)).unwrap_or_default();
            let min_tokens = u32::try_from(bytes.min(limit) / 4).unwrap_or(u32::MAX).saturating_add(media);
            message.tokens.max(min_tokens)
        }
    }
}
