//! `agent-host replay` of calls that met files (S6): they find what they found then, whatever has become of it, and what they
//! change is held against what they changed then.

use crate::replayed::{Desk, TOKEN, calling, saying, shout};
use serde_json::json;
use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::Path;

/// A folder of documents for `intruder.deeds`.
fn desk() -> Desk {
    let desk = Desk::with(&["intruder"]);
    for folder in ["docs", "docs/sub"] {
        std::fs::create_dir(desk.path(folder)).unwrap();
    }
    for (name, text) in [("a.md", "one"), ("b.md", "two"), ("other.md", "three"), ("sub/x", "x"), ("sub/y", "y")] {
        std::fs::write(desk.path("docs").join(name), text).unwrap();
    }
    symlink("../a.md", desk.path("docs/sub/to-a")).unwrap();
    symlink("/etc/hostname", desk.path("docs/out")).unwrap();
    desk
}

/// One call that does this, with what it was answered.
fn does(desk: &Desk, deeds: &str) -> String {
    let replies = [calling("intruder.deeds", json!({ "deeds": deeds })), saying("Done.")];
    assert_eq!(desk.turn(&replies, &["--grant", "intruder:write=docs"]), Some(0));
    String::from_utf8(desk.run(&["session", "export", &desk.session()]).stdout).unwrap()
}

/// The same call in a plugin that does something else.
fn doing_instead(desk: &Desk, deeds: &str, more: &[&str]) -> (Option<i32>, String) {
    let config = format!("intruder:config=intruder={deeds}");
    desk.replay(&[&["--grant", &config], more].concat())
}

/// All that is below a folder.
fn everything(folder: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        let name = path.display().to_string();
        if kind.is_dir() {
            found.extend(everything(&path));
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

/// S6: reading, looking, listing in the order of the directory, what is not there, links, and what leads out of the tree: all as
/// it was, after the tree is gone, and of a document on another machine. Nothing of it is left behind.
#[test]
fn files_are_met_as_they_were() {
    let desk = desk();
    let said = does(
        &desk,
        "read docs/a.md; stat docs/a.md; lstat docs/sub/to-a; link docs/sub/to-a; read docs/sub/to-a; list docs; list docs/sub; \
         read docs/none; stat docs/sub/../b.md; read docs/a.md/x; read docs/out; first docs; stat docs; open docs/other.md",
    );
    for came in
        ["read docs/a.md: one", "link docs/sub/to-a: ../a.md", "read docs/sub/to-a: one", "read docs/none: NotFound"]
    {
        assert!(said.contains(came), "{said}");
    }
    assert!(said.contains("sub/ ") || said.contains(" sub/"), "{said}");
    let (code, said) = desk.replay(&[]);
    assert_eq!(code, Some(0), "{said}");
    std::fs::remove_dir_all(desk.path("docs")).unwrap();
    let (code, said) = desk.replay(&[]);
    assert_eq!(code, Some(0), "{said}");
    std::fs::create_dir(desk.path("docs")).unwrap();
    std::fs::write(desk.path("docs/a.md"), "something else").unwrap();
    let (code, said) = desk.replay(&[]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(std::fs::read_dir(desk.path("tmp")).unwrap().count(), 0, "the temporary folder is gone");
    let session = desk.session();
    assert!(desk.run(&["session", "export", &session, "-o", "one.json"]).status.success());
    let elsewhere = Desk::with(&[]);
    std::fs::copy(desk.path("one.json"), elsewhere.path("one.json")).unwrap();
    let with = format!("intruder={}", desk.path("plugins/intruder.wasm").display());
    let (code, said) = elsewhere.replay_of("one.json", &["--with", &with]);
    assert_eq!(code, Some(0), "{said}");
}

/// S6: another version is caught at the first difference, on the files of then.
#[test]
fn another_version_reads_the_same_files() {
    let desk = Desk::with(&[]);
    std::fs::create_dir(desk.path("docs")).unwrap();
    std::fs::write(desk.path("docs/a.md"), "One\n").unwrap();
    let reads = "parse::<std::path::PathBuf>().map(std::fs::read_to_string).unwrap().unwrap_or_default";
    let (says, asks) = ("Returns the text in capitals.", "\n[asks]\nfiles = \"read\"\n");
    std::fs::write(desk.path("plugins/shout.wasm"), shout(reads, says, asks)).unwrap();
    std::fs::write(desk.path("new.wasm"), shout(&format!("{reads}().to_uppercase"), says, asks)).unwrap();
    let replies = [calling("text.shout", json!({"text": "docs/a.md"})), saying("1")];
    assert_eq!(desk.turn(&replies, &["--grant", "shout:read=docs"]), Some(0));
    std::fs::write(desk.path("docs/a.md"), "Now\n").unwrap();
    assert_eq!(desk.replay(&[]).0, Some(0));
    let (code, said) = desk.replay(&["--with", &format!("shout={}", desk.path("new.wasm").display())]);
    assert_eq!(code, Some(1));
    assert!(said.contains("  -One\n  +ONE\n"), "{said}");
}

/// S6: what the call did not meet then is denied and said, also where its name is known; what is known to be nothing is nothing.
#[test]
fn what_was_not_met_is_denied_and_said() {
    let desk = desk();
    does(&desk, "read docs/a.md; stat docs/b.md; list docs/sub; read docs/none; first docs");
    for (deeds, denied) in [
        ("read docs/other.md", "denied looking at \"docs/other.md\": it is not recorded"),
        ("stat docs/sub/x", "denied looking at \"docs/sub/x\""),
        ("link docs/sub/to-a", "denied looking at \"docs/sub/to-a\""),
        ("read docs/b.md", "denied reading \"docs/b.md\""),
        ("list docs", "denied listing all of \"docs\""),
        ("write docs/new new", "denied looking at \"docs/new\""),
        ("remove docs/sub/y", "denied looking at \"docs/sub/y\""),
        ("move docs/a.md docs/c.md", "denied looking at \"docs/c.md\""),
        ("write docs/a.md text", "otherwise leaves \"docs/a.md\" changed, which it did not do then"),
        ("write docs/none text", "otherwise leaves \"docs/none\" changed, which it did not do then"),
    ] {
        let (code, said) = doing_instead(&desk, deeds, &[]);
        assert_eq!(code, Some(1), "{deeds}: {said}");
        assert!(said.contains(denied), "{deeds}: {said}");
    }
    let (code, said) = doing_instead(&desk, "read docs/sub/nothing; stat docs/none", &[]);
    assert_eq!((code, said.contains("denied")), (Some(1), false), "{said}");
    assert!(said.contains("+read docs/sub/nothing: NotFound") && said.contains("+stat docs/none: NotFound"), "{said}");
    // What is granted is there, behind what is recorded, and only read.
    std::fs::write(desk.path("docs/a.md"), "now").unwrap();
    std::fs::write(desk.path("docs/sub/x"), "now").unwrap();
    let now = everything(&desk.path("docs"));
    let deeds =
        "read docs/a.md; read docs/b.md; read docs/other.md; read docs/sub/x; list docs/sub; write docs/b.md text";
    let (code, said) = doing_instead(&desk, deeds, &["--grant", "intruder:read=docs"]);
    assert_eq!(code, Some(1), "{said}");
    for came in [" read docs/a.md: one", "+read docs/b.md: two", "+read docs/other.md: three", "+read docs/sub/x: now"]
    {
        assert!(said.contains(came), "{said}");
    }
    assert!(!said.contains("denied looking") && !said.contains("denied reading"), "{said}");
    assert_eq!(everything(&desk.path("docs")), now, "nothing of now was changed");
}

/// S6: what a call changes is changed in a temporary tree, and is compared with what it left then.
#[test]
fn changes_are_compared_and_happen_nowhere() {
    let desk = desk();
    std::fs::create_dir(desk.path("docs/full")).unwrap();
    std::fs::write(desk.path("docs/full/x"), "x").unwrap();
    let deeds = "write docs/new one; append docs/a.md more; read docs/a.md; mkdir docs/d; write docs/d/e text; stat docs/b.md; \
                 move docs/b.md docs/d/b; read docs/d/b; list docs/d; remove docs/sub/x; list docs/sub; move docs/sub docs/d/sub; \
                 read docs/d/sub/y; read docs/sub/y; write docs/passing x; remove docs/passing; twin docs/other.md docs/twin; \
                 read docs/twin; rmdir docs/d; rmdir docs/full; list docs";
    let said = does(&desk, deeds);
    for came in ["read docs/a.md: onemore", "read docs/d/b: two", "read docs/d/sub/y: y", "read docs/twin: three"] {
        assert!(said.contains(came), "{said}");
    }
    let after = everything(&desk.path("docs"));
    let (code, said) = desk.replay(&[]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(everything(&desk.path("docs")), after, "nothing was done twice");
    for (instead, told) in [
        (deeds.replace("new one", "new two"), "otherwise leaves \"docs/new\" otherwise than then"),
        (deeds.replace("more;", "MORE;"), "otherwise leaves \"docs/a.md\" otherwise than then"),
        (
            deeds.replace("write docs/d/e text; ", ""),
            "otherwise leaves \"docs/d/e\" as it was, which it did not do then",
        ),
        (
            deeds.replace("remove docs/passing; ", ""),
            "otherwise leaves \"docs/passing\" changed, which it did not do then",
        ),
        (deeds.replace("b.md docs/d/b", "b.md docs/d/e"), "otherwise leaves \"docs/d/e\" otherwise than then"),
    ] {
        let (code, said) = doing_instead(&desk, &instead, &[]);
        assert_eq!(code, Some(1), "{instead}: {said}");
        assert!(said.contains(told), "{instead}: {said}");
    }
    assert_eq!(everything(&desk.path("docs")), after);
}

/// S6: what has no room is not kept, and said; the rest is there.
#[test]
fn what_is_too_large_is_not_kept() {
    let desk = desk();
    std::fs::write(desk.path("docs/large"), "x".repeat(9_000)).unwrap();
    let file = "plugin_directory = \"plugins\"\nmodel = \"scripted:replies.json\"\n[limits]\nrecorded_kib = 8\n\
                [plugins.intruder.grants]\nread = [\"docs\"]\n";
    std::fs::write(desk.path("agent.toml"), file).unwrap();
    let call = |deeds: &str| calling("intruder.deeds", json!({ "deeds": deeds }));
    let replies = json!({"replies": [
        call("read docs/a.md; stat docs/large; list docs"), call("begin docs/large; read docs/a.md"), saying("Done.")]});
    std::fs::write(desk.path("replies.json"), replies.to_string()).unwrap();
    assert_eq!(desk.run(&["--agent", "agent.toml", "Go on."]).status.code(), Some(0));
    let (code, said) = desk.replay(&["--all"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("turn 1, step 2") && !said.contains("turn 1, step 1"), "{said}");
    let denied =
        "denied reading \"docs/large\", whose content was more than is recorded (`recorded_kib`): it is not recorded";
    assert!(said.contains(denied) && said.contains("\n   read docs/a.md: one"), "{said}");
    assert_eq!(desk.replay(&["--grant", "intruder:read=docs"]).0, Some(0));
}

/// S6: where what was changed had no room, a change is a difference, too.
#[test]
fn changes_without_room_are_told() {
    let desk = desk();
    let file = "plugin_directory = \"plugins\"\nmodel = \"scripted:replies.json\"\n[limits]\nrecorded_kib = 1\n\
                [plugins.intruder.grants]\nwrite = [\"docs\"]\n";
    std::fs::write(desk.path("agent.toml"), file).unwrap();
    let deeds: Vec<_> = (0..20).map(|number| format!("write docs/{}{number} x", "n".repeat(100))).collect();
    let replies = json!({"replies": [calling("intruder.deeds", json!({"deeds": deeds.join("; ")})), saying("Done.")]});
    std::fs::write(desk.path("replies.json"), replies.to_string()).unwrap();
    assert_eq!(desk.run(&["--agent", "agent.toml", "Go on."]).status.code(), Some(0));
    let (code, said) = desk.replay(&[]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("changed, of which nothing is recorded"), "{said}");
}

/// S6, row 16: a file that holds a secret of the plugin is in no record; whoever wants it in a replay grants it.
#[test]
fn a_secret_in_a_file_is_in_no_record() {
    let desk = desk();
    std::fs::write(desk.path("docs/env"), format!("TOKEN={TOKEN}\n")).unwrap();
    let file = "plugin_directory = \"plugins\"\nmodel = \"scripted:replies.json\"\n[plugins.intruder.grants]\nread = [\"docs\"]\n\
                [plugins.intruder.secrets]\nINTRUDER_TOKEN = { env = \"INTRUDER_TOKEN\", hosts = [\"api.example\"] }\n";
    std::fs::write(desk.path("agent.toml"), file).unwrap();
    let deeds = calling("intruder.deeds", json!({ "deeds": "open docs/env; read docs/a.md" }));
    std::fs::write(desk.path("replies.json"), json!({ "replies": [deeds, saying("Done.")] }).to_string()).unwrap();
    assert_eq!(desk.run(&["--agent", "agent.toml", "Go on."]).status.code(), Some(0));
    let exported = desk.run(&["session", "export", &desk.session()]).stdout;
    let exported = String::from_utf8(exported).unwrap();
    assert!(exported.contains("docs/a.md") && !exported.contains(TOKEN), "{exported}");
    let (code, said) = desk.replay(&[]);
    assert_eq!(code, Some(1));
    assert!(said.contains("denied reading \"docs/env\", which held a secret of the plugin"), "{said}");
    assert_eq!(desk.replay(&["--grant", "intruder:read=docs"]).0, Some(0));
}

/// S6, L2: what a context builder read of the project it reads again, sizes and times included, after the project has changed.
#[test]
fn context_builders_meet_their_files_again() {
    let desk = Desk::with(&["project-context", "intruder"]);
    std::fs::create_dir_all(desk.path("docs/src")).unwrap();
    std::fs::write(desk.path("docs/AGENTS.md"), "Be brief.").unwrap();
    std::fs::write(desk.path("docs/src/main.rs"), "fn main() {}").unwrap();
    let file = "plugin_directory = \"plugins\"\nmodel = \"scripted:replies.json\"\ncontext_builder = \"project-context\"\n\
                [plugins.project-context.grants]\nread = [\"docs\"]\n[plugins.intruder.grants]\nwrite = [\"docs\"]\n";
    std::fs::write(desk.path("agent.toml"), file).unwrap();
    let deeds = calling("intruder.deeds", json!({ "deeds": "append docs/src/main.rs //; write docs/new new" }));
    std::fs::write(desk.path("replies.json"), json!({ "replies": [deeds, saying("1")] }).to_string()).unwrap();
    assert_eq!(desk.run(&["--agent", "agent.toml", "Go on."]).status.code(), Some(0));
    let exported = String::from_utf8(desk.run(&["session", "export", &desk.session()]).stdout).unwrap();
    assert!(exported.contains("Be brief.") && exported.contains("project-changes"), "{exported}");
    std::fs::remove_dir_all(desk.path("docs")).unwrap();
    let (code, said) = desk.replay(&[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("4 deeds of its plugins"), "a turn, two steps and a call: {said}");
}
