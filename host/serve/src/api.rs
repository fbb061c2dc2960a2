//! The routes of the HTTP API, and the document that describes them.

mod ag_ui;
mod agents;
mod answers;
mod configuration;
mod denials;
mod direct_calls;
mod events;
mod first_uses;
mod health;
mod inbox;
mod mcp;
mod media;
mod memories;
mod metrics;
mod operations;
mod plugins;
mod render;
mod search;
mod session_changes;
mod sessions;
mod sign_ins;
mod transcript;
mod transcript_notes;
mod turns;
mod webhooks;

use crate::console;
use crate::mcp::McpAgent;
use crate::metrics::AnsweredRequest;
use crate::open_connections::Activity;
use crate::openai;
use crate::problem::Problem;
use crate::state::ApiState;
use agent_runtime::RefusedRequest;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum::{Extension, Router};
use std::sync::Arc;
use std::time::Instant;
use utoipa::openapi::OpenApi;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Routes that need no token: they contain no data of the host, or a code replaces the token.
const PUBLIC_ROUTES: [&str; 3] = ["/health", "/ready", sign_ins::CODE_PATH];

/// Maximum size of the text of an error that did not come from a handler, in bytes.
const MAX_ERROR_BYTES: usize = 16 << 10;
/// The headers that describe a body.
const BODY_HEADERS: [HeaderName; 3] = [header::CONTENT_TYPE, header::CONTENT_LENGTH, header::TRANSFER_ENCODING];

/// Returns the routes and the document that describes them.
pub(crate) fn router(state: Arc<ApiState>) -> Router {
    let (router, openapi) = routes_and_document();
    let document: axum::Json<OpenApi> = axum::Json(openapi);
    let router = router
        .route("/openapi.json", get(move || async move { document.clone() }))
        .route("/agents/{agent}/mcp", any(mcp::agent_endpoint))
        .route("/", get(console::redirect))
        .route("/console", get(console::redirect))
        .route(console::PATH, get(console::index))
        .route("/console/{*file}", get(console::file));
    checked(router, state)
}

/// Returns the routes of a server that only offers this agent to MCP clients.
pub(crate) fn mcp_router(state: Arc<ApiState>, agent: McpAgent) -> Router {
    let router = Router::new()
        .route("/mcp", any(mcp::only_endpoint))
        .route("/health", get(health::health))
        .route("/ready", get(health::ready))
        .layer(Extension(agent));
    checked(router, state)
}

/// Returns the routes of a process that only shows its health and its metrics. Probes know the process by any address, so the
/// names in their requests are not checked.
pub(crate) fn health_router(state: Arc<ApiState>) -> Router {
    Router::new()
        .route("/health", get(health::health))
        .route("/ready", get(health::ready))
        .route("/metrics", get(metrics::read_worker_metrics))
        .fallback(|| async { Problem::not_found("this process has only the routes /health, /ready and /metrics") })
        .method_not_allowed_fallback(async || method_not_allowed("the routes of this process accept only GET"))
        .with_state(state)
}

/// Adds the checks of headers and tokens, and the answers to requests that fit no route.
fn checked(router: Router<Arc<ApiState>>, state: Arc<ApiState>) -> Router {
    router
        .fallback(|| async { Problem::not_found("there is no such route; `/openapi.json` lists all routes") })
        .method_not_allowed_fallback(async || method_not_allowed("`/openapi.json` lists all routes"))
        .layer(middleware::from_fn_with_state(state.clone(), check_access))
        .with_state(state)
}

fn method_not_allowed(advice: &str) -> Problem {
    let detail = format!("this route does not accept this method; {advice}");
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail)
}

/// Returns the OpenAPI document of the HTTP API.
///
/// ```
/// let document = agent_serve::openapi();
/// assert!(document.paths.paths.contains_key("/api/sessions"));
/// ```
pub fn openapi() -> OpenApi {
    routes_and_document().1
}

fn routes_and_document() -> (Router<Arc<ApiState>>, OpenApi) {
    let (router, mut openapi) = OpenApiRouter::new()
        .routes(routes!(health::health))
        .routes(routes!(health::ready))
        .routes(routes!(sign_ins::show_token))
        .routes(routes!(sign_ins::sign_in, sign_ins::sign_out))
        .routes(routes!(sign_ins::sign_in_with_code))
        .routes(routes!(agents::list_agents))
        .routes(routes!(agents::show_agent))
        .routes(routes!(sessions::list_sessions, sessions::create_session))
        .routes(routes!(sessions::show_session, sessions::delete_session))
        .routes(routes!(sessions::list_messages))
        .routes(routes!(sessions::send_prompt))
        .routes(routes!(sessions::cancel_turn))
        .routes(routes!(transcript::show_transcript))
        .routes(routes!(session_changes::undo_turn))
        .routes(routes!(session_changes::retry_turn))
        .routes(routes!(session_changes::fork_session))
        .routes(routes!(session_changes::export_session))
        .routes(routes!(search::search_messages))
        .routes(routes!(inbox::list_inbox))
        .routes(routes!(render::render_markdown))
        .routes(routes!(render::render_code))
        .routes(routes!(render::render_difference))
        .routes(routes!(media::read_media))
        .routes(routes!(turns::list_turns))
        .routes(routes!(turns::show_turn))
        .routes(routes!(turns::prompts::show_prompt))
        .routes(routes!(turns::prompts::read_request))
        .routes(routes!(turns::replays::replay_turn))
        .routes(routes!(events::stream_events))
        .routes(routes!(answers::decide_approvals))
        .routes(routes!(answers::rehearse_call))
        .routes(routes!(answers::answer_question))
        .routes(routes!(answers::resolve_call))
        .routes(routes!(first_uses::answer_first_use))
        .routes(routes!(answers::receive_event))
        .routes(routes!(webhooks::receive_webhook))
        .routes(routes!(ag_ui::run_agent))
        .routes(routes!(direct_calls::call_tool))
        .routes(routes!(plugins::details::list_plugins))
        .routes(routes!(plugins::details::show_authority))
        .routes(routes!(configuration::configuration_schema))
        .routes(routes!(configuration::read_configuration, configuration::save_configuration))
        .routes(routes!(configuration::check_configuration))
        .routes(routes!(plugins::list_versions))
        .routes(routes!(plugins::roll_back_plugin, plugins::undo_plugin_rollback))
        .routes(routes!(memories::list_memories))
        .routes(routes!(memories::forget_memory))
        .routes(routes!(operations::report_usage))
        .routes(routes!(operations::report_daily_usage))
        .routes(routes!(metrics::read_metrics))
        .routes(routes!(operations::list_pending_events))
        .merge(openai::routes())
        .split_for_parts();
    openapi.info.title = "agent-host".to_owned();
    openapi.info.description = Some("Agents, sessions and their events.".to_owned());
    let scheme = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
    openapi.components.get_or_insert_default().add_security_scheme("token", scheme);
    (router, openapi)
}

/// Checks the headers and the token of each request, before anything else is read.
async fn check_access(State(state): State<Arc<ApiState>>, request: Request, next: Next) -> Response {
    let Some(metrics) = state.metrics.clone() else { return checked_answer(&state, request, next).await };
    let (started, method) = (Instant::now(), method_name(request.method()));
    let route = request.extensions().get::<MatchedPath>().cloned();
    let response = checked_answer(&state, request, next).await;
    let route = route.as_ref().map_or("unknown", MatchedPath::as_str);
    let (status, time) = (response.status().as_u16(), started.elapsed());
    metrics.answered(&AnsweredRequest { method, route, status, time });
    response
}

async fn checked_answer(state: &Arc<ApiState>, mut request: Request, next: Next) -> Response {
    let page = state.origins.page_of(request.headers());
    let requested = requested(&request);
    if let Some(origin) = page.clone().filter(|_| request.method() == Method::OPTIONS) {
        let response = preflight(state, request.headers(), origin);
        if let Some(refused) = refusal(&response, None, ("http", requested)) {
            state.supervisor.refusals().record(refused).await;
        }
        return response;
    }
    let path = request.uri().path();
    let is_public = PUBLIC_ROUTES.contains(&path) || console::is_console(path);
    let is_openai = request.uri().path().starts_with(openai::PATH);
    // A request to a webhook may have a signature instead of a token, which its handler checks.
    let may_be_signed = request.uri().path().starts_with(webhooks::WEBHOOK_PATH)
        && !request.headers().contains_key(header::AUTHORIZATION);
    let checked = state.origins.check(request.headers()).and_then(|()| {
        if is_public || may_be_signed {
            return Ok(None);
        }
        state.caller(request.headers()).map(Some)
    });
    let mut token = None;
    let mut response = match checked {
        Ok(caller) => {
            if let Some(caller) = caller {
                token = Some(caller.token.name.clone());
                if let Some(connection) = request.extensions().get::<Arc<Activity>>() {
                    connection.note_token();
                }
                request.extensions_mut().insert(caller);
            }
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    };
    response = with_problem(response).await;
    let protocol = if may_be_signed { "webhook" } else { "http" };
    if let Some(refused) = refusal(&response, token, (protocol, requested)) {
        state.supervisor.refusals().record(refused).await;
    }
    if is_openai {
        response = openai::with_openai_error(response);
    }
    if response.status() == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    // A client without a token must not keep a connection for further requests (row 25).
    if is_public || may_be_signed || matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    if let Some(origin) = page {
        allow_page(&mut response, origin);
    }
    // Answers contain the data of sessions, and browsers must not guess their type.
    for (name, value) in [("cache-control", "no-store"), ("x-content-type-options", "nosniff")] {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

/// Replaces the text of an error that did not come from a handler, such as one about a path that is not UTF-8, by a problem.
async fn with_problem(response: Response) -> Response {
    let (status, headers) = (response.status(), response.headers());
    let is_text = |value: &HeaderValue| value.as_bytes().starts_with(b"text/plain");
    let is_other = headers.get(header::CONTENT_TYPE).is_some_and(|value| !is_text(value));
    if !(status.is_client_error() || status.is_server_error()) || is_other {
        return response;
    }
    let code = match status {
        StatusCode::NOT_FOUND => "not_found",
        StatusCode::METHOD_NOT_ALLOWED => "method_not_allowed",
        StatusCode::PAYLOAD_TOO_LARGE => "too_large",
        StatusCode::UNSUPPORTED_MEDIA_TYPE => "not_json",
        status if status.is_server_error() => "failed",
        _ => "bad_request",
    };
    let (parts, body) = response.into_parts();
    let text = axum::body::to_bytes(body, MAX_ERROR_BYTES).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text).trim().to_owned();
    let detail = match (status.is_server_error(), text.is_empty()) {
        // The text may describe the inside of the host.
        (true, _) => {
            tracing::error!(text, "a request failed");
            "the host failed; the host's log contains the reason".to_owned()
        }
        (false, true) => "the request cannot be carried out".to_owned(),
        (false, false) => text,
    };
    let mut problem = Problem::new(status, code, detail).into_response();
    for (name, value) in parts.headers.iter().filter(|(name, _)| !BODY_HEADERS.contains(name)) {
        problem.headers_mut().insert(name, value.clone());
    }
    problem
}

/// Returns the method and the route of a request. Both are one of few texts, whatever the client sends.
fn requested(request: &Request) -> String {
    let method = match method_name(request.method()) {
        "other" => "another method for",
        method => method,
    };
    let route = request.extensions().get::<MatchedPath>().map_or("an unknown route", MatchedPath::as_str);
    format!("{method} {route}")
}

/// Returns the name of a method, or `other` for a method that no route has.
fn method_name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::DELETE => "DELETE",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

/// Returns the refusal that the audit log records, if the answer refuses a request because of its sender (O3).
fn refusal(
    response: &Response,
    token: Option<String>,
    (protocol, request): (&'static str, String),
) -> Option<RefusedRequest> {
    let default = match response.status() {
        StatusCode::UNAUTHORIZED => "unauthorized",
        StatusCode::FORBIDDEN => "forbidden",
        _ => return None,
    };
    let code = response.extensions().get::<Problem>().map_or(default, |problem| problem.code);
    Some(RefusedRequest { protocol, token, request, object: None, code })
}

/// Answers the question of a browser whether a page of another origin may send a request. Only configured origins may.
fn preflight(state: &ApiState, headers: &HeaderMap, origin: HeaderValue) -> Response {
    if let Err(problem) = state.origins.check(headers) {
        return problem.into_response();
    }
    let mut response = StatusCode::NO_CONTENT.into_response();
    allow_page(&mut response, origin);
    for (name, value) in [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, PUT, DELETE"),
        (
            header::ACCESS_CONTROL_ALLOW_HEADERS,
            "authorization, content-type, if-match, last-event-id, x-agent-session, mcp-session-id, mcp-protocol-version, mcp-method, mcp-name, *",
        ),
        (header::ACCESS_CONTROL_MAX_AGE, "600"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Lets a page of this origin read the response.
fn allow_page(response: &mut Response, origin: HeaderValue) {
    response.headers_mut().insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    response.headers_mut().append(header::VARY, HeaderValue::from_static("origin"));
    let exposed = HeaderValue::from_static("etag, mcp-session-id, x-agent-session");
    response.headers_mut().insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
}
