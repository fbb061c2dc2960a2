//! Sessions in a person's hands, with the real binary: what is shown is all of it, what is pasted does what it says, and
//! what waits can be ended (L1, L17, L18, D5).

use crate::support::{calling, components, saying, script};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

pub(crate) struct Desk {
    folder: TempDir,
}

impl Desk {
    pub(crate) fn new(agent: &str, replies: &[Value]) -> Self {
        let desk = Self { folder: tempfile::tempdir().unwrap() };
        std::fs::write(desk.path("script.json"), script(replies).to_string()).unwrap();
        std::fs::write(desk.path("agent.toml"), format!("name = \"desk\"\nmodel = \"scripted:script.json\"\n{agent}"))
            .unwrap();
        desk
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Exit code, what it printed, and what it said.
    pub(crate) fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        self.run_in(&self.path("my data"), arguments)
    }

    /// The same in another data folder.
    pub(crate) fn run_in(&self, data: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_agent-host"));
        command.args(arguments).arg("--data").arg(data).current_dir(self.folder.path());
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }
}

const AGENT: [&str; 2] = ["--agent", "agent.toml"];

/// D5: a document's names stand on command lines and terminals: what is no plain name is refused, and nothing imported.
#[test]
fn d5_imported_names_are_plain() {
    let desk = Desk::new("", &[calling(&[("read_result", json!({"call_id": "x"}))]), saying("Done.")]);
    desk.run(&[&AGENT[..], &["Go."]].concat());
    let (_, document, _) = desk.run(&["session", "export", "desk"]);
    let parsed: Value = serde_json::from_str(&document).unwrap();
    let (subject, agent) = (parsed["session"]["subject"].as_str().unwrap(), "\"desk\"");
    for (named, hostile) in [
        (subject, "desk/x; touch PWNED #"),
        (subject, "desk/\\u001b[2Jx"),
        (subject, "desk/\\u202ex"),
        (subject, "desk/a\\nforged"),
        (subject, "-rf"),
        (agent, "\"de sk\""),
        ("call_1_1_1", "../../evil"),
        ("call_1_1_1", "x$(touch PWNED)"),
    ] {
        std::fs::write(desk.path("hostile.json"), document.replace(named, hostile)).unwrap();
        let (code, _, said) = desk.run(&["session", "import", "hostile.json", "--as", "desk/hostile"]);
        assert!(code == Some(2) && said.contains("damaged at"), "{hostile}: {said}");
        assert!(!said.contains('\u{1b}') && !said.contains('\u{202e}'), "{said:?}");
    }
    std::fs::write(desk.path("good.json"), &document).unwrap();
    for name in ["a b", "x;y", "a/../b", "/"] {
        let (code, _, said) = desk.run(&["session", "import", "good.json", "--as", name]);
        assert_eq!(code, Some(2), "{name}: {said}");
    }
    let (code, _, said) = desk.run(&["session", "import", "good.json", "--as", "desk/copy"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("--data '") && said.contains("my data'"), "a hint can be pasted: {said}");
    let (_, listed, _) = desk.run(&["session", "list", "--json"]);
    assert_eq!(listed.lines().count(), 2);
}

/// L17: somebody who decides without a terminal sees every argument, however much stands before it.
#[test]
fn l17_nothing_of_a_call_is_hidden() {
    let padded = json!({"path": format!("note{}", " ".repeat(500)), "text": "rm -rf", "amount": 1_000_000});
    let service = "[services.pay]\nemits = { \"*\" = {} }\n[approval.tools]\npay = \"ask\"\n";
    let desk = Desk::new(service, &[calling(&[("pay", padded)]), saying("Done.")]);
    let (code, _, said) = desk.run(&[&AGENT[..], &["Pay."]].concat());
    assert_eq!(code, Some(3), "{said}");
    let (_, shown, _) = desk.run(&["session", "show", "desk"]);
    for text in [&said, &shown] {
        assert!(text.contains("\"amount\": 1000000") && text.contains("\"text\": \"rm -rf\""), "{text}");
        assert!(text.contains("not all is shown") && text.contains("--call call_1_1_1"), "{text}");
    }
    let (code, whole, said) = desk.run(&["session", "show", "desk", "--call", "call_1_1_1"]);
    assert!(code == Some(0) && whole.contains(&" ".repeat(500)), "{said}");
    let (code, _, said) = desk.run(&["session", "show", "desk", "--call", "call_9"]);
    assert!(code == Some(2) && said.contains("has no call `call_9`"), "{said}");
}

/// L1, L29: a turn that waits is ended from the command line, and the session goes on.
#[test]
fn l1_a_turn_that_waits_is_cancelled() {
    let service = "[services.pay]\nemits = { \"*\" = {} }\n";
    let desk = Desk::new(service, &[calling(&[("pay", json!({}))]), saying("Then not.")]);
    desk.run(&[&AGENT[..], &["Pay."]].concat());
    let (code, _, said) = desk.run(&["session", "cancel", "desk"]);
    assert!(code == Some(0) && said.contains("cancelled; to ask on: agent-host --session desk/"), "{said}");
    let (code, _, said) = desk.run(&["session", "cancel", "desk"]);
    assert!(code == Some(2) && said.contains("no turn to cancel"), "{said}");
    let (code, printed, said) = desk.run(&[&AGENT[..], &["--continue", "And now?"]].concat());
    assert_eq!((code, printed.as_str()), (Some(0), "Then not.\n"), "{said}");
}

/// L16, L29: whoever works for a turn that is cancelled stops, too, also what worked for it in turn.
#[test]
fn l16_what_works_for_a_cancelled_turn_is_cancelled() {
    let below = "[agents.below]\nagent = \"below.toml\"\ndescription = \"Works.\"\n";
    let desk = Desk::new(below, &[calling(&[("below", json!({"task": "Pay."}))]), saying("Done.")]);
    let pays = crate::support::script(&[calling(&[("pay", json!({}))]), saying("Paid.")]);
    std::fs::write(desk.path("below.json"), pays.to_string()).unwrap();
    let file = "name = \"below\"\nmodel = \"scripted:below.json\"\n[services.pay]\nemits = { \"*\" = {} }\n";
    std::fs::write(desk.path("below.toml"), file).unwrap();
    let (code, _, said) = desk.run(&[&AGENT[..], &["Pay."]].concat());
    assert_eq!(code, Some(3), "{said}");
    let (code, _, said) = desk.run(&["session", "cancel", "desk"]);
    assert!(code == Some(0) && said.contains("which worked for it, is cancelled, too"), "{said}");
    let (_, listed, _) = desk.run(&["session", "list", "--json"]);
    let states: Vec<_> =
        listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["state"].clone()).collect();
    assert_eq!(states, ["cancelled", "cancelled"], "{listed}");
}

/// L18: a question that nobody has answered in time ends its turn, and whoever asks on is told how.
#[test]
fn l18_an_expired_question_is_told() {
    let ask = calling(&[("ask_question", json!({"question": "Which one?"}))]);
    let done = calling(&[("task_completion", json!({"result": "Done."}))]);
    let desk = Desk::new("finish = \"tool\"\nanswer_within_ms = 700\n", &[ask, done]);
    assert_eq!(desk.run(&[&AGENT[..], &["Do it."]].concat()).0, Some(3));
    std::thread::sleep(std::time::Duration::from_millis(900));
    let (code, printed, said) = desk.run(&[&AGENT[..], &["--continue", "--json", "The red one."]].concat());
    assert_eq!(code, Some(0), "{said}");
    let results: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ends: Vec<_> =
        results.iter().filter(|line| line["type"] == "result").map(|line| line["finish"].clone()).collect();
    assert_eq!(ends, [json!("asked"), json!("completed")], "{printed}");
}

/// D5, L18: a turn that has its answer is ready, not interrupted: it waits for nobody, and one line says what goes on with it.
#[test]
fn d5_a_turn_that_was_answered_is_ready() {
    let ask = calling(&[("ask_question", json!({"question": "Which one?"}))]);
    let done = calling(&[("task_completion", json!({"result": "Done."}))]);
    let desk = Desk::new("finish = \"tool\"\n", &[ask, done]);
    let states = |state: &str| {
        let (_, listed, _) = desk.run(&["session", "list"]);
        assert!(listed.contains(&format!("  {state}, 1 turn")), "{listed}");
        let (_, listed, _) = desk.run(&["session", "list", "--json"]);
        assert_eq!(serde_json::from_str::<Value>(&listed).unwrap()["state"], state);
        desk.run(&["session", "show"]).1
    };
    desk.run(&[&AGENT[..], &["Do it."]].concat());
    states("suspended");
    desk.run(&["session", "answer", "desk", "The red one."]);
    let shown = states("ready");
    assert!(shown.contains("\nready: this turn has what it waited for") && !shown.contains("interrupted"), "{shown}");
    assert!(shown.contains("agent-host --session desk/") && !shown.contains("waits for"), "{shown}");
    desk.run(&["session", "answer", "desk", "The red one."]);
    states("ready");
    let (code, _, said) = desk.run(&[&AGENT[..], &["--continue"]].concat());
    assert_eq!(code, Some(0), "{said}");
    states("idle");
}

/// D5: an undo that is refused names the commands that end the turn or go on with it, and both do what they say.
#[test]
fn d5_a_refused_undo_names_commands_that_work() {
    let ask = || calling(&[("ask_question", json!({"question": "Which one?"}))]);
    let done = || calling(&[("task_completion", json!({"result": "Done."}))]);
    for command in ["resume", "cancel"] {
        let desk = Desk::new("finish = \"tool\"\n", &[ask(), done()]);
        desk.run(&[&AGENT[..], &["Do it."]].concat());
        let (code, _, said) = desk.run(&["session", "undo", "desk"]);
        assert_eq!(code, Some(2), "{said}");
        let begin = format!("agent-host session {command} desk/");
        let at = said.find(&begin).unwrap_or_else(|| panic!("no `{begin}` in: {said}"));
        let id = said[at..].split_whitespace().nth(3).unwrap();
        assert!(said[at..].contains("my data"), "it can be pasted: {said}");
        match command {
            "cancel" => {
                let (code, _, said) = desk.run(&["session", "cancel", id]);
                assert_eq!(code, Some(0), "{said}");
                assert_eq!(desk.run(&["session", "undo", id]).0, Some(0), "what is cancelled can be taken back");
            }
            _ => {
                let (code, printed, said) = desk.run(&[&["session", "resume", id, "The red."], &AGENT[..]].concat());
                assert_eq!((code, printed.as_str()), (Some(0), "Done.\n"), "{said}");
            }
        }
    }
}

/// D5: `session resume` finishes what was left, of the latest session of the agent or of the one that is named, and asks on.
#[test]
fn d5_sessions_are_resumed() {
    let ask = calling(&[("ask_question", json!({"question": "Which one?"}))]);
    let done = |text: &str| calling(&[("task_completion", json!({"result": text}))]);
    let desk = Desk::new("finish = \"tool\"\n", &[ask, done("One."), done("Two.")]);
    desk.run(&[&AGENT[..], &["Do it."]].concat());
    desk.run(&["session", "answer", "desk", "The red one."]);
    let (code, printed, said) = desk.run(&[&["session", "resume"], &AGENT[..]].concat());
    assert_eq!((code, printed.as_str()), (Some(0), "One.\n"), "{said}");
    let (code, printed, said) = desk.run(&[&["session", "resume", "desk/", "And now?"], &AGENT[..]].concat());
    assert_eq!((code, printed.as_str()), (Some(0), "Two.\n"), "{said}");
    assert_eq!(desk.run(&["session", "list"]).1.matches("idle, 2 turns").count(), 1);
    let (code, _, said) = desk.run(&[&["session", "resume", "nobody/", "And now?"], &AGENT[..]].concat());
    assert!(code == Some(2) && said.contains("no session `nobody/`"), "{said}");
}

/// I1: whatever becomes of a turn, the last line of `--json` is its result.
#[test]
fn i1_the_last_json_line_is_the_result() {
    let ask = calling(&[("ask_question", json!({"question": "Which one?"}))]);
    let desk = Desk::new("finish = \"tool\"\n", &[ask, calling(&[("task_completion", json!({"result": "Done."}))])]);
    let last = |arguments: &[&str]| {
        let (code, printed, said) = desk.run(&[&AGENT[..], &["--json"], arguments].concat());
        let lines: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let (last, events) = lines.split_last().unwrap_or_else(|| panic!("nothing was printed: {said}"));
        assert!(events.iter().all(|event| event["type"] != "result" && event["type"] != "output"), "{printed}");
        assert!(last["type"] == "result" && last["session"].as_str().unwrap().starts_with("desk/"), "{last}");
        (code, last.clone())
    };
    let (code, suspended) = last(&["Do it."]);
    assert_eq!((code, &suspended["status"]), (Some(3), &json!("suspended")));
    assert_eq!(suspended["suspension"]["waits"][0]["question"], "Which one?");
    let (code, finished) = last(&["--continue", "The red one."]);
    assert_eq!((code, &finished["status"]), (Some(0), &json!("finished")));
    assert_eq!((&finished["data"], &finished["finish"]), (&json!("Done."), &json!("completed")));
    let (_, again) = last(&["--continue"]);
    assert_eq!((&again["status"], &again["data"]), (&finished["status"], &finished["data"]));
    // The script has no more replies.
    let (code, failed) = last(&["--continue", "And now?"]);
    assert_eq!((code, &failed["status"]), (Some(1), &json!("failed")));
    assert!(failed["code"].is_string() && failed["message"].is_string(), "{failed}");
}

/// P6: people are told of a denial once, with the line to add; programs get the event and the result.
#[test]
fn p6_a_denial_is_told_once() {
    let call = || calling(&[("text.count_file", json!({"path": "note.txt"}))]);
    let desk = Desk::new("plugin_directory = \"plugins\"\n", &[call(), saying("No."), call(), saying("No.")]);
    std::fs::create_dir(desk.path("plugins")).unwrap();
    std::fs::copy(components().join("text.wasm"), desk.path("plugins/text.wasm")).unwrap();
    let (_, _, said) = desk.run(&[&AGENT[..], &["Count."]].concat());
    assert_eq!(said.matches("--grant text:read=DIR").count(), 1, "{said}");
    assert!(
        said.contains("was denied reading files; to allow it") && said.contains("denied: `note.txt` is outside"),
        "{said}"
    );
    let (_, printed, _) = desk.run(&[&AGENT[..], &["--continue", "--json", "Count."]].concat());
    let told = |kind: &str| printed.lines().any(|line| line.contains(kind) && line.contains("--grant text:read=DIR"));
    assert!(told("\"type\":\"denied\"") && told("\"type\":\"tool_result_error\""), "{printed}");
    let call = ["plugin", "call", "plugins/text.wasm", "text.count_file", "{\"path\": \"note.txt\"}"];
    let (code, _, said) = desk.run(&call);
    assert_eq!((code, said.matches("--grant text:read=DIR").count()), (Some(1), 1), "{said}");
}

/// D4: what the offline router says is no memory; what its tools brought is.
#[test]
fn d4_what_the_offline_router_says_is_not_remembered() {
    let desk = Desk::new("plugin_directory = \"plugins\"\n", &[saying("A seal.")]);
    std::fs::create_dir(desk.path("plugins")).unwrap();
    std::fs::copy(components().join("text.wasm"), desk.path("plugins/text.wasm")).unwrap();
    let remembered = || {
        let (_, listed, _) = desk.run(&["memory", "list", "--user", "ada", "--json"]);
        let mut kinds: Vec<_> = listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect();
        assert!(kinds.iter().all(|memory| !memory.to_string().contains("language model")), "{listed}");
        kinds.iter_mut().map(|memory| memory["kind"].take().as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for prompt in ["text.count {\"text\": \"one two\"}", "What swims in the harbour?"] {
        let (code, printed, said) = desk.run(&[&AGENT[..], &["--user", "ada", "--model", "offline", prompt]].concat());
        assert!(code == Some(0) && printed.contains("language model"), "{printed}{said}");
    }
    assert_eq!(remembered(), ["tool"]);
    desk.run(&[&AGENT[..], &["--user", "ada", "What swims in the harbour?"]].concat());
    assert_eq!(remembered(), ["final", "tool"], "a model's answer is");
}

/// L18: a question that nobody has answered in time is no answer: nothing is printed, and the exit code says so.
#[test]
fn l18_an_expired_question_is_no_answer() {
    let ask = calling(&[("ask_question", json!({"question": "Which one?"}))]);
    let desk = Desk::new("finish = \"tool\"\nanswer_within_ms = 2500\n", &[ask]);
    let (code, ..) = desk.run(&[&AGENT[..], &["Do it."]].concat());
    assert_eq!(code, Some(3));
    std::thread::sleep(std::time::Duration::from_millis(2600));
    let (code, printed, said) = desk.run(&[&AGENT[..], &["--continue"]].concat());
    assert_eq!((code, printed.as_str()), (Some(1), ""), "{said}");
    assert!(said.contains("nobody answered in time") && said.contains("Which one?"), "{said}");
}

/// I1: where the model says nothing, that is said.
#[test]
fn i1_an_empty_answer_is_told() {
    let desk = Desk::new("", &[saying("")]);
    let (code, printed, said) = desk.run(&[&AGENT[..], &["Well?"]].concat());
    assert_eq!((code, printed.as_str()), (Some(0), ""), "{said}");
    assert!(said.contains("the model said nothing"), "{said}");
}

/// L24: a configuration that contradicts itself is refused with its line.
#[test]
fn l24_a_planner_ends_no_turn_with_a_tool() {
    let desk =
        Desk::new("planner = \"scripted:script.json\"\nexecutor = \"scripted:script.json\"\nfinish = \"tool\"\n", &[]);
    let (code, _, said) = desk.run(&["config", "check", "agent.toml"]);
    assert!(
        code != Some(0) && said.contains("agent.toml:3") && said.contains("`finish` is \"tool\""),
        "{code:?} {said}"
    );
}

/// A log that cannot be written, such as on a full disk, is lost and nothing else: the turn is done.
#[cfg(target_os = "linux")]
#[test]
fn a_full_log_ends_no_turn() {
    let url = "http://127.0.0.1:1/";
    let desk = Desk::new(
        "plugin_directory = \"plugins\"\n",
        &[calling(&[("web.fetch", json!({"url": url}))]), saying("Done.")],
    );
    std::fs::create_dir(desk.path("plugins")).unwrap();
    std::fs::copy(components().join("web.wasm"), desk.path("plugins/web.wasm")).unwrap();
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_agent-host"));
    command.args(["-v", "--agent", "agent.toml", "--data", "data", "Go."]).current_dir(desk.folder.path());
    let output = command.stdin(Stdio::null()).stderr(full).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), b"Done.\n".as_slice()));
}
