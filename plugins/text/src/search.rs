//! The tool `text.search`, which finds lines in one file or in the files of a directory tree.

use agent_host_sdk::prelude::*;
use tree_search::expression::{Boundaries, Expression, LetterCase, Wanted};
use tree_search::globs::Globs;
use tree_search::search::{DEFAULT_LINE_BYTES, Extra, Limits, MAX_CONTEXT, MAX_MATCHES, Search as TreeSearch};

/// The number of matching lines to show if the call does not set a limit.
const DEFAULT_LIMIT: u32 = 100;
/// Minimum value of the argument `line_bytes`.
const MIN_LINE_BYTES: u32 = 40;
/// Maximum value of the argument `line_bytes`.
const MAX_LINE_BYTES: u32 = 4_000;
/// Maximum number of globs.
const MAX_GLOBS: usize = 32;

const DESCRIPTION: &str = "Searches one file, or the files of a directory and of all its subdirectories, for lines that \
                           contain a `text` or match a regular expression (`pattern`). Leaves out hidden files and what \
                           .gitignore and .ignore exclude. Returns `path:line: text` for each matching line, sorted by \
                           path, and a last line that counts the matches and files and says what was left out.";

/// Arguments of `text.search`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Search {
    /// The directory or file to search, in a granted tree. Example: `src`.
    path: String,
    /// A text that a line must contain. Instead of `pattern`.
    #[schemars(length(min = 1, max = 1000))]
    text: Option<String>,
    /// A regular expression that a line must match. Instead of `text`. Example: `fn \w+_test`.
    #[schemars(length(min = 1, max = 1000))]
    pattern: Option<String>,
    /// `distinct` (default): `a` does not match `A`. `ignore`: it does. `smart`: it does unless the text or pattern
    /// contains a capital.
    #[serde(default)]
    case: Case,
    /// Find only whole words. Default: no.
    #[serde(default)]
    whole_words: bool,
    /// Search only files that match one of these globs, and none that begins with `!`. A glob without `/` applies to
    /// the file name, others to the path below `path`. Example: `["*.rs", "!tests/**"]`.
    #[serde(default)]
    #[schemars(length(max = 32))]
    globs: Vec<String>,
    /// Number of lines to show before and after each match, at most 10. Default: 0.
    #[serde(default)]
    #[schemars(range(max = 10))]
    context: u32,
    /// Maximum number of matching lines, at most 1000. Default: 100.
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<u32>,
    /// Maximum number of bytes to show of a line, from 40 to 4000; the match stays visible. Default: 400.
    #[schemars(range(min = 40, max = 4000))]
    line_bytes: Option<u32>,
    /// Also search files and directories whose names begin with a dot, except `.git`. Default: no.
    #[serde(default)]
    hidden: bool,
    /// Also search what .gitignore and .ignore exclude. Default: no.
    #[serde(default)]
    ignored: bool,
}

#[derive(Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Case {
    #[default]
    Distinct,
    Ignore,
    Smart,
}

/// Creates the tool.
pub(crate) fn tool() -> Tool {
    Tool::new("text.search", DESCRIPTION)
        .title("Search in files")
        .read_only()
        .run(|arguments: Search, call: &Call| search(&arguments, call).map(Done::text))
}

fn search(arguments: &Search, call: &Call) -> Result<String, ToolError> {
    let (pointer, wanted) = match (&arguments.text, &arguments.pattern) {
        (Some(text), None) => ("/text", Wanted::Text(text)),
        (None, Some(pattern)) => ("/pattern", Wanted::Pattern(pattern)),
        _ => return Err(ToolError::invalid("", "give either `text` or `pattern`")),
    };
    let case = match arguments.case {
        Case::Distinct => LetterCase::Distinct,
        Case::Ignore => LetterCase::Ignored,
        Case::Smart => LetterCase::Smart,
    };
    let boundaries = if arguments.whole_words { Boundaries::WholeWords } else { Boundaries::Anywhere };
    if arguments.globs.len() > MAX_GLOBS {
        return Err(ToolError::invalid("/globs", format!("must be at most {MAX_GLOBS}")));
    }
    let search = TreeSearch {
        path: &arguments.path,
        expression: Expression::new(wanted, case, boundaries)
            .map_err(|message| ToolError::invalid(pointer, message))?,
        globs: Globs::parse(&arguments.globs)
            .map_err(|error| ToolError::invalid(format!("/globs/{}", error.index), error.message))?,
        extra: Extra { hidden: arguments.hidden, ignored: arguments.ignored },
        limits: Limits {
            context: within("/context", arguments.context, 0, MAX_CONTEXT)?,
            matches: within("/limit", arguments.limit.unwrap_or(DEFAULT_LIMIT), 1, MAX_MATCHES)?,
            line_bytes: within(
                "/line_bytes",
                arguments.line_bytes.unwrap_or(DEFAULT_LINE_BYTES),
                MIN_LINE_BYTES,
                MAX_LINE_BYTES,
            )?,
            time: Limits::time_within(call),
        },
    };
    search.run()
}

fn within(pointer: &str, value: u32, minimum: u32, maximum: u32) -> Result<u32, ToolError> {
    match (minimum..=maximum).contains(&value) {
        true => Ok(value),
        false => Err(ToolError::invalid(pointer, format!("must be from {minimum} to {maximum}"))),
    }
}
