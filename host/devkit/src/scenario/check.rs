//! Compares a played turn with the expectations of the scenario.

use super::file::Scenario;
use super::model::RequestProblem;
use super::pattern::{Pattern, quoted};
use super::place::Place;
use super::report::Failure;
use super::script::{Ending, ExpectedCall, Fails, Turn};
use super::transcript::call_line;
use crate::diff::diff;
use agent_core::approval::rule_source;
use agent_core::change::CallRecord;
use agent_core::event::{EndReason, Suspension, WaitCause};
use agent_core::message::{CallId, Content};
use agent_core::view::result_text;
use agent_runtime::TurnResult;
use serde_json::Value;
use std::collections::BTreeSet;
use std::ops::Range;

/// A turn that was played.
pub(crate) struct PlayedTurn<'t> {
    pub(crate) turn: &'t Turn,
    /// Key of the turn in the scenario file, such as `turns[0]`.
    pub(crate) key: String,
    /// Byte range of the turn in the scenario file.
    pub(crate) span: Range<usize>,
    pub(crate) result: TurnResult,
    /// Calls that the turn made, in the order in which the turn made them.
    pub(crate) calls: Vec<CallRecord>,
    /// Number of scripted replies that the turn used.
    pub(crate) replies: usize,
    pub(crate) request_problems: Vec<RequestProblem>,
    /// Ids of the calls to tools that do not exist.
    pub(crate) unknown: BTreeSet<CallId>,
    /// Names of the agent's MCP servers, which are not started.
    pub(crate) servers: Vec<String>,
    /// Which expectations of the turn are checked.
    pub(crate) scope: Scope,
    /// Failures about answers in the scenario that the session rejected, or that the turn did not request.
    pub(crate) answers: Vec<Failure>,
}

/// Which of a turn's expectations are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All expectations are checked.
    All,
    /// Only the call is checked, because the turn was generated for a direct call.
    DirectCall,
}

impl PlayedTurn<'_> {
    /// Returns a failure for each expectation that is not met.
    pub(crate) fn failures(&self, scenario: &Scenario) -> Vec<Failure> {
        let checker = Checker { scenario, played: self };
        if self.scope == Scope::DirectCall {
            return checker.call_failures();
        }
        let mut failures = checker.model_failures();
        failures.extend(checker.call_failures());
        failures.extend(self.answers.iter().cloned());
        failures.extend(checker.ending_failure());
        failures.extend(checker.output_failures());
        failures
    }
}

struct Checker<'c> {
    scenario: &'c Scenario,
    played: &'c PlayedTurn<'c>,
}

impl Checker<'_> {
    fn place(&self, span: &Range<usize>, key: &str) -> Place {
        self.scenario.place(span.clone(), format!("{}{key}", self.played.key))
    }

    /// Returns failures for requests to the model that do not match the `expect` key of the scripted reply, and for
    /// replies that were not used.
    fn model_failures(&self) -> Vec<Failure> {
        let replies = &self.played.turn.replies;
        let mut failures = Vec::new();
        for RequestProblem { reply, problem } in &self.played.request_problems {
            failures.push(match replies.get(*reply) {
                Some(spanned) => {
                    let place = self.place(&spanned.span(), &format!(".replies[{reply}]"));
                    Failure::at(place, "a request that matches `expect` of this reply", problem.clone())
                }
                None => {
                    let place = self.place(&self.played.span, ".replies");
                    Failure::at(place, &format!("at most {} requests to the model", replies.len()), problem.clone())
                        .advising("add the missing reply, or find out why the turn sends more requests than expected")
                }
            });
        }
        if self.played.request_problems.is_empty() && self.played.replies < replies.len() {
            let (index, used) = (self.played.replies, self.played.replies);
            let place = self.place(&replies[index].span(), &format!(".replies[{index}]"));
            let found = format!("the turn ended after {used} of {} replies", replies.len());
            failures.push(Failure::at(place, "this reply to be used", found));
        }
        failures
    }

    fn call_failures(&self) -> Vec<Failure> {
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
            let failure = match (self.played.scope, &self.played.result) {
                (Scope::DirectCall, TurnResult::Failed(error)) => {
                    Failure::at(self.place(&span, ""), "this call", error.to_string())
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
            .flat_map(|(index, (expected, call))| {
                self.failures_of_call(index, (expected.get_ref(), expected.span()), call)
            })
            .collect()
    }

    fn failures_of_call(
        &self,
        index: usize,
        (expected, span): (&ExpectedCall, Range<usize>),
        call: &CallRecord,
    ) -> Vec<Failure> {
        let key = |name: &str| match self.played.scope {
            Scope::All => format!(".calls[{index}].{name}"),
            Scope::DirectCall => format!(".{name}"),
        };
        let arguments = call.effective_arguments();
        let mut failures = Vec::new();
        if let Some(wanted) = &expected.arguments {
            let mismatches = Pattern::exact_json(wanted.clone()).mismatches(&arguments.to_string(), Some(arguments));
            failures.extend(Failure::of(&self.place(&span, &key("arguments")), mismatches));
        }
        if let Some(pattern) = &expected.arguments_like {
            let mismatches = pattern.get_ref().mismatches(&arguments.to_string(), Some(arguments));
            failures.extend(Failure::of(&self.place(&pattern.span(), &key("arguments_like")), mismatches));
        }
        let Some(result) = &call.result else {
            let (call, reason) =
                (call_line(&call.name, arguments), with_details(&self.played.result, "the call did not end"));
            failures.push(Failure::at(
                self.place(&span, &key("result")),
                "a result",
                format!("{call} has no result: {reason}"),
            ));
            return failures;
        };
        let text = content_text(&result.content);
        let failing = self.place(&span, &key("fails"));
        match (expected.fails, self.played.unknown.contains(&call.id), result.is_error) {
            (Fails::NoSuchTool, true, _) | (Fails::No, false, false) | (Fails::Yes, false, true) => {}
            (Fails::No | Fails::Yes, true, _) => {
                let name = key("name");
                failures.push(self.no_such_tool(self.place(&span, &name), &call.name));
            }
            (Fails::NoSuchTool, false, _) => {
                let found = format!("the tool `{}` exists, and the call returned {}", call.name, quoted(&text));
                failures.push(Failure::at(failing, "a call to a tool that does not exist", found));
            }
            (Fails::Yes, false, false) => failures.push(Failure::at(failing, "a call that fails", quoted(&text))),
            (Fails::No, false, true) => {
                let failure = Failure::at(failing, "a call that succeeds", quoted(&text));
                failures.push(failure.advising("if the call should fail, write `fails = true`"));
            }
        }
        if let Some(pattern) = &expected.result {
            let mismatches = pattern.get_ref().mismatches(&text, result.structured.as_ref());
            failures.extend(Failure::of(&self.place(&pattern.span(), &key("result")), mismatches));
        }
        failures
    }

    /// Returns the failure for a tool that does not exist, so that a misspelled tool name is not reported as a
    /// call that fails.
    fn no_such_tool(&self, place: Place, name: &str) -> Failure {
        let server = rule_source(name).filter(|source| self.played.servers.iter().any(|name| name == source));
        let why = match server {
            Some(server) => format!("`{server}` is an MCP server, and scenarios do not start MCP servers"),
            None => "check the tool's name with `agent-host plugin inspect FILE`".to_owned(),
        };
        let expected = format!("an existing tool `{name}`");
        let advice = format!("{why}; if the call is meant to fail, expect it with `fails = \"no_such_tool\"`");
        Failure::at(place, &expected, "there is no such tool".to_owned()).advising(advice)
    }

    fn ending_failure(&self) -> Option<Failure> {
        let (turn, result) = (self.played.turn, &self.played.result);
        let ended = ending(result);
        if let Some(wanted) = &turn.ends {
            let place = self.place(&wanted.span(), ".ends");
            let found = ended.map_or("the turn did not start", Ending::word);
            let failure = Failure::at(
                place,
                &format!("the turn to end with {:?}", wanted.get_ref().word()),
                with_details(result, found),
            );
            return (ended != Some(*wanted.get_ref())).then_some(failure);
        }
        let place = self.place(&self.played.span, "");
        match result {
            TurnResult::Finished(_) if turn.error.is_none() => None,
            TurnResult::Failed(_) if turn.error.is_some() => None,
            // The turn failed because of a request to the model, and this problem is already reported.
            TurnResult::Failed(_) if !self.played.request_problems.is_empty() => None,
            TurnResult::Suspended(waits) => {
                let failure = Failure::at(place, "a turn that ends", with_details(result, "suspended"));
                Some(failure.advising(advice(waits)))
            }
            result => {
                let wanted = if turn.error.is_some() {
                    "a turn that ends with an error"
                } else {
                    "a turn that ends without an error"
                };
                let found = ended.map_or("the turn did not start", Ending::word);
                Some(Failure::at(place, wanted, with_details(result, found)))
            }
        }
    }

    fn output_failures(&self) -> Vec<Failure> {
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

fn with_details(result: &TurnResult, word: &str) -> String {
    match result {
        TurnResult::Failed(error) => format!("{word}: {error}"),
        TurnResult::Suspended(suspension) => {
            let waits = suspension.waits.iter().map(|wait| match &wait.cause {
                WaitCause::Approval { .. } => format!("`{}` needs an approval", wait.name),
                WaitCause::Answer { question, .. } => format!("the model asks the question {question:?}"),
                WaitCause::Service { event_type, .. } => format!("`{}` waits for the service {event_type}", wait.name),
                WaitCause::Agent { .. } => format!("`{}` waits for an agent", wait.name),
                WaitCause::Client => format!("`{}` waits for the client", wait.name),
                WaitCause::OutcomeUnknown => format!("the outcome of `{}` is unknown", wait.name),
            });
            format!("{word}: {}", waits.collect::<Vec<_>>().join("; "))
        }
        _ => word.to_owned(),
    }
}

fn advice(suspension: &Suspension) -> String {
    let line = suspension.waits.iter().map(|wait| match &wait.cause {
        WaitCause::Approval { .. } => format!("approvals = [{{ name = \"{}\", verdict = \"allow\" }}]", wait.name),
        WaitCause::Answer { .. } => "questions = [{ answer = \"…\" }]".to_owned(),
        WaitCause::Service { .. } => format!("services = [{{ name = \"{}\", type = \"…\", data = … }}]", wait.name),
        WaitCause::Agent { .. } | WaitCause::Client | WaitCause::OutcomeUnknown => "ends = \"suspended\"".to_owned(),
    });
    let line = line.collect::<Vec<_>>().join(", ");
    format!("add the answer to the turn: {line}; or, if the turn should stay suspended, write ends = \"suspended\"")
}

/// Returns the text of a result, with one line for each media item.
pub(crate) fn content_text(content: &[Content]) -> String {
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

/// Returns an output as text. If the output is not a string, also returns the output as JSON.
pub(crate) fn text_of(data: &Value) -> (String, Option<&Value>) {
    match data {
        Value::String(text) => (text.clone(), None),
        json => (json.to_string(), Some(json)),
    }
}
