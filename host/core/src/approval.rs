//! Approvals: what must be asked for, what somebody answered, and what of that is remembered (L17).

mod arguments;
mod rules;

pub use arguments::{canonical_json, edit_note};
pub use rules::{ApprovalRules, Ruling, fits, source_of};

use crate::message::{CallId, Digest};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Whether a tool may run, as the agent's configuration says. Of several that fit, the strictest holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalPolicy {
    /// Without asking.
    #[default]
    Allow,
    /// Somebody is asked before each call, unless an earlier answer is remembered.
    Ask,
    /// Never.
    Deny,
}

/// What a grant is bound to: another agent, tool or digest is another grant.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LastingGrant {
    /// The agent's configured name.
    pub agent: String,
    /// As its author wrote it.
    pub tool: String,
    /// Of the plugin's component, or of the definition where the tool comes from elsewhere.
    pub digest: Digest,
    /// Of the arguments' canonical JSON; none: any arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Digest>,
    /// What else the yes was about. None: a host gave the grant that did not record it, so the grant does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<ApprovalScope>,
}

impl LastingGrant {
    /// Names what the person was asked about: the grant of another identity is void (row 52).
    pub fn identity(&self) -> &Digest {
        self.scope.as_ref().map_or(&self.digest, |scope| &scope.identity)
    }
}

/// Digests of everything that a yes was about beside the tool's name and its arguments (row 52).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ApprovalScope {
    /// Of the agent's file, the user, and the executor: the plugin's component, the server's command or URL, the service,
    /// or the agent below.
    pub identity: Digest,
    /// Of the grants that the executor had.
    pub grants: Digest,
}

/// How long a grant is remembered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GrantScope {
    /// For this call.
    #[default]
    Once,
    /// For this session.
    Session,
    /// Until it is revoked.
    Always,
}

/// A grant with how long it is remembered. It is bound as the host says, never as the one who answers says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScopedGrant {
    /// How long.
    pub scope: GrantScope,
    /// To what it is bound.
    pub grant: LastingGrant,
}

/// What lets a call run that must be allowed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Leave {
    /// Somebody was asked about this call and said yes.
    Answered(LastingGrant),
    /// Somebody said yes earlier, and it is remembered: it must still be when the call runs.
    Remembered(LastingGrant),
}

impl Leave {
    /// To what it is bound.
    pub fn grant(&self) -> &LastingGrant {
        match self {
            Leave::Answered(grant) | Leave::Remembered(grant) => grant,
        }
    }
}

/// A call that somebody must be asked about once more: the tool is another one now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedAgain {
    /// Which.
    pub call: CallId,
    /// Identity of the tool as it is now ([`LastingGrant::identity`]).
    pub digest: Digest,
}

/// Somebody's answer about one call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApprovalAnswer {
    /// Which.
    pub call: CallId,
    /// What may be done with it.
    pub verdict: ApprovalVerdict,
}

/// What may be done with a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalVerdict {
    /// It runs.
    Granted {
        /// With these arguments instead of the model's; checked against the tool's schema already.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        edited: Option<Value>,
        /// Binds the call to the tool as it was when somebody was asked.
        grant: ScopedGrant,
    },
    /// It does not run; the model is told so.
    Denied {
        /// In their words, for the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
}

/// An answer in one word, for events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalWord {
    /// It runs, this once.
    Once,
    /// It and its like run in this session.
    Session,
    /// It and its like run until that is revoked.
    Always,
    /// It does not run.
    Denied,
    /// The tool is another one than that which was asked about: somebody is asked again.
    Void,
}
