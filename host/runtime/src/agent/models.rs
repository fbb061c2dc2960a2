//! An agent's models: the fallback chain that is asked in order, and the cooldowns after failures (M3).

use agent_core::redaction::Redaction;
use agent_core::run::ModelRole;
use agent_models::{Embedder, Provider, RetryPolicy};
use agent_plugins::SecretHolder;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Default for how long a model is skipped after it has failed with all retries.
pub const DEFAULT_COOLDOWN: Duration = Duration::from_secs(60);

/// The models of a plan (L24).
#[derive(Clone)]
pub struct PlanningModels {
    /// The model that makes the plan and writes the answer.
    pub planner: Arc<dyn Provider>,
    /// The model that carries out the steps.
    pub executor: Arc<dyn Provider>,
}

/// The models of an agent. Clones share the cooldowns.
#[derive(Clone)]
pub struct Models {
    chain: Vec<Arc<dyn Provider>>,
    /// Retry policy for each call of one model.
    pub retry: RetryPolicy,
    /// How long a model is skipped after it has failed with all retries, if another model is available. Default: 60 s.
    pub cooldown: Duration,
    /// The model that summarises messages that are removed from the prompt (L27). Default: the answering model.
    pub summary: Option<Arc<dyn Provider>>,
    /// The models that make a plan and carry it out (L24). Default: none, so turns run without a plan.
    pub planning: Option<PlanningModels>,
    /// The embedding model that finds the tools nearest to the input (L25). Default: none, so tools are compared by
    /// their words.
    pub embedder: Option<Arc<Embedder>>,
    /// The output if no model answers. With an output schema, it must be JSON that satisfies the schema. Default: none.
    pub fallback_text: Option<String>,
    cooling_until: Arc<Mutex<Vec<Option<Instant>>>>,
}

impl Models {
    /// A chain of models. Each of the others is asked only when all models before it have failed.
    pub fn new(first: Arc<dyn Provider>, others: impl IntoIterator<Item = Arc<dyn Provider>>) -> Self {
        let chain: Vec<_> = std::iter::once(first).chain(others).collect();
        let cooling_until = Arc::new(Mutex::new(vec![None; chain.len()]));
        let (retry, cooldown) = (RetryPolicy::default(), DEFAULT_COOLDOWN);
        let (summary, planning, embedder) = (None, None, None);
        Self { chain, retry, cooldown, summary, planning, embedder, fallback_text: None, cooling_until }
    }

    /// The models' secrets, each with the host that it is sent to.
    pub(crate) fn secrets(&self) -> Vec<(Redaction, SecretHolder)> {
        let given_to = |host: Option<String>| host.map_or(SecretHolder::Anyone, SecretHolder::Host);
        let asked = self.all().chain(&self.summary).map(|model| (model.secrets(), given_to(model.host())));
        let embedder = self.embedder.iter();
        let embedder = embedder.map(|embedder| (embedder.secrets().clone(), given_to(embedder.host())));
        asked.chain(embedder).collect()
    }

    /// The fallback chain, in the order in which its models are asked.
    pub fn chain(&self) -> &[Arc<dyn Provider>] {
        &self.chain
    }

    /// All models that may answer: those of the chain, and those of a plan.
    pub fn all(&self) -> impl Iterator<Item = &Arc<dyn Provider>> {
        let planning = self.planning.iter().flat_map(|planning| [&planning.planner, &planning.executor]);
        self.chain.iter().chain(planning)
    }

    /// The model for this kind of question. If planning models are no longer configured, it is the chain's model at
    /// `place`.
    pub(crate) fn model_for(&self, asked: ModelRole, place: u32) -> &Arc<dyn Provider> {
        match (&self.planning, asked) {
            (Some(planning), ModelRole::Planner | ModelRole::Synthesizer) => &planning.planner,
            (Some(planning), ModelRole::Executor { .. }) => &planning.executor,
            (_, _) => self.at(place),
        }
    }

    /// The first model of the chain.
    pub fn first(&self) -> &Arc<dyn Provider> {
        &self.chain[0]
    }

    /// The model at this place in the chain, or the last model if the chain has become shorter since the turn began.
    pub(crate) fn at(&self, place: u32) -> &Arc<dyn Provider> {
        self.chain.get(place as usize).unwrap_or(&self.chain[self.chain.len() - 1])
    }

    /// Starts the cooldown of the model at this place, during which it is skipped.
    pub(crate) fn start_cooldown(&self, place: u32) {
        if let Some(until) = self.cooling().get_mut(place as usize) {
            *until = Some(Instant::now() + self.cooldown);
        }
    }

    /// The place of the next available model if the model at `place` is cooling down. `None` if it is not, or if all
    /// models after it are cooling down, too.
    pub(crate) fn replacement_for(&self, place: u32) -> Option<u32> {
        let cooling = self.cooling();
        let now = Instant::now();
        let is_cooling = |until: &Option<Instant>| until.is_some_and(|until| until > now);
        if !cooling.get(place as usize).is_some_and(is_cooling) {
            return None;
        }
        let available = cooling.iter().enumerate().skip(place as usize + 1).find(|(_, until)| !is_cooling(until));
        available.and_then(|(place, _)| u32::try_from(place).ok())
    }

    /// The place of the model to ask after the one at `place` has failed: the next one that is not cooling down, or
    /// else simply the next one. `None` at the end of the chain.
    pub(crate) fn next_after(&self, place: u32) -> Option<u32> {
        let next = place + 1;
        if next as usize >= self.chain.len() {
            return None;
        }
        Some(self.replacement_for(next).unwrap_or(next))
    }

    fn cooling(&self) -> std::sync::MutexGuard<'_, Vec<Option<Instant>>> {
        self.cooling_until.lock().unwrap_or_else(PoisonError::into_inner)
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
    use agent_models::offline::OfflineRouter;

    /// M3: a model that is cooling down is skipped only if a later model is available.
    #[test]
    fn m3_a_cooling_model_is_skipped_while_another_is_available() {
        let model = || Arc::new(OfflineRouter::new()) as Arc<dyn Provider>;
        let models = Models::new(model(), [model(), model()]);
        assert_eq!((models.replacement_for(0), models.next_after(0), models.next_after(2)), (None, Some(1), None));
        models.start_cooldown(0);
        assert_eq!(models.replacement_for(0), Some(1));
        models.start_cooldown(1);
        assert_eq!((models.replacement_for(0), models.next_after(0)), (Some(2), Some(2)));
        models.start_cooldown(2);
        assert_eq!((models.replacement_for(0), models.next_after(0)), (None, Some(1)));
        let short = Models { cooldown: Duration::ZERO, ..models.clone() };
        (0..3).for_each(|place| short.start_cooldown(place));
        assert_eq!(models.replacement_for(0), None);
    }
}
