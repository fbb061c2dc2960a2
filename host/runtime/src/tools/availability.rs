//! Whether a tool is offered to the model.

/// Whether a tool is offered to the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Availability {
    /// The model can call the tool.
    Offered,
    /// The tool is hidden: it could do nothing without a grant, or the agent may not use it. A call of it is refused
    /// with the message.
    Withheld {
        /// Explanation for the model.
        message: String,
        /// The change that would allow the tool, for people.
        advice: String,
    },
    /// The tool is hidden because its MCP server has changed its definition since the turn began. New calls are refused
    /// with the message. Earlier calls are checked again when they are about to run.
    Renewed {
        /// Explanation for the model.
        message: String,
        /// Advice for people.
        advice: String,
    },
}
