//! Tests of truncated, stalled, corrupted and endless streams (row 31). Each faulty stream causes a typed error within
//! a limited time, and a truncated reply never counts as complete.

use crate::client::{CANARY, ask, failure, message, model, model_with_timeouts, simple_request};
use crate::server::{END, Server, Step, answer, chunk, json, stream_head, text_event};
use agent_core::model::Delta;
use agent_models::ModelError;
use agent_models::error::{Cause, ErrorOrigin, WaitingFor};
use serde_json::json;
use std::time::{Duration, Instant};

/// Returns the steps that send the beginning of a stream, with one piece of the reply's text.
fn partial_stream() -> Vec<Step> {
    vec![stream_head(), Step::Send(chunk(text_event("part of a reply")))]
}

/// Returns the steps that send the first bytes of a response's body, `sent`, and then close the connection.
fn closed_after(sent: &[u8]) -> Vec<Step> {
    vec![stream_head(), Step::Send(sent.to_vec()), Step::Close]
}

#[tokio::test]
async fn row31_a_truncated_stream_is_an_error_wherever_it_ends() {
    let body = [chunk(text_event("part of a reply")), chunk(text_event(" and more")), chunk(END)].concat();
    let end_marker = body.len() - chunk(END).len();
    let head_without_length = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n".to_vec();
    let head_with_length =
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 9999\r\n\r\n".to_vec();
    let first_event = text_event("part").into_bytes();
    let cases = [
        closed_after(&body[..10]),
        closed_after(&body[..end_marker / 2]),
        closed_after(&body[..end_marker]),
        closed_after(&body[..end_marker + 3]),
        // The chunked body ends correctly, but the reply has no end marker.
        closed_after(&[&body[..end_marker], &chunk("")[..]].concat()),
        vec![Step::Send(head_without_length.clone()), Step::Send(first_event.clone()), Step::Close],
        vec![Step::Send(head_with_length), Step::Send(first_event), Step::Close],
        vec![Step::Send(head_without_length), Step::Close],
        vec![stream_head(), Step::Close],
        vec![Step::Send(b"HTTP/1.1 200 OK\r\ncontent-ty".to_vec()), Step::Close],
        vec![Step::Close],
    ];
    for (index, script) in cases.into_iter().enumerate() {
        let error = failure(&model(&Server::always(script)), &simple_request()).await;
        assert!(matches!(error, ModelError::ConnectionLost { .. }) && error.retryable(), "{index}: {error:?}");
    }
}

/// If a stream ends early, the deltas that have arrived are sent to the caller, and then an error is returned.
#[tokio::test]
async fn row31_an_early_end_after_deltas_is_an_error() {
    let server = Server::always([partial_stream(), vec![Step::Close]].concat());
    let (reply, deltas) = ask(&model(&server), &simple_request()).await;
    assert_eq!(deltas, [Delta::Text("part of a reply".into())]);
    let message = message(&reply.unwrap_err(), &server);
    assert!(
        message.starts_with("the reply of test/some/model at http://127.0.0.1:PORT/v1/chat/completions ended early: "),
        "{message}"
    );
    assert!(message.ends_with(". Try again; if it happens again, check the network and the base URL"), "{message}");
}

#[tokio::test]
async fn row31_a_chunk_with_an_invalid_length_is_an_error() {
    let server = Server::always(vec![stream_head(), Step::Send(b"zzzz\r\nnot a chunk\r\n".to_vec())]);
    assert!(matches!(failure(&model(&server), &simple_request()).await, ModelError::ConnectionLost { .. }));
}

#[tokio::test]
async fn row31_a_reset_connection_is_an_error() {
    let server = Server::always(vec![Step::Reset]);
    let mut request = simple_request();
    request.system.push("x".repeat(100_000));
    let error = failure(&model(&server), &request).await;
    assert!(matches!(error, ModelError::ConnectionLost { .. }) && error.retryable(), "{error:?}");
}

/// The client stops waiting for a silent server after the stall timeout, both before the response and between its
/// chunks.
#[tokio::test]
async fn row31_a_stalled_stream_times_out() {
    for (script, expected) in [
        (vec![Step::AwaitClose], WaitingFor::ResponseStart),
        ([partial_stream(), vec![Step::AwaitClose]].concat(), WaitingFor::NextChunk),
    ] {
        let (server, started) = (Server::always(script), Instant::now());
        let error = failure(&model_with_timeouts(&server, (1000, 300, 5000)), &simple_request()).await;
        assert!(started.elapsed() >= Duration::from_millis(300) && started.elapsed() < Duration::from_millis(4500));
        assert!(error.retryable());
        assert!(matches!(error, ModelError::Stalled { waiting_for, .. } if waiting_for == expected), "{error:?}");
        server.closed().await;
    }
}

/// A slow stream is aborted at the total timeout, even if no pause in it exceeds the stall timeout.
#[tokio::test]
async fn row31_a_slow_stream_ends_at_the_total_timeout() {
    let slow: Vec<Step> =
        (0..100).flat_map(|_| [Step::Wait(Duration::from_millis(50)), Step::Send(chunk(": wait\n\n"))]).collect();
    let (server, started) = (Server::always([partial_stream(), slow].concat()), Instant::now());
    let error = failure(&model_with_timeouts(&server, (1000, 400, 900)), &simple_request()).await;
    assert!(started.elapsed() >= Duration::from_millis(900) && started.elapsed() < Duration::from_millis(4500));
    assert!(matches!(error, ModelError::TimedOut { .. }) && !error.retryable(), "{error:?}");
}

/// If a server sends endless text, comments, events or JSON, the client stops reading at a limit on time or size, and
/// closes the connection.
#[tokio::test]
async fn row31_an_endless_stream_is_limited() {
    for endless in
        [text_event(&"word ".repeat(2000)), ": comment\n\n".repeat(1000), "data: x".repeat(1000), "{".repeat(10_000)]
    {
        let server = Server::always(vec![stream_head(), Step::Forever(chunk(endless))]);
        let started = Instant::now();
        let error = failure(&model_with_timeouts(&server, (1000, 1000, 2500)), &simple_request()).await;
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
        assert!(matches!(error, ModelError::InvalidReply { .. } | ModelError::TimedOut { .. }), "{error:?}");
        server.closed().await;
    }
}

#[tokio::test]
async fn row31_an_event_of_ten_megabytes_is_rejected() {
    let event = text_event(&"x".repeat(10 * 1024 * 1024));
    let server = Server::always(vec![stream_head(), Step::Send([chunk(event), chunk(END), chunk("")].concat())]);
    let error = failure(&model(&server), &simple_request()).await;
    assert!(matches!(error, ModelError::InvalidReply { .. }) && !error.retryable(), "{error:?}");
}

/// M3: the code of an error in the middle of a stream determines whether the error is temporary.
#[tokio::test]
async fn row31_an_error_in_the_middle_of_a_stream_is_classified_by_its_code() {
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
        let server = Server::always(
            [partial_stream(), vec![Step::Send([chunk(event), chunk(END), chunk("")].concat())]].concat(),
        );
        let error = failure(&model(&server), &simple_request()).await;
        let ModelError::Provider(provider_error) = &error else { panic!("{error:?}") };
        assert_eq!((provider_error.cause, provider_error.origin), (cause, ErrorOrigin::InReply(None)), "{code}");
        assert_eq!(error.retryable(), cause == Cause::Busy, "{code}");
        assert_eq!(provider_error.message, "Sorry (secret).");
    }
}

#[tokio::test]
async fn row31_a_response_with_status_200_and_an_error_in_its_body_is_an_error() {
    let body =
        json!({ "error": { "message": "The model is overloaded.", "type": "server_error", "code": "overloaded" } });
    for step in [json("200 OK", &body), answer("200 OK", &[("content-type", "text/event-stream")], body.to_string())] {
        let server = Server::always(vec![step]);
        let error = failure(&model(&server), &simple_request()).await;
        assert!(error.retryable());
        insta::allow_duplicates! {
            insta::assert_snapshot!(message(&error, &server), @"test/some/model at http://127.0.0.1:PORT/v1/chat/completions sent an error in its reply: The model is overloaded. Try again later, or use another model");
        }
    }
}

/// Compressed bytes and other invalid data are reported as errors and are not decoded as a reply.
#[tokio::test]
async fn row31_invalid_data_is_reported() {
    let compressed = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xcb\x48\xcd\xc9".to_vec();
    let declared =
        answer("200 OK", &[("content-type", "text/event-stream"), ("content-encoding", "gzip")], &compressed);
    let error = failure(&model(&Server::always(vec![declared])), &simple_request()).await;
    assert!(error.to_string().contains("the response is encoded as `gzip`, which was not requested"), "{error}");
    let undeclared = answer("200 OK", &[("content-type", "application/json")], &compressed);
    let error = failure(&model(&Server::always(vec![undeclared])), &simple_request()).await;
    assert!(matches!(error, ModelError::UnexpectedResponse { .. }) && !error.retryable(), "{error:?}");
    let malformed = Step::Send([chunk("data: {\"choices\": [}\n\n"), chunk(END), chunk("")].concat());
    let error = failure(&model(&Server::always(vec![stream_head(), malformed])), &simple_request()).await;
    assert!(matches!(error, ModelError::MalformedReply { .. }) && error.retryable(), "{error:?}");
    let not_http = Step::Send(b"SSH-2.0-OpenSSH_9.2\r\nProtocol mismatch.\r\n".to_vec());
    let error = failure(&model(&Server::always(vec![not_http, Step::Close])), &simple_request()).await;
    assert!(matches!(error, ModelError::ConnectionLost { .. }), "{error:?}");
    let huge_header = format!("HTTP/1.1 200 OK\r\nx-huge: {}\r\n\r\n", "x".repeat(4 * 1024 * 1024));
    let error =
        failure(&model(&Server::always(vec![Step::Send(huge_header.into_bytes()), Step::Close])), &simple_request())
            .await;
    assert!(matches!(error, ModelError::ConnectionLost { .. }), "{error:?}");
}
