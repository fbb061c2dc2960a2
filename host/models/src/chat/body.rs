//! The bytes of one request: written message by message, so that only one medium is held twice, and bounded.

use serde_json::Value;

/// Most bytes of a request.
pub(super) const LIMIT: usize = 64 * 1024 * 1024;

/// How many of the largest pieces a message names.
const NAMED: usize = 3;

/// A request that grows.
pub(super) struct Body {
    bytes: Vec<u8>,
    /// Bytes of the next message that are held already.
    held: usize,
    /// The largest pieces with their bytes.
    largest: Vec<(usize, String)>,
    limit: usize,
    first: bool,
}

/// It would be larger than the limit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full {
    /// Most bytes.
    pub(super) limit: usize,
    /// What is large in it.
    pub(super) largest: Vec<String>,
}

impl Body {
    /// Opens a JSON object with these fields; `messages` comes last, so that two requests of a growing conversation begin
    /// alike.
    pub(super) fn new(fields: &serde_json::Map<String, Value>, limit: usize) -> Result<Self, Full> {
        let mut bytes = write(fields);
        let length = bytes.len();
        // The object goes on: its closing brace is for later.
        bytes.pop();
        bytes.extend_from_slice(if fields.is_empty() { b"\"messages\":[" } else { b",\"messages\":[" });
        let largest = vec![(length, "the tools and the output schema".to_owned())];
        let body = Self { bytes, held: 0, largest, limit, first: true };
        if body.room() == 0 { Err(body.full()) } else { Ok(body) }
    }

    /// Appends one message.
    pub(super) fn message(&mut self, message: &Value, name: impl FnOnce() -> String) -> Result<(), Full> {
        let bytes = write(message);
        let held = std::mem::take(&mut self.held);
        self.record(bytes.len().saturating_sub(held), name);
        if bytes.len() > self.room() {
            return Err(self.full());
        }
        if !std::mem::take(&mut self.first) {
            self.bytes.push(b',');
        }
        self.bytes.extend_from_slice(&bytes);
        Ok(())
    }

    /// Whether so many bytes can be part of the next message: asked before they are read.
    pub(super) fn expect(&mut self, length: usize, name: impl FnOnce() -> String) -> Result<(), Full> {
        if length <= self.room() {
            return Ok(());
        }
        self.record(length, name);
        Err(self.full())
    }

    /// So many bytes are held for the next message.
    pub(super) fn hold(&mut self, length: usize, name: impl FnOnce() -> String) -> Result<(), Full> {
        let fits = length <= self.room();
        self.record(length, name);
        self.held = self.held.saturating_add(length);
        if fits { Ok(()) } else { Err(self.full()) }
    }

    /// The whole request.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.bytes.extend_from_slice(b"]}");
        self.bytes
    }

    /// Bytes that are left beside the end and a comma.
    fn room(&self) -> usize {
        let taken = self.bytes.len().saturating_add(self.held).saturating_add(if self.first { 2 } else { 3 });
        self.limit.saturating_sub(taken)
    }

    fn record(&mut self, length: usize, name: impl FnOnce() -> String) {
        let smallest = self.largest.iter().map(|(length, _)| *length).min().unwrap_or_default();
        if self.largest.len() < NAMED || length > smallest {
            self.largest.push((length, name()));
            self.largest.sort_by_key(|(length, _)| std::cmp::Reverse(*length));
            self.largest.truncate(NAMED);
        }
    }

    fn full(&self) -> Full {
        let worth_naming = self.largest.iter().filter(|(length, _)| *length >= self.limit / 100);
        let largest = worth_naming.map(|(length, name)| format!("{name} ({length} bytes)")).collect();
        Full { limit: self.limit, largest }
    }
}

fn write(value: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("a JSON value with text keys can always be written")
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
        let mut body = Body::new(&fields(), 1000).unwrap();
        body.message(&json!({"role": "user"}), String::new).unwrap();
        body.message(&json!({"role": "tool"}), String::new).unwrap();
        let text = String::from_utf8(body.finish()).unwrap();
        assert_eq!(text, r#"{"model":"m","messages":[{"role":"user"},{"role":"tool"}]}"#);
    }

    #[test]
    fn it_is_exactly_as_large_as_allowed_and_names_what_is_large() {
        let whole = r#"{"model":"m","messages":["aaaa","bb"]}"#.len();
        let fill = |limit| {
            let mut body = Body::new(&fields(), limit)?;
            body.message(&json!("aaaa"), || "message 1".into())?;
            body.message(&json!("bb"), || "message 2".into())?;
            Ok::<_, Full>(body.finish().len())
        };
        assert_eq!(fill(whole), Ok(whole));
        let largest = ["the tools and the output schema (13 bytes)", "message 1 (6 bytes)", "message 2 (4 bytes)"];
        assert_eq!(fill(whole - 1), Err(Full { limit: whole - 1, largest: largest.map(str::to_owned).to_vec() }));
    }

    #[test]
    fn media_of_one_message_count_together_before_they_are_read() {
        let mut body = Body::new(&fields(), 1000).unwrap();
        body.expect(600, || "a.png".into()).unwrap();
        body.hold(600, || "a.png".into()).unwrap();
        let full = body.expect(600, || "b.png".into()).unwrap_err();
        assert_eq!(full.largest[..2], ["a.png (600 bytes)", "b.png (600 bytes)"]);
    }
}
