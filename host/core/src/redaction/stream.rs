//! Takes secrets out of a text that comes in pieces. What may be the beginning of a secret waits for the next piece.

use super::escapes::{Symbol, Unescape, may_begin};
use super::reading::{Patterns, Readings, Span};
use super::{MARK, Redaction};
use std::sync::Arc;

/// What stands where a secret stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replacement {
    /// A star for each byte, so that lengths stay true.
    Stars,
    /// The word `(secret)`. Texts in UTF-8 stay valid.
    Mark,
}

/// Whether a text's beginning and end are those of what was said, or whether there may have been more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edges {
    /// It is all that was said.
    Whole,
    /// It may have been cut in the middle of a secret, so that smaller parts count there.
    Cut,
}

/// A text on its way. Layers of escapes are undone side by side: what is a secret in any of them is taken out.
#[derive(Debug)]
pub struct RedactionStream {
    patterns: Option<Arc<Patterns>>,
    replacement: Replacement,
    edges: Edges,
    as_written: Readings,
    /// Where it differs from the text as it is written.
    unescaped: Option<Box<Unescaped>>,
    held: Held,
}

/// The text without one layer of escapes, and without two.
#[derive(Debug)]
struct Unescaped {
    first: Unescape,
    once: Readings,
    second: Unescape,
    twice: Readings,
}

/// What has come and has not been given on.
#[derive(Debug, Default)]
struct Held {
    bytes: Vec<u8>,
    is_secret: Vec<bool>,
    /// Where the first of the bytes stands in the text.
    from: u64,
    /// Whether a mark stands right before them.
    after_mark: bool,
    found: bool,
}

impl Redaction {
    /// Takes the secrets out of a text that comes in pieces.
    pub fn stream(&self, replacement: Replacement, edges: Edges) -> RedactionStream {
        let readings = Readings::default();
        let as_written = if edges == Edges::Cut { readings.after_cut() } else { readings };
        let patterns = self.patterns.clone();
        RedactionStream { patterns, replacement, edges, as_written, unescaped: None, held: Held::default() }
    }
}

impl RedactionStream {
    /// What can be told after this piece.
    pub fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        let Some(patterns) = self.patterns.clone() else { return piece.to_vec() };
        for byte in piece {
            let start = self.held.from + self.held.bytes.len() as u64;
            self.held.bytes.push(*byte);
            self.held.is_secret.push(false);
            self.read(&patterns, Symbol { byte: *byte, start, end: start + 1 });
        }
        let end = self.held.from + self.held.bytes.len() as u64;
        let certain_to = self.uncertain_from(&patterns).unwrap_or(end);
        self.held.let_go(certain_to, self.replacement)
    }

    /// What was held back, when nothing follows.
    pub fn finish(&mut self) -> Vec<u8> {
        let Some(patterns) = self.patterns.clone() else { return Vec::new() };
        let Self { held, as_written, unescaped, edges, .. } = self;
        let mut tell = |span| held.hide(span);
        if let Some(unescaped) = unescaped {
            unescaped.finish(&patterns, &mut tell);
        }
        as_written.finish(&patterns, &mut tell);
        if *edges == Edges::Cut {
            as_written.cut(&patterns, &mut tell);
            if let Some(unescaped) = unescaped {
                unescaped.once.cut(&patterns, &mut tell);
                unescaped.twice.cut(&patterns, &mut tell);
            }
        }
        let end = self.held.from + self.held.bytes.len() as u64;
        self.held.let_go(end, self.replacement)
    }

    /// Whether a secret was taken out so far.
    pub fn found(&self) -> bool {
        self.held.found
    }

    fn read(&mut self, patterns: &Patterns, symbol: Symbol) {
        let Self { held, as_written, unescaped, .. } = self;
        let mut tell = |span| held.hide(span);
        if unescaped.is_none() && may_begin(symbol.byte) {
            let (first, second) = (Unescape::default(), Unescape::default());
            let (once, twice) = (as_written.clone(), as_written.clone());
            *unescaped = Some(Box::new(Unescaped { first, once, second, twice }));
        }
        as_written.push(patterns, symbol, &mut tell);
        if let Some(layers) = unescaped {
            layers.push(patterns, symbol, &mut tell);
            if layers.is_as(as_written) {
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
    fn push(&mut self, patterns: &Patterns, symbol: Symbol, tell: &mut impl FnMut(Span)) {
        let Self { first, once, second, twice } = self;
        first.push(symbol, &mut |symbol| {
            once.push(patterns, symbol, tell);
            second.push(symbol, &mut |symbol| twice.push(patterns, symbol, tell));
        });
    }

    fn finish(&mut self, patterns: &Patterns, tell: &mut impl FnMut(Span)) {
        let Self { first, once, second, twice } = self;
        first.finish(&mut |symbol| {
            once.push(patterns, symbol, tell);
            second.push(symbol, &mut |symbol| twice.push(patterns, symbol, tell));
        });
        second.finish(&mut |symbol| twice.push(patterns, symbol, tell));
        once.finish(patterns, tell);
        twice.finish(patterns, tell);
    }

    /// Whether it goes on as the text does as it is written, up to the next escape.
    fn is_as(&self, as_written: &Readings) -> bool {
        let is_between = self.first.pending_from().is_none() && self.second.pending_from().is_none();
        is_between && self.once == *as_written && self.twice == *as_written
    }
}

impl Held {
    /// What has been given on already cannot be taken back, and was a secret's only where its rest is hidden now.
    fn hide(&mut self, (start, end): Span) {
        let place = |at: u64| usize::try_from(at.saturating_sub(self.from)).unwrap_or(usize::MAX);
        let (start, end) = (place(start), place(end).min(self.is_secret.len()));
        if start < end {
            self.is_secret[start..end].fill(true);
            self.found = true;
        }
    }

    /// Gives on what stands before this place.
    fn let_go(&mut self, certain_to: u64, replacement: Replacement) -> Vec<u8> {
        let mut length = usize::try_from(certain_to.saturating_sub(self.from)).unwrap_or(usize::MAX);
        length = length.min(self.bytes.len());
        match replacement {
            Replacement::Stars => {
                let given = self.bytes.iter().zip(&self.is_secret).take(length);
                let given = given.map(|(byte, is_secret)| if *is_secret { b'*' } else { *byte }).collect();
                self.forget(length);
                given
            }
            Replacement::Mark => {
                // A character is given on whole.
                while length > 0 && length < self.bytes.len() && is_within_character(self.bytes[length]) {
                    length -= 1;
                }
                let mut given = Vec::with_capacity(length);
                let mut at = 0;
                while at < length {
                    let rest = &self.bytes[at + 1..length];
                    let next = at + 1 + rest.iter().take_while(|byte| is_within_character(**byte)).count();
                    let is_secret = self.is_secret[at..next].contains(&true);
                    match (is_secret, self.after_mark) {
                        (true, false) => given.extend_from_slice(MARK.as_bytes()),
                        (true, true) => {}
                        (false, _) => given.extend_from_slice(&self.bytes[at..next]),
                    }
                    self.after_mark = is_secret;
                    at = next;
                }
                self.forget(length);
                given
            }
        }
    }

    fn forget(&mut self, length: usize) {
        self.bytes.drain(..length);
        self.is_secret.drain(..length);
        self.from += length as u64;
    }
}

fn is_within_character(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}
