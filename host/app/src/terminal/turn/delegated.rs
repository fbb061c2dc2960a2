//! What agents do that work for the one that was asked: a word on it, and never their replies (L16).

use super::super::{DIM, events, text};
use super::{Block, TurnView};
use agent_core::event::{Event, EventKind, Suspension, WaitCause};
use agent_core::message::CallId;
use std::collections::BTreeMap;

/// The sessions that work for the open turn.
#[derive(Default)]
pub(super) struct Delegated {
    sessions: BTreeMap<CallId, String>,
    /// The turn waits for nobody else, so that it neither stops nor is gone on with.
    only_agents: bool,
}

impl Delegated {
    /// Takes in what the turn waits for.
    pub(super) fn waits(&mut self, suspension: &Suspension) {
        for wait in &suspension.waits {
            if let WaitCause::Agent { session } = &wait.cause {
                self.sessions.insert(wait.call.clone(), session.clone());
            }
        }
        self.only_agents = suspension.waits.iter().all(|wait| matches!(wait.cause, WaitCause::Agent { .. }));
    }

    /// Whether a turn that is resumed had only waited for agents that worked meanwhile.
    pub(super) fn resumes_silently(&self, event: &EventKind) -> bool {
        *event == EventKind::Resumed && self.only_agents
    }

    /// The session that has worked for a call.
    pub(super) fn session_of(&self, call: &CallId) -> Option<&str> {
        self.sessions.get(call).map(String::as_str)
    }
}

impl TurnView<'_> {
    /// An event of another session than the one that is shown.
    pub(super) fn of_another(&mut self, event: &Event) {
        let agent = text::one_line(agent_of(&event.session), 64);
        match &event.kind {
            EventKind::ToolCall { name, .. } => {
                self.terminal.busy(format!("{agent} is running {}", text::one_line(name, 100)));
            }
            EventKind::LoopStart { .. } | EventKind::LoopIteration { .. } => {
                self.terminal.busy(format!("{agent} is at work"));
            }
            // A person may have to do something about these.
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

/// A session's subject begins with its agent's name.
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

    /// L16: only who waits for somebody outside goes on later.
    #[test]
    fn l16_a_turn_that_waits_for_agents_only_is_not_interrupted() {
        let agent = || wait("c1", WaitCause::Agent { session: "writer/1".into() });
        let mut delegated = Delegated::default();
        assert!(!delegated.resumes_silently(&EventKind::Resumed), "nothing is known of an earlier process");
        delegated.waits(&Suspension { waits: vec![agent()] });
        assert!(delegated.resumes_silently(&EventKind::Resumed));
        assert!(!delegated.resumes_silently(&EventKind::ThinkingStart));
        assert_eq!(delegated.session_of(&CallId("c1".into())), Some("writer/1"));
        delegated.waits(&Suspension { waits: vec![agent(), wait("c2", WaitCause::Approval)] });
        assert!(!delegated.resumes_silently(&EventKind::Resumed));
        assert_eq!(delegated.session_of(&CallId("c2".into())), None);
    }

    #[test]
    fn a_subject_begins_with_the_agents_name() {
        assert_eq!(agent_of("writer/0193"), "writer");
        assert_eq!(agent_of("team/writer/0193"), "team/writer");
        assert_eq!(agent_of("alone"), "alone");
    }
}
