//! `serve`: runs agents behind an HTTP API until the process is told to stop (I3, I9).

mod first_use;

use super::first_use_queues::FirstUseQueues;
use super::open_session::FIRST_USE_QUEUE;
use super::served_agents::{Cooperation, ServedAgents};
use super::setup;
use super::starting_agent::{self, StartingAgent};
use super::user_presence::UserPresence;
use crate::arguments::serve::{RunningAgents, ServeArguments};
use crate::arguments::setup::SetupArguments;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::interrupt::{Activity, Interrupts};
use crate::terminal::{BOLD, Terminal};
use agent_config::assembly::AssembledAgents;
use agent_config::first_use::FirstUsePrompt;
use agent_config::{AgentOptions, DataDirectory, DataLocation, HostEnvironment, UserFile};
use agent_runtime::{FirstUse, Host, Supervisor, SupervisorOptions};
use agent_serve::{AllowedOrigins, Endpoint, FirstUseQuestions, Server, ServerOptions, TokenFile};
use first_use::InboxPrompt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
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
    let (options, environment) = tokio::select! {
        chosen = agents_to_serve(&arguments.agents, data, terminal) => chosen?,
        () = stop.cancelled() => return Ok(Exit::Cancelled),
    };
    let nats = environment::nats(&arguments.nats)?;
    let data = DataDirectory::open(data, &environment)?;
    let tokens = token_file(arguments.tokens.as_deref(), &data);
    let (sender, first_uses) = channel(FIRST_USE_QUEUE);
    let asking = |host| Host { first_uses: Some(sender), ..host };
    let registries = arguments.fetch.access();
    let cooperation = Cooperation { nats: nats.as_ref(), registries: registries.as_ref() };
    let mut served = tokio::select! {
        served = ServedAgents::assemble(options, (&data, &environment), (cooperation, asking), terminal) => served?,
        () = stop.cancelled() => return Ok(Exit::Cancelled),
    };
    served.export_metrics();
    interrupts.kill_servers_on_exit(served.servers());
    let agents = served.agents();
    let names: Vec<_> = agents.keys().cloned().collect();
    let first_token = match arguments.tokens {
        None => Some(create_first_token(&data, terminal)?),
        // The operator distributes this file, so a server adds nothing to it.
        Some(_) => tokens.tokens().map(|_| None).map_err(Failure::refused)?,
    };
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
    show_console_address(&server, host_name.as_deref(), first_token.as_deref(), terminal);
    served.show_changes(&stop, terminal).await;
    terminal.note("shutting down: open turns continue at the next start");
    server.shutdown().await;
    supervisor.shutdown().await;
    let _ = answering.await;
    served.close(terminal).await;
    Ok(Exit::Done)
}

/// Returns the options of the agents that are served, and their environment. If the command line names no agent, it is the agent
/// that `agent-host` starts in this folder. If there is none yet, the user at the terminal chooses a model and plugins first.
async fn agents_to_serve(
    agents: &RunningAgents,
    data: DataLocation<'_>,
    terminal: &Terminal,
) -> Result<(Vec<AgentOptions>, HostEnvironment), Failure> {
    let mut options = agent_options(agents);
    if !agents.agent.is_empty() || agents.plugins.is_some() {
        let environment = environment::host();
        let user_file = starting_agent::user_file(&environment).map(UserFile::DefaultModel);
        options.iter_mut().for_each(|options| options.user_file = user_file.clone());
        return Ok((options, environment));
    }
    let user = UserPresence::of(terminal);
    if !starting_agent::can_start_unnamed() {
        if user == UserPresence::Absent {
            return Err(Failure::refused(
                "there is no agent to serve yet: choose a model and plugins once with `agent-host setup` (with --yes, it asks \
                 nothing), or name an agent's file with --agent FILE, or a folder with plugins with --plugins DIR",
            ));
        }
        terminal.note("there is no agent yet, so first choose which model answers and which plugins the agent has");
        if setup::run(SetupArguments::default(), terminal).await? != Exit::Done {
            return Err(Failure { exit: Exit::Cancelled, message: String::new() });
        }
    }
    let StartingAgent { options, environment } =
        starting_agent::find_with(options.remove(0), data, user, terminal).await?;
    Ok((vec![options], environment))
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
        Arc::new(InboxPrompt { questions, store, terminal, session, applying: Mutex::default() })
    };
    let files = served.agents.iter().flat_map(AssembledAgents::files).collect();
    let queues = FirstUseQueues { prompts: Box::new(prompt), store, files, stop: stop.child_token() };
    tokio::spawn(queues.run(first_uses))
}

/// Shows a person at the terminal the address of the web console, with a code that signs in once. The code is not written to a
/// file or a pipe, where others could read it later.
fn show_console_address(server: &Server, host_name: Option<&str>, first_token: Option<&Path>, terminal: &Terminal) {
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
    let token = first_token.and_then(|file| std::fs::read_to_string(file).ok());
    let code = token.filter(|_| terminal.is_interactive()).map(|token| server.create_sign_in_code(token.trim()));
    let fragment = code.map(|code| format!("#sign-in={code}")).unwrap_or_default();
    terminal.note(format!("web console: {BOLD}{scheme}://{authority}/console/{fragment}{BOLD:#}"));
    match fragment.is_empty() {
        false => terminal.note("the address signs in once, within 10 minutes; do not share it"),
        true => terminal.note(how_to_sign_in(first_token)),
    }
}

/// Says how a person gets a token with which they can sign in, without a secret.
fn how_to_sign_in(first_token: Option<&Path>) -> String {
    match first_token.filter(|file| file.is_file()) {
        Some(first) => format!("to sign in, enter the token in {}", first.display()),
        None => {
            "to sign in, enter a token; `agent-host token create NAME --right read --right talk` creates one".to_owned()
        }
    }
}

/// Name of the file that contains the first token, in the data folder.
const FIRST_TOKEN_FILE: &str = "server-token";

/// Creates a token with all rights if there is no token. Returns the path of the file that contains the first token, unless the
/// user has removed the file.
pub(super) fn create_first_token(data: &DataDirectory, terminal: &Terminal) -> Result<PathBuf, Failure> {
    let path = data.root().join(FIRST_TOKEN_FILE);
    if let Some(token) = token_file(None, data).create_first().map_err(Failure::refused)? {
        TokenFile::write_private(&path, &token).map_err(Failure::refused)?;
        terminal.note(format!("created a token with all rights, in {}", path.display()));
    }
    Ok(path)
}

/// Returns the file with the digests of the server's tokens: `shared`, which several machines use, or the file in the data
/// folder.
pub(super) fn token_file(shared: Option<&Path>, data: &DataDirectory) -> TokenFile {
    shared.map_or_else(|| token_file_in(data.root()), |path| TokenFile::shared(path.to_owned()))
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
