//! `acp`: an agent inside an editor, over the Agent Client Protocol on stdin and stdout (I7).

mod first_use;

use super::first_use_queues::FirstUseQueues;
use super::open_session::FIRST_USE_QUEUE;
use super::served_agents::{Cooperation, ServedAgents};
use crate::arguments::acp::AcpArguments;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::interrupt::{Activity, Interrupts};
use crate::terminal::Terminal;
use agent_acp::{AcpOptions, AcpServer};
use agent_config::first_use::FirstUsePrompt;
use agent_config::{AgentOptions, DataDirectory, DataLocation};
use agent_runtime::{FileChanges, Host, Supervisor, SupervisorOptions};
use first_use::EditorPrompt;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::io::{stdin, stdout};

/// Runs `acp` until the editor closes the connection. Only messages of the protocol are written to stdout.
pub(crate) async fn run(arguments: AcpArguments, data: DataLocation<'_>, terminal: &Terminal) -> Result<Exit, Failure> {
    let interrupts = Interrupts::listen(terminal.clone());
    let stop = interrupts.begin(Activity::Serve);
    let environment = environment::host_in_project();
    let data = DataDirectory::open(data, &environment)?;
    let (sender, first_uses) = tokio::sync::mpsc::channel(FIRST_USE_QUEUE);
    let file_changes = FileChanges::default();
    let for_editor = |host| Host { first_uses: Some(sender), file_changes: Some(file_changes.clone()), ..host };
    let AcpArguments { agent, plugins, model, grant } = arguments;
    let options = AgentOptions { agent, plugins, model, grants: grant, ..AgentOptions::default() };
    let mut served = tokio::select! {
        served = ServedAgents::assemble(vec![options], (&data, &environment), (Cooperation::default(), for_editor), terminal) => served?,
        () = stop.cancelled() => return Ok(Exit::Cancelled),
    };
    interrupts.kill_servers_on_exit(served.servers());
    let agent = served.agents.first().ok_or_else(|| Failure::refused("there is no agent for the editor"))?;
    let (name, files) = (agent.agent.current().config().name.clone(), agent.files());
    let supervisor = Supervisor::start(served.host.clone(), served.agents(), SupervisorOptions::default());
    let server = AcpServer::new(AcpOptions {
        supervisor: supervisor.clone(),
        folder: folder_of(files.get(&name)),
        agent: name,
        user: data.user(),
        file_changes,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    });
    if std::io::stdin().is_terminal() {
        terminal
            .note("this command talks to an editor over stdin and stdout; start it from the settings of your editor");
    }
    let ended = stop.child_token();
    let (questions, reports) = (server.questions(), terminal.clone());
    let prompt = move |session| -> Arc<dyn FirstUsePrompt> {
        Arc::new(EditorPrompt { questions: questions.clone(), terminal: reports.clone(), session })
    };
    let (prompts, store) = (Box::new(prompt), served.host.store.clone());
    let answering = FirstUseQueues { prompts, store, files, stop: ended.clone() };
    let answering = tokio::spawn(answering.run(first_uses));
    let serving = async {
        let served = server.serve(stdin(), stdout(), &stop).await;
        ended.cancel();
        served
    };
    let (result, ()) = tokio::join!(serving, served.show_changes(&ended, terminal));
    // Open turns stay open, and continue when their sessions are used again.
    supervisor.shutdown().await;
    let _ = answering.await;
    served.close(terminal).await;
    match result {
        // The editor has closed its end of the pipe.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::output(error)),
        _ => Ok(Exit::Done),
    }
}

/// Returns the folder to which the relative paths of an agent's configuration refer.
fn folder_of(file: Option<&PathBuf>) -> PathBuf {
    let folder = file.and_then(|file| file.parent()).filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    folder.canonicalize().unwrap_or_else(|_| folder.to_owned())
}
