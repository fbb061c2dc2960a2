//! Checks the names, descriptions, declared side effects and arguments of tools.

use super::{Finding, Level};
use agent_core::nearest::terms;
use agent_core::tool::ToolDefinition;
use agent_plugins::limits::DESCRIPTION_BYTES;
use serde_json::Value;
use std::collections::BTreeSet;

/// Minimum length of a description, in bytes. Shorter descriptions rarely explain what a tool does and when to use it.
const MIN_DESCRIPTION_BYTES: usize = 20;
/// Maximum length of a tool's name that model providers accept, in bytes. The host shortens a longer name before it
/// sends the name to a provider.
const MAX_PROVIDER_NAME: usize = 64;
/// Minimum share of common words for which two descriptions are almost the same: the number of words that occur in
/// both descriptions, divided by the number of words that occur in at least one of them.
const MIN_COMMON_SHARE: f32 = 0.8;
/// Maximum number of arguments without a description that are reported separately for each tool.
const MAX_REPORTED: usize = 8;
/// Maximum depth to which a schema is searched for arguments without a description.
const MAX_DEPTH: usize = 12;

pub(super) fn check(tools: &[ToolDefinition], findings: &mut Vec<Finding>) {
    for (index, tool) in tools.iter().enumerate() {
        let mut find =
            |level, rule, message: String| findings.push(Finding::new(level, rule, tool.name.clone(), message));
        check_name(tool, &mut find);
        check_description(tool, &mut find);
        check_traits(tool, &mut find);
        if let Some(problem) = tools[..index].iter().find_map(|earlier| similarity(earlier, tool)) {
            find(Level::Warning, "alike", problem);
        }
        check_arguments(tool, findings);
    }
}

fn check_name(tool: &ToolDefinition, find: &mut impl FnMut(Level, &'static str, String)) {
    if tool.name.len() > MAX_PROVIDER_NAME {
        let message = format!(
            "the name has {} characters; model providers accept {MAX_PROVIDER_NAME}, so a model sees a shortened name",
            tool.name.len()
        );
        find(Level::Warning, "name-length", message);
    } else if tool.name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        find(Level::Hint, "name", "write the name in lower case, as models expect".to_owned());
    } else if !tool.name.contains(['.', '_']) {
        find(
            Level::Hint,
            "name",
            "add a prefix to the name, as in `text.count`: all tools of an agent share one namespace".to_owned(),
        );
    }
}

fn check_description(tool: &ToolDefinition, find: &mut impl FnMut(Level, &'static str, String)) {
    let description = tool.description.trim();
    let repeats_name = terms(description).iter().all(|term| terms(&tool.name).contains(term));
    if description.is_empty() {
        find(
            Level::Error,
            "description",
            "the tool has no description, but models choose tools by their descriptions".to_owned(),
        );
    } else if description.len() < MIN_DESCRIPTION_BYTES || repeats_name {
        let message =
            "the description is too short: say what the tool does, when to use it and what it returns".to_owned();
        find(Level::Warning, "description", message);
    } else if description.len() + 2 >= DESCRIPTION_BYTES {
        find(Level::Warning, "description-length", format!("the description is cut at {DESCRIPTION_BYTES} bytes"));
    }
}

fn check_traits(tool: &ToolDefinition, find: &mut impl FnMut(Level, &'static str, String)) {
    let traits = tool.traits;
    if traits.read_only && traits.destructive {
        find(Level::Error, "traits", "the tool is declared both read-only and destructive".to_owned());
    } else if !(traits.read_only
        || traits.destructive
        || traits.idempotent
        || traits.open_world
        || traits.needs_approval)
    {
        let message =
            "the tool does not declare its side effects, so a call is never repeated after a crash: if the tool is \
             read-only, idempotent or destructive, declare this"
                .to_owned();
        find(Level::Hint, "traits", message);
    }
}

/// Returns the reason why a model may confuse two tools, or None if they differ enough.
fn similarity(first: &ToolDefinition, second: &ToolDefinition) -> Option<String> {
    let words = |tool: &ToolDefinition| terms(&tool.description).into_iter().collect::<BTreeSet<_>>();
    let (first_words, second_words) = (words(first), words(second));
    let common = first_words.intersection(&second_words).count();
    let total = first_words.union(&second_words).count();
    if total > 0 && common as f32 >= MIN_COMMON_SHARE * total as f32 {
        return Some(format!(
            "the description is almost the same as that of `{}`, so a model cannot choose between the two tools",
            first.name
        ));
    }
    let normalized = |name: &str| name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
    let (first_name, second_name) = (normalized(&first.name), normalized(&second.name));
    (first_name == second_name || differ_by_added_letter(&first_name, &second_name))
        .then(|| format!("the name is almost the same as `{}`, so a model will confuse the two tools", first.name))
}

/// Whether one name has exactly one letter more than the other. Two names that differ in one replaced character do not
/// count as similar, because the character is often a number or an axis, as in `move_x` and `move_y`.
fn differ_by_added_letter(left: &str, right: &str) -> bool {
    let (short, long) = if left.len() < right.len() { (left, right) } else { (right, left) };
    let common = short.bytes().zip(long.bytes()).take_while(|(a, b)| a == b).count();
    long.len() == short.len() + 1 && short.len() >= 4 && short[common..] == long[common + 1..]
}

/// Checks that each argument has a description.
fn check_arguments(tool: &ToolDefinition, findings: &mut Vec<Finding>) {
    let schema = &tool.input_schema;
    let has_any = schema["properties"].as_object().is_some_and(|properties| !properties.is_empty());
    let is_open = schema.get("additionalProperties").is_none_or(|more| *more != false);
    let has_parts = ["$ref", "anyOf", "oneOf", "allOf"].iter().any(|key| schema.get(key).is_some());
    if !has_any && is_open && !has_parts {
        let message = "the schema declares no arguments but accepts any arguments: declare them, or set `\"additionalProperties\": false`";
        findings.push(Finding::new(Level::Hint, "arguments-open", tool.name.clone(), message));
    }
    let mut undescribed = Vec::new();
    collect_undescribed(schema, (schema, 0), "", &mut undescribed);
    let more = undescribed.len().saturating_sub(MAX_REPORTED);
    for pointer in undescribed.into_iter().take(MAX_REPORTED) {
        let message = "this argument has no description, so a model has to guess its meaning";
        findings.push(Finding::new(
            Level::Warning,
            "argument-description",
            format!("{} {pointer}", tool.name),
            message,
        ));
    }
    if more > 0 {
        let message = format!("{more} more arguments have no description");
        findings.push(Finding::new(Level::Warning, "argument-description", tool.name.clone(), message));
    }
}

/// Collects JSON pointers to the properties without a description. The description may be in a schema that the property
/// references.
fn collect_undescribed(root: &Value, (schema, depth): (&Value, usize), pointer: &str, undescribed: &mut Vec<String>) {
    if depth > MAX_DEPTH {
        return;
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let property_pointer = format!("{pointer}/properties/{}", name.replace('~', "~0").replace('/', "~1"));
        if !is_described(root, property) {
            undescribed.push(property_pointer.clone());
        }
        collect_undescribed(root, (property, depth + 1), &property_pointer, undescribed);
    }
    if schema["items"].is_object() {
        collect_undescribed(root, (&schema["items"], depth + 1), &format!("{pointer}/items"), undescribed);
    }
}

fn is_described(root: &Value, property: &Value) -> bool {
    let has_text = |schema: &Value| {
        let text = |key: &str| schema[key].as_str().is_some_and(|text| !text.trim().is_empty());
        text("description") || text("title")
    };
    let reference_has_text = |schema: &Value| {
        let target = schema["$ref"].as_str().and_then(|reference| reference.strip_prefix('#'));
        target.and_then(|pointer| root.pointer(pointer)).is_some_and(has_text)
    };
    let parts = ["anyOf", "oneOf", "allOf"].into_iter().filter_map(|key| property[key].as_array()).flatten();
    has_text(property)
        || reference_has_text(property)
        || parts.into_iter().any(|part| has_text(part) || reference_has_text(part))
}
