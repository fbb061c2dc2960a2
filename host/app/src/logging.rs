//! Logging to stderr. Without `-v`, only warnings are shown, one line each. `-v` adds the actions of the host and the
//! output of plugins, and `-vv` adds all details. `--log json` writes JSON lines, which also contain the events of sessions that
//! operators act on, with the trace ids of their turns.

use crate::arguments::{CommonArguments, LogFormat};
use crate::terminal::text::harmless;
use crate::terminal::{RED, Terminal, YELLOW};
use agent_core::event::{ErrorScope, EventKind};
use agent_core::plugin::TraceContext;
use agent_runtime::{CommittedEvents, TURN_SPANS};
use std::fmt;
use tracing::field::{self, Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::time::{FormatTime, Uptime, uptime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Log targets that `-v` shows: the host's own crates, and `plugin` for the output of plugins.
const HOST_TARGETS: [&str; 14] = [
    PLUGIN,
    "agent_host",
    "agent_config",
    "agent_devkit",
    "agent_fleet",
    "agent_runtime",
    "agent_plugins",
    "agent_store",
    "agent_models",
    "agent_mcp",
    "agent_registry",
    "agent_acp",
    "agent_serve",
    "agent_telemetry",
];

/// Target of the lines that plugins print or log.
const PLUGIN: &str = "plugin";

/// Target of the log lines about events of sessions.
const EVENTS: &str = "agent_host::events";

/// Starts logging. The wasm engine and its compiler log only warnings, because only developers of the engine need more
/// messages. The MCP library logs nothing, because its log lines would contain complete server messages. The host
/// itself reports the important events of MCP servers.
pub(crate) fn start(options: &CommonArguments, terminal: &Terminal) {
    let level = ["warn", "info", "debug"][usize::from(options.verbose.min(2))];
    let host_levels: String = HOST_TARGETS.iter().map(|target| format!(",{target}={level}")).collect();
    // JSON lines are for operators, who need the events of sessions even without `-v`, and the turn of each line. For people,
    // the name of the turn would make lines too long.
    let events = match options.log {
        LogFormat::Json => format!(",{EVENTS}=info,{TURN_SPANS}=error"),
        LogFormat::Text => format!(",{TURN_SPANS}=off"),
    };
    // Messages of the engine's HTTP library are not logged, because a plugin could cause any number of them. The
    // plugin's request returns an error that contains the same information as the log messages.
    let filter =
        format!("warn,rmcp=off,async_nats=off,agent_client_protocol=error,wasmtime_wasi_http=off{host_levels}{events}");
    let lines = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        // A log line that cannot be written is lost, because an attempt to report the loss on the same stream
        // would panic.
        .log_internal_errors(false)
        .with_writer(terminal.clone());
    if options.log == LogFormat::Json {
        return lines.json().flatten_event(true).with_current_span(true).with_span_list(false).init();
    }
    let colours = anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never;
    let lines = lines.with_ansi(colours);
    match options.verbose {
        0 => lines.event_format(WarningFormat).init(),
        _ => lines.event_format(VerboseFormat { others: Format::default().with_timer(uptime()) }).init(),
    }
}

/// Logs the events of a commit that operators act on, one line each. Content of conversations is not logged.
pub(crate) fn log_events(commit: &CommittedEvents<'_>) {
    if !tracing::enabled!(target: EVENTS, Level::INFO) {
        return;
    }
    let trace = commit.trace.and_then(TraceContext::trace_id).map(|id| format!("{:032x}", u128::from_be_bytes(id)));
    let (agent, trace_id) = (commit.agent, trace.unwrap_or_default());
    for event in commit.events {
        let (session, turn) = (&event.session, event.turn);
        macro_rules! line {
            ($message:literal $(, $name:ident = $value:expr)* $(,)?) => {
                tracing::info!(target: EVENTS, agent, %session, turn, %trace_id $(, $name = $value)*, $message)
            };
        }
        match &event.kind {
            EventKind::LoopStart { .. } => line!("a turn begins"),
            EventKind::LoopEnd { reason, cost } => {
                let (tokens, steps) = cost.map_or((0, 0), |cost| (cost.usage.total(), cost.interactions));
                line!("a turn has ended", reason = field::debug(reason), tokens = tokens, steps = steps);
            }
            EventKind::Suspended { suspension } => line!("a turn waits", calls = suspension.waits.len()),
            EventKind::Resumed => line!("a turn continues"),
            EventKind::Error { code, scope: ErrorScope::Turn, .. } => line!("a turn has failed", code = code.as_str()),
            EventKind::Retry { model, attempt, .. } => {
                line!("a model call is repeated", model = model.as_str(), attempt = attempt);
            }
            EventKind::ModelFallback { from, to, .. } => {
                line!("another model takes over", from = from.as_str(), to = to.as_str());
            }
            EventKind::ToolResultError { call, name, cost, .. } => {
                line!(
                    "a tool call has failed",
                    call = field::display(call),
                    tool = name.as_str(),
                    wall_us = cost.wall_us
                );
            }
            EventKind::Denied { denial, .. } => {
                line!("a request was denied", plugin = denial.plugin.as_str(), request = denial.thing.as_str());
            }
            EventKind::ApprovalRequested { calls, .. } => line!("calls need an approval", calls = calls.len()),
            EventKind::ApprovalResolved { call, verdict, .. } => {
                line!("an approval was decided", call = field::display(call), verdict = field::debug(verdict));
            }
            EventKind::BudgetExceeded { budget } => {
                line!("a budget is exceeded", budget = field::display(budget.scope))
            }
            EventKind::OutputRejected { by, attempt, .. } => {
                line!("an output was rejected", by = by.as_str(), attempt = attempt);
            }
            EventKind::OutcomeUnknown { call, name } => {
                line!("the outcome of a call is unknown", call = field::display(call), tool = name.as_str());
            }
            EventKind::PluginSwapped { plugin, .. } => {
                line!("a turn uses another plugin version", plugin = plugin.as_str())
            }
            _ => {}
        }
    }
}

/// Formats a line of a plugin with the plugin and the call before the text, so that several lines, such as those of a traceback,
/// can be read as they were printed. Formats other log events with all of their fields.
struct VerboseFormat {
    others: Format<Full, Uptime>,
}

impl<S, N> FormatEvent<S, N> for VerboseFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        if event.metadata().target() != PLUGIN {
            return self.others.format_event(context, writer, event);
        }
        let mut text = EventText::default();
        event.record(&mut text);
        uptime().format_time(&mut writer)?;
        writeln!(writer, " {:>5} {}", event.metadata().level(), text.of_plugin())
    }
}

/// Formats a log event as a line for users: `! message: reason (other fields)`. The line of a plugin begins with the plugin.
struct WarningFormat;

impl<S, N> FormatEvent<S, N> for WarningFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut text = EventText::default();
        event.record(&mut text);
        let target = event.metadata().target().split("::").next().unwrap_or_default();
        if !HOST_TARGETS.contains(&target) {
            text.other_fields.push(target.to_owned());
        }
        let style = if *event.metadata().level() == Level::ERROR { RED } else { YELLOW };
        let line = if target == PLUGIN { text.of_plugin() } else { text.line() };
        match writer.has_ansi_escapes() {
            true => writeln!(writer, "{style}!{style:#} {line}"),
            false => writeln!(writer, "! {line}"),
        }
    }
}

/// The fields of a log event as text.
#[derive(Default)]
struct EventText {
    message: String,
    /// The plugin and the call that have printed the message.
    plugin: String,
    call: String,
    reasons: Vec<String>,
    other_fields: Vec<String>,
}

impl EventText {
    fn add_field(&mut self, field: &Field, value: String) {
        match field.name() {
            "message" => self.message = value,
            "error" | "problem" => self.reasons.push(value),
            "plugin" => self.plugin = value,
            "call" => self.call = value,
            name => self.other_fields.push(format!("{name} {value}")),
        }
    }

    fn line(&self) -> String {
        let mut line = self.message.clone();
        for reason in &self.reasons {
            line.push_str(&format!(": {reason}"));
        }
        let origin = [("plugin", &self.plugin), ("call", &self.call)];
        let origin = origin.into_iter().filter(|(_, value)| !value.is_empty());
        let mut fields: Vec<String> = origin.map(|(name, value)| format!("{name} {value}")).collect();
        fields.extend(self.other_fields.iter().cloned());
        if !fields.is_empty() {
            line.push_str(&format!(" ({})", fields.join(", ")));
        }
        harmless(&line).replace('\n', "\n  ")
    }

    /// Returns the line of a plugin: `PLUGIN CALL: TEXT`.
    fn of_plugin(&self) -> String {
        let Self { message, plugin, call, .. } = self;
        let separator = if call.is_empty() { "" } else { " " };
        harmless(&format!("{plugin}{separator}{call}: {message}")).replace('\n', "\n  ")
    }
}

impl Visit for EventText {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add_field(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add_field(field, format!("{value:?}"));
    }
}
