//! A session for people: its messages, its calls, and what it waits for.

use crate::data::DataDirectory;
use crate::exit::{Exit, Failure};
use crate::terminal::{BOLD, DIM, GREEN, RED, Terminal, YELLOW, text};
use agent_core::change::{CallRecord, CallState};
use agent_core::message::{Content, Media, Part, StoredMessage, ToolResult};
use agent_memory::{CallFilter, MessageRange, SessionSummary, Store};

/// Messages that are read at once.
const PAGE: usize = 200;
/// Characters of arguments and results that are shown.
const SHOWN: usize = 160;

/// Prints the session.
pub(crate) async fn show(
    store: &dyn Store,
    session: &SessionSummary,
    data: &DataDirectory,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let line = |line: String| terminal.print(line).map_err(Failure::output);
    line(super::summary(session))?;
    let (mut after, mut turn) = (0, 0);
    loop {
        let range = MessageRange::After { id: after, limit: PAGE };
        let messages = store.messages(&session.subject, range).await.map_err(Failure::failed)?;
        let Some(last) = messages.last() else { break };
        after = last.id;
        for message in &messages {
            if message.turn != turn {
                turn = message.turn;
                line(format!("\n{DIM}turn {turn}{DIM:#}"))?;
            }
            line(shown(message))?;
        }
    }
    let mut open = store.calls(&session.subject, CallFilter::Unfinished).await.map_err(Failure::failed)?;
    open.retain(|call| call.state == CallState::OutcomeUnknown);
    if !open.is_empty() {
        line(format!("\n{}", waiting(&session.subject, &open, data)))?;
    }
    Ok(Exit::Done)
}

/// What the session waits for, and how to decide.
pub(crate) fn waiting(session: &str, calls: &[CallRecord], data: &DataDirectory) -> String {
    let flag = data.flag();
    let mut lines = vec![format!(
        "{YELLOW}waits for a decision{YELLOW:#}: the host stopped while these calls ran, and it is not known whether \
         they had their effect"
    )];
    for call in calls {
        let (name, arguments) = (text::one_line(&call.name, SHOWN), text::json_line(&call.arguments, SHOWN));
        lines.push(format!("  {BOLD}{name}{BOLD:#} {arguments}"));
        lines.push(format!("    agent-host session resolve {session}/{} retry|failed|result [TEXT]{flag}", call.id));
    }
    lines.join("\n")
}

fn shown(message: &StoredMessage) -> String {
    let parts = message.parts.iter().map(|part| match part {
        Part::Text(words) => text::harmless(words).replace('\n', "\n  "),
        Part::Json(json) => text::harmless(&json.to_string()).into_owned(),
        Part::Media(media) => medium(media),
        Part::ToolCall(call) => {
            let arguments = text::json_line(&call.arguments, SHOWN);
            format!("→ {} {arguments} {DIM}{}{DIM:#}", text::one_line(&call.name, SHOWN), call.id)
        }
        Part::ToolResult(result) => tool_result(result),
    });
    let parts: Vec<_> = parts.collect();
    format!("{BOLD}{}{BOLD:#}\n  {}", message.role.as_str(), parts.join("\n  "))
}

fn tool_result(result: &ToolResult) -> String {
    let content = result.content.iter().map(|content| match content {
        Content::Text(words) => text::one_line(words, SHOWN),
        Content::Json(json) => text::json_line(json, SHOWN),
        Content::Media(media) => medium(media),
    });
    let mark = if result.is_error { format!("{RED}✗{RED:#}") } else { format!("{GREEN}✓{GREEN:#}") };
    let content = content.collect::<Vec<_>>().join("\n    ");
    format!("{mark} {} {content} {DIM}{}{DIM:#}", text::one_line(&result.name, SHOWN), result.call_id)
}

fn medium(media: &Media) -> String {
    format!("[{}, {}, {}]", media.mime_type, text::size(media.size), media.digest.short())
}
