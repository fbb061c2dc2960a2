//! `mcp`: offers the tools of an agent, or the agent as a tool, to a client of the Model Context Protocol (I4).

use super::serve::{agent_options, create_first_token, token_file};
use super::served_agents::{Cooperation, ServedAgents};
use crate::arguments::mcp::McpArguments;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::interrupt::{Activity, Interrupts};
use crate::terminal::{BOLD, Terminal};
use agent_config::{DataDirectory, DataLocation};
use agent_mcp::offered::{Offer, StdioEnd, serve_stdio};
use agent_runtime::{Supervisor, SupervisorOptions};
use agent_serve::mcp::{AgentOffer, ClientCalls, McpClient, ToolOffer};
use agent_serve::{AllowedOrigins, Expose, McpAgent, Right, Routes, Server, ServerOptions};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Runs `mcp`.
pub(crate) async fn run(arguments: McpArguments, data: DataLocation<'_>, terminal: &Terminal) -> Result<Exit, Failure> {
    let interrupts = Interrupts::listen(terminal.clone());
    let stop = interrupts.begin(Activity::Serve);
    let environment = environment::host();
    let data = DataDirectory::open(data, &environment)?;
    let options = agent_options(&arguments.agents());
    let mut served = tokio::select! {
        served = ServedAgents::assemble(options, (&data, &environment), (Cooperation::default(), |host| host), terminal) => served?,
        () = stop.cancelled() => return Ok(Exit::Cancelled),
    };
    interrupts.kill_servers_on_exit(served.servers());
    let agent = served.first_agent()?;
    let supervisor = Supervisor::start(served.host.clone(), served.agents(), SupervisorOptions::default());
    let ended = match arguments.listen {
        None => over_stdio(&arguments, agent, (&mut served, &supervisor), &stop, terminal).await,
        Some(_) => over_http(&arguments, (agent, &data), (&mut served, &supervisor), &stop, terminal).await,
    };
    supervisor.shutdown().await;
    served.close(terminal).await;
    ended.map(|()| Exit::Done)
}

/// Serves the client that started this process, until the client closes standard input.
async fn over_stdio(
    arguments: &McpArguments,
    agent: String,
    (served, supervisor): (&mut ServedAgents, &Supervisor),
    stop: &CancellationToken,
    terminal: &Terminal,
) -> Result<(), Failure> {
    // The client works for the user who started it, and asks this user for approvals.
    let rights = Right::ALL.into();
    let client = McpClient { name: "stdio".to_owned(), rights, user: None, agents: Vec::new() };
    terminal.note(format!("offering {BOLD}{agent}{BOLD:#} to the MCP client on standard input and output"));
    let calls = ClientCalls::new(supervisor.clone(), agent, client);
    let offer: Arc<dyn Offer> = match arguments.expose.into() {
        Expose::Tools => Arc::new(ToolOffer::new(calls)),
        Expose::Agent => Arc::new(AgentOffer::new(calls)),
    };
    let client_left = stop.child_token();
    let serving = async {
        let end = serve_stdio(offer, (tokio::io::stdin(), tokio::io::stdout()), stop.child_token()).await;
        client_left.cancel();
        end
    };
    let (end, ()) = tokio::join!(serving, served.show_changes(&client_left, terminal));
    match end {
        StdioEnd::Closed => Ok(()),
        StdioEnd::Refused(reason) => Err(Failure::failed(reason)),
    }
}

/// Serves clients over streamable HTTP, until the process is told to stop.
async fn over_http(
    arguments: &McpArguments,
    (agent, data): (String, &DataDirectory),
    (served, supervisor): (&mut ServedAgents, &Supervisor),
    stop: &CancellationToken,
    terminal: &Terminal,
) -> Result<(), Failure> {
    create_first_token(data, terminal)?;
    let listening = arguments.served();
    let origins = AllowedOrigins { hosts: listening.host_name, origins: listening.origin };
    let routes = Routes::OnlyMcp(McpAgent { agent: agent.clone(), expose: arguments.expose.into() });
    let options = ServerOptions { origins, routes, ..ServerOptions::new(listening.listen, token_file(None, data)) };
    let server = Server::start(supervisor.clone(), options).await.map_err(Failure::refused)?;
    let url = server.address().map(|address| format!("http://{address}/mcp")).unwrap_or_default();
    terminal.note(format!("offering {BOLD}{agent}{BOLD:#} to MCP clients at {BOLD}{url}{BOLD:#}"));
    served.show_changes(stop, terminal).await;
    terminal.note("shutting down: open calls continue at the next start");
    server.shutdown().await;
    Ok(())
}
