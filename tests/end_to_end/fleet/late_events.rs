//! Events whose commits become visible late (D6), with a real server.

use super::Fleet;
use super::nats::{begin, until};
use serde_json::json;
use std::path::Path;
use std::time::Duration;
use tokio_postgres::NoTls;

/// Time for which the commit is held up. The dispatcher has then read far beyond the number of its item, so that only a read
/// that looks far back finds the item.
const HELD: Duration = Duration::from_secs(5);

fn files_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    entries.map(|entry| std::fs::read_to_string(entry.expect("an entry").path()).expect("a file")).collect()
}

/// D6: an event is delivered although its commit became visible after many events with higher numbers had been delivered.
#[tokio::test(flavor = "multi_thread")]
async fn d6_an_event_is_delivered_although_its_commit_becomes_visible_late() {
    let outbox = "[outbox]\ndirectory = \"out\"\ncompletions = true\n";
    let Some(fleet) = Fleet::new(&[("clerk", outbox, json!([{"text": "One."}]))], 1) else { return };
    let out = fleet.folder.path().join("out");
    std::fs::create_dir(&out).expect("created");
    let server = fleet.start("serve", 0);
    let client = server.client();
    let first = begin(&client, "clerk").await;
    until("the first event is delivered", async || files_in(&out).len() == 1).await;

    let (mut database, connection) = tokio_postgres::connect(&fleet.address(), NoTls).await.expect("a connection");
    tokio::spawn(connection);
    let transaction = database.transaction().await.expect("begun");
    let copied = transaction
        .execute(
            "INSERT INTO outbox (session, id, number, kind, body, created)
             SELECT session, 'late', nextval('outbox_item_numbers'), kind, replace(body, id, 'late'), created
             FROM outbox WHERE session = $1 AND kind = 'event'",
            &[&first],
        )
        .await;
    assert_eq!(copied.expect("the event of the first turn is copied"), 1);
    for delivered in 2..4 {
        begin(&client, "clerk").await;
        until("events with higher numbers are delivered", async || files_in(&out).len() == delivered).await;
    }
    tokio::time::sleep(HELD).await;
    transaction.commit().await.expect("committed");
    until("the late event is delivered", async || files_in(&out).iter().any(|event| event.contains("\"late\""))).await;
    assert_eq!(files_in(&out).len(), 4);
}
