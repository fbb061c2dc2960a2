//! Descriptions of the keys for the commented file, the JSON Schema and the tables of `host/docs/guide/agent-toml.md`.

use super::keys::{Default, Key, Value};
use super::text_format::TextFormat;
use agent_models::KNOWN_PROVIDERS;

/// Returns the type of a key's value for documentation, such as `whole number`.
pub(super) fn kind(value: Value) -> &'static str {
    match value {
        Value::Text(_) | Value::Choice(_) => "string",
        Value::Number(..) | Value::Limit(..) | Value::Signed(..) => "whole number",
        Value::Amount(_) => "number",
        Value::Flag => "true or false",
        Value::Switch(_) => "true, false or whole number",
        Value::Texts(_) => "list of strings",
        Value::Pairs(..) => "table of strings",
        Value::Schema | Value::Schemas => "table or string",
    }
}

/// Describes the allowed values, such as `1 to 64`. Returns an empty string if all values of the type are allowed.
pub(super) fn allowed(value: Value) -> String {
    match value {
        Value::Text(format) | Value::Texts(format) => allowed_by_format(format).to_owned(),
        Value::Pairs(keys, values) => {
            let parts = [("name", allowed_by_format(keys)), ("value", allowed_by_format(values))];
            let parts = parts.iter().filter(|(_, description)| !description.is_empty());
            parts.map(|(part, description)| format!("{part}: {description}")).collect::<Vec<_>>().join("; ")
        }
        Value::Number(minimum, maximum) => format!("{minimum} to {maximum}"),
        Value::Limit(minimum, maximum) => format!("{minimum} to {maximum}"),
        Value::Signed(minimum, maximum) => format!("{minimum} to {maximum}"),
        Value::Amount(maximum) => format!("0 to {maximum}"),
        Value::Choice(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(" or "),
        Value::Flag => String::new(),
        Value::Switch(maximum) => format!("1 to {maximum}"),
        Value::Schema => "a JSON Schema, or the path of a JSON file that contains one".to_owned(),
        Value::Schemas => {
            "for each key a JSON Schema or the path of a JSON file that contains one; or one path for all keys"
                .to_owned()
        }
    }
}

fn allowed_by_format(format: TextFormat) -> &'static str {
    match format {
        TextFormat::Filled | TextFormat::Line | TextFormat::HeaderValue | TextFormat::Requests => "",
        TextFormat::Name => "1 to 64 letters, digits, `-`, `_`, `.`",
        TextFormat::Url => "http or https, without `/chat/completions`",
        TextFormat::Server => "1 to 64 letters from a to z, digits, `-`, `_`",
        TextFormat::ServerUrl => "http or https",
        TextFormat::Variable => "the name of an environment variable",
        TextFormat::Header | TextFormat::PlainHeader => "the name of a header",
        TextFormat::ConfigKey => "without `=`",
        TextFormat::Tree => "without `..`",
        TextFormat::Policy => "`allow`, `ask` or `deny`",
        TextFormat::EventType => "a CloudEvent type",
        TextFormat::Times => "a cron expression, or `every N minutes`, `hours` or `days`",
        TextFormat::TimeZone => "the name of a time zone",
        TextFormat::PluginOrDigest => "the name of a plugin, or a digest",
        TextFormat::Subject => "words that are separated by dots",
        TextFormat::Subjects => "words that are separated by dots, with `*` or `>`",
        TextFormat::Namespace => "a host and a path, without `https://`, or `local`",
        TextFormat::PublicKeys => "keys, separated by spaces",
        TextFormat::Tool => "1 to 128 letters, digits, `_`, `-`, `.`",
    }
}

/// Describes the default of a key. The default is in backticks if it is a value and not a description.
pub(super) fn default(key: &Key) -> String {
    match key.default {
        Default::Is(value) => format!("`{value}`"),
        Default::Number(value) => format!("`{value}`"),
        Default::Words(description) => description.to_owned(),
    }
}

/// Returns the name, the address and the API key variable of each known provider.
pub(super) fn known_providers() -> Vec<(&'static str, &'static str, String)> {
    let key =
        |variable: Option<&str>| variable.map_or_else(|| "needs no key".to_owned(), |name| format!("key: `{name}`"));
    KNOWN_PROVIDERS.iter().map(|known| (known.name, known.base_url, key(known.key_variable))).collect()
}

/// Returns the generated part of the documentation page `host/docs/guide/agent-toml.md`.
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
