//! Approvals with the real binary and without a terminal: how a turn waits for an approval, which commands answer its
//! approval request, and what is stored if the process is killed (L17, D3; rows 19 and 20).

use crate::support::{
    SharedCompiledCode, agent_host, base_call_id, call_reply, components, repository, script, text_reply,
};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

const PAY: &str = "payer.pay";

/// A temporary directory with the plugin `payer`, an agent's configuration, a data folder and a model script.
pub(crate) struct TestCli {
    _compiled_code: SharedCompiledCode,
    folder: TempDir,
}

impl TestCli {
    pub(crate) fn new(rules: &str, replies: &[Value]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let compiled_code = SharedCompiledCode::in_data(&folder.path().join("data"));
        for name in ["plugins", "tree"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        std::fs::copy(components().join("payer.wasm"), folder.path().join("plugins/payer.wasm")).unwrap();
        let cli = Self { _compiled_code: compiled_code, folder };
        std::fs::write(cli.path("script.json"), script(replies).to_string()).unwrap();
        cli.configure(rules);
        cli
    }

    /// Rewrites the agent's configuration. `rules` are the tables of the configuration that contain approval rules.
    pub(crate) fn configure(&self, rules: &str) {
        let text = format!(
            "name = \"clerk\"\nmodel = \"scripted:script.json\"\nplugin_directory = \"plugins\"\n{rules}\n\
             [plugins.payer.grants]\nwrite = [\"tree\"]\n"
        );
        std::fs::write(self.path("agent.toml"), text).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = agent_host();
        command.args(arguments).arg("--data").arg(self.path("data")).current_dir(self.folder.path());
        command.env_remove("VISUAL").env_remove("EDITOR").env_remove("NO_COLOR").env("TERM", "xterm-256color");
        command
    }

    /// Runs the binary without a terminal. Returns the exit code, stdout and stderr of the binary.
    pub(crate) fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        decode_output(self.command(arguments).stdin(Stdio::null()).output().unwrap())
    }

    pub(crate) fn ledger(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path("tree/ledger.txt")).unwrap_or_default();
        text.lines().map(|line| line.split_once(' ').expect("an id").1.to_owned()).collect()
    }

    pub(crate) fn session(&self) -> String {
        let (_, listed, _) = self.run(&["session", "list", "--limit", "1", "--json"]);
        let listed: Value = serde_json::from_str(listed.trim()).unwrap_or_else(|error| panic!("{error}: {listed}"));
        listed["subject"].as_str().unwrap().to_owned()
    }
}

fn decode_output(output: Output) -> (Option<i32>, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

pub(crate) fn payments_reply(payments: &[(&str, u32)]) -> Value {
    let calls: Vec<_> = payments.iter().map(|(to, amount)| (PAY, json!({"to": to, "amount": amount}))).collect();
    call_reply(&calls)
}

/// L17: Without a terminal, a call that needs approval does not run. The turn waits, and stderr explains how to answer
/// with `session approve` and `session deny`.
#[test]
fn l17_a_waiting_turn_is_answered_on_the_command_line() {
    let cli = TestCli::new("", &[payments_reply(&[("Ann", 1), ("Bob", 2), ("Cy", 3)]), text_reply("Done.")]);
    let (code, printed, stderr) = cli.run(&["--agent", "agent.toml", "Pay."]);
    assert_eq!((code, printed.as_str()), (Some(3), ""), "{stderr}");
    assert!(
        stderr.contains("waits for an approval") && stderr.contains("agent-host session approve clerk/"),
        "{stderr}"
    );
    assert!(cli.ledger().is_empty());
    let session = cli.session();
    let (_, shown, _) = cli.run(&["session", "show", &session]);
    assert!(shown.contains("waits for an approval") && shown.contains("{\"to\":\"Bob\",\"amount\":2}"), "{shown}");
    let answer = |arguments: &[&str]| {
        let command_arguments = [&["session"], arguments, &["--agent", "agent.toml"]].concat();
        cli.run(&command_arguments)
    };
    let (code, _, stderr) = answer(&["approve", &session, "call_9_9_9"]);
    assert!(
        code == Some(2)
            && stderr.contains("these calls are waiting: call_1_1_1_")
            && stderr.contains("(payer.pay), call_1_1_2_"),
        "{stderr}"
    );
    let (code, _, stderr) = answer(&["approve", &session, "call_1_1_1", "--edit", "call_1_1_1={\"to\": \"Ann\"}"]);
    assert!(code == Some(2) && stderr.contains("amount"), "L8: {stderr}");
    let (code, _, stderr) = answer(&["approve", &session, "call_1_1_1", "--no-run"]);
    assert!(code == Some(0) && stderr.contains("continue with agent-host --session"), "{stderr}");
    assert!(cli.ledger().is_empty(), "--no-run only stores the approval");
    let (code, _, stderr) = answer(&["deny", &session, "call_1_1_2", "--reason", "Bob has enough"]);
    assert_eq!(code, Some(3), "the third call still waits: {stderr}");
    assert_eq!(cli.ledger(), ["Ann 1"]);
    let (code, printed, stderr) =
        answer(&["approve", &session, "call_1_1_3", "--edit", "call_1_1_3={\"to\": \"Cy\", \"amount\": 1}"]);
    assert_eq!((code, printed.as_str()), (Some(0), "Done.\n"), "{stderr}");
    assert_eq!(cli.ledger(), ["Ann 1", "Cy 1"]);
    let (_, shown, _) = cli.run(&["session", "show", &session]);
    assert!(shown.contains("Bob has enough") && shown.contains("changed arguments: amount = 1"), "{shown}");
    let (code, _, stderr) = answer(&["approve", &session]);
    assert!(code == Some(2) && stderr.contains("is not waiting for an approval"), "row 20: {stderr}");
}

/// L17, I1: The JSON event of the approval request contains everything that a program needs to decide on the request.
#[test]
fn l17_an_approval_request_is_an_event() {
    let cli = TestCli::new("", &[payments_reply(&[("Ann", 1)]), text_reply("Done.")]);
    let (code, printed, _) = cli.run(&["--agent", "agent.toml", "--json", "Pay."]);
    assert_eq!(code, Some(3));
    let events: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let request = events.iter().find(|event| event["type"] == "approval_requested").expect("an approval is requested");
    let call = &request["calls"][0];
    assert_eq!((base_call_id(call["call"].as_str().unwrap()).as_str(), &call["name"]), ("call_1_1_1", &json!(PAY)));
    assert_eq!(call["details"]["arguments"], json!({"to": "Ann", "amount": 1}));
    assert!(call["digest"].as_str().is_some_and(|digest| digest.starts_with("sha256:")), "{call}");
    let last = events.last().unwrap();
    assert_eq!((&last["status"], &last["suspension"]["waits"][0]["cause"]), (&json!("suspended"), &json!("approval")));
}

/// L17: `--yes TOOL` allows only calls to the named tools, and stores no permanent approval.
#[test]
fn l17_the_option_yes_allows_only_the_named_tools() {
    let cli = TestCli::new(
        "[approval]\ndestructive = \"ask\"\n",
        &[
            call_reply(&[(PAY, json!({"to": "Ann", "amount": 1})), ("payer.wipe", json!({"to": "x", "amount": 1}))]),
            text_reply("Done."),
        ],
    );
    let (code, _, stderr) = cli.run(&["--agent", "agent.toml", "--yes", "payer.p*", "Pay."]);
    assert_eq!(code, Some(3), "{stderr}");
    assert_eq!(cli.ledger(), ["Ann 1"]);
    let (code, _, stderr) = cli.run(&["--agent", "agent.toml", "--continue", "--yes", "payer.wipe"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(cli.ledger(), ["Ann 1", "x 1"]);
    let (_, listed, stderr) = cli.run(&["approvals", "list"]);
    assert!(listed.is_empty() && stderr.contains("there are no permanent approvals"), "{stderr}");
}

/// L17: Permanent approvals can be listed and revoked, even after the sessions of their agent were deleted.
#[test]
fn l17_permanent_approvals_are_listed_and_revoked() {
    let cli = TestCli::new("", &[payments_reply(&[("Ann", 1)]), text_reply("Done.")]);
    cli.run(&["--agent", "agent.toml", "Pay."]);
    let session = cli.session();
    let (code, ..) = cli.run(&["session", "approve", &session, "--scope", "always", "--agent", "agent.toml"]);
    assert_eq!(code, Some(0));
    let (code, _, stderr) = cli.run(&["--agent", "agent.toml", "Pay again."]);
    assert_eq!(code, Some(0), "the permanent grant applies: {stderr}");
    assert_eq!(cli.ledger(), ["Ann 1", "Ann 1"]);
    for session in [session, cli.session()] {
        let (code, _, stderr) = cli.run(&["session", "delete", &session]);
        assert_eq!(code, Some(0), "{stderr}");
    }
    let (_, listed, _) = cli.run(&["approvals", "list"]);
    assert!(listed.contains("clerk may call payer.pay") && listed.contains("any arguments"), "{listed}");
    let id = listed.split_whitespace().next().unwrap();
    let (code, _, stderr) = cli.run(&["approvals", "revoke", id]);
    assert!(code == Some(0) && stderr.contains("revoked"), "{stderr}");
    let (code, ..) = cli.run(&["--agent", "agent.toml", "And again."]);
    assert_eq!(code, Some(3));
    let (code, _, stderr) = cli.run(&["approvals", "revoke", id]);
    assert!(code == Some(2) && stderr.contains("there is no approval `"), "{stderr}");
}

/// L17, D3: The process is killed a first time while the approval request is open, and a second time after the answer
/// is stored. No call runs without approval, and the host does not ask the user a second time.
#[cfg(unix)]
#[test]
fn d3_an_approval_survives_a_killed_process() {
    let cli = TestCli::new("", &[payments_reply(&[("Ann", 1)]), text_reply("Done.")]);
    let killed_at = |point: &str, arguments: &[&str]| {
        let killed = cli.command(arguments).stdin(Stdio::null()).env("AGENT_HOST_KILL_AT", point).output().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&killed.status), Some(9), "{point}");
    };
    killed_at("after-commit:reply", &["--agent", "agent.toml", "Pay."]);
    let (code, ..) = cli.run(&["--agent", "agent.toml", "--continue"]);
    assert_eq!(code, Some(3), "the turn still waits");
    let session = cli.session();
    let approve = ["session", "approve", session.as_str(), "--scope", "always", "--agent", "agent.toml"];
    killed_at("before-commit:approval", &approve);
    assert_eq!(
        cli.run(&["--agent", "agent.toml", "--continue"]).0,
        Some(3),
        "an approval that was not stored does not count"
    );
    killed_at("after-commit:approval", &approve);
    assert!(cli.ledger().is_empty());
    let (_, listed, _) = cli.run(&["approvals", "list"]);
    assert!(listed.contains("payer.pay"), "the permanent approval is stored: {listed}");
    let (code, ..) = cli.run(&["--agent", "agent.toml", "--continue"]);
    assert_eq!((code, cli.ledger()), (Some(0), vec!["Ann 1".to_owned()]));
}

/// L17: If a call was allowed by an earlier configuration and has not run yet, the current rule (ask or deny) applies
/// to the call.
#[cfg(unix)]
#[test]
fn l17_the_rules_at_the_time_of_the_call_apply() {
    for (rule, code) in [("ask", 3), ("deny", 0)] {
        let wipe = call_reply(&[("payer.wipe", json!({"to": "x", "amount": 1}))]);
        let cli = TestCli::new("[approval]\ndestructive = \"allow\"\n", &[wipe, text_reply("Done.")]);
        let mut command = cli.command(&["--agent", "agent.toml", "Wipe."]);
        command.stdin(Stdio::null()).env("AGENT_HOST_KILL_AT", "after-commit:reply").output().unwrap();
        cli.configure(&format!("[approval.tools]\n\"payer.wipe\" = \"{rule}\"\n"));
        let (found_code, _, stderr) = cli.run(&["--agent", "agent.toml", "--continue"]);
        assert_eq!(found_code, Some(code), "{rule}: {stderr}");
        assert!(cli.ledger().is_empty(), "{rule}");
    }
}

/// L17, I2: An invalid approval rule is reported with its line and its key. A rule that matches no tool is reported.
#[test]
fn l17_checks_approval_rules() {
    let cli = TestCli::new(
        "[approval]\ndefault = \"never\"\n[approval.tools]\n\"payer.pay\" = \"yes\"\n",
        &[text_reply("Hi.")],
    );
    let (code, _, stderr) = cli.run(&["--agent", "agent.toml", "Hi."]);
    assert_eq!(code, Some(2));
    assert!(stderr.contains("agent.toml:5") && stderr.contains("agent.toml:7"), "{stderr}");
    assert!(stderr.contains("\"allow\" or \"ask\" or \"deny\"") && stderr.contains("payer.pay"), "{stderr}");
    cli.configure("[approval.tools]\n\"payr.pay\" = \"ask\"\n");
    let (code, _, stderr) = cli.run(&["--agent", "agent.toml", "Hi."]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.contains("agent.toml:5") && stderr.contains("there is no tool `payr.pay`"), "{stderr}");
    // A typo in the name of an existing plugin's tool is an error, because the tool would otherwise run without
    // approval.
    for (rule, expected_note) in [
        ("payer.pya", "did you mean `payer.pay`? tools of `payer`: "),
        ("payer.wpie*", "did you mean `payer.wipe`?"),
        ("payer.zzzzzzzz", "tools of `payer`: "),
        ("read_fil", "did you mean `read_file`?"),
    ] {
        cli.configure(&format!("[approval.tools]\n\"{rule}\" = \"deny\"\n"));
        let (code, _, stderr) = cli.run(&["--agent", "agent.toml", "Hi."]);
        assert_eq!(code, Some(2), "{rule}: {stderr}");
        assert!(stderr.contains("agent.toml:5") && stderr.contains(&format!("there is no tool `{rule}`")), "{stderr}");
        assert!(stderr.contains(expected_note), "{rule}: {stderr}");
    }
    cli.configure("[approval]\nbind_arguments = [\"payer.pays\"]\n");
    let (code, _, stderr) = cli.run(&["--agent", "agent.toml", "Hi."]);
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("did you mean `payer.pay`?"), "{stderr}");
}

/// L17: The example agent `tests/agents/careful.toml` asks for approval before it writes.
#[test]
fn l17_the_careful_agent_asks_first() {
    let cli = TestCli::new("", &[]);
    let tree = cli.path("tree");
    std::fs::copy(components().join("files.wasm"), cli.path("plugins/files.wasm")).unwrap();
    let agent = repository().join("tests/agents/careful.toml");
    let (plugins, grant) = (cli.path("plugins"), format!("files:write={}", tree.display()));
    let run_agent = |arguments: &[&str]| {
        let mut command = cli.command(arguments);
        command.arg("--agent").arg(&agent).arg("--plugins").arg(&plugins).args(["--grant", &grant]);
        decode_output(command.stdin(Stdio::null()).output().unwrap())
    };
    let (code, _, stderr) = run_agent(&["Write a note."]);
    assert_eq!(code, Some(3), "{stderr}");
    assert!(stderr.contains("files.write files@") && stderr.contains("\"path\": \"note.txt\""), "{stderr}");
    assert!(!tree.join("note.txt").exists());
    let session = cli.session();
    let edit =
        format!("call_1_1_2={{\"path\": \"{}\", \"text\": \"Remember the milk.\"}}", tree.join("note.txt").display());
    let (code, printed, stderr) = run_agent(&["session", "approve", &session, "--edit", &edit]);
    assert_eq!((code, printed.as_str()), (Some(0), "I wrote note.txt, and may not move it.\n"), "{stderr}");
    assert_eq!(std::fs::read_to_string(tree.join("note.txt")).unwrap(), "Remember the milk.");
}
