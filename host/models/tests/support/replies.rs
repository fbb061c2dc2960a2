//! Tests of all forms of successful replies, and of receivers that are dropped or do not read.

use crate::client::{
    ask, call as requested_call, config, model, model_of, model_with_timeouts, result, simple_request,
};
use crate::server::{END, Server, Step, answer, chunk, json, stream_head, streamed, text_event};
use agent_core::message::{Content, Message, Part, Role};
use agent_core::model::Delta;
use agent_models::{ModelConfig, NoMedia, Price, ProviderConfig, Providers, Purpose, ReplyContext, local};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

fn text_of(deltas: &[Delta]) -> String {
    let text = |delta: &Delta| if let Delta::Text(text) = delta { text.clone() } else { panic!("{delta:?}") };
    deltas.iter().map(text).collect()
}

#[tokio::test]
async fn m1_single_byte_chunks_produce_the_same_reply() {
    let body =
        [chunk(text_event("Grüße ")), chunk(": a comment\n\n"), chunk(text_event("aus 東京")), chunk(END), chunk("")];
    for step in [Step::Send(body.concat()), Step::Trickle(body.concat())] {
        let server = Server::always(vec![stream_head(), step]);
        let (reply, deltas) = ask(&model(&server), &simple_request()).await;
        assert_eq!(reply.unwrap().reply.text, "Grüße aus 東京");
        assert_eq!(text_of(&deltas), "Grüße aus 東京");
    }
}

/// M1: deltas arrive as soon as the server sends them and not at the end of the reply.
#[tokio::test]
async fn m1_deltas_arrive_before_the_reply_is_complete() {
    let server = Server::always(vec![
        stream_head(),
        Step::Send(chunk(text_event("first"))),
        Step::Wait(Duration::from_millis(400)),
        Step::Send([chunk(END), chunk("")].concat()),
    ]);
    let (sender, mut receiver) = mpsc::channel(4);
    let (model, request, started) = (model(&server), simple_request(), Instant::now());
    let context = ReplyContext {
        session: "s1",
        purpose: Purpose::Turn,
        call: 0,
        attempt: 1,
        media: &NoMedia,
        progress: &agent_models::CallProgress::default(),
    };
    let first = async { (receiver.recv().await, started.elapsed()) };
    let (reply, (delta, after)) = tokio::join!(model.reply(&request, context, &sender), first);
    assert_eq!(delta, Some(Delta::Text("first".into())));
    assert!(after < Duration::from_millis(300) && started.elapsed() >= Duration::from_millis(400), "{after:?}");
    assert_eq!(reply.unwrap().reply.model, "test/some/model");
}

/// M1: a reply may be a JSON document instead of a stream, and the declared content type may be wrong.
#[tokio::test]
async fn m1_a_json_document_is_a_reply() {
    let document = json!({
        "choices": [{ "index": 0, "finish_reason": "stop", "message": { "role": "assistant", "content": "whole" } }]
    });
    let blank_lines = format!("\n\n   \n{document}");
    let cases = [
        json("200 OK", &document),
        answer("200 OK", &[("content-type", "application/json; charset=utf-8")], blank_lines),
        answer("200 OK", &[("content-type", "text/event-stream")], document.to_string()),
        answer("200 OK", &[], format!("\u{feff}{document}")),
    ];
    for (index, step) in cases.into_iter().enumerate() {
        let (reply, deltas) = ask(&model(&Server::always(vec![step])), &simple_request()).await;
        assert_eq!(reply.unwrap_or_else(|error| panic!("{index}: {error}")).reply.text, "whole");
        assert_eq!(deltas, [Delta::Text("whole".into())]);
    }
    let wrongly_declared =
        answer("200 OK", &[("content-type", "text/plain")], format!("{}{END}", text_event("streamed")));
    assert_eq!(
        ask(&model(&Server::always(vec![wrongly_declared])), &simple_request()).await.0.unwrap().reply.text,
        "streamed"
    );
}

/// M1, L21: thinking and parallel calls are decoded from a stream, and the next request contains the data that must be
/// sent back to the provider.
#[tokio::test]
async fn m1_calls_are_decoded_and_provider_data_is_sent_back() {
    let delta = |delta: Value| chunk(format!("data: {}\n\n", json!({ "choices": [{ "index": 0, "delta": delta }] })));
    let call = |index: u32, id: &str, arguments: &str| {
        let function = json!({ "name": "text_count", "arguments": arguments });
        delta(json!({ "tool_calls": [{ "index": index, "id": id, "type": "function", "function": function }] }))
    };
    let finished = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}],\
                    \"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3}}\n\ndata: [DONE]\n\n";
    let pieces = [
        delta(json!({ "reasoning_content": "Two " })),
        delta(json!({ "reasoning_content": "files." })),
        call(0, "p1", "{\"path\":\"a\"}"),
        call(1, "p2", "{\"path\":"),
        delta(json!({ "tool_calls": [{ "index": 1, "function": { "arguments": "\"b\"}" } }] })),
        chunk(finished),
        chunk(""),
    ];
    let server = Server::start(vec![vec![stream_head(), Step::Send(pieces.concat())], streamed("Both are short.")]);
    let model = model(&server);
    let (reply, deltas) = ask(&model, &simple_request()).await;
    let thinking = ["Two ", "files."].map(|text| Delta::Thinking(text.to_owned()));
    assert_eq!(deltas, [&[Delta::ThinkingStart][..], &thinking, &[Delta::ThinkingEnd]].concat());
    let reply = reply.unwrap().reply;
    assert_eq!((reply.usage.prompt_tokens, reply.usage.completion_tokens), (7, 3));
    let calls: Vec<_> = reply.calls.iter().map(|call| (call.name.as_str(), call.arguments.as_str())).collect();
    assert_eq!(calls, [("text_count", "{\"path\":\"a\"}"), ("text_count", "{\"path\":\"b\"}")]);
    let mut request = simple_request();
    let ids = ["call_1_1_1", "call_1_1_2"];
    let calls = ids.iter().zip(["a", "b"]).map(|(id, path)| requested_call(id, "text.count", json!({ "path": path })));
    let parts = calls.chain(reply.replay.map(Part::Replay)).collect();
    request.messages.push(Message { role: Role::Assistant, parts, seen_count: 1 });
    request.messages.extend(ids.map(|id| result(id, "text.count", vec![Content::Text("3".into())], false)));
    assert_eq!(ask(&model, &request).await.0.unwrap().reply.text, "Both are short.");
    let sent: Value = serde_json::from_slice(&server.requests()[1].body).unwrap();
    assert_eq!(sent["messages"][2]["reasoning_content"], "Two files.");
    assert_eq!(sent["messages"][2]["tool_calls"][1]["id"], "call_1_1_2");
}

/// L5: the client estimates the token usage if the server does not report it.
#[tokio::test]
async fn l5_missing_usage_is_estimated() {
    let server = Server::always(streamed("a reply of some words"));
    let reply = ask(&model(&server), &simple_request()).await.0.unwrap();
    assert_eq!(reply.raw.get("usage"), None);
    let usage = reply.reply.usage;
    assert!((3..20).contains(&usage.prompt_tokens) && (4..10).contains(&usage.completion_tokens), "{usage:?}");
}

#[tokio::test]
async fn several_requests_use_the_same_connection() {
    let server = Server::always(streamed("hello"));
    let model = model(&server);
    for _ in 0..5 {
        assert_eq!(ask(&model, &simple_request()).await.0.unwrap().reply.text, "hello");
        // The connection pool reads the end of the body in the background, so wait before the next request.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let connections: Vec<usize> = server.requests().iter().map(|request| request.connection).collect();
    assert_eq!(connections, [0; 5]);
}

/// L29: dropping the future of a reply closes the connection within 100 ms, both before and during the response. On a
/// busy machine, the operating system may run the test late, so the test uses the shortest of three measured times.
#[tokio::test]
async fn l29_dropping_the_call_closes_the_connection_at_once() {
    let before_response = vec![Step::AwaitClose];
    let during_pause = vec![stream_head(), Step::Send(chunk(text_event("part"))), Step::AwaitClose];
    let during_data = vec![stream_head(), Step::Forever(chunk(text_event("word ")))];
    for script in [before_response, during_pause, during_data] {
        let mut shortest = Duration::MAX;
        for _ in 0..3 {
            shortest = shortest.min(time_to_close(script.clone()).await);
        }
        assert!(shortest < Duration::from_millis(100), "{shortest:?}");
    }
}

/// Measures the time from dropping a call until the server sees the connection closed.
async fn time_to_close(script: Vec<Step>) -> Duration {
    let server = Server::always(script);
    let (model, request) = (model(&server), simple_request());
    let (sender, mut receiver) = mpsc::channel(1000);
    let call = tokio::spawn(async move {
        let context = ReplyContext {
            session: "s1",
            purpose: Purpose::Turn,
            call: 0,
            attempt: 1,
            media: &NoMedia,
            progress: &agent_models::CallProgress::default(),
        };
        model.reply(&request, context, &sender).await.map(|_| ()).map_err(|error| error.to_string())
    });
    let listener = tokio::spawn(async move { while receiver.recv().await.is_some() {} });
    while server.requests().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!call.is_finished());
    let cancelled = Instant::now();
    call.abort();
    let closed = server.closed().await;
    assert!(closed >= cancelled);
    listener.await.unwrap();
    closed - cancelled
}

/// The reply is still completed if the receiver of the deltas is dropped.
#[tokio::test]
async fn a_dropped_receiver_does_not_stop_the_reply() {
    let pieces: Vec<u8> = (0..500).flat_map(|_| chunk(text_event("word "))).collect();
    let server = Server::always(vec![stream_head(), Step::Send(pieces), Step::Send([chunk(END), chunk("")].concat())]);
    let (sender, receiver) = mpsc::channel(1);
    drop(receiver);
    let context = ReplyContext {
        session: "s1",
        purpose: Purpose::Turn,
        call: 0,
        attempt: 1,
        media: &NoMedia,
        progress: &agent_models::CallProgress::default(),
    };
    let reply = model(&server).reply(&simple_request(), context, &sender).await.unwrap();
    assert_eq!(reply.reply.text.len(), 2500);
}

/// If the receiver of the deltas does not read, the client stops reading from the server, and the call fails at the
/// total timeout.
#[tokio::test]
async fn a_stalled_receiver_delays_the_reply_until_the_total_timeout() {
    let server = Server::always(vec![stream_head(), Step::Forever(chunk(text_event("word ")))]);
    let (sender, receiver) = mpsc::channel(1);
    let context = ReplyContext {
        session: "s1",
        purpose: Purpose::Turn,
        call: 0,
        attempt: 1,
        media: &NoMedia,
        progress: &agent_models::CallProgress::default(),
    };
    let error =
        model_with_timeouts(&server, (1000, 5000, 600)).reply(&simple_request(), context, &sender).await.unwrap_err();
    insta::assert_snapshot!(crate::client::message(&error, &server), @"the reply of test/some/model at http://127.0.0.1:PORT/v1/chat/completions was not complete after 0.6 s. Request a shorter reply, or set a longer `total_timeout_ms` for this provider");
    drop(receiver);
}

/// M2: the context window and the price of a model come from the configuration or, if they are not configured, from the
/// table of known models. An unknown model has a context window of 32,768 tokens and no price.
#[test]
fn m2_model_info_comes_from_the_configuration_or_the_known_models() {
    let info = |name: &str, config: ProviderConfig| {
        let config = ProviderConfig { name: "openai".into(), ..config };
        Providers::new(vec![config]).model(name, Path::new("/")).unwrap().info().clone()
    };
    let official = config("https://api.openai.com/v1");
    let known = info("openai/gpt-4o-mini", official.clone());
    let price = Price { cache_read: Some(0.075), ..Price::new(0.15, 0.6) };
    assert_eq!((known.model.window, known.price), (128_000, Some(price)));
    assert_eq!(known.model.to_string(), "openai/gpt-4o-mini");
    let unknown = info("openai/a/b", official.clone());
    assert_eq!((unknown.model.window, unknown.price, unknown.model.name.as_str()), (32_768, None, "a/b"));
    let configured = ModelConfig { window: Some(1000), ..ModelConfig::default() };
    let models = [("gpt-4o-mini".to_owned(), configured)].into_iter().collect();
    let configured = info("openai/gpt-4o-mini", ProviderConfig { models, ..official });
    assert_eq!((configured.model.window, configured.price), (1000, Some(price)));
    let other_server = info("openai/gpt-4o-mini", config("http://127.0.0.1:1/v1"));
    assert_eq!(
        (other_server.model.window, other_server.price),
        (128_000, None),
        "known prices do not apply to other servers"
    );
}

/// A server on this machine is found if it responds with a list of models. A server is
/// ignored if its response is anything else.
#[tokio::test]
async fn local_servers_are_found_by_their_models() {
    let timeout = Duration::from_millis(300);
    let list = json!({ "object": "list", "data": [{ "id": "llama3.2:1b", "object": "model" }, { "id": "qwen3" }] });
    let server = Server::always(vec![json("200 OK", &list)]);
    assert_eq!(
        local::list_models(&server.base_url(), timeout).await,
        Some(vec!["llama3.2:1b".to_owned(), "qwen3".to_owned()])
    );
    let request = server.requests().remove(0);
    assert_eq!((request.line.as_str(), request.header("authorization")), ("GET /v1/models HTTP/1.1", None));
    let others = [
        vec![answer("200 OK", &[("content-type", "text/html")], "<html>")],
        vec![json("404 Not Found", &list)],
        vec![json("200 OK", &json!({ "data": {} }))],
        vec![Step::AwaitClose],
        vec![Step::Close],
    ];
    for steps in others {
        let (server, started) = (Server::always(steps), Instant::now());
        assert_eq!(local::list_models(&server.base_url(), timeout).await, None);
        assert!(started.elapsed() < Duration::from_secs(20));
    }
    assert_eq!(local::list_models("no URL", timeout).await, None);
    let listed = Providers::new(vec![config(&server.base_url())]).list_models("test", timeout).await;
    assert_eq!(listed.map(|models| models.len()), Some(2));
    assert!(server.requests()[1].header("authorization").is_some());
    assert!(local::find_servers(timeout).await.iter().all(|found| found.base_url.starts_with("http://127.0.0.1:")));
}

/// Configured headers and the query of the base URL are sent, because Azure and other providers require them.
#[tokio::test]
async fn configured_headers_and_queries_are_sent() {
    let server = Server::always(streamed("hello"));
    let base_url = format!("{}/?api-version=1", server.base_url());
    let headers = vec![("api-key".to_owned(), agent_models::Secret::new("other-canary"))];
    let model = model_of(ProviderConfig { key: None, headers, ..config(&base_url) });
    ask(&model, &simple_request()).await.0.unwrap();
    let request = server.requests().remove(0);
    assert_eq!(request.line, "POST /v1/chat/completions?api-version=1 HTTP/1.1");
    assert_eq!((request.header("api-key"), request.header("authorization")), (Some("other-canary"), None));
    // The base URL may also be the complete address of the endpoint, including `/chat/completions`.
    let complete_address = format!("{}/chat/completions/", server.base_url());
    ask(&model_of(config(&complete_address)), &simple_request()).await.0.unwrap();
    let request = server.requests().remove(1);
    assert_eq!(request.line, "POST /v1/chat/completions HTTP/1.1");
    assert_eq!(request.header("authorization"), Some("Bearer sk-canary-0123456789"));
    assert!(request.header("user-agent").unwrap().starts_with("agent-host/"));
}
