//! Hot swap (P10, O3, invariant 5, row 30): real components are replaced, damaged, half written, removed and rolled
//! back while sessions work.

mod cli;
mod load;
mod names;
mod resumed;
mod trials;

use crate::support::{
    TestHost, call_reply, components, event_types, events, results, run_turn, script, text_reply, with_events_and_media,
};
use agent_core::event::EventKind;
use agent_core::message::Digest;
use agent_plugins::{Access, Asks, Canary, Generation, Grants, Manifest, TreeGrant, digest_of, with_manifest};
use agent_runtime::swap::{begin_serving, directory_name, prune};
use agent_runtime::{
    AgentConfig, Checkpoint, Host, LiveAgent, Notice, OpenSession, PluginAllowance, PluginWatcher, Session, TurnResult,
};
use agent_store::{Audit, AuditAction, PluginVersions, VersionEndReason, VersionFilter};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc::{Receiver, channel};
use tokio_util::sync::{CancellationToken, DropGuard};

/// A timeout that expires only if a test hangs.
const HANG_TIMEOUT: Duration = Duration::from_secs(120);

/// Creates a version of the plugin `probe`. All versions that this function creates have the same code but
/// different digests.
pub(crate) fn probe_version(number: u32) -> Vec<u8> {
    probe_version_with(number, None)
}

fn probe_version_with(number: u32, canary: Option<Canary>) -> Vec<u8> {
    let events = vec!["com.example.probe.v1".to_owned()];
    let asks = Asks { files: Some(Access::ReadWrite), events, ..Asks::default() };
    let manifest =
        Manifest { name: "probe".to_owned(), version: format!("{number}.0.0"), asks, canary, ..Manifest::default() };
    with_manifest(&std::fs::read(components().join("probe.wasm")).unwrap(), &manifest).unwrap()
}

/// Creates a copy of the plugin `probe` with another plugin name.
fn renamed_probe(name: &str, number: u32) -> Vec<u8> {
    let manifest = Manifest { name: name.to_owned(), version: format!("{number}.0.0"), ..Manifest::default() };
    with_manifest(&std::fs::read(components().join("probe.wasm")).unwrap(), &manifest).unwrap()
}

/// Returns the component with a manifest that has this name and requests nothing.
fn with_manifest_name(name: &str, component: &[u8]) -> Vec<u8> {
    with_manifest(component, &Manifest { name: name.to_owned(), version: "1.0.0".into(), ..Manifest::default() })
        .unwrap()
}

/// Writes the file under a temporary name and renames it, like a `cp` that is followed by a `mv`.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) {
    let temporary = path.with_extension("new");
    std::fs::write(&temporary, bytes).unwrap();
    std::fs::rename(&temporary, path).unwrap();
}

/// A watched plugin folder that contains the first version of the plugin `probe`, and a live agent that uses
/// this folder.
struct WatchedAgent {
    test_host: TestHost,
    live: LiveAgent,
    notices: Receiver<Notice>,
    _watch: DropGuard,
}

impl WatchedAgent {
    async fn new(replies: &[Value]) -> Self {
        let test_host = TestHost::new(&[]).await;
        write_atomically(&test_host.directory.path().join("plugins/probe.wasm"), &probe_version(1));
        let live = LiveAgent::new(test_host.agent(AgentConfig::new("test"), script(replies)).await);
        let (notices, watch) = watch(&test_host, &[&live]).await;
        Self { test_host, live, notices, _watch: watch }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.test_host.directory.path().join("plugins").join(name)
    }

    async fn session(&self) -> Session {
        Session::open(&self.test_host.host(), self.live.clone(), OpenSession::New).await.unwrap()
    }

    /// Waits until the agent uses exactly these bytes as its plugin `probe`.
    async fn wait_for_version(&mut self, bytes: &[u8]) {
        wait_until_serving(&self.live, &digest_of(bytes)).await;
    }

    /// Waits until the agent has no plugin.
    async fn wait_until_no_plugin_is_left(&mut self) {
        let live = self.live.clone();
        wait_until(&move || live.current().generation().plugins().len() == 0).await;
    }

    /// Returns the digests of the plugins that the agent uses.
    fn served_digests(&self) -> Vec<Digest> {
        self.live.current().generation().plugins().map(|plugin| plugin.digest().clone()).collect()
    }

    async fn refusal(&mut self) -> (String, String) {
        loop {
            let notice = tokio::time::timeout(HANG_TIMEOUT, self.notices.recv()).await.expect("a notice comes");
            if let Some(Notice::Refused { subject, reason }) = notice {
                return (subject, reason);
            }
        }
    }

    fn refusals(&mut self) -> usize {
        let mut count = 0;
        while let Ok(notice) = self.notices.try_recv() {
            count += usize::from(matches!(notice, Notice::Refused { .. }));
        }
        count
    }
}

async fn watch(test_host: &TestHost, agents: &[&LiveAgent]) -> (Receiver<Notice>, DropGuard) {
    let directory = test_host.directory.path().join("plugins");
    for agent in agents {
        begin_serving(&*test_host.store, &test_host.sandbox, &directory, agent).await.unwrap();
    }
    let (sender, notices) = channel(64);
    let agents = agents.iter().map(|agent| (*agent).clone()).collect();
    let watcher = PluginWatcher::new((test_host.store.clone(), test_host.sandbox.clone()), &directory, agents, sender);
    let stop = CancellationToken::new();
    tokio::spawn(watcher.watch(stop.clone()));
    (notices, stop.drop_guard())
}

async fn wait_until_serving(live: &LiveAgent, digest: &Digest) {
    let has = || live.current().generation().plugin("probe").is_some_and(|plugin| plugin.digest() == digest);
    wait_until(&has).await;
}

async fn wait_until(done: &(dyn Fn() -> bool + Sync)) {
    let waiting = async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(HANG_TIMEOUT, waiting).await.expect("the expected state is reached in time");
}

fn echo() -> Value {
    call_reply(&[("probe.echo", json!({"text": "hello"}))])
}

/// Returns, for each call of a turn, the plugin that ran and the plugin's digest.
async fn plugin_digests_of_calls(test_host: &TestHost, session: &Session, turn: u32) -> Vec<String> {
    use agent_store::{CallFilter, SessionLog};
    let calls = test_host.store.calls(session.subject(), CallFilter::Turn(turn)).await.unwrap();
    calls.into_iter().map(|call| call.source.unwrap().to_string()).collect()
}

async fn swaps(test_host: &TestHost, session: &Session) -> Vec<EventKind> {
    let is_swap =
        |kind: &EventKind| matches!(kind, EventKind::PluginSwapped { .. } | EventKind::PluginRolledBack { .. });
    events(test_host, session).await.into_iter().map(|event| event.kind).filter(is_swap).collect()
}

/// P10, invariant 5: If a new version of a plugin is published during a turn, the session uses it from the next turn
/// on. When the next turn starts, the old version is released.
#[tokio::test(flavor = "multi_thread")]
async fn p10_a_turn_keeps_the_generation_from_its_start() {
    let test_host = TestHost::new(&[]).await;
    let replies = [echo(), echo(), text_reply("One."), echo(), text_reply("Two.")];
    write_atomically(&test_host.directory.path().join("plugins/probe.wasm"), &probe_version(1));
    let live = LiveAgent::new(test_host.agent(AgentConfig::new("test"), script(&replies)).await);
    let second = test_host.sandbox.load_bytes("probe", probe_version(2)).await.unwrap();
    let old = Arc::downgrade(live.current().generation().plugin("probe").unwrap());
    let (names, next) =
        ([1, 2].map(|number| format!("probe@{}", digest_of(&probe_version(number)).short())), live.clone());
    let host = Host {
        // The test publishes the second version before the first call runs.
        checkpoint: Some(Arc::new(move |point| {
            if point == Checkpoint::BeforeCall("probe.echo") {
                let generation = Generation::new([second.clone()]);
                next.change(|agent| agent.with_generation(generation)).unwrap();
            }
        })),
        ..test_host.host()
    };
    let mut session = Session::open(&host, live.clone(), OpenSession::New).await.unwrap();
    assert!(matches!(run_turn(&mut session, "Go.").await, TurnResult::Finished(_)));
    assert_eq!(
        plugin_digests_of_calls(&test_host, &session, 1).await,
        [names[0].as_str(); 2],
        "the whole turn uses the first version"
    );
    assert!(swaps(&test_host, &session).await.is_empty());
    assert_eq!(old.strong_count(), 0, "the turn is over, so the old version is released");
    assert!(matches!(run_turn(&mut session, "Again.").await, TurnResult::Finished(_)));
    assert_eq!(plugin_digests_of_calls(&test_host, &session, 2).await, [names[1].as_str()]);
    let [from, to] = [1, 2].map(|number| Some(digest_of(&probe_version(number))));
    assert_eq!(swaps(&test_host, &session).await, [EventKind::PluginSwapped { plugin: "probe".into(), from, to }]);
    let types = event_types(&test_host, &session).await;
    let index = types.iter().position(|kind| kind == "plugin_swapped").unwrap();
    assert_eq!(types[index - 1], "loop_start", "the swap is reported when the turn starts");
}

/// Row 30: In a watched folder, damaged and half-written files are not loaded, complete files replace the previous
/// version, and removed files are unloaded.
#[tokio::test(flavor = "multi_thread")]
async fn row_30_loads_only_complete_and_valid_files() {
    let replies = [echo(), text_reply("One."), echo(), text_reply("Two."), text_reply("Three.")];
    let mut watched_agent = WatchedAgent::new(&replies).await;
    let mut session = watched_agent.session().await;
    run_turn(&mut session, "Go.").await;
    let file = watched_agent.file("probe.wasm");

    // The new file is damaged, so the first version stays in use, and the host reports the problem once.
    write_atomically(&file, b"\0asm\x0d\0\x01\0 no component");
    let (subject, reason) = watched_agent.refusal().await;
    assert!(subject.ends_with("probe.wasm") && reason.contains("damaged"), "{subject}: {reason}");
    watched_agent.wait_for_version(&probe_version(1)).await;

    // The test writes the file in three steps, and waits after each step. The incomplete file is not reported
    // as damaged.
    let component = probe_version(2);
    for end in [component.len() / 3, component.len() / 2, component.len()] {
        std::fs::write(&file, &component[..end]).unwrap();
        tokio::time::sleep(Duration::from_millis(600)).await;
    }
    watched_agent.wait_for_version(&component).await;
    assert_eq!(watched_agent.refusals(), 0, "an incomplete file is not reported as damaged while it grows");
    run_turn(&mut session, "Again.").await;

    // A file whose canary call fails is not loaded. A file whose canary call succeeds is loaded.
    let canary = Canary { tool: "probe.panic".to_owned(), arguments: json!({"text": "no"}) };
    write_atomically(&file, &probe_version_with(3, Some(canary)));
    let (_, reason) = watched_agent.refusal().await;
    assert!(reason.contains("canary call of `probe.panic`"), "{reason}");
    watched_agent.wait_for_version(&component).await;
    let canary = Canary { tool: "probe.echo".to_owned(), arguments: json!({"text": "yes"}) };
    let third = probe_version_with(3, Some(canary));
    write_atomically(&file, &third);
    watched_agent.wait_for_version(&third).await;

    // The file is removed, so the plugin is unloaded.
    std::fs::remove_file(&file).unwrap();
    let live = watched_agent.live.clone();
    wait_until(&move || live.current().generation().plugins().len() == 0).await;
    run_turn(&mut session, "Once more.").await;
    let digest = |bytes: &[u8]| Some(digest_of(bytes));
    let swapped = |from, to| EventKind::PluginSwapped { plugin: "probe".into(), from, to };
    let expected = [swapped(digest(&probe_version(1)), digest(&component)), swapped(digest(&component), None)];
    assert_eq!(swaps(&watched_agent.test_host, &session).await, expected, "no turn used the third version");

    let versions = watched_agent.test_host.store.versions(VersionFilter::default(), 10).await.unwrap();
    let version_reasons: Vec<_> =
        versions.iter().map(|version| (version.digest.clone(), version.why.unwrap())).collect();
    let expected = [
        (digest_of(&third), VersionEndReason::Removed),
        (digest_of(&component), VersionEndReason::Replaced),
        (digest_of(&probe_version(1)), VersionEndReason::Replaced),
    ];
    assert_eq!(version_reasons, expected);
    let audited = watched_agent.test_host.store.audit_entries(0, 0, 100).await.unwrap();
    let action_kinds: Vec<_> = audited.iter().map(|entry| entry.action.kind()).collect();
    assert_eq!(action_kinds.iter().filter(|kind| **kind == "swapped").count(), 3, "O3: {action_kinds:?}");
    assert_eq!(action_kinds.iter().filter(|kind| **kind == "refused").count(), 2, "O3: {action_kinds:?}");
    assert!(action_kinds.contains(&"granted"), "O3: {action_kinds:?}");
}

/// P10: If a version crashes three times in its first ten calls, the host rolls it back. Even after a restart, the host
/// does not use that version until its file changes.
#[tokio::test(flavor = "multi_thread")]
async fn p10_rolls_back_a_version_that_crashes() {
    let panic = |text: &str| call_reply(&[("probe.panic", json!({"text": text}))]);
    let crashes = [panic("one"), panic("two"), panic("three"), text_reply("It crashes.")];
    let replies = [&crashes[..], &crashes[..], &[text_reply("Back."), text_reply("New.")]].concat();
    let mut watched_agent = WatchedAgent::new(&replies).await;
    let mut session = watched_agent.session().await;
    run_turn(&mut session, "Crash.").await;
    watched_agent.wait_for_version(&probe_version(1)).await;
    assert!(
        watched_agent.live.current().versions().rolled_back.is_empty(),
        "there is no earlier version to roll back to"
    );

    let file = watched_agent.file("probe.wasm");
    write_atomically(&file, &probe_version(2));
    watched_agent.wait_for_version(&probe_version(2)).await;
    run_turn(&mut session, "Crash again.").await;
    watched_agent.wait_for_version(&probe_version(1)).await;
    run_turn(&mut session, "And now?").await;
    let [first, second] = [1, 2].map(|number| digest_of(&probe_version(number)));
    let swap_events = swaps(&watched_agent.test_host, &session).await;
    let rollback_event =
        EventKind::PluginRolledBack { plugin: "probe".into(), from: second.clone(), to: first.clone() };
    assert_eq!(swap_events.last(), Some(&rollback_event), "{swap_events:?}");
    let audited = watched_agent.test_host.store.audit_entries(0, 0, 100).await.unwrap();
    let is_rollback = |action: &AuditAction| matches!(action, AuditAction::RolledBack { from, to, .. } if *from == second && *to == first);
    assert_eq!(audited.iter().filter(|entry| is_rollback(&entry.action)).count(), 1, "O3: {audited:?}");

    // A host in a new process does not use the version that was rolled back.
    let restarted =
        LiveAgent::new(watched_agent.test_host.agent(AgentConfig::new("again"), script(&[text_reply("Hi.")])).await);
    assert_eq!(
        restarted.current().generation().plugin("probe").unwrap().digest(),
        &second,
        "the file still contains the rolled back version"
    );
    begin_serving(
        &*watched_agent.test_host.store,
        &watched_agent.test_host.sandbox,
        &watched_agent.file(""),
        &restarted,
    )
    .await
    .unwrap();
    assert_eq!(restarted.current().generation().plugin("probe").unwrap().digest(), &first);

    // After a change to the file, the host uses the plugin in the file again.
    write_atomically(&file, &probe_version(4));
    watched_agent.wait_for_version(&probe_version(4)).await;
    let directory = directory_name(&watched_agent.file(""));
    assert_eq!(watched_agent.test_host.store.rollbacks(&directory).await.unwrap(), []);
    run_turn(&mut session, "And now?").await;
    let last =
        EventKind::PluginSwapped { plugin: "probe".into(), from: Some(first), to: Some(digest_of(&probe_version(4))) };
    assert_eq!(swaps(&watched_agent.test_host, &session).await.last(), Some(&last));
}

/// P10: Each agent of a folder loads the versions that it can use. An agent that cannot use a version keeps its current
/// version and reports the reason.
#[tokio::test(flavor = "multi_thread")]
async fn p10_each_agent_of_a_folder_loads_the_versions_that_it_can_use() {
    let test_host = TestHost::new(&["two-kinds"]).await;
    write_atomically(&test_host.directory.path().join("plugins/probe.wasm"), &probe_version(1));
    let checked = AgentConfig { validators: vec!["two-kinds".to_owned()], ..AgentConfig::new("checked") };
    let free = LiveAgent::new(test_host.agent(AgentConfig::new("free"), script(&[text_reply("Hi.")])).await);
    let checked = LiveAgent::new(test_host.agent(checked, script(&[text_reply("Hi.")])).await);
    let (mut notices, _watch) = watch(&test_host, &[&free, &checked]).await;
    write_atomically(&test_host.directory.path().join("plugins/probe.wasm"), &probe_version(2));
    for agent in [&free, &checked] {
        wait_until_serving(agent, &digest_of(&probe_version(2))).await;
    }
    std::fs::remove_file(test_host.directory.path().join("plugins/two-kinds.wasm")).unwrap();
    let other_agent = free.clone();
    wait_until(&move || other_agent.current().generation().plugin("two-kinds").is_none()).await;
    let refused = loop {
        match tokio::time::timeout(HANG_TIMEOUT, notices.recv()).await.expect("a notice comes") {
            Some(Notice::Refused { subject, reason }) => break (subject, reason),
            _ => continue,
        }
    };
    assert!(refused.0.contains("checked") && refused.1.contains("two-kinds"), "{refused:?}");
    assert!(checked.current().generation().plugin("two-kinds").is_some(), "the agent keeps the version that it needs");
}

/// P10: A grant is effective in a turn only if the configuration at the start of the turn and the current configuration
/// both contain it. A revocation takes effect immediately, and no grant is added during a turn.
#[tokio::test(flavor = "multi_thread")]
async fn p10_a_revocation_takes_effect_immediately() {
    let test_host = TestHost::new(&["probe"]).await;
    let count = || call_reply(&[("probe.count", json!({"path": "effects.txt", "ms": 0}))]);
    let tree = TreeGrant { host: test_host.tree(), guest: ".".to_owned(), access: Access::ReadWrite };
    let allowance = PluginAllowance { grants: Grants { trees: vec![tree], ..Grants::default() }, ..Default::default() };
    let mut granting = AgentConfig::new("test");
    granting.plugins.insert("probe".to_owned(), allowance);
    for (initial, changed, expected) in [
        (&granting, AgentConfig::new("test"), [false, true]),
        (&AgentConfig::new("test"), granting.clone(), [true, true]),
    ] {
        let agent = test_host.agent(initial.clone(), script(&[count(), count(), text_reply("Done.")])).await;
        let (live, calls) = (LiveAgent::new(agent), std::sync::atomic::AtomicUsize::new(0));
        let next = live.clone();
        let host = Host {
            checkpoint: Some(Arc::new(move |point| {
                let is_second = || calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 1;
                if point == Checkpoint::BeforeCall("probe.count") && is_second() {
                    next.change(|agent| agent.with_config(changed.clone())).unwrap();
                }
            })),
            ..test_host.host()
        };
        let mut session = Session::open(&host, live, OpenSession::New).await.unwrap();
        run_turn(&mut session, "Count.").await;
        let errors: Vec<_> = results(&test_host, &session).await.into_iter().map(|(_, is_error, _)| is_error).collect();
        assert_eq!(errors, expected);
    }
}

/// L17, P10: The host compares the approval rule at the start of the turn with the current rule, and applies the
/// stricter rule to a call. The stricter rule also applies to calls of a reply that have not started when the
/// rules change.
#[tokio::test(flavor = "multi_thread")]
async fn l17_applies_the_stricter_of_pinned_and_current_rules() {
    use agent_core::approval::ApprovalPolicy::{self, Allow, Ask, Deny};
    let test_host = TestHost::new(&["probe"]).await;
    let ruled = |policy: ApprovalPolicy| {
        let mut config = AgentConfig::new("test");
        config.approvals.tools.insert("probe.echo".to_owned(), policy);
        config
    };
    for (initial, changed, expected) in [
        (Allow, Deny, Deny),
        (Allow, Ask, Ask),
        (Ask, Allow, Ask),
        (Ask, Deny, Deny),
        (Deny, Allow, Deny),
        (Allow, Allow, Allow),
    ] {
        let live = LiveAgent::new(test_host.agent(ruled(initial), script(&[echo(), text_reply("Done.")])).await);
        let (next, changed_config) = (live.clone(), ruled(changed));
        let host = Host {
            checkpoint: Some(Arc::new(move |point| {
                if point == Checkpoint::BeforeCommit("reply") {
                    next.change(|agent| agent.with_config(changed_config.clone())).unwrap();
                }
            })),
            ..test_host.host()
        };
        let mut session = Session::open(&host, live, OpenSession::New).await.unwrap();
        let ended = run_turn(&mut session, "Go.").await;
        let received = match ended {
            TurnResult::Suspended(_) if initial == Ask && changed == Deny => {
                // The new rule forbids a call that already waits for approval, so the call can no longer be allowed.
                let call = session.pending_approvals().await.unwrap()[0].call.clone();
                let verdict =
                    agent_runtime::Verdict::Allow { scope: agent_core::approval::GrantScope::Once, edited: None };
                let allowed = session.approve(vec![agent_runtime::ApprovalDecision { call, verdict }]).await;
                assert!(allowed.unwrap_err().to_string().contains("denies `probe.echo`"));
                Deny
            }
            TurnResult::Suspended(_) => Ask,
            _ => match results(&test_host, &session).await.first() {
                Some((_, true, _)) => Deny,
                _ => Allow,
            },
        };
        assert_eq!(received, expected, "{initial:?}, then {changed:?}");
    }
}

/// P10: While a turn waits, its plugin version remains available, even after a restart and after pruning. Pruning
/// deletes only versions that are not needed by any turn.
#[tokio::test(flavor = "multi_thread")]
async fn p10_never_prunes_a_version_that_an_open_turn_needs() {
    let test_host = TestHost::new(&[]).await;
    let file = test_host.directory.path().join("plugins/probe.wasm");
    let plugins = test_host.sandbox.store().unwrap().clone();
    let is_stored = |number: u32| plugins.get(&digest_of(&probe_version(number))).is_ok();
    write_atomically(&file, &probe_version(1));
    let replies = script(&[call_reply(&[("probe.pending", json!({"text": "wait"}))]), echo(), text_reply("Done.")]);
    let live = LiveAgent::new(test_host.agent(with_events_and_media(AgentConfig::new("test")), replies.clone()).await);
    let mut session = Session::open(&test_host.host(), live, OpenSession::New).await.unwrap();
    assert!(matches!(run_turn(&mut session, "Go.").await, TurnResult::Suspended(_)));
    let subject = session.subject().to_owned();
    session.close().await.unwrap();

    write_atomically(&file, &probe_version(2));
    let live = LiveAgent::new(test_host.agent(AgentConfig::new("test"), replies).await);
    begin_serving(&*test_host.store, &test_host.sandbox, &file.with_file_name(""), &live).await.unwrap();
    test_host.sandbox.store().unwrap().put(&digest_of(&probe_version(5)), &probe_version(5)).unwrap();
    let now = prune(&*test_host.store, &plugins, SystemTime::now()).await.unwrap();
    assert_eq!((now.removed.len(), now.kept), (0, 3), "recent versions stay");
    let later = prune(&*test_host.store, &plugins, SystemTime::now() + Duration::from_secs(7_200)).await.unwrap();
    assert_eq!(later.removed, [digest_of(&probe_version(5))]);
    assert!(
        is_stored(1) && is_stored(2) && !is_stored(5),
        "the versions that the open turn and the agent use are not deleted"
    );

    let mut session = Session::open(&test_host.host(), live, OpenSession::Existing(subject)).await.unwrap();
    session
        .run(None, {
            let cancelled = CancellationToken::new();
            cancelled.cancel();
            cancelled
        })
        .await
        .unwrap();
    assert_eq!(
        plugin_digests_of_calls(&test_host, &session, 1).await,
        [format!("probe@{}", digest_of(&probe_version(1)).short())]
    );
    let later = prune(&*test_host.store, &plugins, SystemTime::now() + Duration::from_secs(7_200)).await.unwrap();
    assert_eq!(later.removed, [digest_of(&probe_version(1))], "the turn that needed the version is over");
}
