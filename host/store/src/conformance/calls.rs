//! D2, D3: the store has one record of each call. The result of a call is stored once and cannot be replaced.

use super::{SessionWriter, TestStore, call, call_message, commit_of, finished_change, result_message};
use crate::{CallFilter, MessageRange, StoreError};
use agent_core::change::{CallChange, CallRecord, CallState, Change};
use agent_core::message::{CallId, Content, Part, ToolResult};
use serde_json::json;

fn changes(calls: Vec<CallChange>) -> Change {
    Change { calls, ..Change::default() }
}

fn state_change(id: &str, state: CallState) -> CallChange {
    CallChange::Moved { id: CallId(id.to_owned()), state, attempt: 1 }
}

fn ids(calls: &[CallRecord]) -> Vec<&str> {
    calls.iter().map(|call| call.id.0.as_str()).collect()
}

pub(super) async fn result_is_stored_once_and_shown_in_its_message(test: TestStore) {
    let mut writer = SessionWriter::new(&test.store, "s").await;
    let requested_call = call("call-1", 1);
    let requested = Change {
        messages: vec![call_message(1, &requested_call)],
        ..changes(vec![CallChange::Requested(requested_call.clone())])
    };
    writer.commit(commit_of(requested)).await.unwrap();
    assert_eq!(test.store.calls("s", CallFilter::Unfinished).await.unwrap(), std::slice::from_ref(&requested_call));

    writer.commit(commit_of(changes(vec![state_change("call-1", CallState::Started)]))).await.unwrap();
    let early = Change { messages: vec![result_message(2, "call-1")], ..Change::default() };
    let refused = writer.commit(commit_of(early)).await;
    assert!(
        matches!(refused, Err(StoreError::Invalid { .. })),
        "a message refers to a result that is not stored yet: {refused:?}"
    );

    let result_change = finished_change("call-1", "two lines");
    let CallChange::Finished { result, .. } = result_change.clone() else { unreachable!() };
    writer
        .commit(commit_of(Change { messages: vec![result_message(2, "call-1")], ..changes(vec![result_change]) }))
        .await
        .unwrap();
    let stored = test.store.calls("s", CallFilter::Turn(1)).await.unwrap();
    let finished_call =
        CallRecord { state: CallState::Finished, attempt: 1, result: Some(result.clone()), ..requested_call };
    assert_eq!(stored, [finished_call]);
    let message = &test.store.messages("s", MessageRange::Ids(vec![2])).await.unwrap()[0];
    let part = ToolResult {
        call_id: CallId("call-1".to_owned()),
        name: "files.read".to_owned(),
        content: result.content,
        is_error: false,
    };
    assert_eq!((message.parts.as_slice(), message.tokens), ([Part::ToolResult(part)].as_slice(), 9));
    assert_eq!(test.store.search_messages("two lines", 9).await.unwrap()[0].id, 2, "results are searchable");
}

pub(super) async fn finished_call_keeps_its_result(test: TestStore) {
    let mut writer = SessionWriter::new(&test.store, "s").await;
    let initial = vec![CallChange::Requested(call("a", 1)), finished_change("a", "the result")];
    writer.commit(commit_of(changes(initial))).await.unwrap();
    let before = test.store.calls("s", CallFilter::Turn(1)).await.unwrap();

    let already_finished = StoreError::AlreadyFinished { session: "s".to_owned(), call: CallId("a".to_owned()) };
    for change in [
        finished_change("a", "another"),
        state_change("a", CallState::Started),
        state_change("a", CallState::OutcomeUnknown),
    ] {
        assert_eq!(writer.commit(commit_of(changes(vec![change]))).await, Err(already_finished.clone()));
    }
    let invalid = [
        CallChange::Requested(call("a", 2)),
        state_change("unknown", CallState::Started),
        finished_change("unknown", "x"),
        state_change("a", CallState::Finished),
        CallChange::Requested(CallRecord { state: CallState::Finished, ..call("b", 1) }),
    ];
    for change in invalid {
        let refused = writer.commit(commit_of(changes(vec![change.clone()]))).await;
        assert!(matches!(refused, Err(StoreError::Invalid { .. })), "{change:?}: {refused:?}");
    }
    writer
        .commit(commit_of(changes(vec![finished_change("a", "the result")])))
        .await
        .expect("the same result is accepted");
    assert_eq!(test.store.calls("s", CallFilter::Turn(1)).await.unwrap(), before);
    let content = before[0].result.as_ref().map(|result| &result.content[0]);
    assert_eq!(content, Some(&Content::Text("the result".to_owned())));
}

pub(super) async fn calls_are_filtered_by_turn_id_and_state(test: TestStore) {
    let store = &test.store;
    let mut writer = SessionWriter::new(store, "s").await;
    let requested = [call("b", 1), call("a", 1), call("c", 2)].map(CallChange::Requested);
    writer.commit(commit_of(changes(requested.to_vec()))).await.unwrap();
    let updates = vec![state_change("b", CallState::OutcomeUnknown), finished_change("a", "done")];
    writer.commit(commit_of(changes(updates))).await.unwrap();

    let filter = |ids: &[&str]| CallFilter::Ids(ids.iter().map(|id| CallId((*id).to_owned())).collect());
    assert_eq!(ids(&store.calls("s", CallFilter::Turn(1)).await.unwrap()), ["b", "a"]);
    assert_eq!(ids(&store.calls("s", CallFilter::Unfinished).await.unwrap()), ["b", "c"]);
    assert_eq!(ids(&store.calls("s", filter(&["c", "a", "z"])).await.unwrap()), ["a", "c"]);
    assert_eq!(store.calls("s", CallFilter::Turn(3)).await.unwrap(), []);
    let unknown = &store.calls("s", filter(&["b"])).await.unwrap()[0];
    assert_eq!((unknown.state, unknown.attempt), (CallState::OutcomeUnknown, 1));
}

/// L17: arguments that a user edits during approval are stored in addition to the model's arguments. The arguments
/// cannot be edited after the call has its result.
pub(super) async fn edited_arguments_are_stored_next_to_the_original(test: TestStore) {
    let mut writer = SessionWriter::new(&test.store, "s").await;
    let edited = |arguments| CallChange::Edited { id: CallId("a".to_owned()), arguments };
    let requested_call = call("a", 1);
    let edited_call = CallRecord { edited: Some(json!({"path": "b"})), ..call("b", 1) };
    let requested = vec![CallChange::Requested(requested_call.clone()), CallChange::Requested(edited_call.clone())];
    writer.commit(commit_of(changes(requested))).await.unwrap();
    for arguments in [json!({"path": "first"}), json!({"path": "b.md", "deep": [[1.5]]})] {
        writer.commit(commit_of(changes(vec![edited(arguments.clone())]))).await.unwrap();
        let stored = test.store.calls("s", CallFilter::Turn(1)).await.unwrap();
        assert_eq!(stored, [CallRecord { edited: Some(arguments), ..requested_call.clone() }, edited_call.clone()]);
    }
    writer.commit(commit_of(changes(vec![finished_change("a", "done")]))).await.unwrap();
    let before = test.store.calls("s", CallFilter::Turn(1)).await.unwrap();
    let already_finished = StoreError::AlreadyFinished { session: "s".to_owned(), call: CallId("a".to_owned()) };
    assert_eq!(writer.commit(commit_of(changes(vec![edited(json!({}))]))).await, Err(already_finished));
    let unknown = CallChange::Edited { id: CallId("unknown".to_owned()), arguments: json!({}) };
    let refused = writer.commit(commit_of(changes(vec![unknown]))).await;
    assert!(matches!(refused, Err(StoreError::Invalid { .. })), "{refused:?}");
    assert_eq!(test.store.calls("s", CallFilter::Turn(1)).await.unwrap(), before);
}
