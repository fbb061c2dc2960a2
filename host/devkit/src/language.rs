//! The languages that projects can be in.

use std::fmt;

/// A language with a toolchain that makes components.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// By cargo.
    Rust,
    /// By componentize-py.
    Python,
    /// By jco, with QuickJS.
    #[serde(alias = "js")]
    JavaScript,
    /// By Zig's compiler, or clang of a wasi-sdk.
    C,
}

impl Language {
    /// All of them.
    pub const ALL: [Language; 4] = [Language::Rust, Language::Python, Language::JavaScript, Language::C];

    /// As it is written where names are written in lower case.
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
