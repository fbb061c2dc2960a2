//! Puts a secret into a text, in one of the encodings that the host masks according to `host/docs/guide/secrets.md`,
//! and cuts the text into pieces. The redaction must mask the secret.

#![no_main]

use agent_core::redaction::{Edges, Redaction, Replacement};
use arbitrary::Arbitrary;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input {
    secret: [u8; 24],
    before: Vec<u8>,
    after: Vec<u8>,
    encoding: u8,
    pieces: Vec<u8>,
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

fn encoded(secret: &str, before: &[u8], after: &[u8], encoding: u8) -> Vec<u8> {
    let bytes = secret.bytes();
    match encoding % 6 {
        0 => [before, secret.as_bytes(), after].concat(),
        1 => [before, bytes.map(|byte| format!("%{byte:02X}")).collect::<String>().as_bytes(), after].concat(),
        2 => [before, bytes.map(|byte| format!("{byte:02x}")).collect::<String>().as_bytes(), after].concat(),
        3 => [before, bytes.map(|byte| format!("\\u{byte:04x}")).collect::<String>().as_bytes(), after].concat(),
        // The surrounding text is encoded together with the secret, so the secret occurs in every Base64 alignment.
        4 => STANDARD.encode([before, secret.as_bytes(), after].concat()).into_bytes(),
        _ => URL_SAFE_NO_PAD.encode([before, secret.as_bytes(), after].concat()).into_bytes(),
    }
}

fn redact_in_pieces(redaction: &Redaction, text: &[u8], pieces: &[u8], replacement: Replacement) -> Vec<u8> {
    let mut stream = redaction.stream(replacement, Edges::Whole);
    let (mut rest, mut out, mut piece_count) = (text, Vec::new(), 0);
    while !rest.is_empty() {
        let size = pieces
            .get(piece_count % pieces.len().max(1))
            .map_or(rest.len(), |size| usize::from(*size).max(1))
            .min(rest.len());
        out.extend(stream.push(&rest[..size]));
        rest = &rest[size..];
        piece_count += 1;
    }
    out.extend(stream.finish());
    out
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

fuzz_target!(|input: Input| {
    let secret: String = input.secret.iter().map(|byte| char::from(ALPHABET[usize::from(byte % 64)])).collect();
    let redaction = Redaction::new([secret.as_str()]);
    let text = encoded(&secret, &input.before, &input.after, input.encoding);
    // The redaction replaces the secret with stars in arbitrary bytes, and with the mark in text.
    check(&redaction, &input, (&secret, &text), Replacement::Stars);
    let text = String::from_utf8_lossy(&text).into_owned();
    check(&redaction, &input, (&secret, text.as_bytes()), Replacement::Mark);
});

/// The maximum length of a range of bytes in which the output for the whole text may differ from the output for its
/// pieces: three symbols of at most twelve bytes each. If a piece ends with at most three symbols from the middle of a
/// secret, the redaction does not hold these symbols back, because nearly any text contains such short parts.
const MAX_DIFFERENT_BYTES: usize = 36;

fn check(redaction: &Redaction, input: &Input, (secret, text): (&str, &[u8]), replacement: Replacement) {
    let output_of_whole = redact_in_pieces(redaction, text, &[], replacement);
    let output_of_pieces = redact_in_pieces(redaction, text, &input.pieces, replacement);
    for output in [&output_of_whole, &output_of_pieces] {
        check_output(input, secret, output);
    }
    if replacement == Replacement::Stars {
        assert_eq!(output_of_whole.len(), output_of_pieces.len());
        let differences =
            output_of_whole.iter().zip(&output_of_pieces).map(|(whole, pieces)| whole != pieces).collect::<Vec<_>>();
        for run in differences.chunk_by(|left, right| left == right).filter(|run| run[0]) {
            assert!(run.len() <= MAX_DIFFERENT_BYTES, "the output for the pieces differs too much");
        }
    }
}

fn check_output(input: &Input, secret: &str, output: &[u8]) {
    assert!(!contains(output, secret.as_bytes()), "the secret itself is in the output");
    if input.encoding % 6 < 4 {
        let hidden = encoded(secret, b"", b"", input.encoding);
        assert!(!contains(output, &hidden), "the encoded secret is in the output");
    } else {
        let decoded = match input.encoding % 6 {
            4 => STANDARD.decode(output).ok(),
            _ => URL_SAFE_NO_PAD.decode(output).ok(),
        };
        assert!(
            !decoded.is_some_and(|decoded| contains(&decoded, secret.as_bytes())),
            "the Base64 output contains the secret"
        );
    }
}
