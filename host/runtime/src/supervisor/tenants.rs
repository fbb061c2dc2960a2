//! Fairness between tenants: agents and users share the places of a process, so that a tenant with much work does not keep the
//! work of the others waiting (F2).

use crate::requests::Prompt;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// For whom a session works.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tenant {
    /// Configured name of the agent.
    pub(super) agent: String,
    /// The user. `None` if the session has none.
    pub(super) user: Option<String>,
}

impl Tenant {
    /// Returns the tenant of a session of this agent that begins with this prompt.
    pub(super) fn of(agent: &str, prompt: &Prompt) -> Self {
        Self { agent: agent.to_owned(), user: prompt.user.as_ref().map(|user| user.as_str().to_owned()) }
    }
}

/// A number of places that tenants share. All clones share the same places.
#[derive(Clone, Debug)]
pub(super) struct Places {
    limit: usize,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Debug, Default)]
struct Taken {
    total: usize,
    by_tenant: HashMap<Tenant, usize>,
}

/// A place that a tenant has taken. It becomes free when this value is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Places,
    tenant: Tenant,
}

/// All places are taken, or the tenant has its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoPlace;

impl Places {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, taken: Arc::default() }
    }

    /// Takes a place for a tenant. While less than half of the places are taken, each tenant gets one. Then, a tenant that has its
    /// share gets none: the same number of places for each tenant that has any, and three quarters of them for a tenant that is
    /// alone. So there is always a place for a tenant that comes later, or one becomes free as soon as a session of another
    /// tenant ends.
    pub(super) fn take(&self, tenant: &Tenant) -> Result<Place, NoPlace> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let own = taken.by_tenant.get(tenant).copied().unwrap_or_default();
        let others = taken.by_tenant.len() - usize::from(own > 0);
        let share = match others {
            0 => self.limit - self.limit / 4,
            others => (self.limit / (others + 1)).max(1),
        };
        if taken.total >= self.limit || (taken.total >= self.limit / 2 && own >= share) {
            return Err(NoPlace);
        }
        taken.total += 1;
        taken.by_tenant.insert(tenant.clone(), own + 1);
        Ok(Place { places: self.clone(), tenant: tenant.clone() })
    }

    /// Returns whether all places are taken.
    pub(super) fn are_taken(&self) -> bool {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).total >= self.limit
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.total = taken.total.saturating_sub(1);
        match taken.by_tenant.get_mut(&self.tenant) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(taken.by_tenant.remove(&self.tenant)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tenant(number: usize) -> Tenant {
        Tenant { agent: "clerk".to_owned(), user: Some(format!("user-{number}")) }
    }

    fn take_all(places: &Places, tenant: &Tenant) -> Vec<Place> {
        std::iter::from_fn(|| places.take(tenant).ok()).collect()
    }

    #[test]
    fn f2_a_tenant_leaves_places_for_others() {
        let places = Places::new(64);
        let first = take_all(&places, &tenant(1));
        assert_eq!(first.len(), 48, "three quarters of the places");
        let second = take_all(&places, &tenant(2));
        assert_eq!(second.len(), 16, "a later tenant gets the rest at once");
        assert!(places.are_taken());
        drop(first);
        let third = take_all(&places, &tenant(3));
        assert_eq!(third.len(), 32, "two tenants share the places");
        let second_again = take_all(&places, &tenant(2));
        assert_eq!(second_again.len(), 16);
        drop((second, second_again, third));
        assert_eq!(take_all(&places, &tenant(1)).len(), 48, "nothing stays taken");
    }

    #[test]
    fn f2_the_place_that_becomes_free_goes_to_the_tenant_that_has_less() {
        let places = Places::new(8);
        let mut greedy = take_all(&places, &tenant(1));
        let modest: Vec<Place> = (0..2).filter_map(|_| places.take(&tenant(2)).ok()).collect();
        assert_eq!((greedy.len(), modest.len()), (6, 2));
        greedy.pop();
        assert_eq!(places.take(&tenant(1)).map(drop), Err(NoPlace), "the greedy tenant has more than its share");
        assert!(places.take(&tenant(3)).is_ok());
    }

    proptest! {
        #[test]
        fn f2_places_are_never_exceeded_and_every_tenant_gets_one(
            limit in 4_usize..40, steps in prop::collection::vec((0_usize..5, any::<bool>()), 0..200)
        ) {
            let places = Places::new(limit);
            let mut taken: Vec<(usize, Place)> = Vec::new();
            for (number, takes) in steps {
                if takes {
                    taken.extend(places.take(&tenant(number)).ok().map(|place| (number, place)));
                } else if let Some(position) = taken.iter().position(|(owner, _)| *owner == number) {
                    taken.swap_remove(position);
                }
                prop_assert!(taken.len() <= limit);
                let own = |number: usize| taken.iter().filter(|(owner, _)| *owner == number).count();
                for number in 0..5 {
                    prop_assert!(own(number) <= limit - limit / 4);
                    // A tenant without a place gets one whenever a place is free.
                    if own(number) == 0 && taken.len() < limit {
                        prop_assert!(places.take(&tenant(number)).is_ok());
                    }
                }
            }
            drop(taken);
            prop_assert!(!places.are_taken());
        }
    }
}
