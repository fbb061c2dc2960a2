//! Hot swap (P10, O3, invariant 5, row 30): real components that are replaced, broken, half written, removed and rolled back
//! while sessions work.

mod by_hand;
mod load;
mod names;
mod resumed;
mod trials;

use crate::support::{House, calling, components, event_types, events, results, saying, script, sending, turn};
use agent_core::event::EventKind;
use agent_core::message::Digest;
use agent_plugins::{Access, Asks, Canary, Generation, Grants, Manifest, TreeGrant, digest_of, with_manifest};
use agent_runtime::swap::{begin, directory_name, prune};
use agent_runtime::{
    AgentConfig, Checkpoint, Host, LiveAgent, Notice, OpenSession, PluginAllowance, PluginKeeper, Session, TurnResult,
};
use agent_store::{Audit, Deed, PluginVersions, VersionEnd, VersionFilter};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc::{Receiver, channel};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Generous: only what hangs takes so long.
const LONG: Duration = Duration::from_secs(120);

/// The probe in a version of its own: the same code under another digest.
fn version(number: u32) -> Vec<u8> {
    version_with(number, None)
}

fn version_with(number: u32, canary: Option<Canary>) -> Vec<u8> {
    let events = vec!["com.example.probe.v1".to_owned()];
    let asks = Asks { files: Some(Access::ReadWrite), events, ..Asks::default() };
    let manifest =
        Manifest { name: "probe".to_owned(), version: format!("{number}.0.0"), asks, canary, ..Manifest::default() };
    with_manifest(&std::fs::read(components().join("probe.wasm")).unwrap(), &manifest).unwrap()
}

/// The same code under another name.
fn named(name: &str, number: u32) -> Vec<u8> {
    let manifest = Manifest { name: name.to_owned(), version: format!("{number}.0.0"), ..Manifest::default() };
    with_manifest(&std::fs::read(components().join("probe.wasm")).unwrap(), &manifest).unwrap()
}

/// A component with a manifest of that name and no requests.
fn named_as(name: &str, component: &[u8]) -> Vec<u8> {
    with_manifest(component, &Manifest { name: name.to_owned(), version: "1.0.0".into(), ..Manifest::default() })
        .unwrap()
}

/// As `cp` to another name and `mv` do it.
fn put(path: &Path, bytes: &[u8]) {
    let beside = path.with_extension("new");
    std::fs::write(&beside, bytes).unwrap();
    std::fs::rename(&beside, path).unwrap();
}

/// A house whose probe is the first version, with its agent, watched.
struct Ground {
    house: House,
    live: LiveAgent,
    notices: Receiver<Notice>,
    _watch: DropGuard,
}

impl Ground {
    async fn new(replies: &[Value]) -> Self {
        let house = House::new(&[]).await;
        put(&house.directory.path().join("plugins/probe.wasm"), &version(1));
        let live = LiveAgent::new(house.agent(AgentConfig::new("test"), script(replies)).await);
        let (notices, watch) = watch(&house, &[&live]).await;
        Self { house, live, notices, _watch: watch }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.house.directory.path().join("plugins").join(name)
    }

    async fn session(&self) -> Session {
        Session::open(&self.house.host(), self.live.clone(), OpenSession::New).await.unwrap()
    }

    /// Waits until the agent has exactly these bytes as its probe.
    async fn until(&mut self, bytes: &[u8]) {
        until(&self.live, &digest_of(bytes)).await;
    }

    /// Waits until the agent has no plugin.
    async fn until_none(&mut self) {
        let live = self.live.clone();
        wait(&move || live.current().generation().plugins().len() == 0).await;
    }

    /// What the agent has.
    fn serves(&self) -> Vec<Digest> {
        self.live.current().generation().plugins().map(|plugin| plugin.digest().clone()).collect()
    }

    async fn refusal(&mut self) -> (String, String) {
        loop {
            let notice = tokio::time::timeout(LONG, self.notices.recv()).await.expect("a notice comes");
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

async fn watch(house: &House, agents: &[&LiveAgent]) -> (Receiver<Notice>, DropGuard) {
    let directory = house.directory.path().join("plugins");
    for agent in agents {
        begin(&*house.store, &house.sandbox, &directory, agent).await.unwrap();
    }
    let (sender, notices) = channel(64);
    let agents = agents.iter().map(|agent| (*agent).clone()).collect();
    let keeper = PluginKeeper::new((house.store.clone(), house.sandbox.clone()), &directory, agents, sender);
    let until = CancellationToken::new();
    tokio::spawn(keeper.keep(until.clone()));
    (notices, until.drop_guard())
}

async fn until(live: &LiveAgent, digest: &Digest) {
    let has = || live.current().generation().plugin("probe").is_some_and(|plugin| plugin.digest() == digest);
    wait(&has).await;
}

async fn wait(done: &(dyn Fn() -> bool + Sync)) {
    let waiting = async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, waiting).await.expect("it comes to that");
}

fn echo() -> Value {
    calling(&[("probe.echo", json!({"text": "hello"}))])
}

/// Where the calls of a session came from.
async fn sources(house: &House, session: &Session, turn: u32) -> Vec<String> {
    use agent_store::{CallFilter, SessionLog};
    let calls = house.store.calls(session.subject(), CallFilter::Turn(turn)).await.unwrap();
    calls.into_iter().map(|call| call.source.unwrap().to_string()).collect()
}

async fn swaps(house: &House, session: &Session) -> Vec<EventKind> {
    let is_swap =
        |kind: &EventKind| matches!(kind, EventKind::PluginSwapped { .. } | EventKind::PluginRolledBack { .. });
    events(house, session).await.into_iter().map(|event| event.kind).filter(is_swap).collect()
}

/// P10, invariant 5: what is published in the middle of a turn is the next turn's, and nobody holds the old one after that.
#[tokio::test(flavor = "multi_thread")]
async fn p10_a_turn_keeps_the_generation_that_it_began_with() {
    let house = House::new(&[]).await;
    let replies = [echo(), echo(), saying("One."), echo(), saying("Two.")];
    put(&house.directory.path().join("plugins/probe.wasm"), &version(1));
    let live = LiveAgent::new(house.agent(AgentConfig::new("test"), script(&replies)).await);
    let second = house.sandbox.load_bytes("probe", version(2)).await.unwrap();
    let old = Arc::downgrade(live.current().generation().plugin("probe").unwrap());
    let (names, next) = ([1, 2].map(|number| format!("probe@{}", digest_of(&version(number)).short())), live.clone());
    let host = Host {
        // Before the first call runs, the second version is published.
        checkpoint: Some(Arc::new(move |point| {
            if point == Checkpoint::BeforeCall("probe.echo") {
                let generation = Generation::new([second.clone()]);
                next.change(|agent| agent.with_generation(generation)).unwrap();
            }
        })),
        ..house.host()
    };
    let mut session = Session::open(&host, live.clone(), OpenSession::New).await.unwrap();
    assert!(matches!(turn(&mut session, "Go.").await, TurnResult::Finished(_)));
    assert_eq!(sources(&house, &session, 1).await, [names[0].as_str(); 2], "the whole turn has the first version");
    assert!(swaps(&house, &session).await.is_empty());
    assert_eq!(old.strong_count(), 0, "the turn is over, so nobody holds the old version");
    assert!(matches!(turn(&mut session, "Again.").await, TurnResult::Finished(_)));
    assert_eq!(sources(&house, &session, 2).await, [names[1].as_str()]);
    let [from, to] = [1, 2].map(|number| Some(digest_of(&version(number))));
    assert_eq!(swaps(&house, &session).await, [EventKind::PluginSwapped { plugin: "probe".into(), from, to }]);
    let types = event_types(&house, &session).await;
    let place = types.iter().position(|kind| kind == "plugin_swapped").unwrap();
    assert_eq!(types[place - 1], "loop_start", "it is told when the turn begins");
}

/// Row 30: a bad file, a half-written one, one that is replaced, and one that is removed, in a directory that is watched.
#[tokio::test(flavor = "multi_thread")]
async fn row_30_files_are_taken_when_they_are_whole_and_good() {
    let replies = [echo(), saying("One."), echo(), saying("Two."), saying("Three.")];
    let mut ground = Ground::new(&replies).await;
    let mut session = ground.session().await;
    turn(&mut session, "Go.").await;
    let file = ground.file("probe.wasm");

    // Bad: the first version serves, and it is said once.
    put(&file, b"\0asm\x0d\0\x01\0 no component");
    let (subject, reason) = ground.refusal().await;
    assert!(subject.ends_with("probe.wasm") && reason.contains("damaged"), "{subject}: {reason}");
    ground.until(&version(1)).await;

    // Torn: written in three pieces with pauses in which nothing happens. None of the pieces is called bad.
    let whole = version(2);
    for end in [whole.len() / 3, whole.len() / 2, whole.len()] {
        std::fs::write(&file, &whole[..end]).unwrap();
        tokio::time::sleep(Duration::from_millis(600)).await;
    }
    ground.until(&whole).await;
    assert_eq!(ground.refusals(), 0, "half a file is not called bad while it grows");
    turn(&mut session, "Again.").await;

    // A file whose canary fails is not taken; a file that is no plugin of anybody's stays out.
    let canary = Canary { tool: "probe.panic".to_owned(), arguments: json!({"text": "no"}) };
    put(&file, &version_with(3, Some(canary)));
    let (_, reason) = ground.refusal().await;
    assert!(reason.contains("canary `probe.panic`"), "{reason}");
    ground.until(&whole).await;
    let canary = Canary { tool: "probe.echo".to_owned(), arguments: json!({"text": "yes"}) };
    let third = version_with(3, Some(canary));
    put(&file, &third);
    ground.until(&third).await;

    // Removed.
    std::fs::remove_file(&file).unwrap();
    let live = ground.live.clone();
    wait(&move || live.current().generation().plugins().len() == 0).await;
    turn(&mut session, "Once more.").await;
    let digest = |bytes: &[u8]| Some(digest_of(bytes));
    let swapped = |from, to| EventKind::PluginSwapped { plugin: "probe".into(), from, to };
    let expected = [swapped(digest(&version(1)), digest(&whole)), swapped(digest(&whole), None)];
    assert_eq!(swaps(&ground.house, &session).await, expected, "the third version was never a turn's");

    let versions = ground.house.store.versions(VersionFilter::default(), 10).await.unwrap();
    let seen: Vec<_> = versions.iter().map(|version| (version.digest.clone(), version.why.unwrap())).collect();
    let expected = [
        (digest_of(&third), VersionEnd::Removed),
        (digest_of(&whole), VersionEnd::Replaced),
        (digest_of(&version(1)), VersionEnd::Replaced),
    ];
    assert_eq!(seen, expected);
    let audited = ground.house.store.audited(0, 0, 100).await.unwrap();
    let words: Vec<_> = audited.iter().map(|entry| entry.deed.word()).collect();
    assert_eq!(words.iter().filter(|word| **word == "swapped").count(), 3, "O3: {words:?}");
    assert_eq!(words.iter().filter(|word| **word == "refused").count(), 2, "O3: {words:?}");
    assert!(words.contains(&"granted"), "O3: {words:?}");
}

/// P10: three crashes of the first ten calls take a version back until its file changes, also over a restart.
#[tokio::test(flavor = "multi_thread")]
async fn p10_a_version_that_crashes_is_rolled_back() {
    let panic = |text: &str| calling(&[("probe.panic", json!({"text": text}))]);
    let crashes = [panic("one"), panic("two"), panic("three"), saying("It crashes.")];
    let replies = [&crashes[..], &crashes[..], &[saying("Back."), saying("New.")]].concat();
    let mut ground = Ground::new(&replies).await;
    let mut session = ground.session().await;
    turn(&mut session, "Crash.").await;
    ground.until(&version(1)).await;
    assert!(ground.live.current().standing().rolled_back.is_empty(), "there is nothing to go back to");

    let file = ground.file("probe.wasm");
    put(&file, &version(2));
    ground.until(&version(2)).await;
    turn(&mut session, "Crash again.").await;
    ground.until(&version(1)).await;
    turn(&mut session, "And now?").await;
    let [first, second] = [1, 2].map(|number| digest_of(&version(number)));
    let told = swaps(&ground.house, &session).await;
    let back = EventKind::PluginRolledBack { plugin: "probe".into(), from: second.clone(), to: first.clone() };
    assert_eq!(told.last(), Some(&back), "{told:?}");
    let audited = ground.house.store.audited(0, 0, 100).await.unwrap();
    let is_rollback =
        |deed: &Deed| matches!(deed, Deed::RolledBack { from, to, .. } if *from == second && *to == first);
    assert_eq!(audited.iter().filter(|entry| is_rollback(&entry.deed)).count(), 1, "O3: {audited:?}");

    // The next process does not take it either.
    let restarted = LiveAgent::new(ground.house.agent(AgentConfig::new("again"), script(&[saying("Hi.")])).await);
    assert_eq!(restarted.current().generation().plugin("probe").unwrap().digest(), &second, "its file holds it still");
    begin(&*ground.house.store, &ground.house.sandbox, &ground.file(""), &restarted).await.unwrap();
    assert_eq!(restarted.current().generation().plugin("probe").unwrap().digest(), &first);

    // Its file changes.
    put(&file, &version(4));
    ground.until(&version(4)).await;
    let directory = directory_name(&ground.file(""));
    assert_eq!(ground.house.store.rollbacks(&directory).await.unwrap(), []);
    turn(&mut session, "And now?").await;
    let last = EventKind::PluginSwapped { plugin: "probe".into(), from: Some(first), to: Some(digest_of(&version(4))) };
    assert_eq!(swaps(&ground.house, &session).await.last(), Some(&last));
}

/// P10: each agent of a directory takes what it can work with; one that cannot keeps what it has, and says why.
#[tokio::test(flavor = "multi_thread")]
async fn p10_two_agents_on_one_directory() {
    let house = House::new(&["two-kinds"]).await;
    put(&house.directory.path().join("plugins/probe.wasm"), &version(1));
    let checked = AgentConfig { validators: vec!["two-kinds".to_owned()], ..AgentConfig::new("checked") };
    let free = LiveAgent::new(house.agent(AgentConfig::new("free"), script(&[saying("Hi.")])).await);
    let checked = LiveAgent::new(house.agent(checked, script(&[saying("Hi.")])).await);
    let (mut notices, _watch) = watch(&house, &[&free, &checked]).await;
    put(&house.directory.path().join("plugins/probe.wasm"), &version(2));
    for agent in [&free, &checked] {
        until(agent, &digest_of(&version(2))).await;
    }
    std::fs::remove_file(house.directory.path().join("plugins/two-kinds.wasm")).unwrap();
    let gone = free.clone();
    wait(&move || gone.current().generation().plugin("two-kinds").is_none()).await;
    let refused = loop {
        match tokio::time::timeout(LONG, notices.recv()).await.expect("a notice comes") {
            Some(Notice::Refused { subject, reason }) => break (subject, reason),
            _ => continue,
        }
    };
    assert!(refused.0.contains("checked") && refused.1.contains("two-kinds"), "{refused:?}");
    assert!(checked.current().generation().plugin("two-kinds").is_some(), "it keeps what it needs");
}

/// P10: grants are those of the turn ∩ those of now: a revocation acts at once, and nothing is granted in mid-turn.
#[tokio::test(flavor = "multi_thread")]
async fn p10_a_revocation_acts_at_once() {
    let house = House::new(&["probe"]).await;
    let count = || calling(&[("probe.count", json!({"path": "effects.txt", "ms": 0}))]);
    let tree = TreeGrant { host: house.tree(), guest: ".".to_owned(), access: Access::ReadWrite };
    let allowance = PluginAllowance { grants: Grants { trees: vec![tree], ..Grants::default() }, ..Default::default() };
    let mut granting = AgentConfig::new("test");
    granting.plugins.insert("probe".to_owned(), allowance);
    for (begins, becomes, expected) in [
        (&granting, AgentConfig::new("test"), [false, true]),
        (&AgentConfig::new("test"), granting.clone(), [true, true]),
    ] {
        let agent = house.agent(begins.clone(), script(&[count(), count(), saying("Done.")])).await;
        let (live, calls) = (LiveAgent::new(agent), std::sync::atomic::AtomicUsize::new(0));
        let next = live.clone();
        let host = Host {
            checkpoint: Some(Arc::new(move |point| {
                let is_second = || calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 1;
                if point == Checkpoint::BeforeCall("probe.count") && is_second() {
                    next.change(|agent| agent.with_config(becomes.clone())).unwrap();
                }
            })),
            ..house.host()
        };
        let mut session = Session::open(&host, live, OpenSession::New).await.unwrap();
        turn(&mut session, "Count.").await;
        let errors: Vec<_> = results(&house, &session).await.into_iter().map(|(_, is_error, _)| is_error).collect();
        assert_eq!(errors, expected);
    }
}

/// L17, P10: of the approval rules that a turn began with and of those of now the strictest holds, also for a reply's calls
/// that are not dispatched yet.
#[tokio::test(flavor = "multi_thread")]
async fn l17_the_strictest_of_pinned_and_current_rules_holds() {
    use agent_core::approval::ApprovalPolicy::{self, Allow, Ask, Deny};
    let house = House::new(&["probe"]).await;
    let ruled = |policy: ApprovalPolicy| {
        let mut config = AgentConfig::new("test");
        config.approvals.tools.insert("probe.echo".to_owned(), policy);
        config
    };
    for (begins, becomes, expected) in [
        (Allow, Deny, Deny),
        (Allow, Ask, Ask),
        (Ask, Allow, Ask),
        (Ask, Deny, Deny),
        (Deny, Allow, Deny),
        (Allow, Allow, Allow),
    ] {
        let live = LiveAgent::new(house.agent(ruled(begins), script(&[echo(), saying("Done.")])).await);
        let (next, becomes_now) = (live.clone(), ruled(becomes));
        let host = Host {
            checkpoint: Some(Arc::new(move |point| {
                if point == Checkpoint::BeforeCommit("reply") {
                    next.change(|agent| agent.with_config(becomes_now.clone())).unwrap();
                }
            })),
            ..house.host()
        };
        let mut session = Session::open(&host, live, OpenSession::New).await.unwrap();
        let ended = turn(&mut session, "Go.").await;
        let came = match ended {
            TurnResult::Suspended(_) if begins == Ask && becomes == Deny => {
                // What was to be asked cannot be allowed any more.
                let call = session.asked_approvals().await.unwrap()[0].call.clone();
                let verdict =
                    agent_runtime::Verdict::Allow { scope: agent_core::approval::GrantScope::Once, edited: None };
                let allowed = session.approve(vec![agent_runtime::ApprovalDecision { call, verdict }]).await;
                assert!(allowed.unwrap_err().to_string().contains("denies `probe.echo`"));
                Deny
            }
            TurnResult::Suspended(_) => Ask,
            _ => match results(&house, &session).await.first() {
                Some((_, true, _)) => Deny,
                _ => Allow,
            },
        };
        assert_eq!(came, expected, "{begins:?}, then {becomes:?}");
    }
}

/// P10: a turn that waits finds its version over a restart and over pruning; what nobody needs is forgotten.
#[tokio::test(flavor = "multi_thread")]
async fn p10_what_an_open_turn_needs_is_never_pruned() {
    let house = House::new(&[]).await;
    let file = house.directory.path().join("plugins/probe.wasm");
    let plugins = house.sandbox.store().unwrap().clone();
    let kept = |number: u32| plugins.get(&digest_of(&version(number))).is_ok();
    put(&file, &version(1));
    let waits = script(&[calling(&[("probe.pending", json!({"text": "wait"}))]), echo(), saying("Done.")]);
    let live = LiveAgent::new(house.agent(sending(AgentConfig::new("test")), waits.clone()).await);
    let mut session = Session::open(&house.host(), live, OpenSession::New).await.unwrap();
    assert!(matches!(turn(&mut session, "Go.").await, TurnResult::Suspended(_)));
    let subject = session.subject().to_owned();
    session.close().await.unwrap();

    put(&file, &version(2));
    let live = LiveAgent::new(house.agent(AgentConfig::new("test"), waits).await);
    begin(&*house.store, &house.sandbox, &file.with_file_name(""), &live).await.unwrap();
    house.sandbox.store().unwrap().put(&digest_of(&version(5)), &version(5)).unwrap();
    let now = prune(&*house.store, &plugins, SystemTime::now()).await.unwrap();
    assert_eq!((now.removed.len(), now.kept), (0, 3), "what is young stays");
    let later = prune(&*house.store, &plugins, SystemTime::now() + Duration::from_secs(7_200)).await.unwrap();
    assert_eq!(later.removed, [digest_of(&version(5))]);
    assert!(kept(1) && kept(2) && !kept(5), "the open turn's and what serves stay");

    let mut session = Session::open(&house.host(), live, OpenSession::Existing(subject)).await.unwrap();
    session
        .run(None, {
            let cancelled = CancellationToken::new();
            cancelled.cancel();
            cancelled
        })
        .await
        .unwrap();
    assert_eq!(sources(&house, &session, 1).await, [format!("probe@{}", digest_of(&version(1)).short())]);
    let later = prune(&*house.store, &plugins, SystemTime::now() + Duration::from_secs(7_200)).await.unwrap();
    assert_eq!(later.removed, [digest_of(&version(1))], "its turn is over");
}
