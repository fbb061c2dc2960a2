//! The reasons why the host rejects a plugin's answer.

use crate::limits::Limit;

/// The reason why the host rejects a plugin's answer.
#[derive(Debug)]
pub(crate) enum RejectedAnswer {
    /// The answer violates the contract, for the reason in the text.
    Invalid(String),
    /// The answer is larger than a limit allows.
    Limit(Limit),
    /// The host itself failed to process the answer.
    Host(String),
}
