//! The export to a collector that is down, slow, killed or refuses spans: nothing is lost and nothing is doubled (O1).

use crate::receiver::{Answer, Receiver, belongs_to};
use crate::session::{StoredSession, scrubber};
use agent_store::{SqliteStore, Store};
use agent_telemetry::{
    AgentGroup, Collector, CollectorConfig, ContentLevel, ExporterOptions, SendError, TraceExporter,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Spans of a turn with one tool call: the turn, two steps, two model calls and the tool call.
const SPANS_OF_TURN: usize = 6;
const LONG: Duration = Duration::from_secs(3_600);
const PATIENCE: Duration = Duration::from_secs(60);

fn collector(url: &str, timeout: Duration) -> Arc<Collector> {
    let config = CollectorConfig {
        url: url.parse().expect("a URL"),
        headers: BTreeMap::new(),
        secret_headers: BTreeMap::new(),
        project: "tests".to_owned(),
        timeout,
    };
    Arc::new(Collector::new(config).expect("a collector"))
}

fn options() -> ExporterOptions {
    ExporterOptions {
        interval: Duration::from_millis(5),
        rescan_interval: Duration::from_millis(200),
        retry_interval: (Duration::from_millis(10), Duration::from_millis(50)),
        ..ExporterOptions::default()
    }
}

async fn exporter(store: &Arc<dyn Store>, url: &str, options: ExporterOptions) -> TraceExporter {
    exporter_with(store, collector(url, Duration::from_millis(500)), options).await
}

async fn exporter_with(store: &Arc<dyn Store>, collector: Arc<Collector>, options: ExporterOptions) -> TraceExporter {
    let group = AgentGroup {
        agent: "reader".to_owned(),
        delegates: BTreeMap::new(),
        collector,
        scrubber: scrubber(ContentLevel::Shortened),
        max_age: LONG,
    };
    TraceExporter::start(store.clone(), vec![group], options).await
}

fn open(path: &Path) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open(path, Default::default()).expect("a store"))
}

/// Waits until the condition holds.
async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Checks that exactly the spans of `turns` turns of the session `reader/1` have arrived, each once.
async fn expect_turns(receiver: &Receiver, turns: usize) {
    let of_session = || receiver.ids().into_iter().filter(|(.., name)| name != "probe").collect::<Vec<_>>();
    let count =
        |spans: &[(Vec<u8>, Vec<u8>, String)]| spans.iter().filter(|(.., name)| name == "execute_tool read").count();
    eventually("the tool calls have arrived", || count(&of_session()) >= turns).await;
    let traces: Vec<_> =
        of_session().into_iter().filter(|(.., name)| name == "execute_tool read").map(|(trace, ..)| trace).collect();
    let spans = || of_session().into_iter().filter(|(trace, ..)| traces.contains(trace)).collect::<Vec<_>>();
    eventually("all spans have arrived", || spans().len() >= turns * SPANS_OF_TURN).await;
    tokio::time::sleep(Duration::from_millis(60)).await;
    let mut spans = spans();
    assert_eq!(spans.len(), turns * SPANS_OF_TURN, "{spans:?}");
    spans.sort();
    spans.dedup();
    assert_eq!(spans.len(), turns * SPANS_OF_TURN, "no span arrives twice");
}

#[tokio::test]
async fn o1_spans_arrive_once_from_a_collector_that_refuses_them_first() {
    let answers = [
        Answer::Refuse(429, Some("0")),
        Answer::Refuse(500, None),
        Answer::Refuse(503, None),
        Answer::Refuse(401, None),
    ];
    let receiver = Receiver::start(&answers).await;
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open_in_memory().expect("a store"));
    let exporter = exporter(&store, &receiver.url(), options()).await;
    let mut session = StoredSession::open(&store, "reader/1").await;
    for _ in 0..3 {
        session.turn_with_tool("Read.").await;
        exporter.committed("reader", "reader/1");
    }
    expect_turns(&receiver, 3).await;
    assert!(receiver.requests() > answers.len(), "{}", receiver.requests());
    exporter.shutdown(PATIENCE).await.expect("all spans are sent");
}

#[tokio::test]
async fn o1_a_collector_that_is_down_or_killed_loses_nothing() {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open_in_memory().expect("a store"));
    let address = Receiver::start(&[]).await.kill().await;
    let exporter = exporter(&store, &format!("http://{}", address.0), options()).await;
    let mut session = StoredSession::open(&store, "reader/1").await;
    session.turn_with_tool("While it is down.").await;
    exporter.committed("reader", "reader/1");
    tokio::time::sleep(Duration::from_millis(50)).await;
    let receiver = Receiver::restart(address).await;
    expect_turns(&receiver, 1).await;
    // The collector is killed while it handles a request, which it has not accepted.
    receiver.state.lock().expect("not poisoned").answers.push_back(Answer::Slow(LONG));
    let before = receiver.requests();
    session.turn_with_tool("While it is killed.").await;
    exporter.committed("reader", "reader/1");
    eventually("the request has arrived", || receiver.requests() > before).await;
    let receiver = Receiver::restart(receiver.kill().await).await;
    expect_turns(&receiver, 2).await;
    exporter.shutdown(PATIENCE).await.expect("all spans are sent");
}

#[tokio::test]
async fn o1_a_slow_collector_does_not_slow_commits() {
    let receiver = Receiver::start(&[Answer::Slow(LONG)]).await;
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open_in_memory().expect("a store"));
    // This collector never answers the first request, and the exporter waits for it.
    let exporter = exporter_with(&store, collector(&receiver.url(), LONG), options()).await;
    let mut session = StoredSession::open(&store, "reader/1").await;
    session.turn_with_tool("One.").await;
    exporter.committed("reader", "reader/1");
    eventually("the collector hangs", || receiver.requests() == 1).await;
    // All of these turns end while the first request is still unanswered.
    for _ in 0..5 {
        session.turn_with_tool("More.").await;
        exporter.committed("reader", "reader/1");
    }
    assert_eq!((receiver.requests(), receiver.ids().len()), (1, 0));
    drop(exporter);
    let exporter = exporter_with(&store, collector(&receiver.url(), PATIENCE), options()).await;
    expect_turns(&receiver, 6).await;
    exporter.shutdown(PATIENCE).await.expect("all spans are sent");
}

#[tokio::test]
async fn o1_a_restarted_host_continues_where_the_export_stopped() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("agent.db");
    let receiver = Receiver::start(&[]).await;
    {
        let store = open(&path);
        let exporter = exporter(&store, &receiver.url(), options()).await;
        let mut session = StoredSession::open(&store, "reader/1").await;
        session.turn_with_tool("First process.").await;
        exporter.committed("reader", "reader/1");
        expect_turns(&receiver, 1).await;
        // The process stops before it has sent the spans of this turn: the exporter is dropped in the middle.
        session.turn_with_tool("Not sent.").await;
        drop(exporter);
        session.close().await;
    }
    let store = open(&path);
    let mut session = StoredSession::open(&store, "reader/1").await;
    session.turn_with_tool("Second process.").await;
    // The second process finds the session although nobody reports its commits.
    let second = exporter(&store, &receiver.url(), options()).await;
    expect_turns(&receiver, 3).await;
    second.shutdown(PATIENCE).await.expect("all spans are sent");
}

#[tokio::test]
async fn o1_two_processes_do_not_export_a_session_twice() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("agent.db");
    let receiver = Receiver::start(&[]).await;
    let (one, two) = (open(&path), open(&path));
    let first = exporter(&one, &receiver.url(), options()).await;
    let second = exporter(&two, &receiver.url(), options()).await;
    let mut session = StoredSession::open(&one, "reader/1").await;
    for _ in 0..4 {
        session.turn_with_tool("Read.").await;
        first.committed("reader", "reader/1");
        second.committed("reader", "reader/1");
    }
    expect_turns(&receiver, 4).await;
    first.shutdown(PATIENCE).await.expect("all spans are sent");
    second.shutdown(PATIENCE).await.expect("all spans are sent");
}

#[tokio::test]
async fn o1_requests_are_divided_and_refused_spans_are_dropped() {
    let receiver = Receiver::start(&[Answer::Partly(1)]).await;
    receiver.state.lock().expect("not poisoned").max_spans = Some(3);
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open_in_memory().expect("a store"));
    store.begin_trace_export("reader").await.expect("begun");
    let mut session = StoredSession::open(&store, "reader/1").await;
    for _ in 0..4 {
        session.turn_with_tool("Read.").await;
    }
    let exporter = exporter(&store, &receiver.url(), options()).await;
    expect_turns(&receiver, 4).await;
    assert!(receiver.state.lock().expect("not poisoned").largest_request > 3, "the first request was too large");
    // A collector that rejects a request as invalid does not stop the export.
    receiver.state.lock().expect("not poisoned").answers.push_back(Answer::Refuse(400, None));
    session.turn_with_tool("Rejected.").await;
    session.turn_with_tool("Accepted.").await;
    exporter.committed("reader", "reader/1");
    eventually("the last turn has arrived", || {
        receiver.ids().iter().filter(|(.., name)| name == "invoke_agent reader").count() == 5 + 1
            || receiver.ids().len() >= 5 * SPANS_OF_TURN + 3
    })
    .await;
    exporter.shutdown(PATIENCE).await.expect("all spans are sent");
}

#[tokio::test]
async fn o1_sessions_share_requests_and_an_invalid_session_harms_no_other() {
    const SESSIONS: usize = 70;
    let receiver = Receiver::start(&[]).await;
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open_in_memory().expect("a store"));
    store.begin_trace_export("reader").await.expect("begun");
    for number in 0..SESSIONS {
        let mut session = StoredSession::open(&store, &format!("reader/{number}")).await;
        session.turn_with_tool("Read.").await;
        session.close().await;
    }
    let first = exporter(&store, &receiver.url(), options()).await;
    first.shutdown(PATIENCE).await.expect("all spans are sent");
    assert_eq!(receiver.ids().len(), SESSIONS * SPANS_OF_TURN);
    assert_eq!(receiver.requests(), 2, "64 sessions share the first request, and the others share the second");
    // The next turn of one session makes a request invalid. The spans of the other sessions arrive nevertheless, each once.
    receiver.state.lock().expect("not poisoned").invalid_session = Some("reader/3");
    for number in 0..9 {
        let mut session = StoredSession::open(&store, &format!("reader/{number}")).await;
        session.turn_with_tool("Again.").await;
        session.close().await;
    }
    let second = exporter(&store, &receiver.url(), options()).await;
    second.shutdown(PATIENCE).await.expect("the spans are sent or dropped");
    let spans = receiver.state.lock().expect("not poisoned").spans.clone();
    let count = |session: &str| spans.iter().filter(|span| belongs_to(span, session)).count();
    for number in 0..9 {
        let turns = if number == 3 { 1 } else { 2 };
        assert_eq!(count(&format!("reader/{number}")), turns * SPANS_OF_TURN, "reader/{number}");
    }
    let left = store.unexported_sessions(&["reader".to_owned()], "", 9).await;
    assert_eq!(left, Ok(Vec::new()), "the rejected spans are not sent again");
}

#[tokio::test]
async fn o1_earlier_turns_and_old_spans_are_not_sent() {
    let receiver = Receiver::start(&[]).await;
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open_in_memory().expect("a store"));
    let mut session = StoredSession::open(&store, "reader/1").await;
    session.turn_with_tool("Before the export began.").await;
    let exporter = exporter(&store, &receiver.url(), options()).await;
    session.turn_with_tool("After.").await;
    exporter.committed("reader", "reader/1");
    expect_turns(&receiver, 1).await;
    exporter.shutdown(PATIENCE).await.expect("all spans are sent");
    session.turn_with_tool("Old.").await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    let group = AgentGroup {
        agent: "reader".to_owned(),
        delegates: BTreeMap::new(),
        collector: collector(&receiver.url(), PATIENCE),
        scrubber: scrubber(ContentLevel::Off),
        max_age: Duration::from_millis(1),
    };
    let exporter = TraceExporter::start(store.clone(), vec![group], options()).await;
    let skipped = async || {
        while !store.unexported_sessions(&["reader".to_owned()], "", 9).await.expect("a list").is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, skipped()).await.expect("the old turn counts as exported");
    exporter.shutdown(PATIENCE).await.expect("all spans are sent");
    expect_turns(&receiver, 1).await;
}

#[tokio::test]
async fn o1_the_latest_spans_are_sent_at_shutdown() {
    let receiver = Receiver::start(&[]).await;
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open_in_memory().expect("a store"));
    let slow = ExporterOptions { interval: LONG, rescan_interval: LONG, ..options() };
    let exporter = exporter(&store, &receiver.url(), slow).await;
    let mut session = StoredSession::open(&store, "reader/1").await;
    session.turn_with_tool("Read.").await;
    exporter.committed("reader", "reader/1");
    exporter.shutdown(PATIENCE).await.expect("all spans are sent");
    expect_turns(&receiver, 1).await;
}

#[tokio::test]
async fn row_16_a_collector_that_repeats_its_key_does_not_reveal_it() {
    let config = CollectorConfig {
        url: "http://127.0.0.1:9".parse().expect("a URL"),
        headers: BTreeMap::new(),
        secret_headers: BTreeMap::from([("authorization".to_owned(), "Bearer sk-collector-99887766".to_owned())]),
        project: "tests".to_owned(),
        timeout: Duration::from_millis(500),
    };
    let collector = Collector::new(config).expect("a collector");
    let error = collector.send(&[]).await.expect_err("nobody listens");
    assert!(matches!(error, SendError::Retryable { .. }), "{error:?}");
    assert!(!format!("{error:?} {error}").contains("99887766"));
    let text = "the key sk-collector-99887766 is wrong".to_owned();
    assert_eq!(collector.secrets().whole(text), "the key (secret) is wrong");
}

/// O1: the collector of an agent receives the sessions of another agent only while that agent works for it, and no more of their
/// content than the other agent's own file allows. The other agent's own sessions with users are not sent.
#[tokio::test(flavor = "multi_thread")]
async fn o1_the_sessions_of_a_delegate_belong_to_who_began_the_work() {
    let (receiver, folder) = (Receiver::start(&[]).await, tempfile::tempdir().expect("a folder"));
    let store = open(&folder.path().join("agents.db"));
    let group = AgentGroup {
        agent: "lead".to_owned(),
        delegates: [("reader".to_owned(), scrubber(ContentLevel::Off))].into(),
        collector: collector(&receiver.url(), PATIENCE),
        scrubber: scrubber(ContentLevel::Complete),
        max_age: LONG,
    };
    let exporter = TraceExporter::start(store.clone(), vec![group], options()).await;
    for (subject, agent, delegated_by, input) in [
        ("reader/1", "reader", None, "A private question."),
        ("lead/1", "lead", None, "A question to lead."),
        ("lead/1/reader", "reader", Some("lead/1"), "A task for the reader."),
    ] {
        let mut session = StoredSession::open_as(&store, subject, agent, delegated_by).await;
        session.turn_with_tool(input).await;
        session.close().await;
        exporter.committed(agent, subject);
    }
    expect_turns(&receiver, 2).await;
    exporter.shutdown(PATIENCE).await.expect("all spans are sent");
    let received = receiver.state.lock().expect("no panic");
    let text = format!("{:?}", received.spans);
    assert!(text.contains("A question to lead."), "{text}");
    assert!(text.contains("lead/1/reader") && !text.contains("A task for the reader."), "{text}");
    assert!(!text.contains("reader/1\"") && !text.contains("A private question."), "{text}");
}
