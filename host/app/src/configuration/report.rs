//! Problems of a configuration file, shown with the line that they are on.

use super::document::without_secrets;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Most columns of a line that are shown.
const SHOWN_COLUMNS: usize = 160;

/// Most problems that are shown at once.
pub(super) const SHOWN_PROBLEMS: usize = 50;

/// Why a configuration cannot be used.
#[derive(Debug)]
pub(crate) enum ConfigurationError {
    /// The file cannot be read.
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The file holds something wrong.
    Invalid {
        /// Which.
        path: PathBuf,
        /// Its text.
        text: String,
        /// In order of place; at least one.
        problems: Vec<Problem>,
    },
}

/// One problem and its place.
#[derive(Debug)]
pub(crate) struct Problem {
    /// Bytes of the text.
    pub(super) span: Range<usize>,
    /// What is wrong.
    pub(super) message: String,
    /// What is allowed, or what to do.
    pub(super) allowed: String,
}

impl std::error::Error for ConfigurationError {}

impl fmt::Display for ConfigurationError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, source } => {
                write!(formatter, "the configuration `{}` cannot be read: {source}", path.display())
            }
            Self::Invalid { path, text, problems } => {
                for (index, problem) in problems.iter().take(SHOWN_PROBLEMS).enumerate() {
                    if index > 0 {
                        formatter.write_str("\n\n")?;
                    }
                    let (line, column) = position(text, problem.span.start);
                    writeln!(formatter, "{}:{line}:{column}: {}", path.display(), problem.message)?;
                    write!(formatter, "{}", Excerpt { text, problem, line, column })?;
                }
                match problems.len().saturating_sub(SHOWN_PROBLEMS) {
                    0 => Ok(()),
                    more => write!(formatter, "\n\nand {more} more problems"),
                }
            }
        }
    }
}

/// A problem that was found behind the reader and begins with `FILE:LINE: `, shown as the reader's own are. `line` is that
/// line. What the file says there is shown without secrets.
pub(crate) fn with_line(path: &Path, text: &str, (line, problem): (usize, &str)) -> String {
    let lead = format!("{}:{line}: ", path.display());
    let (Some(message), Some(written)) = (problem.strip_prefix(&lead), text.lines().nth(line - 1)) else {
        return problem.to_owned();
    };
    let begin: usize = text.split_inclusive('\n').take(line - 1).map(str::len).sum();
    let (start, end) = value_in(written);
    let message = message.to_owned();
    let problem = Problem { span: begin + start..begin + end, message, allowed: String::new() };
    let text = without_secrets(text, &[]);
    let (line, column) = position(&text, problem.span.start);
    let excerpt = Excerpt { text: &text, problem: &problem, line, column }.to_string();
    let excerpt = excerpt.lines().take(2).collect::<Vec<_>>().join("\n");
    format!("{}:{line}:{column}: {}\n{excerpt}", path.display(), problem.message)
}

/// What stands behind the key of a line, or the line where it has none.
fn value_in(line: &str) -> (usize, usize) {
    let end = line.trim_end().len();
    let from = line.split_once('=').map_or(0, |(key, _)| key.len() + 1).min(end);
    let blank = line[from..end].len() - line[from..end].trim_start().len();
    (from + blank, end)
}

/// Line and column of a byte, both from 1; columns count characters.
fn position(text: &str, byte: usize) -> (usize, usize) {
    let before = &text[..text.floor_char_boundary(byte)];
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

struct Excerpt<'e> {
    text: &'e str,
    problem: &'e Problem,
    line: usize,
    column: usize,
}

impl fmt::Display for Excerpt<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line: String =
            self.text.lines().nth(self.line - 1).unwrap_or_default().chars().take(SHOWN_COLUMNS).collect();
        let line = line.replace('\t', " ");
        let number = self.line.to_string();
        let margin = " ".repeat(number.len());
        let spanned = self.text.get(self.problem.span.clone()).unwrap_or_default();
        let wanted = spanned.lines().next().unwrap_or_default().chars().count().max(1);
        let room = line.chars().count().saturating_sub(self.column - 1).max(1);
        writeln!(formatter, "  {number} | {line}")?;
        writeln!(formatter, "  {margin} | {}{}", " ".repeat(self.column - 1), "^".repeat(wanted.min(room)))?;
        write!(formatter, "  {margin} = {}", self.problem.allowed)
    }
}
