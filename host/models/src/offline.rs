//! Built in, without key or network: a deterministic router that obeys lines `tool {json}` and takes a tool for a
//! prompt in prose only where there is no doubt. It is not a language model, and says so in every answer (M4).

mod answer;
mod arguments;
mod duplicates;
mod expression;
mod lines;
mod reading;
mod route;
mod schema;

use crate::error::ModelError;
use crate::estimate;
use crate::provider::{Facts, Provider, RawReply, ReplyContext, ToolNames};
use crate::stream::{self, Stream};
use agent_core::message::{Part, Role};
use agent_core::model::{Delta, Model, ModelRequest, OfferedTool, Reply, RequestedCall, StopReason};
use async_trait::async_trait;
use lines::Lines;
use route::{Candidate, Route};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::sync::mpsc::Sender;

/// Tokens of a prompt that the router reads; a budget needs some number.
const WINDOW: u32 = 128_000;

/// Most bytes of a prompt in prose that are looked at.
const PROSE_LIMIT: usize = 16 * 1024;

/// Most characters of a description that are shown.
const DESCRIPTION: usize = 160;

/// The router.
#[derive(Clone, Debug)]
pub struct Offline {
    facts: Facts,
}

/// What the router does about a request.
struct Decision {
    text: String,
    calls: Vec<RequestedCall>,
    /// For the step record: which rule decided, and on what.
    why: Value,
}

impl Default for Offline {
    fn default() -> Self {
        Self::new()
    }
}

impl Offline {
    /// `offline/router`.
    pub fn new() -> Self {
        let model = Model { provider: "offline".into(), name: "router".into(), window: WINDOW };
        Self { facts: Facts { model, tool_names: ToolNames::COMMON, price: None } }
    }
}

#[async_trait]
impl Provider for Offline {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn is_language_model(&self) -> bool {
        false
    }

    async fn reply(
        &self,
        request: &ModelRequest,
        _context: ReplyContext<'_>,
        deltas: &Sender<Delta>,
    ) -> Result<RawReply, ModelError> {
        let Decision { mut text, calls, why } = decide(request);
        if calls.is_empty() {
            text = answer::labelled(&text, estimate::characters_in(request.max_tokens));
        }
        Stream { deltas, delay: Duration::ZERO }.text(&stream::by_words(&text)).await;
        let stop = if calls.is_empty() { StopReason::Stop } else { StopReason::ToolCalls };
        let usage = estimate::usage(request, &text, &calls);
        let reply = Reply { text, calls, stop, usage, model: self.facts.model.to_string(), replay: None };
        let raw = json!({ "router": why, "reply": reply });
        Ok(RawReply { reply, raw })
    }
}

fn decide(request: &ModelRequest) -> Decision {
    if let Some(results) = answer::results(&request.messages, &request.tools) {
        let mut text = if request.output_schema.is_some() { format!("{}\n\n{results}", no_schema()) } else { results };
        if let Some(note) = lines::not_obeyed(&prompt(request), &request.tools) {
            text = format!("{text}\n\n{note}");
        }
        return Decision { text, calls: vec![], why: json!("results") };
    }
    let prompt = prompt(request);
    match lines::read(&prompt, &request.tools) {
        Lines::Calls(calls, _) => {
            let calls = calls.into_iter().map(|(tool, arguments)| requested(tool, arguments)).collect();
            Decision { text: String::new(), calls, why: json!("lines") }
        }
        Lines::Wrong(text) => Decision { text, calls: vec![], why: json!("wrong line") },
        Lines::Unknown(name) => {
            let intro = format!("No tool `{name}` is offered. Nothing was run.");
            choose(&intro, route::nearest(&name, &request.tools))
        }
        Lines::None if request.output_schema.is_some() => {
            Decision { text: no_schema(), calls: vec![], why: json!("output schema") }
        }
        Lines::None if request.tools.is_empty() => {
            let text = "No tool is offered, and without one the router can do nothing.".to_owned();
            Decision { text, calls: vec![], why: json!("no tools") }
        }
        Lines::None => prose(&prompt, &request.tools),
    }
}

/// The texts of the last user message, without the sections that the host puts before its input (L22): what was
/// remembered or looked up is not obeyed.
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

/// `## name` and an empty line, as the host writes its sections.
fn is_section(text: &str) -> bool {
    let heading = text.strip_prefix("## ").and_then(|rest| rest.split_once("\n\n"));
    let in_name = |character: char| character.is_ascii_lowercase() || character == '-';
    heading.is_some_and(|(name, _)| !name.is_empty() && name.chars().all(in_name))
}

fn prose(prompt: &str, tools: &[OfferedTool]) -> Decision {
    if prompt.len() > PROSE_LIMIT {
        let text = format!("The prompt has {} bytes; the router reads prose up to {PROSE_LIMIT}.", prompt.len());
        return Decision { text, calls: vec![], why: json!("long prompt") };
    }
    match route::route(prompt, tools) {
        Route::Take(taken) => {
            let calls = vec![requested(taken.tool, taken.arguments())];
            Decision { text: String::new(), calls, why: json!({ "taken": [scored(&taken)] }) }
        }
        Route::Choose(candidates) if candidates.is_empty() => {
            choose("No tool's name or description has a word in common with that.", candidates)
        }
        Route::Choose(candidates) => choose("Which tool that means is not certain, so none was run.", candidates),
    }
}

/// Shows tools with the line to type for each.
fn choose(intro: &str, candidates: Vec<Candidate<'_>>) -> Decision {
    let why = json!({ "shown": candidates.iter().map(scored).collect::<Vec<_>>() });
    let mut text = intro.to_owned();
    if !candidates.is_empty() {
        text.push_str(" The nearest, each as a line to type:\n");
    }
    for candidate in &candidates {
        let name = &candidate.tool.author_name;
        text.push_str(&format!(
            "\n{name} {}\n  {}\n",
            answer::spaced(&candidate.template()),
            first_sentence(candidate)
        ));
    }
    Decision { text, calls: vec![], why }
}

fn scored(candidate: &Candidate) -> Value {
    json!({ "tool": candidate.tool.author_name, "score": candidate.score })
}

fn first_sentence<'a>(candidate: &Candidate<'a>) -> String {
    let line = candidate.tool.description.trim().lines().next().unwrap_or_default();
    let sentence = line.split_inclusive(". ").next().unwrap_or_default().trim_end();
    match sentence.char_indices().nth(DESCRIPTION) {
        Some((end, _)) => format!("{}…", &sentence[..end]),
        None => sentence.to_owned(),
    }
}

fn requested(tool: &OfferedTool, arguments: String) -> RequestedCall {
    RequestedCall { provider_id: None, name: tool.name.clone(), arguments }
}

fn no_schema() -> String {
    "The agent asks for output that follows a JSON Schema. The router cannot write such output: that needs a language \
     model."
        .to_owned()
}

#[cfg(test)]
mod tests;
