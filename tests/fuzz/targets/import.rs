//! Edits an exported session at random positions and imports it. The imported document must not give the session
//! any permissions.

#![no_main]

use agent_runtime::transfer::{ImportAs, ImportOptions, export, import_for};
use agent_store::SqliteStore;
use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

/// An exported session with a turn that waits for the approval of a call.
const DOCUMENT: &str = include_str!("../session.json");

#[derive(Arbitrary, Debug)]
struct Edit<'a> {
    target: u16,
    source: u16,
    kind: u8,
    number: i64,
    text: &'a str,
}

fn json_pointers(value: &Value, path: String, found: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            object.iter().for_each(|(key, value)| json_pointers(value, format!("{path}/{key}"), found))
        }
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(index, value)| json_pointers(value, format!("{path}/{index}"), found));
        }
        _ => {}
    }
    found.push(path);
}

fn edit(document: &mut Value, edit: &Edit<'_>) {
    let mut pointers = Vec::new();
    json_pointers(document, String::new(), &mut pointers);
    let new_value = document.pointer(&pointers[usize::from(edit.source) % pointers.len()]).cloned().unwrap_or_default();
    let Some(old_value) = document.pointer_mut(&pointers[usize::from(edit.target) % pointers.len()]) else { return };
    *old_value = match edit.kind % 8 {
        0 => Value::Null,
        1 => json!(edit.number),
        2 => json!(edit.text),
        3 => json!([new_value]),
        4 => json!({edit.text: new_value}),
        5 => json!([]),
        6 => json!({}),
        _ => new_value,
    };
}

fn check(document: &Value) {
    let (snapshot, session) = (&document["snapshot"], &document["session"]);
    let is_empty = |value: &Value| value.is_null() || *value == json!([]) || *value == json!({});
    assert!(is_empty(&snapshot["grants"]) && is_empty(&snapshot["delegation"]), "{snapshot}");
    assert!(snapshot["delegated_by"].is_null() && session["delegated_by"].is_null(), "{snapshot}");
    assert_eq!(session["user"], json!("me"), "{session}");
    let turn = &snapshot["turn"];
    if turn.is_object() && turn["phase"]["ended"].is_null() {
        assert!(turn["pinned"].is_null(), "{turn}");
        assert_eq!(turn["config"]["user"], json!("me"), "{turn}");
        for call in turn["phase"]["working"]["calls"].as_array().into_iter().flatten() {
            assert!(call["granted"].is_null() && call["request"].is_null(), "{call}");
            assert!(call["state"] != json!("waiting") && call["state"] != json!("running"), "{call}");
        }
    }
    for event in document["events"].as_array().into_iter().flatten() {
        let kind = &event["event"]["type"];
        assert!(*kind != json!("approval_resolved") && *kind != json!("denied"), "{event}");
    }
}

fuzz_target!(|edits: Vec<Edit<'_>>| {
    let mut document: Value = serde_json::from_str(DOCUMENT).expect("the document is JSON");
    edits.iter().take(6).for_each(|edit_step| edit(&mut document, edit_step));
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("the runtime starts");
    runtime.block_on(async {
        let store = SqliteStore::open_in_memory().expect("the store opens");
        let options = ImportOptions { subject: ImportAs::Subject("agent/x".to_owned()), user: Some("me".to_owned()) };
        if import_for(&store, document.to_string().as_bytes(), options).await.is_ok() {
            let mut exported = Vec::new();
            export(&store, "agent/x", &mut exported).await.expect("an imported session can be exported");
            check(&serde_json::from_slice(&exported).expect("the exported session is JSON"));
        }
    });
});
