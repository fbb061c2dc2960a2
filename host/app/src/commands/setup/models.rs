//! The models that `setup` offers: the present choice, models of servers on this machine, one model for each provider whose
//! key is set, and the built-in model.

use agent_config::settings::{AgentOptions, WantedModels};
use agent_config::{AgentFile, HostEnvironment};
use agent_models::{KNOWN_PROVIDERS, local};
use std::time::Duration;

/// The built-in model, which is offered last.
pub(super) const OFFLINE: &str = "offline";
/// Maximum time to wait for the servers on this machine.
const LOCAL_WAIT: Duration = Duration::from_millis(500);
/// Maximum number of models of servers on this machine that are offered.
const MAX_LOCAL: usize = 6;
/// A model of each provider that supports tool calls and is inexpensive for its quality.
const SUGGESTIONS: [(&str, &str); 7] = [
    ("openai", "gpt-4.1-mini"),
    ("anthropic", "claude-sonnet-4-6"),
    ("gemini", "gemini-3.6-flash"),
    ("groq", "openai/gpt-oss-120b"),
    ("deepseek", "deepseek-v4-flash"),
    ("mistral", "mistral-medium-latest"),
    ("openrouter", "openai/gpt-4.1-mini"),
];

/// A model that the user can choose by its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OfferedModel {
    /// Name of the model, as `PROVIDER/MODEL`.
    pub(super) name: String,
    /// The reason why the model is offered, as a short phrase.
    pub(super) reason: String,
}

/// Returns the models to offer. The first model is the default. The list is never empty.
pub(super) async fn offers(present: Option<&str>, environment: &HostEnvironment) -> Vec<OfferedModel> {
    let servers = local::find_servers(LOCAL_WAIT).await;
    let of_servers = servers.into_iter().flat_map(|server| {
        let reason = format!("a server on this machine at {}", server.base_url);
        let offer = move |model| OfferedModel { name: format!("{}/{model}", server.provider), reason: reason.clone() };
        server.models.into_iter().map(offer).collect::<Vec<_>>()
    });
    let present = present.map(|name| OfferedModel { name: name.to_owned(), reason: "the present choice".to_owned() });
    let mut offers: Vec<OfferedModel> = present.into_iter().collect();
    let others = of_servers
        .take(MAX_LOCAL)
        .chain(of_keys(environment))
        .chain([OfferedModel { name: OFFLINE.to_owned(), reason: "built in; not a language model".to_owned() }]);
    for offer in others {
        if offers.iter().all(|other| other.name != offer.name) {
            offers.push(offer);
        }
    }
    offers
}

fn of_keys(environment: &HostEnvironment) -> Vec<OfferedModel> {
    let offer = |(provider, model): &(&str, &str)| {
        let variable = usual_variable(provider)?;
        environment.variable(variable).filter(|key| !key.trim().is_empty())?;
        Some(OfferedModel { name: format!("{provider}/{model}"), reason: format!("{variable} is set") })
    };
    SUGGESTIONS.iter().filter_map(offer).collect()
}

/// Returns the environment variable that usually contains the key of this provider.
pub(super) fn usual_variable(provider: &str) -> Option<&'static str> {
    KNOWN_PROVIDERS.iter().find(|known| known.name == provider)?.key_variable
}

/// Returns the reason why a text is not the name of a model that can be used with the providers of this file.
pub(super) fn provider_problem(model: &str, file: &AgentFile) -> Option<String> {
    let options = AgentOptions { model: Some(model.to_owned()), ..AgentOptions::default() };
    let file = AgentFile { providers: file.providers.clone(), ..AgentFile::default() };
    WantedModels::new(&options, &file).err().or_else(|| agent_config::settings::model_problem(model, &file))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// M2: a model is offered only for providers whose key is set, the present choice is the default, and the built-in model
    /// is always offered.
    #[tokio::test]
    async fn m2_offers_models_whose_key_is_set() {
        let environment = HostEnvironment::new(|name| match name {
            "GROQ_API_KEY" => Some("hush".to_owned()),
            "OPENAI_API_KEY" => Some(" ".to_owned()),
            _ => None,
        });
        let names = |offers: &[OfferedModel]| offers.iter().map(|offer| offer.name.clone()).collect::<Vec<_>>();
        let of_keys = names(&of_keys(&environment));
        assert_eq!(of_keys, ["groq/openai/gpt-oss-120b"]);
        let offers = offers(Some("mistral/mine"), &environment).await;
        assert_eq!(offers[0].name, "mistral/mine");
        assert_eq!(offers.last().map(|offer| offer.name.as_str()), Some(OFFLINE));
        assert!(offers.iter().all(|offer| !offer.reason.contains("hush")), "{offers:?}");
    }

    /// Every suggestion is a model of a known provider, and every provider that needs a key has a suggestion.
    #[test]
    fn suggestions_cover_all_providers_with_keys() {
        let with_key = KNOWN_PROVIDERS.iter().filter(|known| known.key_variable.is_some()).map(|known| known.name);
        assert_eq!(with_key.collect::<Vec<_>>(), SUGGESTIONS.map(|(provider, _)| provider));
        for (provider, model) in SUGGESTIONS {
            assert_eq!(provider_problem(&format!("{provider}/{model}"), &AgentFile::default()), None);
        }
        for wrong in ["gpt-9", "openai/", "nobody/model"] {
            assert!(provider_problem(wrong, &AgentFile::default()).is_some(), "{wrong}");
        }
    }
}
