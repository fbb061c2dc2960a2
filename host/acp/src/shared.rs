//! What all sessions of a connection share, and the way in which updates reach the editor.

use crate::transport::Flow;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{ContentBlock, ContentChunk, SessionNotification, SessionUpdate, TextContent};
use agent_client_protocol::{Client, Error, ErrorCode};
use agent_core::event::Wait;
use agent_core::run::Run;
use agent_runtime::{
    Agent, EDITOR_PROTOCOL, FileChanges, RefusedRequest, RequestError, RequestProblem, Supervisor, TreeGrant,
};
use agent_store::{SessionFilter, SessionState, SessionSummary, Store, StoreError, Unowned};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Maximum depth to which the parents of a delegated session are searched. It is larger than the depth limit of delegation.
const MAX_DEPTH: usize = 16;

/// What a connection to an editor serves.
#[derive(Clone)]
pub struct AcpOptions {
    /// Runs the sessions. Its host's `file_changes` are those of [`AcpOptions::file_changes`].
    pub supervisor: Supervisor,
    /// Configured name of the agent that the editor uses.
    pub agent: String,
    /// The user whose sessions the editor sees. `None` if the host does not know the user; then the editor sees all
    /// sessions of the agent.
    pub user: Option<String>,
    /// The folder to which the relative paths of the agent's configuration refer. It is reported as the folder of sessions.
    pub folder: PathBuf,
    /// Collects the changes of files, which are shown as differences.
    pub file_changes: FileChanges,
    /// Version of the host.
    pub version: String,
}

/// What all sessions of a connection share.
pub(crate) struct Shared {
    pub(crate) options: AcpOptions,
    pub(crate) flow: Flow,
    /// The connection, as soon as the editor has sent its first message.
    pub(crate) connection: OnceLock<ConnectionTo<Client>>,
    /// The sessions that the editor has open, with the tokens that are cancelled when the editor cancels their work.
    pub(crate) opened: Mutex<HashMap<String, Cancellation>>,
    /// The tasks of the sessions.
    pub(crate) tasks: TaskTracker,
    /// Cancelled when the connection ends.
    pub(crate) closed: CancellationToken,
}

/// Cancels the work of one session. A new token replaces a token that was cancelled.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cancellation(Arc<Mutex<CancellationToken>>);

impl Cancellation {
    /// Returns the token for work that begins now.
    pub(crate) fn current(&self) -> CancellationToken {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Cancels all work that has begun.
    pub(crate) fn cancel(&self) {
        let mut token = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *token).cancel();
    }
}

/// The connection to the editor has ended.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the connection to the editor has ended")]
pub(crate) struct Disconnected;

impl Shared {
    pub(crate) fn new(options: AcpOptions) -> Arc<Self> {
        let (flow, connection) = (Flow::default(), OnceLock::new());
        let (tasks, closed) = (TaskTracker::new(), CancellationToken::new());
        Arc::new(Self { options, flow, connection, opened: Mutex::default(), tasks, closed })
    }

    pub(crate) fn supervisor(&self) -> &Supervisor {
        &self.options.supervisor
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.options.supervisor.host().store
    }

    /// Returns the current agent, or `None` if the supervisor does not run it.
    pub(crate) fn agent(&self) -> Option<Arc<Agent>> {
        self.supervisor().agents().get(&self.options.agent).map(agent_runtime::LiveAgent::current)
    }

    /// Returns the directories that the agent may access.
    pub(crate) fn trees(&self) -> Vec<TreeGrant> {
        self.agent().map(|agent| agent.granted_trees()).unwrap_or_default()
    }

    /// Sends an update to the editor. Waits if the editor does not read the updates that were sent before.
    pub(crate) async fn update(&self, session: &str, update: SessionUpdate) -> Result<(), Disconnected> {
        let connection = self.connection.get().ok_or(Disconnected)?;
        let permit = tokio::select! {
            permit = self.flow.updates.acquire() => permit.map_err(|_| Disconnected)?,
            () = self.closed.cancelled() => return Err(Disconnected),
        };
        // The permit is returned when the update is written.
        permit.forget();
        let notification = SessionNotification::new(session.to_owned(), update);
        connection.send_notification(notification).map_err(|_| Disconnected)
    }

    /// Sends a text as a part of the agent's message.
    pub(crate) async fn say(&self, session: &str, text: impl Into<String>) -> Result<(), Disconnected> {
        self.update(session, SessionUpdate::AgentMessageChunk(chunk(text))).await
    }

    /// Returns the session with this subject, if it belongs to the agent and the user of this connection, and no other
    /// session has delegated work to it.
    pub(crate) async fn own_session(&self, session: &str) -> Result<SessionSummary, Error> {
        let filter = SessionFilter { subject: Some(session.to_owned()), ..self.own_sessions() };
        let found = self.store().sessions(filter, 1).await.map_err(store_error)?.pop();
        if let Some(found) = found.filter(is_shown) {
            return Ok(found);
        }
        let anybodys = SessionFilter { subject: Some(session.to_owned()), ..SessionFilter::default() };
        if !self.store().sessions(anybodys, 1).await.map_err(store_error)?.is_empty() {
            self.note_refusal("the use of a session", session, "not_found");
        }
        // The answer does not tell whether another session exists.
        Err(no_session(session))
    }

    /// Records in the audit log that a request of the editor was refused (O3).
    pub(crate) fn note_refusal(&self, request: &str, object: &str, code: &'static str) {
        let (request, object) = (request.to_owned(), Some(object.to_owned()));
        let refused = RefusedRequest { protocol: EDITOR_PROTOCOL, token: None, request, object, code };
        self.supervisor().refusals().note(refused);
    }

    /// Returns the filter for the sessions that this connection may use.
    pub(crate) fn own_sessions(&self) -> SessionFilter {
        let AcpOptions { agent, user, .. } = &self.options;
        SessionFilter {
            agent: Some(agent.clone()),
            user: user.clone(),
            unowned: Unowned::Shown,
            ..SessionFilter::default()
        }
    }

    /// Returns what the open turn of a session waits for at this moment.
    pub(crate) async fn waits(&self, session: &str) -> Result<Vec<Wait>, StoreError> {
        let snapshot = match self.store().snapshot(session).await {
            Err(StoreError::NoSession { .. }) => None,
            snapshot => snapshot?,
        };
        Ok(Run::restore(snapshot.as_deref()).map(|run| run.waits()).unwrap_or_default())
    }

    /// Returns the session that the editor has opened, for a session to which work may have been delegated.
    pub(crate) async fn root_of(&self, session: &str) -> Option<String> {
        let mut subject = session.to_owned();
        for _ in 0..MAX_DEPTH {
            if self.opened.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&subject) {
                return Some(subject);
            }
            let filter = SessionFilter { subject: Some(subject.clone()), ..SessionFilter::default() };
            let summary = self.store().sessions(filter, 1).await.ok()?.pop()?;
            subject = summary.delegated_by?;
        }
        None
    }
}

/// Whether a session is shown to the editor.
pub(crate) fn is_shown(session: &SessionSummary) -> bool {
    session.state != SessionState::Incomplete && session.revision > 0 && session.delegated_by.is_none()
}

/// Returns a text as a piece of a message.
pub(crate) fn chunk(text: impl Into<String>) -> ContentChunk {
    ContentChunk::new(ContentBlock::Text(TextContent::new(text)))
}

pub(crate) fn no_session(session: &str) -> Error {
    let message = format!("there is no session `{}` of this agent", crate::text::plain(session));
    Error::new(ErrorCode::RESOURCE_NOT_FOUND, message)
}

pub(crate) fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::INVALID_PARAMS, message)
}

pub(crate) fn failed(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::INTERNAL_ERROR, message)
}

pub(crate) fn store_error(error: StoreError) -> Error {
    tracing::error!(%error, "the store cannot be used");
    failed("the host's store cannot be used; the host's log contains the reason")
}

/// Converts the reason why a session rejected a request.
pub(crate) fn request_error(error: RequestError) -> Error {
    match error.kind {
        RequestProblem::NotFound => Error::new(ErrorCode::RESOURCE_NOT_FOUND, error.message),
        RequestProblem::Invalid => invalid(error.message),
        RequestProblem::Conflict | RequestProblem::Unavailable | RequestProblem::Failed => failed(error.message),
    }
}

impl From<Disconnected> for Error {
    fn from(disconnected: Disconnected) -> Self {
        failed(disconnected.to_string())
    }
}
