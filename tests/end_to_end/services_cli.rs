//! Tests of services with the real binary: agent.toml, the outbox folder, and `session respond`. In some tests, several
//! processes run `session respond` at the same time, or the test kills the command at several points (L10, I6, D2, D3;
//! rows 27, 29 and 32).

use agent_core::cloud_event::CloudEvent;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

const AGENT: &str = r#"
name = "agent"
model = "scripted:script.json"

[services.payments]
type = "com.example.pay"
description = "Pays an invoice."
accepts = { type = "object", required = ["amount"], properties = { amount = { type = "number" } } }
emits = { "com.example.paid" = { type = "object", required = ["receipt"] } }

[services.shipping]
emits = "any.json"

[outbox]
directory = "out"
"#;

struct ServiceFolder {
    directory: TempDir,
}

impl ServiceFolder {
    fn new() -> Self {
        let folder = Self { directory: tempfile::tempdir().unwrap() };
        let calls =
            [json!({"name": "payments", "arguments": {"amount": 3}}), json!({"name": "shipping", "arguments": {}})];
        let script = json!({"replies": [{"calls": calls}, {"text": "Done."}]});
        folder.write("script.json", &script);
        folder.write("any.json", &json!({"type": "object"}));
        std::fs::write(folder.path("agent.toml"), AGENT).unwrap();
        std::fs::create_dir(folder.path("out")).unwrap();
        folder
    }

    /// Like [`Self::new`], but the agent has the plugin `calc` in addition to its services.
    fn with_a_plugin() -> Self {
        let folder = Self::new();
        std::fs::create_dir(folder.path("plugins")).unwrap();
        let calc = crate::support::components().join("calc.wasm");
        std::fs::copy(calc, folder.path("plugins/calc.wasm")).unwrap();
        let agent = AGENT.replacen("\n[", "\nplugin_directory = \"plugins\"\n\n[", 1);
        std::fs::write(folder.path("agent.toml"), agent).unwrap();
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, json: &Value) -> PathBuf {
        std::fs::write(self.path(name), json.to_string()).unwrap();
        self.path(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = crate::support::agent_host();
        command.args(arguments).arg("--data").arg(self.path("data")).current_dir(self.directory.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        stdout_and_stderr(&self.command(arguments).output().unwrap())
    }

    /// Runs a turn that waits for both services, and returns its session.
    fn suspended_session(&self) -> String {
        let (code, stdout, stderr) = self.run(&["--agent", "agent.toml", "--json", "Buy it."]);
        assert_eq!(code, Some(3), "{stderr}");
        let last: Value = serde_json::from_str(stdout.lines().last().unwrap()).unwrap();
        assert_eq!((&last["status"], last["suspension"]["waits"].as_array().unwrap().len()), (&json!("suspended"), 2));
        last["session"].as_str().unwrap().to_owned()
    }

    fn event(&self, name: &str, call: u32, event_type: &str, data: Value) -> String {
        let event = json!({"specversion": "1.0", "id": name, "source": "/test", "type": event_type,
            "parentid": format!("call_1_1_{call}"), "data": data});
        self.write(name, &event).display().to_string()
    }

    fn files(&self) -> Vec<PathBuf> {
        let mut files: Vec<_> =
            std::fs::read_dir(self.path("out")).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }
}

fn stdout_and_stderr(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn status(stdout: &str) -> String {
    let first: Value = serde_json::from_str(stdout.lines().next().unwrap()).unwrap();
    first["status"].as_str().unwrap().to_owned()
}

fn read(path: &Path) -> CloudEvent {
    CloudEvent::parse(&std::fs::read(path).unwrap()).unwrap()
}

/// L10, I6, I1: The answer of a service continues the turn. The test runs the same commands that
/// a user would run.
#[test]
fn l10_a_service_answer_continues_the_turn() {
    let folder = ServiceFolder::new();
    let (code, _, stderr) = folder.run(&["--agent", "agent.toml", "Buy it."]);
    assert_eq!(code, Some(3), "{stderr}");
    assert!(stderr.contains("waits for 2 answers") && stderr.contains("session respond agent/"), "{stderr}");
    assert!(stderr.contains("the service com.example.pay since 20"), "{stderr}");
    let [pay, ship] = [0, 1].map(|nth| read(&folder.files()[nth]));
    assert_eq!((crate::support::base_call_id(&pay.id).as_str(), ship.event_type.as_str()), ("call_1_1_1", "shipping"));
    let (_, listed, _) = folder.run(&["outbox", "list", "--all"]);
    assert!(listed.contains("com.example.pay") && listed.contains("done 20"), "{listed}");
    let (_, pending, _) = folder.run(&["outbox", "list", "--json"]);
    assert_eq!(pending, "");

    let session = pay.subject.unwrap();
    let (_, shown, _) = folder.run(&["session", "show", &session]);
    assert!(shown.contains("payments waits for the service com.example.pay"), "{shown}");
    let wrong = folder.event("wrong.json", 1, "com.example.lost", json!({}));
    let (code, _, stderr) = folder.run(&["session", "respond", &session, "--event", &wrong]);
    assert!(code == Some(2) && stderr.contains("expected types: `com.example.paid`"), "{stderr}");
    let broken =
        folder.write("broken.json", &json!({"specversion": "1.0", "id": "1", "type": "x"})).display().to_string();
    let (code, _, stderr) = folder.run(&["session", "respond", &session, "--event", &broken]);
    assert!(
        code == Some(2) && stderr.contains("broken.json: this is not a CloudEvent: it has no `source`"),
        "{stderr}"
    );
    let (code, _, stderr) = folder.run(&["session", "respond", "nobody", "--event", &wrong]);
    assert!(code == Some(2) && stderr.contains("no_context"), "{stderr}");

    let paid = folder.event("paid.json", 1, "com.example.paid", json!({"receipt": "R-7"}));
    let (code, _, stderr) = folder.run(&["session", "respond", &session, "--event", &paid]);
    assert!(code == Some(0) && stderr.contains("waits for 1 answer"), "{stderr}");
    let (code, _, stderr) = folder.run(&["session", "respond", &session, "--event", &paid]);
    assert!(code == Some(0) && stderr.contains("has this answer already"), "{stderr}");
    let shipped = folder.event("shipped.json", 2, "x", json!({"tracking": 1}));
    let respond = ["session", "respond", &session, "--event", &shipped, "--agent", "agent.toml"];
    let (code, stdout, stderr) = folder.run(&respond);
    assert_eq!((code, stdout.as_str()), (Some(0), "Done.\n"), "{stderr}");
    let different_event = folder.event("other.json", 2, "x", json!({"tracking": 2}));
    let (code, _, stderr) = folder.run(&["session", "respond", &session, "--event", &different_event]);
    assert!(code == Some(0) && stderr.contains("too late"), "{stderr}");
}

/// L1: A prompt that arrives while the turn waits is queued. The prompt runs when the turn has ended, whichever command
/// ends the turn.
#[test]
fn l1_runs_a_queued_prompt_after_the_turn_ended() {
    let folder = ServiceFolder::new();
    let calls = json!([{"name": "shipping", "arguments": {}}]);
    let reply = |text: &str| json!({"text": text});
    let replies = [
        json!({"calls": calls}),
        reply("Shipped."),
        reply("It is blue."),
        json!({"calls": calls}),
        reply("Shipped again."),
        reply("It is red."),
        reply("Two."),
    ];
    folder.write("script.json", &json!({"replies": replies}));
    let ask = |arguments: &[&str]| folder.run(&[&["--agent", "agent.toml"], arguments].concat());
    assert_eq!(ask(&["Ship it."]).0, Some(3));
    let (code, stdout, stderr) = ask(&["--continue", "Which colour?"]);
    assert!(code == Some(3) && stdout.is_empty() && stderr.contains("your prompt is queued"), "{stderr}");
    let session = read(&folder.files()[0]).subject.unwrap();
    let shipped = folder.event("shipped.json", 1, "x", json!({"tracking": 1}));
    let (code, stdout, stderr) =
        folder.run(&["session", "respond", &session, "--event", &shipped, "--agent", "agent.toml"]);
    assert_eq!((code, stdout.as_str()), (Some(0), "It is blue.\n"), "{stderr}");
    assert!(stderr.contains("Shipped.") && stderr.contains("the queued prompt: Which colour?"), "{stderr}");

    // Here, the test calls `session respond` without an agent, so this command cannot run the queued prompt. The next
    // command runs the queued prompt, and then the prompt on its command line.
    assert_eq!(ask(&["--continue", "Ship another."]).0, Some(3));
    assert_eq!(ask(&["--continue", "And that one?"]).0, Some(3));
    let event =
        json!({"specversion": "1.0", "id": "2", "source": "/test", "type": "x", "parentid": "call_3_1_1", "data": {}});
    let event = folder.write("again.json", &event).display().to_string();
    assert_eq!(folder.run(&["session", "respond", &session, "--event", &event]).0, Some(0));
    let (code, stdout, stderr) = ask(&["--continue", "How many?"]);
    assert_eq!((code, stdout.as_str()), (Some(0), "Two.\n"), "{stderr}");
    assert!(stderr.contains("Shipped again.") && stderr.contains("It is red."), "{stderr}");
    let (_, shown, _) = folder.run(&["session", "show", &session]);
    let prompts = ["Ship it.", "Which colour?", "Ship another.", "And that one?", "How many?"];
    let positions: Vec<_> = prompts.iter().map(|prompt| shown.find(prompt)).collect();
    assert!(positions.iter().all(Option::is_some) && positions.is_sorted(), "{shown}");
}

/// L1, L29: Cancelling a turn discards the prompts that were queued after it, and the command reports that it
/// discarded them.
#[test]
fn l1_cancelling_a_turn_discards_queued_prompts() {
    let folder = ServiceFolder::new();
    let session = folder.suspended_session();
    assert_eq!(folder.run(&["--agent", "agent.toml", "--continue", "And then?"]).0, Some(3));
    let (code, _, stderr) = folder.run(&["session", "cancel", &session]);
    assert!(code == Some(0) && stderr.contains("1 prompt that waited for the end of the turn"), "{stderr}");
    let (code, stdout, stderr) = folder.run(&["--agent", "agent.toml", "--continue", "Anything?"]);
    assert_eq!((code, stdout.as_str()), (Some(0), "Done.\n"), "{stderr}");
}

/// Row 32, L10: Many processes send answers at the same time, and several of them answer the same call with different
/// data. Exactly one answer is stored for each call.
#[test]
fn row_32_concurrent_answers_take_effect_once() {
    let folder = ServiceFolder::new();
    let session = folder.suspended_session();
    let answers: Vec<String> = (0..6)
        .map(|nth| match nth % 2 {
            0 => folder.event(&format!("{nth}.json"), 1, "com.example.paid", json!({"receipt": nth.to_string()})),
            _ => folder.event(&format!("{nth}.json"), 2, "x", json!({"tracking": nth})),
        })
        .collect();
    let processes: Vec<_> = answers
        .iter()
        .map(|event| folder.command(&["session", "respond", &session, "--event", event, "--json"]).spawn().unwrap())
        .collect();
    let mut statuses = [Vec::new(), Vec::new()];
    for (nth, process) in processes.into_iter().enumerate() {
        let (code, stdout, stderr) = stdout_and_stderr(&process.wait_with_output().unwrap());
        assert_eq!(code, Some(0), "{stderr}");
        statuses[nth % 2].push(status(&stdout));
    }
    for mut of_one_call in statuses {
        of_one_call.sort();
        assert_eq!(of_one_call, ["late", "late", "taken"]);
    }
    let (code, stdout, stderr) = folder.run(&["--agent", "agent.toml", "--continue"]);
    assert_eq!((code, stdout.as_str()), (Some(0), "Done.\n"), "{stderr}");
}

/// Row 27: The process is killed while a request is sent or while an answer is stored. After the process is started
/// again, no request and no answer is lost, and none takes effect twice.
#[test]
fn d3_a_request_and_its_answer_survive_a_kill() {
    for point in [
        "before-commit:dispatched",
        "after-commit:dispatched",
        "delivered:call_1_1_1",
        "delivered:call_1_1_2",
        "before-commit:respond",
        "after-commit:respond",
    ] {
        let folder = ServiceFolder::new();
        let kill = |arguments: &[&str]| {
            folder.command(arguments).env("AGENT_HOST_KILL_AT", point).output().unwrap().status.code()
        };
        if !point.contains("respond") {
            assert_eq!(kill(&["--agent", "agent.toml", "Buy it."]), None, "{point} is passed");
            let (code, _, stderr) = folder.run(&["--agent", "agent.toml", "--continue"]);
            assert_eq!(code, Some(3), "{point}: {stderr}");
        } else {
            folder.suspended_session();
        }
        let files = folder.files();
        assert_eq!(files.len(), 2, "{point}: each request is written once");
        let session = read(&files[0]).subject.unwrap();
        let events = [
            folder.event("paid.json", 1, "com.example.paid", json!({"receipt": "R-7"})),
            folder.event("shipped.json", 2, "x", json!({})),
        ];
        for event in &events {
            let respond = ["session", "respond", &session, "--event", event];
            // If a sender does not know whether its answer has arrived, it sends the same answer again.
            if kill(&respond).is_none() {
                assert!(point.contains("respond"), "{point}");
            }
            let (code, _, stderr) = folder.run(&respond);
            assert_eq!(code, Some(0), "{point}: {stderr}");
        }
        let (code, stdout, stderr) = folder.run(&["--agent", "agent.toml", "--continue"]);
        assert_eq!((code, stdout.as_str()), (Some(0), "Done.\n"), "{point}: {stderr}");
        let (_, events, _) = folder.run(&["session", "show", &session, "--json"]);
        let results = events.lines().filter(|line| line.contains(r#""type":"tool_result""#)).count();
        assert_eq!(results, 2, "{point}: one result for each call");
        let (_, pending, _) = folder.run(&["outbox", "list", "--json"]);
        assert_eq!(pending, "", "{point}");
    }
}

/// I6: The commands and files of the guide's example service work unchanged.
#[test]
fn i6_the_service_of_the_guide_works_as_written() {
    let page = std::fs::read_to_string(crate::support::repository().join("host/docs/guide/services.md")).unwrap();
    let block = |language: &str| {
        let block = page.split(&format!("```{language}\n")).nth(1).unwrap();
        block.split("\n```").next().unwrap().to_owned()
    };
    let folder = ServiceFolder::new();
    std::fs::write(folder.path("agent.toml"), block("toml")).unwrap();
    std::fs::create_dir(folder.path("outbox")).unwrap();
    let call = json!({"name": "payments", "arguments": {"amount": 3}});
    folder.write("script.json", &json!({"replies": [{"calls": [call]}, {"text": "Paid."}]}));
    let scripted = ["--agent", "agent.toml", "--model", "scripted:script.json"];
    let (code, _, stderr) = folder.run(&[&scripted[..], &["Pay."]].concat());
    assert_eq!(code, Some(3), "{stderr}");
    let request = std::fs::read_dir(folder.path("outbox")).unwrap().next().unwrap().unwrap().path();
    let request = read(&request);
    assert_eq!(request.event_type, "com.example.payment.requested");
    folder.event("answer.json", 1, "com.example.payment.done", json!({"receipt": "R-7"}));
    let session = request.subject.unwrap();
    let mut last = String::new();
    for command in block("console").lines().filter_map(|line| line.strip_prefix("$ agent-host ")) {
        let mut arguments: Vec<&str> =
            command.split(' ').map(|word| if word == "SESSION" { session.as_str() } else { word }).collect();
        if arguments.contains(&"--agent") {
            arguments.extend(&scripted[2..]);
        }
        let (code, stdout, stderr) = folder.run(&arguments);
        assert_eq!(code, Some(0), "{command}: {stderr}");
        last = stdout;
    }
    assert_eq!(last, "Paid.\n");
}

/// I2: If the configured outbox folder does not exist, the host refuses the configuration before any turn starts.
#[test]
fn i2_refuses_a_missing_outbox_folder_with_its_line() {
    let folder = ServiceFolder::new();
    std::fs::remove_dir(folder.path("out")).unwrap();
    let (code, _, stderr) = folder.run(&["--agent", "agent.toml", "Buy it."]);
    assert!(code == Some(2) && stderr.contains("agent.toml:15: outbox.directory"), "{stderr}");
}

/// D2, D6: Events of an agent without an outbox folder wait in the database, and the command `outbox` writes each event
/// once to a given folder.
#[test]
fn d6_the_outbox_command_writes_pending_events() {
    let folder = ServiceFolder::new();
    let without = AGENT.split("[outbox]").next().unwrap();
    std::fs::write(folder.path("agent.toml"), without).unwrap();
    folder.suspended_session();
    let (_, pending, _) = folder.run(&["outbox", "list", "--json"]);
    assert_eq!(pending.lines().count(), 2, "{pending}");
    let (code, _, stderr) = folder.run(&["outbox", "deliver", "nowhere"]);
    assert!(code == Some(2) && stderr.contains("nowhere`: create it, or name another folder"), "{stderr}");
    let (code, _, stderr) = folder.run(&["outbox", "deliver", "out"]);
    assert!(code == Some(0) && stderr.contains("2 items delivered to out"), "{stderr}");
    assert_eq!(folder.files().len(), 2);
    let (code, _, stderr) = folder.run(&["outbox", "deliver", "out"]);
    assert!(code == Some(0) && stderr.contains("nothing was pending"), "{stderr}");
}

/// L1, L10: To accept an answer, the host needs only the stored state of the session. Even if the plugin folder
/// contains a file that is not a plugin, the host accepts the answer and continues the turn. If the turn cannot
/// continue, the answer is stored and not lost.
#[test]
fn l10_stores_an_answer_even_if_the_agent_is_broken() {
    let folder = ServiceFolder::with_a_plugin();
    let session = folder.suspended_session();
    let paid = folder.event("paid.json", 1, "com.example.paid", json!({"receipt": "R-7"}));
    let shipped = folder.event("shipped.json", 2, "x", json!({"tracking": 1}));
    let respond = |event: &str| {
        folder.run(&["session", "respond", &session, "--event", event, "--agent", "agent.toml", "--json"])
    };
    std::fs::write(folder.path("plugins/broken.wasm"), "no component").unwrap();
    let (code, stdout, stderr) = respond(&paid);
    assert_eq!((code, status(&stdout).as_str()), (Some(3), "taken"), "{stdout}{stderr}");
    assert!(stderr.contains("broken.wasm"), "the broken plugin is reported: {stderr}");
    let result: Value = serde_json::from_str(stdout.lines().last().unwrap()).unwrap();
    assert_eq!((&result["status"], &result["interactions"]), (&json!("suspended"), &json!(1)), "{result}");
    assert!(result["usage"]["prompt_tokens"].is_u64() && result["execution_units"].is_u64(), "L5: {result}");
    // The answer is stored even if the agent's model script is missing.
    std::fs::rename(folder.path("script.json"), folder.path("away.json")).unwrap();
    let (code, stdout, stderr) = respond(&shipped);
    assert!(code == Some(2) && stderr.contains("the answer is stored"), "{code:?} {stdout}{stderr}");
    assert_eq!(status(&stdout), "taken");
    std::fs::rename(folder.path("away.json"), folder.path("script.json")).unwrap();
    let (code, stdout, stderr) = folder.run(&["--agent", "agent.toml", "--session", &session, "--json"]);
    assert_ne!(code, Some(3), "the turn does not wait: {stdout}{stderr}");
}

/// P10: If the plugins of the turn no longer exist, the turn ends when an answer arrives, and the command reports
/// the error.
#[test]
fn p10_an_answer_ends_a_turn_whose_plugins_no_longer_exist() {
    let folder = ServiceFolder::with_a_plugin();
    let session = folder.suspended_session();
    for name in ["data/plugins", "data/cache"] {
        std::fs::remove_dir_all(folder.path(name)).unwrap();
    }
    std::fs::remove_file(folder.path("plugins/calc.wasm")).unwrap();
    let paid = folder.event("paid.json", 1, "com.example.paid", json!({"receipt": "R-7"}));
    let (code, stdout, stderr) =
        folder.run(&["session", "respond", &session, "--event", &paid, "--agent", "agent.toml", "--json"]);
    assert_eq!((code, status(&stdout).as_str()), (Some(1), "taken"), "{stdout}{stderr}");
    let result: Value = serde_json::from_str(stdout.lines().last().unwrap()).unwrap();
    assert_eq!((&result["status"], &result["code"]), (&json!("failed"), &json!("plugin_changed")), "{stdout}");
}

/// I6: A turn that is started by an event continues the trace of the event's sender. The host stores the trace of a
/// service's answer in the record of the answer.
#[test]
fn i6_continues_the_trace_of_the_sender() {
    let folder = ServiceFolder::new();
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let event = json!({"specversion": "1.0", "id": "1", "source": "/test", "type": "com.example.order", "data": "Buy it.",
        "traceparent": format!("00-{trace}-00f067aa0ba902b7-01"), "tracestate": "a=b"});
    let event = folder.write("order.json", &event).display().to_string();
    let (code, stdout, stderr) = folder.run(&["--agent", "agent.toml", "--json", "--event", &event]);
    assert_eq!(code, Some(3), "{stderr}");
    let last: Value = serde_json::from_str(stdout.lines().last().unwrap()).unwrap();
    let session = last["session"].as_str().unwrap();
    let sent = read(&folder.files()[0]);
    let parent = sent.traceparent.expect("a trace");
    assert!(parent.contains(trace) && !parent.contains("00f067aa0ba902b7"), "the event continues the trace: {parent}");
    assert_eq!(sent.tracestate.as_deref(), Some("a=b"));
    let answer = json!({"specversion": "1.0", "id": "2", "source": "/test", "type": "com.example.paid",
        "parentid": "call_1_1_1", "data": {"receipt": "R-7"}, "traceparent": parent});
    let answer = folder.write("paid.json", &answer).display().to_string();
    assert_eq!(folder.run(&["session", "respond", session, "--event", &answer]).0, Some(0));
    let (_, document, _) = folder.run(&["session", "export", session]);
    let document: Value = serde_json::from_str(&document).unwrap();
    let records = document["records"].as_array().unwrap();
    let record =
        records.iter().find(|record| record["kind"] == "service_answer").expect("the answer is stored in a record");
    assert_eq!(record["body"]["trace"]["traceparent"], json!(parent));
}
