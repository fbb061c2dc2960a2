//! The document that holds a session: one JSON object, its lists with an item a line. What is written once stays
//! readable: new members are added, and a changed meaning is a new version.

use agent_core::event::Event;
use agent_core::message::{Digest, Media};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Says what the document is.
pub(super) const FORMAT: &str = "agent-host.session";

/// The version that is written, and the newest that is read.
pub(super) const VERSION: u32 = 1;

/// What every version begins with.
#[derive(Deserialize)]
pub(super) struct Kind {
    pub(super) format: String,
    pub(super) version: u32,
}

/// The whole document. Items are read one by one, so that a damaged one is named, and so that none is nested deeper than
/// it was when it was stored.
#[derive(Deserialize)]
pub(super) struct Document<'a> {
    #[serde(borrow)]
    pub(super) session: &'a RawValue,
    #[serde(borrow)]
    pub(super) snapshot: &'a RawValue,
    #[serde(borrow)]
    pub(super) messages: Vec<&'a RawValue>,
    #[serde(borrow)]
    pub(super) hidden: Vec<&'a RawValue>,
    #[serde(borrow)]
    pub(super) calls: Vec<&'a RawValue>,
    #[serde(borrow)]
    pub(super) events: Vec<&'a RawValue>,
    #[serde(borrow)]
    pub(super) records: Vec<&'a RawValue>,
    #[serde(borrow)]
    pub(super) texts: Vec<&'a RawValue>,
    #[serde(borrow)]
    pub(super) media: Vec<&'a RawValue>,
}

/// What lists show of the session. Its times are for people: an imported session is as old as its import.
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

/// A durable event with the time of its commit.
#[derive(Serialize, Deserialize)]
pub(super) struct DocumentEvent {
    pub(super) time: String,
    pub(super) event: Event,
}

/// A step record with the time of its commit. Its body may be as deep as the store takes it, so it is read apart.
#[derive(Serialize, Deserialize)]
pub(super) struct DocumentRecord {
    pub(super) time: String,
    pub(super) turn: u32,
    pub(super) step: u32,
    pub(super) kind: String,
    pub(super) body: Box<RawValue>,
}

/// A text that records refer to.
#[derive(Serialize, Deserialize)]
pub(super) struct DocumentText {
    pub(super) digest: Digest,
    pub(super) text: String,
}

/// A medium with its bytes.
#[derive(Deserialize)]
pub(super) struct DocumentMedium {
    pub(super) media: Media,
    pub(super) base64: String,
}
