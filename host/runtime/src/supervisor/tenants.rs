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
    /// Number of agents that the process runs.
    agents: usize,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Debug, Default)]
struct Taken {
    total: usize,
    by_agent: HashMap<String, TakenByAgent>,
}

#[derive(Debug, Default)]
struct TakenByAgent {
    total: usize,
    by_user: HashMap<Option<String>, usize>,
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

/// Returns the number of places of which one of several tenants may have its share: the same number for each tenant that has any,
/// and three quarters for a tenant that is alone.
fn share_of(places: usize, others: usize) -> usize {
    match others {
        0 => places - places / 4,
        others => (places / (others + 1)).max(1),
    }
}

impl Places {
    /// Creates places for the sessions of this number of agents.
    pub(super) fn new(limit: usize, agents: usize) -> Self {
        Self { limit, agents, taken: Arc::default() }
    }

    /// Takes a place for a tenant. While less than half of the places are taken, each tenant gets one. Then, a tenant that has its
    /// share gets none. Agents share the places, and the users of an agent share those of the agent, so that an agent gets no
    /// more places if its work comes under many names. If a tenant is alone, its share is three quarters. So there is always a place
    /// for an agent, or for a user of an agent, that comes later, or one becomes free as soon as a session of another tenant ends.
    pub(super) fn take(&self, tenant: &Tenant) -> Result<Place, NoPlace> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let other_agents = taken.by_agent.len() - usize::from(taken.by_agent.contains_key(&tenant.agent));
        let of_agent = taken.by_agent.get(&tenant.agent);
        let (all_own, users) = of_agent.map_or((0, 0), |of_agent| (of_agent.total, of_agent.by_user.len()));
        let own = of_agent.and_then(|of_agent| of_agent.by_user.get(&tenant.user)).copied().unwrap_or_default();
        // Nothing needs to be kept for other agents if there are none.
        let for_agent = if self.agents <= 1 { self.limit } else { share_of(self.limit, other_agents) };
        let for_user = share_of(for_agent, users - usize::from(own > 0));
        let has_share = all_own >= for_agent || own >= for_user;
        if taken.total >= self.limit || (taken.total >= self.limit / 2 && has_share) {
            return Err(NoPlace);
        }
        taken.total += 1;
        let of_agent = taken.by_agent.entry(tenant.agent.clone()).or_default();
        of_agent.total += 1;
        of_agent.by_user.insert(tenant.user.clone(), own + 1);
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
        let Some(of_agent) = taken.by_agent.get_mut(&self.tenant.agent) else { return };
        of_agent.total = of_agent.total.saturating_sub(1);
        match of_agent.by_user.get_mut(&self.tenant.user) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(of_agent.by_user.remove(&self.tenant.user)),
        }
        if of_agent.by_user.is_empty() {
            taken.by_agent.remove(&self.tenant.agent);
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
        let places = Places::new(64, 1);
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
        let places = Places::new(8, 1);
        let mut greedy = take_all(&places, &tenant(1));
        let modest: Vec<Place> = (0..2).filter_map(|_| places.take(&tenant(2)).ok()).collect();
        assert_eq!((greedy.len(), modest.len()), (6, 2));
        greedy.pop();
        assert_eq!(places.take(&tenant(1)).map(drop), Err(NoPlace), "the greedy tenant has more than its share");
        assert!(places.take(&tenant(3)).is_ok());
    }

    /// F2: an agent gets no more places if its work comes under many names of users.
    #[test]
    fn f2_many_users_of_one_agent_leave_places_for_other_agents() {
        let places = Places::new(64, 2);
        let of_one_user = take_all(&places, &tenant(0));
        assert_eq!(of_one_user.len(), 36, "three quarters of the three quarters of its agent");
        let one_each: Vec<Place> = (1..200).filter_map(|number| places.take(&tenant(number)).ok()).collect();
        assert_eq!(of_one_user.len() + one_each.len(), 48, "three quarters of the places");
        let other = Tenant { agent: "packer".to_owned(), user: None };
        assert_eq!(take_all(&places, &other).len(), 16, "another agent gets the rest at once");
        drop((of_one_user, one_each));
        let first: Vec<Place> = (1..200).filter_map(|number| places.take(&tenant(number)).ok()).collect();
        let second = take_all(&places, &other);
        assert_eq!((first.len(), second.len()), (48, 16));
        drop(first);
        let third: Vec<Place> = (1..200).filter_map(|number| places.take(&tenant(number)).ok()).collect();
        assert_eq!(third.len(), 32, "two agents share the places");
    }

    proptest! {
        #[test]
        fn f2_places_are_never_exceeded_and_every_tenant_gets_one(
            limit in 4_usize..40, steps in prop::collection::vec((0_usize..5, any::<bool>()), 0..200)
        ) {
            let places = Places::new(limit, 1);
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
