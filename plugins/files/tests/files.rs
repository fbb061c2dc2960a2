//! Tests of the file tools with real files and without a host (S7).

use agent_host_sdk::prelude::*;
use agent_host_sdk::testing::Host;
use files::Files;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

struct Tree {
    folder: TempDir,
    host: Host,
}

impl Tree {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let host = Host::new().tree(folder.path().display().to_string());
        Self { folder, host }
    }

    fn with(files: &[(&str, &[u8])]) -> Self {
        let tree = Self::new();
        for (name, content) in files {
            let path = tree.path(name);
            fs::create_dir_all(Path::new(&path).parent().expect("it has a folder")).expect("the folder is made");
            fs::write(path, content).expect("the file is written");
        }
        tree
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Calls a tool. Sets the argument `path` to the path of the file `name` in the granted directory.
    fn call(&mut self, tool: &str, name: &str, mut arguments: Value) -> Result<Outcome, ToolError> {
        arguments["path"] = json!(self.path(name));
        self.host.run(|| Files::tools().call(tool, arguments))
    }

    fn text(&mut self, tool: &str, name: &str, arguments: Value) -> String {
        let folder = format!("{}/", self.folder.path().display());
        match self.call(tool, name, arguments) {
            Ok(outcome) => outcome.texts().replace(&folder, ""),
            Err(error) => format!("{error:?}").replace(&folder, ""),
        }
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect("the file is there")
    }
}

#[test]
fn lists_sorted_entries_up_to_depth() {
    let mut tree = Tree::with(&[("b.txt", b"12"), ("a/c.txt", b"123"), ("a/d/e.txt", b""), ("a.txt", b"1")]);
    let names = |tree: &mut Tree, depth: u32| {
        let value = tree.call("files.list", "", json!({ "depth": depth })).ok().and_then(|outcome| outcome.value());
        let value = value.expect("a listing");
        let entries = value["entries"].as_array().cloned().unwrap_or_default();
        let names = entries.iter().map(|entry| format!("{}:{}", entry["name"].as_str().unwrap_or(""), entry["size"]));
        names.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(&mut tree, 1), "a:null a.txt:1 b.txt:2");
    assert_eq!(names(&mut tree, 2), "a:null a/c.txt:3 a/d:null a.txt:1 b.txt:2");
    assert_eq!(names(&mut tree, 3), "a:null a/c.txt:3 a/d:null a/d/e.txt:0 a.txt:1 b.txt:2");
    assert!(tree.text("files.list", "", json!({ "depth": 0 })).contains("must be 1 to 32"));
}

#[test]
fn reports_a_truncated_list() {
    let mut tree = Tree::new();
    for number in 0..1_001 {
        fs::write(tree.path(&format!("{number:04}")), "").expect("the file is written");
    }
    let text = tree.text("files.list", "", json!({}));
    assert!(text.contains("\"0999\"") && text.contains("cut after 1000 entries, before `1000`"), "{text}");
}

#[test]
fn reads_ranges_of_lines() {
    let mut tree = Tree::with(&[("a", "one\ntwo\nthrée\nfour".as_bytes()), ("empty", b"")]);
    let mut read = |arguments: Value| tree.text("files.read", "a", arguments);
    assert_eq!(read(json!({})), "one\ntwo\nthrée\nfour[lines 1 to 4, the end]");
    assert_eq!(read(json!({ "lines": 2 })), "one\ntwo\n[lines 1 to 2; continue with first_line 3]");
    assert_eq!(read(json!({ "first_line": 3, "lines": 1 })), "thrée\n[lines 3 to 3; continue with first_line 4]");
    assert!(read(json!({ "first_line": 6 })).contains("is after the end: the file has 4 lines"));
    assert!(read(json!({ "first_line": 5 })).contains("is after the end: the file has 4 lines"));
    assert!(read(json!({ "lines": 0 })).contains("must be at least 1"));
    assert_eq!(tree.text("files.read", "empty", json!({})), "[the file is empty]");
}

#[test]
fn reads_byte_ranges_of_whole_characters() {
    let mut tree = Tree::with(&[("a", "äöü".as_bytes())]);
    let mut read = |arguments: Value| tree.text("files.read", "a", arguments);
    assert_eq!(read(json!({ "offset": 0, "length": 3 })), "ä\n[bytes 0 to 2 of 6; continue with offset 2]");
    assert_eq!(read(json!({ "offset": 1, "length": 3 })), "ö\n[bytes 2 to 4 of 6; continue with offset 4]");
    assert_eq!(read(json!({ "offset": 4 })), "ü\n[bytes 4 to 6 of 6]");
    assert!(read(json!({ "offset": 7 })).contains("the file has 6 bytes"));
    assert!(read(json!({ "offset": 0, "lines": 1 })).contains("/offset"));
    assert!(read(json!({ "length": 3 })).contains("needs `offset`"));
}

#[test]
fn reads_a_big_file_in_parts() {
    let content = (0..20_000).map(|number| format!("line {number}\n")).collect::<String>();
    let mut tree = Tree::with(&[("a", content.as_bytes())]);
    let (mut text_so_far, mut first) = (String::new(), 1);
    while let Some((text, footer)) = tree.text("files.read", "a", json!({ "first_line": first })).rsplit_once('[') {
        assert!(text.len() <= 64 * 1024);
        text_so_far.push_str(text);
        match footer.split_once("first_line ") {
            Some((_, next)) => first = next.trim_end_matches(']').parse().expect("a line"),
            None => break,
        }
    }
    assert_eq!(text_so_far, content);
}

#[test]
fn cuts_long_lines_and_rejects_binary_files() {
    let long = "x".repeat(50_000);
    let mut tree =
        Tree::with(&[("long", format!("{long}\nend\n").as_bytes()), ("binary", b"text\n\xff\n"), ("nul", b"a\0b")]);
    let text = tree.text("files.read", "long", json!({}));
    assert!(text.starts_with(&"x".repeat(16 * 1024)) && text.contains("…\nend\n"), "{}", text.len());
    assert!(text.contains("1 lines were longer"), "{text}");
    assert!(tree.text("files.read", "binary", json!({})).contains("not UTF-8 text: see byte 5"));
    assert!(tree.text("files.read", "nul", json!({})).contains("not UTF-8 text: see byte 1"));
}

#[test]
fn search_finds_lines_with_context() {
    let mut tree = Tree::with(&[
        ("src/a.rs", b"one\nfn two()\nthree\nfour\nfn five()\nsix\n"),
        ("src/b.txt", b"fn in text\n"),
        ("image.png", b"fn \0\n"),
    ]);
    let mut search = |arguments: Value| tree.text("files.search", "", arguments);
    assert_eq!(
        search(json!({ "pattern": "^fn \\w+\\(" })),
        "src/a.rs:2: fn two()\nsrc/a.rs:5: fn five()\n\
         [2 matches in 1 file; searched 2 files; left out 1 binary file (such as `image.png`)]"
    );
    assert_eq!(
        search(json!({ "text": "fn two(", "context": 1, "glob": "*.rs" })),
        "src/a.rs:1- one\nsrc/a.rs:2: fn two()\nsrc/a.rs:3- three\n[1 match in 1 file; searched 1 file]"
    );
    assert_eq!(
        search(json!({ "text": "fn", "context": 2, "glob": "src/**/*.rs" })),
        "src/a.rs:1- one\nsrc/a.rs:2: fn two()\nsrc/a.rs:3- three\nsrc/a.rs:4- four\nsrc/a.rs:5: fn five()\n\
         src/a.rs:6- six\n[2 matches in 1 file; searched 1 file]"
    );
    assert!(search(json!({ "text": "FN TWO", "ignore_case": true })).contains("[1 match in"));
    assert!(search(json!({ "text": "fn", "limit": 1 })).contains("stopped in `src/a.rs`, before line 5"));
}

#[test]
fn search_and_list_use_the_ignore_files() {
    let mut tree = Tree::with(&[
        (".gitignore", b"target/\n*.log\n"),
        ("a.log", b"needle\n"),
        ("src/b.rs", b"needle\n"),
        ("target/c.rs", b"needle\n"),
        (".git/d", b"needle\n"),
    ]);
    let found = tree.text("files.search", "", json!({ "text": "needle" }));
    assert!(
        found.starts_with("src/b.rs:1: needle\n[1 match in 1 file; searched 1 file; left out 2 ignored"),
        "{found}"
    );
    let found = tree.text("files.search", "", json!({ "text": "needle", "all": true }));
    assert!(found.contains("[3 matches in 3 files; searched 4 files]"), "{found}");
    let mut names = |arguments: Value| {
        let listing = tree.call("files.list", "", arguments).ok().and_then(|outcome| outcome.value());
        let listing = listing.expect("a listing");
        let entries = listing["entries"].as_array().cloned().unwrap_or_default();
        let names = entries.iter().filter_map(|entry| entry["name"].as_str()).collect::<Vec<_>>().join(" ");
        (names, listing["notes"][0].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(names(json!({ "depth": 1 })), (".git .gitignore a.log src target".to_owned(), String::new()));
    let (listed, note) = names(json!({ "depth": 2 }));
    assert_eq!(listed, ".git .gitignore a.log src src/b.rs target");
    assert!(note.contains("the entries of 1 hidden or ignored directory, such as `target`,"), "{note}");
    let all = ".git .gitignore a.log src src/b.rs target target/c.rs".to_owned();
    assert_eq!(names(json!({ "depth": 2, "all": true })), (all, String::new()));
}

#[test]
fn search_needs_one_valid_expression() {
    let mut tree = Tree::new();
    let mut search = |arguments: Value| tree.text("files.search", "", arguments);
    assert!(search(json!({})).contains("either `pattern` or `text`"));
    assert!(search(json!({ "pattern": "a", "text": "a" })).contains("either `pattern` or `text`"));
    assert!(search(json!({ "pattern": "(" })).contains("is not a regular expression"));
    assert!(search(json!({ "text": "" })).contains("must not be empty"));
    assert!(search(json!({ "text": "a", "context": 11 })).contains("at most 10"));
}

#[test]
fn write_overwrites_only_if_requested() {
    let mut tree = Tree::new();
    let write = |tree: &mut Tree, text: &str, mode: &str| {
        tree.text("files.write", "new/a.txt", json!({ "text": text, "mode": mode }))
    };
    assert_eq!(write(&mut tree, "one", "create"), r#"{"path":"new/a.txt","size":3,"existed":false}"#);
    assert!(write(&mut tree, "two", "create").contains("exists; set `mode`"));
    assert_eq!(tree.read("new/a.txt"), "one");
    assert_eq!(write(&mut tree, " more", "append"), r#"{"path":"new/a.txt","size":8,"existed":true}"#);
    assert_eq!(write(&mut tree, "two", "overwrite"), r#"{"path":"new/a.txt","size":3,"existed":true}"#);
    assert_eq!(tree.read("new/a.txt"), "two");
    assert_eq!(fs::read_dir(tree.path("new")).map(Iterator::count).ok(), Some(1), "no temporary file is left");
    assert!(tree.text("files.write", "new", json!({ "text": "", "mode": "overwrite" })).contains("not a file"));
}

#[test]
fn move_overwrites_only_if_requested() {
    let mut tree = Tree::with(&[("a", b"1"), ("b", b"2"), ("folder/c", b"3")]);
    let mut call = |from: &str, to: &str, overwrite: bool| {
        let arguments = json!({ "from": tree.path(from), "to": tree.path(to), "overwrite": overwrite });
        tree.host.run(|| Files::tools().call("files.move", arguments)).map(|_| ())
    };
    let refused = |result: Result<(), ToolError>| matches!(result, Err(ToolError::InvalidArguments(_)));
    assert!(refused(call("a", "b", false)));
    assert!(refused(call("a", "folder", true)));
    assert!(refused(call("folder", "folder/inner", false)));
    assert!(matches!(call("none", "x", false), Err(ToolError::NotFound(_))));
    assert_eq!(call("a", "b", true), Ok(()));
    assert_eq!(call("folder", "deep/er", false), Ok(()));
    assert_eq!((tree.read("b").as_str(), tree.read("deep/er/c").as_str()), ("1", "3"));
}

// P6: files outside of the granted trees are not accessible, and the error names the granted trees.
#[test]
fn p6_denies_paths_outside_of_granted_trees() {
    let mut tree = Tree::with(&[("a", b"1")]);
    let granted = tree.folder.path().display().to_string();
    for path in ["/etc/passwd", "../../etc/passwd", &format!("{granted}/../x"), "a"] {
        for (tool, arguments) in [
            ("files.read", json!({ "path": path })),
            ("files.list", json!({ "path": path })),
            ("files.search", json!({ "path": path, "text": "root" })),
            ("files.write", json!({ "path": path, "text": "" })),
            ("files.move", json!({ "from": path, "to": format!("{granted}/b") })),
            ("files.move", json!({ "from": format!("{granted}/a"), "to": path })),
        ] {
            match tree.host.run(|| Files::tools().call(tool, arguments.clone())) {
                Err(ToolError::Denied(message)) => assert!(message.contains(&granted), "{message}"),
                other => panic!("{tool} {arguments} gave {other:?}"),
            }
        }
    }
    match Files::tools().call("files.read", json!({ "path": "a" })) {
        Err(ToolError::Denied(message)) => assert!(message.contains("no file tree is granted"), "{message}"),
        other => panic!("{other:?}"),
    }
}

// Threat 33: a pipe is rejected before it is opened.
#[cfg(unix)]
#[test]
fn row_33_does_not_open_pipes() {
    let mut tree = Tree::new();
    let made = std::process::Command::new("mkfifo").arg(tree.path("pipe")).status().expect("mkfifo runs");
    assert!(made.success());
    assert!(tree.text("files.read", "pipe", json!({})).contains("neither a file nor a directory"));
    assert!(tree.text("files.search", "", json!({ "text": "a" })).contains("0 matches in 0 files"));
    assert!(tree.text("files.list", "", json!({})).contains(r#""kind":"other""#));
}

#[test]
fn edits_exact_pieces_or_nothing() {
    let text = "fn one() {\n    1\n}\n\nfn two() {\n    1\n}\n";
    let mut tree = Tree::with(&[("a.rs", text.as_bytes()), ("b", b"x\r\ny\r\n"), ("c", b"\xff")]);
    let edit = |old: &str, new: &str| json!({ "old": old, "new": new });
    let all = json!({ "old": "1\n", "new": "2\n", "all": true });
    let edits = json!([edit("fn one", "fn first"), all, edit("fn two() {\n    2", "fn two() {\n    3")]);
    let result = tree.text("files.edit", "a.rs", json!({ "edits": edits }));
    assert!(
        result.contains(r#"{"line":1,"occurrences":1},{"line":2,"occurrences":2},{"line":5,"occurrences":1}"#),
        "{result}"
    );
    let edited = "fn first() {\n    2\n}\n\nfn two() {\n    3\n}\n";
    assert_eq!(tree.read("a.rs"), edited);
    let cases = [
        (vec![edit("}\n", "")], "occurs 2 times, in the lines 3, 7"),
        (vec![edit("fn first() {\n  2", "")], "line 1 is `fn first() {`"),
        (vec![edit("fn third", "")], "read the file again"),
        (vec![edit("3", "4"), edit("3", "5")], "after the earlier edits"),
        (vec![edit("", "x")], "must not be empty"),
        (vec![edit("3", "3")], "is the same as `old`"),
        (vec![], "1 to 100 edits"),
        (vec![json!({ "old": "\n", "new": "x".repeat(1 << 20), "all": true })], "at most 4194304"),
    ];
    for (edits, problem) in cases {
        let result = tree.text("files.edit", "a.rs", json!({ "edits": edits }));
        assert!(result.contains(problem), "{edits:?}: {result}");
        assert_eq!(tree.read("a.rs"), edited, "nothing is changed");
    }
    assert!(tree.text("files.edit", "b", json!({ "edits": [edit("x\ny", "z")] })).contains("other line ends"));
    assert!(tree.text("files.edit", "c", json!({ "edits": [edit("x", "y")] })).contains("not UTF-8"));
    assert!(tree.text("files.edit", "none", json!({ "edits": [edit("x", "y")] })).contains("none"));
    assert!(tree.text("files.edit", "", json!({ "edits": [edit("x", "y")] })).contains("is a directory"));
}
