//! Calls `text.search` as the host does (P2, S7).

use agent_host_sdk::prelude::*;
use agent_host_sdk::testing::Host;
use std::fs;
use std::path::Path;
use tempfile::TempDir;
use text::Text;

fn granted(files: &[(&str, &str)]) -> (TempDir, Host, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, content) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap_or(Path::new(""))).expect("the folder is made");
        fs::write(path, content).expect("the file is written");
    }
    let root = folder.path().display().to_string();
    (folder, Host::new().tree(root.as_str()), root)
}

/// Searches in the granted directory, or below it if `path` is set. Paths in the result are relative to the directory.
fn search(host: &mut Host, root: &str, mut arguments: Value) -> Result<String, ToolError> {
    let path = arguments["path"].as_str().map_or_else(|| root.to_owned(), |path| format!("{root}/{path}"));
    arguments["path"] = json!(path);
    let outcome = host.run(|| Text::tools().call("text.search", arguments))?;
    Ok(outcome.texts().replace(&format!("{root}/"), ""))
}

#[test]
fn finds_lines_in_files_and_trees() {
    let (_folder, mut host, root) = granted(&[
        ("b.rs", "fn Main() {}\nlet mainly = 1;\n"),
        ("a/c.md", "main\n"),
        ("a/build/d.rs", "main\n"),
        (".gitignore", "build/\n"),
    ]);
    let mut run = |arguments: Value| search(&mut host, &root, arguments).expect("the search succeeds");
    let left_out = "left out 1 ignored entry (such as `a/build`), 1 hidden entry (such as `.gitignore`)";
    assert_eq!(
        run(json!({ "text": "main" })),
        format!("a/c.md:1: main\nb.rs:2: let mainly = 1;\n[2 matches in 2 files; searched 2 files; {left_out}]")
    );
    assert_eq!(
        run(json!({ "text": "main", "case": "smart", "whole_words": true })),
        format!("a/c.md:1: main\nb.rs:1: fn Main() {{}}\n[2 matches in 2 files; searched 2 files; {left_out}]")
    );
    assert_eq!(
        run(json!({ "pattern": "^main$", "globs": ["*.rs"], "hidden": true, "ignored": true })),
        "a/build/d.rs:1: main\n[1 match in 1 file; searched 2 files]"
    );
    assert_eq!(
        run(json!({ "path": "b.rs", "text": "MAIN", "case": "ignore", "limit": 1 })),
        "b.rs:1: fn Main() {}\n[1 match in 1 file; searched 1 file; stopped in `b.rs`, before line 2, because the \
         maximum number of matches was reached; there may be more]"
    );
    assert_eq!(run(json!({ "text": "nowhere", "path": "a" })), {
        "[0 matches in 0 files; searched 1 file; left out 1 ignored entry (such as `a/build`)]"
    });
}

#[test]
fn p2_search_names_invalid_arguments() {
    let (_folder, mut host, root) = granted(&[("a", "")]);
    for (arguments, pointer) in [
        (json!({}), ""),
        (json!({ "text": "a", "pattern": "a" }), ""),
        (json!({ "text": "" }), "/text"),
        (json!({ "pattern": "(" }), "/pattern"),
        (json!({ "pattern": "a".repeat(1_001) }), "/pattern"),
        (json!({ "text": "a", "globs": ["*", "["] }), "/globs/1"),
        (json!({ "text": "a", "globs": vec!["*"; 33] }), "/globs"),
        (json!({ "text": "a", "case": "other" }), "/case"),
        (json!({ "text": "a", "context": 11 }), "/context"),
        (json!({ "text": "a", "limit": 0 }), "/limit"),
        (json!({ "text": "a", "line_bytes": 39 }), "/line_bytes"),
    ] {
        match search(&mut host, &root, arguments.clone()) {
            Err(ToolError::InvalidArguments(violations)) => assert_eq!(violations[0].pointer, pointer, "{arguments}"),
            other => panic!("{arguments}: {other:?}"),
        }
    }
}

// P6: Directories outside of the granted trees are not searched.
#[test]
fn p6_search_stays_in_the_granted_trees() {
    let (_folder, mut host, root) = granted(&[("a", "root\n")]);
    for path in ["../..", "../../etc/passwd"] {
        assert!(matches!(search(&mut host, &root, json!({ "path": path, "text": "root" })), Err(ToolError::Denied(_))));
    }
    let missing = search(&mut host, &root, json!({ "path": "missing", "text": "root" }));
    assert!(matches!(missing, Err(ToolError::NotFound(_))), "{missing:?}");
}
