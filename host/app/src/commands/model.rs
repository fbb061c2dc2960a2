//! `model list|test`: lists the models of the providers, and tests a model with one small request.

use crate::arguments::ModelCommand;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::terminal::{BOLD, DIM, Terminal, text};
use agent_config::{AgentOptions, Settings};
use agent_core::message::{Digest, Dimensions, Media, Message, Part, Role};
use agent_core::model::{Delta, ModelRequest, OfferedTool};
use agent_core::plugin::Lifecycle;
use agent_models::{
    MediaBytes, MediaSource, Price, Provider, Providers, Purpose, RawReply, ReplyContext, known_models,
};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Maximum time to wait for the list of models of one provider.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of models of one provider that are listed if no provider is named.
const MAX_LISTED: usize = 10;
/// Name of the tool in the test request, and of its argument.
const TOOL: &str = "report_color";
const ARGUMENT: &str = "color";
/// A red image of 32 × 32 pixels in the format PNG.
const IMAGE: &[u8] = include_bytes!("model/red.png");
/// Maximum number of tokens of the test's reply. A model that thinks also needs tokens for its thinking.
const MAX_TOKENS: u32 = 4096;

/// Runs a subcommand of `model`.
pub(crate) async fn run(command: ModelCommand, terminal: &Terminal) -> Result<Exit, Failure> {
    match command {
        ModelCommand::List { provider, agent } => list(options(agent, None, None), provider, terminal).await,
        ModelCommand::Test { model, agent, base_url } => test(options(agent, Some(model), base_url), terminal).await,
    }
}

fn options(agent: Option<PathBuf>, model: Option<String>, base_url: Option<String>) -> AgentOptions {
    // These commands load no plugins, but an agent without a file must have a plugin folder.
    let plugins = agent.is_none().then(|| PathBuf::from("."));
    AgentOptions { plugins, agent, model, base_url, ..AgentOptions::default() }
}

async fn list(options: AgentOptions, wanted: Option<String>, terminal: &Terminal) -> Result<Exit, Failure> {
    let settings = Settings::read(&options, &environment::host())?;
    let (_, configured) = settings.models()?;
    let names: Vec<String> = configured.iter().map(|provider| provider.name.clone()).collect();
    if let Some(wanted) = wanted.as_ref().filter(|wanted| !names.contains(wanted)) {
        return Err(Failure::refused(format!(
            "`{wanted}` is not a known provider: use {}, or add a table [providers.{wanted}] to agent.toml",
            names.join(", ")
        )));
    }
    // Remote providers answer a request only if it contains a key. A provider without a key is a server on this machine.
    let is_asked = |provider: &agent_models::ProviderConfig| match &wanted {
        Some(wanted) => provider.name == *wanted,
        None => provider.key.is_some() || agent_models::known_provider(&provider.name).is_none_or(is_local),
    };
    let asked: Vec<String> =
        configured.iter().filter(|provider| is_asked(provider)).map(|it| it.name.clone()).collect();
    let providers = Providers::new(configured);
    let mut found = 0;
    for provider in &asked {
        match providers.list_models(provider, LIST_TIMEOUT).await {
            Some(models) => found += print_models(provider, models, wanted.is_some(), terminal)?,
            None if wanted.is_some() => {
                return Err(Failure::refused(format!(
                    "`{provider}` does not answer with a list of models: check its key and its address"
                )));
            }
            None => {}
        }
    }
    if found == 0 {
        terminal.note(
            "no provider answers with a list of models: set the key of a provider, or start a server on this machine",
        );
    }
    Ok(Exit::Done)
}

fn is_local(provider: &agent_models::KnownProvider) -> bool {
    provider.key_variable.is_none()
}

/// Prints the models of one provider and returns their number.
fn print_models(provider: &str, models: Vec<String>, all: bool, terminal: &Terminal) -> Result<usize, Failure> {
    let shown = if all { models.len() } else { MAX_LISTED };
    for model in models.iter().take(shown) {
        let known = known_models::find(provider, model).unwrap_or_default();
        let window = known.window.map(|window| format!("{} tokens", text::grouped(u64::from(window))));
        let details: Vec<String> = window.into_iter().chain(known.price.map(describe_price)).collect();
        let name = text::one_line(&format!("{provider}/{model}"), 200);
        let details = if details.is_empty() { String::new() } else { format!("  {DIM}{}{DIM:#}", details.join(", ")) };
        terminal.print(format!("{BOLD}{name}{BOLD:#}{details}")).map_err(Failure::output)?;
    }
    if models.len() > shown {
        let more = models.len() - shown;
        terminal.note(format!("{more} more of `{provider}`: `agent-host model list {provider}` shows all"));
    }
    Ok(models.len())
}

fn describe_price(price: Price) -> String {
    format!("${} + ${} per million tokens", price.prompt, price.completion)
}

async fn test(options: AgentOptions, terminal: &Terminal) -> Result<Exit, Failure> {
    let settings = Settings::read(&options, &environment::host())?;
    let models = agent_config::assembly::models(&settings)?;
    let Some(model) = models.chain().first().cloned() else { return Err(Failure::refused("no model is named")) };
    let name = model.info().model.to_string();
    terminal.note(format!("sending one request with a tool and an image to {name}"));
    let (sender, mut receiver) = mpsc::channel(64);
    let started = Instant::now();
    let reading = async {
        let (mut pieces, mut has_thinking) = (0, false);
        while let Some(delta) = receiver.recv().await {
            pieces += usize::from(matches!(delta, Delta::Text(_) | Delta::Thinking(_)));
            has_thinking |= matches!(delta, Delta::Thinking(_));
        }
        (pieces, has_thinking)
    };
    let asking = async {
        let context = ReplyContext {
            session: "test",
            purpose: Purpose::Turn,
            call: 0,
            attempt: 1,
            media: &RedImage,
            progress: &agent_models::CallProgress::default(),
        };
        let reply = model.reply(&request(&model), context, &sender).await;
        drop(sender);
        reply
    };
    let (reply, (_, has_thinking)) = tokio::join!(asking, reading);
    let reply = reply.map_err(|error| Failure { exit: Exit::Failed, message: error.to_string() })?;
    let elapsed = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
    let diagnosis = diagnose(&reply, has_thinking, model.info().price);
    terminal.print(format!("{BOLD}{name}{BOLD:#} answered in {}", text::time(elapsed))).map_err(Failure::output)?;
    for (subject, finding) in &diagnosis.findings {
        terminal.print(format!("  {subject:<9} {}", text::one_line(finding, 300))).map_err(Failure::output)?;
    }
    Ok(if diagnosis.works { Exit::Done } else { Exit::Failed })
}

/// What the test found out about a model.
struct Diagnosis {
    /// The findings in the order in which they are shown, each after its subject.
    findings: Vec<(&'static str, String)>,
    /// Whether the model can be used by an agent without further settings.
    works: bool,
}

fn diagnose(RawReply { reply, raw }: &RawReply, has_thinking: bool, price: Option<Price>) -> Diagnosis {
    let call = reply.calls.iter().find(|call| call.name == TOOL);
    let arguments: Value = call.and_then(|call| serde_json::from_str(&call.arguments).ok()).unwrap_or_default();
    let tool = match (call, &arguments[ARGUMENT]) {
        (Some(_), Value::String(_)) => "called with valid arguments".to_owned(),
        (Some(call), _) => format!("called with arguments that do not match the schema: {}", call.arguments),
        (None, _) if reply.text.contains(TOOL) => {
            "the model wrote the call as text: set `tool_dialect = \"text\"` in agent.toml".to_owned()
        }
        (None, _) => format!("not called; the model answered: {}", reply.text),
    };
    let color = arguments[ARGUMENT].as_str().unwrap_or(&reply.text).to_lowercase();
    let image = if color.contains("red") {
        "seen".to_owned()
    } else {
        format!("not seen, or not recognised (the image is red, and the model answered `{color}`)")
    };
    let notes = raw["request_notes"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let usage = reply.usage;
    let tokens = format!("{} + {}", text::grouped(usage.prompt_tokens), text::grouped(usage.completion_tokens));
    let cost = price.map_or_else(|| "price unknown".to_owned(), |price| price.cost(usage).to_string());
    let mut findings = vec![
        ("tool", tool),
        ("image", image),
        ("thinking", if has_thinking { "shown" } else { "not shown" }.to_owned()),
        ("tokens", format!("{tokens}, {cost}")),
    ];
    if raw.get("usage").is_none() {
        findings.push(("usage", "not reported by the server, so the host estimates it".to_owned()));
    }
    findings.extend(notes.map(|note| ("note", note.to_owned())));
    Diagnosis { findings, works: call.is_some() && arguments[ARGUMENT].is_string() }
}

fn request(model: &Arc<dyn Provider>) -> ModelRequest {
    let schema = json!({
        "type": "object",
        "properties": { ARGUMENT: { "type": "string", "description": "The main color, as one English word." } },
        "required": [ARGUMENT],
        "additionalProperties": false,
    });
    let tool = OfferedTool {
        name: TOOL.to_owned(),
        author_name: TOOL.to_owned(),
        description: "Reports the main color of an image.".to_owned(),
        input_schema: schema,
    };
    let instruction = format!("Call the tool `{TOOL}` with the main color of this image.");
    ModelRequest {
        model: model.info().model.clone(),
        lifecycle: Lifecycle::Init,
        system: vec!["You test a connection. Do what the user says.".to_owned()],
        messages: vec![Message {
            role: Role::User,
            parts: vec![Part::Text(instruction), Part::Media(image())],
            seen_count: 0,
        }],
        downscaled: Vec::new(),
        tools: vec![tool],
        output_schema: None,
        max_tokens: MAX_TOKENS,
    }
}

fn image() -> Media {
    Media {
        digest: Digest::from_sha256([0; 32]),
        mime_type: "image/png".to_owned(),
        size: IMAGE.len() as u64,
        dimensions: Some(Dimensions { width: 32, height: 32 }),
        name: Some("red.png".to_owned()),
    }
}

/// The source of the test's image.
struct RedImage;

#[async_trait]
impl MediaSource for RedImage {
    async fn read(&self, media: &Media) -> Result<MediaBytes, String> {
        Ok(MediaBytes { mime_type: media.mime_type.clone(), bytes: IMAGE.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_core::model::{Reply, RequestedCall, StopReason, Usage};

    fn reply(text: &str, arguments: Option<&str>) -> RawReply {
        let call =
            |arguments: &str| RequestedCall { provider_id: None, name: TOOL.into(), arguments: arguments.into() };
        let reply = Reply {
            text: text.into(),
            calls: arguments.map(call).into_iter().collect(),
            stop: StopReason::Stop,
            usage: Usage::new(1000, 10),
            model: "p/m".into(),
            replay: None,
        };
        RawReply { reply, raw: json!({ "usage": {}, "request_notes": ["a note"] }) }
    }

    /// M4: the diagnosis names what the model can do and which setting helps.
    #[test]
    fn m4_the_diagnosis_explains_what_the_model_can_do() {
        let finding = |reply: RawReply, subject: &str| {
            let diagnosis = diagnose(&reply, false, Some(Price::new(1.0, 2.0)));
            let found = diagnosis.findings.into_iter().find(|(name, _)| *name == subject).unwrap().1;
            (found, diagnosis.works)
        };
        let good = || reply("", Some(r#"{"color": "Red"}"#));
        assert_eq!(finding(good(), "tool"), ("called with valid arguments".to_owned(), true));
        assert_eq!(finding(good(), "image").0, "seen");
        assert_eq!(finding(good(), "tokens").0, "1,000 + 10, $0.0010");
        assert_eq!(finding(good(), "note").0, "a note");
        let (text, works) = finding(reply("<tool>report_color {}</tool>", None), "tool");
        assert!(text.contains("tool_dialect") && !works, "{text}");
        let (text, works) = finding(reply("", Some("{\"colour\": 1}")), "tool");
        assert!(text.contains("do not match the schema") && !works, "{text}");
        assert!(finding(reply("It is blue.", None), "image").0.contains("not seen"));
    }
}
