//! Types for recorded bytes, and a type that says whether a recorded value is complete.

use base64::prelude::{BASE64_STANDARD, Engine};
use serde::{Deserialize, Serialize};

/// Whether a recorded value is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Extent {
    /// The value is complete.
    Whole,
    /// The value is incomplete, because the rest did not arrive, was not read by the guest, or did not fit into
    /// the record.
    Partly,
}

/// Bytes that are serialised as text if they are valid UTF-8, and as Base64 otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "EncodedBytes", into = "EncodedBytes")]
pub struct RecordedBytes(pub Vec<u8>);

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum EncodedBytes {
    Text(String),
    Base64(String),
}

impl From<RecordedBytes> for EncodedBytes {
    fn from(bytes: RecordedBytes) -> Self {
        match String::from_utf8(bytes.0) {
            Ok(text) => EncodedBytes::Text(text),
            Err(error) => EncodedBytes::Base64(BASE64_STANDARD.encode(error.as_bytes())),
        }
    }
}

impl From<EncodedBytes> for RecordedBytes {
    fn from(encoded: EncodedBytes) -> Self {
        match encoded {
            EncodedBytes::Text(text) => Self(text.into_bytes()),
            // The host writes only valid Base64. If a record contains invalid Base64, it is read as empty bytes.
            EncodedBytes::Base64(text) => Self(BASE64_STANDARD.decode(text).unwrap_or_default()),
        }
    }
}
