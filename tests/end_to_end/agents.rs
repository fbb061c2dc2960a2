//! Delegation: agents as tools of other agents, with scripted models for all of them (L16, row 13).

use crate::support::{TestHost, call_reply, events, results, run_turn, scratch, script, text_reply};
use agent_core::event::{Event, EventKind, WaitCause};
use agent_core::message::CallId;
use agent_core::run::{AtLimit, Decision, Output, TurnError};
use agent_plugins::{HostLimits, Sandbox, SandboxOptions};
use agent_runtime::{Agent, AgentConfig, Delegate, OpenSession, Session, SessionError, TurnResult};
use agent_store::{SessionFilter, SessionIndex, SessionLog, SessionSummary, StoreError};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Creates an agent that may delegate to `children`. The agent's model returns `replies`.
async fn agent(test_host: &TestHost, config: AgentConfig, replies: &[Value], children: &[&Arc<Agent>]) -> Arc<Agent> {
    let mut config = config;
    for agent in children {
        let description = "Works.".to_owned();
        let delegate = Delegate { agent: (*agent).clone().into(), description, input_schema: None };
        config.delegates.insert(agent.config().name.clone(), delegate);
    }
    test_host.agent(config, script(replies)).await
}

fn delegate_to(agents: &[&str]) -> Value {
    let calls: Vec<_> = agents.iter().map(|agent| (*agent, json!({"task": format!("Work as {agent}.")}))).collect();
    call_reply(&calls)
}

async fn session(test_host: &TestHost, agent: &Arc<Agent>) -> Session {
    Session::open(&test_host.host(), agent.clone(), OpenSession::New).await.expect("a new session opens")
}

fn expect_finished(result: TurnResult) -> Output {
    match result {
        TurnResult::Finished(output) => output,
        other => panic!("the turn did not finish: {other:?}"),
    }
}

/// Returns the subjects of all sessions of an agent.
async fn sessions_of(test_host: &TestHost, agent: &str) -> Vec<String> {
    let filter = SessionFilter { agent: Some(agent.to_owned()), ..SessionFilter::default() };
    let found = test_host.store.sessions(filter, 100).await.expect("sessions are listed");
    found.into_iter().map(|session| session.subject).collect()
}

async fn events_of(test_host: &TestHost, session: &str) -> Vec<Event> {
    let events = test_host.store.events(session, 0, 10_000).await.expect("events are there");
    events.into_iter().map(|timed| timed.event).collect()
}

/// L16: A child agent runs in its own session with its own tools, and inherits the user and the trace of its parent.
/// The child's output is the result of the parent's call, and the child's cost is counted separately.
#[tokio::test(flavor = "multi_thread")]
async fn l16_a_child_works_with_its_own_tools_and_session() {
    let test_host = TestHost::new(&["probe"]).await;
    let child_replies = [
        json!({
            "calls": [{"name": "probe.echo", "arguments": {"text": "found"}}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 10},
            "expect": {"last_contains": "Work as reader.", "lacks": "Ask the reader."},
        }),
        json!({"text": "It is found.", "expect": {"last_contains": "found"}, "usage": {"prompt_tokens": 100, "completion_tokens": 10}}),
    ];
    let reader = agent(&test_host, AgentConfig::new("reader"), &child_replies, &[]).await;
    let mut config = AgentConfig::new("lead");
    config.user = Some("ada".to_owned());
    let mut final_reply = text_reply("The reader has found it.");
    final_reply["expect"] = json!({"last_contains": "It is found.", "lacks": "probe.echo", "offers": "reader"});
    let lead = agent(&test_host, config, &[delegate_to(&["reader"]), final_reply], &[&reader]).await;
    let mut parent = session(&test_host, &lead).await;
    let output = expect_finished(run_turn(&mut parent, "Ask the reader.").await);
    assert_eq!((output.data, output.execution_units), (json!("The reader has found it."), 220));
    let children = sessions_of(&test_host, "reader").await;
    let [subject] = children.as_slice() else { panic!("{children:?}") };
    let calls = test_host.store.calls(parent.subject(), agent_store::CallFilter::Turn(1)).await.unwrap();
    let result = calls[0].result.as_ref().expect("the call has its result");
    let structured = result.structured.as_ref().expect("the result has structured content");
    assert_eq!((&structured["session"], &structured["execution_units"]), (&json!(subject), &json!(220)));
    assert_eq!((structured["interactions"].as_u64(), result.is_error), (Some(2), false));
    let child = Session::open(&test_host.host(), reader.clone(), OpenSession::Existing(subject.clone())).await.unwrap();
    assert_eq!(child.state().delegated_by.as_deref(), Some(parent.subject()));
    assert_eq!(child.state().delegation, ["lead"]);
    let trace = |session: &Session| session.state().turn.as_ref().unwrap().trace.traceparent[..36].to_owned();
    assert_eq!(trace(&child), trace(&parent));
    let echoed: Value = serde_json::from_str(&results(&test_host, &child).await[0].2).expect("the tool's JSON");
    assert_eq!(echoed["user"], "ada", "the child has the user of its parent");
}

/// L9, L16: Child agents run in parallel, up to the maximum number of parallel calls.
#[tokio::test(flavor = "multi_thread")]
async fn l16_children_run_in_parallel_up_to_the_cap() {
    for (cap, in_parallel) in [(4, true), (1, false)] {
        let test_host = TestHost::new(&["probe"]).await;
        let sleep_replies = [call_reply(&[("probe.sleep", json!({"ms": 400}))]), text_reply("Slept.")];
        let reader = agent(&test_host, AgentConfig::new("reader"), &sleep_replies, &[]).await;
        let writer = agent(&test_host, AgentConfig::new("writer"), &sleep_replies, &[]).await;
        let mut config = AgentConfig::new("lead");
        config.bounds.parallel_calls = cap;
        let lead =
            agent(&test_host, config, &[delegate_to(&["reader", "writer"]), text_reply("Both.")], &[&reader, &writer])
                .await;
        let mut parent = session(&test_host, &lead).await;
        let mut watched = parent.subscribe();
        expect_finished(run_turn(&mut parent, "Go.").await);
        let mut order = Vec::new();
        while let Ok(event) = watched.try_recv() {
            if event.session != parent.subject()
                && let EventKind::LoopStart { .. } | EventKind::LoopEnd { .. } = event.kind
            {
                order.push(matches!(event.kind, EventKind::LoopStart { .. }));
            }
        }
        let expected = if in_parallel { [true, true, false, false] } else { [true, false, true, false] };
        assert_eq!(order, expected, "the watcher of the parent sees the children's durable events");
        let names: Vec<_> = results(&test_host, &parent).await.into_iter().map(|(name, ..)| name).collect();
        assert_eq!(names, ["reader", "writer"]);
    }
}

/// L9: A tool that is marked as sequential does not run in parallel with a child agent.
#[tokio::test(flavor = "multi_thread")]
async fn l9_l16_a_sequential_tool_runs_alone() {
    let test_host = TestHost::new(&["probe"]).await;
    let sleep_replies = [call_reply(&[("probe.sleep", json!({"ms": 200}))]), text_reply("Slept.")];
    let reader = agent(&test_host, AgentConfig::new("reader"), &sleep_replies, &[]).await;
    let reply = call_reply(&[
        ("reader", json!({"task": "Sleep."})),
        ("probe.sequential", json!({"ms": 200})),
        ("reader", json!({"task": "Sleep again."})),
    ]);
    let lead = agent(&test_host, AgentConfig::new("lead"), &[reply, text_reply("All.")], &[&reader]).await;
    let mut parent = session(&test_host, &lead).await;
    let mut watched = parent.subscribe();
    expect_finished(run_turn(&mut parent, "Go.").await);
    let (mut working, mut alone, mut seen) = (0, false, 0);
    while let Ok(event) = watched.try_recv() {
        match &event.kind {
            EventKind::LoopStart { .. } if event.session != parent.subject() => working += 1,
            EventKind::LoopEnd { .. } if event.session != parent.subject() => working -= 1,
            EventKind::ToolCall { name, .. } if name == "probe.sequential" => (alone, seen) = (true, seen + 1),
            EventKind::ToolResult { name, .. } if name == "probe.sequential" => alone = false,
            _ => {}
        }
        assert!(!(alone && working > 0), "{working} children run during a sequential call");
    }
    assert_eq!((seen, sessions_of(&test_host, "reader").await.len()), (1, 2));
}

/// L16: If a child fails, the call gets a typed error result and the parent continues.
#[tokio::test(flavor = "multi_thread")]
async fn l16_a_child_failure_causes_an_error_result() {
    let test_host = TestHost::new(&["probe"]).await;
    let broken = [json!({"error": {"status": 400, "message": "no such thing"}})];
    let broken = agent(&test_host, AgentConfig::new("broken"), &broken, &[]).await;
    let mut config = AgentConfig::new("spent");
    (config.bounds.max_interactions, config.bounds.at_limit) = (1, AtLimit::Error);
    let spent = agent(&test_host, config, &[call_reply(&[("probe.echo", json!({"text": "a"}))])], &[]).await;
    let lead = [delegate_to(&["broken", "spent"]), text_reply("Neither.")];
    let lead = agent(&test_host, AgentConfig::new("lead"), &lead, &[&broken, &spent]).await;
    let mut parent = session(&test_host, &lead).await;
    assert_eq!(expect_finished(run_turn(&mut parent, "Go.").await).data, json!("Neither."));
    let results = results(&test_host, &parent).await;
    assert!(results.iter().all(|(_, is_error, _)| *is_error), "{results:?}");
    let error = |text: &str| serde_json::from_str::<Value>(text).expect("a typed error");
    assert_eq!(error(&results[0].2)["error"], "failed", "the same request would be refused again");
    assert!(results[0].2.contains("no such thing") && results[0].2.contains("model_failed"), "{}", results[0].2);
    assert!(results[1].2.contains("interactions_exhausted"), "{}", results[1].2);
}

/// L28, L16: If an agent tool fails repeatedly, the failures count as the same failure, although each attempt runs in a
/// new session. After the third failure, the agent tool is disabled.
#[tokio::test(flavor = "multi_thread")]
async fn l28_disables_an_agent_that_keeps_failing() {
    let test_host = TestHost::new(&[]).await;
    let broken = [json!({"error": {"status": 400, "message": "no such thing"}})];
    let broken = agent(&test_host, AgentConfig::new("broken"), &broken, &[]).await;
    let delegation = || delegate_to(&["broken"]);
    let lead = [delegation(), delegation(), delegation(), delegation(), text_reply("It does not work.")];
    let lead = agent(&test_host, AgentConfig::new("lead"), &lead, &[&broken]).await;
    let mut parent = session(&test_host, &lead).await;
    expect_finished(run_turn(&mut parent, "Go.").await);
    let results: Vec<_> = results(&test_host, &parent).await.into_iter().map(|(_, _, text)| text).collect();
    assert!(results[1].ends_with(&results[0]) && results[1].contains("after one more"), "{results:?}");
    assert!(
        results[2].ends_with(&results[0]) && results[2] != results[0],
        "the third result contains a warning: {results:?}"
    );
    let children = sessions_of(&test_host, "broken").await;
    assert_eq!(children.len(), 3, "the fourth call did not run: {results:?}");
    assert!(results.iter().all(|text| children.iter().all(|session| !text.contains(session))), "{results:?}");
}

/// L4, L5, L16: Each agent has its own limits and its own budget.
#[tokio::test(flavor = "multi_thread")]
async fn l16_a_child_has_its_own_limits_and_budget() {
    let test_host = TestHost::new(&["probe"]).await;
    let mut config = AgentConfig::new("short");
    config.bounds.max_interactions = 1;
    let replies = [call_reply(&[("probe.echo", json!({"text": "a"}))]), text_reply("Half of it.")];
    let short = agent(&test_host, config, &replies, &[]).await;
    let lead =
        agent(&test_host, AgentConfig::new("lead"), &[delegate_to(&["short"]), text_reply("Fine.")], &[&short]).await;
    let mut parent = session(&test_host, &lead).await;
    let output = expect_finished(run_turn(&mut parent, "Go.").await);
    assert_eq!((output.interactions, output.execution_units, output.limit_reached), (2, 220, false));
    let result = &results(&test_host, &parent).await[0];
    assert!(!result.1 && result.2.contains("Half of it.") && result.2.contains("limit of model calls"), "{}", result.2);
}

/// L8, L16: If an agent has an input schema, its input is checked against the schema, and the agent receives the input
/// as JSON.
#[tokio::test(flavor = "multi_thread")]
async fn l16_checks_input_against_the_schema_of_the_agent() {
    let test_host = TestHost::new(&[]).await;
    let mut answer = text_reply("Three pages.");
    answer["expect"] = json!({"last_contains": "\"topic\""});
    let reader = agent(&test_host, AgentConfig::new("reader"), &[answer], &[]).await;
    let schema = json!({"type": "object", "required": ["topic"], "properties": {"topic": {"type": "string"}}});
    let mut config = AgentConfig::new("lead");
    let delegate = Delegate { agent: reader.into(), description: "Reads.".to_owned(), input_schema: Some(schema) };
    config.delegates.insert("look.up".to_owned(), delegate);
    let replies = [
        call_reply(&[("look.up", json!({"task": "Read."}))]),
        call_reply(&[("look.up", json!({"topic": "owls"}))]),
        text_reply("Read."),
    ];
    let mut parent = session(&test_host, &test_host.agent(config, script(&replies)).await).await;
    expect_finished(run_turn(&mut parent, "Go.").await);
    let results = results(&test_host, &parent).await;
    assert!(results[0].1 && results[0].2.contains("required"), "{}", results[0].2);
    assert_eq!((results[1].1, results[1].2.as_str()), (false, "Three pages."));
}

/// Row 13: Delegating to an agent that is already in the chain is refused with every configuration, and no session is
/// created.
#[tokio::test(flavor = "multi_thread")]
async fn l16_row_13_refuses_a_delegation_cycle_at_run_time() {
    let test_host = TestHost::new(&[]).await;
    let second_lead = agent(&test_host, AgentConfig::new("lead"), &[text_reply("Never said.")], &[]).await;
    let writer = [delegate_to(&["lead"]), text_reply("I was refused.")];
    let writer = agent(&test_host, AgentConfig::new("writer"), &writer, &[&second_lead]).await;
    let lead =
        agent(&test_host, AgentConfig::new("lead"), &[delegate_to(&["writer"]), text_reply("So be it.")], &[&writer])
            .await;
    let mut parent = session(&test_host, &lead).await;
    expect_finished(run_turn(&mut parent, "Go.").await);
    assert_eq!(results(&test_host, &parent).await[0].2, "I was refused.");
    let children = sessions_of(&test_host, "writer").await;
    let refusals: Vec<_> = events_of(&test_host, &children[0]).await.into_iter().map(|event| event.kind).collect();
    let refused = |kind: &EventKind| matches!(kind, EventKind::ToolResultError { content, .. } if content.contains("lead → writer"));
    assert!(refusals.iter().any(refused), "{refusals:?}");
    assert_eq!(sessions_of(&test_host, "lead").await, [parent.subject()]);
}

/// Row 13: Delegation is at most four levels deep by default. With `max_depth = 1` in the top agent, delegation is at
/// most one level deep.
#[tokio::test(flavor = "multi_thread")]
async fn l16_row_13_limits_the_delegation_depth() {
    for (max_depth, deepest) in [(4, "e"), (1, "b")] {
        let test_host = TestHost::new(&[]).await;
        let mut child = agent(&test_host, AgentConfig::new("f"), &[text_reply("Too deep.")], &[]).await;
        for name in ["e", "d", "c", "b", "a"] {
            let mut config = AgentConfig::new(name);
            config.bounds.max_depth = if name == "a" { max_depth } else { 16 };
            let next = child.config().name.clone();
            child =
                agent(&test_host, config, &[delegate_to(&[&next]), text_reply(&format!("{name} is done."))], &[&child])
                    .await;
        }
        let mut parent = session(&test_host, &child).await;
        expect_finished(run_turn(&mut parent, "Go.").await);
        let mut agents_with_session = Vec::new();
        for name in ["a", "b", "c", "d", "e", "f"] {
            agents_with_session.extend(sessions_of(&test_host, name).await.first().map(|_| name));
        }
        assert_eq!(agents_with_session.last(), Some(&deepest), "{agents_with_session:?}");
        let last = sessions_of(&test_host, deepest).await.remove(0);
        let is_refused = |event: &Event| matches!(&event.kind, EventKind::ToolResultError { content, .. } if content.contains("denied"));
        assert!(events_of(&test_host, &last).await.iter().any(is_refused), "the model of {deepest} gets the error");
    }
}

/// L29, L16: Cancelling the parent cancels its children and their children, and every session can continue.
#[tokio::test(flavor = "multi_thread")]
async fn l16_l29_cancelling_the_parent_cancels_all_children() {
    let test_host = TestHost::new(&["probe"]).await;
    let sleep_replies = [call_reply(&[("probe.slow", json!({"ms": 20_000}))]), text_reply("Again.")];
    let deep = agent(&test_host, AgentConfig::new("deep"), &sleep_replies, &[]).await;
    let middle =
        agent(&test_host, AgentConfig::new("middle"), &[delegate_to(&["deep"]), text_reply("Again.")], &[&deep]).await;
    let lead = [delegate_to(&["middle", "deep"]), text_reply("Going on.")];
    let lead = agent(&test_host, AgentConfig::new("lead"), &lead, &[&middle, &deep]).await;
    let mut parent = session(&test_host, &lead).await;
    let (cancel, mut watched) = (CancellationToken::new(), parent.subscribe());
    let stop = cancel.clone();
    tokio::spawn(async move {
        let mut slow_calls = 0;
        while slow_calls < 2 {
            let event = watched.recv().await.expect("events come");
            slow_calls += usize::from(matches!(&event.kind, EventKind::ToolCall { name, .. } if name == "probe.slow"));
        }
        stop.cancel();
    });
    let input = Some(agent_core::message::TurnInput::Text("Wait.".to_owned()));
    let running = parent.run(input, cancel);
    let result = tokio::time::timeout(Duration::from_secs(60), running)
        .await
        .expect("the cancellation stops the sleeping guests");
    assert_eq!(result.unwrap(), TurnResult::Cancelled);
    for (_, is_error, text) in results(&test_host, &parent).await {
        assert!(is_error && text == "cancelled; outcome unknown", "{text}");
    }
    let sessions = test_host.store.sessions(SessionFilter::default(), 10).await.unwrap();
    assert_eq!(sessions.len(), 4);
    let is_released = |session: &SessionSummary| session.subject == parent.subject() || session.open_in.is_none();
    assert!(sessions.iter().all(|session| session.state.as_str() == "cancelled"), "{sessions:?}");
    assert!(sessions.iter().all(is_released), "{sessions:?}");
    assert_eq!(expect_finished(run_turn(&mut parent, "Go on.").await).data, json!("Going on."));
}

/// D3, L16: If the task that runs a parent's turn is dropped, the parent continues later with the same child session.
#[tokio::test(flavor = "multi_thread")]
async fn l16_a_restarted_parent_continues_the_same_child() {
    let test_host = TestHost::new(&["probe"]).await;
    let sleep_replies = [call_reply(&[("probe.sleep", json!({"ms": 700}))]), text_reply("Slept.")];
    let reader = agent(&test_host, AgentConfig::new("reader"), &sleep_replies, &[]).await;
    let lead =
        agent(&test_host, AgentConfig::new("lead"), &[delegate_to(&["reader"]), text_reply("Done.")], &[&reader]).await;
    let mut parent = session(&test_host, &lead).await;
    let mut watched = parent.subscribe();
    let input = Some(agent_core::message::TurnInput::Text("Go.".to_owned()));
    let child_sleeps = async {
        while !matches!(&watched.recv().await.unwrap().kind, EventKind::ToolCall { name, .. } if name == "probe.sleep")
        {
        }
    };
    tokio::select! {
        result = parent.run(input, Default::default()) => panic!("the turn ended: {result:?}"),
        () = child_sleeps => {}
    }
    let output = expect_finished(parent.run(None, Default::default()).await.unwrap());
    assert_eq!(output.data, json!("Done."));
    assert_eq!(sessions_of(&test_host, "reader").await.len(), 1);
    assert_eq!(results(&test_host, &parent).await[0].2, "Slept.");
}

/// L10, L16: While another process has the child's session open, the parent waits. After that process has closed the
/// session, the parent continues with the child's outcome.
#[tokio::test(flavor = "multi_thread")]
async fn l16_a_parent_waits_for_a_child_held_by_another_process() {
    let test_host = TestHost::new(&["probe"]).await;
    let sleep_replies = [call_reply(&[("probe.sleep", json!({"ms": 700}))]), text_reply("Slept.")];
    let reader = agent(&test_host, AgentConfig::new("reader"), &sleep_replies, &[]).await;
    let lead =
        agent(&test_host, AgentConfig::new("lead"), &[delegate_to(&["reader"]), text_reply("Done.")], &[&reader]).await;
    let mut parent = session(&test_host, &lead).await;
    let mut watched = parent.subscribe();
    let input = Some(agent_core::message::TurnInput::Text("Go.".to_owned()));
    let child_started = async {
        let mut waits = None;
        loop {
            match watched.recv().await.unwrap().kind {
                EventKind::Suspended { suspension } => waits = Some(suspension),
                EventKind::ToolCall { name, .. } if name == "probe.sleep" => {
                    break waits.expect("the parent waits first");
                }
                _ => {}
            }
        }
    };
    let suspension = tokio::select! {
        result = parent.run(input, Default::default()) => panic!("the turn ended: {result:?}"),
        suspension = child_started => suspension,
    };
    let WaitCause::Agent { session: child_subject } = &suspension.waits[0].cause else { panic!("{suspension:?}") };
    // The child's session may still be locked, because the task that was dropped may not have released the session yet.
    let mut child = None;
    while child.is_none() {
        let open_child = OpenSession::Existing(child_subject.clone());
        match Session::open(&test_host.host(), reader.clone(), open_child).await {
            Ok(session) => child = Some(session),
            Err(SessionError::Store(StoreError::Busy { .. })) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(error) => panic!("{error}"),
        }
    }
    let mut child = child.expect("opened");
    let waits = parent.run(None, Default::default()).await.unwrap();
    assert!(matches!(&waits, TurnResult::Suspended(again) if *again == suspension), "{waits:?}");
    assert_eq!(expect_finished(child.run(None, Default::default()).await.unwrap()).data, json!("Slept."));
    child.close().await.unwrap();
    assert_eq!(expect_finished(parent.run(None, Default::default()).await.unwrap()).data, json!("Done."));
    assert_eq!(results(&test_host, &parent).await[0].2, "Slept.");
    let parent_events = events(&test_host, &parent).await;
    let suspended = parent_events.iter().filter(|event| matches!(event.kind, EventKind::Suspended { .. })).count();
    assert_eq!(suspended, 1, "the parent was suspended only once");
}

/// L16: If a child agent is removed from the configuration while it works, the parent's call gets an error result.
#[tokio::test(flavor = "multi_thread")]
async fn l16_a_call_to_a_removed_agent_returns_an_error_result() {
    let test_host = TestHost::new(&["probe"]).await;
    let sleep_replies = [call_reply(&[("probe.sleep", json!({"ms": 2_000}))]), text_reply("Slept.")];
    let reader = agent(&test_host, AgentConfig::new("reader"), &sleep_replies, &[]).await;
    let replies = [delegate_to(&["reader"]), text_reply("Done.")];
    let lead = agent(&test_host, AgentConfig::new("lead"), &replies, &[&reader]).await;
    let mut parent = session(&test_host, &lead).await;
    let mut watched = parent.subscribe();
    let input = Some(agent_core::message::TurnInput::Text("Go.".to_owned()));
    let child_started = async { while !matches!(watched.recv().await.unwrap().kind, EventKind::Suspended { .. }) {} };
    tokio::select! {
        result = parent.run(input, Default::default()) => panic!("the turn ended: {result:?}"),
        () = child_started => {}
    }
    let subject = parent.subject().to_owned();
    parent.close().await.unwrap();
    let alone = agent(&test_host, AgentConfig::new("lead"), &replies, &[]).await;
    let mut parent = Session::open(&test_host.host(), alone, OpenSession::Existing(subject)).await.unwrap();
    let result = parent.run(None, Default::default()).await.unwrap();
    assert!(!matches!(result, TurnResult::Failed(TurnError::HostFailed { .. })), "{result:?}");
    assert_eq!(expect_finished(result).data, json!("Done."));
    let result = &results(&test_host, &parent).await[0];
    assert!(result.1 && result.2.contains("not_found") && result.2.contains("reader"), "{}", result.2);
}

/// Runs the parent until its child calls `probe.slow`. Then the function drops the running turns of parent and child,
/// which stops the turns as a crash would.
async fn run_until_child_is_killed(parent: &mut Session) {
    let mut watched = parent.subscribe();
    let input = Some(agent_core::message::TurnInput::Text("Go.".to_owned()));
    let slow = async {
        while !matches!(&watched.recv().await.unwrap().kind, EventKind::ToolCall { name, .. } if name == "probe.slow") {
        }
    };
    tokio::select! {
        result = parent.run(input, Default::default()) => panic!("the turn ended: {result:?}"),
        () = slow => {}
    }
}

/// D3, L10, L16: While a child waits for a decision, its parent stays suspended. After the decision, the child
/// continues when the parent is continued. If the parent is cancelled before the decision, the child's turn ends too.
#[tokio::test(flavor = "multi_thread")]
async fn l16_a_child_that_waits_for_a_decision_suspends_its_parent() {
    for decided in [true, false] {
        let test_host = TestHost::new(&["probe"]).await;
        let sleep_replies = [call_reply(&[("probe.slow", json!({"ms": 20_000}))]), text_reply("Decided.")];
        let reader = agent(&test_host, AgentConfig::new("reader"), &sleep_replies, &[]).await;
        let lead =
            agent(&test_host, AgentConfig::new("lead"), &[delegate_to(&["reader"]), text_reply("Done.")], &[&reader])
                .await;
        let mut parent = session(&test_host, &lead).await;
        run_until_child_is_killed(&mut parent).await;
        let waits = parent.run(None, Default::default()).await.unwrap();
        let TurnResult::Suspended(suspension) = waits else { panic!("{waits:?}") };
        let child_subject = sessions_of(&test_host, "reader").await.remove(0);
        assert_eq!(suspension.waits[0].cause, WaitCause::Agent { session: child_subject.clone() });
        if !decided {
            let cancel = CancellationToken::new();
            cancel.cancel();
            assert_eq!(parent.run(None, cancel).await.unwrap(), TurnResult::Cancelled);
            let sessions = test_host.store.sessions(SessionFilter::default(), 10).await.unwrap();
            assert!(
                sessions.len() == 2 && sessions.iter().all(|session| session.state.as_str() == "cancelled"),
                "{sessions:?}"
            );
            continue;
        }
        let open_child = OpenSession::Existing(child_subject.clone());
        let mut child = Session::open(&test_host.host(), reader.clone(), open_child).await.unwrap();
        let undecided = CallId("call_1_1_1".to_owned());
        child.resolve(undecided, Decision::Result("slept".to_owned())).await.unwrap();
        child.close().await.unwrap();
        assert_eq!(expect_finished(parent.run(None, Default::default()).await.unwrap()).data, json!("Done."));
        assert_eq!(results(&test_host, &parent).await[0].2, "Decided.");
        assert_eq!(sessions_of(&test_host, "reader").await, [child_subject]);
    }
}

/// P8, row 13: While a call waits for another guest, the call does not occupy an execution slot. One slot is enough for
/// agents that delegate to agents and call plugins.
#[tokio::test(flavor = "multi_thread")]
async fn p8_one_execution_slot_is_enough_for_delegating_agents() {
    let mut test_host = TestHost::new(&["probe"]).await;
    let limits = HostLimits { concurrent_calls: 1, compile_time: Duration::from_secs(300), ..HostLimits::default() };
    let cache_directory = Some(scratch().join("cache"));
    test_host.sandbox = Sandbox::new(SandboxOptions { limits, cache_directory, ..SandboxOptions::default() }).unwrap();
    let echo = |text: &str| ("probe.echo", json!({"text": text}));
    let lowest = [call_reply(&[echo("one"), echo("two"), echo("three")]), text_reply("Lowest.")];
    let lowest = agent(&test_host, AgentConfig::new("lowest"), &lowest, &[]).await;
    let middle =
        [call_reply(&[echo("four"), ("lowest", json!({"task": "Work."})), echo("five")]), text_reply("Middle.")];
    let middle = agent(&test_host, AgentConfig::new("middle"), &middle, &[&lowest]).await;
    let top = [call_reply(&[echo("six"), ("middle", json!({"task": "Work."})), echo("seven")]), text_reply("Top.")];
    let top = agent(&test_host, AgentConfig::new("top"), &top, &[&middle]).await;
    let mut session = session(&test_host, &top).await;
    let result = tokio::time::timeout(Duration::from_secs(60), run_turn(&mut session, "Go.")).await;
    assert_eq!(expect_finished(result.expect("the agents do not block each other")).data, json!("Top."));
    let results = results(&test_host, &session).await;
    assert!(results.len() == 3 && results.iter().all(|(_, is_error, _)| !is_error), "{results:?}");
}
