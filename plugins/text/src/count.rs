//! Bytes, characters, words and lines of a text.

use schemars::JsonSchema;
use serde::Serialize;
use std::io::{self, Read};

/// Bytes that are read at once, so that a file of any length takes the same memory.
const CHUNK: usize = 64 * 1024;

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

/// A text that cannot be counted.
#[derive(Debug, thiserror::Error)]
pub enum CountError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// It is no UTF-8 at this byte, from 0.
    #[error("byte {0} (from 0) is not part of a character")]
    NoText(u64),
}

impl Counts {
    /// One sentence for the model.
    pub fn sentence(&self, what: &str) -> String {
        let lines = number(self.lines, "line");
        let words = number(self.words, "word");
        let characters = number(self.characters, "character");
        format!("{what} has {lines}, {words}, {characters} and {}.", number(self.bytes, "byte"))
    }
}

/// Counts a text.
pub fn count(text: &str) -> Counts {
    let mut counter = Counter::default();
    counter.add(text);
    counter.counts
}

/// Counts a text while it is read, piece by piece.
pub fn count_stream(mut text: impl Read) -> Result<Counts, CountError> {
    let mut counter = Counter::default();
    let mut buffer = vec![0; CHUNK];
    // Bytes at the beginning of the buffer that begin a character whose rest is still to be read.
    let mut begun = 0;
    loop {
        let read = match text.read(&mut buffer[begun..]) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        };
        let filled = begun + read;
        let (valid, broken) = match std::str::from_utf8(&buffer[..filled]) {
            Ok(_) => (filled, false),
            Err(error) => (error.valid_up_to(), error.error_len().is_some()),
        };
        counter.add(&String::from_utf8_lossy(&buffer[..valid]));
        begun = filled - valid;
        if broken || (read == 0 && begun > 0) {
            return Err(CountError::NoText(counter.counts.bytes));
        }
        if read == 0 {
            return Ok(counter.counts);
        }
        buffer.copy_within(valid..filled, 0);
    }
}

/// What was counted so far, and whether the last word and the last line go on.
#[derive(Default)]
struct Counter {
    counts: Counts,
    in_word: bool,
    in_line: bool,
}

impl Counter {
    fn add(&mut self, text: &str) {
        self.counts.bytes += text.len() as u64;
        for character in text.chars() {
            self.counts.characters += 1;
            if !self.in_line {
                self.counts.lines += 1;
            }
            self.in_line = character != '\n';
            let in_word = !character.is_whitespace();
            if in_word && !self.in_word {
                self.counts.words += 1;
            }
            self.in_word = in_word;
        }
    }
}

fn number(number: u64, one: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") }
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
        assert_eq!(count("a\n").sentence("It"), "It has 1 line, 1 word, 2 characters and 2 bytes.");
    }

    /// Gives a few bytes at a time.
    struct Drops<'t>(&'t [u8], usize);

    impl Read for Drops<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let drop = self.1.min(buffer.len());
            self.0.read(&mut buffer[..drop])
        }
    }

    #[test]
    fn pieces_are_counted_like_the_whole() {
        let text = "Grüße, 世界\u{a0}!\r\nzwei wörter\n\n𝄞 end";
        for drop in 1..=text.len() {
            assert_eq!(count_stream(Drops(text.as_bytes(), drop)).expect("a text"), count(text), "{drop}");
        }
        let long = "wörter und\n".repeat(20_000);
        assert_eq!(count_stream(long.as_bytes()).expect("a text"), count(&long), "longer than a chunk");
    }

    #[test]
    fn what_is_no_text_is_refused_with_its_place() {
        for (bytes, place) in [(&b"ab\xffc"[..], 2), (b"ab\xe4\xb8", 2), (b"\xe4\xb8c", 0)] {
            for drop in 1..=bytes.len() {
                let counted = count_stream(Drops(bytes, drop));
                assert!(matches!(counted, Err(CountError::NoText(found)) if found == place), "{bytes:?} by {drop}");
            }
        }
    }
}
