//! A call and its result as one card: what was asked, what came of it, what it cost.

use super::cost;
use super::text::{count, cut, harmless, size, wrapped};
use super::{BOLD, DIM, GREEN, RED};
use agent_core::change::Denial;
use agent_core::tool::{CallCost, errors_in_words};
use serde_json::Value;
use unicode_width::UnicodeWidthStr;

/// Lines of a result that are shown.
const RESULT_LINES: usize = 6;
/// Lines of an error that are shown: it says what to do.
const ERROR_LINES: usize = 12;
/// Lines of the arguments that are shown, where they don't fit beside the name.
const ARGUMENT_LINES: usize = 6;
/// Columns below which arguments are not shown beside the name.
const LEAST_BESIDE: usize = 16;

/// A call that has ended.
#[derive(Clone, Debug)]
pub(crate) struct Card<'c> {
    /// Of the tool, as its author wrote it.
    pub(crate) name: &'c str,
    /// Where they are known.
    pub(crate) arguments: Option<&'c Value>,
    /// From 1.
    pub(crate) attempt: u32,
    /// What came of it.
    pub(crate) outcome: Outcome,
    /// What it cost.
    pub(crate) cost: CallCost,
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A text, and bytes of the whole result where that is more.
    Text(String, usize),
    /// Media, described already.
    Media(String),
    /// The error, as the model is given it, and the denials that were shown already.
    Error(String, Vec<Denial>),
}

impl Card<'_> {
    /// The card on a terminal of so many columns. `rest` says where the lines are that are left out.
    pub(crate) fn shown(&self, width: usize, rest: &str) -> String {
        let mark = match self.outcome {
            Outcome::Error(..) => format!("{RED}✗{RED:#}"),
            _ => format!("{GREEN}✓{GREEN:#}"),
        };
        let details = cost::brief(&self.cost);
        let name = cut(self.name, width.saturating_sub(2));
        let mut line = format!("{mark} {BOLD}{name}{BOLD:#}");
        let mut room = width.saturating_sub(2 + name.width());
        let (beside, below) = self.arguments(room.saturating_sub(details.width() + 2), width);
        if !beside.is_empty() {
            room = room.saturating_sub(1 + beside.width());
            line.push_str(&format!(" {beside}"));
        }
        let mut lines = Vec::new();
        if !details.is_empty() && details.width() + 2 <= room {
            lines.push(format!("{line} {DIM}({details}){DIM:#}"));
        } else {
            lines.push(line);
        }
        lines.extend(below.iter().map(|line| format!("  {DIM}{line}{DIM:#}")));
        lines.extend(self.result(width.saturating_sub(2), rest).iter().map(|line| format!("  {line}")));
        lines.join("\n")
    }

    /// The arguments beside the name, or, where they are too long for that, one a line.
    fn arguments(&self, room: usize, width: usize) -> (String, Vec<String>) {
        let again = if self.attempt > 1 { format!("(attempt {}) ", self.attempt) } else { String::new() };
        let Some(arguments) = self.arguments.filter(|arguments| **arguments != Value::Object(Default::default()))
        else {
            return (again.trim_end().to_owned(), Vec::new());
        };
        let line = format!("{again}{arguments}");
        if line.width() <= room {
            return (harmless(&line).into_owned(), Vec::new());
        }
        match arguments {
            Value::Object(fields) if room < LEAST_BESIDE || fields.len() > 1 => {
                let shown = fields.iter().take(ARGUMENT_LINES);
                let mut below: Vec<_> =
                    shown.map(|(name, value)| cut(&format!("{name}: {value}"), width.saturating_sub(2))).collect();
                if fields.len() > ARGUMENT_LINES {
                    below.push(format!("… {} more", fields.len() - ARGUMENT_LINES));
                }
                (again.trim_end().to_owned(), below)
            }
            _ => (cut(&line, room.max(LEAST_BESIDE)), Vec::new()),
        }
    }

    fn result(&self, width: usize, rest: &str) -> Vec<String> {
        match &self.outcome {
            Outcome::Media(media) => vec![cut(media, width)],
            Outcome::Text(text, bytes) => beginning(text, *bytes, (width, rest)),
            // People read the error's message, of a denial with the lines to add.
            Outcome::Error(content, denials) => {
                let message = without(errors_in_words(content), denials);
                let message = harmless(&message).into_owned();
                let all = wrapped(message.trim_end(), width);
                let left = all.lines().count().saturating_sub(ERROR_LINES);
                let mut lines: Vec<_> = all.lines().take(ERROR_LINES).map(str::to_owned).collect();
                if left > 0 {
                    lines.push(format!("{DIM}… {} more{rest}{DIM:#}", count(left, "line")));
                }
                lines
            }
        }
    }
}

/// A failed call's error without the denials of which people were told by themselves.
pub(crate) fn without<'d>(mut error: String, denials: impl IntoIterator<Item = &'d Denial>) -> String {
    for Denial { thing, grant, .. } in denials {
        error = error.replacen(&format!("\n{}", Denial::in_error(thing, grant)), "", 1);
    }
    error
}

/// The first lines of a text of which `bytes` there are, and how much is left out.
fn beginning(text: &str, bytes: usize, (width, rest): (usize, &str)) -> Vec<String> {
    let all: Vec<&str> = text.trim_end().lines().collect();
    let mut lines: Vec<_> = all.iter().take(RESULT_LINES).map(|line| cut(line, width)).collect();
    let is_whole = bytes <= text.len() && all.iter().take(RESULT_LINES).all(|line| line.width() <= width);
    let left = all.len().saturating_sub(RESULT_LINES);
    if left > 0 || !is_whole {
        let lines_left = if left > 0 { format!("{} more of ", count(left, "line")) } else { String::new() };
        lines.push(format!("{DIM}… {lines_left}{}{rest}{DIM:#}", size(bytes.max(text.len()) as u64)));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_core::tool::ToolError;
    use serde_json::json;

    fn shown(card: &Card<'_>, width: usize) -> String {
        let shown = card.shown(width, ": /result");
        let shown = anstream::adapter::strip_str(&shown).to_string();
        assert!(shown.lines().all(|line| line.width() <= width), "{shown}");
        shown
    }

    fn card(arguments: &Value, outcome: Outcome) -> Card<'_> {
        let cost = CallCost { cpu_us: 400, wall_us: 4_200, memory_bytes: 1_258_291, ..CallCost::default() };
        Card { name: "text.count_file", arguments: Some(arguments), attempt: 1, outcome, cost }
    }

    #[test]
    fn a_short_call_is_two_lines() {
        let arguments = json!({"path": "README.md"});
        let card = card(&arguments, Outcome::Text("3 lines\n".into(), 8));
        let wide = "✓ text.count_file {\"path\":\"README.md\"} (4.2 ms, 1.2 MiB)\n  3 lines";
        assert_eq!(shown(&card, 80), wide);
        assert_eq!(shown(&card, 20), "✓ text.count_file\n  path: \"README.md\"\n  3 lines");
    }

    #[test]
    fn long_arguments_and_results_are_shortened() {
        let arguments = json!({"path": "a.txt", "text": "x".repeat(200), "mode": "append"});
        let lines: String = (1..=500).map(|line| format!("line {line} of many, each of which has forty.\n")).collect();
        let card = card(&arguments, Outcome::Text(lines.clone(), lines.len()));
        insta::assert_snapshot!(shown(&card, 40), @r#"
        ✓ text.count_file (4.2 ms, 1.2 MiB)
          path: "a.txt"
          text: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…
          mode: "append"
          line 1 of many, each of which has for…
          line 2 of many, each of which has for…
          line 3 of many, each of which has for…
          line 4 of many, each of which has for…
          line 5 of many, each of which has for…
          line 6 of many, each of which has for…
          … 494 lines more of 20.9 KiB: /result
        "#);
    }

    #[test]
    fn one_long_line_says_how_long_it_is() {
        let arguments = json!({});
        let long = Outcome::Text("x".repeat(6_000), 20_480);
        let result = shown(&card(&arguments, long), 30);
        assert_eq!(result, format!("✓ text.count_file\n  {}…\n  … 20.0 KiB: /result", "x".repeat(27)));
    }

    /// P6: an error is shown for people, a denial with the lines to add.
    #[test]
    fn errors_are_read_by_people() {
        let denied = ToolError::Denied { message: "no tree\nTo allow it, add:\nread = [\".\"]\u{1b}[2J".into() };
        let arguments = json!({"path": "a"});
        let mut card = card(&arguments, Outcome::Error(denied.for_model(), Vec::new()));
        (card.cost, card.attempt) = (CallCost::default(), 2);
        insta::assert_snapshot!(shown(&card, 60), @r#"
        ✗ text.count_file (attempt 2) {"path":"a"}
          denied: no tree
          To allow it, add:
          read = ["."]\u{1b}[2J
        "#);
    }

    /// L28, row 8: with the warning before it, or cut, an error is told in the same words.
    #[test]
    fn l28_an_error_behind_a_warning_is_read_by_people() {
        let error = ToolError::Failed { message: "division by \"zero\"".into() }.for_model();
        let arguments = json!({"a": 1});
        let warned = format!("[the same call has failed three times]\n{error}");
        let mut card = card(&arguments, Outcome::Error(warned, Vec::new()));
        card.cost = CallCost::default();
        insta::assert_snapshot!(shown(&card, 60), @r#"
        ✗ text.count_file {"a":1}
          [the same call has failed three times]
          failed: division by "zero"
        "#);
        card.outcome =
            Outcome::Error(format!("{}\n[cut: the first 40 of 90 characters]", &error[..error.len() - 6]), Vec::new());
        insta::assert_snapshot!(shown(&card, 60), @r#"
        ✗ text.count_file {"a":1}
          failed: division by "ze…
          [cut: the first 40 of 90 characters]
        "#);
    }
}
