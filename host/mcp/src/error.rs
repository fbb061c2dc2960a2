//! Errors about MCP servers, with messages for people.

use agent_core::visible::is_invisible;
use std::time::Duration;

/// A configuration error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum McpConfigError {
    /// The name is not allowed as the prefix of tool names.
    #[error("`{name}` is not a valid MCP server name: use 1 to 64 letters, digits, `_` or `-`")]
    Name {
        /// The name as configured.
        name: String,
    },
    /// Two servers have the same name.
    #[error("two MCP servers are named `{name}`: rename one of them")]
    Duplicate {
        /// The name that both servers have.
        name: String,
    },
    /// The address or a header of an HTTP server is invalid.
    #[error("MCP server {server}: {reason}")]
    Http {
        /// Name of the server.
        server: String,
        /// What is wrong and how to fix it.
        reason: String,
    },
}

/// A server or one of its tools is not available. Other servers are not affected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum McpError {
    /// The server process could not be started.
    #[error(
        "MCP server {server}: `{command}` could not be started ({reason}): check its `command`, `directory` and PATH"
    )]
    Start {
        /// Name of the server.
        server: String,
        /// The program as configured.
        command: String,
        /// Error message of the operating system.
        reason: String,
    },
    /// The server does not speak the protocol or refuses the connection.
    #[error("MCP server {server}: no connection: {reason}")]
    Connect {
        /// Name of the server.
        server: String,
        /// What happened and what to do.
        reason: String,
    },
    /// The server did not respond in time.
    #[error(
        "MCP server {server} did not {action} within {time:?}: check whether it waits for something, or raise `start_timeout_ms`"
    )]
    Timeout {
        /// Name of the server.
        server: String,
        /// What the server did not do in time, as a verb phrase.
        action: &'static str,
        /// The time limit.
        time: Duration,
    },
    /// The server failed recently, so the host waits before the next attempt.
    #[error("MCP server {server} failed and is retried in {wait:?}: {reason}")]
    BackingOff {
        /// Name of the server.
        server: String,
        /// Remaining time until the next attempt.
        wait: Duration,
        /// Why the server failed.
        reason: String,
    },
    /// Some tools of the server are missing from the catalogue.
    #[error("MCP server {server}: its list of tools is incomplete: {reason}")]
    IncompleteList {
        /// Name of the server.
        server: String,
        /// Which limit was exceeded, or why the list is incomplete.
        reason: String,
    },
    /// One tool of the server is left out.
    #[error("MCP server {server}: its tool `{tool}` is left out: {reason}")]
    SkippedTool {
        /// Name of the server.
        server: String,
        /// Name that the server gives the tool, with invisible characters escaped.
        tool: String,
        /// Why the tool is left out.
        reason: String,
    },
}

impl McpError {
    /// Returns the server name and the message if the whole server is unavailable, or `None` if only some tools are
    /// missing.
    pub fn unavailable_server(&self) -> Option<(&str, String)> {
        match self {
            Self::Start { server, .. }
            | Self::Connect { server, .. }
            | Self::Timeout { server, .. }
            | Self::BackingOff { server, .. } => Some((server, self.to_string())),
            Self::IncompleteList { .. } | Self::SkippedTool { .. } => None,
        }
    }
}

/// Prepares text from a server for a message: escapes invisible characters and truncates the result to
/// `max_characters`, counting escapes at their written length.
pub(crate) fn printable(text: &str, max_characters: usize) -> String {
    let (mut printable, mut written) = (String::new(), 0);
    for char in text.chars() {
        let piece: String = match char {
            '\n' => " ".to_owned(),
            char if is_invisible(char) => char.escape_unicode().collect(),
            char => char.to_string(),
        };
        written += piece.chars().count();
        if written > max_characters {
            printable.push('…');
            break;
        }
        printable.push_str(&piece);
    }
    printable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i5_server_text_cannot_control_a_terminal() {
        assert_eq!(printable("a\u{1b}[2J\nb", 20), "a\\u{1b}[2J b");
        assert_eq!((printable("äöü", 2).as_str(), printable("äöü", 3).as_str()), ("äö…", "äöü"));
        assert_eq!(printable("a\u{1b}b", 6), "a…", "an escape counts at its written length");
    }
}
