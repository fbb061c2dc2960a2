//! Accepts connections, with limits on their number and on the time that a request may take (row 25).

use crate::access::AllowedOrigins;
use crate::api::{health_router, mcp_router, router};
use crate::first_uses::FirstUseQuestions;
use crate::listener::{Accepted, Endpoint, ListenError, Listener};
use crate::mcp::McpAgent;
use crate::metrics::ServerMetrics;
use crate::open_connections::{OpenConnection, OpenConnections};
use crate::sign_ins::SignIns;
use crate::state::{ApiState, StreamLimits};
use crate::tokens::{TokenFile, digest};
use agent_config::Settings;
use agent_runtime::Supervisor;
use axum::Router;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Maximum size of the headers of a request, in bytes.
const HEADER_BYTES: usize = 32 << 10;
/// Time between two checks whether the tokens of MCP clients still exist as they were.
const MCP_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Time after which the server accepts connections again after the system has refused one, for example because the process
/// has too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Settings of a [`Server`].
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Where the server accepts connections.
    pub endpoint: Endpoint,
    /// The routes of the server. Default: [`Routes::All`].
    pub routes: Routes,
    /// Counts requests, and returns the metrics of the process at `/metrics`. `None` means that there are no metrics.
    pub metrics: Option<ServerMetrics>,
    /// The names under which clients may reach the server, and the web pages that may use it.
    pub origins: AllowedOrigins,
    /// The tokens of the server.
    pub tokens: TokenFile,
    /// The settings from which the agents were assembled, by the agent's name. The configuration files of agents that are not
    /// in this map can be neither read nor changed over HTTP.
    pub settings: BTreeMap<String, Settings>,
    /// The questions about missing grants, which people answer in the inbox. The program asks them.
    pub first_uses: FirstUseQuestions,
    /// Maximum number of connections. For a further client, a connection without a request is closed, or one whose request has no
    /// valid token. If all connections have requests with tokens, further clients wait. Default: 512.
    pub connections: usize,
    /// Maximum number of event streams of one token. Default: 3.
    pub streams_per_token: usize,
    /// Maximum number of event streams in total. Default: 256.
    pub streams: usize,
    /// Maximum number of requests of one token that wait for the reply of an agent, as in the OpenAI-compatible API. Default:
    /// 64.
    pub replies_per_token: usize,
    /// Maximum number of requests in total that wait for the reply of an agent. Default: 256.
    pub replies: usize,
    /// Maximum time until the headers of a request have arrived. An idle connection is closed after this time, too.
    /// Default: 10 s.
    pub header_timeout: Duration,
    /// Maximum time for which the server waits until a client reads a part of an answer. Default: 30 s.
    pub write_timeout: Duration,
    /// Maximum time for which the server waits for running requests when it shuts down. Default: 10 s.
    pub drain_timeout: Duration,
}

/// The routes of a server.
#[derive(Clone, Debug)]
pub enum Routes {
    /// The HTTP API, the web console and all other routes.
    All,
    /// This agent for MCP clients at `/mcp`, and the routes about the server's health.
    OnlyMcp(McpAgent),
    /// `/health`, `/ready` and `/metrics`, for a process whose sessions are used through other processes (F1).
    OnlyHealth,
}

impl ServerOptions {
    /// Creates options with default limits, for a server without TLS at this address.
    pub fn new(address: SocketAddr, tokens: TokenFile) -> Self {
        Self {
            endpoint: Endpoint::Tcp(address),
            routes: Routes::All,
            metrics: None,
            origins: AllowedOrigins::default(),
            tokens,
            settings: BTreeMap::new(),
            first_uses: FirstUseQuestions::default(),
            connections: 512,
            streams_per_token: 3,
            streams: 256,
            replies_per_token: 64,
            replies: 256,
            header_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(10),
        }
    }
}

/// A running HTTP server.
pub struct Server {
    endpoint: Endpoint,
    stop: CancellationToken,
    tasks: TaskTracker,
    drain_timeout: Duration,
    sign_ins: Arc<SignIns>,
}

impl Server {
    /// Starts a server for the sessions of the supervisor.
    pub async fn start(supervisor: Supervisor, options: ServerOptions) -> Result<Self, ListenError> {
        let ServerOptions { endpoint, origins, tokens, connections, streams_per_token, streams, .. } = options;
        let replies = StreamLimits::new("requests for replies", options.replies_per_token, options.replies);
        let (timeouts, drain_timeout) = ((options.header_timeout, options.write_timeout), options.drain_timeout);
        let (listener, endpoint) = Listener::bind(endpoint).await?;
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let streams = StreamLimits::new("event streams", streams_per_token, streams);
        let state = ApiState::new(supervisor, origins, tokens, options.settings, (streams, replies, stop.clone()));
        let state = Arc::new(state.with_metrics(options.metrics).with_first_uses(options.first_uses));
        let sign_ins = state.sign_ins.clone();
        tasks.spawn(close_outdated_mcp_sessions(state.clone(), stop.clone()));
        let accepting = Accepting {
            router: match options.routes {
                Routes::All => router(state),
                Routes::OnlyMcp(agent) => mcp_router(state, agent),
                Routes::OnlyHealth => health_router(state),
            },
            connections: OpenConnections::new(connections),
            stop: stop.clone(),
            tasks: tasks.clone(),
            timeouts,
        };
        tasks.spawn(accepting.accept(listener));
        Ok(Self { endpoint, stop, tasks, drain_timeout, sign_ins })
    }

    /// Returns where the server accepts connections. The port of an address is never 0.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Returns the address on which the server listens. `None` if it listens on a Unix socket.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.endpoint {
            Endpoint::Tcp(address) | Endpoint::Tls(address, _) => Some(*address),
            Endpoint::Unix(_) => None,
        }
    }

    /// Creates a code with which a browser signs in to the web console once, within 10 minutes, with the rights of this token. If
    /// the token does not exist, the code is refused.
    pub fn create_sign_in_code(&self, token: &str) -> String {
        self.sign_ins.create_code(&digest(token))
    }

    /// Accepts no more connections, ends the event streams, and waits until the running requests have ended.
    pub async fn shutdown(self) {
        self.stop.cancel();
        self.tasks.close();
        if tokio::time::timeout(self.drain_timeout, self.tasks.wait()).await.is_err() {
            tracing::warn!("requests are still running after the time limit of the shutdown; they are dropped");
        }
    }
}

/// Ends the sessions of MCP clients soon after their token was revoked or changed, even if they send nothing.
async fn close_outdated_mcp_sessions(state: Arc<ApiState>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        state.close_outdated_mcp_sessions();
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(MCP_CHECK_INTERVAL) => {}
        }
    }
}

/// What is needed to serve a connection.
struct Accepting {
    router: Router,
    connections: OpenConnections,
    stop: CancellationToken,
    tasks: TaskTracker,
    /// The maximum time until headers have arrived, and until a client reads a part of an answer.
    timeouts: (Duration, Duration),
}

impl Accepting {
    async fn accept(self, listener: Listener) {
        loop {
            let accepted = tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                accepted = self.next(&listener) => accepted,
            };
            match accepted {
                Ok((accepted, open)) => {
                    self.tasks.spawn(self.serve(accepted, open));
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Waits for a connection, and then until there is room for it.
    async fn next(&self, listener: &Listener) -> io::Result<(Accepted, OpenConnection)> {
        let (accepted, peer) = listener.accept().await?;
        Ok((accepted, self.connections.add(peer).await))
    }

    /// Serves one connection until the client closes it, a limit is exceeded, the server shuts down, or the connection is closed
    /// for another client.
    fn serve(&self, accepted: Accepted, open: OpenConnection) -> impl Future<Output = ()> + Send + use<> {
        let must_close = open.must_close();
        let served = self.serve_until_end(accepted, open);
        async move {
            tokio::select! {
                () = served => {}
                () = must_close => tracing::debug!("a connection was closed, because there are too many connections"),
            }
        }
    }

    fn serve_until_end(&self, accepted: Accepted, open: OpenConnection) -> impl Future<Output = ()> + Send + use<> {
        let (router, stop) = (self.router.clone(), self.stop.clone());
        let (header_timeout, write_timeout) = self.timeouts;
        async move {
            let established = tokio::select! {
                established = tokio::time::timeout(header_timeout, accepted.establish()) => established,
                () = stop.cancelled() => return,
            };
            let stream = match established {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => return tracing::debug!(%error, "a client and the server cannot agree on TLS"),
                Err(_) => return tracing::debug!("a client did not agree on TLS in time"),
            };
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(header_timeout).max_buf_size(HEADER_BYTES);
            let mut stream = TimeoutStream::new(stream);
            stream.set_write_timeout(Some(write_timeout));
            let stream = TokioIo::new(Box::pin(stream));
            let (router, activity) = (TowerToHyperService::new(router), open.activity.clone());
            let service = service_fn(move |mut request: Request<Incoming>| {
                let counted = activity.begin_request();
                request.extensions_mut().insert(activity.clone());
                let answer = router.call(request);
                async move { Ok::<_, Infallible>(answer.await?.map(|body| counted.with_body(body))) }
            });
            let connection = builder.serve_connection(stream, service);
            tokio::pin!(connection);
            let ended = tokio::select! {
                ended = connection.as_mut() => ended,
                () = stop.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    connection.as_mut().await
                }
            };
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection ended with an error");
            }
        }
    }
}
