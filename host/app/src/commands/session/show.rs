//! `session show`: shows a session's messages, its tool calls, and the decisions and answers that it waits for.

use super::tree;
use crate::commands::stored_sessions::summary;
use crate::exit::{Exit, Failure};
use crate::terminal::pending_calls::{waits_for_approval, waits_for_decision};
use crate::terminal::spending::{spending, turn_spending};
use crate::terminal::{BOLD, DIM, GREEN, RED, Terminal, YELLOW, cost, suspension, text};
use agent_config::DataDirectory;
use agent_core::change::{CallRecord, CallResult, CallState, HideReason};
use agent_core::event::{EndReason, ErrorScope, EventKind};
use agent_core::loop_break::name::ASK_QUESTION;
use agent_core::message::{CallId, Content, MessageId, Part, StoredMessage, ToolResult};
use agent_core::tool::{CallCost, errors_as_sentences};
use agent_store::{CallFilter, MAX_PAGE, MessageRange, SessionState, SessionSummary, SessionUsage, Store};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of messages that one query reads.
const PAGE: usize = 200;
/// Maximum displayed length of arguments and results, in characters.
const MAX_CHARACTERS: usize = 160;

/// Prints a session, its messages and its open calls.
pub(crate) async fn show(
    store: &dyn Store,
    session: &SessionSummary,
    data: &DataDirectory,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let line = |line: String| terminal.print(line).map_err(Failure::output);
    terminal.print_entry(&summary(session)).map_err(Failure::output)?;
    let SessionUsage { model_calls, usage } = session.usage;
    if model_calls > 0 {
        line(format!("  {DIM}used{DIM:#} {}", spending(model_calls, usage)))?;
    }
    if let Some(parent) = &session.delegated_by {
        line(format!("  {DIM}works for{DIM:#} {parent}"))?;
    }
    for child in tree::children(store, data, &session.subject).await? {
        line(format!("  {DIM}delegated to{DIM:#} {}  {}", child.subject, child.state))?;
    }
    show_messages(store, &session.subject, terminal).await?;
    show_open_calls(store, session, data, terminal).await?;
    if let Some(last) = suspension::last_suspension(store, &session.subject).await? {
        suspension::awaited_delegates(store, &last, data)
            .await?
            .into_iter()
            .try_for_each(|shown| line(format!("\n{shown}")))?;
    }
    Ok(Exit::Done)
}

/// Shows all messages, grouped by turn. Also shows the results of finished calls in a batch that is not finished.
async fn show_messages(store: &dyn Store, session: &str, terminal: &Terminal) -> Result<(), Failure> {
    let line = |line: String| terminal.print(line).map_err(Failure::output);
    let (ends, hidden) = (turn_end_lines(store, session).await?, hide_reasons(store, session).await?);
    let (mut after, mut turn) = (0, 0);
    let (mut answered, mut costs) = (BTreeSet::new(), Costs::new());
    loop {
        let range = MessageRange::After { id: after, limit: PAGE };
        let messages = store.messages(session, range).await.map_err(Failure::failed)?;
        let Some(last) = messages.last() else { break };
        after = last.id;
        for message in &messages {
            if message.turn != turn {
                costs = costs_of(store, session, message.turn).await?;
                ends.get(&turn).map_or(Ok(()), |end| line(end.clone()))?;
                turn = message.turn;
                line(format!("\n{DIM}turn {turn}{DIM:#}"))?;
            }
            answered.extend(message.parts.iter().filter_map(|part| match part {
                Part::ToolResult(result) => Some(result.call_id.clone()),
                _ => None,
            }));
            let described = describe_message(message, (hidden.get(&message.id).copied(), &costs));
            terminal.print_entry(&described).map_err(Failure::output)?;
        }
    }
    ends.get(&turn).map_or(Ok(()), |end| line(end.clone()))?;
    // A result is added to the history only when all calls of its batch are finished.
    for call in store.calls(session, CallFilter::Turn(turn)).await.map_err(Failure::failed)? {
        if let Some(CallResult { content, is_error, .. }) = call.result.filter(|_| !answered.contains(&call.id)) {
            let result = ToolResult { call_id: call.id, name: call.name, content, is_error };
            line(format!("  {}", tool_result(&result, &costs)))?;
        }
    }
    Ok(())
}

/// The costs of the calls that have a result, by call id.
type Costs = BTreeMap<CallId, CallCost>;

async fn costs_of(store: &dyn Store, session: &str, turn: u32) -> Result<Costs, Failure> {
    let calls = store.calls(session, CallFilter::Turn(turn)).await.map_err(Failure::failed)?;
    Ok(calls.into_iter().filter_map(|call| Some((call.id, call.result?.cost))).collect())
}

/// Shows the calls that have no result yet, grouped by what they wait for.
async fn show_open_calls(
    store: &dyn Store,
    session: &SessionSummary,
    data: &DataDirectory,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let line = |line: String| terminal.print(line).map_err(Failure::output);
    let open = store.calls(&session.subject, CallFilter::Unfinished).await.map_err(Failure::failed)?;
    let is_abandoned = [SessionState::Interrupted, SessionState::Ready].contains(&session.state);
    if is_abandoned {
        line(format!("\n{}", abandoned_turn(session, &open, data)))?;
    }
    let asking: Vec<_> = open.iter().filter(|call| call.state == CallState::AwaitingApproval).cloned().collect();
    if !asking.is_empty() {
        line(format!("\n{}", waits_for_approval(&session.subject, &asking, data)))?;
    }
    let (unknown, others): (Vec<_>, Vec<_>) =
        open.into_iter().partition(|call| call.state == CallState::OutcomeUnknown);
    if !unknown.is_empty() {
        line(format!("\n{}", waits_for_decision(&session.subject, &unknown, data)))?;
    }
    if !is_abandoned {
        let holder = session.open_in.as_ref().map(ToString::to_string);
        others.iter().try_for_each(|call| line(open_call(call, holder.as_deref())))?;
    }
    Ok(())
}

/// Returns one line for each turn that has ended. The line describes how the turn ended.
async fn turn_end_lines(store: &dyn Store, session: &str) -> Result<BTreeMap<u32, String>, Failure> {
    let (mut ends, mut errors) = (BTreeMap::new(), BTreeMap::new());
    let mut after = 0;
    loop {
        let events = store.events(session, after, MAX_PAGE).await.map_err(Failure::failed)?;
        let Some(last) = events.last() else { return Ok(ends) };
        after = last.event.sequence;
        for event in events.into_iter().map(|timed| timed.event) {
            match event.kind {
                EventKind::Error { message, scope: ErrorScope::Turn, .. } => {
                    errors.insert(event.turn, message);
                }
                EventKind::LoopEnd { reason, cost } => {
                    let error = errors.remove(&event.turn);
                    let spent = cost.map(|cost| turn_spending(&cost));
                    let spent = spent.map(|spent| format!(" {DIM}· {spent}{DIM:#}")).unwrap_or_default();
                    ends.insert(event.turn, format!("{}{spent}", turn_end_line(reason, error.as_deref())));
                }
                _ => {}
            }
        }
    }
}

fn turn_end_line(reason: EndReason, error: Option<&str>) -> String {
    match reason {
        EndReason::Answered => format!("{GREEN}answered{GREEN:#}"),
        EndReason::Completed => format!("{GREEN}completed{GREEN:#}"),
        EndReason::Converse => format!("{GREEN}replied with a message{GREEN:#}"),
        EndReason::QuestionExpired => format!("{YELLOW}asked a question{YELLOW:#}, and nobody answered in time"),
        EndReason::Limit => format!("{YELLOW}answered{YELLOW:#} because it reached a limit"),
        EndReason::Cancelled => format!("{YELLOW}cancelled{YELLOW:#}"),
        EndReason::Error => {
            let message = error.map(|error| format!(": {}", text::harmless(error).replace('\n', "\n  ")));
            format!("{RED}failed{RED:#}{}", message.unwrap_or_default())
        }
    }
}

/// Describes an open turn that no process is running, and how to continue the turn.
fn abandoned_turn(session: &SessionSummary, open: &[CallRecord], data: &DataDirectory) -> String {
    let (id, flag, state) = (&session.subject, data.flag(), session.state);
    let why = match state == SessionState::Ready {
        true => "the answer for this turn has arrived, but the turn has not been continued yet",
        false => "the process that ran this turn has ended",
    };
    let mut lines = vec![format!(
        "{YELLOW}{state}{YELLOW:#}: {why}; continue with agent-host --session {id}{flag}, and the same options as before"
    )];
    lines.extend(open.iter().filter(|call| call.state != CallState::OutcomeUnknown).map(|call| open_call(call, None)));
    lines.join("\n")
}

/// Returns the reason why each hidden message is no longer visible to the model.
async fn hide_reasons(store: &dyn Store, session: &str) -> Result<BTreeMap<MessageId, HideReason>, Failure> {
    let (mut reasons, mut after) = (BTreeMap::new(), 0);
    loop {
        let hidden = store.hidden(session, after, MAX_PAGE).await.map_err(Failure::failed)?;
        let Some(last) = hidden.last() else { return Ok(reasons) };
        after = last.id;
        reasons.extend(hidden.into_iter().map(|hidden| (hidden.id, hidden.why)));
    }
}

/// Describes a call that has no result yet. `open_in` is the process that has the session open, if any.
fn open_call(call: &CallRecord, open_in: Option<&str>) -> String {
    let (name, arguments) =
        (text::one_line(&call.name, MAX_CHARACTERS), text::arguments(&call.arguments, MAX_CHARACTERS));
    let running = open_in.map(|process| format!("is running in {process}"));
    let waits = match call.state {
        CallState::Started if running.is_some() => running.as_deref().unwrap_or_default(),
        CallState::Waiting if running.is_some() => "has not started yet",
        CallState::Waiting => "has not started; it runs when the turn continues",
        CallState::AwaitingApproval => "waits for an approval",
        CallState::Outstanding if call.name == ASK_QUESTION => {
            "waits for your answer: agent-host session answer SESSION \"TEXT\""
        }
        CallState::Outstanding => "waits for an answer",
        CallState::Started => {
            "had started; the host repeats it if that is safe, otherwise the turn will wait for your decision"
        }
        CallState::OutcomeUnknown => "waits for your decision",
        CallState::Finished => "has its result",
    };
    format!("  {BOLD}{name}{BOLD:#} {arguments}\n    {waits} {DIM}{}{DIM:#}", call.id)
}

fn describe_message(message: &StoredMessage, (hide_reason, costs): (Option<HideReason>, &Costs)) -> String {
    let parts = message.parts.iter().filter(|part| !matches!(part, Part::Preface(_) | Part::Replay(_)));
    let parts = parts.map(|part| match part {
        Part::Text(words) => text::harmless(words).replace('\n', "\n  "),
        Part::Json(json) => text::harmless(&json.to_string()).into_owned(),
        Part::Media(media) => text::media_item(media),
        Part::ToolCall(call) => {
            let arguments = text::arguments(&call.arguments, MAX_CHARACTERS);
            format!("→ {} {arguments} {DIM}{}{DIM:#}", text::one_line(&call.name, MAX_CHARACTERS), call.id)
        }
        Part::ToolResult(result) => tool_result(result, costs),
        Part::Preface(_) | Part::Replay(_) => String::new(),
    });
    let parts: Vec<_> = parts.collect();
    let (role, id) = (message.role.as_str(), message.id);
    let note = match hide_reason {
        None => String::new(),
        Some(HideReason::Undone) => format!(" {YELLOW}undone{YELLOW:#}"),
        Some(HideReason::Evicted) => {
            format!(" {YELLOW}no longer in the prompt, but in the summary of removed messages{YELLOW:#}")
        }
        Some(HideReason::Superseded) => format!(" {YELLOW}no longer in the prompt{YELLOW:#}"),
    };
    format!("{BOLD}{role}{BOLD:#} {DIM}{id}{DIM:#}{note}\n  {}", parts.join("\n  "))
}

fn tool_result(result: &ToolResult, costs: &Costs) -> String {
    let content = result.content.iter().map(|content| match content {
        Content::Text(words) if result.is_error => text::one_line(&errors_as_sentences(words), MAX_CHARACTERS),
        Content::Text(words) => text::one_line(words, MAX_CHARACTERS),
        Content::Json(json) => text::json_line(json, MAX_CHARACTERS),
        Content::Media(media) => text::media_item(media),
    });
    let mark = if result.is_error { format!("{RED}✗{RED:#}") } else { format!("{GREEN}✓{GREEN:#}") };
    let content = content.collect::<Vec<_>>().join("\n    ");
    let cost = costs.get(&result.call_id).map(cost::brief).filter(|cost| !cost.is_empty());
    let cost = cost.map(|cost| format!(" ({cost})")).unwrap_or_default();
    format!("{mark} {} {content} {DIM}{}{cost}{DIM:#}", text::one_line(&result.name, MAX_CHARACTERS), result.call_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turn_end_line_describes_each_reason() {
        let shown = |reason, error| anstream::adapter::strip_str(&turn_end_line(reason, error)).to_string();
        assert_eq!(shown(EndReason::Answered, None), "answered");
        assert_eq!(shown(EndReason::Limit, None), "answered because it reached a limit");
        assert_eq!(shown(EndReason::Cancelled, None), "cancelled");
        assert_eq!(shown(EndReason::Error, Some("the model\n\u{1b}[2J")), "failed: the model\n  \\u{1b}[2J");
    }

    /// D3: the line about an open call states why the call waits.
    #[test]
    fn d3_the_reason_why_an_open_call_waits_is_shown() {
        let call = |state| CallRecord {
            id: CallId("call_1_1_1".into()),
            turn: 1,
            step: 1,
            name: "files.write".into(),
            state,
            attempt: 1,
            source: None,
            arguments: serde_json::json!({"path": "a"}),
            edited: None,
            result: None,
        };
        let shown = |state| anstream::adapter::strip_str(&open_call(&call(state), None)).to_string();
        let started = "  files.write {\"path\":\"a\"}\n    had started; the host repeats it if that is safe, otherwise \
                       the turn will wait for your decision call_1_1_1";
        assert_eq!(shown(CallState::Started), started);
        assert!(shown(CallState::Waiting).contains("it runs when the turn continues"));
        let running = open_call(&call(CallState::Started), Some("process 7"));
        let running = anstream::adapter::strip_str(&running).to_string();
        assert_eq!(running, "  files.write {\"path\":\"a\"}\n    is running in process 7 call_1_1_1");
        assert!(!open_call(&call(CallState::Waiting), Some("process 7")).contains("continues"));
    }
}
