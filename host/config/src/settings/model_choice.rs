//! Chooses a model if neither the options nor `agent.toml` names a model. Either the user chooses a model, or the
//! server at the base URL has only one model, which is then used.

use super::models::AT_BASE_URL;
use super::providers::OPENAI_BASE_URL;
use super::{Chain, ModelOffer, Settings};
use crate::environment::HostEnvironment;
use crate::error::ConfigError;
use crate::report::{Reporter, Warning};
use crate::text::{one_line, shell_word};
use agent_models::{Providers, local};
use async_trait::async_trait;
use std::time::Duration;

/// Environment variable that contains the key for OpenAI.
const OPENAI_KEY: &str = "OPENAI_API_KEY";
/// Maximum time to wait for model servers on this machine. The time is short, because most model servers that the host
/// looks for are usually not running.
const LOCAL_WAIT: Duration = Duration::from_millis(300);
/// Maximum time to wait for the list of models from the server at the base URL.
const LIST_WAIT: Duration = Duration::from_secs(10);
/// Maximum number of models that an error message lists.
const SHOWN_MODELS: usize = 20;

/// Lets the user choose a model if neither the options nor `agent.toml` names a model.
#[async_trait]
pub trait ModelChooser: Send + Sync {
    /// Whether the user can be asked to choose a model. If the user cannot be asked, the host does not look for model
    /// servers, and uses the built-in `offline` model.
    fn can_ask(&self) -> bool;

    /// Asks the user to choose one of the offered models. The list of offers contains at least one offer. If the user
    /// does not choose a model, returns None, and the built-in `offline` model is used.
    async fn choose(&self, offers: Vec<ModelOffer>) -> Option<ModelOffer>;

    /// Reports that `model` is used because the server at the base URL has no other model. The name of the model is
    /// safe to display.
    fn uses_only_model(&self, model: &str, base_url: &str);
}

/// Sets the model in the settings if no model is named: the model that the user chooses, or the only model of the
/// server at the base URL. If the user chooses no model, the settings do not change, and the built-in `offline` model
/// is used.
pub async fn choose_model(
    settings: &mut Settings,
    chooser: &dyn ModelChooser,
    reporter: &dyn Reporter,
) -> Result<(), ConfigError> {
    match &settings.models.chain {
        Chain::Named(_) => Ok(()),
        Chain::AtBaseUrl => use_only_model(settings, chooser).await,
        Chain::Unnamed if chooser.can_ask() => {
            let mut offers = ModelOffer::of_servers(&local::find_servers(LOCAL_WAIT).await);
            offers.extend(openai_offer(&settings.environment));
            if !offers.is_empty()
                && let Some(offer) = chooser.choose(offers).await
            {
                settings.models.choose(offer.name, "the chosen model");
            }
            Ok(())
        }
        Chain::Unnamed => {
            if let Some(offer) = openai_offer(&settings.environment) {
                reporter.warn(&Warning::UnnamedModel { key_variable: OPENAI_KEY, model: offer.name });
            }
            Ok(())
        }
    }
}

fn openai_offer(environment: &HostEnvironment) -> Option<ModelOffer> {
    let variable = |name| environment.variable(name).filter(|value| !value.trim().is_empty());
    variable(OPENAI_KEY)?;
    let known = agent_models::known_provider(AT_BASE_URL)?;
    Some(ModelOffer::of_openai(&variable(OPENAI_BASE_URL).unwrap_or_else(|| known.base_url.to_owned())))
}

async fn use_only_model(settings: &mut Settings, chooser: &dyn ModelChooser) -> Result<(), ConfigError> {
    let url = settings.models.base_url.clone().unwrap_or_default();
    // The list of models depends only on the address and the key. The name `MODEL` is only a placeholder for a
    // model's name.
    let mut placeholder_settings = settings.clone();
    placeholder_settings.models.choose_at_base_url("MODEL");
    let (_, providers) = placeholder_settings.models()?;
    let listed = Providers::new(providers).list_models(AT_BASE_URL, LIST_WAIT).await;
    match listed.as_deref() {
        Some([only]) => {
            chooser.uses_only_model(&one_line(only, 100), &url);
            settings.models.choose_at_base_url(only);
            Ok(())
        }
        Some([]) => Err(ConfigError::settings(format!("the server at {url} has no models; load a model there"))),
        Some(models) => Err(ConfigError::Settings(ambiguous_model(&url, models))),
        None => Err(ConfigError::settings(format!(
            "the list of models cannot be read from {url}/models: check that the server is running and that the address \
             is correct (the address often ends with `/v1`), or name the model with --model NAME"
        ))),
    }
}

fn ambiguous_model(url: &str, models: &[String]) -> String {
    let shown =
        models.iter().take(SHOWN_MODELS).map(|model| format!("\n  --model {}", shell_word(&one_line(model, 200))));
    let more = match models.len().saturating_sub(SHOWN_MODELS) {
        0 => String::new(),
        more => format!("\n  and {more} more"),
    };
    format!("the server at {url} has {} models; choose one of them:{}{more}", models.len(), shown.collect::<String>())
}
