//! A connection to a server, from the handshake to the shutdown. The connection owns the process and the tool list of
//! the server and makes the calls.

use crate::backpressure::BackpressureTransport;
use crate::bounded_lines::{BoundedLines, ExceededLimit, LimitFlag, MAX_DEPTH};
use crate::catalogue::{Listing, read_tool_list};
use crate::child::{Child, ProcessGroups, StartedChild};
use crate::configuration::{ChildCommand, HttpAddress, McpLimits, ServerConfig, Transport};
use crate::error::{McpError, printable};
use crate::error_text::{MAX_QUOTED_CHARACTERS, handshake_error, refused_status, root_cause, transport_error};
use crate::http;
use crate::redaction::{RedactingTransport, redaction_for};
use crate::result::{McpToolResult, protocol_error};
use agent_core::plugin::TraceContext;
use agent_core::tool::ToolError;
use futures::future::OptionFuture;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ClientCapabilities, ClientConfig, Implementation, JsonObject, PingRequest,
    ProtocolVersion, RequestParamsMeta, ServerNotification, SubscriptionFilter,
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

/// Maximum time that closing a connection may take, including the client's final HTTP request.
const CLOSE_TIME: Duration = Duration::from_secs(3);
/// Maximum time that replaces [`CLOSE_TIME`] if the host must stop quickly.
const QUICK_CLOSE_TIME: Duration = Duration::from_millis(80);
/// Time to wait before the host closes a connection on which a call was dropped. The client sends the cancellation of a
/// dropped call from a separate task, and closing the connection earlier would discard the cancellation.
const CANCELLATION_TIME: Duration = Duration::from_millis(20);
/// Part of the time for connecting after which the host stops waiting for the response to `server/discover` over HTTP, and
/// tries the older handshake.
const DISCOVERY_SHARE: u32 = 3;
/// Maximum time to wait for the response to a probe, a small request that the host sends after a call timed out.
const PROBE_TIME: Duration = Duration::from_millis(900);

/// A connection to a server, after the handshake has succeeded. Dropping this value closes the connection.
pub(crate) struct Connection {
    peer: Peer<RoleClient>,
    /// The SDK's service and the child process, which [`Connection::close`] takes out and shuts down.
    open: Mutex<OpenParts>,
    listener: ToolListListener,
    /// The limit that the output of the child process exceeded, if it exceeded any.
    exceeded: LimitFlag,
    /// Set when the server responds neither to a call nor to the probe that the client sends after this call.
    unresponsive: OnceLock<Unresponsive>,
    /// Whether a call was dropped, so that the client may still have to send the cancellation of this call.
    cancellation_queued: AtomicBool,
    quick_stop: CancellationToken,
    listing: Mutex<Arc<Listing>>,
    _subscription: Option<AbortOnDropHandle<()>>,
}

#[derive(Default)]
struct OpenParts {
    service: Option<RunningService<RoleClient, ToolListListener>>,
    child: Option<Child>,
}

/// A call that waits for its response. If the call is dropped before the response arrives, the client queues a
/// cancellation for the server.
struct PendingCall<'c> {
    cancellation_queued: &'c AtomicBool,
    is_finished: bool,
}

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        if !self.is_finished {
            self.cancellation_queued.store(true, Ordering::Release);
        }
    }
}

/// Information about a server that responded neither to a call nor to the probe after this call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unresponsive {
    /// Time at which the server failed to respond to the probe.
    pub(crate) found_at: Instant,
    /// Time limit of the call that timed out.
    pub(crate) call_time: Duration,
}

/// Kind of handshake with which a connection begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handshake {
    /// The `initialize` request, which nearly all servers support.
    Initialize,
    /// The `server/discover` request, for servers that only support protocol versions from 2026-07-28.
    Discover,
}

/// Description of a failed handshake.
struct HandshakeFailure {
    error: McpError,
    /// Whether the server responded to the handshake. If the server responded, although with an error, the other kind
    /// of handshake may succeed.
    server_responded: bool,
}

/// Records whether a server announced that its tool list has changed.
#[derive(Clone, Default)]
struct ToolListListener {
    changed: Arc<AtomicBool>,
}

impl ClientHandler for ToolListListener {
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
    /// Starts the server or connects to its URL, completes the handshake and lists the tools of the server.
    pub(crate) async fn open(config: &ServerConfig, groups: &ProcessGroups) -> Result<Self, McpError> {
        let time = config.limits.connect_time;
        let connecting = async {
            let connection = Self::perform_handshake(config, groups).await?;
            connection.refresh_tools(config).await?;
            Ok(connection)
        };
        let timed_out =
            || McpError::Timeout { server: config.name.clone(), action: "connect and list its tools", time };
        timeout(time, connecting).await.unwrap_or_else(|_| Err(timed_out()))
    }

    /// Connects to a process with the older handshake first, because many servers that support only the older handshake
    /// hang or exit after any other first message. If a server refuses the older handshake, connects again with the newer
    /// handshake. A server over HTTP answers an unknown first message with an error, so the newer handshake comes first.
    async fn perform_handshake(config: &ServerConfig, groups: &ProcessGroups) -> Result<Self, McpError> {
        if matches!(config.transport, Transport::Http(_)) {
            let discovering = Self::connect_with(config, groups, Handshake::Discover);
            if let Ok(Ok(connection)) = timeout(config.limits.connect_time / DISCOVERY_SHARE, discovering).await {
                return Ok(connection);
            }
        }
        match Self::connect_with(config, groups, Handshake::Initialize).await {
            Ok(connection) => Ok(connection),
            Err(HandshakeFailure { error, server_responded: true }) => {
                Self::connect_with(config, groups, Handshake::Discover).await.map_err(|_| error)
            }
            Err(HandshakeFailure { error, .. }) => Err(error),
        }
    }

    async fn connect_with(
        config: &ServerConfig,
        groups: &ProcessGroups,
        handshake: Handshake,
    ) -> Result<Self, HandshakeFailure> {
        match &config.transport {
            Transport::Stdio(command) => Self::connect_process((config, groups), command, handshake).await,
            Transport::Http(address) => Self::connect_http((config, groups), address, handshake).await,
        }
    }

    async fn connect_process(
        (config, groups): (&ServerConfig, &ProcessGroups),
        command: &ChildCommand,
        handshake: Handshake,
    ) -> Result<Self, HandshakeFailure> {
        let limits = &config.limits;
        let started = Child::start(config, command, groups).map_err(|error| {
            let (server, command, reason) = (config.name.clone(), command.command.clone(), error.to_string());
            HandshakeFailure { error: McpError::Start { server, command, reason }, server_responded: false }
        })?;
        let StartedChild { child, stdin, stdout } = started;
        let (listener, exceeded) = (ToolListListener::default(), LimitFlag::default());
        let stdout = BoundedLines::new(stdout, limits.max_message_bytes(), exceeded.clone());
        // Turn off the transport's own limit on the length of a line, because the transport skips longer lines without
        // reporting an error. `BoundedLines` enforces the limit instead.
        let transport = AsyncRwTransport::new_client(stdout, stdin).with_max_line_length(usize::MAX);
        let redaction = redaction_for(config);
        let transport = RedactingTransport::new(BackpressureTransport::new(transport), redaction.clone());
        let connected = listener.clone().serve_with_lifecycle(transport, handshake.lifecycle()).await;
        match connected {
            Ok(service) => Ok(Self::new(service, listener, (Some(child), exceeded), groups).await),
            Err(error) => {
                let reason = exceeded.get().map_or_else(|| handshake_error(&error), |limit| limit_error(limit, limits));
                // Wait until standard error is closed, because a process that is about to exit may not have written the
                // reason yet.
                let _ = timeout(limits.close_time, child.stderr_closed()).await;
                let reason = redaction.text(format!("{reason}{}", child.last_stderr_lines()));
                let server_responded = server_responded_to(&error);
                Err(HandshakeFailure {
                    error: McpError::Connect { server: config.name.clone(), reason },
                    server_responded,
                })
            }
        }
    }

    async fn connect_http(
        (config, groups): (&ServerConfig, &ProcessGroups),
        address: &HttpAddress,
        handshake: Handshake,
    ) -> Result<Self, HandshakeFailure> {
        let redaction = redaction_for(config);
        let failed = |reason, server_responded| {
            let reason = redaction.text(format!("{}: {reason}", address.display_url()));
            HandshakeFailure { error: McpError::Connect { server: config.name.clone(), reason }, server_responded }
        };
        let transport = http::transport(address, &config.limits).map_err(|reason| failed(reason, false))?;
        let transport = RedactingTransport::new(transport, redaction.clone());
        let listener = ToolListListener::default();
        let connected = listener.clone().serve_with_lifecycle(transport, handshake.lifecycle()).await;
        let service = connected.map_err(|error| failed(handshake_error(&error), server_responded_to(&error)))?;
        Ok(Self::new(service, listener, (None, LimitFlag::default()), groups).await)
    }

    async fn new(
        service: RunningService<RoleClient, ToolListListener>,
        listener: ToolListListener,
        (child, exceeded): (Option<Child>, LimitFlag),
        groups: &ProcessGroups,
    ) -> Self {
        let peer = service.peer().clone();
        // Turn off the cache of the SDK's client. The host does not need this cache, because it requests a tool list
        // only if the list has changed.
        peer.set_response_cache_config(ClientCacheConfig::disabled()).await;
        let subscription = subscribe(&peer, &listener);
        let open = Mutex::new(OpenParts { service: Some(service), child });
        let (unresponsive, quick_stop, listing) = (OnceLock::new(), groups.quick_stop_token(), Mutex::default());
        let cancellation_queued = AtomicBool::new(false);
        Self {
            peer,
            open,
            listener,
            exceeded,
            unresponsive,
            cancellation_queued,
            quick_stop,
            listing,
            _subscription: subscription,
        }
    }

    /// Returns whether the connection can still be used for calls.
    pub(crate) fn is_open(&self) -> bool {
        self.unresponsive.get().is_none() && !self.peer.is_transport_closed()
    }

    /// Returns information about the failed probe if the server was found to be unresponsive, and `None` otherwise.
    pub(crate) fn unresponsive(&self) -> Option<Unresponsive> {
        self.unresponsive.get().copied()
    }

    /// Returns the tools of the server. If the server has announced a change of its tool list, the list is requested
    /// again first.
    pub(crate) async fn listing(&self, config: &ServerConfig) -> Result<Arc<Listing>, McpError> {
        if self.listener.changed.load(Ordering::Acquire) {
            let time = config.limits.connect_time;
            let timed_out = || McpError::Timeout { server: config.name.clone(), action: "list its tools", time };
            timeout(time, self.refresh_tools(config)).await.unwrap_or_else(|_| Err(timed_out()))?;
        }
        Ok(self.listing.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    async fn refresh_tools(&self, config: &ServerConfig) -> Result<(), McpError> {
        // Reset the flag before the request, so that a change that is announced during the request leads to
        // another request.
        self.listener.changed.store(false, Ordering::Release);
        let listed = read_tool_list(&self.peer, config).await.map_err(|error| {
            self.listener.changed.store(true, Ordering::Release);
            let reason = format!("its tools cannot be listed: {}", self.reason(&error, config));
            McpError::Connect { server: config.name.clone(), reason }
        })?;
        *self.listing.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(listed);
        Ok(())
    }

    /// Calls a tool of the server. Dropping the future sends a cancellation of the call to the server.
    pub(crate) async fn call(
        &self,
        config: &ServerConfig,
        tool: &str,
        (arguments, trace): (JsonObject, Option<&TraceContext>),
    ) -> Result<McpToolResult, ToolError> {
        let ServerConfig { name, limits, .. } = config;
        let time = limits.call_time.min(McpLimits::MAX_CALL_TIME);
        let mut request = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        if let Some(trace) = trace.filter(|trace| trace.is_valid()) {
            request.set_traceparent(&trace.traceparent);
            if let Some(state) = &trace.tracestate {
                request.set_tracestate(state);
            }
        }
        let mut pending = PendingCall { cancellation_queued: &self.cancellation_queued, is_finished: false };
        let response = timeout(time, self.peer.call_tool_once(request)).await;
        pending.is_finished = response.is_ok();
        let Ok(response) = response else {
            return Err(self.call_timed_out(name, time).await);
        };
        let unsupported = |what: &str| {
            let message = format!("MCP server {name} {what}, which this host does not support");
            Err(ToolError::Failed { message })
        };
        match response {
            Ok(CallToolResponse::Complete(result)) => McpToolResult::read(result, config),
            Ok(CallToolResponse::InputRequired(_)) => unsupported("asked for input during the call"),
            Ok(_) => unsupported("responded with a task that continues later"),
            Err(ServiceError::McpError(error)) => Err(protocol_error(name, &error)),
            Err(error @ (ServiceError::TransportClosed | ServiceError::TransportSend(_))) => {
                Err(self.connection_lost(config, tool, &self.reason(&error, config)))
            }
            Err(error) => {
                let message = format!("MCP server {name}: {}", self.reason(&error, config));
                Err(ToolError::Failed { message })
            }
        }
    }

    /// Builds the error for a connection that ended during a call. The error allows the call to be repeated only if the
    /// tool is repeatable.
    fn connection_lost(&self, config: &ServerConfig, tool: &str, reason: &str) -> ToolError {
        let lost = format!("the connection to MCP server {} was lost during the call ({reason})", config.name);
        let listing = self.listing.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let called_tool = listing.tools.iter().find(|listed| listed.remote_name == tool);
        if called_tool.is_some_and(|listed| listed.definition.traits.repeatable()) {
            return ToolError::Unavailable { message: lost, retry_after: None };
        }
        let message = format!("{lost}; it is not known whether the call took effect: check before you repeat it");
        ToolError::Failed { message }
    }

    /// Handles a call that timed out. The host sends a probe to the server. If the server responds to the probe, the
    /// host keeps using the server, because perhaps only the called tool is slow. If the server does not respond, it is
    /// marked as unresponsive, so that no further call waits for it.
    async fn call_timed_out(&self, name: &str, time: Duration) -> ToolError {
        let is_unresponsive = timeout(PROBE_TIME, self.probe()).await.is_err();
        let consequence = match is_unresponsive {
            true => {
                "and does not respond to other requests either: the host stops the server and waits before it starts it \
                 again"
            }
            false => "and was told to cancel the call; other calls continue",
        };
        if is_unresponsive {
            let _ = self.unresponsive.set(Unresponsive { found_at: Instant::now(), call_time: time });
        }
        ToolError::Failed { message: format!("MCP server {name} returned no result within {time:?} {consequence}") }
    }

    /// Sends a probe to the server and waits for a response of any kind, because even an error response shows that the
    /// server is responsive.
    async fn probe(&self) {
        let has_ping = self.peer.peer_info().is_none_or(|info| info.protocol_version.has_initialize());
        if has_ping {
            let ping = PingRequest { method: Default::default(), extensions: Default::default() };
            let _ = self.peer.send_request(ping.into()).await;
        } else {
            let _ = self.peer.list_tools(None).await;
        }
    }

    /// Returns the reason why the connection ended, as text for error messages.
    pub(crate) fn closing_reason(&self, limits: &McpLimits) -> String {
        let stderr = self.last_stderr_lines();
        let cause = match self.unresponsive() {
            Some(Unresponsive { call_time, .. }) => {
                format!("it returned no result within {call_time:?} and did not respond to other requests either")
            }
            None => self
                .exceeded
                .get()
                .map_or_else(|| "it exited or closed the connection".to_owned(), |limit| limit_error(limit, limits)),
        };
        format!("{cause}{stderr}")
    }

    /// Closes the connection and waits until the server process and all processes that it started have ended.
    pub(crate) async fn close(&self) {
        if self.cancellation_queued.swap(false, Ordering::AcqRel) {
            tokio::time::sleep(CANCELLATION_TIME).await;
        }
        let OpenParts { service, child } =
            std::mem::take(&mut *self.open.lock().unwrap_or_else(PoisonError::into_inner));
        let quick_stop_timeout = async {
            self.quick_stop.cancelled().await;
            tokio::time::sleep(QUICK_CLOSE_TIME).await;
        };
        let close_service = async {
            let Some(mut service) = service else { return };
            let is_closed = tokio::select! {
                closed = service.close_with_timeout(CLOSE_TIME) => matches!(closed, Ok(Some(_))),
                () = quick_stop_timeout => false,
            };
            if !is_closed {
                tracing::debug!("a connection to an MCP server did not close in time");
            }
        };
        tokio::join!(close_service, OptionFuture::from(child.map(Child::end)));
    }

    /// Returns a description of the error that contains no secrets and can be shown in messages.
    fn reason(&self, error: &ServiceError, config: &ServerConfig) -> String {
        if let Some(limit) = self.exceeded.get() {
            return limit_error(limit, &config.limits);
        }
        let reason = match error {
            ServiceError::TransportClosed => "the connection was closed".to_owned(),
            ServiceError::UnexpectedResponse => "its response does not follow the protocol".to_owned(),
            ServiceError::McpError(error) => printable(&error.message, MAX_QUOTED_CHARACTERS),
            ServiceError::TransportSend(error) => transport_error(error),
            error => root_cause(error),
        };
        redaction_for(config).text(reason)
    }

    fn last_stderr_lines(&self) -> String {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.child.as_ref().map(Child::last_stderr_lines).unwrap_or_default()
    }
}

/// Subscribes to changes of the tool list. Servers with newer protocol versions announce changes only to subscribers.
fn subscribe(peer: &Peer<RoleClient>, listener: &ToolListListener) -> Option<AbortOnDropHandle<()>> {
    let info = peer.peer_info()?;
    let announces_changes = info.capabilities.tools.as_ref().is_some_and(|tools| tools.list_changed == Some(true));
    if info.protocol_version.has_initialize() || !announces_changes {
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

/// Returns whether the server responded in any way to the handshake that failed with this error.
fn server_responded_to(error: &ClientInitializeError) -> bool {
    match error {
        ClientInitializeError::TransportError { error, .. } => refused_status(error).is_some(),
        ClientInitializeError::ConnectionClosed(_) | ClientInitializeError::Cancelled => false,
        _ => true,
    }
}

fn limit_error(limit: ExceededLimit, limits: &McpLimits) -> String {
    match limit {
        ExceededLimit::LineTooLong => {
            format!(
                "it sent a message of more than {} bytes, so the host closed the connection",
                limits.max_message_bytes()
            )
        }
        ExceededLimit::TooDeeplyNested => {
            format!("it sent a message nested more than {MAX_DEPTH} levels deep, so the host closed the connection")
        }
    }
}
