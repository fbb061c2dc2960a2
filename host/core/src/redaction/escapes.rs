//! Decodes one layer of escapes in a text and keeps the source position of each byte. It handles percent encoding,
//! JSON and C escapes, HTML character references and quoted-printable.

/// A byte of a text, and the range of source bytes that it represents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Symbol {
    pub(super) byte: u8,
    pub(super) start: u64,
    pub(super) end: u64,
}

/// Length of the longest escape: `&#x0000074;`.
const LONGEST: usize = 12;

/// Named character references for characters that tokens consist of.
const NAMED_REFERENCES: [(&str, u8); 20] = [
    ("amp", b'&'),
    ("lt", b'<'),
    ("gt", b'>'),
    ("quot", b'"'),
    ("apos", b'\''),
    ("sol", b'/'),
    ("bsol", b'\\'),
    ("plus", b'+'),
    ("equals", b'='),
    ("lowbar", b'_'),
    ("period", b'.'),
    ("comma", b','),
    ("colon", b':'),
    ("semi", b';'),
    ("num", b'#'),
    ("excl", b'!'),
    ("quest", b'?'),
    ("commat", b'@'),
    ("percnt", b'%'),
    ("dollar", b'$'),
];

/// Whether an escape may begin with this byte.
pub(super) fn may_begin(byte: u8) -> bool {
    matches!(byte, b'%' | b'\\' | b'&' | b'=')
}

/// Decoder of one layer, with the beginning of an incomplete escape.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Unescape {
    pending: Vec<Symbol>,
}

/// How the pending bytes are to be read.
enum Escape {
    /// More bytes are needed.
    Incomplete,
    /// The first byte is not an escape.
    Literal,
    /// This number of bytes is an escape for the decoded bytes.
    Of(usize, Decoded),
}

/// The bytes that an escape represents, up to four.
struct Decoded {
    bytes: [u8; 4],
    length: usize,
}

impl Unescape {
    /// Takes the next byte. `report` gets the bytes that are certain.
    pub(super) fn push(&mut self, symbol: Symbol, report: &mut impl FnMut(Symbol)) {
        if self.pending.is_empty() && !may_begin(symbol.byte) {
            return report(symbol);
        }
        self.pending.push(symbol);
        self.settle(report);
    }

    /// Ends the text.
    pub(super) fn finish(&mut self, report: &mut impl FnMut(Symbol)) {
        while !self.pending.is_empty() {
            report(self.pending.remove(0));
            self.settle(report);
        }
    }

    /// Position of the first byte that is still pending.
    pub(super) fn pending_from(&self) -> Option<u64> {
        self.pending.first().map(|symbol| symbol.start)
    }

    fn settle(&mut self, report: &mut impl FnMut(Symbol)) {
        while let Some(first) = self.pending.first() {
            if !may_begin(first.byte) {
                report(self.pending.remove(0));
                continue;
            }
            let mut bytes = [0; LONGEST];
            let known = self.pending.len().min(LONGEST);
            self.pending.iter().zip(&mut bytes).for_each(|(symbol, byte)| *byte = symbol.byte);
            match read(&bytes[..known]) {
                Escape::Incomplete if known < LONGEST => return,
                Escape::Incomplete | Escape::Literal => report(self.pending.remove(0)),
                Escape::Of(length, decoded) => {
                    let (start, end) = (self.pending[0].start, self.pending[length - 1].end);
                    self.pending.drain(..length);
                    decoded.bytes[..decoded.length].iter().for_each(|byte| report(Symbol { byte: *byte, start, end }));
                }
            }
        }
    }
}

fn read(bytes: &[u8]) -> Escape {
    match bytes[0] {
        b'%' => hexadecimal(bytes, 1, 2),
        b'\\' => backslash(bytes),
        b'&' => reference(bytes),
        b'=' => quoted_printable(bytes),
        _ => Escape::Literal,
    }
}

/// Reads `digits` hexadecimal digits after `before` other bytes.
fn hexadecimal(bytes: &[u8], before: usize, digits: usize) -> Escape {
    let there = &bytes[before.min(bytes.len())..bytes.len().min(before + digits)];
    if !there.iter().all(u8::is_ascii_hexdigit) {
        return Escape::Literal;
    }
    if there.len() < digits { Escape::Incomplete } else { character(number(there, 16), before + digits, digits) }
}

fn backslash(bytes: &[u8]) -> Escape {
    let Some(kind) = bytes.get(1) else { return Escape::Incomplete };
    match kind {
        b'u' if bytes.get(2) == Some(&b'{') => match bytes.iter().position(|byte| *byte == b'}') {
            Some(end) if (4..=9).contains(&end) && bytes[3..end].iter().all(u8::is_ascii_hexdigit) => {
                character(number(&bytes[3..end], 16), end + 1, 4)
            }
            None if bytes[3..].iter().all(u8::is_ascii_hexdigit) => Escape::Incomplete,
            _ => Escape::Literal,
        },
        b'u' => hexadecimal(bytes, 2, 4),
        b'U' => hexadecimal(bytes, 2, 8),
        b'0'..=b'7' => octal(bytes),
        b'x' => hexadecimal(bytes, 2, 2),
        b'n' => one(2, b'\n'),
        b'r' => one(2, b'\r'),
        b't' => one(2, b'\t'),
        b'\n' => Escape::Of(2, Decoded { bytes: [0; 4], length: 0 }),
        other if other.is_ascii_punctuation() => one(2, *other),
        _ => Escape::Literal,
    }
}

/// Reads one to three octal digits.
fn octal(bytes: &[u8]) -> Escape {
    let digits = bytes[1..].iter().take(3).take_while(|byte| matches!(byte, b'0'..=b'7')).count();
    if digits < 3 && bytes.len() == digits + 1 {
        return Escape::Incomplete;
    }
    match u8::try_from(number(&bytes[1..=digits], 8)) {
        Ok(byte) => one(digits + 1, byte),
        Err(_) => Escape::Literal,
    }
}

/// Reads `&#116` and `&#x74`, which browsers also accept without `;`. None: it is not a number.
fn numeric_reference(bytes: &[u8]) -> Option<Escape> {
    let (before, radix) = match bytes {
        [_, b'#', b'x' | b'X', ..] => (3, 16),
        [_, b'#', ..] => (2, 10),
        _ => return None,
    };
    let is_digit = |byte: &&u8| char::from(**byte).is_digit(radix);
    let digits = bytes[before..].iter().take_while(is_digit).count();
    match bytes.get(before + digits) {
        None => Some(Escape::Incomplete),
        Some(_) if digits == 0 => None,
        Some(next) => {
            let length = before + digits + usize::from(*next == b';');
            Some(character(number(&bytes[before..before + digits], radix), length, 4))
        }
    }
}

fn reference(bytes: &[u8]) -> Escape {
    if let Some(numeric) = numeric_reference(bytes) {
        return numeric;
    }
    let Some(end) = bytes.iter().position(|byte| *byte == b';') else {
        let may_go_on = bytes[1..].iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'#');
        return if may_go_on { Escape::Incomplete } else { Escape::Literal };
    };
    let name = &bytes[1..end];
    match NAMED_REFERENCES.iter().find(|(named, _)| named.as_bytes() == name) {
        Some((_, byte)) => one(end + 1, *byte),
        None => Escape::Literal,
    }
}

/// Decodes only what quoted-printable must encode. `=` before letters and digits is ordinary text far more often.
fn quoted_printable(bytes: &[u8]) -> Escape {
    match bytes.get(1) {
        None => Escape::Incomplete,
        Some(b'\n') => Escape::Of(2, Decoded { bytes: [0; 4], length: 0 }),
        Some(b'\r') => match bytes.get(2) {
            None => Escape::Incomplete,
            Some(b'\n') => Escape::Of(3, Decoded { bytes: [0; 4], length: 0 }),
            Some(_) => Escape::Literal,
        },
        Some(_) => {
            let digits = &bytes[1..bytes.len().min(3)];
            if !digits.iter().all(|byte| byte.is_ascii_digit() || (b'A'..=b'F').contains(byte)) {
                return Escape::Literal;
            }
            match u8::try_from(number(digits, 16)) {
                _ if digits.len() < 2 => Escape::Incomplete,
                Ok(byte) if byte.is_ascii_punctuation() || byte == b' ' => one(3, byte),
                _ => Escape::Literal,
            }
        }
    }
}

fn number(digits: &[u8], radix: u32) -> u32 {
    digits.iter().fold(0_u32, |number, digit| {
        let digit = char::from(*digit).to_digit(radix).unwrap_or_default();
        number.saturating_mul(radix).saturating_add(digit)
    })
}

fn one(length: usize, byte: u8) -> Escape {
    Escape::Of(length, Decoded { bytes: [byte, 0, 0, 0], length: 1 })
}

/// Two digits represent a byte, more digits a character in UTF-8.
fn character(number: u32, length: usize, digits: usize) -> Escape {
    match (u8::try_from(number), char::from_u32(number)) {
        (Ok(byte), _) if digits == 2 || byte.is_ascii() => one(length, byte),
        (_, Some(char)) => {
            let mut bytes = [0; 4];
            let encoded = char.encode_utf8(&mut bytes).len();
            Escape::Of(length, Decoded { bytes, length: encoded })
        }
        _ => Escape::Literal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(text: &str) -> String {
        let (mut unescape, mut bytes) = (Unescape::default(), Vec::new());
        for (position, byte) in (0..).zip(text.bytes()) {
            unescape.push(Symbol { byte, start: position, end: position + 1 }, &mut |symbol| bytes.push(symbol.byte));
        }
        unescape.finish(&mut |symbol| bytes.push(symbol.byte));
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Row 41: each escape is decoded once, and everything else stays unchanged.
    #[test]
    fn row_41_escapes_are_decoded() {
        for (text, plain) in [
            ("a%2Bb%2f%zz%2", "a+b/%zz%2"),
            (r#"a\u002b\/\"\x2b\u{2b}\n\q"#, "a+/\"++\n\\q"),
            (r"\164\U00000074\53x\0538\777", "tt+x+8\\777"),
            ("&#116&#x74 &#116;x", "tt tx"),
            ("a&#43;&#x2B;&plus;&amp;amp;&none;& &#;", "a+++&amp;&none;& &#;"),
            ("key=3D=2B=\r\nx=ab=AB=", "key=+x=ab=AB="),
            ("%252B", "%2B"),
            ("\\u00e9%C3%A9", "éé"),
            ("&#99999999999999;", "&#99999999999999;"),
        ] {
            assert_eq!(decoded(text), plain, "{text}");
        }
    }
}
