//! The data that all requests share.

use crate::access::{AllowedOrigins, Caller};
use crate::body::{
    MEDIA_BODY_TIMEOUT, MEDIA_BYTES, PROMPT_BYTES, check_is_json, content_length, parse_json, read, read_within,
};
use crate::first_uses::FirstUseQuestions;
use crate::mcp::{McpAgent, McpEndpoints};
use crate::metrics::ServerMetrics;
use crate::problem::Problem;
use crate::sign_ins::SignIns;
use crate::tokens::{Token, TokenFile};
use agent_config::Settings;
use agent_mcp::offered::HttpEndpoint;
use agent_runtime::{RefusedRequest, Supervisor};
use agent_store::{SessionFilter, SessionState, SessionSummary, Store};
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// Time for which tokens are kept in memory. A revoked token is refused at most this time later.
const TOKEN_LIFETIME: Duration = Duration::from_secs(1);
/// Maximum number of bodies with media of one token that are in memory at the same time.
const LARGE_BODIES_PER_TOKEN: usize = 2;
/// Maximum number of bodies with media that are in memory at the same time.
const LARGE_BODIES: usize = 6;
/// Maximum number of texts that are rendered at the same time. Further requests wait.
const RENDERINGS: usize = 4;
/// Maximum number of configuration files that are checked at the same time for one token.
const CHECKS_PER_TOKEN: usize = 4;
/// Maximum number of configuration files that are checked at the same time.
const CHECKS: usize = 8;
/// Maximum number of recorded prompts that are rebuilt at the same time for one token.
const PROMPTS_PER_TOKEN: usize = 4;
/// Maximum number of recorded prompts that are rebuilt at the same time.
const PROMPTS: usize = 8;
/// Maximum number of turns that are replayed at the same time for one token.
const REPLAYS_PER_TOKEN: usize = 1;
/// Maximum number of turns that are replayed at the same time.
const REPLAYS: usize = 4;

/// A session that a webhook has begun.
#[derive(Clone)]
pub(crate) struct WebhookRun {
    /// Time of the request, as RFC 3339.
    pub(crate) time: String,
    pub(crate) session: String,
}

/// Tokens that were read from their file.
struct CachedTokens {
    checked: Instant,
    version: Option<(SystemTime, u64)>,
    tokens: Arc<Vec<Token>>,
}

/// The data that all requests share.
pub(crate) struct ApiState {
    pub(crate) supervisor: Supervisor,
    pub(crate) origins: AllowedOrigins,
    pub(crate) streams: Arc<StreamLimits>,
    /// Limits the number of requests that wait for a reply of an agent.
    pub(crate) replies: Arc<StreamLimits>,
    /// Limits the number of recorded prompts that are rebuilt at the same time, because they may be large.
    pub(crate) rebuilt_prompts: Arc<StreamLimits>,
    /// Limits the number of turns that are replayed at the same time.
    pub(crate) replays: Arc<StreamLimits>,
    /// The last session of each webhook since the server started, by agent and webhook.
    webhook_runs: Mutex<HashMap<(String, String), WebhookRun>>,
    /// Limits the number of configuration files that are checked at the same time.
    pub(crate) checked_files: Arc<StreamLimits>,
    /// The settings from which the agents were assembled, by the agent's name.
    settings: BTreeMap<String, Settings>,
    /// Limits the number of large bodies that are in memory.
    pub(crate) large_bodies: Arc<StreamLimits>,
    /// Cancelled when the server begins to drain. Event streams then end.
    pub(crate) draining: CancellationToken,
    /// Counts requests, and returns the metrics of the process.
    pub(crate) metrics: Option<ServerMetrics>,
    /// The endpoints of the Model Context Protocol.
    mcp_endpoints: McpEndpoints,
    /// The sign-ins of web pages, which the server also needs to create codes.
    pub(crate) sign_ins: Arc<SignIns>,
    /// Limits the number of texts that are rendered at the same time.
    pub(crate) renderings: Semaphore,
    /// The questions about grants that wait for a person.
    pub(crate) first_uses: FirstUseQuestions,
    token_file: TokenFile,
    cached_tokens: Mutex<Option<CachedTokens>>,
}

impl ApiState {
    pub(crate) fn new(
        supervisor: Supervisor,
        origins: AllowedOrigins,
        token_file: TokenFile,
        settings: BTreeMap<String, Settings>,
        (streams, replies, draining): (StreamLimits, StreamLimits, CancellationToken),
    ) -> Self {
        let large_bodies = StreamLimits::new("large requests", LARGE_BODIES_PER_TOKEN, LARGE_BODIES);
        Self {
            supervisor,
            origins,
            streams: Arc::new(streams),
            replies: Arc::new(replies),
            webhook_runs: Mutex::default(),
            checked_files: Arc::new(StreamLimits::new("checks of files", CHECKS_PER_TOKEN, CHECKS)),
            settings,
            large_bodies: Arc::new(large_bodies),
            rebuilt_prompts: Arc::new(StreamLimits::new("prompts", PROMPTS_PER_TOKEN, PROMPTS)),
            replays: Arc::new(StreamLimits::new("replays", REPLAYS_PER_TOKEN, REPLAYS)),
            draining,
            metrics: None,
            mcp_endpoints: McpEndpoints::default(),
            sign_ins: Arc::default(),
            renderings: Semaphore::new(RENDERINGS),
            first_uses: FirstUseQuestions::default(),
            token_file,
            cached_tokens: Mutex::default(),
        }
    }

    pub(crate) fn with_metrics(self, metrics: Option<ServerMetrics>) -> Self {
        Self { metrics, ..self }
    }

    pub(crate) fn with_first_uses(self, first_uses: FirstUseQuestions) -> Self {
        Self { first_uses, ..self }
    }

    /// Reads the settings of an agent, because its file may have changed. If the file cannot be used, returns the settings from
    /// which the agent was assembled, and the reason. Returns `None` if the server does not know the agent's settings.
    pub(crate) async fn settings_now(&self, agent: &str) -> Option<(Settings, Option<String>)> {
        let settings = self.settings.get(agent)?.clone();
        let read = tokio::task::spawn_blocking(move || match settings.reread() {
            Ok(current) => (current, None),
            Err(error) => (settings, Some(error.to_string())),
        });
        read.await.ok()
    }

    /// Notes that a webhook of the configuration has begun a session.
    pub(crate) fn note_webhook_run(&self, agent: &str, webhook: &str, session: &str) {
        let run = WebhookRun { time: Timestamp::now().to_string(), session: session.to_owned() };
        let mut runs = self.webhook_runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.insert((agent.to_owned(), webhook.to_owned()), run);
    }

    /// Returns the last session of a webhook since the server started.
    pub(crate) fn last_webhook_run(&self, agent: &str, webhook: &str) -> Option<WebhookRun> {
        let runs = self.webhook_runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.get(&(agent.to_owned(), webhook.to_owned())).cloned()
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.supervisor.host().store
    }

    /// Finds the token of a request. A token that was created a moment ago is found, too.
    pub(crate) fn caller(&self, headers: &HeaderMap) -> Result<Caller, Problem> {
        match Caller::of(headers, &self.tokens(TOKEN_LIFETIME)?, &self.sign_ins) {
            Err(problem) if problem.status == StatusCode::UNAUTHORIZED.as_u16() => {
                Caller::of(headers, &self.tokens(Duration::ZERO)?, &self.sign_ins)
            }
            found => found,
        }
    }

    /// Returns the token with this digest, if it exists now.
    pub(crate) fn token(&self, digest: &str) -> Result<Option<Token>, Problem> {
        Ok(self.tokens(Duration::ZERO)?.iter().find(|token| token.digest == digest).cloned())
    }

    /// Returns the tokens of the server. If the file was checked longer than `lifetime` ago, it is checked again, and it is
    /// read again if it has changed.
    fn tokens(&self, lifetime: Duration) -> Result<Arc<Vec<Token>>, Problem> {
        let mut cached = self.cached_tokens.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cached) = &*cached
            && cached.checked.elapsed() < lifetime
        {
            return Ok(cached.tokens.clone());
        }
        let version = self.token_file.version();
        if let Some(cached) = &mut *cached
            && cached.version == version
        {
            cached.checked = Instant::now();
            return Ok(cached.tokens.clone());
        }
        let tokens = self.token_file.tokens().map_err(|error| {
            tracing::error!(%error, "requests are refused, because the tokens cannot be read");
            let detail = "the server cannot read its tokens; its log contains the reason";
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail)
        })?;
        let tokens = Arc::new(tokens);
        *cached = Some(CachedTokens { checked: Instant::now(), version, tokens: tokens.clone() });
        Ok(tokens)
    }

    /// Returns whether the token of the caller still exists and allows what it allowed when the request arrived.
    pub(crate) fn is_still_valid(&self, caller: &Caller) -> bool {
        let is_signed_in = caller.sign_in.as_ref().is_none_or(|sign_in| self.sign_ins.token_of(sign_in).is_some());
        is_signed_in && self.exists(&caller.token)
    }

    /// Returns the endpoint for MCP clients with the caller's token.
    pub(crate) fn mcp_endpoint(&self, caller: &Caller, agent: McpAgent) -> Result<HttpEndpoint, Problem> {
        self.mcp_endpoints.endpoint((caller, agent), &self.supervisor, &self.draining, |token| self.exists(token))
    }

    /// Ends the sessions of MCP clients whose token was revoked or changed, together with their calls.
    pub(crate) fn close_outdated_mcp_sessions(&self) {
        self.mcp_endpoints.close_outdated(|token| self.exists(token));
    }

    /// Returns whether the token exists exactly as it is.
    fn exists(&self, token: &Token) -> bool {
        self.tokens(TOKEN_LIFETIME).is_ok_and(|tokens| tokens.contains(token))
    }

    /// Reads a JSON body with media. The result contains a place among the large bodies, which must be kept as long as the
    /// decoded body is in memory.
    pub(crate) async fn media_body<T>(
        &self,
        caller: &Caller,
        request: Request,
    ) -> Result<(T, Option<OpenStream>), Problem>
    where
        T: DeserializeOwned + Send + 'static,
    {
        check_is_json(request.headers())?;
        let is_small = content_length(request.headers()).is_some_and(|length| length <= PROMPT_BYTES as u64);
        if is_small {
            return Ok((parse_json(&read(request.into_body(), PROMPT_BYTES).await?)?, None));
        }
        let place = self.large_bodies.open(caller)?;
        let bytes = read_within(request.into_body(), MEDIA_BYTES, MEDIA_BODY_TIMEOUT).await?;
        // A large body takes so long to parse that other requests must not wait for it.
        let parsed = tokio::task::spawn_blocking(move || parse_json(&bytes)).await;
        let parsed = parsed.map_err(|error| {
            tracing::error!(%error, "a body was not parsed");
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", "the host failed; its log contains the reason")
        })?;
        Ok((parsed?, Some(place)))
    }

    /// Returns whether the caller may use this agent, and the server runs it.
    pub(crate) fn may_use_agent(&self, caller: &Caller, agent: &str) -> bool {
        self.supervisor.agents().contains_key(agent) && caller.token.allows_agent(agent)
    }

    /// Checks that the caller may use this agent, and that the server runs it.
    pub(crate) fn check_agent(&self, caller: &Caller, agent: &str) -> Result<(), Problem> {
        if self.may_use_agent(caller, agent) {
            return Ok(());
        }
        if self.supervisor.agents().contains_key(agent) {
            self.supervisor.refusals().note(refused(caller, "the use of an agent", agent));
        }
        // The answer does not tell whether another agent exists.
        Err(Problem::not_found(format!("this server has no agent `{agent}` for this token")))
    }

    /// Returns the session with this subject if the caller may use it.
    pub(crate) async fn session(&self, caller: &Caller, session: &str) -> Result<SessionSummary, Problem> {
        let filter = SessionFilter { subject: Some(session.to_owned()), ..SessionFilter::default() };
        let found = self.store().sessions(filter, 1).await?.pop();
        let found = found.filter(|found| found.state != SessionState::Incomplete);
        let exists = found.is_some();
        let is_allowed = |found: &SessionSummary| {
            (caller.token.user.is_none() || caller.token.user == found.user) && self.may_use_agent(caller, &found.agent)
        };
        if let Some(found) = found.filter(is_allowed) {
            return Ok(found);
        }
        if exists {
            self.supervisor.refusals().note(refused(caller, "the use of a session", session));
        }
        // The answer does not tell whether another session exists.
        Err(Problem::not_found(format!("there is no session `{session}` for this token")))
    }
}

/// Describes the refusal of an agent or a session that exists, but that the token may not use.
fn refused(caller: &Caller, request: &str, object: &str) -> RefusedRequest {
    let (token, request) = (Some(caller.token.name.clone()), request.to_owned());
    RefusedRequest { protocol: "http", token, request, object: Some(object.to_owned()), code: "not_found" }
}

/// Limits the number of open event streams, or of other things that a token may keep open (row 25).
pub(crate) struct StreamLimits {
    /// What is limited, for errors.
    what: &'static str,
    per_token: usize,
    in_total: usize,
    /// Number of open streams by the digest of the token.
    open: Mutex<HashMap<String, usize>>,
}

impl StreamLimits {
    pub(crate) fn new(what: &'static str, per_token: usize, in_total: usize) -> Self {
        Self { what, per_token, in_total, open: Mutex::default() }
    }

    /// Counts a new stream until the result is dropped.
    pub(crate) fn open(self: &Arc<Self>, caller: &Caller) -> Result<OpenStream, Problem> {
        let token = caller.token.digest.clone();
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let (own, total) = (open.get(&token).copied().unwrap_or_default(), open.values().sum::<usize>());
        if own >= self.per_token || total >= self.in_total {
            let detail = format!(
                "too many {} are open: a token may have {}, and the server {}; close one of them first",
                self.what, self.per_token, self.in_total
            );
            return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_streams", detail));
        }
        *open.entry(token.clone()).or_default() += 1;
        Ok(OpenStream { token, limits: self.clone() })
    }
}

/// An event stream that counts towards the limits.
pub(crate) struct OpenStream {
    token: String,
    limits: Arc<StreamLimits>,
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut open = self.limits.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.token) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.token);
            }
        }
    }
}
