//! Removes secrets from all data that is stored, published or exported (row 41). The code that sends a secret to a
//! server already removes the secret from the server's replies. This module is the last check: it removes secrets that
//! reached the host in any way other than in a server's reply.

use super::SessionError;
use crate::records::CommitNotes;
use agent_core::redaction::{Edges, Redaction};
use agent_core::run::Input;
use agent_store::{StepRecord, StoreError, digest_of};
use serde::Serialize;
use serde_json::Value;

/// Removes secrets from an input and from the notes that are committed with it.
pub(super) fn without_secrets(
    redaction: &Redaction,
    input: Input,
    notes: CommitNotes,
) -> Result<(Input, CommitNotes), Box<SessionError>> {
    if redaction.is_empty() {
        return Ok((input, notes));
    }
    let input = redact_value(redaction, input).map_err(|problem| {
        let what = "the session's next input, from which secrets were removed,".to_owned();
        Box::new(SessionError::Store(StoreError::Invalid { what, problem: problem.to_string() }))
    })?;
    Ok((input, redact_notes(redaction, notes)))
}

/// Removes secrets from a value. Most values contain no secrets, so the serialised bytes are searched first.
fn redact_value<T: Serialize + serde::de::DeserializeOwned>(redaction: &Redaction, value: T) -> serde_json::Result<T> {
    let written = serde_json::to_vec(&value)?;
    if redaction.bytes(&written, Edges::Whole).is_none() {
        return Ok(value);
    }
    tracing::warn!("data that the host received contained a secret; the secret was removed before the data was stored");
    serde_json::from_value(redaction.whole_value(serde_json::to_value(value)?))
}

/// Removes secrets from the texts and records in the notes. Records refer to texts by digest, so the digests of changed
/// texts are replaced in the records.
fn redact_notes(redaction: &Redaction, mut notes: CommitNotes) -> CommitNotes {
    let mut replaced_digests = Vec::new();
    for text in &mut notes.texts {
        let old = digest_of(text.as_bytes()).to_string();
        *text = redaction.whole(std::mem::take(text));
        let new = digest_of(text.as_bytes()).to_string();
        if old != new {
            replaced_digests.push((old, new));
        }
    }
    for StepRecord { body, .. } in &mut notes.records {
        let mut redacted = redaction.whole_value(body.take());
        replaced_digests.iter().for_each(|replacement| replace_digest(&mut redacted, replacement));
        *body = redacted;
    }
    notes
}

/// Replaces the first digest of `replacement` by the second digest everywhere in a JSON value.
fn replace_digest(value: &mut Value, replacement: &(String, String)) {
    match value {
        Value::String(text) if *text == replacement.0 => text.clone_from(&replacement.1),
        Value::Array(items) => items.iter_mut().for_each(|item| replace_digest(item, replacement)),
        Value::Object(fields) => fields.values_mut().for_each(|value| replace_digest(value, replacement)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_core::change::CallResult;
    use agent_core::message::{CallId, Content};
    use serde_json::json;

    /// Row 41: call results, step records and the texts that the records refer to contain no secret, and the records
    /// contain the digests of the texts that are stored.
    #[test]
    fn row_41_stored_data_contains_no_secret() {
        let redaction = Redaction::new(["tk-canary-5d1c77e0"]);
        let text = "a prompt with tk-canary-5d1c77e0".to_owned();
        let digest = digest_of(text.as_bytes()).to_string();
        let content =
            vec![Content::Text("it is tk-canary-5d1c77e0".into()), Content::Json(json!({"tk-canary-5d1c77e0": 1}))];
        let result = CallResult { content, ..CallResult::default() };
        let input = Input::Outcome { call: CallId("call_1_1_1".into()), result };
        let body = json!({"system": [digest], "raw": "dGstY2FuYXJ5LTVkMWM3N2Uw"});
        let record = StepRecord { turn: 1, step: 1, kind: "prompt".into(), body };
        let notes = CommitNotes { records: vec![record], texts: vec![text], ..CommitNotes::default() };
        let (input, notes) = without_secrets(&redaction, input, notes).unwrap_or_else(|error| panic!("{error}"));
        let shown = format!("{input:?} {:?} {:?}", notes.texts, notes.records);
        assert!(!shown.contains("canary") && !shown.contains("dGst") && shown.contains("it is (secret)"), "{shown}");
        let digest = digest_of(notes.texts[0].as_bytes()).to_string();
        assert_eq!(notes.records[0].body["system"], json!([digest]));
    }
}
