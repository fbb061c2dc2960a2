//! D1, D5: opening, listing, reading and deleting sessions.

use super::{
    SessionWriter, TestStore, call, call_message, commit_of, event, finished_change, message, meta, result_message,
    text_parts,
};
use crate::{
    CallFilter, Commit, MAX_PAGE_BYTES, MediaDescription, MessageRange, OpenMode, RecordRange, SessionFilter,
    SessionMeta, SessionState, Status, StepRecord, StoreError,
};
use agent_core::change::{CallChange, Change, HiddenMessage, HideReason};
use agent_core::event::EventKind;
use serde_json::json;

pub(super) async fn open_modes_are_enforced(test: TestStore) {
    let store = &test.store;
    let missing = store.open("s", OpenMode::Existing, meta("a")).await;
    assert_eq!(missing, Err(StoreError::NoSession { session: "s".to_owned() }));
    let opened = store.open("s", OpenMode::CreateNew, meta("a")).await.unwrap();
    store.release(opened.lease).await.unwrap();
    let twice = store.open("s", OpenMode::CreateNew, meta("a")).await;
    assert_eq!(twice, Err(StoreError::SessionExists { session: "s".to_owned() }));
    let empty_subject = store.open("", OpenMode::Either, meta("a")).await;
    assert!(matches!(empty_subject, Err(StoreError::Invalid { .. })), "{empty_subject:?}");
}

pub(super) async fn sessions_are_listed_newest_first(test: TestStore) {
    let store = &test.store;
    assert_eq!(store.latest("a").await, Ok(None));
    for (session, agent) in [("one", "a"), ("two", "b"), ("three", "a")] {
        let meta = SessionMeta {
            agent: agent.to_owned(),
            user: (agent == "b").then(|| "u".to_owned()),
            ..SessionMeta::default()
        };
        let opened = store.open(session, OpenMode::CreateNew, meta).await.unwrap();
        let status = Status {
            state: SessionState::Idle,
            turn: 2,
            title: Some(format!("title of {session}")),
            ..Status::default()
        };
        store.commit(&opened.lease, 0, Commit { status, ..Commit::default() }).await.unwrap();
        if session == "one" {
            let status = Status {
                state: SessionState::Suspended,
                turn: 1,
                title: Some("another title".to_owned()),
                ..Status::default()
            };
            store.commit(&opened.lease, 1, Commit { status, ..Commit::default() }).await.unwrap();
        }
    }
    let subjects = async |filter| -> Vec<String> {
        store.sessions(filter, 10).await.unwrap().into_iter().map(|summary| summary.subject).collect()
    };
    let unfiltered = SessionFilter::default();
    assert_eq!(subjects(unfiltered.clone()).await, ["three", "two", "one"]);
    assert_eq!(subjects(SessionFilter { agent: Some("a".to_owned()), ..unfiltered.clone() }).await, ["three", "one"]);
    assert_eq!(subjects(SessionFilter { user: Some("u".to_owned()), ..unfiltered.clone() }).await, ["two"]);
    assert_eq!(subjects(SessionFilter { state: Some(SessionState::Suspended), ..unfiltered.clone() }).await, ["one"]);
    assert_eq!(subjects(SessionFilter { subject: Some("one".to_owned()), ..unfiltered.clone() }).await, ["one"]);
    assert_eq!(store.sessions(unfiltered.clone(), 1).await.unwrap().len(), 1);
    store.open("four", OpenMode::CreateNew, meta("a")).await.unwrap();
    let latest = store.latest("a").await;
    assert_eq!(latest, Ok(Some("three".to_owned())), "a session without any commit is not the latest session");
    let one = store.sessions(unfiltered, 10).await.unwrap().pop().unwrap();
    assert_eq!((one.revision, one.turns, one.state.as_str()), (2, 2, "suspended"));
    assert_eq!(one.title.as_deref(), Some("title of one"), "the first title is kept");
    assert!(one.created <= one.updated, "{one:?}");
}

/// L16: a session stores the subject of the session that delegated work to it, and can be listed by this subject.
pub(super) async fn delegated_sessions_are_listed_by_parent(test: TestStore) {
    let store = &test.store;
    for (session, parent) in
        [("parent", None), ("first", Some("parent")), ("second", Some("parent")), ("of", Some("p"))]
    {
        let meta = SessionMeta { delegated_by: parent.map(str::to_owned), ..meta("a") };
        let opened = store.open(session, OpenMode::CreateNew, meta.clone()).await.unwrap();
        assert_eq!(opened.meta, meta);
        store.commit(&opened.lease, 0, Commit::default()).await.unwrap();
        store.release(opened.lease).await.unwrap();
    }
    let reopened = store.open("first", OpenMode::Existing, SessionMeta::default()).await.unwrap();
    assert_eq!(reopened.meta.delegated_by.as_deref(), Some("parent"), "an existing session keeps its metadata");
    let children = SessionFilter { delegated_by: Some("parent".to_owned()), ..SessionFilter::default() };
    let found = store.sessions(children.clone(), 10).await.unwrap();
    assert!(found.iter().map(|child| child.subject.as_str()).eq(["second", "first"]), "{found:?}");
    assert!(found.iter().all(|child| child.delegated_by.as_deref() == Some("parent")), "{found:?}");
    let others = store.sessions(SessionFilter { agent: Some("b".to_owned()), ..children }, 10).await.unwrap();
    assert_eq!(others, []);
    assert_eq!(store.sessions(SessionFilter::default(), 10).await.unwrap().len(), 4);
    assert_eq!(
        store.latest("a").await,
        Ok(Some("parent".to_owned())),
        "a delegated session is never the latest session"
    );
}

pub(super) async fn records_are_read_by_turn_kind_and_page(test: TestStore) {
    let mut writer = SessionWriter::new(&test.store, "s").await;
    for (turn, step) in [(1, 1), (1, 2), (2, 1)] {
        let record = |kind: &str| StepRecord { turn, step, kind: kind.to_owned(), body: json!({"n": step}) };
        let records = vec![record("prompt"), record("reply")];
        writer.commit(Commit { records, ..commit_of(Change::default()) }).await.unwrap();
    }
    let store = &test.store;
    let first = store.records("s", RecordRange::Turn(1)).await.unwrap();
    let kinds: Vec<_> = first.iter().map(|stored| (stored.record.step, stored.record.kind.as_str())).collect();
    assert_eq!(kinds, [(1, "prompt"), (1, "reply"), (2, "prompt"), (2, "reply")]);
    let page = store.records("s", RecordRange::After { number: first[1].number, limit: 3 }).await.unwrap();
    let turns: Vec<_> = page.iter().map(|stored| stored.record.turn).collect();
    assert_eq!(turns, [1, 1, 2]);
    let replies = store.records("s", RecordRange::Kind("reply")).await.unwrap();
    assert!(replies.iter().map(|stored| (stored.record.turn, stored.record.step)).eq([(1, 1), (1, 2), (2, 1)]));
}

/// D5: while an import or a fork is still writing a session, the session can only be listed and deleted.
pub(super) async fn incomplete_session_can_only_be_listed_and_deleted(test: TestStore) {
    let store = &test.store;
    let mut writer = SessionWriter::new(store, "half").await;
    let status = Status { state: SessionState::Incomplete, ..Status::default() };
    let change = Change { messages: vec![message(1, text_parts("walrus"))], ..Change::default() };
    writer.commit(Commit { status: status.clone(), ..commit_of(change) }).await.unwrap();
    let lease = writer.opened.lease.clone();
    store.release(lease).await.unwrap();

    for mode in [OpenMode::Existing, OpenMode::Either] {
        let refused = store.open("half", mode, meta("tester")).await;
        assert_eq!(refused, Err(StoreError::Incomplete { session: "half".to_owned() }));
    }
    let exists = store.open("half", OpenMode::CreateNew, meta("tester")).await;
    assert_eq!(exists, Err(StoreError::SessionExists { session: "half".to_owned() }));
    assert_eq!(store.latest("tester").await, Ok(None));
    assert_eq!(store.search_messages("walrus", 10).await, Ok(Vec::new()));
    assert_eq!(store.unfinished("", 10).await, Ok(Vec::new()));
    let listed = store.sessions(SessionFilter::default(), 10).await.unwrap();
    assert!(listed.iter().map(|session| session.state).eq([SessionState::Incomplete]), "{listed:?}");
    store.delete("half").await.unwrap();

    // After a commit that sets a state other than `Incomplete`, the session can be used like every other session.
    let mut writer = SessionWriter::new(store, "half").await;
    let change = Change { messages: vec![message(1, text_parts("walrus"))], ..Change::default() };
    writer.commit(Commit { status, ..commit_of(change) }).await.unwrap();
    writer.commit(commit_of(Change::default())).await.unwrap();
    writer.release().await;
    assert_eq!(store.latest("tester").await, Ok(Some("half".to_owned())));
    assert_eq!(store.search_messages("walrus", 10).await.unwrap().len(), 1);
    store.open("half", OpenMode::Existing, meta("tester")).await.unwrap();
}

/// Reading page by page needs memory for only one page, even if the items are long.
pub(super) async fn page_ends_after_max_page_bytes(test: TestStore) {
    let store = &test.store;
    let mut writer = SessionWriter::new(store, "s").await;
    let long = "a".repeat(MAX_PAGE_BYTES / 2);
    for turn in 1..=4 {
        writer.append_texts(&[&long]).await;
        let body = json!(long);
        let records = vec![StepRecord { turn, step: 1, kind: "k".to_owned(), body }];
        let kind = EventKind::PlanFallback { reason: long.clone() };
        let events = vec![event("s", u64::from(turn), kind)];
        writer.commit(Commit { records, ..commit_of(Change { events, ..Change::default() }) }).await.unwrap();
    }
    let (mut messages, mut events, mut records) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        let after = messages.last().copied().unwrap_or_default();
        let page = store.messages("s", MessageRange::After { id: after, limit: 100 }).await.unwrap();
        assert!(page.len() <= 2, "{}", page.len());
        let event = events.last().copied().unwrap_or_default();
        let event_page = store.events("s", event, 100).await.unwrap();
        assert!(event_page.len() <= 2, "{}", event_page.len());
        let number = records.last().copied().unwrap_or_default();
        let record_page = store.records("s", RecordRange::After { number, limit: 100 }).await.unwrap();
        assert!(record_page.len() <= 2, "{}", record_page.len());
        if page.is_empty() && event_page.is_empty() && record_page.is_empty() {
            break;
        }
        messages.extend(page.iter().map(|message| message.id));
        events.extend(event_page.iter().map(|timed| timed.event.sequence));
        records.extend(record_page.iter().map(|stored| stored.number));
    }
    assert_eq!((messages.len(), events.len(), records.len()), (4, 4, 4));
}

pub(super) async fn delete_removes_everything_of_the_session(test: TestStore) {
    let store = &test.store;
    let mut kept = SessionWriter::new(store, "kept").await;
    kept.append_texts(&["walrus here"]).await;
    let mut writer = SessionWriter::new(store, "gone").await;
    let requested_call = call("call-1", 1);
    let change = Change {
        messages: vec![call_message(1, &requested_call), result_message(2, "call-1")],
        hidden: vec![HiddenMessage { id: 1, seen_count: 1, why: HideReason::Superseded }],
        calls: vec![CallChange::Requested(requested_call), finished_change("call-1", "walrus there")],
        events: vec![event("gone", 1, EventKind::Resumed)],
        ..Change::default()
    };
    let records = vec![StepRecord { turn: 1, step: 1, kind: "k".to_owned(), body: json!(1) }];
    writer.commit(Commit { records, ..commit_of(change) }).await.unwrap();
    let about = MediaDescription { mime_type: "text/plain".to_owned(), ..MediaDescription::default() };
    let media = store.put("gone", b"bytes".to_vec(), about).await.unwrap();
    assert_eq!(store.search_messages("walrus", 10).await.unwrap().len(), 2);
    writer.release().await;

    store.delete("gone").await.unwrap();
    let missing = StoreError::NoSession { session: "gone".to_owned() };
    assert_eq!(store.messages("gone", MessageRange::After { id: 0, limit: 1 }).await, Err(missing.clone()));
    assert_eq!(store.delete("gone").await, Err(missing));
    let hits = store.search_messages("walrus", 10).await.unwrap();
    assert!(hits.iter().map(|hit| hit.session.as_str()).eq(["kept"]), "{hits:?}");

    // A new session with the same name starts empty, and its messages are searchable.
    let mut new_writer = SessionWriter::new(store, "gone").await;
    assert_eq!(
        (new_writer.revision, new_writer.messages, new_writer.events, &new_writer.opened.snapshot),
        (0, 0, 0, &None)
    );
    assert_eq!(store.calls("gone", CallFilter::Turn(1)).await.unwrap(), []);
    assert_eq!(store.records("gone", RecordRange::Turn(1)).await.unwrap(), []);
    assert_eq!(store.media("gone", &media.digest).await.unwrap(), None);
    new_writer.append_texts(&["a walrus again"]).await;
    assert_eq!(store.search_messages("walrus", 10).await.unwrap().len(), 2);
}

/// L27: a message that was evicted from the view can still be found in its session. Undone and superseded messages are
/// not found.
pub(super) async fn search_finds_evicted_but_not_undone_messages(test: TestStore) {
    let store = &test.store;
    let mut other = SessionWriter::new(store, "other").await;
    other.append_texts(&["a walrus elsewhere"]).await;
    let mut writer = SessionWriter::new(store, "s").await;
    writer
        .append_texts(&["the walrus sleeps", "walrus taken back", "wrong walrus", "a walrus in view", "two seals"])
        .await;
    let hidden_message = |id, why| HiddenMessage { id, seen_count: 1, why };
    let evicted = HideReason::Evicted;
    let hidden = vec![
        hidden_message(1, evicted),
        hidden_message(2, HideReason::Undone),
        hidden_message(3, HideReason::Superseded),
        hidden_message(5, evicted),
    ];
    writer.commit(commit_of(Change { hidden: hidden.clone(), ..Change::default() })).await.unwrap();
    let hidden_elsewhere = vec![hidden_message(1, evicted)];
    other.commit(commit_of(Change { hidden: hidden_elsewhere, ..Change::default() })).await.unwrap();
    assert_eq!(store.hidden("s", 0, 9).await.unwrap(), hidden);
    let found = async |query: &str, limit| {
        let hits = store.search_evicted("s", query, limit).await.unwrap();
        hits.into_iter().map(|hit| (hit.session, hit.id, hit.excerpt)).collect::<Vec<_>>()
    };
    let hit_in_s = |id, text: &str| ("s".to_owned(), id, text.to_owned());
    assert_eq!(found("walrus", 9).await, [hit_in_s(1, "the walrus sleeps")]);
    let mut hits = found("where do seals and the walrus live?", 9).await;
    hits.sort();
    assert_eq!(
        hits,
        [hit_in_s(1, "the walrus sleeps"), hit_in_s(5, "two seals")],
        "a message is found if it contains one of the words"
    );
    assert_eq!(found("walrus seals", 1).await.len(), 1);
    assert_eq!(found("\"* OR", 9).await, []);
    assert_eq!(store.search_evicted("none", "walrus", 9).await.unwrap(), []);
}

pub(super) async fn missing_session_is_reported(test: TestStore) {
    let store = &test.store;
    let missing = StoreError::NoSession { session: "s".to_owned() };
    assert_eq!(store.events("s", 0, 1).await, Err(missing.clone()));
    assert_eq!(store.calls("s", CallFilter::Unfinished).await, Err(missing.clone()));
    assert_eq!(store.records("s", RecordRange::Turn(1)).await, Err(missing.clone()));
    assert_eq!(store.hidden("s", 0, 1).await, Err(missing.clone()));
    assert_eq!(store.put("s", vec![1], image_description()).await, Err(missing.clone()));
    assert_eq!(store.put_text("s", "x".to_owned()).await, Err(missing));
}

fn image_description() -> MediaDescription {
    MediaDescription { mime_type: "image/png".to_owned(), ..MediaDescription::default() }
}
