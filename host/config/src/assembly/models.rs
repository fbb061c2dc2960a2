//! Builds the models of an agent from its settings.

use crate::error::ConfigError;
use crate::settings::{Helpers, NamedModel, Settings};
use agent_models::{Embedder, Provider, Providers, RetryPolicy};
use agent_runtime::{Models, PlanningModels};
use std::sync::Arc;
use std::time::Duration;

/// Builds the models of an agent. The error lists every model that cannot be used.
pub fn models(settings: &Settings) -> Result<Models, ConfigError> {
    let (named, providers) = settings.models()?;
    let providers = Providers::new(providers);
    let (mut chain, mut problems): (Vec<Arc<dyn Provider>>, Vec<String>) = Default::default();
    for model in named {
        match providers.model(&model.name, &model.base) {
            Ok(model) => chain.push(model),
            Err(error) => problems.push(format!("{}: {error}", model.place)),
        }
    }
    // The summary model is the last model in the list if all models can be used. If a model cannot
    // be used, it is missing from the list, and the last model may be a different model.
    let summary = settings.models.summary.as_ref().filter(|_| problems.is_empty()).and_then(|_| chain.pop());
    let mut chain = chain.into_iter();
    let Some(first) = chain.next().filter(|_| problems.is_empty()) else {
        return Err(ConfigError::Settings(problems.join("\n")));
    };
    let (planning, embedder) = helper_models(settings, &providers, &first)?;
    let mut models = Models::new(first, chain);
    (models.planning, models.embedder) = (planning, embedder);
    models.retry = retry_policy(settings);
    models.fallback_text = settings.file.fallback_text.clone();
    models.summary = summary;
    if let Some(cooldown) = settings.file.model_cooldown_ms {
        models.cooldown = milliseconds(cooldown);
    }
    Ok(models)
}

/// Builds the planner, the executor and the embedding model (L24, L25).
fn helper_models(
    settings: &Settings,
    providers: &Providers,
    first: &Arc<dyn Provider>,
) -> Result<(Option<PlanningModels>, Option<Arc<Embedder>>), ConfigError> {
    let Helpers { planner, executor, embedding } = &settings.models.helpers;
    let model_error = |named: &NamedModel, error| ConfigError::settings(format!("{}: {error}", named.place));
    let model =
        |named: &NamedModel| providers.model(&named.name, &named.base).map_err(|error| model_error(named, error));
    let planning = match planner {
        None => None,
        Some(planner) => {
            let executor = executor.as_ref().map_or_else(|| Ok(first.clone()), model)?;
            Some(PlanningModels { planner: model(planner)?, executor })
        }
    };
    let embedder =
        embedding.as_ref().map(|named| providers.embedder(&named.name).map_err(|error| model_error(named, error)));
    let embedder = embedder.transpose()?.map(|embedder| Arc::new(embedder.with_retry(retry_policy(settings))));
    Ok((planning, embedder))
}

/// Returns the retry policy of the settings. Values that the settings do not set keep their defaults.
pub fn retry_policy(settings: &Settings) -> RetryPolicy {
    let (file, defaults) = (&settings.file.retry, RetryPolicy::default());
    let duration_or = |value: Option<u32>, default| value.map_or(default, milliseconds);
    RetryPolicy {
        attempts: file.attempts.unwrap_or(defaults.attempts),
        initial_wait: duration_or(file.first_wait_ms, defaults.initial_wait),
        max_wait: duration_or(file.longest_wait_ms, defaults.max_wait),
        total: duration_or(file.total_ms, defaults.total),
    }
}

fn milliseconds(number: u32) -> Duration {
    Duration::from_millis(u64::from(number))
}

/// Builds the model whose name the user entered in a session.
pub fn model_named(settings: &Settings, name: &str) -> Result<Arc<dyn Provider>, ConfigError> {
    let mut changed = settings.clone();
    changed.models.switch_to(name, &changed.file);
    models(&changed).map(|models| models.first().clone())
}
