//! Events that the host and services exchange, in the JSON format of CloudEvents 1.0 (I6).

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use std::fmt;

/// The only version of CloudEvents that the host reads and writes.
pub const SPEC_VERSION: &str = "1.0";

/// Maximum size of an event that the host accepts, in bytes of JSON text.
pub const MAX_EVENT_BYTES: usize = 1 << 20;
/// Attributes that CloudEvents 1.0 requires.
const REQUIRED: [&str; 4] = ["specversion", "id", "source", "type"];
/// Maximum number of characters of an attribute's value.
const MAX_ATTRIBUTE_LENGTH: usize = 1024;

/// Why an event cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    /// The event is too large to read.
    #[error("the event has {0} bytes, and the limit is {MAX_EVENT_BYTES}")]
    TooLarge(usize),
    /// The event is not a JSON object.
    #[error("the event is not a JSON object in the format of CloudEvents 1.0: {0}")]
    NotJson(String),
    /// Required attributes are missing.
    #[error("this is not a CloudEvent: it has no {0}, which CloudEvents 1.0 requires")]
    Missing(String),
    /// An attribute has an invalid value.
    #[error("the event's `{attribute}` {problem}")]
    Invalid {
        /// Name of the attribute.
        attribute: String,
        /// Description of the problem. The description completes the sentence "the event's `id` …".
        problem: &'static str,
    },
}

/// An event in the JSON format of CloudEvents 1.0. The event contains only the attributes that the host uses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CloudEvent {
    /// Version of CloudEvents, which is always `1.0`.
    pub specversion: String,
    /// Id of the event, unique per source. The id of a request is the id of its tool call, which is unique over all
    /// sessions.
    pub id: String,
    /// Sender of the event. The source of a request consists of `agent-host/` and the agent's name.
    pub source: String,
    /// Type of the event, in reverse-DNS or dotted form.
    #[serde(rename = "type")]
    pub event_type: String,
    /// The subject, a string that identifies the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Time of the event in RFC 3339. `None` means that the event has no time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// Content type of the data, which is `application/json` or another JSON type. `None` means that the event states
    /// no content type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datacontenttype: Option<String>,
    /// Extension attribute of a response: the id of the request that the response answers, which equals the id of the
    /// tool call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parentid: Option<String>,
    /// Extension attribute: the routing domain from the service's configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Extension attribute: a value that is the same in every repetition of a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deduplicationid: Option<String>,
    /// Extension attribute: the `traceparent` of W3C Trace Context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// Extension attribute: the `tracestate` of W3C Trace Context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracestate: Option<String>,
    /// The data of the event as JSON. `None` means that the event has no data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

impl CloudEvent {
    /// Parses one event in the JSON format. All attributes that CloudEvents 1.0 requires must be present. Attributes
    /// that the host does not use are dropped.
    pub fn parse(text: &[u8]) -> Result<Self, EventError> {
        if text.len() > MAX_EVENT_BYTES {
            return Err(EventError::TooLarge(text.len()));
        }
        let Attributes(fields) =
            serde_json::from_slice(text).map_err(|error| EventError::NotJson(error.to_string()))?;
        let missing = REQUIRED.into_iter().filter(|required| !fields.contains_key(*required));
        let missing: Vec<_> = missing.map(|required| format!("`{required}`")).collect();
        if !missing.is_empty() {
            return Err(EventError::Missing(missing.join(", ")));
        }
        for (attribute, value) in fields.iter().filter(|(attribute, _)| *attribute != "data") {
            check(attribute, value)?;
        }
        if fields["specversion"] != SPEC_VERSION {
            return Err(invalid("specversion", "is not `1.0`, the only supported version"));
        }
        serde_json::from_value(Value::Object(fields)).map_err(|error| EventError::NotJson(error.to_string()))
    }
}

/// The members of an event. A duplicate member is an error, because JSON parsers disagree about which of the member's
/// values is valid.
struct Attributes(Map<String, Value>);

impl<'de> Deserialize<'de> for Attributes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Attributes;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Attributes, A::Error> {
                let mut fields = Map::new();
                while let Some((name, value)) = members.next_entry::<String, Value>()? {
                    if fields.contains_key(&name) {
                        return Err(A::Error::custom(format!("the member `{name}` occurs twice")));
                    }
                    fields.insert(name, value);
                }
                Ok(Attributes(fields))
            }
        }
        deserializer.deserialize_map(Members)
    }
}

/// Checks the name and the value of an attribute. A name must consist of lower-case letters and digits. The value of an
/// attribute that the host uses must be a non-empty string.
fn check(attribute: &str, value: &Value) -> Result<(), EventError> {
    const USED: [&str; 12] = [
        "specversion",
        "id",
        "source",
        "type",
        "subject",
        "time",
        "datacontenttype",
        "parentid",
        "domain",
        "deduplicationid",
        "traceparent",
        "tracestate",
    ];
    if attribute == "data_base64" {
        return Err(invalid(attribute, "is not supported: the data must be JSON, in `data`"));
    }
    if !attribute.chars().all(|character| character.is_ascii_lowercase() || character.is_ascii_digit()) {
        return Err(invalid(
            attribute,
            "is not a valid attribute name: names consist of lower-case letters and digits",
        ));
    }
    if !USED.contains(&attribute) {
        return match value {
            Value::Array(_) | Value::Object(_) => Err(invalid(attribute, "is not a string, number or boolean")),
            _ => Ok(()),
        };
    }
    let Value::String(text) = value else { return Err(invalid(attribute, "is not a string")) };
    if text.is_empty() {
        return Err(invalid(attribute, "is empty"));
    }
    if text.chars().count() > MAX_ATTRIBUTE_LENGTH || text.contains(char::is_control) {
        return Err(invalid(attribute, "is longer than 1,024 characters or contains a control character"));
    }
    match attribute {
        "datacontenttype" if !is_json(text) => Err(invalid(attribute, "is not a JSON content type")),
        "time" if !is_time(text) => Err(invalid(attribute, "is not a time in the format of RFC 3339")),
        _ => Ok(()),
    }
}

fn invalid(attribute: &str, problem: &'static str) -> EventError {
    EventError::Invalid { attribute: attribute.to_owned(), problem }
}

fn is_json(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || essence.ends_with("+json")
}

/// Whether a string has the form of an RFC 3339 time, such as `2026-01-31T12:00:00.5Z`. The host only forwards times,
/// so it does not check that the date exists.
fn is_time(text: &str) -> bool {
    let form: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c.to_ascii_uppercase() }).collect();
    let Some(zone) = form.strip_prefix("0000-00-00T00:00:00") else { return false };
    let zone = zone.strip_prefix('.').map_or(zone, |fraction| fraction.trim_start_matches('0'));
    matches!(zone, "Z" | "+00:00" | "-00:00")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(event: Value) -> Result<CloudEvent, String> {
        CloudEvent::parse(event.to_string().as_bytes()).map_err(|error| error.to_string())
    }

    fn minimal_event() -> Value {
        json!({"specversion": "1.0", "id": "7", "source": "/bank", "type": "com.example.paid"})
    }

    #[test]
    fn i6_an_event_is_parsed_and_unknown_attributes_are_dropped() {
        let mut event = minimal_event();
        let optional = json!({"parentid": "call_1_1_1", "subject": "agent/1", "time": "2026-01-31T12:00:00.25+01:00",
            "datacontenttype": "application/json; charset=utf-8", "data": {"amount": 3}, "colour": "red", "count": 2});
        event.as_object_mut().unwrap().extend(optional.as_object().unwrap().clone());
        let read = parse(event).unwrap();
        assert_eq!((read.parentid.as_deref(), read.data), (Some("call_1_1_1"), Some(json!({"amount": 3}))));
        assert_eq!(read.event_type, "com.example.paid");
        assert!(parse(minimal_event()).is_ok());
        let written = serde_json::to_value(parse(minimal_event()).unwrap()).unwrap();
        assert_eq!(written, minimal_event(), "missing attributes are not written");
    }

    #[test]
    fn i6_an_invalid_event_is_refused_with_the_reason() {
        for required in ["specversion", "id", "source", "type"] {
            let mut event = minimal_event();
            event.as_object_mut().unwrap().remove(required);
            assert!(parse(event).unwrap_err().contains(&format!("no `{required}`")));
        }
        let answer = parse(json!({"call": "call_1_1_1", "isError": false, "parts": []})).unwrap_err();
        assert!(
            answer.starts_with("this is not a CloudEvent: it has no `specversion`, `id`, `source`, `type`"),
            "{answer}"
        );
        for (attribute, value, problem) in [
            ("specversion", json!("0.3"), "not `1.0`"),
            ("id", json!(""), "is empty"),
            ("id", json!(7), "not a string"),
            ("source", json!("a\nb"), "control character"),
            ("parentid", Value::Null, "not a string"),
            ("time", json!("yesterday"), "RFC 3339"),
            ("time", json!("2026-01-31T12:00:00"), "RFC 3339"),
            ("datacontenttype", json!("text/xml"), "not a JSON content type"),
            ("data_base64", json!("AAAA"), "in `data`"),
            ("parentId", json!("call_1_1_1"), "lower-case"),
            ("colour", json!(["red"]), "not a string, number"),
        ] {
            let mut event = minimal_event();
            event[attribute] = value;
            let error = parse(event).unwrap_err();
            assert!(error.contains(attribute) && error.contains(problem), "{attribute}: {error}");
        }
        for text in ["", "[]", "1", "{", "{\"specversion\":\"1.0\"} x"] {
            assert!(matches!(CloudEvent::parse(text.as_bytes()), Err(EventError::NotJson(_))), "{text}");
        }
        let twice = br#"{"specversion":"1.0","id":"7","source":"/b","type":"t","parentid":"a","parentid":"b"}"#;
        assert!(CloudEvent::parse(twice).unwrap_err().to_string().contains("the member `parentid` occurs twice"));
        let large = vec![b' '; MAX_EVENT_BYTES + 1];
        assert_eq!(CloudEvent::parse(&large), Err(EventError::TooLarge(MAX_EVENT_BYTES + 1)));
    }
}
