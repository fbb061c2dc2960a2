//! Memories that are delivered while their session commits (D5).

use super::clients::{database_of, open_store};
use super::open;
use super::server::shared;
use agent_core::change::{Change, OutboxEffect, OutboxItem};
use agent_core::memory::{Memory, MemoryKind};
use agent_store::{Commit, Memories, Outbox, OutboxFilter, PostgresStore, SessionLog, StoreError, StoredOutboxItem};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_postgres::Client;

/// A session with a memory of its first turn that is not delivered yet.
struct UndeliveredMemory {
    store: Arc<PostgresStore>,
    item: StoredOutboxItem,
    /// A client that runs the statements of another process.
    other: Client,
}

impl UndeliveredMemory {
    async fn new() -> Option<Self> {
        let server = shared()?;
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
        let other = server.client(database_of(&address)).await;
        Some(Self { store, item, other })
    }

    /// Delivers the memory in a task.
    fn deliver(&self) -> JoinHandle<Result<(), StoreError>> {
        let (store, item) = (self.store.clone(), self.item.clone());
        tokio::spawn(async move { store.remember(&item).await })
    }

    async fn memories(&self) -> usize {
        self.store.list("ann", "", 9).await.unwrap().len()
    }
}

/// The statement of a commit that undoes the first turn.
const UNDO: &str = "INSERT INTO outbox (session, id, number, kind, body, created) \
                    VALUES ('s', 'undo/1', 1000, 'forget', '{\"turn\":1}', 0)";

/// Time after which an operation that does not wait would have ended.
const LONG_ENOUGH: Duration = Duration::from_millis(300);

/// D5: a delivery and a commit of the session do not wait for each other. If the commit undoes the turn of the memory, the memory
/// is removed when the item of the commit is delivered.
#[tokio::test(flavor = "multi_thread")]
async fn d5_deliveries_do_not_wait_for_commits() {
    let Some(case) = UndeliveredMemory::new().await else { return };
    let commit = format!("BEGIN; UPDATE sessions SET revision = revision + 1 WHERE session = 's'; {UNDO}");
    case.other.batch_execute(&commit).await.unwrap();
    case.store.remember(&case.item).await.unwrap();
    case.other.batch_execute("COMMIT").await.unwrap();
    assert_eq!(case.memories().await, 1);
    assert_eq!(case.store.forget_turn("s", 1).await, Ok(1));
    assert_eq!(case.memories().await, 0);
}

/// D5: forgetting a turn waits for a delivery that has begun, and removes its memory.
#[tokio::test(flavor = "multi_thread")]
async fn d5_forgetting_waits_for_deliveries_that_have_begun() {
    let Some(case) = UndeliveredMemory::new().await else { return };
    let delivery = "BEGIN; SELECT 1 FROM sessions WHERE session = 's' FOR KEY SHARE; \
                    INSERT INTO memories (id, user_name, kind, session, text, written, agent, turn, length, words, counts) \
                    VALUES ('s/1', 'ann', 'final', 's', 'a walrus', 1, 'a', 1, 1, '{walrus}', '{1}')";
    case.other.batch_execute(delivery).await.unwrap();
    let store = case.store.clone();
    let forgetting = tokio::spawn(async move { store.forget_turn("s", 1).await });
    tokio::time::sleep(LONG_ENOUGH).await;
    assert!(!forgetting.is_finished(), "forgetting waits for the delivery");
    case.other.batch_execute("COMMIT").await.unwrap();
    assert_eq!(forgetting.await.unwrap(), Ok(1));
    assert_eq!(case.memories().await, 0);
}

/// D5: a delivery that begins while its turn is forgotten waits, and adds nothing.
#[tokio::test(flavor = "multi_thread")]
async fn d5_a_delivery_adds_no_memory_of_a_turn_that_is_forgotten() {
    let Some(case) = UndeliveredMemory::new().await else { return };
    case.other.batch_execute(UNDO).await.unwrap();
    let forgetting = "BEGIN; SELECT 1 FROM sessions WHERE session = 's' FOR UPDATE; \
                      DELETE FROM memories WHERE session = 's' AND turn = 1";
    case.other.batch_execute(forgetting).await.unwrap();
    let delivery = case.deliver();
    tokio::time::sleep(LONG_ENOUGH).await;
    assert!(!delivery.is_finished(), "the delivery waits for the end of the forgetting");
    case.other.batch_execute("COMMIT").await.unwrap();
    delivery.await.unwrap().unwrap();
    assert_eq!(case.memories().await, 0);
    let pending = case.store.outbox(Some("s"), OutboxFilter::Pending, 0, 9).await.unwrap();
    assert_eq!(pending.iter().map(|item| item.item.id.as_str()).collect::<Vec<_>>(), ["undo/1"]);
}
