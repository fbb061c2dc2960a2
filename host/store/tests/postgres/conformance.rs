//! The conformance suite that every store passes (D6).

use super::server::{open_store, shared};
use agent_store::conformance::{TestStore, run};
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::task::block_in_place;

#[tokio::test(flavor = "multi_thread")]
async fn f1_postgres_conforms() {
    let Some(server) = shared() else { return };
    let mut count = 0;
    run(|| {
        count += 1;
        block_in_place(|| {
            Handle::current().block_on(async {
                let address = server.new_database().await;
                let store = Arc::new(open_store(&address).await.unwrap());
                let second = Arc::new(open_store(&address).await.unwrap());
                TestStore { store, second: Some(second) }
            })
        })
    })
    .await;
    assert!(count > 30);
}
