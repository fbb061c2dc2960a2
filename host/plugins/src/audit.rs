//! What is told about authority that was used or refused, for whoever keeps a record of it (O3).

use crate::grants::Denial;

/// Is told of every refusal, when it happens. Implementations must not block.
pub trait AuditPort: Send + Sync {
    /// A plugin was refused something.
    fn denied(&self, call: &AuditedCall, denial: &Denial);
}

/// Whose call it was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditedCall {
    /// The agent's configured name.
    pub agent: String,
    /// The session's subject.
    pub session: String,
    /// Number of the turn in its session, from 1.
    pub turn: u32,
    /// The call's id.
    pub call: String,
}
