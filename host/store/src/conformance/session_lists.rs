//! I3: lists and searches for the people who decide about sessions.

use super::{SessionWriter, TestStore, meta};
use crate::{Commit, OpenMode, SearchedSessions, SessionMeta, SessionState, Status, Unowned};

/// I3: the session that waits longest is listed first, no session is left out or doubled between two pages, and a session whose
/// turn goes on and stops again moves to the end.
pub(super) async fn suspended_sessions_are_listed_oldest_first(test: TestStore) {
    let store = &test.store;
    let status = |state, turn| Status { state, turn, ..Status::default() };
    let mut leases = Vec::new();
    for number in 0..7 {
        let (agent, user) = if number == 3 { ("b", "bob") } else { ("a", "ann") };
        let about = SessionMeta { user: Some(user.to_owned()), ..meta(agent) };
        let opened = store.open(&format!("s{number}"), OpenMode::CreateNew, about).await.unwrap();
        let state = if number == 5 { SessionState::Idle } else { SessionState::Suspended };
        store.commit(&opened.lease, 0, Commit { status: status(state, 1), ..Commit::default() }).await.unwrap();
        leases.push(opened.lease);
    }
    let agents = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let pages = async |names: &[&str], user: Option<&str>, limit| {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = store.suspended(&agents(names), user, after, limit).await.unwrap();
            assert!(page.len() <= limit && page.is_sorted_by_key(|(position, _)| *position));
            let Some((last, _)) = page.last() else { return found };
            after = Some(*last);
            found.extend(page.into_iter().map(|(_, summary)| summary.subject));
        }
    };
    for limit in [1, 2, 100] {
        assert_eq!(pages(&["a", "b"], None, limit).await, ["s0", "s1", "s2", "s3", "s4", "s6"]);
    }
    assert_eq!(pages(&["a"], None, 2).await, ["s0", "s1", "s2", "s4", "s6"]);
    assert_eq!(pages(&["a", "b"], Some("bob"), 2).await, ["s3"]);
    assert_eq!(pages(&[], None, 2).await, Vec::<String>::new());
    for (revision, state) in [(1, SessionState::Running), (2, SessionState::Suspended)] {
        store.commit(&leases[0], revision, Commit { status: status(state, 2), ..Commit::default() }).await.unwrap();
    }
    assert_eq!(pages(&["a", "b"], None, 2).await, ["s1", "s2", "s3", "s4", "s6", "s0"]);
}

/// I3: a search is limited to agents and a user inside of the query, so that many matches in the sessions of others hide
/// nothing.
pub(super) async fn search_is_limited_to_sessions(test: TestStore) {
    let store = &test.store;
    let owned = |agent: &str, user: Option<&str>| SessionMeta { user: user.map(str::to_owned), ..meta(agent) };
    for (session, about) in
        [("mine", owned("a", Some("ann"))), ("nobody", owned("a", None)), ("other", owned("b", Some("bob")))]
    {
        let opened = store.open(session, OpenMode::CreateNew, about).await.unwrap();
        store.release(opened.lease).await.unwrap();
        let mut writer = SessionWriter::new(store, session).await;
        // The messages of the others match better, and there are more of them than a search ever returns.
        match session {
            "other" => writer.append_texts(&["walrus"; 1_100]).await,
            session => writer.append_texts(&[&format!("the walrus of {session} sleeps on the ice")]).await,
        }
        writer.release().await;
    }
    let found = async |agents: Option<&[&str]>, user: Option<&str>, unowned| {
        let agents = agents.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        let searched = SearchedSessions { agents, user: user.map(str::to_owned), unowned };
        let hits = store.search_messages_of(&searched, "walrus", 2_000).await.unwrap();
        let mut sessions: Vec<_> = hits.into_iter().map(|hit| hit.session).collect();
        sessions.sort_unstable();
        sessions.dedup();
        sessions
    };
    assert_eq!(found(Some(&["a"]), None, Unowned::Hidden).await, ["mine", "nobody"]);
    assert_eq!(found(None, Some("ann"), Unowned::Hidden).await, ["mine"]);
    assert_eq!(found(None, Some("ann"), Unowned::Shown).await, ["mine", "nobody"]);
    assert_eq!(found(Some(&["b"]), Some("ann"), Unowned::Hidden).await, Vec::<String>::new());
    assert_eq!(found(Some(&[]), None, Unowned::Hidden).await, Vec::<String>::new());
    assert_eq!(found(Some(&["a", "b"]), Some("bob"), Unowned::Hidden).await, ["other"]);
    let searched = SearchedSessions { user: Some("ann".to_owned()), ..SearchedSessions::default() };
    assert_eq!(store.search_messages_of(&searched, "walrus", 1).await.unwrap()[0].session, "mine");
}
