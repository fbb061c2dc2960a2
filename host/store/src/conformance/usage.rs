//! D1, D6: the usage of turns is stored with the commits, and can be rebuilt from the log.

use super::{SessionWriter, TestStore, commit_of, event};
use crate::{Commit, OpenMode, Projection, SessionFilter, SessionMeta, SessionState, SessionUsage, Status, Store};
use agent_core::change::Change;
use agent_core::cost::{Cost, TurnCost};
use agent_core::event::{EndReason, Event, EventKind};
use agent_core::model::{TokenDetails, Usage};
use std::sync::Arc;

/// The usage of the open turn in each snapshot that these tests write.
fn open_turn() -> TurnCost {
    turn_cost(2, Usage::new(7, 3))
}

fn status(snapshot: &[u8]) -> Option<Status> {
    let open_turn = match snapshot {
        b"open" => Some(open_turn()),
        b"ended" => None,
        _ => return None,
    };
    let turn = if open_turn.is_some() { 2 } else { 1 };
    Some(Status { state: SessionState::Running, turn, title: None, open_turn, continues_at: None })
}

fn turn_cost(turn: u32, usage: Usage) -> TurnCost {
    TurnCost { turn, execution_units: usage.total(), usage, interactions: 2, saved_tokens: 7 }
}

fn commit(snapshot: &[u8], events: Vec<Event>) -> Commit {
    let status = status(snapshot).expect("the snapshot is known");
    Commit { snapshot: snapshot.to_vec(), status, ..commit_of(Change { events, ..Change::default() }) }
}

fn turn_ends(session: &str, sequence: u64, cost: TurnCost) -> Event {
    let kind = EventKind::LoopEnd { reason: EndReason::Answered, cost: Some(cost) };
    Event { turn: cost.turn, ..event(session, sequence, kind) }
}

/// A turn with a known cost, whose tokens were partly read from a cache.
fn first_turn() -> TurnCost {
    let details = TokenDetails { uncached_prompt: 60, cache_read: 40, cache_write: 0, completion: 12, thinking: 2 };
    let cost = Some(Cost::from_dollars(0.25));
    turn_cost(1, Usage { details: Some(details), cost, ..Usage::new(100, 10) })
}

async fn usage_of(store: &Arc<dyn Store>, session: &str) -> SessionUsage {
    let filter = SessionFilter { subject: Some(session.to_owned()), ..SessionFilter::default() };
    store.sessions(filter, 1).await.expect("the list is read").remove(0).usage
}

async fn compared_and_different(store: &Arc<dyn Store>) -> (u64, u64) {
    let compared = store.check_projections(status).await.expect("the check succeeds");
    let usage = compared.iter().find(|compared| compared.projection == Projection::Usage).expect("usage is checked");
    (usage.compared, usage.different)
}

pub(super) async fn usage_follows_the_log(test: TestStore) {
    let store = &test.store;
    let mut writer = SessionWriter::new(store, "one").await;
    let mut expected = SessionUsage::default();
    assert_eq!(usage_of(store, "one").await, expected);

    writer.commit(commit(b"ended", vec![turn_ends("one", 1, first_turn())])).await.expect("the commit succeeds");
    expected = SessionUsage { model_calls: 2, usage: first_turn().usage };
    assert_eq!(usage_of(store, "one").await, expected);

    // The price of the second turn is unknown, so the sum is partial.
    writer.commit(commit(b"open", vec![])).await.expect("the commit succeeds");
    writer.commit(commit(b"open", vec![])).await.expect("the usage of an open turn is replaced");
    expected.model_calls += 2;
    expected.usage += open_turn().usage;
    assert_eq!(usage_of(store, "one").await, expected);
    assert_eq!(expected.usage.cost, Some(Cost { nanodollars: 250_000_000, partial: true }));

    assert_eq!(compared_and_different(store).await, (2, 0));
    store.rebuild_projections(status).await.expect("the rebuild succeeds");
    assert_eq!(usage_of(store, "one").await, expected);
    assert_eq!(compared_and_different(store).await, (2, 0));

    // A snapshot that this host cannot read changes nothing.
    writer.commit(commit_of(Change::default())).await.expect("the commit succeeds");
    assert_eq!(compared_and_different(store).await.1, 0);
    writer.release().await;
    store.delete("one").await.expect("the session is deleted");
    assert_eq!(compared_and_different(store).await, (0, 0));
}

pub(super) async fn sums_of_usage_never_overflow(test: TestStore) {
    let store = &test.store;
    let mut writer = SessionWriter::new(store, "large").await;
    let cost = Some(Cost { nanodollars: u64::MAX, partial: false });
    let usage = Usage { cost, ..Usage::new(u64::MAX, u64::MAX) };
    for turn in 1..=3 {
        let event = turn_ends("large", turn.into(), turn_cost(turn, usage));
        writer.commit(commit(b"ended", vec![event])).await.expect("the commit succeeds");
    }
    let sum = usage_of(store, "large").await;
    assert_eq!(sum.usage.prompt_tokens, i64::MAX as u64);
    assert_eq!(compared_and_different(store).await, (3, 0));
    writer.release().await;
}

/// O4: the usage of sessions is added up for each agent and user.
pub(super) async fn usage_is_added_up_per_agent_and_user(test: TestStore) {
    let store = &test.store;
    for (session, agent, user) in
        [("1", "a", Some("ann")), ("2", "a", Some("ann")), ("3", "a", None), ("4", "b", Some("bob"))]
    {
        let meta = SessionMeta { agent: agent.to_owned(), user: user.map(str::to_owned), delegated_by: None };
        let opened = store.open(session, OpenMode::CreateNew, meta).await.unwrap();
        store.commit(&opened.lease, 0, commit(b"ended", vec![turn_ends(session, 1, first_turn())])).await.unwrap();
    }
    let totals = async |agents: &[&str], user: Option<&str>| -> Vec<_> {
        let agents: Vec<_> = agents.iter().map(|agent| (*agent).to_owned()).collect();
        let totals = store.usage(&agents, user).await.unwrap();
        totals
            .into_iter()
            .map(|total| (total.agent, total.user, total.sessions, total.usage.usage.prompt_tokens))
            .collect()
    };
    let ann = ("a".to_owned(), Some("ann".to_owned()), 2, 200);
    let unknown = ("a".to_owned(), None, 1, 100);
    let bob = ("b".to_owned(), Some("bob".to_owned()), 1, 100);
    assert_eq!(totals(&["a", "b", "c"], None).await, [unknown, ann.clone(), bob.clone()]);
    assert_eq!(totals(&["a"], Some("ann")).await, [ann]);
    assert_eq!(totals(&["b"], None).await, [bob]);
    assert_eq!(totals(&[], None).await, []);
}
