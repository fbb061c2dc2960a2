//! Which models an agent asks: `--model` and `--base-url`, else agent.toml, else `offline` (M2).

use crate::arguments::AgentArguments;
use crate::configuration::{AgentFile, BUILT_IN, Placed, nearest};
use agent_models::{KNOWN_PROVIDERS, known_provider};
use std::path::PathBuf;

/// The model that is asked when none is named.
pub(crate) const OFFLINE: &str = "offline";
/// The provider of a model at `--base-url` that is written without one.
pub(crate) const AT_BASE_URL: &str = "openai";

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WantedModels {
    /// The first, and those after it.
    pub(crate) chain: Chain,
    /// The one that summarises what leaves the prompt; none: the one that answers.
    pub(crate) summary: Option<NamedModel>,
    /// Those that the file names for a part of the work: the planner, the executor, the embedding model.
    pub(crate) helpers: Helpers,
    /// Where the first one's provider is, from the command line.
    pub(crate) base_url: Option<String>,
}

/// Models for a part of the work (L24, L25).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Helpers {
    /// Makes plans.
    pub(crate) planner: Option<NamedModel>,
    /// Carries them out; none: the agent's first model.
    pub(crate) executor: Option<NamedModel>,
    /// Says which tools are nearest.
    pub(crate) embedding: Option<NamedModel>,
}

/// The models that are to be asked, as far as they are named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Chain {
    /// At least one.
    Named(Vec<NamedModel>),
    /// The one that the server at the base URL has.
    AtBaseUrl,
    /// Nobody named one.
    Unnamed,
}

/// One model that is to be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedModel {
    /// `PROVIDER/MODEL`, or a built-in one.
    pub(crate) name: String,
    /// Where it was written, for messages.
    pub(crate) place: String,
    /// What a file in its name is relative to.
    pub(crate) base: PathBuf,
}

impl WantedModels {
    /// The model that is asked when none is named.
    #[cfg(test)]
    pub(crate) fn default_model() -> &'static str {
        OFFLINE
    }

    /// The command line wins over the file: a model of its own is asked alone.
    pub(crate) fn new(arguments: &AgentArguments, file: &AgentFile) -> Result<Self, String> {
        let from_file = |placed: &Placed| NamedModel {
            name: placed.value.clone(),
            place: placed.place.clone(),
            base: file.folder.clone(),
        };
        let base_url = arguments.base_url.as_ref().map(|url| url.trim_end_matches('/').to_owned());
        let mut chain = match (&arguments.model, &file.model) {
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
                    "--base-url is the address of a model's provider, and `{}` ({}) has none: leave one of them out",
                    first.name, first.place
                ));
            }
            (Some(first), Some(_)) if !is_known(&first.name, file) => {
                first.name = format!("{AT_BASE_URL}/{}", first.name);
                Chain::Named(chain)
            }
            _ => Chain::Named(chain),
        };
        let summary = file.summary_model.as_ref().filter(|_| arguments.model.is_none()).map(from_file);
        let helper = |placed: &Option<Placed>| placed.as_ref().map(from_file);
        let (planner, executor) = (helper(&file.planner), helper(&file.executor));
        let helpers = Helpers { planner, executor, embedding: helper(&file.embedding_model) };
        Ok(Self { chain, summary, helpers, base_url })
    }

    /// The model that was chosen since: it is asked alone.
    pub(crate) fn choose(&mut self, name: String, place: &str) {
        let chosen = NamedModel { name, place: place.to_owned(), base: PathBuf::new() };
        self.chain = Chain::Named(vec![chosen]);
    }

    /// The model that was asked for by name in a session; without a provider it is one at the base URL, if there is one.
    pub(crate) fn ask_instead(&mut self, name: &str, file: &AgentFile) {
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

    /// The model that the server at the base URL has.
    pub(crate) fn choose_at_base_url(&mut self, model: &str) {
        self.choose(format!("{AT_BASE_URL}/{model}"), "--base-url");
    }

    /// In order, at least one.
    pub(crate) fn named(&self) -> Vec<NamedModel> {
        match &self.chain {
            Chain::Named(chain) => chain.clone(),
            _ => vec![NamedModel { name: OFFLINE.to_owned(), place: "the default".to_owned(), base: PathBuf::new() }],
        }
    }

    /// Those that may be asked to answer or to summarise; the one that summarises stands last.
    pub(crate) fn asked(&self) -> Vec<NamedModel> {
        self.named().into_iter().chain(self.summary.clone()).collect()
    }

    /// All that may be asked: those of the chain first.
    pub(crate) fn all_named(&self) -> Vec<NamedModel> {
        let Helpers { planner, executor, embedding } = &self.helpers;
        let helpers = [&self.summary, planner, executor, embedding].into_iter().flatten().cloned();
        self.named().into_iter().chain(helpers).collect()
    }

    /// The provider that is at the base URL of the command line.
    pub(crate) fn provider_at_base_url(&self) -> Option<(&str, &str)> {
        let Chain::Named(chain) = &self.chain else { return None };
        Some((provider_of(&chain.first()?.name)?, self.base_url.as_deref()?))
    }
}

/// What stands before the `/` or `:`; the whole of a built-in name.
pub(crate) fn provider_of(name: &str) -> Option<&str> {
    let built_in = |built_in: &&&str| name.split([':', '/']).next() == Some(built_in);
    let slash = || name.split_once('/').map(|(provider, _)| provider);
    BUILT_IN.iter().find(built_in).copied().or_else(slash)
}

/// Why a name is no model's; nothing where its provider is known.
pub(crate) fn problem(name: &str, file: &AgentFile) -> Option<String> {
    if is_known(name, file) {
        let no_model = name.split_once('/').is_some_and(|(_, model)| model.trim().is_empty());
        return no_model.then(|| format!("`{name}` names a provider and no model: write `{name}MODEL`"));
    }
    let configured = file.providers.keys().map(String::as_str);
    let known: Vec<_> = configured.chain(KNOWN_PROVIDERS.iter().map(|known| known.name)).chain([OFFLINE]).collect();
    let provider = provider_of(name).unwrap_or(name);
    let meant = nearest(provider, known.iter().copied()).map(|meant| match name.split_once('/') {
        Some((_, model)) => format!("Did you mean `{meant}/{model}`? "),
        None if BUILT_IN.contains(&meant) => format!("Did you mean `{meant}`? "),
        None => format!("Did you mean `{meant}/MODEL`? "),
    });
    let problem = match name.contains('/') {
        true => format!("`{provider}` in `{name}` is no known provider"),
        false => format!("`{name}` names no provider"),
    };
    let known = KNOWN_PROVIDERS.iter().map(|known| known.name).collect::<Vec<_>>().join(", ");
    let own = match file.providers.keys().map(String::as_str).collect::<Vec<_>>().join(", ") {
        own if own.is_empty() => own,
        own => format!("; configured: {own}"),
    };
    Some(format!(
        "{problem}. {}A model is `PROVIDER/MODEL`, `offline` or `scripted:FILE`. Known providers: {known}{own}. \
         Another one needs its address: --base-url URL, or `base_url` in a table [providers.NAME]",
        meant.unwrap_or_default()
    ))
}

/// Why a name is no embedding model's.
pub(crate) fn embedding_problem(name: &str) -> Option<String> {
    let built_in = provider_of(name).filter(|provider| BUILT_IN.contains(provider))?;
    Some(format!("`{built_in}` makes no embeddings: write PROVIDER/MODEL, or leave it out, and words decide"))
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

    fn wanted(line: &[(&str, &str)], file: &str) -> Result<WantedModels, String> {
        let file = AgentFile::parse(file, Path::new("here/agent.toml")).expect("a right file");
        let mut arguments = AgentArguments::default();
        for (option, value) in line {
            match *option {
                "--model" => arguments.model = Some((*value).to_owned()),
                _ => arguments.base_url = Some((*value).to_owned()),
            }
        }
        WantedModels::new(&arguments, &file)
    }

    fn names(line: &[(&str, &str)], file: &str) -> Vec<String> {
        wanted(line, file).expect("wanted").named().into_iter().map(|model| model.name).collect()
    }

    /// L27: a model of the command line is asked alone, also for summaries.
    #[test]
    fn the_model_that_summarises_is_the_files() {
        let file = "model = \"openai/a\"\nsummary_model = \"ollama/b\"\n";
        let asked = |line: &[(&str, &str)]| {
            let wanted = wanted(line, file).expect("wanted");
            wanted.all_named().into_iter().map(|model| model.name).collect::<Vec<_>>()
        };
        assert_eq!(asked(&[]), ["openai/a", "ollama/b"]);
        assert_eq!(asked(&[("--model", "groq/d")]), ["groq/d"]);
    }

    /// M2, M3
    #[test]
    fn the_command_line_wins_over_the_file() {
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

    /// M2: at a base URL, what begins with no known provider is the model's whole name.
    #[test]
    fn a_base_url_gives_the_provider_an_address() {
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
    fn names_that_are_no_models_say_what_is() {
        let file = AgentFile::parse("[providers.office]\nbase_url = \"http://office/v1\"\n", Path::new("a"));
        let file = file.expect("a right file");
        for name in ["offline", "offline/router", "scripted:x", "openai/a", "office/b/c", "ollama/qwen3:8b"] {
            assert_eq!(problem(name, &file), None, "{name}");
        }
        insta::assert_snapshot!(problem("ofice/b", &file).expect("unknown"), @"`ofice` in `ofice/b` is no known provider. Did you mean `office/b`? A model is `PROVIDER/MODEL`, `offline` or `scripted:FILE`. Known providers: openai, groq, deepseek, mistral, openrouter, ollama, lmstudio, llama-cpp, vllm; configured: office. Another one needs its address: --base-url URL, or `base_url` in a table [providers.NAME]");
        insta::assert_snapshot!(problem("gpt-9", &AgentFile::default()).expect("unknown"), @"`gpt-9` names no provider. A model is `PROVIDER/MODEL`, `offline` or `scripted:FILE`. Known providers: openai, groq, deepseek, mistral, openrouter, ollama, lmstudio, llama-cpp, vllm. Another one needs its address: --base-url URL, or `base_url` in a table [providers.NAME]");
        insta::assert_snapshot!(problem("openai/", &file).expect("no model"), @"`openai/` names a provider and no model: write `openai/MODEL`");
        assert!(problem("ofline", &file).expect("unknown").contains("Did you mean `offline`?"));
        assert!(problem("", &file).is_some());
    }
}
