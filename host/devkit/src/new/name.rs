//! Checks the names of new plugins and suggests valid names.

use crate::language::Language;

/// Maximum length of a name in bytes.
const MAX_LENGTH: usize = 64;

/// Names that a Rust project cannot have: names that cargo or Rust reserves, and names of crates that the templates
/// use.
const RESERVED_IN_RUST: &[&str] = &[
    "abstract",
    "agent-host-bindings",
    "agent-host-sdk",
    "alloc",
    "as",
    "async",
    "await",
    "become",
    "box",
    "break",
    "build",
    "const",
    "continue",
    "core",
    "crate",
    "deps",
    "do",
    "dyn",
    "else",
    "enum",
    "examples",
    "extern",
    "false",
    "final",
    "fn",
    "for",
    "gen",
    "if",
    "impl",
    "in",
    "incremental",
    "let",
    "loop",
    "macro",
    "match",
    "mod",
    "move",
    "mut",
    "override",
    "priv",
    "proc-macro",
    "pub",
    "ref",
    "return",
    "schemars",
    "self",
    "serde",
    "serde-json",
    "static",
    "std",
    "struct",
    "super",
    "test",
    "trait",
    "true",
    "try",
    "type",
    "typeof",
    "unsafe",
    "unsized",
    "use",
    "virtual",
    "where",
    "while",
    "yield",
];

/// The error for a name that a new plugin cannot have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is not a valid name for a new plugin: {reason}{}", suggestion.as_ref().map(|name| format!("; try `{name}`")).unwrap_or_default())]
pub struct NameProblem {
    /// The rejected name.
    pub name: String,
    /// The rule that the name breaks.
    pub reason: &'static str,
    /// A similar name that is valid. None if no similar name is valid.
    pub suggestion: Option<String>,
}

/// Checks whether a new plugin in `language` may have the name. The rules are stricter than the rules for existing
/// plugins, so that the name is also valid as the name of a crate, a folder and tools.
pub fn check_name(name: &str, language: Language) -> Result<(), NameProblem> {
    let Some(reason) = broken_rule(name, language) else { return Ok(()) };
    let suggestion = Some(suggested_name(name)).filter(|other| broken_rule(other, language).is_none());
    Err(NameProblem { name: name.to_owned(), reason, suggestion })
}

fn broken_rule(name: &str, language: Language) -> Option<&'static str> {
    let is_invalid = |byte: u8| !byte.is_ascii_lowercase() && !byte.is_ascii_digit() && byte != b'-';
    if !(1..=MAX_LENGTH).contains(&name.len()) || name.bytes().any(is_invalid) {
        return Some("use 1 to 64 lower-case letters, digits and hyphens");
    }
    if !name.starts_with(|first: char| first.is_ascii_lowercase()) {
        return Some("begin with a letter");
    }
    if name.ends_with('-') || name.contains("--") {
        return Some("use single hyphens, and only between words");
    }
    if name == "host" {
        return Some("`host` is the name of the host itself in grants and questions");
    }
    (language == Language::Rust && RESERVED_IN_RUST.contains(&name)).then_some("the name is reserved in Rust projects")
}

fn suggested_name(name: &str) -> String {
    let lower = name.trim().to_lowercase();
    let words = lower.split(|character: char| !character.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let mut words = words.collect::<Vec<_>>();
    if words.first().is_none_or(|first| first.starts_with(|first: char| first.is_ascii_digit())) {
        words.insert(0, "plugin");
    }
    let mut other = words.join("-");
    if other == name {
        other.push_str("-plugin");
    }
    other.truncate(MAX_LENGTH);
    other.trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S1: the error for an invalid name contains the reason and a valid name.
    #[test]
    fn checks_names_and_suggests_valid_ones() {
        for name in ["weather", "my-plugin", "v2", "a1-b2"] {
            assert_eq!(check_name(name, Language::Rust), Ok(()), "{name}");
        }
        assert_eq!(check_name("box", Language::Python), Ok(()));
        let suggested = |name: &str| check_name(name, Language::Rust).expect_err(name).suggestion;
        let cases = [
            ("My Plugin", Some("my-plugin")),
            ("weather_forecast", Some("weather-forecast")),
            ("../x", Some("x")),
            ("2fa", Some("plugin-2fa")),
            ("a--b-", Some("a-b")),
            ("host", Some("host-plugin")),
            ("test", Some("test-plugin")),
            ("", Some("plugin")),
            ("ä", Some("plugin")),
        ];
        for (name, expected) in cases {
            assert_eq!(suggested(name).as_deref(), expected, "{name}");
        }
        assert_eq!(suggested(&"x".repeat(65)).map(|name| name.len()), Some(64));
        let message = check_name("My Plugin", Language::Rust).expect_err("a space").to_string();
        assert!(message.contains("lower-case") && message.ends_with("try `my-plugin`"), "{message}");
    }
}
