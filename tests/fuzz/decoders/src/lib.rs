//! The check that all decoder targets make.

use agent_models::Protocol;
use agent_models::decode::{DecodedReply, ReplyStream, StreamError, decode_document};

fn decode(protocol: Protocol, chunks: impl Iterator<Item = Vec<u8>>) -> Result<DecodedReply, StreamError> {
    let (mut stream, mut deltas) = (ReplyStream::new(protocol, "provider", "provider/model"), Vec::new());
    for chunk in chunks {
        stream.push(&chunk, &mut deltas)?;
    }
    stream.finish(&mut deltas)
}

/// Decodes a reply at once, in chunks, and as one document. The first byte of the input is the size of the chunks, and the
/// other bytes are the reply.
///
/// # Panics
///
/// Panics if the decoder panics, if the result depends on the chunks, or if the reply contains more text than the input.
pub fn check(protocol: Protocol, input: &[u8]) {
    let [size, body @ ..] = input else { return };
    let whole = decode(protocol, std::iter::once(body.to_vec()));
    let pieces = decode(protocol, body.chunks(usize::from(*size).max(1)).map(<[u8]>::to_vec));
    // Errors may quote different parts of the input.
    assert_eq!(whole.as_ref().ok(), pieces.as_ref().ok(), "the result depends on the chunks");
    if let Ok(decoded) = &whole {
        // A byte that is not UTF-8 becomes a replacement character of three bytes.
        assert!(decoded.reply.text.len() <= body.len() * 3, "a decoder does not invent text");
    }
    let _ = decode_document(protocol, "provider", "provider/model", body);
}
