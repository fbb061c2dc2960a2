//! Reading granted files. The functions of `trees` return errors that help the model, so the tools only pass them on.

use agent_host_sdk::prelude::*;
use agent_host_sdk::trees;

/// Maximum size of a file in bytes.
const MAX_FILE: u64 = 1024 * 1024;

/// Arguments of `outline.files`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Folder {
    /// The path of the folder.
    folder: String,
}

/// Result of `outline.files`.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Files {
    /// The paths of the files.
    files: Vec<String>,
}

/// Arguments of `outline.headings`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct File {
    /// The path of the file.
    path: String,
}

/// Result of `outline.headings`.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Headings {
    /// The headings in the order of the file.
    headings: Vec<Heading>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Heading {
    /// The level of the heading, from 1 to 6.
    level: i64,
    /// The text of the heading.
    text: String,
}

/// The type that implements the tools.
pub struct Plugin;

impl ToolPlugin for Plugin {
    fn tools() -> Tools {
        Tools::new()
            .tool(
                Tool::new("outline.files", "Lists the Markdown files in a folder.")
                    .read_only()
                    .output::<Files>()
                    .run(|Folder { folder }, _: &Call| Done::json(&Files { files: files(&folder)? })),
            )
            .tool(
                Tool::new(
                    "outline.headings",
                    "Returns the headings of a Markdown file. Use it before you read a long file.",
                )
                .read_only()
                .output::<Headings>()
                .run(|File { path }, _: &Call| {
                    let text = trees::read_text(&path, MAX_FILE)?;
                    Done::json(&Headings { headings: text.lines().filter_map(heading).collect() })
                }),
            )
    }
}

agent_host_sdk::export_tools!(Plugin);

fn files(folder: &str) -> Result<Vec<String>, ToolError> {
    let entries = trees::list(folder)?.into_iter();
    let files = entries.filter(|entry| !entry.is_folder && entry.name.ends_with(".md"));
    Ok(files.map(|entry| format!("{folder}/{}", entry.name)).collect())
}

/// Returns the heading in a line such as `## Install`.
fn heading(line: &str) -> Option<Heading> {
    let (marks, text) = line.split_once(' ')?;
    let is_heading = (1..=6).contains(&marks.len()) && marks.bytes().all(|byte| byte == b'#');
    is_heading.then(|| Heading { level: marks.len() as i64, text: text.trim().to_owned() })
}
