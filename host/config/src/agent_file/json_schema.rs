//! The JSON Schema of `agent.toml` (draft 2020-12), for editors. The schema rejects the same files as the parser, with
//! two exceptions: the schema cannot check relations between numbers, and it cannot check whether folders, files,
//! variables and plugins exist.

use super::check::{BUILT_IN, BUILT_IN_TOOLS, is_placeholder};
use super::documentation::{allowed, default};
use super::keys::{Default, Key, MCP, MCP_NEEDS, MCP_TAKEN, SECTIONS, Value};
use super::text_format::TextFormat;
use agent_models::KNOWN_PROVIDERS;
use serde_json::{Map, Value as Json, json};

/// Generates the JSON Schema of `agent.toml` from the list of keys.
pub fn json_schema() -> Json {
    let mut root = table(&[]);
    let mut schema = Map::new();
    schema.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
    schema.insert("title".to_owned(), json!("agent.toml"));
    schema.insert("description".to_owned(), json!("Configuration of an agent of agent-host."));
    schema.append(&mut root);
    schema.insert("dependentRequired".to_owned(), json!({ "fallback_models": ["model"], "executor": ["planner"] }));
    schema.insert("$defs".to_owned(), json!({ "provider": table(&["providers", "NAME"]) }));
    Json::Object(schema)
}

/// Generates the schema of the table at `path`.
fn table(path: &[&'static str]) -> Map<String, Json> {
    let mut properties = Map::new();
    let mut named_by_author = None;
    for section in SECTIONS.iter().filter(|section| section.path.starts_with(path)) {
        match section.path.get(path.len()) {
            None => properties.extend(section.keys.iter().map(|key| (key.name.to_owned(), key_schema(key)))),
            Some(step) => {
                let inner = [path, &[*step]].concat();
                match inner.as_slice() {
                    _ if is_placeholder(step) => named_by_author = Some(Json::Object(table(&inner))),
                    ["providers"] => {
                        properties.insert((*step).to_owned(), providers());
                    }
                    ["agents"] => {
                        properties.insert((*step).to_owned(), agents());
                    }
                    _ => {
                        let inner = table(&inner);
                        properties.entry(*step).or_insert_with(|| Json::Object(inner));
                    }
                }
            }
        }
    }
    let mut schema = Map::from_iter([("type".to_owned(), json!("object"))]);
    if let Some(section) = SECTIONS.iter().find(|section| !path.is_empty() && section.path == path) {
        schema.insert("description".to_owned(), json!(section.about));
    }
    match path {
        ["providers", "NAME", "models", "MODEL"] => {
            let price_dependencies = json!({
                "prompt_price": ["completion_price"],
                "completion_price": ["prompt_price"],
                "cache_read_price": ["prompt_price"],
                "cache_write_price": ["prompt_price"],
            });
            schema.insert("dependentRequired".to_owned(), price_dependencies);
        }
        [MCP] => {
            let name = json!({ "allOf": [text(TextFormat::Server), { "not": { "enum": MCP_TAKEN } }] });
            schema.insert("propertyNames".to_owned(), name);
        }
        [MCP, "NAME"] => {
            let needs = MCP_NEEDS.map(|(needing, needed)| (needing.to_owned(), json!([needed])));
            schema.insert("dependentRequired".to_owned(), Json::Object(needs.into_iter().collect()));
            let command_or_url = json!([{ "required": ["command"] }, { "required": ["url"] }]);
            schema.insert("oneOf".to_owned(), command_or_url);
        }
        ["schedules"] | ["webhooks"] | ["events"] => {
            schema.insert("propertyNames".to_owned(), text(TextFormat::Name));
        }
        ["webhooks", "NAME"] => {
            schema.insert("dependentRequired".to_owned(), json!({ "signature": ["key_env"] }));
        }
        _ => {}
    }
    if path == ["services"] {
        let name = json!({ "allOf": [text(TextFormat::Tool), { "not": { "enum": BUILT_IN_TOOLS } }] });
        schema.insert("propertyNames".to_owned(), name);
    }
    if path == ["services", "NAME"] {
        let kinds = json!({ "enum": ["array", "boolean", "integer", "null", "number", "object", "string"] });
        let any_type = json!({ "type": { "anyOf": [kinds, { "type": "array", "items": kinds }] } });
        properties["accepts"]["properties"] = json!({ "type": { "const": "object" } });
        properties["emits"]["additionalProperties"]["properties"] = any_type;
    }
    if !properties.is_empty() {
        schema.insert("properties".to_owned(), Json::Object(properties));
    }
    schema.insert("additionalProperties".to_owned(), named_by_author.unwrap_or(json!(false)));
    if path == ["plugins", "NAME", "secrets", "SECRET"] {
        schema.insert("required".to_owned(), json!(["env", "hosts"]));
    }
    let required: &[&str] = match path {
        ["outbox", "server"] => &["url"],
        ["events", "NAME"] => &["subject"],
        ["schedules", "NAME"] => &["times", "prompt"],
        _ => &[],
    };
    if !required.is_empty() {
        schema.insert("required".to_owned(), json!(required));
    }
    schema
}

/// Generates the schema of `[providers]`. Known providers have a default address. All other providers
/// require `base_url`.
fn providers() -> Json {
    let provider = json!({ "$ref": "#/$defs/provider" });
    let known = KNOWN_PROVIDERS.iter().map(|known| (known.name.to_owned(), provider.clone()));
    json!({
        "type": "object",
        "properties": Map::from_iter(known),
        "propertyNames": { "allOf": [text(TextFormat::Name), { "not": { "enum": BUILT_IN } }] },
        "additionalProperties": { "allOf": [provider], "required": ["base_url"] },
    })
}

/// Generates the schema of `[agents]`. Each agent requires a file and a description.
fn agents() -> Json {
    let mut agent = table(&["agents", "NAME"]);
    agent.insert("required".to_owned(), json!(["agent", "description"]));
    agent["properties"]["input_schema"]["properties"] = json!({ "type": { "const": "object" } });
    agent["properties"]["input_schema"]["required"] = json!(["type"]);
    json!({ "type": "object", "propertyNames": text(TextFormat::Name), "additionalProperties": agent })
}

fn key_schema(key: &Key) -> Json {
    let mut schema = match key.value {
        Value::Text(format) => text(format),
        Value::Number(minimum, maximum) => json!({ "type": "integer", "minimum": minimum, "maximum": maximum }),
        Value::Limit(minimum, maximum) => json!({ "type": "integer", "minimum": minimum, "maximum": maximum }),
        Value::Signed(minimum, maximum) => json!({ "type": "integer", "minimum": minimum, "maximum": maximum }),
        Value::Amount(maximum) => json!({ "type": "number", "minimum": 0, "maximum": maximum }),
        Value::Flag => json!({ "type": "boolean" }),
        Value::Switch(maximum) => json!({ "type": ["boolean", "integer"], "minimum": 1, "maximum": maximum }),
        Value::Choice(words) => json!({ "type": "string", "enum": words }),
        Value::Texts(format) => json!({ "type": "array", "items": text(format) }),
        Value::Pairs(keys, values) => {
            json!({ "type": "object", "propertyNames": text(keys), "additionalProperties": text(values) })
        }
        Value::Schema => json!({ "type": ["object", "string"], "pattern": r"\S" }),
        Value::Schemas => {
            let schema_or_path = json!({ "type": ["object", "string"], "pattern": r"\S" });
            json!({ "type": ["object", "string"], "pattern": r"\S", "additionalProperties": schema_or_path })
        }
    };
    let allowed = allowed(key.value);
    let allowed = if allowed.is_empty() { allowed } else { format!(" Allowed: {allowed}.") };
    let description = format!("{}{allowed} Default: {}.", key.meaning, default(key));
    schema["description"] = json!(description);
    match key.default {
        Default::Is(value) => schema["default"] = from_toml(value),
        Default::Number(value) => schema["default"] = json!(value),
        Default::Words(_) => {}
    }
    schema["examples"] = json!([from_toml(key.example)]);
    schema
}

fn text(format: TextFormat) -> Json {
    let (pattern, not) = format.patterns();
    let mut schema = json!({ "type": "string", "pattern": pattern });
    if let Some(pattern) = not {
        schema["not"] = json!({ "pattern": pattern });
    }
    schema
}

/// Converts a TOML value from the list of keys to JSON. Invalid TOML becomes `null`, but a
/// test checks that every value in the list is valid TOML.
fn from_toml(value: &str) -> Json {
    let document: Option<toml::Table> = format!("value = {value}").parse().ok();
    let value = document.and_then(|mut document| document.remove("value"));
    value.and_then(|value| serde_json::to_value(value).ok()).unwrap_or_default()
}
