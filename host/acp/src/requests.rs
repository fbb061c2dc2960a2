//! The requests of the editor, except prompts.

use crate::commands;
use crate::replay::{Sending, replay};
use crate::session::SessionHandle;
use crate::shared::{Shared, failed, invalid, is_shown, request_error, store_error};
use crate::text::{code, plain};
use agent_client_protocol::Error;
use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::Responder;
use agent_client_protocol::v1::schema::{
    AgentCapabilities, CloseSessionRequest, CloseSessionResponse, DeleteSessionRequest, DeleteSessionResponse,
    Implementation, InitializeRequest, InitializeResponse, ListSessionsRequest, ListSessionsResponse,
    LoadSessionRequest, LoadSessionResponse, McpServer, NewSessionRequest, NewSessionResponse, PromptCapabilities,
    PromptRequest, PromptResponse, ResumeSessionRequest, ResumeSessionResponse, SessionCapabilities,
    SessionCloseCapabilities, SessionDeleteCapabilities, SessionInfo, SessionListCapabilities,
    SessionResumeCapabilities, SystemPrompt,
};
use agent_runtime::{SessionKind, SessionName};
use agent_store::StoreError;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of sessions that an editor has open at the same time.
const OPEN_SESSIONS: usize = 256;
/// Maximum number of sessions in a list.
const LISTED_SESSIONS: usize = 200;
/// Maximum number of MCP servers of the editor that the host names when it does not use them.
const SHOWN_SERVERS: usize = 20;

/// The sessions that the editor has open, by their subjects.
pub(crate) struct Requests {
    shared: Arc<Shared>,
    sessions: Mutex<HashMap<String, SessionHandle>>,
}

/// What a request says about the environment of a session.
struct Environment {
    folder: PathBuf,
    additional_folders: Vec<PathBuf>,
    servers: Vec<McpServer>,
    system_prompt: Option<SystemPrompt>,
}

impl Requests {
    pub(crate) fn new(shared: Arc<Shared>) -> Arc<Self> {
        Arc::new(Self { shared, sessions: Mutex::default() })
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Answers `initialize`.
    pub(crate) fn initialize(&self, _: &InitializeRequest) -> InitializeResponse {
        let sessions = SessionCapabilities::new()
            .list(SessionListCapabilities::new())
            .delete(SessionDeleteCapabilities::new())
            .resume(SessionResumeCapabilities::new())
            .close(SessionCloseCapabilities::new());
        let capabilities = AgentCapabilities::new()
            .load_session(true)
            .prompt_capabilities(PromptCapabilities::new().image(true).embedded_context(true))
            .session_capabilities(sessions);
        let about = Implementation::new("agent-host", self.shared.options.version.clone());
        InitializeResponse::new(ProtocolVersion::V1).agent_capabilities(capabilities).agent_info(about)
    }

    /// Creates a session. It is stored when its first prompt arrives.
    pub(crate) async fn new_session(
        &self,
        request: NewSessionRequest,
        responder: Responder<NewSessionResponse>,
    ) -> Result<(), Error> {
        let NewSessionRequest { cwd, additional_directories, mcp_servers, system_prompt, .. } = request;
        let environment = Environment {
            folder: cwd,
            additional_folders: additional_directories,
            servers: mcp_servers,
            system_prompt,
        };
        let note = match self.check(&environment).and_then(|note| self.check_capacity().map(|()| note)) {
            Ok(note) => note,
            Err(error) => return responder.respond_with_error(error),
        };
        let name = SessionName::new(SessionKind::Acp, &uuid::Uuid::new_v4().to_string());
        let subject = format!("{}/{name}", self.shared.options.agent);
        let session = SessionHandle::begin(&self.shared, subject.clone(), name, note);
        self.insert(subject.clone(), session);
        responder.respond(NewSessionResponse::new(subject.clone()))?;
        Ok(self.shared.update(&subject, commands::available()).await?)
    }

    /// Sends the stored conversation of a session, and continues the session.
    pub(crate) async fn load(
        &self,
        request: LoadSessionRequest,
        responder: Responder<LoadSessionResponse>,
    ) -> Result<(), Error> {
        let LoadSessionRequest { session_id, cwd, additional_directories, mcp_servers, system_prompt, .. } = request;
        let environment = Environment {
            folder: cwd,
            additional_folders: additional_directories,
            servers: mcp_servers,
            system_prompt,
        };
        let subject = session_id.to_string();
        match self.open(&subject, &environment, Sending::Everything).await {
            Ok(open) => {
                self.follow(subject.clone(), open);
                responder.respond(LoadSessionResponse::new())?;
                Ok(self.shared.update(&subject, commands::available()).await?)
            }
            Err(error) => responder.respond_with_error(error),
        }
    }

    /// Continues a session whose conversation the editor has.
    pub(crate) async fn resume(
        &self,
        request: ResumeSessionRequest,
        responder: Responder<ResumeSessionResponse>,
    ) -> Result<(), Error> {
        let ResumeSessionRequest { session_id, cwd, additional_directories, mcp_servers, system_prompt, .. } = request;
        let environment = Environment {
            folder: cwd,
            additional_folders: additional_directories,
            servers: mcp_servers,
            system_prompt,
        };
        let subject = session_id.to_string();
        match self.open(&subject, &environment, Sending::Nothing).await {
            Ok(open) => {
                self.follow(subject.clone(), open);
                responder.respond(ResumeSessionResponse::new())?;
                Ok(self.shared.update(&subject, commands::available()).await?)
            }
            Err(error) => responder.respond_with_error(error),
        }
    }

    async fn open(&self, subject: &str, environment: &Environment, sending: Sending) -> Result<Opened, Error> {
        let note = self.check(environment)?;
        self.shared.own_session(subject).await?;
        if let Some(session) = self.remove(subject) {
            session.stop();
        }
        self.end_grants(subject).await;
        self.check_capacity()?;
        Ok(Opened { stored: replay(&self.shared, subject, sending).await?, note })
    }

    /// Opens the session. The editor may send a prompt as soon as it has the response.
    fn follow(&self, subject: String, Opened { stored, note }: Opened) {
        let session = SessionHandle::resume(&self.shared, subject.clone(), stored, note);
        self.insert(subject, session);
    }

    /// Lists the sessions of the agent, the most recently changed first.
    pub(crate) async fn list(&self, request: ListSessionsRequest) -> Result<ListSessionsResponse, Error> {
        if request.cursor.is_some() {
            return Err(invalid("the cursor is unknown: a list has only one page"));
        }
        if let Some(folder) = &request.cwd
            && self.check_folder(folder).is_err()
        {
            return Ok(ListSessionsResponse::new(Vec::new()));
        }
        let filter = self.shared.own_sessions();
        let sessions = self.shared.store().sessions(filter, LISTED_SESSIONS).await.map_err(store_error)?;
        let folder = request.cwd.unwrap_or_else(|| self.shared.options.folder.clone());
        let listed = sessions.into_iter().filter(is_shown).map(|session| {
            SessionInfo::new(session.subject, folder.clone())
                .title(session.title.map(|title| plain(&title)))
                .updated_at(session.updated)
        });
        Ok(ListSessionsResponse::new(listed.collect()))
    }

    /// Deletes a session with everything that is stored about it.
    pub(crate) async fn delete(&self, request: DeleteSessionRequest) -> Result<DeleteSessionResponse, Error> {
        let subject = request.session_id.to_string();
        self.shared.own_session(&subject).await?;
        match self.shared.store().delete(&subject).await {
            Ok(_) => {
                if let Some(session) = self.remove(&subject) {
                    session.stop();
                }
                self.end_grants(&subject).await;
                Ok(DeleteSessionResponse::new())
            }
            Err(StoreError::Busy { .. }) => {
                Err(failed("the session is in use; close it, and try again a few seconds later"))
            }
            Err(error) => Err(store_error(error)),
        }
    }

    /// Cancels the work of a session, and stops to follow it.
    pub(crate) async fn close(&self, request: CloseSessionRequest) -> Result<CloseSessionResponse, Error> {
        let subject = request.session_id.to_string();
        // The grants end even if the session cannot be closed properly.
        self.end_grants(&subject).await;
        let Some(session) = self.remove(&subject) else { return Err(crate::shared::no_session(&subject)) };
        session.cancel();
        if self.shared.own_session(&subject).await.is_ok() {
            let cancelled = self.shared.supervisor().send(&subject, agent_runtime::SessionRequest::Cancel).await;
            cancelled.map_err(request_error)?;
        }
        session.stop();
        Ok(CloseSessionResponse::new())
    }

    /// Ends the grants that the user has given only to this session.
    async fn end_grants(&self, subject: &str) {
        if let Err(error) = self.shared.supervisor().end_session_grants(subject).await {
            tracing::warn!(session = subject, %error, "the end of temporary grants was not recorded in the audit log");
        }
    }

    /// Hands over a prompt to its session.
    pub(crate) fn prompt(&self, request: PromptRequest, responder: Responder<PromptResponse>) -> Result<(), Error> {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        match sessions.get(&request.session_id.to_string()) {
            Some(session) => session.prompt(request.prompt, responder),
            None => {
                let message = format!(
                    "the session {} is not open: create it, load it or resume it first",
                    code(&request.session_id.to_string())
                );
                responder.respond_with_error(invalid(message))
            }
        }
    }

    /// Cancels the open turn of a session. Sessions that are not open are ignored.
    pub(crate) fn cancel(&self, subject: &str) {
        if let Some(session) = self.sessions.lock().unwrap_or_else(PoisonError::into_inner).get(subject) {
            session.cancel();
        }
    }

    fn insert(&self, subject: String, session: SessionHandle) {
        self.shared
            .opened
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(subject.clone(), session.cancellation());
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(earlier) = sessions.insert(subject, session) {
            earlier.stop();
        }
    }

    fn remove(&self, subject: &str) -> Option<SessionHandle> {
        self.shared.opened.lock().unwrap_or_else(PoisonError::into_inner).remove(subject);
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).remove(subject)
    }

    fn check_capacity(&self) -> Result<(), Error> {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.retain(|_, session| !session.is_stopped());
        match sessions.len() < OPEN_SESSIONS {
            true => Ok(()),
            false => Err(failed(format!("{OPEN_SESSIONS} sessions are open; close one of them first"))),
        }
    }

    /// Checks what a request says about the environment of a session. Returns a note for the user about the part that the
    /// host does not use. Nothing in the request extends what the agent may do.
    fn check(&self, environment: &Environment) -> Result<Option<String>, Error> {
        let Environment { folder, additional_folders, servers, system_prompt } = environment;
        if let Some(folder) = additional_folders.first() {
            self.shared.note_refusal("a session with additional folders", &folder.display().to_string(), "invalid");
            return Err(invalid("additional folders are not supported; grant folders in the agent's configuration"));
        }
        if system_prompt.is_some() {
            return Err(invalid("system prompts are not supported; write instructions into the agent's configuration"));
        }
        self.check_folder(folder).inspect_err(|_| {
            self.shared.note_refusal("a session in a folder", &folder.display().to_string(), "forbidden");
        })?;
        if servers.is_empty() {
            return Ok(None);
        }
        for server in servers.iter().take(SHOWN_SERVERS) {
            self.shared.note_refusal("the use of an MCP server", server_name(server), "forbidden");
        }
        let names: Vec<String> = servers.iter().take(SHOWN_SERVERS).map(|server| code(server_name(server))).collect();
        Ok(Some(format!(
            "The editor offers MCP servers ({}). They are not used, because only the agent's configuration may start or \
             reach servers. To use a server, add it to `[mcp]` in the agent's configuration.",
            names.join(", ")
        )))
    }

    /// Checks that the folder of the editor has something to do with the folders that the agent may access.
    fn check_folder(&self, folder: &Path) -> Result<(), Error> {
        if !folder.is_absolute() {
            return Err(invalid("the folder of the session is not an absolute path"));
        }
        let trees = self.shared.trees();
        let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let folder = real(folder);
        let is_related = |tree: &Path| folder.starts_with(tree) || tree.starts_with(&folder);
        if trees.is_empty() || trees.iter().any(|tree| is_related(&real(&tree.host))) {
            return Ok(());
        }
        Err(invalid(format!(
            "the agent {} may not access this folder: none of the folders in its configuration is in the folder of the \
             session or contains it. Start the agent with a configuration for this folder, or open another folder",
            code(&self.shared.options.agent)
        )))
    }
}

/// A stored session that can be followed.
struct Opened {
    stored: crate::replay::Replayed,
    note: Option<String>,
}

fn server_name(server: &McpServer) -> &str {
    match server {
        McpServer::Http(server) => &server.name,
        McpServer::Sse(server) => &server.name,
        McpServer::Stdio(server) => &server.name,
        _ => "a server of another kind",
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        for session in self.sessions.lock().unwrap_or_else(PoisonError::into_inner).values() {
            session.stop();
        }
    }
}
