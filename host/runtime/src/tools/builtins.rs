//! Names and definitions of the host's built-in tools (L7). The built-in tools need grants, as plugins do.

mod definitions;
mod finishing;

pub use definitions::definitions;
pub use finishing::finishing_definitions;
pub(crate) use finishing::{ignoring_result_violations, loop_break};

/// Names of the built-in tools.
pub mod name {
    /// Name of the tool that lists the entries of a directory.
    pub const LIST_DIRECTORY: &str = "list_directory";
    /// Name of the tool that reads lines of a file.
    pub const READ_FILE: &str = "read_file";
    /// Name of the tool that reads the part of a tool result that was cut off in the prompt.
    pub const READ_RESULT: &str = "read_result";
    /// Name of the tool that searches long-term memory and the messages of this session that were removed from
    /// the prompt.
    pub const MEMORY_SEARCH: &str = "memory_search";
    /// Name of the tool that runs command-line programs by name, if the agent offers its programs as one tool.
    pub const RUN_COMMAND: &str = "run_command";
}
