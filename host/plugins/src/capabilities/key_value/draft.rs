//! The host functions of `wasi:keyvalue@0.2.0-draft`. This draft has no compare-and-swap operations and uses
//! numbers as cursors.

use super::bindings::wasi::keyvalue0_2_0_draft::{atomics, batch, store};
use super::{KeyValueView, OpenBucket, Outcome, Problem};
use crate::limits::KEYS_PER_PAGE;
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

    async fn list_keys(&mut self, bucket: Resource<OpenBucket>, cursor: Option<u64>) -> Answer<store::KeyResponse> {
        let open = self.table.get(&bucket)?;
        let after = match cursor {
            None => String::new(),
            Some(page) => match usize::try_from(page).ok().and_then(|page| open.pages.get(page)) {
                Some(last) => last.clone(),
                None => return Ok(Err(store::Error::Other("this cursor does not belong to this bucket".to_owned()))),
            },
        };
        let values = self.values(&bucket)?;
        let keys = match values.page_of_keys(&after).await {
            Ok(keys) => keys,
            Err(problem) => return Ok(Err(problem.into())),
        };
        let Some(last) = keys.last().filter(|_| keys.len() == KEYS_PER_PAGE).cloned() else {
            return Ok(Ok(store::KeyResponse { keys, cursor: None }));
        };
        let pages = &mut self.table.get_mut(&bucket)?.pages;
        if !pages.contains(&last) {
            pages.push(last.clone());
        }
        let cursor = pages.iter().position(|page| *page == last).map(|page| page as u64);
        Ok(Ok(store::KeyResponse { keys, cursor }))
    }

    async fn drop(&mut self, bucket: Resource<OpenBucket>) -> wasmtime::Result<()> {
        self.table.delete(bucket)?;
        Ok(())
    }
}

impl atomics::Host for KeyValueView<'_> {
    async fn increment(&mut self, bucket: Resource<OpenBucket>, key: String, delta: u64) -> Answer<u64> {
        let values = self.values(&bucket)?;
        let Ok(delta) = i64::try_from(delta) else {
            return Ok(Err(store::Error::Other("the number to add must fit into 63 bits".to_owned())));
        };
        let sum = values.add(&key, delta).await;
        let sum = sum.and_then(|sum| {
            u64::try_from(sum).map_err(|_| Problem::Other(format!("the stored number is negative: {sum}")))
        });
        answer(Ok(sum))
    }
}

impl batch::Host for KeyValueView<'_> {
    async fn get_many(
        &mut self,
        bucket: Resource<OpenBucket>,
        keys: Vec<String>,
    ) -> Answer<Vec<Option<(String, Vec<u8>)>>> {
        let values = self.values(&bucket)?;
        let found = values.get_many(keys).await;
        let pair = |(key, value): (String, Option<Vec<u8>>)| value.map(|value| (key, value));
        answer(Ok(found.map(|found| found.into_iter().map(pair).collect())))
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
