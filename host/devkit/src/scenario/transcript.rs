//! The transcript of a scenario: readable lines about messages, calls and decisions. Every run of a scenario produces
//! the same lines.

use super::answers::Requests;
use agent_core::approval::ApprovalOutcome;
use agent_core::event::{Event, EventKind, Wait, WaitCause};
use agent_core::message::{CallId, ID_SUFFIX_LENGTH};
use regex::Regex;
use serde_json::Value;
use std::path::Path;

/// Replaces the parts of a text that differ in every run, such as paths and digests.
pub(crate) struct Normalizer {
    replacements: Vec<(String, &'static str)>,
    call: Regex,
    digest: Regex,
}

impl Normalizer {
    pub(crate) fn new(session: &str, folder: &Path) -> Self {
        let pattern = |pattern: &str| Regex::new(pattern).expect("the constant is a valid pattern");
        Self {
            replacements: vec![(folder.display().to_string(), "FOLDER"), (session.to_owned(), "SESSION")],
            call: pattern(&format!(r"(call(?:_[0-9]+){{3}})_[0-9a-f]{{{ID_SUFFIX_LENGTH}}}")),
            digest: pattern(r"@[0-9a-f]{12}\b"),
        }
    }

    /// Returns the text with placeholders for the parts that differ in every run.
    pub(crate) fn text(&self, text: &str) -> String {
        let text = self.replacements.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
        let text = self.call.replace_all(&text, "$1");
        self.digest.replace_all(&text, "@DIGEST").into_owned()
    }
}

/// Parts of a turn's transcript that are not in the events of the turn.
pub(crate) struct TurnExtras<'t> {
    /// HTTP requests of plugins, one line for each request.
    pub(crate) requests: &'t [String],
    /// The data that tools sent to services in their requests. The keys are the ids of the calls that
    /// sent the requests.
    pub(crate) services: &'t Requests,
    /// The output of the turn. `None` means that the turn has no output, or the output is not part of the transcript.
    pub(crate) output: Option<&'t str>,
}

/// Returns the lines of one turn: the user's message, the events, the HTTP requests and the output.
pub(crate) fn turn(input: &str, events: &[Event], extras: &TurnExtras<'_>) -> String {
    let mut lines = Lines::default();
    lines.add("user", input);
    let mut results: Vec<&Event> = Vec::new();
    for event in events {
        // Results are collected and sorted, because parallel calls can end in any order.
        if matches!(event.kind, EventKind::ToolResult { .. } | EventKind::ToolResultError { .. }) {
            results.push(event);
            continue;
        }
        lines.results(&mut results);
        lines.event(&event.kind, extras.services);
    }
    lines.results(&mut results);
    for request in extras.requests {
        lines.add("request", request);
    }
    if let Some(output) = extras.output.filter(|output| lines.last_reply.as_deref() != Some(*output)) {
        lines.add("output", output);
    }
    lines.text
}

#[derive(Default)]
struct Lines {
    text: String,
    /// Text of the last reply of the model. `None` means that the turn contains no reply.
    last_reply: Option<String>,
}

impl Lines {
    /// Adds a text after its label. The lines of a text with several lines are indented below the label.
    fn add(&mut self, label: &str, text: &str) {
        let (label, text) = (escaped(label), escaped(text));
        let text = text.trim_end_matches('\n');
        match text.contains('\n') {
            false => self.text.push_str(format!("{label}: {text}").trim_end()),
            true => {
                let indented = text.lines().map(|line| format!("\n  {line}").trim_end_matches(' ').to_owned());
                self.text.push_str(&format!("{label}:{}", indented.collect::<String>()));
            }
        }
        self.text.push('\n');
    }

    fn results(&mut self, results: &mut Vec<&Event>) {
        results.sort_by_key(|event| match &event.kind {
            EventKind::ToolResult { call, .. } | EventKind::ToolResultError { call, .. } => position_of(call),
            _ => Vec::new(),
        });
        for event in results.drain(..) {
            match &event.kind {
                EventKind::ToolResult { name, content, .. } => self.add(&format!("result of {name}"), content),
                EventKind::ToolResultError { name, content, .. } => self.add(&format!("error of {name}"), content),
                _ => {}
            }
        }
    }

    fn wait(&mut self, wait: &Wait, services: &Requests) {
        match &wait.cause {
            WaitCause::Answer { question, .. } => self.add("asks", question),
            WaitCause::Service { event_type, .. } => {
                let data = services.get(&wait.call.0).map(|data| format!(" {data}")).unwrap_or_default();
                self.add("waits for the service", &format!("{event_type}{data}"));
            }
            WaitCause::Agent { .. } => self.add("waits for the agent", &wait.name),
            WaitCause::Client => self.add("waits for the client", &wait.name),
            WaitCause::OutcomeUnknown => self.add("outcome unknown", &wait.name),
            WaitCause::Approval { .. } => {}
        }
    }

    fn event(&mut self, kind: &EventKind, services: &Requests) {
        match kind {
            EventKind::StreamComplete { text, .. } => {
                if !text.is_empty() {
                    self.add("model", text);
                }
                self.last_reply = Some(text.clone());
            }
            EventKind::ToolCall { name, arguments, .. } => self.add("call", &call_line(name, arguments)),
            EventKind::ToolNotFound { name, .. } => self.add("no such tool", name),
            EventKind::ToolDeferred { name, .. } => self.add("deferred", name),
            EventKind::ToolDisabled { name, .. } => self.add("turned off", name),
            EventKind::NoToolCall { reminder, .. } => self.add("reminder", reminder),
            EventKind::Nudge { text, .. } => self.add("nudge", text),
            EventKind::Retry { attempt, reason, .. } => self.add(&format!("try {attempt}"), reason),
            EventKind::ModelFallback { to, reason, .. } => self.add(&format!("falls back to {to}"), reason),
            EventKind::Evicted { messages, by, .. } => {
                self.add("evicted", &format!("{messages} messages, summary by {by}"))
            }
            EventKind::Plan { steps } => {
                let steps = steps.iter().map(|step| serde_json::to_string(step).unwrap_or_default());
                self.add("plan", &steps.collect::<Vec<_>>().join("\n"));
            }
            EventKind::Steered { text } => self.add("user, during the turn", text),
            EventKind::PlanFallback { reason } => self.add("no plan", reason),
            EventKind::ApprovalRequested { calls, .. } => {
                let names: Vec<_> = calls.iter().map(|call| call.name.as_str()).collect();
                self.add("asks to be allowed", &names.join(", "));
            }
            EventKind::ApprovalResolved { name, verdict, .. } => self.add(
                match verdict {
                    ApprovalOutcome::Once | ApprovalOutcome::Session | ApprovalOutcome::Always => "allowed",
                    ApprovalOutcome::Denied | ApprovalOutcome::Expired => "not allowed",
                    ApprovalOutcome::Void => "asked again",
                },
                name,
            ),
            EventKind::Denied { denial, .. } => {
                self.add("denied", &format!("{} wanted {}", denial.plugin, denial.thing))
            }
            EventKind::OutputRejected { by, problems, .. } => {
                let problems =
                    problems.iter().map(|problem| format!("{} {}", problem.pointer, problem.message).trim().to_owned());
                self.add(&format!("rejected by {by}"), &problems.collect::<Vec<_>>().join("\n"));
            }
            EventKind::Suspended { suspension } => suspension.waits.iter().for_each(|wait| self.wait(wait, services)),
            EventKind::Error { message, .. } => self.add("error", message),
            EventKind::LoopEnd { reason, .. } => {
                let word = serde_json::to_value(reason).ok().and_then(|word| word.as_str().map(str::to_owned));
                self.add("end", &word.unwrap_or_default());
            }
            _ => {}
        }
    }
}

/// Escapes control characters and invisible characters, such as `\u{1b}`. Text that already looks like the escape of a
/// character is also escaped, so that the original text can be restored.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        let looks_escaped = character == '\\' && characters.clone().take(2).eq(['u', '{']);
        let is_line = matches!(character, '\n' | '\t');
        match (character.is_control() && !is_line) || is_invisible(character) || looks_escaped {
            true => escaped.extend(character.escape_unicode()),
            false => escaped.push(character),
        }
    }
    escaped
}

/// Whether a character ends a line, changes the writing direction or is invisible. Returns false for characters that
/// words can contain.
fn is_invisible(character: char) -> bool {
    matches!(character, '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}')
}

/// Formats a call for the transcript.
pub(crate) fn call_line(name: &str, arguments: &Value) -> String {
    format!("{name} {arguments}")
}

/// Returns the three numbers in the id of a call: the turn, the reply, and the position in the reply.
fn position_of(call: &CallId) -> Vec<u64> {
    call.0.split('_').skip(1).take(3).filter_map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_parts_that_differ_in_every_run() {
        let normalizer = Normalizer::new("test/0198", Path::new("/tmp/x1/files"));
        let text = "call_1_2_3_5f0c9a7be214 of test/0198: text@0123456789ab read /tmp/x1/files/a; call_1_2_3 a@b";
        assert_eq!(normalizer.text(text), "call_1_2_3 of SESSION: text@DIGEST read FOLDER/a; call_1_2_3 a@b");
    }

    #[test]
    fn indents_several_lines() {
        let mut lines = Lines::default();
        lines.add("model", "one\n\ntwo\n");
        lines.add("end", "answered");
        assert_eq!(lines.text, "model:\n  one\n\n  two\nend: answered\n");
    }

    /// S4: control characters and invisible characters are escaped in such a way that the original text can be
    /// restored.
    #[test]
    fn s4_escapes_invisible_characters() {
        let mut lines = Lines::default();
        lines.add("model", "a\u{1b}[2Jb\0\r\nc\u{202e}d\tä\\n \\u{1b}");
        assert_eq!(lines.text, "model:\n  a\\u{1b}[2Jb\\u{0}\\u{d}\n  c\\u{202e}d\tä\\n \\u{5c}u{1b}\n");
    }
}
