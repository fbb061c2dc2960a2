//! Requests to sessions that are busy, or that another process has open (F2, I6).

use super::{create, events, prompt, quick, supervisor, until, until_closed, until_end};
use crate::support::{TestHost, script, text_reply};
use agent_core::cloud_event::CloudEvent;
use agent_core::event::EventKind;
use agent_runtime::{AgentConfig, LiveAgent, RequestProblem, SessionRequest, Supervisor, SupervisorOptions};
use agent_store::{
    MAX_SESSION_REQUESTS, OpenMode, OpenedSession, Options, SessionLog, SessionMeta, SessionRequests, SessionState,
    SqliteStore,
};
use futures::future::join_all;
use serde_json::json;
use std::time::Duration;

/// F2, I6: answers to unknown calls are answered while a model call runs. They are not kept until it ends, because they could fill
/// the memory meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn f2_i6_answers_to_unknown_calls_do_not_wait_for_a_model_call() {
    let test_host = TestHost::new(&[]).await;
    let slow = json!({"chunks": ["It ", "takes ", "long."], "delay_ms": 60_000});
    let agent = test_host.agent(AgentConfig::new("clerk"), script(&[slow])).await;
    let supervisor = supervisor(&test_host, &[&agent]);
    let session = create(&supervisor, "clerk", "Go.").await;
    until(&mut events(&supervisor, &session), |kind| matches!(kind, EventKind::ContextBudget { .. })).await;
    let event = |kind: &str, more: serde_json::Value| {
        let mut event = json!({"specversion": "1.0", "id": "1", "source": "/s", "type": kind, "parentid": "none"});
        event.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        SessionRequest::Respond(Box::new(CloudEvent::parse(event.to_string().as_bytes()).expect("an event")))
    };
    let decisions = json!({"subject": session, "data": {"decisions": [{"call": "c", "verdict": "granted"}]}});
    for (request, problem) in [
        (event("com.example.done", json!({})), RequestProblem::NotFound),
        (event("agent-host.approval.resolved", decisions), RequestProblem::NotFound),
        (event("agent-host.turn.finished", json!({})), RequestProblem::Invalid),
        (event("com.example.done", json!({"subject": "clerk/other"})), RequestProblem::Invalid),
    ] {
        let refused = supervisor.send(&session, request).await.expect_err("there is no such call");
        assert_eq!(refused.kind, problem, "{refused}");
    }
    supervisor.shutdown().await;
}

/// Opens a closed session with a second store, which behaves like another process.
async fn open_elsewhere(test_host: &TestHost, session: &str) -> (SqliteStore, OpenedSession) {
    let store = SqliteStore::open(test_host.directory.path().join("agent-host.db"), Options::default());
    let store = store.expect("the database opens");
    let opened = store.open(session, OpenMode::Existing, SessionMeta::default()).await.expect("the session opens");
    (store, opened)
}

/// F2: a request to a session of another process is removed from the store as soon as its sender no longer waits.
#[tokio::test(flavor = "multi_thread")]
async fn f2_an_abandoned_request_is_removed_from_the_store() {
    let test_host = TestHost::new(&[]).await;
    let agent = test_host.agent(AgentConfig::new("clerk"), script(&[text_reply("One.")])).await;
    let supervisor = supervisor(&test_host, &[&agent]);
    let session = create(&supervisor, "clerk", "Go.").await;
    until_end(&mut events(&supervisor, &session)).await;
    until_closed(&test_host, &session, SessionState::Idle).await;
    let (other, opened) = open_elsewhere(&test_host, &session).await;
    let sending = {
        let (supervisor, session) = (supervisor.clone(), session.clone());
        tokio::spawn(async move { supervisor.send(&session, SessionRequest::Prompt(prompt("More."))).await })
    };
    let pending = async || other.pending_requests(&["clerk".to_owned()], 10).await.expect("listed");
    let stored = async || {
        while pending().await.is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), stored()).await.expect("the request is stored");
    sending.abort();
    // Otherwise, the request would expire after 30 seconds.
    let removed = async {
        while !pending().await.is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), removed).await.expect("the request is removed");
    other.release(opened.lease).await.expect("released");
    supervisor.shutdown().await;
}

/// F2: more requests to a session of another process than may wait are refused with the reason.
#[tokio::test(flavor = "multi_thread")]
async fn f2_too_many_requests_to_a_session_are_refused() {
    let test_host = TestHost::new(&[]).await;
    let agent = test_host.agent(AgentConfig::new("clerk"), script(&[text_reply("One.")])).await;
    let options = SupervisorOptions { request_timeout: Duration::from_secs(5), ..quick() };
    let agents = [("clerk".to_owned(), LiveAgent::new(agent))].into();
    let supervisor = Supervisor::start(test_host.host(), agents, options);
    let session = create(&supervisor, "clerk", "Go.").await;
    until_end(&mut events(&supervisor, &session)).await;
    until_closed(&test_host, &session, SessionState::Idle).await;
    let (other, opened) = open_elsewhere(&test_host, &session).await;
    let count = usize::try_from(MAX_SESSION_REQUESTS).expect("a small number") + 4;
    let answers = join_all((0..count).map(|_| supervisor.send(&session, SessionRequest::Undo))).await;
    let refused = answers.into_iter().map(|answer| answer.expect_err("nobody handles it"));
    let (full, busy): (Vec<_>, Vec<_>) = refused.partition(|error| error.message.contains("16 requests to it"));
    assert_eq!((full.len(), busy.len()), (4, count - 4), "{full:?} {busy:?}");
    assert!(full.iter().chain(&busy).all(|error| error.kind == RequestProblem::Unavailable), "{full:?} {busy:?}");
    other.release(opened.lease).await.expect("released");
    supervisor.shutdown().await;
}
