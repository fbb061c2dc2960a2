//! Trials and canaries where a version changes between two runs, and over processes (P10, O3).

use super::{Ground, LONG, named_as, put, until, version, version_with, watch};
use crate::support::{House, calling, components, saying, script, turn};
use agent_core::message::Digest;
use agent_plugins::{Canary, digest_of};
use agent_runtime::swap::{BeginError, begin, directory_name, finish};
use agent_runtime::{AgentConfig, LiveAgent, Notice, OpenSession, ServiceConfig, Session};
use agent_store::{Audit, Deed, PluginVersions};
use serde_json::{Value, json};
use std::path::PathBuf;

fn panic(text: &str) -> Value {
    calling(&[("probe.panic", json!({"text": text}))])
}

fn folder(house: &House) -> PathBuf {
    house.directory.path().join("plugins")
}

/// One process that runs one turn: what it was told when it began, what it had as its probe, and what it took back.
async fn run(house: &House, replies: &[Value]) -> (Vec<Notice>, Digest, usize) {
    let live = LiveAgent::new(house.agent(AgentConfig::new("test"), script(replies)).await);
    let told = begin(&*house.store, &house.sandbox, &folder(house), &live).await.unwrap();
    let mut session = Session::open(&house.host(), live.clone(), OpenSession::New).await.unwrap();
    turn(&mut session, "Go.").await;
    session.close().await.unwrap();
    let taken_back = finish(&*house.store, &folder(house), &live).await.unwrap().len();
    let digest = live.current().generation().plugin("probe").unwrap().digest().clone();
    (told, digest, taken_back)
}

fn failing_canary() -> Canary {
    Canary { tool: "probe.panic".to_owned(), arguments: json!({"text": "no"}) }
}

async fn deeds(house: &House, word: &str) -> Vec<Deed> {
    let audited = house.store.audited(0, 0, 100).await.unwrap();
    audited.into_iter().map(|entry| entry.deed).filter(|deed| deed.word() == word).collect()
}

/// P10, O3: a version that was changed between two runs is on trial, and its calls count over processes.
#[tokio::test(flavor = "multi_thread")]
async fn p10_a_trial_goes_on_over_processes() {
    let house = House::new(&[]).await;
    let file = folder(&house).join("probe.wasm");
    let [first, second] = [1, 2].map(|number| digest_of(&version(number)));
    let directory = directory_name(&folder(&house));
    put(&file, &version(1));
    assert_eq!(run(&house, &[panic("a"), panic("b"), panic("c"), saying("So.")]).await.1, first, "on no trial");
    assert_eq!(deeds(&house, "swapped").await, [], "the first version replaces nothing");

    put(&file, &version(2));
    let (_, has, taken_back) = run(&house, &[panic("a"), panic("b"), saying("So.")]).await;
    assert_eq!((has, taken_back), (second.clone(), 0));
    let trial = house.store.trials(&directory).await.unwrap().remove(0);
    assert_eq!((&trial.digest, &trial.before, trial.calls, trial.traps), (&second, &first, 2, 2));
    let swapped =
        Deed::Swapped { directory, plugin: "probe".into(), from: Some(first.clone()), to: Some(second.clone()) };
    assert_eq!(deeds(&house, "swapped").await, [swapped]);

    let (_, has, taken_back) = run(&house, &[panic("a"), saying("So.")]).await;
    assert_eq!((has, taken_back), (second, 1), "the third of its first ten calls");
    assert_eq!(deeds(&house, "rolled_back").await.len(), 1);
    assert_eq!(run(&house, &[saying("Back.")]).await.1, first);
    assert_eq!((deeds(&house, "swapped").await.len(), deeds(&house, "rolled_back").await.len()), (1, 1));
}

/// P10: what has stood its trial is on trial no more, and a host that watches goes on with what another one left.
#[tokio::test(flavor = "multi_thread")]
async fn p10_a_watching_host_takes_a_trial_over() {
    let house = House::new(&[]).await;
    let file = folder(&house).join("probe.wasm");
    put(&file, &version(1));
    run(&house, &[saying("So.")]).await;
    put(&file, &version(2));
    run(&house, &[panic("a"), panic("b"), saying("So.")]).await;
    let live = LiveAgent::new(house.agent(AgentConfig::new("test"), script(&[panic("c"), saying("So.")])).await);
    let (_notices, _watch) = watch(&house, &[&live]).await;
    until(&live, &digest_of(&version(2))).await;
    let mut session = Session::open(&house.host(), live.clone(), OpenSession::New).await.unwrap();
    turn(&mut session, "Go.").await;
    until(&live, &digest_of(&version(1))).await;

    let directory = directory_name(&folder(&house));
    put(&file, &version(3));
    until(&live, &digest_of(&version(3))).await;
    drop(_watch);
    let echo = || calling(&[("probe.echo", json!({"text": "x"})), ("probe.echo", json!({"text": "y"}))]);
    let replies = [echo(), echo(), echo(), echo(), echo(), saying("So.")];
    run(&house, &replies).await;
    assert_eq!(house.store.trials(&directory).await.unwrap(), [], "ten calls, and none crashed");
}

/// P10: a version that an agent declines takes nothing away from the trial of the one that serves.
#[tokio::test(flavor = "multi_thread")]
async fn p10_a_declined_successor_leaves_the_trial() {
    let house = House::new(&[]).await;
    let file = folder(&house).join("probe.wasm");
    put(&file, &version(1));
    let mut config = AgentConfig::new("test");
    config.services.insert("payer.pay".to_owned(), ServiceConfig::new("com.example.pay".parse().unwrap()));
    let crashes = [panic("a"), panic("b"), panic("c"), saying("So.")];
    let live = LiveAgent::new(house.agent(config, script(&crashes)).await);
    let (mut notices, _watch) = watch(&house, &[&live]).await;
    put(&file, &version(2));
    until(&live, &digest_of(&version(2))).await;
    put(&file, &named_as("probe", &std::fs::read(components().join("payer.wasm")).unwrap()));
    loop {
        match tokio::time::timeout(LONG, notices.recv()).await.expect("a notice comes") {
            Some(Notice::Refused { subject, reason }) => {
                assert!(subject.ends_with("probe.wasm") && reason.contains("payer.pay"), "{subject}: {reason}");
                break;
            }
            _ => continue,
        }
    }
    let mut session = Session::open(&house.host(), live.clone(), OpenSession::New).await.unwrap();
    turn(&mut session, "Go.").await;
    until(&live, &digest_of(&version(1))).await;
    put(&file, &version(4));
    until(&live, &digest_of(&version(4))).await;
}

/// P10: a version that came between two runs makes its canary call when the next one starts; the one that served last goes
/// on, and where there is none the start is refused.
#[tokio::test(flavor = "multi_thread")]
async fn p10_a_canary_is_asked_when_a_host_starts() {
    let house = House::new(&[]).await;
    let file = folder(&house).join("probe.wasm");
    let bad = version_with(2, Some(failing_canary()));
    put(&file, &bad);
    let live = LiveAgent::new(house.agent(AgentConfig::new("test"), script(&[saying("So.")])).await);
    let refused = begin(&*house.store, &house.sandbox, &folder(&house), &live).await.unwrap_err();
    assert!(matches!(&refused, BeginError::Canary { path, .. } if path.ends_with("probe.wasm")), "{refused}");

    put(&file, &version(1));
    run(&house, &[saying("So.")]).await;
    put(&file, &bad);
    let (told, has, _) = run(&house, &[saying("So.")]).await;
    assert_eq!(has, digest_of(&version(1)));
    let [Notice::Refused { subject, reason }] = told.as_slice() else { panic!("{told:?}") };
    assert!(subject.ends_with("probe.wasm") && reason.contains("canary `probe.panic`"), "{subject}: {reason}");
    assert_eq!(deeds(&house, "swapped").await, []);
    assert_eq!(deeds(&house, "refused").await.len(), 1);
}

/// P8, P10: a canary has the limits of its agent's calls, when a host starts and when a file changes in one that runs.
#[tokio::test(flavor = "multi_thread")]
async fn p8_p10_a_canary_has_the_limits_of_its_agent() {
    let house = House::new(&[]).await;
    let file = folder(&house).join("probe.wasm");
    let canary = |number: u32| {
        let arguments = json!({"text": "a"});
        version_with(number, Some(Canary { tool: "probe.echo".to_owned(), arguments }))
    };
    let config = |name: &str, memory: usize| {
        let mut config = AgentConfig::new(name);
        config.limits.memory = memory;
        config
    };
    put(&file, &canary(1));
    let small = LiveAgent::new(house.agent(config("small", 1 << 20), script(&[saying("So.")])).await);
    let refused = begin(&*house.store, &house.sandbox, &folder(&house), &small).await.unwrap_err();
    let BeginError::Canary { reason, .. } = &refused else { panic!("{refused}") };
    assert!(reason.contains("memory of 1 MiB"), "{reason}");

    put(&file, &version(2));
    let small = LiveAgent::new(house.agent(config("small", 1 << 20), script(&[saying("So.")])).await);
    let (mut notices, watched) = watch(&house, &[&small]).await;
    put(&file, &canary(3));
    loop {
        match tokio::time::timeout(LONG, notices.recv()).await.expect("a notice comes") {
            Some(Notice::Refused { reason, .. }) => {
                assert!(reason.contains("memory of 1 MiB"), "{reason}");
                break;
            }
            _ => continue,
        }
    }
    drop(watched);
    // Of two agents one has room for it.
    put(&file, &version(2));
    let agents = [("small", 1 << 20), ("large", 64 << 20)];
    let [small, large] = agents.map(|(name, memory)| (config(name, memory), script(&[saying("So.")])));
    let small = LiveAgent::new(house.agent(small.0, small.1).await);
    let large = LiveAgent::new(house.agent(large.0, large.1).await);
    let _watched = watch(&house, &[&small, &large]).await;
    put(&file, &canary(4));
    until(&large, &digest_of(&canary(4))).await;
}

/// P10: that an old version cannot be brought back is told once, however often it is looked.
#[tokio::test(flavor = "multi_thread")]
async fn p10_a_rollback_to_what_is_gone_is_told_once() {
    let mut ground = Ground::new(&[saying("Hi.")]).await;
    let rollback = agent_store::Rollback {
        directory: directory_name(&ground.file("")),
        plugin: "probe".to_owned(),
        from: digest_of(&version(1)),
        to: digest_of(b"no version"),
        why: agent_store::VersionEnd::Asked,
    };
    ground.house.store.roll_back(rollback).await.unwrap();
    let (_, reason) = ground.refusal().await;
    assert!(reason.contains("cannot be rolled back"), "{reason}");
    // Eight looks later.
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert_eq!(ground.refusals(), 0);
    assert_eq!(ground.serves(), [digest_of(&version(1))]);
}
