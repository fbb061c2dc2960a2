//! Formats descriptions of a plugin as text and as JSON.

use super::manifest_file;
use crate::terminal::{BOLD, DIM, YELLOW, text};
use agent_core::tool::{ToolDefinition, Traits};
use agent_mcp::McpTool;
use agent_plugins::{Access, Asks, Grants, LoadedPlugin, SkippedExport};
use serde_json::{Value, json};
use std::path::Path;

/// Maximum displayed length of a name or description, in characters.
const MAX_CHARACTERS: usize = 100;

/// Formats a plugin as an entry of a list. The entry also shows the grants that the plugin requests but does not have.
pub(super) fn list_entry(plugin: &LoadedPlugin, grants: &Grants) -> String {
    let mut lines = vec![heading(plugin)];
    for tool in plugin.tools() {
        lines.push(format!("  {} {DIM}{}{DIM:#}", tool.name, text::one_line(&tool.description, MAX_CHARACTERS)));
    }
    if !plugin.skipped_exports().is_empty() {
        let count = plugin.skipped_exports().len();
        lines.push(format!("  {DIM}functions that are not offered as tools: {count}, see `plugin inspect`{DIM:#}"));
    }
    for unmet in plugin.unmet(grants) {
        let permission = text::one_line(&unmet.thing, MAX_CHARACTERS);
        lines.push(format!("  {YELLOW}!{YELLOW:#} asks for {permission}, not granted: {}", unmet.advice.short()));
    }
    lines.join("\n")
}

/// Formats an MCP server as an entry of a list.
pub(super) fn server(name: &str, tools: &[&McpTool]) -> String {
    let mut lines = vec![format!("{BOLD}{name}{BOLD:#}  MCP server")];
    for McpTool { definition, .. } in tools {
        lines.push(format!(
            "  {} {DIM}{}{DIM:#}",
            definition.name,
            text::one_line(&definition.description, MAX_CHARACTERS)
        ));
    }
    lines.join("\n")
}

/// Formats all known facts about a plugin as text.
pub(super) fn full(plugin: &LoadedPlugin, (file, exports): (&Path, &[String])) -> String {
    let mut lines = vec![heading(plugin)];
    if let Some(manifest) = plugin.manifest().filter(|manifest| !manifest.description.is_empty()) {
        lines.push(format!("  {}", text::one_line(&manifest.description, 1000)));
    }
    lines.push(format!("  file     {}", file.display()));
    if let Some(manifest) = manifest_file::shown(file) {
        lines.push(format!("  manifest {manifest}"));
    }
    lines.push(format!("  digest   {}", plugin.digest()));
    lines.push(format!("  size     {}", text::size(plugin.size())));
    lines.push(format!("  asks     {}", describe_requests(plugin)));
    let imports = text::imports(plugin.imports()).join("\n           ");
    let worlds = worlds(exports);
    if !worlds.is_empty() {
        lines.push(format!("  worlds   {}", worlds.join(", ")));
    }
    let exports = text::imports(exports).join("\n           ");
    lines.push(format!("  imports  {imports}"));
    lines.push(format!("  exports  {exports}"));
    for tool in plugin.tools() {
        lines.push(format!("\n  {BOLD}{}{BOLD:#} {DIM}{}{DIM:#}", tool.name, traits(tool)));
        lines.push(format!("    {}", text::harmless(&tool.description).replace('\n', "\n    ")));
        lines.extend(arguments(&tool.input_schema));
        lines.extend(tool.output_schema.iter().flat_map(returned));
    }
    if !plugin.skipped_exports().is_empty() {
        lines.push(format!("\n  {BOLD}not offered{BOLD:#}"));
    }
    for SkippedExport { function, reason } in plugin.skipped_exports() {
        lines.push(format!("    {} {DIM}{}{DIM:#}", text::one_line(function, 300), text::one_line(reason, 600)));
    }
    lines.join("\n")
}

/// Returns the names and versions of the WIT worlds whose interfaces the component exports.
fn worlds(exports: &[String]) -> Vec<String> {
    let kind = |export: &String| {
        let (interface, version) = export.strip_prefix("agent-host:plugin/")?.split_once('@')?;
        Some((interface.to_owned(), version.to_owned()))
    };
    let kinds: Vec<(String, String)> = exports.iter().filter_map(kind).collect();
    // A component that exports the step-context world also exports the context-builder interface. If a component
    // exports both, only the step-context world is returned.
    let has_step = kinds.iter().any(|(interface, _)| interface == "step-context");
    let worlds = kinds.iter().filter(|(interface, _)| !(has_step && interface == "context-builder"));
    worlds.map(|(interface, version)| format!("agent-host:plugin/{interface}-plugin@{version}")).collect()
}

/// Formats all known facts about a plugin as a JSON document, with the schemas of its tools.
pub(super) fn json(plugin: &LoadedPlugin, (file, exports): (&Path, &[String])) -> Value {
    let manifest = plugin.manifest();
    json!({
        "name": plugin.name(),
        "version": manifest.map(|manifest| &manifest.version),
        "description": manifest.map(|manifest| &manifest.description),
        "manifest_file": manifest_file::shown(file),
        "digest": plugin.digest(),
        "size": plugin.size(),
        "kinds": plugin.kinds(),
        "sorts": plugin.kind_labels(),
        "asks": manifest.map(|manifest| &manifest.asks),
        "worlds": worlds(exports),
        "imports": plugin.imports(),
        "exports": exports,
        "tools": plugin.tools(),
        "not_offered": plugin.skipped_exports(),
    })
}

pub(super) fn heading(plugin: &LoadedPlugin) -> String {
    let version =
        plugin.manifest().map(|manifest| text::one_line(&manifest.version, MAX_CHARACTERS)).unwrap_or_default();
    let (name, digest) = (plugin.name(), plugin.digest().short());
    format!("{BOLD}{name}{BOLD:#} {version}  {} {DIM}{digest}{DIM:#}", plugin.kind_labels().join(", "))
}

fn describe_requests(plugin: &LoadedPlugin) -> String {
    match requested_grants(plugin) {
        None => "the plugin has no manifest, so it may use everything that it is granted".to_owned(),
        Some(requests) if requests.is_empty() => "nothing".to_owned(),
        Some(requests) => requests.join(", "),
    }
}

/// Returns a description of each grant that the plugin requests, or `None` if the plugin has no manifest.
pub(super) fn requested_grants(plugin: &LoadedPlugin) -> Option<Vec<String>> {
    plugin.manifest().map(|manifest| requests_in(&manifest.asks))
}

/// Returns a description of each grant that a manifest requests.
pub(in crate::commands) fn requests_in(asks: &Asks) -> Vec<String> {
    let Asks { files, env, config, http, secrets, key_value, model_tokens, events, media, optional } = asks;
    let remark = |name: &String| if optional.contains(name) { ", which is optional" } else { "" };
    let files = files.map(|access| match access {
        Access::Read => "reading files".to_owned(),
        Access::ReadWrite => "reading and writing files".to_owned(),
    });
    let env = env.iter().map(|name| format!("the variable {name}{}", remark(name)));
    let config = config.iter().map(|key| format!("the configuration value {key}{}", remark(key)));
    let http = http.iter().map(|pattern| format!("the request {pattern}"));
    let secrets = secrets.iter().map(|name| format!("the secret {name}{}", remark(name)));
    let key_value = key_value.then(|| "keeping values between calls".to_owned());
    let model = model_tokens.map(|tokens| format!("asking the agent's model, {} tokens a turn", text::grouped(tokens)));
    let events = events.iter().map(|event_type| format!("sending the service event {event_type}"));
    let media = media.then(|| "reading the media of the conversation".to_owned());
    let others = http.chain(secrets).chain(key_value).chain(model).chain(events).chain(media);
    let requests = files.into_iter().chain(env).chain(config).chain(others);
    requests.map(|request| text::one_line(&request, MAX_CHARACTERS)).collect()
}

fn traits(tool: &ToolDefinition) -> String {
    let Traits { read_only, destructive, idempotent, sequential, open_world, needs_approval } = tool.traits;
    let words = [
        (read_only, "read-only"),
        (destructive, "destructive"),
        (idempotent, "idempotent"),
        (sequential, "sequential"),
        (open_world, "open-world"),
        (needs_approval, "needs approval"),
    ];
    let set: Vec<_> = words.into_iter().filter_map(|(is_set, word)| is_set.then_some(word)).collect();
    set.join(", ")
}

/// Lists the arguments in the schema with their types and descriptions. Required arguments come first.
fn arguments(schema: &Value) -> Vec<String> {
    let Some(properties) = schema["properties"].as_object() else {
        return Vec::new();
    };
    let required =
        |name: &str| schema["required"].as_array().is_some_and(|names| names.iter().any(|required| required == name));
    let mut named: Vec<_> = properties.iter().collect();
    named.sort_by_key(|(name, _)| !required(name));
    let line = |(name, property): (&String, &Value)| {
        let optional = if required(name) { "" } else { ", optional" };
        let kind = kind(property);
        let description = property["description"]
            .as_str()
            .map(|description| text::one_line(description, MAX_CHARACTERS))
            .unwrap_or_default();
        format!("      {} {DIM}({kind}{optional}){DIM:#} {description}", text::one_line(name, MAX_CHARACTERS))
    };
    named.into_iter().map(line).collect()
}

/// Describes the result of a tool that has an output schema.
fn returned(schema: &Value) -> Vec<String> {
    let mut lines = vec![format!("    {DIM}returns {}{DIM:#}", kind(schema))];
    lines.extend(arguments(schema));
    lines
}

fn kind(property: &Value) -> String {
    match &property["type"] {
        Value::String(kind) => text::one_line(kind, MAX_CHARACTERS),
        Value::Array(kinds) => {
            let kinds = kinds.iter().filter_map(Value::as_str).filter(|kind| *kind != "null");
            text::one_line(&kinds.collect::<Vec<_>>().join(" or "), MAX_CHARACTERS)
        }
        _ => "any".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s3_world_names_contain_their_versions() {
        let worlds_of = |exports: &[&str]| worlds(&exports.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        let plugin = |name: &str| format!("agent-host:plugin/{name}@0.1.0");
        assert_eq!(worlds_of(&["wasi:cli/run@0.2.0", "init"]), [""; 0]);
        assert_eq!(
            worlds_of(&[&plugin("tool"), &plugin("context-builder"), "init"]),
            [plugin("tool-plugin"), plugin("context-builder-plugin")]
        );
        assert_eq!(worlds_of(&[&plugin("context-builder"), &plugin("step-context")]), [plugin("step-context-plugin")]);
    }

    #[test]
    fn s3_arguments_lists_the_properties_of_the_schema() {
        let schema = json!({
            "type": "object",
            "required": ["path"],
            "properties": {
                "limit": {"type": ["integer", "null"], "description": "Maximum number."},
                "path": {"type": "string", "description": "A granted file.\nMore words."},
                "any": {},
            },
        });
        let shown = anstream::adapter::strip_str(&arguments(&schema).join("\n")).to_string();
        insta::assert_snapshot!(shown, @r"
              path (string) A granted file.…
              limit (integer, optional) Maximum number.
              any (any, optional)
        ");
        let shown = anstream::adapter::strip_str(&returned(&schema).join("\n")).to_string();
        assert!(shown.starts_with("    returns object\n      path (string) A granted file."), "{shown}");
        assert!(arguments(&json!(true)).is_empty());
        for kind in [json!("a\u{1b}[2J"), json!(["a\u{1b}[2J"])] {
            assert_eq!(super::kind(&json!({"type": kind})), r"a\u{1b}[2J");
        }
    }
}
