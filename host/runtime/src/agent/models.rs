//! An agent's models: the fallback chain, whose models are asked in order, and the cooldowns after failures (M3).

use agent_core::redaction::Redaction;
use agent_core::run::ModelRole;
use agent_models::{Embedder, Provider, RetryPolicy};
use agent_plugins::SecretHolder;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Default duration for which a model is skipped after a call and all of its retries have failed.
pub const DEFAULT_COOLDOWN: Duration = Duration::from_secs(60);

/// The models that make a plan for a turn, and the models that carry the plan out (L24).
#[derive(Clone)]
pub struct PlanningModels {
    /// The model that makes the plan and writes the answer.
    pub planner: Arc<dyn Provider>,
    /// The model that carries out the steps of the plan.
    pub executor: Arc<dyn Provider>,
}

/// The models of an agent. All clones of this value share the cooldowns of the models.
#[derive(Clone)]
pub struct Models {
    chain: Vec<Arc<dyn Provider>>,
    /// Retry policy for each call of one model.
    pub retry: RetryPolicy,
    /// Duration for which a model is skipped after a call and all of its retries have failed, if another model is
    /// available. The default is 60 s.
    pub cooldown: Duration,
    /// The model that summarises messages that are removed from the prompt (L27). The default is the model that answers
    /// the user.
    pub summary: Option<Arc<dyn Provider>>,
    /// The models that make and execute the plan of a turn (L24). The default is `None`: turns run
    /// without a plan.
    pub planning: Option<PlanningModels>,
    /// The embedding model that selects the tools that match the input best (L25). The default is `None`. Without an
    /// embedding model, the host selects tools by comparing the words of the input with the words of the tools' names
    /// and descriptions.
    pub embedder: Option<Arc<Embedder>>,
    /// The output of a turn in which no model replies. If the agent has an output schema, the text must be JSON that
    /// satisfies the schema. The default is `None`.
    pub fallback_text: Option<String>,
    /// The provider that runs a direct call instead of asking a model. The other models then only answer plugins.
    direct_call: Option<Arc<dyn Provider>>,
    cooling_until: Arc<Mutex<Vec<Option<Instant>>>>,
}

impl Models {
    /// Creates a chain of models. Each model in `others` is asked only if all models before it have failed.
    pub fn new(first: Arc<dyn Provider>, others: impl IntoIterator<Item = Arc<dyn Provider>>) -> Self {
        let chain: Vec<_> = std::iter::once(first).chain(others).collect();
        let cooling_until = Arc::new(Mutex::new(vec![None; chain.len()]));
        let (retry, cooldown) = (RetryPolicy::default(), DEFAULT_COOLDOWN);
        let (summary, planning, embedder) = (None, None, None);
        let (fallback_text, direct_call) = (None, None);
        Self { chain, retry, cooldown, summary, planning, embedder, fallback_text, direct_call, cooling_until }
    }

    /// Returns these models for a turn that runs a direct call with this provider.
    pub(super) fn for_direct_call(&self, provider: Arc<dyn Provider>) -> Self {
        Self { direct_call: Some(provider), planning: None, fallback_text: None, ..self.clone() }
    }

    /// Returns the secrets of the agent's models, for example API keys. Each secret is returned together with the
    /// network host to which it is sent.
    pub(crate) fn secrets(&self) -> Vec<(Redaction, SecretHolder)> {
        let given_to = |host: Option<String>| host.map_or(SecretHolder::Anyone, SecretHolder::Host);
        let models = self.all().chain(&self.summary).map(|model| (model.secrets(), given_to(model.host())));
        let embedder = self.embedder.iter();
        let embedder = embedder.map(|embedder| (embedder.secrets().clone(), given_to(embedder.host())));
        models.chain(embedder).collect()
    }

    /// Returns the fallback chain in the order in which its models are asked.
    pub fn chain(&self) -> &[Arc<dyn Provider>] {
        &self.chain
    }

    /// Returns all models that may be asked in a turn: the models of the fallback chain, and the planning models.
    pub fn all(&self) -> impl Iterator<Item = &Arc<dyn Provider>> {
        let planning = self.planning.iter().flat_map(|planning| [&planning.planner, &planning.executor]);
        self.chain.iter().chain(planning)
    }

    /// Returns the model that handles requests of this role. For [`ModelRole::Agent`], or if no planning models are
    /// configured, the result is the model at `index` in the fallback chain.
    pub(crate) fn model_for(&self, role: ModelRole, index: u32) -> &Arc<dyn Provider> {
        if let Some(direct_call) = &self.direct_call {
            return direct_call;
        }
        match (&self.planning, role) {
            (Some(planning), ModelRole::Planner | ModelRole::Synthesizer) => &planning.planner,
            (Some(planning), ModelRole::Executor { .. }) => &planning.executor,
            (_, _) => self.at(index),
        }
    }

    /// Returns the first model of the fallback chain.
    pub fn first(&self) -> &Arc<dyn Provider> {
        &self.chain[0]
    }

    /// Returns the model at this index in the fallback chain, or the last model if the chain has become shorter since
    /// the turn began.
    pub(crate) fn at(&self, index: u32) -> &Arc<dyn Provider> {
        self.chain.get(index as usize).unwrap_or(&self.chain[self.chain.len() - 1])
    }

    /// Starts the cooldown of the model at this index of the fallback chain. The model is skipped until the
    /// cooldown ends.
    pub(crate) fn start_cooldown(&self, index: u32) {
        if let Some(until) = self.lock_cooling_until().get_mut(index as usize) {
            *until = Some(Instant::now() + self.cooldown);
        }
    }

    /// If the model at `index` is cooling down, returns the index of the next model that is not cooling down. Returns
    /// `None` if the model at `index` is not cooling down, or if all models after it are also cooling down.
    pub(crate) fn replacement_for(&self, index: u32) -> Option<u32> {
        let cooling = self.lock_cooling_until();
        let now = Instant::now();
        let is_cooling = |until: &Option<Instant>| until.is_some_and(|until| until > now);
        if self.direct_call.is_some() || !cooling.get(index as usize).is_some_and(is_cooling) {
            return None;
        }
        let available = cooling.iter().enumerate().skip(index as usize + 1).find(|(_, until)| !is_cooling(until));
        available.and_then(|(index, _)| u32::try_from(index).ok())
    }

    /// Returns the index of the model to ask after the model at `index` has failed. The result is the next model in the
    /// chain that is not cooling down. If all later models are cooling down, the result is the model directly after
    /// `index`. Returns `None` if the model at `index` is the last model.
    pub(crate) fn next_after(&self, index: u32) -> Option<u32> {
        let next = index + 1;
        if next as usize >= self.chain.len() {
            return None;
        }
        Some(self.replacement_for(next).unwrap_or(next))
    }

    fn lock_cooling_until(&self) -> std::sync::MutexGuard<'_, Vec<Option<Instant>>> {
        self.cooling_until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<Arc<dyn Provider>> for Models {
    fn from(model: Arc<dyn Provider>) -> Self {
        Self::new(model, [])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_models::offline::OfflineRouter;

    /// M3: a model that is cooling down is skipped only if a later model in the chain is not cooling down.
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
        (0..3).for_each(|index| short.start_cooldown(index));
        assert_eq!(models.replacement_for(0), None);
    }
}
