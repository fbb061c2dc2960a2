//! The JSON body of one request, which must not exceed a maximum size. Messages are written one at a time, so that at
//! most one media item is in memory twice.

use serde_json::Value;

/// Maximum size of a request body in bytes.
pub(in crate::encode) const MAX_BYTES: usize = 64 * 1024 * 1024;

/// Maximum number of large parts of a body that are listed in an error.
const MAX_NAMED_PARTS: usize = 3;

/// A request body that is being written.
pub(in crate::encode) struct Body {
    bytes: Vec<u8>,
    /// Number of bytes that are reserved for the next message.
    reserved: usize,
    /// The largest parts of the body, each with its size in bytes and its description.
    largest: Vec<(usize, String)>,
    /// Maximum size in bytes.
    limit: usize,
    /// Whether no message has been written yet, so that no comma is needed before the next message.
    is_first: bool,
}

/// Error for a request body that would exceed its size limit.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::encode) struct BodyTooLarge {
    /// Maximum size in bytes.
    pub(in crate::encode) limit: usize,
    /// Descriptions of the largest parts, with their sizes.
    pub(in crate::encode) largest: Vec<String>,
}

impl Body {
    /// Starts a JSON object with the given fields. The field `list`, which contains the messages, is written after the
    /// given fields, so that each request of a growing conversation begins with the same bytes as the previous request.
    pub(in crate::encode) fn new(
        fields: &serde_json::Map<String, Value>,
        list: &str,
        limit: usize,
    ) -> Result<Self, BodyTooLarge> {
        let mut bytes = to_json(fields);
        let length = bytes.len();
        // Remove the closing brace of the object, because `finish` writes it.
        bytes.pop();
        let separator = if fields.is_empty() { "" } else { "," };
        bytes.extend_from_slice(format!("{separator}\"{list}\":[").as_bytes());
        let largest = vec![(length, "the tools and the output schema".to_owned())];
        let body = Self { bytes, reserved: 0, largest, limit, is_first: true };
        if body.remaining() == 0 { Err(body.too_large()) } else { Ok(body) }
    }

    /// Appends one message to the body. `name` returns the name of the message for error messages.
    pub(in crate::encode) fn push_message(
        &mut self,
        message: &Value,
        name: impl FnOnce() -> String,
    ) -> Result<(), BodyTooLarge> {
        let bytes = to_json(message);
        let reserved = std::mem::take(&mut self.reserved);
        self.record_size(bytes.len().saturating_sub(reserved), name);
        if bytes.len() > self.remaining() {
            return Err(self.too_large());
        }
        if !std::mem::take(&mut self.is_first) {
            self.bytes.push(b',');
        }
        self.bytes.extend_from_slice(&bytes);
        Ok(())
    }

    /// Returns an error if `length` more bytes in the next message would exceed the limit. Callers call this method
    /// before they read a media item, so that they read only items that fit.
    pub(in crate::encode) fn check_remaining(
        &mut self,
        length: usize,
        name: impl FnOnce() -> String,
    ) -> Result<(), BodyTooLarge> {
        if length <= self.remaining() {
            return Ok(());
        }
        self.record_size(length, name);
        Err(self.too_large())
    }

    /// Reserves `length` bytes for the next message.
    pub(in crate::encode) fn reserve(
        &mut self,
        length: usize,
        name: impl FnOnce() -> String,
    ) -> Result<(), BodyTooLarge> {
        let fits = length <= self.remaining();
        self.record_size(length, name);
        self.reserved = self.reserved.saturating_add(length);
        if fits { Ok(()) } else { Err(self.too_large()) }
    }

    /// Ends the JSON object and returns the complete body.
    pub(in crate::encode) fn finish(mut self) -> Vec<u8> {
        self.bytes.extend_from_slice(b"]}");
        self.bytes
    }

    /// Returns the number of bytes that can still be used for messages. The bytes for the comma before the next message
    /// and for the end of the object are already subtracted.
    fn remaining(&self) -> usize {
        let used = self.bytes.len().saturating_add(self.reserved).saturating_add(if self.is_first { 2 } else { 3 });
        self.limit.saturating_sub(used)
    }

    fn record_size(&mut self, length: usize, name: impl FnOnce() -> String) {
        let smallest = self.largest.iter().map(|(length, _)| *length).min().unwrap_or_default();
        if self.largest.len() < MAX_NAMED_PARTS || length > smallest {
            self.largest.push((length, name()));
            self.largest.sort_by_key(|(length, _)| std::cmp::Reverse(*length));
            self.largest.truncate(MAX_NAMED_PARTS);
        }
    }

    fn too_large(&self) -> BodyTooLarge {
        let worth_naming = self.largest.iter().filter(|(length, _)| *length >= self.limit / 100);
        let largest = worth_naming.map(|(length, name)| format!("{name} ({length} bytes)")).collect();
        BodyTooLarge { limit: self.limit, largest }
    }
}

fn to_json(value: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("a JSON value with string keys can always be serialised")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fields() -> serde_json::Map<String, Value> {
        [("model".to_owned(), json!("m"))].into_iter().collect()
    }

    #[test]
    fn messages_come_last_and_in_order() {
        let mut body = Body::new(&fields(), "messages", 1000).unwrap();
        body.push_message(&json!({"role": "user"}), String::new).unwrap();
        body.push_message(&json!({"role": "tool"}), String::new).unwrap();
        let text = String::from_utf8(body.finish()).unwrap();
        assert_eq!(text, r#"{"model":"m","messages":[{"role":"user"},{"role":"tool"}]}"#);
    }

    #[test]
    fn the_size_limit_is_exact_and_the_error_names_the_largest_parts() {
        let exact_size = r#"{"model":"m","messages":["aaaa","bb"]}"#.len();
        let fill = |limit| {
            let mut body = Body::new(&fields(), "messages", limit)?;
            body.push_message(&json!("aaaa"), || "message 1".into())?;
            body.push_message(&json!("bb"), || "message 2".into())?;
            Ok::<_, BodyTooLarge>(body.finish().len())
        };
        assert_eq!(fill(exact_size), Ok(exact_size));
        let largest = ["the tools and the output schema (13 bytes)", "message 1 (6 bytes)", "message 2 (4 bytes)"];
        assert_eq!(
            fill(exact_size - 1),
            Err(BodyTooLarge { limit: exact_size - 1, largest: largest.map(str::to_owned).to_vec() })
        );
    }

    #[test]
    fn media_of_one_message_are_counted_together_before_reading() {
        let mut body = Body::new(&fields(), "messages", 1000).unwrap();
        body.check_remaining(600, || "a.png".into()).unwrap();
        body.reserve(600, || "a.png".into()).unwrap();
        let too_large = body.check_remaining(600, || "b.png".into()).unwrap_err();
        assert_eq!(too_large.largest[..2], ["a.png (600 bytes)", "b.png (600 bytes)"]);
    }
}
