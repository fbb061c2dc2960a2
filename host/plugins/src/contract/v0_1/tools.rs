//! Checks and converts the tool definitions that a component returns when it is loaded, and the outcomes of its
//! tool calls.

use super::bindings::exports::agent_host::plugin::tool as wit;
use super::conversion::{SessionMedia, TextBudget, is_deeper, json_in, json_or_error};
use crate::contract::RejectedResult;
use crate::grants::{CHANGING_FILES, Denial, FOLLOWING, GrantAdvice, UnmetNeed};
use crate::limits::{DESCRIPTION_BYTES, JSON_DEPTH, Limit, RESULT_MEDIA_ITEM_BYTES, TOOLS};
use crate::ports::media::NewMediaItem;
use crate::text::{clean, cut};
use agent_core::message::Content;
use agent_core::schema::Schema;
use agent_core::tool::{ToolDefinition, ToolDone, ToolError, Traits, Violation};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write;

/// Maximum length of a tool's name, in bytes.
pub(crate) const NAME_LENGTH: usize = 128;
/// Maximum number of violations that are shown to the model if a tool rejects the arguments of a call.
const SHOWN_VIOLATIONS: usize = 64;

/// Checks and converts the tool definitions of a component (P2). The error message is written for the plugin's author.
pub(crate) fn definitions_in(definitions: Vec<wit::Definition>) -> Result<Vec<ToolDefinition>, String> {
    if definitions.len() > TOOLS {
        return Err(format!("it has {} tools; at most {TOOLS} are allowed", definitions.len()));
    }
    let mut names = BTreeSet::new();
    let mut tools = Vec::with_capacity(definitions.len());
    for definition in definitions {
        let tool = definition_in(definition)?;
        if !names.insert(tool.name.clone()) {
            return Err(format!("it has two tools named `{}`", tool.name));
        }
        tools.push(tool);
    }
    Ok(tools)
}

fn definition_in(definition: wit::Definition) -> Result<ToolDefinition, String> {
    let name = definition.name;
    check_name(&name)?;
    let input_schema = schema(&definition.input_schema, &name, "input")?;
    check_input_schema(&input_schema, &name)?;
    let output_schema = definition.output_schema.map(|text| schema(&text, &name, "output")).transpose()?;
    Ok(ToolDefinition {
        title: definition.title.map(|title| clean(&title, DESCRIPTION_BYTES)),
        description: cut(&definition.description, DESCRIPTION_BYTES).to_owned(),
        input_schema,
        output_schema,
        traits: traits_in(definition.traits),
        priority: definition.priority,
        name,
    })
}

/// Checks the name of a tool.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let is_name = (1..=NAME_LENGTH).contains(&name.len())
        && name.chars().all(|character| character.is_ascii_alphanumeric() || matches!(character, '_' | '-' | '.'));
    if is_name {
        return Ok(());
    }
    let name = clean(name, NAME_LENGTH);
    Err(format!("the tool name {name:?} must have 1 to 128 letters, digits, `_`, `-` or `.`"))
}

/// Checks the schema of a tool's arguments.
pub(crate) fn check_input_schema(schema: &Value, tool: &str) -> Result<(), String> {
    check_schema(schema, tool, "input")?;
    if schema["type"] != "object" {
        return Err(format!("the input schema of `{tool}` must have \"type\": \"object\""));
    }
    Ok(())
}

fn schema(text: &str, tool: &str, which: &str) -> Result<Value, String> {
    let schema = json_or_error(text, &format!("the {which} schema of `{tool}`"))?;
    check_schema(&schema, tool, which)?;
    Ok(schema)
}

fn check_schema(schema: &Value, tool: &str, which: &str) -> Result<(), String> {
    if !schema.is_object() {
        return Err(format!("the {which} schema of `{tool}` is not a JSON object"));
    }
    if is_deeper(schema, JSON_DEPTH) {
        return Err(format!("the {which} schema of `{tool}` has more than {JSON_DEPTH} levels of nesting"));
    }
    // Invalid schemas are refused when a component is loaded. If one schema in a request is invalid, a model provider
    // rejects the whole request, so one invalid schema would make the tools of all plugins unusable.
    Schema::compile(schema).map(drop).map_err(|error| format!("the {which} schema of `{tool}`: {error}"))
}

fn traits_in(traits: wit::Traits) -> Traits {
    Traits {
        read_only: traits.contains(wit::Traits::READ_ONLY),
        destructive: traits.contains(wit::Traits::DESTRUCTIVE),
        idempotent: traits.contains(wit::Traits::IDEMPOTENT),
        sequential: traits.contains(wit::Traits::SEQUENTIAL),
        open_world: traits.contains(wit::Traits::OPEN_WORLD),
        needs_approval: traits.contains(wit::Traits::NEEDS_APPROVAL),
    }
}

/// Returns the total size of the new media items in a tool's outcome, in bytes.
pub(crate) fn new_media_bytes(outcome: &wit::Outcome) -> usize {
    let wit::Outcome::Done(done) = outcome else { return 0 };
    let sizes = done.content.iter().map(|content| match content {
        wit::Content::NewMedia(item) => item.data.len(),
        _ => 0,
    });
    sizes.sum()
}

/// Checks and converts the result of a tool call, and stores the new media items that the result contains. The result
/// may contain at most `bytes` bytes of text.
pub(crate) async fn done_in(
    done: wit::Done,
    (media, bytes): (SessionMedia<'_>, usize),
) -> Result<ToolDone, RejectedResult> {
    let mut budget = TextBudget::new(bytes);
    let mut content = Vec::with_capacity(done.content.len());
    for item in done.content {
        content.push(match item {
            wit::Content::Text(text) => {
                budget.take(&text)?;
                Content::Text(text)
            }
            wit::Content::Json(text) => {
                budget.take(&text)?;
                Content::Json(json_in(&text, "the result's content")?)
            }
            wit::Content::NewMedia(item) if item.data.len() > RESULT_MEDIA_ITEM_BYTES => {
                return Err(RejectedResult::Limit(Limit::ResultMediaItem(RESULT_MEDIA_ITEM_BYTES)));
            }
            wit::Content::NewMedia(item) => {
                let item = NewMediaItem::new(item.data, &item.mime_type, item.name.as_deref());
                Content::Media(media.store(item).await?)
            }
            wit::Content::StoredMedia(digest) => Content::Media(media.resolve(&digest).await?),
        });
    }
    let structured = done.structured.map(|text| {
        budget.take(&text)?;
        json_in(&text, "the structured result")
    });
    Ok(ToolDone { content, structured: structured.transpose()? })
}

/// The missing grants that may have caused the error of a tool call.
#[derive(Clone, Copy, Default)]
pub(crate) struct Missing<'a> {
    /// Needs of the manifest that are not granted.
    pub(crate) unmet: &'a [UnmetNeed],
    /// Needs of the manifest that are not granted. For a component without a manifest, the needs are guessed from
    /// its imports.
    pub(crate) guessed: &'a [UnmetNeed],
    /// The denials that the call has caused.
    pub(crate) denials: &'a [Denial],
}

/// Converts a tool's error to the error that the model receives. Cuts the tool's text to at most `bytes` bytes. If a
/// missing grant may be the reason for the error, the text ends with the line to add to agent.toml.
pub(crate) fn error_in(error: wit::Error, missing: Missing<'_>, bytes: usize) -> ToolError {
    let about_files = |text: &str| text.contains("pre-opened") || text.contains("preopened");
    let text = |text: String, unmet: &[UnmetNeed]| clean(&text, bytes) + &advice(unmet, missing.denials);
    match error {
        wit::Error::InvalidArguments(violations) => {
            ToolError::InvalidArguments { violations: violations_in(violations, bytes) }
        }
        wit::Error::NotFound(message) => ToolError::NotFound { message: text(message, missing.unmet) },
        wit::Error::Denied(message) => ToolError::Denied { message: text(message, missing.guessed) },
        wit::Error::Unavailable(unavailable) => {
            ToolError::Unavailable { message: text(unavailable.message, &[]), retry_after: unavailable.retry_after }
        }
        wit::Error::Failed(message) => {
            let guessed = if about_files(&message) { missing.guessed } else { &[] };
            ToolError::Failed { message: text(message, guessed) }
        }
    }
}

fn violations_in(violations: Vec<wit::Violation>, bytes: usize) -> Vec<Violation> {
    if violations.is_empty() {
        let message = "the tool rejected its arguments without a reason".to_owned();
        return vec![Violation { pointer: String::new(), rule: None, message }];
    }
    let mut left = bytes;
    let violations = violations.into_iter().take(SHOWN_VIOLATIONS).map_while(|violation| {
        let pointer = clean(&violation.pointer, 256);
        let message = clean(&violation.message, left);
        left = left.saturating_sub(pointer.len() + message.len());
        (left > 0).then_some(Violation { pointer, rule: None, message })
    });
    violations.collect()
}

fn advice(unmet: &[UnmetNeed], denials: &[Denial]) -> String {
    let mut text = String::new();
    // If a request was refused, its denial explains the error. Missing grants for other patterns and for secrets are
    // therefore not mentioned.
    let is_about_requests = |thing: &str| thing.starts_with("the request ");
    let refused_request = denials.iter().any(|denial| is_about_requests(&denial.thing));
    // If a link that leads out of a granted directory was refused, its denial explains the error. Missing grants for
    // other directories are therefore not mentioned.
    let left_tree = denials.iter().any(|denial| denial.thing.starts_with(FOLLOWING));
    let is_about_files = |thing: &str| matches!(thing, "reading files" | "reading and writing files" | CHANGING_FILES);
    let is_unrelated = |thing: &str| {
        refused_request && (is_about_requests(thing) || thing.starts_with("the secret "))
            || left_tree && is_about_files(thing)
    };
    // A denial is more specific than a need of the manifest. If the user could allow the denied action
    // and grant the need with the same line of agent.toml, only the denial is shown.
    let is_in_denials = |advice: &GrantAdvice| denials.iter().any(|denial| denial.advice == *advice);
    let needs = unmet.iter().filter(|unmet| !is_unrelated(&unmet.thing) && !is_in_denials(&unmet.advice));
    let needs = needs.map(|unmet| (&unmet.thing, &unmet.advice));
    let denied = denials.iter().map(|denial| (&denial.thing, &denial.advice));
    let mut named = BTreeSet::new();
    for (thing, advice) in needs.chain(denied) {
        if named.insert(thing) {
            let _ = write!(text, "\n{}", agent_core::change::Denial::in_error(thing, &advice.to_string()));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grants;
    use crate::grants::manifest::{Access, Asks, Manifest};

    fn definition(name: &str, input_schema: &str) -> wit::Definition {
        wit::Definition {
            name: name.to_owned(),
            title: None,
            description: "ä".repeat(DESCRIPTION_BYTES),
            input_schema: input_schema.to_owned(),
            output_schema: None,
            traits: wit::Traits::READ_ONLY,
            priority: 3,
        }
    }

    const OBJECT: &str = r#"{"type":"object"}"#;

    // P2: tool definitions are checked when a component is loaded. Row 18: a description that is too long is cut.
    #[test]
    fn p2_row_18_definitions_are_checked() {
        let tools = definitions_in(vec![definition("table.filter", OBJECT)]).expect("a tool");
        assert_eq!(tools[0].description.len(), DESCRIPTION_BYTES);
        assert!(tools[0].traits.read_only && !tools[0].traits.destructive && tools[0].priority == 3);
        let reason = |definitions: Vec<wit::Definition>| definitions_in(definitions).expect_err("refused");
        assert!(reason(vec![definition("a", OBJECT), definition("a", OBJECT)]).contains("two tools named `a`"));
        for name in ["", "a b", "täg", &"x".repeat(129)] {
            assert!(reason(vec![definition(name, OBJECT)]).contains("1 to 128"), "{name}");
        }
        let deep = format!(r#"{{"type":"object","default":{}{}}}"#, "[".repeat(64), "]".repeat(64));
        for schema in ["", "[]", "{}", r#"{"type":"array"}"#, &deep] {
            assert!(reason(vec![definition("a", schema)]).contains("schema of `a`"), "{schema}");
        }
        assert!(reason(vec![definition("a", OBJECT); TOOLS + 1]).contains("1025 tools"));
    }

    // P12, S3: loading a component fails with an error message if a schema of a tool cannot be compiled.
    #[test]
    fn p12_s3_schemas_are_compiled_at_load() {
        let reason = |schema: &str| definitions_in(vec![definition("a", schema)]).expect_err(schema);
        for schema in [
            r#"{"type":"object","properties":{"n":{"pattern":"("}}}"#,
            r#"{"type":"object","properties":{"n":{"type":"text"}}}"#,
            r#"{"type":"object","properties":{"n":{"$ref":"http://example.org/a.json"}}}"#,
        ] {
            assert!(reason(schema).contains("the input schema of `a`"), "{schema}");
        }
        let output =
            wit::Definition { output_schema: Some(r#"{"pattern":"("}"#.to_owned()), ..definition("a", OBJECT) };
        assert!(definitions_in(vec![output]).expect_err("refused").contains("the output schema of `a`"));
    }

    // P6: if an action is denied to a tool, the tool's error names the missing grant and the line to add to agent.toml.
    #[test]
    fn p6_denied_tool_error_names_the_grant() {
        let asks = Asks { files: Some(Access::Read), ..Asks::default() };
        let manifest = Manifest { name: "files".to_owned(), asks, ..Manifest::default() };
        let unmet = grants::unmet(Some(&manifest), &grants::Grants::default());
        let missing = Missing { unmet: &unmet, guessed: &unmet, denials: &[] };
        let shown = |error| error_in(error, missing, 4096).for_model();
        assert!(shown(wit::Error::Denied("no".to_owned())).contains("--grant files:read=DIR"));
        assert!(shown(wit::Error::NotFound("a.csv".to_owned())).contains("[plugins.files.grants]"));
        assert!(!shown(wit::Error::Failed("disk full".to_owned())).contains("grant"));
    }

    // P2: a plugin fails if its result contains invalid JSON, and is stopped if its result exceeds the size limit.
    #[tokio::test]
    async fn p2_results_are_checked() {
        let media = SessionMedia { port: None, session: "s" };
        let done = |content| wit::Done { content: vec![content], structured: None };
        let result = |content| done_in(done(content), (media, 1000));
        assert!(matches!(result(wit::Content::Json("{".to_owned())).await, Err(RejectedResult::Invalid(_))));
        let large = wit::Content::Text("x".repeat(1001));
        assert!(matches!(result(large).await, Err(RejectedResult::Limit(Limit::ResultText(_)))));
        let digest = crate::component::plugin_store::digest_of(b"").as_str().to_owned();
        assert!(matches!(result(wit::Content::StoredMedia(digest)).await, Err(RejectedResult::Invalid(_))));
    }
}
