//! Bytes, characters, words and lines of a text.

use schemars::JsonSchema;
use serde::Serialize;

/// How much text there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Counts {
    /// Lines; a last one without a line break counts too.
    pub lines: u64,
    /// Runs of anything but white space.
    pub words: u64,
    /// Unicode characters (scalar values), line breaks included.
    pub characters: u64,
    /// Bytes in UTF-8.
    pub bytes: u64,
}

impl Counts {
    /// One sentence for the model.
    pub fn sentence(&self, what: &str) -> String {
        let Counts { lines, words, characters, bytes } = self;
        format!("{what} has {lines} lines, {words} words, {characters} characters and {bytes} bytes.")
    }
}

/// Counts a text.
pub fn count(text: &str) -> Counts {
    Counts {
        lines: text.lines().count() as u64,
        words: text.split_whitespace().count() as u64,
        characters: text.chars().count() as u64,
        bytes: text.len() as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_people_would_count() {
        for (text, lines, words, characters, bytes) in [
            ("", 0, 0, 0, 0),
            ("\n", 1, 0, 1, 1),
            ("one", 1, 1, 3, 3),
            ("one two\nthree\n", 2, 3, 14, 14),
            ("one\r\ntwo", 2, 2, 8, 8),
            ("Grüße, 世界\u{a0}!", 1, 3, 11, 18),
        ] {
            assert_eq!(count(text), Counts { lines, words, characters, bytes }, "{text:?}");
        }
    }
}
