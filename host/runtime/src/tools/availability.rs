//! The availability of a tool: whether it is offered to the model.

/// Whether a tool is offered to the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Availability {
    /// The model can call the tool.
    Offered,
    /// The tool is a command-line program that the model calls by means of `run_command`. The model is not shown the tool
    /// itself, but a call of it is accepted.
    RunByName,
    /// The tool is hidden from the model, because it lacks a necessary grant or because the agent may not use it. The
    /// host refuses a call to the tool, and the model receives `message`.
    Withheld {
        /// Text that explains to the model why the call was refused.
        message: String,
        /// Advice for the user: the configuration change that would allow the tool.
        advice: String,
    },
    /// The tool is hidden because its MCP server has changed the tool's definition since the turn began. The host
    /// refuses new calls to the tool, and the model receives `message`. Calls that were made before the change are
    /// checked again when they are about to run.
    Renewed {
        /// Text that explains to the model why the call was refused.
        message: String,
        /// Advice for the user: how the tool can be called again.
        advice: String,
    },
}
