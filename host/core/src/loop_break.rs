//! The built-in tools that end a turn when `finish = "tool"` (L18).

use serde::{Deserialize, Serialize};

/// Names of the loop-breaking tools.
pub mod name {
    /// Name of the tool that ends the turn with a result.
    pub const TASK_COMPLETION: &str = "task_completion";
    /// Name of the tool that suspends the turn until the user has answered a question.
    pub const ASK_QUESTION: &str = "ask_question";
    /// Name of the tool that ends the turn with a message.
    pub const CONVERSE: &str = "converse";
}

/// Argument names of the loop-breaking tools.
pub mod argument {
    /// Argument of `task_completion`: text, or data that matches the output schema.
    pub const RESULT: &str = "result";
    /// Argument of `ask_question`: the question for the user.
    pub const QUESTION: &str = "question";
    /// Argument of `converse`: the message for the user.
    pub const MESSAGE: &str = "message";
}

/// The kind of reply that ends a turn (L18).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Finish {
    /// A reply without a tool call ends the turn.
    #[default]
    Text,
    /// Only a call to a loop-breaking tool ends the turn.
    Tool,
}

/// The effect of a call to a loop-breaking tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoopBreak {
    /// The call's result becomes the output of the turn after the result has passed validation (L12).
    Complete,
    /// The turn waits for the user's answer and continues with it.
    Ask,
    /// The call's message is sent to the user and ends the turn.
    Converse,
}

impl LoopBreak {
    /// Returns the effect of the built-in tool with this name. `None` means that the tool is not a loop-breaking tool.
    pub fn of_tool(name: &str) -> Option<Self> {
        match name {
            name::TASK_COMPLETION => Some(LoopBreak::Complete),
            name::ASK_QUESTION => Some(LoopBreak::Ask),
            name::CONVERSE => Some(LoopBreak::Converse),
            _ => None,
        }
    }
}
