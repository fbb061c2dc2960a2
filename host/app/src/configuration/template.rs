//! `config init`: a commented agent.toml with every key. A line that begins with `#` and no space is a setting that is
//! commented out; with a space it is prose.

use super::documentation::{allowed, default, kind, known_providers};
use super::keys::{Key, SECTIONS};

/// Widest line of prose.
const WIDTH: usize = 110;

const BEGIN: &str = "\
What an agent is. `agent-host config check FILE` says whether this file is right and what it would run; \
`agent-host --agent FILE PROMPT` runs it.\n\
Every key may be left out, and here all are commented out: `#key = value` counts once its `#` is gone. A key below a \
`#[table]` needs that line, too. Relative paths are relative to the folder of this file.\n\
Editors complete and check this file with its JSON Schema: `agent-host config schema --output agent.schema.json` writes \
it, and `#:schema ./agent.schema.json` as the first line names it.";

/// The whole file.
pub(crate) fn template() -> String {
    let mut file = prose(BEGIN);
    for section in SECTIONS {
        file += &format!("\n\n# ---- {} ----\n{}", section.title, prose(section.about));
        if section.path == ["providers", "NAME"] {
            let known = known_providers().into_iter().map(|(name, url, key)| format!("`{name}`: {url}, {key}"));
            file += &prose(&format!("Known are:\n{}", known.collect::<Vec<_>>().join("\n")));
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

/// Paragraphs as comments, wrapped.
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
