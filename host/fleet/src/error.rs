//! The errors of this crate. No error contains a password or a token.

/// Why NATS cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FleetError {
    /// The text is not the address of a NATS server. The text is not repeated, because it may contain a password.
    #[error("{0}")]
    InvalidAddress(&'static str),
    /// TLS cannot be used.
    #[error("TLS cannot be used for the connection to NATS: {0}")]
    Tls(String),
    /// A file of the credentials or of the certificate cannot be used. The text names the file.
    #[error("{0}")]
    Credentials(String),
    /// No server answers.
    #[error(
        "NATS at {server} cannot be used: {problem}; check the address, the credentials, and whether JetStream is enabled there"
    )]
    Unreachable {
        /// The servers, without credentials.
        server: String,
        /// What the last attempt showed.
        problem: String,
    },
    /// The server answered with an error.
    #[error("NATS at {server} did not {action}: {problem}")]
    Failed {
        /// The servers, without credentials.
        server: String,
        /// What the server was asked to do.
        action: &'static str,
        /// The server's answer.
        problem: String,
    },
    /// There is no dead letter with this number.
    #[error("there is no dead letter {0}; `agent-host dead-letter list` lists them")]
    NoDeadLetter(u64),
}
