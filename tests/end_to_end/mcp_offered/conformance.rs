//! The conformance suite of the Model Context Protocol and its inspector, against the real binary (I4). A scenario that is
//! expected to fail is listed with the reason. If a listed scenario passes, the suite fails.

mod expected;

use super::Workplace;
use super::client::agent_host;
use crate::peers::{node, peer};
use crate::support::{SharedCompiledCode, repository};
use expected::{CLIENT_STATELESS, CLIENT_WITH_HANDSHAKE, SERVER_STATELESS, SERVER_WITH_HANDSHAKE};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The scenario that measures when a client reconnects.
const RECONNECTION: &str = "sse-retry";

/// A process that ends when the value is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a process, and returns it with what `read` finds in a line of its output.
fn started<T>(mut command: Command, read: impl Fn(&str) -> Option<T>) -> (Running, T) {
    let mut child = command.stdin(Stdio::null()).spawn().expect("the process starts");
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let running = Running(child);
    let output: Box<dyn std::io::Read + Send> = match (stdout, stderr) {
        (Some(stdout), _) => Box::new(stdout),
        (None, Some(stderr)) => Box::new(stderr),
        (None, None) => panic!("the output is not captured"),
    };
    let mut lines = BufReader::new(output).lines().map_while(Result::ok);
    let found = lines.by_ref().find_map(|line| read(&line)).expect("the process says where it listens");
    // The pipe must be read, or the process would wait.
    std::thread::spawn(move || lines.for_each(drop));
    (running, found)
}

/// Runs the suite with the scenarios that this version of the protocol requires.
fn run_suite(version: &str, expected: &[(&str, &str)]) {
    let (Some(node), Some(suite)) =
        (node(), peer("node/node_modules/@modelcontextprotocol/conformance/dist", "index.js"))
    else {
        return;
    };
    let workplace = Workplace::new(&["conformance"]);
    let _compiled = SharedCompiledCode::in_data(&workplace.data());
    let mut server = agent_host(&workplace.data());
    server.args(["mcp", "--listen", "127.0.0.1:0", "--plugins"]).arg(workplace.plugins()).stderr(Stdio::piped());
    let address = |line: &str| Some(line.split_once("http://")?.1.split('/').next()?.to_owned());
    let (_server, address) = started(server, address);
    let token = std::fs::read_to_string(workplace.data().join("server-token")).expect("the first token");
    let mut proxy = Command::new(&node);
    proxy.arg(repository().join("tests/fixtures/mcp_token_proxy.mjs")).args([&address, token.trim()]);
    let (_proxy, port) = started(with_output(proxy), |line| line.trim().parse::<u16>().ok());
    let mut command = Command::new(node);
    command.arg(suite).args(["server", "--url", &format!("http://localhost:{port}/mcp")]);
    let summary = summary_of(command, version, (&workplace, "server", expected));
    assert!(
        summary.contains("✓ tools-call-simple-text") && summary.contains("✓ tools-call-with-progress"),
        "{summary}"
    );
}

/// Runs the suite, and returns its summary. Fails if a scenario fails that is not expected to fail, and if a scenario passes
/// that is expected to fail.
fn summary_of(command: Command, version: &str, expected: (&Workplace, &str, &[(&str, &str)])) -> String {
    let (passed, report) = outcome_of(command, version, expected);
    assert!(passed, "{report}");
    report.split("=== SUMMARY ===").last().unwrap_or_default().to_owned()
}

/// Runs the suite. Returns whether exactly the expected scenarios fail, and what the suite printed.
fn outcome_of(
    mut command: Command,
    version: &str,
    (workplace, role, expected): (&Workplace, &str, &[(&str, &str)]),
) -> (bool, String) {
    let scenarios: String = expected.iter().map(|(scenario, _)| format!("  - {scenario}\n")).collect();
    let baseline = workplace.folder.path().join("expected.yml");
    std::fs::write(&baseline, format!("{role}:\n{scenarios}")).expect("the file is written");
    command.args(["--requirements", version, "--expected-failures"]).arg(baseline);
    command.arg("-o").arg(workplace.folder.path().join("results"));
    let output = command.stdin(Stdio::null()).output().expect("the suite runs");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.success(), errors + &String::from_utf8_lossy(&output.stdout))
}

/// Runs the suite against the binary as a client, with an agent that uses the suite's server (I5).
fn run_client_suite(version: &str, expected: &[(&str, &str)]) {
    let (Some(node), Some(suite)) =
        (node(), peer("node/node_modules/@modelcontextprotocol/conformance/dist", "index.js"))
    else {
        return;
    };
    let workplace = Workplace::new(&[]);
    let driver = repository().join("tests/fixtures/mcp_client_driver.mjs");
    let parts = [&node, &driver, Path::new(env!("CARGO_BIN_EXE_agent-host")), workplace.folder.path()];
    let client: Vec<String> = parts.iter().map(|part| part.display().to_string()).collect();
    let suite = || {
        let mut command = Command::new(&node);
        command.arg(&suite).args(["client", "--timeout", "60000", "--command", &client.join(" ")]);
        command
    };
    let (passed, report) = outcome_of(suite(), version, (&workplace, "client", expected));
    assert!(report.contains("✓ tools_call"), "{report}");
    let unexpected = report.rsplit("Unexpected failures (not in baseline):").next().unwrap_or_default();
    let failed: Vec<_> = unexpected.lines().filter_map(|line| line.trim().strip_prefix("✗ ")).collect();
    // The suite runs all scenarios at the same time. If the machine is busy, it takes a late first stream for an early
    // reconnection.
    let passes_alone = || {
        (0..5).any(|_| {
            let output = suite().args(["--scenario", RECONNECTION, "--spec-version", version]).output();
            output.expect("the suite runs").status.success()
        })
    };
    assert!(passed || (failed == [RECONNECTION] && passes_alone()), "{report}");
}

/// I5: the client suite for the newest version of the protocol.
#[test]
fn i5_the_client_conformance_suite_passes_without_a_handshake() {
    run_client_suite("2026-07-28", CLIENT_STATELESS);
}

/// I5: the client suite for the version of the protocol before it.
#[test]
fn i5_the_client_conformance_suite_passes_with_a_handshake() {
    run_client_suite("2025-11-25", CLIENT_WITH_HANDSHAKE);
}

fn with_output(mut command: Command) -> Command {
    command.stdout(Stdio::piped());
    command
}

/// I4: the suite for the newest version of the protocol.
#[test]
fn i4_the_conformance_suite_passes_without_a_handshake() {
    run_suite("2026-07-28", SERVER_STATELESS);
}

/// I4: the suite for the version of the protocol before it.
#[test]
fn i4_the_conformance_suite_passes_with_a_handshake() {
    run_suite("2025-11-25", SERVER_WITH_HANDSHAKE);
}

/// I4: the inspector lists and calls tools.
#[test]
fn i4_the_inspector_uses_the_server() {
    let (Some(node), Some(inspector)) =
        (node(), peer("node/node_modules/@modelcontextprotocol/inspector/clients/launcher/build", "index.js"))
    else {
        return;
    };
    let workplace = Workplace::new(&["text"]);
    let _compiled = SharedCompiledCode::in_data(&workplace.data());
    let inspect = |arguments: &[&str]| inspected(&node, &inspector, (&workplace, arguments));
    let listed = inspect(&["--method", "tools/list"]);
    let names = listed["tools"].as_array().expect("a list").iter().map(|tool| tool["name"].as_str().expect("a name"));
    assert!(names.collect::<Vec<_>>().contains(&"text.count"), "{listed}");
    let arguments = ["--method", "tools/call", "--tool-name", "text.count", "--tool-arg", "text=two words"];
    let result = inspect(&arguments);
    assert_eq!(result["structuredContent"]["words"], json!(2), "{result}");
}

fn inspected(node: &Path, inspector: &Path, (workplace, arguments): (&Workplace, &[&str])) -> Value {
    let mut command = Command::new(node);
    command.arg(inspector).arg("--cli").arg(env!("CARGO_BIN_EXE_agent-host")).arg("mcp");
    // The inspector creates a file in the home folder.
    command.env("HOME", workplace.folder.path());
    command.arg("--plugins").arg(workplace.plugins()).arg("--data").arg(workplace.data()).args(arguments);
    let output = command.stdin(Stdio::null()).output().expect("the inspector runs");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}{stderr}");
    serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}{stderr}"))
}
