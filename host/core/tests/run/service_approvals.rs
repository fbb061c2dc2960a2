//! Tests of plugins' service requests that need approval (P2, L17), and of responses from a sender other than the one
//! for which the call waits (row 51).

use crate::session::{Session, dispatched, grant, kinds, outcome, result, sent_to_service, waiting_for};
use agent_core::approval::{
    ApprovalAnswer, ApprovalVerdict, Authorization, GrantScope, ReapprovalRequest, ScopedGrant,
};
use agent_core::change::{CallState, Change, OutboxEffect};
use agent_core::event::{EventKind, WaitCause};
use agent_core::message::{CallId, Digest};
use agent_core::run::{
    Action, Answerer, Awaited, Dispatch, DispatchedCall, Input, InputError, LoopConfig, UnapprovedRequest,
};
use agent_core::tool::CallCost;
use serde_json::json;

fn id() -> CallId {
    CallId("call_1_1_1".into())
}

fn digest(number: u8) -> Digest {
    Digest::from_sha256([number; 32])
}

fn request() -> UnapprovedRequest {
    UnapprovedRequest { service: "payments".into(), request: digest(3) }
}

/// Returns a session whose only call has run and requested a service that needs approval, and the change that the
/// request caused.
fn awaiting_approval() -> (Session, Change) {
    let mut session = Session::calling(LoopConfig::default());
    session.reply("", vec![crate::session::plain("shop.order")]);
    session.must(dispatched(&[id()]));
    let cost = CallCost { cpu_us: 40, ..CallCost::default() };
    let change = session.must(Input::ServiceNeedsApproval { call: id(), request: request(), digest: digest(7), cost });
    (session, change)
}

fn answered(verdict: ApprovalVerdict) -> Input {
    Input::Approval { answers: vec![ApprovalAnswer { call: id(), verdict }] }
}

fn allowed(scope: GrantScope) -> Input {
    answered(ApprovalVerdict::Granted { edited: None, grant: ScopedGrant { scope, grant: grant("payments") } })
}

/// Returns the input that dispatches the approved request to the service.
fn request_sent() -> Input {
    let cause = WaitCause::Service { event_type: "com.example.work".into(), expires_at: None, emits: None };
    let awaits = Some(waiting_for(&id(), cause));
    Input::Dispatched { calls: vec![DispatchedCall { awaits, ..DispatchedCall::running(id(), json!({})) }] }
}

/// P2, L17: the request to the service is not sent before it is approved, and the approval request names the service.
#[test]
fn p2_a_service_request_is_sent_after_its_approval() {
    let (mut session, change) = awaiting_approval();
    assert_eq!((kinds(&change), change.outbox.len()), (vec!["approval_requested".to_owned(), "suspended".into()], 0));
    let EventKind::ApprovalRequested { calls, .. } = &change.events[0].kind else { panic!("{change:?}") };
    assert_eq!((calls[0].name.as_str(), calls[0].digest.as_ref()), ("payments", Some(&digest(7))));
    session.crash();
    assert_eq!(session.run.unapproved_request(&id()), Some(&request()), "the request is part of the stored state");
    let change = session.must(allowed(GrantScope::Always));
    let resolved = change.events.iter().find_map(|event| match &event.kind {
        EventKind::ApprovalResolved { name, .. } => Some(name.as_str()),
        _ => None,
    });
    assert_eq!(resolved, Some("payments"));
    let [item] = &change.outbox[..] else { panic!("{:?}", change.outbox) };
    assert!(matches!(&item.effect, OutboxEffect::Allow(grant) if grant.tool == "payments"), "{item:?}");
    let granted = Some(Authorization::Answered(grant("payments")));
    let dispatch = Dispatch { call: id(), attempt: 2, authorization: granted, request: Some(request()) };
    assert_eq!(session.run.action(), Action::Dispatch(vec![dispatch]));
    let again = session.apply(dispatched(&[id()]));
    assert!(matches!(again, Err(InputError::Settled(..))), "the tool does not run a second time: {again:?}");
    let change = session.must(request_sent());
    assert_eq!((kinds(&change), change.outbox.len()), (vec!["suspended".to_owned()], 1));
    assert_eq!(change.outbox[0].id, id().0);
    let change = session.must(Input::Respond { call: id(), from: Answerer::Service, result: result("paid") });
    let EventKind::ToolResult { cost, .. } = &change.events[0].kind else { panic!("{:?}", change.events) };
    assert_eq!(cost.cpu_us, 40, "the event contains the cost of running the tool");
}

/// P2, L17: if the user denies a request to a service, the denial becomes the call's result, and the request is not
/// sent. If the service's tool has changed since the user was asked, the user is asked for a new approval.
#[test]
fn p2_a_denied_service_request_is_never_sent() {
    let (mut session, _) = awaiting_approval();
    let change = session.must(answered(ApprovalVerdict::Denied { reason: None }));
    assert_eq!(
        (change.outbox.len(), &kinds(&change)[..2]),
        (0, &["resumed".to_owned(), "approval_resolved".into()][..])
    );
    assert!(session.apply(allowed(GrantScope::Once)).is_err(), "the denial is final");

    let (mut session, _) = awaiting_approval();
    session.must(allowed(GrantScope::Once));
    let again = vec![ReapprovalRequest { call: id(), digest: digest(8) }];
    let change = session.must(Input::RequestReapproval { calls: again });
    assert_eq!(kinds(&change), ["approval_resolved", "approval_requested", "suspended"]);
    let stale = session.must(allowed(GrantScope::Once));
    assert_eq!(
        (kinds(&stale).contains(&"approval_requested".to_owned()), stale.outbox.len()),
        (true, 0),
        "the answer is void"
    );
}

/// Row 51: a response is only accepted from the sender that the call waits for.
#[test]
fn row51_a_response_from_another_sender_is_refused() {
    let senders = [Answerer::Service, Answerer::Agent, Answerer::User];
    let causes = [
        (WaitCause::Service { event_type: "a".into(), expires_at: None, emits: None }, Answerer::Service),
        (WaitCause::Agent { session: "child".into() }, Answerer::Agent),
        (WaitCause::Answer { question: "Which?".into(), expires_at: None }, Answerer::User),
    ];
    for (cause, expected_sender) in causes {
        for from in senders {
            let mut session = Session::calling(LoopConfig::default());
            session.reply("", vec![crate::session::plain("wait")]);
            let awaits = Some(Awaited { cause: cause.clone(), event: None });
            let call = DispatchedCall { awaits, ..DispatchedCall::running(id(), json!({})) };
            session.must(Input::Dispatched { calls: vec![call] });
            let result = session.apply(Input::Respond { call: id(), from, result: result("mine") });
            assert_eq!(result.is_ok(), from == expected_sender, "{cause:?} from {from:?}: {result:?}");
        }
    }
    // A call that waits for a user's approval does not accept a response.
    let (mut session, _) = awaiting_approval();
    for from in senders {
        assert!(session.apply(Input::Respond { call: id(), from, result: result("mine") }).is_err(), "{from:?}");
    }
    assert!(session.apply(outcome("call_1_1_1", "mine")).is_err());
    assert!(session.apply(request_sent()).is_err());
    let mut session = Session::calling(LoopConfig::default());
    session.reply("", vec![crate::session::plain("pay")]);
    session.must(sent_to_service(&[id()]));
    assert!(session.apply(allowed(GrantScope::Always)).is_err(), "a call that waits for a service needs no approval");
    assert_eq!(session.ledger.call(&id()).record.state, CallState::Outstanding);
}
