//! Tests of embeddings (L25, M3, M5): requests on the wire, batches, and invalid responses.

use crate::client::{CANARY, config};
use crate::server::{Server, Step, answer, json as json_answer};
use agent_models::{Embedder, ModelError, Providers, RetryPolicy};
use serde_json::{Value, json};
use std::time::Duration;

fn embedder(server: &Server) -> Embedder {
    let embedder = Providers::new(vec![config(&server.base_url())]).embedder("test/some/embedder").unwrap();
    embedder.with_retry(RetryPolicy { attempts: 2, initial_wait: Duration::from_millis(1), ..RetryPolicy::default() })
}

fn texts(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("text {number}")).collect()
}

/// Returns a response with one vector for each number, in the order of the numbers.
fn vectors(numbers: &[usize]) -> Step {
    let data = numbers.iter().map(|number| json!({"object": "embedding", "index": number, "embedding": [number, 0.5]}));
    json_answer("200 OK", &json!({"object": "list", "data": data.collect::<Vec<_>>(), "model": "e"}))
}

/// L25: texts are sent in batches, and vectors are returned in the order of the texts, even if the server uses a
/// different order.
#[tokio::test]
async fn l25_vectors_have_the_order_of_the_texts() {
    let reversed: Vec<usize> = (0..64).rev().collect();
    let server = Server::start(vec![vec![vectors(&reversed)], vec![vectors(&[0])]]);
    let embedded = embedder(&server).embed(&texts(65)).await.unwrap();
    assert_eq!(embedded.len(), 65);
    assert_eq!((&embedded[0], &embedded[63], &embedded[64]), (&vec![0.0, 0.5], &vec![63.0, 0.5], &vec![0.0, 0.5]));
    let requests = server.requests();
    let bodies: Vec<Value> = requests.iter().map(|request| serde_json::from_slice(&request.body).unwrap()).collect();
    assert!(requests[0].line.starts_with("POST /v1/embeddings "), "{}", requests[0].line);
    assert_eq!(requests[0].header("authorization"), Some(format!("Bearer {CANARY}").as_str()));
    assert_eq!((&bodies[0]["model"], bodies[0]["input"].as_array().unwrap().len()), (&json!("some/embedder"), 64));
    assert_eq!(bodies[1], json!({"model": "some/embedder", "input": ["text 64"], "encoding_format": "float"}));
    assert!(embedder(&server).embed(&[]).await.unwrap().is_empty());
    assert_eq!(server.requests().len(), 2, "no request is sent for an empty list of texts");
}

/// L25: a long text is truncated at a character boundary.
#[tokio::test]
async fn l25_long_texts_are_truncated() {
    let server = Server::always(vec![vectors(&[0])]);
    embedder(&server).embed(&["ä".repeat(9_000)]).await.unwrap();
    let body: Value = serde_json::from_slice(&server.requests()[0].body).unwrap();
    assert_eq!(body["input"][0].as_str().unwrap().len(), 8 * 1024);
}

/// M3, M5: a request is retried if the server is busy. If the server stays busy, the error contains the model, the
/// address and the server's message.
#[tokio::test]
async fn m3_requests_to_a_busy_server_are_retried() {
    let busy = json_answer("503 Service Unavailable", &json!({"error": {"message": "busy"}}));
    let server = Server::start(vec![vec![busy.clone()], vec![vectors(&[0])]]);
    assert_eq!(embedder(&server).embed(&texts(1)).await.unwrap(), [[0.0, 0.5]]);
    assert_eq!(server.requests().len(), 2);
    let server = Server::always(vec![busy]);
    let error = embedder(&server).embed(&texts(1)).await.unwrap_err().to_string();
    assert!(
        error.contains("test/some/embedder") && error.contains("/v1/embeddings") && error.contains("busy"),
        "{error}"
    );
    assert_eq!(server.requests().len(), 2);
}

/// L25: anything other than a complete list of vectors is an error.
#[tokio::test]
async fn l25_invalid_responses_are_errors() {
    let bodies = [
        json!({"data": []}),
        json!({"data": [{"index": 0, "embedding": []}]}),
        json!({"data": [{"index": 0, "embedding": [1.0]}, {"index": 0, "embedding": [1.0]}]}),
        json!({"data": [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [1.0, 2.0]}]}),
        json!({"data": [{"index": 0, "embedding": "AAAA"}, {"index": 1, "embedding": "AAAA"}]}),
        json!("hello"),
    ];
    for body in bodies {
        let server = Server::always(vec![json_answer("200 OK", &body)]);
        let error = embedder(&server).embed(&texts(2)).await.expect_err(&body.to_string());
        assert!(matches!(error, ModelError::InvalidReply { .. }), "{body}: {error}");
    }
    let server = Server::always(vec![answer("200 OK", &[], " ".repeat(33 * 1024 * 1024))]);
    let error = embedder(&server).embed(&texts(1)).await.unwrap_err().to_string();
    assert!(error.contains("more than"), "{error}");
}

#[test]
fn only_configured_providers_have_embeddings() {
    for name in ["offline", "scripted:a.json", "nobody/e", "test"] {
        assert!(Providers::new(vec![config("http://127.0.0.1:1/v1")]).embedder(name).is_err(), "{name}");
    }
}
