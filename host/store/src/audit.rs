//! The audit log (O3): what plugins were granted and denied, what people allowed, and which versions of plugins served.
//! Entries are only ever added; they outlive the sessions that they tell of.

use crate::StoreError;
use agent_core::approval::{ApprovalWord, LastingGrant};
use agent_core::change::Denial;
use agent_core::message::{CallId, Digest};
use agent_core::tool::ToolSource;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

/// The audit log. Denials, approvals and the service events of plugins enter it by themselves, with the commit that holds
/// them.
#[async_trait]
pub trait Audit: Send + Sync {
    /// Adds entries, all or none. Of [`Deed::Granted`] and
    /// [`Deed::HostGranted`] only what differs from the last one of its agent and plugin is added.
    async fn audit(&self, deeds: Vec<Deed>) -> Result<(), StoreError>;

    /// Entries behind number `after` that are not older than `since` (microseconds since 1970), the oldest first, at most
    /// `limit`.
    async fn audited(&self, since: i64, after: u64, limit: usize) -> Result<Vec<AuditEntry>, StoreError>;
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AuditEntry {
    /// From 1, never given twice.
    pub number: u64,
    /// RFC 3339 in UTC.
    pub time: String,
    /// What was done.
    #[serde(flatten)]
    pub deed: Deed,
}

/// What is worth an entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "type")]
pub enum Deed {
    /// A version of a plugin began to serve an agent with these grants.
    Granted {
        /// The agent's name.
        agent: String,
        /// The plugin's name.
        plugin: String,
        /// Its component.
        digest: Digest,
        /// What it may do, in words, without values. Empty: nothing.
        grants: Vec<String>,
    },
    /// What the host's own file tools may do for an agent. Nothing is told only where there was something before.
    HostGranted {
        /// The agent's name.
        agent: String,
        /// In words. Empty: nothing.
        grants: Vec<String>,
    },
    /// A plugin wanted what it is not granted, or a model what its agent may not do (P6).
    Denied {
        /// Subject of the session.
        session: String,
        /// The call that wanted it. None: a context builder, between calls.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<CallId>,
        /// Where its tool comes from, with the whole digest.
        source: Option<ToolSource>,
        /// Who, what, and what to add to the configuration.
        #[serde(flatten)]
        denial: Denial,
    },
    /// A plugin had the host send an event to a service (P2).
    Emitted {
        /// Subject of the session.
        session: String,
        /// The call that asked for it; also the event's id.
        call: CallId,
        /// The plugin, with the whole digest.
        source: ToolSource,
        /// CloudEvent type.
        event_type: String,
    },
    /// Somebody has decided about a call (L17).
    Approval {
        /// Subject of the session.
        session: String,
        /// The call.
        call: CallId,
        /// Its tool.
        tool: String,
        /// Where the tool comes from, with the whole digest.
        source: Option<ToolSource>,
        /// How.
        verdict: ApprovalWord,
    },
    /// Somebody took back what was allowed for good (L17).
    Revoked {
        /// Id of the grant.
        id: String,
        /// What it allowed.
        #[serde(flatten)]
        grant: LastingGrant,
    },
    /// Another version of a plugin serves from now on (P10).
    Swapped {
        /// The plugins' directory.
        directory: String,
        /// The plugin's name.
        plugin: String,
        /// What served before. None: nothing.
        from: Option<Digest>,
        /// What serves now. None: nothing.
        to: Option<Digest>,
    },
    /// A version of a plugin was taken back (P10).
    RolledBack {
        /// The plugins' directory.
        directory: String,
        /// The plugin's name.
        plugin: String,
        /// What was taken back.
        from: Digest,
        /// What serves instead.
        to: Digest,
        /// Why.
        because: String,
    },
    /// Somebody let the file of a plugin that was taken back decide again (P10).
    RollbackUndone {
        /// The plugins' directory.
        directory: String,
        /// The plugin's name.
        plugin: String,
        /// What served instead.
        from: Digest,
        /// What had been taken back.
        to: Digest,
    },
    /// A file, or what would serve with it, was not taken (P10).
    Refused {
        /// The plugins' directory.
        directory: String,
        /// The file, or the agent that cannot work with what is there.
        subject: String,
        /// Why.
        reason: String,
    },
}

impl Deed {
    /// Its kind in one word.
    pub fn word(&self) -> &'static str {
        match self {
            Deed::Granted { .. } => "granted",
            Deed::HostGranted { .. } => "host_granted",
            Deed::Denied { .. } => "denied",
            Deed::Emitted { .. } => "emitted",
            Deed::Approval { .. } => "approval",
            Deed::Revoked { .. } => "revoked",
            Deed::Swapped { .. } => "swapped",
            Deed::RolledBack { .. } => "rolled_back",
            Deed::RollbackUndone { .. } => "rollback_undone",
            Deed::Refused { .. } => "refused",
        }
    }

    /// What it is about, so that earlier entries about the same are found.
    pub(crate) fn subject(&self) -> String {
        match self {
            Deed::Granted { agent, plugin, .. } => format!("{agent}/{plugin}"),
            Deed::Denied { session, .. } | Deed::Emitted { session, .. } | Deed::Approval { session, .. } => {
                session.clone()
            }
            Deed::HostGranted { agent, .. } => agent.clone(),
            Deed::Revoked { grant, .. } => format!("{}/{}", grant.agent, grant.tool),
            Deed::Swapped { directory, plugin, .. }
            | Deed::RolledBack { directory, plugin, .. }
            | Deed::RollbackUndone { directory, plugin, .. } => format!("{directory}/{plugin}"),
            Deed::Refused { directory, subject, .. } => format!("{directory}/{subject}"),
        }
    }
}
