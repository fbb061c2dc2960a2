//! D6: deeds outside a session are stored with the commit that asks for them, and done once.

use super::{Place, Writing, commit_of, message, text};
use crate::{Commit, OutboxFilter, Store, StoreError, StoredOutboxItem};
use agent_core::approval::LastingGrant;
use agent_core::change::{Change, OutboxEffect, OutboxItem};
use agent_core::memory::{Memory, MemoryKind};
use agent_core::message::Digest;
use agent_core::outgoing_event::{EventAttributes, OutgoingEvent};
use agent_core::plugin::TraceContext;
use serde_json::json;
use std::sync::Arc;

/// The request of a service, with data that is not flat.
fn item(id: &str) -> OutboxItem {
    let attributes = EventAttributes {
        id: id.to_owned(),
        source: "agent-host/a".to_owned(),
        subject: "s".to_owned(),
        time: None,
        domain: Some("shop".to_owned()),
        trace: TraceContext { traceparent: "00-a-b-01".to_owned(), tracestate: None },
    };
    let data = json!({"lines": [{"price": 0.1}, null], "kind": "body"});
    let event = OutgoingEvent::to_service(&"order.place".parse().expect("a type"), attributes, data);
    OutboxItem { id: id.to_owned(), effect: OutboxEffect::Event(event) }
}

fn grant(id: &str) -> OutboxItem {
    let (agent, tool, digest) = ("a".to_owned(), "files.write".to_owned(), Digest::from_sha256([1; 32]));
    let effect = OutboxEffect::Allow(LastingGrant { agent, tool, digest, arguments: None, scope: None });
    OutboxItem { id: id.to_owned(), effect }
}

fn remember(id: &str, text: &str) -> OutboxItem {
    let memory = Memory {
        user: "ann".to_owned(),
        kind: MemoryKind::Final,
        agent: "a".to_owned(),
        session: "s".to_owned(),
        turn: 1,
        text: text.to_owned(),
        written: None,
    };
    OutboxItem { id: id.to_owned(), effect: OutboxEffect::Remember { id: format!("s/{id}"), memory } }
}

fn with(outbox: Vec<OutboxItem>) -> Commit {
    commit_of(Change { outbox, ..Change::default() })
}

async fn all(store: &Arc<dyn Store>) -> Vec<StoredOutboxItem> {
    store.outbox(None, OutboxFilter::All, 0, 100).await.expect("the outbox is read")
}

fn ids(items: &[StoredOutboxItem]) -> Vec<&str> {
    items.iter().map(|stored| stored.item.id.as_str()).collect()
}

pub(super) async fn items_are_written_with_their_commit(place: Place) {
    let mut writing = Writing::new(&place.store, "s").await;
    let effects = [item("call_1_1_1"), grant("allow"), remember("1/final", "a \"walrus\"\n")];
    writing.commit(with(effects.to_vec())).await.unwrap();
    let stored = all(&place.store).await;
    let items: Vec<_> = stored.iter().map(|stored| stored.item.clone()).collect();
    assert_eq!(items, effects, "every effect comes back as it was");
    assert!(stored.iter().all(|stored| stored.session == "s" && stored.delivered.is_none()), "{stored:?}");
    assert!(stored[0].created.ends_with('Z') && stored[0].number < stored[1].number, "{stored:?}");

    let gap = Change { messages: vec![message(7, text("a gap"))], outbox: vec![item("lost")], ..Change::default() };
    writing.commit(commit_of(gap)).await.expect_err("the commit is refused");
    let nameless = writing.commit(with(vec![item("")])).await;
    assert!(matches!(nameless, Err(StoreError::Invalid { .. })), "{nameless:?}");
    assert_eq!(all(&place.store).await, stored, "nothing of a refused commit is in the outbox");
}

pub(super) async fn an_item_is_written_once_a_session(place: Place) {
    let store = &place.store;
    let mut writing = Writing::new(store, "s").await;
    writing.commit(with(vec![item("a")])).await.unwrap();
    let first = all(store).await;
    writing.commit(with(vec![grant("a"), item("b")])).await.unwrap();
    store.delivered(first[0].number).await.unwrap();
    writing.commit(with(vec![grant("a"), grant("a")])).await.unwrap();
    let mut other = Writing::new(store, "other").await;
    other.commit(with(vec![item("a")])).await.unwrap();
    let stored = all(store).await;
    assert_eq!(ids(&stored), ["a", "b", "a"], "an id is a session's own");
    assert_eq!(stored[0].item, item("a"), "the first one stands");
    assert!(stored[0].delivered.is_some(), "what is done is not to be done again");
}

pub(super) async fn items_by_session_state_and_page(place: Place) {
    let store = &place.store;
    let (mut one, mut two) = (Writing::new(store, "one").await, Writing::new(store, "two").await);
    one.commit(with(vec![item("1"), item("2")])).await.unwrap();
    two.commit(with(vec![item("3")])).await.unwrap();
    one.commit(with(vec![item("4")])).await.unwrap();
    let numbers: Vec<u64> = all(store).await.iter().map(|stored| stored.number).collect();
    store.delivered(numbers[1]).await.unwrap();

    let found = async |session, which, after, limit| -> Vec<String> {
        let found = store.outbox(session, which, after, limit).await.unwrap();
        found.into_iter().map(|stored| stored.item.id).collect()
    };
    use OutboxFilter::{All, Pending};
    assert_eq!(found(None, All, 0, 100).await, ["1", "2", "3", "4"]);
    assert_eq!(found(None, Pending, 0, 100).await, ["1", "3", "4"]);
    assert_eq!(found(None, Pending, numbers[0], 1).await, ["3"]);
    assert_eq!(found(Some("one"), All, 0, 100).await, ["1", "2", "4"]);
    assert_eq!(found(Some("one"), Pending, numbers[0], 100).await, ["4"]);
    let missing = store.outbox(Some("none"), All, 0, 1).await;
    assert_eq!(missing, Err(StoreError::NoSession { session: "none".to_owned() }));
    let seen = place.another.map(|another| async move { all(&another).await.len() });
    if let Some(seen) = seen {
        assert_eq!(seen.await, 4, "another process finds them, too");
    }
}

pub(super) async fn delivered_items_stay_and_a_deleted_sessions_go(place: Place) {
    let store = &place.store;
    let mut writing = Writing::new(store, "s").await;
    writing.commit(with(vec![item("a"), item("b")])).await.unwrap();
    let last = all(store).await[1].number;
    store.delivered(last).await.unwrap();
    let delivered = all(store).await;
    store.delivered(last).await.unwrap();
    assert_eq!(all(store).await, delivered, "the first time stands");
    writing.done().await;
    store.delete("s").await.unwrap();
    assert_eq!(all(store).await, []);
    store.delivered(last).await.expect("what is gone needs nothing");
    let mut again = Writing::new(store, "s").await;
    again.commit(with(vec![item("a")])).await.unwrap();
    let stored = all(store).await;
    assert!(stored.len() == 1 && stored[0].number > last, "a number is never given twice: {stored:?}");
}

/// D4: what was remembered is forgotten where it is remembered, and lives on nowhere else.
pub(super) async fn a_delivered_memory_leaves_no_text(place: Place) {
    let store = &place.store;
    let mut writing = Writing::new(store, "s").await;
    writing.commit(with(vec![remember("1/final", "a walrus"), remember("2/final", "a whale")])).await.unwrap();
    store.delivered(all(store).await[0].number).await.unwrap();
    let items: Vec<_> = all(store).await.into_iter().map(|stored| stored.item).collect();
    assert_eq!(items, [remember("1/final", ""), remember("2/final", "a whale")]);
}
