//! D6, limit 32: a session has one holder at a time, and only the holder of the session's lease can write to the
//! session.

use super::{SessionWriter, TestStore, meta};
use crate::{Commit, Lease, OpenMode, SessionFilter, StoreError};

/// Returns whether an operation on the session `s` was refused because this process has the session open.
fn is_open_in_this_process(result: Result<(), StoreError>) -> bool {
    matches!(result, Err(StoreError::Busy { session, holder }) if session == "s" && holder.is_this_process())
}

pub(super) async fn session_has_one_holder(test: TestStore) {
    let writer = SessionWriter::new(&test.store, "s").await;
    let second_open = test.store.open("s", OpenMode::Either, meta("tester")).await;
    assert!(is_open_in_this_process(second_open.map(drop)), "even the holder itself cannot open the session twice");
    assert!(is_open_in_this_process(test.store.delete("s").await.map(drop)));
    let open_in = async || test.store.sessions(SessionFilter::default(), 1).await.unwrap().remove(0).open_in;
    assert!(
        open_in().await.is_some_and(|holder| holder.is_this_process()),
        "the list of sessions contains the holder of each session"
    );
    let epoch = writer.opened.lease.epoch;
    writer.release().await;
    assert_eq!(open_in().await, None);
    let next = test.store.open("s", OpenMode::Existing, meta("tester")).await.unwrap();
    assert_eq!(next.lease.epoch, epoch + 1);
}

pub(super) async fn lost_lease_cannot_commit(test: TestStore) {
    let store = &test.store;
    let first = SessionWriter::new(store, "s").await.opened.lease;
    let lost = |epoch| Err(StoreError::LeaseLost { session: "s".to_owned(), epoch });
    store.release(first.clone()).await.unwrap();
    assert_eq!(store.commit(&first, 0, Commit::default()).await, lost(first.epoch), "a released lease is invalid");
    let second = SessionWriter::new(store, "s").await;
    assert_eq!(store.commit(&first, 0, Commit::default()).await, lost(first.epoch), "an old lease is invalid");
    store.release(first).await.expect("releasing a lost lease succeeds");
    let invented = Lease { session: "s".to_owned(), epoch: second.opened.lease.epoch + 1 };
    assert_eq!(store.commit(&invented, 0, Commit::default()).await, lost(invented.epoch));
    assert_eq!(store.commit(&second.opened.lease, 0, Commit::default()).await, Ok(1), "the holder can still commit");
}

pub(super) async fn second_instance_opens_after_release(test: TestStore) {
    let Some(second) = &test.second else { return };
    let mut writer = SessionWriter::new(&test.store, "s").await;
    writer.append_texts(&["mine"]).await;
    let opened = second.open("s", OpenMode::Existing, meta("tester")).await;
    assert!(is_open_in_this_process(opened.map(drop)));
    assert!(is_open_in_this_process(second.delete("s").await.map(drop)));
    let foreign_commit = second.commit(&writer.opened.lease, 1, Commit::default()).await;
    assert_eq!(
        foreign_commit,
        Err(StoreError::LeaseLost { session: "s".to_owned(), epoch: writer.opened.lease.epoch })
    );

    let old_lease = writer.opened.lease.clone();
    writer.release().await;
    let mut new_writer = SessionWriter::new(second, "s").await;
    assert_eq!((new_writer.revision, new_writer.messages), (1, 1));
    new_writer.append_texts(&["theirs"]).await;
    let late_commit = test.store.commit(&old_lease, 2, Commit::default()).await;
    assert_eq!(late_commit, Err(StoreError::LeaseLost { session: "s".to_owned(), epoch: old_lease.epoch }));
}
