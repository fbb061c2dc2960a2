//! Tests that stored results are converted to the form in which they are sent to the model (L26).

use agent_core::message::{CallId, Content, Digest, Media, Part, Role, StoredMessage, ToolResult};
use agent_core::tokens;
use agent_core::view::{result_text, shown_message, shown_text};
use proptest::prelude::*;
use serde_json::json;

fn id() -> CallId {
    CallId("call_1_2_3".into())
}

fn media() -> Content {
    let digest = Digest::from_sha256([7; 32]);
    Content::Media(Media { digest, mime_type: "image/png".into(), size: 5, dimensions: None, name: None })
}

fn message(content: Vec<Content>) -> StoredMessage {
    let result = ToolResult { call_id: id(), name: "files.read".into(), content, is_error: false };
    StoredMessage { id: 3, turn: 1, role: Role::Tool, parts: vec![Part::ToolResult(result)], tokens: 1 }
}

#[test]
fn l26_a_long_result_is_cut_between_characters_and_a_note_tells_how_to_read_the_rest() {
    for (text, limit, shown, total) in [
        ("abc", 3, "abc", None),
        ("", 0, "", None),
        ("äöü", 3, "äöü", None),
        ("äöü", 2, "äö", Some(3)),
        ("日本語テキスト", 4, "日本語テ", Some(7)),
        ("👩\u{200d}🚀👩\u{200d}🚀", 1, "👩", Some(6)),
        ("abc", 0, "", Some(3)),
    ] {
        let content = [Content::Text(text.into())];
        let expected = match total {
            None => shown.to_owned(),
            Some(total) => format!(
                "{shown}\n[cut: the first {limit} of {total} characters; \
                 read_result {{\"call_id\": \"call_1_2_3\", \"offset\": {limit}}} gives the rest]"
            ),
        };
        assert_eq!(shown_text(&id(), &content, limit), expected);
    }
}

#[test]
fn l26_the_stored_result_stays_complete_and_media_are_kept_with_a_cut_text() {
    let stored = message(vec![media(), Content::Text("x".repeat(10)), Content::Json(json!({"n": 1}))]);
    let before = stored.clone();
    let whole = shown_message(&stored, 2, 18);
    assert_eq!((whole.role, whole.seen_count), (Role::Tool, 2));
    assert_eq!(whole.parts, stored.parts, "10 characters, a line end and 7 characters fit");
    let cut = shown_message(&stored, 2, 17);
    let Part::ToolResult(result) = &cut.parts[0] else { panic!() };
    let [Content::Text(text), media_item] = &result.content[..] else { panic!("{result:?}") };
    assert!(text.starts_with("xxxxxxxxxx\n{\"n\":1\n[cut: the first 17 of 18 characters"), "{text}");
    assert_eq!((media_item, &result.call_id), (&media(), &id()));
    assert_eq!(stored, before);
}

#[test]
fn l26_only_results_are_cut() {
    let text = Part::Text("y".repeat(100));
    let stored = StoredMessage { id: 1, turn: 1, role: Role::User, parts: vec![text.clone()], tokens: 25 };
    assert_eq!(shown_message(&stored, 0, 10).parts, [text]);
}

#[test]
fn l26_estimates_include_media_and_grow_with_the_text() {
    assert_eq!((tokens::of_text(""), tokens::of_text("a"), tokens::of_text("abcde")), (0, 1, 2));
    assert!(tokens::of_parts(&message(vec![media()]).parts) >= 1_000);
    assert_eq!(tokens::of_media(&[media(), Content::Text("text".into()), media()]), 2_000);
}

proptest! {
    #[test]
    fn l26_the_shown_part_and_the_remainder_are_the_whole_result(text in "[a-c\nä日🚀]{0,40}", limit in 0_usize..45) {
        let content = [Content::Text(text.clone())];
        let shown = shown_text(&id(), &content, limit);
        let head: String = text.chars().take(limit).collect();
        let rest: String = result_text(&content).chars().skip(limit).collect();
        prop_assert_eq!(format!("{head}{rest}"), text);
        match rest.is_empty() {
            true => prop_assert_eq!(shown, head),
            false => {
                let start = format!("{head}\n[cut: the first {limit} of ");
                prop_assert!(shown.starts_with(&start), "{}", shown);
            }
        }
    }
}
