//! Long-term memory (D4): tool interactions and turn endings are stored once, for the user of the turn. A memory that
//! cannot be written or searched never fails a turn.

use crate::support::{TestHost, call_reply, records, results, run_turn, script, text_reply, with_tree_grant};
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
    Announcement, Announcements, Approvals, Audit, AuditAction, AuditEntry, BlobReference, Blobs, Bucket, BudgetLedger,
    CallFilter, ChargeFilter, ChargedTo, Clock, Commit, ContinuableSession, Deletion, ExportPosition, Integrity,
    IntervalCharge, KeyValue, Lease, ListPosition, MediaDescription, Memories, Memory, MemoryFilter, MemoryKind,
    MessageHit, MessageRange, Monitoring, OpenMode, OpenedSession, Outbox, OutboxFilter, PluginSource, PluginVersion,
    PluginVersions, ProjectionComparison, Projections, RebuiltProjection, RecordRange, RequestKey, RequestState,
    Rollback, ScheduleState, Schedules, SearchedSessions, ServedPlugin, SessionCount, SessionFilter, SessionIndex,
    SessionLog, SessionMeta, SessionRequests, SessionSummary, SqliteStore, StatusReader, StoreError, StoredAuditEntry,
    StoredGrant, StoredMemory, StoredOutboxItem, StoredRecord, StoredTrial, StoredTurn, Swap, TimedEvent, TraceExports,
    TrialCalls, Undelivered, UsageTotal, VersionChange, VersionFilter,
};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

async fn memories_of(test_host: &TestHost, user: &str) -> Vec<StoredMemory> {
    let mut facts = Memories::list(&*test_host.store, user, "", 99).await.unwrap();
    facts.reverse();
    facts
}

/// Returns the kind and the key (turn, name and step) of each memory of the session.
fn memory_keys<'f>(session: &Session, facts: &'f [StoredMemory]) -> Vec<(MemoryKind, &'f str)> {
    let key = |fact: &'f StoredMemory| fact.id.strip_prefix(session.subject()).and_then(|id| id.strip_prefix('/'));
    facts.iter().map(|fact| (fact.memory.kind, key(fact).expect("an id begins with its session"))).collect()
}

fn for_user(mut config: AgentConfig, user: &str) -> AgentConfig {
    config.user = Some(user.to_owned());
    config
}

/// D4: The calls of one reply become one memory with their arguments and results, whose id is its position in the session.
#[tokio::test(flavor = "multi_thread")]
async fn d4_stores_tool_interactions_once() {
    let test_host = TestHost::new(&["probe"]).await;
    let calls = [("probe.echo", json!({"text": "walrus"})), ("probe.none", json!({}))];
    let long = ("probe.echo", json!({"text": "x".repeat(50_000)}));
    let search = ("memory_search", json!({"query": "walrus"}));
    let replies = [call_reply(&calls), call_reply(&[search]), call_reply(&[long]), text_reply("Done.")];
    let mut session = test_host.session(for_user(with_tree_grant(&test_host, "probe"), "ada"), script(&replies)).await;
    assert!(matches!(run_turn(&mut session, "Echo the walrus.").await, TurnResult::Finished(_)));
    let facts = memories_of(&test_host, "ada").await;
    assert_eq!(
        memory_keys(&session, &facts),
        [(MemoryKind::Tool, "1/tool/1"), (MemoryKind::Tool, "1/tool/3"), (MemoryKind::Final, "1/final")],
        "a call that only reads memories is not stored as a memory"
    );
    let text = &facts[0].memory.text;
    let begins = "Asked: Echo the walrus.\nCalled: probe.echo {\"text\":\"walrus\"}\nResult: {\"text\":\"walrus\"";
    assert!(text.starts_with(begins), "{text}");
    assert!(text.contains("\nCalled: probe.none {}\nFailed: "), "{text}");
    let length = facts[1].memory.text.chars().count();
    assert!((1_000..2_000).contains(&length), "a long result is cut: {length}");
    assert!(facts.iter().all(|fact| fact.memory.session == session.subject() && fact.memory.written.is_some()));
    assert!(memories_of(&test_host, "bob").await.is_empty());

    // A later session of the same agent and user receives the memory in its prompt.
    let mut reply = text_reply("Known.");
    reply["expect"] = json!({"contains": ["retrieved-memory", "Called: probe.echo"]});
    let mut second = test_host.session(for_user(AgentConfig::new("test"), "ada"), script(&[reply])).await;
    assert!(matches!(run_turn(&mut second, "What about the walrus?").await, TurnResult::Finished(_)));
}

/// D4: Whenever a turn ends at the interaction limit, its last interaction and a memory of kind `Limit` are stored. A
/// rejected output is not stored as an answer.
#[tokio::test(flavor = "multi_thread")]
async fn d4_stores_a_memory_at_the_interaction_limit() {
    let schema = json!({"type": "object"});
    for (at_limit, schema, expected) in [
        (AtLimit::Finish, None, "Asked: Loop.\nAnswered: So far."),
        (AtLimit::Error, None, "Asked: Loop.\nNot answered after 1 model calls: the limit is reached"),
        (
            AtLimit::Finish,
            Some(schema),
            "Asked: Loop.\nNot answered after 2 model calls: the last answer was rejected by output schema",
        ),
    ] {
        let test_host = TestHost::new(&["probe"]).await;
        let mut config = for_user(with_tree_grant(&test_host, "probe"), "ada");
        config.bounds.max_interactions = 1;
        config.bounds.at_limit = at_limit;
        config.output_schema = schema;
        let replies = [call_reply(&[("probe.echo", json!({"text": "walrus"}))]), text_reply("So far.")];
        let mut session = test_host.session(config, script(&replies)).await;
        run_turn(&mut session, "Loop.").await;
        let facts = memories_of(&test_host, "ada").await;
        assert_eq!(memory_keys(&session, &facts), [(MemoryKind::Tool, "1/tool/1"), (MemoryKind::Limit, "1/limit")]);
        assert_eq!(facts[1].memory.text, expected);
    }
}

/// D4: Each call of a reply is stored once as an interaction, no matter how the call ends. A call that only ends the
/// turn is not stored as an interaction.
#[tokio::test(flavor = "multi_thread")]
async fn d4_stores_the_last_interaction_of_a_turn() {
    let with = |call: (&str, Value)| call_reply(&[("probe.echo", json!({"text": "walrus"})), call]);
    let complete = |result: Value| ("task_completion", json!({"result": result}));
    let none = || call_reply(&[("probe.none", json!({}))]);
    let cases: [(Vec<Value>, &[&str]); 4] = [
        (vec![with(complete(json!("Done.")))], &["1/tool/1", "1/final"]),
        (vec![with(("converse", json!({"message": "Hello."})))], &["1/tool/1", "1/final"]),
        (vec![with(complete(json!(7))), call_reply(&[complete(json!("Done."))])], &["1/tool/1", "1/final"]),
        ((0..5).map(|_| none()).collect(), &["1/tool/1", "1/tool/2", "1/tool/3", "1/tool/4", "1/tool/5"]),
    ];
    for (replies, expected) in cases {
        let test_host = TestHost::new(&["probe"]).await;
        let mut config = for_user(with_tree_grant(&test_host, "probe"), "ada");
        config.bounds.finish = Finish::Tool;
        config.output_schema = Some(json!({"type": "string"}));
        let mut session = test_host.session(config, script(&replies)).await;
        run_turn(&mut session, "Echo the walrus.").await;
        let facts = memories_of(&test_host, "ada").await;
        let ids: Vec<&str> = memory_keys(&session, &facts).into_iter().map(|(_, key)| key).collect();
        assert_eq!(ids, expected, "{replies:?}");
        let text = &facts[0].memory.text;
        assert!(!text.contains("Called: task_completion") && !text.contains("Called: converse"), "{text}");
    }
}

/// D4, L29: If a turn is cancelled, its finished calls are stored as memories, but its aborted calls are not.
#[tokio::test(flavor = "multi_thread")]
async fn d4_stores_finished_calls_of_a_cancelled_turn() {
    let test_host = TestHost::new(&["probe"]).await;
    let mut config = for_user(with_tree_grant(&test_host, "probe"), "ada");
    config.services.insert("payments".to_owned(), ServiceConfig::new("pay".parse().unwrap()));
    let calls = call_reply(&[("probe.echo", json!({"text": "walrus"})), ("payments", json!({}))]);
    let mut session = test_host.session(config, script(&[calls])).await;
    assert!(matches!(run_turn(&mut session, "Pay the walrus.").await, TurnResult::Suspended(_)));
    assert!(memories_of(&test_host, "ada").await.is_empty(), "no memory is stored before the batch is complete");
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    assert_eq!(session.run(None, cancelled).await.unwrap(), TurnResult::Cancelled);
    let facts = memories_of(&test_host, "ada").await;
    assert_eq!(memory_keys(&session, &facts), [(MemoryKind::Tool, "1/tool/1")]);
    let text = &facts[0].memory.text;
    assert!(text.contains("probe.echo") && !text.contains("payments"), "{text}");
}

/// D3, D4: If the host crashes before it has written a memory, the memory is written once when the turn continues.
#[tokio::test(flavor = "multi_thread")]
async fn d4_writes_a_memory_after_a_crash_before_the_write() {
    let test_host = TestHost::new(&["probe"]).await;
    let replies = [call_reply(&[("probe.echo", json!({"text": "walrus"}))]), text_reply("Done.")];
    let agent = test_host.agent(for_user(with_tree_grant(&test_host, "probe"), "ada"), script(&replies)).await;
    let cancel = CancellationToken::new();
    let (stop, stopped) = (cancel.clone(), Arc::new(tokio::sync::Notify::new()));
    let notify_commit = stopped.clone();
    // The task that runs the turn is dropped while it stores the result of the call, before it computes the
    // next action.
    let observer = move |checkpoint: Checkpoint<'_>| {
        if checkpoint == Checkpoint::BeforeCommit("outcome") {
            notify_commit.notify_one();
        }
    };
    let host = Host { checkpoint: Some(Arc::new(observer)), ..test_host.host() };
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
    let mut session = Session::open(&test_host.host(), agent, OpenSession::Existing(subject.clone())).await.unwrap();
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
    let ids: Vec<String> = memories_of(&test_host, "ada").await.into_iter().map(|fact| fact.id).collect();
    assert_eq!(ids, [format!("{subject}/1/tool/1"), format!("{subject}/1/final")]);
}

/// D4: A turn does not fail when the store cannot write a memory.
#[tokio::test(flavor = "multi_thread")]
async fn d4_a_failed_memory_write_does_not_fail_the_turn() {
    let test_host = TestHost::new(&["probe"]).await;
    let calls = [("probe.echo", json!({"text": "walrus"})), ("memory_search", json!({"query": "walrus"}))];
    let replies = [call_reply(&calls), text_reply("Done.")];
    let agent = test_host.agent(for_user(with_tree_grant(&test_host, "probe"), "ada"), script(&replies)).await;
    let host = Host { store: Arc::new(FullMemoryStore(test_host.store.clone())), ..test_host.host() };
    let mut session = Session::open(&host, agent, OpenSession::New).await.unwrap();
    let result = run_turn(&mut session, "Echo the walrus.").await;
    assert!(matches!(&result, TurnResult::Finished(output) if output.data == json!("Done.")), "{result:?}");
    let found = results(&test_host, &session).await;
    assert!(
        !found[0].1 && found[1].1 && found[1].2.contains("no space left"),
        "only the call that uses memory reports the error: {found:?}"
    );
    assert!(memories_of(&test_host, "ada").await.is_empty());
}

/// D4, D6: A memory that could not be written stays in the outbox and is written later. The memory's time is the time
/// of the commit that created the memory. If the turn was undone in the meantime, the memory is not stored.
#[tokio::test(flavor = "multi_thread")]
async fn d6_a_memory_that_could_not_be_written_waits_in_the_outbox() {
    for undone in [false, true] {
        let test_host = TestHost::new(&["probe"]).await;
        let replies = [call_reply(&[("probe.echo", json!({"text": "walrus"}))]), text_reply("Done.")];
        let agent = test_host.agent(for_user(with_tree_grant(&test_host, "probe"), "ada"), script(&replies)).await;
        let host = Host { store: Arc::new(FullMemoryStore(test_host.store.clone())), ..test_host.host() };
        let mut session = Session::open(&host, agent.clone(), OpenSession::New).await.unwrap();
        assert!(matches!(run_turn(&mut session, "Echo the walrus.").await, TurnResult::Finished(_)));
        if undone {
            session.undo().await.unwrap();
        }
        let subject = session.subject().to_owned();
        session.close().await.unwrap();
        let pending = test_host.store.outbox(Some(&subject), OutboxFilter::Pending, 0, 9).await.unwrap();
        assert_eq!(pending.len(), 2, "{pending:?}");
        let session = Session::open(&test_host.host(), agent, OpenSession::Existing(subject.clone())).await.unwrap();
        let facts = memories_of(&test_host, "ada").await;
        let expected: &[(MemoryKind, &str)] = match undone {
            false => &[(MemoryKind::Tool, "1/tool/1"), (MemoryKind::Final, "1/final")],
            true => &[],
        };
        assert_eq!(memory_keys(&session, &facts), expected);
        for (fact, item) in facts.iter().zip(&pending) {
            assert_eq!(fact.memory.written.as_ref(), Some(&item.created));
        }
        let pending = test_host.store.outbox(Some(&subject), OutboxFilter::Pending, 0, 9).await.unwrap();
        assert_eq!(pending, [], "no item is left in the outbox");
    }
}

/// D4: A turn stores memories for the user that the turn's request names. If the request names no user, the turn stores
/// memories for the agent's user. The turn keeps its user across a restart.
#[tokio::test(flavor = "multi_thread")]
async fn d4_stores_memories_for_the_user_of_the_request() {
    let test_host = TestHost::new(&["probe"]).await;
    let mut config = for_user(with_tree_grant(&test_host, "probe"), "ada");
    config.services.insert("payments".to_owned(), ServiceConfig::new("pay".parse().unwrap()));
    let calls = call_reply(&[("probe.echo", json!({"text": "walrus"})), ("payments", json!({}))]);
    let agent = test_host.agent(config, script(&[calls, text_reply("Paid."), text_reply("Mine.")])).await;
    let mut session = Session::open(&test_host.host(), agent.clone(), OpenSession::New).await.unwrap();
    let (user, input) = (UserName::new("bob").unwrap(), TurnInput::Text("Pay.".to_owned()));
    let result = session.run_for(user, input, CancellationToken::new()).await.unwrap();
    assert!(matches!(result, TurnResult::Suspended(_)), "{result:?}");
    let calls = test_host.store.calls(session.subject(), CallFilter::Turn(1)).await.unwrap();
    let echoed = serde_json::to_string(&calls[0].result.as_ref().unwrap().content).unwrap();
    assert!(echoed.contains(r#""user":"bob""#), "plugins get the user: {echoed}");
    let subject = session.subject().to_owned();
    session.close().await.unwrap();
    let mut session = Session::open(&test_host.host(), agent, OpenSession::Existing(subject)).await.unwrap();
    let paid =
        json!({"specversion": "1.0", "id": "e", "source": "/s", "type": "x", "parentid": "call_1_1_2", "data": 1});
    session.respond(CloudEvent::parse(paid.to_string().as_bytes()).unwrap()).await.unwrap();
    let result = session.run(None, CancellationToken::new()).await.unwrap();
    assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
    assert!(memories_of(&test_host, "ada").await.is_empty());
    let facts = memories_of(&test_host, "bob").await;
    assert_eq!(memory_keys(&session, &facts), [(MemoryKind::Tool, "1/tool/1"), (MemoryKind::Final, "1/final")]);
    assert!(matches!(run_turn(&mut session, "And mine?").await, TurnResult::Finished(_)));
    let facts = memories_of(&test_host, "ada").await;
    assert_eq!(
        memory_keys(&session, &facts),
        [(MemoryKind::Final, "2/final")],
        "the next turn works for the agent's own user"
    );
}

/// Returns the memories that were recalled for the context of a turn.
async fn recalled_memories(test_host: &TestHost, session: &Session, turn: u32) -> Vec<Recollection> {
    let records = records(test_host, session, turn).await;
    let context = records.iter().find(|stored| stored.record.kind == "context").expect("the context is recorded");
    serde_json::from_value(context.record.body["recollections"].clone()).expect("recollections")
}

/// D4, L26: A session does not recall its own memories, which are in its history. Memories of other sessions use
/// only a small part of the context window, even if they are many and long, so that turns work even with a small
/// context window.
#[tokio::test(flavor = "multi_thread")]
async fn d4_recall_is_bounded_and_excludes_the_current_session() {
    let test_host = TestHost::new(&[]).await;
    for number in 0..6 {
        let memory = Memory {
            user: "ada".to_owned(),
            kind: MemoryKind::Final,
            agent: "test".to_owned(),
            session: format!("earlier/{number}"),
            turn: 1,
            text: format!("Asked: harbour\nAnswered: {}", "the harbour of ä ".repeat(250)),
            project: None,
            written: None,
        };
        test_host.store.add(&format!("earlier/{number}/1/final"), memory).await.unwrap();
    }
    let replies: Vec<_> = (0..8).map(|number| text_reply(&format!("The harbour has {number} berths."))).collect();
    let script = json!({"window": 6000, "replies": replies});
    let mut config = for_user(AgentConfig::new("test"), "ada");
    config.reply_tokens = 500;
    config.summary = SummaryWriter::Extract;
    let mut session = test_host.session(config, script).await;
    for number in 1..=8 {
        let result = run_turn(&mut session, "How many berths has the harbour?").await;
        let TurnResult::Finished(output) = result else { panic!("turn {number}: {result:?}") };
        assert!(!output.limit_reached, "turn {number} fits into the window");
        let recalled = recalled_memories(&test_host, &session, number).await;
        assert!((1..=5).contains(&recalled.len()), "{recalled:?}");
        assert!(recalled.iter().all(|fact| fact.id.starts_with("earlier/")), "{recalled:?}");
        assert!(recalled.iter().all(|fact| fact.text.chars().count() <= 401), "{recalled:?}");
        let input = *session.state().view.iter().rfind(|entry| entry.role == Some(Role::User)).expect("the input");
        assert!(input.tokens < 700, "turn {number}: the input has {} tokens", input.tokens);
    }
    let memories = Memories::list(&*test_host.store, "ada", "", 99).await.unwrap();
    assert_eq!(
        memories.iter().filter(|fact| fact.memory.session == session.subject()).count(),
        8,
        "the memories of the session are stored"
    );
}

/// D4, P6: Results that a tool returned under the grants of one agent are not recalled by another agent, neither at
/// the start of a turn nor by `memory_search`. Another agent recalls turn endings only if its configuration
/// contains `MemoryUse::User`.
#[tokio::test(flavor = "multi_thread")]
async fn d4_tool_results_are_not_recalled_by_other_agents() {
    let test_host = TestHost::new(&["probe"]).await;
    let replies = [call_reply(&[("probe.echo", json!({"text": "walrus 4711"}))]), text_reply("The walrus is fine.")];
    let mut banker = test_host.session(for_user(with_tree_grant(&test_host, "probe"), "ada"), script(&replies)).await;
    assert!(matches!(run_turn(&mut banker, "How is the walrus?").await, TurnResult::Finished(_)));
    let cases = [
        ("test", MemoryUse::User, json!({"contains": ["4711", "walrus is fine"]}), true),
        ("other", MemoryUse::User, json!({"contains": "walrus is fine", "lacks": "4711"}), false),
        ("test", MemoryUse::Agent, json!({"contains": ["4711", "walrus is fine"]}), true),
        ("third", MemoryUse::Agent, json!({"lacks": ["retrieved-memory", "walrus is fine", "4711"]}), false),
        ("test", MemoryUse::Off, json!({"lacks": ["retrieved-memory", "walrus is fine", "4711"]}), false),
    ];
    for (name, memory, expected, finds) in cases {
        let mut config = for_user(AgentConfig::new(name), "ada");
        config.memory = memory;
        let mut search = call_reply(&[("memory_search", json!({"query": "walrus 4711"}))]);
        search["expect"] = expected;
        let before = memories_of(&test_host, "ada").await.len();
        let mut session = test_host.session(config, script(&[search, text_reply("So it is.")])).await;
        let result = run_turn(&mut session, "Do you know the walrus?").await;
        assert!(matches!(result, TurnResult::Finished(_)), "{name} {memory:?}: {result:?}");
        let found = results(&test_host, &session).await.remove(0);
        assert_eq!((found.1, found.2.contains("4711")), (false, finds), "{name} {memory:?}: {}", found.2);
        let written = memories_of(&test_host, "ada").await.len() - before;
        assert_eq!(written, usize::from(memory != MemoryUse::Off), "{name} {memory:?}");
    }
}

/// D4, L16: A child agent receives its task but no memories of the user.
#[tokio::test(flavor = "multi_thread")]
async fn d4_a_delegated_child_recalls_nothing() {
    let test_host = TestHost::new(&["probe"]).await;
    let reader = |replies: &[serde_json::Value]| {
        let (test_host, script) = (&test_host, script(replies));
        async move { test_host.agent(for_user(AgentConfig::new("reader"), "ada"), script).await }
    };
    let alone = reader(&[text_reply("The walrus is 4711.")]).await;
    let mut session = Session::open(&test_host.host(), alone, OpenSession::New).await.unwrap();
    assert!(matches!(run_turn(&mut session, "Which walrus?").await, TurnResult::Finished(_)));
    let mut search = call_reply(&[("memory_search", json!({"query": "walrus"}))]);
    search["expect"] = json!({"lacks": ["retrieved-memory", "4711"]});
    let mut reply = text_reply("I know none.");
    reply["expect"] = json!({"lacks": "4711"});
    let mut lead = for_user(AgentConfig::new("lead"), "ada");
    let delegate =
        Delegate { agent: reader(&[search, reply]).await.into(), description: "Reads.".into(), input_schema: None };
    lead.delegates.insert("reader".to_owned(), delegate);
    let replies = [call_reply(&[("reader", json!({"task": "Which walrus?"}))]), text_reply("Nobody knows.")];
    let mut session = test_host.session(lead, script(&replies)).await;
    assert!(matches!(run_turn(&mut session, "Ask.").await, TurnResult::Finished(_)));
    assert_eq!(results(&test_host, &session).await[0].2, "I know none.");
}

/// D4, D5: The memories of an undone turn are deleted, and are not written again when the session is reopened.
#[tokio::test(flavor = "multi_thread")]
async fn d5_deletes_memories_of_an_undone_turn() {
    let test_host = TestHost::new(&["probe"]).await;
    let call = call_reply(&[("probe.echo", json!({"text": "walrus"}))]);
    let replies = [text_reply("First."), call, text_reply("Second.")];
    let mut session = test_host.session(for_user(with_tree_grant(&test_host, "probe"), "ada"), script(&replies)).await;
    run_turn(&mut session, "One.").await;
    run_turn(&mut session, "Two.").await;
    assert_eq!(memories_of(&test_host, "ada").await.len(), 3);
    session.undo().await.unwrap();
    let remaining_ids =
        async || memories_of(&test_host, "ada").await.into_iter().map(|fact| fact.id).collect::<Vec<_>>();
    let first = format!("{}/1/final", session.subject());
    assert_eq!(remaining_ids().await, std::slice::from_ref(&first));
    session.run(None, CancellationToken::new()).await.unwrap();
    assert_eq!(remaining_ids().await, [first]);
    session.undo().await.unwrap();
    assert_eq!(remaining_ids().await, Vec::<String>::new());
}

/// A store whose long-term memory fails as if the disk were full. The only operation that still works is the deletion
/// of a turn's memories.
struct FullMemoryStore(Arc<SqliteStore>);

fn memory_full<T>() -> Result<T, StoreError> {
    Err(StoreError::DiskFull { path: "memories".into() })
}

#[async_trait]
impl Memories for FullMemoryStore {
    async fn add(&self, _: &str, _: Memory) -> Result<(), StoreError> {
        memory_full()
    }
    async fn remember(&self, _: &StoredOutboxItem) -> Result<(), StoreError> {
        memory_full()
    }
    async fn search(&self, _: &MemoryFilter, _: &str, _: usize) -> Result<Vec<Recollection>, StoreError> {
        memory_full()
    }
    async fn list(&self, _: &str, _: &str, _: usize) -> Result<Vec<StoredMemory>, StoreError> {
        memory_full()
    }
    async fn forget(&self, _: &str, _: &str) -> Result<bool, StoreError> {
        memory_full()
    }
    async fn forget_turn(&self, session: &str, turn: u32) -> Result<u64, StoreError> {
        self.0.forget_turn(session, turn).await
    }
}

/// Implements traits of the store by forwarding each method to the real store.
macro_rules! forward_to_real_store {
    ($($trait:ident { $(fn $name:ident($($argument:ident: $type:ty),*) -> $out:ty;)* })*) => {
        $(#[async_trait]
        impl $trait for FullMemoryStore {
            $(async fn $name(&self, $($argument: $type),*) -> Result<$out, StoreError> {
                $trait::$name(&*self.0, $($argument),*).await
            })*
        })*
    };
}

#[async_trait]
impl Monitoring for FullMemoryStore {
    async fn session_counts(&self) -> Result<Vec<SessionCount>, StoreError> {
        self.0.session_counts().await
    }
    async fn undelivered(&self) -> Result<Undelivered, StoreError> {
        self.0.undelivered().await
    }
    fn write_statistics(&self) -> agent_store::WriteStatistics {
        self.0.write_statistics()
    }
}

impl Clock for FullMemoryStore {
    fn now(&self) -> i64 {
        self.0.now()
    }
}

#[async_trait]
impl Announcements for FullMemoryStore {
    async fn announce(&self, announcements: Vec<Announcement>) {
        self.0.announce(announcements).await;
    }
    fn announcements(&self) -> Option<tokio::sync::broadcast::Receiver<Announcement>> {
        self.0.announcements()
    }
}

forward_to_real_store! {
    SessionRequests {
        fn post_request(key: &RequestKey, content: &str, valid_for: Duration) -> ();
        fn pending_requests(agents: &[String], limit: usize) -> Vec<agent_store::StoredRequest>;
        fn claim_request(key: &RequestKey) -> Option<agent_store::ClaimedRequest>;
        fn answer_request(key: &RequestKey, answer: &str) -> ();
        fn request_state(key: &RequestKey) -> RequestState;
        fn withdraw_request(key: &RequestKey) -> RequestState;
        fn remove_request(key: &RequestKey) -> ();
        fn lost_leases(leases: &[Lease]) -> Vec<Lease>;
    }
    TraceExports {
        fn begin_trace_export(agent: &str) -> ();
        fn unexported_sessions(agents: &[String], after: &str, limit: usize) -> Vec<String>;
        fn claim_trace_exports(sessions: &[String]) -> Vec<(String, ExportPosition)>;
        fn set_export_positions(positions: &[(String, ExportPosition)]) -> Vec<String>;
        fn skip_trace_export(session: &str) -> ();
        fn turn_after(session: &str, position: ExportPosition) -> Option<StoredTurn>;
    }
    Integrity {
        fn integrity_check() -> ();
    }
    Projections {
        fn check_projections(read: StatusReader) -> Vec<ProjectionComparison>;
        fn rebuild_projections(read: StatusReader) -> Vec<RebuiltProjection>;
    }
    SessionLog {
        fn open(session: &str, mode: OpenMode, meta: SessionMeta) -> OpenedSession;
        fn release(lease: Lease) -> ();
        fn commit(lease: &Lease, expected_revision: u64, commit: Commit) -> u64;
        fn messages(session: &str, range: MessageRange) -> Vec<StoredMessage>;
        fn snapshot(session: &str) -> Option<Vec<u8>>;
        fn hidden(session: &str, after: MessageId, limit: usize) -> Vec<HiddenMessage>;
        fn calls(session: &str, filter: CallFilter) -> Vec<CallRecord>;
        fn events(session: &str, after: u64, limit: usize) -> Vec<TimedEvent>;
        fn records(session: &str, range: RecordRange) -> Vec<StoredRecord>;
        fn delete(session: &str) -> Deletion;
    }
    SessionIndex {
        fn sessions(filter: SessionFilter, limit: usize) -> Vec<SessionSummary>;
        fn suspended(agents: &[String], user: Option<&str>, after: Option<ListPosition>, limit: usize) -> Vec<(ListPosition, SessionSummary)>;
        fn latest(agent: &str) -> Option<String>;
        fn unfinished(after: &str, limit: usize) -> Vec<(String, Vec<u8>)>;
        fn continuable(agents: &[String], now: u64, after: &str, limit: usize) -> Vec<ContinuableSession>;
        fn last_events(sessions: &[String]) -> Vec<(String, u64)>;
        fn usage(agents: &[String], user: Option<&str>) -> Vec<UsageTotal>;
        fn search_messages_of(sessions: &SearchedSessions, query: &str, limit: usize) -> Vec<MessageHit>;
        fn search_evicted(session: &str, query: &str, limit: usize) -> Vec<MessageHit>;
    }
    Outbox {
        fn outbox(session: Option<&str>, which: OutboxFilter, after: u64, limit: usize) -> Vec<StoredOutboxItem>;
        fn mark_delivered(number: u64) -> ();
        fn note_failed_delivery(number: u64, problem: &str) -> ();
    }
    Schedules {
        fn schedules(agent: &str) -> Vec<ScheduleState>;
        fn set_schedule(state: ScheduleState) -> ();
        fn remove_schedule(agent: &str, name: &str) -> ();
    }
    Blobs {
        fn put(session: &str, bytes: Vec<u8>, about: MediaDescription) -> Media;
        fn media(session: &str, digest: &Digest) -> Option<Media>;
        fn read(session: &str, digest: &Digest, offset: u64, length: u32) -> Vec<u8>;
        fn put_text(session: &str, text: String) -> Digest;
        fn references(session: &str, after: Option<&Digest>, limit: usize) -> Vec<BlobReference>;
        fn share(from: &str, to: &str, media: &[Digest]) -> ();
        fn text(session: &str, digest: &Digest) -> String;
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
        fn agents_with_grants() -> Vec<String>;
        fn revoke(id: &str) -> bool;
        fn bind_rule(rule: agent_store::NamedRule, identity: Digest) -> Digest;
    }
    Audit {
        fn audit(actions: Vec<AuditAction>) -> ();
        fn audit_entries(since: i64, after: u64, limit: usize) -> Vec<AuditEntry>;
        fn stored_audit_entries(after: u64, limit: usize) -> Vec<StoredAuditEntry>;
        fn last_audit_number() -> u64;
    }
    BudgetLedger {
        fn charged(to: Vec<ChargedTo>) -> Vec<agent_core::budget::Spending>;
        fn charged_in_intervals(bounds: Vec<i64>, filter: ChargeFilter) -> Vec<IntervalCharge>;
    }
    PluginVersions {
        fn set_serving(directory: &str, serving: Vec<ServedPlugin>) -> Vec<VersionChange>;
        fn versions(which: VersionFilter, limit: usize) -> Vec<PluginVersion>;
        fn needed_versions(last: u32) -> Vec<Digest>;
        fn roll_back(rollback: Rollback) -> ();
        fn undo_rollback(directory: &str, plugin: &str) -> bool;
        fn rollbacks(directory: &str) -> Vec<Rollback>;
        fn serving(directory: &str) -> Vec<(String, Digest)>;
        fn trials(directory: &str) -> Vec<StoredTrial>;
        fn add_trial_calls(counted: TrialCalls) -> Option<StoredTrial>;
        fn end_trial(directory: &str, plugin: &str) -> ();
        fn record_turn_plugins(agent: &str, plugins: Vec<(String, Digest)>) -> ();
        fn plugins_without_turns(agent: &str, plugins: Vec<(String, Digest)>) -> Vec<(String, Digest)>;
        fn record_plugin_sources(sources: Vec<PluginSource>) -> ();
        fn plugin_source(plugin: &str, digest: &Digest) -> Option<String>;
    }
}
