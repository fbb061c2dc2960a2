//! Requests and answers as JSON, as they are stored for the process that has the session open (F2).

use super::{Accepted, RequestError, RequestProblem, SessionRequest};

/// Converts a request to JSON.
pub(crate) fn request_to_json(request: &SessionRequest) -> Result<String, RequestError> {
    serde_json::to_string(request).map_err(|error| RequestError::new(RequestProblem::Invalid, error))
}

/// Parses a stored request. Fails if a process of another version has stored a request that this version does not know.
pub(crate) fn request_from_json(json: &str) -> Result<SessionRequest, RequestError> {
    serde_json::from_str(json).map_err(|error| {
        let message = format!("the process that has the session open does not know this request: {error}");
        RequestError::new(RequestProblem::Failed, message)
    })
}

/// Converts an answer to JSON.
pub(crate) fn answer_to_json(answer: &Result<Accepted, RequestError>) -> String {
    serde_json::to_string(answer).unwrap_or_else(|error| {
        let failed = RequestError::new(RequestProblem::Failed, format!("the answer cannot be stored: {error}"));
        serde_json::json!({"Err": failed}).to_string()
    })
}

/// Parses a stored answer.
pub(crate) fn answer_from_json(json: &str) -> Result<Accepted, RequestError> {
    serde_json::from_str(json).unwrap_or_else(|error| {
        let message = format!("the request was handled, but its answer cannot be read: {error}");
        Err(RequestError::new(RequestProblem::Failed, message))
    })
}

/// Media items as JSON. Their bytes are written in base64.
pub(super) mod media_items {
    use agent_plugins::NewMediaItem;
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    #[derive(Serialize, Deserialize)]
    struct StoredItem {
        base64: String,
        mime_type: String,
        name: Option<String>,
    }

    pub(in super::super) fn serialize<S: Serializer>(items: &[NewMediaItem], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(items.iter().map(|item| StoredItem {
            base64: STANDARD.encode(&item.bytes),
            mime_type: item.mime_type.clone(),
            name: item.name.clone(),
        }))
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<NewMediaItem>, D::Error> {
        let items = Vec::<StoredItem>::deserialize(deserializer)?;
        let read = |StoredItem { base64, mime_type, name }: StoredItem| {
            let bytes = STANDARD.decode(base64).map_err(de::Error::custom)?;
            Ok(NewMediaItem { bytes, mime_type, name })
        };
        items.into_iter().map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::UserName;
    use crate::requests::{ApprovalDecision, ClientResult, DuringTurn, Prompt, ProposedChange, Verdict};
    use agent_core::approval::GrantScope;
    use agent_core::message::{CallId, TurnInput};
    use agent_core::run::Decision;
    use agent_plugins::NewMediaItem;
    use serde_json::json;

    /// F2: every request and every answer reaches the other process unchanged.
    #[test]
    fn f2_requests_and_answers_are_read_back_unchanged() {
        let call = || CallId("c\0 1".to_owned());
        let image = NewMediaItem { bytes: vec![0, 1, 255], mime_type: "image/png".to_owned(), name: None };
        let prompt = Prompt {
            attachments: vec![image],
            during_turn: DuringTurn::Steer,
            user: UserName::new("ann").ok(),
            after_turn: Some(3),
            ..Prompt::new(TurnInput::Text("go".to_owned()))
        };
        let allow = Verdict::Allow { scope: GrantScope::Session, edited: Some(json!({"a": 1})) };
        let decision = |verdict| ApprovalDecision { call: call(), verdict };
        let requests = [
            SessionRequest::Prompt(prompt.clone()),
            SessionRequest::FirstPrompt(prompt),
            SessionRequest::TakeResults(vec![ClientResult { call: call(), text: "t".to_owned(), is_error: true }]),
            SessionRequest::Approve(vec![decision(allow), decision(Verdict::Deny { reason: Some("no".to_owned()) })]),
            SessionRequest::Rehearse { call: call() },
            SessionRequest::Answer { call: call(), text: "blue".to_owned() },
            SessionRequest::Resolve { call: call(), decision: Decision::Result("7".to_owned()) },
            SessionRequest::Cancel,
            SessionRequest::Close,
            SessionRequest::Undo,
            SessionRequest::Continue,
        ];
        for request in requests {
            let json = request_to_json(&request).expect("JSON");
            assert_eq!(request_from_json(&json), Ok(request), "{json}");
        }
        let changes = vec![ProposedChange { path: "/a".into(), old: None, new: Some("x".to_owned()) }];
        let answers = [
            Ok(Accepted::Started { turn: 2 }),
            Ok(Accepted::Stored { violations: Vec::new(), waits: Vec::new() }),
            Ok(Accepted::Rehearsed { changes }),
            Ok(Accepted::Duplicate),
            Err(RequestError::new(RequestProblem::Conflict, "no")),
        ];
        for answer in answers {
            let json = answer_to_json(&answer);
            assert_eq!(answer_from_json(&json), answer, "{json}");
        }
    }

    /// F2: a request of another version is answered with an error, and a name that is not valid is refused.
    #[test]
    fn f2_unknown_requests_are_refused() {
        let user = json!({"prompt": {"input": {"text": "x"}, "attachments": [], "during_turn": "queue", "user": "a\nb",
                          "trace": null, "after_turn": null, "client_tools": []}});
        for json in ["{\"later\":{}}".to_owned(), "nonsense".to_owned(), user.to_string()] {
            let refused = request_from_json(&json).expect_err(&json);
            assert_eq!(refused.kind, RequestProblem::Failed);
        }
        assert_eq!(answer_from_json("{}").expect_err("no answer").kind, RequestProblem::Failed);
    }
}
