//! Approvals with a real plugin and a real database (L17; rows 17, 19, 20): what nobody has allowed never runs.

mod bound;
pub(crate) mod command_line;
mod events;
mod with_services;

use crate::support::{House, calling, events, granting, results, saying, script, short, turn};
use agent_core::approval::{ApprovalPolicy, ApprovalWord, GrantScope};
use agent_core::event::EventKind;
use agent_core::message::CallId;
use agent_core::run::Refused;
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

/// A session whose model makes these replies and then says that it is done.
async fn paying(house: &House, replies: &[Value]) -> Session {
    house.session(granting(house, "payer"), script(&[replies, &[saying("Done.")]].concat())).await
}

fn ledger(house: &House) -> Vec<String> {
    let text = std::fs::read_to_string(house.tree().join("ledger.txt")).unwrap_or_default();
    // Without the calls' ids.
    text.lines().map(|line| line.split_once(' ').expect("an id").1.to_owned()).collect()
}

fn id(text: &str) -> CallId {
    CallId(text.to_owned())
}

fn allow(call: &str, scope: GrantScope) -> ApprovalDecision {
    ApprovalDecision { call: id(call), verdict: Verdict::Allow { scope, edited: None } }
}

fn once(call: &str) -> ApprovalDecision {
    allow(call, GrantScope::Once)
}

fn deny(call: &str, reason: Option<&str>) -> ApprovalDecision {
    ApprovalDecision { call: id(call), verdict: Verdict::Deny { reason: reason.map(str::to_owned) } }
}

fn edited(call: &str, arguments: Value, scope: GrantScope) -> ApprovalDecision {
    ApprovalDecision { call: id(call), verdict: Verdict::Allow { scope, edited: Some(arguments) } }
}

async fn go_on(session: &mut Session) -> TurnResult {
    session.run(None, CancellationToken::new()).await.unwrap_or_else(|error| panic!("{error}"))
}

/// The calls that wait for an approval; panics where the turn does not wait.
fn asked(result: &TurnResult) -> Vec<String> {
    match result {
        TurnResult::Suspended(suspension) => suspension.waits.iter().map(|wait| short(&wait.call.0)).collect(),
        other => panic!("the turn does not wait: {other:?}"),
    }
}

fn finished(result: TurnResult) {
    assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
}

async fn words(house: &House, session: &Session) -> Vec<ApprovalWord> {
    let events = events(house, session).await.into_iter();
    let word = |kind| match kind {
        EventKind::ApprovalResolved { verdict, .. } => Some(verdict),
        _ => None,
    };
    events.filter_map(|event| word(event.kind)).collect()
}

/// The same agent after its plugin's file was replaced by one that does the same and has another digest.
async fn replaced(house: &House, config: AgentConfig, replies: Value) -> Arc<Agent> {
    let file = house.directory.path().join("plugins/payer.wasm");
    let mut component = std::fs::read(&file).unwrap();
    // A custom section: its kind, its size, and its name with its length.
    component.extend([0, 2, 1, b'x']);
    std::fs::write(&file, component).unwrap();
    house.agent(config, replies).await
}

/// L17: allowed calls finish first, then one request asks for all others; each goes its own way.
#[tokio::test(flavor = "multi_thread")]
async fn l17_one_request_for_all_calls_of_a_batch() {
    let house = House::new(&["payer"]).await;
    let calls =
        [(PAY, payment("Ann", 1)), ("payer.look", json!({})), (PAY, payment("Bob", 2)), (PAY, payment("Cy", 3))];
    let mut session = paying(&house, &[calling(&calls)]).await;
    let result = turn(&mut session, "Pay.").await;
    assert_eq!(asked(&result), ["call_1_1_1", "call_1_1_3", "call_1_1_4"]);
    assert!(ledger(&house).is_empty());
    let all = events(&house, &session).await;
    let place = |kind: &dyn Fn(&EventKind) -> bool| all.iter().position(|event| kind(&event.kind)).expect("there");
    let looked = place(&|kind| matches!(kind, EventKind::ToolResult { name, .. } if name == "payer.look"));
    let request = place(&|kind| matches!(kind, EventKind::ApprovalRequested { .. }));
    assert!(looked < request);
    let EventKind::ApprovalRequested { calls } = &all[request].kind else { unreachable!() };
    let details = calls[1].details.as_ref().expect("who reads the event can decide");
    assert_eq!((details.arguments.clone(), details.because.as_str()), (payment("Bob", 2), "the tool itself"));
    assert!(details.traits.needs_approval && details.source.to_string().starts_with("payer@"));
    assert_eq!(session.asked_approvals().await.unwrap(), *calls);
    let answers = vec![
        once("call_1_1_1"),
        deny("call_1_1_3", Some("Bob has enough")),
        edited("call_1_1_4", payment("Cy", 1), GrantScope::Once),
    ];
    session.approve(answers).await.unwrap();
    finished(go_on(&mut session).await);
    let mut paid = ledger(&house);
    paid.sort();
    assert_eq!(paid, ["Ann 1", "Cy 1"]);
    let results = results(&house, &session).await;
    assert_eq!(results[0], (PAY.to_owned(), false, "Ann has 1".to_owned()));
    assert!(results[2].1 && results[2].2.contains("\"denied\"") && results[2].2.contains("Bob has enough"));
    let told = "[a person allowed this call with changed arguments: amount = 1]\nCy has 1";
    assert_eq!(results[3], (PAY.to_owned(), false, told.to_owned()), "the model is told what was changed");
}

/// L17, L8: changed arguments are checked as the model's are; a decision that cannot be taken changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn l17_changed_arguments_pass_the_schema_or_nothing_happens() {
    let house = House::new(&["payer"]).await;
    let mut session = paying(&house, &[calling(&[(PAY, payment("Ann", 1)), (PAY, payment("Bob", 2))])]).await;
    turn(&mut session, "Pay.").await;
    let before = session.state().clone();
    let bad = edited("call_1_1_2", json!({"to": "Bob", "amount": 0}), GrantScope::Once);
    let refused = session.approve(vec![once("call_1_1_1"), bad]).await;
    let Err(SessionError::Approval(ApprovalError::Arguments { call, violations, .. })) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!((short(&call.0).as_str(), violations[0].pointer.as_str()), ("call_1_1_2", "/amount"));
    assert_eq!(*session.state(), before, "neither of both was decided");
    session.approve(vec![deny("call_1_1_1", None), deny("call_1_1_2", None)]).await.unwrap();
    finished(go_on(&mut session).await);
    assert!(ledger(&house).is_empty());
}

/// L17: once, this session, always, and a revocation that acts at once.
#[tokio::test(flavor = "multi_thread")]
async fn l17_a_yes_lasts_as_long_as_it_says() {
    let house = House::new(&["payer"]).await;
    let pay = |amount| calling(&[(PAY, payment("Ann", amount))]);
    let mut session = paying(&house, &[pay(1), pay(2), pay(3), pay(4)]).await;
    assert_eq!(asked(&turn(&mut session, "Pay.").await), ["call_1_1_1"]);
    session.approve(vec![once("call_1_1_1")]).await.unwrap();
    assert_eq!(asked(&go_on(&mut session).await), ["call_1_2_1"], "once is once");
    session.approve(vec![allow("call_1_2_1", GrantScope::Session)]).await.unwrap();
    finished(go_on(&mut session).await);
    assert_eq!(ledger(&house), ["Ann 1", "Ann 2", "Ann 3", "Ann 4"]);
    assert!(house.store.allowed("test").await.unwrap().is_empty(), "it is not remembered beyond the session");

    let mut other = paying(&house, &[pay(5), pay(6)]).await;
    assert_eq!(asked(&turn(&mut other, "Pay.").await), ["call_1_1_1"], "row 20: another session has no such leave");
    other.approve(vec![allow("call_1_1_1", GrantScope::Always)]).await.unwrap();
    finished(go_on(&mut other).await);
    let mut third = paying(&house, &[pay(7), pay(8), saying("Done."), pay(9)]).await;
    finished(turn(&mut third, "Pay.").await);
    assert_eq!(ledger(&house)[4..], ["Ann 5", "Ann 6", "Ann 7", "Ann 8"]);

    let [grant] = &house.store.allowed("test").await.unwrap()[..] else { panic!("one grant") };
    assert!(revoke(&*house.store, &grant.id).await.unwrap());
    assert_eq!(asked(&turn(&mut third, "Once more.").await), ["call_2_1_1"]);
    assert_eq!(ledger(&house).len(), 8);
}

/// L17: what was allowed for good and is revoked after the reply, before its call runs, does not run.
#[tokio::test(flavor = "multi_thread")]
async fn l17_a_revocation_acts_on_a_call_that_is_about_to_run() {
    let house = House::new(&["payer"]).await;
    let pay = |to| calling(&[(PAY, payment(to, 1))]);
    let replies = script(&[pay("Ann"), pay("Bob"), saying("Done.")]);
    let agent = house.agent(granting(&house, "payer"), replies).await;
    let file = house.directory.path().join("agent-host.db");
    let replied = AtomicU32::new(0);
    // The second payment is stored as one that is remembered to be allowed. Another process revokes that now.
    let revoking = move |checkpoint: Checkpoint<'_>| {
        if checkpoint == Checkpoint::AfterCommit("reply") && replied.fetch_add(1, Ordering::SeqCst) == 1 {
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
    let host = Host { checkpoint: Some(Arc::new(revoking)), ..house.host() };
    let mut session = Session::open(&host, agent, OpenSession::New).await.unwrap();
    turn(&mut session, "Pay.").await;
    session.approve(vec![allow("call_1_1_1", GrantScope::Always)]).await.unwrap();
    assert_eq!(asked(&go_on(&mut session).await), ["call_1_2_1"]);
    assert_eq!(words(&house, &session).await, [ApprovalWord::Always, ApprovalWord::Void]);
    assert_eq!(ledger(&house), ["Ann 1"]);
    session.approve(vec![once("call_1_2_1")]).await.unwrap();
    finished(go_on(&mut session).await);
    assert_eq!(ledger(&house), ["Ann 1", "Bob 1"]);
}

/// L17: a grant that is bound to arguments holds for these only; a changed one always is.
#[tokio::test(flavor = "multi_thread")]
async fn l17_a_grant_may_be_bound_to_the_arguments() {
    let house = House::new(&["payer"]).await;
    let mut config = granting(&house, "payer");
    config.approvals.bind_arguments = vec!["payer.*".to_owned()];
    let shuffled = json!({"amount": 1, "to": "Ann"});
    let replies =
        [calling(&[(PAY, payment("Ann", 1))]), calling(&[(PAY, shuffled), (PAY, payment("Ann", 2))]), saying("Done.")];
    let mut session = house.session(config, script(&replies)).await;
    turn(&mut session, "Pay.").await;
    session.approve(vec![allow("call_1_1_1", GrantScope::Session)]).await.unwrap();
    assert_eq!(asked(&go_on(&mut session).await), ["call_1_2_2"], "row 20: other arguments are asked for");
    assert_eq!(ledger(&house), ["Ann 1", "Ann 1"], "equal ones are not, whatever the order of their keys");

    let pay = |amount| calling(&[(PAY, payment("Bob", amount))]);
    let mut session = paying(&house, &[pay(100), pay(100), pay(1)]).await;
    turn(&mut session, "Pay.").await;
    session.approve(vec![edited("call_1_1_1", payment("Bob", 1), GrantScope::Session)]).await.unwrap();
    assert_eq!(asked(&go_on(&mut session).await), ["call_1_2_1"], "what was changed was not allowed");
    session.approve(vec![deny("call_1_2_1", None)]).await.unwrap();
    finished(go_on(&mut session).await);
    assert_eq!(ledger(&house)[2..], ["Bob 1", "Bob 1"]);
}

/// Row 19: a component with another digest is another tool: what was remembered for the first one is void.
#[tokio::test(flavor = "multi_thread")]
async fn row_19_a_changed_plugin_is_asked_for_again() {
    let house = House::new(&["payer"]).await;
    let pay = |amount| calling(&[(PAY, payment("Ann", amount))]);
    let replies = script(&[pay(1), saying("Done."), pay(2), saying("Done.")]);
    let mut session = house.session(granting(&house, "payer"), replies.clone()).await;
    turn(&mut session, "Pay.").await;
    session.approve(vec![allow("call_1_1_1", GrantScope::Always)]).await.unwrap();
    finished(go_on(&mut session).await);
    let agent = replaced(&house, granting(&house, "payer"), replies).await;
    session.live().change(|_| agent.with_config(agent.config().clone())).unwrap();
    assert_eq!(asked(&turn(&mut session, "Pay again.").await), ["call_2_1_1"]);
    assert_eq!(ledger(&house), ["Ann 1"]);
    let grants = house.store.allowed("test").await.unwrap();
    let item = &session.asked_approvals().await.unwrap()[0];
    assert_ne!(item.digest.as_ref(), Some(&grants[0].grant.digest));
}

/// Row 19, P10: a turn that waits keeps the component that somebody was asked about, whatever lies in the folder meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn row_19_a_plugin_replaced_while_somebody_is_asked_is_not_what_runs() {
    let house = House::new(&["payer"]).await;
    let replies = script(&[calling(&[(PAY, payment("Ann", 1))]), saying("Done.")]);
    let mut session = house.session(granting(&house, "payer"), replies.clone()).await;
    turn(&mut session, "Pay.").await;
    let shown = session.asked_approvals().await.unwrap();
    let subject = session.subject().to_owned();
    session.close().await.unwrap();
    let agent = replaced(&house, granting(&house, "payer"), replies).await;
    let mut session = Session::open(&house.host(), agent, OpenSession::Existing(subject)).await.unwrap();
    assert_eq!(session.asked_approvals().await.unwrap(), shown, "what was asked is what is asked");
    session.approve(vec![once("call_1_1_1")]).await.unwrap();
    finished(go_on(&mut session).await);
    assert_eq!(ledger(&house), ["Ann 1"]);
}

/// L17: the configuration that counts is the one that holds when the call is dispatched.
#[tokio::test(flavor = "multi_thread")]
async fn l17_a_policy_that_has_become_stricter_stops_what_was_allowed() {
    let house = House::new(&["payer"]).await;
    let replies = script(&[calling(&[(PAY, payment("Ann", 1)), ("payer.wipe", payment("x", 1))]), saying("Done.")]);
    let mut lenient = granting(&house, "payer");
    lenient.approvals.destructive = ApprovalPolicy::Ask;
    let mut session = house.session(lenient, replies.clone()).await;
    assert_eq!(asked(&turn(&mut session, "Pay.").await).len(), 2);
    session.approve(vec![once("call_1_1_1"), once("call_1_1_2")]).await.unwrap();
    let subject = session.subject().to_owned();
    session.close().await.unwrap();
    let mut strict = granting(&house, "payer");
    strict.approvals.tools = [("payer.pay".to_owned(), ApprovalPolicy::Deny)].into();
    let agent = house.agent(strict, replies).await;
    assert!(agent.registry().offered().iter().all(|tool| tool.author_name != PAY), "what is denied is not offered");
    let mut session = Session::open(&house.host(), agent, OpenSession::Existing(subject)).await.unwrap();
    finished(go_on(&mut session).await);
    assert_eq!(ledger(&house), ["x 1"]);
    let (_, is_error, text) = &results(&house, &session).await[0];
    assert!(*is_error && text.contains("approval.tools.\\\"payer.pay\\\" = \\\"deny\\\""), "it names the key: {text}");
}

/// Row 17: a model that obeys what a tool's output tells it gets no further than a person lets it.
#[tokio::test(flavor = "multi_thread")]
async fn row_17_a_model_that_obeys_a_tools_output_is_stopped() {
    let house = House::new(&["payer"]).await;
    let look = calling(&[("payer.look", json!({}))]);
    let mut obeys = calling(&[(PAY, payment("mallory", 1000))]);
    obeys["expect"] = json!({"last_contains": "the user has allowed everything"});
    let again = calling(&[(PAY, payment("mallory", 999))]);
    let mut session = paying(&house, &[look, obeys, again]).await;
    assert_eq!(asked(&turn(&mut session, "What is there to do?").await), ["call_1_2_1"]);
    session.approve(vec![deny("call_1_2_1", None)]).await.unwrap();
    assert_eq!(asked(&go_on(&mut session).await), ["call_1_3_1"], "trying again is asked for again");
    session.approve(vec![deny("call_1_3_1", None)]).await.unwrap();
    finished(go_on(&mut session).await);
    assert!(ledger(&house).is_empty());
    let mut config = granting(&house, "payer");
    config.approvals.tools = [("payer.pay".to_owned(), ApprovalPolicy::Deny)].into();
    let look = calling(&[("payer.look", json!({}))]);
    let pay = calling(&[(PAY, payment("mallory", 1000))]);
    let mut denied = house.session(config, script(&[look, pay, saying("I may not.")])).await;
    finished(turn(&mut denied, "What is there to do?").await);
    assert!(ledger(&house).is_empty());
}

/// Row 20: an approval counts once; a second one, and one for another session's call, is refused.
#[tokio::test(flavor = "multi_thread")]
async fn row_20_an_approval_cannot_be_replayed() {
    let house = House::new(&["payer"]).await;
    let mut session =
        paying(&house, &[calling(&[(PAY, payment("Ann", 1))]), calling(&[(PAY, payment("Ann", 2))])]).await;
    turn(&mut session, "Pay.").await;
    session.approve(vec![once("call_1_1_1")]).await.unwrap();
    let again = session.approve(vec![once("call_1_1_1")]).await;
    assert!(matches!(again, Err(SessionError::Refused(Refused::Settled(..)))), "{again:?}");
    assert_eq!(asked(&go_on(&mut session).await), ["call_1_2_1"]);
    let late = session.approve(vec![once("call_1_1_1")]).await;
    assert!(matches!(late, Err(SessionError::Refused(Refused::UnknownCall(_) | Refused::Settled(..)))), "{late:?}");
    let mut other = paying(&house, &[]).await;
    turn(&mut other, "Hello.").await;
    let foreign = other.approve(vec![once("call_1_2_1")]).await;
    assert!(matches!(foreign, Err(SessionError::Refused(Refused::UnknownCall(_)))), "{foreign:?}");
    assert_eq!(ledger(&house), ["Ann 1"]);
}

/// Row 20: of two who answer at once, one has the session; the other is refused, and the call runs once.
#[tokio::test(flavor = "multi_thread")]
async fn row_20_two_answers_at_once_have_one_winner() {
    let house = House::new(&["payer"]).await;
    let replies = script(&[calling(&[(PAY, payment("Ann", 1))]), saying("Done.")]);
    let mut session = house.session(granting(&house, "payer"), replies.clone()).await;
    turn(&mut session, "Pay.").await;
    let subject = session.subject().to_owned();
    session.close().await.unwrap();
    let agent = house.agent(granting(&house, "payer"), replies).await;
    let answer = |agent: Arc<Agent>| {
        let (host, subject) = (house.host(), subject.clone());
        async move {
            let mut session = Session::open(&host, agent, OpenSession::Existing(subject)).await?;
            let answered = session.approve(vec![once("call_1_1_1")]).await;
            if answered.is_ok() {
                session.run(None, CancellationToken::new()).await?;
            }
            session.close().await?;
            answered
        }
    };
    let (one, other) = tokio::join!(answer(agent.clone()), answer(agent));
    let outcomes = [one, other];
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1, "{outcomes:?}");
    let lost = outcomes.into_iter().find_map(Result::err).expect("one has lost");
    let is_refusal = matches!(lost, SessionError::Store(StoreError::Busy { .. }) | SessionError::Refused(_));
    assert!(is_refusal, "{lost}");
    assert_eq!(ledger(&house), ["Ann 1"]);
}

/// L29: a turn that waits for an approval can be cancelled, and the session goes on.
#[tokio::test(flavor = "multi_thread")]
async fn l29_a_request_is_cancelled() {
    let house = House::new(&["payer"]).await;
    let mut session = paying(&house, &[calling(&[(PAY, payment("Ann", 1))])]).await;
    turn(&mut session, "Pay.").await;
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    assert_eq!(session.run(None, cancelled).await.unwrap(), TurnResult::Cancelled);
    assert_eq!(results(&house, &session).await[0].2, "cancelled before it ran");
    finished(turn(&mut session, "Then not.").await);
    assert!(ledger(&house).is_empty());
}
