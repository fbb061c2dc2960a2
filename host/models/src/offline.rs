//! A built-in deterministic router that needs no key and no network (M4). The router executes prompt lines of the form
//! `tool {json}`. For a prompt in prose, the router calls a tool only if it is clear which tool the prompt means. The
//! router is not a language model, and each of its answers says so.

mod answer;
mod arguments;
mod arithmetic;
mod call_lines;
mod duplicate_keys;
mod prompt_reader;
mod route;
mod tool_schema;

use crate::delta_sender::{self, DeltaSender};
use crate::error::ModelError;
use crate::estimate;
use crate::provider::{ModelInfo, Provider, RawReply, ReplyContext, ToolNameRules};
use agent_core::message::{Part, Role};
use agent_core::model::{Delta, Model, ModelRequest, OfferedTool, Reply, RequestedCall, StopReason};
use async_trait::async_trait;
use call_lines::CallLines;
use route::{Candidate, Route};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::sync::mpsc::Sender;

/// Context window in tokens. The router has no real context window, but the host needs a number to calculate
/// its budgets.
const CONTEXT_WINDOW: u32 = 128_000;

/// Maximum size of a prompt in prose, in bytes. The router does not analyse longer prose.
const MAX_PROSE_BYTES: usize = 16 * 1024;

/// Maximum number of characters of a tool description that an answer shows.
const MAX_DESCRIPTION_CHARACTERS: usize = 160;

/// The router, which can be used instead of a language model. See the [module documentation](self).
#[derive(Clone, Debug)]
pub struct OfflineRouter {
    info: ModelInfo,
}

/// The router's response to a request, which is either a text or a list of calls.
struct Decision {
    text: String,
    calls: Vec<RequestedCall>,
    /// Data for the step record: the name of the rule that applied, or the tools that the router considered and
    /// their scores.
    reason: Value,
}

impl Default for OfflineRouter {
    fn default() -> Self {
        Self::new()
    }
}

impl OfflineRouter {
    /// Creates the router, whose model name is `offline/router`.
    pub fn new() -> Self {
        let model = Model { provider: "offline".into(), name: "router".into(), window: CONTEXT_WINDOW };
        Self { info: ModelInfo { model, tool_names: ToolNameRules::COMMON, price: None } }
    }
}

#[async_trait]
impl Provider for OfflineRouter {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn is_language_model(&self) -> bool {
        false
    }

    async fn reply(
        &self,
        request: &ModelRequest,
        context: ReplyContext<'_>,
        deltas: &Sender<Delta>,
    ) -> Result<RawReply, ModelError> {
        let Decision { mut text, calls, reason } = decide(request);
        if calls.is_empty() {
            text = answer::with_note(&text, estimate::characters_in(request.max_tokens));
        }
        let sender = DeltaSender { deltas, delay: Duration::ZERO, progress: context.progress };
        sender.text(&delta_sender::split_at_words(&text)).await;
        let stop = if calls.is_empty() { StopReason::Stop } else { StopReason::ToolCalls };
        let usage = estimate::usage(request, &text, &calls);
        let reply = Reply { text, calls, stop, usage, model: self.info.model.to_string(), replay: None };
        let raw = json!({ "router": reason, "reply": reply });
        Ok(RawReply { reply, raw })
    }
}

fn decide(request: &ModelRequest) -> Decision {
    if let Some(results) = answer::results(&request.messages, &request.tools) {
        let mut text =
            if request.output_schema.is_some() { format!("{}\n\n{results}", schema_unsupported()) } else { results };
        if let Some(note) = call_lines::ignored_lines_note(&prompt(request), &request.tools) {
            text = format!("{text}\n\n{note}");
        }
        return Decision { text, calls: vec![], reason: json!("results") };
    }
    let prompt = prompt(request);
    match call_lines::parse(&prompt, &request.tools) {
        CallLines::Calls(calls, _) => {
            let calls = calls.into_iter().map(|(tool, arguments)| requested_call(tool, arguments)).collect();
            Decision { text: String::new(), calls, reason: json!("lines") }
        }
        CallLines::Invalid(text) => Decision { text, calls: vec![], reason: json!("wrong line") },
        CallLines::Unknown(name) => {
            let intro = format!("There is no tool named `{name}`. Nothing was run.");
            list_tools(&intro, route::nearest(&name, &request.tools))
        }
        CallLines::None if request.output_schema.is_some() => {
            Decision { text: schema_unsupported(), calls: vec![], reason: json!("output schema") }
        }
        CallLines::None if request.tools.is_empty() => {
            let text = "No tools are available, and the router can only run tools.".to_owned();
            Decision { text, calls: vec![], reason: json!("no tools") }
        }
        CallLines::None => route_prose(&prompt, &request.tools),
    }
}

/// Returns the text of the last user message, without the sections that the host inserts before the user's input (L22).
/// These sections contain remembered or retrieved text, and the router must never execute calls from this text.
fn prompt(request: &ModelRequest) -> String {
    let message = request.messages.iter().rev().find(|message| message.role == Role::User);
    let texts = message.into_iter().flat_map(|message| &message.parts).filter_map(|part| match part {
        Part::Text(text) => Some(text.clone()),
        Part::Json(json) => Some(json.to_string()),
        _ => None,
    });
    let texts: Vec<String> = texts.collect();
    let sections = texts.iter().take_while(|text| is_section(text)).count();
    texts[sections.min(texts.len().saturating_sub(1))..].join("\n")
}

/// Returns whether the text is a section that the host inserted before the user's input. Each section that the host
/// inserts begins with the line `## name` and an empty line.
fn is_section(text: &str) -> bool {
    let heading = text.strip_prefix("## ").and_then(|rest| rest.split_once("\n\n"));
    let in_name = |character: char| character.is_ascii_lowercase() || character == '-';
    heading.is_some_and(|(name, _)| !name.is_empty() && name.chars().all(in_name))
}

fn route_prose(prompt: &str, tools: &[OfferedTool]) -> Decision {
    if prompt.len() > MAX_PROSE_BYTES {
        let text = format!(
            "The prompt has {} bytes, but the router reads at most {MAX_PROSE_BYTES} bytes of prose.",
            prompt.len()
        );
        return Decision { text, calls: vec![], reason: json!("long prompt") };
    }
    match route::route(prompt, tools) {
        Route::Call(candidate) => {
            let calls = vec![requested_call(candidate.tool, candidate.arguments())];
            Decision { text: String::new(), calls, reason: json!({ "taken": [score_record(&candidate)] }) }
        }
        Route::Suggest(candidates) if candidates.is_empty() => {
            list_tools("No tool name or description shares a word with this prompt.", candidates)
        }
        Route::Suggest(candidates) => list_tools("It is not clear which tool you mean, so none was run.", candidates),
    }
}

/// Answers with `intro` and a list of tools. For each tool, the list contains a line that the user can type to call
/// the tool.
fn list_tools(intro: &str, candidates: Vec<Candidate<'_>>) -> Decision {
    let reason = json!({ "shown": candidates.iter().map(score_record).collect::<Vec<_>>() });
    let mut text = intro.to_owned();
    if !candidates.is_empty() {
        text.push_str(" The closest tools, each with a line that you can type:\n");
    }
    for candidate in &candidates {
        let name = &candidate.tool.author_name;
        text.push_str(&format!(
            "\n{name} {}\n  {}\n",
            answer::one_line_json(&candidate.template()),
            first_sentence(candidate)
        ));
    }
    Decision { text, calls: vec![], reason }
}

fn score_record(candidate: &Candidate) -> Value {
    json!({ "tool": candidate.tool.author_name, "score": candidate.score })
}

fn first_sentence<'a>(candidate: &Candidate<'a>) -> String {
    let line = candidate.tool.description.trim().lines().next().unwrap_or_default();
    let sentence = line.split_inclusive(". ").next().unwrap_or_default().trim_end();
    match sentence.char_indices().nth(MAX_DESCRIPTION_CHARACTERS) {
        Some((end, _)) => format!("{}…", &sentence[..end]),
        None => sentence.to_owned(),
    }
}

fn requested_call(tool: &OfferedTool, arguments: String) -> RequestedCall {
    RequestedCall { provider_id: None, name: tool.name.clone(), arguments }
}

fn schema_unsupported() -> String {
    "The agent requires output that follows a JSON Schema. The router cannot produce such output; that needs a language \
     model."
        .to_owned()
}

#[cfg(test)]
mod tests;
