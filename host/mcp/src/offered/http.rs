//! Serves the clients with one token over streamable HTTP. The caller checks tokens, rights and the headers `Host` and
//! `Origin`, and reads the body with its own limits.

use super::handler::{ClientHandler, ListedTools};
use super::{MAX_CLIENT_MESSAGE_BYTES, Offer};
use ::http::{Request, Response, StatusCode};
use bytes::Bytes;
use http_body_util::Full;
use http_body_util::combinators::BoxBody;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, LocalSessionManagerError};
use rmcp::transport::streamable_http_server::session::{ServerSseMessage, SessionId, SessionManager};
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Time for which a session of the protocol is in use after each request. If there are too many sessions, a session that is
/// not in use ends, because many clients never end their sessions.
const IN_USE_TIME: Duration = Duration::from_secs(60);
/// Time after which a session of the protocol ends if the client sends nothing.
const IDLE_TIME: Duration = Duration::from_secs(30 * 60);

/// The endpoint for the clients with one token. All clones share the sessions of the protocol.
#[derive(Clone)]
pub struct HttpEndpoint {
    service: StreamableHttpService<ClientHandler, LimitedSessions>,
    sessions: Arc<LimitedSessions>,
    offer: Arc<dyn Fn() -> Arc<dyn Offer> + Send + Sync>,
    listed: ListedTools,
}

/// Why a request cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HttpRefusal {
    /// The clients with this token have too many sessions of the protocol.
    #[error("too many sessions are in use: a token may have {0}; end a session with DELETE first")]
    TooManySessions(usize),
}

impl HttpEndpoint {
    /// Creates an endpoint. `offer` returns what is offered to one client: it is called for each session of the protocol,
    /// and for each request without a session. The endpoint ends when `stop` is cancelled.
    pub fn new(
        offer: impl Fn() -> Arc<dyn Offer> + Send + Sync + 'static,
        max_sessions: usize,
        stop: CancellationToken,
    ) -> Self {
        let mut sessions = LocalSessionManager::default();
        sessions.session_config.keep_alive = Some(IDLE_TIME);
        let sessions = Arc::new(LimitedSessions { sessions, max: max_sessions, used: Mutex::default() });
        let (offer, listed) = (Arc::new(offer), ListedTools::default());
        let config = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .with_max_request_body_bytes(MAX_CLIENT_MESSAGE_BYTES)
            .with_cancellation_token(stop);
        let new_handler = {
            let (offer, listed) = (offer.clone(), listed.clone());
            move || Ok(ClientHandler::new(offer(), listed.clone()))
        };
        let service = StreamableHttpService::new(new_handler, sessions.clone(), config);
        Self { service, sessions, offer, listed }
    }

    /// Answers a request.
    pub async fn handle(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<BoxBody<Bytes, Infallible>>, HttpRefusal> {
        // The server checks the headers that repeat arguments, for which it needs the schemas of the tools.
        if self.listed.is_empty() {
            ClientHandler::new((self.offer)(), self.listed.clone()).read_list().await;
        }
        let response = self.service.handle(request).await;
        if response.status() == StatusCode::INTERNAL_SERVER_ERROR && self.sessions.is_full().await {
            return Err(HttpRefusal::TooManySessions(self.sessions.max));
        }
        Ok(response)
    }
}

/// Sessions of the protocol, of which there is a maximum number.
struct LimitedSessions {
    sessions: LocalSessionManager,
    max: usize,
    /// Time of the last request of each session.
    used: Mutex<HashMap<SessionId, Instant>>,
}

impl LimitedSessions {
    async fn is_full(&self) -> bool {
        self.sessions.sessions.read().await.len() >= self.max
    }

    /// Returns the session that is not in use for the longest time, and forgets the sessions that have ended.
    async fn unused(&self) -> Option<SessionId> {
        let sessions = self.sessions.sessions.read().await;
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.retain(|id, _| sessions.contains_key(id));
        let oldest = used.iter().min_by_key(|(_, used)| **used);
        oldest.filter(|(_, used)| used.elapsed() >= IN_USE_TIME).map(|(id, _)| id.clone())
    }

    fn record_use(&self, id: &SessionId) {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), Instant::now());
    }
}

/// Why a session of the protocol cannot be used.
#[derive(Debug, thiserror::Error)]
enum SessionsError {
    #[error("too many sessions are open")]
    Full,
    #[error(transparent)]
    Local(#[from] LocalSessionManagerError),
}

impl SessionManager for LimitedSessions {
    type Error = SessionsError;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        if self.is_full().await {
            let unused = self.unused().await.ok_or(SessionsError::Full)?;
            self.sessions.close_session(&unused).await?;
        }
        let (id, transport) = self.sessions.create_session().await?;
        self.record_use(&id);
        Ok((id, transport))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Self::Error> {
        Ok(self.sessions.initialize_session(id, message).await?)
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        let exists = self.sessions.has_session(id).await?;
        if exists {
            self.record_use(id);
        }
        Ok(exists)
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        Ok(self.sessions.close_session(id).await?)
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl futures::Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        Ok(self.sessions.create_stream(id, message).await?)
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), Self::Error> {
        Ok(self.sessions.accept_message(id, message).await?)
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl futures::Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        Ok(self.sessions.create_standalone_stream(id).await?)
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl futures::Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        Ok(self.sessions.resume(id, last_event_id).await?)
    }
}
