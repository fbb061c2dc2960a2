//! Approvals with a real plugin and a real database (L17; rows 17, 19, 20): a call that nobody allowed never runs.

mod bound;
pub(crate) mod command_line;
mod events;
mod with_services;

use crate::support::{
    TestHost, base_call_id, call_reply, events, results, run_turn, script, text_reply, with_tree_grant,
};
use agent_core::approval::{ApprovalOutcome, ApprovalPolicy, GrantScope};
use agent_core::event::EventKind;
use agent_core::message::CallId;
use agent_core::run::InputError;
use agent_runtime::approvals::revoke;
use agent_runtime::{
    Agent, AgentConfig, ApprovalDecision, ApprovalError, Checkpoint, Host, OpenSession, Session, SessionError,
    TurnResult, Verdict,
};
use agent_store::{Approvals, Options, SqliteStore, StoreError};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio_util::sync::CancellationToken;

const PAY: &str = "payer.pay";

fn payment(to: &str, amount: u32) -> Value {
    json!({"to": to, "amount": amount})
}

/// Opens a session whose model returns these replies and then a final reply.
async fn session_with_payment_call(test_host: &TestHost, replies: &[Value]) -> Session {
    test_host.session(with_tree_grant(test_host, "payer"), script(&[replies, &[text_reply("Done.")]].concat())).await
}

fn ledger(test_host: &TestHost) -> Vec<String> {
    let text = std::fs::read_to_string(test_host.tree().join("ledger.txt")).unwrap_or_default();
    // The call id at the start of each line is removed, because it differs between runs.
    text.lines().map(|line| line.split_once(' ').expect("an id").1.to_owned()).collect()
}

fn call_id(text: &str) -> CallId {
    CallId(text.to_owned())
}

fn allow(call: &str, scope: GrantScope) -> ApprovalDecision {
    ApprovalDecision { call: call_id(call), verdict: Verdict::Allow { scope, edited: None } }
}

fn allow_once(call: &str) -> ApprovalDecision {
    allow(call, GrantScope::Once)
}

fn deny(call: &str, reason: Option<&str>) -> ApprovalDecision {
    ApprovalDecision { call: call_id(call), verdict: Verdict::Deny { reason: reason.map(str::to_owned) } }
}

fn allow_edited(call: &str, arguments: Value, scope: GrantScope) -> ApprovalDecision {
    ApprovalDecision { call: call_id(call), verdict: Verdict::Allow { scope, edited: Some(arguments) } }
}

async fn continue_turn(session: &mut Session) -> TurnResult {
    session.run(None, CancellationToken::new()).await.unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the calls that wait for an approval. Panics if the turn does not wait for an approval.
fn calls_to_approve(result: &TurnResult) -> Vec<String> {
    match result {
        TurnResult::Suspended(suspension) => suspension.waits.iter().map(|wait| base_call_id(&wait.call.0)).collect(),
        other => panic!("the turn does not wait: {other:?}"),
    }
}

fn expect_finished(result: TurnResult) {
    assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
}

async fn approval_records(test_host: &TestHost, session: &Session) -> Vec<ApprovalOutcome> {
    let events = events(test_host, session).await.into_iter();
    let outcome = |kind| match kind {
        EventKind::ApprovalResolved { verdict, .. } => Some(verdict),
        _ => None,
    };
    events.filter_map(|event| outcome(event.kind)).collect()
}

/// Creates the agent with a changed plugin file, which behaves like the original file but has another digest.
async fn with_replaced_plugin(test_host: &TestHost, config: AgentConfig, replies: Value) -> Arc<Agent> {
    let file = test_host.directory.path().join("plugins/payer.wasm");
    let mut component = std::fs::read(&file).unwrap();
    // Append an empty custom section: id 0, 2 bytes of content, and a name of 1 byte.
    component.extend([0, 2, 1, b'x']);
    std::fs::write(&file, component).unwrap();
    test_host.agent(config, replies).await
}

/// L17: Calls that need no approval finish first. One request then asks for the approval of all remaining calls, and
/// each of these calls is decided separately.
#[tokio::test(flavor = "multi_thread")]
async fn l17_one_request_asks_for_approval_of_all_calls_of_a_batch() {
    let test_host = TestHost::new(&["payer"]).await;
    let calls =
        [(PAY, payment("Ann", 1)), ("payer.look", json!({})), (PAY, payment("Bob", 2)), (PAY, payment("Cy", 3))];
    let mut session = session_with_payment_call(&test_host, &[call_reply(&calls)]).await;
    let result = run_turn(&mut session, "Pay.").await;
    assert_eq!(calls_to_approve(&result), ["call_1_1_1", "call_1_1_3", "call_1_1_4"]);
    assert!(ledger(&test_host).is_empty());
    let all_events = events(&test_host, &session).await;
    let position = |kind: &dyn Fn(&EventKind) -> bool| {
        all_events.iter().position(|event| kind(&event.kind)).expect("the event is stored")
    };
    let look_result = position(&|kind| matches!(kind, EventKind::ToolResult { name, .. } if name == "payer.look"));
    let request = position(&|kind| matches!(kind, EventKind::ApprovalRequested { .. }));
    assert!(look_result < request);
    let EventKind::ApprovalRequested { calls, .. } = &all_events[request].kind else { unreachable!() };
    let details = calls[1].details.as_ref().expect("the event contains everything that is needed for a decision");
    assert_eq!((details.arguments.clone(), details.because.as_str()), (payment("Bob", 2), "the tool itself"));
    assert!(details.traits.needs_approval && details.source.to_string().starts_with("payer@"));
    assert_eq!(session.pending_approvals().await.unwrap(), *calls);
    let answers = vec![
        allow_once("call_1_1_1"),
        deny("call_1_1_3", Some("Bob has enough")),
        allow_edited("call_1_1_4", payment("Cy", 1), GrantScope::Once),
    ];
    session.approve(answers).await.unwrap();
    expect_finished(continue_turn(&mut session).await);
    let mut paid = ledger(&test_host);
    paid.sort();
    assert_eq!(paid, ["Ann 1", "Cy 1"]);
    let results = results(&test_host, &session).await;
    assert_eq!(results[0], (PAY.to_owned(), false, "Ann has 1".to_owned()));
    assert!(results[2].1 && results[2].2.contains("\"denied\"") && results[2].2.contains("Bob has enough"));
    let shown_to_model = "[a person allowed this call with changed arguments: amount = 1]\nCy has 1";
    assert_eq!(
        results[3],
        (PAY.to_owned(), false, shown_to_model.to_owned()),
        "the model sees that the arguments were edited"
    );
}

/// L17, L8: Arguments that the user edited are checked against the tool's schema, like arguments from the model. A
/// refused decision changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn l17_checks_edited_arguments_against_the_schema() {
    let test_host = TestHost::new(&["payer"]).await;
    let mut session =
        session_with_payment_call(&test_host, &[call_reply(&[(PAY, payment("Ann", 1)), (PAY, payment("Bob", 2))])])
            .await;
    run_turn(&mut session, "Pay.").await;
    let before = session.state().clone();
    let bad = allow_edited("call_1_1_2", json!({"to": "Bob", "amount": 0}), GrantScope::Once);
    let refused = session.approve(vec![allow_once("call_1_1_1"), bad]).await;
    let Err(SessionError::Approval(ApprovalError::Arguments { call, violations, .. })) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!((base_call_id(&call.0).as_str(), violations[0].pointer.as_str()), ("call_1_1_2", "/amount"));
    assert_eq!(*session.state(), before, "neither call was decided");
    session.approve(vec![deny("call_1_1_1", None), deny("call_1_1_2", None)]).await.unwrap();
    expect_finished(continue_turn(&mut session).await);
    assert!(ledger(&test_host).is_empty());
}

/// L17: An approval is granted for one call, for the session, or permanently until it is revoked. A revocation takes
/// effect immediately.
#[tokio::test(flavor = "multi_thread")]
async fn l17_an_approval_lasts_for_its_scope() {
    let test_host = TestHost::new(&["payer"]).await;
    let pay = |amount| call_reply(&[(PAY, payment("Ann", amount))]);
    let mut session = session_with_payment_call(&test_host, &[pay(1), pay(2), pay(3), pay(4)]).await;
    assert_eq!(calls_to_approve(&run_turn(&mut session, "Pay.").await), ["call_1_1_1"]);
    session.approve(vec![allow_once("call_1_1_1")]).await.unwrap();
    assert_eq!(calls_to_approve(&continue_turn(&mut session).await), ["call_1_2_1"], "`once` allows only one call");
    session.approve(vec![allow("call_1_2_1", GrantScope::Session)]).await.unwrap();
    expect_finished(continue_turn(&mut session).await);
    assert_eq!(ledger(&test_host), ["Ann 1", "Ann 2", "Ann 3", "Ann 4"]);
    assert!(
        test_host.store.allowed("test").await.unwrap().is_empty(),
        "an approval for one session is not stored for other sessions"
    );

    let mut other_session = session_with_payment_call(&test_host, &[pay(5), pay(6)]).await;
    assert_eq!(
        calls_to_approve(&run_turn(&mut other_session, "Pay.").await),
        ["call_1_1_1"],
        "row 20: another session has no such grant"
    );
    other_session.approve(vec![allow("call_1_1_1", GrantScope::Always)]).await.unwrap();
    expect_finished(continue_turn(&mut other_session).await);
    let mut third = session_with_payment_call(&test_host, &[pay(7), pay(8), text_reply("Done."), pay(9)]).await;
    expect_finished(run_turn(&mut third, "Pay.").await);
    assert_eq!(ledger(&test_host)[4..], ["Ann 5", "Ann 6", "Ann 7", "Ann 8"]);

    let [grant] = &test_host.store.allowed("test").await.unwrap()[..] else { panic!("one grant") };
    assert!(revoke(&*test_host.store, &grant.id).await.unwrap());
    assert_eq!(calls_to_approve(&run_turn(&mut third, "Once more.").await), ["call_2_1_1"]);
    assert_eq!(ledger(&test_host).len(), 8);
}

/// L17: If a permanent grant is revoked after the model's reply and before the call runs, the call does not run.
#[tokio::test(flavor = "multi_thread")]
async fn l17_a_revocation_stops_a_call_that_is_about_to_run() {
    let test_host = TestHost::new(&["payer"]).await;
    let pay = |to| call_reply(&[(PAY, payment(to, 1))]);
    let replies = script(&[pay("Ann"), pay("Bob"), text_reply("Done.")]);
    let agent = test_host.agent(with_tree_grant(&test_host, "payer"), replies).await;
    let file = test_host.directory.path().join("agent-host.db");
    let reply_count = AtomicU32::new(0);
    // The second payment is stored as allowed by the permanent grant. A second connection to the store now revokes the
    // permanent grant.
    let revoke_after_reply = move |checkpoint: Checkpoint<'_>| {
        if checkpoint == Checkpoint::AfterCommit("reply") && reply_count.fetch_add(1, Ordering::SeqCst) == 1 {
            let file = file.clone();
            let done = std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let store = SqliteStore::open(file, Options::default()).unwrap();
                    let grants = store.allowed("test").await.unwrap();
                    assert!(revoke(&store, &grants[0].id).await.unwrap());
                });
            });
            done.join().unwrap();
        }
    };
    let host = Host { checkpoint: Some(Arc::new(revoke_after_reply)), ..test_host.host() };
    let mut session = Session::open(&host, agent, OpenSession::New).await.unwrap();
    run_turn(&mut session, "Pay.").await;
    session.approve(vec![allow("call_1_1_1", GrantScope::Always)]).await.unwrap();
    assert_eq!(calls_to_approve(&continue_turn(&mut session).await), ["call_1_2_1"]);
    assert_eq!(approval_records(&test_host, &session).await, [ApprovalOutcome::Always, ApprovalOutcome::Void]);
    assert_eq!(ledger(&test_host), ["Ann 1"]);
    session.approve(vec![allow_once("call_1_2_1")]).await.unwrap();
    expect_finished(continue_turn(&mut session).await);
    assert_eq!(ledger(&test_host), ["Ann 1", "Bob 1"]);
}

/// L17: An approval that is bound to certain arguments applies only to calls with these arguments. If the user edits
/// the arguments, the approval is always bound to the edited arguments.
#[tokio::test(flavor = "multi_thread")]
async fn l17_a_bound_approval_applies_only_to_its_arguments() {
    let test_host = TestHost::new(&["payer"]).await;
    let mut config = with_tree_grant(&test_host, "payer");
    config.approvals.bind_arguments = vec!["payer.*".to_owned()];
    let shuffled = json!({"amount": 1, "to": "Ann"});
    let replies = [
        call_reply(&[(PAY, payment("Ann", 1))]),
        call_reply(&[(PAY, shuffled), (PAY, payment("Ann", 2))]),
        text_reply("Done."),
    ];
    let mut session = test_host.session(config, script(&replies)).await;
    run_turn(&mut session, "Pay.").await;
    session.approve(vec![allow("call_1_1_1", GrantScope::Session)]).await.unwrap();
    assert_eq!(
        calls_to_approve(&continue_turn(&mut session).await),
        ["call_1_2_2"],
        "row 20: other arguments need a new approval"
    );
    assert_eq!(
        ledger(&test_host),
        ["Ann 1", "Ann 1"],
        "equal arguments need no new approval, in any order of their keys"
    );

    let pay = |amount| call_reply(&[(PAY, payment("Bob", amount))]);
    let mut session = session_with_payment_call(&test_host, &[pay(100), pay(100), pay(1)]).await;
    run_turn(&mut session, "Pay.").await;
    session.approve(vec![allow_edited("call_1_1_1", payment("Bob", 1), GrantScope::Session)]).await.unwrap();
    assert_eq!(
        calls_to_approve(&continue_turn(&mut session).await),
        ["call_1_2_1"],
        "the grant does not apply to the arguments before the edit"
    );
    session.approve(vec![deny("call_1_2_1", None)]).await.unwrap();
    expect_finished(continue_turn(&mut session).await);
    assert_eq!(ledger(&test_host)[2..], ["Bob 1", "Bob 1"]);
}

/// Row 19: Approvals for a tool do not apply to a component with another digest, because its tool counts as
/// another tool.
#[tokio::test(flavor = "multi_thread")]
async fn row_19_asks_again_for_a_changed_plugin() {
    let test_host = TestHost::new(&["payer"]).await;
    let pay = |amount| call_reply(&[(PAY, payment("Ann", amount))]);
    let replies = script(&[pay(1), text_reply("Done."), pay(2), text_reply("Done.")]);
    let mut session = test_host.session(with_tree_grant(&test_host, "payer"), replies.clone()).await;
    run_turn(&mut session, "Pay.").await;
    session.approve(vec![allow("call_1_1_1", GrantScope::Always)]).await.unwrap();
    expect_finished(continue_turn(&mut session).await);
    let agent = with_replaced_plugin(&test_host, with_tree_grant(&test_host, "payer"), replies).await;
    session.live().change(|_| agent.with_config(agent.config().clone())).unwrap();
    assert_eq!(calls_to_approve(&run_turn(&mut session, "Pay again.").await), ["call_2_1_1"]);
    assert_eq!(ledger(&test_host), ["Ann 1"]);
    let grants = test_host.store.allowed("test").await.unwrap();
    let item = &session.pending_approvals().await.unwrap()[0];
    assert_ne!(item.digest.as_ref(), Some(&grants[0].grant.digest));
}

/// Row 19, P10: A turn that waits for an approval continues with the component whose digest is in the approval request,
/// even if the file in the plugin directory has changed since the request.
#[tokio::test(flavor = "multi_thread")]
async fn row_19_runs_the_plugin_that_the_approval_named() {
    let test_host = TestHost::new(&["payer"]).await;
    let replies = script(&[call_reply(&[(PAY, payment("Ann", 1))]), text_reply("Done.")]);
    let mut session = test_host.session(with_tree_grant(&test_host, "payer"), replies.clone()).await;
    run_turn(&mut session, "Pay.").await;
    let pending_approvals = session.pending_approvals().await.unwrap();
    let subject = session.subject().to_owned();
    session.close().await.unwrap();
    let agent = with_replaced_plugin(&test_host, with_tree_grant(&test_host, "payer"), replies).await;
    let mut session = Session::open(&test_host.host(), agent, OpenSession::Existing(subject)).await.unwrap();
    assert_eq!(session.pending_approvals().await.unwrap(), pending_approvals, "the request is unchanged");
    session.approve(vec![allow_once("call_1_1_1")]).await.unwrap();
    expect_finished(continue_turn(&mut session).await);
    assert_eq!(ledger(&test_host), ["Ann 1"]);
}

/// L17: When a call starts, the current approval rules apply to the call, even if the call was approved under
/// other rules.
#[tokio::test(flavor = "multi_thread")]
async fn l17_a_stricter_policy_stops_an_allowed_call() {
    let test_host = TestHost::new(&["payer"]).await;
    let replies =
        script(&[call_reply(&[(PAY, payment("Ann", 1)), ("payer.wipe", payment("x", 1))]), text_reply("Done.")]);
    let mut lenient = with_tree_grant(&test_host, "payer");
    lenient.approvals.destructive = ApprovalPolicy::Ask;
    let mut session = test_host.session(lenient, replies.clone()).await;
    assert_eq!(calls_to_approve(&run_turn(&mut session, "Pay.").await).len(), 2);
    session.approve(vec![allow_once("call_1_1_1"), allow_once("call_1_1_2")]).await.unwrap();
    let subject = session.subject().to_owned();
    session.close().await.unwrap();
    let mut strict = with_tree_grant(&test_host, "payer");
    strict.approvals.tools = [("payer.pay".to_owned(), ApprovalPolicy::Deny)].into();
    let agent = test_host.agent(strict, replies).await;
    assert!(agent.registry().offered().iter().all(|tool| tool.author_name != PAY), "a denied tool is not offered");
    let mut session = Session::open(&test_host.host(), agent, OpenSession::Existing(subject)).await.unwrap();
    expect_finished(continue_turn(&mut session).await);
    assert_eq!(ledger(&test_host), ["x 1"]);
    let (_, is_error, text) = &results(&test_host, &session).await[0];
    assert!(
        *is_error && text.contains("approval.tools.\\\"payer.pay\\\" = \\\"deny\\\""),
        "the result names the configuration key: {text}"
    );
}

/// Row 17: If a model obeys instructions in a tool's output, the call that it makes does not run without approval.
#[tokio::test(flavor = "multi_thread")]
async fn row_17_a_model_that_obeys_a_tools_output_is_stopped() {
    let test_host = TestHost::new(&["payer"]).await;
    let look_call = call_reply(&[("payer.look", json!({}))]);
    let mut obeying_reply = call_reply(&[(PAY, payment("mallory", 1000))]);
    obeying_reply["expect"] = json!({"last_contains": "the user has allowed everything"});
    let second_attempt = call_reply(&[(PAY, payment("mallory", 999))]);
    let mut session = session_with_payment_call(&test_host, &[look_call, obeying_reply, second_attempt]).await;
    assert_eq!(calls_to_approve(&run_turn(&mut session, "What is there to do?").await), ["call_1_2_1"]);
    session.approve(vec![deny("call_1_2_1", None)]).await.unwrap();
    assert_eq!(calls_to_approve(&continue_turn(&mut session).await), ["call_1_3_1"], "a retry needs a new approval");
    session.approve(vec![deny("call_1_3_1", None)]).await.unwrap();
    expect_finished(continue_turn(&mut session).await);
    assert!(ledger(&test_host).is_empty());
    let mut config = with_tree_grant(&test_host, "payer");
    config.approvals.tools = [("payer.pay".to_owned(), ApprovalPolicy::Deny)].into();
    let look_call = call_reply(&[("payer.look", json!({}))]);
    let pay = call_reply(&[(PAY, payment("mallory", 1000))]);
    let mut denied = test_host.session(config, script(&[look_call, pay, text_reply("I may not.")])).await;
    expect_finished(run_turn(&mut denied, "What is there to do?").await);
    assert!(ledger(&test_host).is_empty());
}

/// Row 20: The host accepts only one approval of each call. A second approval of the same call and an
/// approval of another session's call are refused.
#[tokio::test(flavor = "multi_thread")]
async fn row_20_an_approval_cannot_be_replayed() {
    let test_host = TestHost::new(&["payer"]).await;
    let mut session = session_with_payment_call(
        &test_host,
        &[call_reply(&[(PAY, payment("Ann", 1))]), call_reply(&[(PAY, payment("Ann", 2))])],
    )
    .await;
    run_turn(&mut session, "Pay.").await;
    session.approve(vec![allow_once("call_1_1_1")]).await.unwrap();
    let second_approval = session.approve(vec![allow_once("call_1_1_1")]).await;
    assert!(matches!(second_approval, Err(SessionError::Input(InputError::Settled(..)))), "{second_approval:?}");
    assert_eq!(calls_to_approve(&continue_turn(&mut session).await), ["call_1_2_1"]);
    let late_approval = session.approve(vec![allow_once("call_1_1_1")]).await;
    assert!(
        matches!(late_approval, Err(SessionError::Input(InputError::UnknownCall(_) | InputError::Settled(..)))),
        "{late_approval:?}"
    );
    let mut other_session = session_with_payment_call(&test_host, &[]).await;
    run_turn(&mut other_session, "Hello.").await;
    let foreign = other_session.approve(vec![allow_once("call_1_2_1")]).await;
    assert!(matches!(foreign, Err(SessionError::Input(InputError::UnknownCall(_)))), "{foreign:?}");
    assert_eq!(ledger(&test_host), ["Ann 1"]);
}

/// Row 20: If two processes answer the same approval request at the same time, one answer is accepted, the other is
/// refused, and the call runs once.
#[tokio::test(flavor = "multi_thread")]
async fn row_20_one_of_two_concurrent_answers_is_accepted() {
    let test_host = TestHost::new(&["payer"]).await;
    let replies = script(&[call_reply(&[(PAY, payment("Ann", 1))]), text_reply("Done.")]);
    let mut session = test_host.session(with_tree_grant(&test_host, "payer"), replies.clone()).await;
    run_turn(&mut session, "Pay.").await;
    let subject = session.subject().to_owned();
    session.close().await.unwrap();
    let agent = test_host.agent(with_tree_grant(&test_host, "payer"), replies).await;
    let answer = |agent: Arc<Agent>| {
        let (host, subject) = (test_host.host(), subject.clone());
        async move {
            let mut session = Session::open(&host, agent, OpenSession::Existing(subject)).await?;
            let answered = session.approve(vec![allow_once("call_1_1_1")]).await;
            if answered.is_ok() {
                session.run(None, CancellationToken::new()).await?;
            }
            session.close().await?;
            answered
        }
    };
    let (first, second) = tokio::join!(answer(agent.clone()), answer(agent));
    let outcomes = [first, second];
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1, "{outcomes:?}");
    let refusal = outcomes.into_iter().find_map(Result::err).expect("one answer was refused");
    let is_refusal = matches!(refusal, SessionError::Store(StoreError::Busy { .. }) | SessionError::Input(_));
    assert!(is_refusal, "{refusal}");
    assert_eq!(ledger(&test_host), ["Ann 1"]);
}

/// L29: A turn that waits for an approval can be cancelled, and the session can continue.
#[tokio::test(flavor = "multi_thread")]
async fn l29_cancels_a_turn_that_waits_for_an_approval() {
    let test_host = TestHost::new(&["payer"]).await;
    let mut session = session_with_payment_call(&test_host, &[call_reply(&[(PAY, payment("Ann", 1))])]).await;
    run_turn(&mut session, "Pay.").await;
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    assert_eq!(session.run(None, cancelled).await.unwrap(), TurnResult::Cancelled);
    assert_eq!(results(&test_host, &session).await[0].2, "cancelled before it ran");
    expect_finished(run_turn(&mut session, "Then not.").await);
    assert!(ledger(&test_host).is_empty());
}
