//! The tool `files.search`, which finds matching lines in files.

use crate::lookup;
use crate::walk::{Kind, walk};
use agent_host_sdk::prelude::*;
use fast_glob::glob_match;
use regex_lite::{Regex, RegexBuilder};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::Path;

/// Maximum value of the argument `limit`.
const MAX_MATCHES: u32 = 200;
/// Maximum number of files that are opened in one search.
const MAX_FILES: usize = 20_000;
/// Maximum value of the argument `context`.
const MAX_CONTEXT: u32 = 10;
/// Maximum size of a file that is searched, in bytes. Larger files are skipped.
const MAX_FILE_SIZE: u64 = 4 * 1024 * 1024;
/// Maximum total size of the files that are searched, in bytes.
const MAX_BYTES: u64 = 256 * 1024 * 1024;
/// Length of the result, in bytes, at which a search ends.
const MAX_TEXT: usize = 64 * 1024;
/// Maximum number of characters of a line in the result. Longer lines are truncated.
const MAX_LINE: usize = 400;
/// Number of bytes at the start of a file that are checked for a NUL byte, which marks a binary file.
const BINARY_CHECK_BYTES: usize = 8 * 1024;
/// Maximum depth of subdirectories that are searched.
const MAX_DEPTH: u32 = 64;

/// Arguments of `files.search`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Search {
    /// The directory tree or file to search, for example `src`.
    path: String,
    /// A regular expression that a line must match, for example `fn \w+_test`. Instead of `text`.
    pattern: Option<String>,
    /// A text that a line must contain. Instead of `pattern`.
    text: Option<String>,
    /// Treat upper and lower case as the same.
    #[serde(default)]
    ignore_case: bool,
    /// Only files whose path below `path` matches, for example `**/*.rs`. A glob without `/` applies to the file
    /// name.
    glob: Option<String>,
    /// Lines to show before and after each match, at most 10.
    #[serde(default)]
    #[schemars(range(max = 10))]
    context: u32,
    /// Maximum number of matches to return, at most 200.
    #[serde(default = "default_limit")]
    #[schemars(range(min = 1, max = 200))]
    limit: u32,
}

fn default_limit() -> u32 {
    50
}

/// Runs `files.search`.
pub(crate) fn search(arguments: Search) -> Result<String, ToolError> {
    if arguments.context > MAX_CONTEXT {
        return Err(ToolError::invalid("/context", format!("must be at most {MAX_CONTEXT}")));
    }
    if !(1..=MAX_MATCHES).contains(&arguments.limit) {
        return Err(ToolError::invalid("/limit", format!("must be 1 to {MAX_MATCHES}")));
    }
    let mut run = SearchRun::new(expression(&arguments)?, &arguments);
    let root = lookup::entry(&arguments.path)?;
    if root.metadata.is_file() {
        let _ = run.search_file(&root.path, &arguments.path);
    } else {
        let prefix = match arguments.path.trim_end_matches('/') {
            "" if arguments.path.starts_with('/') => "/".to_owned(),
            "" | "." => String::new(),
            path => format!("{path}/"),
        };
        let skipped = walk(&root.path, &arguments.path, MAX_DEPTH, |found| match found.kind {
            Kind::File if matches_glob(arguments.glob.as_deref(), &found.name) => {
                run.search_file(&found.path, &format!("{prefix}{}", found.name))
            }
            _ => ControlFlow::Continue(()),
        })?;
        for name in skipped.unreadable.iter().chain(&skipped.truncated) {
            run.note("directories that could not be read completely", name);
        }
    }
    Ok(run.answer())
}

fn expression(arguments: &Search) -> Result<Regex, ToolError> {
    let (pointer, pattern) = match (&arguments.pattern, &arguments.text) {
        (Some(pattern), None) => ("/pattern", pattern.clone()),
        (None, Some(text)) => ("/text", regex_lite::escape(text)),
        _ => return Err(ToolError::invalid("", "give either `pattern` or `text`")),
    };
    if pattern.is_empty() {
        return Err(ToolError::invalid(pointer, "must not be empty"));
    }
    RegexBuilder::new(&pattern)
        .case_insensitive(arguments.ignore_case)
        .size_limit(1024 * 1024)
        .build()
        .map_err(|error| ToolError::invalid(pointer, format!("is not a regular expression: {error}")))
}

fn matches_glob(glob: Option<&str>, name: &str) -> bool {
    match glob {
        None => true,
        Some(glob) if glob.contains('/') => glob_match(glob, name),
        Some(glob) => glob_match(glob, name.rsplit('/').next().unwrap_or(name)),
    }
}

/// The progress and the result of a search.
struct SearchRun {
    expression: Regex,
    context: usize,
    limit: u32,
    matches: u32,
    /// Number of files that were opened.
    files: usize,
    /// Number of files whose text was searched.
    searched: usize,
    bytes: u64,
    text: String,
    /// The skipped files. Each key is a reason why files were skipped. The value contains the number of files that were
    /// skipped for this reason, and the name of the first of these files.
    skipped: BTreeMap<&'static str, (usize, String)>,
    /// The reason why the search ended before all files were searched, or `None` if all files were searched.
    ended: Option<String>,
}

impl SearchRun {
    fn new(expression: Regex, arguments: &Search) -> Self {
        Self {
            expression,
            context: arguments.context as usize,
            limit: arguments.limit,
            matches: 0,
            files: 0,
            searched: 0,
            bytes: 0,
            text: String::new(),
            skipped: BTreeMap::new(),
            ended: None,
        }
    }

    fn search_file(&mut self, path: &Path, name: &str) -> ControlFlow<()> {
        if self.files == MAX_FILES || self.bytes >= MAX_BYTES {
            return self.end(format!("stopped before `{name}`, after {} files", self.files));
        }
        self.files += 1;
        let content = match read_content(path) {
            Ok(Content::Text(content)) => content,
            Ok(Content::Binary) => return self.skip("binary files", name),
            Ok(Content::Large) => return self.skip("files over 4 MiB", name),
            Err(_) => return self.skip("files that could not be read", name),
        };
        self.searched += 1;
        self.bytes += content.len() as u64;
        let lines = content.lines().collect::<Vec<_>>();
        let mut shown = 0;
        for (index, line) in lines.iter().enumerate() {
            if !self.expression.is_match(line) {
                continue;
            }
            if self.matches == self.limit || self.text.len() >= MAX_TEXT {
                return self.end(format!("stopped at `{name}`, line {}: there may be more", index + 1));
            }
            self.matches += 1;
            shown = self.show(name, &lines, index, shown);
        }
        ControlFlow::Continue(())
    }

    /// Adds a match and the lines around the match to the result. Lines that the result already contains are not
    /// repeated. Returns the index of the line after the last line that was added.
    fn show(&mut self, name: &str, lines: &[&str], index: usize, shown: usize) -> usize {
        let first = index.saturating_sub(self.context).max(shown);
        let last = (index + self.context).min(lines.len() - 1);
        if self.context > 0 && !self.text.is_empty() && (shown == 0 || first > shown) {
            self.text.push_str("--\n");
        }
        for (number, line) in lines.iter().enumerate().take(last + 1).skip(first) {
            // Stop before the line of the next match, because that match is added separately.
            let mark = if self.expression.is_match(line) { ':' } else { '-' };
            let is_next_match = number > index && mark == ':';
            if is_next_match {
                return number;
            }
            self.text.push_str(&format!("{name}:{}{mark} {}\n", number + 1, cut(line)));
        }
        last + 1
    }

    fn skip(&mut self, reason: &'static str, name: &str) -> ControlFlow<()> {
        self.note(reason, name);
        ControlFlow::Continue(())
    }

    fn note(&mut self, reason: &'static str, name: &str) {
        self.skipped.entry(reason).or_insert_with(|| (0, name.to_owned())).0 += 1;
    }

    fn end(&mut self, message: String) -> ControlFlow<()> {
        self.ended = Some(message);
        ControlFlow::Break(())
    }

    fn answer(mut self) -> String {
        let matches = if self.matches == 1 { "match" } else { "matches" };
        let files = if self.searched == 1 { "file" } else { "files" };
        let mut summary = format!("[{} {matches} in {} {files}", self.matches, self.searched);
        for (reason, (count, first)) in &self.skipped {
            summary.push_str(&format!("; skipped {count} {reason}, such as `{first}`"));
        }
        if let Some(ended) = &self.ended {
            summary.push_str(&format!("; {ended}"));
        }
        summary.push(']');
        self.text.push_str(&summary);
        self.text
    }
}

/// The text of a file, or the reason why the file is not searched.
enum Content {
    Text(String),
    Binary,
    Large,
}

fn read_content(path: &Path) -> io::Result<Content> {
    let mut file = File::open(path)?;
    if file.metadata()?.len() > MAX_FILE_SIZE {
        return Ok(Content::Large);
    }
    let mut bytes = Vec::new();
    file.by_ref().take(BINARY_CHECK_BYTES as u64).read_to_end(&mut bytes)?;
    if bytes.contains(&0) {
        return Ok(Content::Binary);
    }
    file.take(MAX_FILE_SIZE).read_to_end(&mut bytes)?;
    Ok(String::from_utf8(bytes).map_or(Content::Binary, Content::Text))
}

fn cut(line: &str) -> String {
    match line.char_indices().nth(MAX_LINE) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line.to_owned(),
    }
}
