//! Tests of adding, listing, finding and removing notes.

use agent_host_sdk::prelude::*;
use agent_host_sdk::testing::Host;
use notes::Notes;

fn call(host: &mut Host, tool: &str, arguments: Value) -> Result<Outcome, ToolError> {
    host.run(|| Notes::tools().call(tool, arguments))
}

fn listed(host: &mut Host, tool: &str, arguments: Value) -> Vec<u64> {
    let listing = call(host, tool, arguments).expect("a listing").done().and_then(|done| done.value()).expect("JSON");
    let notes = listing["notes"].as_array().expect("notes");
    notes.iter().map(|note| note["number"].as_u64().expect("a number")).collect()
}

fn host_with_notes() -> Host {
    let mut host = Host::new().keeping_values();
    for (text, tags) in
        [("Ada likes tea", vec!["ada"]), ("Build with cargo", vec!["work"]), ("Ada's ship: Erebus", vec![])]
    {
        call(&mut host, "notes.add", json!({"text": text, "tags": tags})).expect("kept");
    }
    host
}

#[test]
fn lists_newest_first_and_finds_all_words() {
    let host = &mut host_with_notes();
    assert_eq!(listed(host, "notes.list", json!({})), [3, 2, 1]);
    assert_eq!(listed(host, "notes.list", json!({"limit": 1})), [3]);
    assert_eq!(listed(host, "notes.list", json!({"tag": "ADA"})), [1]);
    assert_eq!(listed(host, "notes.find", json!({"words": "ada"})), [3, 1]);
    assert_eq!(listed(host, "notes.find", json!({"words": "tea ada"})), [1]);
    assert!(listed(host, "notes.find", json!({"words": "tea cargo"})).is_empty());
}

#[test]
fn never_uses_a_number_twice() {
    let host = &mut host_with_notes();
    call(host, "notes.remove", json!({"number": 3})).expect("removed");
    assert!(matches!(call(host, "notes.remove", json!({"number": 3})), Err(ToolError::NotFound(_))));
    call(host, "notes.add", json!({"text": "new"})).expect("kept");
    assert_eq!(listed(host, "notes.list", json!({})), [4, 2, 1]);
}

#[test]
fn rejects_notes_without_grant_or_with_bad_arguments() {
    let denied = call(&mut Host::new(), "notes.add", json!({"text": "a"}));
    assert!(matches!(denied, Err(ToolError::Denied(_))), "{denied:?}");
    let host = &mut host_with_notes();
    for arguments in
        [json!({"text": " "}), json!({"text": "x".repeat(16 * 1024 + 1)}), json!({"text": "a", "tags": [""]})]
    {
        assert!(matches!(call(host, "notes.add", arguments), Err(ToolError::InvalidArguments(_))));
    }
    assert!(matches!(call(host, "notes.find", json!({"words": " "})), Err(ToolError::InvalidArguments(_))));
    assert_eq!(listed(host, "notes.list", json!({})).len(), 3);
}
