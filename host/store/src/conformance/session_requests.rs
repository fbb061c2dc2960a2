//! Requests to sessions that another process has open (F2).

use super::{TestStore, commit_of, meta};
use crate::{Commit, Lease, OpenMode, RequestAnswer, RequestKey, RequestState, StoreError};
use agent_core::change::Change;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

fn key(session: &str, id: &str) -> RequestKey {
    RequestKey { session: session.to_owned(), id: id.to_owned() }
}

/// F2: only the store that has the session open handles a request, and the sender reads the answer.
pub(super) async fn requests_reach_the_owner_of_the_session(TestStore { store, second: other }: TestStore) {
    let agents = ["tester".to_owned()];
    let opened = store.open("tester/1", OpenMode::CreateNew, meta("tester")).await.unwrap();
    let (first, second) = (key("tester/1", "one \0"), key("tester/1", "two"));
    let missing = store.post_request(&key("tester/missing", "one"), "{}", MINUTE).await;
    assert_eq!(missing, Err(StoreError::NoSession { session: "tester/missing".to_owned() }));

    let sender = other.as_ref().unwrap_or(&store);
    sender.post_request(&first, "the content \0", MINUTE).await.unwrap();
    sender.post_request(&first, "another content", MINUTE).await.unwrap();
    sender.post_request(&second, "2", MINUTE).await.unwrap();
    assert_eq!(sender.request_state(&first).await, Ok(RequestState::Waiting));
    assert_eq!(store.pending_requests(&agents, 10).await, Ok(vec![first.clone(), second.clone()]));
    assert_eq!(store.pending_requests(&agents, 1).await, Ok(vec![first.clone()]));
    assert_eq!(store.pending_requests(&["other".to_owned()], 10).await, Ok(Vec::new()));
    if let Some(other) = &other {
        assert_eq!(other.pending_requests(&agents, 10).await, Ok(Vec::new()), "the session is open elsewhere");
        assert_eq!(other.claim_request(&first).await, Ok(None));
    }

    assert_eq!(store.claim_request(&first).await, Ok(Some("the content \0".to_owned())));
    assert_eq!(sender.request_state(&first).await, Ok(RequestState::Claimed));
    assert_eq!(sender.withdraw_request(&first).await, Ok(RequestState::Claimed), "it may have been handled");
    assert_eq!(sender.withdraw_request(&second).await, Ok(RequestState::Waiting));
    assert_eq!(store.claim_request(&second).await, Ok(None), "it was withdrawn");
    store.answer_request(&second, "nobody waits").await.unwrap();
    assert_eq!(sender.request_state(&second).await, Ok(RequestState::Gone));
    store.answer_request(&first, "the answer \0").await.unwrap();
    assert_eq!(store.claim_request(&first).await, Ok(None), "it has an answer");
    assert_eq!(store.pending_requests(&agents, 10).await, Ok(Vec::new()));
    assert_eq!(sender.request_state(&first).await, Ok(RequestState::Answered("the answer \0".to_owned())));
    assert_eq!(sender.withdraw_request(&first).await, Ok(RequestState::Answered("the answer \0".to_owned())));
    assert_eq!(sender.request_state(&first).await, Ok(RequestState::Gone));
    store.release(opened.lease).await.unwrap();
}

/// F2: a request whose process has stopped is found by the next process, unless the commit that carries it out was stored.
pub(super) async fn a_commit_answers_a_request(TestStore { store, second: other }: TestStore) {
    let agents = ["tester".to_owned()];
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
    assert_eq!(next.pending_requests(&agents, 10).await, Ok(vec![lost.clone()]), "nobody has the session open");
    assert_eq!(next.claim_request(&lost).await, Ok(None), "the session must be opened before");
    let opened = next.open("tester/1", OpenMode::Existing, meta("tester")).await.unwrap();
    assert_eq!(next.claim_request(&lost).await, Ok(Some("{}".to_owned())));
    assert_eq!(next.claim_request(&expired).await, Ok(None));
    assert_eq!(next.request_state(&committed).await, Ok(RequestState::Answered("done".to_owned())));
    next.release(opened.lease).await.unwrap();
    next.delete("tester/1").await.unwrap();
    assert_eq!(next.request_state(&lost).await, Ok(RequestState::Gone));
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
