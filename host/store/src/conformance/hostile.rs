//! Limit 26: hostile text is either stored and read back unchanged, or refused with a clear error.

use super::{SessionWriter, TestStore, call, commit_of, message, nested_json, text_parts};
use crate::{CallFilter, Commit, MAX_JSON_DEPTH, MemoryFilter, MessageRange, RecordRange, StepRecord, StoreError};
use agent_core::change::{CallChange, Change};
use agent_core::event::EventKind;
use agent_core::message::Part;
use serde_json::{Value, json};

const STRANGE_TEXTS: [&str; 8] = [
    "'; DROP TABLE messages; --",
    "\" OR 1=1 /* ?1 :name @x $y",
    "a\0b\0\0c",
    "\u{feff}\u{202e}\u{fffd}\u{10ffff}",
    "NEAR(\"x\" AND NOT *) col: ^y",
    "%_[a-z]*?\\",
    "line\r\nline\u{2028}line\u{85}",
    "",
];

pub(super) async fn strange_text_is_stored_unchanged(test: TestStore) {
    let store = &test.store;
    for (number, strange) in (0..).zip(STRANGE_TEXTS) {
        let session = format!("{number}{strange}");
        let mut writer = SessionWriter::new(store, &session).await;
        let parts = vec![Part::Text(strange.to_owned()), Part::Json(json!({strange: [strange]}))];
        let mut requested_call = call(&format!("c{strange}"), 1);
        requested_call.name = strange.to_owned();
        requested_call.arguments = Value::String(strange.to_owned());
        let kind =
            EventKind::Error { code: strange.to_owned(), message: strange.to_owned(), scope: Default::default() };
        let change = Change {
            messages: vec![message(1, parts.clone())],
            calls: vec![CallChange::Requested(requested_call.clone())],
            events: vec![super::event(&session, 1, kind.clone())],
            ..Change::default()
        };
        let record = StepRecord { turn: 1, step: 1, kind: strange.to_owned(), body: json!({strange: strange}) };
        let mut commit = Commit { records: vec![record.clone()], ..commit_of(change) };
        commit.texts = vec![strange.to_owned()];
        commit.status.title = Some(strange.to_owned());
        writer.commit(commit).await.unwrap();

        assert_eq!(store.messages(&session, MessageRange::Ids(vec![1])).await.unwrap()[0].parts, parts);
        assert_eq!(
            store.calls(&session, CallFilter::Ids(vec![requested_call.id.clone()])).await.unwrap(),
            [requested_call]
        );
        assert_eq!(store.events(&session, 0, 9).await.unwrap()[0].event.kind, kind);
        assert_eq!(store.records(&session, RecordRange::Turn(1)).await.unwrap()[0].record, record);
        assert_eq!(store.text(&session, &crate::digest_of(strange.as_bytes())).await.unwrap(), strange);
        let listed = store.sessions(Default::default(), 1).await.unwrap();
        assert_eq!((&listed[0].subject, listed[0].title.as_deref()), (&session, Some(strange)));
    }
}

pub(super) async fn search_accepts_any_query(test: TestStore) {
    let store = &test.store;
    let mut writer = SessionWriter::new(store, "s").await;
    writer.append_texts(&["the quick AND the dead", "NEAR miss", "nul\0walrus", "Škoda Straße"]).await;
    for query in
        STRANGE_TEXTS.into_iter().chain(["\"", "\"\"", "*", "()", "AND", "a OR", "NOT", "text:x", "{a b}:c", "+", "-"])
    {
        let hits = store.search_messages(query, 10).await;
        assert!(hits.is_ok(), "{query:?}: {hits:?}");
        assert!(store.search(&MemoryFilter::of_user("ann"), query, 10).await.is_ok(), "{query:?}");
    }
    let cases = [("AND dead", 1), ("near", 2), ("walrus", 3), ("skoda", 4), ("\"quick\"", 1), ("DEAD* quick", 1)];
    for (query, id) in cases {
        let hits = store.search_messages(query, 10).await.unwrap();
        assert!(hits.iter().map(|hit| hit.id).eq([id]), "{query}: {hits:?}");
        assert!(hits[0].score > 0.0 && hits[0].score <= 1.0, "{hits:?}");
    }
    assert_eq!(store.search_messages("quick walrus", 10).await.unwrap(), [], "a message must contain both words");
}

pub(super) async fn long_text_is_stored_and_found(test: TestStore) {
    let store = &test.store;
    let mut writer = SessionWriter::new(store, "s").await;
    let long = format!("{} needle {}", "hay ".repeat(1 << 20), "straw ".repeat(1 << 20));
    assert!(long.len() > 10_000_000);
    writer
        .commit(commit_of(Change { messages: vec![message(1, text_parts(&long))], ..Change::default() }))
        .await
        .unwrap();
    let stored = store.messages("s", MessageRange::Ids(vec![1])).await.unwrap();
    assert!(stored[0].parts == text_parts(&long), "the long text changed");
    let hits = store.search_messages("needle", 10).await.unwrap();
    assert_eq!(hits.len(), 1);
    assert!(hits[0].excerpt.contains("needle") && hits[0].excerpt.chars().count() <= 200);
}

pub(super) async fn too_deep_json_is_refused(test: TestStore) {
    let store = &test.store;
    let mut writer = SessionWriter::new(store, "s").await;
    // A message adds two levels of nesting to its JSON: the list of parts and the part.
    let deepest = vec![Part::Json(nested_json(MAX_JSON_DEPTH - 2))];
    let change = Change { messages: vec![message(1, deepest.clone())], ..Change::default() };
    writer.commit(commit_of(change)).await.unwrap();
    assert_eq!(store.messages("s", MessageRange::Ids(vec![1])).await.unwrap()[0].parts, deepest);

    let deeper = vec![Part::Json(nested_json(MAX_JSON_DEPTH - 1))];
    let too_deep = [
        commit_of(Change { messages: vec![message(2, deeper)], ..Change::default() }),
        commit_of(Change {
            calls: vec![CallChange::Requested(agent_core::change::CallRecord {
                arguments: nested_json(MAX_JSON_DEPTH + 1),
                ..call("c", 1)
            })],
            ..Change::default()
        }),
        Commit {
            records: vec![StepRecord { turn: 1, step: 1, kind: "k".to_owned(), body: nested_json(500) }],
            ..commit_of(Change::default())
        },
    ];
    for commit in too_deep {
        let refused = writer.commit(commit).await;
        assert!(matches!(refused, Err(StoreError::Invalid { .. })), "{refused:?}");
    }
    writer.append_texts(&["the next message"]).await;
}
