//! Watchers of supervised sessions receive each event once, in order, across reconnects and processes (L30).

use super::{create, events, prompt, quick, supervisor, until, until_end};
use crate::support::{TestHost, script};
use agent_core::event::{Event, EventKind};
use agent_runtime::{AgentConfig, EventPosition, Host, SessionEvent, SessionRequest, Supervisor};
use agent_store::{Options, SessionLog, SqliteStore};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The text of a streamed reply, and the durable events, that a watcher has received.
#[derive(Default)]
struct Received {
    durable: Vec<Event>,
    text: String,
    is_over: bool,
}

impl Received {
    fn take(&mut self, event: SessionEvent) {
        match event {
            SessionEvent::Reply(reply) => self.text = reply.text,
            SessionEvent::Event(Event { kind: EventKind::StreamToken { text }, .. }) => self.text.push_str(&text),
            SessionEvent::Event(event) => {
                self.is_over |= matches!(event.kind, EventKind::LoopEnd { .. });
                if event.provisional.is_none() {
                    self.durable.push(event);
                }
            }
        }
    }
}

/// L30: a watcher that reconnects after each few events receives each durable event once, and the whole streamed text.
#[tokio::test(flavor = "multi_thread")]
async fn l30_reconnecting_watchers_lose_no_event() {
    let test_host = TestHost::new(&["probe"]).await;
    let words: Vec<String> = (0..40).map(|number| format!("word{number} ")).collect();
    let calls = json!([{"name": "probe.echo", "arguments": {"text": "a"}}]);
    let replies = [
        json!({"chunks": ["Let ", "me ", "see."], "delay_ms": 5, "calls": calls}),
        json!({"chunks": words, "delay_ms": 10}),
    ];
    let agent = test_host.agent(AgentConfig::new("clerk"), script(&replies)).await;
    let supervisor = supervisor(&test_host, &[&agent]);
    let session = create(&supervisor, "clerk", "Go.").await;
    let watcher = |events_per_connection: usize| {
        let (supervisor, session) = (supervisor.clone(), session.clone());
        async move {
            let (mut received, mut position) = (Received::default(), EventPosition::default());
            while !received.is_over {
                let mut events = supervisor.events(&session, position);
                for _ in 0..events_per_connection {
                    let event = tokio::time::timeout(super::PATIENCE, events.next()).await.expect("an event arrives");
                    received.take(event.expect("the events can be read"));
                    position = events.position();
                    if received.is_over {
                        break;
                    }
                }
                drop(events);
                tokio::time::sleep(Duration::from_millis(events_per_connection as u64 % 7)).await;
            }
            received
        }
    };
    let watchers: Vec<_> = [1, 2, 3, 5, 8, 1_000].map(|count| tokio::spawn(watcher(count))).into();
    for watcher in watchers {
        let received = watcher.await.expect("the watcher ends");
        let stored = test_host.store.events(&session, 0, 1_000).await.expect("the events are stored");
        let stored: Vec<Event> = stored.into_iter().map(|stored| stored.event).collect();
        assert_eq!(received.durable, stored);
        assert!(received.text.ends_with(&words.concat()), "{}", received.text);
    }
    supervisor.shutdown().await;
}

/// L30, row 32: a process watches a session that another process runs. The durable events arrive, and the watcher does not
/// need the lease.
#[tokio::test(flavor = "multi_thread")]
async fn row_32_a_session_of_another_process_is_watched() {
    let test_host = TestHost::new(&[]).await;
    let replies = [json!({"text": "One."}), json!({"text": "Two."})];
    let agent = test_host.agent(AgentConfig::new("clerk"), script(&replies)).await;
    let running = supervisor(&test_host, &[&agent]);
    // A second store with its own lock file behaves like another process.
    let store = SqliteStore::open(test_host.directory.path().join("agent-host.db"), Options::default());
    let host = Host::new(Arc::new(store.expect("the database opens")), test_host.sandbox.clone());
    let watching = Supervisor::start(host, BTreeMap::new(), quick());
    let session = create(&running, "clerk", "First?").await;
    let mut watched = events(&watching, &session);
    until_end(&mut watched).await;
    running.send(&session, SessionRequest::Prompt(prompt("Second?"))).await.expect("a turn begins");
    until(&mut watched, |kind| matches!(kind, EventKind::StreamComplete { text, .. } if text == "Two.")).await;
    running.shutdown().await;
    watching.shutdown().await;
}

/// L30: a session can be watched before it exists.
#[tokio::test(flavor = "multi_thread")]
async fn l30_a_watcher_waits_for_a_session_that_does_not_exist_yet() {
    let test_host = TestHost::new(&[]).await;
    let agent = test_host.agent(AgentConfig::new("clerk"), script(&[json!({"text": "One."})])).await;
    let supervisor = supervisor(&test_host, &[&agent]);
    let mut nothing = events(&supervisor, "clerk/none");
    let waited = tokio::time::timeout(Duration::from_millis(300), nothing.next()).await;
    assert!(waited.is_err(), "{waited:?}");
    supervisor.shutdown().await;
}
