//! Problems in a configuration file. Each problem is displayed together with the line of the file that contains
//! the problem.

use super::hidden_secrets::without_secrets;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Maximum number of columns of a line in an excerpt.
const SHOWN_COLUMNS: usize = 160;

/// Maximum number of problems that are shown at once.
pub(super) const SHOWN_PROBLEMS: usize = 50;

/// Maximum number of problems of a file that are described. Further problems are only counted, because the description of a problem
/// can be long, and takes time.
pub(super) const DESCRIBED_PROBLEMS: usize = 200;

/// The reason why a configuration file cannot be used.
#[derive(Debug)]
pub enum ConfigurationError {
    /// The file cannot be read.
    Unreadable {
        /// Path of the file that cannot be read.
        path: PathBuf,
        /// The I/O error that occurred while the file was read.
        source: std::io::Error,
    },
    /// The contents of the file are invalid.
    Invalid {
        /// Path of the invalid file.
        path: PathBuf,
        /// Text of the file, in which secrets are replaced with `*`.
        text: String,
        /// The problems in the order of their locations in the text. The list contains at least one problem.
        problems: Vec<Problem>,
        /// Number of further problems, which are not in the list.
        further: usize,
    },
}

/// A problem in a configuration file, with its location in the text.
#[derive(Debug)]
pub struct Problem {
    /// Byte range of the problem in the text of the file.
    pub(super) span: Range<usize>,
    /// Description of the problem, as a sentence without a full stop.
    pub(super) message: String,
    /// The allowed values, or advice on how to fix the problem.
    pub(super) allowed: String,
}

/// A problem of a file with its place, for editors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocatedProblem {
    /// Line of the file, from 1. `None` if the problem does not belong to a line of the file.
    pub line: Option<usize>,
    /// Column of the line in characters, from 1. `None` if it is not known.
    pub column: Option<usize>,
    /// Description of the problem. It begins with the key, if a key has the problem.
    pub message: String,
    /// The allowed values, or advice on how to fix the problem. It may be empty.
    pub advice: String,
}

impl ConfigurationError {
    /// Returns the problems with their places, at most 50.
    pub fn located(&self) -> Vec<LocatedProblem> {
        match self {
            Self::Unreadable { .. } => {
                vec![LocatedProblem { line: None, column: None, message: self.to_string(), advice: String::new() }]
            }
            Self::Invalid { text, problems, .. } => {
                let located = problems.iter().take(SHOWN_PROBLEMS).map(|problem| {
                    let (line, column) = position(text, problem.span.start);
                    let (message, advice) = (problem.message.clone(), problem.allowed.clone());
                    LocatedProblem { line: Some(line), column: Some(column), message, advice }
                });
                located.collect()
            }
        }
    }
}

impl std::error::Error for ConfigurationError {}

impl fmt::Display for ConfigurationError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, source } => {
                write!(formatter, "the configuration file `{}` cannot be read: {source}", path.display())
            }
            Self::Invalid { path, text, problems, further } => {
                for (index, problem) in problems.iter().take(SHOWN_PROBLEMS).enumerate() {
                    if index > 0 {
                        formatter.write_str("\n\n")?;
                    }
                    let (line, column) = position(text, problem.span.start);
                    writeln!(formatter, "{}:{line}:{column}: {}", path.display(), problem.message)?;
                    write!(formatter, "{}", Excerpt { text, problem, line, column })?;
                }
                match problems.len().saturating_sub(SHOWN_PROBLEMS).saturating_add(*further) {
                    0 => Ok(()),
                    more => write!(formatter, "\n\nand {more} more problems"),
                }
            }
        }
    }
}

/// Adds an excerpt of the file to a problem that was found after the file was read. The problem's text must begin with
/// `FILE:LINE: `, with the same number as `line`. Secrets are hidden in the excerpt.
pub fn with_line(path: &Path, text: &str, (line, problem): (usize, &str)) -> String {
    let lead = format!("{}:{line}: ", path.display());
    let (Some(message), Some(line_text)) = (problem.strip_prefix(&lead), text.lines().nth(line - 1)) else {
        return problem.to_owned();
    };
    let begin: usize = text.split_inclusive('\n').take(line - 1).map(str::len).sum();
    let (start, end) = value_in(line_text);
    let message = message.to_owned();
    let problem = Problem { span: begin + start..begin + end, message, allowed: String::new() };
    let text = without_secrets(text, &[]);
    let (line, column) = position(&text, problem.span.start);
    let excerpt = Excerpt { text: &text, problem: &problem, line, column }.to_string();
    let excerpt = excerpt.lines().take(2).collect::<Vec<_>>().join("\n");
    format!("{}:{line}:{column}: {}\n{excerpt}", path.display(), problem.message)
}

/// Returns the byte range of the value in a line `key = value`. If the line contains no `=`, returns the range of the
/// whole line.
fn value_in(line: &str) -> (usize, usize) {
    let end = line.trim_end().len();
    let from = line.split_once('=').map_or(0, |(key, _)| key.len() + 1).min(end);
    let leading_blanks = line[from..end].len() - line[from..end].trim_start().len();
    (from + leading_blanks, end)
}

/// Returns the line and the column of a byte offset. Lines and columns count from 1, and columns are counted
/// in characters.
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
        let spanned_width = spanned.lines().next().unwrap_or_default().chars().count().max(1);
        let available_width = line.chars().count().saturating_sub(self.column - 1).max(1);
        writeln!(formatter, "  {number} | {line}")?;
        writeln!(
            formatter,
            "  {margin} | {}{}",
            " ".repeat(self.column - 1),
            "^".repeat(spanned_width.min(available_width))
        )?;
        write!(formatter, "  {margin} = {}", self.problem.allowed)
    }
}
