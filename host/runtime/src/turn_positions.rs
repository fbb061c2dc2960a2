//! Finds the events of a turn among the events of a session, without reading the events before the turn.

use agent_store::{Store, StoreError};

/// Number of events that the first step of a search skips.
const FIRST_STEP: u64 = 64;

/// Returns the number of the last event before this turn. If the turn is the first turn, this is 0, and if the turn has no
/// events, this is the number of the last event of the turns before it. The search begins after the event `from`, which
/// must belong to an earlier turn, or be 0. It reads about twice as many events as the length has binary digits.
pub async fn last_event_before_turn(store: &dyn Store, session: &str, turn: u32, from: u64) -> Result<u64, StoreError> {
    let (mut before, mut step) = (from, FIRST_STEP);
    // All events up to `before` belong to earlier turns. The event after `after` does not, or there is no such event.
    let mut after = from;
    while is_earlier(store, session, after, turn).await? {
        before = after + 1;
        after = before.saturating_add(step);
        step = step.saturating_mul(2);
    }
    while before < after {
        let middle = before + (after - before) / 2;
        match is_earlier(store, session, middle, turn).await? {
            true => before = middle + 1,
            false => after = middle,
        }
    }
    Ok(before)
}

/// Returns whether there is an event after the event with this number, and it belongs to an earlier turn.
async fn is_earlier(store: &dyn Store, session: &str, number: u64, turn: u32) -> Result<bool, StoreError> {
    let event = store.events(session, number, 1).await?.pop();
    Ok(event.is_some_and(|event| event.event.turn < turn))
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_core::change::Change;
    use agent_core::event::{Event, EventKind};
    use agent_store::{Commit, OpenMode, SessionLog, SessionMeta, SqliteStore};

    /// D1: the events of each turn are found, however many events the turns have.
    #[tokio::test]
    async fn d1_the_first_event_of_each_turn_is_found() {
        let store = SqliteStore::open_in_memory().expect("a store");
        let opened = store.open("a/1", OpenMode::CreateNew, SessionMeta::default()).await.expect("opened");
        let lengths = [1_u64, 2, 63, 64, 65, 300, 1];
        let (mut events, mut starts) = (Vec::new(), Vec::new());
        for (turn, length) in (1..).zip(lengths) {
            starts.push(events.len() as u64);
            for _ in 0..length {
                let (session, sequence) = ("a/1".to_owned(), events.len() as u64 + 1);
                events.push(Event { session, turn, sequence, provisional: None, kind: EventKind::Resumed });
            }
        }
        let total = events.len() as u64;
        let change = Change { events, ..Change::default() };
        store.commit(&opened.lease, 0, Commit { change, ..Commit::default() }).await.expect("committed");
        for (turn, start) in (1..).zip(&starts) {
            for from in [0, start / 2, *start] {
                let found = last_event_before_turn(&store, "a/1", turn, from).await.expect("read");
                assert_eq!(found, *start, "turn {turn}, from {from}");
            }
        }
        assert_eq!(last_event_before_turn(&store, "a/1", 99, 0).await.expect("read"), total);
        assert_eq!(last_event_before_turn(&store, "a/1", 99, total).await.expect("read"), total);
        assert_eq!(last_event_before_turn(&store, "a/1", 0, 0).await.expect("read"), 0);
    }
}
