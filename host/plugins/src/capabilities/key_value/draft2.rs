//! The host functions of `wasi:keyvalue@0.2.0-draft2`.

use super::bindings::wasi::keyvalue0_2_0_draft2::{atomics, batch, store};
use super::{CasValue, KeyValueView, OpenBucket, Outcome, Problem};
use crate::limits::{CAS_VALUES, KEYS_PER_PAGE};
use crate::ports::key_value::SwapOutcome;
use wasmtime::component::Resource;

type Answer<T> = wasmtime::Result<Result<T, store::Error>>;

impl store::Host for KeyValueView<'_> {
    async fn open(&mut self, identifier: String) -> Answer<Resource<OpenBucket>> {
        answer(self.open_bucket(identifier))
    }
}

impl store::HostBucket for KeyValueView<'_> {
    async fn get(&mut self, bucket: Resource<OpenBucket>, key: String) -> Answer<Option<Vec<u8>>> {
        let values = self.values(&bucket)?;
        answer(Ok(values.get(&key).await))
    }

    async fn set(&mut self, bucket: Resource<OpenBucket>, key: String, value: Vec<u8>) -> Answer<()> {
        let values = self.values(&bucket)?;
        answer(Ok(values.set(&key, value).await))
    }

    async fn delete(&mut self, bucket: Resource<OpenBucket>, key: String) -> Answer<()> {
        let values = self.values(&bucket)?;
        answer(Ok(values.delete(&key).await))
    }

    async fn exists(&mut self, bucket: Resource<OpenBucket>, key: String) -> Answer<bool> {
        let values = self.values(&bucket)?;
        answer(Ok(values.has(&key).await))
    }

    async fn list_keys(&mut self, bucket: Resource<OpenBucket>, cursor: Option<String>) -> Answer<store::KeyResponse> {
        let values = self.values(&bucket)?;
        let keys = values.page_of_keys(&cursor.unwrap_or_default()).await;
        answer(Ok(keys.map(|keys| {
            let cursor = keys.last().filter(|_| keys.len() == KEYS_PER_PAGE).cloned();
            store::KeyResponse { keys, cursor }
        })))
    }

    async fn drop(&mut self, bucket: Resource<OpenBucket>) -> wasmtime::Result<()> {
        self.table.delete(bucket)?;
        Ok(())
    }
}

impl atomics::Host for KeyValueView<'_> {
    async fn increment(&mut self, bucket: Resource<OpenBucket>, key: String, delta: i64) -> Answer<i64> {
        let values = self.values(&bucket)?;
        answer(Ok(values.add(&key, delta).await))
    }

    async fn swap(
        &mut self,
        seen: Resource<CasValue>,
        value: Vec<u8>,
    ) -> wasmtime::Result<Result<(), atomics::CasError>> {
        let seen = self.table.delete(seen)?;
        self.state.cas_values -= 1;
        let CasValue { values, key, value: before } = seen;
        match values.swap(&key, before, value).await {
            Ok(SwapOutcome::Done) => Ok(Ok(())),
            Ok(SwapOutcome::Other(value)) => {
                self.state.cas_values += 1;
                let seen = self.push(CasValue { values, key, value })?;
                Ok(Err(atomics::CasError::CasFailed(seen)))
            }
            Err(problem) => Ok(Err(atomics::CasError::StoreError(problem.into()))),
        }
    }
}

impl atomics::HostCas for KeyValueView<'_> {
    async fn new(&mut self, bucket: Resource<OpenBucket>, key: String) -> Answer<Resource<CasValue>> {
        let values = self.values(&bucket)?;
        if self.state.cas_values == CAS_VALUES {
            let text = format!("{CAS_VALUES} compare-and-swap handles are already open; drop some of them first");
            return Ok(Err(store::Error::Other(text)));
        }
        match values.get(&key).await {
            Ok(value) => {
                self.state.cas_values += 1;
                Ok(Ok(self.push(CasValue { values, key, value })?))
            }
            Err(problem) => Ok(Err(problem.into())),
        }
    }

    async fn current(&mut self, seen: Resource<CasValue>) -> Answer<Option<Vec<u8>>> {
        Ok(Ok(self.table.get(&seen)?.value.clone()))
    }

    async fn drop(&mut self, seen: Resource<CasValue>) -> wasmtime::Result<()> {
        self.table.delete(seen)?;
        self.state.cas_values -= 1;
        Ok(())
    }
}

impl batch::Host for KeyValueView<'_> {
    async fn get_many(
        &mut self,
        bucket: Resource<OpenBucket>,
        keys: Vec<String>,
    ) -> Answer<Vec<(String, Option<Vec<u8>>)>> {
        let values = self.values(&bucket)?;
        answer(Ok(values.get_many(keys).await))
    }

    async fn set_many(&mut self, bucket: Resource<OpenBucket>, pairs: Vec<(String, Vec<u8>)>) -> Answer<()> {
        let values = self.values(&bucket)?;
        answer(Ok(values.set_many(pairs).await))
    }

    async fn delete_many(&mut self, bucket: Resource<OpenBucket>, keys: Vec<String>) -> Answer<()> {
        let values = self.values(&bucket)?;
        answer(Ok(values.delete_many(keys).await))
    }
}

fn answer<T>(outcome: Outcome<T>) -> Answer<T> {
    Ok(outcome?.map_err(store::Error::from))
}

impl From<Problem> for store::Error {
    fn from(problem: Problem) -> Self {
        match problem {
            Problem::Denied => store::Error::AccessDenied,
            Problem::Other(text) => store::Error::Other(text),
        }
    }
}
