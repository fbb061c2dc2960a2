//! An output validator that accepts an answer only if tool results of the turn, or the user's message, contain every
//! passage that the answer quotes.

pub mod passages;

use agent_host_sdk::output_validator::{OutputValidator, Problem, Request, Verdict};
use agent_host_sdk::types::{Content, Failure, Message, Part, Role};
use passages::{Sources, passages};

/// Maximum number of passages that a rejection names.
const MAX_SHOWN: usize = 5;

/// The plugin, which is an output validator.
pub struct Grounded;

impl OutputValidator for Grounded {
    fn validate(request: Request) -> Result<Verdict, Failure> {
        let sources = Sources::new(quotable_texts(&request.turn));
        let unknown = passages(&request.text).into_iter().filter(|passage| !sources.contain(passage));
        let problems: Vec<_> = unknown.take(MAX_SHOWN).map(problem).collect();
        Ok(if problems.is_empty() { Verdict::Accept } else { Verdict::Reject(problems) })
    }
}

agent_host_sdk::export_output_validator!(Grounded);

/// Returns the texts that an answer may quote. Of the messages with the role *user*, only the first is from the user.
/// The later messages contain feedback of the host, and this feedback repeats the rejected passages.
fn quotable_texts(turn: &[Message]) -> Vec<&str> {
    let mut texts = Vec::new();
    for (index, message) in turn.iter().enumerate() {
        for part in &message.parts {
            match part {
                Part::ToolResult(result) if !result.is_error => {
                    texts.extend(result.content.iter().filter_map(|content| match content {
                        Content::Text(text) | Content::Json(text) => Some(text.as_str()),
                        Content::Media(_) => None,
                    }));
                }
                Part::Text(text) | Part::Json(text) if index == 0 && message.role == Role::User => texts.push(text),
                _ => {}
            }
        }
    }
    texts
}

fn problem(passage: String) -> Problem {
    let message = format!(
        "No tool result of this turn contains the quoted passage \"{passage}\". Quote it exactly as a tool returned it, look it up \
         first, or say it in your own words without quotation marks."
    );
    Problem::new("", message)
}
