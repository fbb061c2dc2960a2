//! `kill -9` before and after each commit that a user, a service or a plugin causes (row 27). After the kill, the
//! database is intact, every call has one result or its turn waits for that result, and the session can continue.

use crate::support::{agent_host, call_reply, components, script, text_reply};
use agent_core::event::EventKind;
use agent_core::message::Part;
use agent_store::{CallFilter, Integrity, MessageRange, Options, SessionFilter, SessionIndex, SessionLog, SqliteStore};
use serde_json::{Value, json};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;

const AGENT: [&str; 2] = ["--agent", "agent.toml"];

/// The steps that lead to a commit of one kind of input.
struct Case {
    /// The name of the state machine input whose commit is tested.
    input: &'static str,
    /// The lines of `agent.toml` that follow the agent's name and model.
    agent: &'static str,
    replies: Vec<Value>,
    /// The steps before the killed command: a command that must succeed or suspend, `EDIT TEXT` to write `agent.toml`,
    /// `KILL POINT` to run a turn that is killed at this point, or `WAIT`, which waits for a short time. In a command,
    /// `{session}` is replaced by the session, and `{call}` by the session's first call without a result.
    setup_steps: Vec<Vec<&'static str>>,
    /// The command that is killed before and after the commit, as a list of arguments.
    killed_command: Vec<&'static str>,
}

struct TestCli {
    folder: TempDir,
}

impl TestCli {
    fn new(case: &Case) -> Self {
        let cli = Self { folder: tempfile::tempdir().unwrap() };
        for folder in ["plugins", "tree"] {
            std::fs::create_dir(cli.path(folder)).unwrap();
        }
        for plugin in ["probe", "summarize"] {
            std::fs::copy(components().join(format!("{plugin}.wasm")), cli.path(&format!("plugins/{plugin}.wasm")))
                .unwrap();
        }
        let mut script = script(&case.replies);
        script["answers"] = json!([{"text": "Short.", "usage": {"prompt_tokens": 5, "completion_tokens": 2}}]);
        std::fs::write(cli.path("script.json"), script.to_string()).unwrap();
        cli.write_agent(case.agent);
        cli
    }

    fn write_agent(&self, text: &str) {
        let text = format!("name = \"desk\"\nmodel = \"scripted:script.json\"\n{text}");
        std::fs::write(self.path("agent.toml"), text).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, arguments: &[&str], kill_at: Option<&str>) -> Output {
        let (session, call) = self.session();
        let mut command = agent_host();
        for argument in arguments {
            command.arg(argument.replace("{session}", &session).replace("{call}", &call));
        }
        command.arg("--data").arg(self.path("data")).current_dir(self.folder.path()).stdin(Stdio::null());
        if let Some(point) = kill_at {
            command.env("AGENT_HOST_KILL_AT", point);
        }
        command.output().unwrap()
    }

    fn store(&self) -> SqliteStore {
        SqliteStore::open(self.path("data/agent-host.db"), Options::default()).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Returns the id of the session and the id of its first call without a result. Each id that does not exist is
    /// returned as an empty text.
    fn session(&self) -> (String, String) {
        if !self.path("data/agent-host.db").exists() {
            return Default::default();
        }
        block_on(async {
            let store = self.store();
            let sessions = store.sessions(SessionFilter::default(), 1).await.unwrap();
            let Some(session) = sessions.first() else { return Default::default() };
            let open = store.calls(&session.subject, CallFilter::Unfinished).await.unwrap();
            (session.subject.clone(), open.first().map(|call| call.id.0.clone()).unwrap_or_default())
        })
    }

    /// Checks the invariants that hold for the stored session after a kill at any point.
    fn check(&self, context: &str) {
        block_on(async {
            let store = self.store();
            store.integrity_check().await.unwrap_or_else(|error| panic!("{context}: {error}"));
            let session = store.sessions(SessionFilter::default(), 1).await.unwrap().remove(0);
            let is_open = session.state.is_open();
            let range = MessageRange::After { id: 0, limit: 1_000 };
            let messages = store.messages(&session.subject, range).await.unwrap();
            let parts: Vec<_> = messages.iter().flat_map(|message| &message.parts).collect();
            for turn in 1..=session.turns {
                for call in store.calls(&session.subject, CallFilter::Turn(turn)).await.unwrap() {
                    let is_answer =
                        |part: &&&Part| matches!(part, Part::ToolResult(result) if result.call_id == call.id);
                    let answers = parts.iter().filter(is_answer).count();
                    let is_done = call.result.is_some();
                    assert!(answers <= usize::from(is_done), "{context}: {} has {answers} answers", call.id);
                    let waits = is_open && turn == session.turns;
                    assert!(waits || answers == 1, "{context}: {} has {answers} answers", call.id);
                }
            }
            let events = store.events(&session.subject, 0, 1_000).await.unwrap();
            assert!(events.iter().map(|event| event.event.sequence).eq(1..=events.len() as u64), "{context}");
            let ends = events.iter().filter(|event| matches!(event.event.kind, EventKind::LoopEnd { .. })).count();
            assert_eq!(ends, session.turns as usize - usize::from(is_open), "{context}: loop_end once for each turn");
        });
    }

    /// Checks that `probe.count` has written at most one line for each call.
    fn check_effects(&self, context: &str) {
        let effects = std::fs::read_to_string(self.path("tree/effects.txt")).unwrap_or_default();
        let mut lines: Vec<&str> = effects.lines().collect();
        let count = lines.len();
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len(), count, "{context}: an effect was repeated: {effects}");
    }

    /// Continues the session until a new turn has ended. A turn that waits for the user is cancelled.
    fn continue_to_end(&self, context: &str) {
        for _ in 0..6 {
            let output = self.run(&[&AGENT[..], &["--continue", "And now?"]].concat(), None);
            self.check(context);
            match output.status.code() {
                Some(0) => return,
                Some(3) => {
                    let cancelled = self.run(&["session", "cancel", "{session}"], None);
                    assert_eq!(cancelled.status.code(), Some(0), "{context}: {}", status_and_stderr(&cancelled));
                    self.check(context);
                }
                _ => panic!("{context}: {}", status_and_stderr(&output)),
            }
        }
        panic!("{context}: the session cannot continue");
    }
}

fn status_and_stderr(output: &Output) -> String {
    format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr))
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

const SERVICE: &str = "[services.pay]\nemits = { \"*\" = {} }\n";
const ASK_FIRST: &str = "[services.pay]\nemits = { \"*\" = {} }\n[approval.tools]\npay = \"ask\"\n";
const EDIT_TO_DENY: &str = "EDIT [services.pay]\nemits = { \"*\" = {} }\n[approval.tools]\npay = \"deny\"\n";
const EDIT_TO_ASK: &str = "EDIT [services.pay]\nemits = { \"*\" = {} }\n[approval.tools]\npay = \"ask\"\n";
const EDIT_TO_OTHER_DESCRIPTION: &str = "EDIT [services.pay]\ndescription = \"Another one.\"\nemits = { \"*\" = {} }\n";
const PLUGINS: &str = "plugin_directory = \"plugins\"\n[plugins.probe.grants]\nwrite = [\"tree\"]\n\
                       events = [\"com.example.probe.v1\"]\n[plugins.summarize.grants]\nmodel_tokens = 10000\n";

fn cases() -> Vec<Case> {
    let start_turn = || [&AGENT[..], &["Go."]].concat();
    let final_replies = || [text_reply("Done."), text_reply("Done."), text_reply("Done."), text_reply("Done.")];
    let with_final_replies = |call: Value| [&[call][..], &final_replies()].concat();
    let pay = || with_final_replies(call_reply(&[("pay", json!({}))]));
    let continue_turn = [&AGENT[..], &["--continue"]].concat();
    let approve = vec!["session", "approve", "{session}", "--no-run", "--agent", "agent.toml"];
    let count = || with_final_replies(call_reply(&[("probe.count", json!({"path": "tree/effects.txt", "ms": 0}))]));
    let asks_config = "finish = \"tool\"\nanswer_within_ms = 300\n";
    let question = call_reply(&[("ask_question", json!({"question": "Which?"}))]);
    let complete = || call_reply(&[("task_completion", json!({"result": "Done."}))]);
    let case = |input, agent, replies, setup_steps, killed_command| Case {
        input,
        agent,
        replies,
        setup_steps,
        killed_command,
    };
    vec![
        case("cancel", SERVICE, pay(), vec![start_turn()], vec!["session", "cancel", "{session}"]),
        case("undo", SERVICE, final_replies().to_vec(), vec![start_turn()], vec!["session", "undo", "{session}"]),
        case("keep", SERVICE, pay(), vec![start_turn()], [&AGENT[..], &["--continue", "And?"]].concat()),
        case(
            "expire",
            asks_config,
            vec![question, complete(), complete()],
            vec![start_turn(), vec!["WAIT"]],
            continue_turn.clone(),
        ),
        case("approval", ASK_FIRST, pay(), vec![start_turn()], approve.clone()),
        case("forbidden", ASK_FIRST, pay(), vec![start_turn(), approve, vec![EDIT_TO_DENY]], continue_turn.clone()),
        case(
            "ask_again",
            SERVICE,
            pay(),
            vec![vec!["KILL before-commit:dispatched"], vec![EDIT_TO_ASK]],
            continue_turn.clone(),
        ),
        case(
            "denied",
            SERVICE,
            pay(),
            vec![vec!["KILL before-commit:dispatched"], vec![EDIT_TO_OTHER_DESCRIPTION]],
            continue_turn.clone(),
        ),
        case(
            "pending",
            PLUGINS,
            with_final_replies(call_reply(&[("probe.pending", json!({"text": "x"}))])),
            vec![],
            start_turn(),
        ),
        case(
            "asked",
            PLUGINS,
            with_final_replies(call_reply(&[("summarize.text", json!({"text": "x", "words": 10}))])),
            vec![],
            start_turn(),
        ),
        case(
            "resolve",
            PLUGINS,
            count(),
            vec![["KILL after-call:probe.count"].to_vec(), continue_turn],
            vec!["session", "resolve", "{session}/{call}", "result", "counted"],
        ),
    ]
}

/// Row 27, D3: The process is killed before and after every commit whose cause is outside the turn.
#[test]
fn row_27_a_session_is_intact_after_a_kill_before_or_after_a_decision() {
    for case in &cases() {
        for moment in ["before-commit", "after-commit"] {
            let (cli, point) = (TestCli::new(case), format!("{moment}:{}", case.input));
            for command in &case.setup_steps {
                match command[0].split_once(' ') {
                    Some(("EDIT", agent)) => cli.write_agent(agent),
                    Some(("KILL", point)) => drop(cli.run(&[&AGENT[..], &["Go."]].concat(), Some(point))),
                    None if command[0] == "WAIT" => std::thread::sleep(Duration::from_millis(400)),
                    _ => {
                        let output = cli.run(command, None);
                        assert!(matches!(output.status.code(), Some(0 | 3)), "{point}: {}", status_and_stderr(&output));
                    }
                }
            }
            let output = cli.run(&case.killed_command, Some(&point));
            assert_eq!(output.status.signal(), Some(9), "{point} is passed: {}", status_and_stderr(&output));
            cli.check(&point);
            cli.continue_to_end(&point);
            cli.check_effects(&point);
        }
    }
}
