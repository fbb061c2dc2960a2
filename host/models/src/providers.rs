//! From a configured name to a model (M2).

use crate::configuration::ProviderConfig;
use crate::error::ModelError;
use crate::offline::Offline;
use crate::provider::Provider;
use crate::scripted::Scripted;
use std::path::Path;
use std::sync::Arc;

/// What may be written as a model's name, and what it is.
pub const PROVIDERS: &[(&str, &str)] =
    &[("offline", "built in; a router, not a language model"), ("scripted:FILE", "a file of replies")];

/// The model of that name: `offline` or `scripted:FILE`. A relative file is looked for in `base`. The forms
/// `offline/router` and `scripted/FILE`, as a stored reply names its model, mean the same.
pub fn provider(name: &str, base: &Path) -> Result<Arc<dyn Provider>, ModelError> {
    let (kind, rest) = name.split_once([':', '/']).unwrap_or((name, ""));
    match (kind, rest) {
        ("offline", "" | "router") => Ok(Arc::new(Offline::new())),
        ("scripted", file) if !file.is_empty() => Ok(Arc::new(Scripted::open(file, base)?)),
        _ => Err(ModelError::UnknownProvider { given: name.to_owned(), allowed: allowed() }),
    }
}

/// Every provider that is configured.
#[derive(Clone, Debug, Default)]
pub struct Providers {
    configured: Vec<ProviderConfig>,
}

impl Providers {
    /// Providers that speak Chat Completions; `offline` and `scripted` need no configuration.
    pub fn new(configured: Vec<ProviderConfig>) -> Self {
        Self { configured }
    }

    /// The model of that name: `PROVIDER/MODEL` of a configured provider, `offline` or `scripted:FILE`. A model's own name
    /// may hold further slashes.
    pub fn model(&self, name: &str, base: &Path) -> Result<Arc<dyn Provider>, ModelError> {
        let _ = &self.configured;
        provider(name, base)
    }
}

fn allowed() -> String {
    let names = PROVIDERS.iter().map(|(name, meaning)| format!("`{name}` ({meaning})"));
    names.collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// M2, M4
    #[test]
    fn names_of_models() {
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
            assert_eq!(provider.facts().model.to_string(), expected);
        }
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        for name in ["", "gpt", "openai/gpt", "scripted", "scripted:", "offline/gpt"] {
            let error = provider(name, Path::new(".")).err().unwrap();
            assert!(matches!(&error, ModelError::UnknownProvider { given, .. } if given == name));
        }
        insta::assert_snapshot!(
            provider("openai/gpt", Path::new(".")).err().unwrap(),
            @"`openai/gpt` is no model that this version knows: write `offline` (built in; a router, not a language model) or `scripted:FILE` (a file of replies)"
        );
    }

    #[test]
    fn a_missing_script_is_named() {
        let error = provider("scripted:absent.json", Path::new("/nowhere")).err().unwrap();
        assert!(error.to_string().starts_with("the script /nowhere/absent.json cannot be read: "), "{error}");
    }
}
