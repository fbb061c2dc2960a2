//! A turn can be cancelled at every named checkpoint: while it builds its context, calls its model, waits for a retry,
//! runs a plugin, validates, waits for the user, or checks a result (L29).

use crate::fixture::mcp_server;
use crate::long_work::{BlockedTurns, CancelledTurn, last_event, stop_servers};
use crate::support::{TestHost, call_reply, events, text_reply};
use agent_core::event::EventKind;
use agent_core::loop_break::Finish;
use agent_core::message::{CallId, Part, TurnInput};
use agent_core::run::LoopConfig;
use agent_runtime::{Agent, AgentConfig, Checkpoint, Host, OpenSession, Session, TurnResult, question};
use agent_store::{CallFilter, MessageRange, SessionFilter, SessionIndex, SessionLog};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// A timeout that expires only if a test hangs.
const HANG_TIMEOUT: Duration = Duration::from_secs(60);

/// Records the checkpoints that a turn passes, and can cancel the turn at one of them.
struct CheckpointCounter {
    passed: Mutex<Vec<String>>,
    cancel_at: Option<usize>,
    cancel: CancellationToken,
}

impl CheckpointCounter {
    fn new(cancel_at: Option<usize>) -> Arc<Self> {
        Arc::new(Self { passed: Mutex::default(), cancel_at, cancel: CancellationToken::new() })
    }

    fn pass(&self, checkpoint: &Checkpoint<'_>) {
        let mut passed = self.passed.lock().unwrap();
        if self.cancel_at == Some(passed.len()) {
            self.cancel.cancel();
        }
        passed.push(checkpoint.to_string());
    }
}

async fn agent(test_host: &TestHost) -> Arc<Agent> {
    let mut config = AgentConfig::new("test");
    config.bounds = LoopConfig { finish: Finish::Tool, ..LoopConfig::default() };
    config.context_builder = Some("stateful-builder".to_owned());
    config.validators = vec!["strict-json".to_owned()];
    config.output_schema = Some(json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}));
    let complete = |result: Value| call_reply(&[("task_completion", json!({ "result": result }))]);
    let busy = json!({"text": "Wait", "error": {"status": 503, "message": "busy", "retry_after_ms": 1, "times": 1}});
    let mut echo = call_reply(&[("probe.echo", json!({"text": "hello"})), ("probe.sleep", json!({"ms": 1}))]);
    echo["error"] = busy["error"].clone();
    let replies = [
        echo,
        text_reply("I think."),
        call_reply(&[("ask_question", json!({"question": "Which?"})), ("probe.echo", json!({"text": "meanwhile"}))]),
        complete(json!({"n": "three"})),
        complete(json!({"n": 3})),
        complete(json!({"n": 4})),
    ];
    test_host.agent(config, json!({ "replies": replies })).await
}

async fn open(test_host: &TestHost, agent: &Arc<Agent>, points: &Arc<CheckpointCounter>) -> Session {
    let observed = points.clone();
    let observer = Arc::new(move |checkpoint: Checkpoint<'_>| observed.pass(&checkpoint));
    let host = Host { checkpoint: Some(observer), ..test_host.host() };
    Session::open(&host, agent.clone(), OpenSession::New).await.unwrap()
}

/// Runs the turn and answers its question.
async fn run(session: &mut Session, cancel: &CancellationToken) -> TurnResult {
    let mut input = Some(TurnInput::Text("Find it.".to_owned()));
    loop {
        let running = session.run(input.take(), cancel.clone());
        let result = tokio::time::timeout(HANG_TIMEOUT, running).await.expect("the call hangs").unwrap();
        let TurnResult::Suspended(suspension) = &result else { return result };
        let (call, _) = question(suspension).expect("the turn waits for an answer");
        session.answer(call.clone(), "The third.".to_owned()).await.unwrap();
    }
}

/// Checks that every call has exactly one result and one position in the history, and that the turn has ended once.
async fn check_calls_and_end(test_host: &TestHost, session: &Session, context: &str) {
    let calls = test_host.store.calls(session.subject(), CallFilter::Turn(1)).await.unwrap();
    let messages =
        test_host.store.messages(session.subject(), MessageRange::After { id: 0, limit: 100 }).await.unwrap();
    let answered: Vec<&CallId> = messages
        .iter()
        .flat_map(|message| &message.parts)
        .filter_map(|part| match part {
            Part::ToolResult(result) => Some(&result.call_id),
            _ => None,
        })
        .collect();
    assert_eq!(
        answered,
        calls.iter().map(|call| &call.id).collect::<Vec<_>>(),
        "{context}: each call has one result, in call order"
    );
    assert!(calls.iter().all(|call| call.result.is_some()), "{context}");
    let events = events(test_host, session).await;
    let ends = events.iter().filter(|event| matches!(event.kind, EventKind::LoopEnd { .. })).count();
    assert_eq!(ends, 1, "{context}");
    assert!(
        matches!(events.last().unwrap().kind, EventKind::LoopEnd { .. }),
        "{context}: `loop_end` is the last event"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn l29_a_turn_can_be_cancelled_at_every_named_point() {
    let test_host = TestHost::new(&["probe", "stateful-builder", "strict-json"]).await;
    let agent = agent(&test_host).await;
    let uncancelled = CheckpointCounter::new(None);
    let mut session = open(&test_host, &agent, &uncancelled).await;
    let TurnResult::Finished(output) = run(&mut session, &uncancelled.cancel).await else {
        panic!("without a cancellation, the turn finishes")
    };
    assert_eq!(output.data, json!({"n": 3}));
    session.close().await.unwrap();
    let points = uncancelled.passed.lock().unwrap().clone();
    for input in ["context", "model_failed", "reply", "dispatched", "outcome", "respond", "verdict"] {
        assert!(points.contains(&format!("after-commit:{input}")), "{input} is among {points:?}");
    }
    let mut cancelled = 0;
    for (index, point) in points.iter().enumerate() {
        let points = CheckpointCounter::new(Some(index));
        let mut session = open(&test_host, &agent, &points).await;
        let result = run(&mut session, &points.cancel).await;
        let last = index + 2 >= uncancelled.passed.lock().unwrap().len();
        assert!(result == TurnResult::Cancelled || last, "{point}: {result:?}");
        cancelled += usize::from(result == TurnResult::Cancelled);
        check_calls_and_end(&test_host, &session, point).await;
        // The reopened session has the same state, and continues with the remaining replies of the script.
        let (state, subject) = (session.state().clone(), session.subject().to_owned());
        session.close().await.unwrap();
        let mut session =
            Session::open(&test_host.host(), agent.clone(), OpenSession::Existing(subject)).await.unwrap();
        assert_eq!(*session.state(), state, "{point}");
        let next = run(&mut session, &CancellationToken::new()).await;
        assert!(matches!(next, TurnResult::Finished(_) | TurnResult::Failed(_)), "{point}: {next:?}");
        session.close().await.unwrap();
    }
    assert!(cancelled + 2 >= points.len(), "{cancelled} of {}", points.len());
}

/// L29, L18: A turn that waits for the user can be cancelled, even after its session was closed and reopened.
#[tokio::test(flavor = "multi_thread")]
async fn l29_cancels_a_turn_that_waits_for_the_user() {
    let test_host = TestHost::new(&["probe", "stateful-builder", "strict-json"]).await;
    let agent = agent(&test_host).await;
    let points = CheckpointCounter::new(None);
    let mut session = open(&test_host, &agent, &points).await;
    let running = session.run(Some(TurnInput::Text("Find it.".to_owned())), CancellationToken::new());
    assert!(matches!(running.await.unwrap(), TurnResult::Suspended(_)));
    let subject = session.subject().to_owned();
    session.close().await.unwrap();
    let mut session = Session::open(&test_host.host(), agent, OpenSession::Existing(subject)).await.unwrap();
    let cancel = CancellationToken::new();
    cancel.cancel();
    assert_eq!(session.run(None, cancel).await.unwrap(), TurnResult::Cancelled);
    check_calls_and_end(&test_host, &session, "cancelled while it waits for the user").await;
}

/// L29: A turn can be cancelled during every kind of wait, and its child turns end with it.
#[tokio::test(flavor = "multi_thread")]
async fn l29_cancels_every_kind_of_wait() {
    let test_host = TestHost::new(&["probe", "bad-validator", "stateful-builder"]).await;
    let (folder, generation) = (test_host.directory.path(), test_host.generation().await);
    let blocked_turns = BlockedTurns { folder, generation, mcp_server: mcp_server() };
    let blocked = blocked_turns.all().await;
    assert_eq!(blocked.len(), 11);
    for work in &blocked {
        let host = test_host.host();
        let cancelling = tokio::time::timeout(HANG_TIMEOUT, work.cancel_while_blocked(&host));
        let CancelledTurn { session, result, duration } =
            cancelling.await.unwrap_or_else(|_| panic!("{}: the cancellation hangs", work.operation));
        assert_eq!(result, TurnResult::Cancelled, "{}", work.operation);
        // Without the cancellation, every wait would last at least 20 seconds.
        assert!(duration < Duration::from_secs(5), "{}: {duration:?}", work.operation);
        let children = SessionFilter { delegated_by: Some(session.subject().to_owned()), ..SessionFilter::default() };
        let children = test_host.store.sessions(children, 9).await.unwrap();
        assert!(children.iter().all(|child| child.state.as_str() == "cancelled"), "{}: {children:?}", work.operation);
        assert_eq!(children.len(), usize::from(work.operation.starts_with("another agent")), "{}", work.operation);
        let last = last_event(&*test_host.store, session.subject()).await;
        assert!(
            last.is_some_and(|last| last.contains("\"loop_end\"") && last.contains("cancelled")),
            "{}",
            work.operation
        );
        assert!(session.state().open_calls().next().is_none() && !session.state().is_open(), "{}", work.operation);
        session.close().await.unwrap();
    }
    stop_servers(&blocked).await;
}
