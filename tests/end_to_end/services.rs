//! Services: calls that go out as CloudEvents, and turns that wait for their answers over restarts (L1, L8, L10, L11, L15,
//! P2, I6, D2, D6; rows 29 and 32).

use crate::support::{House, calling, event_types, results, saying, script, seeing, sending, short, turn};
use agent_core::approval::{ApprovalPolicy, GrantScope};
use agent_core::change::OutboxEffect;
use agent_core::cloud_event::CloudEvent;
use agent_core::event::WaitCause;
use agent_core::message::{CallId, TurnInput};
use agent_core::run::{Decision, RestoreError, TurnError};
use agent_plugins::{Access, TreeGrant};
use agent_runtime::outbox::file_name;
use agent_runtime::{
    Agent, AgentConfig, ApprovalDecision, Emission, OpenSession, RespondError, Responded, ServiceConfig, Session,
    SessionError, TurnResult, Verdict,
};
use agent_store::{Commit, OpenMode, Outbox, OutboxFilter, SessionLog, SessionMeta, Status};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// An agent with two services and a tool of the host's.
fn config(house: &House) -> AgentConfig {
    let mut config = AgentConfig::new("buyer");
    config.host_trees = vec![TreeGrant { host: house.tree(), guest: "docs".to_owned(), access: Access::Read }];
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

/// Both services and, between them, a tool that runs at once.
fn batch() -> Value {
    calling(&[
        ("payments", json!({"amount": 3, "parentSubject$$": "somebody else"})),
        ("list_directory", json!({"path": "docs"})),
        ("shipping.order", json!({"to": "Bern"})),
    ])
}

fn answer(call: &str, event_type: &str, data: Value) -> CloudEvent {
    let event = json!({"specversion": "1.0", "id": "e1", "source": "/test", "type": event_type, "parentid": call, "data": data});
    CloudEvent::parse(event.to_string().as_bytes()).expect("an event")
}

fn paid(call: &str) -> CloudEvent {
    answer(call, "com.example.paid", json!({"receipt": "R-7"}))
}

async fn reopened(house: &House, agent: &Arc<Agent>, session: Session) -> Session {
    let subject = session.subject().to_owned();
    session.close().await.unwrap();
    Session::open(&house.host(), agent.clone(), OpenSession::Existing(subject)).await.unwrap()
}

async fn goes_on(session: &mut Session) -> TurnResult {
    session.run(None, CancellationToken::new()).await.unwrap()
}

fn waiting(result: &TurnResult) -> Vec<String> {
    let TurnResult::Suspended(suspension) = result else { panic!("{result:?}") };
    suspension.waits.iter().map(|wait| short(&wait.call.0)).collect()
}

fn left(responded: Responded) -> usize {
    let Responded::Taken { violations, waits } = responded else { panic!("{responded:?}") };
    assert_eq!(violations, []);
    waits.len()
}

async fn requests(house: &House, session: &Session, which: OutboxFilter) -> Vec<CloudEvent> {
    let items = house.store.outbox(Some(session.subject()), which, 0, 100).await.unwrap();
    let events = items.into_iter().map(|item| match item.item.effect {
        OutboxEffect::Event(event) => event.into_inner(),
        other => panic!("{other:?}"),
    });
    events.collect()
}

/// L10, L15, L3, I6: answers in both orders, with and without a restart between them.
#[tokio::test(flavor = "multi_thread")]
async fn l10_two_services_beside_a_local_tool_in_every_order() {
    for (order, restarts) in [([1, 3], false), ([1, 3], true), ([3, 1], false), ([3, 1], true)] {
        let house = House::new(&[]).await;
        std::fs::write(house.tree().join("a.txt"), "a").unwrap();
        let requests_seen: [&[&str]; 2] = [&["user 0"], &["user 1", "assistant 1", "tool 0", "tool 0", "tool 0"]];
        let agent = house.agent(config(&house), seeing([batch(), saying("Done.")], requests_seen)).await;
        let mut session = Session::open(&house.host(), agent.clone(), OpenSession::New).await.unwrap();
        let result = turn(&mut session, "Buy it.").await;
        assert_eq!(waiting(&result), ["call_1_1_1", "call_1_1_3"]);
        let listed = house.store.calls(session.subject(), agent_store::CallFilter::Turn(1)).await.unwrap();
        assert!(listed[1].result.is_some(), "what can run has run before the turn waits");
        assert!(!event_types(&house, &session).await.contains(&"loop_end".to_owned()), "L30");
        assert_eq!(waiting(&goes_on(&mut session).await), ["call_1_1_1", "call_1_1_3"], "it says so again");

        let of = |place: i32| match place {
            1 => paid("call_1_1_1"),
            _ => answer("call_1_1_3", "anything", json!("on its way")),
        };
        let [first, second] = order;
        assert_eq!(left(session.respond(of(first)).await.unwrap()), 1);
        assert_eq!(waiting(&goes_on(&mut session).await), [format!("call_1_1_{second}")]);
        if restarts {
            session = reopened(&house, &agent, session).await;
        }
        assert_eq!(session.respond(of(first)).await.unwrap(), Responded::Duplicate);
        assert_eq!(left(session.respond(of(second)).await.unwrap()), 0);
        let TurnResult::Finished(output) = goes_on(&mut session).await else { panic!() };
        assert_eq!((output.data, output.interactions), (json!("Done."), 2));
        let [paid, listed, shipped] = results(&house, &session).await.try_into().unwrap();
        assert_eq!(paid, ("payments".to_owned(), false, r#"{"receipt":"R-7"}"#.to_owned()));
        assert!(listed.2.contains("a.txt"), "{listed:?}");
        assert_eq!(shipped, ("shipping.order".to_owned(), false, "on its way".to_owned()));
        assert_eq!(session.respond(of(second)).await.unwrap(), Responded::Duplicate, "also after the end");
        let types = event_types(&house, &session).await;
        assert_eq!(types.iter().filter(|kind| *kind == "resumed").count(), 1);
        assert_eq!(types.iter().filter(|kind| *kind == "suspended").count(), 2, "{types:?}");
    }
}

/// I6, D2, L15: each attribute of the requests, in the store with the intent.
#[tokio::test(flavor = "multi_thread")]
async fn i6_the_requests_field_by_field() {
    let house = House::new(&[]).await;
    let mut session = house.session(config(&house), script(&[batch(), saying("Done.")])).await;
    turn(&mut session, "Buy it.").await;
    let [pay, ship] = requests(&house, &session, OutboxFilter::Pending).await.try_into().unwrap();
    let trace = session.state().turn.as_ref().unwrap().trace.traceparent.clone();
    let parent = pay.traceparent.clone().unwrap();
    assert_eq!(parent[..36], trace[..36], "in the turn's trace");
    assert_ne!(parent, trace, "with a span of its own");
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
        // What the model wrote into the host's field is discarded.
        data: Some(json!({"amount": 3, "parentSubject$$": session.subject()})),
    };
    assert_eq!(pay, expected);
    assert_eq!(short(&pay.id), "call_1_1_1");
    assert_eq!((short(&ship.id).as_str(), ship.domain, ship.data), ("call_1_1_3", None, Some(json!({"to": "Bern"}))));
    let agent = session.agent();
    let offered = agent.registry().offered();
    assert!(offered.iter().all(|tool| !tool.input_schema.to_string().contains("parentSubject")), "L15");
}

/// L10, I6, row 29: what is wrong with an answer, and that nothing changes by it.
#[tokio::test(flavor = "multi_thread")]
async fn row_29_answers_that_fit_nothing() {
    let house = House::new(&[]).await;
    let mut session = house.session(config(&house), script(&[batch(), saying("Done.")])).await;
    turn(&mut session, "Buy it.").await;
    let before = session.state().clone();
    let mut nobody = paid("call_1_1_1");
    nobody.parentid = None;
    assert!(matches!(session.respond(nobody).await, Err(RespondError::NoParent)));
    let mut foreign = paid("call_1_1_1");
    foreign.subject = Some("buyer/other".into());
    assert!(matches!(session.respond(foreign).await, Err(RespondError::OtherSubject { .. })));
    let unknown = session.respond(paid("call_9_9_9")).await.unwrap_err().to_string();
    assert!(
        unknown.contains("no call `call_9_9_9`")
            && unknown.contains("`call_1_1_1_")
            && unknown.contains("` (payments)"),
        "{unknown}"
    );
    let wrong_type = session.respond(answer("call_1_1_1", "com.example.lost", json!({}))).await.unwrap_err();
    assert!(wrong_type.to_string().contains("known are: `com.example.paid`"), "{wrong_type}");
    let of_a_local_tool = session.respond(paid("call_1_1_2")).await.unwrap();
    assert_eq!(of_a_local_tool, Responded::Late, "it has the result of its tool");
    assert_eq!(*session.state(), before, "nothing has changed");
    let mut own = paid("call_1_1_1");
    own.subject = Some(session.subject().to_owned());
    assert_eq!(left(session.respond(own).await.unwrap()), 1);
    let other = answer("call_1_1_1", "com.example.paid", json!({"receipt": "R-8"}));
    assert_eq!(session.respond(other).await.unwrap(), Responded::Late, "a second answer that is another one");
    assert_eq!(results_so_far(&house, &session).await[0], Some(r#"{"receipt":"R-7"}"#.to_owned()));
}

async fn results_so_far(house: &House, session: &Session) -> Vec<Option<String>> {
    let calls = house.store.calls(session.subject(), agent_store::CallFilter::Turn(1)).await.unwrap();
    let text = |result: agent_core::change::CallResult| agent_core::view::result_text(&result.content);
    calls.into_iter().map(|call| call.result.map(text)).collect()
}

/// I6: an answer that violates `emits` is an error result that names pointer and rule. What was agreed when the request
/// went out holds, whatever the configuration says by now (L1).
#[tokio::test(flavor = "multi_thread")]
async fn i6_an_answer_that_breaks_its_contract_is_an_error_result() {
    let house = House::new(&[]).await;
    let replies = script(&[calling(&[("payments", json!({"amount": 3}))]), saying("It failed.")]);
    let agent = house.agent(config(&house), replies.clone()).await;
    let mut session = Session::open(&house.host(), agent, OpenSession::New).await.unwrap();
    turn(&mut session, "Pay.").await;
    let changed = house.agent(AgentConfig::new("buyer"), replies).await;
    let mut session = reopened(&house, &changed, session).await;
    let wrong = answer("call_1_1_1", "com.example.paid", json!({"receipt": 7}));
    let Responded::Taken { violations, waits } = session.respond(wrong).await.unwrap() else { panic!() };
    assert_eq!((violations[0].pointer.as_str(), waits.len()), ("/receipt", 0));
    let TurnResult::Finished(_) = goes_on(&mut session).await else { panic!() };
    let [(_, is_error, text)] = results(&house, &session).await.try_into().unwrap();
    assert!(is_error && text.contains("/receipt breaks `type`"), "{text}");
}

/// L8: what violates `accepts` never leaves.
#[tokio::test(flavor = "multi_thread")]
async fn l8_bad_arguments_never_leave() {
    let house = House::new(&[]).await;
    let replies = script(&[calling(&[("payments", json!({"amount": -1}))]), saying("I cannot.")]);
    let mut session = house.session(config(&house), replies).await;
    assert!(matches!(turn(&mut session, "Pay.").await, TurnResult::Finished(_)), "the turn does not wait");
    assert_eq!(requests(&house, &session, OutboxFilter::All).await, []);
    let [(_, is_error, text)] = results(&house, &session).await.try_into().unwrap();
    assert!(is_error, "{text}");
    assert!(text.contains("/amount") && text.contains("minimum"), "{text}");
}

/// L10: an answer that is overdue is `unavailable`; one that comes after that is late.
#[tokio::test(flavor = "multi_thread")]
async fn l10_an_overdue_answer_expires_also_over_a_restart() {
    let house = House::new(&[]).await;
    let mut config = config(&house);
    config.services.get_mut("payments").unwrap().answer_within = Some(Duration::from_millis(1));
    let agent = house.agent(config, script(&[batch(), saying("Only shipped.")])).await;
    let mut session = Session::open(&house.host(), agent.clone(), OpenSession::New).await.unwrap();
    turn(&mut session, "Buy it.").await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    let mut session = reopened(&house, &agent, session).await;
    assert_eq!(waiting(&goes_on(&mut session).await), ["call_1_1_3"], "looked at when it is opened");
    assert_eq!(session.respond(paid("call_1_1_1")).await.unwrap(), Responded::Late);
    session.respond(answer("call_1_1_3", "x", json!({}))).await.unwrap();
    assert!(matches!(goes_on(&mut session).await, TurnResult::Finished(_)));
    let text = results_so_far(&house, &session).await[0].clone().unwrap();
    assert!(text.contains("unavailable"), "{text}");
}

/// L11: a stored state whose counts are wrong ends the turn with a typed error and without a model call.
#[tokio::test(flavor = "multi_thread")]
async fn l11_a_tampered_state_is_a_mismatch() {
    let house = House::new(&[]).await;
    let agent = house.agent(config(&house), script(&[batch(), saying("Done.")])).await;
    let mut session = Session::open(&house.host(), agent.clone(), OpenSession::New).await.unwrap();
    turn(&mut session, "Buy it.").await;
    let subject = session.subject().to_owned();
    session.close().await.unwrap();
    let opened = house.store.open(&subject, OpenMode::Existing, SessionMeta::default()).await.unwrap();
    let mut state: Value = serde_json::from_slice(&opened.snapshot.unwrap()).unwrap();
    let outstanding = state.pointer_mut("/turn/phase/working/outstanding").expect("it is stored");
    assert_eq!(*outstanding, json!({"payments": 1, "shipping.order": 1}));
    outstanding["payments"] = json!(2);
    let status = Status { state: "suspended".into(), turn: 1, title: None };
    let commit = Commit { snapshot: state.to_string().into_bytes(), status, ..Commit::default() };
    house.store.commit(&opened.lease, opened.revision, commit).await.unwrap();
    house.store.release(opened.lease).await.unwrap();

    let mut session = Session::open(&house.host(), agent, OpenSession::Existing(subject)).await.unwrap();
    session.respond(paid("call_1_1_1")).await.unwrap();
    session.respond(answer("call_1_1_3", "x", json!({}))).await.unwrap();
    let TurnResult::Failed(error @ TurnError::OutstandingMismatch { .. }) = goes_on(&mut session).await else {
        panic!()
    };
    assert_eq!(error.code(), "outstanding_mismatch");
    assert_eq!(session.state().model_calls, 1, "no model is asked");
    assert!(results_so_far(&house, &session).await.iter().all(Option::is_some), "every call has its result");
}

/// L1: an answer to a session without a stored state.
#[tokio::test(flavor = "multi_thread")]
async fn l1_an_answer_without_a_stored_state_is_no_context() {
    let house = House::new(&[]).await;
    let mut session = house.session(config(&house), script(&[saying("x")])).await;
    let error = session.respond(paid("call_1_1_1")).await.unwrap_err();
    let no_context =
        matches!(&error, RespondError::Session(SessionError::Restore { error: RestoreError::NoContext, .. }));
    assert!(no_context && error.to_string().contains("no_context"), "{error}");
}

/// L1: nothing is resumed where nothing is stored, whatever it is that should resume; an input begins the first turn.
#[tokio::test(flavor = "multi_thread")]
async fn l1_every_resume_without_a_stored_state_is_no_context() {
    let house = House::new(&[]).await;
    let mut session = house.session(AgentConfig::new("test"), script(&[saying("Hello.")])).await;
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
    for (how, result) in resumed {
        let no_context = matches!(&result, Err(SessionError::Restore { error: RestoreError::NoContext, .. }));
        assert!(no_context, "{how}: {result:?}");
    }
    assert!(matches!(turn(&mut session, "Hello?").await, TurnResult::Finished(_)));
    assert!(matches!(session.run(None, CancellationToken::new()).await, Ok(TurnResult::Finished(_))));
}

/// I6: how a turn has failed, and that it was cancelled, are events, too.
#[tokio::test(flavor = "multi_thread")]
async fn i6_failed_and_cancelled_turns_are_events() {
    let house = House::new(&[]).await;
    let mut config = AgentConfig::new("test");
    config.outbox.announced.completions = Emission::Emitted;
    let failing = json!({"error": {"status": 401, "message": "no key"}});
    let mut session = house.session(config, script(&[failing])).await;
    assert!(matches!(turn(&mut session, "Go.").await, TurnResult::Failed(_)));
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    let input = Some(TurnInput::Text("Go.".to_owned()));
    assert_eq!(session.run(input, cancelled).await.unwrap(), TurnResult::Cancelled);
    let ends = requests(&house, &session, OutboxFilter::Pending).await;
    let said: Vec<(&str, String)> = ends.iter().map(|end| (end.event_type.as_str(), short(&end.id))).collect();
    let (first, second) = ("turn_1".to_owned(), "turn_2".to_owned());
    assert_eq!(said, [("agent-host.turn.failed", first), ("agent-host.turn.cancelled", second)]);
    let data = ends[0].data.as_ref().expect("data");
    assert_eq!(data["code"], json!("model_failed"));
    assert!(data["message"].as_str().unwrap().contains("no key"), "{data}");
    let cost = json!({"turn": 2, "execution_units": 0, "interactions": 0, "usage": {"prompt_tokens": 0, "completion_tokens": 0}});
    assert_eq!(ends[1].data, Some(cost), "what a cancelled turn has cost");
    assert!(ends.iter().all(|end| end.subject.as_deref() == Some(session.subject())));
}

/// D2, D6: events become files, whole and once by name; without a folder they stay pending. Row 27: one that could not be
/// written goes out when the session is opened the next time.
#[tokio::test(flavor = "multi_thread")]
async fn d6_the_outbox_is_delivered_as_files() {
    let house = House::new(&[]).await;
    let out = house.directory.path().join("out");
    let mut config = config(&house);
    config.outbox.directory = Some(out.clone());
    config.outbox.announced.completions = Emission::Emitted;
    let agent = house.agent(config, script(&[batch(), saying("Done.")])).await;
    let mut session = Session::open(&house.host(), agent.clone(), OpenSession::New).await.unwrap();
    assert_eq!(
        waiting(&turn(&mut session, "Buy it.").await).len(),
        2,
        "an outbox that is stuck does not hold the turn"
    );
    assert_eq!(requests(&house, &session, OutboxFilter::Pending).await.len(), 2);
    std::fs::create_dir(&out).unwrap();
    let mut session = reopened(&house, &agent, session).await;
    assert_eq!(requests(&house, &session, OutboxFilter::Pending).await, []);
    let read = |id: &str| {
        let text = std::fs::read(out.join(file_name(session.subject(), id))).unwrap();
        CloudEvent::parse(&text).unwrap()
    };
    let all = requests(&house, &session, OutboxFilter::All).await;
    assert_eq!([read(&all[0].id), read(&all[1].id)], all.as_slice());
    session.respond(paid("call_1_1_1")).await.unwrap();
    session.respond(answer("call_1_1_3", "x", json!({}))).await.unwrap();
    goes_on(&mut session).await;
    let told = requests(&house, &session, OutboxFilter::All).await.pop().unwrap();
    assert_eq!(short(&told.id), "turn_1");
    let text = std::fs::read(out.join(file_name(session.subject(), &told.id))).unwrap();
    let end = CloudEvent::parse(&text).unwrap();
    assert_eq!((end.event_type.as_str(), &end.data.unwrap()["data"]), ("agent-host.turn.finished", &json!("Done.")));
}

/// P2: a tool of a plugin that leaves its work to a service.
#[tokio::test(flavor = "multi_thread")]
async fn p2_a_plugins_pending_outcome_waits_for_its_service() {
    let house = House::new(&["probe"]).await;
    let calls = calling(&[("probe.pending", json!({"text": "later"})), ("probe.echo", json!({"text": "now"}))]);
    let config = sending(AgentConfig::new("test"));
    let mut session = house.session(config, script(&[calls, saying("Done.")])).await;
    let TurnResult::Suspended(suspension) = turn(&mut session, "Go.").await else { panic!() };
    let WaitCause::Service { event_type, .. } = &suspension.waits[0].cause else { panic!("{suspension:?}") };
    assert_eq!((event_type.as_str(), suspension.waits.len()), ("com.example.probe.v1", 1));
    let [event] = requests(&house, &session, OutboxFilter::Pending).await.try_into().unwrap();
    assert_eq!((short(&event.id).as_str(), event.domain.as_deref()), ("call_1_1_1", None), "it names none");
    assert_eq!(event.data, Some(json!({"text": "later"})));
    assert_eq!(left(session.respond(answer("call_1_1_1", "x", json!({"done": true}))).await.unwrap()), 0);
    assert!(matches!(goes_on(&mut session).await, TurnResult::Finished(_)));
    let [pending, _] = results(&house, &session).await.try_into().unwrap();
    assert_eq!(pending, ("probe.pending".to_owned(), false, r#"{"done":true}"#.to_owned()));
}

/// I6: two sessions ask a service in their first reply; no id is another one's, so that whoever drops what came twice drops
/// neither.
#[tokio::test(flavor = "multi_thread")]
async fn i6_no_two_sessions_have_an_id_in_common() {
    let house = House::new(&[]).await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        let mut session = house.session(config(&house), script(&[batch()])).await;
        assert_eq!(waiting(&turn(&mut session, "Buy it.").await).len(), 2);
        let events = requests(&house, &session, OutboxFilter::All).await;
        ids.extend(events.into_iter().flat_map(|event| [event.deduplicationid.unwrap()]));
    }
    let different: std::collections::BTreeSet<&String> = ids.iter().collect();
    assert_eq!((ids.len(), different.len()), (4, 4), "{ids:?}");
}

/// I6: a turn tells of its end as the agent wanted when it began, also where it is ended by somebody who knows nothing of the
/// agent but its name.
#[tokio::test(flavor = "multi_thread")]
async fn i6_who_cancels_a_turn_need_not_know_what_it_announces() {
    for announced in [Emission::Silent, Emission::Emitted] {
        let house = House::new(&[]).await;
        let mut config = config(&house);
        config.outbox.announced.completions = announced;
        let mut session = house.session(config, script(&[batch()])).await;
        turn(&mut session, "Buy it.").await;
        let subject = session.subject().to_owned();
        session.close().await.unwrap();

        let stranger = house.agent(AgentConfig::new("buyer"), script(&[saying("x")])).await;
        let mut session = Session::open(&house.host(), stranger, OpenSession::ToDecide(subject)).await.unwrap();
        let cancel = CancellationToken::new();
        cancel.cancel();
        assert_eq!(session.run(None, cancel).await.unwrap(), TurnResult::Cancelled);
        let events = requests(&house, &session, OutboxFilter::All).await;
        let cancelled = events.iter().filter(|event| event.event_type == "agent-host.turn.cancelled").count();
        assert_eq!(cancelled, usize::from(announced == Emission::Emitted));
    }
}

/// L10, L17: a repeated answer to a call that somebody has changed is the same answer, whatever the host has put before it.
#[tokio::test(flavor = "multi_thread")]
async fn l10_a_repeated_answer_to_an_edited_call_is_a_duplicate() {
    let house = House::new(&[]).await;
    let mut config = config(&house);
    config.approvals.default = ApprovalPolicy::Ask;
    let replies = [calling(&[("payments", json!({"amount": 3}))]), saying("Done.")];
    let mut session = house.session(config, script(&replies)).await;
    assert!(matches!(turn(&mut session, "Buy it.").await, TurnResult::Suspended(_)));
    let verdict = Verdict::Allow { scope: GrantScope::Once, edited: Some(json!({"amount": 2})) };
    session.approve(vec![ApprovalDecision { call: CallId("call_1_1_1".to_owned()), verdict }]).await.unwrap();
    assert_eq!(waiting(&goes_on(&mut session).await), ["call_1_1_1"], "now it waits for the service");
    assert_eq!(left(session.respond(paid("call_1_1_1")).await.unwrap()), 0);
    for when in ["before the turn goes on", "after its end"] {
        assert_eq!(session.respond(paid("call_1_1_1")).await.unwrap(), Responded::Duplicate, "{when}");
        let other = answer("call_1_1_1", "com.example.paid", json!({"receipt": "R-8"}));
        assert_eq!(session.respond(other).await.unwrap(), Responded::Late, "{when}");
        goes_on(&mut session).await;
    }
    assert!(results(&house, &session).await[0].2.contains("changed"), "the model is told of the change");
}
