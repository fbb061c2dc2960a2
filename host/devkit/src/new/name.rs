//! Names that new plugins may have.

use crate::language::Language;

/// Longest name.
const LENGTH: usize = 64;

/// What `cargo` or Rust keeps for itself, and what the templates build on.
const KEPT_BY_RUST: &[&str] = &[
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

/// A name that cannot be a new plugin's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` cannot be a new plugin's name: {reason}{}", suggestion.as_ref().map(|name| format!("; try `{name}`")).unwrap_or_default())]
pub struct NameProblem {
    /// As it was asked for.
    pub name: String,
    /// The rule that it breaks.
    pub reason: &'static str,
    /// One that would do.
    pub suggestion: Option<String>,
}

/// Whether a new plugin in this language may have the name. The rules are narrower than those for plugins at all, so that it is
/// the name of a crate, of a folder and of tools, too.
pub fn check_name(name: &str, language: Language) -> Result<(), NameProblem> {
    let Some(reason) = broken_rule(name, language) else { return Ok(()) };
    let suggestion = Some(suggested(name)).filter(|other| broken_rule(other, language).is_none());
    Err(NameProblem { name: name.to_owned(), reason, suggestion })
}

fn broken_rule(name: &str, language: Language) -> Option<&'static str> {
    let is_kept = |byte: u8| !byte.is_ascii_lowercase() && !byte.is_ascii_digit() && byte != b'-';
    if !(1..=LENGTH).contains(&name.len()) || name.bytes().any(is_kept) {
        return Some("it has 1 to 64 lower-case letters, digits and hyphens");
    }
    if !name.starts_with(|first: char| first.is_ascii_lowercase()) {
        return Some("it begins with a letter");
    }
    if name.ends_with('-') || name.contains("--") {
        return Some("a hyphen stands between two words");
    }
    if name == "host" {
        return Some("`host` is the host itself, which grants and questions name so");
    }
    (language == Language::Rust && KEPT_BY_RUST.contains(&name)).then_some("a crate cannot be named so")
}

fn suggested(name: &str) -> String {
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
    other.truncate(LENGTH);
    other.trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S1: a bad name says why, and one that would do.
    #[test]
    fn names_are_those_of_crates_folders_and_tools() {
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
        let said = check_name("My Plugin", Language::Rust).expect_err("a space").to_string();
        assert!(said.contains("lower-case") && said.ends_with("try `my-plugin`"), "{said}");
    }
}
