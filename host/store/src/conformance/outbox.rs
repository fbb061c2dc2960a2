//! D6: effects outside of a session are stored with the commit that requests them, and are delivered once.

use super::{SessionWriter, TestStore, commit_of, message, text_parts};
use crate::{Commit, MemoryFilter, OutboxFilter, Store, StoreError, StoredOutboxItem};
use agent_core::approval::LastingGrant;
use agent_core::change::{Change, OutboxEffect, OutboxItem};
use agent_core::memory::{Memory, MemoryKind};
use agent_core::message::Digest;
use agent_core::outgoing_event::{EventAttributes, OutgoingEvent};
use agent_core::plugin::TraceContext;
use serde_json::json;
use std::sync::Arc;

/// Returns an outbox item that requests the delivery of a service event with nested data.
fn event_item(id: &str) -> OutboxItem {
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

fn grant_item(id: &str) -> OutboxItem {
    let (agent, tool, digest) = ("a".to_owned(), "files.write".to_owned(), Digest::from_sha256([1; 32]));
    let effect = OutboxEffect::Allow(LastingGrant { agent, tool, digest, arguments: None, scope: None });
    OutboxItem { id: id.to_owned(), effect }
}

fn memory_item(id: &str, text: &str) -> OutboxItem {
    let memory = Memory {
        user: "ann".to_owned(),
        kind: MemoryKind::Final,
        agent: "a".to_owned(),
        session: "s".to_owned(),
        turn: 1,
        text: text.to_owned(),
        project: None,
        written: None,
    };
    OutboxItem { id: id.to_owned(), effect: OutboxEffect::Remember { id: format!("s/{id}"), memory } }
}

fn outbox_commit(outbox: Vec<OutboxItem>) -> Commit {
    commit_of(Change { outbox, ..Change::default() })
}

async fn all_items(store: &Arc<dyn Store>) -> Vec<StoredOutboxItem> {
    store.outbox(None, OutboxFilter::All, 0, 100).await.expect("the outbox is read")
}

fn ids(items: &[StoredOutboxItem]) -> Vec<&str> {
    items.iter().map(|stored| stored.item.id.as_str()).collect()
}

pub(super) async fn commit_writes_outbox_items(test: TestStore) {
    let mut writer = SessionWriter::new(&test.store, "s").await;
    let effects = [event_item("call_1_1_1"), grant_item("allow"), memory_item("1/final", "a \"walrus\"\n")];
    writer.commit(outbox_commit(effects.to_vec())).await.unwrap();
    let stored = all_items(&test.store).await;
    let items: Vec<_> = stored.iter().map(|stored| stored.item.clone()).collect();
    assert_eq!(items, effects, "every effect is read back unchanged");
    assert!(stored.iter().all(|stored| stored.session == "s" && stored.delivered.is_none()), "{stored:?}");
    assert!(stored[0].created.ends_with('Z') && stored[0].number < stored[1].number, "{stored:?}");

    let gap = Change {
        messages: vec![message(7, text_parts("a gap"))],
        outbox: vec![event_item("lost")],
        ..Change::default()
    };
    writer.commit(commit_of(gap)).await.expect_err("the commit is refused");
    let empty_id = writer.commit(outbox_commit(vec![event_item("")])).await;
    assert!(matches!(empty_id, Err(StoreError::Invalid { .. })), "{empty_id:?}");
    assert_eq!(all_items(&test.store).await, stored, "a refused commit leaves the outbox unchanged");
}

pub(super) async fn item_id_is_written_once_per_session(test: TestStore) {
    let store = &test.store;
    let mut writer = SessionWriter::new(store, "s").await;
    writer.commit(outbox_commit(vec![event_item("a")])).await.unwrap();
    let first = all_items(store).await;
    writer.commit(outbox_commit(vec![grant_item("a"), event_item("b")])).await.unwrap();
    store.mark_delivered(first[0].number).await.unwrap();
    writer.commit(outbox_commit(vec![grant_item("a"), grant_item("a")])).await.unwrap();
    let mut other = SessionWriter::new(store, "other").await;
    other.commit(outbox_commit(vec![event_item("a")])).await.unwrap();
    let stored = all_items(store).await;
    assert_eq!(ids(&stored), ["a", "b", "a"], "ids are unique per session");
    assert_eq!(stored[0].item, event_item("a"), "a second item with the same id does not replace the first");
    assert!(stored[0].delivered.is_some(), "a delivered item stays delivered");
}

pub(super) async fn items_are_filtered_and_paged(test: TestStore) {
    let store = &test.store;
    let (mut one, mut two) = (SessionWriter::new(store, "one").await, SessionWriter::new(store, "two").await);
    one.commit(outbox_commit(vec![event_item("1"), event_item("2")])).await.unwrap();
    two.commit(outbox_commit(vec![event_item("3")])).await.unwrap();
    one.commit(outbox_commit(vec![event_item("4")])).await.unwrap();
    let numbers: Vec<u64> = all_items(store).await.iter().map(|stored| stored.number).collect();
    store.mark_delivered(numbers[1]).await.unwrap();

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
    let seen = test.second.map(|second| async move { all_items(&second).await.len() });
    if let Some(seen) = seen {
        assert_eq!(seen.await, 4, "a second instance sees the items");
    }
}

pub(super) async fn delivered_items_remain_until_the_session_is_deleted(test: TestStore) {
    let store = &test.store;
    let mut writer = SessionWriter::new(store, "s").await;
    writer.commit(outbox_commit(vec![event_item("a"), event_item("b")])).await.unwrap();
    let last = all_items(store).await[1].number;
    store.mark_delivered(last).await.unwrap();
    let delivered = all_items(store).await;
    store.mark_delivered(last).await.unwrap();
    assert_eq!(all_items(store).await, delivered, "the first delivery time is kept");
    writer.release().await;
    store.delete("s").await.unwrap();
    assert_eq!(all_items(store).await, []);
    store.mark_delivered(last).await.expect("a removed item can be marked as delivered without an error");
    let mut new_writer = SessionWriter::new(store, "s").await;
    new_writer.commit(outbox_commit(vec![event_item("a")])).await.unwrap();
    let stored = all_items(store).await;
    assert!(stored.len() == 1 && stored[0].number > last, "numbers are never reused: {stored:?}");
}

/// D4, D6: a memory is added together with the delivery of its item, once. A user can delete a memory, so the outbox keeps no
/// copy of the text of a delivered memory.
pub(super) async fn memory_is_added_when_its_item_is_delivered(test: TestStore) {
    let store = &test.store;
    let mut writer = SessionWriter::new(store, "s").await;
    let items = vec![memory_item("1/final", "a walrus"), memory_item("2/final", "a whale"), event_item("event")];
    writer.commit(outbox_commit(items)).await.unwrap();
    let stored = all_items(store).await;
    store.mark_delivered(stored[0].number).await.unwrap();
    assert_eq!(all_items(store).await, stored, "the item would be delivered without its memory");
    store.remember(&stored[0]).await.unwrap();
    let items: Vec<_> =
        all_items(store).await.into_iter().map(|stored| (stored.item, stored.delivered.is_some())).collect();
    let pending = |item| (item, false);
    let expected =
        [(memory_item("1/final", ""), true), pending(memory_item("2/final", "a whale")), pending(event_item("event"))];
    assert_eq!(items, expected);
    let memories = store.list("ann", "", 9).await.unwrap();
    assert_eq!(memories.len(), 1, "{memories:?}");
    assert_eq!((memories[0].id.as_str(), memories[0].memory.text.as_str()), ("s/1/final", "a walrus"));
    assert_eq!(memories[0].memory.written.as_ref(), Some(&stored[0].created));
    let found = store.search(&MemoryFilter::of_user("ann"), "walrus", 9).await.unwrap();
    assert_eq!(found.len(), 1);

    // Another process may deliver an item that this process has read before.
    assert!(store.forget("ann", "s/1/final").await.unwrap());
    store.remember(&stored[0]).await.unwrap();
    assert_eq!(store.list("ann", "", 9).await.unwrap(), [], "a delivered item adds nothing again");
    let refused = store.remember(&stored[2]).await;
    assert!(matches!(refused, Err(StoreError::Invalid { .. })), "{refused:?}");
}

/// D5: a memory of a turn that was undone, or of a deleted session, is not added, however late its item is delivered.
pub(super) async fn memory_of_an_undone_turn_is_not_added(test: TestStore) {
    let store = &test.store;
    let mut writer = SessionWriter::new(store, "s").await;
    writer.commit(outbox_commit(vec![memory_item("1/final", "a walrus")])).await.unwrap();
    let forget = |turn| OutboxItem { id: format!("undo/{turn}"), effect: OutboxEffect::Forget { turn } };
    writer.commit(outbox_commit(vec![forget(1)])).await.unwrap();
    // The memory of a later turn with the same number is kept.
    writer.commit(outbox_commit(vec![memory_item("1/again", "a whale")])).await.unwrap();
    writer.commit(outbox_commit(vec![forget(2)])).await.unwrap();
    let mut other = SessionWriter::new(store, "other").await;
    other.commit(outbox_commit(vec![forget(1)])).await.unwrap();
    let items = all_items(store).await;
    for item in items.iter().filter(|stored| matches!(stored.item.effect, OutboxEffect::Remember { .. })) {
        store.remember(item).await.unwrap();
    }
    let texts: Vec<_> = store.list("ann", "", 9).await.unwrap().into_iter().map(|stored| stored.memory.text).collect();
    assert_eq!(texts, ["a whale"]);
    let pending = store.outbox(Some("s"), OutboxFilter::Pending, 0, 9).await.unwrap();
    assert_eq!(ids(&pending), ["undo/1", "undo/2"], "both memories count as delivered");

    writer.commit(outbox_commit(vec![memory_item("3/final", "a seal")])).await.unwrap();
    let item = all_items(store).await.into_iter().find(|stored| stored.item.id == "3/final").expect("the item");
    writer.release().await;
    store.delete("s").await.unwrap();
    store.remember(&item).await.unwrap();
    assert_eq!(store.list("ann", "", 9).await.unwrap(), []);
}

/// I9: the store shows why an item has not been delivered yet, until it is delivered.
pub(super) async fn failed_deliveries_are_counted(test: TestStore) {
    let store = &test.store;
    let mut writer = SessionWriter::new(store, "s").await;
    writer.commit(outbox_commit(vec![event_item("a"), event_item("b")])).await.unwrap();
    let number = all_items(store).await[0].number;
    store.note_failed_delivery(number, "refused").await.unwrap();
    store.note_failed_delivery(number, "the server answered 503").await.unwrap();
    let failures = async || -> Vec<_> {
        let items = all_items(store).await.into_iter();
        items.map(|stored| (stored.failed_attempts, stored.problem)).collect()
    };
    let failed = (2, Some("the server answered 503".to_owned()));
    assert_eq!(failures().await, [failed.clone(), (0, None)]);
    store.mark_delivered(number).await.unwrap();
    store.note_failed_delivery(number, "too late").await.unwrap();
    store.note_failed_delivery(u64::MAX >> 1, "no such item").await.unwrap();
    assert_eq!(failures().await, [failed, (0, None)], "a delivered item does not change");
}
