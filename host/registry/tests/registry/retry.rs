//! P11: requests are retried a few times if a server is busy, fails or interrupts the connection, and each retry is
//! reported.

use crate::registry::{FailedUpload, TestRegistry};
use crate::{TestClient, component};
use agent_registry::{Credentials, PlainHttp, Registry, RetryNotice};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Returns a client, and the list in which the client's listener records all retry notices.
fn listening_client() -> (TestClient, Arc<Mutex<Vec<RetryNotice>>>) {
    let notices = Arc::<Mutex<Vec<RetryNotice>>>::default();
    let recorded = Arc::clone(&notices);
    let client = Registry::new(Credentials::default(), PlainHttp::LoopbackOnly).expect("the client is created");
    let client = client.with_retry_listener(Arc::new(move |notice: &RetryNotice| {
        recorded.lock().expect("the lock is not poisoned").push(notice.clone())
    }));
    (TestClient { registry: client, ..TestClient::new() }, notices)
}

/// If the server requests a delay, the client waits for at least this time. If the server requests no delay, each delay
/// is longer than the previous delay.
#[tokio::test]
async fn requests_to_busy_servers_are_retried() {
    let (registry, (client, notices)) = (TestRegistry::start(), listening_client());
    let reference = format!("{}/team/calc:1.0.0", registry.host());
    let bytes = component(1000);
    // The first request of a push is a GET request. The POST request that starts an upload is retried only if the
    // server did not process it.
    registry.set(|faults| faults.refuse = vec![(503, ""), (429, "1"), (502, "0")]);
    client.push(&reference, &bytes).await.expect("the push succeeds");
    let waits: Vec<_> =
        notices.lock().expect("the lock is not poisoned").drain(..).map(|notice| (notice.wait, notice.next)).collect();
    let milliseconds = Duration::from_millis;
    assert_eq!(waits, [(milliseconds(300), (2, 4)), (milliseconds(1000), (3, 4)), (milliseconds(2700), (4, 4))]);

    registry.set(|faults| faults.refuse = vec![(500, "")]);
    assert_eq!(client.fetch(&reference).await.expect("the fetch succeeds").bytes, bytes);
    let notice = notices.lock().expect("the lock is not poisoned").remove(0);
    assert!(notice.place == reference && notice.reason.contains("500"), "{notice:?}");
}

/// The number of retries is limited. A request is not retried if the server requests a long delay, or if a retry could
/// not succeed.
#[tokio::test]
async fn retries_are_limited() {
    let (registry, (client, notices)) = (TestRegistry::start(), listening_client());
    let reference = format!("{}/team/calc:1.0.0", registry.host());
    client.push(&reference, &component(1000)).await.expect("the push succeeds");
    registry.set(|faults| faults.refuse = vec![(503, ""); 4]);
    let error = client.fetch(&reference).await.expect_err("all four attempts fail").to_string();
    assert!(error.contains("503") && error.contains("not now"), "{error}");
    assert_eq!(notices.lock().expect("the lock is not poisoned").drain(..).count(), 3);
    registry.set(|faults| faults.refuse = vec![(429, "3600")]);
    let error = client.fetch(&reference).await.expect_err("the delay is too long").to_string();
    assert!(error.contains("it asks to retry after 3600 s"), "{error}");
    registry.set(|faults| faults.refuse = vec![(400, "1")]);
    client.fetch(&reference).await.expect_err("a bad request is not retried");
    client.fetch("127.0.0.1:1/team/calc:1").await.expect_err("there is no server");
    assert!(notices.lock().expect("the lock is not poisoned").is_empty());
}

/// If the result of an upload is unknown, the client starts a new upload session, unless all bytes have arrived.
#[tokio::test]
async fn failed_uploads_start_again() {
    let (registry, (client, notices)) = (TestRegistry::start(), listening_client());
    let reference = format!("{}/team/calc:1.0.0", registry.host());
    let bytes = component(1000);
    registry.set(|faults| faults.fail_uploads = vec![(502, FailedUpload::Lost), (500, FailedUpload::Stored)]);
    client.push(&reference, &bytes).await.expect("the push succeeds");
    let reasons: Vec<_> =
        notices.lock().expect("the lock is not poisoned").drain(..).map(|notice| notice.reason).collect();
    assert_eq!(reasons, ["the server answered 502 Bad Gateway", "the server answered 500 Internal Server Error"]);
    let requests = registry.requests();
    let (started, sent): (Vec<_>, Vec<_>) = requests
        .iter()
        .filter(|request| request.contains("/blobs/uploads/"))
        .partition(|request| request.starts_with("POST"));
    // Three uploads are started: two of the component and one of the configuration. The server stores the
    // second upload of the component, although it answers with an error.
    assert_eq!((started.len(), sent.len()), (3, 3), "{requests:?}");
    assert_eq!(client.fetch(&reference).await.expect("the fetch succeeds").bytes, bytes);

    let other = component(2000);
    registry.set(|faults| faults.fail_uploads = vec![(504, FailedUpload::Lost); 4]);
    let error =
        client.push(&reference.replace("calc", "other"), &other).await.expect_err("all four attempts fail").to_string();
    assert!(error.contains("504"), "{error}");
    assert_eq!(notices.lock().expect("the lock is not poisoned").drain(..).count(), 3);
    registry.set(|faults| faults.fail_uploads = vec![(400, FailedUpload::Lost)]);
    client.push(&reference.replace("calc", "other"), &other).await.expect_err("a bad request is not retried");
    assert!(notices.lock().expect("the lock is not poisoned").is_empty());
}

/// A server may specify a date until which it is busy.
#[tokio::test]
async fn retry_after_may_be_a_date() {
    let (registry, (client, notices)) = (TestRegistry::start(), listening_client());
    let reference = format!("{}/team/calc:1.0.0", registry.host());
    registry.set(|faults| faults.refuse = vec![(503, "Fri, 20 Nov 2099 12:00:00 GMT")]);
    let error = client.fetch(&reference).await.expect_err("the delay is too long").to_string();
    assert!(error.contains("it asks to retry after "), "{error}");
    registry.set(|faults| faults.refuse = vec![(503, "Fri, 20 Nov 2009 12:00:00 GMT")]);
    client.fetch(&reference).await.expect_err("the plugin does not exist");
    let waits: Vec<_> = notices.lock().expect("the lock is not poisoned").drain(..).map(|notice| notice.wait).collect();
    assert_eq!(waits, [Duration::from_millis(300)]);
}

/// A small response that is interrupted is requested again.
#[tokio::test]
async fn interrupted_responses_are_requested_again() {
    let (registry, (client, notices)) = (TestRegistry::start(), listening_client());
    let reference = format!("{}/team/calc:1.0.0", registry.host());
    let bytes = component(1000);
    client.push(&reference, &bytes).await.expect("the push succeeds");
    registry.set(|faults| faults.cut_manifests = 2);
    assert_eq!(client.fetch(&reference).await.expect("the fetch succeeds").bytes, bytes);
    assert_eq!(notices.lock().expect("the lock is not poisoned").drain(..).count(), 2);
    registry.set(|faults| faults.cut_manifests = 4);
    let error = client.fetch(&reference).await.expect_err("all four attempts are interrupted");
    assert!(error.is_offline() && error.to_string().contains("the connection was interrupted"), "{error}");
}
