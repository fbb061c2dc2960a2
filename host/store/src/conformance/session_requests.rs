//! Requests to sessions that another process has open (F2).

use super::{TestStore, commit_of, meta};
use crate::{
    Commit, LISTED_PER_SESSION, Lease, MAX_REQUESTS, MAX_SESSION_REQUESTS, OpenMode, RequestAnswer, RequestKey,
    RequestState, SMALL_REQUEST_BYTES, SessionMeta, Store, StoreError,
};
use agent_core::change::Change;
use std::sync::Arc;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

fn key(session: &str, id: &str) -> RequestKey {
    RequestKey { session: session.to_owned(), id: id.to_owned() }
}

async fn pending(store: &Arc<dyn Store>, limit: usize) -> Vec<RequestKey> {
    let pending = store.pending_requests(&["tester".to_owned()], limit).await.unwrap();
    pending.into_iter().map(|stored| stored.key).collect()
}

async fn claim(store: &Arc<dyn Store>, key: &RequestKey) -> Option<String> {
    store.claim_request(key).await.unwrap().map(|claimed| claimed.content)
}

/// F2: only the store that has the session open handles a request, and the sender reads the answer.
pub(super) async fn requests_reach_the_owner_of_the_session(TestStore { store, second: other }: TestStore) {
    let opened = store.open("tester/1", OpenMode::CreateNew, meta("tester")).await.unwrap();
    let (first, second) = (key("tester/1", "one \0"), key("tester/1", "two"));
    let missing = store.post_request(&key("tester/missing", "one"), "{}", MINUTE).await;
    assert_eq!(missing, Err(StoreError::NoSession { session: "tester/missing".to_owned() }));

    let sender = other.as_ref().unwrap_or(&store);
    sender.post_request(&first, "the content \0", MINUTE).await.unwrap();
    sender.post_request(&first, "another content", MINUTE).await.unwrap();
    sender.post_request(&second, "2", MINUTE).await.unwrap();
    assert_eq!(sender.request_state(&first).await, Ok(RequestState::Waiting));
    assert_eq!(pending(&store, 10).await, vec![first.clone(), second.clone()]);
    let listed = store.pending_requests(&["tester".to_owned()], 1).await.unwrap().remove(0);
    assert_eq!((&*listed.agent, listed.user.as_deref(), listed.bytes >= 12), ("tester", Some("somebody"), true));
    assert_eq!(pending(&store, 1).await, vec![first.clone()]);
    assert_eq!(store.pending_requests(&["other".to_owned()], 10).await, Ok(Vec::new()));
    if let Some(other) = &other {
        assert_eq!(pending(other, 10).await, Vec::new(), "the session is open elsewhere");
        assert_eq!(claim(other, &first).await, None);
    }

    assert_eq!(claim(&store, &first).await, Some("the content \0".to_owned()));
    assert_eq!(sender.request_state(&first).await, Ok(RequestState::Claimed));
    assert_eq!(sender.withdraw_request(&first).await, Ok(RequestState::Claimed), "it may have been handled");
    assert_eq!(sender.withdraw_request(&second).await, Ok(RequestState::Waiting));
    assert_eq!(claim(&store, &second).await, None, "it was withdrawn");
    store.answer_request(&second, "nobody waits").await.unwrap();
    assert_eq!(sender.request_state(&second).await, Ok(RequestState::Gone));
    store.answer_request(&first, "the answer \0").await.unwrap();
    store.answer_request(&first, "an answer that comes too late").await.unwrap();
    assert_eq!(claim(&store, &first).await, None, "it has an answer");
    assert_eq!(pending(&store, 10).await, Vec::new());
    assert_eq!(sender.request_state(&first).await, Ok(RequestState::Answered("the answer \0".to_owned())));
    assert_eq!(sender.withdraw_request(&first).await, Ok(RequestState::Answered("the answer \0".to_owned())));
    assert_eq!(sender.request_state(&first).await, Ok(RequestState::Gone));
    store.release(opened.lease).await.unwrap();
}

/// F2: a request whose process has stopped is found by the next process, unless the commit that carries it out was stored.
pub(super) async fn a_commit_answers_a_request(TestStore { store, second: other }: TestStore) {
    let opened = store.open("tester/1", OpenMode::CreateNew, meta("tester")).await.unwrap();
    let (committed, lost, expired) =
        (key("tester/1", "committed"), key("tester/1", "lost"), key("tester/1", "expired"));
    for request in [&committed, &lost] {
        store.post_request(request, "{}", MINUTE).await.unwrap();
        assert!(store.claim_request(request).await.unwrap().is_some());
    }
    store.post_request(&expired, "{}", Duration::ZERO).await.unwrap();
    let answer = |content: &str| Some(RequestAnswer { id: "committed".to_owned(), content: content.to_owned() });
    let refused = Commit { answer: answer("refused"), ..commit_of(Change::default()) };
    store.commit(&opened.lease, 7, refused).await.expect_err("a wrong revision");
    assert_eq!(store.request_state(&committed).await, Ok(RequestState::Claimed), "nothing of the commit is stored");
    let commit = Commit { answer: answer("done"), ..commit_of(Change::default()) };
    store.commit(&opened.lease, 0, commit).await.unwrap();
    store.release(opened.lease).await.unwrap();

    let next = other.as_ref().unwrap_or(&store);
    assert_eq!(pending(next, 10).await, vec![lost.clone()], "nobody has the session open");
    assert_eq!(claim(next, &lost).await, None, "the session must be opened before");
    let opened = next.open("tester/1", OpenMode::Existing, meta("tester")).await.unwrap();
    assert_eq!(claim(next, &lost).await, Some("{}".to_owned()));
    assert_eq!(claim(next, &expired).await, None);
    assert_eq!(next.request_state(&committed).await, Ok(RequestState::Answered("done".to_owned())));
    next.answer_request(&committed, "a failure afterwards").await.unwrap();
    let late = Commit { answer: answer("done again"), ..commit_of(Change::default()) };
    next.commit(&opened.lease, 1, late).await.unwrap();
    let kept = next.request_state(&committed).await;
    assert_eq!(kept, Ok(RequestState::Answered("done".to_owned())), "an answer never replaces an answer");
    next.release(opened.lease).await.unwrap();
    next.delete("tester/1").await.unwrap();
    assert_eq!(next.request_state(&lost).await, Ok(RequestState::Gone));
}

fn assert_full(refused: Result<(), StoreError>, whose: &str) {
    assert!(
        matches!(&refused, Err(StoreError::RequestsFull { whose: found, .. }) if found.contains(whose)),
        "{refused:?}"
    );
}

/// F2: the requests to a session have limits in number and in bytes, and an answer makes room for others.
pub(super) async fn requests_to_a_session_are_bounded(TestStore { store, .. }: TestStore) {
    let opened = store.open("tester/1", OpenMode::CreateNew, meta("tester")).await.unwrap();
    store.release(store.open("tester/2", OpenMode::CreateNew, meta("tester")).await.unwrap().lease).await.unwrap();
    let id = |number: u64| key("tester/1", &number.to_string());
    for number in 0..MAX_SESSION_REQUESTS {
        store.post_request(&id(number), "{}", MINUTE).await.unwrap();
    }
    assert_full(store.post_request(&key("tester/1", "more"), "{}", MINUTE).await, "tester/1");
    store.post_request(&id(3), "{}", MINUTE).await.expect("it is stored already");
    store.post_request(&key("tester/2", "other"), "{}", MINUTE).await.expect("another session has room");
    store.remove_request(&id(1)).await.unwrap();
    assert_eq!(store.request_state(&id(1)).await, Ok(RequestState::Gone));
    store.post_request(&key("tester/1", "next"), "{}", MINUTE).await.expect("a removed request makes room");
    assert!(claim(&store, &id(2)).await.is_some());
    assert_full(store.post_request(&key("tester/1", "more"), "{}", MINUTE).await, "tester/1");
    store.answer_request(&id(2), "{}").await.unwrap();
    store.post_request(&key("tester/1", "more"), "{}", MINUTE).await.expect("an answer makes room");
    assert!(claim(&store, &id(3)).await.is_some());
    store.remove_request(&id(3)).await.unwrap();
    assert_eq!(store.request_state(&id(3)).await, Ok(RequestState::Gone), "nobody waits for it");

    let large = "x".repeat(40 << 20);
    let size = |number: u64| key("tester/2", &format!("large {number}"));
    store.post_request(&size(1), &large, MINUTE).await.unwrap();
    store.post_request(&size(2), &large, MINUTE).await.unwrap();
    assert_full(store.post_request(&size(3), &large, MINUTE).await, "tester/2");
    let small = "x".repeat(SMALL_REQUEST_BYTES);
    store.post_request(&key("tester/2", "small"), &small, MINUTE).await.expect("small requests have room");
    let opened_2 = store.open("tester/2", OpenMode::Existing, meta("tester")).await.unwrap();
    assert!(claim(&store, &size(1)).await.is_some());
    store.answer_request(&size(1), "{}").await.unwrap();
    store.post_request(&size(3), &large, MINUTE).await.expect("the content is removed with the answer");
    store.release(opened.lease).await.unwrap();
    store.release(opened_2.lease).await.unwrap();
}

/// F2: all requests together have a limit, and those that nobody has begun to handle are deleted when they expire.
pub(super) async fn all_requests_are_bounded(TestStore { store, .. }: TestStore) {
    let sessions = MAX_REQUESTS / MAX_SESSION_REQUESTS;
    for number in 0..=sessions {
        let opened = store.open(&format!("tester/{number}"), OpenMode::CreateNew, meta("tester")).await.unwrap();
        store.release(opened.lease).await.unwrap();
    }
    for number in 0..MAX_REQUESTS {
        let request = key(&format!("tester/{}", number % sessions), &number.to_string());
        let valid_for = if number == 7 { Duration::from_secs(30) } else { Duration::from_secs(3_600) };
        store.post_request(&request, "{}", valid_for).await.unwrap();
    }
    let last = key(&format!("tester/{sessions}"), "last");
    assert_full(store.post_request(&last, "{}", MINUTE).await, "the database");
    store.remove_request(&key("tester/7", "7")).await.unwrap();
    store.post_request(&last, "{}", Duration::ZERO).await.expect("there is room again");
    store.post_request(&key(&last.session, "after"), "{}", MINUTE).await.expect("the expired request is deleted");
    assert_eq!(store.request_state(&last).await, Ok(RequestState::Gone));
}

/// F2: the requests to one session, or of one user, do not hide those of others.
pub(super) async fn pending_requests_are_shared_out(TestStore { store, .. }: TestStore) {
    let mut leases = Vec::new();
    for (session, user) in [("tester/1", "ann"), ("tester/2", "ann"), ("tester/3", "bob")] {
        let owned = SessionMeta { user: Some(user.to_owned()), ..meta("tester") };
        leases.push(store.open(session, OpenMode::CreateNew, owned).await.unwrap().lease);
    }
    for number in 0..MAX_SESSION_REQUESTS {
        store.post_request(&key("tester/1", &format!("{number:03}")), "{}", MINUTE).await.unwrap();
    }
    let (second, third) = (key("tester/2", "second"), key("tester/3", "third"));
    store.post_request(&second, "{}", MINUTE).await.unwrap();
    store.post_request(&third, "{}", MINUTE).await.unwrap();
    let all = pending(&store, 100).await;
    assert_eq!(all.len(), LISTED_PER_SESSION + 2);
    assert!(all.contains(&second), "{all:?}");
    assert_eq!(pending(&store, 2).await, vec![key("tester/1", "000"), third]);
    for lease in leases {
        store.release(lease).await.unwrap();
    }
}

/// F1: a lease is lost as soon as the session is released or opened again.
pub(super) async fn lost_leases_are_found(TestStore { store, .. }: TestStore) {
    let first = store.open("tester/1", OpenMode::CreateNew, meta("tester")).await.unwrap().lease;
    let second = store.open("tester/2", OpenMode::CreateNew, meta("tester")).await.unwrap().lease;
    let unknown = Lease { session: "tester/3".to_owned(), epoch: 1 };
    let leases = [first.clone(), unknown.clone(), second.clone()];
    assert_eq!(store.lost_leases(&leases).await, Ok(vec![unknown.clone()]));
    store.release(second.clone()).await.unwrap();
    assert_eq!(store.lost_leases(&leases).await, Ok(vec![unknown, second]));
    store.release(first.clone()).await.unwrap();
    let again = store.open("tester/1", OpenMode::Existing, meta("tester")).await.unwrap().lease;
    assert_eq!(store.lost_leases(&[first.clone(), again]).await, Ok(vec![first]));
    assert_eq!(store.lost_leases(&[]).await, Ok(Vec::new()));
}
