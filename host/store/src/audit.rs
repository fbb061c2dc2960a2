//! The audit log (O3) records the grants of plugins, refusals, approval decisions, events that plugins sent to services,
//! and replacements of plugin versions. Entries are only added, never changed or removed. The entries about a session are
//! kept when the session is deleted. Each entry contains a hash of the entry before it, see [`chain`].

pub(crate) mod chain;
pub(crate) mod verify;

use crate::StoreError;
use agent_core::approval::{ApprovalOutcome, LastingGrant};
use agent_core::budget::ExceededBudget;
use agent_core::change::Denial;
use agent_core::message::{CallId, Digest};
use agent_core::tool::ToolSource;
use async_trait::async_trait;
use chain::StoredAuditEntry;
use serde::{Deserialize, Serialize};

/// Adds entries to the audit log and reads them. A commit of a session adds the entries for the denials, approvals
/// and service events of the session. Entries of all other kinds are added with [`Audit::audit`].
#[async_trait]
pub trait Audit: Send + Sync {
    /// Adds an entry for each action, or no entry at all if an error occurs. An entry for [`AuditAction::Granted`]
    /// or [`AuditAction::HostGranted`] is added only if it differs from the previous entry of the same kind for the
    /// same agent and plugin.
    async fn audit(&self, actions: Vec<AuditAction>) -> Result<(), StoreError>;

    /// Returns up to `limit` entries, oldest first, whose number is above `after` and whose time is not before
    /// `since`. `since` is the number of microseconds since the beginning of 1970 in UTC.
    async fn audit_entries(&self, since: i64, after: u64, limit: usize) -> Result<Vec<AuditEntry>, StoreError>;

    /// Returns up to `limit` entries whose number is above `after`, oldest first, exactly as they are stored. Damaged
    /// entries are returned, too. A page ends early if its entries are large, but it is empty only after the last entry.
    async fn stored_audit_entries(&self, after: u64, limit: usize) -> Result<Vec<StoredAuditEntry>, StoreError>;

    /// Returns the number of the last entry that was ever added, even if this entry was removed. 0 if there was none.
    async fn last_audit_number(&self) -> Result<u64, StoreError>;
}

/// Maximum size of a text in an entry, in bytes. Longer texts are shortened when the entry is stored.
pub const MAX_AUDIT_TEXT_BYTES: usize = 4 << 10;

/// An entry of the audit log.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AuditEntry {
    /// Number of the entry in the audit log. The numbers of entries start at 1 and are never reused.
    pub number: u64,
    /// Time at which the entry was added, as RFC 3339 in UTC.
    pub time: String,
    /// The recorded action. The fields of the action are serialised next to `number` and `time`.
    #[serde(flatten)]
    pub action: AuditAction,
}

/// An action that the audit log records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "type")]
pub enum AuditAction {
    /// An agent started to use a version of a plugin with the recorded grants.
    Granted {
        /// Configured name of the agent.
        agent: String,
        /// Name of the plugin.
        plugin: String,
        /// Digest of the plugin's component.
        digest: Digest,
        /// Descriptions of the plugin's grants, without secret values. Empty if the plugin has no grants.
        grants: Vec<String>,
    },
    /// The host set the grants with which an agent uses the built-in file tools. An empty list of grants is recorded
    /// only if the agent's previous entry of this kind contains grants.
    HostGranted {
        /// Configured name of the agent.
        agent: String,
        /// Descriptions of the grants of the file tools. Empty if the file tools have no grants.
        grants: Vec<String>,
    },
    /// A plugin needed a capability that it was not granted, or a model requested an action that its agent is not
    /// allowed to perform (P6).
    Denied {
        /// Subject that identifies the session.
        session: String,
        /// The call that was denied. `None` if a context builder was denied something, because a context builder does
        /// not run as part of a call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<CallId>,
        /// Source of the call's tool. The source of a plugin's tool contains the full digest of the component.
        source: Option<ToolSource>,
        /// The plugin, the denied request, and the configuration that would allow the request.
        #[serde(flatten)]
        denial: Denial,
    },
    /// A plugin made the host send an event to a service (P2).
    Emitted {
        /// Subject that identifies the session.
        session: String,
        /// The call that requested the event. The id of the call is also the id of the event.
        call: CallId,
        /// The plugin that requested the event, with the full digest of the plugin's component.
        source: ToolSource,
        /// The CloudEvents type of the event.
        event_type: String,
    },
    /// An approval request was decided or became void (L17).
    Approval {
        /// Subject that identifies the session.
        session: String,
        /// The call whose approval was requested.
        call: CallId,
        /// Name of the tool that the call runs.
        tool: String,
        /// Source of the tool. The source of a plugin's tool contains the full digest of the component.
        source: Option<ToolSource>,
        /// Outcome of the approval request.
        verdict: ApprovalOutcome,
    },
    /// A budget did not allow a model call, so the turn ended (O4).
    BudgetExceeded {
        /// Subject that identifies the session.
        session: String,
        /// The budget, what was used of it, and what the call may have used.
        #[serde(flatten)]
        budget: ExceededBudget,
    },
    /// A user revoked a lasting approval (L17).
    Revoked {
        /// Id of the revoked grant.
        id: String,
        /// The grant that was revoked. The fields of the grant are serialised next to `id`.
        #[serde(flatten)]
        grant: LastingGrant,
    },
    /// The host started to use another version of a plugin, or added or removed a plugin (P10).
    Swapped {
        /// Path of the plugin directory.
        directory: String,
        /// Name of the plugin.
        plugin: String,
        /// Digest of the version that was used before the change. `None` if the plugin is new.
        from: Option<Digest>,
        /// Digest of the version that is used after the change. `None` if the plugin was removed.
        to: Option<Digest>,
    },
    /// A plugin was rolled back to an earlier version (P10).
    RolledBack {
        /// Path of the plugin directory.
        directory: String,
        /// Name of the plugin.
        plugin: String,
        /// Digest of the version that was used before the rollback.
        from: Digest,
        /// Digest of the version that is used after the rollback.
        to: Digest,
        /// Reason for the rollback, as a message for users.
        because: String,
    },
    /// A user undid a rollback, so that the version in the plugin's file is used again (P10).
    RollbackUndone {
        /// Path of the plugin directory.
        directory: String,
        /// Name of the plugin.
        plugin: String,
        /// Digest of the earlier version, which was used until the rollback was undone.
        from: Digest,
        /// Digest of the version in the plugin's file.
        to: Digest,
    },
    /// The host refused to load or add a plugin, to use a set of plugins for an agent (P10), or to use the file of an
    /// agent that the user has not trusted.
    Refused {
        /// Path of the plugin directory, or of the directory that contains the agent's file.
        directory: String,
        /// The refused file, the address of the refused plugin, or the name of the agent that cannot use the plugins.
        subject: String,
        /// Reason for the refusal, as a message for users.
        reason: String,
    },
    /// A new text of an agent's file was saved over a protocol of the host (I3).
    FileSaved {
        /// Configured name of the agent.
        agent: String,
        /// Path of the agent's file.
        path: String,
        /// Name of the token with which the text was sent.
        token: String,
        /// Digest of the text before, as 64 hexadecimal digits of BLAKE3.
        from: String,
        /// Digest of the text after, as 64 hexadecimal digits of BLAKE3.
        to: String,
        /// What the new text allows and the text before did not.
        adds: Vec<String>,
        /// What the text before allowed and the new text does not.
        removes: Vec<String>,
    },
    /// Somebody answered over a protocol of the host whether a plugin gets the grants that it lacks (P6). An entry `granted` follows
    /// if the plugin got them.
    GrantsAnswered {
        /// Subject that identifies the session.
        session: String,
        /// Configured name of the agent.
        agent: String,
        /// Name of the plugin.
        plugin: String,
        /// Digest of the plugin's component.
        digest: String,
        /// Name of the token with which the answer was sent.
        token: String,
        /// The answer: `this_session`, `always`, `no` or `never`.
        answer: String,
        /// The configuration lines of the grants that the question offered.
        offered: Vec<String>,
    },
    /// The host refused requests that their sender was not allowed to make. Equal requests within a short time share one
    /// entry.
    RequestRefused {
        /// The protocol of the requests, such as `http`.
        protocol: String,
        /// Name of the token that the requests contained. `None` if they contained no valid token.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        token: Option<String>,
        /// What was requested, such as `POST /api/sessions`. Parts that the sender chooses freely are not included.
        request: String,
        /// The session or the agent that the first of the requests named, if the sender has a valid token.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        object: Option<String>,
        /// Code for the reason, such as `unauthorized`.
        code: String,
        /// Number of refused requests that the entry stands for.
        count: u64,
    },
}

impl AuditAction {
    /// Returns the kind of the action, as stored in the `type` field.
    pub fn kind(&self) -> &'static str {
        match self {
            AuditAction::Granted { .. } => "granted",
            AuditAction::HostGranted { .. } => "host_granted",
            AuditAction::Denied { .. } => "denied",
            AuditAction::Emitted { .. } => "emitted",
            AuditAction::Approval { .. } => "approval",
            AuditAction::BudgetExceeded { .. } => "budget_exceeded",
            AuditAction::Revoked { .. } => "revoked",
            AuditAction::Swapped { .. } => "swapped",
            AuditAction::RolledBack { .. } => "rolled_back",
            AuditAction::RollbackUndone { .. } => "rollback_undone",
            AuditAction::Refused { .. } => "refused",
            AuditAction::FileSaved { .. } => "file_saved",
            AuditAction::GrantsAnswered { .. } => "grants_answered",
            AuditAction::RequestRefused { .. } => "request_refused",
        }
    }

    /// Returns the subject of the action, such as `AGENT/PLUGIN`. The store uses the kind and the subject to find the
    /// previous entry about the same subject.
    pub(crate) fn subject(&self) -> String {
        match self {
            AuditAction::Granted { agent, plugin, .. } => format!("{agent}/{plugin}"),
            AuditAction::Denied { session, .. }
            | AuditAction::Emitted { session, .. }
            | AuditAction::Approval { session, .. }
            | AuditAction::BudgetExceeded { session, .. } => session.clone(),
            AuditAction::HostGranted { agent, .. } => agent.clone(),
            AuditAction::Revoked { grant, .. } => format!("{}/{}", grant.agent, grant.tool),
            AuditAction::Swapped { directory, plugin, .. }
            | AuditAction::RolledBack { directory, plugin, .. }
            | AuditAction::RollbackUndone { directory, plugin, .. } => format!("{directory}/{plugin}"),
            AuditAction::Refused { directory, subject, .. } => format!("{directory}/{subject}"),
            AuditAction::FileSaved { agent, .. } => agent.clone(),
            AuditAction::GrantsAnswered { agent, plugin, .. } => format!("{agent}/{plugin}"),
            AuditAction::RequestRefused { protocol, token, .. } => {
                format!("{protocol}/{}", token.as_deref().unwrap_or_default())
            }
        }
    }
}
