//! `plugin call`: calls one tool once, with the grants that the command line gives to the plugin. If the command line
//! names an agent, the agent's grants and limits also apply.

use super::GrantSource;
use super::media::CallMedia;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::interrupt::{Activity, Interrupts};
use crate::terminal::card::without_denials;
use crate::terminal::{DIM, Terminal, YELLOW, cost, events, text};
use agent_config::DataDirectory;
use agent_config::assembly::{self, warn_of_unused_grants};
use agent_config::grants::Receiver;
use agent_core::message::{CallId, Content};
use agent_core::plugin::{Scope, TraceContext};
use agent_core::schema::{Schema, parse_arguments};
use agent_core::tool::{ToolDefinition, ToolError, ToolOutcome};
use agent_plugins::{
    CallLimits, CallReport, Denial, Grants, KeyValuePort, LoadedPlugin, MediaPort, PluginSetup, Ports, Sandbox,
    ToolCallContext, ToolCallRequest,
};
use agent_runtime::StoredValues;
use agent_store::Store;
use serde_json::{Value, json};
use std::sync::Arc;
use uuid::Uuid;

/// Arguments of `plugin call`.
pub(super) struct CallOptions {
    /// Name of the tool.
    pub(super) tool: String,
    /// Arguments of the tool call, as JSON text.
    pub(super) arguments: String,
    /// Where the grants and limits of the call come from.
    pub(super) grant_source: GrantSource,
    /// Format in which the outcome is shown.
    pub(super) format: Format,
    /// Data folder that contains the store for the plugin's key-value pairs.
    pub(super) data: DataDirectory,
}

impl CallOptions {
    /// Opens the store for the key-value pairs of `plugin call`. Pairs that are stored by `plugin call` are separate
    /// from the key-value pairs that plugins store in turns of agents.
    async fn store(&self) -> Result<Arc<dyn Store>, Failure> {
        let store: Arc<dyn Store> = assembly::open_store(&self.data).await?;
        Ok(store)
    }
}

/// Output format of the outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// Text for users: the content of the result goes to stdout, and all other output goes to stderr.
    Text,
    /// One JSON document for programs, on stdout.
    Json,
}

/// Calls the tool and shows the outcome.
pub(super) async fn call(
    sandbox: &Sandbox,
    plugin: Arc<LoadedPlugin>,
    options: CallOptions,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let tool = tool(&plugin, &options.tool)?;
    let arguments = checked_arguments(tool, &options.arguments)?;
    let output_schema = tool.output_schema.clone();
    let (grants, limits) = allowed(&plugin, &options.grant_source, terminal)?;
    let secrets = Arc::new(options.grant_source.secrets(&grants));
    terminal.keep_secret(secrets.redaction());
    warn_of_missing_secrets(&plugin, &grants, terminal);
    let setup = PluginSetup::new(plugin.clone(), grants, limits).with_secrets(&secrets);
    let request = ToolCallRequest { name: &options.tool, args: arguments.to_string(), context: context(limits) };
    let media: Arc<dyn MediaPort> = Arc::new(CallMedia::default());
    let key_value = match setup.grants().key_value {
        Some(_) => Some(Arc::new(StoredValues(options.store().await?)) as Arc<dyn KeyValuePort>),
        None => None,
    };
    let ports = Ports { media: Some(media), key_value, ..Ports::default() };
    let cancel = Interrupts::listen(terminal.clone()).begin(Activity::Turn);
    terminal.busy(format!("running {}", options.tool));
    let report = tokio::select! {
        report = sandbox.call_tool(&setup, request, &ports) => report,
        () = cancel.cancelled() => return Ok(Exit::Cancelled),
    };
    terminal.idle();
    let problem = output_schema.and_then(|schema| output_problem(&schema, report.result.as_ref().ok()?.as_ref().ok()?));
    let exit = show(report, options.format, terminal)?;
    if let Some(problem) = problem {
        let line = format!(
            "{YELLOW}!{YELLOW:#} the result does not follow the output schema of `{}`: {problem}",
            options.tool
        );
        terminal.note(text::wrapped(&line, terminal.width()));
    }
    Ok(exit)
}

/// Describes how the structured result differs from the output schema that the tool declares. Models and other programs rely on
/// this schema, and only the author of the tool can correct the difference.
fn output_problem(schema: &Value, outcome: &ToolOutcome) -> Option<String> {
    let ToolOutcome::Done(done) = outcome else { return None };
    let schema = match Schema::compile(schema) {
        Ok(schema) => schema,
        Err(error) => return Some(text::harmless(&error.to_string()).into_owned()),
    };
    let Some(structured) = &done.structured else {
        return Some("the tool returned no structured result".to_owned());
    };
    let violations = schema.check(structured).err()?;
    let described = violations.iter().map(|violation| match violation.pointer.as_str() {
        "" => violation.message.clone(),
        pointer => format!("{pointer}: {}", violation.message),
    });
    Some(text::harmless(&described.collect::<Vec<_>>().join("; ")).into_owned())
}

/// Says which secrets the plugin does not get, because its requests would otherwise be sent without them in silence.
fn warn_of_missing_secrets(plugin: &LoadedPlugin, grants: &Grants, terminal: &Terminal) {
    for missing in plugin.missing_secrets(grants) {
        let line = format!(
            "`{}` asks for {}, which is not granted, so requests are sent without it; with --agent, the agent's file can grant it: {} {}",
            plugin.name(),
            missing.thing,
            missing.advice.table,
            missing.advice.line
        );
        terminal.note(text::wrapped(&format!("{YELLOW}!{YELLOW:#} {}", text::harmless(&line)), terminal.width()));
    }
}

fn tool<'p>(plugin: &'p LoadedPlugin, name: &str) -> Result<&'p ToolDefinition, Failure> {
    plugin.tools().iter().find(|tool| tool.name == name).ok_or_else(|| {
        let names: Vec<_> = plugin.tools().iter().map(|tool| tool.name.as_str()).collect();
        let tools = if names.is_empty() { "no tools".to_owned() } else { format!("the tools {}", names.join(", ")) };
        Failure::refused(format!("{} has no tool `{name}`; it has {tools}", plugin.identity()))
    })
}

/// Parses the arguments and checks them against the tool's schema, as a turn does (L8).
fn checked_arguments(tool: &ToolDefinition, text: &str) -> Result<Value, Failure> {
    let failed = |error: ToolError| Failure::failed(error.for_users());
    let arguments = parse_arguments(text).map_err(failed)?;
    let schema = Schema::compile(&tool.input_schema)
        .map_err(|error| Failure::refused(format!("the input schema of `{}` is invalid: {error}", tool.name)))?;
    schema.check(&arguments).map_err(|violations| failed(ToolError::InvalidArguments { violations }))?;
    Ok(arguments)
}

fn allowed(
    plugin: &LoadedPlugin,
    grant_source: &GrantSource,
    terminal: &Terminal,
) -> Result<(Grants, CallLimits), Failure> {
    let receiver = Receiver::Plugin(plugin.name().to_owned());
    if let Some(other) = grant_source.command_line_grants().iter().find(|grant| grant.receiver != receiver) {
        let advice = format!("write --grant {}:KIND=VALUE", plugin.name());
        return Err(Failure::refused(format!("{}: the plugin is named `{}`; {advice}", other.origin, plugin.name())));
    }
    let (grants, limits) = grant_source.allowed(plugin.name())?;
    warn_of_unused_grants(plugin, Some(&grants), terminal);
    Ok((grants, limits))
}

/// Creates the context of a call that runs outside any session. The context requires a session id, so the id is random.
fn context(limits: CallLimits) -> ToolCallContext {
    let id = Uuid::new_v4().simple().to_string();
    let trace = TraceContext { traceparent: format!("00-{id}-{}-01", &id[16..]), tracestate: None };
    let (agent, session) = ("plugin-call".to_owned(), format!("plugin-call/{id}"));
    let scope = Scope { agent, session, delegated_by: None, user: environment::user(), turn: 1, trace };
    ToolCallContext { id: CallId(id), attempt: 1, time_limit: limits.tool_time, scope }
}

fn show(
    report: CallReport<Result<ToolOutcome, ToolError>>,
    format: Format,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let cost = report.cost;
    let answer = report.result.map_err(|failure| {
        report.denials.iter().for_each(|denial| show_denial(denial, terminal));
        Failure::failed(failure)
    })?;
    let exit = if matches!(answer, Ok(ToolOutcome::Done(_))) { Exit::Done } else { Exit::Failed };
    if format == Format::Json {
        let denials: Vec<_> = report.denials.iter().map(|denial| denial.to_string()).collect();
        let outcome = match answer {
            Ok(ToolOutcome::Done(done)) => json!({"content": done.content, "structured": done.structured}),
            Ok(ToolOutcome::Pending(request)) => json!({"pending": request}),
            Err(error) => json!({"error": error}),
        };
        let document = json!({"outcome": outcome, "cost": cost, "denials": denials});
        terminal.print(document.to_string()).map_err(Failure::output)?;
        return Ok(exit);
    }
    report.denials.iter().for_each(|denial| show_denial(denial, terminal));
    match answer {
        Ok(ToolOutcome::Done(done)) => {
            for content in &done.content {
                terminal.print_foreign(&content_text(content)).map_err(Failure::output)?;
            }
            if let Some(structured) = done.structured.filter(|_| done.content.is_empty()) {
                terminal.print_foreign(&format!("{structured:#}")).map_err(Failure::output)?;
            }
        }
        Ok(ToolOutcome::Pending(request)) => {
            let event = text::one_line(request.event_type.as_str(), 200);
            terminal.note(format!(
                "the tool asks for the service `{event}`: the answer of a service can only be delivered in a turn of a \
                 session"
            ));
        }
        Err(error) => {
            let shown: Vec<_> = report.denials.iter().map(stored_denial).collect();
            return Err(Failure::failed(without_denials(error.for_users(), &shown)));
        }
    }
    terminal.note(format!("{DIM}{}{DIM:#}", cost::whole(&cost)));
    Ok(exit)
}

fn content_text(content: &Content) -> String {
    match content {
        Content::Text(text) => text.clone(),
        Content::Json(json) => format!("{json:#}"),
        Content::Media(media) => format!("[{}, {}, {}]", media.mime_type, text::size(media.size), media.digest),
    }
}

/// Converts a denial to the type that errors of failed calls use for denials.
fn stored_denial(denial: &Denial) -> agent_core::change::Denial {
    let Denial { plugin, thing, advice } = denial;
    agent_core::change::Denial { plugin: plugin.to_string(), thing: thing.clone(), grant: advice.to_string() }
}

fn show_denial(denial: &Denial, terminal: &Terminal) {
    terminal.note(events::denial(&stored_denial(denial)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition() -> ToolDefinition {
        ToolDefinition {
            name: "text.count".into(),
            title: None,
            description: "Counts.".into(),
            input_schema: json!({"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}),
            output_schema: None,
            traits: agent_core::tool::Traits::default(),
            priority: 0,
        }
    }

    /// S3, L8: invalid arguments are rejected before the call.
    #[test]
    fn l8_checked_arguments_rejects_arguments_that_violate_the_schema() {
        let check = |text: &str| checked_arguments(&definition(), text).map_err(|failure| failure.message);
        assert_eq!(check(r#"{"text": "a"}"#), Ok(json!({"text": "a"})));
        for wrong in ["{", "[]", "{}", r#"{"text": 1}"#] {
            let message = check(wrong).expect_err(wrong);
            assert!(message.starts_with("invalid arguments: "), "{wrong}: {message}");
        }
    }

    /// S3: a result that does not follow the declared schema is described.
    #[test]
    fn s3_output_problem_compares_results_with_the_declared_schema() {
        let schema = json!({"type": "object", "properties": {"words": {"type": "integer"}}, "required": ["words"]});
        let problem = |structured: Option<Value>| {
            let done = agent_core::tool::ToolDone { content: Vec::new(), structured };
            output_problem(&schema, &ToolOutcome::Done(done))
        };
        assert_eq!(problem(Some(json!({"words": 2}))), None);
        assert_eq!(problem(None).as_deref(), Some("the tool returned no structured result"));
        let wrong = problem(Some(json!({"words": "two"}))).expect("a problem");
        assert!(wrong.starts_with("/words: "), "{wrong}");
    }

    #[test]
    fn context_has_a_valid_traceparent() {
        let trace = context(CallLimits::default()).scope.trace.traceparent;
        let lengths: Vec<_> = trace.split('-').map(str::len).collect();
        assert_eq!(lengths, [2, 32, 16, 2], "{trace}");
    }
}
