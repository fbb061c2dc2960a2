//! Replies that are well, in every form, and what happens when somebody stops listening.

use crate::asking::{ask, call as requested, config, go, hasty, model, model_of, result};
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

/// M1
#[tokio::test]
async fn m1_a_stream_of_single_bytes_is_the_same_reply() {
    let body =
        [chunk(text_event("Grüße ")), chunk(": a comment\n\n"), chunk(text_event("aus 東京")), chunk(END), chunk("")];
    for step in [Step::Send(body.concat()), Step::Trickle(body.concat())] {
        let server = Server::always(vec![stream_head(), step]);
        let (reply, deltas) = ask(&model(&server), &go()).await;
        assert_eq!(reply.unwrap().reply.text, "Grüße aus 東京");
        assert_eq!(text_of(&deltas), "Grüße aus 東京");
    }
}

/// M1: deltas come when they are sent, not at the end.
#[tokio::test]
async fn m1_pieces_arrive_while_the_reply_is_written() {
    let server = Server::always(vec![
        stream_head(),
        Step::Send(chunk(text_event("first"))),
        Step::Wait(Duration::from_millis(400)),
        Step::Send([chunk(END), chunk("")].concat()),
    ]);
    let (sender, mut receiver) = mpsc::channel(4);
    let (model, request, begun) = (model(&server), go(), Instant::now());
    let context = ReplyContext { session: "s1", purpose: Purpose::Turn, call: 0, attempt: 1, media: &NoMedia };
    let first = async { (receiver.recv().await, begun.elapsed()) };
    let (reply, (delta, after)) = tokio::join!(model.reply(&request, context, &sender), first);
    assert_eq!(delta, Some(Delta::Text("first".into())));
    assert!(after < Duration::from_millis(300) && begun.elapsed() >= Duration::from_millis(400), "{after:?}");
    assert_eq!(reply.unwrap().reply.model, "test/some/model");
}

/// M1: servers that don't stream, and declare what they like.
#[tokio::test]
async fn m1_one_document_is_a_reply_too() {
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
    for (place, step) in cases.into_iter().enumerate() {
        let (reply, deltas) = ask(&model(&Server::always(vec![step])), &go()).await;
        assert_eq!(reply.unwrap_or_else(|error| panic!("{place}: {error}")).reply.text, "whole");
        assert_eq!(deltas, [Delta::Text("whole".into())]);
    }
    let undeclared = answer("200 OK", &[("content-type", "text/plain")], format!("{}{END}", text_event("streamed")));
    assert_eq!(ask(&model(&Server::always(vec![undeclared])), &go()).await.0.unwrap().reply.text, "streamed");
}

/// M1, L21: thinking and parallel calls come out of a stream, and what the provider wants back goes back with them.
#[tokio::test]
async fn m1_a_batch_of_calls_and_the_way_back() {
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
    let (reply, deltas) = ask(&model, &go()).await;
    let thinking = ["Two ", "files."].map(|text| Delta::Thinking(text.to_owned()));
    assert_eq!(deltas, [&[Delta::ThinkingStart][..], &thinking, &[Delta::ThinkingEnd]].concat());
    let reply = reply.unwrap().reply;
    assert_eq!((reply.usage.prompt_tokens, reply.usage.completion_tokens), (7, 3));
    let calls: Vec<_> = reply.calls.iter().map(|call| (call.name.as_str(), call.arguments.as_str())).collect();
    assert_eq!(calls, [("text_count", "{\"path\":\"a\"}"), ("text_count", "{\"path\":\"b\"}")]);
    let mut request = go();
    let ids = ["call_1_1_1", "call_1_1_2"];
    let asked = ids.iter().zip(["a", "b"]).map(|(id, path)| requested(id, "text.count", json!({ "path": path })));
    let parts = asked.chain(reply.replay.map(Part::Replay)).collect();
    request.messages.push(Message { role: Role::Assistant, parts, seen_count: 1 });
    request.messages.extend(ids.map(|id| result(id, "text.count", vec![Content::Text("3".into())], false)));
    assert_eq!(ask(&model, &request).await.0.unwrap().reply.text, "Both are short.");
    let sent: Value = serde_json::from_slice(&server.requests()[1].body).unwrap();
    assert_eq!(sent["messages"][2]["reasoning_content"], "Two files.");
    assert_eq!(sent["messages"][2]["tool_calls"][1]["id"], "call_1_1_2");
}

/// L5: tokens that nobody counted are estimated.
#[tokio::test]
async fn l5_usage_where_the_server_counts_none() {
    let server = Server::always(streamed("a reply of some words"));
    let reply = ask(&model(&server), &go()).await.0.unwrap();
    assert_eq!(reply.raw.get("usage"), None);
    let usage = reply.reply.usage;
    assert!((3..20).contains(&usage.prompt_tokens) && (4..10).contains(&usage.completion_tokens), "{usage:?}");
}

/// A connection is used again: a step does not pay for a new one.
#[tokio::test]
async fn one_connection_serves_many_requests() {
    let server = Server::always(streamed("hello"));
    let model = model(&server);
    for _ in 0..5 {
        assert_eq!(ask(&model, &go()).await.0.unwrap().reply.text, "hello");
        // The end of a body is read by whoever keeps the connection.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let connections: Vec<usize> = server.requests().iter().map(|request| request.connection).collect();
    assert_eq!(connections, [0; 5]);
}

/// L29: dropping the future closes the connection within 100 ms, whatever it waits for. A machine under load may wake this
/// test late: the best of three tries counts.
#[tokio::test]
async fn l29_dropping_the_call_closes_the_connection_at_once() {
    let before_the_head = vec![Step::AwaitClose];
    let in_the_body = vec![stream_head(), Step::Send(chunk(text_event("part"))), Step::AwaitClose];
    let while_it_flows = vec![stream_head(), Step::Forever(chunk(text_event("word ")))];
    for script in [before_the_head, in_the_body, while_it_flows] {
        let mut best = Duration::MAX;
        for _ in 0..3 {
            best = best.min(time_to_close(script.clone()).await);
        }
        assert!(best < Duration::from_millis(100), "{best:?}");
    }
}

/// From dropping a call until the server sees its connection closed.
async fn time_to_close(script: Vec<Step>) -> Duration {
    let server = Server::always(script);
    let (model, request) = (model(&server), go());
    let (sender, mut receiver) = mpsc::channel(1000);
    let asked = tokio::spawn(async move {
        let context = ReplyContext { session: "s1", purpose: Purpose::Turn, call: 0, attempt: 1, media: &NoMedia };
        model.reply(&request, context, &sender).await.map(|_| ()).map_err(|error| error.to_string())
    });
    let listener = tokio::spawn(async move { while receiver.recv().await.is_some() {} });
    while server.requests().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!asked.is_finished());
    let cancelled = Instant::now();
    asked.abort();
    let closed = server.closed().await;
    assert!(closed >= cancelled);
    listener.await.unwrap();
    closed - cancelled
}

/// Where nobody receives the deltas any more, the reply is still made.
#[tokio::test]
async fn a_listener_that_is_gone_stops_nothing() {
    let pieces: Vec<u8> = (0..500).flat_map(|_| chunk(text_event("word "))).collect();
    let server = Server::always(vec![stream_head(), Step::Send(pieces), Step::Send([chunk(END), chunk("")].concat())]);
    let (sender, receiver) = mpsc::channel(1);
    drop(receiver);
    let context = ReplyContext { session: "s1", purpose: Purpose::Turn, call: 0, attempt: 1, media: &NoMedia };
    let reply = model(&server).reply(&go(), context, &sender).await.unwrap();
    assert_eq!(reply.reply.text.len(), 2500);
}

/// A listener that sleeps holds the stream up, but not for ever, and no memory grows meanwhile.
#[tokio::test]
async fn a_listener_that_sleeps_is_waited_for_within_the_total_time() {
    let server = Server::always(vec![stream_head(), Step::Forever(chunk(text_event("word ")))]);
    let (sender, receiver) = mpsc::channel(1);
    let context = ReplyContext { session: "s1", purpose: Purpose::Turn, call: 0, attempt: 1, media: &NoMedia };
    let error = hasty(&server, (1000, 5000, 600)).reply(&go(), context, &sender).await.unwrap_err();
    insta::assert_snapshot!(crate::asking::message(&error, &server), @"the reply of test/some/model at http://127.0.0.1:PORT/v1/chat/completions was not complete after 0.6 s. Ask for less, or set a longer `total_timeout_ms` for this provider");
    drop(receiver);
}

/// M2: window and price from the configuration, else from the table, else 32,768 and none.
#[test]
fn m2_facts_of_a_model() {
    let facts = |name: &str, config: ProviderConfig| {
        let config = ProviderConfig { name: "openai".into(), ..config };
        Providers::new(vec![config]).model(name, Path::new("/")).unwrap().facts().clone()
    };
    let plain = config("https://api.openai.com/v1");
    let known = facts("openai/gpt-4o-mini", plain.clone());
    assert_eq!((known.model.window, known.price), (128_000, Some(Price { prompt: 0.15, completion: 0.6 })));
    assert_eq!(known.model.to_string(), "openai/gpt-4o-mini");
    let unknown = facts("openai/a/b", plain.clone());
    assert_eq!((unknown.model.window, unknown.price, unknown.model.name.as_str()), (32_768, None, "a/b"));
    let said = ModelConfig { window: Some(1000), price: None };
    let models = [("gpt-4o-mini".to_owned(), said)].into_iter().collect();
    let said = facts("openai/gpt-4o-mini", ProviderConfig { models, ..plain });
    assert_eq!((said.model.window, said.price), (1000, Some(Price { prompt: 0.15, completion: 0.6 })));
    let elsewhere = facts("openai/gpt-4o-mini", config("http://127.0.0.1:1/v1"));
    assert_eq!((elsewhere.model.window, elsewhere.price), (128_000, None), "another server has other prices");
}

/// A server on this machine is found by its list of models; anything else there is none.
#[tokio::test]
async fn local_servers_are_found_by_their_models() {
    let time = Duration::from_millis(300);
    let list = json!({ "object": "list", "data": [{ "id": "llama3.2:1b", "object": "model" }, { "id": "qwen3" }] });
    let server = Server::always(vec![json("200 OK", &list)]);
    assert_eq!(local::ask(&server.base_url(), time).await, Some(vec!["llama3.2:1b".to_owned(), "qwen3".to_owned()]));
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
        let (server, begun) = (Server::always(steps), Instant::now());
        assert_eq!(local::ask(&server.base_url(), time).await, None);
        assert!(begun.elapsed() < Duration::from_secs(1));
    }
    assert_eq!(local::ask("no URL", time).await, None);
    let listed = Providers::new(vec![config(&server.base_url())]).list("test", time).await;
    assert_eq!(listed.map(|models| models.len()), Some(2));
    assert!(server.requests()[1].header("authorization").is_some());
    assert!(local::servers(time).await.iter().all(|found| found.base_url.starts_with("http://127.0.0.1:")));
}

/// Azure and others want their own header, and a question behind the path.
#[tokio::test]
async fn configured_headers_and_queries_are_sent() {
    let server = Server::always(streamed("hello"));
    let base_url = format!("{}/?api-version=1", server.base_url());
    let headers = vec![("api-key".to_owned(), agent_models::Secret::new("other-canary"))];
    let model = model_of(ProviderConfig { key: None, headers, ..config(&base_url) });
    ask(&model, &go()).await.0.unwrap();
    let request = server.requests().remove(0);
    assert_eq!(request.line, "POST /v1/chat/completions?api-version=1 HTTP/1.1");
    assert_eq!((request.header("api-key"), request.header("authorization")), (Some("other-canary"), None));
    // People give the whole address, too.
    let whole = format!("{}/chat/completions/", server.base_url());
    ask(&model_of(config(&whole)), &go()).await.0.unwrap();
    let request = server.requests().remove(1);
    assert_eq!(request.line, "POST /v1/chat/completions HTTP/1.1");
    assert_eq!(request.header("authorization"), Some("Bearer sk-canary-0123456789"));
    assert!(request.header("user-agent").unwrap().starts_with("agent-host/"));
}
