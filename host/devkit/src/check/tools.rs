//! Checks tools from the viewpoint of a model and of a person.

use super::{Finding, Level};
use agent_core::nearest::terms;
use agent_core::tool::ToolDefinition;
use agent_plugins::limits::DESCRIPTION_BYTES;
use serde_json::Value;
use std::collections::BTreeSet;

/// Shorter descriptions rarely say what a tool does, when to use it and what it returns.
const SHORT_DESCRIPTION: usize = 20;
/// The longest name that model providers accept. Longer names are cut and made unique with a number.
const PROVIDERS_NAME: usize = 64;
/// From this share of common words on, two descriptions count as the same.
const SAME_WORDS: f32 = 0.8;
/// Maximum number of arguments without a description that are reported one by one.
const MAX_REPORTED: usize = 8;
/// Maximum depth of a schema that is searched.
const MAX_DEPTH: usize = 12;

pub(super) fn check(tools: &[ToolDefinition], findings: &mut Vec<Finding>) {
    for (index, tool) in tools.iter().enumerate() {
        let mut find =
            |level, rule, message: String| findings.push(Finding::new(level, rule, tool.name.clone(), message));
        name(tool, &mut find);
        description(tool, &mut find);
        traits(tool, &mut find);
        if let Some(other) = tools[..index].iter().find_map(|other| similarity(other, tool)) {
            find(Level::Warning, "alike", other);
        }
        arguments(tool, findings);
    }
}

fn name(tool: &ToolDefinition, find: &mut impl FnMut(Level, &'static str, String)) {
    if tool.name.len() > PROVIDERS_NAME {
        let message = format!(
            "the name has {} characters; model providers accept {PROVIDERS_NAME}, so a model sees a shortened name",
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

fn description(tool: &ToolDefinition, find: &mut impl FnMut(Level, &'static str, String)) {
    let description = tool.description.trim();
    let says_name_only = terms(description).iter().all(|term| terms(&tool.name).contains(term));
    if description.is_empty() {
        find(
            Level::Error,
            "description",
            "the tool has no description, and a model chooses tools by their descriptions".to_owned(),
        );
    } else if description.len() < SHORT_DESCRIPTION || says_name_only {
        let message =
            "the description is too short: say what the tool does, when to use it and what it returns".to_owned();
        find(Level::Warning, "description", message);
    } else if description.len() + 2 >= DESCRIPTION_BYTES {
        find(Level::Warning, "description-length", format!("the description is cut at {DESCRIPTION_BYTES} bytes"));
    }
}

fn traits(tool: &ToolDefinition, find: &mut impl FnMut(Level, &'static str, String)) {
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
            "the tool declares no side effects, so a call is never repeated after a crash: declare it read-only, idempotent \
             or destructive if it is"
            .to_owned();
        find(Level::Hint, "traits", message);
    }
}

/// Why a model may confuse two tools.
fn similarity(first: &ToolDefinition, second: &ToolDefinition) -> Option<String> {
    let words = |tool: &ToolDefinition| terms(&tool.description).into_iter().collect::<BTreeSet<_>>();
    let (one, other) = (words(first), words(second));
    let both = one.intersection(&other).count();
    let all = one.union(&other).count();
    if all > 0 && both as f32 >= SAME_WORDS * all as f32 {
        return Some(format!(
            "the description says the same as that of `{}`: a model cannot choose between them",
            first.name
        ));
    }
    let plain = |name: &str| name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
    let (one, other) = (plain(&first.name), plain(&second.name));
    (one == other || differ_by_one(&one, &other))
        .then(|| format!("the name is almost `{}`: a model will confuse them", first.name))
}

/// Whether one extra letter is the only difference. A replaced letter does not count, because it is often a number or
/// an axis.
fn differ_by_one(one: &str, other: &str) -> bool {
    let (short, long) = if one.len() < other.len() { (one, other) } else { (other, one) };
    let same = short.bytes().zip(long.bytes()).take_while(|(a, b)| a == b).count();
    long.len() == short.len() + 1 && short.len() >= 4 && short[same..] == long[same + 1..]
}

/// Checks that each argument has a description.
fn arguments(tool: &ToolDefinition, findings: &mut Vec<Finding>) {
    let schema = &tool.input_schema;
    let has_any = schema["properties"].as_object().is_some_and(|properties| !properties.is_empty());
    let is_open = schema.get("additionalProperties").is_none_or(|more| *more != false);
    let has_parts = ["$ref", "anyOf", "oneOf", "allOf"].iter().any(|key| schema.get(key).is_some());
    if !has_any && is_open && !has_parts {
        let message =
            "the schema declares no arguments but accepts any: declare them, or set `\"additionalProperties\": false`";
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

/// Collects JSON pointers to the properties without a description. A referenced schema may contain the description.
fn collect_undescribed(root: &Value, (schema, depth): (&Value, usize), pointer: &str, undescribed: &mut Vec<String>) {
    if depth > MAX_DEPTH {
        return;
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let place = format!("{pointer}/properties/{}", name.replace('~', "~0").replace('/', "~1"));
        if !is_described(root, property) {
            undescribed.push(place.clone());
        }
        collect_undescribed(root, (property, depth + 1), &place, undescribed);
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
    let referred = |schema: &Value| {
        let place = schema["$ref"].as_str().and_then(|place| place.strip_prefix('#'));
        place.and_then(|place| root.pointer(place)).is_some_and(has_text)
    };
    let parts = ["anyOf", "oneOf", "allOf"].into_iter().filter_map(|key| property[key].as_array()).flatten();
    has_text(property) || referred(property) || parts.into_iter().any(|part| has_text(part) || referred(part))
}
