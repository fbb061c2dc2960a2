//! Shows sessions as a tree in which delegated sessions are below their parents (L16).

use crate::commands::delegation;
use crate::commands::stored_sessions::{sessions, summary};
use crate::exit::Failure;
use crate::terminal::{DIM, text};
use agent_config::DataDirectory;
use agent_store::{MAX_PAGE, SessionFilter, SessionSummary, Store};

/// Orders the sessions so that each session is followed by its children, and returns each session with its depth. A
/// session whose parent is not in the list is at the top level.
pub(super) fn in_order(sessions: Vec<SessionSummary>) -> Vec<(usize, SessionSummary)> {
    let subjects: Vec<String> = sessions.iter().map(|session| session.subject.clone()).collect();
    let has_parent = |session: &SessionSummary| session.delegated_by.as_ref().is_some_and(|by| subjects.contains(by));
    let (mut below, top): (Vec<_>, Vec<_>) = sessions.into_iter().partition(has_parent);
    let mut ordered = Vec::with_capacity(subjects.len());
    for session in top {
        push_with_children(session, 0, &mut below, &mut ordered);
    }
    // A damaged import can contain a cycle of parents. The sessions of a cycle are listed at the top level, so that no
    // session is missing.
    ordered.extend(below.into_iter().map(|session| (0, session)));
    ordered
}

fn push_with_children(
    session: SessionSummary,
    depth: usize,
    below: &mut Vec<SessionSummary>,
    ordered: &mut Vec<(usize, SessionSummary)>,
) {
    let is_child = |child: &SessionSummary| child.delegated_by.as_ref() == Some(&session.subject);
    let (children, others): (Vec<_>, Vec<_>) = std::mem::take(below).into_iter().partition(is_child);
    *below = others;
    ordered.push((depth, session));
    for child in children {
        push_with_children(child, depth + 1, below, ordered);
    }
}

/// Formats a session as an entry of a list.
pub(super) fn line(depth: usize, session: &SessionSummary) -> String {
    let shown = summary(session);
    match (depth, &session.delegated_by) {
        (0, None) => shown,
        (0, Some(parent)) => format!("{shown}\n  {DIM}worked for {}{DIM:#}", text::one_line(parent, 100)),
        _ => {
            let margin = "  ".repeat(depth - 1);
            let mut lines = shown.lines();
            let first = format!("{margin}└ {}", lines.next().unwrap_or_default());
            lines.fold(first, |shown, line| format!("{shown}\n{margin}  {line}"))
        }
    }
}

/// Returns the sessions that this session delegated work to, in the order of their last change, latest first.
pub(super) async fn children(
    store: &dyn Store,
    data: &DataDirectory,
    session: &str,
) -> Result<Vec<SessionSummary>, Failure> {
    let filter = SessionFilter { delegated_by: Some(session.to_owned()), ..SessionFilter::default() };
    let mut children = sessions(store, data, filter, MAX_PAGE).await?;
    delegation::mark_ready(store, &mut children).await?;
    Ok(children)
}

/// Describes the child sessions that are kept when their parent is deleted. Returns `None` if no child sessions
/// are kept.
pub(super) fn kept_children_note(children: &[SessionSummary], flag: &str) -> Option<String> {
    let subjects: Vec<_> = children.iter().map(|child| child.subject.as_str()).collect();
    let number = text::count(subjects.len(), "session");
    let ids = subjects.join(" ");
    let open = children.iter().filter(|child| child.state.is_open()).count();
    let open = match open {
        0 => String::new(),
        open => format!(" ({} still open, and no session waits for the answer any more)", text::count(open, "turn")),
    };
    (!subjects.is_empty()).then(|| {
        format!(
            "kept {number} that worked for the deleted session{open}; to delete what was kept: agent-host session \
             delete {ids}{flag}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_store::SessionState;

    fn session(subject: &str, delegated_by: Option<&str>) -> SessionSummary {
        SessionSummary {
            subject: subject.into(),
            agent: "a".into(),
            user: None,
            delegated_by: delegated_by.map(str::to_owned),
            created: "2026-01-01T00:00:00Z".into(),
            updated: "2026-01-01T00:00:00Z".into(),
            revision: 1,
            turns: 1,
            messages: 2,
            state: SessionState::Idle,
            open_in: None,
            title: Some("What?".into()),
            usage: Default::default(),
        }
    }

    /// L16, D5: deleting a session reports the children that are kept, and the number of their open turns.
    #[test]
    fn d5_kept_children_and_their_open_turns_are_reported() {
        let child = |subject: &str, state| SessionSummary { state, ..session(subject, Some("lead")) };
        let note = |children: &[SessionSummary]| kept_children_note(children, " --data d").unwrap_or_default();
        assert_eq!(note(&[]), "");
        let ended = "kept 1 session that worked for the deleted session; to delete what was kept: agent-host session \
                     delete a --data d";
        assert_eq!(note(&[child("a", SessionState::Idle)]), ended);
        let shown = note(&[child("a", SessionState::Idle), child("b", SessionState::Suspended)]);
        assert!(shown.contains("2 sessions") && shown.contains("(1 turn still open"), "{shown}");
    }

    /// L16, D5: a session is listed below the session that delegated work to it.
    #[test]
    fn l16_in_order_places_children_below_their_parent() {
        let sessions = vec![
            session("deep", Some("child")),
            session("other", None),
            session("child", Some("lead")),
            session("lead", None),
            session("orphan", Some("gone")),
            session("round", Some("about")),
            session("about", Some("round")),
        ];
        let ordered = in_order(sessions);
        let shown: Vec<_> = ordered.iter().map(|(depth, session)| (session.subject.as_str(), *depth)).collect();
        let expected =
            [("other", 0), ("lead", 0), ("child", 1), ("deep", 2), ("orphan", 0), ("round", 0), ("about", 0)];
        assert_eq!(shown, expected);
        let line = |index: usize| {
            let (depth, session) = &ordered[index];
            anstream::adapter::strip_str(&line(*depth, session)).to_string()
        };
        assert!(line(3).starts_with("  └ deep  idle") && line(3).ends_with("\n      What?"), "{}", line(3));
        assert!(line(4).ends_with("worked for gone"), "{}", line(4));
        assert_eq!(line(4).matches("gone").count(), 1, "the parent is named once: {}", line(4));
        let blank = SessionSummary { title: None, ..session("new", None) };
        assert_eq!(super::line(0, &blank).lines().count(), 1, "no line without a title");
    }
}
