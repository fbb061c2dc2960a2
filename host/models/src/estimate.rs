//! Estimates the token usage of requests to providers that do not report it. The host also uses this
//! method of estimation for its context budget.

use agent_core::model::{ModelRequest, RequestedCall, Usage};
use agent_core::tokens;

/// Average number of characters of English text in one token.
const CHARACTERS_PER_TOKEN: usize = 4;

/// Estimates the token usage of a request and of the reply to it. `text` and `calls` are the contents of the reply.
pub(crate) fn usage(request: &ModelRequest, text: &str, calls: &[RequestedCall]) -> Usage {
    let system = request.system.iter().map(|section| tokens::of_text(section));
    let messages = request.messages.iter().map(|message| tokens::of_parts(&message.parts));
    let tools = request.tools.iter().map(|tool| {
        let schema = tokens::of_text(&tool.input_schema.to_string());
        tokens::of_text(&tool.name).saturating_add(tokens::of_text(&tool.description)).saturating_add(schema)
    });
    let schema = request.output_schema.iter().map(|schema| tokens::of_text(&schema.to_string()));
    let prompt = system.chain(messages).chain(tools).chain(schema).map(u64::from).sum();
    let calls = calls.iter().flat_map(|call| [&call.name, &call.arguments]).map(|part| tokens::of_text(part));
    let reply = calls.chain([tokens::of_text(text)]).map(u64::from).sum();
    Usage::new(prompt, reply)
}

/// Returns how many characters of English text fit into `tokens` tokens.
pub(crate) fn characters_in(tokens: u32) -> usize {
    usize::try_from(tokens).unwrap_or(usize::MAX).saturating_mul(CHARACTERS_PER_TOKEN)
}
