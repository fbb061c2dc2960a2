//! The metrics of a server: what `/metrics` contains, who may read it, and what it must not contain (O2).

use super::process::ServeProcess;
use super::{TestServer, clerk, encoded, new_token, until};
use crate::peers::python_with;
use crate::support::{TestHost, agent_host, components, text_reply};
use agent_serve::{NewToken, Right, ServerMetrics};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A secret of the agent that the model repeats in arguments and texts.
const CANARY: &str = "sk-canary-2f7d11c0a9b4";

/// A component whose tool `crash` traps.
const CRASHING: &str = r#"(component
    (core module $code (func (export "crash") (result i32) unreachable))
    (core instance $code (instantiate $code))
    (func (export "crash") (result u32) (canon lift (core func $code "crash"))))"#;

const AGENT: &str = r#"
name = "clerk"
model = "scripted:replies.json"
plugin_directory = "plugins"

[approval]
destructive = "allow"
"#;

fn folder(replies: &[Value]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let plugins = folder.path().join("plugins");
    std::fs::create_dir(&plugins).expect("created");
    std::fs::copy(components().join("probe.wasm"), plugins.join("probe.wasm")).expect("copied");
    std::fs::copy(components().join("files.wasm"), plugins.join("files.wasm")).expect("copied");
    std::fs::write(plugins.join("crashing.wasm"), wat::parse_str(CRASHING).expect("a component")).expect("written");
    std::fs::write(folder.path().join("clerk.toml"), AGENT).expect("written");
    std::fs::write(folder.path().join("replies.json"), json!({"replies": replies}).to_string()).expect("written");
    folder
}

fn call(name: &str, arguments: Value) -> Value {
    let usage = json!({"prompt_tokens": 100, "completion_tokens": 10});
    json!({"calls": [{"name": name, "arguments": arguments}], "usage": usage})
}

/// The samples of a text in the format of Prometheus, by name and labels.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ').expect("a sample");
        (name.to_owned(), value.parse().expect("a number"))
    };
    lines.map(sample).collect()
}

fn observer_token(folder: &Path) -> String {
    let output = agent_host()
        .args(["--data", "data", "token", "create", "prometheus", "--right", "observe"])
        .current_dir(folder)
        .output()
        .expect("the program runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

/// O2: the metrics describe turns, steps, tokens, model calls, tool calls by version and outcome, traps, denials, sessions,
/// commits and requests. A token that may only observe reads them, and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn o2_metrics_describe_what_has_happened() {
    let replies = [
        call("probe.echo", json!({"text": "hello"})),
        call("crash", json!({})),
        call("files.read", json!({"path": "secret.txt"})),
        call("no_such_tool", json!({})),
        json!({"text": "Done.", "usage": {"prompt_tokens": 100, "completion_tokens": 10}}),
    ];
    let folder = folder(&replies);
    let server = ServeProcess::start(folder.path(), &["--agent", "clerk.toml"]);
    let client = server.client();
    let created = client.post("/api/sessions", json!({"agent": "clerk", "prompt": "Go."})).await.json(201);
    let session = created["session"].as_str().expect("an id").to_owned();
    super::until_idle(&client, &session).await;
    assert_eq!(server.anonymous().get("/api/sessions").await.status, 401);
    let prometheus = server.client_with(&observer_token(folder.path()));
    assert_eq!(prometheus.get("/api/sessions").await.status, 403, "the token reads nothing but metrics");
    let answer = until(async || {
        // Sessions are counted again every few seconds.
        let answer = prometheus.get("/metrics").await;
        assert_eq!(answer.status, 200);
        answer.body.contains(r#"agent_host_sessions{agent="clerk",state="idle"} 1"#).then_some(answer)
    })
    .await;
    assert!(
        answer.head.to_lowercase().contains("content-type: text/plain; version=0.0.4; charset=utf-8"),
        "{}",
        answer.head
    );
    let found = samples(&answer.body);
    let labelled = |name: &str, labels: &[&str]| -> f64 {
        let is_one = |key: &&String| {
            key.strip_prefix(&format!("agent_host_{name}{{"))
                .is_some_and(|rest| labels.iter().all(|label| rest.contains(label)))
        };
        let keys: Vec<_> = found.keys().filter(is_one).collect();
        assert_eq!(keys.len(), 1, "{name} {labels:?}: {keys:?} in {found:#?}");
        found[keys[0]]
    };
    assert_eq!(labelled("turns_total", &[r#"agent="clerk""#, r#"outcome="answered""#]), 1.0);
    assert_eq!(labelled("steps_total", &[r#"agent="clerk""#]), 5.0);
    assert_eq!(labelled("model_tokens_total", &[r#"kind="prompt""#]), 500.0);
    assert_eq!(labelled("model_tokens_total", &[r#"kind="completion""#]), 50.0);
    assert_eq!(labelled("model_call_duration_seconds_count", &[r#"outcome="replied""#]), 5.0);
    assert_eq!(labelled("model_time_to_first_token_seconds_count", &[]), 1.0, "one reply has text");
    assert_eq!(labelled("tool_calls_total", &[r#"tool="probe.echo""#, r#"source="probe""#, r#"outcome="done""#]), 1.0);
    assert_eq!(labelled("tool_calls_total", &[r#"tool="crash""#, r#"outcome="error""#]), 1.0);
    assert_eq!(labelled("tool_calls_total", &[r#"outcome="not_found""#]), 1.0);
    assert_eq!(labelled("plugin_calls_total", &[r#"plugin="crashing""#, r#"outcome="trap""#]), 1.0);
    assert!(labelled("plugin_memory_peak_bytes", &[r#"plugin="probe""#]) > 65_536.0);
    assert_eq!(labelled("denials_total", &[r#"plugin="files""#]), 1.0);
    assert_eq!(
        labelled("http_requests_total", &[r#"route="/api/sessions""#, r#"method="POST""#, r#"status="201""#]),
        1.0
    );
    assert_eq!(labelled("refused_requests_total", &[r#"code="unauthorized""#]), 1.0);
    assert!(found["agent_host_store_commits_total"] >= 10.0, "{found:#?}");
    assert_eq!(found["agent_host_store_commit_duration_seconds_count"], found["agent_host_store_transactions_total"]);
    assert_eq!(found["agent_host_outbox_pending_events"], 0.0);
    assert!(!answer.body.contains("no_such_tool"), "names from the model are not labels");
    assert_prometheus_reads(&answer.body);
    let details = client.get(&format!("/api/sessions/{}", encoded(&session))).await;
    assert_eq!(details.status, 200);
}

/// Lets the official Python client read the text.
fn assert_prometheus_reads(text: &str) {
    let Some(python) = python_with("prometheus_client") else { return };
    let script = "import sys\nfrom prometheus_client.parser import text_string_to_metric_families as read\n\
                  families = list(read(sys.stdin.read()))\n\
                  assert all(family.documentation for family in families), families\n\
                  print(len(families), sum(len(family.samples) for family in families))";
    let mut child = Command::new(python)
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("Python starts");
    child.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("written");
    let output = child.wait_with_output().expect("Python ends");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    let families = text.lines().filter(|line| line.starts_with("# TYPE")).count();
    assert_eq!(printed.trim(), format!("{families} {}", samples(text).len()));
}

/// O2: the metrics describe all agents and users, so tokens that are limited cannot read them.
#[tokio::test(flavor = "multi_thread")]
async fn o2_only_unlimited_tokens_read_metrics() {
    let test_host = TestHost::new(&[]).await;
    let agent = clerk(&test_host, &[text_reply("One.")]).await;
    let metrics = ServerMetrics::new(|_| {}, || async { "agent_host_test 1\n".to_owned() });
    let server = TestServer::start_with(&test_host, &[&agent], |options| agent_serve::ServerOptions {
        metrics: Some(metrics.clone()),
        ..options
    })
    .await;
    let observe = || NewToken { rights: [Right::Observe].into(), ..new_token() };
    assert_eq!(server.client_of(observe()).get("/metrics").await.body, "agent_host_test 1\n");
    for limited in [
        NewToken { agents: vec!["clerk".to_owned()], ..observe() },
        NewToken { user: Some("ann".to_owned()), ..observe() },
    ] {
        assert_eq!(server.client_of(limited).get("/metrics").await.status, 403);
    }
    let others = [Right::Read, Right::Talk, Right::Approve, Right::Administer];
    assert_eq!(server.client(&others).get("/metrics").await.status, 403);
    assert_eq!(server.anonymous().get("/metrics").await.status, 401);
    server.stop().await;
}

/// O2, O3, row 16: secrets are in no metric, no log line and no audit entry, even if the model repeats them. Log lines are JSON
/// objects with the ids of traces.
#[tokio::test(flavor = "multi_thread")]
async fn o2_row_16_secrets_are_in_no_metric_log_or_audit_entry() {
    let replies = [
        call("probe.echo", json!({"text": CANARY})),
        call("files.read", json!({"path": format!("/{CANARY}/x")})),
        call(CANARY, json!({})),
        call("probe.log", json!({"text": "from the plugin"})),
        call("probe.fail", json!({"error": CANARY, "text": CANARY})),
        json!({"text": format!("It is {CANARY}.")}),
    ];
    let folder = folder(&replies);
    let mut agent = std::fs::read_to_string(folder.path().join("clerk.toml")).expect("a file");
    agent.push_str("\n[plugins.probe.secrets.KEY]\nenv = \"METRICS_CANARY\"\nhosts = [\"api.example.com\"]\n");
    std::fs::write(folder.path().join("clerk.toml"), agent).expect("written");
    let variables = [("METRICS_CANARY", CANARY)];
    let server = ServeProcess::start_with(folder.path(), &["-v", "--log", "json", "--agent", "clerk.toml"], &variables);
    let client = server.client();
    let created = client.post("/api/sessions", json!({"agent": "clerk", "prompt": CANARY})).await.json(201);
    let session = created["session"].as_str().expect("an id").to_owned();
    super::until_idle(&client, &session).await;
    let metrics = server.client_with(&observer_token(folder.path())).get("/metrics").await.body;
    let log = server.log();
    server.kill();
    let audit = agent_host()
        .args(["--data", "data", "audit", "export"])
        .current_dir(folder.path())
        .output()
        .expect("the program runs");
    let audit = String::from_utf8(audit.stdout).expect("text");
    assert!(audit.contains("denied"), "{audit}");
    let lines: Vec<Value> = log.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let events: Vec<_> = lines.iter().filter(|line| line["target"] == "agent_host::events").collect();
    let message = |text: &str| {
        let line = events.iter().find(|line| line["message"] == text);
        *line.unwrap_or_else(|| panic!("no line `{text}`: {log:#?}"))
    };
    for text in ["a turn begins", "a tool call has failed", "a request was denied", "a turn has ended"] {
        let line = message(text);
        assert_eq!(line["session"], session.as_str(), "{line}");
        assert_eq!(line["trace_id"].as_str().map(str::len), Some(32), "{line}");
        assert_eq!(line["trace_id"], message("a turn begins")["trace_id"]);
    }
    // The other lines of a turn name the turn too, such as those that plugins write.
    let others: Vec<_> = lines.iter().filter(|line| line["target"] == "plugin").collect();
    assert!(!others.is_empty(), "{log:#?}");
    for line in others {
        assert_eq!(line["span"]["trace_id"], message("a turn begins")["trace_id"], "{line}");
        assert_eq!(line["span"]["session"], session.as_str(), "{line}");
    }
    for (name, text) in [("metrics", &metrics), ("log", &log.join("\n")), ("audit", &audit)] {
        assert!(!text.contains(CANARY), "{name}: {text}");
    }
}
