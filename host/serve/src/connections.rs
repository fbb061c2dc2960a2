//! Accepts connections, with limits on their number and on the time that a request may take (row 25).

use crate::access::AllowedOrigins;
use crate::api::{health_router, mcp_router, router};
use crate::first_uses::FirstUseQuestions;
use crate::listener::{Accepted, Endpoint, ListenError, Listener};
use crate::mcp::McpAgent;
use crate::metrics::ServerMetrics;
use crate::sign_ins::SignIns;
use crate::state::{ApiState, StreamLimits};
use crate::tokens::{TokenFile, digest};
use agent_config::Settings;
use agent_runtime::Supervisor;
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Maximum size of the headers of a request, in bytes.
const HEADER_BYTES: usize = 32 << 10;
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
    /// Maximum number of connections. Further clients wait until a connection is closed. Default: 512.
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
        let accepting = Accepting {
            router: match options.routes {
                Routes::All => router(state),
                Routes::OnlyMcp(agent) => mcp_router(state, agent),
                Routes::OnlyHealth => health_router(state),
            },
            slots: Arc::new(Semaphore::new(connections)),
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

/// What is needed to serve a connection.
struct Accepting {
    router: Router,
    slots: Arc<Semaphore>,
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
                Ok((accepted, slot)) => {
                    self.tasks.spawn(self.serve(accepted, slot));
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Waits for a free slot and then for a connection.
    async fn next(&self, listener: &Listener) -> io::Result<(Accepted, OwnedSemaphorePermit)> {
        let slot = self.slots.clone().acquire_owned().await.map_err(io::Error::other)?;
        Ok((listener.accept().await?, slot))
    }

    /// Serves one connection until the client closes it, a limit is exceeded, or the server shuts down.
    fn serve(&self, accepted: Accepted, slot: OwnedSemaphorePermit) -> impl Future<Output = ()> + Send + use<> {
        let (router, stop) = (self.router.clone(), self.stop.clone());
        let (header_timeout, write_timeout) = self.timeouts;
        async move {
            let _slot = slot;
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
            let connection = builder.serve_connection(stream, TowerToHyperService::new(router));
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
