//! Row 31: streams that are cut, stalled, broken, endless. Each is a typed error in time; never a truncated reply as
//! complete.

use crate::asking::{CANARY, ask, failure, go, hasty, message, model};
use crate::server::{END, Server, Step, answer, chunk, json, stream_head, text_event};
use agent_core::model::Delta;
use agent_models::ModelError;
use agent_models::error::{Awaited, Cause, Said};
use serde_json::json;
use std::time::{Duration, Instant};

fn begun() -> Vec<Step> {
    vec![stream_head(), Step::Send(chunk(text_event("part of a reply")))]
}

/// A body of which only `sent` comes before the connection closes.
fn cut(sent: &[u8]) -> Vec<Step> {
    vec![stream_head(), Step::Send(sent.to_vec()), Step::Close]
}

#[tokio::test]
async fn row31_a_cut_stream_is_broken_wherever_it_is_cut() {
    let whole = [chunk(text_event("part of a reply")), chunk(text_event(" and more")), chunk(END)].concat();
    let end_mark = whole.len() - chunk(END).len();
    let closed = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n".to_vec();
    let counted = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 9999\r\n\r\n".to_vec();
    let first_event = text_event("part").into_bytes();
    let cases = [
        cut(&whole[..10]),
        cut(&whole[..end_mark / 2]),
        cut(&whole[..end_mark]),
        cut(&whole[..end_mark + 3]),
        // Well-formed chunks, and yet no end of the reply.
        cut(&[&whole[..end_mark], &chunk("")[..]].concat()),
        vec![Step::Send(closed.clone()), Step::Send(first_event.clone()), Step::Close],
        vec![Step::Send(counted), Step::Send(first_event), Step::Close],
        vec![Step::Send(closed), Step::Close],
        vec![stream_head(), Step::Close],
        vec![Step::Send(b"HTTP/1.1 200 OK\r\ncontent-ty".to_vec()), Step::Close],
        vec![Step::Close],
    ];
    for (place, script) in cases.into_iter().enumerate() {
        let error = failure(&model(&Server::always(script)), &go()).await;
        assert!(matches!(error, ModelError::Broken { .. }) && error.retryable(), "{place}: {error:?}");
    }
}

/// What came before the cut was shown; the caller clears it.
#[tokio::test]
async fn row31_deltas_before_a_cut_are_voided_by_the_error() {
    let server = Server::always([begun(), vec![Step::Close]].concat());
    let (reply, deltas) = ask(&model(&server), &go()).await;
    assert_eq!(deltas, [Delta::Text("part of a reply".into())]);
    let message = message(&reply.unwrap_err(), &server);
    assert!(
        message.starts_with("the reply of test/some/model at http://127.0.0.1:PORT/v1/chat/completions broke off: "),
        "{message}"
    );
    assert!(message.ends_with(". Try again; if it stays so, look at the network and the base URL"), "{message}");
}

#[tokio::test]
async fn row31_a_chunk_of_impossible_length_is_broken() {
    let server = Server::always(vec![stream_head(), Step::Send(b"zzzz\r\nnot a chunk\r\n".to_vec())]);
    assert!(matches!(failure(&model(&server), &go()).await, ModelError::Broken { .. }));
}

#[tokio::test]
async fn row31_a_reset_connection_is_broken() {
    let server = Server::always(vec![Step::Reset]);
    let mut request = go();
    request.system.push("x".repeat(100_000));
    let error = failure(&model(&server), &request).await;
    assert!(matches!(error, ModelError::Broken { .. }) && error.retryable(), "{error:?}");
}

/// A silent server is given up after the stall time: before its head, and between pieces.
#[tokio::test]
async fn row31_a_stalled_stream_is_given_up_in_time() {
    for (script, expected) in
        [(vec![Step::AwaitClose], Awaited::Beginning), ([begun(), vec![Step::AwaitClose]].concat(), Awaited::NextPiece)]
    {
        let (server, begun) = (Server::always(script), Instant::now());
        let error = failure(&hasty(&server, (1000, 300, 5000)), &go()).await;
        assert!(begun.elapsed() >= Duration::from_millis(300) && begun.elapsed() < Duration::from_millis(1300));
        assert!(error.retryable());
        assert!(matches!(error, ModelError::Stalled { awaited, .. } if awaited == expected), "{error:?}");
        server.closed().await;
    }
}

/// Bytes that come slowly, but come, are no stall; in all it may still take too long.
#[tokio::test]
async fn row31_a_slow_stream_ends_with_the_total_time() {
    let slow: Vec<Step> =
        (0..100).flat_map(|_| [Step::Wait(Duration::from_millis(50)), Step::Send(chunk(": wait\n\n"))]).collect();
    let (server, begun) = (Server::always([begun(), slow].concat()), Instant::now());
    let error = failure(&hasty(&server, (1000, 400, 900)), &go()).await;
    assert!(begun.elapsed() >= Duration::from_millis(900) && begun.elapsed() < Duration::from_millis(1900));
    assert!(matches!(error, ModelError::Overdue { .. }) && !error.retryable(), "{error:?}");
}

/// Endless text, endless comments, an endless event, an endless document: bounded in time and size, and the connection is closed.
#[tokio::test]
async fn row31_an_endless_stream_is_bounded() {
    for endless in
        [text_event(&"word ".repeat(2000)), ": comment\n\n".repeat(1000), "data: x".repeat(1000), "{".repeat(10_000)]
    {
        let server = Server::always(vec![stream_head(), Step::Forever(chunk(endless))]);
        let begun = Instant::now();
        let error = failure(&hasty(&server, (1000, 1000, 2500)), &go()).await;
        assert!(begun.elapsed() < Duration::from_millis(3500), "{:?}", begun.elapsed());
        assert!(matches!(error, ModelError::InvalidReply { .. } | ModelError::Overdue { .. }), "{error:?}");
        server.closed().await;
    }
}

#[tokio::test]
async fn row31_an_event_of_ten_megabytes_is_refused() {
    let event = text_event(&"x".repeat(10 * 1024 * 1024));
    let server = Server::always(vec![stream_head(), Step::Send([chunk(event), chunk(END), chunk("")].concat())]);
    let error = failure(&model(&server), &go()).await;
    assert!(matches!(error, ModelError::InvalidReply { .. }) && !error.retryable(), "{error:?}");
}

/// M3: an error in the middle says by its code whether it passes.
#[tokio::test]
async fn row31_an_error_in_the_middle_of_a_stream() {
    for (code, cause) in [
        ("server_error", Cause::Busy),
        ("overloaded_error", Cause::Busy),
        ("rate_limit_exceeded", Cause::Busy),
        ("insufficient_quota", Cause::Credit),
        ("invalid_request_error", Cause::Request),
        ("context_length_exceeded", Cause::ContextLength),
    ] {
        let event =
            format!("data: {}\n\n", json!({ "error": { "message": format!("Sorry {CANARY}."), "code": code } }));
        let server =
            Server::always([begun(), vec![Step::Send([chunk(event), chunk(END), chunk("")].concat())]].concat());
        let error = failure(&model(&server), &go()).await;
        let ModelError::Refused(refusal) = &error else { panic!("{error:?}") };
        assert_eq!((refusal.cause, refusal.said), (cause, Said::InReply(None)), "{code}");
        assert_eq!(error.retryable(), cause == Cause::Busy, "{code}");
        assert_eq!(refusal.message, "Sorry (secret).");
    }
}

#[tokio::test]
async fn row31_a_200_with_an_error_in_its_body_is_no_reply() {
    let body =
        json!({ "error": { "message": "The model is overloaded.", "type": "server_error", "code": "overloaded" } });
    for step in [json("200 OK", &body), answer("200 OK", &[("content-type", "text/event-stream")], body.to_string())] {
        let server = Server::always(vec![step]);
        let error = failure(&model(&server), &go()).await;
        assert!(error.retryable());
        insta::allow_duplicates! {
            insta::assert_snapshot!(message(&error, &server), @"test/some/model at http://127.0.0.1:PORT/v1/chat/completions sent an error in its reply: The model is overloaded. Ask again later, or name another model");
        }
    }
}

/// Neither compressed bytes nor anything else that is no text is taken for a reply.
#[tokio::test]
async fn row31_garbage_is_named() {
    let garbage = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xcb\x48\xcd\xc9".to_vec();
    let declared = answer("200 OK", &[("content-type", "text/event-stream"), ("content-encoding", "gzip")], &garbage);
    let error = failure(&model(&Server::always(vec![declared])), &go()).await;
    assert!(error.to_string().contains("it is encoded as `gzip`, which was not asked for"), "{error}");
    let undeclared = answer("200 OK", &[("content-type", "application/json")], &garbage);
    let error = failure(&model(&Server::always(vec![undeclared])), &go()).await;
    assert!(matches!(error, ModelError::NotAModel { .. }) && !error.retryable(), "{error:?}");
    let malformed = Step::Send([chunk("data: {\"choices\": [}\n\n"), chunk(END), chunk("")].concat());
    let error = failure(&model(&Server::always(vec![stream_head(), malformed])), &go()).await;
    assert!(matches!(error, ModelError::InvalidReply { .. }), "{error:?}");
    let not_http = Step::Send(b"SSH-2.0-OpenSSH_9.2\r\nProtocol mismatch.\r\n".to_vec());
    let error = failure(&model(&Server::always(vec![not_http, Step::Close])), &go()).await;
    assert!(matches!(error, ModelError::Broken { .. }), "{error:?}");
    let huge = format!("HTTP/1.1 200 OK\r\nx-huge: {}\r\n\r\n", "x".repeat(4 * 1024 * 1024));
    let error = failure(&model(&Server::always(vec![Step::Send(huge.into_bytes()), Step::Close])), &go()).await;
    assert!(matches!(error, ModelError::Broken { .. }), "{error:?}");
}
