//! Decodes one layer of escapes in a text and keeps the original position of each byte. The decoder handles percent
//! encoding, JSON and C escapes, HTML character references and quoted-printable.

/// A decoded byte, and the range of bytes in the original text from which it was decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Symbol {
    pub(super) byte: u8,
    pub(super) start: u64,
    pub(super) end: u64,
}

/// Maximum number of bytes that are read as one escape, such as `&#x0000074;`.
const MAX_ESCAPE_LENGTH: usize = 12;

/// Named HTML character references for the punctuation that occurs in secrets.
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

/// Decoder of one layer of escapes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Unescape {
    /// Bytes that have been read and may be the beginning of an escape.
    pending: Vec<Symbol>,
}

/// The result of reading the beginning of the pending bytes as an escape.
enum Escape {
    /// More bytes are needed to tell whether the pending bytes are an escape.
    Incomplete,
    /// The first byte does not begin an escape.
    Literal,
    /// The pending bytes begin with an escape. The number is the length of the escape in bytes, and `Decoded` contains
    /// the bytes that the escape represents.
    Complete(usize, Decoded),
}

/// The bytes that an escape represents. An escape represents at most four bytes.
struct Decoded {
    bytes: [u8; 4],
    length: usize,
}

impl Unescape {
    /// Reads the next byte. Calls `report` with each decoded byte.
    pub(super) fn push(&mut self, symbol: Symbol, report: &mut impl FnMut(Symbol)) {
        if self.pending.is_empty() && !may_begin(symbol.byte) {
            return report(symbol);
        }
        self.pending.push(symbol);
        self.decode_pending(report);
    }

    /// Ends the text. The bytes of an incomplete escape are reported without decoding.
    pub(super) fn finish(&mut self, report: &mut impl FnMut(Symbol)) {
        while !self.pending.is_empty() {
            report(self.pending.remove(0));
            self.decode_pending(report);
        }
    }

    /// Position of the first pending byte. `None` means that no byte is pending.
    pub(super) fn pending_from(&self) -> Option<u64> {
        self.pending.first().map(|symbol| symbol.start)
    }

    fn decode_pending(&mut self, report: &mut impl FnMut(Symbol)) {
        while let Some(first) = self.pending.first() {
            if !may_begin(first.byte) {
                report(self.pending.remove(0));
                continue;
            }
            let mut bytes = [0; MAX_ESCAPE_LENGTH];
            let known = self.pending.len().min(MAX_ESCAPE_LENGTH);
            self.pending.iter().zip(&mut bytes).for_each(|(symbol, byte)| *byte = symbol.byte);
            match read(&bytes[..known]) {
                Escape::Incomplete if known < MAX_ESCAPE_LENGTH => return,
                Escape::Incomplete | Escape::Literal => report(self.pending.remove(0)),
                Escape::Complete(length, decoded) => {
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

/// Reads an escape that consists of `prefix` bytes and `digits` hexadecimal digits.
fn hexadecimal(bytes: &[u8], prefix: usize, digits: usize) -> Escape {
    let available = &bytes[prefix.min(bytes.len())..bytes.len().min(prefix + digits)];
    if !available.iter().all(u8::is_ascii_hexdigit) {
        return Escape::Literal;
    }
    if available.len() < digits {
        Escape::Incomplete
    } else {
        character(number(available, 16), prefix + digits, digits)
    }
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
        b'n' => single_byte(2, b'\n'),
        b'r' => single_byte(2, b'\r'),
        b't' => single_byte(2, b'\t'),
        b'\n' => Escape::Complete(2, Decoded { bytes: [0; 4], length: 0 }),
        other if other.is_ascii_punctuation() => single_byte(2, *other),
        _ => Escape::Literal,
    }
}

/// Reads a backslash and one to three octal digits.
fn octal(bytes: &[u8]) -> Escape {
    let digits = bytes[1..].iter().take(3).take_while(|byte| matches!(byte, b'0'..=b'7')).count();
    if digits < 3 && bytes.len() == digits + 1 {
        return Escape::Incomplete;
    }
    match u8::try_from(number(&bytes[1..=digits], 8)) {
        Ok(byte) => single_byte(digits + 1, byte),
        Err(_) => Escape::Literal,
    }
}

/// Reads a numeric HTML reference, such as `&#116;` or `&#x74;`. The `;` is optional, because browsers accept
/// references without a `;`. `None` means that the reference is not numeric.
fn numeric_reference(bytes: &[u8]) -> Option<Escape> {
    let (prefix, radix) = match bytes {
        [_, b'#', b'x' | b'X', ..] => (3, 16),
        [_, b'#', ..] => (2, 10),
        _ => return None,
    };
    let is_digit = |byte: &&u8| char::from(**byte).is_digit(radix);
    let digits = bytes[prefix..].iter().take_while(is_digit).count();
    match bytes.get(prefix + digits) {
        None => Some(Escape::Incomplete),
        Some(_) if digits == 0 => None,
        Some(next) => {
            let length = prefix + digits + usize::from(*next == b';');
            Some(character(number(&bytes[prefix..prefix + digits], radix), length, 4))
        }
    }
}

fn reference(bytes: &[u8]) -> Escape {
    if let Some(numeric) = numeric_reference(bytes) {
        return numeric;
    }
    let Some(end) = bytes.iter().position(|byte| *byte == b';') else {
        let may_continue = bytes[1..].iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'#');
        return if may_continue { Escape::Incomplete } else { Escape::Literal };
    };
    let name = &bytes[1..end];
    match NAMED_REFERENCES.iter().find(|(named, _)| named.as_bytes() == name) {
        Some((_, byte)) => single_byte(end + 1, *byte),
        None => Escape::Literal,
    }
}

/// Decodes an escape only if the escape represents a character that quoted-printable must encode. In most texts, `=`
/// before other letters and digits is not an escape.
fn quoted_printable(bytes: &[u8]) -> Escape {
    match bytes.get(1) {
        None => Escape::Incomplete,
        Some(b'\n') => Escape::Complete(2, Decoded { bytes: [0; 4], length: 0 }),
        Some(b'\r') => match bytes.get(2) {
            None => Escape::Incomplete,
            Some(b'\n') => Escape::Complete(3, Decoded { bytes: [0; 4], length: 0 }),
            Some(_) => Escape::Literal,
        },
        Some(_) => {
            let digits = &bytes[1..bytes.len().min(3)];
            if !digits.iter().all(|byte| byte.is_ascii_digit() || (b'A'..=b'F').contains(byte)) {
                return Escape::Literal;
            }
            match u8::try_from(number(digits, 16)) {
                _ if digits.len() < 2 => Escape::Incomplete,
                Ok(byte) if byte.is_ascii_punctuation() || byte == b' ' => single_byte(3, byte),
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

fn single_byte(length: usize, byte: u8) -> Escape {
    Escape::Complete(length, Decoded { bytes: [byte, 0, 0, 0], length: 1 })
}

/// Decodes the number in an escape. A number with two digits is a byte. A number with more digits is a Unicode
/// character, which is encoded in UTF-8.
fn character(number: u32, length: usize, digits: usize) -> Escape {
    match (u8::try_from(number), char::from_u32(number)) {
        (Ok(byte), _) if digits == 2 || byte.is_ascii() => single_byte(length, byte),
        (_, Some(char)) => {
            let mut bytes = [0; 4];
            let encoded = char.encode_utf8(&mut bytes).len();
            Escape::Complete(length, Decoded { bytes, length: encoded })
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
        for (text, expected) in [
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
            assert_eq!(decoded(text), expected, "{text}");
        }
    }
}
