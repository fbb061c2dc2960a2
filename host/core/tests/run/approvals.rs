//! Tests of calls that need approval (L17; rows 19 and 20).

use crate::session::{NOW, Session, dispatched, grant, kinds, plain};
use agent_core::approval::{
    ApprovalAnswer, ApprovalOutcome, ApprovalVerdict, Authorization, GrantScope, LastingGrant, ReapprovalRequest,
    ScopedGrant,
};
use agent_core::change::{CallChange, CallState, Change, OutboxEffect};
use agent_core::event::{EventKind, WaitCause};
use agent_core::message::{CallId, Digest};
use agent_core::run::{Action, Approval, Decision, Dispatch, ImportTerms, Input, InputError, LoopConfig, ResolvedCall};
use agent_core::tool::ToolError;
use agent_core::view::result_text;
use serde_json::{Value, json};

fn id(position: u32) -> CallId {
    CallId(format!("call_1_1_{position}"))
}

/// Returns a call that needs approval and has not been approved yet.
fn unapproved(name: &str) -> ResolvedCall {
    ResolvedCall { approval: Approval::Needed(grant(name).digest), ..plain(name) }
}

fn other_digest() -> Digest {
    Digest::from_sha256([9; 32])
}

fn allow(position: u32, scope: GrantScope, grant: LastingGrant) -> ApprovalAnswer {
    let verdict = ApprovalVerdict::Granted { edited: None, grant: ScopedGrant { scope, grant } };
    ApprovalAnswer { call: id(position), verdict }
}

fn once(position: u32, name: &str) -> ApprovalAnswer {
    allow(position, GrantScope::Once, grant(name))
}

fn deny(position: u32, reason: Option<&str>) -> ApprovalAnswer {
    ApprovalAnswer { call: id(position), verdict: ApprovalVerdict::Denied { reason: reason.map(str::to_owned) } }
}

fn answer(session: &mut Session, answers: &[ApprovalAnswer]) -> Change {
    session.must(Input::Approval { answers: answers.to_vec() })
}

/// Returns a session whose first reply contains these calls, and the change for that reply.
fn session_with(calls: Vec<ResolvedCall>) -> (Session, Change) {
    let mut session = Session::calling(LoopConfig::default());
    let change = session.reply("", calls);
    (session, change)
}

fn dispatch(position: u32, authorization: Option<Authorization>) -> Dispatch {
    Dispatch { call: id(position), attempt: 1, authorization, request: None }
}

fn result_of(session: &Session, position: u32) -> (bool, String) {
    let result = session.ledger.call(&id(position)).record.result.clone().expect("the call has a result");
    (result.is_error, result_text(&result.content))
}

#[test]
fn l17_allowed_calls_finish_first_and_then_one_request_covers_all_others() {
    let (mut session, change) = session_with(vec![unapproved("pay"), plain("look"), unapproved("write")]);
    assert!(!kinds(&change).contains(&"approval_requested".to_owned()), "no request is made while a call can run");
    assert_eq!(session.run.action(), Action::Dispatch(vec![dispatch(2, None)]));
    let change = session.run_batch();
    assert_eq!(kinds(&change), ["tool_result", "approval_requested", "suspended"]);
    let EventKind::ApprovalRequested { calls, .. } = &change.events[1].kind else { panic!("{change:?}") };
    let asked: Vec<_> = calls.iter().map(|item| (item.call.clone(), item.name.as_str(), item.digest.clone())).collect();
    let digest = Some(grant("pay").digest);
    assert_eq!(asked, [(id(1), "pay", digest.clone()), (id(3), "write", digest)]);
    assert_eq!(session.apply(dispatched(&[id(1)])), Err(InputError::Settled(id(1), "waiting for an approval")));
    assert_eq!(session.run.asking(), *calls);
    let change = answer(&mut session, &[once(1, "pay")]);
    assert_eq!(kinds(&change), ["approval_resolved", "resumed"]);
    let remaining: Vec<_> = session.run.asking().into_iter().map(|item| item.call).collect();
    assert_eq!(remaining, [id(3)], "the user may answer while another call can run");
    let change = answer(&mut session, &[deny(3, Some("not today"))]);
    assert_eq!(kinds(&change), ["approval_resolved", "tool_call", "tool_result_error"]);
    assert_eq!(session.run.action(), Action::Dispatch(vec![dispatch(1, Some(Authorization::Answered(grant("pay"))))]));
    session.run_batch();
    let (is_error, text) = result_of(&session, 3);
    let error: ToolError = serde_json::from_str(&text).unwrap();
    assert!(is_error && matches!(&error, ToolError::Denied { message } if message.ends_with("They say: not today")));
    assert!(matches!(session.run.action(), Action::CallModel(plan) if plan.step == 2), "all calls have results");
}

#[test]
fn l17_several_denials_end_the_batch_without_another_suspension() {
    let (mut session, _) = session_with(vec![unapproved("a"), unapproved("b"), unapproved("c")]);
    let change = answer(&mut session, &[deny(1, None), deny(3, None)]);
    let expected = [
        "approval_resolved",
        "tool_call",
        "tool_result_error",
        "approval_resolved",
        "tool_call",
        "tool_result_error",
        "suspended",
    ];
    assert_eq!(kinds(&change), expected, "the turn still waits for one call, and announces the suspension once");
    let change = answer(&mut session, &[deny(2, None)]);
    assert_eq!(kinds(&change)[..4], ["resumed", "approval_resolved", "tool_call", "tool_result_error"]);
    assert!(matches!(session.run.action(), Action::CallModel(_)));
}

#[test]
fn l17_an_approval_lasts_for_its_scope() {
    for (scope, session_grants, lasting_grants) in
        [(GrantScope::Once, 0, 0), (GrantScope::Session, 1, 0), (GrantScope::Always, 0, 1)]
    {
        let (mut session, _) = session_with(vec![unapproved("pay")]);
        let change = answer(&mut session, &[allow(1, scope, grant("pay"))]);
        assert_eq!((session.run.grants.len(), change.outbox.len()), (session_grants, lasting_grants), "{scope:?}");
        if let [item] = &change.outbox[..] {
            assert_eq!(item.effect, OutboxEffect::Allow(grant("pay")));
        }
    }
}

#[test]
fn l17_edited_arguments_are_stored_next_to_the_models_arguments() {
    let (mut session, _) = session_with(vec![unapproved("pay")]);
    let edited = json!({"amount": 1});
    let bound = LastingGrant { arguments: Some(other_digest()), ..grant("pay") };
    let grant = ScopedGrant { scope: GrantScope::Once, grant: bound };
    let verdict = ApprovalVerdict::Granted { edited: Some(edited.clone()), grant };
    let change = answer(&mut session, &[ApprovalAnswer { call: id(1), verdict }]);
    assert!(change.calls.contains(&CallChange::Edited { id: id(1), arguments: edited.clone() }));
    let record = &session.ledger.call(&id(1)).record;
    assert_eq!((record.effective_arguments(), &record.arguments), (&edited, &json!({"of": "pay"})));
}

#[test]
fn row_26_edited_arguments_that_are_nested_too_deeply_are_refused() {
    let (mut session, _) = session_with(vec![unapproved("pay")]);
    let deep: Value = serde_json::from_str(&format!("{}{}", "[".repeat(65), "]".repeat(65))).unwrap();
    let grant = ScopedGrant { scope: GrantScope::Once, grant: grant("pay") };
    let verdict = ApprovalVerdict::Granted { edited: Some(deep), grant };
    let result = session.apply(Input::Approval { answers: vec![ApprovalAnswer { call: id(1), verdict }] });
    assert_eq!(result, Err(InputError::TooDeep(id(1))));
}

#[test]
fn row_19_an_answer_about_a_changed_tool_is_void_and_the_user_is_asked_again() {
    let (mut session, _) = session_with(vec![unapproved("pay")]);
    let changed = LastingGrant { digest: other_digest(), ..grant("pay") };
    let change = answer(&mut session, &[allow(1, GrantScope::Always, changed.clone())]);
    assert_eq!(kinds(&change), ["approval_resolved", "approval_requested", "suspended"]);
    assert!(matches!(&change.events[0].kind, EventKind::ApprovalResolved { verdict: ApprovalOutcome::Void, .. }));
    assert!(change.outbox.is_empty() && session.run.grants.is_empty(), "nothing is remembered");
    let change = answer(&mut session, &[once(1, "pay")]);
    assert_eq!(kinds(&change)[0], "approval_resolved", "an answer about the previous tool is void too");
    answer(&mut session, &[allow(1, GrantScope::Once, grant("pay"))]);
    assert!(matches!(session.run.action(), Action::Dispatch(_)));
}

#[test]
fn row_19_a_call_is_checked_again_when_it_is_dispatched() {
    let (mut session, _) = session_with(vec![unapproved("pay"), plain("look")]);
    session.run_batch();
    answer(&mut session, &[once(1, "pay")]);
    let again = |position| ReapprovalRequest { call: id(position), digest: other_digest() };
    let change = session.must(Input::RequestReapproval { calls: vec![again(1)] });
    assert_eq!(kinds(&change), ["approval_resolved", "approval_requested", "suspended"]);
    assert_eq!(
        session.apply(Input::RequestReapproval { calls: vec![again(2)] }),
        Err(InputError::Settled(id(2), "finished"))
    );
    answer(&mut session, &[allow(1, GrantScope::Once, LastingGrant { digest: other_digest(), ..grant("pay") })]);
    session.run_batch();
    assert_eq!(result_of(&session, 1), (false, "ok".into()));
}

#[test]
fn l17_a_remembered_grant_is_distinguished_from_an_answer() {
    let remembered = ResolvedCall { approval: Approval::Remembered(grant("pay")), ..plain("pay") };
    let (session, _) = session_with(vec![remembered]);
    assert_eq!(
        session.run.action(),
        Action::Dispatch(vec![dispatch(1, Some(Authorization::Remembered(grant("pay"))))])
    );
}

#[test]
fn l17_a_changed_configuration_can_require_an_approval_or_deny_a_call() {
    let (mut session, _) = session_with(vec![plain("pay"), plain("wipe")]);
    let change = session
        .must(Input::RequestReapproval { calls: vec![ReapprovalRequest { call: id(1), digest: other_digest() }] });
    assert_eq!(kinds(&change), Vec::<String>::new(), "the call was never approved, and another call can run");
    let error = ToolError::Denied { message: "approval.tools".into() };
    let change = session.must(Input::Forbidden { call: id(2), error: error.clone() });
    assert_eq!(kinds(&change), ["tool_call", "tool_result_error", "approval_requested", "suspended"]);
    assert_eq!(result_of(&session, 2), (true, error.for_model()));
    assert_eq!(session.ledger.call(&id(2)).record.attempt, 0, "the call never ran");
    let late = session.apply(Input::Forbidden { call: id(2), error });
    assert_eq!(late, Err(InputError::Settled(id(2), "finished")));
}

#[test]
fn row_20_an_answer_counts_once_and_only_in_its_session() {
    let (mut session, _) = session_with(vec![unapproved("pay"), unapproved("write")]);
    let twice = Input::Approval { answers: vec![once(1, "pay"), once(1, "pay")] };
    assert_eq!(session.apply(twice), Err(InputError::Settled(id(1), "named twice")));
    answer(&mut session, &[once(1, "pay")]);
    let again = session.apply(Input::Approval { answers: vec![once(1, "pay")] });
    assert_eq!(again, Err(InputError::Settled(id(1), "waiting to run")));
    let foreign = ApprovalAnswer { call: CallId("call_7_1_1".into()), ..once(1, "pay") };
    let foreign = session.apply(Input::Approval { answers: vec![foreign] });
    assert_eq!(foreign, Err(InputError::UnknownCall(CallId("call_7_1_1".into()))));
    assert_eq!(session.apply(Input::Approval { answers: Vec::new() }), Err(InputError::Unexpected("an approval")));
}

#[test]
fn l17_an_imported_state_has_no_approvals_and_runs_nothing() {
    let (mut session, _) = session_with(vec![unapproved("pay"), unapproved("write")]);
    answer(&mut session, &[allow(1, GrantScope::Session, grant("pay"))]);
    let (run, dropped) = session.run.clone().imported(&ImportTerms::default());
    assert!(run.grants.is_empty());
    assert_eq!((dropped.approvals, dropped.calls.as_slice()), (2, &[id(1)][..]));
    let Action::Suspended(suspension) = run.action() else { panic!("{:?}", run.action()) };
    let causes: Vec<_> = suspension.waits.iter().map(|wait| wait.cause.clone()).collect();
    assert_eq!(
        causes,
        [WaitCause::OutcomeUnknown, WaitCause::Approval { expires_at: None }],
        "a user decides about both calls"
    );
}

#[test]
fn l17_d3_an_approval_survives_a_crash_and_a_cancelled_request_ends() {
    let (mut session, _) = session_with(vec![unapproved("pay"), unapproved("write")]);
    assert_eq!(session.crash().events, [], "the turn still waits, and has announced the suspension already");
    answer(&mut session, &[once(1, "pay")]);
    session.crash();
    let authorization = Some(Authorization::Answered(grant("pay")));
    assert_eq!(
        session.run.action(),
        Action::Dispatch(vec![dispatch(1, authorization.clone())]),
        "the user is not asked twice"
    );
    session.dispatch();
    session.crash();
    session.resolve("call_1_1_1", Decision::Retry);
    let retried = Dispatch { attempt: 2, ..dispatch(1, authorization) };
    assert_eq!(session.run.action(), Action::Dispatch(vec![retried]));
    session.must(Input::Cancel);
    assert_eq!(result_of(&session, 2), (true, "cancelled before it ran".into()));
    assert!(session.ledger.in_state(CallState::AwaitingApproval).is_empty());
}

/// I9, L17: a call that nobody decides about in time is not allowed, and the turn continues. A new request has a new time
/// limit.
#[test]
fn i9_l17_an_approval_request_expires() {
    let mut session = Session::calling(LoopConfig { approval_within_ms: Some(500), ..LoopConfig::default() });
    let change = session.reply("", vec![unapproved("pay"), unapproved("write")]);
    let limit = Some(NOW + 500);
    assert!(change.events.iter().any(
        |event| matches!(&event.kind, EventKind::ApprovalRequested { expires_at, calls } if *expires_at == limit && calls.len() == 2)
    ));
    let waits: Vec<_> = session.run.waits().into_iter().map(|wait| wait.cause).collect();
    assert_eq!(waits, vec![WaitCause::Approval { expires_at: limit }; 2]);
    let change = session.must(Input::Expire { call: id(1) });
    assert_eq!(kinds(&change), ["approval_resolved", "tool_call", "tool_result_error", "suspended"]);
    assert!(matches!(&change.events[0].kind, EventKind::ApprovalResolved { verdict: ApprovalOutcome::Expired, .. }));
    let (is_error, text) = result_of(&session, 1);
    assert!(is_error && text.contains("nobody decided in time"), "{text}");
    assert_eq!(session.apply(Input::Expire { call: id(1) }), Err(InputError::Settled(id(1), "finished")));
    answer(&mut session, &[once(2, "write")]);
    session.run_batch();
    assert!(matches!(session.run.action(), Action::CallModel(plan) if plan.step == 2), "the turn continues");
}

/// L17: without a time limit, an approval request never expires.
#[test]
fn l17_an_approval_request_without_a_limit_does_not_expire() {
    let (mut session, _) = session_with(vec![unapproved("pay")]);
    assert_eq!(session.run.waits()[0].cause, WaitCause::Approval { expires_at: None });
    let refused = session.apply(Input::Expire { call: id(1) });
    assert_eq!(refused, Err(InputError::Settled(id(1), "waiting for an approval")));
}
