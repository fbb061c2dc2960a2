//! Tests of the messages, their seen counts and the events of an agent loop that a scripted model drives.

use crate::support::{
    TestHost, base_call_id, call_reply, event_types, events, records, results, run_turn, script,
    script_expecting_messages, text_reply, view_summary, visible_messages, with_tree_grant,
};
use agent_core::event::{EndReason, EventKind};
use agent_core::message::{Content, Part};
use agent_core::run::{AtLimit, TurnError};
use agent_plugins::{Access, TreeGrant};
use agent_runtime::{AgentConfig, MemoryUse, TurnResult};
use agent_store::{CallFilter, SessionLog};
use serde_json::{Value, json};

fn expect_finished(result: TurnResult) -> agent_core::run::Output {
    match result {
        TurnResult::Finished(output) => output,
        other => panic!("the turn did not finish: {other:?}"),
    }
}

/// L3, L9, L13, L30: Two calls of one reply run in parallel. The results of the calls are in the order in which
/// the model made the calls.
#[tokio::test(flavor = "multi_thread")]
async fn l9_runs_two_calls_in_parallel() {
    let test_host = TestHost::new(&["probe"]).await;
    let replies = [
        call_reply(&[("probe.sleep", json!({"ms": 300})), ("probe.echo", json!({"text": "hello"}))]),
        text_reply("Both are done."),
    ];
    let mut session = test_host
        .session(
            AgentConfig::new("test"),
            script_expecting_messages(replies, [&["user 0"], &["user 1", "assistant 1", "tool 0", "tool 0"]]),
        )
        .await;
    let output = expect_finished(run_turn(&mut session, "Do both.").await);
    assert_eq!(output.data, json!("Both are done."));
    assert_eq!((output.interactions, output.execution_units, output.limit_reached), (2, 220, false));
    assert_eq!((output.finish, output.turn), (EndReason::Answered, 1));
    assert_eq!(view_summary(&test_host, &session).await, ["user 2", "assistant 2", "tool 1", "tool 1", "assistant 1"]);
    let names: Vec<String> = results(&test_host, &session).await.into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["probe.sleep", "probe.echo"]);
    // The outcome of the quick call is committed first, but the messages are in the order in which the model made
    // the calls.
    let order: Vec<String> = events(&test_host, &session)
        .await
        .into_iter()
        .filter_map(|event| match event.kind {
            EventKind::ToolResult { name, .. } => Some(name),
            _ => None,
        })
        .collect();
    assert_eq!(order, ["probe.echo", "probe.sleep"]);
    assert_eq!(
        event_types(&test_host, &session).await,
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

/// L8: If a call has an invalid argument, the model receives an error. The model then corrects the call, and the
/// corrected call runs.
#[tokio::test(flavor = "multi_thread")]
async fn l8_the_model_corrects_a_bad_argument() {
    let test_host = TestHost::new(&["probe"]).await;
    let replies = [
        call_reply(&[("probe.echo", json!({"txt": 1}))]),
        call_reply(&[("probe.echo", json!({"text": "right"}))]),
        text_reply("Corrected."),
    ];
    let mut session = test_host
        .session(
            AgentConfig::new("test"),
            script_expecting_messages(
                replies,
                [
                    &["user 0"],
                    &["user 1", "assistant 1", "tool 0"],
                    &["user 2", "assistant 2", "tool 1", "assistant 1", "tool 0"],
                ],
            ),
        )
        .await;
    expect_finished(run_turn(&mut session, "Echo.").await);
    let results = results(&test_host, &session).await;
    let (name, is_error, text) = &results[0];
    let error: Value = serde_json::from_str(text).unwrap();
    assert_eq!((name.as_str(), *is_error, &error["error"]), ("probe.echo", true, &json!("invalid_arguments")));
    assert!(error["violations"].as_array().unwrap().iter().any(|violation| violation["rule"] == "required"), "{text}");
    assert!(!results[1].1);
    let calls = events(&test_host, &session).await;
    let dispatched =
        calls.iter().filter(|event| matches!(event.kind, EventKind::ToolCall { attempt: 1.., .. })).count();
    assert_eq!(dispatched, 1, "a call that violates the schema never runs");
    assert_eq!(
        view_summary(&test_host, &session).await,
        ["user 3", "assistant 3", "tool 2", "assistant 2", "tool 1", "assistant 1"]
    );
}

/// L7: A call to a tool that does not exist causes an error result and an event. The turn itself does not fail.
#[tokio::test(flavor = "multi_thread")]
async fn l7_a_call_to_an_unknown_tool_has_an_error_result() {
    let test_host = TestHost::new(&["probe"]).await;
    let replies = [call_reply(&[("weather.forecast", json!({}))]), text_reply("There is no such tool.")];
    let mut session = test_host
        .session(
            AgentConfig::new("test"),
            script_expecting_messages(replies, [&["user 0"], &["user 1", "assistant 1", "tool 0"]]),
        )
        .await;
    expect_finished(run_turn(&mut session, "Forecast.").await);
    assert!(event_types(&test_host, &session).await.contains(&"tool_not_found".to_owned()));
    let (_, is_error, text) = &results(&test_host, &session).await[0];
    assert!(*is_error && text.contains("there is no tool `weather.forecast`"), "{text}");
}

/// L7: The listing of a large directory contains the entries that come first in alphabetical order, and the number of
/// the remaining entries.
#[tokio::test(flavor = "multi_thread")]
async fn l7_a_large_directory_is_listed_in_order_of_names() {
    let test_host = TestHost::new(&["probe"]).await;
    // The names are created in descending order, because some file systems return entries in the order of creation.
    for number in (0..1_200).rev() {
        std::fs::write(test_host.tree().join(format!("{number:04}")), "").unwrap();
    }
    let replies = [call_reply(&[("list_directory", json!({"path": "docs"}))]), text_reply("Done.")];
    let mut config = AgentConfig::new("test");
    config.host_trees = vec![TreeGrant { host: test_host.tree(), guest: "docs".to_owned(), access: Access::Read }];
    let mut session = test_host.session(config, script(&replies)).await;
    expect_finished(run_turn(&mut session, "List.").await);
    let calls = test_host.store.calls(session.subject(), CallFilter::Turn(1)).await.unwrap();
    let Content::Json(listing) = &calls[0].result.as_ref().unwrap().content[0] else { panic!("{calls:?}") };
    let names: Vec<_> = listing["entries"].as_array().unwrap().iter().map(|entry| entry["name"].clone()).collect();
    let first: Vec<_> = (0..1_000).map(|number| json!(format!("{number:04}"))).collect();
    assert_eq!((names, &listing["left_out"]), (first, &json!(200)));
}

/// L9: If a reply has too many calls, the model gets an error, and the turn continues.
#[tokio::test(flavor = "multi_thread")]
async fn l9_refuses_too_many_calls_in_one_reply() {
    let test_host = TestHost::new(&["probe"]).await;
    let many = vec![("probe.echo", json!({"text": "a"})); 129];
    let mut next_reply = text_reply("One by one, then.");
    next_reply["expect"] = json!({"last_contains": "too many calls in one reply: 129, at most 128"});
    let mut session = test_host.session(AgentConfig::new("test"), script(&[call_reply(&many), next_reply])).await;
    assert_eq!(expect_finished(run_turn(&mut session, "Echo.").await).interactions, 2);
    let results = results(&test_host, &session).await;
    assert_eq!(results.len(), 128);
    assert!(results.iter().all(|(_, is_error, text)| *is_error && !text.contains("\"text\"")), "no call ran");
}

/// L26: A long result is cut for the model and stored in full. The tool `read_result` returns the text that was
/// cut off.
#[tokio::test(flavor = "multi_thread")]
async fn l26_cuts_a_long_result_and_reads_the_rest() {
    let test_host = TestHost::new(&["probe"]).await;
    let replies = [
        call_reply(&[("probe.bytes", json!({"bytes": 20_000}))]),
        call_reply(&[("read_result", json!({"call_id": "call_1_1_1", "offset": 6000}))]),
        text_reply("Read."),
    ];
    let mut session = test_host
        .session(
            AgentConfig::new("test"),
            script_expecting_messages(
                replies,
                [
                    &["user 0"],
                    &["user 1", "assistant 1", "tool 0"],
                    &["user 2", "assistant 2", "tool 1", "assistant 1", "tool 0"],
                ],
            ),
        )
        .await;
    expect_finished(run_turn(&mut session, "Read it all.").await);
    let results = results(&test_host, &session).await;
    assert_eq!(results[0].2.len(), 20_000, "the result is stored in full");
    assert!(results[1].2.contains("characters 6000 to 11800 of 20000; continue with offset 11800"), "{}", results[1].2);
    let message_text = serde_json::to_string(&visible_messages(&test_host, &session).await[2]).unwrap();
    assert!(
        message_text.contains("the first 6000 of 20000 characters") && message_text.len() < 6_500,
        "{message_text}"
    );
}

/// L6: If the tools of one reply's calls have different priorities, only the calls of the tools with the highest
/// priority run. Each remaining call gets an error result.
#[tokio::test(flavor = "multi_thread")]
async fn l6_only_calls_with_the_highest_priority_run() {
    let test_host = TestHost::new(&["probe"]).await;
    let replies =
        [call_reply(&[("probe.echo", json!({"text": "low"})), ("probe.high", json!({"ms": 1}))]), text_reply("Done.")];
    let mut session = test_host.session(AgentConfig::new("test"), script(&replies)).await;
    expect_finished(run_turn(&mut session, "Go.").await);
    let results = results(&test_host, &session).await;
    assert!(results[0].1 && results[0].2.starts_with("deferred: a higher-priority call ran first"));
    assert!(!results[1].1);
    assert!(event_types(&test_host, &session).await.contains(&"tool_deferred".to_owned()));
}

/// L12: If an output does not match the schema, the model corrects it, and the turn ends with the accepted data.
#[tokio::test(flavor = "multi_thread")]
async fn l12_the_model_corrects_a_rejected_output() {
    let test_host = TestHost::new(&["strict-json"]).await;
    let mut config = AgentConfig::new("test");
    config.validators = vec!["strict-json".to_owned()];
    config.output_schema =
        Some(json!({"type": "object", "required": ["total"], "properties": {"total": {"type": "integer"}}}));
    let replies = [
        text_reply("The total is 3."),
        text_reply("{\"total\": \"three\"}"),
        text_reply("```json\n{\"total\": 3}\n```"),
    ];
    let mut session = test_host
        .session(
            config,
            script_expecting_messages(
                replies,
                // The third request contains the second failed answer, but no longer the first failed answer.
                [&["user 0"], &["user 1", "assistant 1", "user 0"], &["user 2", "assistant 1", "user 0"]],
            ),
        )
        .await;
    let output = expect_finished(run_turn(&mut session, "Add.").await);
    assert_eq!(output.data, json!({"total": 3}));
    let rejections: Vec<(String, u32)> = events(&test_host, &session)
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
    // The view contains only the latest failed answer, but all four messages are stored.
    assert_eq!(view_summary(&test_host, &session).await, ["user 3", "assistant 2", "user 1", "assistant 1"]);
    assert_eq!(session.state().next_message, 7);
    let kinds: Vec<String> =
        records(&test_host, &session, 1).await.into_iter().map(|stored| stored.record.kind).collect();
    let expected =
        ["trace", "context", "prompt", "reply", "verdict", "prompt", "reply", "verdict", "prompt", "reply", "verdict"];
    assert_eq!(kinds, expected);
}

/// L12: When the model has no corrections left, the turn ends with a typed error that contains the last reply.
#[tokio::test(flavor = "multi_thread")]
async fn l12_ends_the_turn_when_no_corrections_are_left() {
    let test_host = TestHost::new(&[]).await;
    let mut config = AgentConfig::new("test");
    config.output_schema = Some(json!({"type": "object"}));
    config.bounds.max_corrections = 1;
    let replies = [text_reply("no"), text_reply("still no")];
    let mut session = test_host.session(config, script(&replies)).await;
    let TurnResult::Failed(TurnError::OutputRejected { last_reply, attempts, .. }) =
        run_turn(&mut session, "Go.").await
    else {
        panic!("the turn must fail")
    };
    assert_eq!((last_reply.as_str(), attempts), ("still no", 2));
    assert_eq!(event_types(&test_host, &session).await.last().unwrap(), "loop_end");
}

/// L4: When a turn reaches the interaction limit, the configuration decides whether the model is called a last time,
/// without tools, or whether the turn ends with a typed error.
#[tokio::test(flavor = "multi_thread")]
async fn l4_ends_the_turn_at_the_interaction_limit() {
    for at_limit in [AtLimit::Finish, AtLimit::Error] {
        let test_host = TestHost::new(&["probe"]).await;
        let mut config = AgentConfig::new("test");
        config.bounds.max_interactions = 2;
        config.bounds.at_limit = at_limit;
        let call = || call_reply(&[("probe.echo", json!({"text": "again"}))]);
        let mut last = text_reply("I got this far.");
        last["expect"] = json!({"tools": [], "last_contains": "Your text is the answer"});
        let mut session = test_host
            .session(
                config,
                script_expecting_messages(
                    [call(), call(), last],
                    [
                        &["user 0"],
                        &["user 1", "assistant 1", "tool 0"],
                        // The last message tells the model that its next reply is the last one.
                        &["user 2", "assistant 2", "tool 1", "assistant 1", "tool 0", "user 0"],
                    ],
                ),
            )
            .await;
        let result = run_turn(&mut session, "Loop.").await;
        match at_limit {
            AtLimit::Finish => {
                let output = expect_finished(result);
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

/// L1: In the second turn of a session, the model receives the messages of the first turn, and the seen
/// counts continue.
#[tokio::test(flavor = "multi_thread")]
async fn l1_a_second_turn_sees_the_messages_of_the_first() {
    let test_host = TestHost::new(&[]).await;
    let mut session =
        test_host.session(AgentConfig::new("test"), script(&[text_reply("One."), text_reply("Two.")])).await;
    expect_finished(run_turn(&mut session, "First.").await);
    assert_eq!(view_summary(&test_host, &session).await, ["user 1", "assistant 1"]);
    let output = expect_finished(run_turn(&mut session, "Second.").await);
    assert_eq!(output.turn, 2);
    assert_eq!(view_summary(&test_host, &session).await, ["user 2", "assistant 2", "user 1", "assistant 1"]);
}

/// L9: A tool marked as sequential never runs in parallel with another call of its batch.
#[tokio::test(flavor = "multi_thread")]
async fn l9_a_sequential_tool_runs_alone() {
    let test_host = TestHost::new(&["probe"]).await;
    let call = |name: &'static str| (name, json!({"ms": 20}));
    let replies = [
        call_reply(&[call("probe.sleep"), call("probe.sequential"), call("probe.sequential"), call("probe.sleep")]),
        text_reply("Done."),
    ];
    let mut session = test_host.session(AgentConfig::new("test"), script(&replies)).await;
    expect_finished(run_turn(&mut session, "Go.").await);
    let order: Vec<String> = events(&test_host, &session)
        .await
        .into_iter()
        .filter_map(|event| match event.kind {
            EventKind::ToolCall { call, .. } => Some(format!("start {}", base_call_id(&call.0))),
            EventKind::ToolResult { call, .. } => Some(format!("end {}", base_call_id(&call.0))),
            _ => None,
        })
        .collect();
    let expected: Vec<String> =
        (1..=4).flat_map(|n| [format!("start call_1_1_{n}"), format!("end call_1_1_{n}")]).collect();
    assert_eq!(order, expected);
}

/// L29, D3: After a turn was cancelled, every call of the turn has a result, and the session can continue.
#[tokio::test(flavor = "multi_thread")]
async fn l29_cancels_a_running_call() {
    let test_host = TestHost::new(&["probe"]).await;
    let replies =
        [call_reply(&[("probe.slow", json!({"ms": 20_000})), ("probe.spin", json!({}))]), text_reply("Going on.")];
    let mut session = test_host.session(with_tree_grant(&test_host, "probe"), script(&replies)).await;
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
    for (_, is_error, text) in results(&test_host, &session).await {
        assert!(is_error && text == "cancelled; outcome unknown", "{text}");
    }
    let output = expect_finished(run_turn(&mut session, "Go on.").await);
    assert_eq!(output.data, json!("Going on."));
}

/// D3, L1, L29: If the task that runs a turn is dropped during a call, the session refuses a new input while this turn
/// is open. When the turn continues, it waits for a decision about the call. The turn can still be cancelled.
#[tokio::test(flavor = "multi_thread")]
async fn d3_a_turn_continues_after_its_task_was_dropped() {
    let test_host = TestHost::new(&["probe"]).await;
    let replies = [call_reply(&[("probe.slow", json!({"ms": 20_000}))]), text_reply("Going on.")];
    let mut session = test_host.session(AgentConfig::new("test"), script(&replies)).await;
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
    assert_eq!(results(&test_host, &session).await[0].2, "cancelled; outcome unknown");
    assert_eq!(expect_finished(run_turn(&mut session, "Go on.").await).data, json!("Going on."));
}

/// D4, L7, L22: The host stores the answer of a turn as a memory of the session's user. The memory is contained in the
/// turn message of the user's next session and is found by `memory_search`, but is not available to another user.
#[tokio::test(flavor = "multi_thread")]
async fn d4_remembers_the_answer_of_a_session() {
    let test_host = TestHost::new(&[]).await;
    let config_of = |name: &str, user: &str| {
        let mut config = AgentConfig::new(name);
        config.user = Some(user.to_owned());
        config.memory = MemoryUse::User;
        config
    };
    let mut first =
        test_host.session(config_of("first", "ada"), script(&[text_reply("The lighthouse opens at 4711.")])).await;
    expect_finished(run_turn(&mut first, "When does the lighthouse open?").await);
    let search = || call_reply(&[("memory_search", json!({"query": "lighthouse"}))]);
    let mut search_call = search();
    search_call["expect"] = json!({"contains": ["retrieved-memory", "4711"]});
    let mut second = test_host.session(config_of("second", "ada"), script(&[search_call, text_reply("Known.")])).await;
    expect_finished(run_turn(&mut second, "Is the lighthouse open?").await);
    assert!(results(&test_host, &second).await[0].2.contains("4711"));
    let input = &visible_messages(&test_host, &second).await[0];
    assert!(
        matches!(&input.parts[0], Part::Preface(text) if text.contains("4711")),
        "the memory is stored with the input: {input:?}"
    );
    assert_eq!(input.plain_text(), "Is the lighthouse open?", "the memory is not part of the text");
    let mut search_call = search();
    search_call["expect"] = json!({"lacks": ["4711"]});
    let mut other_session =
        test_host.session(config_of("other", "bob"), script(&[search_call, text_reply("Unknown.")])).await;
    expect_finished(run_turn(&mut other_session, "Is the lighthouse open?").await);
    assert!(!results(&test_host, &other_session).await[0].2.contains("4711"));
}

/// D4: an agent without a project folder, as in a server, recalls only what it was told itself without a project. Otherwise, somebody
/// whose token is limited to this agent would learn what the user has told other agents, and in projects.
#[tokio::test(flavor = "multi_thread")]
async fn d4_a_server_recalls_only_its_own_memories() {
    let test_host = TestHost::new(&[]).await;
    let config_of = |name: &str, project: Option<&str>| {
        let mut config = AgentConfig::new(name);
        (config.user, config.project) = (Some("ada".to_owned()), project.map(str::to_owned));
        config
    };
    for (name, project, fact) in [
        ("other", None, "The lighthouse code is 1111."),
        ("support", Some("/work/secret"), "The lighthouse code is 2222."),
        ("support", None, "The lighthouse code is 3333."),
    ] {
        let mut session = test_host.session(config_of(name, project), script(&[text_reply(fact)])).await;
        expect_finished(run_turn(&mut session, "What is the code?").await);
    }
    let mut search = call_reply(&[("memory_search", json!({"query": "lighthouse code"}))]);
    search["expect"] = json!({"contains": ["3333"], "lacks": ["1111", "2222"]});
    let mut session = test_host.session(config_of("support", None), script(&[search, text_reply("Done.")])).await;
    expect_finished(run_turn(&mut session, "Tell me the lighthouse code.").await);
    let found = results(&test_host, &session).await[0].2.clone();
    assert!(found.contains("3333") && !found.contains("1111") && !found.contains("2222"), "{found}");
}

/// Row 31: If a reply is cut off before the arguments of a call are complete, the call does not run with
/// empty arguments.
#[tokio::test(flavor = "multi_thread")]
async fn row_31_does_not_run_a_call_whose_arguments_were_cut() {
    let test_host = TestHost::new(&["probe"]).await;
    let cut = json!({"calls": [{"name": "probe.echo", "arguments": {"text": "a"}}, {"name": "probe.residue"}], "stop": "length"});
    let complete_reply = json!({"calls": [{"name": "probe.residue"}], "stop": "tool_calls"});
    let mut session =
        test_host.session(AgentConfig::new("test"), script(&[cut, complete_reply, text_reply("Done.")])).await;
    expect_finished(run_turn(&mut session, "Go.").await);
    let results = results(&test_host, &session).await;
    assert_eq!((results[0].1, results[2].1), (true, false), "no call of a cut reply runs: {results:?}");
    assert!(results[1].1 && results[1].2.contains("was cut"), "{}", results[1].2);
}
