//! Plans: one model makes them, another one carries them out, and whatever goes wrong ends in the loop of one model (L24).

use crate::support::{House, calling, event_types, events, results, saying, script, seen, turn};
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

/// A scripted model of this name. Every script counts the session's model calls, so that each has a place for all of them.
fn scripted(house: &House, name: &str, replies: &[Value]) -> Arc<dyn Provider> {
    let file = house.directory.path().join(format!("{name}.json"));
    std::fs::write(&file, script(replies).to_string()).unwrap();
    agent_models::provider(&format!("scripted:{name}.json"), house.directory.path()).unwrap()
}

fn unused() -> Value {
    json!({"text": "", "error": {"status": 400, "message": "this model must not be asked here"}})
}

fn planning(steps: &[(&str, &str)]) -> Value {
    let steps = steps.iter().map(|(tool, task)| json!({"tool": tool, "task": task}));
    let text = json!({"steps": steps.collect::<Vec<_>>()}).to_string();
    json!({"text": text, "expect": {"tools": [], "output_schema": true, "last_contains": ["Make a plan", "- `probe.echo`: Returns its text"]}})
}

/// A session whose planner, executor and single model say what these scripts say.
async fn open(house: &House, config: AgentConfig, scripts: [&[Value]; 3]) -> Session {
    Session::open(&house.host(), planner(house, config, scripts).await, OpenSession::New).await.unwrap()
}

async fn planner(house: &House, mut config: AgentConfig, [planner, executor, single]: [&[Value]; 3]) -> Arc<Agent> {
    config.offered_tools = 3;
    let mut models = Models::new(scripted(house, "single", single), []);
    let (planner, executor) = (scripted(house, "planner", planner), scripted(house, "executor", executor));
    models.planning = Some(PlanningModels { planner, executor });
    Arc::new(Agent::new(config, models, house.generation().await).unwrap())
}

async fn go_on(session: &mut Session) -> TurnResult {
    session.run(None, CancellationToken::new()).await.unwrap_or_else(|error| panic!("{error}"))
}

fn finished(result: TurnResult) -> agent_core::run::Output {
    match result {
        TurnResult::Finished(output) => output,
        other => panic!("the turn did not finish: {other:?}"),
    }
}

async fn fallbacks(house: &House, session: &Session) -> Vec<String> {
    let events = events(house, session).await.into_iter();
    let reasons = events.filter_map(|event| match event.kind {
        EventKind::PlanFallback { reason } => Some(reason),
        _ => None,
    });
    reasons.collect()
}

/// The events of a plan of two steps, the first of which asks for two calls.
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

/// L24, L25, seed e phase 2b: plan, for each step the nearest tools and one call, and the synthesis, streamed.
#[tokio::test(flavor = "multi_thread")]
async fn l24_e_plan_execute_synthesize() {
    let house = House::new(&["probe"]).await;
    let mut first = calling(&[("probe.echo", json!({"text": "Meeting Notes"})), ("probe.bytes", json!({"bytes": 3}))]);
    first["expect"] = json!({"offers": ["probe.echo"], "roles": ["user", "user"], "last_contains": "Step 1 of 2 of the plan: return the text", "output_schema": false});
    let mut second = calling(&[("probe.sleep", json!({"ms": 1}))]);
    second["expect"] = json!({"offers": ["probe.sleep"], "roles": ["user", "assistant", "tool", "tool", "user"], "last_contains": "Step 2 of 2"});
    let synthesis = json!({"text": "I've renamed it.", "chunks": 4, "expect": {"tools": [], "contains": "Meeting Notes", "last_contains": "Write the answer now"}});
    let plan = planning(&[("probe.echo", "return the text"), ("probe.sleep", "sleep a millisecond")]);
    let planner = [plan, unused(), unused(), synthesis];
    let mut session = open(&house, AgentConfig::new("test"), [&planner, &[unused(), first, second], &[unused()]]).await;
    let mut watching = session.subscribe();
    let output = finished(turn(&mut session, "Rename the screenshot.").await);
    assert_eq!(
        (output.data, output.model.as_str(), output.interactions),
        (json!("I've renamed it."), "scripted/planner.json", 4)
    );
    assert_eq!(event_types(&house, &session).await, TWO_STEPS);
    let mut streamed = String::new();
    while let Ok(event) = watching.try_recv() {
        if let EventKind::StreamToken { text } = event.kind {
            streamed.push_str(&text);
        }
    }
    assert_eq!(streamed, "I've renamed it.", "a plan is not streamed");
    assert_eq!(
        seen(&house, &session).await,
        ["user 4", "assistant 3", "tool 2", "tool 2", "assistant 2", "tool 1", "assistant 1"]
    );
    let offered: Vec<Option<u32>> = events(&house, &session)
        .await
        .into_iter()
        .filter_map(|event| match event.kind {
            EventKind::ContextBuilt { offered_tools, .. } => Some(offered_tools),
            _ => None,
        })
        .collect();
    assert_eq!(offered, [None, Some(3), Some(3), None]);
    let records = crate::support::records(&house, &session, 1).await;
    let prompts = records.iter().filter(|stored| stored.record.kind == "plan_prompt").count();
    assert_eq!(prompts, 4, "what each was asked is in its step's record");
}

/// L12, L24: the synthesis passes the output schema, with corrections.
#[tokio::test(flavor = "multi_thread")]
async fn l24_the_synthesis_is_validated() {
    let house = House::new(&["probe"]).await;
    let mut config = AgentConfig::new("test");
    config.output_schema = Some(json!({"type": "object", "required": ["answer"]}));
    let corrected = json!({"text": r#"{"answer": 42}"#, "expect": {"output_schema": true, "tools": []}});
    let planner = [planning(&[]), saying("It is 42."), corrected];
    let mut session = open(&house, config, [&planner, &[unused()], &[unused()]]).await;
    assert_eq!(finished(turn(&mut session, "Answer.").await).data, json!({"answer": 42}));
    assert!(fallbacks(&house, &session).await.is_empty());
}

/// What the planner, the executor and the single model say, the reason, and how many calls have run.
fn failures() -> [([Vec<Value>; 3], &'static str, usize); 6] {
    let steps = planning(&[("probe.echo", "return kept"), ("probe.fail", "fail")]);
    let echo = calling(&[("probe.echo", json!({"text": "kept"}))]);
    let fail = calling(&[("probe.fail", json!({"kind": "failed", "message": "disk full"}))]);
    let goes_on = |contains: &str| json!({"text": "Alone.", "expect": {"offers": "read_result", "contains": contains}});
    let refusing = json!({"text": "", "error": {"status": 400, "message": "no such model"}});
    [
        (
            [vec![saying("First I would look.")], vec![unused()], vec![unused(), goes_on("Go.")]],
            "no plan: it is no JSON",
            0,
        ),
        ([vec![refusing], vec![unused()], vec![goes_on("Go.")]], "no such model", 0),
        (
            [
                vec![steps.clone()],
                vec![unused(), echo.clone(), saying("I can't.")],
                vec![unused(), unused(), unused(), goes_on("kept")],
            ],
            "the executor called no tool in step 2 of 2",
            1,
        ),
        (
            [
                vec![steps.clone()],
                vec![unused(), echo.clone(), fail],
                vec![unused(), unused(), unused(), goes_on("disk full")],
            ],
            "`probe.fail` failed in step 2 of 2",
            2,
        ),
        (
            [
                vec![steps],
                vec![unused(), calling(&[("no.such", json!({}))])],
                vec![unused(), unused(), goes_on("no.such")],
            ],
            "no call of step 1 of 2 could run: `no.such`: there is no tool",
            0,
        ),
        (
            [
                vec![planning(&[("probe.echo", "return kept")]), unused(), saying(" ")],
                vec![unused(), echo],
                vec![unused(), unused(), unused(), goes_on("kept")],
            ],
            "the planner's answer is empty",
            1,
        ),
    ]
}

/// L24: every failure goes on with one model that has all tools and every result; nothing runs twice.
#[tokio::test(flavor = "multi_thread")]
async fn l24_every_failure_falls_back() {
    for (scripts, reason, calls) in failures() {
        let house = House::new(&["probe"]).await;
        let [planner, executor, single] = &scripts;
        let mut session = open(&house, AgentConfig::new("test"), [planner, executor, single]).await;
        assert_eq!(finished(turn(&mut session, "Go.").await).data, json!("Alone."), "{reason}");
        let reasons = fallbacks(&house, &session).await;
        assert!(reasons.len() == 1 && reasons[0].contains(reason), "expected {reason}, found {reasons:?}");
        let events = events(&house, &session).await;
        let ran = events.iter().filter(|event| matches!(event.kind, EventKind::ToolCall { attempt: 1.., .. })).count();
        assert_eq!(ran, calls, "{reason}: {:?}", results(&house, &session).await);
    }
}

/// L4, L24: the bound holds for plans, and with `at_limit = "error"` ends them.
#[tokio::test(flavor = "multi_thread")]
async fn l4_the_bound_holds_for_plans() {
    for at_limit in [agent_core::run::AtLimit::Finish, agent_core::run::AtLimit::Error] {
        let house = House::new(&["probe"]).await;
        let mut config = AgentConfig::new("test");
        (config.bounds.max_interactions, config.bounds.at_limit) = (2, at_limit);
        let plan = planning(&[("probe.echo", "return a"), ("probe.echo", "return b")]);
        let echo = calling(&[("probe.echo", json!({"text": "a"}))]);
        let mut session =
            open(&house, config, [&[plan, unused(), saying("Half done.")], &[unused(), echo], &[unused()]]).await;
        match (turn(&mut session, "Go.").await, at_limit) {
            (TurnResult::Finished(output), agent_core::run::AtLimit::Finish) => {
                assert_eq!((output.data, output.limit_reached), (json!("Half done."), true));
            }
            (TurnResult::Failed(TurnError::InteractionsExhausted { .. }), agent_core::run::AtLimit::Error) => {}
            (other, _) => panic!("{at_limit:?}: {other:?}"),
        }
        assert_eq!(results(&house, &session).await.len(), 1);
    }
}

/// L10, L24: a step whose tool is a service suspends the turn inside of the plan. Another process takes the answer from the
/// stored state alone, and the plan goes on with its next step: nobody plans again, and nothing runs twice.
#[tokio::test(flavor = "multi_thread")]
async fn l10_l24_a_step_waits_for_a_service_over_a_restart() {
    let house = House::new(&["probe"]).await;
    let mut config = AgentConfig::new("test");
    let described = ServiceConfig {
        description: "Tells the weather.".into(),
        ..ServiceConfig::new("weather.forecast".parse().unwrap())
    };
    config.services.insert("weather.forecast".to_owned(), described);
    let plan = planning(&[("weather.forecast", "ask for the weather"), ("probe.echo", "repeat it")]);
    let mut first = calling(&[("weather.forecast", json!({})), ("probe.echo", json!({"text": "too early"}))]);
    first["expect"] = json!({"offers": ["weather.forecast"], "last_contains": "Step 1 of 2"});
    let mut second = calling(&[("probe.echo", json!({"text": "snow"}))]);
    second["expect"] = json!({"contains": "\"sky\":\"snow\"", "last_contains": "Step 2 of 2", "lacks": "Step 1 of 2"});
    let synthesis = json!({"text": "It snows.", "expect": {"tools": [], "last_contains": "Write the answer now"}});
    let scripts: [&[Value]; 3] = [&[plan, unused(), unused(), synthesis], &[unused(), first, second], &[unused()]];
    let agent = planner(&house, config.clone(), scripts).await;
    let mut session = Session::open(&house.host(), agent, OpenSession::New).await.unwrap();
    let TurnResult::Suspended(suspension) = turn(&mut session, "Will it snow?").await else { panic!("it waits") };
    let [wait] = suspension.waits.as_slice() else { panic!("{suspension:?}") };
    assert!(wait.name == "weather.forecast" && matches!(wait.cause, WaitCause::Service { .. }), "{wait:?}");
    let (call, subject) = (wait.call.clone(), session.subject().to_owned());
    session.close().await.unwrap();

    let agent = planner(&house, config, scripts).await;
    let mut session = Session::open(&house.host(), agent, OpenSession::Existing(subject)).await.unwrap();
    assert!(matches!(go_on(&mut session).await, TurnResult::Suspended(_)), "it still waits");
    let answer = json!({"specversion": "1.0", "id": "r", "source": "/sky", "type": "done", "parentid": call, "data": {"sky": "snow"}});
    session.respond(CloudEvent::parse(answer.to_string().as_bytes()).unwrap()).await.unwrap();
    let output = finished(go_on(&mut session).await);
    assert_eq!((output.data, output.interactions), (json!("It snows."), 4));
    assert!(fallbacks(&house, &session).await.is_empty());
    let mut expected = TWO_STEPS.to_vec();
    expected.splice(10..11, ["suspended", "tool_result", "resumed"]);
    assert_eq!(event_types(&house, &session).await, expected);
    let results: Vec<_> = results(&house, &session).await.into_iter().map(|(name, error, _)| (name, error)).collect();
    let expected = [("weather.forecast", false), ("probe.echo", true), ("probe.echo", false)];
    assert_eq!(results, expected.map(|(name, error)| (name.to_owned(), error)));
}

/// L17, L24: a step that must be allowed waits likewise: allowed, the plan goes on with it; denied, the single model goes on
/// with what was done before.
#[tokio::test(flavor = "multi_thread")]
async fn l17_l24_a_step_waits_for_an_approval_over_a_restart() {
    for allowed in [true, false] {
        let house = House::new(&["probe"]).await;
        let mut config = AgentConfig::new("test");
        config.approvals.tools.insert("probe.slow".to_owned(), ApprovalPolicy::Ask);
        let plan = planning(&[("probe.echo", "repeat it"), ("probe.slow", "wait a millisecond")]);
        let (echo, slow) =
            (calling(&[("probe.echo", json!({"text": "kept"}))]), calling(&[("probe.slow", json!({"ms": 1}))]));
        let single = json!({"text": "Not all of it.", "expect": {"contains": "kept", "last_contains": "no time", "offers": "read_result"}});
        let scripts: [&[Value]; 3] = [
            &[plan, unused(), unused(), saying("All of it.")],
            &[unused(), echo, slow],
            &[unused(), unused(), unused(), single],
        ];
        let agent = planner(&house, config.clone(), scripts).await;
        let mut session = Session::open(&house.host(), agent, OpenSession::New).await.unwrap();
        let TurnResult::Suspended(suspension) = turn(&mut session, "Go.").await else { panic!("it waits") };
        let call = suspension.waits[0].call.clone();
        let subject = session.subject().to_owned();
        session.close().await.unwrap();
        let agent = planner(&house, config, scripts).await;
        let mut session = Session::open(&house.host(), agent, OpenSession::Existing(subject)).await.unwrap();
        let verdict = match allowed {
            true => Verdict::Allow { scope: GrantScope::Once, edited: None },
            false => Verdict::Deny { reason: Some("no time".to_owned()) },
        };
        session.approve(vec![ApprovalDecision { call, verdict }]).await.unwrap();
        let output = finished(go_on(&mut session).await);
        let expected = if allowed { "All of it." } else { "Not all of it." };
        assert_eq!((output.data, fallbacks(&house, &session).await.is_empty()), (json!(expected), allowed));
        let ran = events(&house, &session).await;
        let ran = ran.iter().filter(|event| matches!(event.kind, EventKind::ToolCall { attempt: 1.., .. })).count();
        assert_eq!(ran, 1 + usize::from(allowed), "what ran before does not run again");
    }
}
