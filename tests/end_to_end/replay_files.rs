//! `agent-host replay` of calls that used files (S6). In the replay, the calls find the files as they were during the
//! recording, even if the files have changed since then. The replay compares the recorded changes with
//! the changes that the replayed calls make.

use crate::replay::{TOKEN, TestCli, call_reply, shout, text_reply};
use serde_json::json;
use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::Path;

/// Creates a folder that contains the plugin `intruder` and the folder `docs` with the files and links that its tool
/// `intruder.deeds` uses.
fn cli() -> TestCli {
    let cli = TestCli::with(&["intruder"]);
    for folder in ["docs", "docs/sub"] {
        std::fs::create_dir(cli.path(folder)).unwrap();
    }
    for (name, text) in [("a.md", "one"), ("b.md", "two"), ("other.md", "three"), ("sub/x", "x"), ("sub/y", "y")] {
        std::fs::write(cli.path("docs").join(name), text).unwrap();
    }
    symlink("../a.md", cli.path("docs/sub/to-a")).unwrap();
    symlink("/etc/hostname", cli.path("docs/out")).unwrap();
    cli
}

/// Runs a turn with one call of `intruder.deeds` that performs these operations. Returns the exported session, which
/// contains the result of the call.
fn result_of(cli: &TestCli, operations: &str) -> String {
    let replies = [call_reply("intruder.deeds", json!({ "deeds": operations })), text_reply("Done.")];
    assert_eq!(cli.turn(&replies, &["--grant", "intruder:write=docs"]), Some(0));
    String::from_utf8(cli.run(&["session", "export", &cli.session()]).stdout).unwrap()
}

/// Replays the latest session. The configuration value `intruder` makes the plugin perform these operations instead of
/// the recorded operations.
fn replay_with_operations(cli: &TestCli, operations: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let config = format!("intruder:config=intruder={operations}");
    cli.replay(&[&["--grant", &config], arguments].concat())
}

/// Returns all files below a folder, with their contents.
fn all_files(folder: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        let name = path.display().to_string();
        if kind.is_dir() {
            found.extend(all_files(&path));
            found.insert(name, "a folder".to_owned());
        } else {
            found.insert(
                name,
                std::fs::read_link(&path)
                    .map_or_else(|_| std::fs::read_to_string(&path).unwrap(), |to| to.display().to_string()),
            );
        }
    }
    found
}

/// S6: All operations on files return the recorded results: reading, metadata, listing in directory order, missing
/// files, links, and paths that leave the tree. The replay returns the recorded results even if the tree was
/// deleted, or if an exported document is replayed on another machine. The replay does not leave files behind.
#[test]
fn replays_files_as_they_were() {
    let cli = cli();
    let output_text = result_of(
        &cli,
        "read docs/a.md; stat docs/a.md; lstat docs/sub/to-a; link docs/sub/to-a; read docs/sub/to-a; list docs; list docs/sub; \
         read docs/none; stat docs/sub/../b.md; read docs/a.md/x; read docs/out; first docs; stat docs; open docs/other.md",
    );
    for line in
        ["read docs/a.md: one", "link docs/sub/to-a: ../a.md", "read docs/sub/to-a: one", "read docs/none: NotFound"]
    {
        assert!(output_text.contains(line), "{output_text}");
    }
    assert!(output_text.contains("sub/ ") || output_text.contains(" sub/"), "{output_text}");
    let (code, output_text) = cli.replay(&[]);
    assert_eq!(code, Some(0), "{output_text}");
    std::fs::remove_dir_all(cli.path("docs")).unwrap();
    let (code, output_text) = cli.replay(&[]);
    assert_eq!(code, Some(0), "{output_text}");
    std::fs::create_dir(cli.path("docs")).unwrap();
    std::fs::write(cli.path("docs/a.md"), "something else").unwrap();
    let (code, output_text) = cli.replay(&[]);
    assert_eq!(code, Some(0), "{output_text}");
    assert_eq!(std::fs::read_dir(cli.path("tmp")).unwrap().count(), 0, "the temporary folder is gone");
    let session = cli.session();
    assert!(cli.run(&["session", "export", &session, "-o", "one.json"]).status.success());
    let elsewhere = TestCli::with(&[]);
    std::fs::copy(cli.path("one.json"), elsewhere.path("one.json")).unwrap();
    let with = format!("intruder={}", cli.path("plugins/intruder.wasm").display());
    let (code, output_text) = elsewhere.replay_of("one.json", &["--with", &with]);
    assert_eq!(code, Some(0), "{output_text}");
}

/// S6: In a replay with another version of a plugin, the plugin reads the recorded files, and the replay reports the
/// first difference.
#[test]
fn another_version_reads_the_recorded_files() {
    let cli = TestCli::with(&[]);
    std::fs::create_dir(cli.path("docs")).unwrap();
    std::fs::write(cli.path("docs/a.md"), "One\n").unwrap();
    let reads = "parse::<std::path::PathBuf>().map(std::fs::read_to_string).unwrap().unwrap_or_default";
    let (says, asks) = ("Returns the text in capitals.", "\n[asks]\nfiles = \"read\"\n");
    std::fs::write(cli.path("plugins/shout.wasm"), shout(reads, says, asks)).unwrap();
    std::fs::write(cli.path("new.wasm"), shout(&format!("{reads}().to_uppercase"), says, asks)).unwrap();
    let replies = [call_reply("text.shout", json!({"text": "docs/a.md"})), text_reply("1")];
    assert_eq!(cli.turn(&replies, &["--grant", "shout:read=docs"]), Some(0));
    std::fs::write(cli.path("docs/a.md"), "Now\n").unwrap();
    assert_eq!(cli.replay(&[]).0, Some(0));
    let (code, output_text) = cli.replay(&["--with", &format!("shout={}", cli.path("new.wasm").display())]);
    assert_eq!(code, Some(1));
    assert!(output_text.contains("  -One\n  +ONE\n"), "{output_text}");
}

/// S6: The replay denies and reports the use of a path that the recorded call did not use, even if a recorded listing
/// contains the name of that path. A file that was missing when the call was recorded is also missing in the replay.
#[test]
fn denies_and_reports_files_that_were_not_recorded() {
    let cli = cli();
    result_of(&cli, "read docs/a.md; stat docs/b.md; list docs/sub; read docs/none; first docs");
    for (operations, denied) in [
        ("read docs/other.md", "denied looking at \"docs/other.md\": it was not recorded"),
        ("stat docs/sub/x", "denied looking at \"docs/sub/x\""),
        ("link docs/sub/to-a", "denied looking at \"docs/sub/to-a\""),
        ("read docs/b.md", "denied reading \"docs/b.md\""),
        ("list docs", "denied listing all of \"docs\""),
        ("write docs/new new", "denied looking at \"docs/new\""),
        ("remove docs/sub/y", "denied looking at \"docs/sub/y\""),
        ("move docs/a.md docs/c.md", "denied looking at \"docs/c.md\""),
        ("write docs/a.md text", "now leaves \"docs/a.md\" changed, unlike the recorded call"),
        ("write docs/none text", "now leaves \"docs/none\" changed, unlike the recorded call"),
    ] {
        let (code, output_text) = replay_with_operations(&cli, operations, &[]);
        assert_eq!(code, Some(1), "{operations}: {output_text}");
        assert!(output_text.contains(denied), "{operations}: {output_text}");
    }
    let (code, output_text) = replay_with_operations(&cli, "read docs/sub/nothing; stat docs/none", &[]);
    assert_eq!((code, output_text.contains("denied")), (Some(1), false), "{output_text}");
    assert!(
        output_text.contains("+read docs/sub/nothing: NotFound") && output_text.contains("+stat docs/none: NotFound"),
        "{output_text}"
    );
    // The plugin can also read a file that is granted for the replay and was not recorded, but cannot change it.
    std::fs::write(cli.path("docs/a.md"), "now").unwrap();
    std::fs::write(cli.path("docs/sub/x"), "now").unwrap();
    let current_files = all_files(&cli.path("docs"));
    let operations =
        "read docs/a.md; read docs/b.md; read docs/other.md; read docs/sub/x; list docs/sub; write docs/b.md text";
    let (code, output_text) = replay_with_operations(&cli, operations, &["--grant", "intruder:read=docs"]);
    assert_eq!(code, Some(1), "{output_text}");
    for difference in
        [" read docs/a.md: one", "+read docs/b.md: two", "+read docs/other.md: three", "+read docs/sub/x: now"]
    {
        assert!(output_text.contains(difference), "{output_text}");
    }
    assert!(!output_text.contains("denied looking") && !output_text.contains("denied reading"), "{output_text}");
    assert_eq!(all_files(&cli.path("docs")), current_files, "the current files are unchanged");
}

/// S6: A replay makes the changes of a call in a temporary tree and compares the tree with the recorded result.
#[test]
fn compares_changes_without_applying_them() {
    let cli = cli();
    std::fs::create_dir(cli.path("docs/full")).unwrap();
    std::fs::write(cli.path("docs/full/x"), "x").unwrap();
    let operations = "write docs/new one; append docs/a.md more; read docs/a.md; mkdir docs/d; write docs/d/e text; stat docs/b.md; \
                 move docs/b.md docs/d/b; read docs/d/b; list docs/d; remove docs/sub/x; list docs/sub; move docs/sub docs/d/sub; \
                 read docs/d/sub/y; read docs/sub/y; write docs/passing x; remove docs/passing; twin docs/other.md docs/twin; \
                 read docs/twin; rmdir docs/d; rmdir docs/full; list docs";
    let output_text = result_of(&cli, operations);
    for difference in ["read docs/a.md: onemore", "read docs/d/b: two", "read docs/d/sub/y: y", "read docs/twin: three"]
    {
        assert!(output_text.contains(difference), "{output_text}");
    }
    let files_after = all_files(&cli.path("docs"));
    let (code, output_text) = cli.replay(&[]);
    assert_eq!(code, Some(0), "{output_text}");
    assert_eq!(all_files(&cli.path("docs")), files_after, "the replay changed no files");
    for (changed_operations, difference) in [
        (operations.replace("new one", "new two"), "now leaves \"docs/new\" different from the recorded call"),
        (operations.replace("more;", "MORE;"), "now leaves \"docs/a.md\" different from the recorded call"),
        (
            operations.replace("write docs/d/e text; ", ""),
            "now leaves \"docs/d/e\" unchanged, unlike the recorded call",
        ),
        (
            operations.replace("remove docs/passing; ", ""),
            "now leaves \"docs/passing\" changed, unlike the recorded call",
        ),
        (
            operations.replace("b.md docs/d/b", "b.md docs/d/e"),
            "now leaves \"docs/d/e\" different from the recorded call",
        ),
    ] {
        let (code, output_text) = replay_with_operations(&cli, &changed_operations, &[]);
        assert_eq!(code, Some(1), "{changed_operations}: {output_text}");
        assert!(output_text.contains(difference), "{changed_operations}: {output_text}");
    }
    assert_eq!(all_files(&cli.path("docs")), files_after);
}

/// S6: A file that exceeds the recording limit is not recorded. If a call reads an unrecorded file in the replay, the
/// replay denies the read access and reports it. Files within the limit are recorded.
#[test]
fn does_not_record_files_over_the_limit() {
    let cli = cli();
    std::fs::write(cli.path("docs/large"), "x".repeat(9_000)).unwrap();
    let file = "plugin_directory = \"plugins\"\nmodel = \"scripted:replies.json\"\n[limits]\nrecorded_kib = 8\n\
                [plugins.intruder.grants]\nread = [\"docs\"]\n";
    std::fs::write(cli.path("agent.toml"), file).unwrap();
    let call = |operations: &str| call_reply("intruder.deeds", json!({ "deeds": operations }));
    let replies = json!({"replies": [
        call("read docs/a.md; stat docs/large; list docs"), call("begin docs/large; read docs/a.md"), text_reply("Done.")]});
    std::fs::write(cli.path("replies.json"), replies.to_string()).unwrap();
    assert_eq!(cli.run(&["--agent", "agent.toml", "Go on."]).status.code(), Some(0));
    let (code, output_text) = cli.replay(&["--all"]);
    assert_eq!(code, Some(1), "{output_text}");
    assert!(output_text.contains("turn 1, step 2") && !output_text.contains("turn 1, step 1"), "{output_text}");
    let denied = "denied reading \"docs/large\", whose content was too large to be recorded (`recorded_kib`): it was not recorded";
    assert!(output_text.contains(denied) && output_text.contains("\n   read docs/a.md: one"), "{output_text}");
    assert_eq!(cli.replay(&["--grant", "intruder:read=docs"]).0, Some(0));
}

/// S6: If the changes of a call exceeded the recording limit, the replay reports every change of that call as
/// a difference.
#[test]
fn reports_changes_over_the_limit() {
    let cli = cli();
    let file = "plugin_directory = \"plugins\"\nmodel = \"scripted:replies.json\"\n[limits]\nrecorded_kib = 1\n\
                [plugins.intruder.grants]\nwrite = [\"docs\"]\n";
    std::fs::write(cli.path("agent.toml"), file).unwrap();
    let operations: Vec<_> = (0..20).map(|number| format!("write docs/{}{number} x", "n".repeat(100))).collect();
    let replies = json!({"replies": [call_reply("intruder.deeds", json!({"deeds": operations.join("; ")})), text_reply("Done.")]});
    std::fs::write(cli.path("replies.json"), replies.to_string()).unwrap();
    assert_eq!(cli.run(&["--agent", "agent.toml", "Go on."]).status.code(), Some(0));
    let (code, output_text) = cli.replay(&[]);
    assert_eq!(code, Some(1), "{output_text}");
    let reported = "changed, but the record does not contain the changes of the original call";
    assert!(output_text.contains(reported), "{output_text}");
}

/// S6, row 16: A file that contains a secret of the plugin is not recorded. In a replay, the plugin can read such a
/// file only if a grant allows the replay to read it.
#[test]
fn does_not_record_a_file_with_a_secret() {
    let cli = cli();
    std::fs::write(cli.path("docs/env"), format!("TOKEN={TOKEN}\n")).unwrap();
    let file = "plugin_directory = \"plugins\"\nmodel = \"scripted:replies.json\"\n[plugins.intruder.grants]\nread = [\"docs\"]\n\
                [plugins.intruder.secrets]\nINTRUDER_TOKEN = { env = \"INTRUDER_TOKEN\", hosts = [\"api.example\"] }\n";
    std::fs::write(cli.path("agent.toml"), file).unwrap();
    let operations = call_reply("intruder.deeds", json!({ "deeds": "open docs/env; read docs/a.md" }));
    std::fs::write(cli.path("replies.json"), json!({ "replies": [operations, text_reply("Done.")] }).to_string())
        .unwrap();
    assert_eq!(cli.run(&["--agent", "agent.toml", "Go on."]).status.code(), Some(0));
    let exported = cli.run(&["session", "export", &cli.session()]).stdout;
    let exported = String::from_utf8(exported).unwrap();
    assert!(exported.contains("docs/a.md") && !exported.contains(TOKEN), "{exported}");
    let (code, output_text) = cli.replay(&[]);
    assert_eq!(code, Some(1));
    assert!(
        output_text.contains("denied reading \"docs/env\", which contained a secret of the plugin"),
        "{output_text}"
    );
    assert_eq!(cli.replay(&["--grant", "intruder:read=docs"]).0, Some(0));
}

/// S6, L2: In a replay, a context builder reads the project's files with their recorded contents, sizes and times, even
/// if the project has changed.
#[test]
fn replays_the_files_of_context_builders() {
    let cli = TestCli::with(&["project-context", "intruder"]);
    std::fs::create_dir_all(cli.path("docs/src")).unwrap();
    std::fs::write(cli.path("docs/AGENTS.md"), "Be brief.").unwrap();
    std::fs::write(cli.path("docs/src/main.rs"), "fn main() {}").unwrap();
    let file = "plugin_directory = \"plugins\"\nmodel = \"scripted:replies.json\"\ncontext_builder = \"project-context\"\n\
                [plugins.project-context.grants]\nread = [\"docs\"]\n[plugins.intruder.grants]\nwrite = [\"docs\"]\n";
    std::fs::write(cli.path("agent.toml"), file).unwrap();
    let operations = call_reply("intruder.deeds", json!({ "deeds": "append docs/src/main.rs //; write docs/new new" }));
    std::fs::write(cli.path("replies.json"), json!({ "replies": [operations, text_reply("1")] }).to_string()).unwrap();
    assert_eq!(cli.run(&["--agent", "agent.toml", "Go on."]).status.code(), Some(0));
    let exported = String::from_utf8(cli.run(&["session", "export", &cli.session()]).stdout).unwrap();
    assert!(exported.contains("Be brief.") && exported.contains("project-changes"), "{exported}");
    std::fs::remove_dir_all(cli.path("docs")).unwrap();
    let (code, output_text) = cli.replay(&[]);
    assert_eq!(code, Some(0), "{output_text}");
    assert!(output_text.contains("4 calls of its plugins"), "a turn, two steps and a call: {output_text}");
}
