//! Phoenix as a peer: the trace is read back through its API (O1). Phoenix needs 850 MB, so that only
//! `tests/install-peers --phoenix` installs it. The variable `AGENT_HOST_PHOENIX` can name its program instead.

use super::{Agents, telemetry};
use crate::peers::skipped;
use crate::serve::client::Client;
use crate::support::repository;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Maximum time for the start of Phoenix, which creates its database first.
const START_TIME: Duration = Duration::from_secs(300);
/// Maximum time until a span that was accepted is visible.
const VISIBLE_TIME: Duration = Duration::from_secs(60);
/// Number of spans of the turn, without the spans of file accesses.
const SPANS: usize = 20;

/// A running Phoenix, which is stopped when the value is dropped.
struct Phoenix {
    child: Child,
    address: SocketAddr,
    _folder: TempDir,
}

impl Drop for Phoenix {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program() -> Option<PathBuf> {
    let named = std::env::var_os("AGENT_HOST_PHOENIX").map(PathBuf::from);
    let program = named.unwrap_or_else(|| repository().join("tests/.peers/phoenix/bin/phoenix"));
    if !program.exists() {
        skipped("Phoenix is not installed (tests/install-peers --phoenix installs it)");
        return None;
    }
    Some(program)
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    listener.local_addr().expect("an address").port()
}

impl Phoenix {
    fn start(program: PathBuf) -> Self {
        let (port, folder) = (free_port(), tempfile::tempdir().expect("a folder"));
        let mut command = Command::new(program);
        command.arg("serve").env("PHOENIX_HOST", "127.0.0.1").env("PHOENIX_PORT", port.to_string());
        command.env("PHOENIX_GRPC_PORT", free_port().to_string()).env("PHOENIX_WORKING_DIR", folder.path());
        command.env("PHOENIX_TELEMETRY_ENABLED", "false");
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("Phoenix starts");
        Self { child, address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)), _folder: folder }
    }

    async fn until_ready(&self) {
        let begun = Instant::now();
        while tokio::net::TcpStream::connect(self.address).await.is_err() {
            assert!(begun.elapsed() < START_TIME, "Phoenix does not listen");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Returns the spans of the project `agent-host`, without the spans of file accesses.
    async fn spans(&self) -> Vec<Value> {
        let client = Client::new(self.address, None);
        let begun = Instant::now();
        loop {
            let answer = client.get("/v1/projects/agent-host/spans?limit=1000").await;
            let spans = if answer.status == 200 { answer.json(200)["data"].as_array().cloned() } else { None };
            let is_file = |span: &Value| span["name"].as_str().is_some_and(|name| name.starts_with("file "));
            let spans: Vec<Value> = spans.unwrap_or_default().into_iter().filter(|span| !is_file(span)).collect();
            if spans.len() >= SPANS {
                return spans;
            }
            assert!(begun.elapsed() < VISIBLE_TIME, "{} spans are visible", spans.len());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

fn text<'v>(span: &'v Value, pointer: &str) -> &'v str {
    span.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// O1: Phoenix shows the turn as one trace, with the parents, kinds and tokens of its spans.
#[test]
fn o1_phoenix_shows_a_turn_of_several_processes_and_agents() {
    let Some(program) = program() else { return };
    let phoenix = Phoenix::start(program);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(phoenix.until_ready());
    Agents::new(&telemetry(&format!("http://{}", phoenix.address), "complete")).run_turn();
    let spans = runtime.block_on(phoenix.spans());
    assert_eq!(spans.len(), SPANS, "no span is shown twice: {spans:#?}");
    let traces: std::collections::BTreeSet<_> = spans.iter().map(|span| text(span, "/context/trace_id")).collect();
    assert_eq!(traces.len(), 1, "{traces:?}");
    let by_id: BTreeMap<&str, &Value> = spans.iter().map(|span| (text(span, "/context/span_id"), span)).collect();
    let parent_of = |span: &Value| by_id.get(text(span, "/parent_id")).map_or("", |parent| text(parent, "/name"));
    let mut shown: Vec<String> = spans
        .iter()
        .map(|span| format!("{} {} < {}", text(span, "/span_kind"), text(span, "/name"), parent_of(span)))
        .collect();
    shown.sort();
    let mut expected = vec![
        "AGENT invoke_agent lead < ",
        "AGENT invoke_agent worker < execute_tool worker",
        "CHAIN step 1 < invoke_agent lead",
        "CHAIN step 1 < invoke_agent worker",
        "CHAIN step 2 < invoke_agent lead",
        "CHAIN step 2 < invoke_agent worker",
        "CHAIN step 3 < invoke_agent lead",
        "CHAIN step 4 < invoke_agent lead",
        "GUARDRAIL approve payer.pay < step 2",
        "GUARDRAIL validate output schema < step 3",
        "LLM chat fallback.json < step 2",
        "LLM chat fallback.json < step 3",
        "LLM chat fallback.json < step 4",
        "LLM chat lead.json < step 1",
        "LLM chat lead.json < step 2",
        "LLM chat worker.json < step 1",
        "LLM chat worker.json < step 2",
        "TOOL execute_tool files.read < step 1",
        "TOOL execute_tool payer.pay < step 2",
        "TOOL execute_tool worker < step 1",
    ];
    expected.sort_unstable();
    assert_eq!(shown, expected);
    let tokens = spans.iter().filter_map(|span| span["attributes"]["llm.token_count.total"].as_u64());
    assert_eq!(tokens.sum::<u64>(), 6 * 220, "each model call that was answered counts once");
}
