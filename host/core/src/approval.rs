//! Approvals of tool calls (L17): the rules that require them, the users' answers, and the grants that the host
//! remembers.

mod arguments;
mod rules;

pub use arguments::{canonical_json, edit_note};
pub use rules::{ApprovalRules, Ruling, matches_pattern, rule_source};

use crate::message::{CallId, Digest};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Whether a tool may run, according to the agent's configuration. If several rules match, the strictest rule applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalPolicy {
    /// The tool runs without an approval.
    #[default]
    Allow,
    /// A user is asked before each call, unless a remembered grant covers the call.
    Ask,
    /// The tool never runs.
    Deny,
}

/// A grant that the host remembers after a user has approved a call. The grant is valid only for the agent, the tool
/// and the digest that it names.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LastingGrant {
    /// Name of the agent in the configuration.
    pub agent: String,
    /// Name of the tool as its author wrote it.
    pub tool: String,
    /// Digest of the plugin's component, or of the tool's definition if the tool does not come from a plugin.
    pub digest: Digest,
    /// Digest of the arguments' canonical JSON. `None` means that the grant covers any arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Digest>,
    /// Digests of the agent's configuration and of the tool's executor at the time when the user approved the call.
    /// `None` means that the grant comes from an older version of the host, which did not record the digests. A grant
    /// without digests is not valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<ApprovalScope>,
}

impl LastingGrant {
    /// Digest that identifies the tool about which the user was asked (row 52). The grant is not valid for a tool with
    /// a different identity.
    pub fn identity(&self) -> &Digest {
        self.scope.as_ref().map_or(&self.digest, |scope| &scope.identity)
    }
}

/// Digests of the agent's configuration and the tool's executor. An approval is valid only while all digests in its
/// scope stay the same (row 52).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ApprovalScope {
    /// One digest of three values: the agent's configuration file, the user and the executor of the tool. The executor
    /// is the plugin's component, the command or URL of an MCP server, the service, or the agent to which the
    /// call delegates.
    pub identity: Digest,
    /// Digest of the grants that the executor had when the user approved the call.
    pub grants: Digest,
}

/// How long a grant is remembered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GrantScope {
    /// The grant covers only the call about which the user was asked.
    #[default]
    Once,
    /// The grant covers later calls in the same session.
    Session,
    /// The grant is valid until a user revokes it.
    Always,
}

/// A grant, and how long it is remembered. The user who answers an approval request chooses only how long the grant is
/// remembered. The host, not the user, fills in the grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScopedGrant {
    /// The time for which the grant is remembered.
    pub scope: GrantScope,
    /// The grant, which names the agent, the tool, the digest and the arguments for which it is valid.
    pub grant: LastingGrant,
}

/// Why a call that needs an approval is allowed to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Authorization {
    /// A user was asked about this call and approved it.
    Answered(LastingGrant),
    /// A remembered grant covers the call. The host must still remember the grant when the call runs.
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
    /// Current identity of the tool; see [`LastingGrant::identity`].
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

/// A user's decision about a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalVerdict {
    /// The call runs.
    Granted {
        /// Arguments that replace the model's arguments. These arguments are already checked against the tool's schema.
        /// `None` means that the call runs with the model's arguments.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        edited: Option<Value>,
        /// The grant that results from the answer. The call runs only if the tool still has the identity that the
        /// grant names.
        grant: ScopedGrant,
    },
    /// The call does not run, and the model gets an error result.
    Denied {
        /// The user's reason, which is sent to the model. `None` means that the user gave no reason.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
}

/// The outcome of an approval request. Events contain the outcome as one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalOutcome {
    /// The call runs. Each later call needs its own approval.
    Once,
    /// The call runs, and later calls in this session that the grant covers also run.
    Session,
    /// The call runs, and later calls that the grant covers also run, until a user revokes the grant.
    Always,
    /// The call does not run.
    Denied,
    /// The tool has changed since the approval request, so the user is asked again.
    Void,
    /// Nobody has decided in time, so the call does not run.
    Expired,
}
