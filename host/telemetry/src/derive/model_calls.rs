//! Spans of model calls: the calls of the steps, the questions of plugins, and embeddings.

use super::commits::StoredCommit;
use super::messages::{add_input, add_output, add_text_input, add_text_output};
use super::record_bodies::{EmbeddingBody, PlanPromptBody, Prompt, QuestionBody, ReplyBody, SummaryBody, body_of};
use super::turn::{Parent, TurnWalk};
use crate::conventions::open_inference::kind;
use crate::conventions::{common, gen_ai, host, open_inference};
use crate::span::{Span, SpanKind, SpanStatus, Value};
use agent_core::event::EventKind;
use agent_core::model::{Reply, Usage};
use agent_core::trace::SpanKey;
use agent_store::StoredRecord;
use serde_json::{Value as Json, json};

/// The author of a summary that no model wrote.
const EXTRACT: &str = "extract";
/// Maximum number of tool definitions of a prompt.
const MAX_TOOLS: usize = 128;

/// The records of one model call.
#[derive(Default)]
pub(super) struct ModelCallRecords<'d> {
    pub(super) prompt: Option<&'d StoredRecord>,
    pub(super) plan: Option<&'d StoredRecord>,
    pub(super) reply: Option<&'d StoredRecord>,
}

impl<'d> TurnWalk<'d> {
    /// Adds the span of a step's model call. A call without a reply has failed.
    pub(super) fn add_model_call(&mut self, records: &ModelCallRecords<'d>, commit: &StoredCommit<'d>) {
        let Some(record) = records.prompt else { return };
        let Some(prompt) = body_of::<Prompt>(record) else { return };
        let reply = records.reply.and_then(body_of::<ReplyBody>).map(|body| body.reply);
        let parent = self.in_step(record.record.step);
        let name = format!("{} {}", gen_ai::operation::CHAT, prompt.model.name);
        let span = self.span((Some(SpanKey::Record(record.number, 0)), parent), kind::LLM, name);
        // The time before the request was sent belongs to the host, for example because it was not running.
        let sent = prompt.sent_at.map_or(self.boundary, |time| time.saturating_mul(1_000_000));
        let mut span = Self::timed(span, sent.clamp(self.boundary, self.now), self.now);
        self.set_request(&mut span, &prompt);
        span.set(host::STEP, Value::count(record.record.step.into()));
        let role = records.plan.and_then(body_of::<PlanPromptBody>).map(|plan| plan.asked);
        span.set_if(host::ROLE, role.as_ref().and_then(Json::as_str));
        match &reply {
            Some(reply) => {
                set_usage(&mut span, reply.usage);
                span.set(gen_ai::RESPONSE_MODEL, self.data.scrubber.label(&reply.model));
                let stop = json!(reply.stop).as_str().unwrap_or_default().to_owned();
                span.set(gen_ai::FINISH_REASONS, Value::Texts(vec![stop]));
                span.status = SpanStatus::Ok;
            }
            None => {
                span.set(common::ERROR_TYPE, "model_error");
                span.status = self.failed(failure(commit));
            }
        }
        self.add_prompt_content(&mut span, (record.number, &prompt), reply.as_ref());
        self.spans.push(span);
    }

    fn set_request(&self, span: &mut Span, prompt: &Prompt) {
        span.kind = SpanKind::Client;
        self.set_model(span, &prompt.model.provider, &prompt.model.name);
        if let Some(max_tokens) = prompt.max_tokens {
            span.set(gen_ai::MAX_TOKENS, Value::count(max_tokens.into()));
            span.set(open_inference::PARAMETERS, json!({"max_tokens": max_tokens}).to_string());
        }
    }

    fn set_model(&self, span: &mut Span, provider: &str, name: &str) {
        let label = |text: &str| self.data.scrubber.label(text);
        span.set(gen_ai::OPERATION, gen_ai::operation::CHAT);
        span.set(open_inference::MODEL, label(name));
        span.set(open_inference::PROVIDER, label(provider));
        span.set(gen_ai::REQUEST_MODEL, label(name));
        span.set(gen_ai::PROVIDER, label(provider_name(provider)));
    }

    fn add_prompt_content(&self, span: &mut Span, (number, prompt): (u64, &Prompt), reply: Option<&Reply>) {
        let mut writer = self.writer(span);
        if let Some(reply) = reply {
            add_output(&mut writer, reply);
            writer.output(reply.text.clone());
        }
        let system: Vec<&str> =
            prompt.system.iter().filter_map(|digest| self.data.texts.get(digest)).map(String::as_str).collect();
        let mut index = 0;
        if !system.is_empty() {
            add_text_input(&mut writer, index, "system", system.join("\n\n"));
            index += 1;
        }
        let none = (Vec::new(), 0);
        let (ids, omitted) = self.data.prompts.get(&number).unwrap_or(&none);
        let messages: Vec<_> = ids.iter().filter_map(|id| self.data.messages.get(id)).collect();
        for message in &messages {
            index += add_input(&mut writer, index, message);
        }
        for (number, definition) in self.tool_definitions(prompt).enumerate().take(MAX_TOOLS) {
            writer.add(format!("{}.{number}.tool.json_schema", open_inference::TOOLS), definition);
        }
        if let Some(last) = messages.last() {
            writer.input(super::messages::message_text(last));
        }
        writer.finish();
        if *omitted > 0 {
            span.set(host::MESSAGES_OMITTED, Value::count(*omitted as u64));
        }
    }

    /// Returns the definitions of the offered tools in the form of OpenAI's API, which viewers read.
    fn tool_definitions(&self, prompt: &Prompt) -> impl Iterator<Item = String> {
        let list = prompt.tool_list.as_ref().and_then(|digest| self.data.texts.get(digest));
        let list: Json = list.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let digests = list["definitions"].as_array().cloned().unwrap_or_default();
        let texts = digests.into_iter().filter_map(|digest| self.data.texts.get(digest.as_str()?));
        texts.filter_map(|text| {
            let tool: Json = serde_json::from_str(text).ok()?;
            let (name, description, schema) = (&tool["name"], &tool["description"], &tool["input_schema"]);
            let function = json!({"name": name, "description": description, "parameters": schema});
            Some(json!({"type": "function", "function": function}).to_string())
        })
    }

    /// Adds the span of a plugin's question to the model. It belongs to the plugin's call.
    pub(super) fn add_question(&mut self, record: &'d StoredRecord) {
        let Some(body) = body_of::<QuestionBody>(record) else { return };
        let call = agent_core::message::CallId(body.call.clone());
        let parent = match self.calls.contains_key(&call) {
            true => Some(SpanKey::Call(&call)),
            false if body.call.starts_with("turn ") => Some(SpanKey::Context),
            false => self.in_step(record.record.step),
        };
        let model = body.reply.as_ref().map_or(String::new(), |reply| reply.model.clone());
        let (provider, name) = model.split_once('/').unwrap_or(("", &model));
        let span_name = format!("{} {name}", gen_ai::operation::CHAT).trim_end().to_owned();
        let span = self.span((Some(SpanKey::Record(record.number, 0)), parent), kind::LLM, span_name);
        let mut span = match body.timing {
            Some(timing) => self.measured(span, timing),
            None => Self::timed(span, self.now, self.now),
        };
        span.kind = SpanKind::Client;
        self.set_model(&mut span, provider, name);
        span.set(host::PLUGIN, self.data.scrubber.label(&body.plugin));
        let mut writer = self.writer(&mut span);
        if let Some(reply) = &body.reply {
            add_text_output(&mut writer, reply.text.clone());
            writer.output(reply.text.clone());
        }
        let system = body.question.system.iter().map(|digest| ("system", digest));
        let messages = body.question.messages.iter().map(|(role, digest)| (role.as_str(), digest));
        for (index, (role, digest)) in system.chain(messages).enumerate() {
            if let Some(text) = self.data.texts.get(digest) {
                add_text_input(&mut writer, index, role, text.clone());
            }
        }
        writer.finish();
        match (&body.reply, body.error) {
            (Some(reply), _) => {
                set_usage(&mut span, reply.usage);
                span.status = SpanStatus::Ok;
            }
            (None, error) => {
                span.set(common::ERROR_TYPE, "model_error");
                span.status = self.failed(error.unwrap_or_default());
            }
        }
        self.spans.push(span);
    }

    /// Adds the span of the embedding model that selected the turn's tools before the first step, or the tools of a plan
    /// after the reply of the planner.
    pub(super) fn add_embedding(&mut self, record: &'d StoredRecord) {
        let Some(body) = body_of::<EmbeddingBody>(record) else { return };
        let (provider, name) = body.model.split_once('/').unwrap_or(("", &body.model));
        let span_name = format!("{} {name}", gen_ai::operation::EMBEDDINGS);
        let took = body.took_ms.saturating_mul(1_000_000);
        let (parent, (start, end)) = match record.record.step {
            0 => (None, (self.boundary, self.boundary.saturating_add(took).min(self.now))),
            step => (self.in_step(step), (self.now.saturating_sub(took).max(self.boundary), self.now)),
        };
        let span = self.span((Some(SpanKey::Record(record.number, 0)), parent), kind::EMBEDDING, span_name);
        let mut span = Self::timed(span, start, end);
        span.kind = SpanKind::Client;
        span.set(gen_ai::OPERATION, gen_ai::operation::EMBEDDINGS);
        span.set(open_inference::EMBEDDING_MODEL, self.data.scrubber.label(name));
        span.set(gen_ai::REQUEST_MODEL, self.data.scrubber.label(name));
        span.set(gen_ai::PROVIDER, self.data.scrubber.label(provider_name(provider)));
        span.status = match body.error {
            None => SpanStatus::Ok,
            Some(error) => self.failed(error),
        };
        self.spans.push(span);
    }

    /// Adds the span of a summary of messages that left the prompt. A model or the host wrote the summary.
    pub(super) fn add_summary(&mut self, record: &'d StoredRecord) {
        let Some(body) = body_of::<SummaryBody>(record) else { return };
        let parent: Parent<'_> = self.in_current_step();
        let key = (Some(SpanKey::Record(record.number, 0)), parent);
        let mut span = match body.by.split_once('/').filter(|_| body.by != EXTRACT) {
            Some((provider, name)) => {
                let mut span = self.span(key, kind::LLM, format!("{} {name}", gen_ai::operation::CHAT));
                span.kind = SpanKind::Client;
                self.set_model(&mut span, provider, name);
                span
            }
            None => self.span(key, kind::CHAIN, "summary".to_owned()),
        };
        span.status = body.problem.map_or(SpanStatus::Ok, |problem| self.failed(problem));
        if let Some(text) = self.data.texts.get(&body.summary) {
            let mut writer = self.writer(&mut span);
            writer.output(text.clone());
            writer.finish();
        }
        self.spans.push(span);
    }
}

/// Returns why a model call failed.
fn failure(commit: &StoredCommit<'_>) -> String {
    let reason = commit.events.iter().find_map(|event| match &event.kind {
        EventKind::Retry { reason, .. } | EventKind::ModelFallback { reason, .. } => Some(reason.clone()),
        EventKind::Error { message, .. } => Some(message.clone()),
        _ => None,
    });
    reason.unwrap_or_else(|| "the model did not answer".to_owned())
}

/// Sets the tokens and the cost of a model call. The prompt tokens include the tokens of the provider's cache.
fn set_usage(span: &mut Span, usage: Usage) {
    let tokens = usage.details();
    let prompt = tokens.uncached_prompt.saturating_add(tokens.cache_read).saturating_add(tokens.cache_write);
    let counts = [
        (open_inference::PROMPT_TOKENS, prompt),
        (open_inference::COMPLETION_TOKENS, tokens.completion),
        (open_inference::TOTAL_TOKENS, prompt.saturating_add(tokens.completion)),
        (gen_ai::INPUT_TOKENS, prompt),
        (gen_ai::OUTPUT_TOKENS, tokens.completion),
    ];
    let details = [
        (open_inference::CACHE_READ, tokens.cache_read),
        (open_inference::CACHE_WRITE, tokens.cache_write),
        (open_inference::REASONING, tokens.thinking),
        (gen_ai::CACHE_READ, tokens.cache_read),
        (gen_ai::CACHE_WRITE, tokens.cache_write),
    ];
    let details = details.into_iter().filter(|(_, count)| *count > 0);
    for (name, count) in counts.into_iter().chain(details) {
        span.set(name, Value::count(count));
    }
    if let Some(cost) = usage.cost {
        span.set(open_inference::COST, Value::Fraction(cost.dollars()));
        if cost.partial {
            span.set(host::COST_IS_PARTIAL, Value::Flag(true));
        }
    }
}

/// Returns the name of a provider in the OpenTelemetry conventions.
fn provider_name(provider: &str) -> &str {
    match provider {
        "gemini" | "google" => "gcp.gemini",
        "mistral" => "mistral_ai",
        "azure" => "azure.ai.openai",
        "xai" => "x_ai",
        other => other,
    }
}
