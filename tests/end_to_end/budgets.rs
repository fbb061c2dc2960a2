//! O4: budgets of tokens, money and time are enforced before each model call, for turns, sessions, agents and users.

use crate::chat_server::{Answer, ChatServer};
use crate::support::{TestHost, call_reply, events, results, run_turn, script, text_reply};
use agent_core::budget::{BudgetLimits, BudgetResource, BudgetScope, Budgets, ExceededBudget};
use agent_core::event::EventKind;
use agent_core::message::TurnInput;
use agent_core::run::TurnError;
use agent_models::{ModelConfig, Price, ProviderConfig, Providers};
use agent_plugins::Grants;
use agent_runtime::{
    Agent, AgentConfig, Delegate, Host, OpenSession, PluginAllowance, Session, SummaryWriter, TurnResult,
};
use agent_store::{Audit, AuditAction, BudgetLedger, ChargedTo, SessionLog};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

fn tokens(tokens: u64) -> BudgetLimits {
    BudgetLimits { tokens: Some(tokens), ..BudgetLimits::default() }
}

fn dollars(dollars: f64) -> BudgetLimits {
    BudgetLimits { nanodollars: Some((dollars * 1e9) as u64), ..BudgetLimits::default() }
}

/// An agent of the user ann with short replies.
fn agent(name: &str, budgets: Budgets) -> AgentConfig {
    let mut config = AgentConfig::new(name);
    config.bounds.budgets = budgets;
    config.user = Some("ann".to_owned());
    config.reply_tokens = 50;
    config.summary = SummaryWriter::Extract;
    config
}

/// A reply for which the provider reports this many tokens.
fn reply_of(text: &str, tokens: u64) -> Value {
    json!({"text": text, "usage": {"prompt_tokens": tokens, "completion_tokens": 0}})
}

fn exceeded(result: &TurnResult) -> &ExceededBudget {
    match result {
        TurnResult::Failed(TurnError::BudgetExceeded(budget)) => budget,
        other => panic!("the budget is not exceeded: {other:?}"),
    }
}

fn is_finished(result: &TurnResult) -> bool {
    matches!(result, TurnResult::Finished(_))
}

/// Returns an agent whose model is served by a Chat Completions server, and has this price per million tokens.
async fn priced_agent(test_host: &TestHost, server: &ChatServer, price: Option<Price>, config: AgentConfig) -> Agent {
    let model = ModelConfig { price, ..ModelConfig::default() };
    let providers = Providers::new(vec![ProviderConfig {
        name: "local".to_owned(),
        base_url: server.base_url.clone(),
        key: None,
        key_advice: String::new(),
        headers: Vec::new(),
        protocol: Default::default(),
        timeouts: Default::default(),
        models: [("m".to_owned(), model)].into(),
    }]);
    let provider = providers.model("local/m", test_host.directory.path()).expect("the provider exists");
    Agent::new(config, provider, test_host.generation().await).expect("an agent")
}

/// O4, O3: the call that does not fit is not made. The turn ends with an event, a typed error and an entry of the audit
/// log, and the session stays usable.
#[tokio::test(flavor = "multi_thread")]
async fn o4_a_call_that_does_not_fit_is_not_made() {
    let test_host = TestHost::new(&[]).await;
    let small = Budgets { turn: tokens(60), ..Budgets::default() };
    let mut session = test_host.session(agent("clerk", small), script(&[text_reply("One.")])).await;
    let result = run_turn(&mut session, "Go.").await;
    let budget = exceeded(&result).clone();
    assert_eq!((budget.scope, budget.shortage.resource), (BudgetScope::Turn, BudgetResource::Tokens));
    assert_eq!((budget.shortage.limit, budget.shortage.used), (60, 0));
    assert!(budget.shortage.needed.is_some_and(|needed| needed > 60), "{budget:?}");
    let kinds: Vec<_> = events(&test_host, &session).await.into_iter().map(|event| event.kind).collect();
    assert!(kinds.contains(&EventKind::BudgetExceeded { budget: budget.clone() }), "{kinds:?}");
    assert!(matches!(kinds.last(), Some(EventKind::LoopEnd { cost: Some(cost), .. }) if cost.interactions == 0));
    let audited = test_host.store.audit_entries(0, 0, 99).await.unwrap();
    let session_id = session.subject().to_owned();
    let expected = AuditAction::BudgetExceeded { session: session_id, budget };
    assert!(audited.iter().any(|entry| entry.action == expected), "{audited:?}");
    let again = run_turn(&mut session, "Again.").await;
    assert_eq!(exceeded(&again).shortage.used, 0, "each turn has its own budget");
}

/// O4: the budget of a session covers all of its turns, and is kept when the session is opened again.
#[tokio::test(flavor = "multi_thread")]
async fn o4_the_budget_of_a_session_covers_its_turns() {
    let test_host = TestHost::new(&[]).await;
    let budgets = Budgets { session: tokens(5_000), ..Budgets::default() };
    let replies = [reply_of("One.", 2_000), reply_of("Two.", 2_900)];
    let config = agent("clerk", budgets);
    let mut session = test_host.session(config.clone(), script(&replies)).await;
    assert!(is_finished(&run_turn(&mut session, "Go.").await));
    assert!(is_finished(&run_turn(&mut session, "Go on.").await));
    let subject = session.subject().to_owned();
    session.close().await.unwrap();
    let agent = test_host.agent(config, script(&[text_reply("This is never asked for.")])).await;
    let mut session = Session::open(&test_host.host(), agent, OpenSession::Existing(subject)).await.unwrap();
    let result = run_turn(&mut session, "And then?").await;
    let budget = exceeded(&result);
    assert_eq!((budget.scope, budget.shortage.used), (BudgetScope::Session, 4_900));
    let mut other = test_host.session(self::agent("clerk", Budgets::default()), script(&[text_reply("Fine.")])).await;
    assert!(is_finished(&run_turn(&mut other, "Go.").await), "other sessions have their own budget");
}

/// O4, L16: the work of a delegate counts towards the budgets of the delegating turn.
#[tokio::test(flavor = "multi_thread")]
async fn o4_delegated_work_counts_for_the_delegating_turn() {
    let test_host = TestHost::new(&[]).await;
    for (child_tokens, refused_in_child) in [(4_950, false), (100, true)] {
        let child_limit = if refused_in_child { 2_000 } else { 5_000 };
        let reader =
            test_host.agent(agent("reader", Budgets::default()), script(&[reply_of("Read.", child_tokens)])).await;
        let budgets = Budgets { turn: tokens(child_limit), ..Budgets::default() };
        let mut lead = agent("lead", budgets);
        let delegate = Delegate { agent: reader.into(), description: "Reads.".to_owned(), input_schema: None };
        lead.delegates.insert("reader".to_owned(), delegate);
        let mut first = call_reply(&[("reader", json!({"task": "Read it."}))]);
        if refused_in_child {
            first["usage"] = json!({"prompt_tokens": 1_990, "completion_tokens": 0});
        }
        let mut session = test_host.session(lead, script(&[first, text_reply("Done.")])).await;
        let result = run_turn(&mut session, "Go.").await;
        let budget = exceeded(&result);
        assert_eq!((budget.scope, budget.owner.as_str()), (BudgetScope::Turn, session.subject()));
        let (_, is_error, text) = results(&test_host, &session).await.remove(0);
        assert_eq!(is_error, refused_in_child, "{text}");
        if refused_in_child {
            assert!(text.contains("budget") && budget.shortage.used == 1_990, "{text} {budget:?}");
        } else {
            assert_eq!(budget.shortage.used, 110 + 4_950);
        }
    }
}

/// O4: the budget of a day covers all sessions of an agent or a user. Deleting a session does not free it.
#[tokio::test(flavor = "multi_thread")]
async fn o4_the_budget_of_a_day_covers_all_sessions() {
    let test_host = TestHost::new(&[]).await;
    let mut session = test_host.session(agent("first", Budgets::default()), script(&[reply_of("One.", 4_950)])).await;
    assert!(is_finished(&run_turn(&mut session, "Go.").await));
    let subject = session.subject().to_owned();
    session.close().await.unwrap();
    SessionLog::delete(&*test_host.store, &subject).await.unwrap();
    let run = async |name: &str, user: &str, budgets: Budgets| {
        let config = AgentConfig { user: Some(user.to_owned()), ..agent(name, budgets) };
        let mut session = test_host.session(config, script(&[reply_of("Two.", 1)])).await;
        run_turn(&mut session, "Go.").await
    };
    let user_day =
        || Budgets { user_day: tokens(5_000), time_zone: Some("Asia/Kathmandu".to_owned()), ..Budgets::default() };
    let agent_day = || Budgets { agent_day: tokens(5_000), ..Budgets::default() };
    let result = run("second", "ann", user_day()).await;
    assert_eq!((exceeded(&result).scope, exceeded(&result).owner.as_str()), (BudgetScope::UserDay, "ann"));
    assert!(is_finished(&run("second", "bob", user_day()).await), "another user has another budget");
    let result = run("first", "bob", agent_day()).await;
    assert_eq!((exceeded(&result).scope, exceeded(&result).owner.as_str()), (BudgetScope::AgentDay, "first"));
    assert!(is_finished(&run("second", "ann", agent_day()).await), "another agent has another budget");
}

/// O4: the most that a call can cost must fit into a budget of money. A model without a known price is not called.
#[tokio::test(flavor = "multi_thread")]
async fn o4_a_budget_of_money_needs_prices() {
    let test_host = TestHost::new(&[]).await;
    let server = ChatServer::start((0..9).map(|_| Answer::Text("Fine."))).await;
    let run = async |price, limit| {
        let budgets = Budgets { session: dollars(limit), ..Budgets::default() };
        let agent = priced_agent(&test_host, &server, price, agent("clerk", budgets)).await;
        let mut session = Session::open(&test_host.host(), Arc::new(agent), OpenSession::New).await.unwrap();
        run_turn(&mut session, "Go.").await
    };
    let unknown = run(None, 100.0).await;
    assert_eq!(exceeded(&unknown).shortage.needed, None);
    assert!(exceeded(&unknown).to_string().contains("`prompt_price`"));
    assert_eq!(server.bodies().len(), 0);
    let price = Some(Price::new(1.0, 100_000.0));
    let refused = run(price, 4.9).await;
    let shortage = exceeded(&refused).shortage;
    assert_eq!(shortage.resource, BudgetResource::Cost);
    // The reply has at most 50 tokens, which cost 5 dollars.
    assert!(shortage.needed.is_some_and(|needed| (5_000_000_000..5_010_000_000).contains(&needed)), "{shortage:?}");
    assert_eq!(server.bodies().len(), 0);
    let result = run(price, 5.01).await;
    assert!(is_finished(&result), "{result:?}");
    assert_eq!(server.bodies().len(), 1);
}

/// O4: the calls of all sessions of a process together stay within a budget, even if they begin at the same time. A call
/// waits while other calls have reserved the rest of the budget, and is refused only if the budget is really used.
#[tokio::test(flavor = "multi_thread")]
async fn o4_concurrent_sessions_share_a_budget() {
    const LIMIT: u64 = 4_600;
    let test_host = TestHost::new(&[]).await;
    let host: Host = test_host.host();
    let budgets = Budgets { user_day: tokens(LIMIT), ..Budgets::default() };
    let config = AgentConfig { reply_tokens: 1_000, ..agent("clerk", budgets) };
    // The provider reports as many tokens as a reply may have.
    let agent = test_host.agent(config, script(&vec![reply_of("Done.", 1_000); 8])).await;
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let mut session = Session::open(&host, agent.clone(), OpenSession::New).await.unwrap();
        running.spawn(async move { run_turn(&mut session, "Go.").await });
    }
    let results = running.join_all().await;
    let finished = results.iter().filter(|result| is_finished(result)).count();
    assert!((2..=4).contains(&finished), "{results:?}");
    for result in results.iter().filter(|result| !is_finished(result)) {
        assert_eq!(exceeded(result).shortage.used, finished as u64 * 1_000, "only used tokens lead to a refusal");
    }
    let user = ChargedTo::User { user: Some("ann".to_owned()), since: 0 };
    let charged = test_host.store.charged(vec![user]).await.unwrap()[0];
    assert!(charged.tokens == finished as u64 * 1_000 && charged.tokens <= LIMIT, "{charged:?}");
}

/// O4, P5: the questions of plugins to the model count, and are refused if they do not fit.
#[tokio::test(flavor = "multi_thread")]
async fn o4_questions_of_plugins_count() {
    let test_host = TestHost::new(&["summarize"]).await;
    let question = call_reply(&[("summarize.text", json!({"text": "a long story", "words": 10}))]);
    let run = async |limit| {
        let mut config = agent("clerk", Budgets { turn: tokens(limit), ..Budgets::default() });
        let grants = Grants { model_tokens: Some(100_000), ..Grants::default() };
        config.plugins.insert("summarize".to_owned(), PluginAllowance { grants, ..PluginAllowance::default() });
        let mut script = script(&[question.clone(), text_reply("Done.")]);
        script["replies"][0]["usage"] = json!({"prompt_tokens": 3_900, "completion_tokens": 0});
        script["answers"] = json!([{"text": "A ship.", "usage": {"prompt_tokens": 6_000, "completion_tokens": 0}}]);
        let mut session = test_host.session(config, script).await;
        let result = run_turn(&mut session, "Go.").await;
        (results(&test_host, &session).await.remove(0), result)
    };
    let ((_, is_error, text), result) = run(3_950).await;
    assert!(is_error && text.contains("tokens are left"), "the question does not fit: {text}");
    assert_eq!(exceeded(&result).shortage.used, 3_900);
    let ((_, is_error, text), result) = run(10_000).await;
    assert!(!is_error, "{text}");
    assert_eq!(exceeded(&result).shortage.used, 9_900, "the question is counted");
}

/// O4: after the time of work is used up, no model is called. Work includes the calls of tools.
#[tokio::test(flavor = "multi_thread")]
async fn o4_time_of_work_is_limited() {
    let test_host = TestHost::new(&["probe"]).await;
    let limits = BudgetLimits { milliseconds: Some(2_000), ..BudgetLimits::default() };
    let sleep = call_reply(&[("probe.sleep", json!({"ms": 2_500}))]);
    let budgets = Budgets { turn: limits, ..Budgets::default() };
    let mut session = test_host.session(agent("clerk", budgets), script(&[sleep, text_reply("Done.")])).await;
    let result = run_turn(&mut session, "Go.").await;
    let budget = exceeded(&result);
    assert_eq!((budget.scope, budget.shortage.resource), (BudgetScope::Turn, BudgetResource::Time));
    assert!(budget.shortage.used >= 2_500, "{budget:?}");
    let (_, is_error, _) = results(&test_host, &session).await.remove(0);
    assert!(!is_error, "the call of the tool was completed");
}

/// O4: a call that is cancelled while the model writes is charged for its prompt and for what was written, because the provider
/// charges for it, too. Otherwise, whoever cancels just before the end would use the model for nothing.
#[tokio::test(flavor = "multi_thread")]
async fn o4_a_cancelled_call_is_charged() {
    let test_host = TestHost::new(&[]).await;
    let words: Vec<String> = (0..400).map(|number| format!("word{number} ")).collect();
    let slow = json!({"chunks": words, "delay_ms": 20});
    let mut session = test_host.session(agent("clerk", Budgets::default()), script(&[slow])).await;
    let subject = session.subject().to_owned();
    let mut watch = session.watch().subscribe().events;
    let cancel = CancellationToken::new();
    let cancelling = cancel.clone();
    let cancels = tokio::spawn(async move {
        let mut pieces = 0;
        while pieces < 20 {
            if let EventKind::StreamToken { .. } = watch.recv().await.expect("the model writes").kind {
                pieces += 1;
            }
        }
        cancelling.cancel();
    });
    let result = session.run(Some(TurnInput::Text("Go.".to_owned())), cancel).await.expect("the session works");
    cancels.await.expect("no panic");
    assert!(matches!(result, TurnResult::Cancelled), "{result:?}");
    let charged =
        test_host.store.charged(vec![ChargedTo::Turn { session: subject.clone(), turn: 1 }]).await.unwrap()[0];
    assert!((40..1_000).contains(&charged.tokens), "20 pieces of at least two tokens: {charged:?}");
    let kinds: Vec<_> = events(&test_host, &session).await.into_iter().map(|event| event.kind).collect();
    let Some(EventKind::LoopEnd { cost: Some(cost), .. }) = kinds.last() else { panic!("{kinds:?}") };
    assert_eq!(cost.usage.total(), charged.tokens, "the end of the turn reports what is charged");
}

/// O4: a reply that breaks off is charged, and so is each attempt before the one that succeeds. A request that the provider
/// refuses costs nothing.
#[tokio::test(flavor = "multi_thread")]
async fn o4_failed_attempts_are_charged_for_what_was_written() {
    let test_host = TestHost::new(&[]).await;
    let broken = json!({"chunks": ["Some of ", "the text "], "error": {"message": "the stream broke", "times": 1}});
    let refused = json!({"text": "Two.", "usage": {"prompt_tokens": 10, "completion_tokens": 2},
        "error": {"status": 503, "message": "busy", "times": 1}});
    for (reply, is_charged) in [(broken, true), (refused, false)] {
        let mut session = test_host.session(agent("clerk", Budgets::default()), script(&[reply])).await;
        let subject = session.subject().to_owned();
        let result = run_turn(&mut session, "Go.").await;
        let charged = test_host.store.charged(vec![ChargedTo::Turn { session: subject, turn: 1 }]).await.unwrap()[0];
        assert!(is_finished(&result), "{result:?}");
        assert_eq!(charged.tokens > 12 + 4, is_charged, "{charged:?}");
    }
}
