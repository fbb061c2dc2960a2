//! Approvals with the real binary, where nobody sits at a terminal: what waits, who answers it, and what is left after the
//! process was killed (L17, D3; rows 19 and 20).

use crate::support::{KeptCode, calling, components, repository, saying, script, short};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

const PAY: &str = "payer.pay";

/// A place to work in: the plugin, an agent's configuration, a data folder, and a model that says what it is told to.
pub(crate) struct Desk {
    _kept: KeptCode,
    folder: TempDir,
}

impl Desk {
    pub(crate) fn new(rules: &str, replies: &[Value]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let kept = KeptCode::in_data(&folder.path().join("data"));
        for name in ["plugins", "tree"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        std::fs::copy(components().join("payer.wasm"), folder.path().join("plugins/payer.wasm")).unwrap();
        let desk = Self { _kept: kept, folder };
        std::fs::write(desk.path("script.json"), script(replies).to_string()).unwrap();
        desk.configure(rules);
        desk
    }

    /// Writes the agent's configuration anew, with these tables about approvals.
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
        let mut command = Command::new(env!("CARGO_BIN_EXE_agent-host"));
        command.args(arguments).arg("--data").arg(self.path("data")).current_dir(self.folder.path());
        command.env_remove("VISUAL").env_remove("EDITOR").env_remove("NO_COLOR").env("TERM", "xterm-256color");
        command
    }

    /// Runs the binary without a terminal; its exit code, what it printed, and what it said.
    pub(crate) fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        read(self.command(arguments).stdin(Stdio::null()).output().unwrap())
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

fn read(output: Output) -> (Option<i32>, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

pub(crate) fn paying(payments: &[(&str, u32)]) -> Value {
    let calls: Vec<_> = payments.iter().map(|(to, amount)| (PAY, json!({"to": to, "amount": amount}))).collect();
    calling(&calls)
}

/// L17: without anybody to ask, nothing runs: the turn waits, and says how to answer. `session approve` and `deny` do.
#[test]
fn l17_a_turn_waits_and_is_answered_on_the_command_line() {
    let desk = Desk::new("", &[paying(&[("Ann", 1), ("Bob", 2), ("Cy", 3)]), saying("Done.")]);
    let (code, printed, said) = desk.run(&["--agent", "agent.toml", "Pay."]);
    assert_eq!((code, printed.as_str()), (Some(3), ""), "{said}");
    assert!(said.contains("waits for an approval") && said.contains("agent-host session approve clerk/"), "{said}");
    assert!(desk.ledger().is_empty());
    let session = desk.session();
    let (_, shown, _) = desk.run(&["session", "show", &session]);
    assert!(shown.contains("waits for an approval") && shown.contains("{\"to\":\"Bob\",\"amount\":2}"), "{shown}");
    let answer = |arguments: &[&str]| {
        let all = [&["session"], arguments, &["--agent", "agent.toml"]].concat();
        desk.run(&all)
    };
    let (code, _, said) = answer(&["approve", &session, "call_9_9_9"]);
    assert!(
        code == Some(2) && said.contains("there wait call_1_1_1_") && said.contains("(payer.pay), call_1_1_2_"),
        "{said}"
    );
    let (code, _, said) = answer(&["approve", &session, "call_1_1_1", "--edit", "call_1_1_1={\"to\": \"Ann\"}"]);
    assert!(code == Some(2) && said.contains("amount"), "L8: {said}");
    let (code, _, said) = answer(&["approve", &session, "call_1_1_1", "--no-run"]);
    assert!(code == Some(0) && said.contains("go on with agent-host --session"), "{said}");
    assert!(desk.ledger().is_empty(), "--no-run only stores it");
    let (code, _, said) = answer(&["deny", &session, "call_1_1_2", "--reason", "Bob has enough"]);
    assert_eq!(code, Some(3), "the third still waits: {said}");
    assert_eq!(desk.ledger(), ["Ann 1"]);
    let (code, printed, said) =
        answer(&["approve", &session, "call_1_1_3", "--edit", "call_1_1_3={\"to\": \"Cy\", \"amount\": 1}"]);
    assert_eq!((code, printed.as_str()), (Some(0), "Done.\n"), "{said}");
    assert_eq!(desk.ledger(), ["Ann 1", "Cy 1"]);
    let (_, shown, _) = desk.run(&["session", "show", &session]);
    assert!(shown.contains("Bob has enough") && shown.contains("changed arguments: amount = 1"), "{shown}");
    let (code, _, said) = answer(&["approve", &session]);
    assert!(code == Some(2) && said.contains("does not wait for an approval"), "row 20: {said}");
}

/// L17, I1: a program reads what is asked, with all it needs to decide.
#[test]
fn l17_the_request_is_an_event() {
    let desk = Desk::new("", &[paying(&[("Ann", 1)]), saying("Done.")]);
    let (code, printed, _) = desk.run(&["--agent", "agent.toml", "--json", "Pay."]);
    assert_eq!(code, Some(3));
    let events: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let request = events.iter().find(|event| event["type"] == "approval_requested").expect("it is asked");
    let call = &request["calls"][0];
    assert_eq!((short(call["call"].as_str().unwrap()).as_str(), &call["name"]), ("call_1_1_1", &json!(PAY)));
    assert_eq!(call["details"]["arguments"], json!({"to": "Ann", "amount": 1}));
    assert!(call["digest"].as_str().is_some_and(|digest| digest.starts_with("sha256:")), "{call}");
    let last = events.last().unwrap();
    assert_eq!((&last["status"], &last["suspension"]["waits"][0]["cause"]), (&json!("suspended"), &json!("approval")));
}

/// L17: a yes that was given on the command line is for the tools that it names, once for each call.
#[test]
fn l17_yes_is_for_the_tools_that_it_names() {
    let desk = Desk::new(
        "[approval]\ndestructive = \"ask\"\n",
        &[
            calling(&[(PAY, json!({"to": "Ann", "amount": 1})), ("payer.wipe", json!({"to": "x", "amount": 1}))]),
            saying("Done."),
        ],
    );
    let (code, _, said) = desk.run(&["--agent", "agent.toml", "--yes", "payer.p*", "Pay."]);
    assert_eq!(code, Some(3), "{said}");
    assert_eq!(desk.ledger(), ["Ann 1"]);
    let (code, _, said) = desk.run(&["--agent", "agent.toml", "--continue", "--yes", "payer.wipe"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(desk.ledger(), ["Ann 1", "x 1"]);
    let (_, listed, said) = desk.run(&["approvals", "list"]);
    assert!(listed.is_empty() && said.contains("nothing was allowed for good"), "{said}");
}

/// L17: what was allowed for good is listed and revoked.
#[test]
fn l17_lasting_grants_are_listed_and_revoked() {
    let desk = Desk::new("", &[paying(&[("Ann", 1)]), saying("Done.")]);
    desk.run(&["--agent", "agent.toml", "Pay."]);
    let session = desk.session();
    let (code, ..) = desk.run(&["session", "approve", &session, "--scope", "always", "--agent", "agent.toml"]);
    assert_eq!(code, Some(0));
    let (code, _, said) = desk.run(&["--agent", "agent.toml", "Pay again."]);
    assert_eq!(code, Some(0), "nobody is asked: {said}");
    assert_eq!(desk.ledger(), ["Ann 1", "Ann 1"]);
    let (_, listed, _) = desk.run(&["approvals", "list"]);
    assert!(listed.contains("clerk may call payer.pay") && listed.contains("any arguments"), "{listed}");
    let id = listed.split_whitespace().next().unwrap();
    let (code, _, said) = desk.run(&["approvals", "revoke", id]);
    assert!(code == Some(0) && said.contains("revoked"), "{said}");
    let (code, ..) = desk.run(&["--agent", "agent.toml", "And again."]);
    assert_eq!(code, Some(3));
    let (code, _, said) = desk.run(&["approvals", "revoke", id]);
    assert!(code == Some(2) && said.contains("nothing of the id"), "{said}");
}

/// L17, D3: killed while somebody is asked, and after the answer is stored: nothing ran unasked, nobody is asked twice.
#[cfg(unix)]
#[test]
fn d3_an_approval_outlives_a_kill() {
    let desk = Desk::new("", &[paying(&[("Ann", 1)]), saying("Done.")]);
    let killed_at = |point: &str, arguments: &[&str]| {
        let killed = desk.command(arguments).stdin(Stdio::null()).env("AGENT_HOST_KILL_AT", point).output().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&killed.status), Some(9), "{point}");
    };
    killed_at("after-commit:reply", &["--agent", "agent.toml", "Pay."]);
    let (code, ..) = desk.run(&["--agent", "agent.toml", "--continue"]);
    assert_eq!(code, Some(3), "it still waits");
    let session = desk.session();
    let approve = ["session", "approve", session.as_str(), "--scope", "always", "--agent", "agent.toml"];
    killed_at("before-commit:approval", &approve);
    assert_eq!(desk.run(&["--agent", "agent.toml", "--continue"]).0, Some(3), "what was not stored was not said");
    killed_at("after-commit:approval", &approve);
    assert!(desk.ledger().is_empty());
    let (_, listed, _) = desk.run(&["approvals", "list"]);
    assert!(listed.contains("payer.pay"), "what was allowed for good is remembered after all: {listed}");
    let (code, ..) = desk.run(&["--agent", "agent.toml", "--continue"]);
    assert_eq!((code, desk.ledger()), (Some(0), vec!["Ann 1".to_owned()]));
}

/// L17: a configuration that asks or denies now holds for calls that the one before had let through and that have not run.
#[cfg(unix)]
#[test]
fn l17_the_configuration_counts_that_holds_when_a_call_runs() {
    for (rule, code) in [("ask", 3), ("deny", 0)] {
        let wipe = calling(&[("payer.wipe", json!({"to": "x", "amount": 1}))]);
        let desk = Desk::new("", &[wipe, saying("Done.")]);
        let mut command = desk.command(&["--agent", "agent.toml", "Wipe."]);
        command.stdin(Stdio::null()).env("AGENT_HOST_KILL_AT", "after-commit:reply").output().unwrap();
        desk.configure(&format!("[approval.tools]\n\"payer.wipe\" = \"{rule}\"\n"));
        let (found, _, said) = desk.run(&["--agent", "agent.toml", "--continue"]);
        assert_eq!(found, Some(code), "{rule}: {said}");
        assert!(desk.ledger().is_empty(), "{rule}");
    }
}

/// L17, I2: wrong rules are refused with line and key, and one that fits no tool is said to do nothing.
#[test]
fn l17_rules_are_checked() {
    let desk =
        Desk::new("[approval]\ndefault = \"never\"\n[approval.tools]\n\"payer.pay\" = \"yes\"\n", &[saying("Hi.")]);
    let (code, _, said) = desk.run(&["--agent", "agent.toml", "Hi."]);
    assert_eq!(code, Some(2));
    assert!(said.contains("agent.toml:5") && said.contains("agent.toml:7"), "{said}");
    assert!(said.contains("\"allow\" or \"ask\" or \"deny\"") && said.contains("payer.pay"), "{said}");
    desk.configure("[approval.tools]\n\"payr.pay\" = \"ask\"\n");
    let (code, _, said) = desk.run(&["--agent", "agent.toml", "Hi."]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("agent.toml:5") && said.contains("there is no tool `payr.pay`"), "{said}");
    // Behind a slip in the name of a tool of a source that is there, the tool would run unasked.
    for (rule, said_of_it) in [
        ("payer.pya", "did you mean `payer.pay`? `payer` has: "),
        ("payer.wpie*", "did you mean `payer.wipe`?"),
        ("payer.zzzzzzzz", "`payer` has: "),
        ("read_fil", "did you mean `read_file`?"),
    ] {
        desk.configure(&format!("[approval.tools]\n\"{rule}\" = \"deny\"\n"));
        let (code, _, said) = desk.run(&["--agent", "agent.toml", "Hi."]);
        assert_eq!(code, Some(2), "{rule}: {said}");
        assert!(said.contains("agent.toml:5") && said.contains(&format!("there is no tool `{rule}`")), "{said}");
        assert!(said.contains(said_of_it), "{rule}: {said}");
    }
    desk.configure("[approval]\nbind_arguments = [\"payer.pays\"]\n");
    let (code, _, said) = desk.run(&["--agent", "agent.toml", "Hi."]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("did you mean `payer.pay`?"), "{said}");
}

/// L17: the example of `tests/agents`, as it is written, with the plugin built already.
#[test]
fn l17_the_careful_agent_asks_first() {
    let desk = Desk::new("", &[]);
    let tree = desk.path("tree");
    std::fs::copy(components().join("files.wasm"), desk.path("plugins/files.wasm")).unwrap();
    let agent = repository().join("tests/agents/careful.toml");
    let (plugins, grant) = (desk.path("plugins"), format!("files:write={}", tree.display()));
    let asked = |arguments: &[&str]| {
        let mut command = desk.command(arguments);
        command.arg("--agent").arg(&agent).arg("--plugins").arg(&plugins).args(["--grant", &grant]);
        read(command.stdin(Stdio::null()).output().unwrap())
    };
    let (code, _, said) = asked(&["Write a note."]);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("files.write files@") && said.contains("\"path\": \"note.txt\""), "{said}");
    assert!(!tree.join("note.txt").exists());
    let session = desk.session();
    let edit =
        format!("call_1_1_2={{\"path\": \"{}\", \"text\": \"Remember the milk.\"}}", tree.join("note.txt").display());
    let (code, printed, said) = asked(&["session", "approve", &session, "--edit", &edit]);
    assert_eq!((code, printed.as_str()), (Some(0), "I wrote note.txt, and may not move it.\n"), "{said}");
    assert_eq!(std::fs::read_to_string(tree.join("note.txt")).unwrap(), "Remember the milk.");
}
