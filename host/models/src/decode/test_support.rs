//! Support for the tests of all wire formats.

use super::{DecodedReply, ReplyStream, StreamError};
use crate::protocol::Protocol;
use agent_core::model::Delta;
use serde_json::Value;

/// Decodes events. Returns the reply and a string of all deltas, as [`rendered`] creates it.
pub(super) fn stream(protocol: Protocol, events: &[Value]) -> Result<(DecodedReply, String), StreamError> {
    let (mut stream, mut deltas) = (ReplyStream::new(protocol, "p", "p/m"), Vec::new());
    for event in events {
        let name = event["type"].as_str().filter(|name| *name != "error");
        let name = name.map(|name| format!("event: {name}\n")).unwrap_or_default();
        stream.push(format!("{name}data: {event}\n\n").as_bytes(), &mut deltas)?;
    }
    let decoded = stream.finish(&mut deltas)?;
    Ok((decoded, rendered(deltas)))
}

/// Returns a string of all deltas, in which thinking is enclosed in braces and each [`Delta::Clear`] is `|`.
pub(super) fn rendered(deltas: Vec<Delta>) -> String {
    let rendered = deltas.into_iter().map(|delta| match delta {
        Delta::Text(text) | Delta::Thinking(text) => text,
        Delta::ThinkingStart => "{".to_owned(),
        Delta::ThinkingEnd => "}".to_owned(),
        Delta::Clear => "|".to_owned(),
    });
    rendered.collect()
}
