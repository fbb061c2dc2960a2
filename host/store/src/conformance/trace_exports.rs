//! O1: how far sessions were exported, and which instance exports them.

use super::{SessionWriter, TestStore, commit_of, event};
use crate::{Commit, ExportPosition, SessionState, Status, StepRecord, Store, StoreError, StoredTurn};
use agent_core::change::Change;
use agent_core::event::{Event, EventKind};
use serde_json::json;
use std::sync::Arc;

fn agents() -> Vec<String> {
    vec!["tester".to_owned()]
}

/// Commits one event of a turn, together with a record of this kind.
async fn commit_event(session: &mut SessionWriter, turn: u32, kind: &str) {
    let subject = session.opened.lease.session.clone();
    let event = Event { turn, ..event(&subject, session.events + 1, EventKind::Resumed) };
    let status = Status { state: SessionState::Running, turn, ..Status::default() };
    let records = vec![StepRecord { turn, step: 0, kind: kind.to_owned(), body: json!({"n": session.events}) }];
    let change = Change { events: vec![event], ..Change::default() };
    session.commit(Commit { records, status, ..commit_of(change) }).await.expect("the commit succeeds");
}

async fn unexported(store: &Arc<dyn Store>) -> Vec<String> {
    store.unexported_sessions(&agents(), "", 10).await.expect("a list")
}

async fn claim(store: &Arc<dyn Store>, session: &str) -> Option<ExportPosition> {
    let claims = store.claim_trace_exports(&[session.to_owned()]).await.expect("a list");
    assert!(claims.len() <= 1 && claims.iter().all(|(claimed, _)| claimed == session), "{claims:?}");
    claims.first().map(|(_, position)| *position)
}

/// Stores a position, and returns whether this instance had claimed the session.
async fn set_position(store: &Arc<dyn Store>, session: &str, position: ExportPosition) -> bool {
    let lost = store.set_export_positions(&[(session.to_owned(), position)]).await.expect("a list");
    assert!(lost.is_empty() || lost == [session]);
    lost.is_empty()
}

async fn turn_after(store: &Arc<dyn Store>, position: ExportPosition) -> StoredTurn {
    store.turn_after("s/new", position).await.expect("a read").expect("a turn")
}

fn numbers(turn: &StoredTurn) -> (Vec<u64>, Vec<&str>) {
    let kinds = turn.records.iter().map(|record| record.record.kind.as_str());
    (turn.events.iter().map(|event| event.event.sequence).collect(), kinds.collect())
}

pub(super) async fn export_begins_with_new_events(test: TestStore) {
    let store = &test.store;
    let mut old = SessionWriter::new(store, "s/old").await;
    commit_event(&mut old, 1, "prompt").await;
    assert_eq!(unexported(store).await, ["s/old"]);
    store.begin_trace_export("tester").await.unwrap();
    assert_eq!(unexported(store).await, Vec::<String>::new(), "the stored events count as exported");
    let mut new = SessionWriter::new(store, "s/new").await;
    commit_event(&mut new, 1, "trace").await;
    commit_event(&mut old, 1, "prompt").await;
    store.begin_trace_export("tester").await.unwrap();
    assert_eq!(unexported(store).await, ["s/new", "s/old"], "the export has begun before");
    assert_eq!(store.unexported_sessions(&agents(), "s/new", 10).await.unwrap(), ["s/old"]);
    assert_eq!(store.unexported_sessions(&["other".to_owned()], "", 10).await.unwrap(), Vec::<String>::new());
    let position = claim(store, "s/old").await.expect("nobody else exports it");
    assert_eq!((position.event, position.turn_start), (1, 0), "the open turn began with event 1");
    store.skip_trace_export("s/new").await.unwrap();
    assert_eq!(unexported(store).await, ["s/old"]);
}

pub(super) async fn turns_are_read_after_a_position(test: TestStore) {
    let store = &test.store;
    let mut session = SessionWriter::new(store, "s/new").await;
    commit_event(&mut session, 1, "trace").await;
    commit_event(&mut session, 1, "prompt").await;
    commit_event(&mut session, 2, "trace").await;
    let first = turn_after(store, ExportPosition::default()).await;
    assert_eq!((first.turn, first.agent.as_str(), first.is_followed), (1, "tester", true));
    assert_eq!((first.user.as_deref(), numbers(&first)), (Some("somebody"), (vec![1, 2], vec!["trace", "prompt"])));
    let half = ExportPosition { event: 1, record: first.records[0].number, turn_start: 0 };
    assert_eq!(numbers(&turn_after(store, half).await), (vec![1, 2], vec!["trace", "prompt"]));
    let all = ExportPosition { event: 2, record: first.records[1].number, turn_start: 2 };
    let second = turn_after(store, all).await;
    assert_eq!((second.turn, numbers(&second), second.is_followed), (2, (vec![3], vec!["trace"]), false));
    let end = ExportPosition { event: 3, record: second.records[0].number, turn_start: 2 };
    assert_eq!(store.turn_after("s/new", end).await, Ok(None));
    let missing = StoreError::NoSession { session: "none".to_owned() };
    assert_eq!(store.turn_after("none", end).await, Err(missing));
}

pub(super) async fn one_instance_exports_a_session(test: TestStore) {
    let store = &test.store;
    let mut session = SessionWriter::new(store, "s/new").await;
    commit_event(&mut session, 1, "trace").await;
    let position = ExportPosition { event: 1, record: 1, turn_start: 1 };
    assert!(!set_position(store, "s/new", position).await, "the session is not claimed");
    assert_eq!(claim(store, "s/new").await, Some(ExportPosition::default()));
    assert!(set_position(store, "s/new", position).await);
    assert_eq!(claim(store, "s/new").await, Some(position), "a claim can be repeated");
    assert_eq!(claim(store, "none").await, None);
    commit_event(&mut session, 1, "prompt").await;
    let Some(second) = test.second else { return };
    assert_eq!(claim(&second, "s/new").await, None);
    assert!(!set_position(&second, "s/new", position).await);
    assert_eq!(unexported(&second).await, Vec::<String>::new(), "another instance exports the session");
    let mut later = SessionWriter::new(store, "s/newer").await;
    commit_event(&mut later, 1, "trace").await;
    later.release().await;
    let first = second.unexported_sessions(&agents(), "", 1).await;
    assert_eq!(first, Ok(vec!["s/newer".to_owned()]), "sessions of other instances do not fill the list");
    session.release().await;
    drop(test.store);
    assert_eq!(unexported(&second).await, ["s/new", "s/newer"], "the other instance was closed");
    assert_eq!(claim(&second, "s/new").await, Some(position));
}

pub(super) async fn several_sessions_are_exported_together(test: TestStore) {
    let store = &test.store;
    for session in ["s/a", "s/b", "s/c"] {
        let mut session = SessionWriter::new(store, session).await;
        commit_event(&mut session, 1, "trace").await;
        session.release().await;
    }
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let mut claims = store.claim_trace_exports(&names(&["s/b", "none", "s/a"])).await.unwrap();
    claims.sort_by(|(left, _), (right, _)| left.cmp(right));
    let start = ExportPosition::default();
    assert_eq!(claims, [("s/a".to_owned(), start), ("s/b".to_owned(), start)]);
    let position = |record| ExportPosition { event: 1, record, turn_start: 1 };
    let positions = ["s/c", "s/a", "none", "s/b"].map(|session| (session.to_owned(), position(1)));
    let lost = store.set_export_positions(&positions).await.unwrap();
    assert_eq!(lost, ["s/c", "none"], "the others are stored, although these two are not");
    assert_eq!(unexported(store).await, ["s/c"]);
    store.delete("s/a").await.unwrap();
    let lost = store.set_export_positions(&[("s/a".to_owned(), position(2)), ("s/b".to_owned(), position(2))]).await;
    assert_eq!(lost, Ok(names(&["s/a"])), "a deleted session does not prevent the others");
    assert_eq!(claim(store, "s/b").await, Some(position(2)));
    assert_eq!(store.claim_trace_exports(&[]).await, Ok(Vec::new()));
    assert_eq!(store.set_export_positions(&[]).await, Ok(Vec::new()));
}
