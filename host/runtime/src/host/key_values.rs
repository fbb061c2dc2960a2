//! Implements the key-value port, with which plugins read and write values, on top of the store.

use agent_plugins::{KeyValueBucket, KeyValuePort, PortError, SwapOutcome};
use agent_store::{Bucket, KeyValue, Store, StoreError, Swap};
use async_trait::async_trait;
use std::sync::Arc;

/// Keeps the key-value data of plugins in the store. For each agent, a plugin sees only the values that it has stored
/// for this agent.
pub struct StoredValues(pub Arc<dyn Store>);

#[async_trait]
impl KeyValuePort for StoredValues {
    async fn get(&self, space: &KeyValueBucket, key: &str) -> Result<Option<Vec<u8>>, PortError> {
        KeyValue::get(&*self.0, &bucket(space), key).await.map_err(port_error)
    }

    async fn set(&self, space: &KeyValueBucket, key: &str, value: Vec<u8>) -> Result<(), PortError> {
        self.0.set(&bucket(space), key, value).await.map_err(port_error)
    }

    async fn delete(&self, space: &KeyValueBucket, key: &str) -> Result<(), PortError> {
        self.0.delete_key(&bucket(space), key).await.map_err(port_error)
    }

    async fn exists(&self, space: &KeyValueBucket, key: &str) -> Result<bool, PortError> {
        self.0.exists(&bucket(space), key).await.map_err(port_error)
    }

    async fn keys(&self, space: &KeyValueBucket, after: &str, limit: usize) -> Result<Vec<String>, PortError> {
        self.0.keys(&bucket(space), after, limit).await.map_err(port_error)
    }

    async fn increment(&self, space: &KeyValueBucket, key: &str, delta: i64) -> Result<i64, PortError> {
        self.0.increment(&bucket(space), key, delta).await.map_err(port_error)
    }

    async fn swap(
        &self,
        space: &KeyValueBucket,
        key: &str,
        expected: Option<Vec<u8>>,
        value: Vec<u8>,
    ) -> Result<SwapOutcome, PortError> {
        let swap = self.0.compare_and_swap(&bucket(space), key, expected, value).await.map_err(port_error)?;
        Ok(match swap {
            Swap::Done => SwapOutcome::Done,
            Swap::Other(value) => SwapOutcome::Other(value),
        })
    }
}

fn bucket(space: &KeyValueBucket) -> Bucket {
    let KeyValueBucket { agent, plugin, bucket, quota } = space;
    Bucket { agent: agent.clone(), plugin: plugin.clone(), name: bucket.clone(), quota: *quota }
}

fn port_error(error: StoreError) -> PortError {
    match error {
        StoreError::TooLarge { .. } | StoreError::Invalid { .. } => PortError::Refused(error.to_string()),
        _ => PortError::Failed(error.to_string()),
    }
}
