//! The document that holds a session: one JSON object, its lists with an item a line. What is written once stays
//! readable: new members are added, and a changed meaning is a new version.

mod bounds;
mod reader;

pub use reader::SessionDocument;
pub(super) use reader::{Batch, Head, Items, List};

use agent_core::event::Event;
use agent_core::message::{Digest, Media};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// Says what the document is.
pub(super) const FORMAT: &str = "agent-host.session";

/// The version that is written, and the newest that is read.
pub(super) const VERSION: u32 = 1;

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
pub(super) struct DocumentMedium<'a> {
    pub(super) media: Media,
    #[serde(borrow)]
    pub(super) base64: Cow<'a, str>,
}
