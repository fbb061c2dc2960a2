//! What the host says of a turn beside the reply and the calls: one line or a few for an event.

use super::text::{harmless, json_line, one_line, time};
use super::{BOLD, DIM, RED, YELLOW};
use agent_core::approval::ApprovalWord;
use agent_core::change::Denial;
use agent_core::event::{ErrorScope, EventKind, NudgeCause};
use agent_core::run::FALLBACK_TEXT;
use agent_core::tool::Violation;
use agent_runtime::summary::EXTRACT;

/// Characters of names and messages that a line shows.
const SHOWN: usize = 100;
/// Characters of a provider's message: it says what to do.
const REASON: usize = 600;

/// The line or lines for an event; none for those that people don't need to see, and for calls and their results.
pub(crate) fn lines(event: &EventKind) -> Option<String> {
    Some(match event {
        EventKind::LoopIteration { last: true, .. } => {
            format!("{DIM}the last model call of this turn: tools are withheld{DIM:#}")
        }
        EventKind::ToolNotFound { name, .. } => {
            format!("{RED}✗{RED:#} {BOLD}{}{BOLD:#} there is no such tool", one_line(name, SHOWN))
        }
        EventKind::ToolDeferred { name, .. } => {
            format!("{DIM}… {} deferred: a call of higher priority ran first{DIM:#}", one_line(name, SHOWN))
        }
        EventKind::Denied { denial: Denial { plugin, thing, grant }, .. } => {
            let grant = harmless(grant).replace('\n', "\n    ");
            let thing = one_line(thing, SHOWN);
            format!("{YELLOW}!{YELLOW:#} {BOLD}{plugin}{BOLD:#} was denied {thing}; to allow it, {grant}")
        }
        EventKind::PluginSwapped { plugin, from, to } => {
            let plugin = one_line(plugin, SHOWN);
            let what = match (from, to) {
                (Some(from), Some(to)) => format!("is new: {} → {}", from.short(), to.short()),
                (None, Some(to)) => format!("is here now: {}", to.short()),
                (_, None) => "is gone".to_owned(),
            };
            format!("{DIM}↻{DIM:#} {BOLD}{plugin}{BOLD:#} {what}")
        }
        EventKind::PluginRolledBack { plugin, from, to } => {
            let plugin = one_line(plugin, SHOWN);
            let (from, to) = (from.short(), to.short());
            format!("{YELLOW}!{YELLOW:#} {BOLD}{plugin}{BOLD:#} was rolled back: {from} → {to}, until its file changes")
        }
        EventKind::Retry { model, attempt, wait_ms, reason } => {
            let wait = time(wait_ms.saturating_mul(1000));
            let (model, reason) = (one_line(model, SHOWN), one_line(reason, REASON));
            format!("{YELLOW}!{YELLOW:#} {reason}\n  {model} is asked again in {wait}, try {attempt}")
        }
        EventKind::ModelFallback { from, to, reason } => {
            let (from, reason) = (one_line(from, SHOWN), one_line(reason, REASON));
            let instead = match to.as_str() {
                FALLBACK_TEXT => "the configured text answers".to_owned(),
                to => format!("{} is asked", one_line(to, SHOWN)),
            };
            format!("{YELLOW}!{YELLOW:#} {reason}\n  {instead} instead of {from}")
        }
        EventKind::OutputRejected { by, attempt, problems } => {
            let by = one_line(by, SHOWN);
            format!("{YELLOW}!{YELLOW:#} answer {attempt} was rejected by {BOLD}{by}{BOLD:#}: {}", violations(problems))
        }
        EventKind::Evicted { messages, tokens, summary_tokens, by } => {
            let by = one_line(by, SHOWN);
            let by = if by == EXTRACT { "the host".to_owned() } else { by };
            format!(
                "{DIM}{messages} earlier messages ({tokens} tokens) have left the prompt; summarised by {by} in {summary_tokens} \
                 tokens{DIM:#}"
            )
        }
        EventKind::ApprovalResolved { name, verdict, .. } => {
            let name = one_line(name, SHOWN);
            let until = match verdict {
                ApprovalWord::Once => "this once",
                ApprovalWord::Session => "in this session",
                ApprovalWord::Always => "from now on",
                // The call's own line says the rest.
                ApprovalWord::Denied => return None,
                ApprovalWord::Void => {
                    let why = "what was allowed is not what would run now, so it is asked again";
                    return Some(format!("{YELLOW}!{YELLOW:#} {BOLD}{name}{BOLD:#}: {why}"));
                }
            };
            format!("{DIM}{name} is allowed, {until}{DIM:#}")
        }
        EventKind::Resumed => format!("{DIM}going on with the turn{DIM:#}"),
        EventKind::NoToolCall { count, .. } => {
            format!("{DIM}… the reply called no tool: the model is reminded ({count} in a row){DIM:#}")
        }
        EventKind::Nudge { cause, attempt, .. } => format!("{DIM}… {}{DIM:#}", nudge(*cause, *attempt)),
        EventKind::ToolDisabled { name, .. } => {
            let name = one_line(name, SHOWN);
            format!("{YELLOW}!{YELLOW:#} {BOLD}{name}{BOLD:#} failed the same way three times: it is off for this turn")
        }
        EventKind::Error { message, scope: ErrorScope::Reply, .. } => {
            format!("{YELLOW}!{YELLOW:#} a tool call could not be read: {}", one_line(message, REASON))
        }
        EventKind::Plan { steps } if steps.is_empty() => format!("{DIM}the plan: no tool is needed{DIM:#}"),
        EventKind::Plan { steps } => {
            let lines = (1..).zip(steps).map(|(number, step)| {
                let (tool, task) = (one_line(&step.tool, SHOWN), one_line(&step.task, SHOWN));
                format!("\n  {number}. {BOLD}{tool}{BOLD:#} {task}")
            });
            format!("the plan:{}", lines.collect::<String>())
        }
        EventKind::PlanFallback { reason } => {
            format!("{YELLOW}!{YELLOW:#} going on without a plan: {}", one_line(reason, REASON))
        }
        _ => return None,
    })
}

/// The line of a call that begins, where no spinner shows it.
pub(crate) fn begun(event: &EventKind) -> Option<String> {
    let EventKind::ToolCall { name, arguments, attempt, .. } = event else { return None };
    let again = if *attempt > 1 { format!(" {DIM}(attempt {attempt}){DIM:#}") } else { String::new() };
    Some(format!("→ {BOLD}{}{BOLD:#} {}{again}", one_line(name, SHOWN), json_line(arguments, SHOWN)))
}

/// What the spinner says after this event.
pub(crate) fn activity(event: &EventKind) -> Option<String> {
    match event {
        EventKind::LoopStart { .. } => Some("building the context".to_owned()),
        EventKind::LoopIteration { .. } | EventKind::ModelFallback { .. } => Some("waiting for the model".to_owned()),
        EventKind::Retry { model, .. } => Some(format!("waiting before {} is asked again", one_line(model, SHOWN))),
        _ => None,
    }
}

/// Why a reply that was being written is void, by the event that follows.
pub(crate) fn void(event: &EventKind) -> Option<&'static str> {
    match event {
        EventKind::Retry { .. } | EventKind::ModelFallback { .. } => Some("it broke off"),
        EventKind::OutputRejected { .. } => Some("it was rejected"),
        EventKind::Nudge { .. } => Some("it is not the end"),
        EventKind::Error { scope: ErrorScope::Reply, .. } => Some("its tool call could not be read"),
        EventKind::Error { scope: ErrorScope::Turn, .. } => Some("the turn ended with an error"),
        EventKind::PlanFallback { .. } => Some("it is no step of the plan"),
        EventKind::LoopEnd { .. } => Some("the turn was cancelled"),
        _ => None,
    }
}

fn nudge(cause: NudgeCause, attempt: u32) -> String {
    match cause {
        NudgeCause::Incomplete => {
            format!("the reply says that something is left: the model is told to go on ({attempt})")
        }
        NudgeCause::Deflection => format!("the reply refuses or asks: the model is told to go on ({attempt})"),
        NudgeCause::Empty => format!("the reply is empty: the model is told to go on ({attempt})"),
        NudgeCause::ForcedSummary => "three empty replies: the model is asked for a summary, without tools".to_owned(),
    }
}

fn violations(problems: &[Violation]) -> String {
    let shown = problems.iter().take(5).map(|problem| match problem.pointer.as_str() {
        "" => one_line(&problem.message, SHOWN),
        pointer => format!("{} {}", one_line(pointer, SHOWN), one_line(&problem.message, SHOWN)),
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
        anstream::adapter::strip_str(&lines(&event).or_else(|| begun(&event)).unwrap_or_default()).to_string()
    }

    #[test]
    fn events_are_a_line_or_two() {
        let call = CallId("c1".into());
        let arguments = json!({"path": "x".repeat(200)});
        let (model, reason) = ("openai/gpt".to_owned(), "503: busy\u{1b}[2J\nhtml".to_owned());
        let fallback =
            |to: &str| EventKind::ModelFallback { from: model.clone(), to: to.into(), reason: reason.clone() };
        let events = [
            EventKind::ToolCall { call: call.clone(), name: "text.count_file".into(), arguments, attempt: 2 },
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
        → text.count_file {"path":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx… (attempt 2)
        ✗ text.cuont there is no such tool
        … text.count_file deferred: a call of higher priority ran first
        4 earlier messages (4000 tokens) have left the prompt; summarised by openai/gpt in 300 tokens
        2 earlier messages (2000 tokens) have left the prompt; summarised by the host in 310 tokens
        ! 503: busy\u{1b}[2J…
          openai/gpt is asked again in 1.5 s, try 2
        ! 503: busy\u{1b}[2J…
          ollama/qwen is asked instead of openai/gpt
        ! 503: busy\u{1b}[2J…
          the configured text answers instead of openai/gpt
        ! a tool call could not be read: no JSON
        the plan:
          1. ocr.extract read it…
        the plan: no tool is needed
        ! going on without a plan: no JSON
        "#);
    }

    /// L19, L23, L28
    #[test]
    fn what_the_host_tells_the_model_is_a_dim_line() {
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
        … the reply says that something is left: the model is told to go on (1)
        … the reply refuses or asks: the model is told to go on (3)
        … the reply is empty: the model is told to go on (2)
        … three empty replies: the model is asked for a summary, without tools
        ! files.write failed the same way three times: it is off for this turn
        "#);
    }

    /// P10, L30: what a turn has otherwise than the one before it.
    #[test]
    fn p10_swaps_and_rollbacks_are_a_line() {
        let digest = |byte: u8| agent_core::message::Digest::from_sha256([byte; 32]);
        let swapped = |from: Option<u8>, to: Option<u8>| EventKind::PluginSwapped {
            plugin: "text".into(),
            from: from.map(digest),
            to: to.map(digest),
        };
        let back = EventKind::PluginRolledBack { plugin: "text".into(), from: digest(2), to: digest(1) };
        let events = [swapped(Some(1), Some(2)), swapped(None, Some(1)), swapped(Some(1), None), back];
        insta::assert_snapshot!(events.map(shown).join("\n"), @r#"
        ↻ text is new: 010101010101 → 020202020202
        ↻ text is here now: 010101010101
        ↻ text is gone
        ! text was rolled back: 020202020202 → 010101010101, until its file changes
        "#);
    }

    /// P6: a denial names the plugin, the thing, and the line to add.
    #[test]
    fn a_denial_shows_the_line_to_add() {
        let denial = Denial {
            plugin: "files@0123456789ab".into(),
            thing: "reading files".into(),
            grant: "add to agent.toml:\n[plugins.files.grants]\nread = [\".\"]\nor pass --grant files:read=DIR".into(),
        };
        let denied = EventKind::Denied { call: Some(CallId("call_1_1_1".into())), denial };
        insta::assert_snapshot!(shown(denied), @r#"
        ! files@0123456789ab was denied reading files; to allow it, add to agent.toml:
            [plugins.files.grants]
            read = ["."]
            or pass --grant files:read=DIR
        "#);
    }

    #[test]
    fn a_rejection_shows_who_and_why() {
        let problem =
            |pointer: &str, message: &str| Violation { pointer: pointer.into(), rule: None, message: message.into() };
        let rejected = EventKind::OutputRejected {
            by: "output schema".into(),
            attempt: 1,
            problems: vec![problem("", "is no JSON"), problem("/total", "is missing")],
        };
        insta::assert_snapshot!(shown(rejected), @"! answer 1 was rejected by output schema: is no JSON; /total is missing");
    }
}
