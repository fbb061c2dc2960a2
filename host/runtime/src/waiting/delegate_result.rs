//! Converts the result of a delegate's turn to the result of the call that delegated the work (L16).

use crate::session::TurnResult;
use crate::tools::results::{bounded, error_result};
use agent_core::change::CallResult;
use agent_core::message::Content;
use agent_core::run::{Output, Retryability, TurnError};
use agent_core::tool::{CallCost, ToolError};
use serde_json::{Value, json};
use std::time::Duration;

/// Note for the model if the agent stopped at its limit of model calls.
const LIMIT_NOTE: &str = "[the agent stopped at its limit of model calls: this result may be incomplete]";

/// Returns the result of the call that delegated work to a session, or `None` if the session's turn has not ended.
pub(crate) fn delegate_result(session: &str, ended: &TurnResult, spent: Duration) -> Option<CallResult> {
    let cost = CallCost { wall_us: u64::try_from(spent.as_micros()).unwrap_or(u64::MAX), ..CallCost::default() };
    let result = match ended {
        TurnResult::Finished(output) => result_of_output(output),
        TurnResult::Failed(error) => failed_result(session, error.code(), &error_of(error)),
        TurnResult::Cancelled => {
            let error = ToolError::Failed { message: "the agent's turn was cancelled".to_owned() };
            failed_result(session, "cancelled", &error)
        }
        TurnResult::Suspended(_) | TurnResult::Interrupted | TurnResult::Idle => return None,
    };
    Some(CallResult { cost, ..result })
}

/// Builds the error result of a delegated call. The text for the model is always the same for the same failure, so that
/// the host can detect repeated failures (L28). The session id differs from call to call, so the text omits it. Only
/// the structured result, which is meant for programs, contains the session id.
fn failed_result(session: &str, code: &str, error: &ToolError) -> CallResult {
    CallResult { structured: Some(json!({"session": session, "error": code})), ..error_result(error) }
}

/// Builds the result of a delegated call from the output of the turn. The structured result, which is meant for
/// programs, contains the cost of the turn in addition to the output.
fn result_of_output(output: &Output) -> CallResult {
    let data = match &output.data {
        Value::String(text) => Content::Text(text.clone()),
        json => Content::Json(json.clone()),
    };
    let note = output.limit_reached.then(|| Content::Text(LIMIT_NOTE.to_owned()));
    let structured = json!({
        "data": output.data,
        "session": output.session,
        "finish": output.finish,
        "limit_reached": output.limit_reached,
        "interactions": output.interactions,
        "execution_units": output.execution_units,
        "usage": output.usage,
        "model": output.model,
    });
    let content = std::iter::once(data).chain(note).collect();
    CallResult { content: bounded(content), structured: Some(structured), ..CallResult::default() }
}

fn error_of(error: &TurnError) -> ToolError {
    let message = format!("{}: {}", error.code(), without_request(&error.to_string()));
    match error {
        // The call may be retried, because a model may be available again later.
        TurnError::ModelFailed { retryability: Retryability::Retryable, .. } => {
            ToolError::Unavailable { message, retry_after: None }
        }
        _ => ToolError::Failed { message },
    }
}

/// Removes the provider's request id from a model's error message, because the id differs each time the same
/// error occurs.
fn without_request(message: &str) -> String {
    let mut remaining = message;
    let mut shown = String::with_capacity(message.len());
    while let Some((before, after)) = remaining.split_once("request ") {
        let (id, tail) = after.split_at(after.find([')', ' ', ',']).unwrap_or(after.len()));
        let separator =
            [" (", ", "].into_iter().find(|prefix| before.ends_with(prefix)).filter(|_| tail.starts_with(')'));
        match separator {
            Some(prefix) if !id.is_empty() => {
                shown.push_str(&before[..before.len() - prefix.len()]);
                remaining = if prefix == " (" { &tail[1..] } else { tail };
            }
            _ => {
                shown.push_str(before);
                shown.push_str("request ");
                remaining = after;
            }
        }
    }
    shown + remaining
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_core::event::EndReason;
    use agent_core::model::Usage;
    use agent_core::view::result_text;

    fn output(data: Value) -> Output {
        Output {
            data,
            finish: EndReason::Answered,
            limit_reached: false,
            execution_units: 330,
            usage: Usage::new(300, 30),
            interactions: 3,
            model: "scripted/one".into(),
            session: "reader/1".into(),
            turn: 1,
            messages: None,
        }
    }

    #[test]
    fn l16_delegate_result_reports_output_and_cost() {
        let ended = |output| {
            delegate_result("reader/1", &TurnResult::Finished(output), Duration::from_millis(2)).expect("ended")
        };
        let text = ended(output(json!("It is read.")));
        assert_eq!(
            (result_text(&text.content).as_str(), text.is_error, text.cost.wall_us),
            ("It is read.", false, 2000)
        );
        let structured = text.structured.expect("for programs");
        assert_eq!(structured["execution_units"], 330);
        assert_eq!(structured["session"], "reader/1");
        assert_eq!(ended(output(json!({"pages": 3}))).content, [Content::Json(json!({"pages": 3}))]);
        let bound = ended(Output { limit_reached: true, ..output(json!("Half.")) });
        assert_eq!(bound.content.len(), 2, "the model is told that the result may be incomplete");
    }

    #[test]
    fn l16_delegate_result_has_typed_errors_and_is_none_while_suspended() {
        let error = TurnError::HostFailed { message: "no disk".into() };
        let failed = delegate_result("reader/1", &TurnResult::Failed(error), Duration::ZERO).expect("ended");
        let shown = result_text(&failed.content);
        assert!(failed.is_error && shown.contains("host_failed") && !shown.contains("reader/1"), "{shown}");
        assert_eq!(failed.structured, Some(json!({"session": "reader/1", "error": "host_failed"})));
        assert!(serde_json::from_str::<ToolError>(&shown).is_ok(), "{shown}");
        assert!(delegate_result("reader/1", &TurnResult::Cancelled, Duration::ZERO).expect("ended").is_error);
        assert_eq!(delegate_result("reader/1", &TurnResult::Suspended(Default::default()), Duration::ZERO), None);
    }

    /// L16, L28: if a delegated turn fails repeatedly for the same reason, the text is the same each time, and a
    /// permanent failure is not reported as retryable.
    #[test]
    fn l28_a_repeated_failure_has_the_same_text_each_time() {
        let error_for = |session: &str, request: &str, retryability| {
            let message =
                format!("openai/gpt answered with status 400 (code `x`, request {request}): no such request (ever)");
            let error = TurnError::ModelFailed { message: format!("{message} (request {request})"), retryability };
            let ended = delegate_result(session, &TurnResult::Failed(error), Duration::ZERO).expect("ended");
            serde_json::from_str::<Value>(&result_text(&ended.content)).expect("a typed error")
        };
        let permanent = error_for("reader/1", "req_1", Retryability::Permanent);
        assert_eq!(permanent, error_for("reader/2", "req_2", Retryability::Permanent));
        assert_eq!(permanent["error"], "failed");
        let message = permanent["message"].as_str().expect("a message");
        assert!(message.ends_with("status 400 (code `x`): no such request (ever)"), "{message}");
        assert_eq!(error_for("reader/1", "req_1", Retryability::Retryable)["error"], "unavailable");
        let cancelled =
            |session| delegate_result(session, &TurnResult::Cancelled, Duration::ZERO).expect("ended").content;
        assert_eq!(cancelled("reader/1"), cancelled("reader/2"));
    }
}
