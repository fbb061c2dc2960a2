//! The error that the host returns when it rejects the result of a plugin's function.

use crate::limits::Limit;

/// The reason why the host rejects the result of a plugin's function.
#[derive(Debug)]
pub(crate) enum RejectedResult {
    /// The result violates the contract. The text describes the violation.
    Invalid(String),
    /// The result is larger than a limit allows.
    Limit(Limit),
    /// The host failed to process the result.
    Host(String),
}
