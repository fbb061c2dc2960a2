//! Logs on stderr: warnings by default, as the terminal's own lines, with `-v` what the host does and what plugins print,
//! with `-vv` all details.

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

/// Whose logs `-v` shows: the host's own crates, and `plugin` for what plugins print.
const OWN: [&str; 8] = [
    "plugin",
    "agent_host",
    "agent_devkit",
    "agent_runtime",
    "agent_plugins",
    "agent_store",
    "agent_models",
    "agent_mcp",
];

/// Begins to log. What the wasm engine and its compiler log is for their authors, so it stays at warnings. What the MCP
/// library logs holds whole messages of servers; what matters of it the host says itself.
pub(crate) fn start(verbose: u8, terminal: &Terminal) {
    let level = ["warn", "info", "debug"][usize::from(verbose.min(2))];
    let own: String = OWN.iter().map(|target| format!(",{target}={level}")).collect();
    // What the engine's HTTP library logs, a plugin can make it log without end; the plugin is told the same as an error.
    let filter = format!("warn,rmcp=off,wasmtime_wasi_http=off{own}");
    let colours = anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_ansi(colours)
        .with_timer(uptime())
        // A line that cannot be written is lost: to tell of that on the same stream would panic.
        .log_internal_errors(false)
        .with_writer(terminal.clone());
    if verbose == 0 { lines.event_format(Warnings).init() } else { lines.init() }
}

/// A warning as a line for people: `! what happened: why (of what)`.
struct Warnings;

impl<S, N> FormatEvent<S, N> for Warnings
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut said = Said::default();
        event.record(&mut said);
        let target = event.metadata().target().split("::").next().unwrap_or_default();
        if !OWN.contains(&target) {
            said.others.push(target.to_owned());
        }
        let style = if *event.metadata().level() == Level::ERROR { RED } else { YELLOW };
        match writer.has_ansi_escapes() {
            true => writeln!(writer, "{style}!{style:#} {}", said.line()),
            false => writeln!(writer, "! {}", said.line()),
        }
    }
}

/// What an event says.
#[derive(Default)]
struct Said {
    message: String,
    reasons: Vec<String>,
    others: Vec<String>,
}

impl Said {
    fn take(&mut self, field: &Field, value: String) {
        match field.name() {
            "message" => self.message = value,
            "error" | "problem" => self.reasons.push(value),
            name => self.others.push(format!("{name} {value}")),
        }
    }

    fn line(&self) -> String {
        let mut line = self.message.clone();
        for reason in &self.reasons {
            line.push_str(&format!(": {reason}"));
        }
        if !self.others.is_empty() {
            line.push_str(&format!(" ({})", self.others.join(", ")));
        }
        harmless(&line).replace('\n', "\n  ")
    }
}

impl Visit for Said {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.take(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.take(field, format!("{value:?}"));
    }
}
