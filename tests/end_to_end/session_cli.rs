//! Session commands with the real binary. The tests check that the output of the commands is complete, that the
//! commands they suggest work when a user pastes them, and that a user can end a waiting turn (L1, L17, L18, D5).

use crate::support::{agent_host, call_reply, components, script, text_reply};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tempfile::TempDir;

pub(crate) struct TestCli {
    folder: TempDir,
}

impl TestCli {
    pub(crate) fn new(agent: &str, replies: &[Value]) -> Self {
        let cli = Self { folder: tempfile::tempdir().unwrap() };
        std::fs::write(cli.path("script.json"), script(replies).to_string()).unwrap();
        std::fs::write(cli.path("agent.toml"), format!("name = \"desk\"\nmodel = \"scripted:script.json\"\n{agent}"))
            .unwrap();
        cli
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs the binary, and returns its exit code, stdout and stderr.
    pub(crate) fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        self.run_in(&self.path("my data"), arguments)
    }

    /// Like [`Self::run`], but with another data folder.
    pub(crate) fn run_in(&self, data: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
        let mut command = agent_host();
        command.args(arguments).arg("--data").arg(data).current_dir(self.folder.path());
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }
}

const AGENT: [&str; 2] = ["--agent", "agent.toml"];

/// D5: Users type names from an imported document on command lines, and terminals show these names. If a name
/// contains special characters, the document is refused, and nothing is imported.
#[test]
fn d5_refuses_imported_names_with_special_characters() {
    let cli = TestCli::new("", &[call_reply(&[("read_result", json!({"call_id": "x"}))]), text_reply("Done.")]);
    cli.run(&[&AGENT[..], &["Go."]].concat());
    let (_, document, _) = cli.run(&["session", "export", "desk"]);
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
        std::fs::write(cli.path("hostile.json"), document.replace(named, hostile)).unwrap();
        let (code, _, stderr) = cli.run(&["session", "import", "hostile.json", "--as", "desk/hostile"]);
        assert!(code == Some(2) && stderr.contains("damaged at"), "{hostile}: {stderr}");
        assert!(!stderr.contains('\u{1b}') && !stderr.contains('\u{202e}'), "{stderr:?}");
    }
    std::fs::write(cli.path("good.json"), &document).unwrap();
    for name in ["a b", "x;y", "a/../b", "/"] {
        let (code, _, stderr) = cli.run(&["session", "import", "good.json", "--as", name]);
        assert_eq!(code, Some(2), "{name}: {stderr}");
    }
    let (code, _, stderr) = cli.run(&["session", "import", "good.json", "--as", "desk/copy"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(
        stderr.contains("--data '") && stderr.contains("my data'"),
        "the suggested command can be pasted: {stderr}"
    );
    let (_, listed, _) = cli.run(&["session", "list", "--json"]);
    assert_eq!(listed.lines().count(), 2);
}

/// L17: If a user approves or denies a call with commands instead of in an interactive session, the commands show every
/// argument of the call, even arguments that follow a very long argument.
#[test]
fn l17_shows_every_argument_of_a_call() {
    let padded = json!({"path": format!("note{}", " ".repeat(500)), "text": "rm -rf", "amount": 1_000_000});
    let service = "[services.pay]\nemits = { \"*\" = {} }\n[approval.tools]\npay = \"ask\"\n";
    let cli = TestCli::new(service, &[call_reply(&[("pay", padded)]), text_reply("Done.")]);
    let (code, _, stderr) = cli.run(&[&AGENT[..], &["Pay."]].concat());
    assert_eq!(code, Some(3), "{stderr}");
    let (_, output_text, _) = cli.run(&["session", "show", "desk"]);
    for text in [&stderr, &output_text] {
        assert!(text.contains("\"amount\": 1000000") && text.contains("\"text\": \"rm -rf\""), "{text}");
        assert!(text.contains("not everything is shown") && text.contains("--call call_1_1_1"), "{text}");
    }
    let (code, full_call, stderr) = cli.run(&["session", "show", "desk", "--call", "call_1_1_1"]);
    assert!(code == Some(0) && full_call.contains(&" ".repeat(500)), "{stderr}");
    let (code, _, stderr) = cli.run(&["session", "show", "desk", "--call", "call_9"]);
    assert!(code == Some(2) && stderr.contains("has no call `call_9`"), "{stderr}");
}

/// L1, L29: A user can end a waiting turn from the command line, and then the session can continue.
#[test]
fn l1_cancels_a_waiting_turn() {
    let service = "[services.pay]\nemits = { \"*\" = {} }\n";
    let cli = TestCli::new(service, &[call_reply(&[("pay", json!({}))]), text_reply("Then not.")]);
    cli.run(&[&AGENT[..], &["Pay."]].concat());
    let (code, _, stderr) = cli.run(&["session", "cancel", "desk"]);
    assert!(
        code == Some(0) && stderr.contains("cancelled; to continue the session: agent-host --session desk/"),
        "{stderr}"
    );
    let (code, _, stderr) = cli.run(&["session", "cancel", "desk"]);
    assert!(code == Some(2) && stderr.contains("no open turn to cancel"), "{stderr}");
    let (code, printed, stderr) = cli.run(&[&AGENT[..], &["--continue", "And now?"]].concat());
    assert_eq!((code, printed.as_str()), (Some(0), "Then not.\n"), "{stderr}");
}

/// L16, L29: Cancelling a turn cancels the turns of all child agents below it, on every level.
#[test]
fn l16_cancelling_a_turn_cancels_its_children() {
    let child = "[agents.below]\nagent = \"below.toml\"\ndescription = \"Works.\"\n";
    let cli = TestCli::new(child, &[call_reply(&[("below", json!({"task": "Pay."}))]), text_reply("Done.")]);
    let pays = crate::support::script(&[call_reply(&[("pay", json!({}))]), text_reply("Paid.")]);
    std::fs::write(cli.path("below.json"), pays.to_string()).unwrap();
    let file = "name = \"below\"\nmodel = \"scripted:below.json\"\n[services.pay]\nemits = { \"*\" = {} }\n";
    std::fs::write(cli.path("below.toml"), file).unwrap();
    let (code, _, stderr) = cli.run(&[&AGENT[..], &["Pay."]].concat());
    assert_eq!(code, Some(3), "{stderr}");
    let (code, _, stderr) = cli.run(&["session", "cancel", "desk"]);
    assert!(code == Some(0) && stderr.contains("was also cancelled"), "{stderr}");
    let (_, listed, _) = cli.run(&["session", "list", "--json"]);
    let check_state: Vec<_> =
        listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["state"].clone()).collect();
    assert_eq!(check_state, ["cancelled", "cancelled"], "{listed}");
}

/// L18: If a question is not answered before its deadline, the turn that asked the question ends, and the next command
/// reports the end of the turn.
#[test]
fn l18_reports_an_expired_question() {
    let ask = call_reply(&[("ask_question", json!({"question": "Which one?"}))]);
    let done = call_reply(&[("task_completion", json!({"result": "Done."}))]);
    let cli = TestCli::new("finish = \"tool\"\nanswer_within_ms = 700\n", &[ask, done]);
    assert_eq!(cli.run(&[&AGENT[..], &["Do it."]].concat()).0, Some(3));
    std::thread::sleep(std::time::Duration::from_millis(900));
    let (code, printed, stderr) = cli.run(&[&AGENT[..], &["--continue", "--json", "The red one."]].concat());
    assert_eq!(code, Some(0), "{stderr}");
    let results: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ends: Vec<_> =
        results.iter().filter(|line| line["type"] == "result").map(|line| line["finish"].clone()).collect();
    assert_eq!(ends, [json!("asked"), json!("completed")], "{printed}");
}

/// D5, L18: A turn whose question has been answered is listed as ready, not as interrupted. One line of the listing
/// names the command that continues the turn.
#[test]
fn d5_a_turn_whose_question_is_answered_is_listed_as_ready() {
    let ask = call_reply(&[("ask_question", json!({"question": "Which one?"}))]);
    let done = call_reply(&[("task_completion", json!({"result": "Done."}))]);
    let cli = TestCli::new("finish = \"tool\"\n", &[ask, done]);
    let check_state = |state: &str| {
        let (_, listed, _) = cli.run(&["session", "list"]);
        assert!(listed.contains(&format!("  {state}, 1 turn")), "{listed}");
        let (_, listed, _) = cli.run(&["session", "list", "--json"]);
        assert_eq!(serde_json::from_str::<Value>(&listed).unwrap()["state"], state);
        cli.run(&["session", "show"]).1
    };
    cli.run(&[&AGENT[..], &["Do it."]].concat());
    check_state("suspended");
    cli.run(&["session", "answer", "desk", "The red one."]);
    let output_text = check_state("ready");
    assert!(
        output_text.contains("\nready: the answer for this turn has arrived") && !output_text.contains("interrupted"),
        "{output_text}"
    );
    assert!(output_text.contains("agent-host --session desk/") && !output_text.contains("waits for"), "{output_text}");
    cli.run(&["session", "answer", "desk", "The red one."]);
    check_state("ready");
    let (code, _, stderr) = cli.run(&[&AGENT[..], &["--continue"]].concat());
    assert_eq!(code, Some(0), "{stderr}");
    check_state("idle");
}

/// D5: If `session undo` is refused because a turn is open, the message names one command that ends the turn and one
/// that continues the turn. The test runs the two named commands.
#[test]
fn d5_a_refused_undo_lists_working_commands() {
    let ask = || call_reply(&[("ask_question", json!({"question": "Which one?"}))]);
    let done = || call_reply(&[("task_completion", json!({"result": "Done."}))]);
    for command in ["resume", "cancel"] {
        let cli = TestCli::new("finish = \"tool\"\n", &[ask(), done()]);
        cli.run(&[&AGENT[..], &["Do it."]].concat());
        let (code, _, stderr) = cli.run(&["session", "undo", "desk"]);
        assert_eq!(code, Some(2), "{stderr}");
        let begin = format!("agent-host session {command} desk/");
        let at = stderr.find(&begin).unwrap_or_else(|| panic!("no `{begin}` in: {stderr}"));
        let id = stderr[at..].split_whitespace().nth(3).unwrap();
        assert!(stderr[at..].contains("my data"), "the command can be pasted: {stderr}");
        match command {
            "cancel" => {
                let (code, _, stderr) = cli.run(&["session", "cancel", id]);
                assert_eq!(code, Some(0), "{stderr}");
                assert_eq!(cli.run(&["session", "undo", id]).0, Some(0), "a cancelled turn can be undone");
            }
            _ => {
                let (code, printed, stderr) = cli.run(&[&["session", "resume", id, "The red."], &AGENT[..]].concat());
                assert_eq!((code, printed.as_str()), (Some(0), "Done.\n"), "{stderr}");
            }
        }
    }
}

/// D5: `session resume` finishes the open turn of the agent's latest session or of a named session, and then runs the
/// given prompt.
#[test]
fn d5_resume_finishes_an_open_turn() {
    let ask = call_reply(&[("ask_question", json!({"question": "Which one?"}))]);
    let done = |text: &str| call_reply(&[("task_completion", json!({"result": text}))]);
    let cli = TestCli::new("finish = \"tool\"\n", &[ask, done("One."), done("Two.")]);
    cli.run(&[&AGENT[..], &["Do it."]].concat());
    cli.run(&["session", "answer", "desk", "The red one."]);
    let (code, printed, stderr) = cli.run(&[&["session", "resume"], &AGENT[..]].concat());
    assert_eq!((code, printed.as_str()), (Some(0), "One.\n"), "{stderr}");
    let (code, printed, stderr) = cli.run(&[&["session", "resume", "desk/", "And now?"], &AGENT[..]].concat());
    assert_eq!((code, printed.as_str()), (Some(0), "Two.\n"), "{stderr}");
    assert_eq!(cli.run(&["session", "list"]).1.matches("idle, 2 turns").count(), 1);
    let (code, _, stderr) = cli.run(&[&["session", "resume", "nobody/", "And now?"], &AGENT[..]].concat());
    assert!(code == Some(2) && stderr.contains("no session `nobody/`"), "{stderr}");
}

/// I1: Whatever the outcome of a turn is, the last line that `--json` prints is the result of the turn.
#[test]
fn i1_the_last_json_line_is_the_result() {
    let ask = call_reply(&[("ask_question", json!({"question": "Which one?"}))]);
    let cli =
        TestCli::new("finish = \"tool\"\n", &[ask, call_reply(&[("task_completion", json!({"result": "Done."}))])]);
    let last = |arguments: &[&str]| {
        let (code, printed, stderr) = cli.run(&[&AGENT[..], &["--json"], arguments].concat());
        let lines: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let (last, events) = lines.split_last().unwrap_or_else(|| panic!("nothing was printed: {stderr}"));
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
    // This turn fails, because the script has no more replies.
    let (code, failed) = last(&["--continue", "And now?"]);
    assert_eq!((code, &failed["status"]), (Some(1), &json!("failed")));
    assert!(failed["code"].is_string() && failed["message"].is_string(), "{failed}");
}

/// P6: The terminal shows a denial once, with the configuration line to add. With `--json`, the host prints the denial
/// as an event and includes it in the result of the turn.
#[test]
fn p6_shows_a_denial_once() {
    let call = || call_reply(&[("text.count_file", json!({"path": "note.txt"}))]);
    let cli = TestCli::new("plugin_directory = \"plugins\"\n", &[call(), text_reply("No."), call(), text_reply("No.")]);
    std::fs::create_dir(cli.path("plugins")).unwrap();
    std::fs::copy(components().join("text.wasm"), cli.path("plugins/text.wasm")).unwrap();
    let (_, _, stderr) = cli.run(&[&AGENT[..], &["Count."]].concat());
    assert_eq!(stderr.matches("--grant text:read=DIR").count(), 1, "{stderr}");
    assert!(
        stderr.contains("is not granted reading files. To allow it")
            && stderr.contains("denied: `note.txt` is outside"),
        "{stderr}"
    );
    let (_, printed, _) = cli.run(&[&AGENT[..], &["--continue", "--json", "Count."]].concat());
    let is_reported =
        |kind: &str| printed.lines().any(|line| line.contains(kind) && line.contains("--grant text:read=DIR"));
    assert!(is_reported("\"type\":\"denied\"") && is_reported("\"type\":\"tool_result_error\""), "{printed}");
    let call = ["plugin", "call", "plugins/text.wasm", "text.count_file", "{\"path\": \"note.txt\"}"];
    let (code, _, stderr) = cli.run(&call);
    assert_eq!((code, stderr.matches("--grant text:read=DIR").count()), (Some(1), 1), "{stderr}");

    // The denial of an edit names the file, and not the temporary file that would replace it.
    std::fs::copy(components().join("files.wasm"), cli.path("plugins/files.wasm")).unwrap();
    std::fs::write(cli.path("note.txt"), "old").unwrap();
    let edit = "{\"path\": \"note.txt\", \"edits\": [{\"old\": \"old\", \"new\": \"new\"}]}";
    let (code, _, stderr) =
        cli.run(&["plugin", "call", "--grant", "files:read=.", "plugins/files.wasm", "files.edit", edit]);
    assert!(code == Some(1) && stderr.contains("opening \"note.txt\"") && !stderr.contains(".tmp"), "{stderr}");
}

/// D4: Replies of the offline router are not stored as memories, but the results of its tools are.
#[test]
fn d4_does_not_remember_replies_of_the_offline_router() {
    let cli = TestCli::new("plugin_directory = \"plugins\"\n", &[text_reply("A seal.")]);
    std::fs::create_dir(cli.path("plugins")).unwrap();
    std::fs::copy(components().join("text.wasm"), cli.path("plugins/text.wasm")).unwrap();
    let memory_kinds = || {
        let (_, listed, _) = cli.run(&["memory", "list", "--user", "ada", "--json"]);
        let mut kinds: Vec<_> = listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect();
        assert!(kinds.iter().all(|memory| !memory.to_string().contains("language model")), "{listed}");
        kinds.iter_mut().map(|memory| memory["kind"].take().as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for prompt in ["text.count {\"text\": \"one two\"}", "What swims in the harbour?"] {
        let (code, printed, stderr) = cli.run(&[&AGENT[..], &["--user", "ada", "--model", "offline", prompt]].concat());
        assert!(code == Some(0) && printed.contains("language model"), "{printed}{stderr}");
    }
    assert_eq!(memory_kinds(), ["tool"]);
    cli.run(&[&AGENT[..], &["--user", "ada", "What swims in the harbour?"]].concat());
    assert_eq!(memory_kinds(), ["final", "tool"], "a model's answer is stored");
}

/// L18: An expired question does not count as an answer: nothing is printed on stdout, and the exit code is 1.
#[test]
fn l18_an_expired_question_does_not_count_as_an_answer() {
    let ask = call_reply(&[("ask_question", json!({"question": "Which one?"}))]);
    let cli = TestCli::new("finish = \"tool\"\nanswer_within_ms = 2500\n", &[ask]);
    let (code, ..) = cli.run(&[&AGENT[..], &["Do it."]].concat());
    assert_eq!(code, Some(3));
    std::thread::sleep(std::time::Duration::from_millis(2600));
    let (code, printed, stderr) = cli.run(&[&AGENT[..], &["--continue"]].concat());
    assert_eq!((code, printed.as_str()), (Some(1), ""), "{stderr}");
    assert!(stderr.contains("nobody answered in time") && stderr.contains("Which one?"), "{stderr}");
}

/// I1: If the model's reply is empty, the host reports that the model gave no answer.
#[test]
fn i1_reports_an_empty_answer() {
    let cli = TestCli::new("", &[text_reply("")]);
    let (code, printed, stderr) = cli.run(&[&AGENT[..], &["Well?"]].concat());
    assert_eq!((code, printed.as_str()), (Some(0), ""), "{stderr}");
    assert!(stderr.contains("the model gave no answer"), "{stderr}");
}

/// L24: A configuration with a planner and `finish = "tool"` is refused, and the error names the line.
#[test]
fn l24_refuses_a_planner_with_finish_by_tool() {
    let cli = TestCli::new(
        "planner = \"scripted:script.json\"\nexecutor = \"scripted:script.json\"\nfinish = \"tool\"\n",
        &[],
    );
    let (code, _, stderr) = cli.run(&["config", "check", "agent.toml"]);
    assert!(
        code != Some(0) && stderr.contains("agent.toml:3") && stderr.contains("`finish = \"tool\"`"),
        "{code:?} {stderr}"
    );
}

/// If the log cannot be written, for example because the disk is full, the turn completes, and nothing except the log
/// is lost.
#[cfg(target_os = "linux")]
#[test]
fn a_log_that_cannot_be_written_does_not_fail_the_turn() {
    let url = "http://127.0.0.1:1/";
    let cli = TestCli::new(
        "plugin_directory = \"plugins\"\n",
        &[call_reply(&[("web.fetch", json!({"url": url}))]), text_reply("Done.")],
    );
    std::fs::create_dir(cli.path("plugins")).unwrap();
    std::fs::copy(components().join("web.wasm"), cli.path("plugins/web.wasm")).unwrap();
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = agent_host();
    command.args(["-v", "--agent", "agent.toml", "--data", "data", "Go."]).current_dir(cli.folder.path());
    let output = command.stdin(Stdio::null()).stderr(full).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), b"Done.\n".as_slice()));
}
