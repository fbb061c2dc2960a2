//! Counts the bytes, characters, words and lines of a text.

use schemars::JsonSchema;
use serde::Serialize;
use std::io::{self, Read};

/// Size of a chunk, in bytes. Files are read in chunks, so that the required memory does not depend on the length of
/// a file.
const CHUNK: usize = 64 * 1024;

/// The counts of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Counts {
    /// Number of lines. A last line without a line break counts too.
    pub lines: u64,
    /// Number of words, which are separated by white space.
    pub words: u64,
    /// Number of Unicode characters (scalar values), including line breaks.
    pub characters: u64,
    /// Number of bytes in UTF-8.
    pub bytes: u64,
}

/// The reason why a text cannot be counted.
#[derive(Debug, thiserror::Error)]
pub enum CountError {
    /// The text cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// The text is not valid UTF-8. The variant contains the position of the first invalid byte. The first byte of the
    /// text has position 0.
    #[error("byte {0} (from 0) is not part of a character")]
    NotUtf8(u64),
}

impl Counts {
    /// Returns the counts as a sentence for the model.
    pub fn sentence(&self, name: &str) -> String {
        let lines = counted(self.lines, "line");
        let words = counted(self.words, "word");
        let characters = counted(self.characters, "character");
        format!("{name} has {lines}, {words}, {characters} and {}.", counted(self.bytes, "byte"))
    }
}

/// Counts the lines, words, characters and bytes of a text.
pub fn count(text: &str) -> Counts {
    let mut counter = Counter::default();
    counter.add(text);
    counter.counts
}

/// Reads a text in chunks, and counts its lines, words, characters and bytes.
pub fn count_stream(mut text: impl Read) -> Result<Counts, CountError> {
    let mut counter = Counter::default();
    let mut buffer = vec![0; CHUNK];
    // Number of bytes at the start of the buffer that belong to a character that has not been read completely.
    let mut partial = 0;
    loop {
        let read = match text.read(&mut buffer[partial..]) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        };
        let filled = partial + read;
        let (valid, broken) = match std::str::from_utf8(&buffer[..filled]) {
            Ok(_) => (filled, false),
            Err(error) => (error.valid_up_to(), error.error_len().is_some()),
        };
        counter.add(&String::from_utf8_lossy(&buffer[..valid]));
        partial = filled - valid;
        if broken || (read == 0 && partial > 0) {
            return Err(CountError::NotUtf8(counter.counts.bytes));
        }
        if read == 0 {
            return Ok(counter.counts);
        }
        buffer.copy_within(valid..filled, 0);
    }
}

/// The counts of the part of the text that has been read, and whether this part ends inside a word or a line.
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

fn counted(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_lines_words_characters_and_bytes() {
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

    /// A reader that returns at most the given number of bytes in each `read` call.
    struct SmallReads<'t>(&'t [u8], usize);

    impl Read for SmallReads<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let size = self.1.min(buffer.len());
            self.0.read(&mut buffer[..size])
        }
    }

    #[test]
    fn counts_are_the_same_for_chunks_and_for_the_whole_text() {
        let text = "Grüße, 世界\u{a0}!\r\nzwei wörter\n\n𝄞 end";
        for size in 1..=text.len() {
            assert_eq!(count_stream(SmallReads(text.as_bytes(), size)).expect("a text"), count(text), "{size}");
        }
        let long = "wörter und\n".repeat(20_000);
        assert_eq!(count_stream(long.as_bytes()).expect("a text"), count(&long), "longer than a chunk");
    }

    #[test]
    fn rejects_invalid_utf8_with_its_position() {
        for (bytes, position) in [(&b"ab\xffc"[..], 2), (b"ab\xe4\xb8", 2), (b"\xe4\xb8c", 0)] {
            for size in 1..=bytes.len() {
                let counted = count_stream(SmallReads(bytes, size));
                assert!(matches!(counted, Err(CountError::NotUtf8(found)) if found == position), "{bytes:?} by {size}");
            }
        }
    }
}
