//! Results of tool calls in the form in which they are stored and shown to the model.

use agent_core::change::{CallResult, Denial, ToolAvailability};
use agent_core::message::Content;
use agent_core::tool::{CallCost, ToolDone, ToolError};
use agent_core::view::result_text;

/// Maximum number of bytes of a tool result's text that are stored.
const MAX_STORED_BYTES: usize = 1 << 20;

/// Converts the outcome of a tool call to a call result. The cost and the denials of the result are not set yet.
pub(crate) fn result_of(outcome: Result<ToolDone, ToolError>) -> CallResult {
    match outcome {
        Err(error) => error_result(&error),
        Ok(ToolDone { content, structured }) => {
            let content = match (content.is_empty(), &structured) {
                (false, _) => content,
                (true, Some(json)) => vec![Content::Json(json.clone())],
                (true, None) => vec![Content::Text("The call succeeded.".to_owned())],
            };
            CallResult { content: bounded(content), structured, ..CallResult::default() }
        }
    }
}

/// Returns an error result that describes the error to the model.
pub(crate) fn error_result(error: &ToolError) -> CallResult {
    CallResult { content: vec![Content::Text(error.for_model())], is_error: true, ..CallResult::default() }
}

/// Returns the result of a call that was run and failed.
pub(crate) fn failed(error: &ToolError, cost: CallCost, denials: Vec<Denial>) -> CallResult {
    CallResult { cost, denials, ..error_result(error) }
}

/// Returns the result of a call whose tool was removed after the model called it (L7).
pub(crate) fn removed_tool_result(message: String) -> CallResult {
    CallResult { tool: ToolAvailability::Removed, ..error_result(&ToolError::NotFound { message }) }
}

/// Converts the denials that the sandbox reports for a plugin to the form that events and the audit log contain.
pub(crate) fn denials_in(denials: &[agent_plugins::Denial]) -> Vec<Denial> {
    denials.iter().map(Denial::from).collect()
}

/// Truncates the text of a result to 1 MiB. Results of plugins are never truncated here, because the sandbox already
/// refuses longer results.
pub(crate) fn bounded(content: Vec<Content>) -> Vec<Content> {
    let mut text = result_text(&content);
    if text.len() <= MAX_STORED_BYTES {
        return content;
    }
    text.truncate(text.floor_char_boundary(MAX_STORED_BYTES));
    text.push_str("\n[cut at 1 MiB: the rest is not stored]");
    let media = content.into_iter().filter(|item| matches!(item, Content::Media(_)));
    std::iter::once(Content::Text(text)).chain(media).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_core::message::{Digest, Media};

    /// L26: at most 1 MiB of a result's text is stored. A longer text is truncated at a character boundary and a note
    /// is added, and the media of the result are kept.
    #[test]
    fn l26_at_most_one_mebibyte_of_a_result_is_stored() {
        let text = |bytes: usize| vec![Content::Text("x".repeat(bytes))];
        assert_eq!(bounded(text(MAX_STORED_BYTES)), text(MAX_STORED_BYTES));
        let digest = Digest::from_sha256([1; 32]);
        let media = Media { digest, mime_type: "image/png".to_owned(), size: 5, dimensions: None, name: None };
        let picture = Content::Media(media);
        // The text is one byte followed by two-byte characters, so that the limit is in the middle of a character.
        let long = Content::Text(format!("x{}", "ä".repeat(MAX_STORED_BYTES)));
        let cut = bounded(vec![long, picture.clone()]);
        let [Content::Text(kept), last] = &cut[..] else { panic!("{} parts", cut.len()) };
        let (whole, note) = kept.split_once('\n').expect("a note about the cut");
        assert_eq!((whole.len(), note), (MAX_STORED_BYTES - 1, "[cut at 1 MiB: the rest is not stored]"));
        assert_eq!(*last, picture);
    }
}
