//! Reports the effect of the user's answer to the question at the first use of a plugin.

use std::path::PathBuf;

/// The effect of the user's answer, as a message. The message is one sentence without a full stop. In some cases, the
/// sentence is followed by lines that the user can copy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FirstUseReport {
    /// The grants were written into the agent's file.
    #[error("written into {}: [plugins.{plugin}.grants] {}", path.display(), lines.join(", "))]
    GrantsWritten {
        /// Path of the agent's file, which was changed.
        path: PathBuf,
        /// Name of the plugin that the question was about.
        plugin: String,
        /// Lines that set the grants in the table `[plugins.NAME.grants]`.
        lines: Vec<String>,
    },
    /// `ask = false` was written into the agent's file, so that the user is not asked about the plugin again.
    #[error("written into {}: [plugins.{plugin}.grants] ask = false", path.display())]
    NeverAskWritten {
        /// Path of the agent's file, which was changed.
        path: PathBuf,
        /// Name of the plugin that the question was about.
        plugin: String,
    },
    /// The grants could not be written into the agent's file, so they end with the session or the process.
    #[error(
        "{reason}, so the grants are not saved. To save them, add to the agent's configuration file\n  \
         [plugins.{plugin}.grants]\n  {}\nor pass {}",
        lines.join("\n  "),
        flags.join(" ")
    )]
    GrantsNotWritten {
        /// The reason why the file was not written.
        reason: String,
        /// Name of the plugin that the question was about.
        plugin: String,
        /// Lines that set the grants in the table `[plugins.NAME.grants]`.
        lines: Vec<String>,
        /// The grants that were not written, as command-line options.
        flags: Vec<String>,
    },
    /// `ask = false` could not be written into the agent's file, so the answer ends with the session or the process.
    #[error(
        "{reason}, so the answer is not saved. To save it, add to the agent's configuration file\n  \
         [plugins.{plugin}.grants]\n  ask = false"
    )]
    NeverAskNotWritten {
        /// The reason why the file was not written.
        reason: String,
        /// Name of the plugin that the question was about.
        plugin: String,
    },
    /// No answer can grant what the plugin lacks, so the plugin runs without it.
    #[error("{plugin} runs without {}", lacking.join("; "))]
    Lacking {
        /// Name of the plugin.
        plugin: String,
        /// What the plugin lacks, each with the lines that would grant it.
        lacking: Vec<String>,
    },
    /// The grants could not be applied to the agent.
    #[error("nothing was granted: {reason}")]
    NothingGranted {
        /// The reason why the grants could not be applied.
        reason: String,
    },
    /// The grants that applied only to the previous session could not be ended.
    #[error("the grants for the previous session are still in force: {reason}; quit agent-host to end them")]
    NotEnded {
        /// The reason why the grants could not be ended.
        reason: String,
    },
    /// The grants could not be recorded in the audit log.
    #[error("the grants could not be recorded in the audit log: {reason}")]
    NotAudited {
        /// The reason why the grants could not be recorded.
        reason: String,
    },
}

impl FirstUseReport {
    /// Returns true if the report is about a failure, which should be shown as a warning.
    pub fn is_warning(&self) -> bool {
        !matches!(self, Self::GrantsWritten { .. } | Self::NeverAskWritten { .. })
    }
}
