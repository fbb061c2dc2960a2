//! Approvals: which tool calls need one, how people answer, and which answers the host remembers (L17).

mod arguments;
mod rules;

pub use arguments::{canonical_json, edit_note};
pub use rules::{ApprovalRules, Ruling, matches_pattern, rule_source};

use crate::message::{CallId, Digest};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Whether a tool may run according to the agent's configuration. If several rules match, the strictest applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalPolicy {
    /// The tool runs without an approval.
    #[default]
    Allow,
    /// A user is asked before each call, unless a remembered answer covers it.
    Ask,
    /// The tool never runs.
    Deny,
}

/// What a remembered grant is bound to. Another agent, tool or digest needs a grant of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LastingGrant {
    /// Name of the agent in the configuration.
    pub agent: String,
    /// Name of the tool as its author wrote it.
    pub tool: String,
    /// Digest of the plugin's component, or of the tool's definition if the tool does not come from a plugin.
    pub digest: Digest,
    /// Digest of the arguments' canonical JSON. None: the grant covers any arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Digest>,
    /// What else the user agreed to. None: an older host issued the grant without recording it, so the grant is not
    /// valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<ApprovalScope>,
}

impl LastingGrant {
    /// Digest that identifies what the user was asked about. A grant with another identity is void (row 52).
    pub fn identity(&self) -> &Digest {
        self.scope.as_ref().map_or(&self.digest, |scope| &scope.identity)
    }
}

/// Digests of everything that an approval covers in addition to the tool's name and its arguments (row 52).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ApprovalScope {
    /// Digest of the agent's file, the user, and the executor. The executor is the plugin's component, the server's
    /// command or URL, the service, or the delegate agent.
    pub identity: Digest,
    /// Digest of the grants that the executor had.
    pub grants: Digest,
}

/// How long a grant is remembered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GrantScope {
    /// The grant covers this call only.
    #[default]
    Once,
    /// The grant covers this session.
    Session,
    /// The grant lasts until somebody revokes it.
    Always,
}

/// A grant together with the time for which it is remembered. The host decides what it is bound to, never the user
/// who answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScopedGrant {
    /// How long the grant is remembered.
    pub scope: GrantScope,
    /// What the grant is bound to.
    pub grant: LastingGrant,
}

/// Why a call that needs an approval is allowed to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Authorization {
    /// A user was asked about this call and allowed it.
    Answered(LastingGrant),
    /// A user allowed this kind of call earlier. The grant must still be remembered when the call runs.
    Remembered(LastingGrant),
}

impl Authorization {
    /// The grant that allows the call.
    pub fn grant(&self) -> &LastingGrant {
        match self {
            Authorization::Answered(grant) | Authorization::Remembered(grant) => grant,
        }
    }
}

/// A call that needs a new approval because its tool has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReapprovalRequest {
    /// Id of the tool call.
    pub call: CallId,
    /// Identity of the tool as it is now; see [`LastingGrant::identity`].
    pub digest: Digest,
}

/// A user's answer about one call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApprovalAnswer {
    /// Id of the tool call.
    pub call: CallId,
    /// The user's decision about the call.
    pub verdict: ApprovalVerdict,
}

/// What a user decided about a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalVerdict {
    /// The call runs.
    Granted {
        /// Arguments that replace the model's. They are already checked against the tool's schema. None: the model's
        /// own arguments.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        edited: Option<Value>,
        /// Binds the call to the tool as it was when the user was asked.
        grant: ScopedGrant,
    },
    /// The call does not run, and the model is told so.
    Denied {
        /// The user's reason, for the model. None: no reason was given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
}

/// The outcome of an approval request as one word, for events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalOutcome {
    /// The call runs, this time only.
    Once,
    /// The call runs, and so do later calls that the grant covers in this session.
    Session,
    /// The call runs, and so do later calls that the grant covers, until somebody revokes it.
    Always,
    /// The call does not run.
    Denied,
    /// The tool has changed since the request, so the user is asked again.
    Void,
}
