//! Any door for any session: requests to one process reach a session that another process has open, and workers hand their
//! sessions over (F1, F2).

use super::{Fleet, effects};
use crate::serve::client::{Client, encoded};
use crate::serve::process::ServeProcess;
use agent_store::{SessionFilter, SessionIndex, SessionRequests};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

fn agents() -> [super::TestAgent<'static>; 3] {
    [
        (
            "talker",
            "[plugins.probe.grants]\nwrite = [\".\"]\n",
            json!([
                {"calls": [{"name": "probe.idempotent", "arguments": {"path": "effects.txt", "ms": 3_000}}]},
                {"text": "First."},
                {"text": "Second."},
                {"text": "Third."},
            ]),
        ),
        (
            "payer",
            "[plugins.payer.grants]\nwrite = [\".\"]\n",
            json!([
                {"calls": [{"name": "payer.pay", "arguments": {"to": "ann", "amount": 3}}]},
                {"text": "Paid."},
            ]),
        ),
        (
            "slow",
            "[plugins.probe.grants]\nwrite = [\".\"]\n",
            json!([
                {"calls": [{"name": "probe.idempotent", "arguments": {"path": "effects.txt", "ms": 200}}]},
                {"chunks": ["It ", "goes ", "on ", "and ", "on."], "delay_ms": 1_000},
            ]),
        ),
    ]
}

async fn begin(client: &Client, agent: &str) -> String {
    let created = client.post("/api/sessions", json!({"agent": agent, "prompt": "Go."})).await;
    created.json(201)["session"].as_str().expect("an id").to_owned()
}

async fn shown(client: &Client, session: &str) -> Value {
    client.get(&format!("/api/sessions/{}", encoded(session))).await.json(200)
}

async fn until(client: &Client, session: &str, is_reached: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let found = shown(client, session).await;
        if is_reached(&found) {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "the state is not reached: {found}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn turn_is(number: u64) -> impl Fn(&Value) -> bool {
    move |session| session["state"] == "idle" && session["turns"] == number
}

/// F2: a prompt, an approval, an undo, a cancellation and a deletion at another server reach the session.
#[tokio::test(flavor = "multi_thread")]
async fn f2_any_server_takes_requests_for_any_session() {
    let Some(fleet) = Fleet::new(&agents(), 2) else { return };
    let (first, second) = (fleet.start("serve", 0), fleet.start("serve", 1));
    let (owner, other) = (first.client(), second.client());

    // The call of the first turn runs at the first server, so the prompt of the second server is queued there.
    let session = begin(&owner, "talker").await;
    let path = format!("/api/sessions/{}", encoded(&session));
    until(&other, &session, |session| session["state"] == "running").await;
    let begun = Instant::now();
    let queued = other.post(&format!("{path}/prompts"), json!({"prompt": "And then?"})).await;
    assert!(queued.status < 300, "{}", queued.body);
    assert!(begun.elapsed() < Duration::from_millis(2_500), "the prompt did not wait for the end of the turn");
    until(&other, &session, turn_is(2)).await;

    // The session is idle, but still open at the first server.
    let started = other.post(&format!("{path}/prompts"), json!({"prompt": "Once more."})).await;
    assert!(started.status < 300, "{}", started.body);
    until(&other, &session, turn_is(3)).await;
    let undone = other.post(&format!("{path}/undo"), json!({})).await;
    assert!(undone.status < 300, "{}", undone.body);
    assert_eq!(effects(fleet.folder.path()).len(), 1);

    let session = begin(&owner, "payer").await;
    let path = format!("/api/sessions/{}", encoded(&session));
    let waiting = until(&other, &session, |session| session["waits"][0]["cause"] == "approval").await;
    let decisions = json!({"decisions": [{"call": waiting["waits"][0]["call"], "verdict": "granted"}]});
    let approved = other.post(&format!("{path}/approvals"), decisions).await;
    assert!(approved.status < 300, "{}", approved.body);
    until(&other, &session, turn_is(1)).await;
    let deleted = other.delete(&path).await;
    assert!(deleted.status < 300, "{}", deleted.body);
    assert_eq!(owner.get(&path).await.status, 404);

    let session = begin(&owner, "slow").await;
    let path = format!("/api/sessions/{}", encoded(&session));
    until(&other, &session, |session| session["state"] == "running").await;
    assert_eq!(other.delete(&path).await.status, 409, "a session whose turn runs is not deleted");
    let cancelled = other.post(&format!("{path}/cancel"), json!({})).await;
    assert!(cancelled.status < 300, "{}", cancelled.body);
    assert_eq!(shown(&owner, &session).await["state"], "cancelled");
    drop(first);
    drop(second);
    let store = fleet.store().await;
    let left = store.pending_requests(&["talker".to_owned()], 10).await;
    assert_eq!(left, Ok(Vec::new()), "no request stays behind");
}

/// F1: a worker that is told to stop hands its open turns over within a second, and the health of a worker is shown.
#[tokio::test(flavor = "multi_thread")]
async fn f1_a_worker_hands_its_sessions_over() {
    let Some(fleet) = Fleet::new(&agents(), 2) else { return };
    let server = fleet.start("serve", 0);
    let session = begin(&server.client(), "slow").await;
    let worker = fleet.start("worker", 1);
    let health = worker.anonymous();
    assert_eq!(health.get("/health").await.json(200)["status"], "ok");
    assert_eq!(health.get("/ready").await.json(200)["status"], "ok");
    assert_eq!(health.get("/metrics").await.status, 401, "the metrics need a token");
    assert_eq!(health.get("/api/sessions").await.status, 404, "a worker has no API");
    until(&server.client(), &session, |session| session["state"] == "running").await;

    server.signal(Signal::TERM);
    let begun = Instant::now();
    assert!(server.wait(), "the server ends without an error");
    // The worker opens the session before another server starts.
    let store = fleet.store().await;
    let is_open = async || {
        let found = store.sessions(SessionFilter::default(), 1).await.expect("the session is listed");
        found[0].open_in.is_some()
    };
    while !is_open().await {
        assert!(begun.elapsed() < PATIENCE, "nobody continues the session: {:?}", worker.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let server: ServeProcess = fleet.start("serve", 0);
    let ended = until(&server.client(), &session, turn_is(1)).await;
    assert_eq!(ended["turns"], 1);
    let holders = worker.log().into_iter().filter(|line| line.contains("lost")).count();
    assert_eq!(holders, 0, "{:?}", worker.log());
    assert_eq!(effects(fleet.folder.path()).values().sum::<usize>(), 1, "the call ran once");
    worker.signal(Signal::TERM);
    assert!(worker.wait());
}
