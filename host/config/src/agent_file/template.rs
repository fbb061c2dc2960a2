//! The files that `config init` writes: a short `agent.toml` that runs, and a commented one with every key. In these texts, a
//! line that begins with `# ` is an explanation. A line that begins with `#` and has no space after the `#` is a setting that
//! is commented out.

use super::documentation::{allowed, default, kind, known_providers};
use super::keys::{Key, SECTIONS};
use std::path::Path;

/// Maximum number of characters in a line of an explanation.
const WIDTH: usize = 110;

const BEGIN: &str = "\
Configuration of an agent. `agent-host config check FILE` checks this file and shows what it would run; \
`agent-host --agent FILE PROMPT` runs the agent.\n\
All keys are optional, and all are commented out here. To set a key, remove the `#` before `key = value`. If the key is \
below a `#[table]`, remove the `#` of that line, too. Relative paths are relative to the folder of this file.\n\
Editors can complete and check this file with its JSON Schema: `agent-host config schema --output agent.schema.json` \
writes it, and the first line `#:schema ./agent.schema.json` refers to it.";

/// Returns the text of a short `agent.toml` that runs as it is. `folder` is the folder of the file: the agent uses its plugin folder
/// if there is one, and otherwise the plugins in `user_plugins`, the absolute path of the user's own plugin folder.
pub fn starter(folder: &Path, user_plugins: Option<&Path>) -> String {
    let user_plugins = user_plugins.and_then(Path::to_str);
    let plugins = match (folder.join(PLUGIN_FOLDER).is_dir(), user_plugins) {
        (true, _) => format!("plugin_directory = \"{PLUGIN_FOLDER}\""),
        (false, Some(user_plugins)) => format!(
            "# This is the folder of your user-wide plugins. Other users of this file need their own folder here.\n\
             plugin_directory = {}",
            toml::Value::from(user_plugins)
        ),
        (false, None) => format!("#plugin_directory = \"{PLUGIN_FOLDER}\""),
    };
    STARTER.replace("PLUGINS", &plugins)
}

/// Name of the plugin folder in the short file.
const PLUGIN_FOLDER: &str = "plugins";

const STARTER: &str = "\
# An agent. Start a session with it: agent-host --agent agent.toml
# Show what it may do: agent-host config check
# Explain every key: agent-host config init --full --output all-keys.toml

# The model. Without one, the built-in `offline` router answers, which is not a language model: it only runs tools.
#model = \"openai/gpt-4.1-mini\"      # the key is in OPENAI_API_KEY
#model = \"anthropic/claude-opus-5\"  # the key is in ANTHROPIC_API_KEY
#model = \"ollama/qwen3:8b\"          # on this machine, without a key

# What the model is told before each conversation.
instructions = \"Answer briefly, and name the files that your answer comes from.\"

# The folder with the plugins (*.wasm), relative to this file.
PLUGINS

# What the plugin `files` may do. A plugin may do nothing that is not granted; `agent-host plugin explain FILE` shows what
# a plugin asks for.
#[plugins.files.grants]
#read = [\".\"]
";

/// Returns the text of a commented `agent.toml` with all keys.
pub fn template() -> String {
    let mut file = prose(BEGIN);
    for section in SECTIONS {
        file += &format!("\n\n# ---- {} ----\n{}", section.title, prose(section.about));
        if section.path == ["providers", "NAME"] {
            let known = known_providers().into_iter().map(|(name, url, key)| format!("`{name}`: {url}, {key}"));
            file += &prose(&format!("Known providers:\n{}", known.collect::<Vec<_>>().join("\n")));
        }
        if !section.path.is_empty() {
            file += &format!("\n#[{}]\n", section.example);
        }
        section.keys.iter().for_each(|key| file += &commented(key));
    }
    file.replace("\n\n\n", "\n\n")
}

fn commented(key: &Key) -> String {
    let allowed = allowed(key.value);
    let allowed = if allowed.is_empty() { allowed } else { format!("Allowed: {allowed}. ") };
    let about = prose(&format!("{}\nType: {}. {allowed}Default: {}.", key.meaning, kind(key.value), default(key)));
    format!("\n{about}#{} = {}\n", key.name, key.example)
}

/// Formats paragraphs as wrapped comments.
fn prose(text: &str) -> String {
    let mut comment = String::new();
    for paragraph in text.lines() {
        let mut line = "#".to_owned();
        for word in paragraph.split(' ') {
            if line.chars().count() + 1 + word.chars().count() > WIDTH {
                comment += &format!("{line}\n");
                line = "#".to_owned();
            }
            line += &format!(" {word}");
        }
        comment += &format!("{line}\n");
    }
    comment
}
