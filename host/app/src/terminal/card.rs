//! Formats a call and its result as one card: name, arguments, cost and result.

use super::cost;
use super::events::denied;
use super::json_list::lines_of;
use super::text::{count, cut, harmless, size, wrapped};
use super::{BOLD, DIM, GREEN, RED};
use agent_core::change::Denial;
use agent_core::tool::{CallCost, errors_as_sentences};
use serde_json::Value;
use unicode_width::UnicodeWidthStr;

/// Maximum number of displayed lines of a result.
const RESULT_LINES: usize = 6;
/// Maximum number of displayed lines of an error. This limit is larger than the limit for a result, because an
/// error explains what to do.
const ERROR_LINES: usize = 12;
/// Maximum number of lines for arguments that don't fit on the line of the name.
const ARGUMENT_LINES: usize = 6;
/// Arguments are shown on the line of the name only if at least this many columns are left for them.
const MIN_INLINE_COLUMNS: usize = 16;

/// A call that has ended.
#[derive(Clone, Debug)]
pub(crate) struct Card<'c> {
    /// Name of the tool, not yet escaped for the terminal.
    pub(crate) name: &'c str,
    /// Arguments of the call. None if the arguments are unknown.
    pub(crate) arguments: Option<&'c Value>,
    /// Number of the attempt, starting with 1.
    pub(crate) attempt: u32,
    /// Result or error of the call.
    pub(crate) outcome: Outcome,
    /// Resources that the call used.
    pub(crate) cost: CallCost,
}

/// Outcome of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The text of the result, which may be shortened, and the size of the complete text in bytes.
    Text(String, usize),
    /// A description of the returned media.
    Media(String),
    /// The text of the error, as the model gets it, and what the call was denied. Each denial is shown once, below the error.
    Error(String, Vec<Denial>),
}

impl Card<'_> {
    /// Formats the card for a terminal with `width` columns. If lines are omitted, `hint` is appended to the line that
    /// reports how much is omitted. `hint` names the command that shows all lines.
    pub(crate) fn render(&self, width: usize, hint: &str) -> String {
        let mark = match self.outcome {
            Outcome::Error(..) => format!("{RED}✗{RED:#}"),
            _ => format!("{GREEN}✓{GREEN:#}"),
        };
        let details = cost::brief(&self.cost);
        let name = cut(self.name, width.saturating_sub(2));
        let mut line = format!("{mark} {BOLD}{name}{BOLD:#}");
        let mut columns_left = width.saturating_sub(2 + name.width());
        let (inline, below) = self.arguments(columns_left.saturating_sub(details.width() + 2), width);
        if !inline.is_empty() {
            columns_left = columns_left.saturating_sub(1 + inline.width());
            line.push_str(&format!(" {inline}"));
        }
        let mut lines = Vec::new();
        if !details.is_empty() && details.width() + 2 <= columns_left {
            lines.push(format!("{line} {DIM}({details}){DIM:#}"));
        } else {
            lines.push(line);
        }
        lines.extend(below.iter().map(|line| format!("  {DIM}{line}{DIM:#}")));
        lines.extend(self.result(width.saturating_sub(2), hint).iter().map(|line| format!("  {line}")));
        lines.join("\n")
    }

    /// Returns the arguments that are shown on the line of the name, and the lines that are shown below that line. If
    /// the arguments don't fit on the line of the name, each argument gets a line below it instead.
    fn arguments(&self, columns_left: usize, width: usize) -> (String, Vec<String>) {
        let attempt = if self.attempt > 1 { format!("(attempt {}) ", self.attempt) } else { String::new() };
        let Some(arguments) = self.arguments.filter(|arguments| **arguments != Value::Object(Default::default()))
        else {
            return (attempt.trim_end().to_owned(), Vec::new());
        };
        let line = format!("{attempt}{arguments}");
        if line.width() <= columns_left {
            return (harmless(&line).into_owned(), Vec::new());
        }
        match arguments {
            Value::Object(fields) if columns_left < MIN_INLINE_COLUMNS || fields.len() > 1 => {
                let shown = fields.iter().take(ARGUMENT_LINES);
                let mut below: Vec<_> =
                    shown.map(|(name, value)| cut(&format!("{name}: {value}"), width.saturating_sub(2))).collect();
                if fields.len() > ARGUMENT_LINES {
                    below.push(format!("… {} more", fields.len() - ARGUMENT_LINES));
                }
                (attempt.trim_end().to_owned(), below)
            }
            _ => (cut(&line, columns_left.max(MIN_INLINE_COLUMNS)), Vec::new()),
        }
    }

    fn result(&self, width: usize, hint: &str) -> Vec<String> {
        match &self.outcome {
            Outcome::Media(media) => vec![cut(media, width)],
            Outcome::Text(text, bytes) => first_lines(text, *bytes, (width, hint)),
            // The message of a denial includes the configuration lines to add.
            Outcome::Error(content, denials) => {
                let message = without_denials(errors_as_sentences(content), denials);
                let message = harmless(&message).into_owned();
                let all = wrapped(message.trim_end(), width);
                let omitted = all.lines().count().saturating_sub(ERROR_LINES);
                let mut lines: Vec<_> = all.lines().take(ERROR_LINES).map(str::to_owned).collect();
                if omitted > 0 {
                    lines.push(format!("{DIM}… {}{hint}{DIM:#}", count(omitted, "more line")));
                }
                let denials = denials.iter().map(|denial| wrapped(&denied(denial), width));
                lines.extend(denials.flat_map(|denial| denial.lines().map(str::to_owned).collect::<Vec<_>>()));
                lines
            }
        }
    }
}

/// Removes denials from an error message, because they are shown as separate lines.
pub(crate) fn without_denials<'d>(mut error: String, denials: impl IntoIterator<Item = &'d Denial>) -> String {
    for Denial { thing, grant, .. } in denials {
        error = error.replacen(&format!("\n{}", Denial::in_error(thing, grant)), "", 1);
    }
    error
}

/// Returns the first lines of a text, and one line that reports how much was omitted. A JSON list or object has a line for
/// each entry. `bytes` is the size of the complete text.
fn first_lines(text: &str, bytes: usize, (width, hint): (usize, &str)) -> Vec<String> {
    let listed = lines_of(text);
    let all: Vec<&str> = match &listed {
        Some(lines) => lines.iter().map(String::as_str).collect(),
        None => text.trim_end().lines().collect(),
    };
    let mut lines: Vec<_> = all.iter().take(RESULT_LINES).map(|line| cut(line, width)).collect();
    let is_whole = bytes <= text.len() && all.iter().take(RESULT_LINES).all(|line| line.width() <= width);
    let omitted = all.len().saturating_sub(RESULT_LINES);
    if omitted > 0 || !is_whole {
        let size = size(bytes.max(text.len()) as u64);
        let note = match omitted {
            0 => format!("{size} in total"),
            _ => format!("{}, {size}", count(omitted, "more line")),
        };
        lines.push(format!("{DIM}… {note}{hint}{DIM:#}"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_core::tool::ToolError;
    use serde_json::json;

    fn shown(card: &Card<'_>, width: usize) -> String {
        let shown = card.render(width, ": /result");
        let shown = anstream::adapter::strip_str(&shown).to_string();
        assert!(shown.lines().all(|line| line.width() <= width), "{shown}");
        shown
    }

    fn card(arguments: &Value, outcome: Outcome) -> Card<'_> {
        let cost = CallCost { cpu_us: 400, wall_us: 4_200, memory_bytes: 1_258_291, ..CallCost::default() };
        Card { name: "text.count_file", arguments: Some(arguments), attempt: 1, outcome, cost }
    }

    #[test]
    fn shows_short_call_on_two_lines() {
        let arguments = json!({"path": "README.md"});
        let card = card(&arguments, Outcome::Text("3 lines\n".into(), 8));
        let wide = "✓ text.count_file {\"path\":\"README.md\"} (4.2 ms, 1.2 MiB)\n  3 lines";
        assert_eq!(shown(&card, 80), wide);
        assert_eq!(shown(&card, 20), "✓ text.count_file\n  path: \"README.md\"\n  3 lines");
    }

    #[test]
    fn shortens_long_arguments_and_results() {
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
          … 494 more lines, 20.9 KiB: /result
        "#);
    }

    #[test]
    fn shows_size_of_long_line() {
        let arguments = json!({});
        let long = Outcome::Text("x".repeat(6_000), 20_480);
        let result = shown(&card(&arguments, long), 30);
        assert_eq!(result, format!("✓ text.count_file\n  {}…\n  … 20.0 KiB in total: /result", "x".repeat(27)));
    }

    /// P6: an error is shown in words, and a denial is shown with the configuration lines to add.
    #[test]
    fn p6_shows_errors_in_words() {
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

    /// P6: what a call was denied is shown once, completely, below an error of any length.
    #[test]
    fn p6_denials_are_shown_once_below_the_error() {
        let denial = Denial {
            plugin: "text@0123456789ab".into(),
            thing: "reading files".into(),
            grant: "add to agent.toml:\n[plugins.text.grants]\nread = [\".\"]".into(),
        };
        let message = format!("{}\n{}", "line\n".repeat(20), Denial::in_error(&denial.thing, &denial.grant));
        let error = ToolError::Failed { message }.for_model();
        let arguments = json!({"path": "a"});
        let mut card = card(&arguments, Outcome::Error(error, vec![denial]));
        card.cost = CallCost::default();
        let shown = shown(&card, 90);
        assert_eq!(shown.matches("reading files").count(), 1, "{shown}");
        assert!(shown.contains("\n  … 8 more lines: /result\n"), "{shown}");
        let expected = "\n  text@0123456789ab is not granted reading files. To allow it, add to agent.toml:\n      \
                        [plugins.text.grants]\n      read = [\".\"]";
        assert!(shown.ends_with(expected), "{shown}");
    }

    /// L28, row 8: an error is shown in words even if the error was shortened or a warning precedes it.
    #[test]
    fn l28_row_8_a_cut_error_and_an_error_after_a_warning_are_shown_in_words() {
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
