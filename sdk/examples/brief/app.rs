//! An output validator: it accepts, repairs or rejects the answer that would end a turn. A validator has no
//! permissions.

use agent_host_sdk::output_validator::{OutputValidator, Request, Verdict};
use agent_host_sdk::types::Failure;

/// Maximum number of words in an answer.
const MAX_WORDS: usize = 8;

/// The type that implements the output validator.
pub struct Plugin;

impl OutputValidator for Plugin {
    fn validate(request: Request) -> Result<Verdict, Failure> {
        let text = request.text.trim();
        let words = text.split_whitespace().count();
        if words > MAX_WORDS {
            // The model reads this message, so the message says what is wrong, and what would be right.
            let message = format!("The answer has {words} words. Shorten it to at most {MAX_WORDS} words.");
            return Ok(Verdict::reject("", message));
        }
        // A validator can also change an answer that it accepts.
        Ok(if text == request.text { Verdict::Accept } else { Verdict::accept_text(text) })
    }
}

agent_host_sdk::export_output_validator!(Plugin);
