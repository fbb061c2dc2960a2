//! Tests of eviction: the oldest groups of messages are removed from the view, and a summary replaces them (L26, L27).

use crate::session::{Session, WIDE, kinds, plain, rejected};
use agent_core::change::{Change, HideReason};
use agent_core::event::{EndReason, EventKind};
use agent_core::loop_break::Finish;
use agent_core::message::{Message, MessageId, Role, TurnInput};
use agent_core::model::Usage;
use agent_core::plugin::{History, OutputData, Section, Stability};
use agent_core::prompt::{PromptParts, system_sections};
use agent_core::run::{
    Action, AfterFailure, AtLimit, Input, InputError, LoopConfig, ModelFailure, PromptBudget, Retryability, Run,
    Summarised, SummaryPlan, TurnContext,
};

/// A token budget that leaves 8,700 tokens for messages. Messages are evicted if they use more than 6,960 tokens.
const SMALL: PromptBudget = PromptBudget { window: 10_000, ..WIDE };

fn plan(session: &Session) -> SummaryPlan {
    match session.run.action() {
        Action::Summarise(plan) => plan,
        other => panic!("{other:?}"),
    }
}

fn summarised(text: &str) -> Input {
    Input::Summarised(Summarised {
        text: text.into(),
        files: vec!["notes.txt".into()],
        by: "scripted/one".into(),
        usage: Usage::new(30, 3),
    })
}

fn begin_in(session: &mut Session, budget: PromptBudget, input: &str) -> Change {
    session.start(TurnInput::Text(input.into()), LoopConfig::default());
    session.context(TurnContext { budget, ..Default::default() })
}

/// Adds `turns` turns to the session, each with two messages of about 1,000 tokens.
fn add_turns(session: &mut Session, turns: u32) {
    for _ in 0..turns {
        begin_in(session, SMALL, &"q".repeat(3_984));
        session.answer(&"a".repeat(3_984));
    }
}

fn ids(session: &Session) -> Vec<MessageId> {
    session.run.view.iter().map(|entry| entry.id).collect()
}

fn sections(change: &Change) -> Vec<String> {
    let built = change.events.iter().find_map(|event| match &event.kind {
        EventKind::ContextBuilt { sections, .. } => Some(sections.clone()),
        _ => None,
    });
    built.unwrap_or_default()
}

#[test]
fn l27_default_thresholds() {
    let config = LoopConfig::default();
    assert_eq!((config.evict_at, config.evict_to), (80, 50));
}

#[test]
fn l27_the_oldest_turns_are_replaced_by_their_summary_in_one_change() {
    let mut session = Session::new();
    add_turns(&mut session, 3);
    assert_eq!(session.run.view.len(), 6, "nothing is evicted at 6,000 of 8,700 tokens");
    let change = begin_in(&mut session, SMALL, &"q".repeat(3_984));
    assert_eq!(kinds(&change), [""; 0], "no step begins before the eviction");
    let asked = plan(&session);
    assert_eq!(
        (&asked.messages[..], &asked.earlier),
        (&[1, 2, 3, 4][..], &None),
        "whole turns are evicted, down to half of the tokens"
    );
    assert_eq!(asked.limit, 1_000);

    let change = session.must(summarised("They talked."));
    assert_eq!(ids(&session), [5, 6, 7]);
    assert!(change.hidden.iter().all(|hidden| hidden.why == HideReason::Evicted));
    assert_eq!(kinds(&change), ["evicted", "loop_iteration", "context_budget", "context_built"]);
    let EventKind::Evicted { messages, tokens, summary_tokens, ref by } = change.events[0].kind else { panic!() };
    assert_eq!((messages, tokens, by.as_str()), (4, 4_000, "scripted/one"));
    let summary = session.run.summary.clone().expect("the run has a summary");
    assert_eq!((summary.tokens, summary.messages, summary.through_turn, summary.evictions), (summary_tokens, 4, 2, 1));
    assert!(summary.section().text.ends_with("They talked.\n\nFiles touched: notes.txt"));
    let EventKind::ContextBudget { system, messages, remaining, .. } = change.events[2].kind else { panic!() };
    assert_eq!((system, messages), (100 + summary.tokens, 3_000), "the summary is system text");
    assert_eq!(remaining, 10_000 - 200 - 1_000 - system - messages);
    assert_eq!(sections(&change), ["session-summary"]);
}

#[test]
fn l4_l5_a_summary_is_not_an_interaction_but_its_tokens_count() {
    let mut session = Session::new();
    add_turns(&mut session, 3);
    begin_in(&mut session, SMALL, &"q".repeat(3_984));
    let calls = session.run.model_calls;
    session.must(summarised("They talked."));
    assert_eq!(session.run.model_calls, calls, "no seen count has increased (L3)");
    session.answer("answer");
    let output = session.output();
    assert_eq!((output.interactions, output.execution_units), (1, 143));
    assert_eq!(output.usage, Usage::new(130, 13));
}

/// L22: the chain-of-thought section is between the capabilities and the session summary.
#[test]
fn l22_the_system_message_has_its_sections_in_order() {
    let mut session = Session::new();
    add_turns(&mut session, 3);
    let (instructions, think) = (Some("Be brief.".to_owned()), Some("Think first.".to_owned()));
    let parts = PromptParts { instructions, chain_of_thought: think, ..PromptParts::default() };
    let clock = Section { name: "clock".into(), text: "noon".into(), stability: Stability::Dynamic };
    let sections = system_sections(&parts, Finish::Text, vec![clock]);
    session.start(TurnInput::Text("q".repeat(3_984)), LoopConfig::default());
    session.context(TurnContext { budget: SMALL, sections, ..Default::default() });
    session.must(summarised("They talked."));
    let names: Vec<String> = session.run.system_sections().into_iter().map(|section| section.name).collect();
    let expected = ["instructions", "loop-rules", "capabilities", "chain-of-thought", "session-summary", "clock"];
    assert_eq!(names, expected);
}

#[test]
fn l27_the_summary_follows_the_fixed_sections_and_stays_the_same_until_the_next_eviction() {
    let mut session = Session::new();
    add_turns(&mut session, 3);
    let section = |name: &str, stability| Section { name: name.into(), text: "text".into(), stability };
    let built = vec![section("instructions", Stability::Fixed), section("clock", Stability::Dynamic)];
    session.start(TurnInput::Text("q".repeat(3_984)), LoopConfig::default());
    session.context(TurnContext { budget: SMALL, sections: built.clone(), ..Default::default() });
    session.must(summarised("They talked."));
    let names = |run: &Run| run.system_sections().into_iter().map(|section| section.name).collect::<Vec<_>>();
    assert_eq!(names(&session.run), ["instructions", "session-summary", "clock"]);
    let before = session.run.system_sections();
    session.reply("", vec![plain("a")]);
    session.run_batch();
    assert_eq!(session.run.system_sections(), before);
    session.answer("answer");
    session.start(TurnInput::Text("And?".into()), LoopConfig::default());
    session.context(TurnContext { budget: SMALL, sections: built, ..Default::default() });
    assert_eq!(session.run.system_sections(), before);
}

#[test]
fn l27_calls_are_evicted_with_their_results_but_the_turns_input_and_new_messages_stay() {
    let mut session = Session::new();
    let config = LoopConfig { max_interactions: 40, ..Default::default() };
    session.start(TurnInput::Text("Go.".into()), config);
    session.context(TurnContext { budget: SMALL, ..Default::default() });
    for step in 1..=20 {
        session.reply("", vec![plain("a"), plain("b")]);
        let calls = session.dispatch();
        for call in calls {
            session.outcome(&call.0, &"r".repeat(3_200));
        }
        if let Action::Summarise(plan) = session.run.action() {
            assert!(plan.messages.iter().all(|id| (2..session.run.next_message - 3).contains(id)), "{plan:?}");
            assert_eq!(plan.messages.len() % 3, 0, "calls are evicted with their results");
            session.must(summarised(&format!("Until step {step}.")));
        }
        let Action::CallModel(plan) = session.run.action() else { panic!() };
        assert!(!plan.last, "enough tokens are free again");
        assert_eq!(ids(&session)[0], 1, "the input stays");
    }
    let evictions = session.run.summary.as_ref().expect("messages were evicted").evictions;
    assert!((3..=8).contains(&evictions), "evictions do not happen at every step: {evictions}");
}

#[test]
fn l26_messages_are_evicted_before_a_final_answer_is_requested() {
    let mut session = Session::new();
    add_turns(&mut session, 3);
    // The messages use fewer tokens than the threshold of 99 %, but too few tokens are left for a step.
    let config = LoopConfig { evict_at: 99, minimum_remaining: 2_000, ..Default::default() };
    session.start(TurnInput::Text("q".repeat(3_984)), config.clone());
    session.context(TurnContext { budget: SMALL, ..Default::default() });
    assert!(!plan(&session).messages.is_empty());
    session.must(summarised("They talked."));
    let Action::CallModel(step) = session.run.action() else { panic!() };
    assert!(!step.last);
    session.answer("answer");

    // The input alone leaves too few tokens for a step. All other messages are evicted, and then the turn makes
    // its last model call.
    session.start(TurnInput::Text("q".repeat(28_000)), config);
    session.context(TurnContext { budget: SMALL, ..Default::default() });
    session.must(summarised("They talked."));
    assert_eq!(session.run.view.len(), 1);
    let Action::CallModel(step) = session.run.action() else { panic!() };
    assert!(step.last);
    session.answer("answer");
    assert_eq!(session.output().finish, EndReason::Limit);
}

#[test]
fn l27_nothing_is_evicted_if_that_would_free_too_few_tokens() {
    let mut session = Session::new();
    begin_in(&mut session, SMALL, "Hello.");
    session.answer("Hello.");
    // The input has 7,000 tokens, which exceed the threshold even without other messages. Evicting the first turn,
    // which is short, would free too few tokens.
    begin_in(&mut session, SMALL, &"q".repeat(28_000));
    assert!(matches!(session.run.action(), Action::CallModel(plan) if !plan.last), "{:?}", session.run.action());
}

#[test]
fn l27_system_messages_of_a_builder_are_not_evicted() {
    let mut session = Session::new();
    session.start(TurnInput::Text("q".into()), LoopConfig::default());
    let messages = vec![Message::text(Role::System, "Rules."), Message::text(Role::User, "q".repeat(3_984))];
    session.context(TurnContext { budget: SMALL, messages, ..Default::default() });
    session.answer("answer");
    add_turns(&mut session, 3);
    begin_in(&mut session, SMALL, "And?");
    session.must(summarised("They talked."));
    assert_eq!(ids(&session)[0], 1);
    assert_eq!(session.ledger.messages[0].role, Role::System);
}

#[test]
fn l27_a_crash_repeats_the_summary_and_a_cancelled_turn_loses_nothing() {
    let mut session = Session::new();
    add_turns(&mut session, 3);
    begin_in(&mut session, SMALL, &"q".repeat(3_984));
    let asked = plan(&session);
    let change = session.crash();
    assert_eq!(change, Change::default());
    assert_eq!(plan(&session), asked);
    let change = session.must(Input::Cancel);
    assert_eq!(kinds(&change), ["context_budget", "loop_end"]);
    assert!(change.hidden.is_empty() && session.run.summary.is_none());
    assert_eq!(session.run.view.len(), 7);
    // The cancelled turn has evicted nothing. The next turn evicts the messages.
    begin_in(&mut session, SMALL, "Again.");
    session.must(summarised("They talked."));
    session.answer("answer");
    assert!(matches!(session.apply(summarised("late")), Err(InputError::NoTurn)));
}

#[test]
fn l27_an_unrequested_summary_is_refused() {
    let mut session = Session::calling(LoopConfig::default());
    assert!(matches!(session.apply(summarised("x")), Err(InputError::Unexpected("a summary"))));
}

#[test]
fn l27_a_smaller_window_causes_an_eviction_in_the_same_step() {
    let mut session = Session::new();
    add_turns(&mut session, 3);
    begin_in(&mut session, WIDE, "And?");
    let then = AfterFailure::Next {
        model_index: 1,
        model: "scripted/two".into(),
        budget: PromptBudget { window: 6_000, ..WIDE },
    };
    let failed = ModelFailure {
        model: "scripted/one".into(),
        message: "busy".into(),
        retryability: Retryability::Retryable,
        then,
    };
    let change = session.must(Input::ModelFailed(failed));
    assert_eq!(kinds(&change), ["stream_clear", "model_fallback"]);
    let change = session.must(summarised("They talked."));
    assert_eq!(kinds(&change), ["evicted", "context_budget"]);
    let Action::CallModel(plan) = session.run.action() else { panic!() };
    assert_eq!((plan.step, plan.model_index, plan.last), (1, 1, false));
}

#[test]
fn l4_nothing_is_summarised_when_the_turn_ends_at_its_limit() {
    let mut session = Session::new();
    add_turns(&mut session, 3);
    let config = LoopConfig { max_interactions: 0, at_limit: AtLimit::Error, ..Default::default() };
    session.start(TurnInput::Text("q".repeat(3_984)), config);
    session.context(TurnContext { budget: SMALL, ..Default::default() });
    assert_eq!(session.error().code(), "interactions_exhausted");
}

#[test]
fn d5_undo_removes_visible_messages_and_keeps_the_summary() {
    let mut session = Session::new();
    add_turns(&mut session, 3);
    begin_in(&mut session, SMALL, &"q".repeat(3_984));
    session.must(summarised("They talked."));
    session.answer("answer");
    let before = session.run.summary.clone();
    let change = session.must(Input::Undo);
    assert!(change.hidden.iter().all(|hidden| hidden.why == HideReason::Undone));
    assert_eq!(ids(&session), [5, 6], "the previous turn is now the last one");
    session.must(Input::Undo);
    assert_eq!(session.run.summary, before, "no message of the undone turns was summarised");
    assert_eq!(session.apply(Input::Undo), Err(InputError::NothingToUndo), "evicted messages do not return");
}

#[test]
fn d5_undo_of_a_partly_summarised_turn_is_noted_once() {
    let mut session = Session::new();
    session.start(TurnInput::Text("Go.".into()), LoopConfig::default());
    session.context(TurnContext { budget: SMALL, ..Default::default() });
    while !matches!(session.run.action(), Action::Summarise(_)) {
        session.reply("", vec![plain("a")]);
        let call = session.dispatch().remove(0);
        session.outcome(&call.0, &"r".repeat(6_000));
    }
    session.must(summarised("It went."));
    session.answer("answer");
    session.must(Input::Undo);
    let summary = session.run.summary.clone().expect("a summary");
    assert!(summary.text.ends_with("[The user has undone turn 1: what this summary says about it no longer applies.]"));
    assert!(session.run.view.is_empty());
    begin_in(&mut session, SMALL, "Hello.");
    session.answer("answer");
    session.must(Input::Undo);
    assert_eq!(session.run.summary, Some(summary));
}

#[test]
fn l2_a_builder_can_leave_out_the_session_summary_or_replace_it() {
    let mut session = Session::new();
    add_turns(&mut session, 3);
    begin_in(&mut session, SMALL, &"q".repeat(3_984));
    session.must(summarised("They talked."));
    session.answer("answer");
    session.start(TurnInput::Text("q".into()), LoopConfig::default());
    let change = session.context(TurnContext { budget: SMALL, history: History::LeaveOut, ..Default::default() });
    assert_eq!((sections(&change), session.run.prompt_budget().system), (vec![], 100));
    session.answer("answer");
    session.start(TurnInput::Text("q".into()), LoopConfig::default());
    let own = Section { name: "session-summary".into(), text: "mine".into(), stability: Stability::Fixed };
    session.context(TurnContext { budget: SMALL, sections: vec![own.clone()], ..Default::default() });
    assert_eq!(session.run.system_sections(), [own]);
    session.answer("answer");
    session.start(TurnInput::Text("q".into()), LoopConfig::default());
    let change = session.context(TurnContext { budget: SMALL, ..Default::default() });
    assert_eq!(sections(&change), ["session-summary"]);
}

#[test]
fn l27_messages_stored_without_roles_are_evicted_by_whole_turns() {
    let mut session = Session::new();
    for _ in 0..4 {
        session.begin(LoopConfig::default());
        session.reply("", vec![plain("a")]);
        let call = session.dispatch().remove(0);
        session.outcome(&call.0, &"r".repeat(6_000));
        session.answer("answer");
    }
    session.run.view.iter_mut().for_each(|entry| entry.role = None);
    begin_in(&mut session, SMALL, "And?");
    assert_eq!(session.run.action(), Action::CallModel(step(&session)));
    session.answer(&"a".repeat(4_000));
    begin_in(&mut session, PromptBudget { window: 8_000, ..WIDE }, "And?");
    assert_eq!(plan(&session).messages, (1..=12).collect::<Vec<_>>(), "each turn has four messages");
}

fn step(session: &Session) -> agent_core::run::StepPlan {
    let Action::CallModel(plan) = session.run.action() else { panic!("{:?}", session.run.action()) };
    plan
}

#[test]
fn d5_a_fork_keeps_the_summary_with_a_warning_that_parts_may_not_apply() {
    let mut session = Session::new();
    add_turns(&mut session, 3);
    begin_in(&mut session, SMALL, &"q".repeat(3_984));
    session.must(summarised("They talked."));
    session.answer("answer");
    let fork = session.run.fork("other", 6);
    let summary = fork.summary.expect("a summary");
    assert_eq!((summary.text.as_str(), summary.messages, summary.through_turn), ("They talked.", 0, 2));
    assert!(summary.section().text.starts_with("This session was forked from one with earlier messages"));

    // In a long turn, the input stays in the view, while later messages are evicted and summarised. A fork directly
    // after the input does not contain these messages, so the fork's summary must end with a note about this.
    let mut session = Session::new();
    session.start(TurnInput::Text("Go.".into()), LoopConfig::default());
    session.context(TurnContext { budget: SMALL, ..Default::default() });
    while !matches!(session.run.action(), Action::Summarise(_)) {
        session.reply("", vec![plain("a")]);
        let call = session.dispatch().remove(0);
        session.outcome(&call.0, &"r".repeat(6_000));
    }
    session.must(summarised("It went."));
    session.answer("answer");
    let text = session.run.fork("other", 1).summary.expect("a summary").text;
    assert!(text.ends_with("what this summary says about later turns does not apply.]"), "{text}");
}

#[test]
fn l27_two_thousand_turns_fit_into_a_small_window() {
    let mut session = Session::new();
    let budget = PromptBudget { window: 6_000, ..WIDE };
    let (mut max_size, mut evictions) = (0, 0);
    for turn in 1..=2_000_u32 {
        begin_in(&mut session, budget, &format!("Question {turn}: {}", "q ".repeat(50 + turn as usize * 7 % 400)));
        let mut step = 0;
        loop {
            match session.run.action() {
                Action::Summarise(plan) => {
                    let earlier = plan.earlier.map(|summary| summary.text).unwrap_or_default();
                    session.must(summarised(&format!("{earlier}\nUntil turn {turn}.")));
                    evictions += 1;
                }
                Action::CallModel(plan) if step < turn % 3 && !plan.last => {
                    step += 1;
                    session.reply("", vec![plain("a")]);
                    let call = session.dispatch().remove(0);
                    session.outcome(&call.0, &"r ".repeat(turn as usize * 13 % 900));
                }
                Action::CallModel(_) if turn % 7 == 0 && step < 4 => {
                    step = 4;
                    session.reply("wrong", Vec::new());
                    session.must(rejected("no"));
                }
                Action::CallModel(_) => {
                    session.answer("An answer.");
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
        let summary = session.run.summary.as_ref().map_or(0, |summary| summary.tokens);
        assert!(summary <= 587, "{summary} tokens of summary");
        max_size = max_size.max(session.run.snapshot().len());
        assert_eq!(session.output().finish, EndReason::Answered, "turn {turn}");
    }
    assert!(max_size < 20_000, "a snapshot of {max_size} bytes");
    assert!((100..1_000).contains(&evictions), "{evictions} evictions");
    let output = OutputData::Text("An answer.".into());
    assert_eq!(session.output().data, output.into_value());
}
