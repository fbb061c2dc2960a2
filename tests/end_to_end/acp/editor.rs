//! An editor: the protocol's own client over the standard input and output of the real program.

use crate::support::{SharedCompiledCode, agent_host, components, script};
use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::schema::{
    CancelNotification, ContentBlock, InitializeRequest, InitializeResponse, LoadSessionRequest, NewSessionRequest,
    PromptRequest, PromptResponse, RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse,
    SelectedPermissionOutcome, SessionNotification, SessionUpdate, StopReason, TextContent, ToolCallContent,
    ToolCallStatus,
};
use agent_client_protocol::v1::{ConnectionTo, Responder};
use agent_client_protocol::{Agent, Client, Error, Lines, on_receive_notification, on_receive_request};
use agent_store::{Options, SqliteStore};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;

/// Maximum time that a test waits for something that must happen.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// A folder with an agent, its plugins and a data folder.
pub(super) struct Project {
    folder: TempDir,
    _code: SharedCompiledCode,
}

impl Project {
    /// Creates a folder with the agent `coder`. `agent` contains the lines of `agent.toml` after its name and model.
    pub(super) fn new(plugins: &[&str], agent: &str, replies: &[Value]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["plugins", "work", "elsewhere"] {
            std::fs::create_dir(folder.path().join(name)).expect("a folder");
        }
        for plugin in plugins {
            let file = format!("{plugin}.wasm");
            std::fs::copy(components().join(&file), folder.path().join("plugins").join(file)).expect("a plugin");
        }
        let _code = SharedCompiledCode::in_data(&folder.path().join("data"));
        let project = Self { folder, _code };
        project.write("script.json", &script(replies).to_string());
        let head = "name = \"coder\"\nmodel = \"scripted:script.json\"\nplugin_directory = \"plugins\"\n";
        project.write("agent.toml", &format!("{head}{agent}"));
        project
    }

    /// Returns a path in the folder, as the host sees it.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().expect("a folder").join(name)
    }

    pub(super) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), text).expect("a file");
    }

    pub(super) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }

    pub(super) fn store(&self) -> SqliteStore {
        SqliteStore::open(self.path("data/agent-host.db"), Options::default()).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Returns the program with arguments that every command needs.
    pub(super) fn program(&self, arguments: &[&str]) -> Command {
        let mut command = Command::from(agent_host());
        command.args(arguments).arg("--data").arg(self.path("data")).current_dir(self.folder.path());
        command.kill_on_drop(true);
        command
    }

    /// Starts the agent, with pipes instead of a terminal.
    pub(super) fn start(&self, change: impl Fn(&mut Command)) -> Child {
        let mut command = self.program(&["acp", "--agent", "agent.toml"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        change(&mut command);
        command.spawn().expect("the program starts")
    }
}

/// A permission request, with the means to answer it.
pub(super) struct Permission {
    pub(super) request: RequestPermissionRequest,
    responder: Responder<RequestPermissionResponse>,
}

impl Permission {
    /// Returns the names of the options.
    pub(super) fn options(&self) -> Vec<String> {
        self.request.options.iter().map(|option| option.option_id.to_string()).collect()
    }

    pub(super) fn select(self, option: &str) {
        let outcome = RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(option.to_owned()));
        self.responder.respond(RequestPermissionResponse::new(outcome)).expect("the connection is open");
    }

    pub(super) fn dismiss(self) {
        let outcome = RequestPermissionOutcome::Cancelled;
        self.responder.respond(RequestPermissionResponse::new(outcome)).expect("the connection is open");
    }

    /// Returns the text that the user sees.
    pub(super) fn text(&self) -> String {
        texts(self.request.tool_call.fields.content.as_deref().unwrap_or_default())
    }
}

/// Returns the texts in the content of a call.
pub(super) fn texts(content: &[ToolCallContent]) -> String {
    let texts = content.iter().filter_map(|content| match content {
        ToolCallContent::Content(content) => match &content.content {
            ContentBlock::Text(text) => Some(text.text.clone()),
            _ => None,
        },
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// An editor that is connected to the agent.
pub(super) struct Editor {
    pub(super) connection: ConnectionTo<Agent>,
    updates: UnboundedReceiver<SessionNotification>,
    permissions: UnboundedReceiver<Permission>,
    /// Ends the connection when it is dropped.
    finish: tokio::sync::oneshot::Sender<()>,
    pub(super) child: Child,
    pub(super) capabilities: InitializeResponse,
}

impl Editor {
    pub(super) async fn start(project: &Project) -> Self {
        Self::connect(project.start(|_| {})).await
    }

    /// Connects to a program, and initializes the connection.
    pub(super) async fn connect(mut child: Child) -> Self {
        let (stdin, stdout) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        let outgoing = futures::sink::unfold(stdin, async |mut stdin, line: String| {
            stdin.write_all(format!("{line}\n").as_bytes()).await?;
            stdin.flush().await?;
            Ok::<_, std::io::Error>(stdin)
        });
        let lines = BufReader::new(stdout).lines();
        let incoming = futures::stream::unfold(lines, async |mut lines| {
            let line = lines.next_line().await.transpose()?;
            Some((line, lines))
        });
        let (update, updates) = unbounded_channel();
        let (permission, permissions) = unbounded_channel();
        let (connected, connection) = tokio::sync::oneshot::channel();
        let client = Client
            .v1()
            .on_receive_notification(
                async move |notification: SessionNotification, _| {
                    let _ = update.send(notification);
                    Ok(())
                },
                on_receive_notification!(),
            )
            .on_receive_request(
                async move |request: RequestPermissionRequest, responder, _| {
                    let _ = permission.send(Permission { request, responder });
                    Ok(())
                },
                on_receive_request!(),
            );
        let transport = Lines::new(Box::pin(outgoing), Box::pin(incoming));
        let (finish, finished) = tokio::sync::oneshot::channel();
        tokio::spawn(client.connect_with(transport, async move |connection: ConnectionTo<Agent>| {
            let _ = connected.send(connection.clone());
            tokio::select! {
                () = connection.incoming_closed() => {}
                _ = finished => {}
            }
            Ok(())
        }));
        let connection = connection.await.expect("the connection opens");
        let initialize = connection.send_request(InitializeRequest::new(ProtocolVersion::V1)).block_task();
        let capabilities = patient(initialize).await.expect("the agent answers");
        Self { connection, updates, permissions, finish, child, capabilities }
    }

    /// Creates a session in this folder.
    pub(super) async fn new_session(&self, folder: &Path) -> String {
        let new = self.connection.send_request(NewSessionRequest::new(folder)).block_task();
        patient(new).await.expect("the session is created").session_id.to_string()
    }

    pub(super) async fn load(&self, session: &str, folder: &Path) -> Result<(), Error> {
        let load = LoadSessionRequest::new(session.to_owned(), folder);
        patient(self.connection.send_request(load).block_task()).await.map(drop)
    }

    /// Sends a prompt. The answer arrives in the background.
    pub(super) fn send(&self, session: &str, prompt: Vec<ContentBlock>) -> JoinHandle<Result<PromptResponse, Error>> {
        let request = PromptRequest::new(session.to_owned(), prompt);
        tokio::spawn(self.connection.send_request(request).block_task())
    }

    pub(super) fn ask(&self, session: &str, text: &str) -> JoinHandle<Result<PromptResponse, Error>> {
        self.send(session, vec![block(text)])
    }

    /// Sends a prompt, and returns why its turn has ended.
    pub(super) async fn prompt(&self, session: &str, text: &str) -> StopReason {
        stopped(self.ask(session, text)).await
    }

    pub(super) fn cancel(&self, session: &str) {
        self.connection.send_notification(CancelNotification::new(session.to_owned())).expect("the connection is open");
    }

    pub(super) async fn permission(&mut self) -> Permission {
        patient(self.permissions.recv()).await.expect("a permission request")
    }

    /// Returns the updates that have arrived. The answers to requests arrive after the updates that were sent before them.
    pub(super) fn updates(&mut self) -> Vec<(String, SessionUpdate)> {
        let mut updates = Vec::new();
        while let Ok(notification) = self.updates.try_recv() {
            updates.push((notification.session_id.to_string(), notification.update));
        }
        updates
    }

    /// Waits for an update that matches, and returns it.
    pub(super) async fn until(&mut self, matches: impl Fn(&SessionUpdate) -> bool) -> SessionUpdate {
        let found = async {
            loop {
                let notification = self.updates.recv().await.expect("the connection is open");
                if matches(&notification.update) {
                    return notification.update;
                }
            }
        };
        patient(found).await
    }

    /// Closes the program's input, and checks that the program then exits.
    pub(super) async fn close(mut self) {
        drop(self.finish);
        let status = patient(self.child.wait()).await.expect("the program exits");
        assert!(status.success(), "{status}");
    }

    /// Kills the program with SIGKILL.
    pub(super) async fn kill(mut self) {
        patient(self.child.kill()).await.expect("the program is killed");
    }
}

/// Waits for something that must happen.
pub(super) async fn patient<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("this happens in time")
}

/// Waits for the answer to a prompt.
pub(super) async fn stopped(answer: JoinHandle<Result<PromptResponse, Error>>) -> StopReason {
    patient(answer).await.expect("the task ends").unwrap_or_else(|error| panic!("{error}")).stop_reason
}

pub(super) fn block(text: &str) -> ContentBlock {
    ContentBlock::Text(TextContent::new(text))
}

/// Returns the text of the agent's message.
pub(super) fn said(updates: &[(String, SessionUpdate)]) -> String {
    text_of(updates, |update| match update {
        SessionUpdate::AgentMessageChunk(chunk) => Some(&chunk.content),
        _ => None,
    })
}

/// Returns the text of the user's message.
pub(super) fn asked(updates: &[(String, SessionUpdate)]) -> String {
    text_of(updates, |update| match update {
        SessionUpdate::UserMessageChunk(chunk) => Some(&chunk.content),
        _ => None,
    })
}

/// Returns the text of the agent's thoughts.
pub(super) fn thought(updates: &[(String, SessionUpdate)]) -> String {
    text_of(updates, |update| match update {
        SessionUpdate::AgentThoughtChunk(chunk) => Some(&chunk.content),
        _ => None,
    })
}

fn text_of(updates: &[(String, SessionUpdate)], select: impl Fn(&SessionUpdate) -> Option<&ContentBlock>) -> String {
    let blocks = updates.iter().filter_map(|(_, update)| select(update));
    let texts = blocks.filter_map(|block| match block {
        ContentBlock::Text(text) => Some(text.text.as_str()),
        _ => None,
    });
    texts.collect()
}

/// Returns the last content and status of each call, in the order in which the calls ended.
pub(super) fn ended_calls(updates: &[(String, SessionUpdate)]) -> Vec<(ToolCallStatus, Vec<ToolCallContent>)> {
    let ended = updates.iter().filter_map(|(_, update)| match update {
        SessionUpdate::ToolCallUpdate(update) => Some((update.fields.status?, update.fields.content.clone()?)),
        _ => None,
    });
    ended.collect()
}
