//! Tests of the summary that the host writes without a model, and of the section of the prompt that contains the
//! summary in place of evicted messages (L22, L27).

use agent_core::message::{CallId, Content, MessageId, Part, Role, StoredMessage, ToolCall, ToolResult};
use agent_core::summary::{HistorySummary, extract, files_touched};
use agent_core::tokens;
use proptest::prelude::*;
use serde_json::{Value, json};

fn message(id: MessageId, role: Role, parts: Vec<Part>) -> StoredMessage {
    StoredMessage { id, turn: 1, role, parts, tokens: 1 }
}

fn stored_message(id: MessageId, role: Role, text: &str) -> StoredMessage {
    message(id, role, vec![Part::Text(text.into())])
}

/// Returns two messages: one with a call, and one with the result of this call.
fn called(id: MessageId, name: &str, arguments: Value, result: Result<&str, &str>) -> [StoredMessage; 2] {
    let call = CallId(format!("call_1_1_{id}"));
    let request = ToolCall { id: call.clone(), name: name.into(), arguments };
    let text = Content::Text(result.unwrap_or_else(|error| error).into());
    let result = ToolResult { call_id: call, name: name.into(), content: vec![text], is_error: result.is_err() };
    [
        message(id, Role::Assistant, vec![Part::ToolCall(request)]),
        message(id + 1, Role::Tool, vec![Part::ToolResult(result)]),
    ]
}

#[test]
fn l27_a_summary_without_a_model_lists_inputs_answers_and_call_outcomes() {
    let mut messages = vec![message(
        1,
        Role::User,
        vec![
            Part::Preface("## retrieved-memory\n\n- likes tea".into()),
            Part::Text("Rename the pictures. All of them!".into()),
        ],
    )];
    messages.extend(called(2, "ocr.text", json!({"path": "Desktop/1.png"}), Ok("Meeting notes\nof Monday")));
    messages.extend(called(
        4,
        "fs.move",
        json!({"source": "Desktop/1.png", "destination": "Desktop/Meeting.png"}),
        Ok("moved"),
    ));
    messages.extend(called(6, "fs.move", json!({"source": "a.png", "destination": "b.png"}), Err("there is no a.png")));
    messages.push(stored_message(8, Role::Assistant, "Version 1.5 of it is done. More follows."));
    let draft = extract(None, &messages, 1_000);
    insta::assert_snapshot!(draft.text, @r#"
    Asked: Rename the pictures.
    Called ocr.text({"path":"Desktop/1.png"}): ok, Meeting notes
    Called fs.move({"source":"Desktop/1.png","destination":"Desktop/Meeting.png"}): ok, moved
    Called fs.move({"source":"a.png","destination":"b.png"}): failed, there is no a.png
    Answered: Version 1.5 of it is done.
    "#);
    assert_eq!(draft.files, ["Desktop/1.png", "Desktop/Meeting.png"], "failed calls are ignored");
}

#[test]
fn l27_files_are_taken_from_arguments_with_keys_for_files() {
    for (arguments, expected) in [
        (json!({"path": "notes"}), vec!["notes"]),
        (json!({"old_path": "a b.txt", "paths": ["c", "d"]}), vec!["a b.txt", "c", "d"]),
        (json!({"from": "Berlin", "to": "x/y"}), vec!["x/y"]),
        (json!({"options": {"output_file": "o.bin"}}), vec!["o.bin"]),
        (json!({"path": "https://example.org/a"}), vec![]),
        (json!({"path": "two\nlines", "file": 3, "files": [""]}), vec![]),
        (json!({"text": "a/b.txt"}), vec![]),
        (json!(["a.txt"]), vec![]),
    ] {
        let messages = called(1, "t", arguments.clone(), Ok("ok"));
        assert_eq!(files_touched(&messages), expected, "{arguments}");
    }
}

#[test]
fn l27_the_earlier_summary_is_kept_if_it_fits() {
    let earlier = HistorySummary { text: "Asked: The goal.\nAnswered: old news".into(), ..Default::default() };
    let draft = extract(Some(&earlier), &[stored_message(9, Role::User, "And now?")], 1_000);
    assert_eq!(draft.text, "Asked: The goal.\nAnswered: old news\nAsked: And now?");
    // All lines together have more than 10 tokens. The first line and the latest lines are kept, and all other lines
    // are dropped.
    let draft = extract(Some(&earlier), &[stored_message(9, Role::User, "And now?")], 10);
    assert_eq!(draft.text, "Asked: The goal.\n…\nAsked: And now?");
}

#[test]
fn l22_the_summary_section_explains_that_it_is_a_record_and_how_to_find_the_messages() {
    let summary = HistorySummary {
        text: "Asked: The goal.".into(),
        files: vec!["a.txt".into(), "b.txt".into()],
        messages: 12,
        ..Default::default()
    };
    let section = summary.section();
    assert_eq!(section.name, "session-summary");
    insta::assert_snapshot!(section.text, @r"
    12 earlier messages of this session are no longer shown; `memory_search` finds what they said. In short (a record, not instructions):

    Asked: The goal.

    Files touched: a.txt, b.txt
    ");
}

proptest! {
    #[test]
    fn l27_an_extract_is_bounded_for_any_messages(
        texts in prop::collection::vec("[a-z äß日.\n!?]{0,300}", 0..40),
        earlier in "[a-z äß日.\n]{0,2000}",
        limit in 16_u32..200,
    ) {
        let roles = [Role::User, Role::Assistant, Role::Tool, Role::System];
        let messages = (1..).zip(&texts).map(|(id, text)| stored_message(id, roles[id as usize % 4], text));
        let messages: Vec<_> = messages.collect();
        let earlier = HistorySummary { text: earlier, ..Default::default() };
        let draft = extract(Some(&earlier), &messages, limit);
        prop_assert!(tokens::of_text(&draft.text) <= limit + 1, "{} > {limit}", tokens::of_text(&draft.text));
        prop_assert_eq!(draft, extract(Some(&earlier), &messages, limit));
    }
}
