//! Tests of the messages that users see if a provider fails (M5). No message may contain a key (row 16).

use crate::client::{CANARY, ask, config, failure, message, model, model_of, simple_request};
use crate::server::{Server, Step, answer, chunk, json, stream_head, streamed, text_event};
use agent_core::model::Delta;
use agent_models::error::Cause;
use agent_models::{ModelError, ProviderConfig, Providers, RawReply, Secret};
use serde_json::json;
use std::path::Path;
use std::time::{Duration, SystemTime};

fn provider_error(error: &ModelError) -> &agent_models::error::ProviderError {
    let ModelError::Provider(provider_error) = error else { panic!("{error:?}") };
    provider_error
}

#[tokio::test]
async fn m5_a_wrong_key_is_reported_with_advice() {
    let body =
        json!({ "error": { "message": format!("Incorrect API key provided: {CANARY}."), "code": "invalid_api_key" } });
    let step = answer(
        "401 Unauthorized",
        &[("content-type", "application/json"), ("x-request-id", "req_7")],
        body.to_string(),
    );
    let server = Server::always(vec![step]);
    let error = failure(&model(&server), &simple_request()).await;
    assert!(!error.retryable());
    insta::assert_snapshot!(message(&error, &server), @"test/some/model at http://127.0.0.1:PORT/v1/chat/completions answered with status 401 (`invalid_api_key`, request req_7): Incorrect API key provided: (secret). Check the key and its permissions: set `TEST_KEY`");
}

#[tokio::test]
async fn m5_a_missing_key_is_reported_with_advice() {
    let server = Server::always(vec![json("401 Unauthorized", &json!({ "error": "missing bearer token" }))]);
    let model = model_of(ProviderConfig { key: None, ..config(&server.base_url()) });
    insta::assert_snapshot!(message(&failure(&model, &simple_request()).await, &server), @"test/some/model at http://127.0.0.1:PORT/v1/chat/completions answered with status 401: missing bearer token. The provider requires a key, but none is configured: set `TEST_KEY`");
    assert_eq!(server.requests()[0].header("authorization"), None);
}

#[tokio::test]
async fn m5_an_unknown_model_is_reported_with_similar_names() {
    let body = json!({ "error": { "message": "The model `some/model` does not exist", "code": "model_not_found" } });
    let list =
        json!({ "data": [{ "id": "other" }, { "id": "some/model-2" }, { "id": "some-model" }, { "id": CANARY }] });
    let server = Server::start(vec![vec![json("404 Not Found", &body)], vec![json("200 OK", &list)]]);
    insta::assert_snapshot!(message(&failure(&model(&server), &simple_request()).await, &server), @"test/some/model at http://127.0.0.1:PORT/v1/chat/completions answered with status 404 (`model_not_found`): The model `some/model` does not exist. The server has no model `some/model`, or the key does not allow it. The most similar names that it lists: `test/some/model-2`, `test/some-model`");
    assert_eq!(server.requests()[1].line, "GET /v1/models HTTP/1.1");
    // This error message was copied from Ollama. The test server does not respond to the request for its list of
    // models, so the client stops waiting for the list after some time.
    let body =
        json!({ "error": { "message": "model \"some/model\" not found, try pulling it first", "type": "api_error" } });
    let server = Server::start(vec![vec![json("404 Not Found", &body)], vec![Step::AwaitClose]]);
    let started = std::time::Instant::now();
    insta::assert_snapshot!(message(&failure(&model(&server), &simple_request()).await, &server), @r#"test/some/model at http://127.0.0.1:PORT/v1/chat/completions answered with status 404 (`api_error`): model "some/model" not found, try pulling it first. The server has no model `some/model`, or the key does not allow it: check the name"#);
    assert!(started.elapsed() < Duration::from_secs(20));
}

#[tokio::test]
async fn m5_a_wrong_address_is_reported_with_advice() {
    let server = Server::always(vec![answer("404 Not Found", &[("content-type", "text/plain")], "404 page not found")]);
    insta::assert_snapshot!(message(&failure(&model(&server), &simple_request()).await, &server), @"test/some/model at http://127.0.0.1:PORT/v1/chat/completions answered with status 404: 404 page not found. Check the base URL `http://127.0.0.1:PORT/v1`, which for most servers ends in `/v1`, and the model's name");
}

#[tokio::test]
async fn m5_a_web_page_instead_of_a_model_is_reported() {
    let page = "<!DOCTYPE html>\n<html><head><title>Sign in</title></head><body>Company proxy</body></html>";
    let html = [("content-type", "text/html; charset=utf-8")];
    let server = Server::always(vec![answer("200 OK", &html, page)]);
    let error = failure(&model(&server), &simple_request()).await;
    assert!(!error.retryable());
    insta::assert_snapshot!(message(&error, &server), @"test/some/model at http://127.0.0.1:PORT/v1/chat/completions is not a model endpoint: it responded with status 200 and text/html that begins with `<!DOCTYPE html> <html><head><title>Sign in</title></head><body>Company proxy</body></html>`. Check the base URL (most end in `/v1`), and whether a proxy or a login page responds instead of the server");
    let server = Server::always(vec![answer("403 Forbidden", &html, page)]);
    assert!(matches!(
        failure(&model(&server), &simple_request()).await,
        ModelError::UnexpectedResponse { status: 403, .. }
    ));
    // The error page of a gateway means that the server behind the gateway is unavailable.
    let gateway_page = "<html>\r\n<head><title>502 Bad Gateway</title></head><body>nginx</body></html>";
    let server = Server::always(vec![answer("502 Bad Gateway", &html, gateway_page)]);
    let error = failure(&model(&server), &simple_request()).await;
    assert!(error.retryable());
    insta::assert_snapshot!(message(&error, &server), @"test/some/model at http://127.0.0.1:PORT/v1/chat/completions answered with status 502: 502 Bad Gateway nginx. Try again later, or use another model");
}

/// M3: a `Retry-After` header may contain a number of seconds or a date. A request that exceeds a quota is not retried.
#[tokio::test]
async fn m3_retry_after_is_read() {
    let body = json!({ "error": { "message": "Rate limit reached", "type": "tokens", "code": "rate_limit_exceeded" } })
        .to_string();
    let server = Server::always(vec![answer("429 Too Many Requests", &[("retry-after", "7")], &body)]);
    let error = failure(&model(&server), &simple_request()).await;
    assert!(error.retryable());
    assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
    let date = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(20));
    let server = Server::always(vec![answer("429 Too Many Requests", &[("retry-after", &date)], &body)]);
    let wait = failure(&model(&server), &simple_request()).await.retry_after().unwrap();
    assert!(wait > Duration::from_secs(17) && wait <= Duration::from_secs(20), "{wait:?}");
    let quota_error =
        json!({ "error": { "message": "You exceeded your current quota.", "code": "insufficient_quota" } });
    let server = Server::always(vec![json("429 Too Many Requests", &quota_error)]);
    let error = failure(&model(&server), &simple_request()).await;
    assert!(!error.retryable());
    insta::assert_snapshot!(message(&error, &server), @"test/some/model at http://127.0.0.1:PORT/v1/chat/completions answered with status 429 (`insufficient_quota`): You exceeded your current quota. Check the account's credit");
}

#[tokio::test]
async fn m5_other_provider_errors_are_explained() {
    let cases = [
        (
            "400 Bad Request",
            json!({ "error": { "message": "too long", "code": "context_length_exceeded" } }),
            Cause::ContextLength,
        ),
        ("400 Bad Request", json!({ "error": { "message": "no", "code": "content_filter" } }), Cause::ContentFilter),
        ("402 Payment Required", json!({ "error": { "message": "Insufficient Balance" } }), Cause::Credit),
        (
            "422 Unprocessable Entity",
            json!({ "detail": [{ "loc": ["body", "x"], "msg": "field required" }] }),
            Cause::Request,
        ),
        ("503 Service Unavailable", json!({ "message": "loading model" }), Cause::Busy),
        ("529 Overloaded", json!({ "error": { "type": "overloaded_error", "message": "Overloaded" } }), Cause::Busy),
        ("500 Internal Server Error", json!(null), Cause::Busy),
    ];
    let mut messages = Vec::new();
    for (status, body, cause) in cases {
        let server = Server::always(vec![json(status, &body)]);
        let error = failure(&model(&server), &simple_request()).await;
        assert_eq!(provider_error(&error).cause, cause, "{status}");
        messages.push(message(&error, &server));
    }
    insta::assert_snapshot!(messages.join("\n"), @"
        test/some/model at http://127.0.0.1:PORT/v1/chat/completions answered with status 400 (`context_length_exceeded`): too long. Start a new session, or set the model's real `window` in the configuration so that the host respects it
        test/some/model at http://127.0.0.1:PORT/v1/chat/completions answered with status 400 (`content_filter`): no. Rephrase the prompt, or use another model
        test/some/model at http://127.0.0.1:PORT/v1/chat/completions answered with status 402: Insufficient Balance. Check the account's credit
        test/some/model at http://127.0.0.1:PORT/v1/chat/completions answered with status 422: field required. The provider does not accept this request: fix the problem that its message describes
        test/some/model at http://127.0.0.1:PORT/v1/chat/completions answered with status 503: loading model. Try again later, or use another model
        test/some/model at http://127.0.0.1:PORT/v1/chat/completions answered with status 529 (`overloaded_error`): Overloaded. Try again later, or use another model
        test/some/model at http://127.0.0.1:PORT/v1/chat/completions answered with status 500: Internal Server Error. Try again later, or use another model
        ");
}

/// The endless body of an error response is read only up to a maximum size and for a maximum time, and the error
/// message quotes only the beginning of the body.
#[tokio::test]
async fn m5_an_endless_error_is_truncated() {
    let head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\n\r\n".to_vec();
    let server = Server::always(vec![Step::Send(head), Step::Forever(b"word ".repeat(1000))]);
    let error = failure(&model(&server), &simple_request()).await;
    assert_eq!(provider_error(&error).message.chars().count(), 1001);
    server.closed().await;
}

/// Row 16: redirects are not followed, so that a key is not sent to another server.
#[tokio::test]
async fn row16_redirects_are_not_followed() {
    let other = Server::always(streamed("stolen"));
    let location = format!("http://me:secret@{}/v1/chat/completions?token={CANARY}", other.address);
    let server = Server::always(vec![answer("307 Temporary Redirect", &[("location", &location)], "")]);
    let error = failure(&model(&server), &simple_request()).await;
    assert!(!error.retryable());
    let message = message(&error, &server).replace(&other.address.port().to_string(), "OTHER");
    insta::assert_snapshot!(message, @"test/some/model at http://127.0.0.1:PORT/v1/chat/completions answered with status 307 and redirects to http://127.0.0.1:OTHER/v1/chat/completions. Redirects are not followed, so that no key is sent to another server: if that address is right, use it as the base URL");
    assert!(other.requests().is_empty());
}

/// Row 16: the key is redacted in every part of a response in which a server can send it back.
#[tokio::test]
async fn row16_a_key_in_a_response_is_never_shown() {
    let padding = "x".repeat(190);
    let pages = [
        answer("400 Bad Request", &[("x-request-id", CANARY)], format!("{padding}{CANARY}")),
        answer(
            "400 Bad Request",
            &[],
            json!({ "error": { "code": CANARY, "message": format!("{}{CANARY}", "x".repeat(990)) } }).to_string(),
        ),
        answer("400 Bad Request", &[], json!({ "error": CANARY.replace("ary", "a\u{0}ry") }).to_string()),
        answer("200 OK", &[("content-type", CANARY)], format!("<{padding}{CANARY}")),
        answer("200 OK", &[("content-encoding", CANARY)], "{}"),
        answer("302 Found", &[("location", &format!("/{CANARY}"))], ""),
        answer("200 OK", &[], format!("data: {CANARY}\n\n")),
        answer("200 OK", &[], format!("data: {padding}{CANARY}\n\n")),
        answer("200 OK", &[], format!("{{\"error\": {{\"message\": \"{CANARY}\", \"code\": \"{CANARY}\"}}}}")),
    ];
    for (index, page) in pages.into_iter().enumerate() {
        let error = failure(&model(&Server::always(vec![page])), &simple_request()).await;
        // If an error message is truncated inside the key, no part of the key may remain visible.
        assert!(!format!("{error} {error:?}").contains("sk-canary"), "{index}: {error:?}");
    }
    let document = json!({
        "id": CANARY,
        "model": format!("m {CANARY}"),
        "choices": [{ "index": 0, "finish_reason": "stop", "message": { "role": "assistant", "content": "hi" } }]
    });
    let raw = ask(&model(&Server::always(vec![json("200 OK", &document)])), &simple_request()).await.0.unwrap().raw;
    assert!(!raw.to_string().contains("sk-canary"), "{raw}");
    let providers = Providers::new(vec![config("http://127.0.0.1:1/v1")]);
    assert!(!format!("{providers:?} {:?}", config("http://127.0.0.1:1/v1")).contains("sk-canary"));
}

/// Row 16: a key in a reply is redacted, even if it is split between two deltas.
#[tokio::test]
async fn row16_a_key_in_a_reply_is_neither_streamed_nor_stored() {
    let (first_half, second_half) = CANARY.split_at(9);
    let pieces = [
        format!("Your key is {first_half}"),
        format!("{second_half}, and this is "),
        CANARY.to_owned(),
        ".".to_owned(),
    ];
    let mut steps = vec![stream_head()];
    steps.extend(pieces.iter().map(|piece| Step::Send(chunk(text_event(piece)))));
    let call = json!({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "a", "function":
        {"name": "tell", "arguments": json!({"key": CANARY}).to_string()}}]}, "finish_reason": "tool_calls"}]});
    steps.push(Step::Send(chunk(format!("data: {call}\n\ndata: [DONE]\n\n"))));
    steps.push(Step::Send(chunk("")));
    let (reply, deltas) = ask(&model(&Server::always(steps)), &simple_request()).await;
    let RawReply { reply, raw } = reply.unwrap();
    assert_eq!(reply.text, "Your key is (secret), and this is (secret).");
    assert_eq!(reply.calls[0].arguments, r#"{"key":"(secret)"}"#);
    let streamed_text: String =
        deltas.iter().filter_map(|delta| if let Delta::Text(text) = delta { Some(&**text) } else { None }).collect();
    assert_eq!(streamed_text, reply.text);
    assert!(!format!("{deltas:?}{reply:?}{raw}").contains("canary"));
}

/// Errors in the configuration are reported before a request is sent.
#[test]
fn m5_invalid_configurations_are_explained() {
    let problem = |config: ProviderConfig| {
        let error = Providers::new(vec![config]).model("test/m", Path::new("/")).err().unwrap().to_string();
        assert!(!error.contains("canary"), "{error}");
        error
    };
    let valid = config("http://127.0.0.1:1/v1");
    let header = |name: &str, value: &str| vec![(name.to_owned(), Secret::new(value))];
    let problems = [
        problem(config("127.0.0.1:8000/v1")),
        problem(config("localhost:8000")),
        problem(config("ftp://x.example")),
        problem(ProviderConfig { key: Some(Secret::new("sk-canary\nsecond line")), ..valid.clone() }),
        problem(ProviderConfig { headers: header("content length", "1"), ..valid.clone() }),
        problem(ProviderConfig { headers: header("Content-Length", "1"), ..valid.clone() }),
        problem(ProviderConfig { headers: header("x-key", "canary\u{0}end"), ..valid }),
    ];
    insta::assert_snapshot!(problems.join("\n"), @"
        the configuration of provider `test` is invalid: its base URL is not valid (relative URL without a base): write it like `https://api.openai.com/v1`
        the configuration of provider `test` is invalid: its base URL begins with `localhost:`, not `http://` or `https://`: write it like `https://api.openai.com/v1`
        the configuration of provider `test` is invalid: its base URL begins with `ftp:`, not `http://` or `https://`: write it like `https://api.openai.com/v1`
        the configuration of provider `test` is invalid: its key contains a character that is not allowed in a header, such as a line break: set `TEST_KEY`
        the configuration of provider `test` is invalid: the header `content length` cannot be set: remove it from `headers`
        the configuration of provider `test` is invalid: the header `Content-Length` cannot be set: remove it from `headers`
        the configuration of provider `test` is invalid: the header `x-key` contains a character that is not allowed in a header: correct it in `headers`
        ");
}
