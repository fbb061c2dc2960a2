//! The audit log (O3): which grants plugins received, what they were denied, what people approved, and which plugin versions
//! served. Entries are only ever added, and they outlive the sessions that they describe.

use crate::StoreError;
use agent_core::approval::{ApprovalOutcome, LastingGrant};
use agent_core::change::Denial;
use agent_core::message::{CallId, Digest};
use agent_core::tool::ToolSource;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

/// The audit log. A commit adds the entries for its denials, approvals and service events by itself.
#[async_trait]
pub trait Audit: Send + Sync {
    /// Adds all of these entries or none. An [`AuditAction::Granted`] or [`AuditAction::HostGranted`] is added only if it differs
    /// from the last such entry of the same agent and plugin.
    async fn audit(&self, actions: Vec<AuditAction>) -> Result<(), StoreError>;

    /// Returns the entries with a number above `after` that are not older than `since` (microseconds since 1970), oldest first,
    /// at most `limit`.
    async fn audit_entries(&self, since: i64, after: u64, limit: usize) -> Result<Vec<AuditEntry>, StoreError>;
}

/// An entry of the audit log.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AuditEntry {
    /// Number of the entry. Numbers start at 1 and are never reused.
    pub number: u64,
    /// Time of the entry, as RFC 3339 in UTC.
    pub time: String,
    /// The recorded action; its fields are serialised next to `number` and `time`.
    #[serde(flatten)]
    pub action: AuditAction,
}

/// An action that the audit log records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "type")]
pub enum AuditAction {
    /// A plugin version started to serve an agent with these grants.
    Granted {
        /// Configured name of the agent.
        agent: String,
        /// Name of the plugin.
        plugin: String,
        /// Digest of the plugin's component.
        digest: Digest,
        /// What the plugin may do, in words and without secret values. Empty if it has no grants.
        grants: Vec<String>,
    },
    /// The host's own file tools have these grants for an agent. An empty list is recorded only if there were grants before.
    HostGranted {
        /// Configured name of the agent.
        agent: String,
        /// What the file tools may do, in words. Empty if they have no grants.
        grants: Vec<String>,
    },
    /// A plugin needed a capability that it is not granted, or a model asked for something that its agent may not do (P6).
    Denied {
        /// Subject of the session.
        session: String,
        /// The call that was denied. `None` for a context builder, which runs outside calls.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<CallId>,
        /// Where the call's tool comes from, with the full digest.
        source: Option<ToolSource>,
        /// Who was denied what, and what to add to the configuration to allow it.
        #[serde(flatten)]
        denial: Denial,
    },
    /// A plugin made the host send an event to a service (P2).
    Emitted {
        /// Subject of the session.
        session: String,
        /// The call that asked for the event. Its id is also the event's id.
        call: CallId,
        /// The plugin that asked for the event, with the full digest.
        source: ToolSource,
        /// The CloudEvents type of the event.
        event_type: String,
    },
    /// Somebody decided whether a call may run (L17).
    Approval {
        /// Subject of the session.
        session: String,
        /// The call that was decided about.
        call: CallId,
        /// Name of the call's tool.
        tool: String,
        /// Where the tool comes from, with the full digest.
        source: Option<ToolSource>,
        /// The decision.
        verdict: ApprovalOutcome,
    },
    /// Somebody revoked a lasting approval (L17).
    Revoked {
        /// Id of the grant.
        id: String,
        /// The grant that was revoked.
        #[serde(flatten)]
        grant: LastingGrant,
    },
    /// A different version of a plugin started to serve (P10).
    Swapped {
        /// Path of the plugin directory.
        directory: String,
        /// Name of the plugin.
        plugin: String,
        /// Digest of the version that served before. `None` if the plugin is new.
        from: Option<Digest>,
        /// Digest of the version that serves now. `None` if the plugin was removed.
        to: Option<Digest>,
    },
    /// A plugin was rolled back to an earlier version (P10).
    RolledBack {
        /// Path of the plugin directory.
        directory: String,
        /// Name of the plugin.
        plugin: String,
        /// Digest of the version that no longer serves.
        from: Digest,
        /// Digest of the version that serves instead.
        to: Digest,
        /// Reason for the rollback, for people.
        because: String,
    },
    /// Somebody undid a rollback, so that the plugin's file serves again (P10).
    RollbackUndone {
        /// Path of the plugin directory.
        directory: String,
        /// Name of the plugin.
        plugin: String,
        /// Digest of the version that served during the rollback.
        from: Digest,
        /// Digest of the version in the plugin's file.
        to: Digest,
    },
    /// The host refused to load a plugin file, or to use a set of plugins for an agent (P10).
    Refused {
        /// Path of the plugin directory.
        directory: String,
        /// The refused file, or the agent that cannot work with the plugins.
        subject: String,
        /// Reason for the refusal, for people.
        reason: String,
    },
}

impl AuditAction {
    /// Kind of the action, as stored in the `type` field.
    pub fn kind(&self) -> &'static str {
        match self {
            AuditAction::Granted { .. } => "granted",
            AuditAction::HostGranted { .. } => "host_granted",
            AuditAction::Denied { .. } => "denied",
            AuditAction::Emitted { .. } => "emitted",
            AuditAction::Approval { .. } => "approval",
            AuditAction::Revoked { .. } => "revoked",
            AuditAction::Swapped { .. } => "swapped",
            AuditAction::RolledBack { .. } => "rolled_back",
            AuditAction::RollbackUndone { .. } => "rollback_undone",
            AuditAction::Refused { .. } => "refused",
        }
    }

    /// Groups actions of one kind, so that the previous entry about the same thing can be found.
    pub(crate) fn subject(&self) -> String {
        match self {
            AuditAction::Granted { agent, plugin, .. } => format!("{agent}/{plugin}"),
            AuditAction::Denied { session, .. }
            | AuditAction::Emitted { session, .. }
            | AuditAction::Approval { session, .. } => session.clone(),
            AuditAction::HostGranted { agent, .. } => agent.clone(),
            AuditAction::Revoked { grant, .. } => format!("{}/{}", grant.agent, grant.tool),
            AuditAction::Swapped { directory, plugin, .. }
            | AuditAction::RolledBack { directory, plugin, .. }
            | AuditAction::RollbackUndone { directory, plugin, .. } => format!("{directory}/{plugin}"),
            AuditAction::Refused { directory, subject, .. } => format!("{directory}/{subject}"),
        }
    }
}
