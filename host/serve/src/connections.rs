//! Accepts connections, with limits on their number and on the time that a request may take (row 25).

use crate::access::AllowedOrigins;
use crate::api::router;
use crate::state::{ApiState, StreamLimits};
use crate::tokens::TokenFile;
use agent_runtime::Supervisor;
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
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
    /// The address on which the server listens.
    pub address: SocketAddr,
    /// The names under which clients may reach the server, and the web pages that may use it.
    pub origins: AllowedOrigins,
    /// The tokens of the server.
    pub tokens: TokenFile,
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

impl ServerOptions {
    /// Creates options with default limits.
    pub fn new(address: SocketAddr, tokens: TokenFile) -> Self {
        Self {
            address,
            origins: AllowedOrigins::default(),
            tokens,
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

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be used.
    #[error("cannot listen on {address}: {error}; choose another address with --listen ADDRESS")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        error: io::Error,
    },
}

/// A running HTTP server.
pub struct Server {
    address: SocketAddr,
    stop: CancellationToken,
    tasks: TaskTracker,
    drain_timeout: Duration,
}

impl Server {
    /// Starts a server for the sessions of the supervisor.
    pub async fn start(supervisor: Supervisor, options: ServerOptions) -> Result<Self, ServeError> {
        let ServerOptions { address, origins, tokens, connections, streams_per_token, streams, .. } = options;
        let replies = StreamLimits::new("requests for replies", options.replies_per_token, options.replies);
        let (timeouts, drain_timeout) = ((options.header_timeout, options.write_timeout), options.drain_timeout);
        let listen = |error| ServeError::Listen { address, error };
        let listener = TcpListener::bind(address).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let streams = StreamLimits::new("event streams", streams_per_token, streams);
        let state = ApiState::new(supervisor, origins, tokens, (streams, replies, stop.clone()));
        let accepting = Accepting {
            router: router(Arc::new(state)),
            slots: Arc::new(Semaphore::new(connections)),
            stop: stop.clone(),
            tasks: tasks.clone(),
            timeouts,
        };
        tasks.spawn(accepting.accept(listener));
        Ok(Self { address, stop, tasks, drain_timeout })
    }

    /// Returns the address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
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
    async fn accept(self, listener: TcpListener) {
        loop {
            let accepted = tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                accepted = self.next(&listener) => accepted,
            };
            match accepted {
                Ok((stream, slot)) => {
                    self.tasks.spawn(self.serve(stream, slot));
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Waits for a free slot and then for a connection.
    async fn next(&self, listener: &TcpListener) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
        let slot = self.slots.clone().acquire_owned().await.map_err(io::Error::other)?;
        let (stream, _) = listener.accept().await?;
        Ok((stream, slot))
    }

    /// Serves one connection until the client closes it, a limit is exceeded, or the server shuts down.
    fn serve(&self, stream: TcpStream, slot: OwnedSemaphorePermit) -> impl Future<Output = ()> + Send + use<> {
        let (router, stop) = (self.router.clone(), self.stop.clone());
        let (header_timeout, write_timeout) = self.timeouts;
        async move {
            let _slot = slot;
            // Small events must not wait for more data. A failure only makes them slower.
            let _ = stream.set_nodelay(true);
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
