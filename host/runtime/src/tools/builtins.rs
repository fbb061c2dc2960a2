//! The host's own tools: their names and definitions (L7). The same grants apply to them as to plugins.

mod definitions;
mod finishing;

pub use definitions::definitions;
pub use finishing::finishing_definitions;
pub(crate) use finishing::{ignoring_result_violations, loop_break};

/// Names of the built-in tools.
pub mod name {
    /// Lists the entries of a directory.
    pub const LIST_DIRECTORY: &str = "list_directory";
    /// Reads lines of a file.
    pub const READ_FILE: &str = "read_file";
    /// Reads the rest of a result that was cut.
    pub const READ_RESULT: &str = "read_result";
    /// Searches long-term memory and the messages of this session that were removed from the prompt.
    pub const MEMORY_SEARCH: &str = "memory_search";
}
