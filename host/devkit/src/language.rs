//! The languages that plugin projects can be written in.

use std::fmt;

/// A language whose toolchain can produce components.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// Rust, built with cargo.
    Rust,
    /// Python, built with componentize-py.
    Python,
    /// JavaScript, built with jco and QuickJS.
    #[serde(alias = "js")]
    JavaScript,
    /// C, built with Zig's compiler or with the clang of a wasi-sdk.
    C,
}

impl Language {
    /// All languages, in the order in which help texts list them.
    pub const ALL: [Language; 4] = [Language::Rust, Language::Python, Language::JavaScript, Language::C];

    /// Returns the language's name in lower case, for options and `plugin.toml`.
    pub fn key(self) -> &'static str {
        match self {
            Language::Rust => "rust",
            Language::Python => "python",
            Language::JavaScript => "javascript",
            Language::C => "c",
        }
    }
}

impl fmt::Display for Language {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Language::Rust => "Rust",
            Language::Python => "Python",
            Language::JavaScript => "JavaScript",
            Language::C => "C",
        })
    }
}
