//! Problems of a configuration file, shown with the line that they are on.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

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
