//! D2, D6: commits are applied in order, and each commit is stored durably and completely, or not at all.

use super::{
    SessionWriter, TestStore, call, call_message, commit_of, event, finished_change, message, meta, result_message,
    text_parts,
};
use crate::{
    CallFilter, Commit, MessageRange, OpenMode, RecordRange, SessionState, Status, StepRecord, StoreError, StoredView,
    ViewPiece,
};
use agent_core::change::{CallChange, Change, HiddenMessage, HideReason};
use agent_core::event::{EndReason, EventKind};
use agent_core::message::{Part, Role, StoredMessage};
use serde_json::json;

fn full_commit(session: &str) -> Commit {
    let call = call("call-1", 1);
    let change = Change {
        messages: vec![message(1, text_parts("question")), call_message(2, &call), result_message(3, "call-1")],
        hidden: vec![HiddenMessage { id: 1, seen_count: 4, why: HideReason::Superseded }],
        calls: vec![CallChange::Requested(call), finished_change("call-1", "two lines")],
        events: vec![
            event(session, 1, EventKind::LoopIteration { step: 1, last: false }),
            event(session, 2, EventKind::LoopEnd { reason: EndReason::Answered, cost: None }),
        ],
        ..Change::default()
    };
    let body = json!({"prompt": "p", "sections": ["a"]});
    let records = vec![StepRecord { turn: 1, step: 1, kind: "prompt".to_owned(), body }];
    let status = Status { state: SessionState::Idle, turn: 1, title: Some("question".to_owned()), ..Status::default() };
    let (snapshot, texts) = (b"{\"state\":\"x\"}".to_vec(), vec!["section".to_owned()]);
    Commit { snapshot, view: StoredView::InSnapshot, change, records, texts, status, charge: None, answer: None }
}

pub(super) async fn commit_stores_all_parts(test: TestStore) {
    let store = &test.store;
    let mut writer = SessionWriter::new(store, "s").await;
    assert_eq!((writer.opened.revision, &writer.opened.snapshot), (0, &None));
    let commit = full_commit("s");
    assert_eq!(writer.commit(commit.clone()).await, Ok(1));
    writer.release().await;

    let reader = test.second.as_ref().unwrap_or(store);
    let opened = reader.open("s", OpenMode::Existing, meta("other")).await.unwrap();
    assert_eq!(opened.snapshot, Some(commit.snapshot));
    assert_eq!((opened.revision, opened.last_message, opened.last_event), (1, 3, 2));
    assert_eq!(opened.meta, meta("tester"), "a session keeps the metadata it was created with");
    let messages = reader.messages("s", MessageRange::After { id: 0, limit: 10 }).await.unwrap();
    let ids: Vec<_> = messages.iter().map(|message| (message.id, message.role)).collect();
    assert_eq!(ids, [(1, Role::User), (2, Role::Assistant), (3, Role::Tool)]);
    let first = StoredMessage { id: 1, turn: 1, role: Role::User, parts: text_parts("question"), tokens: 7 };
    assert_eq!(messages[0], first);
    assert_eq!(reader.hidden("s", 0, 10).await.unwrap(), commit.change.hidden);
    let events = reader.events("s", 0, 10).await.unwrap();
    assert!(events.iter().map(|timed| &timed.event).eq(&commit.change.events), "{events:?}");
    assert!(events.iter().all(|timed| timed.time.ends_with('Z') && timed.time.contains('T')), "{events:?}");
    let records = reader.records("s", RecordRange::Turn(1)).await.unwrap();
    assert!(records.iter().map(|stored| &stored.record).eq(&commit.records), "{records:?}");
    assert_eq!(reader.text("s", &crate::digest_of(b"section")).await.unwrap(), "section");
    assert_eq!(reader.calls("s", CallFilter::Turn(1)).await.unwrap().len(), 1);
}

/// Opening a session joins the pieces of the session's view into one array. A commit writes only the pieces that
/// it changes.
pub(super) async fn commit_stores_a_view_in_pieces(test: TestStore) {
    let store = &test.store;
    let mut writer = SessionWriter::new(store, "s").await;
    let piece = |number, items: &str| ViewPiece { number, items: items.as_bytes().to_vec() };
    let commit = |snapshot: &str, view| Commit { snapshot: snapshot.as_bytes().to_vec(), view, ..Commit::default() };
    let steps = [
        (commit("{}", StoredView::Whole(vec![])), "{}"),
        (commit("{}", StoredView::Whole(vec![piece(10, "3"), piece(9, "1,2")])), r#"{"view":[1,2,3]}"#),
        (
            commit(r#"{"a":1}"#, StoredView::Changed(vec![piece(10, "3,4"), piece(11, "5")])),
            r#"{"a":1,"view":[1,2,3,4,5]}"#,
        ),
        (commit(r#"{"a":2}"#, StoredView::Changed(vec![piece(9, "")])), r#"{"a":2,"view":[3,4,5]}"#),
        (commit(r#"{"a":3}"#, StoredView::Whole(vec![piece(7, "\"x\"")])), r#"{"a":3,"view":["x"]}"#),
        (commit(r#"{"view":[8]}"#, StoredView::InSnapshot), r#"{"view":[8]}"#),
    ];
    for (commit, expected) in steps {
        writer.commit(commit).await.unwrap();
        writer.release().await;
        writer = SessionWriter::new(store, "s").await;
        let snapshot = String::from_utf8(writer.opened.snapshot.clone().unwrap()).unwrap();
        assert_eq!(snapshot, expected);
    }
}

pub(super) async fn snapshot_is_read_without_a_lease(test: TestStore) {
    let store = &test.store;
    let missing = store.snapshot("s").await;
    assert_eq!(missing, Err(StoreError::NoSession { session: "s".to_owned() }));
    let opened = store.open("s", OpenMode::CreateNew, meta("a")).await.unwrap();
    assert_eq!(store.snapshot("s").await, Ok(None));
    let commit = Commit { snapshot: b"{\"turn\":1}".to_vec(), ..Commit::default() };
    store.commit(&opened.lease, 0, commit).await.unwrap();
    assert_eq!(store.snapshot("s").await, Ok(Some(b"{\"turn\":1}".to_vec())));
}

pub(super) async fn refused_commit_stores_nothing(test: TestStore) {
    let mut writer = SessionWriter::new(&test.store, "s").await;
    writer.append_texts(&["before"]).await;
    // Everything in this commit is valid except the number of its last event, which leaves a gap after the
    // previous number.
    let mut commit = full_commit("s");
    commit.change.messages = vec![message(2, text_parts("never"))];
    commit.change.hidden = vec![HiddenMessage { id: 1, seen_count: 1, why: HideReason::Superseded }];
    commit.change.events[1].sequence = 3;
    let refused = writer.commit(commit).await;
    assert!(matches!(refused, Err(StoreError::Invalid { .. })), "{refused:?}");

    let store = &test.store;
    assert_eq!(store.messages("s", MessageRange::After { id: 1, limit: 10 }).await.unwrap(), []);
    assert_eq!(store.hidden("s", 0, 10).await.unwrap(), []);
    assert_eq!(store.calls("s", CallFilter::Turn(1)).await.unwrap(), []);
    assert_eq!(store.events("s", 0, 10).await.unwrap(), []);
    assert_eq!(store.records("s", RecordRange::Turn(1)).await.unwrap(), []);
    assert!(store.text("s", &crate::digest_of(b"section")).await.is_err());
    assert_eq!(store.search_messages("never", 10).await.unwrap(), []);
    writer.append_texts(&["the next message"]).await;
    assert_eq!(writer.revision, 2);
}

pub(super) async fn commit_requires_the_current_revision(test: TestStore) {
    let mut writer = SessionWriter::new(&test.store, "s").await;
    writer.append_texts(&["one"]).await;
    for wrong in [0, 2, u64::MAX] {
        let refused = test.store.commit(&writer.opened.lease, wrong, Commit::default()).await;
        assert_eq!(refused, Err(StoreError::Conflict { session: "s".to_owned(), expected: wrong, found: 1 }));
    }
    assert_eq!(writer.commit(Commit::default()).await, Ok(2));
}

pub(super) async fn commit_refuses_gaps_in_numbers(test: TestStore) {
    let mut writer = SessionWriter::new(&test.store, "s").await;
    writer.append_texts(&["one", "two"]).await;
    for ids in [vec![2], vec![4], vec![3, 5], vec![3, 3], vec![0]] {
        let messages = ids.iter().map(|id| message(*id, text_parts("x"))).collect();
        let refused = writer.commit(commit_of(Change { messages, ..Change::default() })).await;
        assert!(matches!(refused, Err(StoreError::Invalid { .. })), "messages {ids:?}: {refused:?}");
    }
    for sequences in [vec![0], vec![2], vec![1, 3], vec![1, 1]] {
        let events = sequences.iter().map(|sequence| event("s", *sequence, EventKind::Resumed)).collect();
        let refused = writer.commit(commit_of(Change { events, ..Change::default() })).await;
        assert!(matches!(refused, Err(StoreError::Invalid { .. })), "events {sequences:?}: {refused:?}");
    }
    for id in [0, 3] {
        let hidden = vec![HiddenMessage { id, seen_count: 0, why: HideReason::Superseded }];
        let refused = writer.commit(commit_of(Change { hidden, ..Change::default() })).await;
        assert_eq!(refused, Err(StoreError::NoMessage { session: "s".to_owned(), id }));
    }
    writer.append_texts(&["three"]).await;
    assert_eq!(writer.revision, 2);
}

pub(super) async fn commit_refuses_provisional_events(test: TestStore) {
    let mut writer = SessionWriter::new(&test.store, "s").await;
    let mut provisional_event = event("s", 1, EventKind::Resumed);
    provisional_event.provisional = Some(1);
    let other_session = event("other", 1, EventKind::Resumed);
    let token_event = event("s", 1, EventKind::StreamToken { text: "to".to_owned() });
    for event in [provisional_event, other_session, token_event, event("s", 1, EventKind::ThinkingStart)] {
        let change = Change { events: vec![event.clone()], ..Change::default() };
        let refused = writer.commit(commit_of(change)).await;
        assert!(matches!(refused, Err(StoreError::Invalid { .. })), "{event:?}: {refused:?}");
    }
    assert_eq!(test.store.events("s", 0, 10).await.unwrap(), []);
}

pub(super) async fn messages_are_read_by_range_and_id(test: TestStore) {
    let store = &test.store;
    let mut writer = SessionWriter::new(store, "s").await;
    SessionWriter::new(store, "neighbour").await.append_texts(&["not this"]).await;
    writer.append_texts(&["1", "2", "3"]).await;
    writer.append_texts(&["4", "5"]).await;
    let hidden = vec![
        HiddenMessage { id: 2, seen_count: 3, why: HideReason::Superseded },
        HiddenMessage { id: 4, seen_count: 0, why: HideReason::Evicted },
    ];
    writer.commit(commit_of(Change { hidden: hidden.clone(), ..Change::default() })).await.unwrap();

    let ids = async |range| -> Result<Vec<u64>, StoreError> {
        Ok(store.messages("s", range).await?.iter().map(|message| message.id).collect())
    };
    assert_eq!(ids(MessageRange::After { id: 0, limit: 2 }).await, Ok(vec![1, 2]));
    assert_eq!(ids(MessageRange::After { id: 3, limit: usize::MAX }).await, Ok(vec![4, 5]));
    assert_eq!(ids(MessageRange::After { id: 5, limit: 9 }).await, Ok(vec![]));
    assert_eq!(ids(MessageRange::Ids(vec![5, 1, 2])).await, Ok(vec![5, 1, 2]));
    let missing = StoreError::NoMessage { session: "s".to_owned(), id: 6 };
    assert_eq!(ids(MessageRange::Ids(vec![1, 6])).await, Err(missing));
    assert_eq!(store.hidden("s", 0, 10).await.unwrap(), hidden);
    assert_eq!(store.hidden("s", 2, 10).await.unwrap(), hidden[1..]);
    assert_eq!(store.search_messages("4", 10).await.unwrap().len(), 1, "hidden messages are searchable");
}

pub(super) async fn sessions_commit_concurrently(test: TestStore) {
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..16 {
        let store = test.store.clone();
        tasks.spawn(async move {
            let session = format!("s{number}");
            let mut writer = SessionWriter::new(&store, &session).await;
            for step in 0..10 {
                writer.append_texts(&[&format!("{session} {step}")]).await;
            }
        });
    }
    tasks.join_all().await;
    for number in 0..16 {
        let session = format!("s{number}");
        let messages = test.store.messages(&session, MessageRange::After { id: 0, limit: 100 }).await.unwrap();
        let expected = (0..10).map(|step| text_parts(&format!("{session} {step}")));
        assert!(messages.iter().map(|message| &message.parts).eq(expected.collect::<Vec<Vec<Part>>>().iter()));
    }
}
