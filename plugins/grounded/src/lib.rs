//! An output validator: every passage that the answer quotes must stand in what a tool brought in this turn, or in what the
//! person asked.

pub mod passages;

use agent_host_sdk::output_validator::{OutputValidator, Problem, Request, Verdict};
use agent_host_sdk::types::{Content, Failure, Message, Part, Role};
use passages::{Sources, passages};

/// Passages that are named in one rejection.
const SHOWN: usize = 5;

/// The plugin: one validator.
pub struct Grounded;

impl OutputValidator for Grounded {
    fn validate(request: Request) -> Result<Verdict, Failure> {
        let sources = Sources::new(sources(&request.turn));
        let unfounded = passages(&request.text).into_iter().filter(|passage| !sources.hold(passage));
        let problems: Vec<_> = unfounded.take(SHOWN).map(problem).collect();
        Ok(if problems.is_empty() { Verdict::Accept } else { Verdict::Reject(problems) })
    }
}

agent_host_sdk::export_output_validator!(Grounded);

/// Texts that may be quoted. Of messages of the role *user* only the first one is the person's: later ones are the host's
/// feedback, which repeats the very passages that were not found.
fn sources(turn: &[Message]) -> Vec<&str> {
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
        "No tool result of this turn holds the quoted passage \"{passage}\". Quote it exactly as a tool brought it, look it up \
         first, or say it in your own words without quotation marks."
    );
    Problem::new("", message)
}
