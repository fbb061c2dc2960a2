//! The tool `files.search`, which finds matching lines in files.

use agent_host_sdk::prelude::*;
use tree_search::expression::{Boundaries, Expression, LetterCase, Wanted};
use tree_search::globs::Globs;
use tree_search::search::{DEFAULT_LINE_BYTES, Extra, Limits, MAX_CONTEXT, Search as TreeSearch};

/// Maximum value of the argument `limit`.
const MAX_MATCHES: u32 = 200;

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
    /// Also search hidden files, and what `.gitignore` and `.ignore` exclude. Default: no.
    #[serde(default)]
    all: bool,
}

fn default_limit() -> u32 {
    50
}

/// Runs `files.search`.
pub(crate) fn search(arguments: Search, call: &Call) -> Result<String, ToolError> {
    if arguments.context > MAX_CONTEXT {
        return Err(ToolError::invalid("/context", format!("must be at most {MAX_CONTEXT}")));
    }
    if !(1..=MAX_MATCHES).contains(&arguments.limit) {
        return Err(ToolError::invalid("/limit", format!("must be 1 to {MAX_MATCHES}")));
    }
    let (pointer, wanted) = match (&arguments.pattern, &arguments.text) {
        (Some(pattern), None) => ("/pattern", Wanted::Pattern(pattern)),
        (None, Some(text)) => ("/text", Wanted::Text(text)),
        _ => return Err(ToolError::invalid("", "give either `pattern` or `text`")),
    };
    let case = if arguments.ignore_case { LetterCase::Ignored } else { LetterCase::Distinct };
    let globs = arguments.glob.as_slice();
    let search = TreeSearch {
        path: &arguments.path,
        expression: Expression::new(wanted, case, Boundaries::Anywhere)
            .map_err(|message| ToolError::invalid(pointer, message))?,
        globs: Globs::parse(globs).map_err(|error| ToolError::invalid("/glob", error.message))?,
        extra: Extra { hidden: arguments.all, ignored: arguments.all },
        limits: Limits {
            context: arguments.context,
            matches: arguments.limit,
            line_bytes: DEFAULT_LINE_BYTES,
            time: Limits::time_within(call),
        },
    };
    search.run()
}
