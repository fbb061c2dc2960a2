//! Plans: one model makes a plan and another model executes it. If any part of the plan fails, a single model continues
//! in the ordinary agent loop (L24).

use crate::support::{TestHost, call_reply, event_types, events, results, run_turn, script, text_reply, view_summary};
use agent_core::approval::{ApprovalPolicy, GrantScope};
use agent_core::cloud_event::CloudEvent;
use agent_core::event::{EventKind, WaitCause};
use agent_core::run::TurnError;
use agent_models::Provider;
use agent_runtime::{
    Agent, AgentConfig, ApprovalDecision, Models, OpenSession, PlanningModels, ServiceConfig, Session, TurnResult,
    Verdict,
};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Creates a model with this name that returns the replies of a script. For the model call number N of the session, a
/// model uses entry number N of its script, even if other models made the earlier calls. A script therefore contains an
/// unused entry for each earlier call of another model.
fn scripted(test_host: &TestHost, name: &str, replies: &[Value]) -> Arc<dyn Provider> {
    let file = test_host.directory.path().join(format!("{name}.json"));
    std::fs::write(&file, script(replies).to_string()).unwrap();
    agent_models::provider(&format!("scripted:{name}.json"), test_host.directory.path()).unwrap()
}

fn must_not_be_asked() -> Value {
    json!({"text": "", "error": {"status": 400, "message": "this model must not be asked here"}})
}

fn plan_reply(steps: &[(&str, &str)]) -> Value {
    let steps = steps.iter().map(|(tool, task)| json!({"tool": tool, "task": task}));
    let text = json!({"steps": steps.collect::<Vec<_>>()}).to_string();
    json!({"text": text, "expect": {"tools": [], "output_schema": true, "last_contains": ["Make a plan", "- `probe.echo`: Returns its text"]}})
}

/// Opens a session with a plan: the planner, the executor and the single model use these three scripts.
async fn open(test_host: &TestHost, config: AgentConfig, scripts: [&[Value]; 3]) -> Session {
    Session::open(&test_host.host(), planner(test_host, config, scripts).await, OpenSession::New).await.unwrap()
}

async fn planner(
    test_host: &TestHost,
    mut config: AgentConfig,
    [planner, executor, single]: [&[Value]; 3],
) -> Arc<Agent> {
    config.offered_tools = 3;
    let mut models = Models::new(scripted(test_host, "single", single), []);
    let (planner, executor) = (scripted(test_host, "planner", planner), scripted(test_host, "executor", executor));
    models.planning = Some(PlanningModels { planner, executor });
    Arc::new(Agent::new(config, models, test_host.generation().await).unwrap())
}

async fn continue_turn(session: &mut Session) -> TurnResult {
    session.run(None, CancellationToken::new()).await.unwrap_or_else(|error| panic!("{error}"))
}

fn expect_finished(result: TurnResult) -> agent_core::run::Output {
    match result {
        TurnResult::Finished(output) => output,
        other => panic!("the turn did not finish: {other:?}"),
    }
}

async fn fallbacks(test_host: &TestHost, session: &Session) -> Vec<String> {
    let events = events(test_host, session).await.into_iter();
    let reasons = events.filter_map(|event| match event.kind {
        EventKind::PlanFallback { reason } => Some(reason),
        _ => None,
    });
    reasons.collect()
}

/// The event types of a turn whose plan has two steps. The first step makes two tool calls.
const TWO_STEPS: [&str; 20] = [
    "loop_start",
    "loop_iteration",
    "context_built",
    "stream_complete",
    "plan",
    "loop_iteration",
    "context_built",
    "stream_complete",
    "tool_deferred",
    "tool_call",
    "tool_result",
    "loop_iteration",
    "context_built",
    "stream_complete",
    "tool_call",
    "tool_result",
    "loop_iteration",
    "context_built",
    "stream_complete",
    "loop_end",
];

/// L24, L25: The planner makes a plan. The host executes each step with one model call that offers the tools nearest to
/// the step. After the last step, the host streams the synthesis, which is the final answer.
#[tokio::test(flavor = "multi_thread")]
async fn l24_makes_and_executes_a_plan_and_streams_the_answer() {
    let test_host = TestHost::new(&["probe"]).await;
    let mut first =
        call_reply(&[("probe.echo", json!({"text": "Meeting Notes"})), ("probe.bytes", json!({"bytes": 3}))]);
    first["expect"] = json!({"offers": ["probe.echo"], "roles": ["user", "user"], "last_contains": "Step 1 of 2 of the plan: return the text", "output_schema": false});
    let mut second = call_reply(&[("probe.sleep", json!({"ms": 1}))]);
    second["expect"] = json!({"offers": ["probe.sleep"], "roles": ["user", "assistant", "tool", "tool", "user"], "last_contains": "Step 2 of 2"});
    let synthesis = json!({"text": "I've renamed it.", "chunks": 4, "expect": {"tools": [], "contains": "Meeting Notes", "last_contains": "Write the answer now"}});
    let plan = plan_reply(&[("probe.echo", "return the text"), ("probe.sleep", "sleep a millisecond")]);
    let planner = [plan, must_not_be_asked(), must_not_be_asked(), synthesis];
    let mut session = open(
        &test_host,
        AgentConfig::new("test"),
        [&planner, &[must_not_be_asked(), first, second], &[must_not_be_asked()]],
    )
    .await;
    let mut watching = session.subscribe();
    let output = expect_finished(run_turn(&mut session, "Rename the screenshot.").await);
    assert_eq!(
        (output.data, output.model.as_str(), output.interactions),
        (json!("I've renamed it."), "scripted/planner.json", 4)
    );
    assert_eq!(event_types(&test_host, &session).await, TWO_STEPS);
    let mut streamed = String::new();
    while let Ok(event) = watching.try_recv() {
        if let EventKind::StreamToken { text } = event.kind {
            streamed.push_str(&text);
        }
    }
    assert_eq!(streamed, "I've renamed it.", "a plan is not streamed");
    assert_eq!(
        view_summary(&test_host, &session).await,
        ["user 4", "assistant 3", "tool 2", "tool 2", "assistant 2", "tool 1", "assistant 1"]
    );
    let offered: Vec<Option<u32>> = events(&test_host, &session)
        .await
        .into_iter()
        .filter_map(|event| match event.kind {
            EventKind::ContextBuilt { offered_tools, .. } => Some(offered_tools),
            _ => None,
        })
        .collect();
    assert_eq!(offered, [None, Some(3), Some(3), None]);
    let records = crate::support::records(&test_host, &session, 1).await;
    let prompts = records.iter().filter(|stored| stored.record.kind == "plan_prompt").count();
    assert_eq!(prompts, 4, "the prompt of each step is in its record");
}

/// L12, L24: The host checks the synthesis (the final answer of a plan) against the output schema, and the model can
/// correct it.
#[tokio::test(flavor = "multi_thread")]
async fn l24_validates_the_synthesis() {
    let test_host = TestHost::new(&["probe"]).await;
    let mut config = AgentConfig::new("test");
    config.output_schema = Some(json!({"type": "object", "required": ["answer"]}));
    let corrected = json!({"text": r#"{"answer": 42}"#, "expect": {"output_schema": true, "tools": []}});
    let planner = [plan_reply(&[]), text_reply("It is 42."), corrected];
    let mut session = open(&test_host, config, [&planner, &[must_not_be_asked()], &[must_not_be_asked()]]).await;
    assert_eq!(expect_finished(run_turn(&mut session, "Answer.").await).data, json!({"answer": 42}));
    assert!(fallbacks(&test_host, &session).await.is_empty());
}

/// For each kind of failure, returns the scripts of the planner, the executor and the single model, the reason why the
/// single model takes over, and the number of tool calls that run.
fn failures() -> [([Vec<Value>; 3], &'static str, usize); 6] {
    let steps = plan_reply(&[("probe.echo", "return kept"), ("probe.fail", "fail")]);
    let echo = call_reply(&[("probe.echo", json!({"text": "kept"}))]);
    let fail = call_reply(&[("probe.fail", json!({"kind": "failed", "message": "disk full"}))]);
    let continuing_reply =
        |contains: &str| json!({"text": "Alone.", "expect": {"offers": "read_result", "contains": contains}});
    let refusing = json!({"text": "", "error": {"status": 400, "message": "no such model"}});
    [
        (
            [
                vec![text_reply("First I would look.")],
                vec![must_not_be_asked()],
                vec![must_not_be_asked(), continuing_reply("Go.")],
            ],
            "is not a plan: it is not JSON",
            0,
        ),
        ([vec![refusing], vec![must_not_be_asked()], vec![continuing_reply("Go.")]], "no such model", 0),
        (
            [
                vec![steps.clone()],
                vec![must_not_be_asked(), echo.clone(), text_reply("I can't.")],
                vec![must_not_be_asked(), must_not_be_asked(), must_not_be_asked(), continuing_reply("kept")],
            ],
            "the executor called no tool in step 2 of 2",
            1,
        ),
        (
            [
                vec![steps.clone()],
                vec![must_not_be_asked(), echo.clone(), fail],
                vec![must_not_be_asked(), must_not_be_asked(), must_not_be_asked(), continuing_reply("disk full")],
            ],
            "`probe.fail` failed in step 2 of 2",
            2,
        ),
        (
            [
                vec![steps],
                vec![must_not_be_asked(), call_reply(&[("no.such", json!({}))])],
                vec![must_not_be_asked(), must_not_be_asked(), continuing_reply("no.such")],
            ],
            "no call of step 1 of 2 could run: `no.such`: there is no tool",
            0,
        ),
        (
            [
                vec![plan_reply(&[("probe.echo", "return kept")]), must_not_be_asked(), text_reply(" ")],
                vec![must_not_be_asked(), echo],
                vec![must_not_be_asked(), must_not_be_asked(), must_not_be_asked(), continuing_reply("kept")],
            ],
            "the planner's answer is empty",
            1,
        ),
    ]
}

/// L24: After every kind of failure, the single model continues the turn with all tools and with the results of the
/// calls that have run. No call runs twice.
#[tokio::test(flavor = "multi_thread")]
async fn l24_every_failure_falls_back_to_the_single_model() {
    for (scripts, reason, calls) in failures() {
        let test_host = TestHost::new(&["probe"]).await;
        let [planner, executor, single] = &scripts;
        let mut session = open(&test_host, AgentConfig::new("test"), [planner, executor, single]).await;
        assert_eq!(expect_finished(run_turn(&mut session, "Go.").await).data, json!("Alone."), "{reason}");
        let reasons = fallbacks(&test_host, &session).await;
        assert!(reasons.len() == 1 && reasons[0].contains(reason), "expected {reason}, found {reasons:?}");
        let events = events(&test_host, &session).await;
        let ran = events.iter().filter(|event| matches!(event.kind, EventKind::ToolCall { attempt: 1.., .. })).count();
        assert_eq!(ran, calls, "{reason}: {:?}", results(&test_host, &session).await);
    }
}

/// L4, L24: The interaction limit applies to plans. With `at_limit = "error"`, a turn that reaches this limit during a
/// plan fails.
#[tokio::test(flavor = "multi_thread")]
async fn l4_the_interaction_limit_applies_to_plans() {
    for at_limit in [agent_core::run::AtLimit::Finish, agent_core::run::AtLimit::Error] {
        let test_host = TestHost::new(&["probe"]).await;
        let mut config = AgentConfig::new("test");
        (config.bounds.max_interactions, config.bounds.at_limit) = (2, at_limit);
        let plan = plan_reply(&[("probe.echo", "return a"), ("probe.echo", "return b")]);
        let echo = call_reply(&[("probe.echo", json!({"text": "a"}))]);
        let mut session = open(
            &test_host,
            config,
            [
                &[plan, must_not_be_asked(), text_reply("Half done.")],
                &[must_not_be_asked(), echo],
                &[must_not_be_asked()],
            ],
        )
        .await;
        match (run_turn(&mut session, "Go.").await, at_limit) {
            (TurnResult::Finished(output), agent_core::run::AtLimit::Finish) => {
                assert_eq!((output.data, output.limit_reached), (json!("Half done."), true));
            }
            (TurnResult::Failed(TurnError::InteractionsExhausted { .. }), agent_core::run::AtLimit::Error) => {}
            (other, _) => panic!("{at_limit:?}: {other:?}"),
        }
        assert_eq!(results(&test_host, &session).await.len(), 1);
    }
}

/// L10, L24: A step that calls a service suspends the turn in the middle of the plan. Another process accepts the
/// service's answer with the stored state alone, and continues the plan with its next step. The planner does not make
/// a second plan, and no call runs twice.
#[tokio::test(flavor = "multi_thread")]
async fn l10_l24_a_step_waits_for_a_service_across_a_restart() {
    let test_host = TestHost::new(&["probe"]).await;
    let mut config = AgentConfig::new("test");
    let described = ServiceConfig {
        description: "Tells the weather.".into(),
        ..ServiceConfig::new("weather.forecast".parse().unwrap())
    };
    config.services.insert("weather.forecast".to_owned(), described);
    let plan = plan_reply(&[("weather.forecast", "ask for the weather"), ("probe.echo", "repeat it")]);
    let mut first = call_reply(&[("weather.forecast", json!({})), ("probe.echo", json!({"text": "too early"}))]);
    first["expect"] = json!({"offers": ["weather.forecast"], "last_contains": "Step 1 of 2"});
    let mut second = call_reply(&[("probe.echo", json!({"text": "snow"}))]);
    second["expect"] = json!({"contains": "\"sky\":\"snow\"", "last_contains": "Step 2 of 2", "lacks": "Step 1 of 2"});
    let synthesis = json!({"text": "It snows.", "expect": {"tools": [], "last_contains": "Write the answer now"}});
    let scripts: [&[Value]; 3] = [
        &[plan, must_not_be_asked(), must_not_be_asked(), synthesis],
        &[must_not_be_asked(), first, second],
        &[must_not_be_asked()],
    ];
    let agent = planner(&test_host, config.clone(), scripts).await;
    let mut session = Session::open(&test_host.host(), agent, OpenSession::New).await.unwrap();
    let TurnResult::Suspended(suspension) = run_turn(&mut session, "Will it snow?").await else {
        panic!("the turn does not wait")
    };
    let [wait] = suspension.waits.as_slice() else { panic!("{suspension:?}") };
    assert!(wait.name == "weather.forecast" && matches!(wait.cause, WaitCause::Service { .. }), "{wait:?}");
    let (call, subject) = (wait.call.clone(), session.subject().to_owned());
    session.close().await.unwrap();

    let agent = planner(&test_host, config, scripts).await;
    let mut session = Session::open(&test_host.host(), agent, OpenSession::Existing(subject)).await.unwrap();
    assert!(matches!(continue_turn(&mut session).await, TurnResult::Suspended(_)), "the turn still waits");
    let answer = json!({"specversion": "1.0", "id": "r", "source": "/sky", "type": "done", "parentid": call, "data": {"sky": "snow"}});
    session.respond(CloudEvent::parse(answer.to_string().as_bytes()).unwrap()).await.unwrap();
    let output = expect_finished(continue_turn(&mut session).await);
    assert_eq!((output.data, output.interactions), (json!("It snows."), 4));
    assert!(fallbacks(&test_host, &session).await.is_empty());
    let mut expected = TWO_STEPS.to_vec();
    expected.splice(10..11, ["suspended", "tool_result", "resumed"]);
    assert_eq!(event_types(&test_host, &session).await, expected);
    let results: Vec<_> =
        results(&test_host, &session).await.into_iter().map(|(name, error, _)| (name, error)).collect();
    let expected = [("weather.forecast", false), ("probe.echo", true), ("probe.echo", false)];
    assert_eq!(results, expected.map(|(name, error)| (name.to_owned(), error)));
}

/// L17, L24: If the tool call of a step needs an approval, the plan waits. If the call is allowed, the plan continues.
/// If the call is denied, the single model continues the turn with the results of the calls that have run.
#[tokio::test(flavor = "multi_thread")]
async fn l17_l24_a_step_that_waits_for_an_approval_survives_a_restart() {
    for allowed in [true, false] {
        let test_host = TestHost::new(&["probe"]).await;
        let mut config = AgentConfig::new("test");
        config.approvals.tools.insert("probe.slow".to_owned(), ApprovalPolicy::Ask);
        let plan = plan_reply(&[("probe.echo", "repeat it"), ("probe.slow", "wait a millisecond")]);
        let (echo, slow) =
            (call_reply(&[("probe.echo", json!({"text": "kept"}))]), call_reply(&[("probe.slow", json!({"ms": 1}))]));
        let single = json!({"text": "Not all of it.", "expect": {"contains": "kept", "last_contains": "no time", "offers": "read_result"}});
        let scripts: [&[Value]; 3] = [
            &[plan, must_not_be_asked(), must_not_be_asked(), text_reply("All of it.")],
            &[must_not_be_asked(), echo, slow],
            &[must_not_be_asked(), must_not_be_asked(), must_not_be_asked(), single],
        ];
        let agent = planner(&test_host, config.clone(), scripts).await;
        let mut session = Session::open(&test_host.host(), agent, OpenSession::New).await.unwrap();
        let TurnResult::Suspended(suspension) = run_turn(&mut session, "Go.").await else {
            panic!("the turn does not wait")
        };
        let call = suspension.waits[0].call.clone();
        let subject = session.subject().to_owned();
        session.close().await.unwrap();
        let agent = planner(&test_host, config, scripts).await;
        let mut session = Session::open(&test_host.host(), agent, OpenSession::Existing(subject)).await.unwrap();
        let verdict = match allowed {
            true => Verdict::Allow { scope: GrantScope::Once, edited: None },
            false => Verdict::Deny { reason: Some("no time".to_owned()) },
        };
        session.approve(vec![ApprovalDecision { call, verdict }]).await.unwrap();
        let output = expect_finished(continue_turn(&mut session).await);
        let expected = if allowed { "All of it." } else { "Not all of it." };
        assert_eq!((output.data, fallbacks(&test_host, &session).await.is_empty()), (json!(expected), allowed));
        let ran = events(&test_host, &session).await;
        let ran = ran.iter().filter(|event| matches!(event.kind, EventKind::ToolCall { attempt: 1.., .. })).count();
        assert_eq!(ran, 1 + usize::from(allowed), "earlier calls do not run again");
    }
}
