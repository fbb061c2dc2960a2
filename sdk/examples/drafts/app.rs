//! Writing and removing granted files. The traits of a tool tell the host what it does to the world, so that the host
//! can ask the user before a call.

use agent_host_sdk::prelude::*;
use agent_host_sdk::trees;

/// Folder of the drafts, which the agent grants.
const FOLDER: &str = "drafts";

/// Arguments of `drafts.save`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Save {
    /// The name of the draft, in lower case.
    #[schemars(regex(pattern = "^[a-z0-9-]+$"))]
    name: String,
    /// The text in Markdown.
    text: String,
}

/// Arguments of `drafts.discard`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Discard {
    /// The name of the draft, in lower case.
    #[schemars(regex(pattern = "^[a-z0-9-]+$"))]
    name: String,
}

/// The type that implements the tools.
pub struct Plugin;

impl ToolPlugin for Plugin {
    fn tools() -> Tools {
        Tools::new()
            .tool(
                // The tool may overwrite a draft. A second call with the same arguments has no further effect.
                Tool::new("drafts.save", "Saves a draft, and replaces an earlier draft with this name.")
                    .destructive()
                    .idempotent()
                    .run(|Save { name, text }, _: &Call| save(&path_of(&name), &text)),
            )
            .tool(
                // Each call waits for the approval of the user.
                Tool::new("drafts.discard", "Removes a draft for good.")
                    .destructive()
                    .needs_approval()
                    .run(|Discard { name }, _: &Call| discard(&path_of(&name))),
            )
    }
}

agent_host_sdk::export_tools!(Plugin);

fn path_of(name: &str) -> String {
    format!("{FOLDER}/{name}.md")
}

fn save(path: &str, text: &str) -> Result<String, ToolError> {
    let is_new = !trees::list(FOLDER)?.iter().any(|entry| path == format!("{FOLDER}/{}", entry.name));
    trees::write(path, text)?;
    Ok(format!("{} {path}", if is_new { "saved" } else { "replaced" }))
}

fn discard(path: &str) -> Result<String, ToolError> {
    trees::remove(path)?;
    Ok(format!("discarded {path}"))
}
