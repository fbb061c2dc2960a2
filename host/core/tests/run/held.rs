//! What a plugin asks of a service and somebody must allow first (P2, L17), and answers from others than a call waits for
//! (row 51).

use crate::session::{Session, dispatched, grant, handed_on, kinds, outcome, result, waiting_for};
use agent_core::approval::{ApprovalAnswer, ApprovalVerdict, AskedAgain, GrantScope, Leave, ScopedGrant};
use agent_core::change::{CallState, Change, OutboxEffect};
use agent_core::event::{EventKind, WaitCause};
use agent_core::message::{CallId, Digest};
use agent_core::run::{Action, Answerer, Awaited, Dispatch, DispatchedCall, HeldRequest, Input, LoopConfig, Refused};
use agent_core::tool::CallCost;
use serde_json::json;

fn id() -> CallId {
    CallId("call_1_1_1".into())
}

fn digest(number: u8) -> Digest {
    Digest::from_sha256([number; 32])
}

fn request() -> HeldRequest {
    HeldRequest { service: "payments".into(), request: digest(3) }
}

/// A turn whose only call has run and has asked for a service that somebody must allow.
fn held() -> (Session, Change) {
    let mut session = Session::calling(LoopConfig::default());
    session.reply("", vec![crate::session::plain("shop.order")]);
    session.must(dispatched(&[id()]));
    let cost = CallCost { cpu_us: 40, ..CallCost::default() };
    let change = session.must(Input::Held { call: id(), request: request(), digest: digest(7), cost });
    (session, change)
}

fn answered(verdict: ApprovalVerdict) -> Input {
    Input::Approval { answers: vec![ApprovalAnswer { call: id(), verdict }] }
}

fn allowed(scope: GrantScope) -> Input {
    answered(ApprovalVerdict::Granted { edited: None, grant: ScopedGrant { scope, grant: grant("payments") } })
}

fn goes_out() -> Input {
    let cause = WaitCause::Service { event_type: "com.example.work".into(), expires_at: None, emits: None };
    let awaits = Some(waiting_for(&id(), cause));
    Input::Dispatched { calls: vec![DispatchedCall { awaits, ..DispatchedCall::running(id(), json!({})) }] }
}

/// P2, L17: nothing goes out before somebody has allowed it; they are asked about the service, by its name.
#[test]
fn p2_a_held_request_goes_out_once_it_is_allowed() {
    let (mut session, change) = held();
    assert_eq!((kinds(&change), change.outbox.len()), (vec!["approval_requested".to_owned(), "suspended".into()], 0));
    let EventKind::ApprovalRequested { calls } = &change.events[0].kind else { panic!("{change:?}") };
    assert_eq!((calls[0].name.as_str(), calls[0].digest.as_ref()), ("payments", Some(&digest(7))));
    session.crash();
    assert_eq!(session.run.held_request(&id()), Some(&request()), "it is part of the stored state");
    let change = session.must(allowed(GrantScope::Always));
    let resolved = change.events.iter().find_map(|event| match &event.kind {
        EventKind::ApprovalResolved { name, .. } => Some(name.as_str()),
        _ => None,
    });
    assert_eq!(resolved, Some("payments"));
    let [item] = &change.outbox[..] else { panic!("{:?}", change.outbox) };
    assert!(matches!(&item.effect, OutboxEffect::Allow(grant) if grant.tool == "payments"), "{item:?}");
    let granted = Some(Leave::Answered(grant("payments")));
    let dispatch = Dispatch { call: id(), attempt: 2, granted, request: Some(request()) };
    assert_eq!(session.run.action(), Action::Dispatch(vec![dispatch]));
    let again = session.tell(dispatched(&[id()]));
    assert!(matches!(again, Err(Refused::Settled(..))), "the tool has run, and does not run a second time: {again:?}");
    let change = session.must(goes_out());
    assert_eq!((kinds(&change), change.outbox.len()), (vec!["suspended".to_owned()], 1));
    assert_eq!(change.outbox[0].id, id().0);
    let change = session.must(Input::Respond { call: id(), from: Answerer::Service, result: result("paid") });
    let EventKind::ToolResult { cost, .. } = &change.events[0].kind else { panic!("{:?}", change.events) };
    assert_eq!(cost.cpu_us, 40, "what running the tool has cost stays on its event");
}

/// P2, L17: a person's no is the call's result, and nothing goes out; what has changed is asked about again.
#[test]
fn p2_a_held_request_that_is_denied_never_goes_out() {
    let (mut session, _) = held();
    let change = session.must(answered(ApprovalVerdict::Denied { reason: None }));
    assert_eq!(
        (change.outbox.len(), &kinds(&change)[..2]),
        (0, &["resumed".to_owned(), "approval_resolved".into()][..])
    );
    assert!(session.tell(allowed(GrantScope::Once)).is_err(), "the no stands");

    let (mut session, _) = held();
    session.must(allowed(GrantScope::Once));
    let again = vec![AskedAgain { call: id(), digest: digest(8) }];
    let change = session.must(Input::AskAgain { calls: again });
    assert_eq!(kinds(&change), ["approval_resolved", "approval_requested", "suspended"]);
    let stale = session.must(allowed(GrantScope::Once));
    assert_eq!((kinds(&stale).contains(&"approval_requested".to_owned()), stale.outbox.len()), (true, 0), "void");
}

/// Row 51: whoever answers, an answer is taken only from whom the call itself waits for.
#[test]
fn row51_nobody_answers_for_somebody_else() {
    let everybody = [Answerer::Service, Answerer::Agent, Answerer::User];
    let causes = [
        (WaitCause::Service { event_type: "a".into(), expires_at: None, emits: None }, Answerer::Service),
        (WaitCause::Agent { session: "child".into() }, Answerer::Agent),
        (WaitCause::Answer { question: "Which?".into(), expires_at: None }, Answerer::User),
    ];
    for (cause, right) in causes {
        for from in everybody {
            let mut session = Session::calling(LoopConfig::default());
            session.reply("", vec![crate::session::plain("wait")]);
            let awaits = Some(Awaited { cause: cause.clone(), event: None });
            let call = DispatchedCall { awaits, ..DispatchedCall::running(id(), json!({})) };
            session.must(Input::Dispatched { calls: vec![call] });
            let told = session.tell(Input::Respond { call: id(), from, result: result("mine") });
            assert_eq!(told.is_ok(), from == right, "{cause:?} from {from:?}: {told:?}");
        }
    }
    // A call that waits for a person is answered by nobody else at all.
    let (mut session, _) = held();
    for from in everybody {
        assert!(session.tell(Input::Respond { call: id(), from, result: result("mine") }).is_err(), "{from:?}");
    }
    assert!(session.tell(outcome("call_1_1_1", "mine")).is_err());
    assert!(session.tell(goes_out()).is_err());
    let mut session = Session::calling(LoopConfig::default());
    session.reply("", vec![crate::session::plain("pay")]);
    session.must(handed_on(&[id()]));
    assert!(session.tell(allowed(GrantScope::Always)).is_err(), "a service's call is nobody's to allow");
    assert_eq!(session.ledger.call(&id()).record.state, CallState::Outstanding);
}
