//! Row 30: many swaps under an open loop of turns at about half load. No call fails, and no turn sees two versions.

use super::{version, wait};
use crate::support::{House, calling, results, saying, script, turn};
use agent_plugins::{Generation, digest_of};
use agent_runtime::{AgentConfig, LiveAgent, OpenSession, Session, TurnResult};
use serde_json::json;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Swaps in the suite; with this variable set, the number that row 30 names.
const SWAPS: usize = 150;
const ALL_SWAPS: usize = 1_000;
const EVERYTHING: &str = "AGENT_HOST_EVERY_SWAP";
/// Sessions that work beside one another, and turns of each that come at least.
const SESSIONS: usize = 2;
const TURNS: usize = 2_000;

#[tokio::test(flavor = "multi_thread")]
async fn row_30_swaps_under_load() {
    let number = if std::env::var_os(EVERYTHING).is_some() { ALL_SWAPS } else { SWAPS };
    let house = Arc::new(House::new(&[]).await);
    std::fs::write(house.directory.path().join("plugins/probe.wasm"), version(1)).unwrap();
    let echo = || calling(&[("probe.echo", json!({"text": "hello"})), ("probe.echo", json!({"text": "again"}))]);
    let replies: Vec<_> = (0..TURNS).flat_map(|_| [echo(), saying("Done.")]).collect();
    let live = LiveAgent::new(house.agent(AgentConfig::new("test"), script(&replies)).await);
    let second = house.sandbox.load_bytes("probe", version(2)).await.unwrap();
    let generations = [live.current().generation().clone(), Generation::new([second])];
    let (over, turns) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let workers: Vec<_> = (0..SESSIONS)
        .map(|_| {
            let (house, live) = (house.clone(), live.clone());
            let (over, turns) = (over.clone(), turns.clone());
            tokio::spawn(async move {
                let mut session = Session::open(&house.host(), live, OpenSession::New).await.unwrap();
                while !over.load(Ordering::Relaxed) && session.state().turns < TURNS as u32 {
                    let result = turn(&mut session, "Go.").await;
                    assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
                    turns.fetch_add(1, Ordering::Relaxed);
                    // Open: the next one comes at its time, whatever became of this one.
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                session
            })
        })
        .collect();
    let begun = turns.clone();
    wait(&move || begun.load(Ordering::Relaxed) > 0).await;
    for swap in 1..=number {
        let generation = generations[swap % 2].clone();
        live.change(|agent| agent.with_generation(generation)).unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    over.store(true, Ordering::Relaxed);
    let versions = [1, 2].map(|number| format!("probe@{}", digest_of(&version(number)).short()));
    let mut met = HashSet::new();
    for worker in workers {
        let session = worker.await.unwrap();
        assert!(results(&house, &session).await.iter().all(|(_, is_error, _)| !is_error), "no call fails");
        for turn in 1..=session.state().turns {
            let sources: HashSet<_> = super::sources(&house, &session, turn).await.into_iter().collect();
            assert_eq!(sources.len(), 1, "a turn has one version: {sources:?}");
            met.extend(sources);
        }
    }
    assert!(versions.iter().all(|version| met.contains(version)), "{met:?} in {turns:?} turns");
}
