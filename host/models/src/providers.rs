//! Creates a model from its configured name (M2).

use crate::cassette::ReplayedModel;
use crate::configuration::{KNOWN_PROVIDERS, ProviderConfig, known_provider};
use crate::error::ModelError;
use crate::http::{Connection, Embedder, HttpModel};
use crate::offline::OfflineRouter;
use crate::provider::Provider;
use crate::scripted::ScriptedModel;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Names of models that need no configuration, each with a short description for error messages.
pub const BUILT_IN_MODELS: &[(&str, &str)] = &[
    ("offline", "built in; a router, not a language model"),
    ("scripted:FILE", "a file of replies"),
    ("replay:FILE", "a recorded conversation"),
];

/// Creates a model that needs no configured provider: `offline` or `scripted:FILE`.
///
/// A relative path of a script is resolved against `base`. The names `offline/router` and `scripted/FILE`, which stored
/// replies contain, are accepted as well.
///
/// # Errors
///
/// Returns an error if the name is unknown or the script cannot be read.
pub fn provider(name: &str, base: &Path) -> Result<Arc<dyn Provider>, ModelError> {
    Providers::default().model(name, base)
}

/// All configured providers. Clones share their connections.
#[derive(Clone, Debug, Default)]
pub struct Providers {
    configured: Arc<[Configured]>,
}

/// A configured provider and its connection. The connection is created when the first model of the provider
/// is requested.
struct Configured {
    config: ProviderConfig,
    connection: OnceLock<Arc<Connection>>,
}

impl Providers {
    /// Creates the set of configured providers. The built-in models `offline` and `scripted` are always available.
    pub fn new(configured: Vec<ProviderConfig>) -> Self {
        let configured = configured.into_iter().map(|config| Configured { config, connection: OnceLock::new() });
        Self { configured: configured.collect() }
    }

    /// Creates the model with the given name. The name is `offline`, `scripted:FILE`, or `PROVIDER/MODEL` with the name
    /// of a configured provider.
    ///
    /// The name of the model may contain further slashes. The provider is not contacted, so this function does not
    /// notice if the provider has no such model.
    ///
    /// # Errors
    ///
    /// Returns an error if the provider is unknown, its configuration is invalid or a script cannot be read.
    pub fn model(&self, name: &str, base: &Path) -> Result<Arc<dyn Provider>, ModelError> {
        let (kind, rest) = name.split_once([':', '/']).unwrap_or((name, ""));
        match (kind, rest) {
            ("offline", "" | "router") => Ok(Arc::new(OfflineRouter::new())),
            ("scripted", file) if !file.is_empty() => Ok(Arc::new(ScriptedModel::open(file, base)?)),
            ("replay", file) if !file.is_empty() => Ok(Arc::new(ReplayedModel::open(file, base)?)),
            ("record", rest) if rest.contains(':') => {
                let (file, model) = rest.split_once(':').unwrap_or_default();
                let (configured, model) = self.split(model).ok_or_else(|| ModelError::UnknownProvider {
                    name: name.to_owned(),
                    allowed: "`record:FILE:PROVIDER/MODEL` with a configured provider".to_owned(),
                })?;
                Ok(Arc::new(HttpModel::new(configured.connection()?, model).recording_to(base.join(file))?))
            }
            _ => match self.split(name) {
                Some((configured, model)) => Ok(Arc::new(HttpModel::new(configured.connection()?, model))),
                None => Err(ModelError::UnknownProvider { name: name.to_owned(), allowed: self.allowed(kind) }),
            },
        }
    }

    /// Creates the embedding model `PROVIDER/MODEL` of a configured provider. The provider is not contacted.
    ///
    /// # Errors
    ///
    /// Returns an error if the provider is unknown or its configuration is invalid.
    pub fn embedder(&self, name: &str) -> Result<Embedder, ModelError> {
        match self.split(name) {
            Some((configured, model)) => Ok(Embedder::new(configured.connection()?, model)),
            None => {
                let kind = name.split_once('/').map_or(name, |(kind, _)| kind);
                Err(ModelError::UnknownProvider { name: name.to_owned(), allowed: self.allowed(kind) })
            }
        }
    }

    /// Requests the list of models from a configured provider, using the provider's configured key. Returns `None` if
    /// no list arrives within `timeout`.
    pub async fn list_models(&self, provider: &str, timeout: Duration) -> Option<Vec<String>> {
        self.find(provider)?.connection().ok()?.models(timeout).await
    }

    /// Splits `PROVIDER/MODEL` into the configured provider and the name that this provider uses for the model. Returns
    /// `None` if the name does not have this form or the provider is not configured.
    fn split<'n>(&self, name: &'n str) -> Option<(&Configured, &'n str)> {
        let (provider, model) = name.split_once('/').filter(|(_, model)| !model.is_empty())?;
        Some((self.find(provider)?, model))
    }

    fn find(&self, provider: &str) -> Option<&Configured> {
        self.configured.iter().find(|configured| configured.config.name == provider)
    }

    /// Describes the allowed model names, for an error about a model name that begins with the provider `wanted`.
    fn allowed(&self, wanted: &str) -> String {
        let mut names: Vec<String> =
            self.configured.iter().map(|configured| format!("`{}/MODEL`", configured.config.name)).collect();
        names.extend(BUILT_IN_MODELS.iter().map(|(name, meaning)| format!("`{name}` ({meaning})")));
        let last = names.pop().unwrap_or_default();
        let names = if names.is_empty() { last } else { format!("{} or {last}", names.join(", ")) };
        if self.find(wanted).is_some() {
            return names;
        }
        match known_provider(wanted) {
            Some(known) => {
                let key = known.key_variable.map(|variable| format!(", set `{variable}`")).unwrap_or_default();
                format!("{names}. For `{wanted}`{key} and add `[providers.{wanted}]` to agent.toml")
            }
            None => format!(
                "{names}. For another server, add `[providers.NAME]` with `base_url = \"https://…/v1\"` to agent.toml, or \
                 pass `--base-url URL`{}",
                self.unconfigured_providers()
            ),
        }
    }

    /// Returns the list of the known providers that are not configured, as the end of an error message. Returns an
    /// empty string if all known providers are configured.
    fn unconfigured_providers(&self) -> String {
        let known = KNOWN_PROVIDERS.iter().filter(|known| self.find(known.name).is_none());
        let names: Vec<String> = known.map(|known| format!("`{}`", known.name)).collect();
        if names.is_empty() {
            String::new()
        } else {
            format!(". Providers with a built-in address: {}", names.join(", "))
        }
    }
}

impl Configured {
    /// Returns the connection and creates it if necessary. If two callers create a connection at the same time, one of
    /// the two connections is dropped.
    fn connection(&self) -> Result<Arc<Connection>, ModelError> {
        match self.connection.get() {
            Some(connection) => Ok(connection.clone()),
            None => {
                let connection = Arc::new(Connection::new(self.config.clone())?);
                Ok(self.connection.get_or_init(|| connection).clone())
            }
        }
    }
}

impl fmt::Debug for Configured {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Configured").field(&self.config.name).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// M2, M4: the names of models that need no configuration are resolved.
    #[test]
    fn names_of_unconfigured_models_are_resolved() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("replies.json"), r#"{"text": "hello"}"#).unwrap();
        let absolute = directory.path().join("replies.json").display().to_string();
        let cases = [
            ("offline".to_owned(), "offline/router".to_owned()),
            ("offline/router".to_owned(), "offline/router".to_owned()),
            ("scripted:replies.json".to_owned(), "scripted/replies.json".to_owned()),
            ("scripted/replies.json".to_owned(), "scripted/replies.json".to_owned()),
            (format!("scripted:{absolute}"), format!("scripted/{absolute}")),
        ];
        for (name, expected) in cases {
            let provider = provider(&name, directory.path()).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(provider.info().model.to_string(), expected);
        }
    }

    #[test]
    fn the_error_for_an_unknown_name_lists_the_known_names() {
        for name in ["", "gpt", "openai/gpt", "scripted", "scripted:", "offline/gpt"] {
            let error = provider(name, Path::new(".")).err().unwrap();
            assert!(matches!(&error, ModelError::UnknownProvider { name: unknown, .. } if unknown == name));
        }
        insta::assert_snapshot!(
            provider("openai/gpt", Path::new(".")).err().unwrap(),
            @"`openai/gpt` is not a known model: use `offline` (built in; a router, not a language model), `scripted:FILE` (a file of replies) or `replay:FILE` (a recorded conversation). For `openai`, set `OPENAI_API_KEY` and add `[providers.openai]` to agent.toml"
        );
    }

    /// M2: a model name may contain slashes and colons, and a configured provider cannot replace a built-in model.
    #[test]
    fn m2_configured_model_names_are_resolved() {
        let config = |name: &str| ProviderConfig {
            name: name.into(),
            base_url: "http://127.0.0.1:1/v1".into(),
            key: None,
            key_advice: String::new(),
            headers: vec![],
            protocol: Default::default(),
            timeouts: Default::default(),
            models: Default::default(),
        };
        let providers = Providers::new(vec![config("mine"), config("openrouter"), config("offline")]);
        let name = |name: &str| {
            let model = providers.model(name, Path::new("."));
            model.map(|model| (model.info().model.provider.clone(), model.info().model.name.clone()))
        };
        let pair = |provider: &str, model: &str| (provider.to_owned(), model.to_owned());
        assert_eq!(name("mine/llama3.2:1b").unwrap(), pair("mine", "llama3.2:1b"));
        assert_eq!(name("openrouter/openai/gpt-4o:free").unwrap(), pair("openrouter", "openai/gpt-4o:free"));
        assert_eq!(name("offline/router").unwrap(), pair("offline", "router"));
        insta::assert_snapshot!(name("mine/").unwrap_err(), @"`mine/` is not a known model: use `mine/MODEL`, `openrouter/MODEL`, `offline/MODEL`, `offline` (built in; a router, not a language model), `scripted:FILE` (a file of replies) or `replay:FILE` (a recorded conversation)");
        insta::assert_snapshot!(name("gpt-4o").unwrap_err(), @r#"`gpt-4o` is not a known model: use `mine/MODEL`, `openrouter/MODEL`, `offline/MODEL`, `offline` (built in; a router, not a language model), `scripted:FILE` (a file of replies) or `replay:FILE` (a recorded conversation). For another server, add `[providers.NAME]` with `base_url = "https://…/v1"` to agent.toml, or pass `--base-url URL`. Providers with a built-in address: `openai`, `anthropic`, `gemini`, `groq`, `deepseek`, `mistral`, `ollama`, `lmstudio`, `llama-cpp`, `vllm`"#);
    }

    /// M2: the known price of a model is used only if the base URL is the provider's official address.
    #[test]
    fn m2_known_prices_apply_at_the_official_address() {
        let price = |base_url: &str| {
            let config = ProviderConfig {
                name: "openai".into(),
                base_url: base_url.into(),
                key: None,
                key_advice: String::new(),
                headers: vec![],
                protocol: Default::default(),
                timeouts: Default::default(),
                models: Default::default(),
            };
            let model = Providers::new(vec![config]).model("openai/gpt-4.1-mini", Path::new(".")).unwrap();
            model.info().price
        };
        assert!(price("https://api.openai.com/v1").is_some());
        assert_eq!(price("http://127.0.0.1:8000/v1"), None);
    }

    #[test]
    fn a_missing_script_is_named_in_the_error() {
        let error = provider("scripted:absent.json", Path::new("/nowhere")).err().unwrap();
        assert!(error.to_string().starts_with("the script /nowhere/absent.json cannot be read: "), "{error}");
    }
}
