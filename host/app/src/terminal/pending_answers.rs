//! Describes the answers that a turn waits for. Each description contains the start and the deadline of the wait, and
//! the command that records the answer.

use super::{BOLD, DIM, YELLOW, text};
use crate::exit::Failure;
use agent_config::DataDirectory;
use agent_core::event::{Wait, WaitCause};
use agent_store::{MAX_PAGE, OutboxFilter, Store};
use std::collections::BTreeMap;

/// Maximum length, in characters, to which a name or a question is cut before it is shown.
const MAX_CHARACTERS: usize = 120;

/// Describes the services that a turn waits for, and the questions that the user has not answered yet. The result is
/// empty if the turn waits neither for a service nor for the user's answer to a question. Decisions, approvals and
/// delegates are described in other modules.
pub(crate) async fn describe(
    session: &str,
    waits: &[Wait],
    (store, data): (&dyn Store, &DataDirectory),
) -> Result<String, Failure> {
    let waits: Vec<&Wait> = waits.iter().filter(|wait| is_shown(&wait.cause)).collect();
    if waits.is_empty() {
        return Ok(String::new());
    }
    let items = store.outbox(Some(session), OutboxFilter::All, 0, MAX_PAGE).await.map_err(Failure::failed)?;
    let since: BTreeMap<String, String> = items.into_iter().map(|item| (item.item.id, item.created)).collect();
    let mut lines = vec![format!("{YELLOW}waits for {}{YELLOW:#}", text::count(waits.len(), "answer"))];
    lines.extend(waits.iter().map(|wait| line(wait, since.get(&wait.call.0))));
    if waits.iter().any(|wait| matches!(wait.cause, WaitCause::Service { .. })) {
        let flag = data.flag();
        lines.push(format!(
            "a service answers with a CloudEvent whose `parentid` is the call's id:\n    agent-host session respond {session} \
             --event FILE{flag}, with the same options as before to continue"
        ));
    }
    Ok(lines.join("\n"))
}

fn is_shown(cause: &WaitCause) -> bool {
    matches!(cause, WaitCause::Service { .. } | WaitCause::Answer { .. } | WaitCause::Client)
}

fn line(wait: &Wait, since: Option<&String>) -> String {
    let what = match &wait.cause {
        WaitCause::Service { event_type, .. } => format!("the service {}", text::one_line(event_type, MAX_CHARACTERS)),
        WaitCause::Client => "the program that offers the tool".to_owned(),
        WaitCause::OutcomeUnknown | WaitCause::Approval { .. } | WaitCause::Agent { .. } => "somebody".to_owned(),
        WaitCause::Answer { question, .. } => format!("your answer: {}", text::one_line(question, MAX_CHARACTERS)),
    };
    let since = since.map(|time| format!(" since {}", text::local_time(time))).unwrap_or_default();
    let until = wait.cause.expires_at().map(|time| format!(", at most until {}", format_milliseconds(time)));
    let name = text::one_line(&wait.name, MAX_CHARACTERS);
    format!("  {BOLD}{name}{BOLD:#} waits for {what}{since}{} {DIM}{}{DIM:#}", until.unwrap_or_default(), wait.call)
}

/// Formats milliseconds since 1970 as a time in the user's time zone.
fn format_milliseconds(time: u64) -> String {
    let time = i64::try_from(time).ok().and_then(|time| jiff::Timestamp::from_millisecond(time).ok());
    time.map_or_else(|| "forever".to_owned(), |time| text::local_time(&time.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_core::message::CallId;

    /// L10: a line names the service, the start and the deadline of the wait, and the id of the call.
    #[test]
    fn l10_describes_each_wait_in_a_line() {
        let service = |expires_at| WaitCause::Service { event_type: "com.example.pay".into(), expires_at, emits: None };
        let wait = |cause| Wait { call: CallId("call_1_1_1".into()), name: "pay".into(), cause };
        let shown = |cause| {
            let line = line(&wait(cause), Some(&"2026-01-31T12:00:00.25Z".to_owned()));
            anstream::adapter::strip_str(&line).to_string()
        };
        let [since, until] = ["2026-01-31T12:00:00Z", "2026-01-31T13:01:00Z"].map(text::local_time);
        let begin = format!("  pay waits for the service com.example.pay since {since}");
        assert_eq!(shown(service(None)), format!("{begin} call_1_1_1"));
        let deadline = format!("{begin}, at most until {until} call_1_1_1");
        assert_eq!(shown(service(Some(1_769_864_460_000))), deadline);
        let question = WaitCause::Answer { question: "Which?".into(), expires_at: None };
        assert!(shown(question).contains("waits for your answer: Which?"));
    }
}
