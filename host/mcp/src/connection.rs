//! One connection to a server, from the handshake to the end: its process, its catalogue, its calls.

use crate::answering::Answering;
use crate::catalogue::{Listing, list};
use crate::child::{Child, Groups, Started};
use crate::configuration::{ChildCommand, HttpAddress, McpLimits, ServerConfig, Transport};
use crate::error::{McpError, shown};
use crate::http;
use crate::lines::ShortLines;
use crate::result::{McpDone, refusal};
use agent_core::tool::ToolError;
use futures::future::OptionFuture;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ClientCapabilities, ClientConfig, Implementation, JsonObject,
    ProtocolVersion, ServerNotification, SubscriptionFilter,
};
use rmcp::service::{
    ClientCacheConfig, ClientInitializeError, ClientLifecycleMode, ClientServiceExt, NotificationContext, Peer,
    RunningService, ServiceError,
};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::{ClientHandler, RoleClient};
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

/// For a connection to be closed on our side, a farewell over HTTP included.
const CLOSE_TIME: Duration = Duration::from_secs(3);
/// Characters of an error that a server or a library tells.
const SHOWN_CHARACTERS: usize = 500;

/// A server that has answered. Dropping it closes it.
pub(crate) struct Connection {
    peer: Peer<RoleClient>,
    /// What is closed, once.
    open: Mutex<Open>,
    listener: Listener,
    broken: Arc<AtomicBool>,
    listing: Mutex<Arc<Listing>>,
    _subscription: Option<AbortOnDropHandle<()>>,
}

#[derive(Default)]
struct Open {
    service: Option<RunningService<RoleClient, Listener>>,
    child: Option<Child>,
}

/// Hears that a server has other tools now.
#[derive(Clone, Default)]
struct Listener {
    changed: Arc<AtomicBool>,
}

impl ClientHandler for Listener {
    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.store(true, Ordering::Release);
    }

    fn get_info(&self) -> ClientConfig {
        let implementation = Implementation::new("agent-host", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), implementation)
    }
}

impl Connection {
    /// Starts or reaches the server, shakes hands, and lists its tools.
    pub(crate) async fn open(config: &ServerConfig, groups: &Groups) -> Result<Self, McpError> {
        let time = config.limits.connect_time;
        let connecting = async {
            let connection = match &config.transport {
                Transport::Stdio(command) => Self::start(config, command, groups).await?,
                Transport::Http(address) => Self::reach(config, address).await?,
            };
            connection.relist(config).await?;
            Ok(connection)
        };
        let slow = || McpError::Slow { server: config.name.clone(), deed: "connect and list its tools", time };
        timeout(time, connecting).await.unwrap_or_else(|_| Err(slow()))
    }

    async fn start(config: &ServerConfig, command: &ChildCommand, groups: &Groups) -> Result<Self, McpError> {
        let limits = &config.limits;
        let started = Child::start(config, command, groups).map_err(|error| McpError::Start {
            server: config.name.clone(),
            command: command.command.clone(),
            reason: error.to_string(),
        })?;
        let Started { child, stdin, stdout } = started;
        let (listener, broken) = (Listener::default(), Arc::new(AtomicBool::new(false)));
        let stdout = ShortLines::new(stdout, message_bytes(limits), broken.clone());
        // The reader before it is the one that cuts off: here a line that long would only be skipped.
        let transport = AsyncRwTransport::new_client(stdout, stdin).with_max_line_length(usize::MAX);
        let transport = Answering::new(transport);
        let served = listener.clone().serve_with_lifecycle(transport, lifecycle()).await;
        match served {
            Ok(service) => Ok(Self::new(service, listener, (Some(child), broken)).await),
            Err(error) => {
                let reason = match broken.load(Ordering::Relaxed) {
                    true => too_long(limits),
                    false => explained(&error),
                };
                // A process that is ending may not have said why yet.
                let _ = timeout(limits.close_time, child.silent()).await;
                let reason = format!("{reason}{}", child.last_words());
                Err(McpError::Connect { server: config.name.clone(), reason })
            }
        }
    }

    async fn reach(config: &ServerConfig, address: &HttpAddress) -> Result<Self, McpError> {
        let failed = |reason| McpError::Connect { server: config.name.clone(), reason };
        let transport = http::transport(address, &config.limits).map_err(failed)?;
        let listener = Listener::default();
        let served = listener.clone().serve_with_lifecycle(transport, lifecycle()).await;
        let service = served.map_err(|error| match error.is_authorization_required() {
            true => failed("it wants an authorization: give it one in `headers` or `header_env`".to_owned()),
            false => failed(format!("{}: {}", http::shown(&address.url), explained(&error))),
        })?;
        Ok(Self::new(service, listener, (None, Arc::default())).await)
    }

    async fn new(
        service: RunningService<RoleClient, Listener>,
        listener: Listener,
        (child, broken): (Option<Child>, Arc<AtomicBool>),
    ) -> Self {
        let peer = service.peer().clone();
        // Lists are asked for when they have changed, and not before.
        peer.set_response_cache_config(ClientCacheConfig::disabled()).await;
        let subscription = subscribe(&peer, &listener);
        let open = Mutex::new(Open { service: Some(service), child });
        Self { peer, open, listener, broken, listing: Mutex::default(), _subscription: subscription }
    }

    /// Whether the server still speaks.
    pub(crate) fn is_open(&self) -> bool {
        !self.peer.is_transport_closed()
    }

    /// Its tools, asked for again where the server has said that they changed.
    pub(crate) async fn listing(&self, config: &ServerConfig) -> Result<Arc<Listing>, McpError> {
        if self.listener.changed.load(Ordering::Acquire) {
            let time = config.limits.connect_time;
            let slow = || McpError::Slow { server: config.name.clone(), deed: "list its tools", time };
            timeout(time, self.relist(config)).await.unwrap_or_else(|_| Err(slow()))?;
        }
        Ok(self.listing.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    async fn relist(&self, config: &ServerConfig) -> Result<(), McpError> {
        // Before the list is asked for: a change during the listing makes another one.
        self.listener.changed.store(false, Ordering::Release);
        let listed = list(&self.peer, config).await.map_err(|error| {
            self.listener.changed.store(true, Ordering::Release);
            let reason = format!("its tools cannot be listed: {}", self.reason(&error, &config.limits));
            McpError::Connect { server: config.name.clone(), reason }
        })?;
        *self.listing.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(listed);
        Ok(())
    }

    /// Calls a tool. Dropping the future tells the server that nobody waits any more.
    pub(crate) async fn call(
        &self,
        config: &ServerConfig,
        tool: &str,
        arguments: JsonObject,
    ) -> Result<McpDone, ToolError> {
        let ServerConfig { name, limits, .. } = config;
        let time = limits.call_time.min(McpLimits::LONGEST_CALL);
        let request = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let answer = timeout(time, self.peer.call_tool_once(request)).await.map_err(|_| ToolError::Failed {
            message: format!("MCP server {name} gave no result within {time:?}; it was told to stop"),
        })?;
        let asks_back = |what: &str| {
            let message = format!("MCP server {name} {what}, which this host does not offer to it");
            Err(ToolError::Failed { message })
        };
        match answer {
            Ok(CallToolResponse::Complete(result)) => McpDone::read(result, config),
            Ok(CallToolResponse::InputRequired(_)) => asks_back("asks for an input during the call"),
            Ok(_) => asks_back("answered with a task that goes on later"),
            Err(ServiceError::McpError(error)) => Err(refusal(name, &error)),
            Err(error @ (ServiceError::TransportClosed | ServiceError::TransportSend(_))) => {
                let reason = self.reason(&error, limits);
                let message = format!(
                    "MCP server {name} was lost during the call ({reason}); whether the call took effect is not known"
                );
                Err(ToolError::Unavailable { message, retry_after: None })
            }
            Err(error) => {
                let message = format!("MCP server {name}: {}", self.reason(&error, limits));
                Err(ToolError::Failed { message })
            }
        }
    }

    /// What ended it, for people.
    pub(crate) fn obituary(&self, limits: &McpLimits) -> String {
        let words = self.last_words();
        let cause = if self.broken.load(Ordering::Relaxed) { too_long(limits) } else { "it ended".to_owned() };
        format!("{cause}{words}")
    }

    /// Closes it, and waits until its process and all that this started are gone.
    pub(crate) async fn close(&self) {
        let Open { service, child } = std::mem::take(&mut *self.open.lock().unwrap_or_else(PoisonError::into_inner));
        let farewell = async {
            if let Some(mut service) = service
                && !matches!(service.close_with_timeout(CLOSE_TIME).await, Ok(Some(_)))
            {
                tracing::debug!("a connection to an MCP server did not close in time");
            }
        };
        tokio::join!(farewell, OptionFuture::from(child.map(Child::end)));
    }

    fn reason(&self, error: &ServiceError, limits: &McpLimits) -> String {
        match error {
            _ if self.broken.load(Ordering::Relaxed) => too_long(limits),
            ServiceError::TransportClosed => "the connection ended".to_owned(),
            ServiceError::UnexpectedResponse => "its answer is not what the protocol says".to_owned(),
            ServiceError::McpError(error) => shown(&error.message, SHOWN_CHARACTERS),
            error => innermost(error),
        }
    }

    fn last_words(&self) -> String {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.child.as_ref().map(Child::last_words).unwrap_or_default()
    }
}

/// Newer servers tell of changes only those who ask to be told.
fn subscribe(peer: &Peer<RoleClient>, listener: &Listener) -> Option<AbortOnDropHandle<()>> {
    let info = peer.peer_info()?;
    let tells = info.capabilities.tools.as_ref().is_some_and(|tools| tools.list_changed == Some(true));
    if info.protocol_version.has_initialize() || !tells {
        return None;
    }
    let (peer, listener) = (peer.clone(), listener.clone());
    let following = async move {
        let filter = SubscriptionFilter::builder().tools_list_changed().build();
        let Ok(mut subscription) = peer.listen(filter).await else { return };
        while let Ok(Some(notification)) = subscription.next().await {
            if matches!(notification, ServerNotification::ToolListChangedNotification(_)) {
                listener.changed.store(true, Ordering::Release);
            }
        }
    };
    Some(AbortOnDropHandle::new(tokio::spawn(following)))
}

/// The newest version first; a server that does not know it is asked as of old.
fn lifecycle() -> ClientLifecycleMode {
    ClientLifecycleMode::Auto { preferred_versions: vec![ProtocolVersion::LATEST], legacy_version: None }
}

fn message_bytes(limits: &McpLimits) -> usize {
    limits.message_bytes.min(McpLimits::LARGEST_MESSAGE)
}

fn too_long(limits: &McpLimits) -> String {
    format!("it sent a message of more than {} bytes, and was cut off", message_bytes(limits))
}

fn explained(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::ConnectionClosed(_) => "it ended, or closed its output, before it answered".to_owned(),
        ClientInitializeError::ExpectedInitResponse(_) | ClientInitializeError::ExpectedInitResult(_) => {
            "its first answer is not what the protocol says: is it an MCP server?".to_owned()
        }
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => explained(fallback),
        ClientInitializeError::JsonRpcError(error) => shown(&error.message, SHOWN_CHARACTERS),
        error => innermost(error),
    }
}

/// The first cause, which says the most.
fn innermost(error: &dyn Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    shown(&error.to_string(), SHOWN_CHARACTERS)
}
