//! O4: a turn whose budget does not allow the next model call ends with an event and a typed error.

use crate::session::{Session, plain};
use agent_core::budget::{BudgetLimits, BudgetResource, BudgetScope, Budgets, Delegator, ExceededBudget, Shortage};
use agent_core::event::{EndReason, EventKind};
use agent_core::run::{ImportTerms, Input, LoopConfig, Run, TurnEnd, TurnError};

fn exceeded() -> ExceededBudget {
    let shortage = Shortage { resource: BudgetResource::Tokens, limit: 100, used: 90, needed: Some(50) };
    ExceededBudget { scope: BudgetScope::Session, owner: "subject".to_owned(), shortage }
}

#[test]
fn o4_exceeded_budget_ends_the_turn() {
    let mut session = Session::new();
    session.begin(LoopConfig::default());
    session.reply("", vec![plain("a")]);
    session.run_batch();
    let change = session.must(Input::Failed(TurnError::BudgetExceeded(exceeded())));
    let kinds: Vec<_> = change.events.into_iter().map(|event| event.kind).collect();
    assert_eq!(kinds[1], EventKind::BudgetExceeded { budget: exceeded() });
    assert!(matches!(&kinds[2], EventKind::Error { code, .. } if code == "budget_exceeded"), "{kinds:?}");
    assert!(matches!(kinds.last(), Some(EventKind::LoopEnd { reason: EndReason::Error, cost: Some(_) })));
    let end = session.run.turn.as_ref().and_then(|turn| turn.end());
    let Some(TurnEnd::Failed(error)) = end else { panic!("the turn has ended: {end:?}") };
    assert_eq!(error.details()["budget"]["needed"], 50);
    let restored = Run::restore(Some(&session.run.snapshot())).unwrap();
    assert_eq!(restored.turn, session.run.turn);
    session.begin(LoopConfig::default());
}

/// P14: a stored turn keeps its budgets, and a lower budget of the agent applies to it.
#[test]
fn o4_open_turn_is_narrowed_to_the_current_budget() {
    let tokens = |tokens| BudgetLimits { tokens: Some(tokens), ..BudgetLimits::default() };
    let with = |turn| LoopConfig { budgets: Budgets { turn, ..Budgets::default() }, ..LoopConfig::default() };
    let mut session = Session::new();
    session.begin(with(tokens(100)));
    let limits = |run: &Run| run.turn.as_ref().map(|turn| turn.config.budgets.turn);
    for (current, expected) in [(with(tokens(500)), 100), (with(tokens(40)), 40), (LoopConfig::default(), 40)] {
        session.run.narrow(&current);
        assert_eq!(limits(&session.run), Some(tokens(expected)));
    }
    let child = session.run.delegate_limits(with(tokens(7)));
    assert_eq!(child.budgets.turn, tokens(7));
    let [delegator] = &child.budgets.delegators[..] else { panic!("one delegator: {child:?}") };
    assert_eq!((delegator.number, delegator.turn_limits), (1, tokens(40)));
}

/// P14, row 38: an imported turn is not charged to the sessions that its document names.
#[test]
fn p14_imported_turn_names_no_delegators() {
    let stranger = Delegator { session: "other/1".to_owned(), number: 1, ..Delegator::default() };
    let budgets = Budgets { delegators: vec![stranger], ..Budgets::default() };
    let mut session = Session::new();
    session.begin(LoopConfig { budgets, ..LoopConfig::default() });
    let (imported, _) = session.run.clone().imported(&ImportTerms::default());
    assert_eq!(imported.turn.map(|turn| turn.config.budgets.delegators), Some(Vec::new()));
}
