//! What of a turn is not as the scenario says.

use super::file::Scenario;
use super::model::Complaint;
use super::pattern::{Pattern, quoted};
use super::place::Place;
use super::report::Failure;
use super::script::{Ending, ExpectedCall, Fails, Turn};
use super::transcript::called;
use crate::diff::diff;
use agent_core::approval::source_of;
use agent_core::change::CallRecord;
use agent_core::event::{EndReason, Suspension, WaitCause};
use agent_core::message::{CallId, Content};
use agent_core::view::result_text;
use agent_runtime::TurnResult;
use serde_json::Value;
use std::collections::BTreeSet;
use std::ops::Range;

/// A turn that was played.
pub(crate) struct Played<'t> {
    pub(crate) turn: &'t Turn,
    /// Its key in the file: `turns[0]`.
    pub(crate) key: String,
    /// Where it stands.
    pub(crate) span: Range<usize>,
    pub(crate) result: TurnResult,
    /// Of the turn, in order.
    pub(crate) calls: Vec<CallRecord>,
    /// Replies that were asked for.
    pub(crate) replies: usize,
    pub(crate) complaints: Vec<Complaint>,
    /// Calls of tools that are not there.
    pub(crate) unknown: BTreeSet<CallId>,
    /// MCP servers of the agent, none of which is started.
    pub(crate) servers: Vec<String>,
    /// What of it counts.
    pub(crate) counts: Counts,
    /// What the scenario's answers were not good for, or not asked for.
    pub(crate) answers: Vec<Failure>,
}

/// What of a turn must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counts {
    /// Everything.
    All,
    /// What its one call brings: the turn is only there to make it.
    ItsCall,
}

impl Played<'_> {
    /// Everything that does not hold.
    pub(crate) fn failures(&self, scenario: &Scenario) -> Vec<Failure> {
        let checked = Checked { scenario, played: self };
        if self.counts == Counts::ItsCall {
            return checked.calls();
        }
        let mut failures = checked.model();
        failures.extend(checked.calls());
        failures.extend(self.answers.iter().cloned());
        failures.extend(checked.ending());
        failures.extend(checked.output());
        failures
    }
}

struct Checked<'c> {
    scenario: &'c Scenario,
    played: &'c Played<'c>,
}

impl Checked<'_> {
    fn place(&self, span: &Range<usize>, key: &str) -> Place {
        self.scenario.place(span.clone(), format!("{}{key}", self.played.key))
    }

    /// What was wrong with the model's requests, and which replies nobody asked for.
    fn model(&self) -> Vec<Failure> {
        let replies = &self.played.turn.replies;
        let mut failures = Vec::new();
        for Complaint { reply, problem } in &self.played.complaints {
            failures.push(match replies.get(*reply) {
                Some(spanned) => {
                    let place = self.place(&spanned.span(), &format!(".replies[{reply}]"));
                    Failure::at(place, "the request that this reply expects", problem.clone())
                }
                None => {
                    let place = self.place(&self.played.span, ".replies");
                    Failure::at(place, &format!("{} replies to be enough", replies.len()), problem.clone())
                        .advising("add the reply that the model gives then, or see why it is asked again")
                }
            });
        }
        if self.played.complaints.is_empty() && self.played.replies < replies.len() {
            let (index, asked) = (self.played.replies, self.played.replies);
            let place = self.place(&replies[index].span(), &format!(".replies[{index}]"));
            let found = format!("the turn was over after {asked} of {} replies", replies.len());
            failures.push(Failure::at(place, "this reply to be asked for", found));
        }
        failures
    }

    fn calls(&self) -> Vec<Failure> {
        let calls = &self.played.calls;
        let Some(expected) = &self.played.turn.calls else {
            let unknown = calls.iter().filter(|call| self.played.unknown.contains(&call.id));
            return unknown.map(|call| self.no_such_tool(self.place(&self.played.span, ""), &call.name)).collect();
        };
        let names = |wanted: &[&str]| wanted.iter().map(|name| format!("{name}\n")).collect::<String>();
        let wanted: Vec<_> = expected.iter().map(|call| call.get_ref().name.as_str()).collect();
        let made: Vec<_> = calls.iter().map(|call| call.name.as_str()).collect();
        if wanted != made {
            let span = expected.first().map_or_else(|| self.played.span.clone(), |call| call.span());
            let shown = |names: &[&str]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            let failure = match (self.played.counts, &self.played.result) {
                (Counts::ItsCall, TurnResult::Failed(error)) => {
                    Failure::at(self.place(&span, ""), "this call to be made", error.to_string())
                }
                _ => {
                    let expected = format!("these calls: {}", shown(&wanted));
                    let failure = Failure::at(self.place(&span, ".calls"), &expected, shown(&made));
                    Failure { diff: Some(diff(&names(&wanted), &names(&made))), ..failure }
                }
            };
            return vec![failure];
        }
        let pairs = expected.iter().zip(calls).enumerate();
        pairs
            .flat_map(|(index, (expected, call))| self.call(index, (expected.get_ref(), expected.span()), call))
            .collect()
    }

    fn call(&self, index: usize, (expected, span): (&ExpectedCall, Range<usize>), call: &CallRecord) -> Vec<Failure> {
        let key = |name: &str| match self.played.counts {
            Counts::All => format!(".calls[{index}].{name}"),
            Counts::ItsCall => format!(".{name}"),
        };
        let arguments = call.effective_arguments();
        let mut failures = Vec::new();
        if let Some(wanted) = &expected.arguments {
            let mismatches = Pattern::exactly(wanted.clone()).mismatches(&arguments.to_string(), Some(arguments));
            failures.extend(Failure::of(&self.place(&span, &key("arguments")), mismatches));
        }
        if let Some(pattern) = &expected.arguments_like {
            let mismatches = pattern.get_ref().mismatches(&arguments.to_string(), Some(arguments));
            failures.extend(Failure::of(&self.place(&pattern.span(), &key("arguments_like")), mismatches));
        }
        let Some(result) = &call.result else {
            let (made, because) = (called(&call.name, arguments), in_words(&self.played.result, "it was not ended"));
            failures.push(Failure::at(
                self.place(&span, &key("result")),
                "a result",
                format!("none of {made}: {because}"),
            ));
            return failures;
        };
        let text = shown(&result.content);
        let failing = self.place(&span, &key("fails"));
        match (expected.fails, self.played.unknown.contains(&call.id), result.is_error) {
            (Fails::NoSuchTool, true, _) | (Fails::No, false, false) | (Fails::Yes, false, true) => {}
            (Fails::No | Fails::Yes, true, _) => {
                let name = key("name");
                failures.push(self.no_such_tool(self.place(&span, &name), &call.name));
            }
            (Fails::NoSuchTool, false, _) => {
                let found = format!("`{}` is there, and brought {}", call.name, quoted(&text));
                failures.push(Failure::at(failing, "a call of a tool that is not there", found));
            }
            (Fails::Yes, false, false) => failures.push(Failure::at(failing, "a call that fails", quoted(&text))),
            (Fails::No, false, true) => {
                let failure = Failure::at(failing, "a call that succeeds", quoted(&text));
                failures.push(failure.advising("if it must fail, write `fails = true`"));
            }
        }
        if let Some(pattern) = &expected.result {
            let mismatches = pattern.get_ref().mismatches(&text, result.structured.as_ref());
            failures.extend(Failure::of(&self.place(&pattern.span(), &key("result")), mismatches));
        }
        failures
    }

    /// A slip in its name would pass for a tool that fails.
    fn no_such_tool(&self, place: Place, name: &str) -> Failure {
        let of_server = source_of(name).filter(|source| self.played.servers.iter().any(|server| server == source));
        let why = match of_server {
            Some(server) => format!("`{server}` is an MCP server, and a scenario starts none"),
            None => "see how its author writes it: `agent-host plugin inspect FILE` shows that".to_owned(),
        };
        let expected = format!("a tool `{name}` that is there");
        let advice = format!("{why}; if the agent shall meet that, expect the call with `fails = \"no_such_tool\"`");
        Failure::at(place, &expected, "there is no such tool".to_owned()).advising(advice)
    }

    fn ending(&self) -> Option<Failure> {
        let (turn, result) = (self.played.turn, &self.played.result);
        let ended = ending(result);
        if let Some(wanted) = &turn.ends {
            let place = self.place(&wanted.span(), ".ends");
            let found = ended.map_or("nothing was begun", Ending::word);
            let failure =
                Failure::at(place, &format!("the end {:?}", wanted.get_ref().word()), in_words(result, found));
            return (ended != Some(*wanted.get_ref())).then_some(failure);
        }
        let place = self.place(&self.played.span, "");
        match result {
            TurnResult::Finished(_) if turn.error.is_none() => None,
            TurnResult::Failed(_) if turn.error.is_some() => None,
            // What was wrong with the model's requests has ended the turn, and is told already.
            TurnResult::Failed(_) if !self.played.complaints.is_empty() => None,
            TurnResult::Suspended(waits) => {
                let failure = Failure::at(place, "a turn that ends", in_words(result, "suspended"));
                Some(failure.advising(advice(waits)))
            }
            result => {
                let wanted =
                    if turn.error.is_some() { "a turn that ends with an error" } else { "a turn that ends well" };
                let found = ended.map_or("nothing was begun", Ending::word);
                Some(Failure::at(place, wanted, in_words(result, found)))
            }
        }
    }

    fn output(&self) -> Vec<Failure> {
        match (&self.played.result, &self.played.turn.output, &self.played.turn.error) {
            (TurnResult::Finished(output), Some(pattern), _) => {
                let (text, structured) = text_of(&output.data);
                let mismatches = pattern.get_ref().mismatches(&text, structured);
                Failure::of(&self.place(&pattern.span(), ".output"), mismatches).collect()
            }
            (TurnResult::Failed(error), _, Some(pattern)) => {
                let mismatches = pattern.get_ref().mismatches(&error.to_string(), None);
                Failure::of(&self.place(&pattern.span(), ".error"), mismatches).collect()
            }
            _ => Vec::new(),
        }
    }
}

fn ending(result: &TurnResult) -> Option<Ending> {
    Some(match result {
        TurnResult::Finished(output) => Ending::Reason(output.finish),
        TurnResult::Failed(_) => Ending::Reason(EndReason::Error),
        TurnResult::Cancelled => Ending::Reason(EndReason::Cancelled),
        TurnResult::Suspended(_) => Ending::Suspended,
        TurnResult::Interrupted | TurnResult::Idle => return None,
    })
}

fn in_words(result: &TurnResult, word: &str) -> String {
    match result {
        TurnResult::Failed(error) => format!("{word}: {error}"),
        TurnResult::Suspended(suspension) => {
            let waits = suspension.waits.iter().map(|wait| match &wait.cause {
                WaitCause::Approval => format!("`{}` must be allowed", wait.name),
                WaitCause::Answer { question, .. } => format!("the model asks {question:?}"),
                WaitCause::Service { event_type, .. } => format!("`{}` waits for the service {event_type}", wait.name),
                WaitCause::Agent { .. } => format!("`{}` waits for an agent", wait.name),
                WaitCause::OutcomeUnknown => format!("the outcome of `{}` is unknown", wait.name),
            });
            format!("{word}: {}", waits.collect::<Vec<_>>().join("; "))
        }
        _ => word.to_owned(),
    }
}

fn advice(suspension: &Suspension) -> String {
    let line = suspension.waits.iter().map(|wait| match &wait.cause {
        WaitCause::Approval => format!("approvals = [{{ name = \"{}\", verdict = \"allow\" }}]", wait.name),
        WaitCause::Answer { .. } => "questions = [{ answer = \"…\" }]".to_owned(),
        WaitCause::Service { .. } => format!("services = [{{ name = \"{}\", type = \"…\", data = … }}]", wait.name),
        WaitCause::Agent { .. } | WaitCause::OutcomeUnknown => "ends = \"suspended\"".to_owned(),
    });
    let line = line.collect::<Vec<_>>().join(", ");
    format!("answer it in the turn: {line}; or, if it shall wait, write ends = \"suspended\"")
}

/// A result as a text: its media as lines.
pub(crate) fn shown(content: &[Content]) -> String {
    let mut text = result_text(content);
    for item in content {
        if let Content::Media(media) = item {
            let size = media.dimensions.map(|size| format!(", {} × {}", size.width, size.height)).unwrap_or_default();
            let line = format!("[{}{size}, {} bytes]", media.mime_type, media.size);
            text = if text.is_empty() { line } else { format!("{text}\n{line}") };
        }
    }
    text
}

/// An output as a text, and as JSON where it is that.
pub(crate) fn text_of(data: &Value) -> (String, Option<&Value>) {
    match data {
        Value::String(text) => (text.clone(), None),
        json => (json.to_string(), Some(json)),
    }
}
