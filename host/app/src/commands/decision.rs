//! Parses the user's decision about a tool call whose outcome is unknown.

use crate::arguments::Verdict;
use crate::exit::Failure;
use agent_core::run::Decision;

/// Converts a verdict and its text to a decision. `result` requires a text, `failed` has a default text, and `retry`
/// allows no text.
pub(crate) fn decision(verdict: Verdict, text: Option<String>) -> Result<Decision, Failure> {
    match (verdict, text) {
        (Verdict::Retry, None) => Ok(Decision::Retry),
        (Verdict::Retry, Some(_)) => {
            Err(Failure::refused("`retry` allows no text, because the call runs again: omit the text"))
        }
        (Verdict::Failed, text) => {
            Ok(Decision::Failed(text.unwrap_or_else(|| "the call was interrupted and has failed".to_owned())))
        }
        (Verdict::Result, Some(text)) => Ok(Decision::Result(text)),
        (Verdict::Result, None) => Err(Failure::refused(
            "`result` needs the text of the result: agent-host session resolve CALL result \"TEXT\"",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_decision_result_needs_a_text_and_the_decision_retry_refuses_one() {
        assert!(matches!(decision(Verdict::Retry, None), Ok(Decision::Retry)));
        assert!(matches!(decision(Verdict::Failed, None), Ok(Decision::Failed(_))));
        assert!(matches!(decision(Verdict::Result, Some("7".into())), Ok(Decision::Result(text)) if text == "7"));
        assert!(decision(Verdict::Result, None).is_err());
        assert!(decision(Verdict::Retry, Some("7".into())).is_err());
    }
}
