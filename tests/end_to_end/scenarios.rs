//! A scripted model drives the loop: the messages, their seen counts and the events after every step.

use crate::support::{
    House, calling, event_types, events, granting, records, results, saying, script, seeing, seen, short, turn, view,
};
use agent_core::event::{EndReason, EventKind};
use agent_core::message::Part;
use agent_core::run::{AtLimit, TurnError};
use agent_runtime::{AgentConfig, TurnResult};
use serde_json::{Value, json};

fn finished(result: TurnResult) -> agent_core::run::Output {
    match result {
        TurnResult::Finished(output) => output,
        other => panic!("the turn did not finish: {other:?}"),
    }
}

/// L3, L9, L13, L30: two calls of one reply run at once; results come in call order.
#[tokio::test(flavor = "multi_thread")]
async fn two_parallel_calls() {
    let house = House::new(&["probe"]).await;
    let replies = [
        calling(&[("probe.sleep", json!({"ms": 300})), ("probe.echo", json!({"text": "hello"}))]),
        saying("Both are done."),
    ];
    let mut session = house
        .session(
            AgentConfig::new("test"),
            seeing(replies, [&["user 0"], &["user 1", "assistant 1", "tool 0", "tool 0"]]),
        )
        .await;
    let output = finished(turn(&mut session, "Do both.").await);
    assert_eq!(output.data, json!("Both are done."));
    assert_eq!((output.interactions, output.execution_units, output.limit_reached), (2, 220, false));
    assert_eq!((output.finish, output.turn), (EndReason::Answered, 1));
    assert_eq!(seen(&house, &session).await, ["user 2", "assistant 2", "tool 1", "tool 1", "assistant 1"]);
    let names: Vec<String> = results(&house, &session).await.into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["probe.sleep", "probe.echo"]);
    // The quick call's outcome is committed first; the messages stand in call order.
    let order: Vec<String> = events(&house, &session)
        .await
        .into_iter()
        .filter_map(|event| match event.kind {
            EventKind::ToolResult { name, .. } => Some(name),
            _ => None,
        })
        .collect();
    assert_eq!(order, ["probe.echo", "probe.sleep"]);
    assert_eq!(
        event_types(&house, &session).await,
        [
            "loop_start",
            "loop_iteration",
            "context_built",
            "stream_complete",
            "tool_call",
            "tool_call",
            "tool_result",
            "tool_result",
            "loop_iteration",
            "context_built",
            "stream_complete",
            "loop_end"
        ]
    );
}

/// L8: a bad argument is explained to the model, and its correction runs.
#[tokio::test(flavor = "multi_thread")]
async fn a_bad_argument_and_its_correction() {
    let house = House::new(&["probe"]).await;
    let replies = [
        calling(&[("probe.echo", json!({"txt": 1}))]),
        calling(&[("probe.echo", json!({"text": "right"}))]),
        saying("Corrected."),
    ];
    let mut session = house
        .session(
            AgentConfig::new("test"),
            seeing(
                replies,
                [
                    &["user 0"],
                    &["user 1", "assistant 1", "tool 0"],
                    &["user 2", "assistant 2", "tool 1", "assistant 1", "tool 0"],
                ],
            ),
        )
        .await;
    finished(turn(&mut session, "Echo.").await);
    let results = results(&house, &session).await;
    let (name, is_error, text) = &results[0];
    let error: Value = serde_json::from_str(text).unwrap();
    assert_eq!((name.as_str(), *is_error, &error["error"]), ("probe.echo", true, &json!("invalid_arguments")));
    assert!(error["violations"].as_array().unwrap().iter().any(|violation| violation["rule"] == "required"), "{text}");
    assert!(!results[1].1);
    let calls = events(&house, &session).await;
    let dispatched =
        calls.iter().filter(|event| matches!(event.kind, EventKind::ToolCall { attempt: 1.., .. })).count();
    assert_eq!(dispatched, 1, "what violates the schema never runs");
    assert_eq!(
        seen(&house, &session).await,
        ["user 3", "assistant 3", "tool 2", "assistant 2", "tool 1", "assistant 1"]
    );
}

/// L7: a tool that is not there is an error result and an event, never a failed turn.
#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_tool() {
    let house = House::new(&["probe"]).await;
    let replies = [calling(&[("weather.forecast", json!({}))]), saying("There is no such tool.")];
    let mut session = house
        .session(AgentConfig::new("test"), seeing(replies, [&["user 0"], &["user 1", "assistant 1", "tool 0"]]))
        .await;
    finished(turn(&mut session, "Forecast.").await);
    assert!(event_types(&house, &session).await.contains(&"tool_not_found".to_owned()));
    let (_, is_error, text) = &results(&house, &session).await[0];
    assert!(*is_error && text.contains("there is no tool `weather.forecast`"), "{text}");
}

/// L9: a reply with more calls than it may have is told so, and the turn goes on.
#[tokio::test(flavor = "multi_thread")]
async fn too_many_calls_in_one_reply() {
    let house = House::new(&["probe"]).await;
    let many = vec![("probe.echo", json!({"text": "a"})); 129];
    let mut goes_on = saying("One by one, then.");
    goes_on["expect"] = json!({"last_contains": "too many calls in one reply: 129, at most 128"});
    let mut session = house.session(AgentConfig::new("test"), script(&[calling(&many), goes_on])).await;
    assert_eq!(finished(turn(&mut session, "Echo.").await).interactions, 2);
    let results = results(&house, &session).await;
    assert_eq!(results.len(), 128);
    assert!(results.iter().all(|(_, is_error, text)| *is_error && !text.contains("\"text\"")), "none of them ran");
}

/// L26: a long result is cut for the model, stored whole, and `read_result` gives the rest.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_result_and_the_rest_of_it() {
    let house = House::new(&["probe"]).await;
    let replies = [
        calling(&[("probe.bytes", json!({"bytes": 20_000}))]),
        calling(&[("read_result", json!({"call_id": "call_1_1_1", "offset": 6000}))]),
        saying("Read."),
    ];
    let mut session = house
        .session(
            AgentConfig::new("test"),
            seeing(
                replies,
                [
                    &["user 0"],
                    &["user 1", "assistant 1", "tool 0"],
                    &["user 2", "assistant 2", "tool 1", "assistant 1", "tool 0"],
                ],
            ),
        )
        .await;
    finished(turn(&mut session, "Read it all.").await);
    let results = results(&house, &session).await;
    assert_eq!(results[0].2.len(), 20_000, "the result is stored whole");
    assert!(results[1].2.contains("characters 6000 to 11800 of 20000; go on with offset 11800"), "{}", results[1].2);
    let shown = serde_json::to_string(&view(&house, &session).await[2]).unwrap();
    assert!(shown.contains("the first 6000 of 20000 characters") && shown.len() < 6_500, "{shown}");
}

/// L6: only the calls of the highest priority run; each other call has a result too.
#[tokio::test(flavor = "multi_thread")]
async fn the_highest_priority_runs_first() {
    let house = House::new(&["probe"]).await;
    let replies =
        [calling(&[("probe.echo", json!({"text": "low"})), ("probe.high", json!({"ms": 1}))]), saying("Done.")];
    let mut session = house.session(AgentConfig::new("test"), script(&replies)).await;
    finished(turn(&mut session, "Go.").await);
    let results = results(&house, &session).await;
    assert!(results[0].1 && results[0].2.starts_with("deferred: a higher-priority call ran first"));
    assert!(!results[1].1);
    assert!(event_types(&house, &session).await.contains(&"tool_deferred".to_owned()));
}

/// L12: an output is rejected by the schema, corrected, and the accepted data ends the turn.
#[tokio::test(flavor = "multi_thread")]
async fn an_output_rejected_and_corrected() {
    let house = House::new(&["strict-json"]).await;
    let mut config = AgentConfig::new("test");
    config.validators = vec!["strict-json".to_owned()];
    config.output_schema =
        Some(json!({"type": "object", "required": ["total"], "properties": {"total": {"type": "integer"}}}));
    let replies = [saying("The total is 3."), saying("{\"total\": \"three\"}"), saying("```json\n{\"total\": 3}\n```")];
    let mut session = house
        .session(
            config,
            seeing(
                replies,
                // Of the two failed attempts the third request holds only the latest.
                [&["user 0"], &["user 1", "assistant 1", "user 0"], &["user 2", "assistant 1", "user 0"]],
            ),
        )
        .await;
    let output = finished(turn(&mut session, "Add.").await);
    assert_eq!(output.data, json!({"total": 3}));
    let rejections: Vec<(String, u32)> = events(&house, &session)
        .await
        .into_iter()
        .filter_map(|event| match event.kind {
            EventKind::OutputRejected { by, attempt, .. } => Some((by, attempt)),
            _ => None,
        })
        .collect();
    assert_eq!(rejections.len(), 2);
    assert!(rejections[0].0.starts_with("strict-json@"), "{rejections:?}");
    assert_eq!(rejections[1], ("output schema".to_owned(), 2));
    // Of the failed attempts only the latest is still in the view; all four messages are stored.
    assert_eq!(seen(&house, &session).await, ["user 3", "assistant 2", "user 1", "assistant 1"]);
    assert_eq!(session.state().next_message, 7);
    let kinds: Vec<String> = records(&house, &session, 1).await.into_iter().map(|stored| stored.record.kind).collect();
    let expected =
        ["context", "prompt", "reply", "verdict", "prompt", "reply", "verdict", "prompt", "reply", "verdict"];
    assert_eq!(kinds, expected);
}

/// L12: with the corrections spent the turn ends with the typed error and the last reply in it.
#[tokio::test(flavor = "multi_thread")]
async fn corrections_spent() {
    let house = House::new(&[]).await;
    let mut config = AgentConfig::new("test");
    config.output_schema = Some(json!({"type": "object"}));
    config.bounds.max_corrections = 1;
    let replies = [saying("no"), saying("still no")];
    let mut session = house.session(config, script(&replies)).await;
    let TurnResult::Failed(TurnError::OutputRejected { last_reply, attempts, .. }) = turn(&mut session, "Go.").await
    else {
        panic!("the turn must fail")
    };
    assert_eq!((last_reply.as_str(), attempts), ("still no", 2));
    assert_eq!(event_types(&house, &session).await.last().unwrap(), "loop_end");
}

/// L4: at the bound a last call without tools answers, or the turn ends with the typed error.
#[tokio::test(flavor = "multi_thread")]
async fn the_bound_is_reached() {
    for at_limit in [AtLimit::Finish, AtLimit::Error] {
        let house = House::new(&["probe"]).await;
        let mut config = AgentConfig::new("test");
        config.bounds.max_interactions = 2;
        config.bounds.at_limit = at_limit;
        let call = || calling(&[("probe.echo", json!({"text": "again"}))]);
        let mut last = saying("I got this far.");
        last["expect"] = json!({"tools": []});
        let mut session = house
            .session(
                config,
                seeing(
                    [call(), call(), last],
                    [
                        &["user 0"],
                        &["user 1", "assistant 1", "tool 0"],
                        &["user 2", "assistant 2", "tool 1", "assistant 1", "tool 0"],
                    ],
                ),
            )
            .await;
        let result = turn(&mut session, "Loop.").await;
        match at_limit {
            AtLimit::Finish => {
                let output = finished(result);
                assert_eq!((output.limit_reached, output.finish, output.interactions), (true, EndReason::Limit, 3));
                assert_eq!(output.data, json!("I got this far."));
            }
            AtLimit::Error => {
                let TurnResult::Failed(error) = result else { panic!("the turn must fail: {result:?}") };
                assert_eq!(error.code(), "interactions_exhausted");
            }
        }
    }
}

/// L1: a second turn of a session sees the first, and the seen counts go on.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_turn_sees_the_first() {
    let house = House::new(&[]).await;
    let mut session = house.session(AgentConfig::new("test"), script(&[saying("One."), saying("Two.")])).await;
    finished(turn(&mut session, "First.").await);
    assert_eq!(seen(&house, &session).await, ["user 1", "assistant 1"]);
    let output = finished(turn(&mut session, "Second.").await);
    assert_eq!(output.turn, 2);
    assert_eq!(seen(&house, &session).await, ["user 2", "assistant 2", "user 1", "assistant 1"]);
}

/// L9: a tool marked sequential never runs beside another of its batch.
#[tokio::test(flavor = "multi_thread")]
async fn a_sequential_tool_runs_alone() {
    let house = House::new(&["probe"]).await;
    let call = |name: &'static str| (name, json!({"ms": 20}));
    let replies = [
        calling(&[call("probe.sleep"), call("probe.sequential"), call("probe.sequential"), call("probe.sleep")]),
        saying("Done."),
    ];
    let mut session = house.session(AgentConfig::new("test"), script(&replies)).await;
    finished(turn(&mut session, "Go.").await);
    let order: Vec<String> = events(&house, &session)
        .await
        .into_iter()
        .filter_map(|event| match event.kind {
            EventKind::ToolCall { call, .. } => Some(format!("start {}", short(&call.0))),
            EventKind::ToolResult { call, .. } => Some(format!("end {}", short(&call.0))),
            _ => None,
        })
        .collect();
    let expected: Vec<String> =
        (1..=4).flat_map(|n| [format!("start call_1_1_{n}"), format!("end call_1_1_{n}")]).collect();
    assert_eq!(order, expected);
}

/// L29, D3: a cancelled turn leaves whole pairs and a session that goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_call() {
    let house = House::new(&["probe"]).await;
    let replies = [calling(&[("probe.slow", json!({"ms": 20_000})), ("probe.spin", json!({}))]), saying("Going on.")];
    let mut session = house.session(granting(&house, "probe"), script(&replies)).await;
    let cancel = tokio_util::sync::CancellationToken::new();
    let mut watched = session.subscribe();
    let stop = cancel.clone();
    tokio::spawn(async move {
        let mut started = 0;
        while started < 2 {
            if let Ok(event) = watched.recv().await {
                started += usize::from(matches!(event.kind, EventKind::ToolCall { .. }));
            }
        }
        stop.cancel();
    });
    let input = Some(agent_core::message::TurnInput::Text("Wait.".to_owned()));
    assert_eq!(session.run(input, cancel).await.unwrap(), TurnResult::Cancelled);
    for (_, is_error, text) in results(&house, &session).await {
        assert!(is_error && text == "cancelled; outcome unknown", "{text}");
    }
    let output = finished(turn(&mut session, "Go on.").await);
    assert_eq!(output.data, json!("Going on."));
}

/// D3, L1, L29: a turn whose driver was dropped in the middle of a call refuses another input, asks for a decision when it
/// goes on, and can still be cancelled.
#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_driver() {
    let house = House::new(&["probe"]).await;
    let replies = [calling(&[("probe.slow", json!({"ms": 20_000}))]), saying("Going on.")];
    let mut session = house.session(AgentConfig::new("test"), script(&replies)).await;
    let mut watched = session.subscribe();
    let input = || Some(agent_core::message::TurnInput::Text("Wait.".to_owned()));
    let dispatched = async { while !matches!(watched.recv().await.unwrap().kind, EventKind::ToolCall { .. }) {} };
    tokio::select! {
        result = session.run(input(), Default::default()) => panic!("the call ended: {result:?}"),
        () = dispatched => {}
    }
    let refused = session.run(input(), Default::default()).await.unwrap_err();
    assert!(refused.to_string().contains("has not ended"), "{refused}");
    let waits = session.run(None, Default::default()).await.unwrap();
    assert!(matches!(waits, TurnResult::Suspended(_)), "{waits:?}");
    let cancel = tokio_util::sync::CancellationToken::new();
    cancel.cancel();
    assert_eq!(session.run(None, cancel).await.unwrap(), TurnResult::Cancelled);
    assert_eq!(results(&house, &session).await[0].2, "cancelled; outcome unknown");
    assert_eq!(finished(turn(&mut session, "Go on.").await).data, json!("Going on."));
}

/// D4, L7, L22: what one session answered is remembered for its user, stands in the next session's turn message, is found by
/// `memory_search`, and is nobody else's.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_answered_is_remembered() {
    let house = House::new(&[]).await;
    let of = |name: &str, user: &str| {
        let mut config = AgentConfig::new(name);
        config.user = Some(user.to_owned());
        config
    };
    let mut first = house.session(of("first", "ada"), script(&[saying("The lighthouse opens at 4711.")])).await;
    finished(turn(&mut first, "When does the lighthouse open?").await);
    let search = || calling(&[("memory_search", json!({"query": "lighthouse"}))]);
    let mut asked = search();
    asked["expect"] = json!({"contains": ["retrieved-memory", "4711"]});
    let mut second = house.session(of("second", "ada"), script(&[asked, saying("Known.")])).await;
    finished(turn(&mut second, "Is the lighthouse open?").await);
    assert!(results(&house, &second).await[0].2.contains("4711"));
    let input = &view(&house, &second).await[0];
    assert!(
        matches!(&input.parts[0], Part::Preface(text) if text.contains("4711")),
        "it stays with its input: {input:?}"
    );
    assert_eq!(input.plain_text(), "Is the lighthouse open?", "and is no part of what was said");
    let mut asked = search();
    asked["expect"] = json!({"lacks": ["4711"]});
    let mut other = house.session(of("other", "bob"), script(&[asked, saying("Unknown.")])).await;
    finished(turn(&mut other, "Is the lighthouse open?").await);
    assert!(!results(&house, &other).await[0].2.contains("4711"));
}

/// Row 31: a reply that was cut before a call's arguments came does not run the call as if there were none.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_without_its_arguments_is_not_run_when_the_reply_was_cut() {
    let house = House::new(&["probe"]).await;
    let cut = json!({"calls": [{"name": "probe.echo", "arguments": {"text": "a"}}, {"name": "probe.residue"}], "stop": "length"});
    let whole = json!({"calls": [{"name": "probe.residue"}], "stop": "tool_calls"});
    let mut session = house.session(AgentConfig::new("test"), script(&[cut, whole, saying("Done.")])).await;
    finished(turn(&mut session, "Go.").await);
    let results = results(&house, &session).await;
    assert_eq!((results[0].1, results[2].1), (true, false), "no call of a cut reply runs: {results:?}");
    assert!(results[1].1 && results[1].2.contains("was cut"), "{}", results[1].2);
}
