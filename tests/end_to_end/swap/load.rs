//! Row 30: Plugins are swapped many times while sessions run turns. No call fails, and no turn uses two versions of
//! a plugin.

use super::{WatchedAgent, wait_until, write_atomically};
use crate::support::{TestHost, call_reply, results, run_turn, script, text_reply};
use agent_core::view::result_text;
use agent_plugins::{Generation, digest_of};
use agent_runtime::{AgentConfig, LiveAgent, OpenSession, Session, TurnResult};
use agent_store::{CallFilter, SessionLog};
use serde_json::json;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// The number of swaps that row 30 requires.
const SWAPS: usize = 1_000;
/// The number of file swaps in a normal test run. The number is small, because the test waits for each swap.
const FILE_SWAPS: u32 = 20;
/// The number of file swaps that row 30 requires. The test makes all these swaps if `AGENT_HOST_EVERY_SWAP`
/// is set.
const ALL_FILE_SWAPS: u32 = 1_000;
const EVERY_SWAP_VARIABLE: &str = "AGENT_HOST_EVERY_SWAP";
/// The number of concurrent sessions.
const SESSIONS: usize = 2;
/// The maximum number of turns of a session. After these turns, the test closes the session and opens a new session.
const MAX_TURNS: usize = 2_000;

/// The text before the number in the text that `probe.echo` returns for the text "version".
const BEFORE_NUMBER: &str = "This is version ";

/// Returns a version of the plugin `probe` whose results show which version ran. The number has one digit.
fn probe_version(number: u32) -> Vec<u8> {
    let mut bytes = super::probe_version(number);
    let before = BEFORE_NUMBER.as_bytes();
    let position = bytes.windows(before.len()).position(|window| window == before).expect("the text is in the data");
    bytes[position + before.len()] = b'0' + u8::try_from(number).expect("one digit");
    bytes
}

/// Returns the version number in the result of a call to a component that [`probe_version`] created.
fn version_that_ran(result: &str) -> char {
    let number = result.split(BEFORE_NUMBER).nth(1).and_then(|rest| rest.chars().next());
    number.filter(char::is_ascii_digit).expect("the text is a result of `probe.echo`")
}

#[tokio::test(flavor = "multi_thread")]
async fn row_30_swaps_versions_under_load() {
    let test_host = TestHost::new(&[]).await;
    std::fs::write(test_host.directory.path().join("plugins/probe.wasm"), probe_version(1)).unwrap();
    let live = LiveAgent::new(test_host.agent(AgentConfig::new("test"), script(&replies())).await);
    let second = test_host.sandbox.load_bytes("probe", probe_version(2)).await.unwrap();
    let generations = [live.current().generation().clone(), Generation::new([second])];
    let load = TurnLoad::begin(&test_host, &live).await;
    for swap in 1..=SWAPS {
        let generation = generations[swap % 2].clone();
        live.change(|agent| agent.with_generation(generation)).unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let used = load.end(&test_host).await;
    let versions = [1, 2].map(|number| format!("probe@{}", digest_of(&probe_version(number)).short()));
    assert!(versions.iter().all(|version| used.contains(version)), "{used:?}");
}

/// Row 30: While sessions run turns, plugin files in a watched folder are replaced. The host checks, loads and
/// publishes each new file.
#[tokio::test(flavor = "multi_thread")]
async fn row_30_replaces_files_under_load() {
    let number = if std::env::var_os(EVERY_SWAP_VARIABLE).is_some() { ALL_FILE_SWAPS } else { FILE_SWAPS };
    let mut watched_agent = WatchedAgent::new(&replies()).await;
    let load = TurnLoad::begin(&watched_agent.test_host, &watched_agent.live).await;
    let mut refusals = 0;
    for swap in 1..=number {
        let bytes = probe_version(2 + swap % 3);
        write_atomically(&watched_agent.file("probe.wasm"), &bytes);
        watched_agent.wait_for_version(&bytes).await;
        let (turns, now) = (load.turns.clone(), load.turns.load(Ordering::Relaxed));
        wait_until(&move || turns.load(Ordering::Relaxed) >= now + SESSIONS).await;
        // The test reads the notices here, because the live agent waits until its notices are read.
        refusals += watched_agent.refusals();
    }
    let used = load.end(&watched_agent.test_host).await;
    assert!(used.len() >= 3, "{used:?}");
    assert_eq!(refusals + watched_agent.refusals(), 0);
}

fn replies() -> Vec<serde_json::Value> {
    let echo = || call_reply(&[("probe.echo", json!({"text": "version"})), ("probe.echo", json!({"text": "version"}))]);
    (0..MAX_TURNS).flat_map(|_| [echo(), text_reply("Done.")]).collect()
}

/// Concurrent sessions that run turns until the load ends.
struct TurnLoad {
    is_over: Arc<AtomicBool>,
    turns: Arc<AtomicUsize>,
    workers: Vec<tokio::task::JoinHandle<Vec<Session>>>,
}

impl TurnLoad {
    /// Starts the concurrent sessions, and returns when at least one turn has run.
    async fn begin(test_host: &TestHost, live: &LiveAgent) -> Self {
        let (is_over, turns) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let worker = |_| {
            let (host, live, is_over, turns) = (test_host.host(), live.clone(), is_over.clone(), turns.clone());
            tokio::spawn(async move {
                let new = || async { Session::open(&host, live.clone(), OpenSession::New).await.unwrap() };
                let mut sessions = vec![new().await];
                while !is_over.load(Ordering::Relaxed) {
                    if sessions.last().is_some_and(|session| session.state().turns == MAX_TURNS as u32) {
                        sessions.push(new().await);
                    }
                    let session = sessions.last_mut().expect("there is one entry");
                    let result = run_turn(session, "Go.").await;
                    assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
                    turns.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                sessions
            })
        };
        let workers = (0..SESSIONS).map(worker).collect();
        let turn_count = turns.clone();
        wait_until(&move || turn_count.load(Ordering::Relaxed) > 0).await;
        Self { is_over, turns, workers }
    }

    /// Stops all sessions. Checks that no call has failed, and that each turn used only one version of the plugin.
    /// Returns the versions that were used.
    async fn end(self, test_host: &TestHost) -> HashSet<String> {
        self.is_over.store(true, Ordering::Relaxed);
        let mut used = HashSet::new();
        let mut sessions = Vec::new();
        for worker in self.workers {
            sessions.extend(worker.await.unwrap());
        }
        for session in &sessions {
            assert!(results(test_host, session).await.iter().all(|(_, is_error, _)| !is_error), "no call fails");
            for turn in 1..=session.state().turns {
                let calls = test_host.store.calls(session.subject(), CallFilter::Turn(turn)).await.unwrap();
                let recorded: HashSet<_> = calls.iter().map(|call| call.source.as_ref().unwrap().to_string()).collect();
                let results = calls.iter().map(|call| result_text(&call.result.as_ref().unwrap().content));
                let ran: HashSet<_> = results.map(|result| version_that_ran(&result)).collect();
                assert!(recorded.len() == 1 && ran.len() == 1, "a turn uses one version: {recorded:?} {ran:?}");
                used.extend(recorded);
            }
        }
        used
    }
}
