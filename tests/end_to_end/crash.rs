//! Kills the process with `kill -9` at every named point around commits and effects, and at random moments. After the
//! session continues, all acknowledged data is stored, every call has exactly one result, and the calls that must not
//! be repeated have run only once (D3, row 27).

use crate::support::{agent_host, components};
use agent_core::change::CallState;
use agent_core::event::EventKind;
use agent_core::message::Part;
use agent_store::{
    CallFilter, Integrity, Memories, MessageRange, Options, SessionFilter, SessionIndex, SessionLog, SqliteStore,
};
use serde_json::json;
use std::cell::Cell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The names of all state machine inputs that the turn commits. The process is killed before and after each of
/// these commits.
const INPUTS: [&str; 6] = ["start", "context", "reply", "dispatched", "outcome", "verdict"];
const TOOLS: [&str; 3] = ["probe.count", "probe.idempotent", "probe.echo"];
/// The user name that all commands pass to the binary.
const USER: &str = "ada";
/// Returns the number of runs that are killed at a random moment. If `AGENT_HOST_EVERY_REPEAT` is set, the tests kill
/// more than 500 runs in total, at random moments and at named points.
fn random_runs() -> u32 {
    if std::env::var_os("AGENT_HOST_EVERY_REPEAT").is_some() { 470 } else { 180 }
}

/// A data directory with a granted tree, and the sessions that are killed in it.
struct KillTarget {
    directory: TempDir,
    /// The estimated duration of a run that is not killed and whose plugins are already compiled. Other tests may slow
    /// down the measured run, so the estimate is lowered if a run ends before it is killed.
    run_time: Cell<Duration>,
}

impl KillTarget {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for folder in ["plugins", "tree"] {
            std::fs::create_dir(directory.path().join(folder)).unwrap();
        }
        std::fs::copy(components().join("probe.wasm"), directory.path().join("plugins/probe.wasm")).unwrap();
        let effect = |tool: &str| json!({"name": tool, "arguments": {"path": "effects.txt", "ms": 15}});
        let echo = json!({"name": "probe.echo", "arguments": {"text": "hello"}});
        let script = json!({"replies": [
            {"calls": [effect("probe.count"), effect("probe.idempotent"), echo]},
            {"calls": [effect("probe.count")]},
            {"text": "Finished.", "delay_ms": 5},
        ]});
        std::fs::write(directory.path().join("script.json"), script.to_string()).unwrap();
        let kill_target = Self { directory, run_time: Cell::default() };
        for _ in 0..2 {
            kill_target.clear();
            let started = Instant::now();
            assert!(kill_target.start(None).wait().unwrap().success(), "a run succeeds if it is not killed");
            kill_target.run_time.set(started.elapsed());
        }
        kill_target.check("not killed");
        kill_target
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn effects(&self) -> HashMap<String, usize> {
        let mut counts = HashMap::new();
        for line in std::fs::read_to_string(self.path("tree/effects.txt")).unwrap_or_default().lines() {
            *counts.entry(line.to_owned()).or_default() += 1;
        }
        counts
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = agent_host();
        let model = format!("scripted:{}", self.path("script.json").display());
        command.args([
            "--plugins".as_ref(),
            self.path("plugins").as_os_str(),
            "--data".as_ref(),
            self.path("data").as_os_str(),
        ]);
        command.args(["--model", &model, "--grant", "probe:write=.", "--user", USER]).args(arguments);
        command.current_dir(self.path("tree")).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn start(&self, kill_at: Option<&str>) -> Child {
        let mut command = self.command(&["Go."]);
        if let Some(point) = kill_at {
            command.env("AGENT_HOST_KILL_AT", point);
        }
        command.spawn().unwrap()
    }

    /// Continues the session until its turn has ended. Whenever the turn waits because the outcomes of calls are
    /// unknown, this function resolves these calls.
    fn continue_to_end(&self, context: &str) {
        for _ in 0..20 {
            let output = self.command(&["--continue"]).output().unwrap();
            let printed = String::from_utf8_lossy(&output.stderr).into_owned();
            match output.status.code() {
                Some(0) => return,
                Some(3) => self.resolve_unknown_calls(context),
                _ => panic!("{context}: --continue ended with {}: {printed}", output.status),
            }
        }
        panic!("{context}: the session does not end");
    }

    /// Resolves the calls with an unknown outcome as a user would: if the effect of a call happened, its result is
    /// recorded. If the effect did not happen, the call is retried.
    fn resolve_unknown_calls(&self, context: &str) {
        let (session, calls) = self.unknown_calls();
        assert!(!calls.is_empty(), "{context}: suspended, but no call has an unknown outcome");
        for (id, name) in calls {
            assert_eq!(name, "probe.count", "{context}: only calls that cannot be repeated wait for a decision");
            let decision = if self.effects().contains_key(&id) { "result" } else { "retry" };
            let call = format!("{session}/{id}");
            let data = self.path("data");
            let mut command = agent_host();
            command.args(["session", "resolve", &call, decision, "--user", USER]).arg("--data").arg(&data);
            if decision == "result" {
                command.arg("counted");
            }
            let output = command.output().unwrap();
            assert!(output.status.success(), "{context}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }

    fn unknown_calls(&self) -> (String, Vec<(String, String)>) {
        block_on(async {
            let store = self.store();
            let session = store.sessions(SessionFilter::default(), 1).await.unwrap().remove(0).subject;
            let calls = store.calls(&session, CallFilter::Unfinished).await.unwrap();
            let unknown = calls.into_iter().filter(|call| call.state == CallState::OutcomeUnknown);
            (session, unknown.map(|call| (call.id.0, call.name)).collect())
        })
    }

    fn store(&self) -> SqliteStore {
        SqliteStore::open(self.path("data/agent-host.db"), Options::default()).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Checks everything that contract line D3 requires of a session whose process was killed.
    fn check(&self, context: &str) {
        block_on(async {
            let store = self.store();
            store.integrity_check().await.unwrap_or_else(|error| panic!("{context}: {error}"));
            let sessions = store.sessions(SessionFilter::default(), 10).await.unwrap();
            let [session] = &sessions[..] else { panic!("{context}: {} sessions", sessions.len()) };
            assert_eq!(session.state.as_str(), "idle", "{context}");
            let messages = store.messages(&session.subject, MessageRange::After { id: 0, limit: 100 }).await.unwrap();
            let calls = store.calls(&session.subject, CallFilter::Turn(1)).await.unwrap();
            assert_eq!(calls.len(), 4, "{context}: each call is stored once");
            let effects = self.effects();
            for call in &calls {
                let result = call.result.as_ref().unwrap_or_else(|| panic!("{context}: {} has no result", call.id));
                assert!(!result.is_error, "{context}: {} failed: {result:?}", call.id);
                if call.name != "probe.echo" {
                    assert_eq!(effects.get(&call.id.0), Some(&1), "{context}: {} had its effect once", call.id);
                }
                let answers = messages
                    .iter()
                    .flat_map(|message| &message.parts)
                    .filter(|part| matches!(part, Part::ToolResult(result) if result.call_id == call.id));
                assert_eq!(answers.count(), 1, "{context}: {} has one result message", call.id);
            }
            let events = store.events(&session.subject, 0, 1_000).await.unwrap();
            for (index, timed) in events.iter().enumerate() {
                assert_eq!(timed.event.sequence, index as u64 + 1, "{context}: no event is lost or duplicated");
            }
            let ends = events.iter().filter(|timed| matches!(timed.event.kind, EventKind::LoopEnd { .. })).count();
            assert_eq!(ends, 1, "{context}: `loop_end` occurs exactly once");
            assert!(
                matches!(events.last().unwrap().event.kind, EventKind::LoopEnd { .. }),
                "{context}: `loop_end` is the last event"
            );
            let remembered = Memories::list(&store, USER, "", 100).await.unwrap();
            let mut fact_ids: Vec<&str> = remembered.iter().map(|fact| fact.id.rsplit("/1/").next().unwrap()).collect();
            fact_ids.sort_unstable();
            assert_eq!(fact_ids, ["final", "tool/1", "tool/2"], "{context}: D4, D6: each memory is stored once");
        });
    }

    /// Deletes the session but not the compiled code.
    fn clear(&self) {
        for file in ["agent-host.db", "agent-host.db-wal", "agent-host.db-shm"] {
            let _ = std::fs::remove_file(self.path("data").join(file));
        }
        let _ = std::fs::remove_file(self.path("tree/effects.txt"));
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn was_killed(status: ExitStatus) -> bool {
    std::os::unix::process::ExitStatusExt::signal(&status) == Some(9)
}

/// Kills a run at a named point, continues its session, and checks the session. Returns whether the run was killed.
fn kill_at_point(kill_target: &KillTarget, point: &str) -> bool {
    kill_target.clear();
    let killed = was_killed(kill_target.start(Some(point)).wait().unwrap());
    finish(kill_target, point);
    killed
}

fn kill_after(kill_target: &KillTarget, wait: Duration) -> bool {
    kill_target.clear();
    let mut child = kill_target.start(None);
    std::thread::sleep(wait);
    let _ = child.kill();
    let killed = was_killed(child.wait().unwrap());
    finish(kill_target, &format!("killed after {wait:?}"));
    killed
}

fn finish(kill_target: &KillTarget, context: &str) {
    if !has_session(kill_target) {
        // The killed process did not acknowledge the input, so the user sends the prompt again.
        let output = kill_target.start(None).wait_with_output().unwrap();
        assert!(output.status.success(), "{context}: {}", String::from_utf8_lossy(&output.stderr));
    } else if has_turn(kill_target) {
        kill_target.continue_to_end(context);
    } else {
        let output = kill_target.command(&["--continue"]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && stderr.contains("has no session yet"), "{context}: L1: {stderr}");
        kill_target.clear();
        assert!(kill_target.start(None).wait().unwrap().success(), "{context}");
    }
    kill_target.check(context);
}

fn has_session(kill_target: &KillTarget) -> bool {
    kill_target.path("data/agent-host.db").exists()
        && block_on(async { !kill_target.store().sessions(SessionFilter::default(), 1).await.unwrap().is_empty() })
}

/// A session whose first input was never committed cannot be continued (L1).
fn has_turn(kill_target: &KillTarget) -> bool {
    block_on(async { kill_target.store().sessions(SessionFilter::default(), 1).await.unwrap()[0].turns > 0 })
}

#[test]
fn d3_a_turn_killed_at_any_named_point_is_continued() {
    let mut points: Vec<String> = Vec::new();
    for (input, times) in INPUTS.into_iter().zip([1, 1, 3, 2, 4, 1]) {
        for time in 1..=times {
            points.push(format!("before-commit:{input}:{time}"));
            points.push(format!("after-commit:{input}:{time}"));
        }
    }
    for (tool, times) in TOOLS.into_iter().zip([2, 1, 1]) {
        for time in 1..=times {
            points.push(format!("before-call:{tool}:{time}"));
            points.push(format!("after-call:{tool}:{time}"));
        }
    }
    for time in 1..=3 {
        points.push(format!("before-model:{time}"));
        points.push(format!("after-model:{time}"));
    }
    for_each_in_parallel(&points, |kill_target, point| {
        assert!(kill_at_point(kill_target, point), "the checkpoint {point} was never passed");
    });
}

/// D4, D6: If a turn is killed before its final memory is stored, the memory is stored when the session continues with
/// another input, and not earlier.
#[test]
fn d4_the_next_turn_stores_memories_of_a_killed_turn() {
    let kill_target = KillTarget::new();
    kill_target.clear();
    let script = std::fs::read_to_string(kill_target.path("script.json")).unwrap();
    let mut script: serde_json::Value = serde_json::from_str(&script).unwrap();
    script["replies"].as_array_mut().unwrap().push(json!({"text": "Next."}));
    std::fs::write(kill_target.path("script.json"), script.to_string()).unwrap();
    assert!(was_killed(kill_target.start(Some("after-commit:verdict")).wait().unwrap()));
    let remembered = || {
        block_on(async {
            let facts = Memories::list(&kill_target.store(), USER, "", 100).await.unwrap();
            facts.iter().rev().map(|fact| fact.id.split_once('/').unwrap().1[37..].to_owned()).collect::<Vec<_>>()
        })
    };
    assert_eq!(remembered(), ["1/tool/1", "1/tool/2"]);
    let (session, _) = kill_target.unknown_calls();
    let output = kill_target.command(&["--session", &session, "next"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(remembered(), ["1/tool/1", "1/tool/2", "1/final", "2/final"]);
}

#[test]
fn d3_a_turn_killed_at_a_random_moment_is_continued() {
    // The kill times are spread evenly over the duration of a run, so that they reach every part of a run.
    let runs: Vec<u32> = (0..random_runs()).collect();
    let killed = AtomicU32::new(0);
    for_each_in_parallel(&runs, |kill_target, run| {
        let wait = kill_target.run_time.get() * *run / random_runs();
        if kill_after(kill_target, wait) {
            killed.fetch_add(1, Ordering::SeqCst);
        } else {
            kill_target.run_time.set(wait);
        }
    });
    assert!(killed.into_inner() > random_runs() / 2, "most runs must be killed before they end");
}

/// Calls `run` for all items on two threads. Each thread has its own data directory with compiled code.
fn for_each_in_parallel<T: Sync>(items: &[T], run: impl Fn(&KillTarget, &T) + Sync) {
    std::thread::scope(|scope| {
        for half in items.chunks(items.len().div_ceil(2)) {
            let run = &run;
            scope.spawn(move || {
                let kill_target = KillTarget::new();
                half.iter().for_each(|item| run(&kill_target, item));
            });
        }
    });
}

/// The data directory is private, because it contains conversations.
#[test]
fn the_data_directory_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let kill_target = KillTarget::new();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&kill_target.path("data")), 0o700);
}

/// P10: An interrupted turn continues with the plugin that it started with, even if the plugin's file was deleted. If
/// the host's stored copy of the plugin is also missing, the turn ends with `plugin_changed`, and every call still has
/// exactly one result.
#[test]
fn p10_an_interrupted_turn_continues_with_its_stored_plugin() {
    for store in ["kept", "gone"] {
        let kill_target = KillTarget::new();
        kill_target.clear();
        assert!(was_killed(kill_target.start(Some("before-call:probe.echo")).wait().unwrap()));
        std::fs::remove_file(kill_target.path("plugins/probe.wasm")).unwrap();
        std::fs::copy(components().join("calc.wasm"), kill_target.path("plugins/calc.wasm")).unwrap();
        let command = |arguments: &[&str]| {
            let mut command = agent_host();
            let model = format!("scripted:{}", kill_target.path("script.json").display());
            command.arg("--plugins").arg(kill_target.path("plugins")).arg("--data").arg(kill_target.path("data"));
            command.args(["--model", &model, "--user", USER]).args(arguments).current_dir(kill_target.path("tree"));
            command.stdin(Stdio::null()).output().unwrap()
        };
        if store == "gone" {
            std::fs::remove_dir_all(kill_target.path("data/plugins")).unwrap();
        }
        let output = command(&["--continue"]);
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        match store {
            "kept" => assert!(matches!(output.status.code(), Some(0 | 3)), "{printed}"),
            _ => assert!(output.status.code() == Some(1) && printed.contains("plugin_changed"), "{printed}"),
        }
        block_on(async {
            let store_file = kill_target.store();
            let session = store_file.sessions(SessionFilter::default(), 1).await.unwrap().remove(0);
            let calls = store_file.calls(&session.subject, CallFilter::Turn(1)).await.unwrap();
            let open = calls.iter().filter(|call| call.result.is_none()).count();
            assert!(open == 0 || session.state.as_str() == "suspended", "{store}: {open} calls are open");
            let sources = calls.iter().map(|call| call.source.as_ref().unwrap().to_string());
            assert!(sources.into_iter().all(|source| source.starts_with("probe@")), "{store}");
        });
    }
}

/// L30, D3: While the host opens an interrupted session, it records outcomes for unfinished calls. The recorded
/// outcomes are reported as events, although the turn has not continued yet.
#[test]
fn d3_continuing_reports_the_outcomes_of_interrupted_calls() {
    let kill_target = KillTarget::new();
    kill_target.clear();
    assert!(was_killed(kill_target.start(Some("after-call:probe.count")).wait().unwrap()));
    let output = kill_target.command(&["--continue", "--json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let lines = String::from_utf8(output.stdout).unwrap();
    let types = lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["type"].clone());
    let types: Vec<_> = types.collect();
    assert!(types.contains(&json!("outcome_unknown")) && types.contains(&json!("suspended")), "{types:?}");
    kill_target.continue_to_end("after-call:probe.count");
    kill_target.check("after-call:probe.count");
}
