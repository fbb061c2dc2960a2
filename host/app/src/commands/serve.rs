//! `serve`: runs agents behind an HTTP API until the process is told to stop (I3, I9).

mod first_use;

use super::first_use_queues::FirstUseQueues;
use super::open_session::FIRST_USE_QUEUE;
use super::served_agents::ServedAgents;
use crate::arguments::serve::{RunningAgents, ServeArguments};
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::interrupt::{Activity, Interrupts};
use crate::terminal::{BOLD, Terminal};
use agent_config::assembly::AssembledAgents;
use agent_config::first_use::FirstUsePrompt;
use agent_config::{AgentOptions, DataDirectory, DataLocation};
use agent_runtime::{FirstUse, Host, Supervisor, SupervisorOptions};
use agent_serve::{AllowedOrigins, Endpoint, FirstUseQuestions, Server, ServerOptions, TokenFile};
use first_use::InboxPrompt;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Runs `serve`.
pub(crate) async fn run(
    arguments: ServeArguments,
    data: DataLocation<'_>,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let interrupts = Interrupts::listen(terminal.clone());
    let stop = interrupts.begin(Activity::Serve);
    let endpoint = arguments.endpoint().map_err(Failure::refused)?;
    let nats = environment::nats(arguments.nats.nats.as_deref())?;
    let environment = environment::host();
    let data = DataDirectory::open(data, &environment)?;
    let tokens = token_file(&data);
    let (sender, first_uses) = channel(FIRST_USE_QUEUE);
    let asking = |host| Host { first_uses: Some(sender), ..host };
    let mut served = tokio::select! {
        served = ServedAgents::assemble(agent_options(&arguments.agents), (&data, &environment), (nats.as_ref(), asking), terminal) => served?,
        () = stop.cancelled() => return Ok(Exit::Cancelled),
    };
    served.export_metrics();
    interrupts.kill_servers_on_exit(served.servers());
    let agents = served.agents();
    let names: Vec<_> = agents.keys().cloned().collect();
    create_first_token(&data, terminal)?;
    let host_name = arguments.host_name.first().cloned();
    let supervisor = Supervisor::start(served.host.clone(), agents, SupervisorOptions::default());
    let origins = AllowedOrigins { hosts: arguments.host_name, origins: arguments.origin };
    let metrics = Some(served.monitoring.for_server());
    let settings = served.settings();
    let defaults = ServerOptions::new(arguments.listen, tokens.clone());
    let questions = FirstUseQuestions::default();
    let answering = answer_first_uses((questions.clone(), first_uses), &served, &stop, terminal);
    let options = ServerOptions { endpoint, origins, settings, metrics, first_uses: questions, ..defaults };
    let server = match Server::start(supervisor.clone(), options).await {
        Ok(server) => server,
        Err(error) => {
            supervisor.shutdown().await;
            return Err(Failure::refused(error));
        }
    };
    let place = match server.endpoint() {
        Endpoint::Tcp(address) => format!("http://{address}"),
        Endpoint::Tls(address, _) => format!("https://{address}"),
        Endpoint::Unix(path) => format!("unix:{}", path.display()),
    };
    terminal.note(format!("listening on {BOLD}{place}{BOLD:#} with {}", names.join(", ")));
    show_console_address(&server, host_name.as_deref(), &data, terminal);
    served.show_changes(&stop, terminal).await;
    terminal.note("shutting down: open turns continue at the next start");
    server.shutdown().await;
    supervisor.shutdown().await;
    let _ = answering.await;
    served.close(terminal).await;
    Ok(Exit::Done)
}

/// Begins to ask the people who read the inbox for missing grants, until the server stops.
fn answer_first_uses(
    (questions, first_uses): (FirstUseQuestions, Receiver<FirstUse>),
    served: &ServedAgents,
    stop: &CancellationToken,
    terminal: &Terminal,
) -> JoinHandle<()> {
    let (store, terminal) = (served.host.store.clone(), terminal.clone());
    let stored = store.clone();
    let prompt = move |session| -> Arc<dyn FirstUsePrompt> {
        let (questions, store, terminal) = (questions.clone(), stored.clone(), terminal.clone());
        Arc::new(InboxPrompt { questions, store, terminal, session })
    };
    let files = served.agents.iter().flat_map(AssembledAgents::files).collect();
    let queues = FirstUseQueues { prompts: Box::new(prompt), store, files, stop: stop.child_token() };
    tokio::spawn(queues.run(first_uses))
}

/// Shows a person at the terminal the address of the web console, with a code that signs in once. The code is not written to a
/// file or a pipe, where others could read it later.
fn show_console_address(server: &Server, host_name: Option<&str>, data: &DataDirectory, terminal: &Terminal) {
    let (scheme, address) = match server.endpoint() {
        Endpoint::Tcp(address) => ("http", address),
        Endpoint::Tls(address, _) => ("https", address),
        Endpoint::Unix(_) => return,
    };
    let authority = match host_name {
        Some(name) => format!("{name}:{}", address.port()),
        None if address.ip().is_unspecified() => format!("localhost:{}", address.port()),
        None => address.to_string(),
    };
    let first_token = std::fs::read_to_string(data.root().join(FIRST_TOKEN_FILE)).ok();
    let code = first_token.filter(|_| terminal.is_interactive()).map(|token| server.create_sign_in_code(token.trim()));
    let fragment = code.map(|code| format!("#sign-in={code}")).unwrap_or_default();
    terminal.note(format!("web console: {BOLD}{scheme}://{authority}/console/{fragment}{BOLD:#}"));
    if !fragment.is_empty() {
        terminal.note("the address signs in once, within 10 minutes; do not share it");
    }
}

/// Name of the file that contains the first token, in the data folder.
const FIRST_TOKEN_FILE: &str = "server-token";

/// Creates a token with all rights if there is no token.
pub(super) fn create_first_token(data: &DataDirectory, terminal: &Terminal) -> Result<(), Failure> {
    if let Some(token) = token_file(data).create_first().map_err(Failure::refused)? {
        let path = data.root().join(FIRST_TOKEN_FILE);
        TokenFile::write_private(&path, &token).map_err(Failure::refused)?;
        terminal.note(format!("created a token with all rights, in {}", path.display()));
    }
    Ok(())
}

/// Returns the file with the digests of the server's tokens.
pub(super) fn token_file(data: &DataDirectory) -> TokenFile {
    token_file_in(data.root())
}

/// Returns the file with the digests of the server's tokens in this data folder.
pub(crate) fn token_file_in(root: &Path) -> TokenFile {
    TokenFile::new(root.join("server-tokens.json"))
}

/// Returns the options of each agent that is served.
pub(super) fn agent_options(agents: &RunningAgents) -> Vec<AgentOptions> {
    let RunningAgents { agent, plugins, model, grant } = agents;
    let options = AgentOptions { model: model.clone(), ..AgentOptions::default() };
    match agent.as_slice() {
        [] => vec![AgentOptions { plugins: plugins.clone(), grants: grant.clone(), ..options }],
        agents => agents.iter().map(|agent| AgentOptions { agent: Some(agent.clone()), ..options.clone() }).collect(),
    }
}
