//! Converts between values and the columns in which they are stored.

use crate::{MAX_JSON_DEPTH, MAX_PAGE, MAX_REQUEST_BYTES, SessionState, StoreError, digest_of};
use agent_core::approval::LastingGrant;
use agent_core::change::CallState;
use agent_core::message::{Digest, Role};
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Stored data does not have the form that the store writes. Contains a description.
#[derive(Debug)]
pub(crate) struct Unreadable(pub(crate) String);

/// Returns the error for a value that cannot be stored.
pub(crate) fn invalid(what: impl Into<String>, problem: impl Into<String>) -> StoreError {
    StoreError::Invalid { what: what.into(), problem: problem.into() }
}

/// Refuses a list of more than [`MAX_PAGE`] entries.
pub(crate) fn check_list_length(what: &str, length: usize) -> Result<(), StoreError> {
    if length <= MAX_PAGE {
        return Ok(());
    }
    Err(invalid(what, format!("it has {length} entries, and the maximum is {MAX_PAGE}")))
}

/// Refuses the content of a request or an answer that is too large.
pub(crate) fn check_request_size(content: &str) -> Result<(), StoreError> {
    let (what, size, limit) = ("a request to a session", content.len() as u64, MAX_REQUEST_BYTES as u64);
    if size <= limit { Ok(()) } else { Err(StoreError::TooLarge { what: what.to_owned(), size, limit }) }
}

/// Joins the stored pieces of the view, and adds the view to the snapshot's JSON object.
pub(crate) fn with_view(snapshot: Option<Vec<u8>>, view: Option<String>) -> Option<Vec<u8>> {
    let Some(view) = view else { return snapshot };
    // A snapshot that is not a JSON object is returned unchanged. The code that reads the snapshot reports the problem.
    let mut snapshot = snapshot?;
    if !snapshot.ends_with(b"}") {
        return Some(snapshot);
    }
    snapshot.pop();
    let comma = if snapshot == b"{" { "" } else { "," };
    snapshot.extend_from_slice(format!("{comma}\"view\":[{view}]}}").as_bytes());
    Some(snapshot)
}

/// Parses a stored digest.
pub(crate) fn digest(text: &str) -> Result<Digest, Unreadable> {
    Digest::parse(text).map_err(|error| Unreadable(error.to_string()))
}

/// Returns the id of a lasting approval: the digest of the grant's JSON in hexadecimal digits. The keys of the JSON have a fixed order.
pub(crate) fn grant_id(grant: &LastingGrant) -> Result<String, StoreError> {
    let json = serde_json::to_vec(grant).map_err(|error| invalid("a lasting approval", error.to_string()))?;
    Ok(digest_of(&json).hex().to_owned())
}

/// Parses the text that [`Role::as_str`] returns.
pub(crate) fn role(name: &str) -> Result<Role, Unreadable> {
    [Role::System, Role::User, Role::Assistant, Role::Tool]
        .into_iter()
        .find(|role| role.as_str() == name)
        .ok_or_else(|| Unreadable(format!("`{name}` is not a role")))
}

/// Parses the text that [`CallState::as_str`] returns.
pub(crate) fn call_state(name: &str) -> Result<CallState, Unreadable> {
    let states = [
        CallState::Waiting,
        CallState::AwaitingApproval,
        CallState::Outstanding,
        CallState::Started,
        CallState::OutcomeUnknown,
        CallState::Finished,
    ];
    states
        .into_iter()
        .find(|state| state.as_str() == name)
        .ok_or_else(|| Unreadable(format!("`{name}` is not a call's state")))
}

/// Parses the text that [`SessionState::as_str`] returns.
pub(crate) fn session_state(text: &str) -> Result<SessionState, Unreadable> {
    SessionState::parse(text).ok_or_else(|| Unreadable(format!("`{text}` is not a session's state")))
}

/// Reads JSON that [`to_json`] wrote.
pub(crate) fn from_json<T: DeserializeOwned>(text: &str) -> Result<T, Unreadable> {
    serde_json::from_str(text).map_err(|error| Unreadable(format!("stored JSON cannot be read: {error}")))
}

/// Serialises a value as JSON. Fails if the JSON is nested more deeply than [`from_json`] can read.
pub(crate) fn to_json(what: &str, value: &impl Serialize) -> Result<String, StoreError> {
    let text = serde_json::to_string(value).map_err(|error| invalid(what, error.to_string()))?;
    match depth(text.as_bytes()) {
        ..=MAX_JSON_DEPTH => Ok(text),
        depth => {
            let problem = format!("its JSON is nested {depth} levels deep, and the maximum is {MAX_JSON_DEPTH}");
            Err(invalid(what, problem))
        }
    }
}

/// Returns how deeply the brackets of valid JSON are nested.
fn depth(json: &[u8]) -> usize {
    let (mut open, mut deepest) = (0_usize, 0_usize);
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'[' | b'{' => {
                open += 1;
                deepest = deepest.max(open);
            }
            b']' | b'}' => open = open.saturating_sub(1),
            b'"' => skip_string(&mut bytes),
            _ => {}
        }
    }
    deepest
}

/// Advances past the closing quotation mark of a string.
fn skip_string(bytes: &mut std::slice::Iter<'_, u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => {
                bytes.next();
            }
            b'"' => return,
            _ => {}
        }
    }
}

/// Converts a number to the signed type of integer columns. The host never stores a number that is too large for the
/// signed type.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Converts a number from an integer column to an unsigned number. The numbers in these columns are never negative.
pub(crate) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

/// Converts a caller's limit on the number of rows to an SQL number. A limit above [`MAX_PAGE`] is reduced to
/// [`MAX_PAGE`].
pub(crate) fn sql_limit(limit: usize) -> i64 {
    limit.min(MAX_PAGE) as i64
}

/// Returns the current time in microseconds since 1970 in UTC.
pub(crate) fn now() -> i64 {
    Timestamp::now().as_microsecond()
}

/// Formats a time in microseconds since 1970 as RFC 3339 in UTC.
pub(crate) fn rfc3339(microseconds: i64) -> Result<String, Unreadable> {
    Timestamp::from_microsecond(microseconds)
        .map(|time| time.to_string())
        .map_err(|error| Unreadable(format!("a stored time is invalid: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Limit 26: brackets in JSON strings do not count as nesting, and escaped quotation marks do not end a string.
    #[test]
    fn depth_counts_brackets_outside_strings() {
        let cases =
            [("1", 0), ("[]", 1), ("[[],{\"a\":[1]}]", 3), (r#"["[[[[", "\"[[", "\\", []]"#, 2), (r#"{"{{":"}}"}"#, 1)];
        for (json, expected) in cases {
            assert_eq!(depth(json.as_bytes()), expected, "{json}");
        }
    }
}
