//! A supervisor acts without a request: deadlines, interrupted turns, and parents and children of delegated work (I9, D3,
//! L16).

use super::{
    PATIENCE, child_of, children_of, create, delegation, events, is_agent_wait, prompt, summary, supervisor, until,
    until_closed, until_end, until_suspended,
};
use crate::support::{TestHost, call_reply, script, text_reply, with_tree_grant};
use agent_core::approval::GrantScope;
use agent_core::cloud_event::CloudEvent;
use agent_core::event::EventKind;
use agent_core::loop_break::Finish;
use agent_core::message::TurnInput;
use agent_runtime::transfer::{ImportAs, export, import};
use agent_runtime::{
    Accepted, AgentConfig, ApprovalDecision, Delegate, Host, OpenSession, RequestProblem, ServiceConfig, Session,
    SessionRequest, TurnResult, Verdict,
};
use agent_store::{Commit, OpenMode, SessionLog, SessionMeta, SessionState, Status};
use serde_json::json;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

fn allow(call: agent_core::message::CallId) -> SessionRequest {
    let verdict = Verdict::Allow { scope: GrantScope::Once, edited: None };
    SessionRequest::Approve(vec![ApprovalDecision { call, verdict }])
}

fn pay() -> serde_json::Value {
    call_reply(&[("payer.pay", json!({"to": "ann", "amount": 3}))])
}

/// L17, I9: the turn continues by itself after the last answer.
#[tokio::test(flavor = "multi_thread")]
async fn i9_l17_an_approval_continues_the_turn() {
    let test_host = TestHost::new(&["payer"]).await;
    let agent = test_host.agent(with_tree_grant(&test_host, "payer"), script(&[pay(), text_reply("Paid.")])).await;
    let supervisor = supervisor(&test_host, &[&agent]);
    let session = create(&supervisor, "test", "Pay.").await;
    let mut events = events(&supervisor, &session);
    let calls = until_suspended(&mut events).await;
    until_closed(&test_host, &session, SessionState::Suspended).await;
    let accepted = supervisor.send(&session, allow(calls[0].clone())).await;
    assert_eq!(accepted, Ok(Accepted::Stored { violations: Vec::new(), waits: Vec::new() }));
    until_end(&mut events).await;
    assert!(std::fs::read_to_string(test_host.tree().join("ledger.txt")).unwrap().contains("ann"));
    supervisor.shutdown().await;
}

/// L10, I9, row 29: the deadline of a service passes without a request. An answer that arrives afterwards is too late.
#[tokio::test(flavor = "multi_thread")]
async fn i9_row_29_a_deadline_ends_a_wait() {
    let test_host = TestHost::new(&[]).await;
    let mut config = AgentConfig::new("buyer");
    let service = ServiceConfig::new("com.example.pay".parse().unwrap());
    config.services.insert("pay".into(), ServiceConfig { answer_within: Some(Duration::from_millis(600)), ..service });
    let replies = [
        call_reply(&[("pay", json!({}))]),
        json!({"chunks": ["No ", "answer."], "delay_ms": 400, "expect": {"last_contains": "unavailable"}}),
    ];
    let agent = test_host.agent(config, script(&replies)).await;
    let supervisor = supervisor(&test_host, &[&agent]);
    let session = create(&supervisor, "buyer", "Buy.").await;
    let mut events = events(&supervisor, &session);
    let call = until_suspended(&mut events).await.remove(0);
    until_closed(&test_host, &session, SessionState::Suspended).await;
    until(&mut events, |kind| matches!(kind, EventKind::StreamToken { .. })).await;
    let late =
        json!({"specversion": "1.0", "id": "e1", "source": "/test", "type": "paid", "parentid": call, "data": {}});
    let late = CloudEvent::parse(late.to_string().as_bytes()).expect("an event");
    let answer = supervisor.send(&session, SessionRequest::Respond(Box::new(late))).await;
    assert_eq!(answer, Ok(Accepted::Late), "the answer is judged while the model writes");
    until_end(&mut events).await;
    supervisor.shutdown().await;
}

/// L17, I9: a call that nobody decides about in time is not allowed, and the turn continues by itself.
#[tokio::test(flavor = "multi_thread")]
async fn i9_l17_an_approval_request_expires() {
    let test_host = TestHost::new(&["payer"]).await;
    let mut config = with_tree_grant(&test_host, "payer");
    config.bounds.approval_within_ms = Some(400);
    let after = json!({"text": "Not paid.", "expect": {"last_contains": "nobody decided in time"}});
    let agent = test_host.agent(config, script(&[pay(), after])).await;
    let supervisor = supervisor(&test_host, &[&agent]);
    let session = create(&supervisor, "test", "Pay.").await;
    let mut events = events(&supervisor, &session);
    let call = until_suspended(&mut events).await.remove(0);
    until_end(&mut events).await;
    until_closed(&test_host, &session, SessionState::Idle).await;
    assert!(!test_host.tree().join("ledger.txt").exists(), "the call did not run");
    let late = supervisor.send(&session, allow(call)).await.expect_err("no call waits any more");
    assert_eq!(late.kind, RequestProblem::Conflict, "{late}");
    supervisor.shutdown().await;
}

/// L18, I9: a question that nobody answers in time ends the turn.
#[tokio::test(flavor = "multi_thread")]
async fn i9_l18_a_question_expires() {
    let test_host = TestHost::new(&[]).await;
    let mut config = AgentConfig::new("asker");
    (config.bounds.finish, config.bounds.answer_within_ms) = (Finish::Tool, Some(400));
    let ask = call_reply(&[("ask_question", json!({"question": "Which one?"}))]);
    let agent = test_host.agent(config, script(&[ask])).await;
    let supervisor = supervisor(&test_host, &[&agent]);
    let session = create(&supervisor, "asker", "Go.").await;
    let ended = until_end(&mut events(&supervisor, &session)).await;
    assert_eq!(serde_json::to_value(ended).unwrap()["reason"], "asked");
    supervisor.shutdown().await;
}

/// D3, I9: a turn that was interrupted, and a prompt that was queued, continue after a restart without a request.
#[tokio::test(flavor = "multi_thread")]
async fn d3_interrupted_turns_and_queued_prompts_continue_after_a_restart() {
    let test_host = TestHost::new(&[]).await;
    let replies = [
        json!({"chunks": ["One ", "two."], "delay_ms": 500}),
        json!({"text": "Three.", "expect": {"last_contains": "And?"}}),
    ];
    let agent = test_host.agent(AgentConfig::new("clerk"), script(&replies)).await;
    let first = supervisor(&test_host, &[&agent]);
    let session = create(&first, "clerk", "Go.").await;
    until(&mut events(&first, &session), |kind| matches!(kind, EventKind::StreamToken { .. })).await;
    assert_eq!(first.send(&session, SessionRequest::Prompt(prompt("And?"))).await, Ok(Accepted::Queued));
    first.shutdown().await;
    until_closed(&test_host, &session, SessionState::Running).await;
    let second = supervisor(&test_host, &[&agent]);
    let mut events = events(&second, &session);
    until_end(&mut events).await;
    until_end(&mut events).await;
    assert_eq!(until_closed(&test_host, &session, SessionState::Idle).await.turns, 2);
    second.shutdown().await;
}

/// I9, D3: a prompt that opens a session in which an equal prompt waits has a turn of its own, after the one that waits. A process
/// that stopped after the end of a turn has left the prompt that waits.
#[tokio::test(flavor = "multi_thread")]
async fn i9_a_prompt_never_replaces_an_equal_one_that_waits() {
    let test_host = TestHost::new(&[]).await;
    let mut config = AgentConfig::new("asker");
    config.bounds.finish = Finish::Tool;
    let ask = call_reply(&[("ask_question", json!({"question": "Which one?"}))]);
    let done = || call_reply(&[("task_completion", json!({"result": "Done."}))]);
    let agent = test_host.agent(config, script(&[ask, done(), done(), done()])).await;
    // A supervisor may continue a session before the prompt arrives, so there are several sessions.
    let mut sessions = Vec::new();
    for _ in 0..8 {
        let mut session = Session::open(&test_host.host(), agent.clone(), OpenSession::New).await.unwrap();
        let go = |text: &str| Some(TurnInput::Text(text.to_owned()));
        session.run(go("Go."), CancellationToken::new()).await.unwrap();
        session.queue_prompt(TurnInput::Text("Go on.".to_owned())).await.unwrap();
        let call = session.state().waits().remove(0).call;
        session.answer(call, "The red one.".to_owned()).await.unwrap();
        session.run(None, CancellationToken::new()).await.unwrap();
        sessions.push(session.subject().to_owned());
        session.close().await.unwrap();
    }
    let supervisor = supervisor(&test_host, &[&agent]);
    let sent = sessions.iter().map(|session| supervisor.send(session, SessionRequest::Prompt(prompt("Go on."))));
    for accepted in futures::future::join_all(sent).await {
        assert!(matches!(accepted, Ok(Accepted::Queued | Accepted::Started { turn: 3 })), "{accepted:?}");
    }
    for session in &sessions {
        let turns = async {
            while summary(&test_host, session).await.turns < 3 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, turns).await.expect("each prompt has a turn");
    }
    supervisor.shutdown().await;
}

fn delegate(agent: &std::sync::Arc<agent_runtime::Agent>) -> Delegate {
    Delegate { agent: agent.clone().into(), description: "Works.".to_owned(), input_schema: None }
}

/// L16, I9: an approval for a delegated session continues this session, and then its parent, without another request.
#[tokio::test(flavor = "multi_thread")]
async fn i9_l16_a_finished_child_resumes_its_parent() {
    let test_host = TestHost::new(&["payer"]).await;
    let payer = AgentConfig { name: "payer-agent".to_owned(), ..with_tree_grant(&test_host, "payer") };
    let payer = test_host.agent(payer, script(&[pay(), text_reply("Paid 3.")])).await;
    let mut config = AgentConfig::new("lead");
    config.delegates.insert("payer-agent".to_owned(), delegate(&payer));
    let end = json!({"text": "Done.", "expect": {"last_contains": "Paid 3."}});
    let lead = test_host.agent(config, script(&[delegation("payer-agent"), end])).await;
    let supervisor = supervisor(&test_host, &[&lead, &payer]);
    let parent = create(&supervisor, "lead", "Pay.").await;
    let mut of_parent = events(&supervisor, &parent);
    let suspended = until(&mut of_parent, |kind| matches!(kind, EventKind::Suspended { .. })).await;
    let EventKind::Suspended { suspension } = suspended else { unreachable!("only this kind is accepted") };
    assert!(suspension.waits.iter().all(|wait| is_agent_wait(&wait.cause)), "{suspension:?}");
    let child = child_of(&test_host, &parent).await;
    let call = until_suspended(&mut events(&supervisor, &child)).await.remove(0);
    supervisor.send(&child, allow(call)).await.expect("the approval is stored");
    until_end(&mut of_parent).await;
    until_closed(&test_host, &parent, SessionState::Idle).await;
    supervisor.shutdown().await;
}

/// L16, I9: when a parent is cancelled, its child that waits is cancelled too.
#[tokio::test(flavor = "multi_thread")]
async fn i9_l16_a_cancelled_parent_cancels_its_children() {
    let test_host = TestHost::new(&["payer"]).await;
    let payer = AgentConfig { name: "payer-agent".to_owned(), ..with_tree_grant(&test_host, "payer") };
    let payer = test_host.agent(payer, script(&[pay(), text_reply("Paid 3.")])).await;
    let mut config = AgentConfig::new("lead");
    config.delegates.insert("payer-agent".to_owned(), delegate(&payer));
    let lead = test_host.agent(config, script(&[delegation("payer-agent")])).await;
    let supervisor = supervisor(&test_host, &[&lead, &payer]);
    let parent = create(&supervisor, "lead", "Pay.").await;
    let child = child_of(&test_host, &parent).await;
    until_suspended(&mut events(&supervisor, &child)).await;
    assert_eq!(supervisor.send(&parent, SessionRequest::Cancel).await, Ok(Accepted::Cancelled));
    until_closed(&test_host, &child, SessionState::Cancelled).await;
    supervisor.shutdown().await;
}

/// D3, L16: the process stopped after it committed the delegation and before it created the child's session. The
/// supervisor of the next process creates the session.
#[tokio::test(flavor = "multi_thread")]
async fn d3_a_delegation_without_a_child_continues() {
    let test_host = TestHost::new(&[]).await;
    let reader = test_host.agent(AgentConfig::new("reader"), script(&[text_reply("Read.")])).await;
    let mut config = AgentConfig::new("lead");
    config.delegates.insert("reader".to_owned(), delegate(&reader));
    let end = json!({"text": "Done.", "expect": {"last_contains": "Read."}});
    let lead = test_host.agent(config, script(&[delegation("reader"), end])).await;
    // The host leaves immediately after the commit that hands the call to the child.
    let leaving = CancellationToken::new();
    let leave = leaving.clone();
    let observer = move |point: agent_runtime::Checkpoint<'_>| {
        if point == agent_runtime::Checkpoint::AfterCommit("dispatched") {
            leave.cancel();
        }
    };
    let host = Host { checkpoint: Some(std::sync::Arc::new(observer)), leaving, ..test_host.host() };
    let mut session = Session::open(&host, lead.clone(), OpenSession::New).await.unwrap();
    let subject = session.subject().to_owned();
    let result = session.run(Some(TurnInput::Text("Go.".to_owned())), CancellationToken::new()).await.unwrap();
    assert_eq!(result, TurnResult::Interrupted);
    session.close().await.unwrap();
    assert!(children_of(&test_host, &subject).await.is_empty());
    let supervisor = supervisor(&test_host, &[&lead, &reader]);
    until_end(&mut events(&supervisor, &subject)).await;
    supervisor.shutdown().await;
}

/// D3, I9: a session that cannot be opened is tried again later, and meanwhile the other sessions continue.
#[tokio::test(flavor = "multi_thread")]
async fn i9_a_session_that_cannot_continue_does_not_stop_others() {
    let test_host = TestHost::new(&[]).await;
    let agent = test_host.agent(AgentConfig::new("clerk"), script(&[text_reply("One.")])).await;
    let meta = SessionMeta { agent: "clerk".to_owned(), ..SessionMeta::default() };
    let opened = test_host.store.open("clerk/newer", OpenMode::CreateNew, meta).await.unwrap();
    let status = Status { state: SessionState::Running, turn: 1, continues_at: Some(0), ..Status::default() };
    let commit = Commit { snapshot: br#"{"version": 999}"#.to_vec(), status, ..Commit::default() };
    test_host.store.commit(&opened.lease, 0, commit).await.unwrap();
    test_host.store.release(opened.lease).await.unwrap();
    let supervisor = supervisor(&test_host, &[&agent]);
    let refused = supervisor.send("clerk/newer", SessionRequest::Continue).await.expect_err("a newer host wrote it");
    assert!(refused.message.contains("version 999"), "{refused}");
    let session = create(&supervisor, "clerk", "Go.").await;
    until_end(&mut events(&supervisor, &session)).await;
    assert_eq!(until_closed(&test_host, "clerk/newer", SessionState::Running).await.revision, 1);
    supervisor.shutdown().await;
}

/// I9: a sender that stops waiting while a session is being opened leaves no lease behind.
#[tokio::test(flavor = "multi_thread")]
async fn i9_an_abandoned_request_leaves_the_session_usable() {
    let test_host = TestHost::new(&[]).await;
    let agent = test_host.agent(AgentConfig::new("clerk"), script(&[text_reply("One."), text_reply("Two.")])).await;
    let supervisor = supervisor(&test_host, &[&agent]);
    let session = create(&supervisor, "clerk", "Go.").await;
    until_end(&mut events(&supervisor, &session)).await;
    for round in 0..40 {
        until_closed(&test_host, &session, SessionState::Idle).await;
        let abandoned = supervisor.send(&session, SessionRequest::Continue);
        let _ = tokio::time::timeout(Duration::from_micros(round * 100), abandoned).await;
    }
    let begun = supervisor.send(&session, SessionRequest::Prompt(prompt("More."))).await;
    assert_eq!(begun, Ok(Accepted::Started { turn: 2 }));
    supervisor.shutdown().await;
}

/// L16, L29, I9: a parent is cancelled while its child works in a task of its own, because a user has answered the child.
/// Prompts that would change the child's result are refused.
#[tokio::test(flavor = "multi_thread")]
async fn i9_l16_a_child_that_works_by_itself_is_cancelled_with_its_parent() {
    let test_host = TestHost::new(&["payer"]).await;
    let payer = AgentConfig { name: "payer-agent".to_owned(), ..with_tree_grant(&test_host, "payer") };
    let slow = json!({"chunks": ["Paid ", "3."], "delay_ms": 60_000});
    let payer = test_host.agent(payer, script(&[pay(), slow])).await;
    let mut config = AgentConfig::new("lead");
    config.delegates.insert("payer-agent".to_owned(), delegate(&payer));
    let lead = test_host.agent(config, script(&[delegation("payer-agent")])).await;
    let supervisor = supervisor(&test_host, &[&lead, &payer]);
    let parent = create(&supervisor, "lead", "Pay.").await;
    let child = child_of(&test_host, &parent).await;
    let mut of_child = events(&supervisor, &child);
    let call = until_suspended(&mut of_child).await.remove(0);
    until_closed(&test_host, &child, SessionState::Suspended).await;
    supervisor.send(&child, allow(call)).await.expect("the approval is stored");
    until(&mut of_child, |kind| matches!(kind, EventKind::ToolResult { .. })).await;
    let refused = supervisor.send(&child, SessionRequest::Prompt(prompt("Pay more."))).await.expect_err("a child");
    assert_eq!(refused.kind, RequestProblem::Conflict, "{refused}");
    assert_eq!(supervisor.send(&parent, SessionRequest::Cancel).await, Ok(Accepted::Cancelled));
    until_closed(&test_host, &child, SessionState::Cancelled).await;
    supervisor.shutdown().await;
}

/// P14, I9: nobody on this host has begun the turn of an imported session, so the turn continues only on request.
#[tokio::test(flavor = "multi_thread")]
async fn i9_p14_an_imported_turn_continues_only_on_request() {
    let test_host = TestHost::new(&[]).await;
    let replies = [json!({"chunks": ["One ", "two."], "delay_ms": 300})];
    let agent = test_host.agent(AgentConfig::new("clerk"), script(&replies)).await;
    let first = supervisor(&test_host, &[&agent]);
    let session = create(&first, "clerk", "Go.").await;
    until(&mut events(&first, &session), |kind| matches!(kind, EventKind::StreamToken { .. })).await;
    first.shutdown().await;
    let mut document = Vec::new();
    export(&*test_host.store, &session, &mut document).await.unwrap();
    import(&*test_host.store, &document, ImportAs::Subject("clerk/copy".to_owned())).await.unwrap();
    let imported = until_closed(&test_host, "clerk/copy", SessionState::Running).await;
    let second = supervisor(&test_host, &[&agent]);
    until_end(&mut events(&second, &session)).await;
    assert_eq!(until_closed(&test_host, "clerk/copy", SessionState::Running).await.revision, imported.revision);
    second.send("clerk/copy", SessionRequest::Continue).await.expect("the session continues");
    until_closed(&test_host, "clerk/copy", SessionState::Idle).await;
    second.shutdown().await;
}
