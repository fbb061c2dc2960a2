//! Tests that secrets are masked in every encoding, however the text is cut into pieces, and that texts without secrets
//! stay unchanged (row 41).

use super::*;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE};
use proptest::prelude::*;
use serde_json::json;

#[test]
fn row_16_secrets_are_replaced_at_any_position() {
    let redaction =
        Redaction::new(["sk-canary-1 ", "sk-canary-1-longer", "Bearer other-canary", "none", "sk-canary-1"]);
    let text = "sk-canary-1 sk-canary-1-longer, other-canary none";
    assert_eq!(redaction.text(text.into()), "(secret) (secret), (secret) none");
    assert_eq!(redaction.text("cut off: sk-canary-1-lon".into()), "cut off: (secret)");
    assert_eq!(redaction.text("cut off: sk-canar".into()), "cut off: (secret)");
    assert_eq!(redaction.text("k-canary-1, cut off before".into()), "(secret), cut off before");
    assert_eq!(redaction.whole("not cut off: sk-canar".into()), "not cut off: sk-canar");
    assert_eq!(redaction.text("sk-cana".into()), "sk-cana");
    let value = json!({"a sk-canary-1": ["x", {"b": "=sk-canary-1="}], "n": 1});
    assert_eq!(redaction.value(value), json!({"a (secret)": ["x", {"b": "=(secret)="}], "n": 1}));
    assert!(!redaction.is_clean(&json!([{"sk-canary-1": 1}])) && redaction.is_clean(&json!(["sk-ca", {"b": 1}])));
    assert!(!format!("{redaction:?}").contains("canary"));
}

/// Row 41: a part of a secret is masked if it is too long to occur by chance.
#[test]
fn row_41_parts_of_secrets_are_found() {
    let redaction = Redaction::new(["tk-canary-5d1c77e0a4f94b6e"]);
    let whole = |text: &str| redaction.whole(text.to_owned());
    assert_eq!(whole("{\"first\": \"tk-canary-5d1\", \"second\": \"c77e0a4f94b6e\"}").matches("(secret)").count(), 2);
    assert_eq!(whole("a canary in 5d1c77"), "a canary in 5d1c77");
    assert_eq!(whole("Zoë tk-canary-5d1c77e0a4f94b6eż"), "Zoë (secret)ż");
}

/// Row 41: a secret is found if it is written as a number, or as a list of its bytes or characters.
#[test]
fn row_41_numbers_and_lists_are_searched() {
    let redaction = Redaction::new(["84712093847120", "tk-canary-5d1c"]);
    let bytes: Vec<u8> = b"tk-canary-5d1c".to_vec();
    let characters: Vec<String> = "tk-canary-5d1c".chars().map(String::from).collect();
    let value =
        json!({"n": 84_712_093_847_120_u64, "bytes": bytes, "characters": characters, "other": [1, 2, 3], "x": 5});
    assert!(!redaction.is_clean(&json!([value["bytes"]])) && !redaction.is_clean(&value["n"]));
    let expected = json!({"n": "(secret)", "bytes": "(secret)", "characters": "(secret)", "other": [1, 2, 3], "x": 5});
    assert_eq!(redaction.whole_value(value), expected);
}

/// Row 41: the decoded text of an `Authorization: Basic` value is a secret too.
#[test]
fn row_41_the_password_of_basic_authentication_is_found() {
    let redaction = Redaction::new([format!("Basic {}", STANDARD.encode("somebody:pass-canary")).as_str()]);
    assert_eq!(redaction.whole("your password is pass-canary".into()), "your password is (secret)");
    assert_eq!(redaction.whole("somebody:pass-canary".into()), "(secret)");
}

/// Returns the secret in every encoding that the host decodes, with the name of the encoding.
fn encoded(secret: &str) -> Vec<(&'static str, String)> {
    let each = |form: &dyn Fn(u8) -> String| secret.bytes().map(form).collect::<String>();
    let joined =
        |form: &dyn Fn(u8) -> String, separator: &str| secret.bytes().map(form).collect::<Vec<_>>().join(separator);
    let wrapped = |text: &str, columns: usize| {
        let lines = text.as_bytes().chunks(columns).map(|line| String::from_utf8_lossy(line).into_owned());
        lines.collect::<Vec<_>>().join("\r\n ")
    };
    let quoted = json!(secret).to_string();
    let in_base64 = STANDARD.encode(secret);
    vec![
        ("unencoded", secret.to_owned()),
        ("in upper case", secret.to_ascii_uppercase()),
        ("in lower case", secret.to_ascii_lowercase()),
        ("backwards", secret.chars().rev().collect()),
        ("percent encoding", each(&|byte| format!("%{byte:02X}"))),
        ("percent encoding in lower case", each(&|byte| format!("%{byte:02x}"))),
        (
            "percent encoding of punctuation",
            each(&|byte| match byte.is_ascii_alphanumeric() {
                true => char::from(byte).to_string(),
                false => format!("%{byte:02X}"),
            }),
        ),
        ("percent encoding, twice", each(&|byte| format!("%25{byte:02X}"))),
        ("JSON", quoted[1..quoted.len() - 1].to_owned()),
        ("JSON in JSON", json!(quoted).to_string()),
        ("\\u", each(&|byte| format!("\\u{byte:04x}"))),
        ("\\u{}", each(&|byte| format!("\\u{{{byte:x}}}"))),
        ("\\x", each(&|byte| format!("\\x{byte:02x}"))),
        ("HTML, decimal", each(&|byte| format!("&#{byte};"))),
        ("HTML, hexadecimal", each(&|byte| format!("&#x{byte:X};"))),
        ("HTML", secret.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")),
        ("hexadecimal", each(&|byte| format!("{byte:02x}"))),
        ("hexadecimal in upper case", each(&|byte| format!("{byte:02X}"))),
        ("hexadecimal with colons", joined(&|byte| format!("{byte:02x}"), ":")),
        ("hexadecimal with 0x", joined(&|byte| format!("0x{byte:02x}"), ", ")),
        ("decimal bytes", joined(&|byte| byte.to_string(), ", ")),
        ("decimal bytes with zeros", joined(&|byte| format!("{byte:03}"), " ")),
        ("octal", each(&|byte| format!("\\{byte:03o}"))),
        ("\\U", each(&|byte| format!("\\U{:08x}", u32::from(byte)))),
        ("HTML without semicolon", each(&|byte| format!("&#{byte}"))),
        ("hexadecimal of upper case", secret.to_ascii_uppercase().bytes().map(|byte| format!("{byte:02x}")).collect()),
        ("Base64 of upper case", STANDARD.encode(secret.to_ascii_uppercase())),
        ("Base64 in groups", in_base64.as_bytes().chunks(4).map(String::from_utf8_lossy).collect::<Vec<_>>().join(" ")),
        ("UTF-16", each(&|byte| format!("{}\0", char::from(byte)))),
        ("wrapped", wrapped(secret, 5)),
        ("Base64", in_base64.clone()),
        ("Base64 without padding", STANDARD_NO_PAD.encode(secret)),
        ("Base64 for URLs", URL_SAFE.encode(secret)),
        ("Base64, second offset", STANDARD.encode(format!("x{secret}y"))),
        ("Base64, third offset", STANDARD.encode(format!("xx{secret}yyy"))),
        ("Base64 of a header", STANDARD.encode(format!("somebody:{secret}"))),
        ("Base64, wrapped", wrapped(&in_base64, 7)),
        ("Base64, wrapped in JSON", wrapped(&in_base64, 7).replace("\r\n ", "\\n")),
        ("Base64 in a URL", in_base64.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D")),
        ("quoted-printable", secret.replace('=', "=3D")),
        ("quoted-printable, wrapped", {
            let lines = secret.as_bytes().chunks(6).map(|line| String::from_utf8_lossy(line).replace('=', "=3D"));
            lines.collect::<Vec<_>>().join("=\r\n")
        }),
    ]
}

fn secrets() -> impl Strategy<Value = String> {
    "[A-Za-z0-9+/=_.~-]{8,60}"
}

/// Maximum number of Base64 digits at each end of a secret that also encode bits of the neighbouring bytes.
const SHARED_DIGITS: usize = 3;

proptest! {
    /// Row 41: a secret is masked in every encoding, however the text is cut, and the text around the secret stays
    /// unchanged.
    #[test]
    fn row_41_secrets_are_found_in_every_encoding_however_the_text_is_cut(secret in secrets(), size in 1_usize..40) {
        let redaction = Redaction::new([secret.as_str()]);
        for (encoding, written) in encoded(&secret) {
            let text = format!("<p> before\n\n{written}\n\n<p> after");
            let mut stream = redaction.stream(Replacement::Stars, Edges::Cut);
            let mut redacted: Vec<u8> = text.as_bytes().chunks(size).flat_map(|piece| stream.push(piece)).collect();
            redacted.extend(stream.finish());
            let redacted = String::from_utf8_lossy(&redacted).into_owned();
            prop_assert_eq!(redacted.len(), text.len(), "{}", encoding);
            prop_assert!(redacted.starts_with("<p> before\n\n"), "{}: {}", encoding, redacted);
            prop_assert!(redacted.ends_with("\n\n<p> after"), "{}: {}", encoding, redacted);
            let shown = &redacted[12..redacted.len() - 11];
            let unmasked = shown.bytes().filter(|byte| *byte != b'*').count();
            // Separators inside a secret, and Base64 digits that also encode bits of neighbouring bytes, may remain
            // unmasked in the output.
            let min_masked = match encoding {
                name if name.starts_with("Base64") => STANDARD_NO_PAD.encode(&secret).len() - 2 * SHARED_DIGITS,
                name if name.starts_with("hexadecimal") => 2 * secret.len(),
                name if name.starts_with("decimal bytes") => written.bytes().filter(u8::is_ascii_digit).count(),
                "UTF-16" | "wrapped" | "quoted-printable, wrapped" => secret.len(),
                "JSON in JSON" => written.len() - 6,
                _ => written.len(),
            };
            prop_assert!(written.len() - unmasked >= min_masked, "{}: {} of {}", encoding, shown, written);
        }
    }

    /// Row 41: a text without the secret stays unchanged, however it is cut.
    #[test]
    fn row_41_texts_without_secrets_are_unchanged(secret in "[g-z]{20,40}", text in "[ -f\\n\\r]{0,200}", size in 1_usize..40) {
        let redaction = Redaction::new([secret.as_str()]);
        prop_assert_eq!(redaction.text(text.clone()), text.clone());
        let mut stream = redaction.stream(Replacement::Stars, Edges::Cut);
        let mut redacted: Vec<u8> = text.as_bytes().chunks(size).flat_map(|piece| stream.push(piece)).collect();
        redacted.extend(stream.finish());
        prop_assert_eq!(redacted, text.as_bytes());
    }

    /// Row 41: any bytes are accepted, masked bytes keep the length of the input, and text only changes where a mark
    /// replaces a secret.
    #[test]
    fn row_41_any_bytes_are_accepted(bytes in proptest::collection::vec(any::<u8>(), 0..300), text in ".{0,200}", size in 1_usize..40) {
        let redaction = Redaction::new(["aaaaaaaaaaaaaaaaaaaaaaaa", "%41%41%41\\u0041", "00000000"]);
        let mut stream = redaction.stream(Replacement::Stars, Edges::Cut);
        let mut redacted: Vec<u8> = bytes.chunks(size).flat_map(|piece| stream.push(piece)).collect();
        redacted.extend(stream.finish());
        prop_assert_eq!(redacted.len(), bytes.len());
        let clean = redaction.text(text.clone());
        prop_assert!(clean == text || clean.contains(MARK));
    }
}

/// Row 41: few bytes are held back, even if every position may begin a secret or an escape. The time therefore grows
/// linearly with the length of the text.
#[test]
fn row_41_few_bytes_are_held_back_in_long_texts() {
    let secret = format!("{}b", "a".repeat(4_000));
    let redaction = Redaction::new([secret.as_str()]);
    for unit in ["a", "%", "\\", "&#9", "%25", "0x61 ", "97,"] {
        let text = unit.repeat(200_000 / unit.len());
        let mut stream = redaction.stream(Replacement::Stars, Edges::Cut);
        let held = text.len() - stream.push(text.as_bytes()).len();
        assert!(held < 200, "{held} bytes of {unit} are held back");
    }
}
