//! `worker`: runs the sessions of agents without an HTTP API, until the process is told to stop (F1).

use super::serve::{agent_options, token_file};
use super::served_agents::{Cooperation, ServedAgents};
use crate::arguments::serve::WorkerArguments;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::interrupt::{Activity, Interrupts};
use crate::terminal::{BOLD, Terminal};
use agent_config::{DataDirectory, DataLocation};
use agent_runtime::{Supervisor, SupervisorOptions};
use agent_serve::{Routes, Server, ServerOptions};

/// Runs `worker`.
pub(crate) async fn run(
    arguments: WorkerArguments,
    data: DataLocation<'_>,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let interrupts = Interrupts::listen(terminal.clone());
    let stop = interrupts.begin(Activity::Serve);
    let (environment, nats) = (environment::host(), environment::nats(&arguments.nats)?);
    let data = DataDirectory::open(data, &environment)?;
    let options = agent_options(&arguments.agents);
    let registries = arguments.fetch.access();
    let cooperation = Cooperation { nats: nats.as_ref(), registries: registries.as_ref() };
    let mut served = tokio::select! {
        served = ServedAgents::assemble(options, (&data, &environment), (cooperation, |host| host), terminal) => served?,
        () = stop.cancelled() => return Ok(Exit::Cancelled),
    };
    served.export_metrics();
    interrupts.kill_servers_on_exit(served.servers());
    let agents = served.agents();
    let names: Vec<_> = agents.keys().cloned().collect();
    let supervisor = Supervisor::start(served.host.clone(), agents, SupervisorOptions::default());
    let health = match arguments.health {
        None => None,
        Some(address) => {
            let metrics = Some(served.monitoring.for_server());
            let defaults = ServerOptions::new(address, token_file(arguments.tokens.as_deref(), &data));
            match Server::start(supervisor.clone(), ServerOptions { routes: Routes::OnlyHealth, metrics, ..defaults })
                .await
            {
                Ok(server) => Some(server),
                Err(error) => {
                    supervisor.shutdown().await;
                    return Err(Failure::refused(error));
                }
            }
        }
    };
    let place =
        health.as_ref().and_then(Server::address).map(|address| format!(", with its health at http://{address}/ready"));
    let (names, place) = (names.join(", "), place.unwrap_or_default());
    terminal.note(format!("running the sessions of {names} in {BOLD}{}{BOLD:#}{place}", data.store_name()));
    served.show_changes(&stop, terminal).await;
    terminal.note("shutting down: other workers, or the next start, continue the open turns");
    let stop_health = async {
        if let Some(server) = health {
            server.shutdown().await;
        }
    };
    // The sessions are handed over first, so that they do not wait for a slow probe.
    tokio::join!(supervisor.shutdown(), stop_health);
    served.close(terminal).await;
    Ok(Exit::Done)
}
