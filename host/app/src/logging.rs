//! Logging to stderr. Without `-v`, only warnings are shown, one line each. `-v` adds the actions of the host and the
//! output of plugins, and `-vv` adds all details.

use crate::terminal::text::harmless;
use crate::terminal::{RED, Terminal, YELLOW};
use std::fmt;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::uptime;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Log targets that `-v` shows: the host's own crates, and `plugin` for the output of plugins.
const HOST_TARGETS: [&str; 11] = [
    "plugin",
    "agent_host",
    "agent_config",
    "agent_devkit",
    "agent_runtime",
    "agent_plugins",
    "agent_store",
    "agent_models",
    "agent_mcp",
    "agent_registry",
    "agent_acp",
];

/// Starts logging. The wasm engine and its compiler log only warnings, because only developers of the engine need more
/// messages. The MCP library logs nothing, because its log lines would contain complete server messages. The host
/// itself reports the important events of MCP servers.
pub(crate) fn start(verbose: u8, terminal: &Terminal) {
    let level = ["warn", "info", "debug"][usize::from(verbose.min(2))];
    let host_levels: String = HOST_TARGETS.iter().map(|target| format!(",{target}={level}")).collect();
    // Messages of the engine's HTTP library are not logged, because a plugin could cause any number of them. The
    // plugin's request returns an error that contains the same information as the log messages.
    let filter = format!("warn,rmcp=off,agent_client_protocol=error,wasmtime_wasi_http=off{host_levels}");
    let colours = anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_ansi(colours)
        .with_timer(uptime())
        // A log line that cannot be written is lost, because an attempt to report the loss on the same stream
        // would panic.
        .log_internal_errors(false)
        .with_writer(terminal.clone());
    if verbose == 0 { lines.event_format(WarningFormat).init() } else { lines.init() }
}

/// Formats a log event as a line for users: `! message: reason (other fields)`.
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
        match writer.has_ansi_escapes() {
            true => writeln!(writer, "{style}!{style:#} {}", text.line()),
            false => writeln!(writer, "! {}", text.line()),
        }
    }
}

/// The fields of a log event as text.
#[derive(Default)]
struct EventText {
    message: String,
    reasons: Vec<String>,
    other_fields: Vec<String>,
}

impl EventText {
    fn add_field(&mut self, field: &Field, value: String) {
        match field.name() {
            "message" => self.message = value,
            "error" | "problem" => self.reasons.push(value),
            name => self.other_fields.push(format!("{name} {value}")),
        }
    }

    fn line(&self) -> String {
        let mut line = self.message.clone();
        for reason in &self.reasons {
            line.push_str(&format!(": {reason}"));
        }
        if !self.other_fields.is_empty() {
            line.push_str(&format!(" ({})", self.other_fields.join(", ")));
        }
        harmless(&line).replace('\n', "\n  ")
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
