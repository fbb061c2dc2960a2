//! Models that are offered to the user if no model is named. An offered model is used only if the user chooses it.

use crate::text::shell_word;
use agent_models::LocalServer;

/// OpenAI model that is offered to the user, because it supports tool calls and is inexpensive.
const OPENAI_MODEL: &str = "gpt-4.1-mini";

/// A model that is offered to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelOffer {
    /// Name of the offered model, as `PROVIDER/MODEL`.
    pub name: String,
    /// Address of the offered model's provider.
    pub base_url: String,
    /// Reason why the model is offered, as a short phrase.
    pub reason: &'static str,
}

impl ModelOffer {
    /// Returns the offer to use an OpenAI model. Call this function only if `OPENAI_API_KEY` is set.
    pub fn of_openai(base_url: &str) -> Self {
        let (name, base_url) = (format!("openai/{OPENAI_MODEL}"), base_url.to_owned());
        Self { name, base_url, reason: "OPENAI_API_KEY is set" }
    }

    /// Returns an offer for each model of each model server on this machine.
    pub fn of_servers(servers: &[LocalServer]) -> Vec<Self> {
        let of_server = |server: &LocalServer| {
            let offer = |model: &String| Self {
                name: format!("{}/{model}", server.provider),
                base_url: server.base_url.clone(),
                reason: "a server on this machine",
            };
            server.models.iter().map(offer).collect::<Vec<_>>()
        };
        servers.iter().flat_map(of_server).collect()
    }

    /// Returns a hint that explains how to name the model, so that the user is not asked again.
    pub fn next_time(&self) -> String {
        let name = &self.name;
        format!(
            "next time: --model {}, or `model = {}` in agent.toml",
            shell_word(name),
            toml_edit::Value::from(name.as_str())
        )
    }
}
