//! What can be wrong with an MCP server, for people.

use agent_core::visible::is_invisible;
use std::time::Duration;

/// A configuration that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum McpConfigError {
    /// A name that cannot lead the names of tools.
    #[error("`{name}` cannot name an MCP server: take 1 to 64 letters, digits, `_` or `-`")]
    Name {
        /// The name.
        name: String,
    },
    /// Two servers have one name.
    #[error("two MCP servers are named `{name}`: rename one of them")]
    Duplicate {
        /// Their name.
        name: String,
    },
    /// An address or header that cannot be used.
    #[error("MCP server {server}: {reason}")]
    Http {
        /// Its name.
        server: String,
        /// What is wrong, and what to do.
        reason: String,
    },
}

/// A server, or a tool of one, that does not serve. The other servers do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum McpError {
    /// Its process did not start.
    #[error(
        "MCP server {server}: `{command}` could not be started ({reason}): check its `command`, `directory` and PATH"
    )]
    Start {
        /// Its name.
        server: String,
        /// The program.
        command: String,
        /// Of the system.
        reason: String,
    },
    /// It does not speak the protocol, or refuses.
    #[error("MCP server {server}: no connection: {reason}")]
    Connect {
        /// Its name.
        server: String,
        /// What happened, and what to do.
        reason: String,
    },
    /// It did not answer in time.
    #[error(
        "MCP server {server} did not {deed} within {time:?}: see whether it waits for something, or raise `start_timeout_ms`"
    )]
    Slow {
        /// Its name.
        server: String,
        /// What it did not do.
        deed: &'static str,
        /// The limit.
        time: Duration,
    },
    /// It has failed a moment ago, so it is left alone for a while.
    #[error("MCP server {server} is tried again in {wait:?}; it failed before: {reason}")]
    Waiting {
        /// Its name.
        server: String,
        /// What is left of the wait.
        wait: Duration,
        /// Why it is waited for.
        reason: String,
    },
    /// A part of its catalogue is not taken.
    #[error("MCP server {server}: its list of tools is not taken whole: {reason}")]
    Cut {
        /// Its name.
        server: String,
        /// Which limit it is over.
        reason: String,
    },
    /// A tool of it is not taken.
    #[error("MCP server {server}: its tool `{tool}` is left out: {reason}")]
    Tool {
        /// Its name.
        server: String,
        /// As the server names it, escaped.
        tool: String,
        /// Why.
        reason: String,
    },
}

impl McpError {
    /// The server, where it is not there at all, and why.
    pub fn absent(&self) -> Option<(&str, String)> {
        match self {
            Self::Start { server, .. }
            | Self::Connect { server, .. }
            | Self::Slow { server, .. }
            | Self::Waiting { server, .. } => Some((server, self.to_string())),
            Self::Cut { .. } | Self::Tool { .. } => None,
        }
    }
}

/// A text of a server for a message: invisible characters escaped, cut after so many characters, escaped ones counted as
/// they are written.
pub(crate) fn shown(text: &str, characters: usize) -> String {
    let (mut shown, mut written) = (String::new(), 0);
    for char in text.chars() {
        let piece: String = match char {
            '\n' => " ".to_owned(),
            char if is_invisible(char) => char.escape_unicode().collect(),
            char => char.to_string(),
        };
        written += piece.chars().count();
        if written > characters {
            shown.push('…');
            break;
        }
        shown.push_str(&piece);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i5_what_a_server_says_cannot_drive_a_terminal() {
        assert_eq!(shown("a\u{1b}[2J\nb", 20), "a\\u{1b}[2J b");
        assert_eq!((shown("äöü", 2).as_str(), shown("äöü", 3).as_str()), ("äö…", "äöü"));
        assert_eq!(shown("a\u{1b}b", 6), "a…", "what an escape takes counts");
    }
}
