//! Searches the lines of one file, or of the files of a directory tree.

mod report;

use crate::expression::Expression;
use crate::globs::Globs;
use crate::lookup;
use crate::walk::{Entry, Kind, Next, Visibility, walk};
use agent_host_sdk::tool::{Call, ToolError};
use report::Report;
use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

/// Maximum value of [`Limits::matches`].
pub const MAX_MATCHES: u32 = 1_000;
/// Maximum number of lines to show around a match.
pub const MAX_CONTEXT: u32 = 10;
/// Number of bytes of a line that are shown if the call does not set a limit.
pub const DEFAULT_LINE_BYTES: u32 = 400;
/// Maximum size of a file that is searched, in bytes. Larger files are left out.
pub const MAX_FILE_SIZE: u64 = 4 * 1024 * 1024;
/// Maximum number of files that are opened in one search.
const MAX_FILES: usize = 20_000;
/// Maximum total size of the files that are searched, in bytes.
const MAX_BYTES: u64 = 256 * 1024 * 1024;
/// Length of the result, in bytes, at which a search ends.
const MAX_TEXT: usize = 64 * 1024;
/// Number of bytes at the start of a file that are checked for a NUL byte, which marks a binary file.
const BINARY_CHECK_BYTES: usize = 8 * 1024;
/// Maximum size of a file that is read at once, in bytes. The beginning of a larger file is checked before the file is
/// read completely.
const WHOLE_READ: u64 = 64 * 1024;
/// Maximum depth of subdirectories that are searched.
const MAX_DEPTH: u32 = 64;
/// Number of lines after which the search checks the time.
const LINES_BETWEEN_CHECKS: usize = 4_096;

/// A search of one file or one directory tree.
pub struct Search<'a> {
    /// The path of the file or directory, as the call gives it. It is searched even if an ignore file excludes it.
    pub path: &'a str,
    /// What the search looks for.
    pub expression: Expression,
    /// Filters for the files of a directory.
    pub globs: Globs,
    /// Which entries of a directory are searched besides the visible ones.
    pub extra: Extra,
    /// Limits of the search and of its result.
    pub limits: Limits,
}

/// The entries that are searched although they are not visible.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extra {
    /// Searches entries whose names begin with a dot. `.git` is never searched.
    pub hidden: bool,
    /// Searches entries that the rules of ignore files exclude.
    pub ignored: bool,
}

/// The limits of a search.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Number of lines to show before and after each match.
    pub context: u32,
    /// Number of matching lines after which the search ends.
    pub matches: u32,
    /// Number of bytes of a line that are shown.
    pub line_bytes: u32,
    /// Time after which the search ends.
    pub time: Duration,
}

impl Limits {
    /// Returns the time that a search may take in a call: two thirds of the time of the call, so that the search can
    /// return what it has found.
    pub fn time_within(call: &Call) -> Duration {
        Duration::from_millis(u64::from(call.time_limit) * 2 / 3)
    }
}

impl Search<'_> {
    /// Runs the search. Returns the matching lines as `path:line: text` in the order of the paths, and a last line in
    /// square brackets that counts the matches and files, and says what was left out.
    pub fn run(&self) -> Result<String, ToolError> {
        let root = lookup::entry(self.path)?;
        let mut run = Run { search: self, report: Report::default(), files: 0, bytes: 0, start: Instant::now() };
        if root.metadata.is_file() {
            let _ = run.search_file(&root.path, self.path);
            return Ok(run.report.finish());
        }
        let prefix = match self.path.trim_end_matches('/') {
            "" if self.path.starts_with('/') => "/".to_owned(),
            "" | "." => String::new(),
            path => format!("{path}/"),
        };
        let skipped = walk(&root.path, self.path, MAX_DEPTH, |entry| run.visit(entry, &prefix))?;
        for name in skipped.unreadable.iter().chain(&skipped.truncated) {
            run.report.leave_out(LeftOut::Directory, name);
        }
        for name in &skipped.ignore_files {
            run.report.leave_out(LeftOut::IgnoreFile, name);
        }
        Ok(run.report.finish())
    }
}

/// A reason why something was left out. The order is that of the reasons in the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum LeftOut {
    Ignored,
    Hidden,
    Binary,
    NotUtf8,
    Large,
    Unreadable,
    Directory,
    IgnoreFile,
}

/// The progress of a search.
struct Run<'a> {
    search: &'a Search<'a>,
    report: Report,
    /// Number of files that were opened.
    files: usize,
    /// Total size of the files that were searched, in bytes.
    bytes: u64,
    start: Instant,
}

impl Run<'_> {
    fn visit(&mut self, entry: &Entry, prefix: &str) -> Next {
        let name = || format!("{prefix}{}", entry.name);
        match entry.visibility {
            Visibility::Git => return Next::Skip,
            Visibility::Ignored if !self.search.extra.ignored => {
                self.report.leave_out(LeftOut::Ignored, &name());
                return Next::Skip;
            }
            Visibility::Hidden if !self.search.extra.hidden => {
                self.report.leave_out(LeftOut::Hidden, &name());
                return Next::Skip;
            }
            _ => {}
        }
        // With `ignored`, a hidden entry that is also excluded by a rule is still hidden.
        if entry.visibility == Visibility::Ignored && is_hidden(&entry.name) && !self.search.extra.hidden {
            self.report.leave_out(LeftOut::Hidden, &name());
            return Next::Skip;
        }
        if entry.kind == Kind::File && self.search.globs.accept(&entry.name) {
            return match self.search_file(&entry.path, &name()) {
                ControlFlow::Continue(()) => Next::Skip,
                ControlFlow::Break(()) => Next::Stop,
            };
        }
        Next::Enter
    }

    fn search_file(&mut self, path: &Path, name: &str) -> ControlFlow<()> {
        if self.files == MAX_FILES || self.bytes >= MAX_BYTES || self.is_out_of_time() {
            return self.end(format!("before `{name}`, after {} files", self.files));
        }
        self.files += 1;
        let content = match read_content(path) {
            Ok(Content::Text(content)) => content,
            Ok(Content::LeftOut(reason)) => return self.leave_out(reason, name),
            Err(_) => return self.leave_out(LeftOut::Unreadable, name),
        };
        self.bytes += content.len() as u64;
        self.report.begin_file();
        if !self.search.expression.may_match_a_line_of(&content) {
            return ControlFlow::Continue(());
        }
        self.search_lines(name, &content)
    }

    fn search_lines(&mut self, name: &str, content: &str) -> ControlFlow<()> {
        let lines = content.lines().collect::<Vec<_>>();
        // The first line that the result does not contain yet.
        let mut shown = 0;
        for (index, line) in lines.iter().enumerate() {
            if index % LINES_BETWEEN_CHECKS == LINES_BETWEEN_CHECKS - 1 && self.is_out_of_time() {
                return self.end(format!("in `{name}`, before line {}", index + 1));
            }
            if !self.search.expression.matches(line) {
                continue;
            }
            if self.report.matches() == self.search.limits.matches || self.report.bytes() >= MAX_TEXT {
                return self.end(format!("in `{name}`, before line {}", index + 1));
            }
            self.report.add_match();
            shown = self.show(name, &lines, index, shown);
        }
        ControlFlow::Continue(())
    }

    /// Adds a match and the lines around the match to the result. Lines that the result already contains are not
    /// repeated. Returns the index of the line after the last line that was added.
    fn show(&mut self, name: &str, lines: &[&str], index: usize, shown: usize) -> usize {
        let Limits { context, line_bytes, .. } = self.search.limits;
        let first = index.saturating_sub(context as usize).max(shown);
        let last = (index + context as usize).min(lines.len() - 1);
        if context > 0 && (shown == 0 || first > shown) {
            self.report.separate();
        }
        for (number, line) in lines.iter().enumerate().take(last + 1).skip(first) {
            let position = self.search.expression.first_match(line);
            // Stop before the line of the next match, because that match is added separately.
            if number > index && position.is_some() {
                return number;
            }
            let mark = if position.is_some() { ':' } else { '-' };
            let text = crate::line_excerpt::excerpt(line, position.unwrap_or(0), line_bytes as usize);
            self.report.add_line(format_args!("{name}:{}{mark} {text}", number + 1));
        }
        last + 1
    }

    fn is_out_of_time(&self) -> bool {
        self.start.elapsed() >= self.search.limits.time
    }

    fn leave_out(&mut self, reason: LeftOut, name: &str) -> ControlFlow<()> {
        self.report.leave_out(reason, name);
        ControlFlow::Continue(())
    }

    fn end(&mut self, position: String) -> ControlFlow<()> {
        let reason = if self.report.matches() == self.search.limits.matches {
            "the maximum number of matches"
        } else if self.report.bytes() >= MAX_TEXT {
            "the maximum size of the result"
        } else if self.is_out_of_time() {
            "the time"
        } else {
            "the maximum amount of files"
        };
        self.report.end(format!("stopped {position}, because {reason} was reached; there may be more"));
        ControlFlow::Break(())
    }
}

fn is_hidden(name: &str) -> bool {
    name.rsplit('/').next().is_some_and(|name| name.starts_with('.'))
}

/// The text of a file, or the reason why the file is not searched.
enum Content {
    Text(String),
    LeftOut(LeftOut),
}

fn read_content(path: &Path) -> io::Result<Content> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    if size > MAX_FILE_SIZE {
        return Ok(Content::LeftOut(LeftOut::Large));
    }
    // The capacity is one byte larger than the file, so that the end of the file is found without growing the buffer.
    let mut bytes = Vec::with_capacity(size as usize + 1);
    if size > WHOLE_READ {
        file.by_ref().take(BINARY_CHECK_BYTES as u64).read_to_end(&mut bytes)?;
        if bytes.contains(&0) {
            return Ok(Content::LeftOut(LeftOut::Binary));
        }
    }
    file.take(MAX_FILE_SIZE).read_to_end(&mut bytes)?;
    if bytes[..bytes.len().min(BINARY_CHECK_BYTES)].contains(&0) {
        return Ok(Content::LeftOut(LeftOut::Binary));
    }
    Ok(String::from_utf8(bytes).map_or(Content::LeftOut(LeftOut::NotUtf8), Content::Text))
}
