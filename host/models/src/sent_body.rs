//! What the record of a reply contains about the body of the request (D1).

use crate::encode::{self, Format};
use crate::error::ModelError;
use crate::provider::MediaSource;
use agent_core::message::Digest;
use agent_core::model::ModelRequest;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// Name of the field of [`RawReply::raw`](crate::RawReply::raw) that contains a [`SentBody`].
const FIELD: &str = "request";

/// The digest of a request body, and how the body was encoded. A model over HTTP adds this data to each raw reply. With
/// the data, the body can be encoded again from the request, and compared with the body that was sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentBody {
    /// Digest of the body.
    pub digest: Digest,
    /// Size of the body in bytes.
    pub bytes: u64,
    format: Format,
}

impl SentBody {
    pub(crate) fn new(body: &[u8], format: Format) -> Self {
        Self { digest: digest_of(body), bytes: body.len() as u64, format }
    }

    pub(crate) fn add_to(&self, raw: &mut Value) {
        if let Some(raw) = raw.as_object_mut() {
            raw.insert(FIELD.to_owned(), serde_json::to_value(self).expect("the data serialises to JSON"));
        }
    }

    /// Reads the data from a raw reply. Returns `None` if the reply does not come from a model over HTTP, or was recorded
    /// by an earlier version of the host.
    pub fn of_raw_reply(raw: &Value) -> Option<Self> {
        Self::deserialize(raw.get(FIELD)?).ok()
    }

    /// Encodes the request in the same way as before. The caller can compare the result with [`SentBody::is_digest_of`].
    ///
    /// # Errors
    ///
    /// Returns an error if a media item cannot be read or the body is too large.
    pub async fn encode_again(&self, request: &ModelRequest, media: &dyn MediaSource) -> Result<Vec<u8>, ModelError> {
        Ok(encode::encode(request, self.format, media).await?.body)
    }

    /// Returns whether this is the body that was sent.
    pub fn is_digest_of(&self, body: &[u8]) -> bool {
        self.digest == digest_of(body)
    }
}

fn digest_of(body: &[u8]) -> Digest {
    Digest::from_sha256(Sha256::digest(body).into())
}
