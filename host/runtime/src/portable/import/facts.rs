//! What a document says that this host can know itself: it is checked, derived again, or not taken over (P14, row 38).

use super::{Checked, PortableError, damaged};
use crate::session::TITLE_CHARACTERS;
use crate::trace::{self, is_trace};
use agent_core::change::{Body, CallChange, CallRecord, CallState, NewMessage};
use agent_core::event::EventKind;
use agent_core::message::{CallId, Content, Digest, Media, Part, Role};
use agent_core::run::{Dropped, ImportTerms};
use agent_core::tokens;
use agent_core::view::result_text;
use std::collections::HashMap;

/// Most turns of an imported session.
const MAX_TURNS: u32 = 100_000;
/// Characters of a text that stands for a masked medium.
const MASK_CHARACTERS: usize = 10_000;

impl Checked {
    /// Turns are counted by the state; nothing is of a turn that has not begun.
    pub(super) fn check_turns(&self) -> Result<(), PortableError> {
        let turns = self.run.turns;
        if turns > MAX_TURNS {
            return Err(damaged("snapshot", format!("it counts {turns} turns; at most {MAX_TURNS} are imported")));
        }
        let begun = |turn: u32| turn <= turns;
        let outside = |list: &str, place: usize| {
            damaged(format!("{list}[{place}]"), format!("it is of a turn that has not begun: there are {turns}"))
        };
        let change = &self.change;
        if let Some(place) = change.messages.iter().position(|message| !begun(message.turn)) {
            return Err(outside("messages", place));
        }
        if let Some(place) = change.events.iter().position(|event| !begun(event.turn)) {
            return Err(outside("events", place));
        }
        if let Some(place) = self.records.iter().position(|record| !begun(record.turn)) {
            return Err(outside("records", place));
        }
        if self.run.turn.as_ref().is_some_and(|turn| turn.number != turns) {
            return Err(damaged("snapshot.turn.number", format!("the last turn is {turns}")));
        }
        let mask = |mask: &agent_core::run::Mask| {
            mask.message == 0
                || mask.message >= self.run.next_message
                || mask.text.chars().nth(MASK_CHARACTERS).is_some()
        };
        match self.run.masks.iter().position(mask) {
            Some(place) => {
                Err(damaged(format!("snapshot.masks[{place}]"), "it masks nothing, or its text is too long"))
            }
            None => Ok(()),
        }
    }

    /// Tool results stand in messages of tools, calls in those of the model, and each result answers a recorded call.
    pub(super) fn check_roles(&self) -> Result<(), PortableError> {
        let calls = self.records_of_calls();
        for (place, message) in self.change.messages.iter().enumerate() {
            let wrong = |problem: String| Err(damaged(format!("messages[{place}]"), problem));
            let parts = match &message.body {
                Body::ResultOf(_) if message.role == Role::Tool => continue,
                Body::ResultOf(_) => return wrong(format!("a tool's result has the role `{}`", message.role.as_str())),
                Body::Parts(parts) => parts,
            };
            let mut results = parts.iter().filter_map(|part| match part {
                Part::ToolResult(result) => Some(&result.call_id),
                _ => None,
            });
            if let Some(call) = results.clone().find(|call| !calls.contains_key(call)) {
                return wrong(format!("it answers the call `{call}`, of which there is no record"));
            }
            let is_tool = message.role == Role::Tool;
            if is_tool != results.next().is_some() {
                return wrong(format!("its parts are not what a message of the role `{}` has", message.role.as_str()));
            }
            let has_calls = parts.iter().any(|part| matches!(part, Part::ToolCall(_)));
            if has_calls && message.role != Role::Assistant {
                return wrong(format!("a message of the role `{}` calls a tool", message.role.as_str()));
            }
        }
        Ok(())
    }

    /// A medium that a message shows must be there, or the next step could not send it. Where it is shown it is described
    /// as its bytes are.
    pub(super) fn check_media(&mut self) -> Result<(), PortableError> {
        let there: HashMap<Digest, Media> =
            self.media.iter().map(|(media, _)| (media.digest.clone(), media.clone())).collect();
        let correct = |media: &mut Media, place: String| match there.get(&media.digest) {
            None => Err(damaged(place, format!("its medium {} is missing", media.digest))),
            Some(known) => {
                *media =
                    Media { name: media.name.take().map(|name| harmless(&name, super::MAX_NAME)), ..known.clone() };
                Ok(())
            }
        };
        let in_content = |content: &mut [Content], place: &str| {
            content.iter_mut().try_for_each(|content| match content {
                Content::Media(media) => correct(media, place.to_owned()),
                Content::Text(_) | Content::Json(_) => Ok(()),
            })
        };
        for (place, message) in self.change.messages.iter_mut().enumerate() {
            let place = format!("messages[{place}]");
            let Body::Parts(parts) = &mut message.body else { continue };
            for part in parts {
                match part {
                    Part::Media(media) => correct(media, place.clone())?,
                    Part::ToolResult(result) => in_content(&mut result.content, &place)?,
                    _ => {}
                }
            }
        }
        for (place, call) in self.change.calls.iter_mut().enumerate() {
            let CallChange::Requested(CallRecord { result: Some(result), .. }) = call else { continue };
            in_content(&mut result.content, &format!("calls[{place}]"))?;
        }
        Ok(())
    }

    /// Derives again what follows from the messages: roles, tokens, and the view that the model is sent.
    pub(super) fn derive_facts(&mut self) -> Result<(), PortableError> {
        let limit = self.run.turn.as_ref().map_or(0, |turn| turn.config.result_characters) as usize;
        let results = self.result_texts();
        let mut system = 0;
        for message in &mut self.change.messages {
            if message.role == Role::System {
                (message.role, system) = (Role::User, system + 1);
            }
            message.tokens = tokens_of(message, &results, limit);
        }
        if system > 0 {
            let which = if system == 1 { "1 message".to_owned() } else { format!("{system} messages") };
            self.dropped.push(format!("the role `system` of {which}, which the model is given as the user's words"));
        }
        let messages = &self.change.messages;
        let of = |id: u64| {
            let message = messages.get(usize::try_from(id.checked_sub(1)?).ok()?)?;
            Some((message.turn, message.role, message.tokens))
        };
        let derived = self.run.derive_view(of);
        derived.map_err(|id| damaged("snapshot.view", format!("there is no message {id}")))?;
        self.correct_trace();
        Ok(())
    }

    fn correct_trace(&mut self) {
        let Some(turn) = &mut self.run.turn else { return };
        if !is_trace(&turn.trace) {
            turn.trace = trace::root();
            self.dropped.push("the trace context of the last turn, which is malformed".to_owned());
        }
    }

    /// Takes out of the state what only the configuration and this host's people decide.
    pub(super) fn drop_authority(&mut self, user: Option<String>) {
        let from = self.run.turn.as_ref().map_or(0, |turn| turn.begun_until);
        let of_turn = |message: &&NewMessage| {
            message.turn == self.run.turns && message.role == Role::Assistant && from > 0 && message.id >= from
        };
        let replies = self.change.messages.iter().filter(of_turn).count();
        let terms = ImportTerms { user: user.clone(), replies: u32::try_from(replies).unwrap_or(u32::MAX) };
        let run = std::mem::replace(&mut self.run, agent_core::run::Run::new("", ""));
        let (run, dropped) = run.imported(&terms);
        self.run = run;
        for call in &mut self.change.calls {
            if let CallChange::Requested(record) = call
                && dropped.calls.contains(&record.id)
            {
                record.state = CallState::OutcomeUnknown;
            }
        }
        let claimed = std::mem::replace(&mut self.head.user, user);
        if claimed.is_some() && claimed != self.head.user {
            self.dropped.push("its user: the session is yours".to_owned());
        }
        self.head.delegated_by = None;
        self.head.title = self.head.title.take().map(|title| harmless(&title, TITLE_CHARACTERS));
        self.dropped.extend(in_words(&dropped));
        self.drop_audited_events();
    }

    /// Denials and approvals are entries of this host's audit log, so a document cannot bring any.
    fn drop_audited_events(&mut self) {
        let before = self.change.events.len();
        let is_audited =
            |kind: &EventKind| matches!(kind, EventKind::Denied { .. } | EventKind::ApprovalResolved { .. });
        self.change.events.retain(|event| !is_audited(&event.kind));
        for (number, event) in (1..).zip(&mut self.change.events) {
            event.sequence = number;
        }
        self.run.sequence = self.change.events.len() as u64;
        let left_out = before - self.change.events.len();
        if left_out > 0 {
            self.dropped.push(format!("{left_out} of its events, denials and approvals that this host has not seen"));
        }
    }

    pub(super) fn records_of_calls(&self) -> HashMap<&CallId, &CallRecord> {
        let records = self.change.calls.iter().filter_map(|call| match call {
            CallChange::Requested(record) => Some((&record.id, record)),
            _ => None,
        });
        records.collect()
    }

    fn result_texts(&self) -> HashMap<CallId, (usize, u32)> {
        let calls = self.records_of_calls();
        let results = calls.into_iter().filter_map(|(id, record)| {
            let content = &record.result.as_ref()?.content;
            Some((id.clone(), (result_text(content).len(), tokens::of_media(content))))
        });
        results.collect()
    }
}

/// What a message costs in the prompt: at least what its content says.
fn tokens_of(message: &NewMessage, results: &HashMap<CallId, (usize, u32)>, limit: usize) -> u32 {
    match &message.body {
        Body::Parts(parts) => tokens::of_parts(parts),
        Body::ResultOf(call) => {
            let (bytes, media) = results.get(call).copied().unwrap_or_default();
            let least = u32::try_from(bytes.min(limit) / 4).unwrap_or(u32::MAX).saturating_add(media);
            message.tokens.max(least)
        }
    }
}

/// A name for people: so many characters of it, in one line.
pub(super) fn harmless(text: &str, characters: usize) -> String {
    text.chars().filter(|character| !character.is_control()).take(characters).collect()
}

/// What was dropped, one line each.
fn in_words(dropped: &Dropped) -> Vec<String> {
    let Dropped { approvals, pins, sections, builder_state, calls, summary, delegated_by, user } = dropped;
    let mut words = Vec::new();
    let mut say = |is: bool, text: String| words.extend(is.then_some(text));
    let plural = if *approvals == 1 { "" } else { "s" };
    say(*approvals > 0, format!("{approvals} approval{plural}: somebody is asked again"));
    let pins_dropped = "the open turn's grants, validators, policies, context builder and tools, and whatever its bounds \
                        allow beyond yours: your configuration decides";
    say(*pins, pins_dropped.to_owned());
    say(*sections > 0, "the open turn's system sections: they come from your configuration".to_owned());
    say(*builder_state, "the state of the open turn's context builder".to_owned());
    let plural = if calls.len() == 1 { "" } else { "s" };
    let count = calls.len();
    let decide = "decide about it with `agent-host session resolve`";
    say(count > 0, format!("that {count} call{plural} of the open turn may run without a person's decision: {decide}"));
    say(
        *summary,
        "the summary of messages that had left the prompt, since the model would read it as the host's own words; the messages \
         themselves are there and can be searched"
            .to_owned(),
    );
    say(delegated_by.is_some(), "the session that delegated the work".to_owned());
    say(user.is_some(), "the user for whom the open turn worked".to_owned());
    words
}
