//! Serves the clients with one token over streamable HTTP. The caller checks tokens, rights and the headers `Host` and
//! `Origin`, and reads the body with its own limits.

use super::handler::ClientHandler;
use super::{MAX_CLIENT_MESSAGE_BYTES, Offer};
use ::http::{Request, Response, StatusCode};
use bytes::Bytes;
use http_body_util::Full;
use http_body_util::combinators::BoxBody;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, LocalSessionManagerError};
use rmcp::transport::streamable_http_server::session::{ServerSseMessage, SessionId, SessionManager};
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Time after which a session of the protocol ends if the client sends nothing.
const IDLE_TIME: Duration = Duration::from_secs(30 * 60);

/// The endpoint for the clients with one token. All clones share the sessions of the protocol.
#[derive(Clone)]
pub struct HttpEndpoint {
    service: StreamableHttpService<ClientHandler, LimitedSessions>,
    sessions: Arc<LimitedSessions>,
}

/// Why a request cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HttpRefusal {
    /// The clients with this token have too many sessions of the protocol.
    #[error("too many sessions are open: a token may have {0}; end a session with DELETE first")]
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
        let sessions = Arc::new(LimitedSessions { sessions, max: max_sessions });
        let config = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .with_max_request_body_bytes(MAX_CLIENT_MESSAGE_BYTES)
            .with_cancellation_token(stop);
        let service = StreamableHttpService::new(move || Ok(ClientHandler::new(offer())), sessions.clone(), config);
        Self { service, sessions }
    }

    /// Answers a request.
    pub async fn handle(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<BoxBody<Bytes, Infallible>>, HttpRefusal> {
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
}

impl LimitedSessions {
    async fn is_full(&self) -> bool {
        self.sessions.sessions.read().await.len() >= self.max
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
            return Err(SessionsError::Full);
        }
        Ok(self.sessions.create_session().await?)
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Self::Error> {
        Ok(self.sessions.initialize_session(id, message).await?)
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        Ok(self.sessions.has_session(id).await?)
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
