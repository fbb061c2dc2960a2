//! An output validator: it decides whether an answer may end the turn. If the answer may not end the turn, the
//! validator returns the reason.

use agent_host_sdk::output_validator::{OutputValidator, Request, Verdict};
use agent_host_sdk::types::Failure;

/// Words that show that an answer contains unfinished text.
const UNFINISHED: [&str; 3] = ["TODO", "FIXME", "lorem ipsum"];

/// The type that implements the output validator.
pub struct Plugin;

impl OutputValidator for Plugin {
    fn validate(request: Request) -> Result<Verdict, Failure> {
        Ok(match UNFINISHED.into_iter().find(|mark| request.text.contains(mark)) {
            // The model reads this message, so the message explains how to fix the answer.
            Some(mark) => Verdict::reject("", format!("The answer says `{mark}`. Write what belongs there.")),
            None => Verdict::Accept,
        })
    }
}

agent_host_sdk::export_output_validator!(Plugin);

#[cfg(test)]
mod tests {
    use super::*;
    use agent_host_sdk::testing;

    fn verdict(text: &str) -> Verdict {
        let request = Request {
            scope: testing::scope(),
            text: text.to_owned(),
            structured: None,
            output_schema: None,
            attempt: 1,
            corrections_left: 2,
            turn: Vec::new(),
        };
        Plugin::validate(request).expect("this plugin never fails")
    }

    #[test]
    fn rejects_unfinished_answers() {
        assert!(matches!(verdict("The harbour opens at 6."), Verdict::Accept));
        assert!(matches!(verdict("The harbour opens at TODO."), Verdict::Reject(problems) if problems.len() == 1));
    }
}
