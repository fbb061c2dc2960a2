//! The conformance suite that every store passes (D6).

use super::clients::{database_of, open_store};
use super::server::shared;
use agent_store::conformance::{TestStore, run};
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::task::block_in_place;

#[tokio::test(flavor = "multi_thread")]
async fn f1_postgres_conforms() {
    let Some(server) = shared() else { return };
    // Copying the tables is faster than creating them for each case.
    let template = server.new_database().await;
    drop(open_store(&template).await.unwrap());
    let (mut count, mut previous) = (0, None::<String>);
    run(|| {
        count += 1;
        block_in_place(|| {
            Handle::current().block_on(async {
                // A database needs 8 MB, so only the database of the last case is kept.
                if let Some(previous) = previous.take() {
                    server.execute("postgres", &format!("DROP DATABASE {previous} WITH (FORCE)")).await;
                }
                let address = server.copy_of(database_of(&template)).await;
                let store = Arc::new(open_store(&address).await.unwrap());
                previous = Some(database_of(&address).to_owned());
                let second = Arc::new(open_store(&address).await.unwrap());
                TestStore { store, second: Some(second) }
            })
        })
    })
    .await;
    assert!(count > 30);
}
