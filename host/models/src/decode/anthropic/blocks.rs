//! The content blocks of one reply while they arrive.

use super::super::StreamError;
use agent_core::model::RequestedCall;
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// Maximum number of content blocks in one reply.
const MAX_BLOCKS: usize = 4096;

/// All content blocks of a reply, in the order in which they started.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    blocks: Vec<Block>,
    /// Position in `blocks` of the first block with each index. An index can be any number, so it is used as a key and
    /// not as a position. If a later block has the same index, its changes apply to the first block, as in Anthropic's
    /// own client.
    by_index: HashMap<u64, usize>,
}

/// One content block.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) kind: BlockKind,
    /// All fields of the block as they arrived in `content_block_start`, with later changes of fields that are not
    /// listed below.
    fields: Map<String, Value>,
    text: String,
    thinking: String,
    /// JSON text of the input of a tool call. If this text is empty, the input in `fields` is complete.
    input: String,
}

/// Type of a content block. All types that the host does not interpret are `Other`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockKind {
    Text,
    Thinking,
    /// A call of one of the host's tools.
    ToolUse,
    /// A block that the host stores and sends back without interpreting it.
    Other,
}

impl Blocks {
    /// Adds the block of a `content_block_start` event and returns it.
    pub(super) fn start(&mut self, index: Option<u64>, fields: Map<String, Value>) -> Result<&Block, StreamError> {
        if self.blocks.len() == MAX_BLOCKS {
            return Err(StreamError::TooMany { what: "content blocks", limit: MAX_BLOCKS });
        }
        let position = self.blocks.len();
        self.by_index.entry(index.unwrap_or(position as u64)).or_insert(position);
        self.blocks.push(Block::new(fields));
        Ok(&self.blocks[position])
    }

    /// Returns the block to which a change applies. If the event has no index, the change applies to the last block.
    pub(super) fn get(&mut self, index: Option<u64>) -> Option<&mut Block> {
        let position = match index {
            Some(index) => *self.by_index.get(&index)?,
            None => self.blocks.len().checked_sub(1)?,
        };
        self.blocks.get_mut(position)
    }

    /// Returns the text of the reply, its calls, and all blocks as they must be sent back.
    pub(super) fn finish(self) -> (String, Vec<RequestedCall>, Vec<Value>) {
        let text: String =
            self.blocks.iter().filter(|block| block.kind == BlockKind::Text).map(|block| block.text.as_str()).collect();
        let calls = self.blocks.iter().filter_map(Block::call).collect();
        (text, calls, self.blocks.into_iter().map(Block::finish).collect())
    }
}

impl Block {
    fn new(mut fields: Map<String, Value>) -> Self {
        let kind = match fields.get("type").and_then(Value::as_str) {
            Some("text") => BlockKind::Text,
            Some("thinking") => BlockKind::Thinking,
            Some("tool_use") => BlockKind::ToolUse,
            _ => BlockKind::Other,
        };
        let mut take = |name: &str, wanted| {
            let text = fields.get_mut(name).filter(|_| kind == wanted).and_then(|value| match value {
                Value::String(text) => Some(std::mem::take(text)),
                _ => None,
            });
            text.unwrap_or_default()
        };
        let (text, thinking) = (take("text", BlockKind::Text), take("thinking", BlockKind::Thinking));
        Self { kind, fields, text, thinking, input: String::new() }
    }

    /// Returns the text or thinking with which the block started.
    pub(super) fn initial_text(&self) -> &str {
        if self.kind == BlockKind::Thinking { &self.thinking } else { &self.text }
    }

    /// Adds a piece of text and returns true if this is a text block. Returns false and ignores the piece if this
    /// is a block of another kind.
    pub(super) fn add_text(&mut self, piece: &str) -> bool {
        self.add(BlockKind::Text, |block| block.text.push_str(piece))
    }

    /// Adds a piece of thinking and returns true if this is a thinking block. Returns false and ignores the piece if
    /// this is a block of another kind.
    pub(super) fn add_thinking(&mut self, piece: &str) -> bool {
        self.add(BlockKind::Thinking, |block| block.thinking.push_str(piece))
    }

    /// Adds a piece of the JSON text of the input.
    pub(super) fn add_input(&mut self, piece: &str) {
        self.input.push_str(piece);
    }

    /// Adds a change of another type, such as `signature_delta` or `citations_delta`. Strings are appended to strings
    /// and items to lists. A value of any other type replaces the earlier value.
    pub(super) fn add_fields(&mut self, delta: Map<String, Value>) {
        for (name, value) in delta {
            // Citations arrive one at a time in the field `citation`, and the block contains them in `citations`.
            let (name, value) = match (name.as_str(), value) {
                ("type", _) => continue,
                ("citation", citation) => ("citations".to_owned(), json!([citation])),
                (_, value) => (name, value),
            };
            match (self.fields.get_mut(&name), value) {
                (Some(Value::String(text)), Value::String(piece)) => text.push_str(&piece),
                (Some(Value::Array(items)), Value::Array(more)) => items.extend(more),
                (_, value) => {
                    self.fields.insert(name, value);
                }
            }
        }
    }

    fn add(&mut self, kind: BlockKind, change: impl FnOnce(&mut Self)) -> bool {
        if self.kind == kind {
            change(self);
        }
        self.kind == kind
    }

    fn call(&self) -> Option<RequestedCall> {
        let string = |name: &str| self.fields.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let arguments = || match self.fields.get("input") {
            _ if !self.input.is_empty() => self.input.clone(),
            Some(Value::Object(input)) if input.is_empty() => String::new(),
            None | Some(Value::Null) => String::new(),
            Some(input) => input.to_string(),
        };
        let provider_id = Some(string("id")).filter(|id| !id.is_empty());
        let call = || RequestedCall { provider_id, name: string("name"), arguments: arguments() };
        (self.kind == BlockKind::ToolUse).then(call)
    }

    /// Returns the complete block. The input of a call that was cut is an empty object, because the API rejects an
    /// input that is not an object.
    fn finish(mut self) -> Value {
        match self.kind {
            BlockKind::Text => self.fields.insert("text".into(), self.text.into()),
            BlockKind::Thinking => self.fields.insert("thinking".into(), self.thinking.into()),
            BlockKind::ToolUse | BlockKind::Other if !self.input.is_empty() => {
                let input = serde_json::from_str(&self.input).ok().filter(Value::is_object);
                self.fields.insert("input".into(), input.unwrap_or_else(|| json!({})))
            }
            BlockKind::ToolUse | BlockKind::Other => None,
        };
        Value::Object(self.fields)
    }
}

/// Returns whether the host can write this block again from the stored message, so that it does not need to be stored
/// as the provider sent it.
pub(super) fn is_plain(block: &Value) -> bool {
    let has_only = |names: &[&str]| {
        block.as_object().is_some_and(|fields| {
            fields.iter().all(|(name, value)| names.contains(&name.as_str()) || value.is_null() || is_empty_list(value))
        })
    };
    let is_direct = block.pointer("/caller/type").is_none_or(|caller| caller == "direct");
    match block.get("type").and_then(Value::as_str) {
        Some("text") => has_only(&["type", "text"]),
        Some("tool_use") => has_only(&["type", "id", "name", "input", "caller"]) && is_direct,
        _ => false,
    }
}

fn is_empty_list(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty)
}
