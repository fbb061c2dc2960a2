//! A session for people: its messages, its calls, and what it waits for.

use super::{below, tree};
use crate::data::DataDirectory;
use crate::exit::{Exit, Failure};
use crate::terminal::{BOLD, DIM, GREEN, RED, Terminal, YELLOW, approval, cost, text};
use agent_core::change::{CallRecord, CallResult, CallState, Departure};
use agent_core::event::{EndReason, ErrorScope, EventKind};
use agent_core::loop_break::name::ASK_QUESTION;
use agent_core::message::{CallId, Content, Media, MessageId, Part, StoredMessage, ToolResult};
use agent_core::tool::{CallCost, errors_in_words};
use agent_store::{CallFilter, MAX_PAGE, MessageRange, SessionSummary, Store};
use std::collections::{BTreeMap, BTreeSet};

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
    if let Some(parent) = &session.delegated_by {
        line(format!("  {DIM}works for{DIM:#} {parent}"))?;
    }
    for child in tree::children(store, data, &session.subject).await? {
        line(format!("  {DIM}delegated to{DIM:#} {}  {}", child.subject, child.state))?;
    }
    said(store, &session.subject, terminal).await?;
    still_open(store, session, data, terminal).await?;
    if let Some(suspension) = below::last_suspension(store, &session.subject).await? {
        below::waiting(store, &suspension, data).await?.into_iter().try_for_each(|shown| line(format!("\n{shown}")))?;
    }
    Ok(Exit::Done)
}

/// Every message, turn by turn, and what has come of calls whose batch is not done.
async fn said(store: &dyn Store, session: &str, terminal: &Terminal) -> Result<(), Failure> {
    let line = |line: String| terminal.print(line).map_err(Failure::output);
    let (ends, left) = (ends(store, session).await?, departures(store, session).await?);
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
            line(shown(message, (left.get(&message.id).copied(), &costs)))?;
        }
    }
    ends.get(&turn).map_or(Ok(()), |end| line(end.clone()))?;
    // It enters the history when all calls of the batch are done.
    for call in store.calls(session, CallFilter::Turn(turn)).await.map_err(Failure::failed)? {
        if let Some(CallResult { content, is_error, .. }) = call.result.filter(|_| !answered.contains(&call.id)) {
            let result = ToolResult { call_id: call.id, name: call.name, content, is_error };
            line(format!("  {}", tool_result(&result, &costs)))?;
        }
    }
    Ok(())
}

/// What calls have cost.
type Costs = BTreeMap<CallId, CallCost>;

async fn costs_of(store: &dyn Store, session: &str, turn: u32) -> Result<Costs, Failure> {
    let calls = store.calls(session, CallFilter::Turn(turn)).await.map_err(Failure::failed)?;
    Ok(calls.into_iter().filter_map(|call| Some((call.id, call.result?.cost))).collect())
}

/// Calls without a result, by what they wait for.
async fn still_open(
    store: &dyn Store,
    session: &SessionSummary,
    data: &DataDirectory,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let line = |line: String| terminal.print(line).map_err(Failure::output);
    let open = store.calls(&session.subject, CallFilter::Unfinished).await.map_err(Failure::failed)?;
    let is_left = [super::INTERRUPTED, super::READY].contains(&session.state.as_str());
    if is_left {
        line(format!("\n{}", left_alone(session, &open, data)))?;
    }
    let asking: Vec<_> = open.iter().filter(|call| call.state == CallState::Asking).cloned().collect();
    if !asking.is_empty() {
        line(format!("\n{}", asked(&session.subject, &asking, data)))?;
    }
    let (unknown, others): (Vec<_>, Vec<_>) =
        open.into_iter().partition(|call| call.state == CallState::OutcomeUnknown);
    if !unknown.is_empty() {
        line(format!("\n{}", waiting(&session.subject, &unknown, data)))?;
    }
    if !is_left {
        others.iter().try_for_each(|call| line(open_call(call, session.open_in)))?;
    }
    Ok(())
}

/// How each turn ended, as a line; nothing of those that have not.
async fn ends(store: &dyn Store, session: &str) -> Result<BTreeMap<u32, String>, Failure> {
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
                EventKind::LoopEnd { reason } => {
                    let error = errors.remove(&event.turn);
                    ends.insert(event.turn, end(reason, error.as_deref()));
                }
                _ => {}
            }
        }
    }
}

fn end(reason: EndReason, error: Option<&str>) -> String {
    match reason {
        EndReason::Answered => format!("{GREEN}answered{GREEN:#}"),
        EndReason::Completed => format!("{GREEN}completed{GREEN:#}"),
        EndReason::Converse => format!("{GREEN}said something{GREEN:#}"),
        EndReason::Asked => format!("{YELLOW}asked{YELLOW:#}, and nobody answered in time"),
        EndReason::Limit => format!("{YELLOW}answered{YELLOW:#} at its bound"),
        EndReason::Cancelled => format!("{YELLOW}cancelled{YELLOW:#}"),
        EndReason::Error => {
            let message = error.map(|error| format!(": {}", text::harmless(error).replace('\n', "\n  ")));
            format!("{RED}failed{RED:#}{}", message.unwrap_or_default())
        }
    }
}

/// What goes on where no process works on a turn, and how.
fn left_alone(session: &SessionSummary, open: &[CallRecord], data: &DataDirectory) -> String {
    let (id, flag, state) = (&session.subject, data.flag(), &session.state);
    let why = match state == super::READY {
        true => "this turn has what it waited for, and nobody has gone on with it yet",
        false => "the process that worked on this turn is gone",
    };
    let mut lines = vec![format!(
        "{YELLOW}{state}{YELLOW:#}: {why}; agent-host --session {id}{flag} goes on, with the same options as before"
    )];
    lines.extend(open.iter().filter(|call| call.state != CallState::OutcomeUnknown).map(|call| open_call(call, None)));
    lines.join("\n")
}

/// Why messages have left the view.
async fn departures(store: &dyn Store, session: &str) -> Result<BTreeMap<MessageId, Departure>, Failure> {
    let (mut left, mut after) = (BTreeMap::new(), 0);
    loop {
        let hidden = store.hidden(session, after, MAX_PAGE).await.map_err(Failure::failed)?;
        let Some(last) = hidden.last() else { return Ok(left) };
        after = last.id;
        left.extend(hidden.into_iter().map(|hidden| (hidden.id, hidden.why)));
    }
}

/// A call without a result, and what it waits for, in a session that this process has open, if any.
fn open_call(call: &CallRecord, open_in: Option<u32>) -> String {
    let (name, arguments) = (text::one_line(&call.name, SHOWN), text::json_line(&call.arguments, SHOWN));
    let running = open_in.map(|process| format!("runs now, in process {process}"));
    let waits = match call.state {
        CallState::Started if running.is_some() => running.as_deref().unwrap_or_default(),
        CallState::Waiting if running.is_some() => "has not begun yet",
        CallState::Waiting => "has not begun; it runs when the turn goes on",
        CallState::Asking => "waits for an approval",
        CallState::Outstanding if call.name == ASK_QUESTION => {
            "waits for your answer: agent-host session answer SESSION \"TEXT\""
        }
        CallState::Outstanding => "waits for an answer",
        CallState::Started => "had begun; it is repeated if it may be, else the turn will wait for your decision",
        CallState::OutcomeUnknown => "waits for your decision",
        CallState::Finished => "has its result",
    };
    format!("  {BOLD}{name}{BOLD:#} {arguments}\n    {waits} {DIM}{}{DIM:#}", call.id)
}

/// The calls that somebody must allow, and how to answer.
pub(crate) fn asked(session: &str, calls: &[CallRecord], data: &DataDirectory) -> String {
    let flag = data.flag();
    let mut lines = vec![format!("{YELLOW}waits for an approval{YELLOW:#}: nothing of this has run")];
    for call in calls {
        let name = approval::escaped(&call.name);
        let source = call.source.as_ref().map(|source| text::one_line(&source.to_string(), SHOWN)).unwrap_or_default();
        lines.push(format!("  {BOLD}{name}{BOLD:#} {DIM}{source}, {}{DIM:#}", call.id));
        let showing = format!("agent-host session show {session} --call {}{flag} shows", call.id);
        lines.extend(approval::arguments(call.effective_arguments(), &showing).iter().map(|line| format!("  {line}")));
    }
    // A session is called as its agent, which need not be the one that somebody has asked.
    let agent = session.split_once('/').map_or(session, |(agent, _)| agent);
    lines.push(format!(
        "    agent-host session approve {session} [CALL] [--scope session|always]{flag}, with the options of agent {agent} \
         (--agent FILE, or --plugins, --model and --grant)\n    agent-host session deny {session} [CALL] [--reason WHY]{flag}"
    ));
    lines.join("\n")
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

fn shown(message: &StoredMessage, (left, costs): (Option<Departure>, &Costs)) -> String {
    let parts = message.parts.iter().filter(|part| !matches!(part, Part::Preface(_) | Part::Replay(_)));
    let parts = parts.map(|part| match part {
        Part::Text(words) => text::harmless(words).replace('\n', "\n  "),
        Part::Json(json) => text::harmless(&json.to_string()).into_owned(),
        Part::Media(media) => medium(media),
        Part::ToolCall(call) => {
            let arguments = text::json_line(&call.arguments, SHOWN);
            format!("→ {} {arguments} {DIM}{}{DIM:#}", text::one_line(&call.name, SHOWN), call.id)
        }
        Part::ToolResult(result) => tool_result(result, costs),
        Part::Preface(_) | Part::Replay(_) => String::new(),
    });
    let parts: Vec<_> = parts.collect();
    let (role, id) = (message.role.as_str(), message.id);
    let left = match left {
        None => String::new(),
        Some(Departure::TakenBack) => format!(" {YELLOW}taken back{YELLOW:#}"),
        Some(Departure::Evicted) => format!(" {YELLOW}not in the prompt any more, but in its summary{YELLOW:#}"),
        Some(Departure::Superseded) => format!(" {YELLOW}not in the prompt any more{YELLOW:#}"),
    };
    format!("{BOLD}{role}{BOLD:#} {DIM}{id}{DIM:#}{left}\n  {}", parts.join("\n  "))
}

fn tool_result(result: &ToolResult, costs: &Costs) -> String {
    let content = result.content.iter().map(|content| match content {
        Content::Text(words) if result.is_error => text::one_line(&errors_in_words(words), SHOWN),
        Content::Text(words) => text::one_line(words, SHOWN),
        Content::Json(json) => text::json_line(json, SHOWN),
        Content::Media(media) => medium(media),
    });
    let mark = if result.is_error { format!("{RED}✗{RED:#}") } else { format!("{GREEN}✓{GREEN:#}") };
    let content = content.collect::<Vec<_>>().join("\n    ");
    let cost = costs.get(&result.call_id).map(cost::brief).filter(|cost| !cost.is_empty());
    let cost = cost.map(|cost| format!(" ({cost})")).unwrap_or_default();
    format!("{mark} {} {content} {DIM}{}{cost}{DIM:#}", text::one_line(&result.name, SHOWN), result.call_id)
}

/// A medium in words.
pub(crate) fn medium(media: &Media) -> String {
    format!("[{}, {}, {}]", media.mime_type, text::size(media.size), media.digest.short())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_end_in_words() {
        let shown = |reason, error| anstream::adapter::strip_str(&end(reason, error)).to_string();
        assert_eq!(shown(EndReason::Answered, None), "answered");
        assert_eq!(shown(EndReason::Limit, None), "answered at its bound");
        assert_eq!(shown(EndReason::Cancelled, None), "cancelled");
        assert_eq!(shown(EndReason::Error, Some("the model\n\u{1b}[2J")), "failed: the model\n  \\u{1b}[2J");
    }

    /// D3: what is open is shown with what it waits for.
    #[test]
    fn open_calls_say_what_they_wait_for() {
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
        let begun = "  files.write {\"path\":\"a\"}\n    had begun; it is repeated if it may be, else the turn will \
                     wait for your decision call_1_1_1";
        assert_eq!(shown(CallState::Started), begun);
        assert!(shown(CallState::Waiting).contains("it runs when the turn goes on"));
        let running = open_call(&call(CallState::Started), Some(7));
        let running = anstream::adapter::strip_str(&running).to_string();
        assert_eq!(running, "  files.write {\"path\":\"a\"}\n    runs now, in process 7 call_1_1_1");
        assert!(!open_call(&call(CallState::Waiting), Some(7)).contains("goes on"));
    }
}
