//! One connection to a server, from the handshake to the end: its process, its catalogue, its calls.

use crate::answering::Answering;
use crate::catalogue::{Listing, list};
use crate::child::{Child, Groups, Started};
use crate::configuration::{ChildCommand, HttpAddress, McpLimits, ServerConfig, Transport};
use crate::error::{McpError, shown};
use crate::http;
use crate::lines::{BoundedLines, Breach, Breaches, MAX_DEPTH};
use crate::reasons::{SHOWN_CHARACTERS, innermost, of_handshake, of_transport, refused_status};
use crate::redaction::{self, Redacting};
use crate::result::{McpDone, refusal};
use agent_core::tool::ToolError;
use futures::future::OptionFuture;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ClientCapabilities, ClientConfig, Implementation, JsonObject, PingRequest,
    ProtocolVersion, ServerNotification, SubscriptionFilter,
};
use rmcp::service::{
    ClientCacheConfig, ClientInitializeError, ClientLifecycleMode, ClientServiceExt, NotificationContext, Peer,
    RunningService, ServiceError,
};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::{ClientHandler, RoleClient};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// For a connection to be closed on our side, a farewell over HTTP included.
const CLOSE_TIME: Duration = Duration::from_secs(3);
/// The same where the host has no time.
const HURRIED_CLOSE_TIME: Duration = Duration::from_millis(80);
/// For a server to show that it still lives, after a call that it did not answer.
const PROBE_TIME: Duration = Duration::from_millis(900);

/// A server that has answered. Dropping it closes it.
pub(crate) struct Connection {
    peer: Peer<RoleClient>,
    /// What is closed, once.
    open: Mutex<Open>,
    listener: Listener,
    broken: Breaches,
    hung: OnceLock<Hung>,
    hurry: CancellationToken,
    listing: Mutex<Arc<Listing>>,
    _subscription: Option<AbortOnDropHandle<()>>,
}

#[derive(Default)]
struct Open {
    service: Option<RunningService<RoleClient, Listener>>,
    child: Option<Child>,
}

/// When a server was found to answer nothing any more, and how long that took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hung {
    pub(crate) at: Instant,
    pub(crate) took: Duration,
}

/// How a connection begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handshake {
    /// As nearly all servers know it.
    Initialize,
    /// As those do that know nothing older than 2026-07-28.
    Discover,
}

/// A handshake that failed.
struct Refusal {
    error: McpError,
    /// Whether another handshake may go better: the server has answered, but not this one.
    answered: bool,
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
        let mut config = ClientConfig::new(ClientCapabilities::default(), implementation);
        config.protocol_version = ProtocolVersion::LATEST_WITH_INITIALIZE;
        config
    }
}

impl Connection {
    /// Starts or reaches the server, shakes hands, and lists its tools.
    pub(crate) async fn open(config: &ServerConfig, groups: &Groups) -> Result<Self, McpError> {
        let time = config.limits.connect_time;
        let connecting = async {
            let connection = Self::shake_hands(config, groups).await?;
            connection.relist(config).await?;
            Ok(connection)
        };
        let slow = || McpError::Slow { server: config.name.clone(), deed: "connect and list its tools", time };
        timeout(time, connecting).await.unwrap_or_else(|_| Err(slow()))
    }

    /// The older handshake first: many servers that know no other fall silent or end at any other first message. Who
    /// refuses it is begun with again, over a connection of its own.
    async fn shake_hands(config: &ServerConfig, groups: &Groups) -> Result<Self, McpError> {
        match Self::begin(config, groups, Handshake::Initialize).await {
            Ok(connection) => Ok(connection),
            Err(Refusal { error, answered: true }) => {
                Self::begin(config, groups, Handshake::Discover).await.map_err(|_| error)
            }
            Err(Refusal { error, .. }) => Err(error),
        }
    }

    async fn begin(config: &ServerConfig, groups: &Groups, handshake: Handshake) -> Result<Self, Refusal> {
        match &config.transport {
            Transport::Stdio(command) => Self::start((config, groups), command, handshake).await,
            Transport::Http(address) => Self::reach((config, groups), address, handshake).await,
        }
    }

    async fn start(
        (config, groups): (&ServerConfig, &Groups),
        command: &ChildCommand,
        handshake: Handshake,
    ) -> Result<Self, Refusal> {
        let limits = &config.limits;
        let started = Child::start(config, command, groups).map_err(|error| {
            let (server, command, reason) = (config.name.clone(), command.command.clone(), error.to_string());
            Refusal { error: McpError::Start { server, command, reason }, answered: false }
        })?;
        let Started { child, stdin, stdout } = started;
        let (listener, broken) = (Listener::default(), Breaches::default());
        let stdout = BoundedLines::new(stdout, message_bytes(limits), broken.clone());
        // The reader before it is the one that cuts off: here a line that long would only be skipped.
        let transport = AsyncRwTransport::new_client(stdout, stdin).with_max_line_length(usize::MAX);
        let redaction = redaction::of(config);
        let transport = Redacting::new(Answering::new(transport), redaction.clone());
        let served = listener.clone().serve_with_lifecycle(transport, handshake.lifecycle()).await;
        match served {
            Ok(service) => Ok(Self::new(service, listener, (Some(child), broken), groups).await),
            Err(error) => {
                let reason = broken.found().map_or_else(|| of_handshake(&error), |breach| breach_of(breach, limits));
                // A process that is ending may not have said why yet.
                let _ = timeout(limits.close_time, child.silent()).await;
                let reason = redaction.text(format!("{reason}{}", child.last_words()));
                let answered = has_answered(&error);
                Err(Refusal { error: McpError::Connect { server: config.name.clone(), reason }, answered })
            }
        }
    }

    async fn reach(
        (config, groups): (&ServerConfig, &Groups),
        address: &HttpAddress,
        handshake: Handshake,
    ) -> Result<Self, Refusal> {
        let redaction = redaction::of(config);
        let failed = |reason, answered| {
            let reason = redaction.text(format!("{}: {reason}", http::shown(&address.url)));
            Refusal { error: McpError::Connect { server: config.name.clone(), reason }, answered }
        };
        let transport = http::transport(address, &config.limits).map_err(|reason| failed(reason, false))?;
        let transport = Redacting::new(transport, redaction.clone());
        let listener = Listener::default();
        let served = listener.clone().serve_with_lifecycle(transport, handshake.lifecycle()).await;
        let service = served.map_err(|error| failed(of_handshake(&error), has_answered(&error)))?;
        Ok(Self::new(service, listener, (None, Breaches::default()), groups).await)
    }

    async fn new(
        service: RunningService<RoleClient, Listener>,
        listener: Listener,
        (child, broken): (Option<Child>, Breaches),
        groups: &Groups,
    ) -> Self {
        let peer = service.peer().clone();
        // Lists are asked for when they have changed, and not before.
        peer.set_response_cache_config(ClientCacheConfig::disabled()).await;
        let subscription = subscribe(&peer, &listener);
        let open = Mutex::new(Open { service: Some(service), child });
        let (hung, hurry, listing) = (OnceLock::new(), groups.hurry_token(), Mutex::default());
        Self { peer, open, listener, broken, hung, hurry, listing, _subscription: subscription }
    }

    /// Whether the server still speaks.
    pub(crate) fn is_open(&self) -> bool {
        self.hung.get().is_none() && !self.peer.is_transport_closed()
    }

    /// That it was found to answer nothing any more.
    pub(crate) fn hung(&self) -> Option<Hung> {
        self.hung.get().copied()
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
            let reason = format!("its tools cannot be listed: {}", self.reason(&error, config));
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
        let Ok(answer) = timeout(time, self.peer.call_tool_once(request)).await else {
            return Err(self.late(name, time).await);
        };
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
                Err(self.lost(config, tool, &self.reason(&error, config)))
            }
            Err(error) => {
                let message = format!("MCP server {name}: {}", self.reason(&error, config));
                Err(ToolError::Failed { message })
            }
        }
    }

    /// The connection ended during a call. Only of what can be repeated it is said that it may be tried again.
    fn lost(&self, config: &ServerConfig, tool: &str, reason: &str) -> ToolError {
        let lost = format!("MCP server {} was lost during the call ({reason})", config.name);
        let listing = self.listing.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let known = listing.tools.iter().find(|known| known.remote_name == tool);
        if known.is_some_and(|known| known.definition.traits.repeatable()) {
            return ToolError::Unavailable { message: lost, retry_after: None };
        }
        let message = format!("{lost}; whether the call took effect is not known: find out before it is made again");
        ToolError::Failed { message }
    }

    /// A call has had no result in time. One tool may be slow; a server that answers nothing else either is given up, so
    /// that no further call waits for it.
    async fn late(&self, name: &str, time: Duration) -> ToolError {
        let given_up = timeout(PROBE_TIME, self.probe()).await.is_err();
        let then = match given_up {
            true => "and answers nothing else either: it is ended, and left alone for a while",
            false => "and was told to stop; it goes on with other calls",
        };
        if given_up {
            let _ = self.hung.set(Hung { at: Instant::now(), took: time });
        }
        ToolError::Failed { message: format!("MCP server {name} gave no result within {time:?} {then}") }
    }

    /// Whatever it answers, an error included, shows that it lives.
    async fn probe(&self) {
        let has_ping = self.peer.peer_info().is_none_or(|info| info.protocol_version.has_initialize());
        if has_ping {
            let ping = PingRequest { method: Default::default(), extensions: Default::default() };
            let _ = self.peer.send_request(ping.into()).await;
        } else {
            let _ = self.peer.list_tools(None).await;
        }
    }

    /// What ended it, for people.
    pub(crate) fn obituary(&self, limits: &McpLimits) -> String {
        let words = self.last_words();
        let cause = match self.hung() {
            Some(Hung { took, .. }) => format!("it gave no result within {took:?}, and answered nothing else"),
            None => self.broken.found().map_or_else(|| "it ended".to_owned(), |breach| breach_of(breach, limits)),
        };
        format!("{cause}{words}")
    }

    /// Closes it, and waits until its process and all that this started are gone.
    pub(crate) async fn close(&self) {
        let Open { service, child } = std::mem::take(&mut *self.open.lock().unwrap_or_else(PoisonError::into_inner));
        let hurried = async {
            self.hurry.cancelled().await;
            tokio::time::sleep(HURRIED_CLOSE_TIME).await;
        };
        let farewell = async {
            let Some(mut service) = service else { return };
            let closed = tokio::select! {
                closed = service.close_with_timeout(CLOSE_TIME) => matches!(closed, Ok(Some(_))),
                () = hurried => false,
            };
            if !closed {
                tracing::debug!("a connection to an MCP server did not close in time");
            }
        };
        tokio::join!(farewell, OptionFuture::from(child.map(Child::end)));
    }

    fn reason(&self, error: &ServiceError, config: &ServerConfig) -> String {
        if let Some(breach) = self.broken.found() {
            return breach_of(breach, &config.limits);
        }
        let reason = match error {
            ServiceError::TransportClosed => "the connection ended".to_owned(),
            ServiceError::UnexpectedResponse => "its answer is not what the protocol says".to_owned(),
            ServiceError::McpError(error) => shown(&error.message, SHOWN_CHARACTERS),
            ServiceError::TransportSend(error) => of_transport(error),
            error => innermost(error),
        };
        redaction::of(config).text(reason)
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

impl Handshake {
    fn lifecycle(self) -> ClientLifecycleMode {
        match self {
            Self::Initialize => ClientLifecycleMode::Initialize,
            Self::Discover => ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::LATEST] },
        }
    }
}

/// Whether a server that could not be begun with has answered at all.
fn has_answered(error: &ClientInitializeError) -> bool {
    match error {
        ClientInitializeError::TransportError { error, .. } => refused_status(error).is_some(),
        ClientInitializeError::ConnectionClosed(_) | ClientInitializeError::Cancelled => false,
        _ => true,
    }
}

fn message_bytes(limits: &McpLimits) -> usize {
    limits.message_bytes.min(McpLimits::LARGEST_MESSAGE)
}

fn breach_of(breach: Breach, limits: &McpLimits) -> String {
    match breach {
        Breach::TooLong => format!("it sent a message of more than {} bytes, and was cut off", message_bytes(limits)),
        Breach::TooDeep => format!("it sent a message of more than {MAX_DEPTH} levels, and was cut off"),
    }
}
