//! Sessions of any length are imported, exported, forked and replayed in constant memory (D5, S6).

use crate::support::{agent_host, call_reply, components, script, text_reply};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// The number of messages in each turn of the session that [`sample_session`] creates.
const MESSAGES_PER_TURN: u64 = 4;

/// Returns the number of turns of the large session. If `AGENT_HOST_EVERY_REPEAT` is set, the session has
/// 100,000 messages.
fn turns() -> u64 {
    if every_repeat() { 25_000 } else { 2_000 }
}

fn every_repeat() -> bool {
    std::env::var_os("AGENT_HOST_EVERY_REPEAT").is_some()
}

/// The memory limit in MiB of a command that does not run plugins. The limit is set with `ulimit -d`, which counts all
/// writable memory.
const MEMORY: u32 = 120;
/// The memory limit of a command that runs plugins, in MiB.
const MEMORY_WITH_PLUGINS: u32 = 150;
/// The memory limit of every command in MiB, for a session of any length. This limit applies if
/// `AGENT_HOST_EVERY_REPEAT` is set. 190 MiB are just under 200 MB.
const MEMORY_AT_ANY_LENGTH: u32 = 190;

/// Runs the program and returns its stdout.
fn run(folder: &Path, memory: u32, arguments: &str) -> String {
    let memory = if every_repeat() { MEMORY_AT_ANY_LENGTH } else { memory } << 10;
    let program = env!("CARGO_BIN_EXE_agent-host");
    let command = format!("ulimit -d {memory} && exec '{program}' {arguments} --data data");
    let mut shell = Command::new("sh");
    let output = shell.args(["-c", &command]).current_dir(folder).stdin(Stdio::null()).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// Creates a folder with a session of one turn. Returns the folder and the exported session.
fn sample_session() -> (TempDir, Value) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("plugins")).unwrap();
    std::fs::copy(components().join("calc.wasm"), folder.path().join("plugins/calc.wasm")).unwrap();
    let replies = [call_reply(&[("calc.evaluate", json!({"expression": "1+1"}))]), text_reply("It is two.")];
    std::fs::write(folder.path().join("script.json"), script(&replies).to_string()).unwrap();
    std::fs::write(folder.path().join("agent.toml"), "name = \"long\"\nmodel = \"scripted:script.json\"\n").unwrap();
    run(folder.path(), MEMORY_WITH_PLUGINS, "--agent agent.toml --plugins plugins Go.");
    let document = serde_json::from_str(&run(folder.path(), MEMORY, "session export long")).unwrap();
    (folder, document)
}

/// Returns a copy of an item of the document. In the copy, the numbers and ids are those of a later turn.
fn copy_for_turn(item: &Value, turn: u64, events: u64, call: &str) -> Value {
    let text = item.to_string().replace(call, &format!("call_{turn}_1_1"));
    let mut item: Value = serde_json::from_str(&text).unwrap();
    let shift = |value: &mut Value, by: u64| *value = json!(value.as_u64().unwrap() + by);
    for object in ["", "/event"] {
        let Some(object) = item.pointer_mut(object).and_then(Value::as_object_mut) else { continue };
        if let Some(number) = object.get_mut("turn") {
            *number = json!(turn);
        }
        if let Some(id) = object.get_mut("id").filter(|id| id.is_u64()) {
            shift(id, (turn - 1) * MESSAGES_PER_TURN);
        }
        if let Some(sequence) = object.get_mut("sequence") {
            shift(sequence, (turn - 1) * events);
        }
    }
    item
}

/// Writes a copy of the document in which its turn is repeated `turns` times.
fn write_document(path: &Path, document: &Value, turns: u64) {
    let call = document["calls"][0]["id"].as_str().unwrap();
    let events = document["events"].as_array().unwrap().len() as u64;
    let mut file = BufWriter::new(File::create(path).unwrap());
    let mut write_items = |items: &Value, begin: &str, end: &str| {
        write!(file, "{begin}").unwrap();
        for turn in 1..=turns {
            for (index, item) in items.as_array().unwrap().iter().enumerate() {
                let separator = if turn == 1 && index == 0 { "\n" } else { ",\n" };
                write!(file, "{separator}{}", copy_for_turn(item, turn, events, call)).unwrap();
            }
        }
        write!(file, "]{end}").unwrap();
    };
    let mut snapshot = document["snapshot"].clone();
    let view = snapshot["view"].take();
    snapshot.as_object_mut().unwrap().remove("view");
    snapshot["next_message"] = json!(turns * MESSAGES_PER_TURN + 1);
    snapshot["sequence"] = json!(turns * events);
    (snapshot["turns"], snapshot["turn"]["number"]) = (json!(turns), json!(turns));
    snapshot["model_calls"] = json!(turns * 2);
    let mut begin = json!({"format": document["format"], "version": 1, "session": document["session"]}).to_string();
    begin.pop();
    let mut snapshot = snapshot.to_string();
    snapshot.pop();
    write_items(&view, &format!("{begin},\n\"snapshot\":{snapshot},\"view\":["), "},\n");
    for name in ["messages", "calls", "events", "records"] {
        write_items(&document[name], &format!("\"{name}\":["), ",\n");
    }
    let remaining_fields = json!({"hidden": [], "texts": document["texts"], "media": []}).to_string();
    write!(file, "{}", &remaining_fields[1..]).unwrap();
    file.flush().unwrap();
}

/// Row 27: If an import is killed, the imported session stays marked as incomplete. An incomplete session cannot be
/// continued, and a second import of the document replaces the incomplete session.
#[cfg(target_os = "linux")]
fn check_a_killed_import(folder: &Path) {
    let state = || {
        let listed = run(folder, MEMORY, "session list --json");
        let sessions = listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let mut imported = sessions.filter(|session| session["subject"] == "long/large");
        imported.next().map(|session| session["state"].as_str().unwrap().to_owned())
    };
    let mut import = agent_host();
    import.args(["session", "import", "large.json", "--as", "long/large", "--data", "data"]).current_dir(folder);
    let mut importing = import.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while state().as_deref() != Some("incomplete") {
        assert!(importing.try_wait().unwrap().is_none(), "the import ended before it could be killed");
    }
    importing.kill().unwrap();
    importing.wait().unwrap();
    assert_eq!(state().as_deref(), Some("incomplete"));
    for command in
        ["session resume long/large", "session fork long/large", "session export long/large", "session undo long/large"]
    {
        let program = agent_host()
            .args(command.split(' ').chain(["--data", "data"]))
            .args(if command.contains("resume") { &["--agent", "agent.toml"][..] } else { &[] })
            .current_dir(folder)
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&program.stderr);
        assert!(program.status.code() == Some(2) && stderr.contains("is incomplete"), "{command}: {stderr}");
    }
    // `--continue` does not select the incomplete session.
    let output_text = run(folder, MEMORY_WITH_PLUGINS, "--agent agent.toml --plugins plugins --continue");
    assert!(
        output_text.is_empty()
            || output_text
                == "It is two.
",
        "{output_text}"
    );
}

/// D5, S6: The commands that import, export, fork, list and replay a session never hold the whole session in memory.
#[cfg(target_os = "linux")]
#[test]
fn d5_moves_and_replays_a_long_session_in_constant_memory() {
    let ((folder, document), turns) = (sample_session(), turns());
    let folder = folder.path();
    write_document(&folder.join("large.json"), &document, turns);
    check_a_killed_import(folder);
    let started = std::time::Instant::now();
    // The test runner captures the output of `eprintln!`, so the test writes to stderr directly.
    let timed = |command_name: &str| {
        if every_repeat() {
            let _ = writeln!(std::io::stderr(), "{command_name}, after {:.1} s", started.elapsed().as_secs_f64());
        }
    };

    let imported = run(folder, MEMORY, "session import large.json --as long/large");
    timed("import");
    run(folder, MEMORY, &format!("session export {} --output again.json", imported.trim()));
    timed("export");
    let forked = run(folder, MEMORY, &format!("session fork {}", imported.trim()));
    timed("fork");
    let listed = run(folder, MEMORY, "session list --json");
    let counts = listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["messages"].clone());
    let counts: Vec<_> = counts.filter(|count| *count == json!(turns * MESSAGES_PER_TURN)).collect();
    assert_eq!(counts.len(), 2, "{listed}");
    // To replay the last turn of a session, the host reads all earlier turns.
    for replayed in [imported.trim(), forked.trim(), "again.json"] {
        let report = run(folder, MEMORY_WITH_PLUGINS, &format!("replay {replayed} --turn {turns}"));
        timed("replay of a turn");
        assert!(report.contains("1 call of its plugins"), "{report}");
    }
    if every_repeat() {
        let report = run(folder, MEMORY_WITH_PLUGINS, &format!("replay {}", forked.trim()));
        timed("replay");
        assert!(report.contains(&format!("{turns} calls of its plugins")), "{report}");
    }
}
