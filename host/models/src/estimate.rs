//! Tokens where nobody counts them: four characters to a token, rounded up.

use agent_core::model::{ModelRequest, RequestedCall, Usage};

const CHARACTERS_PER_TOKEN: usize = 4;

/// What a request and its reply would cost. Media are not counted: only their descriptions are known here.
pub(crate) fn usage(request: &ModelRequest, text: &str, calls: &[RequestedCall]) -> Usage {
    let system = request.system.iter().map(|section| characters(section));
    let messages = request.messages.iter().flat_map(|message| &message.parts).map(serialised);
    let tools = request.tools.iter().map(|tool| {
        characters(&tool.name) + characters(&tool.description) + serialised(&tool.input_schema)
    });
    let schema = request.output_schema.iter().map(serialised);
    let prompt: usize = system.chain(messages).chain(tools).chain(schema).sum();
    let reply: usize = calls.iter().map(|call| characters(&call.name) + characters(&call.arguments)).sum();
    Usage { prompt_tokens: tokens(prompt), completion_tokens: tokens(reply + characters(text)) }
}

/// How many characters fit into so many tokens.
pub(crate) fn characters_in(tokens: u32) -> usize {
    usize::try_from(tokens).unwrap_or(usize::MAX).saturating_mul(CHARACTERS_PER_TOKEN)
}

fn tokens(characters: usize) -> u64 {
    characters.div_ceil(CHARACTERS_PER_TOKEN) as u64
}

fn characters(text: &str) -> usize {
    text.chars().count()
}

fn serialised(value: &impl serde::Serialize) -> usize {
    serde_json::to_string(value).map_or(0, |text| characters(&text))
}
