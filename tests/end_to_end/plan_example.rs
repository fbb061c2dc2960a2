//! The example agents of the guide run unchanged with the real binary, and a plan continues after its process was
//! killed at any point (L20, L24, L25, D3).

use crate::support::{agent_host, repository};
use agent_core::event::EventKind;
use agent_store::{CallFilter, Options, SessionFilter, SessionIndex, SessionLog, SqliteStore};
use serde_json::Value;
use std::path::Path;
use std::process::{Output, Stdio};

fn run(agent: &str, data: &Path, arguments: &[&str], kill_at: Option<&str>) -> Output {
    let mut command = agent_host();
    command.arg("--agent").arg(repository().join("tests/agents").join(agent)).arg("--data").arg(data).args(arguments);
    command.current_dir(repository()).stdin(Stdio::null());
    if let Some(point) = kill_at {
        command.env("AGENT_HOST_KILL_AT", point);
    }
    command.output().unwrap()
}

fn answer(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// L20, L24, L25: The guide shows the command of each example, and each command prints the expected answer.
#[test]
fn l24_the_examples_run_unchanged() {
    let page = std::fs::read_to_string(repository().join("host/docs/guide/models.md")).unwrap();
    let cases = [
        ("text-dialect.toml", "How many berths has the harbour?", "It has four berths."),
        ("prefilter.toml", "Read the file harbour.md", "The eastern berth is closed in winter."),
        ("planner.toml", "Is the harbour open?", "It is open; only the eastern berth is closed in winter."),
    ];
    for (agent, prompt, expected) in cases {
        assert!(page.contains(&format!("agent-host --agent tests/agents/{agent} \"{prompt}\"")), "{agent}");
        let data = tempfile::tempdir().unwrap();
        assert_eq!(answer(&run(agent, data.path(), &[prompt], None)), expected);
    }
}

/// L30: The host reports a plan: with `--json`, as an event, and in the terminal, as text.
#[test]
fn l30_reports_plans() {
    let data = tempfile::tempdir().unwrap();
    let output = run("planner.toml", data.path(), &["--json", "Is the harbour open?"], None);
    let lines = String::from_utf8(output.stdout).unwrap();
    let events: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let plan = events.iter().find(|event| event["type"] == "plan").expect("a plan");
    assert_eq!(plan["steps"][1]["tool"], "read_file");
    let output = run("planner.toml", data.path(), &["Is the harbour open?"], None);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("the plan:") && stderr.contains("2. read_file Read that file."), "{stderr}");
}

/// D3, L24: If the process is killed at any named point, another process continues the plan. The plan is made only
/// once, and each tool call of the plan runs only once.
#[test]
fn d3_a_plan_continues_after_its_process_was_killed() {
    let mut points: Vec<String> = Vec::new();
    for side in ["before-commit", "after-commit"] {
        points.extend((1..=4).map(|nth| format!("{side}:reply:{nth}")));
        points.extend((1..=2).flat_map(|nth| [format!("{side}:dispatched:{nth}"), format!("{side}:outcome:{nth}")]));
        points.extend(["context", "verdict"].map(|input| format!("{side}:{input}")));
    }
    points.extend((2..=4).map(|nth| format!("after-model:{nth}")));
    points.extend(["before-call:list_directory", "after-call:read_file"].map(str::to_owned));
    for point in points {
        let data = tempfile::tempdir().unwrap();
        let killed = run("planner.toml", data.path(), &["Is the harbour open?"], Some(&point));
        let signal = std::os::unix::process::ExitStatusExt::signal(&killed.status);
        assert_eq!(signal, Some(9), "{point} was never passed: {}", String::from_utf8_lossy(&killed.stderr));
        let output = run("planner.toml", data.path(), &["--continue"], None);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{point}: {stderr}");
        check_plan_ran_once(data.path(), &point);
    }
}

fn check_plan_ran_once(data: &Path, point: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = SqliteStore::open(data.join("agent-host.db"), Options::default()).unwrap();
        let session = store.sessions(SessionFilter::default(), 1).await.unwrap().remove(0);
        assert_eq!(session.state.as_str(), "idle", "{point}");
        let calls = store.calls(&session.subject, CallFilter::Turn(1)).await.unwrap();
        let names: Vec<&str> = calls.iter().map(|call| call.name.as_str()).collect();
        assert_eq!(names, ["list_directory", "read_file"], "{point}");
        assert!(calls.iter().all(|call| call.result.as_ref().is_some_and(|result| !result.is_error)), "{point}");
        let events = store.events(&session.subject, 0, 1_000).await.unwrap();
        let plans = events.iter().filter(|timed| matches!(timed.event.kind, EventKind::Plan { .. })).count();
        let fallbacks =
            events.iter().filter(|timed| matches!(timed.event.kind, EventKind::PlanFallback { .. })).count();
        assert_eq!((plans, fallbacks), (1, 0), "{point}");
    });
}
