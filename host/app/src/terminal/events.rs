//! Formats the events of a turn as lines for users, except the reply and the tool calls.

use super::text::{self, harmless, one_line, time};
use super::{BOLD, DIM, RED, YELLOW};
use agent_core::approval::ApprovalOutcome;
use agent_core::change::Denial;
use agent_core::event::{ErrorScope, EventKind, NudgeCause};
use agent_core::run::FALLBACK_TEXT;
use agent_core::tool::Violation;
use agent_runtime::summary::EXTRACT;

/// Maximum displayed length of a name or message, in characters.
const MAX_CHARACTERS: usize = 100;
/// Maximum displayed length of a provider's message, in characters. This limit is larger than the limit for other
/// messages, because a provider's message often explains what to do.
const MAX_REASON: usize = 600;

/// Formats a denial as a note of its own.
pub(crate) fn denial(denial: &Denial) -> String {
    format!("{YELLOW}!{YELLOW:#} {}", denied(denial))
}

/// Formats what is not granted to a plugin, and what to add to the configuration. The lines after the first one are indented.
pub(super) fn denied(denial: &Denial) -> String {
    let (plugin, thing) = (one_line(&denial.plugin, MAX_CHARACTERS), one_line(&denial.thing, MAX_CHARACTERS));
    let grant = harmless(&denial.grant).replace('\n', "\n    ");
    format!("{BOLD}{plugin}{BOLD:#} is not granted {thing}. To allow it, {grant}")
}

/// Formats an event as lines. Returns None for tool calls, for their results, and for events that users don't need
/// to see.
pub(crate) fn lines(event: &EventKind) -> Option<String> {
    Some(match event {
        EventKind::LoopIteration { last: true, .. } => {
            format!("{DIM}last model call of this turn: the model gets no tools{DIM:#}")
        }
        EventKind::ToolNotFound { name, .. } => {
            format!("{RED}✗{RED:#} {BOLD}{}{BOLD:#}: there is no such tool", one_line(name, MAX_CHARACTERS))
        }
        EventKind::ToolDeferred { name, .. } => {
            format!("{DIM}… {} deferred: a call of higher priority ran first{DIM:#}", one_line(name, MAX_CHARACTERS))
        }
        EventKind::Denied { denial: refused, .. } => denial(refused),
        EventKind::PluginSwapped { plugin, from, to } => {
            let plugin = one_line(plugin, MAX_CHARACTERS);
            let what = match (from, to) {
                (Some(from), Some(to)) => format!("was updated: {} → {}", from.short(), to.short()),
                (None, Some(to)) => format!("was added: {}", to.short()),
                (_, None) => "was removed".to_owned(),
            };
            format!("{DIM}↻{DIM:#} {BOLD}{plugin}{BOLD:#} {what}")
        }
        EventKind::PluginRolledBack { plugin, from, to } => {
            let plugin = one_line(plugin, MAX_CHARACTERS);
            let (from, to) = (from.short(), to.short());
            format!("{YELLOW}!{YELLOW:#} {BOLD}{plugin}{BOLD:#} was rolled back: {from} → {to}, until its file changes")
        }
        EventKind::Retry { model, attempt, wait_ms, reason } => {
            let wait = time(wait_ms.saturating_mul(1000));
            let (model, reason) = (one_line(model, MAX_CHARACTERS), one_line(reason, MAX_REASON));
            format!("{YELLOW}!{YELLOW:#} {reason}\n  retrying {model} in {wait}, attempt {attempt}")
        }
        EventKind::ModelFallback { from, to, reason } => {
            let (from, reason) = (one_line(from, MAX_CHARACTERS), one_line(reason, MAX_REASON));
            let fallback = match to.as_str() {
                FALLBACK_TEXT => "the configured text".to_owned(),
                to => one_line(to, MAX_CHARACTERS),
            };
            format!("{YELLOW}!{YELLOW:#} {reason}\n  using {fallback} instead of {from}")
        }
        EventKind::OutputRejected { by, attempt, problems } => {
            let by = one_line(by, MAX_CHARACTERS);
            format!("{YELLOW}!{YELLOW:#} answer {attempt} was rejected by {BOLD}{by}{BOLD:#}: {}", violations(problems))
        }
        EventKind::Evicted { messages, tokens, summary_tokens, by } => {
            let by = one_line(by, MAX_CHARACTERS);
            let by = if by == EXTRACT { "the host".to_owned() } else { by };
            format!(
                "{DIM}{messages} earlier messages ({tokens} tokens) were removed from the prompt; {by} summarised them in \
                 {summary_tokens} tokens{DIM:#}"
            )
        }
        EventKind::ApprovalResolved { name, verdict, .. } => {
            let name = one_line(name, MAX_CHARACTERS);
            let scope = match verdict {
                ApprovalOutcome::Once => "for this call",
                ApprovalOutcome::Session => "for this session",
                ApprovalOutcome::Always => "from now on",
                // No line is needed, because the call's result shows the denial.
                ApprovalOutcome::Denied | ApprovalOutcome::Expired => return None,
                ApprovalOutcome::Void => {
                    let why = "the call has changed since it was approved, so the host asks again";
                    return Some(format!("{YELLOW}!{YELLOW:#} {BOLD}{name}{BOLD:#}: {why}"));
                }
            };
            format!("{DIM}{name} is approved {scope}{DIM:#}")
        }
        EventKind::Resumed => format!("{DIM}resuming the turn{DIM:#}"),
        EventKind::NoToolCall { count, .. } => {
            format!("{DIM}… the reply called no tool: the model is reminded ({count} in a row){DIM:#}")
        }
        EventKind::Nudge { cause, attempt, .. } => format!("{DIM}… {}{DIM:#}", nudge(*cause, *attempt)),
        EventKind::ToolDisabled { name, .. } => {
            let name = one_line(name, MAX_CHARACTERS);
            format!(
                "{YELLOW}!{YELLOW:#} {BOLD}{name}{BOLD:#} failed the same way three times: it is disabled for this turn"
            )
        }
        EventKind::Error { message, scope: ErrorScope::Reply, .. } => {
            format!("{YELLOW}!{YELLOW:#} a tool call could not be parsed: {}", one_line(message, MAX_REASON))
        }
        EventKind::Plan { steps } if steps.is_empty() => format!("{DIM}the plan: no tool is needed{DIM:#}"),
        EventKind::Plan { steps } => {
            let lines = (1..).zip(steps).map(|(number, step)| {
                let (tool, task) = (one_line(&step.tool, MAX_CHARACTERS), one_line(&step.task, MAX_CHARACTERS));
                format!("\n  {number}. {BOLD}{tool}{BOLD:#} {task}")
            });
            format!("the plan:{}", lines.collect::<String>())
        }
        EventKind::Steered { text } => {
            format!("{DIM}a new prompt was added to the turn: {}{DIM:#}", one_line(text, MAX_CHARACTERS))
        }
        EventKind::PlanFallback { reason } => {
            format!("{YELLOW}!{YELLOW:#} continuing without a plan: {}", one_line(reason, MAX_REASON))
        }
        _ => return None,
    })
}

/// Formats the start of a tool call as a line, for output without a spinner. Returns None for all other events.
pub(crate) fn started_call(event: &EventKind) -> Option<String> {
    let EventKind::ToolCall { name, arguments, attempt, .. } = event else { return None };
    let retry = if *attempt > 1 { format!(" {DIM}(attempt {attempt}){DIM:#}") } else { String::new() };
    Some(format!(
        "→ {BOLD}{}{BOLD:#} {}{retry}",
        one_line(name, MAX_CHARACTERS),
        text::arguments(arguments, MAX_CHARACTERS)
    ))
}

/// Returns the text for the spinner after this event. Returns None if the event does not change the text.
pub(crate) fn activity(event: &EventKind) -> Option<String> {
    match event {
        EventKind::LoopStart { .. } => Some("building the context".to_owned()),
        EventKind::LoopIteration { .. } | EventKind::ModelFallback { .. } => Some("waiting for the model".to_owned()),
        EventKind::Retry { model, .. } => Some(format!("waiting to retry {}", one_line(model, MAX_CHARACTERS))),
        _ => None,
    }
}

/// Returns the reason why an unfinished reply was discarded. The reason follows from the event that comes after the
/// reply. Returns None if the event contains no reason.
pub(crate) fn discard_reason(event: &EventKind) -> Option<&'static str> {
    match event {
        EventKind::Retry { .. } | EventKind::ModelFallback { .. } => Some("it was interrupted"),
        EventKind::OutputRejected { .. } => Some("it was rejected"),
        EventKind::Nudge { .. } => Some("it is not a final reply"),
        EventKind::Error { scope: ErrorScope::Reply, .. } => Some("its tool call could not be parsed"),
        EventKind::Error { scope: ErrorScope::Turn, .. } => Some("the turn ended with an error"),
        EventKind::PlanFallback { .. } => Some("it is not a step of the plan"),
        EventKind::LoopEnd { .. } => Some("the turn was cancelled"),
        _ => None,
    }
}

fn nudge(cause: NudgeCause, attempt: u32) -> String {
    match cause {
        NudgeCause::Incomplete => {
            format!("the reply leaves work undone: the model is told to continue ({attempt})")
        }
        NudgeCause::Deflection => format!("the reply refuses or asks: the model is told to continue ({attempt})"),
        NudgeCause::Empty => format!("the reply is empty: the model is told to continue ({attempt})"),
        NudgeCause::ForcedSummary => "three empty replies: the model is asked for a summary, without tools".to_owned(),
    }
}

fn violations(problems: &[Violation]) -> String {
    let shown = problems.iter().take(5).map(|problem| match problem.pointer.as_str() {
        "" => one_line(&problem.message, MAX_CHARACTERS),
        pointer => format!("{} {}", one_line(pointer, MAX_CHARACTERS), one_line(&problem.message, MAX_CHARACTERS)),
    });
    shown.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_core::message::CallId;
    use agent_core::plan::PlanStep;
    use serde_json::json;

    fn shown(event: EventKind) -> String {
        anstream::adapter::strip_str(&lines(&event).or_else(|| started_call(&event)).unwrap_or_default()).to_string()
    }

    #[test]
    fn formats_events_as_short_lines() {
        let call = CallId("c1".into());
        let arguments = json!({"path": "x".repeat(200)});
        let (model, reason) = ("openai/gpt".to_owned(), "503: busy\u{1b}[2J\nhtml".to_owned());
        let fallback =
            |to: &str| EventKind::ModelFallback { from: model.clone(), to: to.into(), reason: reason.clone() };
        let events = [
            EventKind::ToolCall {
                call: call.clone(),
                name: "text.count_file".into(),
                arguments,
                attempt: 2,
                by_client: false,
            },
            EventKind::ToolNotFound { call: call.clone(), name: "text.cuont".into() },
            EventKind::ToolDeferred { call, name: "text.count_file".into() },
            EventKind::Evicted { messages: 4, tokens: 4_000, summary_tokens: 300, by: model.clone() },
            EventKind::Evicted { messages: 2, tokens: 2_000, summary_tokens: 310, by: EXTRACT.into() },
            EventKind::Retry { model: model.clone(), attempt: 2, wait_ms: 1_500, reason: reason.clone() },
            fallback("ollama/qwen"),
            fallback(FALLBACK_TEXT),
            EventKind::Error { code: "parse_error".into(), message: "no JSON".into(), scope: ErrorScope::Reply },
            EventKind::Plan { steps: vec![PlanStep { tool: "ocr.extract".into(), task: "read it\nall".into() }] },
            EventKind::Plan { steps: Vec::new() },
            EventKind::PlanFallback { reason: "no JSON".into() },
        ];
        insta::assert_snapshot!(events.map(shown).join("\n"), @r#"
        → text.count_file path: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx… (attempt 2)
        ✗ text.cuont: there is no such tool
        … text.count_file deferred: a call of higher priority ran first
        4 earlier messages (4000 tokens) were removed from the prompt; openai/gpt summarised them in 300 tokens
        2 earlier messages (2000 tokens) were removed from the prompt; the host summarised them in 310 tokens
        ! 503: busy\u{1b}[2J…
          retrying openai/gpt in 1.5 s, attempt 2
        ! 503: busy\u{1b}[2J…
          using ollama/qwen instead of openai/gpt
        ! 503: busy\u{1b}[2J…
          using the configured text instead of openai/gpt
        ! a tool call could not be parsed: no JSON
        the plan:
          1. ocr.extract read it…
        the plan: no tool is needed
        ! continuing without a plan: no JSON
        "#);
    }

    #[test]
    fn l19_l23_l28_formats_nudges_and_reminders() {
        let nudge = |cause, attempt| EventKind::Nudge { cause, attempt, text: "Go on.".into() };
        let events = [
            EventKind::NoToolCall { count: 2, reminder: "Call a tool.".into() },
            nudge(NudgeCause::Incomplete, 1),
            nudge(NudgeCause::Deflection, 3),
            nudge(NudgeCause::Empty, 2),
            nudge(NudgeCause::ForcedSummary, 1),
            EventKind::ToolDisabled { call: CallId("c1".into()), name: "files.write".into() },
        ];
        insta::assert_snapshot!(events.map(shown).join("\n"), @r#"
        … the reply called no tool: the model is reminded (2 in a row)
        … the reply leaves work undone: the model is told to continue (1)
        … the reply refuses or asks: the model is told to continue (3)
        … the reply is empty: the model is told to continue (2)
        … three empty replies: the model is asked for a summary, without tools
        ! files.write failed the same way three times: it is disabled for this turn
        "#);
    }

    /// P10, L30: one line is shown for each plugin that has changed since the previous turn.
    #[test]
    fn p10_formats_swaps_and_rollbacks() {
        let digest = |byte: u8| agent_core::message::Digest::from_sha256([byte; 32]);
        let swapped = |from: Option<u8>, to: Option<u8>| EventKind::PluginSwapped {
            plugin: "text".into(),
            from: from.map(digest),
            to: to.map(digest),
        };
        let back = EventKind::PluginRolledBack { plugin: "text".into(), from: digest(2), to: digest(1) };
        let events = [swapped(Some(1), Some(2)), swapped(None, Some(1)), swapped(Some(1), None), back];
        insta::assert_snapshot!(events.map(shown).join("\n"), @r#"
        ↻ text was updated: 010101010101 → 020202020202
        ↻ text was added: 010101010101
        ↻ text was removed
        ! text was rolled back: 020202020202 → 010101010101, until its file changes
        "#);
    }

    /// P6: a denial names the plugin, the denied permission, and the configuration line to add.
    #[test]
    fn p6_denial_shows_the_configuration_line_to_add() {
        let denial = Denial {
            plugin: "files@0123456789ab".into(),
            thing: "reading files".into(),
            grant: "add to agent.toml:\n[plugins.files.grants]\nread = [\".\"]\nor pass --grant files:read=DIR".into(),
        };
        let denied = EventKind::Denied { call: Some(CallId("call_1_1_1".into())), denial };
        insta::assert_snapshot!(shown(denied), @r#"
        ! files@0123456789ab is not granted reading files. To allow it, add to agent.toml:
            [plugins.files.grants]
            read = ["."]
            or pass --grant files:read=DIR
        "#);
    }

    #[test]
    fn rejection_names_validator_and_problems() {
        let problem =
            |pointer: &str, message: &str| Violation { pointer: pointer.into(), rule: None, message: message.into() };
        let rejected = EventKind::OutputRejected {
            by: "output schema".into(),
            attempt: 1,
            problems: vec![problem("", "is not JSON"), problem("/total", "is missing")],
        };
        insta::assert_snapshot!(shown(rejected), @"! answer 1 was rejected by output schema: is not JSON; /total is missing");
    }
}
