//! `kill -9` at every named point around commits and deeds, and at random moments: after going on, every acknowledged
//! thing is there, every call has exactly one result, and nothing that cannot be repeated ran twice (D3, row 27).

use crate::support::components;
use agent_core::change::CallState;
use agent_core::event::EventKind;
use agent_core::message::Part;
use agent_store::{CallFilter, Memories, MessageRange, Options, SessionFilter, SessionLog, SqliteStore};
use serde_json::json;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Deeds that a run passes, each before and after.
const INPUTS: [&str; 6] = ["start", "context", "reply", "dispatched", "outcome", "verdict"];
const TOOLS: [&str; 3] = ["probe.count", "probe.idempotent", "probe.echo"];
/// For whom the runs are.
const USER: &str = "ada";
/// Runs that are killed at a random moment, beside those killed at a named point; with every repeat, more than 500 in all.
fn random_runs() -> u32 {
    if std::env::var_os("AGENT_HOST_EVERY_REPEAT").is_some() { 470 } else { 180 }
}

/// A data directory with a granted tree, and the sessions that are killed in it.
struct Ground {
    directory: TempDir,
    /// Of an undisturbed run with warm compiled code.
    length: Duration,
}

impl Ground {
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
        let mut ground = Self { directory, length: Duration::ZERO };
        for _ in 0..2 {
            ground.clear();
            let started = Instant::now();
            assert!(ground.start(None).wait().unwrap().success(), "an undisturbed run");
            ground.length = started.elapsed();
        }
        ground.check("undisturbed");
        ground
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
        let mut command = Command::new(env!("CARGO_BIN_EXE_agent-host"));
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

    /// Continues the session until it has ended, deciding about calls whose outcome is unknown.
    fn go_on(&self, context: &str) {
        for _ in 0..20 {
            let output = self.command(&["--continue"]).output().unwrap();
            let printed = String::from_utf8_lossy(&output.stderr).into_owned();
            match output.status.code() {
                Some(0) => return,
                Some(3) => self.decide(context),
                _ => panic!("{context}: --continue ended with {}: {printed}", output.status),
            }
        }
        panic!("{context}: the session does not come to an end");
    }

    /// What a person would do: look whether the effect is there.
    fn decide(&self, context: &str) {
        let (session, calls) = self.unknown();
        assert!(!calls.is_empty(), "{context}: suspended, but no call is unknown");
        for (id, name) in calls {
            assert_eq!(name, "probe.count", "{context}: only what cannot be repeated waits for a decision");
            let decision = if self.effects().contains_key(&id) { "result" } else { "retry" };
            let call = format!("{session}/{id}");
            let data = self.path("data");
            let mut command = Command::new(env!("CARGO_BIN_EXE_agent-host"));
            command.args(["session", "resolve", &call, decision, "--user", USER]).arg("--data").arg(&data);
            if decision == "result" {
                command.arg("counted");
            }
            let output = command.output().unwrap();
            assert!(output.status.success(), "{context}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }

    fn unknown(&self) -> (String, Vec<(String, String)>) {
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

    /// Everything that D3 promises of the session that was killed.
    fn check(&self, context: &str) {
        block_on(async {
            let store = self.store();
            store.integrity_check().await.unwrap_or_else(|error| panic!("{context}: {error}"));
            let sessions = store.sessions(SessionFilter::default(), 10).await.unwrap();
            let [session] = &sessions[..] else { panic!("{context}: {} sessions", sessions.len()) };
            assert_eq!(session.state, "idle", "{context}");
            let messages = store.messages(&session.subject, MessageRange::After { id: 0, limit: 100 }).await.unwrap();
            let calls = store.calls(&session.subject, CallFilter::Turn(1)).await.unwrap();
            assert_eq!(calls.len(), 4, "{context}: every call once");
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
                assert_eq!(answers.count(), 1, "{context}: {} is answered once", call.id);
            }
            let events = store.events(&session.subject, 0, 1_000).await.unwrap();
            for (place, timed) in events.iter().enumerate() {
                assert_eq!(timed.event.sequence, place as u64 + 1, "{context}: no event is lost or doubled");
            }
            let ends = events.iter().filter(|timed| matches!(timed.event.kind, EventKind::LoopEnd { .. })).count();
            assert_eq!(ends, 1, "{context}: loop_end exactly once");
            assert!(matches!(events.last().unwrap().event.kind, EventKind::LoopEnd { .. }), "{context}: and last");
            let remembered = Memories::list(&store, USER, "", 100).await.unwrap();
            let mut places: Vec<&str> = remembered.iter().map(|fact| fact.id.rsplit("/1/").next().unwrap()).collect();
            places.sort_unstable();
            assert_eq!(places, ["final", "tool/1", "tool/2"], "{context}: D4, D6: each is remembered once");
        });
    }

    /// Forgets the session and keeps the compiled code.
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

/// Kills a run, goes on, and checks.
fn killed_at_point(ground: &Ground, point: &str) -> bool {
    ground.clear();
    let killed = was_killed(ground.start(Some(point)).wait().unwrap());
    finish(ground, point);
    killed
}

fn killed_after(ground: &Ground, wait: Duration) -> bool {
    ground.clear();
    let mut child = ground.start(None);
    std::thread::sleep(wait);
    let _ = child.kill();
    let killed = was_killed(child.wait().unwrap());
    finish(ground, &format!("killed after {wait:?}"));
    killed
}

fn finish(ground: &Ground, context: &str) {
    if !has_session(ground) {
        // Nothing was acknowledged; the person asks again.
        let output = ground.start(None).wait_with_output().unwrap();
        assert!(output.status.success(), "{context}: {}", String::from_utf8_lossy(&output.stderr));
    } else if has_turn(ground) {
        ground.go_on(context);
    } else {
        let output = ground.command(&["--continue"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains("has no session yet"), "{context}: L1: {said}");
        ground.clear();
        assert!(ground.start(None).wait().unwrap().success(), "{context}");
    }
    ground.check(context);
}

fn has_session(ground: &Ground) -> bool {
    ground.path("data/agent-host.db").exists()
        && block_on(async { !ground.store().sessions(SessionFilter::default(), 1).await.unwrap().is_empty() })
}

/// A session whose first input was never committed has nothing to go on with (L1).
fn has_turn(ground: &Ground) -> bool {
    block_on(async { ground.store().sessions(SessionFilter::default(), 1).await.unwrap()[0].turns > 0 })
}

#[test]
fn killed_at_every_named_point() {
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
    each_on_its_ground(&points, |ground, point| {
        assert!(killed_at_point(ground, point), "{point} was never passed");
    });
}

/// D4, D6: what a killed turn leaves is remembered though the session goes on with another input, and not before it does.
#[test]
fn a_killed_turn_is_remembered_by_the_next_one() {
    let ground = Ground::new();
    ground.clear();
    let script = std::fs::read_to_string(ground.path("script.json")).unwrap();
    let mut script: serde_json::Value = serde_json::from_str(&script).unwrap();
    script["replies"].as_array_mut().unwrap().push(json!({"text": "Next."}));
    std::fs::write(ground.path("script.json"), script.to_string()).unwrap();
    assert!(was_killed(ground.start(Some("after-commit:verdict")).wait().unwrap()));
    let remembered = || {
        block_on(async {
            let facts = Memories::list(&ground.store(), USER, "", 100).await.unwrap();
            facts.iter().rev().map(|fact| fact.id.split_once('/').unwrap().1[37..].to_owned()).collect::<Vec<_>>()
        })
    };
    assert_eq!(remembered(), ["1/tool/1", "1/tool/2"]);
    let (session, _) = ground.unknown();
    let output = ground.command(&["--session", &session, "next"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(remembered(), ["1/tool/1", "1/tool/2", "1/final", "2/final"]);
}

#[test]
fn killed_at_random_moments() {
    // Spread evenly over a run's own length, so that each part of it is met; what it is doing then is left to chance.
    let runs: Vec<u32> = (0..random_runs()).collect();
    let killed = AtomicU32::new(0);
    each_on_its_ground(&runs, |ground, run| {
        if killed_after(ground, ground.length * *run / random_runs()) {
            killed.fetch_add(1, Ordering::SeqCst);
        }
    });
    assert!(killed.into_inner() > random_runs() / 2, "most runs must be killed before they end");
}

/// Two at a time, each with a data directory whose compiled code is warm.
fn each_on_its_ground<T: Sync>(items: &[T], run: impl Fn(&Ground, &T) + Sync) {
    std::thread::scope(|scope| {
        for half in items.chunks(items.len().div_ceil(2)) {
            let run = &run;
            scope.spawn(move || {
                let ground = Ground::new();
                half.iter().for_each(|item| run(&ground, item));
            });
        }
    });
}

/// The directory is private: it holds conversations.
#[test]
fn the_data_directory_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let ground = Ground::new();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&ground.path("data")), 0o700);
}

/// P10: an interrupted turn goes on with the plugin it began with, though its file is gone; without the stored copy the
/// turn ends with `plugin_changed`, and every call still has its one result.
#[test]
fn a_plugin_that_is_replaced_in_mid_turn() {
    for store in ["kept", "gone"] {
        let ground = Ground::new();
        ground.clear();
        assert!(was_killed(ground.start(Some("before-call:probe.echo")).wait().unwrap()));
        std::fs::remove_file(ground.path("plugins/probe.wasm")).unwrap();
        std::fs::copy(components().join("calc.wasm"), ground.path("plugins/calc.wasm")).unwrap();
        let command = |arguments: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_agent-host"));
            let model = format!("scripted:{}", ground.path("script.json").display());
            command.arg("--plugins").arg(ground.path("plugins")).arg("--data").arg(ground.path("data"));
            command.args(["--model", &model, "--user", USER]).args(arguments).current_dir(ground.path("tree"));
            command.stdin(Stdio::null()).output().unwrap()
        };
        if store == "gone" {
            std::fs::remove_dir_all(ground.path("data/plugins")).unwrap();
        }
        let output = command(&["--continue"]);
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        match store {
            "kept" => assert!(matches!(output.status.code(), Some(0 | 3)), "{printed}"),
            _ => assert!(output.status.code() == Some(1) && printed.contains("plugin_changed"), "{printed}"),
        }
        block_on(async {
            let store_file = ground.store();
            let session = store_file.sessions(SessionFilter::default(), 1).await.unwrap().remove(0);
            let calls = store_file.calls(&session.subject, CallFilter::Turn(1)).await.unwrap();
            let open = calls.iter().filter(|call| call.result.is_none()).count();
            assert!(open == 0 || session.state == "suspended", "{store}: {open} calls are open");
            let sources = calls.iter().map(|call| call.source.as_ref().unwrap().to_string());
            assert!(sources.into_iter().all(|source| source.starts_with("probe@")), "{store}");
        });
    }
}

/// L30, D3: what opening an interrupted session decides is told to who watches it, though it happens before the turn goes on.
#[test]
fn going_on_tells_what_became_of_the_calls() {
    let ground = Ground::new();
    ground.clear();
    assert!(was_killed(ground.start(Some("after-call:probe.count")).wait().unwrap()));
    let output = ground.command(&["--continue", "--json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let lines = String::from_utf8(output.stdout).unwrap();
    let types = lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["type"].clone());
    let types: Vec<_> = types.collect();
    assert!(types.contains(&json!("outcome_unknown")) && types.contains(&json!("suspended")), "{types:?}");
    ground.go_on("after-call:probe.count");
    ground.check("after-call:probe.count");
}
