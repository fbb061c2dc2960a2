//! Asks the user of a client with elicitation: approvals of calls (L17) and questions of agents (L18). Every answer that is
//! not clearly a permission is a denial.

use super::{Answer, Question, QuestionKind};
use agent_core::visible::{visible, visible_json};
use rmcp::model::{
    ClientCapabilities, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema,
    InputRequest,
};
use serde_json::{Map, Value, json};

/// Maximum length of the arguments that a user is shown, in characters. A user must not approve arguments that were cut.
const MAX_SHOWN_CHARACTERS: usize = 20_000;
/// Maximum length of a text that a user answers, in characters.
const MAX_ANSWER_CHARACTERS: usize = 20_000;

/// Returns whether the client can ask its user with a form.
pub(super) fn can_ask(capabilities: Option<&ClientCapabilities>) -> bool {
    let elicitation = capabilities.and_then(|capabilities| capabilities.elicitation.as_ref());
    // An empty capability means forms, as in the first version of elicitation.
    elicitation.is_some_and(|elicitation| elicitation.form.is_some() || elicitation.url.is_none())
}

/// Returns whether the user can be shown everything that the questions contain.
pub(super) fn can_be_shown(questions: &[Question]) -> bool {
    questions.iter().all(|question| match &question.kind {
        QuestionKind::Approval { arguments, .. } => shown_json(arguments).chars().count() <= MAX_SHOWN_CHARACTERS,
        QuestionKind::Text(text) => text.chars().count() <= MAX_SHOWN_CHARACTERS,
    })
}

/// Returns the form for a question.
pub(super) fn form(kind: &QuestionKind) -> Option<ElicitRequestParams> {
    let (message, schema) = match kind {
        QuestionKind::Approval { tool, arguments, because, traits } => {
            let warning = if traits.destructive { "\nThe tool may delete or overwrite something." } else { "" };
            let message = format!(
                "May the tool `{}` run?\nArguments: {}\nRequired by: {}{warning}",
                visible(tool),
                shown_json(arguments),
                visible(because)
            );
            let decision = json!({
                "type": "string",
                "title": "Decision",
                "oneOf": [
                    {"const": "allow_once", "title": "Allow this call"},
                    {"const": "allow_session", "title": "Allow this tool for this session"},
                    {"const": "deny", "title": "Deny this call"},
                ],
            });
            (message, json!({"type": "object", "properties": {"decision": decision}, "required": ["decision"]}))
        }
        QuestionKind::Text(question) => {
            let answer = json!({"type": "string", "title": "Answer"});
            let schema = json!({"type": "object", "properties": {"answer": answer}, "required": ["answer"]});
            (visible(question).into_owned(), schema)
        }
    };
    let schema: Map<String, Value> = schema.as_object().cloned()?;
    let requested_schema = ElicitationSchema::from_json_schema(schema).ok()?;
    Some(ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema })
}

/// Returns the form for a question as a part of a multi-round-trip request.
pub(super) fn input_request(kind: &QuestionKind) -> Option<InputRequest> {
    Some(InputRequest::Elicitation(ElicitRequest::new(form(kind)?)))
}

/// Reads the answer to a question.
pub(super) fn answer_of(kind: &QuestionKind, result: &ElicitResult) -> Answer {
    let field = |name: &str| result.content.as_ref()?.get(name)?.as_str().map(str::to_owned);
    match (&result.action, kind) {
        (ElicitationAction::Accept, QuestionKind::Approval { .. }) => match field("decision").as_deref() {
            Some("allow_once") => Answer::AllowOnce,
            Some("allow_session") => Answer::AllowForSession,
            Some("deny") => Answer::Deny("the user denied the call".to_owned()),
            _ => Answer::Deny("the client's answer contains no decision".to_owned()),
        },
        (ElicitationAction::Accept, QuestionKind::Text(_)) => {
            let text = field("answer").unwrap_or_default();
            Answer::Text(text.chars().take(MAX_ANSWER_CHARACTERS).collect())
        }
        (_, QuestionKind::Approval { .. }) => Answer::Deny("the user did not allow the call".to_owned()),
        (_, QuestionKind::Text(_)) => Answer::Text("(The user did not answer.)".to_owned()),
    }
}

/// Reads the answer in a multi-round-trip request. `None` in the request means that the client did not answer.
pub(super) fn answer_in(kind: &QuestionKind, response: &Value) -> Answer {
    match serde_json::from_value::<ElicitResult>(response.clone()) {
        Ok(result) => answer_of(kind, &result),
        Err(_) => match kind {
            QuestionKind::Approval { .. } => Answer::Deny("the client's answer is not valid".to_owned()),
            QuestionKind::Text(_) => Answer::Text("(The client's answer was not valid.)".to_owned()),
        },
    }
}

fn shown_json(json: &Value) -> String {
    let mut json = json.clone();
    visible_json(&mut json);
    json.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_core::tool::Traits;

    fn approval(arguments: Value) -> QuestionKind {
        QuestionKind::Approval {
            tool: "pay".to_owned(),
            arguments,
            because: "[approval.tools] pay".to_owned(),
            traits: Traits { destructive: true, ..Traits::default() },
        }
    }

    /// L17: the user is shown the exact arguments, with invisible characters made visible, and can decide in three ways.
    #[test]
    fn l17_the_form_shows_the_exact_arguments() {
        let form = form(&approval(json!({"to": "a\u{202e}b", "sum": 5}))).expect("a form");
        let written = serde_json::to_value(form).unwrap();
        let message = written["message"].as_str().unwrap();
        assert!(message.contains("\"sum\":5") && !message.contains('\u{202e}') && message.contains("overwrite"));
        let choices = written["requestedSchema"]["properties"]["decision"]["oneOf"].as_array().unwrap();
        assert_eq!(choices.len(), 3, "{written}");
        let long = Question { id: "1".to_owned(), kind: approval(json!("x".repeat(MAX_SHOWN_CHARACTERS))) };
        assert!(!can_be_shown(&[long]));
    }

    /// L17: only a clear permission allows a call.
    #[test]
    fn l17_unclear_answers_deny_the_call() {
        let read = |response: Value| answer_in(&approval(json!({})), &response);
        let accept = |decision: Value| read(json!({"action": "accept", "content": {"decision": decision}}));
        assert_eq!(accept(json!("allow_once")), Answer::AllowOnce);
        assert_eq!(accept(json!("allow_session")), Answer::AllowForSession);
        for answer in [
            accept(json!("deny")),
            accept(json!("always")),
            accept(json!(true)),
            read(json!({"action": "accept"})),
            read(json!({"action": "accept", "content": "allow_once"})),
            read(json!({"action": "decline", "content": {"decision": "allow_once"}})),
            read(json!({"action": "cancel"})),
            read(json!({"decision": "allow_once"})),
            read(json!("allow_once")),
            read(json!(null)),
        ] {
            assert!(matches!(answer, Answer::Deny(_)), "{answer:?}");
        }
    }
}
