//! Tools that count the words of texts, extract parts of texts with a regular expression, compare texts, and search the
//! files of a directory tree. Each tool accepts either texts or the paths of files in a granted directory.

pub mod count;
pub mod diff;
pub mod extract;
mod search;

use agent_host_sdk::prelude::*;
use agent_host_sdk::trees::{self, read_text};
use count::{CountError, Counts, count, count_stream};
use diff::{Difference, NamedText, diff};
use extract::{Extraction, LetterCase, extract};

/// The maximum size in bytes of a file to search. The limit is low because the file is read completely, and a call has
/// 64 MiB of memory.
pub const MAX_SIZE: u64 = 8 * 1024 * 1024;

/// The maximum size in bytes of a file to compare. The limit is low because both files are read completely, and the
/// diff can be as long as both files together.
pub const MAX_COMPARED: u64 = 4 * 1024 * 1024;

/// The number of matches to show if the call does not set a limit.
const DEFAULT_LIMIT: u32 = 50;

/// The maximum number of matches to show.
const MAX_LIMIT: u32 = 1_000;

/// The number of unchanged lines to show around each change if the call does not set `context`.
const DEFAULT_CONTEXT: u32 = 3;

/// Arguments of `text.count_file`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CountFile {
    /// The path of a file in a granted tree. Example: `README.md`.
    path: String,
}

/// Arguments of `text.count`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Count {
    /// The text itself.
    text: String,
}

/// Arguments of `text.extract_file`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ExtractFile {
    /// The path of a file in a granted tree. Example: `notes/todo.md`.
    path: String,
    /// Regular expression; `^` and `$` match at each line. Example: `(?<user>[^@\s]+)@(?<host>\S+)`.
    #[schemars(length(min = 1, max = 1000))]
    pattern: String,
    /// Whether to treat upper and lower case as the same. Default: no.
    #[serde(default)]
    ignore_case: bool,
    /// Maximum number of matches to show, at most 1000. Default: 50.
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<u32>,
}

/// Arguments of `text.extract`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Extract {
    /// The text itself.
    text: String,
    /// Regular expression; `^` and `$` match at each line. Example: `(?<user>[^@\s]+)@(?<host>\S+)`.
    #[schemars(length(min = 1, max = 1000))]
    pattern: String,
    /// Whether to treat upper and lower case as the same. Default: no.
    #[serde(default)]
    ignore_case: bool,
    /// Maximum number of matches to show, at most 1000. Default: 50.
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<u32>,
}

/// Arguments of `text.diff_files`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DiffFiles {
    /// The path of the file with the old text, in a granted tree.
    old_path: String,
    /// The path of the file with the new text, in a granted tree.
    new_path: String,
    /// Number of unchanged lines to show around each change. Default: 3.
    #[schemars(range(max = 100))]
    context: Option<u32>,
}

/// Arguments of `text.diff`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Diff {
    /// The old text.
    old: String,
    /// The new text.
    new: String,
    /// Number of unchanged lines to show around each change. Default: 3.
    #[schemars(range(max = 100))]
    context: Option<u32>,
}

/// A plugin with seven tools: three for texts and four for files.
pub struct Text;

impl ToolPlugin for Text {
    fn tools() -> Tools {
        file_tools().into_iter().chain(literal_tools()).chain([search::tool()]).fold(Tools::new(), Tools::tool)
    }
}

agent_host_sdk::export_tools!(Text);

/// Creates the tools for files in granted directories.
fn file_tools() -> [Tool; 3] {
    let count = Tool::new("text.count_file", COUNT_FILE)
        .title("Count a file's lines and words")
        .read_only()
        .output::<Counts>()
        .run(|arguments: CountFile, _: &Call| {
            let path = arguments.path;
            let counts = count_stream(trees::open(&path)?).map_err(|error| match error {
                CountError::Read(failure) => trees::error(&path, &failure),
                CountError::NotUtf8(offset) => trees::no_text(&path, offset),
            })?;
            Done::structured(&counts, counts.sentence(&path))
        });
    let extract = Tool::new("text.extract_file", EXTRACT_FILE)
        .title("Extract from a file")
        .read_only()
        .output::<Extraction>()
        .run(|arguments: ExtractFile, _: &Call| {
            let ExtractFile { path, pattern, ignore_case, limit } = arguments;
            extract_matches(&read_text(&path, MAX_SIZE)?, &pattern, ignore_case, limit)
        });
    let diff = Tool::new("text.diff_files", DIFF_FILES)
        .title("Compare two files")
        .read_only()
        .output::<Difference>()
        .run(|arguments: DiffFiles, _: &Call| {
            let DiffFiles { old_path, new_path, context } = arguments;
            let (old, new) = (read_text(&old_path, MAX_COMPARED)?, read_text(&new_path, MAX_COMPARED)?);
            compare_texts(NamedText { name: &old_path, text: &old }, NamedText { name: &new_path, text: &new }, context)
        });
    [count, extract, diff]
}

/// Creates the tools for texts that the arguments contain.
fn literal_tools() -> [Tool; 3] {
    let count = Tool::new("text.count", COUNT).title("Count lines and words").read_only().output::<Counts>().run(
        |arguments: Count, _: &Call| {
            let counts = count(&arguments.text);
            Done::structured(&counts, counts.sentence("The text"))
        },
    );
    let extract =
        Tool::new("text.extract", EXTRACT).title("Extract from a text").read_only().output::<Extraction>().run(
            |arguments: Extract, _: &Call| {
                let Extract { text, pattern, ignore_case, limit } = arguments;
                extract_matches(&text, &pattern, ignore_case, limit)
            },
        );
    let diff = Tool::new("text.diff", DIFF).title("Compare two texts").read_only().output::<Difference>().run(
        |arguments: Diff, _: &Call| {
            let Diff { old, new, context } = arguments;
            compare_texts(NamedText { name: "old", text: &old }, NamedText { name: "new", text: &new }, context)
        },
    );
    [count, extract, diff]
}

const COUNT_FILE: &str = "Counts the lines, words, characters and bytes of a text file, given its path.";

const COUNT: &str = "Counts the lines, words, characters and bytes of a text that is given literally.";

const DIFF_FILES: &str = "Compares two text files of at most 4 MiB line by line and returns a unified diff.";

const DIFF: &str = "Compares two texts that are given literally, line by line, and returns a unified diff.";

const EXTRACT_FILE: &str = "Finds all matches of a regular expression in a text file of at most 8 MiB: line, column, \
                            matched text and groups by name or number. No look-around, no back-references; \\w and \\d are ASCII.";

const EXTRACT: &str = "Finds all matches of a regular expression in a text that is given literally: line, column, \
                       matched text and groups by name or number. No look-around, no back-references; \\w and \\d \
                       are ASCII.";

fn extract_matches(text: &str, pattern: &str, ignore_case: bool, limit: Option<u32>) -> Result<Done, ToolError> {
    let limit = limit.unwrap_or(DEFAULT_LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        return Err(ToolError::invalid("/limit", format!("must be from 1 to {MAX_LIMIT}")));
    }
    let case = if ignore_case { LetterCase::Ignored } else { LetterCase::Distinct };
    let extraction = extract(text, pattern, case, limit as usize)
        .map_err(|error| ToolError::invalid("/pattern", error.to_string()))?;
    Done::json(&extraction)
}

fn compare_texts(old: NamedText<'_>, new: NamedText<'_>, context: Option<u32>) -> Result<Done, ToolError> {
    let context = context.unwrap_or(DEFAULT_CONTEXT).min(100) as usize;
    let difference = diff(old, new, context).map_err(|error| ToolError::failed(error.to_string()))?;
    let text = match (&difference, difference.left_out) {
        (Difference { added: 0, removed: 0, .. }, _) => format!("{} and {} are equal.", old.name, new.name),
        (Difference { diff, .. }, 0) => diff.clone(),
        (Difference { diff, .. }, left_out) => format!("{diff}({left_out} more bytes are left out)\n"),
    };
    Done::structured(&difference, text)
}
