//! The format of an exported session: one JSON object whose lists have one item per line. A host can read documents of
//! all earlier format versions. A new member may be added without a new format version, but if the meaning of a member
//! changes, the format version must change too.

mod bounds;
mod reader;

pub use reader::SessionDocument;
pub(super) use reader::{Batch, Head, Items, List};

use agent_core::event::Event;
use agent_core::message::{Digest, Media};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// Value of the document's `format` member.
pub(super) const FORMAT: &str = "agent-host.session";

/// Format version of the documents that this host writes. This host cannot read documents of newer format versions.
pub(super) const VERSION: u32 = 1;

/// The information about a session that is shown in lists of sessions. The times are only for information: the import
/// does not use them, because an imported session has its own times.
#[derive(Serialize, Deserialize)]
pub(super) struct DocumentSession {
    pub(super) subject: String,
    pub(super) agent: String,
    #[serde(default)]
    pub(super) user: Option<String>,
    #[serde(default)]
    pub(super) delegated_by: Option<String>,
    #[serde(default)]
    pub(super) title: Option<String>,
    pub(super) created: String,
    pub(super) updated: String,
}

/// A durable event with its commit time.
#[derive(Serialize, Deserialize)]
pub(super) struct DocumentEvent {
    pub(super) time: String,
    pub(super) event: Event,
}

/// A step record with its commit time. A body may be nested as deeply as the store allows. For this reason, the body is
/// read as raw JSON and parsed separately, so that the levels of the document do not count towards the maximum depth.
#[derive(Serialize, Deserialize)]
pub(super) struct DocumentRecord {
    pub(super) time: String,
    pub(super) turn: u32,
    pub(super) step: u32,
    pub(super) kind: String,
    pub(super) body: Box<RawValue>,
}

/// A text that step records refer to.
#[derive(Serialize, Deserialize)]
pub(super) struct DocumentText {
    pub(super) digest: Digest,
    pub(super) text: String,
}

/// A media item with its bytes.
#[derive(Deserialize)]
pub(super) struct DocumentMedia<'a> {
    pub(super) media: Media,
    #[serde(borrow)]
    pub(super) base64: Cow<'a, str>,
}
