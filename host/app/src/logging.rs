//! Logs on stderr: warnings by default, with `-v` what the host does and what plugins print, with `-vv` all details.

use crate::terminal::Terminal;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::time::uptime;

/// Whose logs `-v` shows: the host's own crates, and `plugin` for what plugins print.
const OWN: [&str; 8] = [
    "plugin",
    "agent_host",
    "agent_kit",
    "agent_runtime",
    "agent_plugins",
    "agent_memory",
    "agent_models",
    "agent_mcp",
];

/// Begins to log. What the wasm engine and its compiler log is for their authors, so it stays at warnings. What the MCP
/// library logs holds whole messages of servers; what matters of it the host says itself.
pub(crate) fn start(verbose: u8, terminal: &Terminal) {
    let level = ["warn", "info", "debug"][usize::from(verbose.min(2))];
    let own: String = OWN.iter().map(|target| format!(",{target}={level}")).collect();
    let filter = format!("warn,rmcp=off{own}");
    let colours = anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never;
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_ansi(colours)
        .with_timer(uptime())
        .with_writer(terminal.clone())
        .init();
}
