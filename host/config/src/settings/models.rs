//! Determines the models of an agent. The options `--model` and `--base-url` override the models in `agent.toml`. If no
//! model is set in the options or in the file, the model is `offline` (M2).

use super::AgentOptions;
use crate::agent_file::{AgentFile, BUILT_IN, Located, nearest};
use agent_models::{KNOWN_PROVIDERS, known_provider};
use std::path::PathBuf;

/// Name of the model that is used if no model is named.
pub(super) const OFFLINE: &str = "offline";
/// If `--base-url` is set, this is the provider of each model whose name contains no provider.
pub(super) const AT_BASE_URL: &str = "openai";

/// The models that are set in the command-line options or in the agent file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedModels {
    /// The first model and its fallback models.
    pub chain: Chain,
    /// Model that summarises evicted messages. If no summary model is set, the model that wrote the reply writes
    /// the summaries.
    pub summary: Option<NamedModel>,
    /// The planner, the executor and the embedding model, which each do a single task.
    pub helpers: Helpers,
    /// Address of the first model's provider, from the options.
    pub base_url: Option<String>,
}

/// Models that each do a single task: making plans, carrying out plans, or selecting tools (L24, L25).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Helpers {
    /// Model that makes plans. If no planner is set, turns run without a plan.
    pub planner: Option<NamedModel>,
    /// Model that carries out plans. If no executor is set, the agent's first model carries out the plans.
    pub executor: Option<NamedModel>,
    /// Embedding model that selects the offered tools. If no model is set, tools are selected by the words in
    /// their descriptions.
    pub embedding: Option<NamedModel>,
}

/// The first model and its fallback models, as set in the command-line options or in the agent file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chain {
    /// At least one model, in the order in which the models are called.
    Named(Vec<NamedModel>),
    /// The only model of the server at the base URL. The model's name is not known yet.
    AtBaseUrl,
    /// The model is set neither in the options nor in the file.
    Unnamed,
}

/// The name of a model, with the location where it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedModel {
    /// `PROVIDER/MODEL`, or the name of a built-in model.
    pub name: String,
    /// Location of the model's name, such as `agent.toml:3: model` or `--model`, for messages.
    pub place: String,
    /// The folder to which a relative path in the name refers, if the name is, for example, `scripted:replies.json`.
    pub base: PathBuf,
}

impl WantedModels {
    /// Name of the model that is used if no model is named.
    #[cfg(test)]
    pub fn default_model() -> &'static str {
        OFFLINE
    }

    /// Combines the models in the options with the models in the file. A model in the options replaces the model, the
    /// fallback models and the summary model of the file.
    pub fn new(options: &AgentOptions, file: &AgentFile) -> Result<Self, String> {
        let from_file = |located: &Located| NamedModel {
            name: located.value.clone(),
            place: located.location.clone(),
            base: file.folder.clone(),
        };
        let base_url = options.base_url.as_ref().map(|url| url.trim_end_matches('/').to_owned());
        let mut chain = match (&options.model, &file.model) {
            (Some(model), _) => {
                vec![NamedModel { name: model.clone(), place: "--model".to_owned(), base: PathBuf::new() }]
            }
            (None, Some(model)) => std::iter::once(model).chain(&file.fallback_models).map(from_file).collect(),
            (None, None) => Vec::new(),
        };
        let chain = match (chain.first_mut(), &base_url) {
            (None, None) => Chain::Unnamed,
            (None, Some(_)) => Chain::AtBaseUrl,
            (Some(first), Some(_)) if provider_of(&first.name).is_some_and(|name| BUILT_IN.contains(&name)) => {
                return Err(format!(
                    "--base-url is the address of a provider, but `{}` ({}) has no provider: remove either setting",
                    first.name, first.place
                ));
            }
            (Some(first), Some(_)) if !is_known(&first.name, file) => {
                first.name = format!("{AT_BASE_URL}/{}", first.name);
                Chain::Named(chain)
            }
            _ => Chain::Named(chain),
        };
        let summary = file.summary_model.as_ref().filter(|_| options.model.is_none()).map(from_file);
        let helper = |located: &Option<Located>| located.as_ref().map(from_file);
        let (planner, executor) = (helper(&file.planner), helper(&file.executor));
        let helpers = Helpers { planner, executor, embedding: helper(&file.embedding_model) };
        Ok(Self { chain, summary, helpers, base_url })
    }

    /// Replaces the chain with a single model. `place` is the location of the choice, for messages.
    pub fn choose(&mut self, name: String, place: &str) {
        let chosen = NamedModel { name, place: place.to_owned(), base: PathBuf::new() };
        self.chain = Chain::Named(vec![chosen]);
    }

    /// Switches to a model that the user names in a session. If a base URL is set and the name does not begin with a
    /// known provider, the name belongs to a model of the server at the base URL.
    pub fn switch_to(&mut self, name: &str, file: &AgentFile) {
        match self.base_url.is_some() && !is_known(name, file) {
            true => self.choose_at_base_url(name),
            false => {
                if self.provider_at_base_url().map(|(provider, _)| provider) != provider_of(name) {
                    self.base_url = None;
                }
                self.choose(name.to_owned(), "/model");
            }
        }
    }

    /// Replaces the chain with a model of the server at the base URL.
    pub fn choose_at_base_url(&mut self, model: &str) {
        self.choose(format!("{AT_BASE_URL}/{model}"), "--base-url");
    }

    /// Returns the models in the order in which they are called. If no model is named, returns `offline`.
    pub fn named(&self) -> Vec<NamedModel> {
        match &self.chain {
            Chain::Named(chain) => chain.clone(),
            _ => vec![NamedModel { name: OFFLINE.to_owned(), place: "the default".to_owned(), base: PathBuf::new() }],
        }
    }

    /// Returns the first model, the fallback models, and the summary model if one is named.
    pub fn chain_and_summary(&self) -> Vec<NamedModel> {
        self.named().into_iter().chain(self.summary.clone()).collect()
    }

    /// Returns all models, including planner, executor and embedding model. The models of the chain come first.
    pub fn all_named(&self) -> Vec<NamedModel> {
        let Helpers { planner, executor, embedding } = &self.helpers;
        let helpers = [&self.summary, planner, executor, embedding].into_iter().flatten().cloned();
        self.named().into_iter().chain(helpers).collect()
    }

    /// Returns the name and the address of the provider at the base URL of the options, or None if no base URL is set.
    pub fn provider_at_base_url(&self) -> Option<(&str, &str)> {
        let Chain::Named(chain) = &self.chain else { return None };
        Some((provider_of(&chain.first()?.name)?, self.base_url.as_deref()?))
    }
}

/// Returns the model whose replies the model `record:FILE:PROVIDER/MODEL` records, or None if the name does not have
/// this form.
fn recorded_model(name: &str) -> Option<&str> {
    Some(name.strip_prefix("record:")?.split_once(':')?.1)
}

/// Returns the provider in the name of a model: the part before the `/`, or the name of a built-in provider. Returns
/// None if the name contains no provider.
pub fn provider_of(name: &str) -> Option<&str> {
    let name = recorded_model(name).unwrap_or(name);
    let built_in = |built_in: &&&str| name.split([':', '/']).next() == Some(built_in);
    let slash = || name.split_once('/').map(|(provider, _)| provider);
    BUILT_IN.iter().find(built_in).copied().or_else(slash)
}

/// Returns the reason why a name cannot be the name of a model, or None if the provider in the name is known.
pub fn problem(name: &str, file: &AgentFile) -> Option<String> {
    if is_known(name, file) {
        let no_model = name.split_once('/').is_some_and(|(_, model)| model.trim().is_empty());
        return no_model.then(|| format!("`{name}` names a provider but no model: write `{name}MODEL`"));
    }
    let configured = file.providers.keys().map(String::as_str);
    let known: Vec<_> = configured.chain(KNOWN_PROVIDERS.iter().map(|known| known.name)).chain([OFFLINE]).collect();
    let provider = provider_of(name).unwrap_or(name);
    let suggestion = nearest(provider, known.iter().copied()).map(|suggestion| match name.split_once('/') {
        Some((_, model)) => format!("Did you mean `{suggestion}/{model}`? "),
        None if BUILT_IN.contains(&suggestion) => format!("Did you mean `{suggestion}`? "),
        None => format!("Did you mean `{suggestion}/MODEL`? "),
    });
    let problem = match name.contains('/') {
        true => format!("`{provider}` in `{name}` is not a known provider"),
        false => format!("`{name}` does not name a provider"),
    };
    let known = KNOWN_PROVIDERS.iter().map(|known| known.name).collect::<Vec<_>>().join(", ");
    let configured_names = match file.providers.keys().map(String::as_str).collect::<Vec<_>>().join(", ") {
        configured_names if configured_names.is_empty() => configured_names,
        configured_names => format!("; configured: {configured_names}"),
    };
    Some(format!(
        "{problem}. {}A model is `PROVIDER/MODEL`, `offline` or `scripted:FILE`. Known providers: {known}{configured_names}. \
         Other providers need an address: set --base-url URL, or `base_url` in a table [providers.NAME]",
        suggestion.unwrap_or_default()
    ))
}

/// Returns the reason why a model cannot be an embedding model, or None if it may be an embedding model.
pub(super) fn embedding_problem(name: &str) -> Option<String> {
    let built_in = provider_of(name).filter(|provider| BUILT_IN.contains(provider))?;
    Some(format!(
        "`{built_in}` cannot compute embeddings: write PROVIDER/MODEL, or remove the key to select tools by their words"
    ))
}

fn is_known(name: &str, file: &AgentFile) -> bool {
    let known =
        |name: &str| BUILT_IN.contains(&name) || known_provider(name).is_some() || file.providers.contains_key(name);
    provider_of(name).is_some_and(known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn wanted(options_line: &[(&str, &str)], file: &str) -> Result<WantedModels, String> {
        let file = AgentFile::parse(file, Path::new("here/agent.toml")).expect("a valid file");
        let mut options = AgentOptions::default();
        for (option, value) in options_line {
            match *option {
                "--model" => options.model = Some((*value).to_owned()),
                _ => options.base_url = Some((*value).to_owned()),
            }
        }
        WantedModels::new(&options, &file)
    }

    fn names(options_line: &[(&str, &str)], file: &str) -> Vec<String> {
        wanted(options_line, file).expect("wanted").named().into_iter().map(|model| model.name).collect()
    }

    /// L27: if the options set a model, this model writes the summaries too, and the file's summary model is ignored.
    #[test]
    fn l27_summary_model_comes_from_the_file() {
        let file = "model = \"openai/a\"\nsummary_model = \"ollama/b\"\n";
        let all_names = |options_line: &[(&str, &str)]| {
            let wanted = wanted(options_line, file).expect("wanted");
            wanted.all_named().into_iter().map(|model| model.name).collect::<Vec<_>>()
        };
        assert_eq!(all_names(&[]), ["openai/a", "ollama/b"]);
        assert_eq!(all_names(&[("--model", "groq/d")]), ["groq/d"]);
    }

    /// M2, M3: if the options name a model, this model replaces the model and the fallback models of the file.
    #[test]
    fn options_override_the_file() {
        let file = "model = \"openai/a\"\nfallback_models = [\"ollama/b\", \"scripted:c.json\"]\n";
        assert_eq!(names(&[], file), ["openai/a", "ollama/b", "scripted:c.json"]);
        assert_eq!(names(&[("--model", "groq/d")], file), ["groq/d"]);
        assert_eq!(names(&[], ""), ["offline"]);
        let wanted = wanted(&[], file).expect("wanted");
        let chain = wanted.named();
        assert_eq!(chain[2].place, "here/agent.toml:2: fallback_models[1]");
        assert_eq!(chain[2].base, Path::new("here"));
        assert_eq!(wanted.provider_at_base_url(), None);
    }

    /// M2: if a base URL is set, a model name that does not begin with a known provider is used unchanged.
    #[test]
    fn base_url_is_the_address_of_the_first_models_provider() {
        let url = ("--base-url", "http://127.0.0.1:9/v1/");
        let file = "[providers.office]\nbase_url = \"http://office/v1\"\n";
        for (model, expected, provider) in [
            ("gpt-x", "openai/gpt-x", "openai"),
            ("Qwen/Qwen3-8B", "openai/Qwen/Qwen3-8B", "openai"),
            ("ollama/qwen3:8b", "ollama/qwen3:8b", "ollama"),
            ("office/large", "office/large", "office"),
        ] {
            let wanted = wanted(&[("--model", model), url], file).expect("wanted");
            assert_eq!(wanted.named()[0].name, expected);
            assert_eq!(wanted.provider_at_base_url(), Some((provider, "http://127.0.0.1:9/v1")));
        }
        assert_eq!(wanted(&[url], file).expect("wanted").chain, Chain::AtBaseUrl);
        assert_eq!(wanted(&[], file).expect("wanted").chain, Chain::Unnamed);
        for built_in in ["offline", "offline/router", "scripted:a.json"] {
            let error = wanted(&[("--model", built_in), url], "").expect_err(built_in);
            assert!(error.contains("--base-url") && error.contains(built_in), "{error}");
        }
        assert!(wanted(&[url], "model = \"offline\"").is_err());
    }

    #[test]
    fn invalid_model_names_are_explained() {
        let file = AgentFile::parse("[providers.office]\nbase_url = \"http://office/v1\"\n", Path::new("a"));
        let file = file.expect("a valid file");
        for name in ["offline", "offline/router", "scripted:x", "openai/a", "office/b/c", "ollama/qwen3:8b"] {
            assert_eq!(problem(name, &file), None, "{name}");
        }
        insta::assert_snapshot!(problem("ofice/b", &file).expect("unknown"), @"`ofice` in `ofice/b` is not a known provider. Did you mean `office/b`? A model is `PROVIDER/MODEL`, `offline` or `scripted:FILE`. Known providers: openai, anthropic, gemini, groq, deepseek, mistral, openrouter, ollama, lmstudio, llama-cpp, vllm; configured: office. Other providers need an address: set --base-url URL, or `base_url` in a table [providers.NAME]");
        insta::assert_snapshot!(problem("gpt-9", &AgentFile::default()).expect("unknown"), @"`gpt-9` does not name a provider. A model is `PROVIDER/MODEL`, `offline` or `scripted:FILE`. Known providers: openai, anthropic, gemini, groq, deepseek, mistral, openrouter, ollama, lmstudio, llama-cpp, vllm. Other providers need an address: set --base-url URL, or `base_url` in a table [providers.NAME]");
        insta::assert_snapshot!(problem("openai/", &file).expect("no model"), @"`openai/` names a provider but no model: write `openai/MODEL`");
        assert!(problem("ofline", &file).expect("unknown").contains("Did you mean `offline`?"));
        assert!(problem("", &file).is_some());
    }
}
