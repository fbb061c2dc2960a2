//! Decodes a model's reply in one of the wire formats, at once and in chunks of random sizes.
//!
//! The first byte selects the wire format, and the second byte the size of the chunks. The other bytes are the body.

#![no_main]

use agent_models::Protocol;
use agent_models::decode::{DecodedReply, ReplyStream, StreamError};
use libfuzzer_sys::fuzz_target;

fn decode(protocol: Protocol, chunks: impl Iterator<Item = Vec<u8>>) -> Result<DecodedReply, StreamError> {
    let (mut stream, mut deltas) = (ReplyStream::new(protocol, "provider", "provider/model"), Vec::new());
    for chunk in chunks {
        stream.push(&chunk, &mut deltas)?;
    }
    stream.finish(&mut deltas)
}

fuzz_target!(|bytes: &[u8]| {
    let [format, size, body @ ..] = bytes else { return };
    let protocol = Protocol::ALL[usize::from(*format) % Protocol::ALL.len()];
    let whole = decode(protocol, std::iter::once(body.to_vec()));
    let pieces = decode(protocol, body.chunks(usize::from(*size).max(1)).map(<[u8]>::to_vec));
    // The result does not depend on the chunks.
    assert_eq!(whole, pieces);
    if let Ok(decoded) = whole {
        assert!(decoded.reply.text.len() <= body.len() * 3, "a decoder does not invent text");
    }
});
