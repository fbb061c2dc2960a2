//! Tests of the limits of a turn: interactions, execution units and the context window (L4, L5, L26).

use crate::session::{Session, WIDE, call, kinds, plain, repeatable, reply};
use agent_core::change::Body;
use agent_core::event::{EndReason, EventKind};
use agent_core::loop_break::{Finish, LoopBreak};
use agent_core::message::{Part, Replay, TurnInput};
use agent_core::model::{StopReason, Usage};
use agent_core::plugin::OutputData;
use agent_core::run::{
    Action, AtLimit, Disposition, Input, LoopConfig, PromptBudget, ResolvedCall, ResolvedReply, StepPlan, TurnContext,
    TurnError, UnitWeights, Weight,
};
use serde_json::json;

fn limited(max_interactions: u32, at_limit: AtLimit) -> LoopConfig {
    LoopConfig { max_interactions, at_limit, ..Default::default() }
}

fn plan(session: &Session) -> StepPlan {
    match session.run.action() {
        Action::CallModel(plan) => plan,
        other => panic!("{other:?}"),
    }
}

#[test]
fn l4_default_limits() {
    let config = LoopConfig::default();
    assert_eq!((config.max_interactions, config.at_limit, config.max_corrections), (10, AtLimit::Finish, 2));
    assert_eq!((config.parallel_calls, config.result_characters, config.minimum_remaining), (4, 6_000, 1_500));
}

#[test]
fn l4_with_at_limit_finish_one_last_call_without_tools_is_made() {
    let mut session = Session::calling(limited(2, AtLimit::Finish));
    for step in 1..=2 {
        assert_eq!((plan(&session).step, plan(&session).last), (step, false));
        session.reply("", vec![plain("a")]);
        session.run_batch();
    }
    assert_eq!((plan(&session).step, plan(&session).last, plan(&session).steps_left), (3, true, 1));
    session.reply("what I know", vec![plain("ignored")]);
    assert!(matches!(session.run.action(), Action::Validate(validation) if validation.corrections_left == 0));
    session.accept(OutputData::Text("what I know".into()));
    let output = session.output();
    assert_eq!((output.finish, output.limit_reached, output.interactions), (EndReason::Limit, true, 3));
}

#[test]
fn l4_the_last_call_is_validated_once_and_must_return_text() {
    let mut session = Session::calling(limited(0, AtLimit::Finish));
    session.reply("wrong", Vec::new());
    session.reject("not that");
    let TurnError::InteractionsExhausted { interactions: 1, last_reply, .. } = session.error() else { panic!() };
    assert_eq!(last_reply.as_deref(), Some("wrong"));

    let mut session = Session::calling(limited(0, AtLimit::Finish));
    session.reply(" \n", vec![plain("a")]);
    assert_eq!(session.error().code(), "interactions_exhausted");
}

#[test]
fn l4_with_at_limit_error_the_turn_ends_without_duplicate_results() {
    let mut session = Session::calling(limited(1, AtLimit::Error));
    session.reply("", vec![plain("a"), plain("b")]);
    let change = session.run_batch();
    assert_eq!(session.error().code(), "interactions_exhausted");
    assert_eq!(change.messages.len(), 2, "one message for each result");
    assert_eq!(kinds(&change), ["tool_result", "error", "context_budget", "loop_end"]);
}

#[test]
fn l4_with_at_limit_error_a_rejection_at_the_limit_ends_the_turn() {
    let mut session = Session::calling(limited(2, AtLimit::Error));
    session.reply("wrong", Vec::new());
    assert!(matches!(session.run.action(), Action::Validate(validation) if validation.corrections_left == 2));
    session.reject("not that");
    session.reply("wrong again", Vec::new());
    assert!(matches!(session.run.action(), Action::Validate(validation) if validation.corrections_left == 0));
    session.reject("not that");
    assert_eq!(session.error().code(), "interactions_exhausted");
}

#[test]
fn l4_the_interaction_count_survives_a_crash_and_a_suspension() {
    let mut session = Session::calling(limited(2, AtLimit::Finish));
    session.reply("", vec![plain("a")]);
    session.dispatch();
    session.crash();
    session.resolve("call_1_1_1", agent_core::run::Decision::Failed("it did not".into()));
    assert_eq!((plan(&session).step, plan(&session).last), (2, false));
    session.reply("", vec![repeatable("b")]);
    session.dispatch();
    session.crash();
    session.run_batch();
    assert!(plan(&session).last);
}

#[test]
fn l5_execution_units_add_up_over_the_turn_and_restart_with_the_next() {
    let mut session = Session::calling(LoopConfig::default());
    session.reply("", vec![plain("a")]);
    session.dispatch();
    session.crash();
    session.resolve("call_1_1_1", agent_core::run::Decision::Result("done".into()));
    session.answer("answer");
    let output = session.output();
    assert_eq!(output.execution_units, 220);
    assert_eq!(output.usage, Usage::new(200, 20));
    session.begin(LoopConfig::default());
    session.answer("answer");
    assert_eq!(session.output().execution_units, 110);
}

/// L5: each turn has its own weights, by which the execution units of prompt tokens, completion tokens and model calls
/// are calculated. Fractions of units are kept between steps.
#[test]
fn l5_execution_units_are_weighted() {
    let weight = |units| Weight::of(units).expect("in range");
    let execution_units =
        UnitWeights { prompt_token: weight(0.001), completion_token: weight(0.5), model_call: weight(3.0) };
    let mut session = Session::calling(LoopConfig { execution_units, ..LoopConfig::default() });
    session.reply("", vec![plain("a")]);
    session.crash();
    session.run_batch();
    session.answer("answer");
    // Each of the two calls costs 100 × 0.001 + 10 × 0.5 + 3 = 8.1 units. The sum of 16.2 units is rounded up.
    assert_eq!(session.output().execution_units, 17);
    session.begin(LoopConfig::default());
    session.answer("answer");
    assert_eq!(session.output().execution_units, 110);
}

#[test]
fn l26_the_budget_is_reported_before_each_step_and_at_the_end() {
    let mut session = Session::calling(LoopConfig::default());
    session.reply("", vec![plain("a")]);
    session.run_batch();
    session.answer("answer");
    let sizes = session.ledger.events.iter().filter_map(|event| match event.kind {
        EventKind::ContextBudget { total, system, tools, reserved, messages, remaining } => {
            assert_eq!((total, system, tools, reserved), (100_000, 100, 200, 1_000));
            assert_eq!(remaining, total - system - tools - reserved - messages);
            Some(messages)
        }
        _ => None,
    });
    let sizes: Vec<u32> = sizes.collect();
    assert_eq!(sizes.len(), 3);
    assert!(sizes.is_sorted_by(|earlier, later| earlier < later), "{sizes:?}");
}

#[test]
fn l26_below_the_minimum_every_at_limit_setting_requests_a_final_answer() {
    for (window, at_limit, last) in [
        (WIDE.window, AtLimit::Finish, false),
        (2_807, AtLimit::Finish, false),
        (2_806, AtLimit::Finish, true),
        (2_806, AtLimit::Error, true),
    ] {
        let mut session = Session::new();
        session.start(TurnInput::Text("How many?".into()), limited(5, at_limit));
        // The message has 7 tokens. The system text, the tools and the reserve for the reply have 1,300 tokens.
        session.context(TurnContext { budget: PromptBudget { window, ..WIDE }, ..Default::default() });
        assert_eq!(plan(&session).last, last, "{window} {at_limit:?}");
        session.answer("answer");
        let finish = if last { EndReason::Limit } else { EndReason::Answered };
        assert_eq!((session.output().finish, session.output().limit_reached), (finish, last));
    }
}

#[test]
fn l26_a_prompt_that_is_too_large_ends_the_turn_and_is_removed_from_the_view() {
    let mut session = Session::new();
    session.start(TurnInput::Text("x".repeat(100_000)), limited(5, AtLimit::Finish));
    session.context(TurnContext { budget: PromptBudget { window: 10_000, ..WIDE }, ..Default::default() });
    let TurnError::PromptTooLarge { tokens, window: 10_000 } = session.error() else { panic!("{:?}", session.error()) };
    assert!(tokens > 25_000, "{tokens}");
    assert!(session.run.view.is_empty(), "the message that is too large does not stay in the view");
    session.start(TurnInput::Text("How many?".into()), limited(5, AtLimit::Finish));
    session.context(TurnContext { budget: PromptBudget { window: 10_000, ..WIDE }, ..Default::default() });
    assert!(!plan(&session).last);
}

#[test]
fn l26_long_results_are_counted_as_the_model_sees_them() {
    let mut session = Session::calling(LoopConfig { result_characters: 400, ..Default::default() });
    session.reply("", vec![plain("a")]);
    session.dispatch();
    let change = session.outcome("call_1_1_1", &"x".repeat(100_000));
    assert!((100..200).contains(&change.messages[0].tokens), "{}", change.messages[0].tokens);
    let agent_core::change::CallChange::Finished { result, .. } = &change.calls[0] else { panic!() };
    assert_eq!(agent_core::view::result_text(&result.content).len(), 100_000, "stored completely");
    assert!(!plan(&session).last);
}

/// L4: if the model calls `task_completion` in the last reply of a turn, the result in this call is the answer,
/// although the request offered no tools.
#[test]
fn l4_a_completion_in_the_last_reply_is_the_answer() {
    let arguments = [(json!({"result": "all done"}), "all done"), (json!({"result": {"count": 3}}), "{\"count\":3}")];
    for (arguments, expected) in arguments {
        let mut session = Session::calling(LoopConfig { finish: Finish::Tool, ..limited(1, AtLimit::Finish) });
        session.reply("", vec![plain("a")]);
        session.run_batch();
        assert!(plan(&session).last);
        let completion =
            ResolvedCall { arguments, ..call("task_completion", Disposition::Breaks(LoopBreak::Complete)) };
        session.reply("", vec![plain("b"), completion]);
        let Action::Validate(validation) = session.run.action() else { panic!("{:?}", session.run.action()) };
        assert_eq!((validation.text.as_str(), validation.corrections_left), (expected, 0));
        session.accept(OutputData::Text(expected.into()));
        assert!(session.output().limit_reached);
    }
}

/// M1: a reply that the provider interrupted is stored and continued by the next model call, within the limit of
/// interactions.
#[test]
fn m1_an_interrupted_reply_is_continued() {
    let mut session = Session::calling(limited(2, AtLimit::Finish));
    let replay = Replay { provider: "p".into(), data: json!({"items": [1]}) };
    let paused = ResolvedReply { stop: StopReason::Paused, replay: Some(replay.clone()), ..reply("I look", vec![]) };
    let change = session.must(Input::Reply(paused.clone()));
    let Body::Parts(parts) = &change.messages[0].body else { panic!("{change:?}") };
    assert_eq!(*parts, [Part::Text("I look".into()), Part::Replay(replay)]);
    assert_eq!((plan(&session).step, plan(&session).last), (2, false));
    let empty = ResolvedReply { text: String::new(), replay: None, ..paused.clone() };
    assert_eq!(session.must(Input::Reply(empty)).messages.len(), 0, "no empty message is stored");
    assert!(plan(&session).last, "interrupted replies count as interactions");
    session.must(Input::Reply(paused));
    assert!(
        matches!(session.run.action(), Action::Validate(_)),
        "the last reply is validated even if it is interrupted"
    );
}

/// M1: the data that a provider attached to a final or rejected reply is stored with the message of the reply.
#[test]
fn m1_the_providers_data_of_answers_are_stored() {
    let mut session = Session::calling(LoopConfig::default());
    let data = |number: u32| Some(Replay { provider: "p".into(), data: json!(number) });
    session.must(Input::Reply(ResolvedReply { replay: data(1), ..reply("wrong", vec![]) }));
    let rejected = session.reject("not that");
    session.must(Input::Reply(ResolvedReply { replay: data(2), ..reply("right", vec![]) }));
    let accepted = session.accept(OutputData::Text("right".into()));
    for (change, text, number) in [(rejected, "wrong", 1), (accepted, "right", 2)] {
        let Body::Parts(parts) = &change.messages[0].body else { panic!("{change:?}") };
        assert_eq!(*parts, [Part::Text(text.into()), Part::Replay(data(number).unwrap())]);
    }
    session.begin(LoopConfig::default());
    session.must(Input::Reply(ResolvedReply { replay: data(3), ..reply("{\"a\":1}", vec![]) }));
    let changed = session.accept(OutputData::Json(json!({"a": 2})));
    let Body::Parts(parts) = &changed.messages[0].body else { panic!("{changed:?}") };
    assert_eq!(parts.len(), 1, "the data do not belong to an output that differs from the reply");
}
