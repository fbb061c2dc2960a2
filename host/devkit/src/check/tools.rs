//! Tools as a model and a person see them.

use super::{Finding, Level};
use agent_core::nearest::terms;
use agent_core::tool::ToolDefinition;
use agent_plugins::limits::DESCRIPTION_BYTES;
use serde_json::Value;
use std::collections::BTreeSet;

/// Shorter descriptions seldom say what a tool does, when to use it and what it returns.
const SHORT_DESCRIPTION: usize = 20;
/// What models' providers take as a name; longer ones are cut, and told apart by a number.
const PROVIDERS_NAME: usize = 64;
/// Share of words that two descriptions have in common from which on they say the same.
const SAME_WORDS: f32 = 0.8;
/// Arguments without a description that are told one by one.
const TOLD: usize = 8;
/// Levels of a schema that are looked into.
const DEPTH: usize = 12;

pub(super) fn check(tools: &[ToolDefinition], findings: &mut Vec<Finding>) {
    for (index, tool) in tools.iter().enumerate() {
        let mut find =
            |level, rule, message: String| findings.push(Finding::new(level, rule, tool.name.clone(), message));
        name(tool, &mut find);
        description(tool, &mut find);
        traits(tool, &mut find);
        if let Some(other) = tools[..index].iter().find_map(|other| likeness(other, tool)) {
            find(Level::Warning, "alike", other);
        }
        arguments(tool, findings);
    }
}

fn name(tool: &ToolDefinition, find: &mut impl FnMut(Level, &'static str, String)) {
    if tool.name.len() > PROVIDERS_NAME {
        let message = format!(
            "its name has {} characters; providers take {PROVIDERS_NAME}, and a model sees it cut",
            tool.name.len()
        );
        find(Level::Warning, "name-length", message);
    } else if tool.name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        find(Level::Hint, "name", "names of tools are written in lower case, as models guess them".to_owned());
    } else if !tool.name.contains(['.', '_']) {
        find(
            Level::Hint,
            "name",
            "say in its name of what it is, as in `text.count`: all tools of an agent share one name space".to_owned(),
        );
    }
}

fn description(tool: &ToolDefinition, find: &mut impl FnMut(Level, &'static str, String)) {
    let description = tool.description.trim();
    let says_name_only = terms(description).iter().all(|term| terms(&tool.name).contains(term));
    if description.is_empty() {
        find(Level::Error, "description", "it has no description, by which a model chooses it".to_owned());
    } else if description.len() < SHORT_DESCRIPTION || says_name_only {
        let message = "its description says too little: what it does, when to use it, what it returns".to_owned();
        find(Level::Warning, "description", message);
    } else if description.len() + 2 >= DESCRIPTION_BYTES {
        find(Level::Warning, "description-length", format!("its description is cut at {DESCRIPTION_BYTES} bytes"));
    }
}

fn traits(tool: &ToolDefinition, find: &mut impl FnMut(Level, &'static str, String)) {
    let traits = tool.traits;
    if traits.read_only && traits.destructive {
        find(Level::Error, "traits", "it says that it changes nothing, and that it may delete or overwrite".to_owned());
    } else if !(traits.read_only
        || traits.destructive
        || traits.idempotent
        || traits.open_world
        || traits.needs_approval)
    {
        let message =
            "it says nothing of what it does to the world, so that a call is never repeated after a crash: say \
                       read-only, idempotent or destructive where it is so"
                .to_owned();
        find(Level::Hint, "traits", message);
    }
}

/// Why a model will take one for the other.
fn likeness(first: &ToolDefinition, second: &ToolDefinition) -> Option<String> {
    let words = |tool: &ToolDefinition| terms(&tool.description).into_iter().collect::<BTreeSet<_>>();
    let (one, other) = (words(first), words(second));
    let both = one.intersection(&other).count();
    let all = one.union(&other).count();
    if all > 0 && both as f32 >= SAME_WORDS * all as f32 {
        return Some(format!(
            "its description says what that of `{}` says: a model cannot choose between them",
            first.name
        ));
    }
    let plain = |name: &str| name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
    let (one, other) = (plain(&first.name), plain(&second.name));
    (one == other || differ_by_one(&one, &other))
        .then(|| format!("its name is nearly `{}`: a model will write the one for the other", first.name))
}

/// Whether one letter more makes one of them the other. One letter instead of another is often a number or an axis.
fn differ_by_one(one: &str, other: &str) -> bool {
    let (short, long) = if one.len() < other.len() { (one, other) } else { (other, one) };
    let same = short.bytes().zip(long.bytes()).take_while(|(a, b)| a == b).count();
    long.len() == short.len() + 1 && short.len() >= 4 && short[same..] == long[same + 1..]
}

/// Each argument says what it is.
fn arguments(tool: &ToolDefinition, findings: &mut Vec<Finding>) {
    let schema = &tool.input_schema;
    let has_any = schema["properties"].as_object().is_some_and(|properties| !properties.is_empty());
    let is_open = schema.get("additionalProperties").is_none_or(|more| *more != false);
    let has_parts = ["$ref", "anyOf", "oneOf", "allOf"].iter().any(|key| schema.get(key).is_some());
    if !has_any && is_open && !has_parts {
        let message = "its schema names no argument and takes any: name them, or say `\"additionalProperties\": false`";
        findings.push(Finding::new(Level::Hint, "arguments-open", tool.name.clone(), message));
    }
    let mut undescribed = Vec::new();
    gather(schema, (schema, 0), "", &mut undescribed);
    let more = undescribed.len().saturating_sub(TOLD);
    for pointer in undescribed.into_iter().take(TOLD) {
        let message = "this argument has no description; a model guesses what is meant";
        findings.push(Finding::new(
            Level::Warning,
            "argument-description",
            format!("{} {pointer}", tool.name),
            message,
        ));
    }
    if more > 0 {
        let message = format!("{more} more of its arguments have no description");
        findings.push(Finding::new(Level::Warning, "argument-description", tool.name.clone(), message));
    }
}

/// Pointers of the properties that nothing is said of; what a reference leads to may say it.
fn gather(root: &Value, (schema, depth): (&Value, usize), pointer: &str, undescribed: &mut Vec<String>) {
    if depth > DEPTH {
        return;
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let place = format!("{pointer}/properties/{}", name.replace('~', "~0").replace('/', "~1"));
        if !is_described(root, property) {
            undescribed.push(place.clone());
        }
        gather(root, (property, depth + 1), &place, undescribed);
    }
    if schema["items"].is_object() {
        gather(root, (&schema["items"], depth + 1), &format!("{pointer}/items"), undescribed);
    }
}

fn is_described(root: &Value, property: &Value) -> bool {
    let says = |schema: &Value| {
        let text = |key: &str| schema[key].as_str().is_some_and(|text| !text.trim().is_empty());
        text("description") || text("title")
    };
    let referred = |schema: &Value| {
        let place = schema["$ref"].as_str().and_then(|place| place.strip_prefix('#'));
        place.and_then(|place| root.pointer(place)).is_some_and(says)
    };
    let parts = ["anyOf", "oneOf", "allOf"].into_iter().filter_map(|key| property[key].as_array()).flatten();
    says(property) || referred(property) || parts.into_iter().any(|part| says(part) || referred(part))
}
