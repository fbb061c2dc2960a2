//! Recorded conversations with a model (M4). The model `record:FILE:PROVIDER/MODEL` sends requests as usual and appends
//! each request and its response to a file, the cassette. The model `replay:FILE` answers the same requests from the
//! cassette, without a network. Two requests count as the same if their bodies are equal after the removal of those
//! parts of call ids that differ between sessions.
//!
//! A cassette has one JSON document per line. The first line describes the model. Each other line has the body of a
//! request and the body of its response, as the provider sent it. Headers are not recorded, so a cassette contains no
//! keys and no cookies. Configured secrets and ids of accounts are removed from the bodies. Failed requests are not
//! recorded in a cassette.

mod account_ids;
mod call_ids;
mod recorder;
mod replayed;

use crate::configuration::Price;
use crate::effort::Effort;
use crate::protocol::Protocol;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(crate) use recorder::Recorder;
pub(crate) use replayed::ReplayedModel;

/// Version of the format of cassettes.
pub(crate) const FORMAT: u32 = 1;

/// Maximum size of a cassette in bytes.
const MAX_BYTES: u64 = 256 * 1024 * 1024;

/// The first line of a cassette: everything that determines how a request to the model is encoded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Header {
    /// Version of the format.
    pub(crate) cassette: u32,
    /// Name of the provider in the configuration.
    pub(crate) provider: String,
    /// Address of the provider, without credentials.
    pub(crate) base_url: String,
    /// Name of the wire format.
    pub(crate) protocol: String,
    /// Name of the model, without the name of the provider.
    pub(crate) model: String,
    /// Context window in tokens.
    pub(crate) window: u32,
    /// Prices, if they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) price: Option<Price>,
    /// Configured effort.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) effort: Option<String>,
}

/// A line of a cassette after the first one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Exchange {
    /// Body of the request.
    request: Value,
    /// Body of the response.
    response: String,
}

impl Header {
    pub(crate) fn protocol(&self) -> Option<Protocol> {
        self.protocol.parse().ok()
    }

    pub(crate) fn effort(&self) -> Option<Effort> {
        self.effort.as_deref().and_then(|effort| effort.parse().ok())
    }
}
