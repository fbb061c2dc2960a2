//! Tests of failed model calls: a retry, the next model of the chain, and the fallback text (M3). This file also
//! contains tests of undone turns (D5).

use crate::session::{Session, WIDE, kinds, plain, reply};
use agent_core::event::{EndReason, EventKind};
use agent_core::message::TurnInput;
use agent_core::model::Usage;
use agent_core::plugin::OutputData;
use agent_core::run::{
    Action, AfterFailure, FALLBACK_TEXT, Input, InputError, LoopConfig, ModelFailure, PromptBudget, Retryability,
    StepPlan, TurnContext, TurnError,
};
use agent_core::tool::ModelUse;
use serde_json::json;

fn plan(session: &Session) -> StepPlan {
    match session.run.action() {
        Action::CallModel(plan) => plan,
        other => panic!("{other:?}"),
    }
}

fn failed(then: AfterFailure) -> Input {
    Input::ModelFailed(ModelFailure {
        model: "openai/one".into(),
        message: "overloaded".into(),
        retryability: Retryability::Retryable,
        then,
    })
}

fn next(model_index: u32, window: u32) -> Input {
    let budget = PromptBudget { window, system: 0, ..WIDE };
    failed(AfterFailure::Next { model_index, model: "openai/two".into(), budget })
}

#[test]
fn m3_a_retry_repeats_the_same_call() {
    let mut session = Session::calling(LoopConfig::default());
    let first = plan(&session);
    let change = session.must(failed(AfterFailure::Retry { wait_ms: 250 }));
    assert_eq!(kinds(&change), ["stream_clear", "retry"]);
    let EventKind::Retry { attempt: 2, wait_ms: 250, reason, .. } = &change.events[1].kind else { panic!() };
    assert_eq!(reason, "overloaded");
    assert_eq!(plan(&session), StepPlan { attempt: 2, ..first });
    // All attempts of a model call together count as one interaction (L4) and increase the seen counts once (L3).
    session.must(failed(AfterFailure::Retry { wait_ms: 500 }));
    session.reply("", vec![plain("a")]);
    session.run_batch();
    assert_eq!(session.seen_counts(), [1, 1, 0]);
    assert_eq!(plan(&session), StepPlan { step: 2, steps_left: 10, attempt: 1, ..plan(&session) });
}

#[test]
fn m3_the_next_model_is_used_for_the_rest_of_the_turn() {
    let mut session = Session::calling(LoopConfig::default());
    session.must(failed(AfterFailure::Retry { wait_ms: 1 }));
    let change = session.must(next(1, 50_000));
    assert_eq!(kinds(&change), ["stream_clear", "model_fallback", "context_budget"]);
    assert_eq!((plan(&session).model_index, plan(&session).attempt), (1, 1));
    let budget = session.run.turn.as_ref().unwrap().budget;
    assert_eq!(
        budget,
        PromptBudget { window: 50_000, ..WIDE },
        "the window is that of the new model, and the system text is that of the turn"
    );
    session.reply("", vec![plain("a")]);
    session.run_batch();
    assert_eq!(plan(&session).model_index, 1, "the new model is used for the rest of the turn");
    assert_eq!(session.apply(next(1, 50_000)), Err(InputError::Unexpected("an earlier model")));
    session.answer("done");
    session.begin(LoopConfig::default());
    assert_eq!(plan(&session).model_index, 0, "the next turn begins with the first model");
}

#[test]
fn m3_a_smaller_window_leads_to_a_last_call_or_an_error() {
    let mut session = Session::calling(LoopConfig::default());
    session.must(next(1, 2_000));
    assert!(plan(&session).last, "only a last call fits into the window");
    let mut session = Session::calling(LoopConfig::default());
    let change = session.must(next(1, 1_000));
    assert_eq!(session.error().code(), "prompt_too_large");
    assert_eq!(kinds(&change).last().map(String::as_str), Some("loop_end"));
}

#[test]
fn m3_without_a_fallback_text_the_turn_ends_with_the_models_error() {
    let mut session = Session::calling(LoopConfig::default());
    let change = session.must(failed(AfterFailure::GiveUp));
    assert_eq!(
        session.error(),
        TurnError::ModelFailed { message: "overloaded".into(), retryability: Retryability::Retryable }
    );
    assert_eq!(kinds(&change), ["stream_clear", "error", "context_budget", "loop_end"]);
}

#[test]
fn m3_the_fallback_text_comes_last_and_is_marked() {
    let data = OutputData::Json(json!({"answer": "later"}));
    let mut session = Session::calling(LoopConfig { fallback: Some(data), ..LoopConfig::default() });
    let change = session.must(failed(AfterFailure::GiveUp));
    let expected = ["stream_clear", "model_fallback", "context_budget", "stream_complete", "loop_end"];
    assert_eq!(kinds(&change), expected);
    let output = session.output();
    assert_eq!((output.model.as_str(), output.data), (FALLBACK_TEXT, json!({"answer": "later"})));
    assert_eq!((output.interactions, output.usage), (0, Usage::default()), "no model has replied");
    assert_eq!(session.seen_counts(), [0, 1], "no model has seen the input");
}

#[test]
fn m3_a_model_failure_is_only_accepted_during_a_model_call() {
    let mut session = Session::new();
    assert_eq!(session.apply(failed(AfterFailure::GiveUp)), Err(InputError::NoTurn));
    session.start(TurnInput::Text("How many?".into()), LoopConfig::default());
    assert_eq!(session.apply(failed(AfterFailure::GiveUp)), Err(InputError::Unexpected("a reply")));
    session.context(TurnContext { budget: WIDE, ..Default::default() });
    session.must(Input::Reply(reply("answer", Vec::new())));
    assert_eq!(session.apply(next(1, 1_000)), Err(InputError::Unexpected("a reply")));
}

#[test]
fn d5_repeated_undo_removes_turns_from_the_view() {
    let mut session = Session::new();
    assert_eq!(session.apply(Input::Undo), Err(InputError::NothingToUndo));
    for answer in ["one", "two"] {
        session.begin(LoopConfig::default());
        session.answer(answer);
    }
    session.begin(LoopConfig::default());
    assert_eq!(session.apply(Input::Undo), Err(InputError::TurnOpen(3)));
    session.answer("three");
    let change = session.must(Input::Undo);
    assert_eq!(change.hidden.iter().map(|hidden| hidden.id).collect::<Vec<_>>(), [5, 6]);
    session.must(Input::Undo);
    assert_eq!(session.run.view.iter().map(|entry| entry.turn).collect::<Vec<_>>(), [1, 1]);
    // The next turn is appended to the remaining messages and gets a number that no earlier turn had.
    session.begin(LoopConfig::default());
    session.answer("two again");
    assert_eq!((session.output().turn, session.run.view.len()), (4, 4));
    (0..2).for_each(|_| drop(session.must(Input::Undo)));
    assert_eq!(session.apply(Input::Undo), Err(InputError::NothingToUndo));
}

/// L4, M3: if the turn's last model call fails and the fallback text is the answer, the output states that the limit
/// was reached.
#[test]
fn l4_the_fallback_text_at_the_limit_is_marked() {
    for (max_interactions, limit_reached) in [(0, true), (1, false)] {
        let fallback = Some(OutputData::Text("ask later".into()));
        let mut session = Session::calling(LoopConfig { max_interactions, fallback, ..Default::default() });
        let change = session.must(failed(AfterFailure::GiveUp));
        assert_eq!(
            kinds(&change),
            ["stream_clear", "model_fallback", "context_budget", "stream_complete", "loop_end"],
            "L30"
        );
        let output = session.output();
        assert_eq!((output.limit_reached, output.finish == EndReason::Limit), (limit_reached, limit_reached));
    }
}

/// P5, L5: in any phase, the tokens of a plugin's model calls are added to the cost of the open turn, and the number of
/// these calls is stored.
#[test]
fn l5_model_use_of_plugins_counts_in_the_turn() {
    let usage = Usage::new(30, 12);
    let model_use = || Input::PluginUsedModel { plugin: "sum".into(), used: ModelUse { asks: 1, usage } };
    let mut session = Session::new();
    assert_eq!(session.apply(model_use()), Err(InputError::NoTurn));
    session.begin(LoopConfig::default());
    assert_eq!(
        kinds(&session.must(model_use())),
        Vec::<String>::new(),
        "the event of the plugin's call contains the use"
    );
    session.must(model_use());
    let turn = session.run.turn.as_ref().expect("the turn is open");
    assert_eq!((turn.execution_units, turn.usage.total(), turn.interactions), (84, 84, 0));
    assert_eq!(turn.plugin_model_use["sum"], ModelUse { asks: 2, usage: Usage::new(60, 24) });
    session.answer("done");
    session.begin(LoopConfig::default());
    let turn = session.run.turn.as_ref().expect("the turn is open");
    assert!(
        turn.plugin_model_use.is_empty() && session.run.asks == 2,
        "the model use is counted per turn, and the number of requests per session"
    );
}
