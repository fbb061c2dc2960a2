//! Translates tool names between the names that authors wrote and the names that providers accept (L14).

use std::collections::BTreeMap;

/// Maximum number of characters of a tool name. Every provider accepts names of this length.
const MAX_LENGTH: usize = 64;
/// Length of the suffix that makes colliding names unique, which consists of `_` and eight hexadecimal digits.
const SUFFIX_LENGTH: usize = 9;

/// For each tool of one registry, the name that providers accept. The translation depends only on the set of tools,
/// not on their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolNames {
    to_provider: BTreeMap<String, String>,
    to_author: BTreeMap<String, String>,
}

impl ToolNames {
    /// Translates the names that authors gave to all tools of a registry. A name that is already valid for providers
    /// stays unchanged, even if another name would be translated to the same name.
    pub fn new<'a>(authors: impl IntoIterator<Item = &'a str>) -> Self {
        let mut authors: Vec<&str> = authors.into_iter().collect();
        authors.sort_unstable();
        authors.dedup();
        let mut names = Self::default();
        let (valid, others): (Vec<&str>, Vec<&str>) = authors.into_iter().partition(|name| is_valid(name));
        for name in valid {
            names.insert(name, name.to_owned());
        }
        for name in others {
            let provider = names.free_name(name);
            names.insert(name, provider);
        }
        names
    }

    /// Returns the provider name of the tool with the name `author`, which its author chose. `None` means that the tool
    /// is not in the registry.
    pub fn provider_name(&self, author: &str) -> Option<&str> {
        self.to_provider.get(author).map(String::as_str)
    }

    /// Returns the name that the author gave to the tool with this provider name. `None` means that no tool has this
    /// provider name.
    pub fn author_name(&self, provider: &str) -> Option<&str> {
        self.to_author.get(provider).map(String::as_str)
    }

    fn insert(&mut self, author: &str, provider: String) {
        self.to_author.insert(provider.clone(), author.to_owned());
        self.to_provider.insert(author.to_owned(), provider);
    }

    /// Returns a provider name for the tool with the name `author`, which its author chose. No tool that was inserted
    /// earlier has this provider name.
    fn free_name(&self, author: &str) -> String {
        let mut base: String = author.chars().map(|char| if is_valid_character(char) { char } else { '_' }).collect();
        if base.is_empty() {
            base.push('_');
        }
        if base.len() <= MAX_LENGTH && !self.to_author.contains_key(&base) {
            return base;
        }
        base.truncate(MAX_LENGTH - SUFFIX_LENGTH);
        let mut hash = fnv1a(author.as_bytes());
        loop {
            let candidate = format!("{base}_{hash:08x}");
            if !self.to_author.contains_key(&candidate) {
                return candidate;
            }
            hash = fnv1a(&hash.to_le_bytes());
        }
    }
}

fn is_valid(name: &str) -> bool {
    (1..=MAX_LENGTH).contains(&name.len()) && name.chars().all(is_valid_character)
}

fn is_valid_character(char: char) -> bool {
    char.is_ascii_alphanumeric() || char == '_' || char == '-'
}

/// Returns the 32-bit FNV-1a hash. The hash distinguishes colliding names and is the same on every machine.
fn fnv1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn l14_dots_are_translated_to_underscores_and_back() {
        let names = ToolNames::new(["weather.forecast", "echo"]);
        assert_eq!(names.provider_name("weather.forecast"), Some("weather_forecast"));
        assert_eq!(names.author_name("weather_forecast"), Some("weather.forecast"));
        assert_eq!(names.author_name("echo"), Some("echo"));
        assert_eq!(names.author_name("weather.forecast"), None);
    }

    #[test]
    fn l14_collisions_are_resolved_the_same_in_every_order() {
        let names = ToolNames::new(["a.b", "a_b", "a-b", "a b"]);
        assert_eq!(names, ToolNames::new(["a b", "a-b", "a_b", "a.b"]));
        assert_eq!(names.provider_name("a_b"), Some("a_b"));
        assert_eq!(names.provider_name("a-b"), Some("a-b"));
        assert_ne!(names.provider_name("a.b"), names.provider_name("a b"));
    }

    proptest! {
        #[test]
        fn l14_every_set_of_names_is_reversible(set in proptest::collection::btree_set("[a-c._ é-]{0,5}|[a-b.]{62,70}", 0..30)) {
            let names = ToolNames::new(set.iter().map(String::as_str));
            for author in &set {
                let provider = names.provider_name(author).unwrap();
                prop_assert!(is_valid(provider), "{provider}");
                prop_assert_eq!(names.author_name(provider), Some(author.as_str()));
            }
        }
    }
}
