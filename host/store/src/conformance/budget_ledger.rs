//! O4: commits charge their usage to turns, sessions, agents and users, and to the turns that have delegated the work.

use super::{SessionWriter, TestStore, commit_of, event};
use crate::{Charge, ChargeFilter, ChargedTo, Commit, IntervalCharge, OpenMode, SessionMeta, Status, Store};
use agent_core::budget::Spending;
use agent_core::change::Change;
use agent_core::cost::{Cost, TurnCost};
use agent_core::event::{EndReason, EventKind};
use agent_core::model::{TokenDetails, Usage};
use std::sync::Arc;

fn cost(turn: u32, tokens: u64, nanodollars: u64) -> TurnCost {
    let usage = Usage { cost: Some(Cost { nanodollars, partial: false }), ..Usage::new(tokens, 0) };
    TurnCost { turn, execution_units: tokens, usage, interactions: 1, saved_tokens: 0 }
}

fn charge(agent: &str, user: Option<&str>, milliseconds: u64) -> Option<Charge> {
    Some(Charge { agent: agent.to_owned(), user: user.map(str::to_owned), delegators: Vec::new(), milliseconds })
}

/// A commit of a session with this open turn.
fn open_turn(cost: TurnCost, charge: Option<Charge>) -> Commit {
    let commit = commit_of(Change::default());
    Commit { status: Status { open_turn: Some(cost), turn: cost.turn, ..commit.status.clone() }, charge, ..commit }
}

async fn charged(store: &Arc<dyn Store>, to: ChargedTo) -> [u64; 3] {
    let Spending { tokens, nanodollars, milliseconds } = store.charged(vec![to]).await.unwrap()[0];
    [tokens, nanodollars, milliseconds]
}

fn turn(session: &str, turn: u32) -> ChargedTo {
    ChargedTo::Turn { session: session.to_owned(), turn }
}

fn session(session: &str) -> ChargedTo {
    ChargedTo::Session { session: session.to_owned() }
}

fn agent(agent: &str) -> ChargedTo {
    ChargedTo::Agent { agent: agent.to_owned(), since: 0 }
}

fn user(user: Option<&str>) -> ChargedTo {
    ChargedTo::User { user: user.map(str::to_owned), since: 0 }
}

pub(super) async fn usage_is_charged_once(test: TestStore) {
    let store = &test.store;
    let mut writer = SessionWriter::new(store, "tester/1").await;
    // The status of an open turn contains the whole usage of the turn so far.
    for (tokens, milliseconds) in [(100, 5), (100, 7), (130, 0)] {
        writer
            .commit(open_turn(cost(1, tokens, tokens * 10), charge("tester", Some("ann"), milliseconds)))
            .await
            .unwrap();
    }
    let ended = EventKind::LoopEnd { reason: EndReason::Answered, cost: Some(cost(1, 140, 1_400)) };
    let change = Change { events: vec![event("tester/1", 1, ended)], ..Change::default() };
    writer.commit(Commit { charge: charge("tester", Some("ann"), 1), ..commit_of(change) }).await.unwrap();
    writer.commit(open_turn(cost(2, 9, 90), charge("tester", Some("bob"), 0))).await.unwrap();
    // Without a charge, for example in an import, usage is stored but not charged.
    writer.commit(open_turn(cost(2, 1_009, 90), None)).await.unwrap();
    assert_eq!(charged(store, turn("tester/1", 1)).await, [140, 1_400, 13]);
    assert_eq!(charged(store, turn("tester/1", 2)).await, [9, 90, 0]);
    assert_eq!(charged(store, session("tester/1")).await, [149, 1_490, 13]);
    assert_eq!(charged(store, agent("tester")).await, [149, 1_490, 13]);
    assert_eq!(charged(store, user(Some("ann"))).await, [140, 1_400, 13]);
    assert_eq!(charged(store, user(Some("bob"))).await, [9, 90, 0]);
    for nothing in [user(None), agent("other"), session("tester/2"), turn("tester/1", 3)] {
        assert_eq!(charged(store, nothing).await, [0, 0, 0]);
    }
    let later = ChargedTo::Agent { agent: "tester".to_owned(), since: i64::MAX };
    assert_eq!(charged(store, later).await, [0, 0, 0]);
    let both = store.charged(vec![agent("tester"), turn("tester/1", 2)]).await.unwrap();
    assert_eq!((both.len(), both[1].tokens), (2, 9));
}

pub(super) async fn charges_are_added_up_in_intervals(test: TestStore) {
    /// A time after the charges of this test, and a quarter of an hour, in microseconds.
    const LATER: i64 = i64::MAX / 2;
    const QUARTER: i64 = 900_000_000;
    let store = &test.store;
    for (agent, user, tokens) in [("b", Some("ann"), 1), ("a", Some("bob"), 10), ("a", None, 100), ("a", None, 1_000)] {
        let mut writer = SessionWriter::new(store, &format!("{agent}/{tokens}")).await;
        writer.commit(open_turn(cost(1, tokens, tokens * 2), charge(agent, user, 3))).await.unwrap();
        writer.release().await;
    }
    store.delete("a/1000").await.unwrap();
    let charges = async |bounds: &[i64], filter: &ChargeFilter| {
        let charges = store.charged_in_intervals(bounds.to_vec(), filter.clone()).await.unwrap();
        let row = |charge: IntervalCharge| {
            let IntervalCharge { interval, agent, user, spending } = charge;
            (interval, agent, user.unwrap_or_default(), [spending.tokens, spending.nanodollars, spending.milliseconds])
        };
        charges.into_iter().map(row).collect::<Vec<_>>()
    };
    let row = |agent: &str, user: &str, amounts| (1, agent.to_owned(), user.to_owned(), amounts);
    let [nobody, bob] = [row("a", "", [1_100, 2_200, 6]), row("a", "bob", [10, 20, 3])];
    let all = [nobody.clone(), bob.clone(), row("b", "ann", [1, 2, 3])];
    let everything = ChargeFilter::default();
    assert_eq!(charges(&[-QUARTER, 0, LATER], &everything).await, all, "deleted sessions are included");
    let agents = Some(vec!["a".to_owned(), "x".to_owned()]);
    let of_agent = ChargeFilter { agents, ..ChargeFilter::default() };
    assert_eq!(charges(&[-QUARTER, 0], &of_agent).await, [nobody, bob.clone()], "the last interval does not end");
    let of_bob = ChargeFilter { user: Some("bob".to_owned()), ..of_agent };
    assert_eq!(charges(&[-1, 0, LATER], &of_bob).await, [bob], "a bound is rounded down");
    assert_eq!(charges(&[LATER], &everything).await, []);
    assert_eq!(charges(&[], &everything).await, []);
    let no_agent = ChargeFilter { agents: Some(Vec::new()), user: None };
    assert_eq!(charges(&[0], &no_agent).await, []);
}

pub(super) async fn all_tokens_of_a_prompt_are_charged(test: TestStore) {
    let mut writer = SessionWriter::new(&test.store, "tester/1").await;
    let details = TokenDetails { uncached_prompt: 10, cache_read: 90, cache_write: 5, completion: 20, thinking: 15 };
    let usage = Usage { details: Some(details), ..Usage::new(10, 5) };
    let turn = TurnCost { turn: 1, usage, ..TurnCost::default() };
    writer.commit(open_turn(turn, charge("tester", None, 0))).await.unwrap();
    assert_eq!(charged(&test.store, session("tester/1")).await, [125, 0, 0]);
    assert_eq!(charged(&test.store, user(None)).await, [125, 0, 0]);
}

pub(super) async fn delegated_work_is_charged_to_the_delegating_turns(test: TestStore) {
    let store = &test.store;
    let mut lead = SessionWriter::new(store, "lead/1").await;
    lead.commit(open_turn(cost(3, 10, 0), charge("lead", Some("ann"), 0))).await.unwrap();
    let meta = SessionMeta { delegated_by: Some("lead/1".to_owned()), ..super::meta("reader") };
    let opened = store.open("reader/1", OpenMode::Either, meta).await.unwrap();
    let delegators = vec![("lead/1".to_owned(), 3), ("deleted/1".to_owned(), 1)];
    let work = charge("reader", Some("ann"), 50).map(|work| Charge { delegators, ..work });
    store.commit(&opened.lease, 0, open_turn(cost(1, 7, 70), work)).await.unwrap();
    assert_eq!(charged(store, turn("lead/1", 3)).await, [17, 70, 50]);
    assert_eq!(charged(store, session("lead/1")).await, [17, 70, 50]);
    assert_eq!(charged(store, session("reader/1")).await, [7, 70, 50]);
    assert_eq!(charged(store, agent("lead")).await, [10, 0, 0], "each agent is charged for its own work");
    assert_eq!(charged(store, user(Some("ann"))).await, [17, 70, 50], "a user is charged once");
    store.release(opened.lease).await.unwrap();
    store.delete("reader/1").await.unwrap();
    assert_eq!(charged(store, session("reader/1")).await, [0, 0, 0]);
    assert_eq!(charged(store, session("lead/1")).await, [17, 70, 50]);
    assert_eq!(charged(store, user(Some("ann"))).await, [17, 70, 50], "deleting a session frees no budget of its user");
}

pub(super) async fn charges_never_overflow(test: TestStore) {
    let mut writer = SessionWriter::new(&test.store, "tester/1").await;
    for turn in 1..=3 {
        let work = charge("tester", None, u64::MAX);
        writer.commit(open_turn(cost(turn, u64::MAX, u64::MAX), work)).await.unwrap();
    }
    let largest = i64::MAX as u64;
    for to in [session("tester/1"), agent("tester"), user(None)] {
        assert_eq!(charged(&test.store, to).await, [largest; 3]);
    }
}
