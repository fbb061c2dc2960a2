//! The hash chain of the audit log (O3). The hash of an entry covers the entry and the hash of the entry before it, so a
//! change to any entry changes all later hashes.
//!
//! The hash of an entry is the SHA-256 digest of the canonical JSON (RFC 8785) of an object with the members `number`,
//! `time`, `kind`, `subject`, `body` and `previous`, where `previous` is the hash of the entry before it. An exported line
//! is this object with the additional member `hash`.
//!
//! A chain alone does not prevent that somebody with write access to the database writes a new chain. For this, compare
//! the log with a hash that is kept elsewhere.

use agent_core::approval::canonical_json;
use agent_core::message::Digest;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// An entry of the audit log as it is stored. It may be damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredAuditEntry {
    /// Number of the entry.
    pub number: u64,
    /// Time of the entry in UTC, as RFC 3339 with exactly six digits after the decimal point.
    pub time: String,
    /// Kind of the action.
    pub kind: String,
    /// Subject of the action.
    pub subject: String,
    /// The action as canonical JSON.
    pub body: String,
    /// Hash of the entry, in the form `sha256:…`.
    pub hash: String,
}

/// A line of an exported audit log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportedAuditEntry {
    /// Number of the entry.
    pub number: u64,
    /// Time of the entry in UTC, as RFC 3339 with exactly six digits after the decimal point.
    pub time: String,
    /// Kind of the action.
    pub kind: String,
    /// Subject of the action.
    pub subject: String,
    /// The action. A damaged action is exported as text.
    pub body: Value,
    /// Hash of the entry before this entry.
    pub previous: String,
    /// Hash of the entry.
    pub hash: String,
}

/// An entry up to which the audit log was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainHead {
    /// Number of the entry. 0 is the place before the first entry.
    pub number: u64,
    /// Hash of the entry.
    pub hash: String,
}

/// The first problem in a chain of entries.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainProblem {
    /// Entries are missing.
    #[error("{} missing: the entry before is {}, and the next entry is {next}", missing(.after, .next), .after)]
    Missing {
        /// Number of the last entry before the gap.
        after: u64,
        /// Number of the first entry after the gap.
        next: u64,
    },
    /// An entry does not come after the entry before it.
    #[error("entry {number} comes after entry {after}, so the order of the entries was changed")]
    Order {
        /// Number of the entry.
        number: u64,
        /// Number of the entry before it.
        after: u64,
    },
    /// The body is not canonical JSON.
    #[error("entry {number} was changed: its body is not the canonical JSON that the host writes")]
    Body {
        /// Number of the entry.
        number: u64,
    },
    /// The kind or the subject does not match the body.
    #[error("entry {number} was changed: its {field} is `{stored}`, but its body has `{expected}`")]
    Field {
        /// Number of the entry.
        number: u64,
        /// Name of the field.
        field: &'static str,
        /// The stored value.
        stored: String,
        /// The value according to the body.
        expected: String,
    },
    /// An exported line names another previous hash than the line before it has.
    #[error(
        "the entry before entry {number} was changed or replaced: its hash is {found}, but entry {number} was added after \
         an entry with the hash {stored}"
    )]
    Previous {
        /// Number of the entry.
        number: u64,
        /// The hash that the entry names.
        stored: String,
        /// The hash of the entry before it.
        found: String,
    },
    /// The content of an entry does not have the stored hash.
    #[error(
        "entry {number} or its hash was changed, or an earlier entry was replaced: the stored hash is {stored}, but the \
         content has the hash {computed}"
    )]
    Hash {
        /// Number of the entry.
        number: u64,
        /// The stored hash.
        stored: String,
        /// The hash of the content and of the entry before it.
        computed: String,
    },
}

/// Checks the entries of an audit log one after another.
#[derive(Clone, Debug)]
pub struct AuditChain {
    head: ChainHead,
}

impl Default for AuditChain {
    /// Begins before the first entry.
    fn default() -> Self {
        Self { head: ChainHead { number: 0, hash: no_entry().to_string() } }
    }
}

/// The hash before the first entry.
pub(crate) fn no_entry() -> Digest {
    Digest::from_sha256([0; 32])
}

/// Computes the hash of an entry. The hash in `entry` is ignored.
pub(crate) fn hash_of(entry: &StoredAuditEntry, previous: &str) -> String {
    hash(entry, &body_value(&entry.body), previous)
}

fn hash(entry: &StoredAuditEntry, body: &Value, previous: &str) -> String {
    let StoredAuditEntry { number, time, kind, subject, .. } = entry;
    let content = json!({
        "number": number, "time": time, "kind": kind, "subject": subject, "body": body, "previous": previous,
    });
    Digest::from_sha256(Sha256::digest(canonical_json(&content)).into()).to_string()
}

/// Returns the value of a stored body. The value of a body that is not JSON is its text.
fn body_value(body: &str) -> Value {
    serde_json::from_str(body).unwrap_or_else(|_| Value::String(body.to_owned()))
}

impl AuditChain {
    /// Begins after this entry.
    pub fn after(head: ChainHead) -> Self {
        Self { head }
    }

    /// Returns the last entry that was accepted.
    pub fn head(&self) -> &ChainHead {
        &self.head
    }

    /// Checks the next entry. If it is not accepted, the head does not change.
    pub fn check(&mut self, entry: &StoredAuditEntry) -> Result<(), ChainProblem> {
        let (number, after) = (entry.number, self.head.number);
        if number <= after {
            return Err(ChainProblem::Order { number, after });
        }
        if number != after + 1 {
            return Err(ChainProblem::Missing { after, next: number });
        }
        let body = body_value(&entry.body);
        if canonical_json(&body) != entry.body || !body.is_object() {
            return Err(ChainProblem::Body { number });
        }
        check_fields(entry, &body)?;
        let computed = hash(entry, &body, &self.head.hash);
        if computed != entry.hash {
            return Err(ChainProblem::Hash { number, stored: entry.hash.clone(), computed });
        }
        self.head = ChainHead { number, hash: computed };
        Ok(())
    }

    /// Returns the line that is exported for the next entry, which need not be intact. The entry becomes the head.
    pub fn export(&mut self, entry: StoredAuditEntry) -> ExportedAuditEntry {
        let StoredAuditEntry { number, time, kind, subject, body, hash } = entry;
        let head = ChainHead { number, hash: hash.clone() };
        let previous = std::mem::replace(&mut self.head, head).hash;
        ExportedAuditEntry { number, time, kind, subject, body: body_value(&body), previous, hash }
    }

    /// Checks the next line of an exported log. If it is not accepted, the head does not change.
    pub fn check_exported(&mut self, line: ExportedAuditEntry) -> Result<(), ChainProblem> {
        let ExportedAuditEntry { number, time, kind, subject, body, previous, hash } = line;
        if number == self.head.number + 1 && previous != self.head.hash {
            return Err(ChainProblem::Previous { number, stored: previous, found: self.head.hash.clone() });
        }
        let body = canonical_json(&body);
        self.check(&StoredAuditEntry { number, time, kind, subject, body, hash })
    }
}

/// Checks that the columns for the kind and the subject agree with the body. Entries of kinds that this host does not
/// know are checked by their hash only.
fn check_fields(entry: &StoredAuditEntry, body: &Value) -> Result<(), ChainProblem> {
    let differs = |field, stored: &str, expected: &str| {
        let (stored, expected) = (stored.to_owned(), expected.to_owned());
        Err(ChainProblem::Field { number: entry.number, field, stored, expected })
    };
    let kind = body["type"].as_str().unwrap_or_default();
    if kind != entry.kind {
        return differs("kind", &entry.kind, kind);
    }
    if let Ok(action) = serde_json::from_value::<super::AuditAction>(body.clone()) {
        let subject = action.subject();
        if subject != entry.subject {
            return differs("subject", &entry.subject, &subject);
        }
    }
    Ok(())
}

fn missing(after: &u64, next: &u64) -> String {
    match next - after {
        2 => format!("entry {} is", after + 1),
        _ => format!("the entries {} to {} are", after + 1, next - 1),
    }
}
