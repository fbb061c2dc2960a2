//! Assembles tool calls from pieces. The dialects differ in how a piece identifies the call to which it belongs.

use super::super::StreamError;
use super::super::lenient_fields::Text;
use super::chunk::ToolCallDelta;
use agent_core::model::RequestedCall;
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashMap;

/// Maximum number of calls in one reply.
const MAX_CALLS: usize = 1024;
/// Maximum size in bytes of a tool name in a call. Longer names are truncated. This limit is twice the maximum length
/// of a tool name in the host, so that no valid name is truncated.
const MAX_NAME_BYTES: usize = 256;

/// The calls of one reply, in the order in which they started.
#[derive(Debug, Default)]
pub(super) struct ToolCallAssembler {
    calls: Vec<PartialCall>,
    /// For each index that the server sent, the position in `calls` of the latest call with this index. The index that
    /// a server sends can be any number, so the index is used as a key and not as a position.
    by_index: HashMap<u64, usize>,
}

#[derive(Debug, Default)]
struct PartialCall {
    id: String,
    name: String,
    arguments: String,
    progress: JsonProgress,
    extra_content: Option<Value>,
}

impl ToolCallAssembler {
    /// Adds a piece from a stream and returns how many bytes of the piece were stored.
    pub(super) fn add_piece(&mut self, piece: &ToolCallDelta<'_>) -> Result<usize, StreamError> {
        let position = match self.continued_call(piece) {
            Some(position) => position,
            None => self.start_call(piece)?,
        };
        Ok(self.calls[position].extend(piece))
    }

    /// Adds a call from a complete reply, in which each item is a separate call. Returns how many bytes of the item
    /// were stored.
    pub(super) fn add_complete(&mut self, piece: &ToolCallDelta<'_>) -> Result<usize, StreamError> {
        let position = self.start_call(piece)?;
        Ok(self.calls[position].extend(piece))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Returns each call together with the `extra_content` that must be sent back to the provider with this call.
    pub(super) fn finish(self) -> Vec<(RequestedCall, Option<Value>)> {
        let has_content =
            |call: &PartialCall| !(call.id.is_empty() && call.name.is_empty() && call.arguments.is_empty());
        let calls = self.calls.into_iter().filter(has_content).map(|call| {
            let PartialCall { id, name, arguments, extra_content, .. } = call;
            let provider_id = (!id.is_empty()).then_some(id);
            (RequestedCall { provider_id, name, arguments }, extra_content)
        });
        calls.collect()
    }

    fn start_call(&mut self, piece: &ToolCallDelta<'_>) -> Result<usize, StreamError> {
        if self.calls.len() == MAX_CALLS {
            return Err(StreamError::TooMany { what: "tool calls", limit: MAX_CALLS });
        }
        if let Some(index) = piece.index.0 {
            self.by_index.insert(index, self.calls.len());
        }
        self.calls.push(PartialCall::default());
        Ok(self.calls.len() - 1)
    }

    /// Returns the call that the piece continues, or `None` if the piece starts a new call.
    fn continued_call(&self, piece: &ToolCallDelta<'_>) -> Option<usize> {
        let position = match piece.index.0 {
            Some(index) => *self.by_index.get(&index)?,
            None => {
                let has_same_id = |call: &PartialCall| !piece.id.is_empty() && call.id == *piece.id;
                self.calls.iter().rposition(has_same_id).or(self.calls.len().checked_sub(1))?
            }
        };
        (!self.calls[position].ends_before(piece)).then_some(position)
    }
}

impl PartialCall {
    /// Returns whether the piece starts a new call instead of continuing this call. The index of the piece does not
    /// show whether the call is new, because some servers use index 0 or no index for all calls. The id alone does not
    /// show it either, because some servers use no id or the same id for all calls.
    fn ends_before(&self, piece: &ToolCallDelta<'_>) -> bool {
        let (name, is_complete) = (piece.name(), self.progress.is_complete());
        let have_ids = !self.id.is_empty() && !piece.id.is_empty();
        if have_ids && *piece.id != self.id {
            // Some servers create a new id for each piece. A piece with a new id therefore continues the call if the
            // arguments of the call are incomplete and the piece has no tool name, or if it repeats the tool name in
            // the middle of the arguments.
            return if name.is_empty() { is_complete } else { name != self.name || !self.progress.is_open() };
        }
        if name.is_empty() || self.name.is_empty() {
            return false;
        }
        let arguments = piece.arguments();
        let has_more = is_complete && !arguments.is_empty();
        if have_ids { has_more && arguments != self.arguments } else { has_more || name != self.name }
    }

    /// Adds the piece to the call and returns how many bytes of the piece were stored.
    fn extend(&mut self, piece: &ToolCallDelta<'_>) -> usize {
        let mut size = 0;
        if self.id.is_empty() {
            self.id.push_str(&piece.id);
            size += piece.id.len();
        }
        if self.name.is_empty() {
            // Truncate the name, because a name of more than [`MAX_NAME_BYTES`] bytes cannot match a tool, and every
            // message about the call quotes the name.
            let name = piece.name();
            self.name.push_str(&name[..name.floor_char_boundary(MAX_NAME_BYTES)]);
            size += self.name.len();
        }
        let arguments = piece.arguments();
        // If the arguments are complete and the piece repeats them, ignore the repetition, because some servers repeat
        // the whole call at the end.
        if !(self.progress.is_complete() && arguments == self.arguments) {
            self.progress.read(&arguments);
            self.arguments.push_str(&arguments);
            size += arguments.len();
        }
        if let Some(extra) = piece.extra_content {
            self.extra_content = serde_json::from_str(extra.get()).ok().filter(|extra| *extra != Value::Null);
            size += extra.get().len();
        }
        size
    }
}

impl<'a> ToolCallDelta<'a> {
    fn name(&self) -> &str {
        self.function.as_ref().map(|function| &*function.name).unwrap_or_default()
    }

    fn arguments(&self) -> Cow<'a, str> {
        let json = self.function.as_ref().and_then(|function| function.arguments);
        match json.map(RawValue::get) {
            Some(text) if text.starts_with('"') => {
                serde_json::from_str(text).map(|Text(text)| text).unwrap_or_default()
            }
            Some(json) if json.starts_with(['{', '[']) => Cow::Borrowed(json),
            _ => Cow::default(),
        }
    }
}

/// While the pieces of the arguments arrive, tracks whether the JSON value of the arguments has begun and whether it
/// has ended.
#[derive(Clone, Copy, Debug, Default)]
struct JsonProgress {
    depth: usize,
    has_begun: bool,
    in_string: bool,
    after_backslash: bool,
}

impl JsonProgress {
    fn read(&mut self, piece: &str) {
        for byte in piece.bytes() {
            match byte {
                _ if std::mem::take(&mut self.after_backslash) => {}
                b'\\' if self.in_string => self.after_backslash = true,
                b'"' => self.in_string = !self.in_string,
                _ if self.in_string => {}
                b'{' | b'[' => {
                    self.has_begun = true;
                    self.depth += 1;
                }
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
    }

    fn is_complete(self) -> bool {
        self.has_begun && self.depth == 0
    }

    fn is_open(self) -> bool {
        self.depth > 0
    }
}
