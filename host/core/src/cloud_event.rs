//! Events between the host and services, in the shape of CloudEvents 1.0 (I6).

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The only version that is written and read.
pub const SPEC_VERSION: &str = "1.0";

/// An event in the JSON format of CloudEvents 1.0, with the attributes that the host uses. Others are dropped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CloudEvent {
    /// `1.0`.
    pub specversion: String,
    /// Unique per source. Of a request: the call's id, within its session.
    pub id: String,
    /// Who sends it. Of a request: `agent-host/` and the agent's name.
    pub source: String,
    /// What it is: reverse-DNS or dotted.
    #[serde(rename = "type")]
    pub event_type: String,
    /// The session's subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// `application/json` where there is data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datacontenttype: Option<String>,
    /// Extension: of a response, the id of the request (the tool-call id).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parentid: Option<String>,
    /// Extension: routing, from the service's configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Extension: the same for every repetition of a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deduplicationid: Option<String>,
    /// Extension: W3C Trace Context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// Extension: W3C Trace Context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracestate: Option<String>,
    /// The payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}
