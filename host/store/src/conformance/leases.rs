//! D6, limit 32: one holder at a time, and nobody writes without the lease.

use super::{Place, Writing, meta};
use crate::{Commit, Lease, OpenMode, SessionFilter, StoreError};

pub(super) async fn a_session_has_one_holder(place: Place) {
    let writing = Writing::new(&place.store, "s").await;
    let busy = StoreError::Busy { session: "s".to_owned(), holder: std::process::id() };
    let again = place.store.open("s", OpenMode::Either, meta("tester")).await;
    assert_eq!(again, Err(busy.clone()), "not even the holder itself opens it twice");
    assert_eq!(place.store.delete("s").await, Err(busy));
    let open_in = async || place.store.sessions(SessionFilter::default(), 1).await.unwrap()[0].open_in;
    assert_eq!(open_in().await, Some(std::process::id()), "lists say who has it open");
    let epoch = writing.opened.lease.epoch;
    writing.done().await;
    assert_eq!(open_in().await, None);
    let next = place.store.open("s", OpenMode::Existing, meta("tester")).await.unwrap();
    assert_eq!(next.lease.epoch, epoch + 1);
}

pub(super) async fn a_lost_lease_cannot_write(place: Place) {
    let store = &place.store;
    let first = Writing::new(store, "s").await.opened.lease;
    let lost = |epoch| Err(StoreError::LeaseLost { session: "s".to_owned(), epoch });
    store.release(first.clone()).await.unwrap();
    assert_eq!(store.commit(&first, 0, Commit::default()).await, lost(first.epoch), "released");
    let second = Writing::new(store, "s").await;
    assert_eq!(store.commit(&first, 0, Commit::default()).await, lost(first.epoch), "taken over");
    store.release(first).await.expect("a lost lease needs no release");
    let invented = Lease { session: "s".to_owned(), epoch: second.opened.lease.epoch + 1 };
    assert_eq!(store.commit(&invented, 0, Commit::default()).await, lost(invented.epoch));
    assert_eq!(store.commit(&second.opened.lease, 0, Commit::default()).await, Ok(1), "the holder is not disturbed");
}

pub(super) async fn another_instance_waits_for_the_release(place: Place) {
    let Some(another) = &place.another else { return };
    let mut writing = Writing::new(&place.store, "s").await;
    writing.say(&["mine"]).await;
    let busy = StoreError::Busy { session: "s".to_owned(), holder: std::process::id() };
    assert_eq!(another.open("s", OpenMode::Existing, meta("tester")).await, Err(busy.clone()));
    assert_eq!(another.delete("s").await, Err(busy));
    let stolen = another.commit(&writing.opened.lease, 1, Commit::default()).await;
    assert_eq!(stolen, Err(StoreError::LeaseLost { session: "s".to_owned(), epoch: writing.opened.lease.epoch }));

    let old = writing.opened.lease.clone();
    writing.done().await;
    let mut theirs = Writing::new(another, "s").await;
    assert_eq!((theirs.revision, theirs.messages), (1, 1));
    theirs.say(&["theirs"]).await;
    let late = place.store.commit(&old, 2, Commit::default()).await;
    assert_eq!(late, Err(StoreError::LeaseLost { session: "s".to_owned(), epoch: old.epoch }));
}
