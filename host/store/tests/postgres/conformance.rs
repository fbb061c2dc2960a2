//! The conformance suite that every store passes (D6).

use super::clients::{database_of, open_store, parsed};
use super::s3::s3;
use super::server::{Server, shared};
use agent_store::conformance::{TestStore, run};
use agent_store::{ObjectStoreAddress, PostgresOptions, PostgresStore};
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::task::block_in_place;

#[tokio::test(flavor = "multi_thread")]
async fn f1_postgres_conforms() {
    let Some(server) = shared() else { return };
    conforms(server, None).await;
}

/// F1: the whole suite passes with every blob in an object store.
#[tokio::test(flavor = "multi_thread")]
async fn f1_postgres_with_object_store_conforms() {
    let (Some(server), Some(s3)) = (shared(), s3()) else { return };
    let bucket = s3.new_bucket();
    conforms(server, Some(s3.address(&bucket))).await;
    assert!(s3.keys(&bucket).len() > 10, "the suite wrote objects");
}

async fn conforms(server: &Server, object_store: Option<ObjectStoreAddress>) {
    // Copying the tables is faster than creating them for each case.
    let template = server.new_database().await;
    drop(open_store(&template).await.unwrap());
    let options = PostgresOptions { connections: 4, object_store, smallest_object: 1, ..PostgresOptions::default() };
    let open = async |address: &str| Arc::new(PostgresStore::open(parsed(address), options.clone()).await.unwrap());
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
                let store = open(&address).await;
                previous = Some(database_of(&address).to_owned());
                TestStore { store, second: Some(open(&address).await) }
            })
        })
    })
    .await;
    assert!(count > 30);
}
