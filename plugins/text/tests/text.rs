//! Calls the tools of `text` as the host does (P2, S7), with texts and with files.

use agent_host_sdk::prelude::*;
use agent_host_sdk::testing::Host;
use text::Text;

fn call(name: &str, arguments: Value) -> Result<Outcome, ToolError> {
    Text::tools().call(name, arguments)
}

fn structured_result(name: &str, arguments: Value) -> Value {
    call(name, arguments).expect("the call succeeds").value().expect("the result is structured")
}

/// Creates a directory with these files. Returns the directory, a test host that grants the directory, and the path of
/// the directory.
fn granted_directory(contents: &[(&str, &[u8])]) -> (tempfile::TempDir, Host, String) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for (name, content) in contents {
        std::fs::write(directory.path().join(name), content).expect("a temporary file");
    }
    let root = directory.path().to_string_lossy().into_owned();
    (directory, Host::new().tree(root.as_str()), root)
}

#[test]
fn counts_texts_and_files() {
    let expected = json!({ "lines": 2, "words": 3, "characters": 14, "bytes": 15 });
    assert_eq!(structured_result("text.count", json!({ "text": "eins zwei\ndreí" })), expected);
    let (_directory, mut host, root) = granted_directory(&[("a.txt", "eins zwei\ndreí".as_bytes())]);
    let arguments = json!({ "path": format!("{root}/a.txt") });
    assert_eq!(host.run(|| structured_result("text.count_file", arguments.clone())), expected);
    let sentence = host.run(|| call("text.count_file", arguments)).expect("it succeeds").texts();
    assert!(sentence.ends_with("a.txt has 2 lines, 3 words, 14 characters and 15 bytes."), "{sentence}");
}

#[test]
fn extracts_from_texts_and_files() {
    let (_directory, mut host, root) =
        granted_directory(&[("mail.txt", b"to: ada@example.org\ncc: ALAN@example.org\n")]);
    let path = format!("{root}/mail.txt");
    let arguments = json!({ "path": path, "pattern": r"^\w+: (?<user>[a-z]+)@", "ignore_case": true, "limit": 1 });
    let expected = json!({
        "matches": [{ "line": 1, "column": 1, "text": "to: ada@", "groups": { "user": "ada" } }],
        "match_count": 2,
        "left_out": 1,
    });
    assert_eq!(host.run(|| structured_result("text.extract_file", arguments)), expected);
    let no_matches = structured_result("text.extract", json!({ "text": "abc", "pattern": "x" }));
    assert_eq!(no_matches, json!({ "matches": [], "match_count": 0, "left_out": 0 }));
}

#[test]
fn compares_texts_and_files() {
    let (_directory, mut host, root) = granted_directory(&[("old", b"a\nb\n"), ("new", b"a\nc\n")]);
    let arguments = json!({ "old_path": format!("{root}/old"), "new_path": format!("{root}/new"), "context": 0 });
    let difference = host.run(|| structured_result("text.diff_files", arguments));
    assert_eq!((&difference["added"], &difference["removed"]), (&json!(1), &json!(1)));
    let diff = difference["diff"].as_str().expect("the diff is a text");
    assert!(diff.starts_with("--- /") && diff.ends_with("@@ -2 +2 @@\n-b\n+c\n"), "{diff}");
    let equal = call("text.diff", json!({ "old": "a", "new": "a" })).expect("it succeeds").texts();
    assert_eq!(equal, "old and new are equal.");
}

#[test]
fn file_errors_state_the_problem() {
    let (directory, mut host, root) = granted_directory(&[("latin", b"Gr\xfc\xdfe"), ("empty", b"")]);
    let large = std::fs::File::create(directory.path().join("large")).expect("a temporary file");
    large.set_len(text::MAX_SIZE + 1).expect("a sparse file");
    let mut search = |path: &str| host.run(|| call("text.extract_file", json!({ "path": path, "pattern": "a" })));
    let failed =
        |result, fragment: &str| matches!(result, Err(ToolError::Failed(message)) if message.contains(fragment));
    let limit_message = format!("at most {} can be read", text::MAX_SIZE);
    assert!(failed(search(&format!("{root}/large")), &limit_message));
    let mut count = |path: &str| host.run(|| call("text.count_file", json!({ "path": path })));
    assert!(failed(count(&format!("{root}/latin")), "byte 2 "));
    assert!(failed(count(&root), "not a regular file"));
    let counted = count(&format!("{root}/large")).expect("a file of any size can be counted").value();
    assert_eq!(counted.unwrap()["bytes"], text::MAX_SIZE + 1);
    assert!(
        matches!(count(&format!("{root}/missing")), Err(ToolError::NotFound(message)) if message.contains("missing"))
    );
    assert!(matches!(count("/etc/passwd"), Err(ToolError::Denied(message)) if message.contains(&root)));
    assert!(matches!(count(&format!("{root}/../x")), Err(ToolError::Denied(_))));
    assert_eq!(count(&format!("{root}/empty")).expect("an empty file is a text").value().unwrap()["bytes"], 0);
}

#[test]
fn p2_errors_name_bad_arguments() {
    for (name, arguments, pointer) in [
        ("text.extract", json!({ "text": "a", "pattern": "(" }), "/pattern"),
        ("text.extract", json!({ "text": "a", "pattern": "a", "limit": 0 }), "/limit"),
        ("text.extract", json!({ "text": 7, "pattern": "a" }), "/text"),
        ("text.diff", json!({ "old": "a", "new": "b", "context": -1 }), "/context"),
        ("text.count", json!({ "path": "a" }), "/path"),
        ("text.count_file", json!({}), ""),
    ] {
        match call(name, arguments.clone()) {
            Err(ToolError::InvalidArguments(violations)) => assert_eq!(violations[0].pointer, pointer, "{arguments}"),
            other => panic!("{name} {arguments}: {other:?}"),
        }
    }
}

#[test]
fn all_schemas_list_their_required_arguments() {
    for definition in Text::tools().definitions() {
        assert!(definition.traits.contains(agent_host_sdk::tool::Traits::READ_ONLY), "{}", definition.name);
        let schema: Value = serde_json::from_str(&definition.input_schema).expect("a schema");
        assert_eq!(schema["additionalProperties"], false, "{}", definition.name);
        assert!(!schema["required"].as_array().expect("required arguments").is_empty(), "{}", definition.name);
    }
}
