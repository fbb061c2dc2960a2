//! Services: calls that the host sends as CloudEvents, and turns that wait for the answers across restarts (L1, L8,
//! L10, L11, L15, P2, I6, D2, D6; rows 29 and 32).

use crate::support::{
    TestHost, base_call_id, call_reply, event_types, results, run_turn, script, script_expecting_messages, text_reply,
    with_events_and_media,
};
use agent_core::approval::{ApprovalPolicy, GrantScope};
use agent_core::change::OutboxEffect;
use agent_core::cloud_event::CloudEvent;
use agent_core::event::WaitCause;
use agent_core::message::{CallId, TurnInput};
use agent_core::run::{Decision, RestoreError, TurnError};
use agent_plugins::{Access, TreeGrant};
use agent_runtime::outbox::file_name;
use agent_runtime::{
    Agent, AgentConfig, ApprovalDecision, Emission, OpenSession, RespondError, ResponseOutcome, ServiceConfig, Session,
    SessionError, TurnResult, Verdict,
};
use agent_store::{Commit, OpenMode, Outbox, OutboxFilter, SessionLog, SessionMeta, SessionState, Status};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Configures an agent with two services and a granted folder for the host's own tools.
fn config(test_host: &TestHost) -> AgentConfig {
    let mut config = AgentConfig::new("buyer");
    config.host_trees = vec![TreeGrant { host: test_host.tree(), guest: "docs".to_owned(), access: Access::Read }];
    let accepts = json!({
        "type": "object", "required": ["amount", "parentSubject$$"], "additionalProperties": false,
        "properties": {"amount": {"type": "number", "minimum": 0}, "parentSubject$$": {"type": "string"}},
    });
    let receipt = json!({"type": "object", "required": ["receipt"], "properties": {"receipt": {"type": "string"}}});
    let payments = ServiceConfig {
        accepts,
        emits: [("com.example.paid".to_owned(), receipt)].into(),
        domain: Some("eu".to_owned()),
        ..ServiceConfig::new("com.example.pay".parse().unwrap())
    };
    config.services.insert("payments".to_owned(), payments);
    config.services.insert("shipping.order".to_owned(), ServiceConfig::new("com.example.ship".parse().unwrap()));
    config
}

/// Returns a reply with three calls: a service, a tool that runs immediately, and another service.
fn two_services_and_a_tool() -> Value {
    call_reply(&[
        ("payments", json!({"amount": 3, "parentSubject$$": "somebody else"})),
        ("list_directory", json!({"path": "docs"})),
        ("shipping.order", json!({"to": "Bern"})),
    ])
}

fn answer_event(call: &str, event_type: &str, data: Value) -> CloudEvent {
    let event = json!({"specversion": "1.0", "id": "e1", "source": "/test", "type": event_type, "parentid": call, "data": data});
    CloudEvent::parse(event.to_string().as_bytes()).expect("an event")
}

fn payment_answer(call: &str) -> CloudEvent {
    answer_event(call, "com.example.paid", json!({"receipt": "R-7"}))
}

async fn reopen(test_host: &TestHost, agent: &Arc<Agent>, session: Session) -> Session {
    let subject = session.subject().to_owned();
    session.close().await.unwrap();
    Session::open(&test_host.host(), agent.clone(), OpenSession::Existing(subject)).await.unwrap()
}

async fn continue_turn(session: &mut Session) -> TurnResult {
    session.run(None, CancellationToken::new()).await.unwrap()
}

fn calls_waited_for(result: &TurnResult) -> Vec<String> {
    let TurnResult::Suspended(suspension) = result else { panic!("{result:?}") };
    suspension.waits.iter().map(|wait| base_call_id(&wait.call.0)).collect()
}

fn remaining_calls(responded: ResponseOutcome) -> usize {
    let ResponseOutcome::Taken { violations, waits } = responded else { panic!("{responded:?}") };
    assert_eq!(violations, []);
    waits.len()
}

async fn requests(test_host: &TestHost, session: &Session, which: OutboxFilter) -> Vec<CloudEvent> {
    let items = test_host.store.outbox(Some(session.subject()), which, 0, 100).await.unwrap();
    let events = items.into_iter().map(|item| match item.item.effect {
        OutboxEffect::Event(event) => event.into_inner(),
        other => panic!("{other:?}"),
    });
    events.collect()
}

/// L10, L15, L3, I6: The answers of two services can arrive in any order, with or without a restart between them.
#[tokio::test(flavor = "multi_thread")]
async fn l10_two_services_and_a_local_tool_answer_in_every_order() {
    for (order, restarts) in [([1, 3], false), ([1, 3], true), ([3, 1], false), ([3, 1], true)] {
        let test_host = TestHost::new(&[]).await;
        std::fs::write(test_host.tree().join("a.txt"), "a").unwrap();
        let requests_seen: [&[&str]; 2] = [&["user 0"], &["user 1", "assistant 1", "tool 0", "tool 0", "tool 0"]];
        let agent = test_host
            .agent(
                config(&test_host),
                script_expecting_messages([two_services_and_a_tool(), text_reply("Done.")], requests_seen),
            )
            .await;
        let mut session = Session::open(&test_host.host(), agent.clone(), OpenSession::New).await.unwrap();
        let result = run_turn(&mut session, "Buy it.").await;
        assert_eq!(calls_waited_for(&result), ["call_1_1_1", "call_1_1_3"]);
        let listed = test_host.store.calls(session.subject(), agent_store::CallFilter::Turn(1)).await.unwrap();
        assert!(listed[1].result.is_some(), "every call that can run has run before the turn waits");
        assert!(
            !event_types(&test_host, &session).await.contains(&"loop_end".to_owned()),
            "L30: the turn has not ended"
        );
        assert_eq!(
            calls_waited_for(&continue_turn(&mut session).await),
            ["call_1_1_1", "call_1_1_3"],
            "the turn still waits for both calls"
        );

        let answer_of = |index: i32| match index {
            1 => payment_answer("call_1_1_1"),
            _ => answer_event("call_1_1_3", "anything", json!("on its way")),
        };
        let [first, second] = order;
        assert_eq!(remaining_calls(session.respond(answer_of(first)).await.unwrap()), 1);
        assert_eq!(calls_waited_for(&continue_turn(&mut session).await), [format!("call_1_1_{second}")]);
        if restarts {
            session = reopen(&test_host, &agent, session).await;
        }
        assert_eq!(session.respond(answer_of(first)).await.unwrap(), ResponseOutcome::Duplicate);
        assert_eq!(remaining_calls(session.respond(answer_of(second)).await.unwrap()), 0);
        let TurnResult::Finished(output) = continue_turn(&mut session).await else { panic!() };
        assert_eq!((output.data, output.interactions), (json!("Done."), 2));
        let [paid, listed, shipped] = results(&test_host, &session).await.try_into().unwrap();
        assert_eq!(paid, ("payments".to_owned(), false, r#"{"receipt":"R-7"}"#.to_owned()));
        assert!(listed.2.contains("a.txt"), "{listed:?}");
        assert_eq!(shipped, ("shipping.order".to_owned(), false, "on its way".to_owned()));
        assert_eq!(
            session.respond(answer_of(second)).await.unwrap(),
            ResponseOutcome::Duplicate,
            "the answer is also a duplicate after the end of the turn"
        );
        let types = event_types(&test_host, &session).await;
        assert_eq!(types.iter().filter(|kind| *kind == "resumed").count(), 1);
        assert_eq!(types.iter().filter(|kind| *kind == "suspended").count(), 2, "{types:?}");
    }
}

/// I6, D2, L15: The requests in the outbox have every attribute that a CloudEvent for a service must have.
#[tokio::test(flavor = "multi_thread")]
async fn i6_requests_have_every_required_field() {
    let test_host = TestHost::new(&[]).await;
    let mut session =
        test_host.session(config(&test_host), script(&[two_services_and_a_tool(), text_reply("Done.")])).await;
    run_turn(&mut session, "Buy it.").await;
    let [pay, ship] = requests(&test_host, &session, OutboxFilter::Pending).await.try_into().unwrap();
    let trace = session.state().turn.as_ref().unwrap().trace.traceparent.clone();
    let parent = pay.traceparent.clone().unwrap();
    assert_eq!(parent[..36], trace[..36], "the request is in the turn's trace");
    assert_ne!(parent, trace, "the span is new");
    assert!(pay.time.is_some());
    let expected = CloudEvent {
        specversion: "1.0".into(),
        id: pay.id.clone(),
        source: "agent-host/buyer".into(),
        event_type: "com.example.pay".into(),
        subject: Some(session.subject().into()),
        time: pay.time.clone(),
        datacontenttype: Some("application/json".into()),
        parentid: None,
        domain: Some("eu".into()),
        deduplicationid: Some(pay.id.clone()),
        traceparent: Some(parent),
        tracestate: None,
        // The host overwrites the value that the model wrote into the reserved field.
        data: Some(json!({"amount": 3, "parentSubject$$": session.subject()})),
    };
    assert_eq!(pay, expected);
    assert_eq!(base_call_id(&pay.id), "call_1_1_1");
    assert_eq!(
        (base_call_id(&ship.id).as_str(), ship.domain, ship.data),
        ("call_1_1_3", None, Some(json!({"to": "Bern"})))
    );
    let agent = session.agent();
    let offered = agent.registry().offered();
    assert!(
        offered.iter().all(|tool| !tool.input_schema.to_string().contains("parentSubject")),
        "L15: the reserved field is not offered"
    );
}

/// L10, I6, row 29: Each kind of invalid answer is refused with an error that contains the reason, and changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn row_29_refuses_answers_that_match_no_open_call() {
    let test_host = TestHost::new(&[]).await;
    let mut session =
        test_host.session(config(&test_host), script(&[two_services_and_a_tool(), text_reply("Done.")])).await;
    run_turn(&mut session, "Buy it.").await;
    let before = session.state().clone();
    let mut without_parent = payment_answer("call_1_1_1");
    without_parent.parentid = None;
    assert!(matches!(session.respond(without_parent).await, Err(RespondError::NoParent)));
    let mut foreign = payment_answer("call_1_1_1");
    foreign.subject = Some("buyer/other".into());
    assert!(matches!(session.respond(foreign).await, Err(RespondError::OtherSubject { .. })));
    let unknown = session.respond(payment_answer("call_9_9_9")).await.unwrap_err().to_string();
    assert!(
        unknown.contains("`parentid` is `call_9_9_9`")
            && unknown.contains("`call_1_1_1_")
            && unknown.contains("` (payments)"),
        "{unknown}"
    );
    let wrong_type = session.respond(answer_event("call_1_1_1", "com.example.lost", json!({}))).await.unwrap_err();
    assert!(wrong_type.to_string().contains("expected types: `com.example.paid`"), "{wrong_type}");
    let of_a_local_tool = session.respond(payment_answer("call_1_1_2")).await.unwrap();
    assert_eq!(of_a_local_tool, ResponseOutcome::Late, "the call already has the result of its tool");
    assert_eq!(*session.state(), before, "the state is unchanged");
    let mut with_own_subject = payment_answer("call_1_1_1");
    with_own_subject.subject = Some(session.subject().to_owned());
    assert_eq!(remaining_calls(session.respond(with_own_subject).await.unwrap()), 1);
    let different_answer = answer_event("call_1_1_1", "com.example.paid", json!({"receipt": "R-8"}));
    assert_eq!(session.respond(different_answer).await.unwrap(), ResponseOutcome::Late, "a different second answer");
    assert_eq!(results_so_far(&test_host, &session).await[0], Some(r#"{"receipt":"R-7"}"#.to_owned()));
}

async fn results_so_far(test_host: &TestHost, session: &Session) -> Vec<Option<String>> {
    let calls = test_host.store.calls(session.subject(), agent_store::CallFilter::Turn(1)).await.unwrap();
    let text = |result: agent_core::change::CallResult| agent_core::view::result_text(&result.content);
    calls.into_iter().map(|call| call.result.map(text)).collect()
}

/// I6: If an answer violates the schema in `emits`, the call gets an error result that names the JSON pointer and the
/// violated rule. The answer is checked against the contract at the time of the request, even if the configuration has
/// changed since then (L1).
#[tokio::test(flavor = "multi_thread")]
async fn i6_an_answer_that_violates_its_schema_is_an_error_result() {
    let test_host = TestHost::new(&[]).await;
    let replies = script(&[call_reply(&[("payments", json!({"amount": 3}))]), text_reply("It failed.")]);
    let agent = test_host.agent(config(&test_host), replies.clone()).await;
    let mut session = Session::open(&test_host.host(), agent, OpenSession::New).await.unwrap();
    run_turn(&mut session, "Pay.").await;
    let changed = test_host.agent(AgentConfig::new("buyer"), replies).await;
    let mut session = reopen(&test_host, &changed, session).await;
    let wrong = answer_event("call_1_1_1", "com.example.paid", json!({"receipt": 7}));
    let ResponseOutcome::Taken { violations, waits } = session.respond(wrong).await.unwrap() else { panic!() };
    assert_eq!((violations[0].pointer.as_str(), waits.len()), ("/receipt", 0));
    let TurnResult::Finished(_) = continue_turn(&mut session).await else { panic!() };
    let [(_, is_error, text)] = results(&test_host, &session).await.try_into().unwrap();
    assert!(is_error && text.contains("/receipt violates `type`"), "{text}");
}

/// L8: Arguments that violate the schema in `accepts` are never sent.
#[tokio::test(flavor = "multi_thread")]
async fn l8_invalid_arguments_are_never_sent() {
    let test_host = TestHost::new(&[]).await;
    let replies = script(&[call_reply(&[("payments", json!({"amount": -1}))]), text_reply("I cannot.")]);
    let mut session = test_host.session(config(&test_host), replies).await;
    assert!(matches!(run_turn(&mut session, "Pay.").await, TurnResult::Finished(_)), "the turn does not wait");
    assert_eq!(requests(&test_host, &session, OutboxFilter::All).await, []);
    let [(_, is_error, text)] = results(&test_host, &session).await.try_into().unwrap();
    assert!(is_error, "{text}");
    assert!(text.contains("/amount") && text.contains("minimum"), "{text}");
}

/// L10: After its deadline, a call gets the result `unavailable`. An answer that arrives after the deadline is refused
/// as late.
#[tokio::test(flavor = "multi_thread")]
async fn l10_a_call_expires_after_its_deadline_even_after_a_restart() {
    let test_host = TestHost::new(&[]).await;
    let mut config = config(&test_host);
    config.services.get_mut("payments").unwrap().answer_within = Some(Duration::from_millis(1));
    let agent = test_host.agent(config, script(&[two_services_and_a_tool(), text_reply("Only shipped.")])).await;
    let mut session = Session::open(&test_host.host(), agent.clone(), OpenSession::New).await.unwrap();
    run_turn(&mut session, "Buy it.").await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    let mut session = reopen(&test_host, &agent, session).await;
    assert_eq!(
        calls_waited_for(&continue_turn(&mut session).await),
        ["call_1_1_3"],
        "the deadline is checked when the session is opened"
    );
    assert_eq!(session.respond(payment_answer("call_1_1_1")).await.unwrap(), ResponseOutcome::Late);
    session.respond(answer_event("call_1_1_3", "x", json!({}))).await.unwrap();
    assert!(matches!(continue_turn(&mut session).await, TurnResult::Finished(_)));
    let text = results_so_far(&test_host, &session).await[0].clone().unwrap();
    assert!(text.contains("unavailable"), "{text}");
}

/// L11: If the stored counts of open calls are wrong, the turn ends with a typed error, and the model is not called.
#[tokio::test(flavor = "multi_thread")]
async fn l11_a_state_with_wrong_counts_ends_the_turn() {
    let test_host = TestHost::new(&[]).await;
    let agent = test_host.agent(config(&test_host), script(&[two_services_and_a_tool(), text_reply("Done.")])).await;
    let mut session = Session::open(&test_host.host(), agent.clone(), OpenSession::New).await.unwrap();
    run_turn(&mut session, "Buy it.").await;
    let subject = session.subject().to_owned();
    session.close().await.unwrap();
    let opened = test_host.store.open(&subject, OpenMode::Existing, SessionMeta::default()).await.unwrap();
    let mut state: Value = serde_json::from_slice(&opened.snapshot.unwrap()).unwrap();
    let outstanding = state.pointer_mut("/turn/phase/working/outstanding").expect("the count is stored");
    assert_eq!(*outstanding, json!({"payments": 1, "shipping.order": 1}));
    outstanding["payments"] = json!(2);
    let status = Status { state: SessionState::Suspended, turn: 1, title: None, ..Status::default() };
    let commit = Commit { snapshot: state.to_string().into_bytes(), status, ..Commit::default() };
    test_host.store.commit(&opened.lease, opened.revision, commit).await.unwrap();
    test_host.store.release(opened.lease).await.unwrap();

    let mut session = Session::open(&test_host.host(), agent, OpenSession::Existing(subject)).await.unwrap();
    session.respond(payment_answer("call_1_1_1")).await.unwrap();
    session.respond(answer_event("call_1_1_3", "x", json!({}))).await.unwrap();
    let TurnResult::Failed(error @ TurnError::OutstandingMismatch { .. }) = continue_turn(&mut session).await else {
        panic!()
    };
    assert_eq!(error.code(), "outstanding_mismatch");
    assert_eq!(session.state().model_calls, 1, "no model is asked");
    assert!(results_so_far(&test_host, &session).await.iter().all(Option::is_some), "every call has its result");
}

/// L1: An answer to a session without a stored state is refused.
#[tokio::test(flavor = "multi_thread")]
async fn l1_refuses_an_answer_without_a_stored_state() {
    let test_host = TestHost::new(&[]).await;
    let mut session = test_host.session(config(&test_host), script(&[text_reply("x")])).await;
    let error = session.respond(payment_answer("call_1_1_1")).await.unwrap_err();
    let is_no_context =
        |error: &SessionError| matches!(error, SessionError::Restore { error: RestoreError::NoContext, .. });
    let no_context = matches!(&error, RespondError::Session(error) if is_no_context(error));
    assert!(no_context && error.to_string().contains("no_context"), "{error}");
}

/// L1: If a session has no stored state, the host refuses every attempt to resume it. Only an input can start the first
/// turn of the session.
#[tokio::test(flavor = "multi_thread")]
async fn l1_refuses_every_resume_without_a_stored_state() {
    let test_host = TestHost::new(&[]).await;
    let mut session = test_host.session(AgentConfig::new("test"), script(&[text_reply("Hello.")])).await;
    let call = || CallId("call_1_1_1".to_owned());
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    let denied = ApprovalDecision { call: call(), verdict: Verdict::Deny { reason: None } };
    let resumed = [
        ("run", session.run(None, CancellationToken::new()).await.map(|_| ())),
        ("cancel", session.run(None, cancelled).await.map(|_| ())),
        ("answer", session.answer(call(), "yes".to_owned()).await),
        ("approve", session.approve(vec![denied]).await),
        ("resolve", session.resolve(call(), Decision::Retry).await),
    ];
    for (kind, result) in resumed {
        let no_context = matches!(&result, Err(SessionError::Restore { error: RestoreError::NoContext, .. }));
        assert!(no_context, "{kind}: {result:?}");
    }
    assert!(matches!(run_turn(&mut session, "Hello?").await, TurnResult::Finished(_)));
    assert!(matches!(session.run(None, CancellationToken::new()).await, Ok(TurnResult::Finished(_))));
}

/// I6: The host announces the end of failed and cancelled turns as events, as for turns that succeed.
#[tokio::test(flavor = "multi_thread")]
async fn i6_announces_failed_and_cancelled_turns() {
    let test_host = TestHost::new(&[]).await;
    let mut config = AgentConfig::new("test");
    config.outbox.announced.completions = Emission::Emitted;
    let failing = json!({"error": {"status": 401, "message": "no key"}});
    let mut session = test_host.session(config, script(&[failing])).await;
    assert!(matches!(run_turn(&mut session, "Go.").await, TurnResult::Failed(_)));
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    let input = Some(TurnInput::Text("Go.".to_owned()));
    assert_eq!(session.run(input, cancelled).await.unwrap(), TurnResult::Cancelled);
    let ends = requests(&test_host, &session, OutboxFilter::Pending).await;
    let announced: Vec<(&str, String)> =
        ends.iter().map(|end| (end.event_type.as_str(), base_call_id(&end.id))).collect();
    let (first, second) = ("turn_1".to_owned(), "turn_2".to_owned());
    assert_eq!(announced, [("agent-host.turn.failed", first), ("agent-host.turn.cancelled", second)]);
    let data = ends[0].data.as_ref().expect("data");
    assert_eq!(data["code"], json!("model_failed"));
    assert!(data["message"].as_str().unwrap().contains("no key"), "{data}");
    let cost = json!({"turn": 2, "execution_units": 0, "interactions": 0, "usage": {"prompt_tokens": 0, "completion_tokens": 0}});
    assert_eq!(ends[1].data, Some(cost), "the event contains the cost of the cancelled turn");
    assert!(ends.iter().all(|end| end.subject.as_deref() == Some(session.subject())));
}

/// D2, D6, row 27: Each event is written once, as a complete file. If the outbox folder does not exist, the events stay
/// pending. The host writes pending events when the session is opened the next time.
#[tokio::test(flavor = "multi_thread")]
async fn d6_writes_outbox_events_as_files() {
    let test_host = TestHost::new(&[]).await;
    let out = test_host.directory.path().join("out");
    let mut config = config(&test_host);
    config.outbox.directory = Some(out.clone());
    config.outbox.announced.completions = Emission::Emitted;
    let agent = test_host.agent(config, script(&[two_services_and_a_tool(), text_reply("Done.")])).await;
    let mut session = Session::open(&test_host.host(), agent.clone(), OpenSession::New).await.unwrap();
    assert_eq!(
        calls_waited_for(&run_turn(&mut session, "Buy it.").await).len(),
        2,
        "a missing outbox folder does not fail the turn"
    );
    assert_eq!(requests(&test_host, &session, OutboxFilter::Pending).await.len(), 2);
    std::fs::create_dir(&out).unwrap();
    let mut session = reopen(&test_host, &agent, session).await;
    assert_eq!(requests(&test_host, &session, OutboxFilter::Pending).await, []);
    let read = |id: &str| {
        let text = std::fs::read(out.join(file_name(session.subject(), id))).unwrap();
        CloudEvent::parse(&text).unwrap()
    };
    let all_requests = requests(&test_host, &session, OutboxFilter::All).await;
    assert_eq!([read(&all_requests[0].id), read(&all_requests[1].id)], all_requests.as_slice());
    session.respond(payment_answer("call_1_1_1")).await.unwrap();
    session.respond(answer_event("call_1_1_3", "x", json!({}))).await.unwrap();
    continue_turn(&mut session).await;
    let announced = requests(&test_host, &session, OutboxFilter::All).await.pop().unwrap();
    assert_eq!(base_call_id(&announced.id), "turn_1");
    let text = std::fs::read(out.join(file_name(session.subject(), &announced.id))).unwrap();
    let end = CloudEvent::parse(&text).unwrap();
    assert_eq!((end.event_type.as_str(), &end.data.unwrap()["data"]), ("agent-host.turn.finished", &json!("Done.")));
}

/// P2: A plugin's tool may return a pending outcome. In this case, the turn waits until the service sends its answer.
#[tokio::test(flavor = "multi_thread")]
async fn p2_a_plugins_pending_outcome_waits_for_its_service() {
    let test_host = TestHost::new(&["probe"]).await;
    let calls = call_reply(&[("probe.pending", json!({"text": "later"})), ("probe.echo", json!({"text": "now"}))]);
    let config = with_events_and_media(AgentConfig::new("test"));
    let mut session = test_host.session(config, script(&[calls, text_reply("Done.")])).await;
    let TurnResult::Suspended(suspension) = run_turn(&mut session, "Go.").await else { panic!() };
    let WaitCause::Service { event_type, .. } = &suspension.waits[0].cause else { panic!("{suspension:?}") };
    assert_eq!((event_type.as_str(), suspension.waits.len()), ("com.example.probe.v1", 1));
    let [event] = requests(&test_host, &session, OutboxFilter::Pending).await.try_into().unwrap();
    assert_eq!(
        (base_call_id(&event.id).as_str(), event.domain.as_deref()),
        ("call_1_1_1", None),
        "the event names no domain"
    );
    assert_eq!(event.data, Some(json!({"text": "later"})));
    assert_eq!(
        remaining_calls(session.respond(answer_event("call_1_1_1", "x", json!({"done": true}))).await.unwrap()),
        0
    );
    assert!(matches!(continue_turn(&mut session).await, TurnResult::Finished(_)));
    let [pending, _] = results(&test_host, &session).await.try_into().unwrap();
    assert_eq!(pending, ("probe.pending".to_owned(), false, r#"{"done":true}"#.to_owned()));
}

/// I6: Two sessions that call a service in their first reply use different event ids, so a receiver that drops events
/// with repeated ids drops neither of them.
#[tokio::test(flavor = "multi_thread")]
async fn i6_event_ids_are_unique_across_sessions() {
    let test_host = TestHost::new(&[]).await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        let mut session = test_host.session(config(&test_host), script(&[two_services_and_a_tool()])).await;
        assert_eq!(calls_waited_for(&run_turn(&mut session, "Buy it.").await).len(), 2);
        let events = requests(&test_host, &session, OutboxFilter::All).await;
        ids.extend(events.into_iter().flat_map(|event| [event.deduplicationid.unwrap()]));
    }
    let different: std::collections::BTreeSet<&String> = ids.iter().collect();
    assert_eq!((ids.len(), different.len()), (4, 4), "{ids:?}");
}

/// I6: The configuration at the start of a turn decides whether the host announces the end of the turn as an event,
/// even if a process with another configuration cancels the turn.
#[tokio::test(flavor = "multi_thread")]
async fn i6_a_cancelled_turn_announces_its_end_as_configured_at_its_start() {
    for announced in [Emission::Silent, Emission::Emitted] {
        let test_host = TestHost::new(&[]).await;
        let mut config = config(&test_host);
        config.outbox.announced.completions = announced;
        let mut session = test_host.session(config, script(&[two_services_and_a_tool()])).await;
        run_turn(&mut session, "Buy it.").await;
        let subject = session.subject().to_owned();
        session.close().await.unwrap();

        let other_agent = test_host.agent(AgentConfig::new("buyer"), script(&[text_reply("x")])).await;
        let mut session = Session::open(&test_host.host(), other_agent, OpenSession::ToDecide(subject)).await.unwrap();
        let cancel = CancellationToken::new();
        cancel.cancel();
        assert_eq!(session.run(None, cancel).await.unwrap(), TurnResult::Cancelled);
        let events = requests(&test_host, &session, OutboxFilter::All).await;
        let cancelled = events.iter().filter(|event| event.event_type == "agent-host.turn.cancelled").count();
        assert_eq!(cancelled, usize::from(announced == Emission::Emitted));
    }
}

/// L10, L17: A repeated answer to a call that the user edited counts as a duplicate, although the host added a note to
/// the stored answer.
#[tokio::test(flavor = "multi_thread")]
async fn l10_a_repeated_answer_to_an_edited_call_is_a_duplicate() {
    let test_host = TestHost::new(&[]).await;
    let mut config = config(&test_host);
    config.approvals.default = ApprovalPolicy::Ask;
    let replies = [call_reply(&[("payments", json!({"amount": 3}))]), text_reply("Done.")];
    let mut session = test_host.session(config, script(&replies)).await;
    assert!(matches!(run_turn(&mut session, "Buy it.").await, TurnResult::Suspended(_)));
    let verdict = Verdict::Allow { scope: GrantScope::Once, edited: Some(json!({"amount": 2})) };
    session.approve(vec![ApprovalDecision { call: CallId("call_1_1_1".to_owned()), verdict }]).await.unwrap();
    assert_eq!(
        calls_waited_for(&continue_turn(&mut session).await),
        ["call_1_1_1"],
        "the call now waits for the service"
    );
    assert_eq!(remaining_calls(session.respond(payment_answer("call_1_1_1")).await.unwrap()), 0);
    for when in ["before the turn continues", "after its end"] {
        assert_eq!(session.respond(payment_answer("call_1_1_1")).await.unwrap(), ResponseOutcome::Duplicate, "{when}");
        let different_answer = answer_event("call_1_1_1", "com.example.paid", json!({"receipt": "R-8"}));
        assert_eq!(session.respond(different_answer).await.unwrap(), ResponseOutcome::Late, "{when}");
        continue_turn(&mut session).await;
    }
    assert!(results(&test_host, &session).await[0].2.contains("changed"), "the result tells the model about the edit");
}
