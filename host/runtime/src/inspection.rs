//! Shows people what a model was sent: the prompt of each recorded model call in blocks, with the differences to the prompt
//! of the model call before it.

mod blocks;
mod prompt;

pub use blocks::{BlockKind, PromptBlock, RequestBlock, request_blocks};
pub use prompt::{BlockChange, BlockPage, PromptBody, PromptView, RemovedBlock, Reuse, Size, prompt_view};
