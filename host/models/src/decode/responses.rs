//! Assembles replies of OpenAI Responses.
//!
//! The format is described at <https://platform.openai.com/docs/api-reference/responses-streaming>. A reply ends with
//! `response.completed`, `response.incomplete` or `response.failed`.

mod assembly;
mod event;
mod items;

pub(super) use assembly::ReplyAssembler;

#[cfg(test)]
mod tests;
