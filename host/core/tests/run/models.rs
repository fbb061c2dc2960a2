//! A model that does not answer: once more, the next of the chain, the fixed text (M3); and a turn that is undone (D5).

use crate::session::{Session, WIDE, kinds, plain, reply};
use agent_core::event::{EndReason, EventKind};
use agent_core::message::TurnInput;
use agent_core::model::Usage;
use agent_core::plugin::OutputData;
use agent_core::run::{
    Action, AfterFailure, FALLBACK_TEXT, Input, LoopConfig, ModelFailure, PromptBudget, Prospect, Refused, StepPlan,
    TurnContext, TurnError,
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
        prospect: Prospect::Later,
        then,
    })
}

fn next(place: u32, window: u32) -> Input {
    let budget = PromptBudget { window, system: 0, ..WIDE };
    failed(AfterFailure::Next { place, model: "openai/two".into(), budget })
}

#[test]
fn m3_a_retry_is_the_same_call_once_more() {
    let mut session = Session::calling(LoopConfig::default());
    let first = plan(&session);
    let change = session.must(failed(AfterFailure::Retry { wait_ms: 250 }));
    assert_eq!(kinds(&change), ["stream_clear", "retry"]);
    let EventKind::Retry { attempt: 2, wait_ms: 250, reason, .. } = &change.events[1].kind else { panic!() };
    assert_eq!(reason, "overloaded");
    assert_eq!(plan(&session), StepPlan { attempt: 2, ..first });
    // L3: however many tries it took, the messages have been seen once; L4: and it was one interaction.
    session.must(failed(AfterFailure::Retry { wait_ms: 500 }));
    session.reply("", vec![plain("a")]);
    session.run_batch();
    assert_eq!(session.seen(), [1, 1, 0]);
    assert_eq!(plan(&session), StepPlan { step: 2, steps_left: 10, attempt: 1, ..plan(&session) });
}

#[test]
fn m3_the_rest_of_the_turn_is_the_next_models() {
    let mut session = Session::calling(LoopConfig::default());
    session.must(failed(AfterFailure::Retry { wait_ms: 1 }));
    let change = session.must(next(1, 50_000));
    assert_eq!(kinds(&change), ["stream_clear", "model_fallback", "context_budget"]);
    assert_eq!((plan(&session).place, plan(&session).attempt), (1, 1));
    let budget = session.run.turn.as_ref().unwrap().budget;
    assert_eq!(budget, PromptBudget { window: 50_000, ..WIDE }, "its window, and the turn's own system text");
    session.reply("", vec![plain("a")]);
    session.run_batch();
    assert_eq!(plan(&session).place, 1, "it keeps the turn");
    assert_eq!(session.tell(next(1, 50_000)), Err(Refused::Unexpected("an earlier model")), "never back");
    session.answer("done");
    session.begin(LoopConfig::default());
    assert_eq!(plan(&session).place, 0, "the next turn begins with the first");
}

#[test]
fn m3_a_smaller_window_gets_a_last_call_or_a_typed_error() {
    let mut session = Session::calling(LoopConfig::default());
    session.must(next(1, 2_000));
    assert!(plan(&session).last, "nothing but an answer fits");
    let mut session = Session::calling(LoopConfig::default());
    let change = session.must(next(1, 1_000));
    assert_eq!(session.error().code(), "prompt_too_large");
    assert_eq!(kinds(&change).last().map(String::as_str), Some("loop_end"));
}

#[test]
fn m3_without_a_text_the_turn_ends_with_the_reason() {
    let mut session = Session::calling(LoopConfig::default());
    let change = session.must(failed(AfterFailure::GiveUp));
    assert_eq!(session.error(), TurnError::ModelFailed { message: "overloaded".into(), prospect: Prospect::Later });
    assert_eq!(kinds(&change), ["stream_clear", "error", "context_budget", "loop_end"]);
}

#[test]
fn m3_the_fixed_text_comes_last_and_says_so() {
    let data = OutputData::Json(json!({"answer": "later"}));
    let mut session = Session::calling(LoopConfig { fallback: Some(data), ..LoopConfig::default() });
    let change = session.must(failed(AfterFailure::GiveUp));
    let expected = ["stream_clear", "model_fallback", "context_budget", "stream_complete", "loop_end"];
    assert_eq!(kinds(&change), expected);
    let output = session.output();
    assert_eq!((output.model.as_str(), output.data), (FALLBACK_TEXT, json!({"answer": "later"})));
    assert_eq!((output.interactions, output.usage), (0, Usage::default()), "no model was of any use");
    assert_eq!(session.seen(), [0, 1], "and none has seen the input");
}

#[test]
fn m3_a_failure_fits_only_where_a_model_is_asked() {
    let mut session = Session::new();
    assert_eq!(session.tell(failed(AfterFailure::GiveUp)), Err(Refused::NoTurn));
    session.start(TurnInput::Text("How many?".into()), LoopConfig::default());
    assert_eq!(session.tell(failed(AfterFailure::GiveUp)), Err(Refused::Unexpected("a reply")));
    session.context(TurnContext { budget: WIDE, ..Default::default() });
    session.must(Input::Reply(reply("answer", Vec::new())));
    assert_eq!(session.tell(next(1, 1_000)), Err(Refused::Unexpected("a reply")));
}

#[test]
fn d5_undo_takes_the_last_turn_out_of_the_view_again_and_again() {
    let mut session = Session::new();
    assert_eq!(session.tell(Input::Undo), Err(Refused::NothingToUndo));
    for answer in ["one", "two"] {
        session.begin(LoopConfig::default());
        session.answer(answer);
    }
    session.begin(LoopConfig::default());
    assert_eq!(session.tell(Input::Undo), Err(Refused::TurnOpen(3)));
    session.answer("three");
    let change = session.must(Input::Undo);
    assert_eq!(change.hidden.iter().map(|hidden| hidden.id).collect::<Vec<_>>(), [5, 6]);
    session.must(Input::Undo);
    assert_eq!(session.run.view.iter().map(|entry| entry.turn).collect::<Vec<_>>(), [1, 1]);
    // What comes behind goes on from what is left, and keeps its own number.
    session.begin(LoopConfig::default());
    session.answer("two again");
    assert_eq!((session.output().turn, session.run.view.len()), (4, 4));
    (0..2).for_each(|_| drop(session.must(Input::Undo)));
    assert_eq!(session.tell(Input::Undo), Err(Refused::NothingToUndo));
}

/// L4, M3: the fixed text in place of the last call is what the bound ends the turn with.
#[test]
fn l4_the_fixed_text_at_the_bound_is_marked() {
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

/// P5, L5: what a plugin asks counts in its open turn, whatever that is at, and the place of its next question is kept.
#[test]
fn l5_what_plugins_ask_counts_in_the_turn() {
    let usage = Usage { prompt_tokens: 30, completion_tokens: 12 };
    let asked = || Input::Asked { plugin: "sum".into(), used: ModelUse { asks: 1, usage } };
    let mut session = Session::new();
    assert_eq!(session.tell(asked()), Err(Refused::NoTurn));
    session.begin(LoopConfig::default());
    assert_eq!(kinds(&session.must(asked())), Vec::<String>::new(), "the call's event tells it");
    session.must(asked());
    let turn = session.run.turn.as_ref().expect("it is open");
    assert_eq!((turn.execution_units, turn.usage.total(), turn.interactions), (84, 84, 0));
    assert_eq!(turn.asked["sum"], ModelUse { asks: 2, usage: Usage { prompt_tokens: 60, completion_tokens: 24 } });
    session.answer("done");
    session.begin(LoopConfig::default());
    let turn = session.run.turn.as_ref().expect("it is open");
    assert!(turn.asked.is_empty() && session.run.asks == 2, "a budget is a turn's, a question's number the session's");
}
