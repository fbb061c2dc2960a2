//! The audit log (O3): what plugins were granted and denied, what people allowed, and which versions of plugins served.
//! Entries are only ever added; they outlive the sessions that they tell of.

use crate::StoreError;
use agent_core::approval::ApprovalWord;
use agent_core::change::Denial;
use agent_core::message::{CallId, Digest};
use agent_core::tool::ToolSource;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

/// The audit log. Denials and approvals of a session enter it with the commit that holds their events, by themselves.
#[async_trait]
pub trait Audit: Send + Sync {
    /// Adds entries, all or none. [`Deed::Granted`] that says what the last one of its agent and plugin says adds nothing.
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
    /// A plugin wanted what it is not granted (P6).
    Denied {
        /// Subject of the session.
        session: String,
        /// The call that wanted it.
        call: CallId,
        /// Where its tool comes from, with the whole digest.
        source: Option<ToolSource>,
        /// Who, what, and what to add to the configuration.
        #[serde(flatten)]
        denial: Denial,
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
            Deed::Denied { .. } => "denied",
            Deed::Approval { .. } => "approval",
            Deed::Swapped { .. } => "swapped",
            Deed::RolledBack { .. } => "rolled_back",
            Deed::Refused { .. } => "refused",
        }
    }

    /// What it is about, so that earlier entries about the same are found.
    pub(crate) fn subject(&self) -> String {
        match self {
            Deed::Granted { agent, plugin, .. } => format!("{agent}/{plugin}"),
            Deed::Denied { session, .. } | Deed::Approval { session, .. } => session.clone(),
            Deed::Swapped { directory, plugin, .. } | Deed::RolledBack { directory, plugin, .. } => {
                format!("{directory}/{plugin}")
            }
            Deed::Refused { directory, subject, .. } => format!("{directory}/{subject}"),
        }
    }
}
