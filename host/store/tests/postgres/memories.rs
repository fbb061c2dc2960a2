//! Memories that are delivered while their session commits (D5).

use super::clients::{database_of, open_store};
use super::open;
use super::server::shared;
use agent_core::change::{Change, OutboxEffect, OutboxItem};
use agent_core::memory::{Memory, MemoryKind};
use agent_store::{Commit, Memories, Outbox, OutboxFilter, SessionLog};
use std::sync::Arc;
use std::time::Duration;

/// D5: a delivery waits for a running commit of the session, because this commit may undo the turn of the memory.
#[tokio::test(flavor = "multi_thread")]
async fn d5_a_memory_is_not_added_during_the_commit_that_undoes_its_turn() {
    let Some(server) = shared() else { return };
    let address = server.new_database().await;
    let store = Arc::new(open_store(&address).await.unwrap());
    let opened = open(&store, "s").await;
    let memory = Memory {
        user: "ann".to_owned(),
        kind: MemoryKind::Final,
        agent: "a".to_owned(),
        session: "s".to_owned(),
        turn: 1,
        text: "a walrus".to_owned(),
        project: None,
        written: None,
    };
    let effect = OutboxEffect::Remember { id: "s/1".to_owned(), memory };
    let change = Change { outbox: vec![OutboxItem { id: "1/final".to_owned(), effect }], ..Change::default() };
    store.commit(&opened.lease, 0, Commit { change, ..Commit::default() }).await.unwrap();
    let item = store.outbox(Some("s"), OutboxFilter::Pending, 0, 1).await.unwrap().remove(0);

    // The statements of a commit, which ends later.
    let client = server.client(database_of(&address)).await;
    let commit = "BEGIN; UPDATE sessions SET revision = revision + 1 WHERE session = 's'; \
                  INSERT INTO outbox (session, id, number, kind, body, created) \
                  VALUES ('s', 'undo/1', 1000, 'forget', '{\"turn\":1}', 0)";
    client.batch_execute(commit).await.unwrap();
    let delivery = tokio::spawn({
        let store = store.clone();
        async move { store.remember(&item).await }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!delivery.is_finished(), "the delivery waits for the commit");
    client.batch_execute("COMMIT").await.unwrap();
    delivery.await.unwrap().unwrap();
    assert_eq!(store.list("ann", "", 9).await.unwrap(), []);
    let pending = store.outbox(Some("s"), OutboxFilter::Pending, 0, 9).await.unwrap();
    assert_eq!(pending.iter().map(|item| item.item.id.as_str()).collect::<Vec<_>>(), ["undo/1"]);
}
