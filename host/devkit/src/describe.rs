//! Writes a manifest file for a component that has no manifest: the tools that the host makes from its functions, and
//! the access that its imports suggest.

use agent_core::tool::ToolDefinition;
use agent_plugins::{ComponentMetadata, LoadedPlugin};
use std::fmt::Write;

/// Maximum size of the generated text in bytes. The host reads at most 64 KiB, and the author needs space for changes.
const TEXT_BYTES: usize = 48 * 1024;
/// Space for the note about what was left out, in bytes.
const NOTE_BYTES: usize = 512;

/// An interface, and the line under `[asks]` with which a component asks for its use.
struct Access {
    import: &'static str,
    line: &'static str,
    about: &'static str,
}

const ACCESS: [Access; 6] = [
    Access { import: "wasi:filesystem/", line: "files = \"read\"", about: "or \"read-write\"" },
    Access { import: "wasi:cli/environment", line: "env = [\"NAME\"]", about: "environment variables" },
    Access { import: "wasi:config/", line: "config = [\"KEY\"]", about: "settings of the agent" },
    Access {
        import: "wasi:http/outgoing-handler",
        line: "http = [\"GET https://api.example.com\"]",
        about: "methods and hosts of requests",
    },
    Access { import: "wasi:keyvalue/", line: "key_value = true", about: "values that stay between calls" },
    Access {
        import: "agent-host:model/",
        line: "model_tokens = 20000",
        about: "tokens of the agent's model in a turn",
    },
];

/// Returns the text of a manifest file for a component without a manifest. All tools are described as the host offers
/// them without the file, and no access is requested: the lines that request access are comments.
pub fn manifest_text(plugin: &LoadedPlugin, metadata: &ComponentMetadata) -> String {
    let mut text = heading(plugin.name(), metadata);
    text.push_str(&access(plugin.imports()));
    let tools: Vec<_> = plugin.generic_tools().collect();
    if !tools.is_empty() {
        text.push_str(
            "\n# The tools. `export` names the exported function; the other keys can be changed or deleted. A schema can only\n\
             # exclude arguments. These keys make the host more careful with a tool: destructive = true,\n\
             # sequential = true, open_world = true, needs_approval = true.\n",
        );
    }
    let (mut described, mut without_schema) = (0, 0);
    for (export, tool) in &tools {
        let fits = |table: &String| text.len() + table.len() + NOTE_BYTES <= TEXT_BYTES;
        let (full, short) = (table(export, tool, Schema::Included), table(export, tool, Schema::LeftOut));
        let Some(table) = [full, short].into_iter().find(fits) else { break };
        without_schema += usize::from(!table.contains("\ninput_schema = "));
        described += 1;
        text.push_str(&table);
    }
    if described < tools.len() || without_schema > 0 {
        let _ = write!(
            text,
            "\n# To keep this file small, {} tables and {without_schema} schemas were left out. Those tools keep what the host\n\
             # derives from the types of the functions; `agent-host plugin inspect --json` shows it.\n",
            tools.len() - described,
        );
    }
    text
}

fn heading(name: &str, metadata: &ComponentMetadata) -> String {
    let version = metadata.version.as_deref().unwrap_or("0.1.0");
    let description = metadata.description.as_deref().unwrap_or_default();
    format!(
        "# The manifest of a component that has no manifest inside. agent-host reads this file together with the component, and\n\
         # `agent-host plugin push` puts it into the component that it publishes. Approvals, signatures and plugins.lock are\n\
         # bound to both files: after a change to this file, the plugin counts as a new version.\n\n\
         # Grants are given to this name.\nname = {}\nversion = {}\n# Users see the description when they choose plugins.\n\
         description = {}\n",
        quoted(name),
        quoted(version),
        quoted(description)
    )
}

fn access(imports: &[String]) -> String {
    let mut text =
        "\n# What the component asks for. It gets only what a line asks for and the agent also grants.\n".to_owned();
    let imported = |access: &&Access| imports.iter().any(|import| import.starts_with(access.import));
    let lines: Vec<_> = ACCESS.iter().filter(imported).collect();
    match lines.as_slice() {
        [] => text.push_str("# Its imports need no access.\n[asks]\n"),
        lines => {
            text.push_str("# Its imports suggest these lines; remove the `#` from those that it needs.\n[asks]\n");
            for Access { import, line, about } in lines {
                let _ = writeln!(text, "# {line}  # {about}; the component imports {import}…");
            }
        }
    }
    text
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Schema {
    Included,
    LeftOut,
}

fn table(export: &str, tool: &ToolDefinition, schema: Schema) -> String {
    let mut text = format!("\n[[tools]]\nexport = {}\nname = {}\n", quoted(export), quoted(&tool.name));
    let _ = writeln!(text, "description = {}", quoted(&tool.description));
    if schema == Schema::Included {
        let json = serde_json::to_string_pretty(&tool.input_schema).expect("a schema is JSON");
        let _ = writeln!(text, "input_schema = {}", multi_line(&json));
    }
    text
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// Writes a string over several lines without escapes if its characters allow it.
fn multi_line(text: &str) -> String {
    let is_literal =
        !text.contains("'''") && !text.chars().any(|character| character.is_control() && character != '\n');
    if is_literal { format!("'''\n{text}\n'''") } else { quoted(text) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_plugins::Manifest;
    use serde_json::json;
    use std::path::Path;

    // P3: a manifest that nobody has changed describes the tools as the host derives them.
    #[test]
    fn p3_generated_tables_are_read_back() {
        let tool = ToolDefinition {
            name: "words.find".to_owned(),
            title: None,
            description: "Finds \"words\" '''here'''.\nC:\\temp".to_owned(),
            input_schema: json!({"type": "object", "properties": {"a": {"description": "it's '''quoted''' \u{7f}"}}}),
            output_schema: None,
            traits: Default::default(),
            priority: 0,
        };
        let text = heading("wo\"rds", &ComponentMetadata::default())
            + &access(&["wasi:filesystem/types@0.2.3".to_owned()])
            + &table("a:b/c@1.0.0 find", &tool, Schema::Included);
        assert!(text.contains("\n[asks]\n# files = \"read\""), "{text}");
        let manifest =
            Manifest::from_toml(&text.replace("wo\\\"rds", "words").replace("'wo\"rds'", "'words'"), Path::new("x"));
        let manifest = manifest.unwrap_or_else(|error| panic!("{error}\n{text}"));
        let [described] = manifest.tools.as_slice() else { panic!("one table: {manifest:?}") };
        assert_eq!((described.export.as_str(), described.name.as_deref()), ("a:b/c@1.0.0 find", Some("words.find")));
        assert_eq!(described.description.as_ref(), Some(&tool.description));
        assert_eq!(described.input_schema.as_ref(), Some(&tool.input_schema));
        let plain = multi_line(&serde_json::to_string_pretty(&json!({"type": "object"})).expect("JSON"));
        assert_eq!(plain, "'''\n{\n  \"type\": \"object\"\n}\n'''");
    }
}
