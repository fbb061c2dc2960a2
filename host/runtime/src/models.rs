//! An agent's models: the chain that is asked in order, and which of them rest after a failure (M3).

use agent_core::redaction::Redaction;
use agent_core::run::Asked;
use agent_models::{Embedder, Provider, RetryPolicy};
use agent_plugins::GivenTo;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a model that kept failing is passed over, unless configured otherwise.
pub const DEFAULT_COOLDOWN: Duration = Duration::from_secs(60);

/// The models of a plan (L24).
#[derive(Clone)]
pub struct PlanningModels {
    /// Makes the plan and writes the answer.
    pub planner: Arc<dyn Provider>,
    /// Carries out the steps.
    pub executor: Arc<dyn Provider>,
}

/// The models of an agent. Clones share what is known of their failures.
#[derive(Clone)]
pub struct Models {
    chain: Vec<Arc<dyn Provider>>,
    /// Of each call of one model.
    pub retry: RetryPolicy,
    /// How long a model that kept failing is passed over while another is there. Default 60 s.
    pub cooldown: Duration,
    /// Puts into words what leaves the prompt (L27). Default: the one that answers.
    pub summary: Option<Arc<dyn Provider>>,
    /// Those that make a plan and carry it out (L24). Default: none, so that there is no plan.
    pub planning: Option<PlanningModels>,
    /// Says which tools are nearest to what is to be done (L25). Default: none, so that words decide.
    pub embedder: Option<Arc<Embedder>>,
    /// The output when none answers. With an output schema it is JSON that satisfies it. Default: none.
    pub fallback_text: Option<String>,
    resting_until: Arc<Mutex<Vec<Option<Instant>>>>,
}

impl Models {
    /// The first is asked first; each of the others when those before it have failed.
    pub fn new(first: Arc<dyn Provider>, others: impl IntoIterator<Item = Arc<dyn Provider>>) -> Self {
        let chain: Vec<_> = std::iter::once(first).chain(others).collect();
        let resting_until = Arc::new(Mutex::new(vec![None; chain.len()]));
        let (retry, cooldown) = (RetryPolicy::default(), DEFAULT_COOLDOWN);
        let (summary, planning, embedder) = (None, None, None);
        Self { chain, retry, cooldown, summary, planning, embedder, fallback_text: None, resting_until }
    }

    /// What they are given that nobody else is to see.
    pub(crate) fn secrets(&self) -> Vec<(Redaction, GivenTo)> {
        let given_to = |host: Option<String>| host.map_or(GivenTo::Somebody, GivenTo::Host);
        let asked = self.all().chain(&self.summary).map(|model| (model.secrets(), given_to(model.host())));
        let embedder = self.embedder.iter();
        let embedder = embedder.map(|embedder| (embedder.secrets().clone(), given_to(embedder.host())));
        asked.chain(embedder).collect()
    }

    /// In order.
    pub fn chain(&self) -> &[Arc<dyn Provider>] {
        &self.chain
    }

    /// All that may be asked: the chain, and those of a plan.
    pub fn all(&self) -> impl Iterator<Item = &Arc<dyn Provider>> {
        let planning = self.planning.iter().flat_map(|planning| [&planning.planner, &planning.executor]);
        self.chain.iter().chain(planning)
    }

    /// The one that is asked for this; where there is no such one any more, that of the chain.
    pub(crate) fn asked_for(&self, asked: Asked, place: u32) -> &Arc<dyn Provider> {
        match (&self.planning, asked) {
            (Some(planning), Asked::Planner | Asked::Synthesis) => &planning.planner,
            (Some(planning), Asked::Executor { .. }) => &planning.executor,
            (_, _) => self.at(place),
        }
    }

    /// The one that is asked first.
    pub fn first(&self) -> &Arc<dyn Provider> {
        &self.chain[0]
    }

    /// The one at that place; the last one where the chain has become shorter since the turn began.
    pub(crate) fn at(&self, place: u32) -> &Arc<dyn Provider> {
        self.chain.get(place as usize).unwrap_or(&self.chain[self.chain.len() - 1])
    }

    /// Passes the model over for a while.
    pub(crate) fn rest(&self, place: u32) {
        if let Some(until) = self.resting().get_mut(place as usize) {
            *until = Some(Instant::now() + self.cooldown);
        }
    }

    /// Who is to be asked instead of a model that rests; none where it does not, or where the others rest too.
    pub(crate) fn instead_of(&self, place: u32) -> Option<u32> {
        let resting = self.resting();
        let now = Instant::now();
        let rests = |until: &Option<Instant>| until.is_some_and(|until| until > now);
        if !resting.get(place as usize).is_some_and(rests) {
            return None;
        }
        let awake = resting.iter().enumerate().skip(place as usize + 1).find(|(_, until)| !rests(until));
        awake.and_then(|(place, _)| u32::try_from(place).ok())
    }

    /// Who comes after a model that has failed: the next that does not rest, else the next.
    pub(crate) fn after(&self, place: u32) -> Option<u32> {
        let next = place + 1;
        if next as usize >= self.chain.len() {
            return None;
        }
        Some(self.instead_of(next).unwrap_or(next))
    }

    fn resting(&self) -> std::sync::MutexGuard<'_, Vec<Option<Instant>>> {
        self.resting_until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<Arc<dyn Provider>> for Models {
    fn from(only: Arc<dyn Provider>) -> Self {
        Self::new(only, [])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_models::offline::Offline;

    /// M3
    #[test]
    fn a_resting_model_is_passed_over_while_another_is_awake() {
        let model = || Arc::new(Offline::new()) as Arc<dyn Provider>;
        let models = Models::new(model(), [model(), model()]);
        assert_eq!((models.instead_of(0), models.after(0), models.after(2)), (None, Some(1), None));
        models.rest(0);
        assert_eq!(models.instead_of(0), Some(1));
        models.rest(1);
        assert_eq!((models.instead_of(0), models.after(0)), (Some(2), Some(2)));
        models.rest(2);
        assert_eq!((models.instead_of(0), models.after(0)), (None, Some(1)));
        let short = Models { cooldown: Duration::ZERO, ..models.clone() };
        (0..3).for_each(|place| short.rest(place));
        assert_eq!(models.instead_of(0), None);
    }
}
