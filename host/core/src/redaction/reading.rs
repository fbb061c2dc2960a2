//! The ways in which the bytes of a text may spell a secret: as they are, in Base64, in hexadecimal and in decimal digits. Each
//! way follows the text in an automaton of its own.

use super::automaton::{Matched, SubstringAutomaton, Thresholds};
use super::escapes::Symbol;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use std::collections::BTreeSet;

/// Bytes of a secret's part that are taken for the secret.
pub(super) const PART: usize = 12;
/// The same at the beginning and the end of a text that may have been cut.
const PART_AT_EDGE: usize = 8;
/// Digits of a byte in decimal, zeros before it included.
const MOST_DIGITS: u8 = 3;
/// Starts of symbols that are remembered: as many as the longest threshold has.
const REMEMBERED: usize = 2 * PART;

/// What is looked for, in each way.
#[derive(Debug)]
pub(super) struct Patterns {
    plain: SubstringAutomaton,
    base64: SubstringAutomaton,
    hexadecimal: SubstringAutomaton,
}

impl Patterns {
    /// Of these values.
    pub(super) fn new(values: &[Vec<u8>]) -> Self {
        let thresholds = |part, at_edge| Thresholds { part, at_edge };
        let plain: Vec<_> = values.iter().flat_map(|value| plain_forms(value)).collect();
        // What was written in other letters before it was encoded.
        let cased =
            values.iter().flat_map(|value| [value.clone(), value.to_ascii_lowercase(), value.to_ascii_uppercase()]);
        let cased: BTreeSet<Vec<u8>> = cased.collect();
        let base64: Vec<_> = cased.iter().flat_map(|value| base64_forms(value)).collect();
        let hexadecimal: Vec<_> = cased.iter().map(|value| hexadecimal_form(value)).collect();
        Self {
            plain: SubstringAutomaton::new(&plain, thresholds(PART, PART_AT_EDGE)),
            base64: SubstringAutomaton::new(&base64, thresholds(PART * 4 / 3, PART_AT_EDGE * 4 / 3)),
            hexadecimal: SubstringAutomaton::new(&hexadecimal, thresholds(PART * 2, PART_AT_EDGE * 2)),
        }
    }
}

/// As it is and backwards, in small letters.
fn plain_forms(value: &[u8]) -> [Vec<u8>; 2] {
    let mut line = Line::default();
    let kept = value.iter().filter(|byte| line.place_of(**byte) == Place::InLine);
    let plain: Vec<u8> = kept.map(u8::to_ascii_lowercase).collect();
    let backwards = plain.iter().rev().copied().collect();
    [plain, backwards]
}

/// In Base64 at each of the three places where it may begin among other bytes, without the digits that those have a part in.
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

/// How far a text has been read, in each way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Readings {
    plain: Track,
    base64: Track,
    hexadecimal: Track,
    decimal: Track,
    line: Line,
    /// A zero that may belong to the next byte's `0x`.
    zero: Option<Zero>,
    number: Option<Number>,
}

/// Where a digit stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Zero {
    start: u64,
    end: u64,
}

/// Decimal digits so far; no value where they are too many for a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Number {
    value: Option<u8>,
    digits: u8,
    start: u64,
    end: u64,
}

/// Bytes of the source that must not be shown.
pub(super) type Span = (u64, u64);

impl Readings {
    /// Reads one more byte, and tells what must not be shown.
    pub(super) fn push(&mut self, patterns: &Patterns, symbol: Symbol, tell: &mut impl FnMut(Span)) {
        match self.line.place_of(symbol.byte) {
            Place::InLine => {
                let byte = symbol.byte.to_ascii_lowercase();
                self.plain.push(&patterns.plain, Symbol { byte, ..symbol }, tell);
                match base64_digit(symbol.byte) {
                    // It may be written in groups.
                    None if symbol.byte == b' ' => {}
                    Some(byte) => self.base64.push(&patterns.base64, Symbol { byte, ..symbol }, tell),
                    None => self.base64.interrupt(&patterns.base64, tell),
                }
            }
            Place::BetweenLines => {}
            Place::BetweenParagraphs => {
                self.plain.interrupt(&patterns.plain, tell);
                self.base64.interrupt(&patterns.base64, tell);
            }
        }
        self.push_hexadecimal(patterns, symbol, tell);
        self.push_decimal(patterns, symbol, tell);
    }

    /// Nothing follows.
    pub(super) fn finish(&mut self, patterns: &Patterns, tell: &mut impl FnMut(Span)) {
        self.settle_zero(patterns, tell);
        self.settle_number(patterns, tell);
    }

    /// Tells what is a part of a secret that may go on behind the text's end.
    pub(super) fn cut(&self, patterns: &Patterns, tell: &mut impl FnMut(Span)) {
        self.plain.cut(&patterns.plain, tell);
        self.base64.cut(&patterns.base64, tell);
        self.hexadecimal.cut(&patterns.hexadecimal, tell);
        self.decimal.cut(&patterns.plain, tell);
    }

    /// What stands before the text may have been cut off.
    pub(super) fn after_cut(mut self) -> Self {
        for track in [&mut self.plain, &mut self.base64, &mut self.hexadecimal, &mut self.decimal] {
            track.since_start = SinceStart::AllMatched;
        }
        self
    }

    /// Where the first byte stands of which it is not certain whether it may be shown.
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

    fn push_hexadecimal(&mut self, patterns: &Patterns, symbol: Symbol, tell: &mut impl FnMut(Span)) {
        let byte = symbol.byte.to_ascii_lowercase();
        if byte == b'x' && self.zero.take().is_some() {
            return;
        }
        self.settle_zero(patterns, tell);
        match byte {
            b'0' => self.zero = Some(Zero { start: symbol.start, end: symbol.end }),
            b'1'..=b'9' | b'a'..=b'f' => self.hexadecimal.push(&patterns.hexadecimal, Symbol { byte, ..symbol }, tell),
            b' ' | b':' | b'-' | b',' | b'_' | b'\t' | b'\r' | b'\n' => {}
            _ => self.hexadecimal.interrupt(&patterns.hexadecimal, tell),
        }
    }

    fn settle_zero(&mut self, patterns: &Patterns, tell: &mut impl FnMut(Span)) {
        if let Some(Zero { start, end }) = self.zero.take() {
            self.hexadecimal.push(&patterns.hexadecimal, Symbol { byte: b'0', start, end }, tell);
        }
    }

    fn push_decimal(&mut self, patterns: &Patterns, symbol: Symbol, tell: &mut impl FnMut(Span)) {
        if symbol.byte.is_ascii_digit() {
            let digit = symbol.byte - b'0';
            self.number = Some(match self.number {
                None => Number { value: Some(digit), digits: 1, start: symbol.start, end: symbol.end },
                Some(Number { value, digits, start, .. }) => {
                    let value = value.filter(|_| digits < MOST_DIGITS);
                    let value = value.and_then(|value| value.checked_mul(10)?.checked_add(digit));
                    Number { value, digits: digits.saturating_add(1), start, end: symbol.end }
                }
            });
            return;
        }
        self.settle_number(patterns, tell);
        if !matches!(symbol.byte, b' ' | b',' | b';' | b'-' | b'\t' | b'\r' | b'\n') {
            self.decimal.interrupt(&patterns.plain, tell);
        }
    }

    fn settle_number(&mut self, patterns: &Patterns, tell: &mut impl FnMut(Span)) {
        let Some(Number { value, start, end, .. }) = self.number.take() else { return };
        match value {
            Some(byte) => {
                let byte = byte.to_ascii_lowercase();
                self.decimal.push(&patterns.plain, Symbol { byte, start, end }, tell);
            }
            None => self.decimal.interrupt(&patterns.plain, tell),
        }
    }
}

/// Digits of the URL's alphabet as those of the usual one.
fn base64_digit(byte: u8) -> Option<u8> {
    match byte {
        b'-' => Some(b'+'),
        b'_' => Some(b'/'),
        b'+' | b'/' => Some(byte),
        _ => byte.is_ascii_alphanumeric().then_some(byte),
    }
}

/// Tells the ends of lines, and the spaces before the next line's first word, from the rest: a long text may be wrapped. A zero
/// byte is taken for the other half of a character in UTF-16.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Line {
    #[default]
    Within,
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    InLine,
    BetweenLines,
    BetweenParagraphs,
}

impl Line {
    fn place_of(&mut self, byte: u8) -> Place {
        match (byte, *self) {
            (b'\n', Line::Ended) => Place::BetweenParagraphs,
            (b'\n', Line::Within) => {
                *self = Line::Ended;
                Place::BetweenLines
            }
            (0 | b'\r', _) | (b' ' | b'\t', Line::Ended) => Place::BetweenLines,
            _ => {
                *self = Line::Within;
                Place::InLine
            }
        }
    }
}

/// How a text is followed in one automaton.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Track {
    matched: Matched,
    since_start: SinceStart,
    starts: Starts,
    /// Where the last symbol ended.
    end: u64,
}

/// Whether everything since the text's beginning is a part of a secret whose beginning may have been cut off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SinceStart {
    AllMatched,
    #[default]
    Otherwise,
}

/// Where the last symbols began. What has been told already does not tell tracks apart.
#[derive(Clone, Debug)]
struct Starts {
    places: [u64; REMEMBERED],
    next: usize,
}

impl Default for Starts {
    fn default() -> Self {
        Self { places: [0; REMEMBERED], next: 0 }
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
        self.places[self.next] = start;
        self.next = (self.next + 1) % REMEMBERED;
    }

    /// Of the symbol that was followed by `length - 1` others, as far as is remembered.
    fn of_last(&self, length: usize) -> u64 {
        self.places[(self.next + REMEMBERED - length.clamp(1, REMEMBERED)) % REMEMBERED]
    }
}

impl Track {
    fn push(&mut self, automaton: &SubstringAutomaton, symbol: Symbol, tell: &mut impl FnMut(Span)) {
        let before = self.matched;
        self.matched = automaton.step(before, symbol.byte);
        if self.matched.length <= before.length && self.since_start == SinceStart::AllMatched {
            self.leave_start(automaton, before, tell);
        }
        self.starts.push(symbol.start);
        self.end = symbol.end;
        let found = automaton.found(self.matched);
        if found > 0 {
            tell((self.starts.of_last(found), self.end));
        }
    }

    /// Something that no secret has follows.
    fn interrupt(&mut self, automaton: &SubstringAutomaton, tell: &mut impl FnMut(Span)) {
        if self.since_start == SinceStart::AllMatched {
            self.leave_start(automaton, self.matched, tell);
        }
        self.matched = Matched::default();
    }

    fn leave_start(&mut self, automaton: &SubstringAutomaton, before: Matched, tell: &mut impl FnMut(Span)) {
        self.since_start = SinceStart::Otherwise;
        if before.length >= automaton.thresholds.at_edge {
            tell((self.starts.of_last(before.length), self.end));
        }
    }

    fn cut(&self, automaton: &SubstringAutomaton, tell: &mut impl FnMut(Span)) {
        if self.matched.length >= automaton.thresholds.at_edge {
            tell((self.starts.of_last(self.matched.length), self.end));
        }
    }

    fn uncertain_from(&self, automaton: &SubstringAutomaton) -> Option<u64> {
        let length = match self.since_start {
            SinceStart::AllMatched if self.matched.length < automaton.thresholds.part => self.matched.length,
            _ => automaton.uncertain(self.matched),
        };
        (length > 0).then(|| self.starts.of_last(length))
    }
}
