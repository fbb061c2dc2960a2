//! Logs on stderr: warnings by default, with `-v` what the host does and what plugins print, with `-vv` all details.

use crate::terminal::Terminal;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::time::uptime;

/// Begins to log. What the wasm engine and its compiler log is for their authors, so it stays at warnings.
pub(crate) fn start(verbose: u8, terminal: &Terminal) {
    let filter = match verbose {
        0 => "warn",
        1 => {
            "warn,plugin=info,agent_host=info,agent_kit=info,agent_runtime=info,agent_plugins=info,agent_memory=info,agent_models=info"
        }
        _ => {
            "warn,plugin=trace,agent_host=debug,agent_kit=debug,agent_runtime=debug,agent_plugins=debug,agent_memory=debug,agent_models=debug"
        }
    };
    let colours = anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never;
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_ansi(colours)
        .with_timer(uptime())
        .with_writer(terminal.clone())
        .init();
}
