//! Traces with the real binary and a collector on loopback: one trace of a turn that delegates, waits for an approval in
//! another process, uses a fallback model and corrects a rejected output (O1, row 16).

mod collector;
mod phoenix;

use crate::support::{SharedCompiledCode, agent_host, components};
use agent_store::{Options, SessionFilter, SessionIndex, SqliteStore};
use collector::{CollectorProcess, SpanView};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Stdio;
use tempfile::TempDir;

/// A secret of the agent that is in its prompt, in a file, in arguments, results, errors and replies.
const CANARY: &str = "sk-canary-81f0a3d27c6e";
/// A secret that only the collector may receive, in a header.
const COLLECTOR_KEY: &str = "Bearer collector-key-55aa99";

/// A folder with the agents `lead` and `worker`, whose models are scripted.
struct Agents {
    _compiled_code: SharedCompiledCode,
    folder: TempDir,
}

impl Agents {
    fn new(telemetry: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let compiled_code = SharedCompiledCode::in_data(&folder.path().join("data"));
        let agents = Self { _compiled_code: compiled_code, folder };
        for directory in ["plugins", "worker-plugins", "tree"] {
            std::fs::create_dir(agents.path(directory)).unwrap();
        }
        std::fs::copy(components().join("payer.wasm"), agents.path("plugins/payer.wasm")).unwrap();
        std::fs::copy(components().join("files.wasm"), agents.path("worker-plugins/files.wasm")).unwrap();
        agents.write("tree/note.txt", &format!("The key is {CANARY}.\n"));
        agents.write("lead.toml", &format!("{LEAD}\n{telemetry}\n"));
        agents.write("worker.toml", WORKER);
        let script = |replies: Value| json!({"replies": replies}).to_string();
        let usage = json!({"prompt_tokens": 200, "completion_tokens": 20});
        let busy = json!({"error": {"status": 503, "message": format!("overloaded, key {CANARY}")}});
        let work = json!({"name": "worker", "arguments": {"task": format!("Read note.txt with {CANARY}.")}});
        let delegating = json!({"calls": [work], "usage": usage});
        agents.write("lead.json", &script(json!([delegating, busy, busy, busy])));
        let pay = json!({"name": "payer.pay", "arguments": {"to": CANARY, "amount": 1}});
        let unused = json!({"text": "unused"});
        let paying = json!({"calls": [pay], "usage": usage});
        let wrong = json!({"text": format!("It is {CANARY}."), "usage": usage});
        let right = json!({"text": "{\"paid\": 1}", "usage": usage});
        agents.write("fallback.json", &script(json!([unused, paying, wrong, right])));
        let read = json!({"name": "files.read", "arguments": {"path": "tree/note.txt"}});
        let reading = json!({"calls": [read], "usage": usage});
        agents.write("worker.json", &script(json!([reading, {"text": "I read it.", "usage": usage}])));
        agents
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// Runs the binary without a terminal. Returns its exit code and its output on stdout and stderr.
    fn run(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let mut command = agent_host();
        command.args(arguments).arg("--data").arg(self.path("data")).current_dir(self.folder.path());
        command.env("TRACE_CANARY", CANARY).env("COLLECTOR_KEY", COLLECTOR_KEY);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    }

    /// Runs a turn that waits for an approval, and continues it in another process. Returns the session.
    fn run_turn(&self) -> String {
        let (code, output) = self.run(&["--agent", "lead.toml", &format!("Pay with {CANARY}.")]);
        assert_eq!(code, Some(3), "the turn waits for an approval: {output}");
        let store = SqliteStore::open(self.path("data/agent-host.db"), Options::default()).unwrap();
        let filter = SessionFilter { agent: Some("lead".to_owned()), ..SessionFilter::default() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let session = runtime.block_on(store.sessions(filter, 1)).unwrap().remove(0).subject;
        drop(store);
        let (code, output) = self.run(&["session", "approve", &session, "--agent", "lead.toml"]);
        assert_eq!(code, Some(0), "{output}");
        assert!(output.contains("paid"), "{output}");
        session
    }
}

const LEAD: &str = r#"
name = "lead"
model = "scripted:lead.json"
fallback_models = ["scripted:fallback.json"]
plugin_directory = "plugins"
output_schema = { type = "object", required = ["paid"] }

[retry]
attempts = 1

[agents.worker]
agent = "worker.toml"
description = "Reads files."

[plugins.payer.grants]
write = ["tree"]

[plugins.payer.secrets.KEY]
env = "TRACE_CANARY"
hosts = ["api.example.com"]
"#;

const WORKER: &str = r#"
name = "worker"
model = "scripted:worker.json"
plugin_directory = "worker-plugins"

[plugins.files.grants]
read = ["tree"]
"#;

fn telemetry(url: &str, content: &str) -> String {
    format!(
        "[telemetry]\nendpoint = \"{url}\"\ncontent = \"{content}\"\nredact = ['I read \\w+']\n\
         header_env = {{ Authorization = \"COLLECTOR_KEY\" }}"
    )
}

/// The spans of the turn, as lines of kind and name below each other.
const EXPECTED: [&str; 18] = [
    "AGENT invoke_agent lead",
    "  CHAIN step 1",
    "    LLM chat lead.json",
    "    TOOL execute_tool worker",
    "      AGENT invoke_agent worker",
    "        CHAIN step 1",
    "          LLM chat worker.json",
    "          TOOL execute_tool files.read",
    "            CHAIN file read",
    "        CHAIN step 2",
    "          LLM chat worker.json",
    "  CHAIN step 2",
    "    LLM chat lead.json",
    "    LLM chat fallback.json",
    "    GUARDRAIL approve payer.pay",
    "    TOOL execute_tool payer.pay",
    "  CHAIN step 3",
    "    LLM chat fallback.json",
];

/// Checks the tree of spans. Spans of file accesses depend on the plugin, so that only their parents are checked.
fn check_tree(spans: &[SpanView]) {
    let lines = collector::tree(spans);
    let without_files = |lines: &[String]| {
        let other = lines.iter().filter(|line| !line.contains("CHAIN file"));
        other.cloned().collect::<Vec<_>>()
    };
    let mut expected: Vec<String> = EXPECTED.iter().map(|line| (*line).to_owned()).collect();
    expected.extend(
        ["    GUARDRAIL validate output schema", "  CHAIN step 4", "    LLM chat fallback.json"].map(str::to_owned),
    );
    assert_eq!(without_files(&lines), without_files(&expected), "{lines:#?}");
    let position = |text: &str| lines.iter().position(|line| line.trim() == text);
    assert!(position("CHAIN file read") > position("TOOL execute_tool files.read"), "{lines:#?}");
}

fn check_attributes(spans: &[SpanView]) {
    let calls: Vec<_> = spans.iter().filter(|span| span.kind() == "LLM").collect();
    let failed: Vec<_> = calls.iter().filter(|span| span.is_error).collect();
    assert_eq!((calls.len(), failed.len()), (7, 1), "one model call has failed");
    assert_eq!(failed[0].text("llm.model_name"), Some("lead.json"));
    for call in calls.iter().filter(|span| !span.is_error) {
        assert_eq!(
            (call.number("llm.token_count.prompt"), call.number("llm.token_count.total")),
            (Some(200), Some(220))
        );
    }
    let agent = spans.iter().find(|span| span.name == "invoke_agent lead").unwrap();
    let events: Vec<&str> = agent.events.iter().map(String::as_str).collect();
    assert_eq!(events, ["suspended", "resumed", "model_fallback", "suspended", "resumed"]);
    assert_eq!(agent.number("agent_host.turn.prompt_tokens"), Some(800), "the tokens of the turn itself");
    let approval = spans.iter().find(|span| span.name == "approve payer.pay").unwrap();
    assert_eq!((approval.text("agent_host.verdict"), approval.is_error), (Some("once"), false));
    let sessions: Vec<_> = ["lead", "worker"].map(|name| format!("invoke_agent {name}")).to_vec();
    let ids = sessions.iter().map(|name| spans.iter().find(|span| span.name == *name).unwrap().text("session.id"));
    let ids: Vec<_> = ids.collect();
    assert!(ids[0].is_some() && ids[0] != ids[1], "{ids:?}");
}

/// O1: A turn with a delegated task, an approval in another process, a fallback model and a rejected output is one trace.
/// Row 16: no secret and no match of a configured pattern leaves the host.
#[test]
fn o1_a_turn_of_several_processes_and_agents_is_one_trace() {
    let collector = CollectorProcess::start();
    let agents = Agents::new(&telemetry(&collector.url(), "complete"));
    let session = agents.run_turn();
    let spans = collector.spans();
    check_tree(&spans);
    check_attributes(&spans);
    let bodies = collector.bodies();
    for secret in [CANARY, "canary-81f0", "collector-key-55aa99", "I read it"] {
        assert!(!bodies.contains(secret), "{secret} has left the host");
    }
    assert!(bodies.contains("(redacted)") && bodies.contains("(secret)"), "the content itself is exported");
    assert_eq!(collector.authorizations(), [COLLECTOR_KEY]);
    // The stored session gives the same spans, in the same trace.
    let file = agents.path("spans.json").display().to_string();
    let (code, output) = agents.run(&["trace", "export", &session, "--agent", "lead.toml", "--out", &file]);
    assert_eq!(code, Some(0), "{output}");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains("canary"), "a file of spans contains no secret either");
    let exported = collector::spans_of_file(&text);
    assert_eq!(collector::ids(&exported), collector::ids(&spans));
    let (code, output) = agents.run(&["trace", "export", &session, "--user", "somebody-else", "--out", "-"]);
    assert!(code == Some(2) && output.contains("belongs to the user"), "another user's session: {output}");
}

/// O1: While the collector is down, turns run as usual, and the next process sends their spans. `trace export` fails with
/// the reason.
#[test]
fn o1_spans_of_an_unreachable_collector_are_sent_later() {
    let address = CollectorProcess::start().stop();
    let agents = Agents::new(&telemetry(&format!("http://{address}"), "off"));
    let session = agents.run_turn();
    let (code, output) = agents.run(&["trace", "export", &session, "--to", &format!("http://{address}")]);
    assert!(code == Some(1) && output.contains("cannot send to"), "{output}");
    let collector = CollectorProcess::start_at(address);
    let (code, output) = agents.run(&["--agent", "lead.toml", "--continue"]);
    assert!(code.is_some(), "{output}");
    let spans = collector.spans();
    check_tree(&spans);
    assert!(spans.iter().all(|span| span.text("input.value").is_none() && span.text("output.value").is_none()));
    assert!(!collector.bodies().contains("note.txt"), "with `off`, no content leaves the host");
}
