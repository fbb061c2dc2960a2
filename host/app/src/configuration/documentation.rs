//! The list of keys in words: for the commented file, for the schema's descriptions, and as the tables of
//! `host/docs/guide/agent-toml.md`.

use super::form::Form;
use super::keys::{Default, Key, Value};
use agent_models::KNOWN_PROVIDERS;

/// The type of a key's value.
pub(super) fn kind(value: Value) -> &'static str {
    match value {
        Value::Text(_) | Value::Choice(_) => "text",
        Value::Number(..) | Value::Limit(..) | Value::Signed(..) => "whole number",
        Value::Amount(_) => "number",
        Value::Flag => "true or false",
        Value::Switch(_) => "true, false or whole number",
        Value::Texts(_) => "list of texts",
        Value::Pairs(..) => "table of texts",
        Value::Schema | Value::Schemas => "table or text",
    }
}

/// What is allowed beyond the type.
pub(super) fn allowed(value: Value) -> String {
    match value {
        Value::Text(form) | Value::Texts(form) => of_form(form).to_owned(),
        Value::Pairs(keys, values) => {
            let parts = [("name", of_form(keys)), ("value", of_form(values))];
            let parts = parts.iter().filter(|(_, words)| !words.is_empty());
            parts.map(|(part, words)| format!("{part}: {words}")).collect::<Vec<_>>().join("; ")
        }
        Value::Number(least, most) => format!("{least} to {most}"),
        Value::Limit(least, most) => format!("{least} to {most}"),
        Value::Signed(least, most) => format!("{least} to {most}"),
        Value::Amount(most) => format!("0 to {most}"),
        Value::Choice(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(" or "),
        Value::Flag => String::new(),
        Value::Switch(most) => format!("1 to {most}"),
        Value::Schema => "a JSON Schema, or the path of a JSON file with one".to_owned(),
        Value::Schemas => {
            "for each key a JSON Schema or the path of a JSON file with one, or one path for all".to_owned()
        }
    }
}

fn of_form(form: Form) -> &'static str {
    match form {
        Form::Filled | Form::Line | Form::HeaderValue | Form::Requests => "",
        Form::Name => "1 to 64 letters, digits, `-`, `_`, `.`",
        Form::Url => "http or https, without `/chat/completions`",
        Form::Server => "1 to 64 letters from a to z, digits, `-`, `_`",
        Form::ServerUrl => "http or https",
        Form::Variable => "a variable's name",
        Form::Header | Form::PlainHeader => "a header's name",
        Form::ConfigKey => "without `=`",
        Form::Tree => "without `..`",
        Form::Policy => "`allow`, `ask` or `deny`",
        Form::EventType => "event types",
        Form::PluginOrDigest => "a plugin's name, or a digest",
        Form::NameSpace => "a host and a path, without `https://`, or `local`",
        Form::PublicKeys => "keys by spaces",
        Form::Tool => "1 to 128 letters, digits, `_`, `-`, `.`",
    }
}

/// What holds without the key.
pub(super) fn default(key: &Key) -> String {
    match key.default {
        Default::Is(value) => format!("`{value}`"),
        Default::Number(value) => format!("`{value}`"),
        Default::Words(words) => words.to_owned(),
    }
}

/// Each known provider with its address and the variable of its key.
pub(super) fn known_providers() -> Vec<(&'static str, &'static str, String)> {
    let key =
        |variable: Option<&str>| variable.map_or_else(|| "needs no key".to_owned(), |name| format!("key: `{name}`"));
    KNOWN_PROVIDERS.iter().map(|known| (known.name, known.base_url, key(known.key_variable))).collect()
}

/// The tables of the documentation, between its markers.
#[cfg(test)]
pub(super) fn markdown() -> String {
    use super::keys::SECTIONS;
    let mut page = String::new();
    for section in SECTIONS {
        let header = if section.path.is_empty() { String::new() } else { format!(": `[{}]`", section.path.join(".")) };
        let keys = "| key | type | default | allowed | meaning | example |\n|---|---|---|---|---|---|\n";
        page += &format!("\n## {}{header}\n\n{}\n\n{keys}", section.title, section.about);
        for key in section.keys {
            let cells = [
                format!("`{}`", key.name),
                kind(key.value).to_owned(),
                default(key),
                allowed(key.value),
                key.meaning.to_owned(),
                format!("`{}`", key.example),
            ];
            page += &format!("| {} |\n", cells.join(" | "));
        }
    }
    page += "\n## Known providers\n\n| name | `base_url` | key |\n|---|---|---|\n";
    for (name, base_url, key) in known_providers() {
        page += &format!("| `{name}` | `{base_url}` | {} |\n", key.trim_start_matches("key: "));
    }
    page
}
