//! Decodes character references in HTML: all references by number, and references by name if the name is common on
//! web pages.

/// The supported names, each with the character that the name represents. References with other names stay unchanged in
/// the text.
const NAMES: [(&str, &str); 40] = [
    ("amp", "&"),
    ("lt", "<"),
    ("gt", ">"),
    ("quot", "\""),
    ("apos", "'"),
    ("nbsp", " "),
    ("copy", "©"),
    ("reg", "®"),
    ("trade", "™"),
    ("hellip", "…"),
    ("mdash", "—"),
    ("ndash", "–"),
    ("lsquo", "‘"),
    ("rsquo", "’"),
    ("ldquo", "“"),
    ("rdquo", "”"),
    ("laquo", "«"),
    ("raquo", "»"),
    ("bull", "•"),
    ("middot", "·"),
    ("euro", "€"),
    ("pound", "£"),
    ("deg", "°"),
    ("times", "×"),
    ("divide", "÷"),
    ("plusmn", "±"),
    ("frac12", "½"),
    ("sect", "§"),
    ("para", "¶"),
    ("auml", "ä"),
    ("ouml", "ö"),
    ("uuml", "ü"),
    ("Auml", "Ä"),
    ("Ouml", "Ö"),
    ("Uuml", "Ü"),
    ("szlig", "ß"),
    ("eacute", "é"),
    ("egrave", "è"),
    ("agrave", "à"),
    ("ccedil", "ç"),
];

/// The maximum length of a reference in bytes.
const MAX_REFERENCE: usize = 10;

/// Decodes the character references in the text.
pub fn decode(text: &str) -> String {
    let mut decoded = String::with_capacity(text.len());
    let mut remaining = text;
    while let Some(start) = remaining.find('&') {
        decoded.push_str(&remaining[..start]);
        remaining = &remaining[start + 1..];
        let end = remaining.bytes().take(MAX_REFERENCE).position(|byte| byte == b';');
        match end.and_then(|end| Some((end, decode_reference(&remaining[..end])?))) {
            Some((end, text)) => {
                decoded.push_str(&text);
                remaining = &remaining[end + 1..];
            }
            None => decoded.push('&'),
        }
    }
    decoded.push_str(remaining);
    decoded
}

/// Returns the character that a reference represents, or `None` if the reference is not supported. `reference` is the
/// text between `&` and `;`.
fn decode_reference(reference: &str) -> Option<String> {
    let Some(number) = reference.strip_prefix('#') else {
        return NAMES.iter().find(|(name, _)| *name == reference).map(|(_, text)| (*text).to_owned());
    };
    let code = match number.strip_prefix(['x', 'X']) {
        Some(digits) => u32::from_str_radix(digits, 16).ok()?,
        None => number.parse().ok()?,
    };
    char::from_u32(code).filter(|character| !character.is_control() || character.is_whitespace()).map(String::from)
}
