//! Shows the activity of delegates, but not their replies (L16).

use super::super::{DIM, events, text};
use super::{Block, TurnView};
use agent_core::event::{Event, EventKind, Suspension, WaitCause};
use agent_core::message::CallId;
use std::collections::BTreeMap;

/// The delegated sessions of the open turn.
#[derive(Default)]
pub(super) struct Delegated {
    /// Id of the delegated session of each call.
    sessions: BTreeMap<CallId, String>,
    /// True if the turn waits only for delegates, so that the host resumes the turn without an action of the user.
    waits_only_for_agents: bool,
}

impl Delegated {
    /// Records the delegated sessions that the turn waits for.
    pub(super) fn record_waits(&mut self, suspension: &Suspension) {
        for wait in &suspension.waits {
            if let WaitCause::Agent { session } = &wait.cause {
                self.sessions.insert(wait.call.clone(), session.clone());
            }
        }
        self.waits_only_for_agents = suspension.waits.iter().all(|wait| matches!(wait.cause, WaitCause::Agent { .. }));
    }

    /// Returns true if the event resumes a turn that waited only for delegates. If the result is true, the caller
    /// does not show the event.
    pub(super) fn resumes_silently(&self, event: &EventKind) -> bool {
        *event == EventKind::Resumed && self.waits_only_for_agents
    }

    /// Returns the delegated session of a call. Returns None if the call is not delegated.
    pub(super) fn session_of(&self, call: &CallId) -> Option<&str> {
        self.sessions.get(call).map(String::as_str)
    }
}

impl TurnView<'_> {
    /// Shows an event of a delegated session. Progress appears in the spinner, and events that the user may need to act
    /// on appear as lines.
    pub(super) fn show_delegate_event(&mut self, event: &Event) {
        let agent = text::one_line(agent_of(&event.session), 64);
        match &event.kind {
            EventKind::ToolCall { name, .. } => {
                self.terminal.busy(format!("{agent} is running {}", text::one_line(name, 100)));
            }
            EventKind::LoopStart { .. } | EventKind::LoopIteration { .. } => {
                self.terminal.busy(format!("{agent} is working"));
            }
            // Denials, fallbacks and unknown outcomes are shown as lines, because the user may need to act on them.
            EventKind::Denied { .. } | EventKind::ModelFallback { .. } | EventKind::OutcomeUnknown { .. } => {
                if let Some(lines) = events::lines(&event.kind) {
                    let lines = self.fitted(format!("{DIM}{agent}:{DIM:#} {lines}"));
                    self.page.note(Block::Calls, lines);
                }
            }
            _ => {}
        }
    }
}

/// Returns the name of a session's agent, which is the session's subject without its last segment.
fn agent_of(session: &str) -> &str {
    session.rsplit_once('/').map_or(session, |(agent, _)| agent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_core::event::Wait;

    fn wait(call: &str, cause: WaitCause) -> Wait {
        Wait { call: CallId(call.into()), name: "tool".into(), cause }
    }

    /// L16: a turn that waits only for agents is not shown as resumed.
    #[test]
    fn l16_turn_resumes_silently_if_it_waits_only_for_agents() {
        let agent = || wait("c1", WaitCause::Agent { session: "writer/1".into() });
        let mut delegated = Delegated::default();
        assert!(!delegated.resumes_silently(&EventKind::Resumed), "the waits of an earlier process are unknown");
        delegated.record_waits(&Suspension { waits: vec![agent()] });
        assert!(delegated.resumes_silently(&EventKind::Resumed));
        assert!(!delegated.resumes_silently(&EventKind::ThinkingStart));
        assert_eq!(delegated.session_of(&CallId("c1".into())), Some("writer/1"));
        delegated
            .record_waits(&Suspension { waits: vec![agent(), wait("c2", WaitCause::Approval { expires_at: None })] });
        assert!(!delegated.resumes_silently(&EventKind::Resumed));
        assert_eq!(delegated.session_of(&CallId("c2".into())), None);
    }

    #[test]
    fn extracts_agent_name_from_subject() {
        assert_eq!(agent_of("writer/0193"), "writer");
        assert_eq!(agent_of("team/writer/0193"), "team/writer");
        assert_eq!(agent_of("alone"), "alone");
    }
}
