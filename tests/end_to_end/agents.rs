//! Delegation: agents as tools of agents, with scripted models for all of them (L16, row 13).

use crate::support::{House, calling, events, results, saying, scratch, script, turn};
use agent_core::event::{Event, EventKind, WaitCause};
use agent_core::message::CallId;
use agent_core::run::{AtLimit, Decision, Output, TurnError};
use agent_plugins::{HostLimits, Sandbox, SandboxOptions};
use agent_runtime::{Agent, AgentConfig, Delegate, OpenSession, Session, SessionError, TurnResult};
use agent_store::{SessionFilter, SessionLog, StoreError};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// An agent whose model says these replies and that may delegate to those below.
async fn agent(house: &House, config: AgentConfig, replies: &[Value], below: &[&Arc<Agent>]) -> Arc<Agent> {
    let mut config = config;
    for agent in below {
        let description = "Works.".to_owned();
        let delegate = Delegate { agent: (*agent).clone().into(), description, input_schema: None };
        config.delegates.insert(agent.config().name.clone(), delegate);
    }
    house.agent(config, script(replies)).await
}

fn ask(agents: &[&str]) -> Value {
    let calls: Vec<_> = agents.iter().map(|agent| (*agent, json!({"task": format!("Work as {agent}.")}))).collect();
    calling(&calls)
}

async fn session(house: &House, agent: &Arc<Agent>) -> Session {
    Session::open(&house.host(), agent.clone(), OpenSession::New).await.expect("a new session opens")
}

fn finished(result: TurnResult) -> Output {
    match result {
        TurnResult::Finished(output) => output,
        other => panic!("the turn did not finish: {other:?}"),
    }
}

/// Subjects of all sessions of an agent.
async fn sessions_of(house: &House, agent: &str) -> Vec<String> {
    let filter = SessionFilter { agent: Some(agent.to_owned()), ..SessionFilter::default() };
    let found = house.store.sessions(filter, 100).await.expect("sessions are listed");
    found.into_iter().map(|session| session.subject).collect()
}

async fn events_of(house: &House, session: &str) -> Vec<Event> {
    let events = house.store.events(session, 0, 10_000).await.expect("events are there");
    events.into_iter().map(|timed| timed.event).collect()
}

/// L16: the child works in a session of its own, with its own tools, user and trace from above, and its output is the
/// call's result; what it cost is its own.
#[tokio::test(flavor = "multi_thread")]
async fn l16_an_agent_works_for_another_with_its_own_tools() {
    let house = House::new(&["probe"]).await;
    let child = [
        json!({
            "calls": [{"name": "probe.echo", "arguments": {"text": "found"}}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 10},
            "expect": {"last_contains": "Work as reader.", "lacks": "Ask the reader."},
        }),
        json!({"text": "It is found.", "expect": {"last_contains": "found"}, "usage": {"prompt_tokens": 100, "completion_tokens": 10}}),
    ];
    let reader = agent(&house, AgentConfig::new("reader"), &child, &[]).await;
    let mut config = AgentConfig::new("lead");
    config.user = Some("ada".to_owned());
    let mut told = saying("The reader has found it.");
    told["expect"] = json!({"last_contains": "It is found.", "lacks": "probe.echo", "offers": "reader"});
    let lead = agent(&house, config, &[ask(&["reader"]), told], &[&reader]).await;
    let mut above = session(&house, &lead).await;
    let output = finished(turn(&mut above, "Ask the reader.").await);
    assert_eq!((output.data, output.execution_units), (json!("The reader has found it."), 220));
    let below = sessions_of(&house, "reader").await;
    let [below] = below.as_slice() else { panic!("{below:?}") };
    let calls = house.store.calls(above.subject(), agent_store::CallFilter::Turn(1)).await.unwrap();
    let result = calls[0].result.as_ref().expect("the call has its result");
    let structured = result.structured.as_ref().expect("for programs");
    assert_eq!((&structured["session"], &structured["execution_units"]), (&json!(below), &json!(220)));
    assert_eq!((structured["interactions"].as_u64(), result.is_error), (Some(2), false));
    let child = Session::open(&house.host(), reader.clone(), OpenSession::Existing(below.clone())).await.unwrap();
    assert_eq!(child.state().delegated_by.as_deref(), Some(above.subject()));
    assert_eq!(child.state().delegation, ["lead"]);
    let trace = |session: &Session| session.state().turn.as_ref().unwrap().trace.traceparent[..36].to_owned();
    assert_eq!(trace(&child), trace(&above));
    let echoed: Value = serde_json::from_str(&results(&house, &child).await[0].2).expect("the tool's JSON");
    assert_eq!(echoed["user"], "ada", "the parent's user is the child's");
}

/// L9, L16: children work beside each other, up to the cap of calls at once.
#[tokio::test(flavor = "multi_thread")]
async fn l16_children_work_at_once_under_the_cap() {
    for (cap, at_once) in [(4, true), (1, false)] {
        let house = House::new(&["probe"]).await;
        let nap = [calling(&[("probe.sleep", json!({"ms": 400}))]), saying("Slept.")];
        let reader = agent(&house, AgentConfig::new("reader"), &nap, &[]).await;
        let writer = agent(&house, AgentConfig::new("writer"), &nap, &[]).await;
        let mut config = AgentConfig::new("lead");
        config.bounds.parallel_calls = cap;
        let lead = agent(&house, config, &[ask(&["reader", "writer"]), saying("Both.")], &[&reader, &writer]).await;
        let mut above = session(&house, &lead).await;
        let mut watched = above.subscribe();
        finished(turn(&mut above, "Go.").await);
        let mut order = Vec::new();
        while let Ok(event) = watched.try_recv() {
            if event.session != above.subject()
                && let EventKind::LoopStart { .. } | EventKind::LoopEnd { .. } = event.kind
            {
                order.push(matches!(event.kind, EventKind::LoopStart { .. }));
            }
        }
        let expected = if at_once { [true, true, false, false] } else { [true, false, true, false] };
        assert_eq!(order, expected, "the watcher of the parent sees the children's durable events");
        let names: Vec<_> = results(&house, &above).await.into_iter().map(|(name, ..)| name).collect();
        assert_eq!(names, ["reader", "writer"]);
    }
}

/// L9: a sequential tool does not run beside a child, nor a child beside it.
#[tokio::test(flavor = "multi_thread")]
async fn l9_l16_a_sequential_tool_runs_alone() {
    let house = House::new(&["probe"]).await;
    let nap = [calling(&[("probe.sleep", json!({"ms": 200}))]), saying("Slept.")];
    let reader = agent(&house, AgentConfig::new("reader"), &nap, &[]).await;
    let reply = calling(&[
        ("reader", json!({"task": "Sleep."})),
        ("probe.sequential", json!({"ms": 200})),
        ("reader", json!({"task": "Sleep again."})),
    ]);
    let lead = agent(&house, AgentConfig::new("lead"), &[reply, saying("All.")], &[&reader]).await;
    let mut above = session(&house, &lead).await;
    let mut watched = above.subscribe();
    finished(turn(&mut above, "Go.").await);
    let (mut working, mut alone, mut seen) = (0, false, 0);
    while let Ok(event) = watched.try_recv() {
        match &event.kind {
            EventKind::LoopStart { .. } if event.session != above.subject() => working += 1,
            EventKind::LoopEnd { .. } if event.session != above.subject() => working -= 1,
            EventKind::ToolCall { name, .. } if name == "probe.sequential" => (alone, seen) = (true, seen + 1),
            EventKind::ToolResult { name, .. } if name == "probe.sequential" => alone = false,
            _ => {}
        }
        assert!(!(alone && working > 0), "{working} children work beside a sequential call");
    }
    assert_eq!((seen, sessions_of(&house, "reader").await.len()), (1, 2));
}

/// L16: a child that fails is a typed error result, and the parent goes on.
#[tokio::test(flavor = "multi_thread")]
async fn l16_a_child_that_fails_is_an_error_result() {
    let house = House::new(&["probe"]).await;
    let broken = [json!({"error": {"status": 400, "message": "no such thing"}})];
    let broken = agent(&house, AgentConfig::new("broken"), &broken, &[]).await;
    let mut config = AgentConfig::new("spent");
    (config.bounds.max_interactions, config.bounds.at_limit) = (1, AtLimit::Error);
    let spent = agent(&house, config, &[calling(&[("probe.echo", json!({"text": "a"}))])], &[]).await;
    let lead = [ask(&["broken", "spent"]), saying("Neither.")];
    let lead = agent(&house, AgentConfig::new("lead"), &lead, &[&broken, &spent]).await;
    let mut above = session(&house, &lead).await;
    assert_eq!(finished(turn(&mut above, "Go.").await).data, json!("Neither."));
    let results = results(&house, &above).await;
    assert!(results.iter().all(|(_, is_error, _)| *is_error), "{results:?}");
    let error = |text: &str| serde_json::from_str::<Value>(text).expect("a typed error");
    assert_eq!(error(&results[0].2)["error"], "failed", "the same request would be refused again");
    assert!(results[0].2.contains("no such thing") && results[0].2.contains("model_failed"), "{}", results[0].2);
    assert!(results[1].2.contains("interactions_exhausted"), "{}", results[1].2);
}

/// L28, L16: each try has a session of its own, and still the same failure is seen as the same: the third turns the agent off.
#[tokio::test(flavor = "multi_thread")]
async fn l28_an_agent_that_keeps_failing_is_turned_off() {
    let house = House::new(&[]).await;
    let broken = [json!({"error": {"status": 400, "message": "no such thing"}})];
    let broken = agent(&house, AgentConfig::new("broken"), &broken, &[]).await;
    let again = || ask(&["broken"]);
    let lead = [again(), again(), again(), again(), saying("It does not work.")];
    let lead = agent(&house, AgentConfig::new("lead"), &lead, &[&broken]).await;
    let mut above = session(&house, &lead).await;
    finished(turn(&mut above, "Go.").await);
    let results: Vec<_> = results(&house, &above).await.into_iter().map(|(_, _, text)| text).collect();
    assert!(results[1].ends_with(&results[0]) && results[1].contains("after one more"), "{results:?}");
    assert!(results[2].ends_with(&results[0]) && results[2] != results[0], "the third is a warning: {results:?}");
    let below = sessions_of(&house, "broken").await;
    assert_eq!(below.len(), 3, "the fourth did not run: {results:?}");
    assert!(results.iter().all(|text| below.iter().all(|session| !text.contains(session))), "{results:?}");
}

/// L4, L5, L16: each has its own bounds and its own budget.
#[tokio::test(flavor = "multi_thread")]
async fn l16_a_child_has_its_own_bounds() {
    let house = House::new(&["probe"]).await;
    let mut config = AgentConfig::new("short");
    config.bounds.max_interactions = 1;
    let replies = [calling(&[("probe.echo", json!({"text": "a"}))]), saying("Half of it.")];
    let short = agent(&house, config, &replies, &[]).await;
    let lead = agent(&house, AgentConfig::new("lead"), &[ask(&["short"]), saying("Fine.")], &[&short]).await;
    let mut above = session(&house, &lead).await;
    let output = finished(turn(&mut above, "Go.").await);
    assert_eq!((output.interactions, output.execution_units, output.limit_reached), (2, 220, false));
    let result = &results(&house, &above).await[0];
    assert!(!result.1 && result.2.contains("Half of it.") && result.2.contains("bound"), "{}", result.2);
}

/// L8, L16: an agent's own input schema is checked, and it gets what satisfies it as JSON.
#[tokio::test(flavor = "multi_thread")]
async fn l16_an_agent_with_an_input_schema() {
    let house = House::new(&[]).await;
    let mut answer = saying("Three pages.");
    answer["expect"] = json!({"last_contains": "\"topic\""});
    let reader = agent(&house, AgentConfig::new("reader"), &[answer], &[]).await;
    let schema = json!({"type": "object", "required": ["topic"], "properties": {"topic": {"type": "string"}}});
    let mut config = AgentConfig::new("lead");
    let delegate = Delegate { agent: reader.into(), description: "Reads.".to_owned(), input_schema: Some(schema) };
    config.delegates.insert("look.up".to_owned(), delegate);
    let replies = [
        calling(&[("look.up", json!({"task": "Read."}))]),
        calling(&[("look.up", json!({"topic": "owls"}))]),
        saying("Read."),
    ];
    let mut above = session(&house, &house.agent(config, script(&replies)).await).await;
    finished(turn(&mut above, "Go.").await);
    let results = results(&house, &above).await;
    assert!(results[0].1 && results[0].2.contains("required"), "{}", results[0].2);
    assert_eq!((results[1].1, results[1].2.as_str()), (false, "Three pages."));
}

/// Row 13: an agent that is above already is refused, whatever the configuration says, and nothing is made for it.
#[tokio::test(flavor = "multi_thread")]
async fn l16_row_13_a_circle_is_refused_at_run_time() {
    let house = House::new(&[]).await;
    let again = agent(&house, AgentConfig::new("lead"), &[saying("Never said.")], &[]).await;
    let writer = [ask(&["lead"]), saying("I was refused.")];
    let writer = agent(&house, AgentConfig::new("writer"), &writer, &[&again]).await;
    let lead = agent(&house, AgentConfig::new("lead"), &[ask(&["writer"]), saying("So be it.")], &[&writer]).await;
    let mut above = session(&house, &lead).await;
    finished(turn(&mut above, "Go.").await);
    assert_eq!(results(&house, &above).await[0].2, "I was refused.");
    let below = sessions_of(&house, "writer").await;
    let refusals: Vec<_> = events_of(&house, &below[0]).await.into_iter().map(|event| event.kind).collect();
    let refused = |kind: &EventKind| matches!(kind, EventKind::ToolResultError { content, .. } if content.contains("lead → writer"));
    assert!(refusals.iter().any(refused), "{refusals:?}");
    assert_eq!(sessions_of(&house, "lead").await, [above.subject()]);
}

/// Row 13: work is handed down four times, and not five; with `max_depth = 1` above, once.
#[tokio::test(flavor = "multi_thread")]
async fn l16_row_13_the_depth_is_bounded() {
    for (max_depth, deepest) in [(4, "e"), (1, "b")] {
        let house = House::new(&[]).await;
        let mut below = agent(&house, AgentConfig::new("f"), &[saying("Too deep.")], &[]).await;
        for name in ["e", "d", "c", "b", "a"] {
            let mut config = AgentConfig::new(name);
            config.bounds.max_depth = if name == "a" { max_depth } else { 16 };
            let next = below.config().name.clone();
            below = agent(&house, config, &[ask(&[&next]), saying(&format!("{name} is done."))], &[&below]).await;
        }
        let mut above = session(&house, &below).await;
        finished(turn(&mut above, "Go.").await);
        let mut worked = Vec::new();
        for name in ["a", "b", "c", "d", "e", "f"] {
            worked.extend(sessions_of(&house, name).await.first().map(|_| name));
        }
        assert_eq!(worked.last(), Some(&deepest), "{worked:?}");
        let last = sessions_of(&house, deepest).await.remove(0);
        let is_refused = |event: &Event| matches!(&event.kind, EventKind::ToolResultError { content, .. } if content.contains("denied"));
        assert!(events_of(&house, &last).await.iter().any(is_refused), "the model of {deepest} is told");
    }
}

/// L29, L16: cancelling the parent cancels the children, theirs too, and every session goes on.
#[tokio::test(flavor = "multi_thread")]
async fn l16_l29_cancelling_reaches_all_children() {
    let house = House::new(&["probe"]).await;
    let nap = [calling(&[("probe.slow", json!({"ms": 20_000}))]), saying("Again.")];
    let deep = agent(&house, AgentConfig::new("deep"), &nap, &[]).await;
    let middle = agent(&house, AgentConfig::new("middle"), &[ask(&["deep"]), saying("Again.")], &[&deep]).await;
    let lead = [ask(&["middle", "deep"]), saying("Going on.")];
    let lead = agent(&house, AgentConfig::new("lead"), &lead, &[&middle, &deep]).await;
    let mut above = session(&house, &lead).await;
    let (cancel, mut watched) = (CancellationToken::new(), above.subscribe());
    let stop = cancel.clone();
    tokio::spawn(async move {
        let mut napping = 0;
        while napping < 2 {
            let event = watched.recv().await.expect("events come");
            napping += usize::from(matches!(&event.kind, EventKind::ToolCall { name, .. } if name == "probe.slow"));
        }
        stop.cancel();
    });
    let input = Some(agent_core::message::TurnInput::Text("Wait.".to_owned()));
    let running = above.run(input, cancel);
    let result = tokio::time::timeout(Duration::from_secs(15), running).await.expect("nobody sleeps on");
    assert_eq!(result.unwrap(), TurnResult::Cancelled);
    for (_, is_error, text) in results(&house, &above).await {
        assert!(is_error && text == "cancelled; outcome unknown", "{text}");
    }
    let all = house.store.sessions(SessionFilter::default(), 10).await.unwrap();
    assert_eq!(all.len(), 4);
    let let_go = |subject: &str, open_in: Option<u32>| subject == above.subject() || open_in.is_none();
    assert!(all.iter().all(|session| session.state == "cancelled"), "{all:?}");
    assert!(all.iter().all(|session| let_go(&session.subject, session.open_in)), "{all:?}");
    assert_eq!(finished(turn(&mut above, "Go on.").await).data, json!("Going on."));
}

/// D3, L16: a parent whose driver was dropped goes on with the same child.
#[tokio::test(flavor = "multi_thread")]
async fn l16_a_dropped_driver_goes_on_with_the_same_child() {
    let house = House::new(&["probe"]).await;
    let nap = [calling(&[("probe.sleep", json!({"ms": 700}))]), saying("Slept.")];
    let reader = agent(&house, AgentConfig::new("reader"), &nap, &[]).await;
    let lead = agent(&house, AgentConfig::new("lead"), &[ask(&["reader"]), saying("Done.")], &[&reader]).await;
    let mut above = session(&house, &lead).await;
    let mut watched = above.subscribe();
    let input = Some(agent_core::message::TurnInput::Text("Go.".to_owned()));
    let asleep = async {
        while !matches!(&watched.recv().await.unwrap().kind, EventKind::ToolCall { name, .. } if name == "probe.sleep")
        {
        }
    };
    tokio::select! {
        result = above.run(input, Default::default()) => panic!("the turn ended: {result:?}"),
        () = asleep => {}
    }
    let output = finished(above.run(None, Default::default()).await.unwrap());
    assert_eq!(output.data, json!("Done."));
    assert_eq!(sessions_of(&house, "reader").await.len(), 1);
    assert_eq!(results(&house, &above).await[0].2, "Slept.");
}

/// L10, L16: while another process has the child, the parent waits; then it goes on, and takes what has become of it.
#[tokio::test(flavor = "multi_thread")]
async fn l16_a_parent_waits_for_a_child_that_somebody_else_has() {
    let house = House::new(&["probe"]).await;
    let nap = [calling(&[("probe.sleep", json!({"ms": 700}))]), saying("Slept.")];
    let reader = agent(&house, AgentConfig::new("reader"), &nap, &[]).await;
    let lead = agent(&house, AgentConfig::new("lead"), &[ask(&["reader"]), saying("Done.")], &[&reader]).await;
    let mut above = session(&house, &lead).await;
    let mut watched = above.subscribe();
    let input = Some(agent_core::message::TurnInput::Text("Go.".to_owned()));
    let begun = async {
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
        result = above.run(input, Default::default()) => panic!("the turn ended: {result:?}"),
        suspension = begun => suspension,
    };
    let WaitCause::Agent { session: below } = &suspension.waits[0].cause else { panic!("{suspension:?}") };
    // The dropped driver is still letting go of it.
    let mut by_hand = None;
    while by_hand.is_none() {
        let which = OpenSession::Existing(below.clone());
        match Session::open(&house.host(), reader.clone(), which).await {
            Ok(session) => by_hand = Some(session),
            Err(SessionError::Store(StoreError::Busy { .. })) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(error) => panic!("{error}"),
        }
    }
    let mut by_hand = by_hand.expect("opened");
    let waits = above.run(None, Default::default()).await.unwrap();
    assert!(matches!(&waits, TurnResult::Suspended(again) if *again == suspension), "{waits:?}");
    assert_eq!(finished(by_hand.run(None, Default::default()).await.unwrap()).data, json!("Slept."));
    by_hand.close().await.unwrap();
    assert_eq!(finished(above.run(None, Default::default()).await.unwrap()).data, json!("Done."));
    assert_eq!(results(&house, &above).await[0].2, "Slept.");
    let said = events(&house, &above).await;
    let suspended = said.iter().filter(|event| matches!(event.kind, EventKind::Suspended { .. })).count();
    assert_eq!(suspended, 1, "it is said once");
}

/// L16: an agent that is taken out of the configuration while it works is an error result.
#[tokio::test(flavor = "multi_thread")]
async fn l16_an_agent_that_is_gone_is_an_error_result() {
    let house = House::new(&["probe"]).await;
    let nap = [calling(&[("probe.sleep", json!({"ms": 2_000}))]), saying("Slept.")];
    let reader = agent(&house, AgentConfig::new("reader"), &nap, &[]).await;
    let replies = [ask(&["reader"]), saying("Done.")];
    let lead = agent(&house, AgentConfig::new("lead"), &replies, &[&reader]).await;
    let mut above = session(&house, &lead).await;
    let mut watched = above.subscribe();
    let input = Some(agent_core::message::TurnInput::Text("Go.".to_owned()));
    let begun = async { while !matches!(watched.recv().await.unwrap().kind, EventKind::Suspended { .. }) {} };
    tokio::select! {
        result = above.run(input, Default::default()) => panic!("the turn ended: {result:?}"),
        () = begun => {}
    }
    let subject = above.subject().to_owned();
    above.close().await.unwrap();
    let alone = agent(&house, AgentConfig::new("lead"), &replies, &[]).await;
    let mut above = Session::open(&house.host(), alone, OpenSession::Existing(subject)).await.unwrap();
    let result = above.run(None, Default::default()).await.unwrap();
    assert!(!matches!(result, TurnResult::Failed(TurnError::HostFailed { .. })), "{result:?}");
    assert_eq!(finished(result).data, json!("Done."));
    let result = &results(&house, &above).await[0];
    assert!(result.1 && result.2.contains("not_found") && result.2.contains("reader"), "{}", result.2);
}

/// Runs the parent until its child's `probe.slow` runs, and drops both, as a crash would.
async fn interrupted(above: &mut Session) {
    let mut watched = above.subscribe();
    let input = Some(agent_core::message::TurnInput::Text("Go.".to_owned()));
    let slow = async {
        while !matches!(&watched.recv().await.unwrap().kind, EventKind::ToolCall { name, .. } if name == "probe.slow") {
        }
    };
    tokio::select! {
        result = above.run(input, Default::default()) => panic!("the turn ended: {result:?}"),
        () = slow => {}
    }
}

/// D3, L10, L16: a child that waits for a decision leaves its parent suspended; once it is decided, going on with the parent
/// goes on with the child. Cancelling the parent instead ends the child's turn, too.
#[tokio::test(flavor = "multi_thread")]
async fn l16_a_child_that_waits_for_somebody_leaves_its_parent_waiting() {
    for decided in [true, false] {
        let house = House::new(&["probe"]).await;
        let nap = [calling(&[("probe.slow", json!({"ms": 20_000}))]), saying("Decided.")];
        let reader = agent(&house, AgentConfig::new("reader"), &nap, &[]).await;
        let lead = agent(&house, AgentConfig::new("lead"), &[ask(&["reader"]), saying("Done.")], &[&reader]).await;
        let mut above = session(&house, &lead).await;
        interrupted(&mut above).await;
        let waits = above.run(None, Default::default()).await.unwrap();
        let TurnResult::Suspended(suspension) = waits else { panic!("{waits:?}") };
        let below = sessions_of(&house, "reader").await.remove(0);
        assert_eq!(suspension.waits[0].cause, WaitCause::Agent { session: below.clone() });
        if !decided {
            let cancel = CancellationToken::new();
            cancel.cancel();
            assert_eq!(above.run(None, cancel).await.unwrap(), TurnResult::Cancelled);
            let all = house.store.sessions(SessionFilter::default(), 10).await.unwrap();
            assert!(all.len() == 2 && all.iter().all(|session| session.state == "cancelled"), "{all:?}");
            continue;
        }
        let which = OpenSession::Existing(below.clone());
        let mut child = Session::open(&house.host(), reader.clone(), which).await.unwrap();
        let unknown = CallId("call_1_1_1".to_owned());
        child.resolve(unknown, Decision::Result("slept".to_owned())).await.unwrap();
        child.close().await.unwrap();
        assert_eq!(finished(above.run(None, Default::default()).await.unwrap()).data, json!("Done."));
        assert_eq!(results(&house, &above).await[0].2, "Decided.");
        assert_eq!(sessions_of(&house, "reader").await, [below]);
    }
}

/// P8, row 13: no call holds a place while another guest runs for it. Agents that delegate to agents, all of them with calls
/// of plugins, need no more than one place in all.
#[tokio::test(flavor = "multi_thread")]
async fn p8_one_place_is_enough_for_agents_that_delegate() {
    let mut house = House::new(&["probe"]).await;
    let limits = HostLimits { concurrent_calls: 1, compile_time: Duration::from_secs(300), ..HostLimits::default() };
    let cache_directory = Some(scratch().join("cache"));
    house.sandbox = Sandbox::new(SandboxOptions { limits, cache_directory, ..SandboxOptions::default() }).unwrap();
    let echo = |text: &str| ("probe.echo", json!({"text": text}));
    let lowest = [calling(&[echo("one"), echo("two"), echo("three")]), saying("Lowest.")];
    let lowest = agent(&house, AgentConfig::new("lowest"), &lowest, &[]).await;
    let middle = [calling(&[echo("four"), ("lowest", json!({"task": "Work."})), echo("five")]), saying("Middle.")];
    let middle = agent(&house, AgentConfig::new("middle"), &middle, &[&lowest]).await;
    let top = [calling(&[echo("six"), ("middle", json!({"task": "Work."})), echo("seven")]), saying("Top.")];
    let top = agent(&house, AgentConfig::new("top"), &top, &[&middle]).await;
    let mut session = session(&house, &top).await;
    let whole = tokio::time::timeout(Duration::from_secs(60), turn(&mut session, "Go.")).await;
    assert_eq!(finished(whole.expect("nobody waits for ever")).data, json!("Top."));
    let results = results(&house, &session).await;
    assert!(results.len() == 3 && results.iter().all(|(_, is_error, _)| !is_error), "{results:?}");
}
