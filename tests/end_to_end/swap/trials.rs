//! Trials and canary calls of a plugin version that appeared between two runs of the host, and trials that continue in
//! other processes (P10, O3).

use super::{
    HANG_TIMEOUT, WatchedAgent, probe_version, probe_version_with, wait_until_serving, watch, with_manifest_name,
    write_atomically,
};
use crate::support::{TestHost, call_reply, components, run_turn, script, text_reply};
use agent_core::message::Digest;
use agent_plugins::{Canary, digest_of};
use agent_runtime::swap::{BeginError, begin_serving, directory_name, finish_trials};
use agent_runtime::{AgentConfig, LiveAgent, Notice, OpenSession, ServiceConfig, Session};
use agent_store::{Audit, AuditAction, PluginVersions};
use serde_json::{Value, json};
use std::path::PathBuf;

fn panic_call(text: &str) -> Value {
    call_reply(&[("probe.panic", json!({"text": text}))])
}

fn folder(test_host: &TestHost) -> PathBuf {
    test_host.directory.path().join("plugins")
}

/// Runs one turn with a newly created agent, as a new process would. Returns the notices that the agent reported at its
/// start, the digest of the plugin `probe` that it used, and the number of rollbacks.
async fn run_process(test_host: &TestHost, replies: &[Value]) -> (Vec<Notice>, Digest, usize) {
    let live = LiveAgent::new(test_host.agent(AgentConfig::new("test"), script(replies)).await);
    let notices = begin_serving(&*test_host.store, &test_host.sandbox, &folder(test_host), &live).await.unwrap();
    let mut session = Session::open(&test_host.host(), live.clone(), OpenSession::New).await.unwrap();
    run_turn(&mut session, "Go.").await;
    session.close().await.unwrap();
    let rollbacks = finish_trials(&*test_host.store, &folder(test_host), &live).await.unwrap().len();
    let digest = live.current().generation().plugin("probe").unwrap().digest().clone();
    (notices, digest, rollbacks)
}

fn failing_canary() -> Canary {
    Canary { tool: "probe.panic".to_owned(), arguments: json!({"text": "no"}) }
}

async fn audited_actions(test_host: &TestHost, kind: &str) -> Vec<AuditAction> {
    let audited = test_host.store.audit_entries(0, 0, 100).await.unwrap();
    audited.into_iter().map(|entry| entry.action).filter(|action| action.kind() == kind).collect()
}

/// P10, O3: If a plugin file was changed between two runs, the new version is on trial, and the host counts its calls
/// across processes.
#[tokio::test(flavor = "multi_thread")]
async fn p10_a_trial_continues_across_processes() {
    let test_host = TestHost::new(&[]).await;
    let file = folder(&test_host).join("probe.wasm");
    let [first, second] = [1, 2].map(|number| digest_of(&probe_version(number)));
    let directory = directory_name(&folder(&test_host));
    write_atomically(&file, &probe_version(1));
    assert_eq!(
        run_process(&test_host, &[panic_call("a"), panic_call("b"), panic_call("c"), text_reply("So.")]).await.1,
        first,
        "the version is not on trial"
    );
    assert_eq!(audited_actions(&test_host, "swapped").await, [], "the first version replaces nothing");

    write_atomically(&file, &probe_version(2));
    let (_, served, rollbacks) = run_process(&test_host, &[panic_call("a"), panic_call("b"), text_reply("So.")]).await;
    assert_eq!((served, rollbacks), (second.clone(), 0));
    let trial = test_host.store.trials(&directory).await.unwrap().remove(0);
    assert_eq!((&trial.digest, &trial.before, trial.calls, trial.traps), (&second, &first, 2, 2));
    let swapped =
        AuditAction::Swapped { directory, plugin: "probe".into(), from: Some(first.clone()), to: Some(second.clone()) };
    assert_eq!(audited_actions(&test_host, "swapped").await, [swapped]);

    let (_, served, rollbacks) = run_process(&test_host, &[panic_call("a"), text_reply("So.")]).await;
    assert_eq!((served, rollbacks), (second, 1), "three of the first ten calls have crashed");
    assert_eq!(audited_actions(&test_host, "rolled_back").await.len(), 1);
    assert_eq!(run_process(&test_host, &[text_reply("Back.")]).await.1, first);
    assert_eq!(
        (audited_actions(&test_host, "swapped").await.len(), audited_actions(&test_host, "rolled_back").await.len()),
        (1, 1)
    );
}

/// P10: If another process has already counted some calls of a trial, a host that watches the plugin folder
/// continues this count. A version that has passed its trial is no longer on trial.
#[tokio::test(flavor = "multi_thread")]
async fn p10_a_watching_host_continues_a_trial() {
    let test_host = TestHost::new(&[]).await;
    let file = folder(&test_host).join("probe.wasm");
    write_atomically(&file, &probe_version(1));
    run_process(&test_host, &[text_reply("So.")]).await;
    write_atomically(&file, &probe_version(2));
    run_process(&test_host, &[panic_call("a"), panic_call("b"), text_reply("So.")]).await;
    let live =
        LiveAgent::new(test_host.agent(AgentConfig::new("test"), script(&[panic_call("c"), text_reply("So.")])).await);
    let (_notices, _watch) = watch(&test_host, &[&live]).await;
    wait_until_serving(&live, &digest_of(&probe_version(2))).await;
    let mut session = Session::open(&test_host.host(), live.clone(), OpenSession::New).await.unwrap();
    run_turn(&mut session, "Go.").await;
    wait_until_serving(&live, &digest_of(&probe_version(1))).await;

    let directory = directory_name(&folder(&test_host));
    write_atomically(&file, &probe_version(3));
    wait_until_serving(&live, &digest_of(&probe_version(3))).await;
    drop(_watch);
    let echo = || call_reply(&[("probe.echo", json!({"text": "x"})), ("probe.echo", json!({"text": "y"}))]);
    let replies = [echo(), echo(), echo(), echo(), echo(), text_reply("So.")];
    run_process(&test_host, &replies).await;
    assert_eq!(test_host.store.trials(&directory).await.unwrap(), [], "the trial ends after ten calls without a crash");
}

/// P10: A plugin version that an agent cannot use does not affect the trial of the version in use.
#[tokio::test(flavor = "multi_thread")]
async fn p10_a_version_that_an_agent_cannot_use_does_not_affect_the_trial() {
    let test_host = TestHost::new(&[]).await;
    let file = folder(&test_host).join("probe.wasm");
    write_atomically(&file, &probe_version(1));
    let mut config = AgentConfig::new("test");
    config.services.insert("payer.pay".to_owned(), ServiceConfig::new("com.example.pay".parse().unwrap()));
    let crashes = [panic_call("a"), panic_call("b"), panic_call("c"), text_reply("So.")];
    let live = LiveAgent::new(test_host.agent(config, script(&crashes)).await);
    let (mut notices, _watch) = watch(&test_host, &[&live]).await;
    write_atomically(&file, &probe_version(2));
    wait_until_serving(&live, &digest_of(&probe_version(2))).await;
    write_atomically(&file, &with_manifest_name("probe", &std::fs::read(components().join("payer.wasm")).unwrap()));
    loop {
        match tokio::time::timeout(HANG_TIMEOUT, notices.recv()).await.expect("a notice comes") {
            Some(Notice::Refused { subject, reason }) => {
                assert!(subject.ends_with("probe.wasm") && reason.contains("payer.pay"), "{subject}: {reason}");
                break;
            }
            _ => continue,
        }
    }
    let mut session = Session::open(&test_host.host(), live.clone(), OpenSession::New).await.unwrap();
    run_turn(&mut session, "Go.").await;
    wait_until_serving(&live, &digest_of(&probe_version(1))).await;
    write_atomically(&file, &probe_version(4));
    wait_until_serving(&live, &digest_of(&probe_version(4))).await;
}

/// P10: When the host starts, it makes the canary call of each version that appeared since its last run. If the canary
/// call fails, the previous version stays in use. If there is no previous version, the host refuses to start.
#[tokio::test(flavor = "multi_thread")]
async fn p10_runs_a_canary_when_a_host_starts() {
    let test_host = TestHost::new(&[]).await;
    let file = folder(&test_host).join("probe.wasm");
    let bad = probe_version_with(2, Some(failing_canary()));
    write_atomically(&file, &bad);
    let live = LiveAgent::new(test_host.agent(AgentConfig::new("test"), script(&[text_reply("So.")])).await);
    let refused = begin_serving(&*test_host.store, &test_host.sandbox, &folder(&test_host), &live).await.unwrap_err();
    assert!(matches!(&refused, BeginError::Canary { path, .. } if path.ends_with("probe.wasm")), "{refused}");

    write_atomically(&file, &probe_version(1));
    run_process(&test_host, &[text_reply("So.")]).await;
    write_atomically(&file, &bad);
    let (notices, served, _) = run_process(&test_host, &[text_reply("So.")]).await;
    assert_eq!(served, digest_of(&probe_version(1)));
    let [Notice::Refused { subject, reason }] = notices.as_slice() else { panic!("{notices:?}") };
    assert!(subject.ends_with("probe.wasm") && reason.contains("canary call of `probe.panic`"), "{subject}: {reason}");
    assert_eq!(audited_actions(&test_host, "swapped").await, []);
    assert_eq!(audited_actions(&test_host, "refused").await.len(), 1);
}

/// P8, P10: The limits of an agent's calls also apply to its canary calls, both when a host starts and when a file
/// changes while the host runs.
#[tokio::test(flavor = "multi_thread")]
async fn p8_p10_a_canary_has_the_limits_of_its_agent() {
    let test_host = TestHost::new(&[]).await;
    let file = folder(&test_host).join("probe.wasm");
    let canary = |number: u32| {
        let arguments = json!({"text": "a"});
        probe_version_with(number, Some(Canary { tool: "probe.echo".to_owned(), arguments }))
    };
    let config = |name: &str, memory: usize| {
        let mut config = AgentConfig::new(name);
        config.limits.memory = memory;
        config
    };
    write_atomically(&file, &canary(1));
    let small = LiveAgent::new(test_host.agent(config("small", 1 << 20), script(&[text_reply("So.")])).await);
    let refused = begin_serving(&*test_host.store, &test_host.sandbox, &folder(&test_host), &small).await.unwrap_err();
    let BeginError::Canary { reason, .. } = &refused else { panic!("{refused}") };
    assert!(reason.contains("memory of 1 MiB"), "{reason}");

    write_atomically(&file, &probe_version(2));
    let small = LiveAgent::new(test_host.agent(config("small", 1 << 20), script(&[text_reply("So.")])).await);
    let (mut notices, watched) = watch(&test_host, &[&small]).await;
    write_atomically(&file, &canary(3));
    loop {
        match tokio::time::timeout(HANG_TIMEOUT, notices.recv()).await.expect("a notice comes") {
            Some(Notice::Refused { reason, .. }) => {
                assert!(reason.contains("memory of 1 MiB"), "{reason}");
                break;
            }
            _ => continue,
        }
    }
    drop(watched);
    // Only one of the two agents has a memory limit that is high enough for the canary call.
    write_atomically(&file, &probe_version(2));
    let agents = [("small", 1 << 20), ("large", 64 << 20)];
    let [small, large] = agents.map(|(name, memory)| (config(name, memory), script(&[text_reply("So.")])));
    let small = LiveAgent::new(test_host.agent(small.0, small.1).await);
    let large = LiveAgent::new(test_host.agent(large.0, large.1).await);
    let _watched = watch(&test_host, &[&small, &large]).await;
    write_atomically(&file, &canary(4));
    wait_until_serving(&large, &digest_of(&canary(4))).await;
}

/// P10: If the host cannot restore the previous version of a plugin, it reports this problem once, even if it checks
/// the folder many times.
#[tokio::test(flavor = "multi_thread")]
async fn p10_reports_an_impossible_rollback_once() {
    let mut watched_agent = WatchedAgent::new(&[text_reply("Hi.")]).await;
    let rollback = agent_store::Rollback {
        directory: directory_name(&watched_agent.file("")),
        plugin: "probe".to_owned(),
        from: digest_of(&probe_version(1)),
        to: digest_of(b"no version"),
        why: agent_store::VersionEndReason::Requested,
    };
    watched_agent.test_host.store.roll_back(rollback).await.unwrap();
    let (_, reason) = watched_agent.refusal().await;
    assert!(reason.contains("cannot be rolled back"), "{reason}");
    // The folder is checked about eight times during this sleep.
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert_eq!(watched_agent.refusals(), 0);
    assert_eq!(watched_agent.served_digests(), [digest_of(&probe_version(1))]);
}
