//! Divides the request of a model call into blocks, in the order in which providers cache prompts: tools, output schema,
//! system sections, messages.

use crate::replay::SentRequest;
use agent_core::message::{Content, Media, Message, MessageId, Part, Role, ToolResult};
use agent_core::model::OfferedTool;
use agent_core::tokens;
use serde_json::json;

/// What a block of a prompt contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// The definition of a tool.
    Tool,
    /// The JSON Schema of the output.
    OutputSchema,
    /// A section of the system text.
    System,
    /// A message.
    Message,
}

/// A block of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestBlock {
    /// What the block contains.
    pub kind: BlockKind,
    /// What identifies the block in the requests of different model calls: the name of the tool, the heading of the
    /// section, or the id of the message.
    pub title: String,
    /// The block as text. Media items are described, and data of the provider is left out.
    pub text: String,
    /// The exact content of the block as JSON. Equal blocks have equal content.
    pub(super) content: String,
    /// Estimated number of tokens.
    pub tokens: u32,
    /// Role of the message's author. `None` if the block is not a message.
    pub role: Option<Role>,
    /// Id of the stored message. `None` if the block is not a message, or the host added it to this request only.
    pub message: Option<MessageId>,
    /// In how many model calls before this one the message had been sent.
    pub seen_count: u32,
    /// The texts that replace media items of the message.
    pub masks: Vec<String>,
}

/// A block of a prompt, compared with the prompt of the model call before it.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptBlock {
    /// The block.
    pub block: RequestBlock,
    /// How the block differs from the previous prompt.
    pub change: super::BlockChange,
    /// How much of the block a cache of the provider can reuse.
    pub reuse: super::Reuse,
}

/// Returns the blocks of a request.
pub fn request_blocks(sent: &SentRequest) -> Vec<RequestBlock> {
    let request = &sent.request;
    let tools = request.tools.iter().map(tool_block);
    let schema = request.output_schema.iter().map(|schema| {
        let text = format!("{schema:#}");
        text_block(BlockKind::OutputSchema, "output schema".to_owned(), text)
    });
    let system = request.system.iter().map(|text| text_block(BlockKind::System, heading_of(text), text.clone()));
    let messages = (0..).zip(&request.messages).map(|(index, message)| message_block(sent, index, message));
    tools.chain(schema).chain(system).chain(messages).collect()
}

fn text_block(kind: BlockKind, title: String, text: String) -> RequestBlock {
    RequestBlock {
        kind,
        title,
        tokens: tokens::of_text(&text),
        content: text.clone(),
        text,
        role: None,
        message: None,
        seen_count: 0,
        masks: Vec::new(),
    }
}

fn tool_block(tool: &OfferedTool) -> RequestBlock {
    let definition = json!({"name": tool.name, "description": tool.description, "input_schema": tool.input_schema});
    let text = format!("{}\n\n{:#}", tool.description, tool.input_schema);
    let (content, tokens) = (definition.to_string(), tokens::of_text(&definition.to_string()));
    RequestBlock { content, tokens, ..text_block(BlockKind::Tool, tool.name.clone(), text) }
}

/// Returns the heading of a section, which is its first line that is not empty.
fn heading_of(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    line.trim_start_matches('#').trim().chars().take(80).collect()
}

fn message_block(sent: &SentRequest, index: usize, message: &Message) -> RequestBlock {
    let id = sent.stored_messages.get(index).copied();
    let masks = sent.masked.iter().filter(|mask| Some(mask.message) == id).map(|mask| mask.text.clone()).collect();
    let title = match id {
        Some(id) => format!("{} {id}", message.role.as_str()),
        None => format!("{}, added by the host", message.role.as_str()),
    };
    RequestBlock {
        content: serde_json::to_string(&message.parts).unwrap_or_default(),
        tokens: tokens::of_parts(&message.parts),
        role: Some(message.role),
        message: id,
        seen_count: message.seen_count,
        masks,
        ..text_block(BlockKind::Message, title, message.parts.iter().map(part_text).collect::<Vec<_>>().join("\n"))
    }
}

fn part_text(part: &Part) -> String {
    match part {
        Part::Text(text) | Part::Preface(text) => text.clone(),
        Part::Json(json) => format!("{json:#}"),
        Part::Media(media) => media_text(media),
        Part::ToolCall(call) => format!("→ {} ({})\n{:#}", call.name, call.id, call.arguments),
        Part::ToolResult(result) => result_text(result),
        Part::Replay(replay) => {
            let bytes = replay.data.to_string().len();
            format!("[{bytes} bytes of data that the provider `{}` sent with this reply]", replay.provider)
        }
    }
}

fn result_text(result: &ToolResult) -> String {
    let outcome = if result.is_error { "✗" } else { "✓" };
    let content = result.content.iter().map(|content| match content {
        Content::Text(text) => text.clone(),
        Content::Json(json) => format!("{json:#}"),
        Content::Media(media) => media_text(media),
    });
    let content: Vec<_> = content.collect();
    format!("{outcome} {} ({})\n{}", result.name, result.call_id, content.join("\n"))
}

fn media_text(media: &Media) -> String {
    let size = media.dimensions.map(|size| format!(", {}×{} pixels", size.width, size.height)).unwrap_or_default();
    format!("[{}{size}, {} bytes, {}]", media.mime_type, media.size, media.digest)
}
