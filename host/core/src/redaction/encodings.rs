//! The encodings in which a text can contain a secret: unencoded, Base64, hexadecimal digits and decimal numbers. The
//! text is read in all encodings at the same time, and each encoding has its own position in an automaton.

use super::automaton::{Matched, SubstringAutomaton, Thresholds};
use super::escapes::Symbol;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use std::collections::BTreeSet;

/// Minimum number of consecutive bytes of a secret that are removed from a text even if the rest of the secret
/// is missing.
const MIN_PART: usize = 12;
/// Like `MIN_PART`, but for bytes at the beginning or end of a text that may have been cut in the middle of a secret.
const MIN_PART_AT_EDGE: usize = 8;
/// Maximum number of digits of a byte in decimal, including leading zeros.
const MAX_DECIMAL_DIGITS: u8 = 3;
/// Number of symbols whose positions are remembered. The shortest part of a secret that is removed from a text has
/// `MIN_PART` bytes, and in hexadecimal, its longest encoding, this part has two digits for each byte.
const REMEMBERED_POSITIONS: usize = 2 * MIN_PART;

/// The automata that search for the secrets. Decimal numbers are decoded to bytes, and the automaton `plain` reads
/// these bytes.
#[derive(Debug)]
pub(super) struct Patterns {
    plain: SubstringAutomaton,
    base64: SubstringAutomaton,
    hexadecimal: SubstringAutomaton,
}

impl Patterns {
    /// Builds the automata that search for these secret values.
    pub(super) fn new(values: &[Vec<u8>]) -> Self {
        let thresholds = |part, at_edge| Thresholds { part, at_edge };
        let plain: Vec<_> = values.iter().flat_map(|value| plain_forms(value)).collect();
        // The letter case of a secret may have been changed before the secret was encoded.
        let cased =
            values.iter().flat_map(|value| [value.clone(), value.to_ascii_lowercase(), value.to_ascii_uppercase()]);
        let cased: BTreeSet<Vec<u8>> = cased.collect();
        let base64: Vec<_> = cased.iter().flat_map(|value| base64_forms(value)).collect();
        let hexadecimal: Vec<_> = cased.iter().map(|value| hexadecimal_form(value)).collect();
        Self {
            plain: SubstringAutomaton::new(&plain, thresholds(MIN_PART, MIN_PART_AT_EDGE)),
            base64: SubstringAutomaton::new(&base64, thresholds(MIN_PART * 4 / 3, MIN_PART_AT_EDGE * 4 / 3)),
            hexadecimal: SubstringAutomaton::new(&hexadecimal, thresholds(MIN_PART * 2, MIN_PART_AT_EDGE * 2)),
        }
    }
}

/// Returns the value in lower case, forwards and backwards. Characters that [`Readings`] skips are removed.
fn plain_forms(value: &[u8]) -> [Vec<u8>; 2] {
    let mut line = Line::default();
    let kept = value.iter().filter(|byte| line.position_of(**byte) == LinePosition::InLine);
    let plain: Vec<u8> = kept.map(u8::to_ascii_lowercase).collect();
    let backwards = plain.iter().rev().copied().collect();
    [plain, backwards]
}

/// Returns the value in Base64 at each of the three possible offsets, without the digits that also encode bits of
/// neighbouring bytes.
fn base64_forms(value: &[u8]) -> [Vec<u8>; 3] {
    [0, 1, 2].map(|before| {
        let encoded = STANDARD_NO_PAD.encode([vec![0; before], value.to_vec()].concat());
        let (start, end) = ((before * 8).div_ceil(6), (before + value.len()) * 8 / 6);
        encoded.as_bytes()[start..end].to_vec()
    })
}

fn hexadecimal_form(value: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    value.iter().flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]).collect()
}

/// The reader's state for each encoding, after the part of a text that was read so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Readings {
    plain: Track,
    base64: Track,
    hexadecimal: Track,
    decimal: Track,
    line: Line,
    /// A digit `0` that may be the first character of the prefix `0x` before the next hexadecimal byte.
    zero: Option<Zero>,
    number: Option<Number>,
}

/// The positions at which a digit `0` begins and ends in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Zero {
    start: u64,
    end: u64,
}

/// The decimal number that is being read. `value` is None if the number does not fit into a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Number {
    value: Option<u8>,
    digits: u8,
    start: u64,
    end: u64,
}

/// A range of bytes of the original text that is part of a secret.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Readings {
    /// Reads one more byte, and reports each range that is now known to be part of a secret.
    pub(super) fn push(&mut self, patterns: &Patterns, symbol: Symbol, report: &mut impl FnMut(Span)) {
        match self.line.position_of(symbol.byte) {
            LinePosition::InLine => {
                let byte = symbol.byte.to_ascii_lowercase();
                self.plain.push(&patterns.plain, Symbol { byte, ..symbol }, report);
                match base64_digit(symbol.byte) {
                    // Base64 may be written in groups that are separated by spaces.
                    None if symbol.byte == b' ' => {}
                    Some(byte) => self.base64.push(&patterns.base64, Symbol { byte, ..symbol }, report),
                    None => self.base64.interrupt(&patterns.base64, report),
                }
            }
            LinePosition::BetweenLines => {}
            LinePosition::BetweenParagraphs => {
                self.plain.interrupt(&patterns.plain, report);
                self.base64.interrupt(&patterns.base64, report);
            }
        }
        self.push_hexadecimal(patterns, symbol, report);
        self.push_decimal(patterns, symbol, report);
    }

    /// Ends the text and handles the digits that have been read but not yet decoded.
    pub(super) fn finish(&mut self, patterns: &Patterns, report: &mut impl FnMut(Span)) {
        self.finish_zero(patterns, report);
        self.finish_number(patterns, report);
    }

    /// If the text ends with a part of a secret, reports this part, because the text may have been cut in the middle of
    /// the secret.
    pub(super) fn cut(&self, patterns: &Patterns, report: &mut impl FnMut(Span)) {
        self.plain.cut(&patterns.plain, report);
        self.base64.cut(&patterns.base64, report);
        self.hexadecimal.cut(&patterns.hexadecimal, report);
        self.decimal.cut(&patterns.plain, report);
    }

    /// Returns the state in which reading starts if the first part of a text may have been cut off.
    pub(super) fn after_cut(mut self) -> Self {
        for track in [&mut self.plain, &mut self.base64, &mut self.hexadecimal, &mut self.decimal] {
            track.start_match = StartMatch::AllMatched;
        }
        self
    }

    /// Position of the first byte that may be part of a secret. The bytes that follow decide whether it is.
    pub(super) fn uncertain_from(&self, patterns: &Patterns) -> Option<u64> {
        let tracks = [
            self.plain.uncertain_from(&patterns.plain),
            self.base64.uncertain_from(&patterns.base64),
            self.hexadecimal.uncertain_from(&patterns.hexadecimal),
            self.decimal.uncertain_from(&patterns.plain),
            self.zero.map(|zero| zero.start),
            self.number.filter(|number| number.value.is_some()).map(|number| number.start),
        ];
        tracks.into_iter().flatten().min()
    }

    fn push_hexadecimal(&mut self, patterns: &Patterns, symbol: Symbol, report: &mut impl FnMut(Span)) {
        let byte = symbol.byte.to_ascii_lowercase();
        if byte == b'x' && self.zero.take().is_some() {
            return;
        }
        self.finish_zero(patterns, report);
        match byte {
            b'0' => self.zero = Some(Zero { start: symbol.start, end: symbol.end }),
            b'1'..=b'9' | b'a'..=b'f' => {
                self.hexadecimal.push(&patterns.hexadecimal, Symbol { byte, ..symbol }, report)
            }
            b' ' | b':' | b'-' | b',' | b'_' | b'\t' | b'\r' | b'\n' => {}
            _ => self.hexadecimal.interrupt(&patterns.hexadecimal, report),
        }
    }

    fn finish_zero(&mut self, patterns: &Patterns, report: &mut impl FnMut(Span)) {
        if let Some(Zero { start, end }) = self.zero.take() {
            self.hexadecimal.push(&patterns.hexadecimal, Symbol { byte: b'0', start, end }, report);
        }
    }

    fn push_decimal(&mut self, patterns: &Patterns, symbol: Symbol, report: &mut impl FnMut(Span)) {
        if symbol.byte.is_ascii_digit() {
            let digit = symbol.byte - b'0';
            self.number = Some(match self.number {
                None => Number { value: Some(digit), digits: 1, start: symbol.start, end: symbol.end },
                Some(Number { value, digits, start, .. }) => {
                    let value = value.filter(|_| digits < MAX_DECIMAL_DIGITS);
                    let value = value.and_then(|value| value.checked_mul(10)?.checked_add(digit));
                    Number { value, digits: digits.saturating_add(1), start, end: symbol.end }
                }
            });
            return;
        }
        self.finish_number(patterns, report);
        if !matches!(symbol.byte, b' ' | b',' | b';' | b'-' | b'\t' | b'\r' | b'\n') {
            self.decimal.interrupt(&patterns.plain, report);
        }
    }

    fn finish_number(&mut self, patterns: &Patterns, report: &mut impl FnMut(Span)) {
        let Some(Number { value, start, end, .. }) = self.number.take() else { return };
        match value {
            Some(byte) => {
                let byte = byte.to_ascii_lowercase();
                self.decimal.push(&patterns.plain, Symbol { byte, start, end }, report);
            }
            None => self.decimal.interrupt(&patterns.plain, report),
        }
    }
}

/// Maps a digit of the standard or the URL-safe Base64 alphabet to the standard alphabet. `None` means that the byte is
/// not a Base64 digit.
fn base64_digit(byte: u8) -> Option<u8> {
    match byte {
        b'-' => Some(b'+'),
        b'_' => Some(b'/'),
        b'+' | b'/' => Some(byte),
        _ => byte.is_ascii_alphanumeric().then_some(byte),
    }
}

/// Recognizes line breaks and the indentation after them, which are skipped because a secret may be wrapped. A zero
/// byte is skipped in the same way as a line break, because it may be half of a UTF-16 character.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Line {
    #[default]
    Within,
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinePosition {
    InLine,
    BetweenLines,
    BetweenParagraphs,
}

impl Line {
    fn position_of(&mut self, byte: u8) -> LinePosition {
        match (byte, *self) {
            (b'\n', Line::Ended) => LinePosition::BetweenParagraphs,
            (b'\n', Line::Within) => {
                *self = Line::Ended;
                LinePosition::BetweenLines
            }
            (0 | b'\r', _) | (b' ' | b'\t', Line::Ended) => LinePosition::BetweenLines,
            _ => {
                *self = Line::Within;
                LinePosition::InLine
            }
        }
    }
}

/// The state of one automaton while it searches a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Track {
    matched: Matched,
    start_match: StartMatch,
    starts: Starts,
    /// Position in the original text at which the last symbol ended.
    end: u64,
}

/// Whether all symbols since the beginning of the text match a secret, or match the rest of a secret whose beginning
/// was cut off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum StartMatch {
    AllMatched,
    #[default]
    Otherwise,
}

/// Start positions of the last symbols, in a ring buffer. All values of this type compare as equal, because the
/// positions do not affect which secrets are found.
#[derive(Clone, Debug)]
struct Starts {
    positions: [u64; REMEMBERED_POSITIONS],
    next: usize,
}

impl Default for Starts {
    fn default() -> Self {
        Self { positions: [0; REMEMBERED_POSITIONS], next: 0 }
    }
}

impl PartialEq for Starts {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Starts {}

impl Starts {
    fn push(&mut self, start: u64) {
        self.positions[self.next] = start;
        self.next = (self.next + 1) % REMEMBERED_POSITIONS;
    }

    /// Returns the position at which the last `length` symbols begin. If `length` is too large, returns the earliest
    /// remembered position.
    fn start_of_last(&self, length: usize) -> u64 {
        self.positions
            [(self.next + REMEMBERED_POSITIONS - length.clamp(1, REMEMBERED_POSITIONS)) % REMEMBERED_POSITIONS]
    }
}

impl Track {
    fn push(&mut self, automaton: &SubstringAutomaton, symbol: Symbol, report: &mut impl FnMut(Span)) {
        let before = self.matched;
        self.matched = automaton.step(before, symbol.byte);
        if self.matched.length <= before.length && self.start_match == StartMatch::AllMatched {
            self.end_start_match(automaton, before, report);
        }
        self.starts.push(symbol.start);
        self.end = symbol.end;
        let found = automaton.found(self.matched);
        if found > 0 {
            report(Span { start: self.starts.start_of_last(found), end: self.end });
        }
    }

    /// Handles a symbol that occurs in no secret.
    fn interrupt(&mut self, automaton: &SubstringAutomaton, report: &mut impl FnMut(Span)) {
        if self.start_match == StartMatch::AllMatched {
            self.end_start_match(automaton, self.matched, report);
        }
        self.matched = Matched::default();
    }

    fn end_start_match(&mut self, automaton: &SubstringAutomaton, before: Matched, report: &mut impl FnMut(Span)) {
        self.start_match = StartMatch::Otherwise;
        if before.length >= automaton.thresholds.at_edge {
            report(Span { start: self.starts.start_of_last(before.length), end: self.end });
        }
    }

    fn cut(&self, automaton: &SubstringAutomaton, report: &mut impl FnMut(Span)) {
        if self.matched.length >= automaton.thresholds.at_edge {
            report(Span { start: self.starts.start_of_last(self.matched.length), end: self.end });
        }
    }

    fn uncertain_from(&self, automaton: &SubstringAutomaton) -> Option<u64> {
        let length = match self.start_match {
            StartMatch::AllMatched if self.matched.length < automaton.thresholds.part => self.matched.length,
            _ => automaton.uncertain(self.matched),
        };
        (length > 0).then(|| self.starts.start_of_last(length))
    }
}
