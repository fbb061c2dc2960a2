//! Row 30: many swaps under an open loop of turns at about half load. No call fails, and no turn sees two versions.

use super::{Ground, put, version, wait};
use crate::support::{House, calling, results, saying, script, turn};
use agent_plugins::{Generation, digest_of};
use agent_runtime::{AgentConfig, LiveAgent, OpenSession, Session, TurnResult};
use serde_json::json;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Swaps, as many as row 30 names.
const SWAPS: usize = 1_000;
/// Swaps of files in the suite, and, with the variable set, as many as row 30 names; each is waited for until it is quiet.
const FILES: u32 = 20;
const ALL_FILES: u32 = 1_000;
const EVERYTHING: &str = "AGENT_HOST_EVERY_SWAP";
/// Sessions that work beside one another, and turns of each that come at least.
const SESSIONS: usize = 2;
const TURNS: usize = 2_000;

#[tokio::test(flavor = "multi_thread")]
async fn row_30_swaps_under_load() {
    let house = House::new(&[]).await;
    std::fs::write(house.directory.path().join("plugins/probe.wasm"), version(1)).unwrap();
    let live = LiveAgent::new(house.agent(AgentConfig::new("test"), script(&replies())).await);
    let second = house.sandbox.load_bytes("probe", version(2)).await.unwrap();
    let generations = [live.current().generation().clone(), Generation::new([second])];
    let load = Load::begin(&house, &live).await;
    for swap in 1..=SWAPS {
        let generation = generations[swap % 2].clone();
        live.change(|agent| agent.with_generation(generation)).unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let met = load.end(&house).await;
    let versions = [1, 2].map(|number| format!("probe@{}", digest_of(&version(number)).short()));
    assert!(versions.iter().all(|version| met.contains(version)), "{met:?}");
}

/// The same through the folder: files are replaced, looked at, loaded and published while the load goes on.
#[tokio::test(flavor = "multi_thread")]
async fn row_30_files_are_replaced_under_load() {
    let number = if std::env::var_os(EVERYTHING).is_some() { ALL_FILES } else { FILES };
    let mut ground = Ground::new(&replies()).await;
    let load = Load::begin(&ground.house, &ground.live).await;
    let mut refusals = 0;
    for swap in 1..=number {
        let bytes = version(2 + swap % 3);
        put(&ground.file("probe.wasm"), &bytes);
        ground.until(&bytes).await;
        let (turns, now) = (load.turns.clone(), load.turns.load(Ordering::Relaxed));
        wait(&move || turns.load(Ordering::Relaxed) >= now + SESSIONS).await;
        // The keeper waits for whoever reads its notices.
        refusals += ground.refusals();
    }
    let met = load.end(&ground.house).await;
    assert!(met.len() >= 3, "{met:?}");
    assert_eq!(refusals + ground.refusals(), 0);
}

fn replies() -> Vec<serde_json::Value> {
    let echo = || calling(&[("probe.echo", json!({"text": "hello"})), ("probe.echo", json!({"text": "again"}))]);
    (0..TURNS).flat_map(|_| [echo(), saying("Done.")]).collect()
}

/// Sessions whose turns come at their time, whatever became of the one before.
struct Load {
    over: Arc<AtomicBool>,
    turns: Arc<AtomicUsize>,
    workers: Vec<tokio::task::JoinHandle<Vec<Session>>>,
}

impl Load {
    /// Some of its turns have run already.
    async fn begin(house: &House, live: &LiveAgent) -> Self {
        let (over, turns) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let worker = |_| {
            let (host, live, over, turns) = (house.host(), live.clone(), over.clone(), turns.clone());
            tokio::spawn(async move {
                let new = || async { Session::open(&host, live.clone(), OpenSession::New).await.unwrap() };
                let mut sessions = vec![new().await];
                while !over.load(Ordering::Relaxed) {
                    if sessions.last().is_some_and(|session| session.state().turns == TURNS as u32) {
                        sessions.push(new().await);
                    }
                    let session = sessions.last_mut().expect("there is one");
                    let result = turn(session, "Go.").await;
                    assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
                    turns.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                sessions
            })
        };
        let workers = (0..SESSIONS).map(worker).collect();
        let begun = turns.clone();
        wait(&move || begun.load(Ordering::Relaxed) > 0).await;
        Self { over, turns, workers }
    }

    /// The versions that were met: no call has failed, and each turn had one.
    async fn end(self, house: &House) -> HashSet<String> {
        self.over.store(true, Ordering::Relaxed);
        let mut met = HashSet::new();
        let mut sessions = Vec::new();
        for worker in self.workers {
            sessions.extend(worker.await.unwrap());
        }
        for session in &sessions {
            assert!(results(house, session).await.iter().all(|(_, is_error, _)| !is_error), "no call fails");
            for turn in 1..=session.state().turns {
                let sources: HashSet<_> = super::sources(house, session, turn).await.into_iter().collect();
                assert_eq!(sources.len(), 1, "a turn has one version: {sources:?}");
                met.extend(sources);
            }
        }
        met
    }
}
