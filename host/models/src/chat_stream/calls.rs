//! Tool calls, put together from pieces that dialects number in all ways.

use super::StreamError;
use super::chunk::CallPiece;
use super::lenient::Text;
use agent_core::model::RequestedCall;
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashMap;

/// Most calls of one reply.
const CALL_LIMIT: usize = 1024;
/// Most bytes of the name of a tool: twice as many as the longest name that any source of tools may have.
const NAME_LIMIT: usize = 256;

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
        let have_ids = !self.id.is_empty() && !piece.id.is_empty();
        if have_ids && *piece.id != self.id {
            // Some servers make a new id for each piece: what names no tool, or falls among arguments, goes on.
            return if name.is_empty() { is_whole } else { name != self.name || !self.extent.is_open() };
        }
        if name.is_empty() || self.name.is_empty() {
            return false;
        }
        let arguments = piece.arguments();
        let has_more = is_whole && !arguments.is_empty();
        if have_ids { has_more && arguments != self.arguments } else { has_more || name != self.name }
    }

    /// Adds what the piece says; how many bytes of it are kept.
    fn extend(&mut self, piece: &CallPiece<'_>) -> usize {
        let mut size = 0;
        if self.id.is_empty() {
            self.id.push_str(&piece.id);
            size += piece.id.len();
        }
        if self.name.is_empty() {
            // More names no tool, and would be quoted in every message about it.
            let name = piece.name();
            self.name.push_str(&name[..name.floor_char_boundary(NAME_LIMIT)]);
            size += self.name.len();
        }
        let arguments = piece.arguments();
        // Some servers say the whole call once more at the end.
        if !(self.extent.is_whole() && arguments == self.arguments) {
            self.extent.read(&arguments);
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

impl<'a> CallPiece<'a> {
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
