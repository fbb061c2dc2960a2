//! A turn as a person sees it: one line per call, one per result, and what was denied or rejected.

use super::text::{count, explained, json_line, one_line, size, time};
use super::{BOLD, DIM, GREEN, RED, YELLOW};
use agent_core::change::Denial;
use agent_core::event::EventKind;
use agent_core::tool::{CallCost, ToolError, Violation};

/// Characters of arguments and of results that a line shows.
const SHOWN: usize = 100;
/// Lines of a denial that are shown.
const ADVICE_LINES: usize = 8;

/// The line or lines for an event; none for those that people don't need to see.
pub(crate) fn lines(event: &EventKind) -> Option<String> {
    Some(match event {
        EventKind::LoopIteration { last: true, .. } => {
            format!("{DIM}the last model call of this turn: tools are withheld{DIM:#}")
        }
        EventKind::ToolCall { name, arguments, attempt, .. } => {
            let again = if *attempt > 1 { format!(" {DIM}(attempt {attempt}){DIM:#}") } else { String::new() };
            format!("→ {BOLD}{}{BOLD:#} {}{again}", one_line(name, SHOWN), json_line(arguments, SHOWN))
        }
        EventKind::ToolResult { name, content, cost, .. } => {
            format!("{GREEN}✓{GREEN:#} {}", result(name, content, cost))
        }
        EventKind::ToolResultError { name, content, cost, .. } => {
            // The model is given the error as JSON; people read its message, of a denial with the lines to add.
            let error = serde_json::from_str::<ToolError>(content);
            let advice = match &error {
                Ok(ToolError::Denied { message }) => advice(message),
                _ => String::new(),
            };
            let content = error.map_or_else(|_| content.clone(), |error| explained(&error));
            format!("{RED}✗{RED:#} {}{advice}", result(name, &content, cost))
        }
        EventKind::ToolNotFound { name, .. } => {
            format!("{RED}✗{RED:#} {BOLD}{}{BOLD:#} there is no such tool", one_line(name, SHOWN))
        }
        EventKind::ToolDeferred { name, .. } => {
            format!("{DIM}… {} deferred: a call of higher priority ran first{DIM:#}", one_line(name, SHOWN))
        }
        EventKind::Denied { denial: Denial { plugin, thing, grant }, .. } => {
            let grant = super::text::harmless(grant).replace('\n', "\n    ");
            let thing = one_line(thing, SHOWN);
            format!("{YELLOW}!{YELLOW:#} {BOLD}{plugin}{BOLD:#} was denied {thing}; to allow it, {grant}")
        }
        EventKind::OutputRejected { by, attempt, problems } => {
            format!("{YELLOW}!{YELLOW:#} answer {attempt} was rejected by {BOLD}{by}{BOLD:#}: {}", violations(problems))
        }
        EventKind::Resumed => format!("{DIM}going on with the interrupted turn{DIM:#}"),
        _ => return None,
    })
}

/// What the spinner says after this event.
pub(crate) fn activity(event: &EventKind) -> Option<String> {
    match event {
        EventKind::LoopStart { .. } => Some("building the context".to_owned()),
        EventKind::LoopIteration { .. } => Some("waiting for the model".to_owned()),
        EventKind::ToolCall { name, .. } => Some(format!("running {}", one_line(name, SHOWN))),
        _ => None,
    }
}

/// The line of a result that holds nothing but media, each described already.
pub(crate) fn media_result(name: &str, media: &str, cost: &CallCost) -> String {
    format!("{GREEN}✓{GREEN:#} {}", result_line(name, media, Vec::new(), cost))
}

fn result(name: &str, content: &str, cost: &CallCost) -> String {
    result_line(name, content, vec![count(content.chars().count(), "character")], cost)
}

fn result_line(name: &str, content: &str, mut details: Vec<String>, cost: &CallCost) -> String {
    // A call that was refused before it ran has cost nothing.
    if *cost != CallCost::default() {
        details.push(time(cost.wall_us));
    }
    if cost.memory_bytes > 0 {
        details.push(size(cost.memory_bytes));
    }
    let name = one_line(name, SHOWN);
    let details = if details.is_empty() { String::new() } else { format!(" {DIM}({}){DIM:#}", details.join(", ")) };
    format!("{BOLD}{name}{BOLD:#} {}{details}", one_line(content, SHOWN))
}

/// What follows the first line of a denial: how to grant what was missing.
fn advice(message: &str) -> String {
    let lines = message.lines().skip(1).take(ADVICE_LINES).map(|line| format!("\n    {}", one_line(line, SHOWN)));
    lines.collect()
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
    use serde_json::json;

    fn shown(event: EventKind) -> String {
        anstream::adapter::strip_str(&lines(&event).unwrap_or_default()).to_string()
    }

    #[test]
    fn calls_and_results_are_one_line_each() {
        let call = CallId("c1".into());
        let name = "text.count_file".to_owned();
        let cost = CallCost { cpu_us: 400, wall_us: 4_200, queue_us: 0, memory_bytes: 1_258_291 };
        let events = [
            EventKind::ToolCall {
                call: call.clone(),
                name: name.clone(),
                arguments: json!({"path": "x".repeat(200)}),
                attempt: 2,
            },
            EventKind::ToolResult { call: call.clone(), name: name.clone(), content: "{\n\"lines\": 3}".into(), cost },
            EventKind::ToolResultError {
                call: call.clone(),
                name: name.clone(),
                content: "no\u{1b}[2J".into(),
                cost: CallCost::default(),
            },
            EventKind::ToolResultError {
                call: call.clone(),
                name: name.clone(),
                content: ToolError::NotFound { message: "there is no `a.txt`".into() }.for_model(),
                cost,
            },
            EventKind::ToolResultError {
                call: call.clone(),
                name: name.clone(),
                content: ToolError::Denied { message: "no tree\nTo allow it, add:\nread = [\".\"]".into() }.for_model(),
                cost,
            },
            EventKind::ToolNotFound { call, name: "text.cuont".into() },
        ];
        insta::assert_snapshot!(events.map(shown).join("\n"), @r#"
        → text.count_file {"path":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx… (attempt 2)
        ✓ text.count_file {… (13 characters, 4.2 ms, 1.2 MiB)
        ✗ text.count_file no�[2J (6 characters)
        ✗ text.count_file not found: there is no `a.txt` (30 characters, 4.2 ms, 1.2 MiB)
        ✗ text.count_file denied: no tree… (46 characters, 4.2 ms, 1.2 MiB)
            To allow it, add:
            read = ["."]
        ✗ text.cuont there is no such tool
        "#);
    }

    #[test]
    fn media_are_shown_by_type_and_size() {
        let cost = CallCost { wall_us: 4_200, ..CallCost::default() };
        let line = media_result("chart.draw", "[image/png, 1.2 KiB, 0123]", &cost);
        let line = anstream::adapter::strip_str(&line).to_string();
        assert_eq!(line, "✓ chart.draw [image/png, 1.2 KiB, 0123] (4.2 ms)");
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
