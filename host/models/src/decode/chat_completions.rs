//! Assembles replies of OpenAI Chat Completions and its dialects.
//!
//! After a reply with tool calls, the next request must send certain data of the reply back to some providers.
//! [`Reply::replay`] contains this data as `{"message": {…}, "tool_calls": [{"id"?, "extra_content"?}, …]}`. The fields
//! of `message` (`reasoning_content`, `reasoning_details`, `extra_content`) must be copied unchanged into the assistant
//! message when that message is sent again. `tool_calls` has one item per call, in order. The item's `extra_content`,
//! such as Gemini's `thought_signature`, must be copied unchanged into the call. The item's `id` is the id that the
//! provider gave to the call. Items of `reasoning_details` may refer to a call by this id.

mod assembly;
mod chunk;
mod replay_data;
mod tool_calls;

pub(super) use assembly::ReplyAssembler;

#[cfg(test)]
mod tests;
