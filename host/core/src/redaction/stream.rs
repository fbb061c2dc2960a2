//! Redacts a text that arrives in pieces. Bytes at the end of a piece that may begin a secret are held back until the
//! next piece.

use super::encodings::{Patterns, Readings, Span};
use super::escapes::{Symbol, Unescape, may_begin};
use super::{MARK, Redaction};
use std::sync::Arc;

/// The text that replaces a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replacement {
    /// One `*` for each byte of the secret, so that the length of the text stays the same.
    Stars,
    /// The text `(secret)`. A redacted text is valid UTF-8 if the original text is.
    Mark,
}

/// Whether a text is complete or may have been cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edges {
    /// The text is complete.
    Whole,
    /// The text may have been cut in the middle of a secret. Therefore, even very short parts of a
    /// secret are removed at the beginning and end of the text.
    Cut,
}

/// Redacts a text that arrives in pieces. The text is searched three times: as written, with one layer of escapes
/// decoded, and with two layers decoded.
#[derive(Debug)]
pub struct RedactionStream {
    patterns: Option<Arc<Patterns>>,
    replacement: Replacement,
    edges: Edges,
    as_written: Readings,
    /// The state of the search in the text with decoded escapes. `None` means that decoding does not change the text.
    unescaped: Option<Box<Unescaped>>,
    pending: PendingOutput,
}

/// The search in the decoded text: once with one layer of escapes decoded, and once with two layers decoded.
#[derive(Debug)]
struct Unescaped {
    first: Unescape,
    once: Readings,
    second: Unescape,
    twice: Readings,
}

/// Bytes that were received but not returned yet.
#[derive(Debug, Default)]
struct PendingOutput {
    bytes: Vec<u8>,
    is_secret: Vec<bool>,
    /// Position of the first pending byte in the text.
    from: u64,
    /// Whether the output directly before the pending bytes is the text that replaces a secret.
    after_mark: bool,
    /// Whether the text so far contains a secret.
    found: bool,
}

impl Redaction {
    /// Starts to redact a text that arrives in pieces.
    pub fn stream(&self, replacement: Replacement, edges: Edges) -> RedactionStream {
        let readings = Readings::default();
        let as_written = if edges == Edges::Cut { readings.after_cut() } else { readings };
        let patterns = self.patterns.clone();
        RedactionStream { patterns, replacement, edges, as_written, unescaped: None, pending: PendingOutput::default() }
    }
}

impl RedactionStream {
    /// Appends a piece of the text. Returns the redacted bytes up to the first byte that may still begin a secret.
    pub fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        let Some(patterns) = self.patterns.clone() else { return piece.to_vec() };
        for byte in piece {
            let start = self.pending.from + self.pending.bytes.len() as u64;
            self.pending.bytes.push(*byte);
            self.pending.is_secret.push(false);
            self.read(&patterns, Symbol { byte: *byte, start, end: start + 1 });
        }
        let end = self.pending.from + self.pending.bytes.len() as u64;
        let certain_to = self.uncertain_from(&patterns).unwrap_or(end);
        self.pending.release(certain_to, self.replacement)
    }

    /// Ends the text and returns the redacted bytes that were held back.
    pub fn finish(&mut self) -> Vec<u8> {
        let Some(patterns) = self.patterns.clone() else { return Vec::new() };
        let Self { pending, as_written, unescaped, edges, .. } = self;
        let mut report = |span| pending.hide(span);
        if let Some(unescaped) = unescaped {
            unescaped.finish(&patterns, &mut report);
        }
        as_written.finish(&patterns, &mut report);
        if *edges == Edges::Cut {
            as_written.cut(&patterns, &mut report);
            if let Some(unescaped) = unescaped {
                unescaped.once.cut(&patterns, &mut report);
                unescaped.twice.cut(&patterns, &mut report);
            }
        }
        let end = self.pending.from + self.pending.bytes.len() as u64;
        self.pending.release(end, self.replacement)
    }

    /// Whether a secret has been removed so far.
    pub fn found(&self) -> bool {
        self.pending.found
    }

    fn read(&mut self, patterns: &Patterns, symbol: Symbol) {
        let Self { pending, as_written, unescaped, .. } = self;
        let mut report = |span| pending.hide(span);
        if unescaped.is_none() && may_begin(symbol.byte) {
            let (first, second) = (Unescape::default(), Unescape::default());
            let (once, twice) = (as_written.clone(), as_written.clone());
            *unescaped = Some(Box::new(Unescaped { first, once, second, twice }));
        }
        as_written.push(patterns, symbol, &mut report);
        if let Some(layers) = unescaped {
            layers.push(patterns, symbol, &mut report);
            if layers.are_equal_to(as_written) {
                *unescaped = None;
            }
        }
    }

    fn uncertain_from(&self, patterns: &Patterns) -> Option<u64> {
        let layers = self.unescaped.iter().flat_map(|layers| {
            let readings = [layers.once.uncertain_from(patterns), layers.twice.uncertain_from(patterns)];
            [layers.first.pending_from(), layers.second.pending_from()].into_iter().chain(readings).flatten()
        });
        layers.chain(self.as_written.uncertain_from(patterns)).min()
    }
}

impl Unescaped {
    fn push(&mut self, patterns: &Patterns, symbol: Symbol, report: &mut impl FnMut(Span)) {
        let Self { first, once, second, twice } = self;
        first.push(symbol, &mut |symbol| {
            once.push(patterns, symbol, report);
            second.push(symbol, &mut |symbol| twice.push(patterns, symbol, report));
        });
    }

    fn finish(&mut self, patterns: &Patterns, report: &mut impl FnMut(Span)) {
        let Self { first, once, second, twice } = self;
        first.finish(&mut |symbol| {
            once.push(patterns, symbol, report);
            second.push(symbol, &mut |symbol| twice.push(patterns, symbol, report));
        });
        second.finish(&mut |symbol| twice.push(patterns, symbol, report));
        once.finish(patterns, report);
        twice.finish(patterns, report);
    }

    /// Whether the decoded layers are the same as the text as written, at least until the next escape.
    fn are_equal_to(&self, as_written: &Readings) -> bool {
        let is_outside_escape = self.first.pending_from().is_none() && self.second.pending_from().is_none();
        is_outside_escape && self.once == *as_written && self.twice == *as_written
    }
}

impl PendingOutput {
    /// Marks a range as secret. Bytes of the range that were already returned cannot be hidden any more.
    fn hide(&mut self, Span { start, end }: Span) {
        let position = |at: u64| usize::try_from(at.saturating_sub(self.from)).unwrap_or(usize::MAX);
        let (start, end) = (position(start), position(end).min(self.is_secret.len()));
        if start < end {
            self.is_secret[start..end].fill(true);
            self.found = true;
        }
    }

    /// Removes the bytes before this position and returns them with their secrets replaced.
    fn release(&mut self, certain_to: u64, replacement: Replacement) -> Vec<u8> {
        let mut length = usize::try_from(certain_to.saturating_sub(self.from)).unwrap_or(usize::MAX);
        length = length.min(self.bytes.len());
        match replacement {
            Replacement::Stars => {
                let released = self.bytes.iter().zip(&self.is_secret).take(length);
                let released = released.map(|(byte, is_secret)| if *is_secret { b'*' } else { *byte }).collect();
                self.forget(length);
                released
            }
            Replacement::Mark => {
                // A multi-byte character is only released as a whole.
                while length > 0 && length < self.bytes.len() && is_within_character(self.bytes[length]) {
                    length -= 1;
                }
                let mut released = Vec::with_capacity(length);
                let mut at = 0;
                while at < length {
                    let after = &self.bytes[at + 1..length];
                    let next = at + 1 + after.iter().take_while(|byte| is_within_character(**byte)).count();
                    let is_secret = self.is_secret[at..next].contains(&true);
                    match (is_secret, self.after_mark) {
                        (true, false) => released.extend_from_slice(MARK.as_bytes()),
                        (true, true) => {}
                        (false, _) => released.extend_from_slice(&self.bytes[at..next]),
                    }
                    self.after_mark = is_secret;
                    at = next;
                }
                self.forget(length);
                released
            }
        }
    }

    /// Removes the first `length` bytes from the pending output.
    fn forget(&mut self, length: usize) {
        self.bytes.drain(..length);
        self.is_secret.drain(..length);
        self.from += length as u64;
    }
}

fn is_within_character(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}
