//! Assembles replies of Google Gemini `generateContent`.
//!
//! The format is described at <https://ai.google.dev/api/generate-content>. Each event is a response with the next parts
//! of the content. A reply ends with a `finishReason`.

mod arguments;
mod assembly;
mod event;
mod parts;

pub(super) use assembly::ReplyAssembler;

#[cfg(test)]
mod tests;
