//! Tool calls, put together from pieces that dialects number in all ways.

use super::StreamError;
use super::chunk::CallPiece;
use super::lenient::Text;
use agent_core::model::RequestedCall;
use serde_json::Value;
use std::collections::HashMap;

/// Most calls of one reply.
const CALL_LIMIT: usize = 1024;

/// The calls of one reply, in the order in which they began.
#[derive(Debug, Default)]
pub(super) struct Calls {
    calls: Vec<Call>,
    /// The latest call of each index. Indexes are keys: they can be of any size, and begin anywhere.
    by_index: HashMap<u64, usize>,
}

#[derive(Debug, Default)]
struct Call {
    id: String,
    name: String,
    arguments: String,
    extent: Extent,
    extra_content: Option<Value>,
}

impl Calls {
    /// Takes a piece of a stream; how many bytes of it are kept.
    pub(super) fn take_piece(&mut self, piece: &CallPiece<'_>) -> Result<usize, StreamError> {
        let place = match self.continued(piece) {
            Some(place) => place,
            None => self.open(piece)?,
        };
        Ok(self.calls[place].extend(piece))
    }

    /// Takes an item of a whole reply, which is a call of its own; how many bytes of it are kept.
    pub(super) fn take_whole(&mut self, piece: &CallPiece<'_>) -> Result<usize, StreamError> {
        let place = self.open(piece)?;
        Ok(self.calls[place].extend(piece))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// The calls, and beside each what its provider wants back with it.
    pub(super) fn finish(self) -> Vec<(RequestedCall, Option<Value>)> {
        let said = |call: &Call| !(call.id.is_empty() && call.name.is_empty() && call.arguments.is_empty());
        let calls = self.calls.into_iter().filter(said).map(|call| {
            let Call { id, name, arguments, extra_content, .. } = call;
            let provider_id = (!id.is_empty()).then_some(id);
            (RequestedCall { provider_id, name, arguments }, extra_content)
        });
        calls.collect()
    }

    fn open(&mut self, piece: &CallPiece<'_>) -> Result<usize, StreamError> {
        if self.calls.len() == CALL_LIMIT {
            return Err(StreamError::TooMany { what: "tool calls", limit: CALL_LIMIT });
        }
        if let Some(index) = piece.index.0 {
            self.by_index.insert(index, self.calls.len());
        }
        self.calls.push(Call::default());
        Ok(self.calls.len() - 1)
    }

    /// The call that the piece goes on with; none where it begins one.
    fn continued(&self, piece: &CallPiece<'_>) -> Option<usize> {
        let place = match piece.index.0 {
            Some(index) => *self.by_index.get(&index)?,
            None => {
                let known = |call: &Call| !piece.id.is_empty() && call.id == *piece.id;
                self.calls.iter().rposition(known).or(self.calls.len().checked_sub(1))?
            }
        };
        (!self.calls[place].is_followed_by(piece)).then_some(place)
    }
}

impl Call {
    /// Whether the piece, which has this call's index or none, begins another call: some servers give all calls index 0,
    /// others none, and some no ids, or one id to all.
    fn is_followed_by(&self, piece: &CallPiece<'_>) -> bool {
        let (name, is_whole) = (piece.name(), self.extent.is_whole());
        if !self.id.is_empty() && !piece.id.is_empty() && *piece.id != self.id {
            // A piece that names no tool goes on: some servers make a new id for each piece.
            return if name.is_empty() || name == self.name {
                !self.extent.is_open() && (is_whole || !name.is_empty())
            } else {
                true
            };
        }
        if name.is_empty() || self.name.is_empty() {
            return false;
        }
        let is_same_id = !self.id.is_empty() && !piece.id.is_empty();
        (is_whole && piece.has_arguments()) || (name != self.name && !is_same_id)
    }

    fn extend(&mut self, piece: &CallPiece<'_>) -> usize {
        let mut size = 0;
        if self.id.is_empty() && !piece.id.is_empty() {
            self.id.push_str(&piece.id);
            size += piece.id.len();
        }
        if self.name.is_empty() {
            self.name.push_str(piece.name());
            size += self.name.len();
        }
        if let Some(arguments) = piece.function.as_ref().and_then(|function| function.arguments) {
            size += self.extend_arguments(arguments.get());
        }
        if let Some(extra) = piece.extra_content {
            self.extra_content = serde_json::from_str(extra.get()).ok().filter(|extra| *extra != Value::Null);
            size += extra.get().len();
        }
        size
    }

    fn extend_arguments(&mut self, json: &str) -> usize {
        let before = self.arguments.len();
        if json.starts_with('"') {
            let Text(piece) = serde_json::from_str(json).unwrap_or_default();
            self.extent.read(&piece);
            self.arguments.push_str(&piece);
        } else if json.starts_with(['{', '[']) {
            self.extent.read(json);
            self.arguments.push_str(json);
        }
        self.arguments.len() - before
    }
}

impl CallPiece<'_> {
    fn name(&self) -> &str {
        self.function.as_ref().map(|function| &*function.name).unwrap_or_default()
    }

    fn has_arguments(&self) -> bool {
        let arguments = self.function.as_ref().and_then(|function| function.arguments);
        arguments.is_some_and(|arguments| arguments.get() != "\"\"")
    }
}

/// How far arguments go, read piece by piece: whether the JSON object that began has ended.
#[derive(Clone, Copy, Debug, Default)]
struct Extent {
    depth: usize,
    has_begun: bool,
    in_text: bool,
    after_backslash: bool,
}

impl Extent {
    fn read(&mut self, piece: &str) {
        for byte in piece.bytes() {
            match byte {
                _ if std::mem::take(&mut self.after_backslash) => {}
                b'\\' if self.in_text => self.after_backslash = true,
                b'"' => self.in_text = !self.in_text,
                _ if self.in_text => {}
                b'{' | b'[' => {
                    self.has_begun = true;
                    self.depth += 1;
                }
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
    }

    fn is_whole(self) -> bool {
        self.has_begun && self.depth == 0
    }

    fn is_open(self) -> bool {
        self.depth > 0
    }
}
