//! What outlives a session (D4): interactions with tools and endings are remembered once, for their user, and a memory
//! that cannot be written or searched never fails a turn.

use crate::support::{House, calling, granting, records, results, saying, script, turn};
use agent_core::change::{CallRecord, HiddenMessage};
use agent_core::cloud_event::CloudEvent;
use agent_core::loop_break::Finish;
use agent_core::message::{Digest, Media, MessageId, Role, StoredMessage, TurnInput};
use agent_core::plugin::Recollection;
use agent_core::run::AtLimit;
use agent_runtime::{
    AgentConfig, Checkpoint, Delegate, Host, MemoryUse, OpenSession, ServiceConfig, Session, SummaryWriter, TurnResult,
    UserName,
};
use agent_store::{
    Approvals, Audit, AuditEntry, BlobReference, Blobs, Bucket, CallFilter, Commit, Comparison, CountedTrial, Deed,
    Deletion, KeyValue, Lease, MediaDescription, Memories, Memory, MemoryFilter, MemoryKind, MessageHit, MessageRange,
    OpenMode, OpenedSession, Outbox, OutboxFilter, PluginVersion, PluginVersions, Projections, ReadStatus, Rebuilt,
    RecordRange, RememberedFact, Rollback, ServedPlugin, SessionFilter, SessionLog, SessionMeta, SessionSummary,
    SqliteStore, StoreError, StoredGrant, StoredOutboxItem, StoredRecord, StoredTrial, Succession, Swap, TimedEvent,
    VersionFilter,
};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

async fn remembered(house: &House, user: &str) -> Vec<RememberedFact> {
    let mut facts = Memories::list(&*house.store, user, "", 99).await.unwrap();
    facts.reverse();
    facts
}

/// Kind and place of each: turn, word and step.
fn places<'f>(session: &Session, facts: &'f [RememberedFact]) -> Vec<(MemoryKind, &'f str)> {
    let place = |fact: &'f RememberedFact| fact.id.strip_prefix(session.subject()).and_then(|id| id.strip_prefix('/'));
    facts.iter().map(|fact| (fact.memory.kind, place(fact).expect("an id begins with its session"))).collect()
}

fn of(mut config: AgentConfig, user: &str) -> AgentConfig {
    config.user = Some(user.to_owned());
    config
}

/// D4: one memory for the calls of a reply, with what was asked and what came of each; the ids are the places.
#[tokio::test(flavor = "multi_thread")]
async fn d4_interactions_with_tools_are_remembered() {
    let house = House::new(&["probe"]).await;
    let calls = [("probe.echo", json!({"text": "walrus"})), ("probe.none", json!({}))];
    let long = ("probe.echo", json!({"text": "x".repeat(50_000)}));
    let search = ("memory_search", json!({"query": "walrus"}));
    let replies = [calling(&calls), calling(&[search]), calling(&[long]), saying("Done.")];
    let mut session = house.session(of(granting(&house, "probe"), "ada"), script(&replies)).await;
    assert!(matches!(turn(&mut session, "Echo the walrus.").await, TurnResult::Finished(_)));
    let facts = remembered(&house, "ada").await;
    assert_eq!(
        places(&session, &facts),
        [(MemoryKind::Tool, "1/tool/1"), (MemoryKind::Tool, "1/tool/3"), (MemoryKind::Final, "1/final")],
        "what only reads memory is not remembered once more"
    );
    let text = &facts[0].memory.text;
    let begins = "Asked: Echo the walrus.\nCalled: probe.echo {\"text\":\"walrus\"}\nResult: {\"text\":\"walrus\"";
    assert!(text.starts_with(begins), "{text}");
    assert!(text.contains("\nCalled: probe.none {}\nFailed: "), "{text}");
    let length = facts[1].memory.text.chars().count();
    assert!((1_000..2_000).contains(&length), "a long result is cut: {length}");
    assert!(facts.iter().all(|fact| fact.memory.session == session.subject() && fact.memory.written.is_some()));
    assert!(remembered(&house, "bob").await.is_empty());

    // A later session of the same agent and user is told of it.
    let mut asked = saying("Known.");
    asked["expect"] = json!({"contains": ["retrieved-memory", "Called: probe.echo"]});
    let mut second = house.session(of(AgentConfig::new("test"), "ada"), script(&[asked])).await;
    assert!(matches!(turn(&mut second, "What about the walrus?").await, TurnResult::Finished(_)));
}

/// D4: every way to end at the bound leaves the last interaction, and an ending of its own kind; what was rejected is no
/// answer to recall.
#[tokio::test(flavor = "multi_thread")]
async fn d4_endings_at_the_limit_are_remembered() {
    let schema = json!({"type": "object"});
    for (at_limit, schema, expected) in [
        (AtLimit::Finish, None, "Asked: Loop.\nAnswered: So far."),
        (AtLimit::Error, None, "Asked: Loop.\nNot answered after 1 model calls: the bound is reached"),
        (
            AtLimit::Finish,
            Some(schema),
            "Asked: Loop.\nNot answered after 2 model calls: the last answer was rejected by output schema",
        ),
    ] {
        let house = House::new(&["probe"]).await;
        let mut config = of(granting(&house, "probe"), "ada");
        config.bounds.max_interactions = 1;
        config.bounds.at_limit = at_limit;
        config.output_schema = schema;
        let replies = [calling(&[("probe.echo", json!({"text": "walrus"}))]), saying("So far.")];
        let mut session = house.session(config, script(&replies)).await;
        turn(&mut session, "Loop.").await;
        let facts = remembered(&house, "ada").await;
        assert_eq!(places(&session, &facts), [(MemoryKind::Tool, "1/tool/1"), (MemoryKind::Limit, "1/limit")]);
        assert_eq!(facts[1].memory.text, expected);
    }
}

/// D4: whatever a batch ends with, its calls are remembered, once; what says how the turn ends is no interaction.
#[tokio::test(flavor = "multi_thread")]
async fn d4_the_last_interaction_of_a_turn_is_remembered() {
    let with = |call: (&str, Value)| calling(&[("probe.echo", json!({"text": "walrus"})), call]);
    let complete = |result: Value| ("task_completion", json!({"result": result}));
    let none = || calling(&[("probe.none", json!({}))]);
    let cases: [(Vec<Value>, &[&str]); 4] = [
        (vec![with(complete(json!("Done.")))], &["1/tool/1", "1/final"]),
        (vec![with(("converse", json!({"message": "Hello."})))], &["1/tool/1", "1/final"]),
        (vec![with(complete(json!(7))), calling(&[complete(json!("Done."))])], &["1/tool/1", "1/final"]),
        ((0..5).map(|_| none()).collect(), &["1/tool/1", "1/tool/2", "1/tool/3", "1/tool/4", "1/tool/5"]),
    ];
    for (replies, expected) in cases {
        let house = House::new(&["probe"]).await;
        let mut config = of(granting(&house, "probe"), "ada");
        config.bounds.finish = Finish::Tool;
        config.output_schema = Some(json!({"type": "string"}));
        let mut session = house.session(config, script(&replies)).await;
        turn(&mut session, "Echo the walrus.").await;
        let facts = remembered(&house, "ada").await;
        let ids: Vec<&str> = places(&session, &facts).into_iter().map(|(_, place)| place).collect();
        assert_eq!(ids, expected, "{replies:?}");
        let text = &facts[0].memory.text;
        assert!(!text.contains("Called: task_completion") && !text.contains("Called: converse"), "{text}");
    }
}

/// D4, L29: of a turn that is stopped, what has finished is remembered, and nothing of what was given up.
#[tokio::test(flavor = "multi_thread")]
async fn d4_a_cancelled_turn_leaves_what_has_finished() {
    let house = House::new(&["probe"]).await;
    let mut config = of(granting(&house, "probe"), "ada");
    config.services.insert("payments".to_owned(), ServiceConfig::new("pay".parse().unwrap()));
    let calls = calling(&[("probe.echo", json!({"text": "walrus"})), ("payments", json!({}))]);
    let mut session = house.session(config, script(&[calls])).await;
    assert!(matches!(turn(&mut session, "Pay the walrus.").await, TurnResult::Suspended(_)));
    assert!(remembered(&house, "ada").await.is_empty(), "not before the batch is whole");
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    assert_eq!(session.run(None, cancelled).await.unwrap(), TurnResult::Cancelled);
    let facts = remembered(&house, "ada").await;
    assert_eq!(places(&session, &facts), [(MemoryKind::Tool, "1/tool/1")]);
    let text = &facts[0].memory.text;
    assert!(text.contains("probe.echo") && !text.contains("payments"), "{text}");
}

/// D3, D4: what a crash kept from being remembered is remembered when the turn goes on, once.
#[tokio::test(flavor = "multi_thread")]
async fn d4_a_crash_before_the_memory_was_written_loses_nothing() {
    let house = House::new(&["probe"]).await;
    let replies = [calling(&[("probe.echo", json!({"text": "walrus"}))]), saying("Done.")];
    let agent = house.agent(of(granting(&house, "probe"), "ada"), script(&replies)).await;
    let cancel = CancellationToken::new();
    let (stop, stopped) = (cancel.clone(), Arc::new(tokio::sync::Notify::new()));
    let tell = stopped.clone();
    // Dropped as soon as the result is stored, before the driver asks what comes next.
    let observer = move |checkpoint: Checkpoint<'_>| {
        if checkpoint == Checkpoint::BeforeCommit("outcome") {
            tell.notify_one();
        }
    };
    let host = Host { checkpoint: Some(Arc::new(observer)), ..house.host() };
    let mut session = Session::open(&host, agent.clone(), OpenSession::New).await.unwrap();
    {
        let input = Some(agent_core::message::TurnInput::Text("Echo the walrus.".to_owned()));
        let running = session.run(input, stop);
        tokio::pin!(running);
        tokio::select! {
            () = stopped.notified() => {}
            result = &mut running => panic!("{result:?}"),
        }
    }
    let subject = session.subject().to_owned();
    session.close().await.unwrap();
    let mut session = Session::open(&house.host(), agent, OpenSession::Existing(subject.clone())).await.unwrap();
    for _ in 0..2 {
        assert!(!matches!(session.run(None, CancellationToken::new()).await, Err(_) | Ok(TurnResult::Idle)));
    }
    let mut waiting = session.run(None, CancellationToken::new()).await.unwrap();
    if let TurnResult::Suspended(_) = waiting {
        let call = agent_core::message::CallId("call_1_1_1".to_owned());
        let decision = agent_core::run::Decision::Result("walrus".to_owned());
        session.resolve(call, decision).await.unwrap();
        waiting = session.run(None, CancellationToken::new()).await.unwrap();
    }
    assert!(matches!(waiting, TurnResult::Finished(_)), "{waiting:?}");
    session.run(None, CancellationToken::new()).await.unwrap();
    let ids: Vec<String> = remembered(&house, "ada").await.into_iter().map(|fact| fact.id).collect();
    assert_eq!(ids, [format!("{subject}/1/tool/1"), format!("{subject}/1/final")]);
}

/// D4: a store that remembers nothing fails no turn.
#[tokio::test(flavor = "multi_thread")]
async fn d4_a_failed_memory_never_fails_the_turn() {
    let house = House::new(&["probe"]).await;
    let calls = [("probe.echo", json!({"text": "walrus"})), ("memory_search", json!({"query": "walrus"}))];
    let replies = [calling(&calls), saying("Done.")];
    let agent = house.agent(of(granting(&house, "probe"), "ada"), script(&replies)).await;
    let host = Host { store: Arc::new(Forgetful(house.store.clone())), ..house.host() };
    let mut session = Session::open(&host, agent, OpenSession::New).await.unwrap();
    let result = turn(&mut session, "Echo the walrus.").await;
    assert!(matches!(&result, TurnResult::Finished(output) if output.data == json!("Done.")), "{result:?}");
    let told = results(&house, &session).await;
    assert!(!told[0].1 && told[1].1 && told[1].2.contains("no room"), "only who asks for it is told: {told:?}");
    assert!(remembered(&house, "ada").await.is_empty());
}

/// D4, D6: what could not be written waits in the outbox, and is remembered with the time of its commit; unless its turn has
/// been taken back meanwhile, in whatever order that is done.
#[tokio::test(flavor = "multi_thread")]
async fn d6_a_memory_that_could_not_be_written_waits() {
    for undone in [false, true] {
        let house = House::new(&["probe"]).await;
        let replies = [calling(&[("probe.echo", json!({"text": "walrus"}))]), saying("Done.")];
        let agent = house.agent(of(granting(&house, "probe"), "ada"), script(&replies)).await;
        let host = Host { store: Arc::new(Forgetful(house.store.clone())), ..house.host() };
        let mut session = Session::open(&host, agent.clone(), OpenSession::New).await.unwrap();
        assert!(matches!(turn(&mut session, "Echo the walrus.").await, TurnResult::Finished(_)));
        if undone {
            session.undo().await.unwrap();
        }
        let subject = session.subject().to_owned();
        session.close().await.unwrap();
        let pending = house.store.outbox(Some(&subject), OutboxFilter::Pending, 0, 9).await.unwrap();
        assert_eq!(pending.len(), 2, "{pending:?}");
        let session = Session::open(&house.host(), agent, OpenSession::Existing(subject.clone())).await.unwrap();
        let facts = remembered(&house, "ada").await;
        let expected: &[(MemoryKind, &str)] = match undone {
            false => &[(MemoryKind::Tool, "1/tool/1"), (MemoryKind::Final, "1/final")],
            true => &[],
        };
        assert_eq!(places(&session, &facts), expected);
        for (fact, item) in facts.iter().zip(&pending) {
            assert_eq!(fact.memory.written.as_ref(), Some(&item.created));
        }
        let left = house.store.outbox(Some(&subject), OutboxFilter::Pending, 0, 9).await.unwrap();
        assert_eq!(left, [], "nothing is done twice");
    }
}

/// D4: a turn works for the request's user, before the agent's own; who that is stays with the turn over a restart.
#[tokio::test(flavor = "multi_thread")]
async fn d4_a_turn_works_for_the_requests_user() {
    let house = House::new(&["probe"]).await;
    let mut config = of(granting(&house, "probe"), "ada");
    config.services.insert("payments".to_owned(), ServiceConfig::new("pay".parse().unwrap()));
    let calls = calling(&[("probe.echo", json!({"text": "walrus"})), ("payments", json!({}))]);
    let agent = house.agent(config, script(&[calls, saying("Paid."), saying("Mine.")])).await;
    let mut session = Session::open(&house.host(), agent.clone(), OpenSession::New).await.unwrap();
    let (user, input) = (UserName::new("bob").unwrap(), TurnInput::Text("Pay.".to_owned()));
    let result = session.run_for(user, input, CancellationToken::new()).await.unwrap();
    assert!(matches!(result, TurnResult::Suspended(_)), "{result:?}");
    let calls = house.store.calls(session.subject(), CallFilter::Turn(1)).await.unwrap();
    let echoed = serde_json::to_string(&calls[0].result.as_ref().unwrap().content).unwrap();
    assert!(echoed.contains(r#""user":"bob""#), "plugins are told: {echoed}");
    let subject = session.subject().to_owned();
    session.close().await.unwrap();
    let mut session = Session::open(&house.host(), agent, OpenSession::Existing(subject)).await.unwrap();
    let paid =
        json!({"specversion": "1.0", "id": "e", "source": "/s", "type": "x", "parentid": "call_1_1_2", "data": 1});
    session.respond(CloudEvent::parse(paid.to_string().as_bytes()).unwrap()).await.unwrap();
    let result = session.run(None, CancellationToken::new()).await.unwrap();
    assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
    assert!(remembered(&house, "ada").await.is_empty());
    let facts = remembered(&house, "bob").await;
    assert_eq!(places(&session, &facts), [(MemoryKind::Tool, "1/tool/1"), (MemoryKind::Final, "1/final")]);
    assert!(matches!(turn(&mut session, "And mine?").await, TurnResult::Finished(_)));
    let facts = remembered(&house, "ada").await;
    assert_eq!(places(&session, &facts), [(MemoryKind::Final, "2/final")], "the next turn is the agent's own user's");
}

/// What the context of a turn was built with.
async fn recalled(house: &House, session: &Session, turn: u32) -> Vec<Recollection> {
    let records = records(house, session, turn).await;
    let context = records.iter().find(|stored| stored.record.kind == "context").expect("the context is recorded");
    serde_json::from_value(context.record.body["recollections"].clone()).expect("recollections")
}

/// D4, L26: a session recalls nothing of itself, which stands in its history, and of others a small part of the window,
/// however long and many they are: a small window goes on working.
#[tokio::test(flavor = "multi_thread")]
async fn d4_recall_is_bounded_and_never_of_the_session_itself() {
    let house = House::new(&[]).await;
    for number in 0..6 {
        let memory = Memory {
            user: "ada".to_owned(),
            kind: MemoryKind::Final,
            agent: "test".to_owned(),
            session: format!("earlier/{number}"),
            turn: 1,
            text: format!("Asked: harbour\nAnswered: {}", "the harbour of ä ".repeat(250)),
            written: None,
        };
        house.store.add(&format!("earlier/{number}/1/final"), memory).await.unwrap();
    }
    let replies: Vec<_> = (0..8).map(|number| saying(&format!("The harbour has {number} berths."))).collect();
    let script = json!({"window": 6000, "replies": replies});
    let mut config = of(AgentConfig::new("test"), "ada");
    config.reply_tokens = 500;
    config.summary = SummaryWriter::Extract;
    let mut session = house.session(config, script).await;
    for number in 1..=8 {
        let result = turn(&mut session, "How many berths has the harbour?").await;
        let TurnResult::Finished(output) = result else { panic!("turn {number}: {result:?}") };
        assert!(!output.limit_reached, "turn {number} has room");
        let recalled = recalled(&house, &session, number).await;
        assert!((1..=5).contains(&recalled.len()), "{recalled:?}");
        assert!(recalled.iter().all(|fact| fact.id.starts_with("earlier/")), "{recalled:?}");
        assert!(recalled.iter().all(|fact| fact.text.chars().count() <= 401), "{recalled:?}");
        let input = *session.state().view.iter().rfind(|entry| entry.role == Some(Role::User)).expect("the input");
        assert!(input.tokens < 700, "turn {number}: the input has {} tokens", input.tokens);
    }
    let own = Memories::list(&*house.store, "ada", "", 99).await.unwrap();
    assert_eq!(own.iter().filter(|fact| fact.memory.session == session.subject()).count(), 8, "it is remembered");
}

/// D4, P6: what a tool brought an agent under its grants is recalled by no other agent, neither at the beginning of a turn nor
/// by `memory_search`; how its turns ended is, as far as the other one wants.
#[tokio::test(flavor = "multi_thread")]
async fn d4_what_tools_brought_stays_with_their_agent() {
    let house = House::new(&["probe"]).await;
    let replies = [calling(&[("probe.echo", json!({"text": "walrus 4711"}))]), saying("The walrus is fine.")];
    let mut banker = house.session(of(granting(&house, "probe"), "ada"), script(&replies)).await;
    assert!(matches!(turn(&mut banker, "How is the walrus?").await, TurnResult::Finished(_)));
    let cases = [
        ("test", MemoryUse::User, json!({"contains": ["4711", "walrus is fine"]}), true),
        ("other", MemoryUse::User, json!({"contains": "walrus is fine", "lacks": "4711"}), false),
        ("test", MemoryUse::Agent, json!({"contains": ["4711", "walrus is fine"]}), true),
        ("third", MemoryUse::Agent, json!({"lacks": ["retrieved-memory", "walrus is fine", "4711"]}), false),
        ("test", MemoryUse::Off, json!({"lacks": ["retrieved-memory", "walrus is fine", "4711"]}), false),
    ];
    for (name, memory, expected, finds) in cases {
        let mut config = of(AgentConfig::new(name), "ada");
        config.memory = memory;
        let mut search = calling(&[("memory_search", json!({"query": "walrus 4711"}))]);
        search["expect"] = expected;
        let before = remembered(&house, "ada").await.len();
        let mut session = house.session(config, script(&[search, saying("So it is.")])).await;
        let result = turn(&mut session, "Do you know the walrus?").await;
        assert!(matches!(result, TurnResult::Finished(_)), "{name} {memory:?}: {result:?}");
        let found = results(&house, &session).await.remove(0);
        assert_eq!((found.1, found.2.contains("4711")), (false, finds), "{name} {memory:?}: {}", found.2);
        let written = remembered(&house, "ada").await.len() - before;
        assert_eq!(written, usize::from(memory != MemoryUse::Off), "{name} {memory:?}");
    }
}

/// D4, L16: who works for another agent knows the task and nothing else of the user.
#[tokio::test(flavor = "multi_thread")]
async fn d4_a_delegated_child_recalls_nothing() {
    let house = House::new(&["probe"]).await;
    let reader = |replies: &[serde_json::Value]| {
        let (house, script) = (&house, script(replies));
        async move { house.agent(of(AgentConfig::new("reader"), "ada"), script).await }
    };
    let alone = reader(&[saying("The walrus is 4711.")]).await;
    let mut session = Session::open(&house.host(), alone, OpenSession::New).await.unwrap();
    assert!(matches!(turn(&mut session, "Which walrus?").await, TurnResult::Finished(_)));
    let mut search = calling(&[("memory_search", json!({"query": "walrus"}))]);
    search["expect"] = json!({"lacks": ["retrieved-memory", "4711"]});
    let mut told = saying("I know none.");
    told["expect"] = json!({"lacks": "4711"});
    let mut lead = of(AgentConfig::new("lead"), "ada");
    let delegate =
        Delegate { agent: reader(&[search, told]).await.into(), description: "Reads.".into(), input_schema: None };
    lead.delegates.insert("reader".to_owned(), delegate);
    let replies = [calling(&[("reader", json!({"task": "Which walrus?"}))]), saying("Nobody knows.")];
    let mut session = house.session(lead, script(&replies)).await;
    assert!(matches!(turn(&mut session, "Ask.").await, TurnResult::Finished(_)));
    assert_eq!(results(&house, &session).await[0].2, "I know none.");
}

/// D4, D5: a turn that is taken back is not remembered any more, nor again when the session is taken up once more.
#[tokio::test(flavor = "multi_thread")]
async fn d5_a_turn_that_is_taken_back_is_forgotten() {
    let house = House::new(&["probe"]).await;
    let call = calling(&[("probe.echo", json!({"text": "walrus"}))]);
    let replies = [saying("First."), call, saying("Second.")];
    let mut session = house.session(of(granting(&house, "probe"), "ada"), script(&replies)).await;
    turn(&mut session, "One.").await;
    turn(&mut session, "Two.").await;
    assert_eq!(remembered(&house, "ada").await.len(), 3);
    session.undo().await.unwrap();
    let left = async || remembered(&house, "ada").await.into_iter().map(|fact| fact.id).collect::<Vec<_>>();
    let first = format!("{}/1/final", session.subject());
    assert_eq!(left().await, std::slice::from_ref(&first));
    session.run(None, CancellationToken::new()).await.unwrap();
    assert_eq!(left().await, [first]);
    session.undo().await.unwrap();
    assert_eq!(left().await, Vec::<String>::new());
}

/// A store whose long-term memory has no room left: it can forget.
struct Forgetful(Arc<SqliteStore>);

fn full<T>() -> Result<T, StoreError> {
    Err(StoreError::DiskFull { path: "memories".into() })
}

#[async_trait]
impl Memories for Forgetful {
    async fn add(&self, _: &str, _: Memory) -> Result<(), StoreError> {
        full()
    }
    async fn search(&self, _: &MemoryFilter, _: &str, _: usize) -> Result<Vec<Recollection>, StoreError> {
        full()
    }
    async fn list(&self, _: &str, _: &str, _: usize) -> Result<Vec<RememberedFact>, StoreError> {
        full()
    }
    async fn forget(&self, _: &str, _: &str) -> Result<bool, StoreError> {
        full()
    }
    async fn forget_turn(&self, session: &str, turn: u32) -> Result<u64, StoreError> {
        self.0.forget_turn(session, turn).await
    }
}

/// Everything else is the real store's.
macro_rules! as_the_real_store {
    ($($trait:ident { $(fn $name:ident($($argument:ident: $type:ty),*) -> $out:ty;)* })*) => {
        $(#[async_trait]
        impl $trait for Forgetful {
            $(async fn $name(&self, $($argument: $type),*) -> Result<$out, StoreError> {
                $trait::$name(&*self.0, $($argument),*).await
            })*
        })*
    };
}

as_the_real_store! {
    Projections {
        fn check_projections(read: ReadStatus) -> Vec<Comparison>;
        fn rebuild_projections(read: ReadStatus) -> Vec<Rebuilt>;
    }
    SessionLog {
        fn open(session: &str, mode: OpenMode, meta: SessionMeta) -> OpenedSession;
        fn release(lease: Lease) -> ();
        fn commit(lease: &Lease, expected_revision: u64, commit: Commit) -> u64;
        fn messages(session: &str, range: MessageRange) -> Vec<StoredMessage>;
        fn hidden(session: &str, after: MessageId, limit: usize) -> Vec<HiddenMessage>;
        fn calls(session: &str, filter: CallFilter) -> Vec<CallRecord>;
        fn events(session: &str, after: u64, limit: usize) -> Vec<TimedEvent>;
        fn records(session: &str, range: RecordRange) -> Vec<StoredRecord>;
        fn sessions(filter: SessionFilter, limit: usize) -> Vec<SessionSummary>;
        fn latest(agent: &str) -> Option<String>;
        fn unfinished(after: &str, limit: usize) -> Vec<(String, Vec<u8>)>;
        fn delete(session: &str) -> Deletion;
        fn search_messages(query: &str, limit: usize) -> Vec<MessageHit>;
        fn search_evicted(session: &str, query: &str, limit: usize) -> Vec<MessageHit>;
    }
    Outbox {
        fn outbox(session: Option<&str>, which: OutboxFilter, after: u64, limit: usize) -> Vec<StoredOutboxItem>;
        fn delivered(number: u64) -> ();
    }
    Blobs {
        fn put(session: &str, bytes: Vec<u8>, about: MediaDescription) -> Media;
        fn media(session: &str, digest: &Digest) -> Option<Media>;
        fn read(session: &str, digest: &Digest, offset: u64, length: u32) -> Vec<u8>;
        fn put_text(session: &str, text: String) -> Digest;
        fn references(session: &str, after: Option<&Digest>, limit: usize) -> Vec<BlobReference>;
        fn share(from: &str, to: &str, media: &[Digest]) -> ();
        fn text(digest: &Digest) -> String;
    }
    KeyValue {
        fn get(bucket: &Bucket, key: &str) -> Option<Vec<u8>>;
        fn set(bucket: &Bucket, key: &str, value: Vec<u8>) -> ();
        fn delete_key(bucket: &Bucket, key: &str) -> ();
        fn exists(bucket: &Bucket, key: &str) -> bool;
        fn keys(bucket: &Bucket, after: &str, limit: usize) -> Vec<String>;
        fn increment(bucket: &Bucket, key: &str, delta: i64) -> i64;
        fn compare_and_swap(bucket: &Bucket, key: &str, expected: Option<Vec<u8>>, value: Vec<u8>) -> Swap;
    }
    Approvals {
        fn allow(grant: agent_core::approval::LastingGrant) -> ();
        fn allowed(agent: &str) -> Vec<StoredGrant>;
        fn revoke(id: &str) -> bool;
        fn bind_rule(rule: agent_store::NamedRule, identity: Digest) -> Digest;
    }
    Audit {
        fn audit(deeds: Vec<Deed>) -> ();
        fn audited(since: i64, after: u64, limit: usize) -> Vec<AuditEntry>;
    }
    PluginVersions {
        fn serve(directory: &str, serving: Vec<ServedPlugin>) -> Vec<Succession>;
        fn versions(which: VersionFilter, limit: usize) -> Vec<PluginVersion>;
        fn needed_versions(last: u32) -> Vec<Digest>;
        fn roll_back(rollback: Rollback) -> ();
        fn undo_rollback(directory: &str, plugin: &str) -> bool;
        fn rollbacks(directory: &str) -> Vec<Rollback>;
        fn served(directory: &str) -> Vec<(String, Digest)>;
        fn trials(directory: &str) -> Vec<StoredTrial>;
        fn count_trial(counted: CountedTrial) -> Option<StoredTrial>;
        fn end_trial(directory: &str, plugin: &str) -> ();
        fn note_begun(agent: &str, plugins: Vec<(String, Digest)>) -> ();
        fn never_begun(agent: &str, plugins: Vec<(String, Digest)>) -> Vec<(String, Digest)>;
    }
}
