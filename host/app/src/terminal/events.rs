//! What the host says of a turn beside the reply and the calls: one line or a few for an event.

use super::text::{harmless, json_line, one_line, time};
use super::{BOLD, DIM, RED, YELLOW};
use agent_core::change::Denial;
use agent_core::event::{ErrorScope, EventKind};
use agent_core::run::FALLBACK_TEXT;
use agent_core::tool::Violation;

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
        EventKind::Resumed => format!("{DIM}going on with the interrupted turn{DIM:#}"),
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
        EventKind::Error { scope: ErrorScope::Reply, .. } => Some("its tool call could not be read"),
        EventKind::Error { scope: ErrorScope::Turn, .. } => Some("the turn ended with an error"),
        EventKind::PlanFallback { .. } => Some("it is no step of the plan"),
        EventKind::LoopEnd { .. } => Some("the turn was cancelled"),
        _ => None,
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
        ! 503: busy�[2J…
          openai/gpt is asked again in 1.5 s, try 2
        ! 503: busy�[2J…
          ollama/qwen is asked instead of openai/gpt
        ! 503: busy�[2J…
          the configured text answers instead of openai/gpt
        ! a tool call could not be read: no JSON
        the plan:
          1. ocr.extract read it…
        the plan: no tool is needed
        ! going on without a plan: no JSON
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
        let denied = EventKind::Denied { call: CallId("call_1_1_1".into()), denial };
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
