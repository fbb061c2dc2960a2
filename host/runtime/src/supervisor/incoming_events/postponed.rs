//! How often events were postponed, and how many answers to one session are being handled.

use agent_store::{Bucket, Store, StoreError};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Maximum number of times that an event is postponed: about nine hours.
pub(super) const MAX_POSTPONED: u32 = 64;
/// Delay after an event was postponed for the first time. Each further time doubles the delay.
const FIRST_DELAY: Duration = Duration::from_secs(2);
const LONGEST_DELAY: Duration = Duration::from_secs(600);
/// Maximum number of bytes that are stored for the events of an agent.
const QUOTA: u64 = 1 << 20;

/// Returns the delay of the next delivery of an event that was postponed this number of times.
pub(super) fn delay(postponed: u32) -> Duration {
    FIRST_DELAY.saturating_mul(1 << postponed.saturating_sub(1).min(16)).min(LONGEST_DELAY)
}

/// Counts in the store how often the events of a table were postponed, because the server counts only deliveries. Processes that
/// share the store share the counts.
pub(super) struct PostponedCount {
    store: Arc<dyn Store>,
    bucket: Bucket,
    table: String,
}

impl PostponedCount {
    pub(super) fn new(store: Arc<dyn Store>, agent: &str, table: &str) -> Self {
        // No plugin has an empty name, so no plugin can read this bucket.
        let (agent, name) = (agent.to_owned(), "postponed-events".to_owned());
        let bucket = Bucket { agent, plugin: String::new(), name, quota: QUOTA };
        Self { store, bucket, table: table.to_owned() }
    }

    fn key(&self, position: &str) -> String {
        format!("{} {position}", self.table)
    }

    /// Returns how often the event at this position was postponed.
    pub(super) async fn get(&self, position: &str) -> Result<u32, StoreError> {
        let stored = self.store.get(&self.bucket, &self.key(position)).await?;
        let count = stored.and_then(|stored| String::from_utf8(stored).ok()?.parse().ok());
        Ok(count.unwrap_or_default())
    }

    /// Counts that an event is postponed, and returns how often it was. Returns 1 if the store fails; then the delivery counts as a
    /// failure of the event.
    pub(super) async fn add(&self, position: &str) -> u32 {
        match self.store.increment(&self.bucket, &self.key(position), 1).await {
            Ok(count) => u32::try_from(count).unwrap_or(u32::MAX),
            Err(error) => {
                tracing::debug!(%error, "the postponement of an event was not counted");
                1
            }
        }
    }

    /// Forgets an event that is not delivered again.
    pub(super) async fn remove(&self, position: &str) {
        if let Err(error) = self.store.delete_key(&self.bucket, &self.key(position)).await {
            tracing::debug!(%error, "the count of a postponed event was not removed");
        }
    }
}

/// Limits how many answers to one session are handled or wait at the same time.
pub(super) struct SessionPlaces {
    limit: usize,
    taken: Arc<Mutex<HashMap<String, usize>>>,
}

/// The place of an answer. It becomes free when this value is dropped.
pub(super) struct SessionPlace {
    session: String,
    taken: Arc<Mutex<HashMap<String, usize>>>,
}

impl SessionPlaces {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, taken: Arc::default() }
    }

    /// Takes a place for an answer to this session. Returns `None` if all of its places are taken.
    pub(super) fn enter(&self, session: &str) -> Option<SessionPlace> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let own = taken.get(session).copied().unwrap_or_default();
        if own >= self.limit {
            return None;
        }
        taken.insert(session.to_owned(), own + 1);
        Some(SessionPlace { session: session.to_owned(), taken: self.taken.clone() })
    }
}

impl Drop for SessionPlace {
    fn drop(&mut self) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        match taken.get_mut(&self.session) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(taken.remove(&self.session)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// I6: the answers to one session have few places, which become free again.
    #[test]
    fn i6_answers_to_one_session_have_few_places() {
        let places = SessionPlaces::new(2);
        let own: Vec<_> = (0..5).filter_map(|_| places.enter("clerk/1")).collect();
        assert_eq!(own.len(), 2);
        assert!(places.enter("clerk/2").is_some());
        drop(own);
        assert!(places.enter("clerk/1").is_some());
        assert!(places.taken.lock().expect("no panic").is_empty());
    }

    /// I6: an event that is postponed again and again is repeated less and less often.
    #[test]
    fn i6_delays_of_postponed_events_grow() {
        let delays: Vec<u64> = [1, 2, 3, 9, 10, 64, u32::MAX].map(|count| delay(count).as_secs()).to_vec();
        assert_eq!(delays, [2, 4, 8, 512, 600, 600, 600]);
    }
}
