//! Tests of servers that the host reaches over streamable HTTP (I5). Most tests use the SDK's own server on loopback.

use crate::fixture::until;
use crate::support::{call, error_message, names, problems, text};
use agent_core::tool::ToolError;
use agent_mcp::{HttpAddress, KeepConnected, McpServers, ServerConfig, Transport};
use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ListToolsResult, PaginatedRequestParams,
    ServerCapabilities, ServerConfig as ServerInfo, Tool,
};
use rmcp::service::{Peer, RequestContext};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Numbers of requests that the test server received, by kind.
#[derive(Default)]
struct RequestCounts {
    list_requests: AtomicUsize,
    cancelled_calls: AtomicUsize,
    session_deletions: AtomicUsize,
}

/// An MCP server with the tools `greet` and `hang`.
#[derive(Clone, Default)]
struct TestServer(Arc<RequestCounts>);

impl ServerHandler for TestServer {
    fn get_info(&self) -> ServerInfo {
        ServerInfo::new(ServerCapabilities::builder().enable_tools().enable_tool_list_changed().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        self.0.list_requests.fetch_add(1, Ordering::SeqCst);
        let schema = json!({"type": "object"}).as_object().unwrap().clone();
        let tools = ["greet", "hang"].map(|name| Tool::new(name, "does it", schema.clone()));
        Ok(ListToolsResult::with_all_items(tools.to_vec()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if request.name == "hang" {
            context.ct.cancelled().await;
            self.0.cancelled_calls.fetch_add(1, Ordering::SeqCst);
        }
        let peer: Peer<RoleServer> = context.peer;
        let version = peer.peer_info().map_or("none".to_owned(), |info| info.protocol_version.to_string());
        Ok(CallToolResult::success(vec![ContentBlock::text(format!("hello {version}"))]).into())
    }
}

/// Starts the test server on loopback and returns the URL of the server. The server refuses requests that do not
/// contain the key.
async fn serve(counts: Arc<RequestCounts>) -> String {
    let delete_counts = counts.clone();
    let service = StreamableHttpService::new(
        move || Ok(TestServer(counts.clone())),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    let check_key = from_fn(move |headers: HeaderMap, request: axum::extract::Request, next: Next| {
        let delete_counts = delete_counts.clone();
        async move {
            if headers.get("x-key").is_none_or(|key| key != "open sesame") {
                return Err((StatusCode::UNAUTHORIZED, [("www-authenticate", "Bearer")]));
            }
            if request.method() == axum::http::Method::DELETE {
                delete_counts.session_deletions.fetch_add(1, Ordering::SeqCst);
            }
            Ok(next.run(request).await)
        }
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().nest_service("/mcp", service).layer(check_key);
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}/mcp")
}

fn config(url: &str, key: &str) -> ServerConfig {
    let headers = [("X-Key".to_owned(), key.to_owned())].into();
    ServerConfig::new("desk", Transport::Http(HttpAddress { url: url.to_owned(), headers }))
}

#[tokio::test(flavor = "multi_thread")]
async fn i5_an_http_server_receives_the_configured_headers() {
    let counts = Arc::new(RequestCounts::default());
    let servers = McpServers::new([config(&serve(counts.clone()).await, "open sesame")]).unwrap();
    let acquired = servers.acquire().await;
    assert_eq!(names(&acquired), ["desk.greet", "desk.hang"], "{}", problems(&acquired));
    let greeting = servers.call("desk", "greet", &json!({}), None).await.unwrap();
    assert!(text(greeting).starts_with("hello"));
    let arguments = json!({});
    let hanging = servers.call("desk", "hang", &arguments, None);
    assert!(tokio::time::timeout(Duration::from_millis(300), hanging).await.is_err());
    until("the server receives the cancellation", || counts.cancelled_calls.load(Ordering::SeqCst) == 1).await;
    acquired.release().await;
    assert_eq!(counts.list_requests.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn i5_a_refused_key_is_reported_without_showing_it() {
    let servers = McpServers::new([config(&serve(Arc::default()).await, "wrong key")]).unwrap();
    let acquired = servers.acquire().await;
    let problem = problems(&acquired);
    assert!(problem.contains("authorization") && problem.contains("header_env"), "{problem}");
    assert!(!problem.contains("wrong key"), "{problem}");
}

#[tokio::test(flavor = "multi_thread")]
async fn i5_an_unreachable_http_server_is_an_error() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    drop(listener);
    let mut config = config(&url, "open sesame");
    config.keep = KeepConnected::Always;
    let servers = McpServers::new([config]).unwrap();
    let acquired = servers.acquire().await;
    assert!(problems(&acquired).contains(&url), "{}", problems(&acquired));
    assert!(
        problems(&acquired).contains("no server can be reached at this address")
            && !problems(&acquired).contains("rmcp")
    );
    let error = servers.call("desk", "greet", &json!({}), None).await.unwrap_err();
    assert!(matches!(error, ToolError::Unavailable { .. }), "{error:?}");
}

/// Row 21: a call fails immediately with a reason if its response is nested too deeply, larger than the limit, or not
/// valid UTF-8. The server keeps working.
#[tokio::test(flavor = "multi_thread")]
async fn i5_row21_unreadable_responses_in_event_streams_are_reported() {
    let respond = |request: String| async move {
        let request: serde_json::Value = serde_json::from_str(&request).unwrap();
        let id = request["id"].to_string();
        if id == "null" {
            return (StatusCode::ACCEPTED, [("content-type", "text/plain")], axum::body::Body::empty());
        }
        let result = match (request["method"].as_str(), request["params"]["name"].as_str()) {
            (Some("initialize"), _) => {
                let info = r#""serverInfo":{"name":"fixture","version":"1"}"#;
                format!(r#"{{"protocolVersion":"2025-11-25","capabilities":{{"tools":{{}}}},{info}}}"#)
            }
            (Some("tools/list"), _) => {
                let tool = |name: &str| format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#);
                format!(r#"{{"tools":[{}]}}"#, ["deep", "deep-body", "large", "no-text", "echo"].map(tool).join(","))
            }
            (_, Some("deep" | "deep-body")) => {
                let (open, close) = ("[".repeat(200_000), "]".repeat(200_000));
                format!(r#"{{"content":[],"structuredContent":{open}{close}}}"#)
            }
            (_, Some("large")) => format!(r#"{{"content":[{{"type":"text","text":"{}"}}]}}"#, "x".repeat(17 << 20)),
            _ => r#"{"content":[{"type":"text","text":"hi"}]}"#.to_owned(),
        };
        let message = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
        if request["params"]["name"] == "deep-body" {
            return (StatusCode::OK, [("content-type", "application/json")], axum::body::Body::from(message));
        }
        let mut event = format!("event: message\ndata: {message}\n\n").into_bytes();
        if request["params"]["name"] == "no-text" {
            event[20] = 0xff;
        }
        // Like many real servers, this test server leaves the event stream open after its response.
        let events = futures::stream::once(async move { Ok::<_, std::io::Error>(event) });
        let events = futures::StreamExt::chain(events, futures::stream::pending());
        (StatusCode::OK, [("content-type", "text/event-stream")], axum::body::Body::from_stream(events))
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().route("/mcp", axum::routing::post(respond));
    tokio::spawn(async move { axum::serve(listener, router).await });
    let mut config = config(&format!("http://{address}/mcp"), "key");
    // With a long time limit, the test does not pass if a call waits for the limit instead of failing immediately.
    config.limits.call_time = Duration::from_secs(600);
    let servers = McpServers::new([config]).unwrap();
    let acquired = servers.acquire().await;
    assert_eq!(names(&acquired).len(), 5, "{}", problems(&acquired));
    for (tool, expected) in [
        ("deep", "more than 127 levels"),
        ("deep-body", "more than 127 levels"),
        ("large", "an event that is larger than the message limit"),
        ("no-text", "an event that is not valid UTF-8"),
    ] {
        let message = error_message(call(&servers, tool).await);
        assert!(message.contains(expected), "{tool}: {message}");
    }
    assert_eq!(text(call(&servers, "echo").await.unwrap()), "hi");
    acquired.release().await;
}

/// The client stops reading an endless body at the size limit, and stops waiting for a silent server at the time limit.
#[tokio::test(flavor = "multi_thread")]
async fn i5_endless_and_silent_http_responses_are_abandoned() {
    let endless = || async {
        let pieces = futures::stream::repeat_with(|| Ok::<_, std::io::Error>(vec![b'x'; 64 << 10]));
        ([("content-type", "application/json")], axum::body::Body::from_stream(pieces))
    };
    let silent = || async { std::future::pending::<()>().await };
    let router =
        Router::new().route("/endless", axum::routing::post(endless)).route("/silent", axum::routing::post(silent));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    for (path, expected) in [("endless", "16777216"), ("silent", "did not connect")] {
        let mut config = config(&format!("http://{address}/{path}"), "open sesame");
        // The endless response exceeds the size limit long before the time limit.
        config.limits.connect_time = Duration::from_secs(if path == "silent" { 1 } else { 30 });
        let acquired = McpServers::new([config]).unwrap().acquire().await;
        assert!(problems(&acquired).contains(expected), "{path}: {}", problems(&acquired));
    }
}

/// The message about an HTTP error is a sentence with advice. The message contains neither type names of libraries nor
/// the body of the response.
#[tokio::test(flavor = "multi_thread")]
async fn i5_http_errors_are_explained_in_sentences() {
    let body = || "<html>\u{1b}[2Joops</html>";
    let route = |status: u16, content_type: &'static str| {
        let headers = [("content-type", content_type), ("location", "/elsewhere")];
        let response = (StatusCode::from_u16(status).unwrap(), headers, body());
        axum::routing::post(move || async move { response })
    };
    let cases = [
        ("/moved", route(302, "text/html"), "redirect that the host does not follow"),
        ("/gone", route(404, "text/html"), "the path of its `url`"),
        ("/broken", route(500, "text/html"), "HTTP 500, an internal error"),
        ("/closed", route(403, "text/html"), "requires authorization"),
        ("/page", route(200, "text/html"), "responds with `text/html`"),
        ("/nonsense", route(200, "application/json"), "not a protocol message"),
    ];
    let router = cases.iter().fold(Router::new(), |router, (path, route, _)| router.route(path, route.clone()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    for (path, _, expected) in cases {
        let servers = McpServers::new([config(&format!("http://{address}{path}"), "key")]).unwrap();
        let problem = problems(&servers.acquire().await);
        assert!(problem.contains(expected) && problem.contains(path), "{path}: {problem}");
        assert!(!problem.contains("::") && !problem.contains("oops"), "{path}: {problem}");
    }
}
