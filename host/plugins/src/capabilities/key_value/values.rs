//! The values of one bucket. Each operation is checked against the grant and the limits, counted and recorded.

use super::Problem;
use crate::grants::key_value_denied;
use crate::grants::live_grants::LiveGrants;
use crate::limits::{BATCH_BYTES, BATCH_KEYS, KEY_BYTES, KEY_VALUE_OPERATIONS, KEYS_PER_PAGE, VALUE_BYTES};
use crate::ports::key_value::{KeyValueBucket, KeyValuePort, SwapOutcome};
use crate::recording::CallRecord;
use crate::recording::bytes::RecordedBytes;
use crate::recording::host_calls::FoundValue;
use agent_core::redaction::Edges;
use std::borrow::Cow;
use std::sync::Arc;

/// Gives a guest access to the values of one bucket.
pub(super) struct Values {
    pub(super) port: Arc<dyn KeyValuePort>,
    pub(super) space: KeyValueBucket,
    pub(super) record: Arc<CallRecord>,
    pub(super) live_grants: Arc<LiveGrants>,
}

impl Values {
    /// Checks that the grant for key-value storage is still in force, because the grant may have been revoked since the
    /// bucket was opened (row 48).
    fn check(&self) -> Result<(), Problem> {
        if self.live_grants.now().key_value.is_some() {
            return Ok(());
        }
        let (thing, advice) = key_value_denied(&self.record.plugin.name);
        self.record.deny(thing, advice);
        Err(Problem::Denied)
    }

    pub(super) async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Problem> {
        let key = &*self.checked_key(key)?;
        let value = self.port.get(&self.space, key).await?;
        self.record_read(key, value.as_deref());
        self.record.count_bytes_to_guest(value.as_ref().map_or(0, Vec::len));
        Ok(value)
    }

    pub(super) async fn set(&self, key: &str, value: Vec<u8>) -> Result<(), Problem> {
        let key = &*self.checked_key(key)?;
        check_value(&value)?;
        let value = self.without_secrets(value);
        self.record.count_bytes_from_guest(value.len());
        self.port.set(&self.space, key, value.clone()).await?;
        self.record.answers.value_written(&self.space.bucket, key, Some(&value));
        Ok(())
    }

    pub(super) async fn delete(&self, key: &str) -> Result<(), Problem> {
        let key = &*self.checked_key(key)?;
        self.port.delete(&self.space, key).await?;
        self.record.answers.value_written(&self.space.bucket, key, None);
        Ok(())
    }

    pub(super) async fn has(&self, key: &str) -> Result<bool, Problem> {
        let key = &*self.checked_key(key)?;
        let exists = self.port.exists(&self.space, key).await?;
        let found = if exists { FoundValue::Something } else { FoundValue::Nothing };
        self.record.answers.value_read(&self.space.bucket, key, found);
        Ok(exists)
    }

    pub(super) async fn page_of_keys(&self, after: &str) -> Result<Vec<String>, Problem> {
        self.count()?;
        let keys = self.port.keys(&self.space, after, KEYS_PER_PAGE).await?;
        self.record.count_bytes_to_guest(keys.iter().map(String::len).sum());
        self.record.answers.keys_listed(&self.space.bucket, after, &keys);
        Ok(keys)
    }

    pub(super) async fn add(&self, key: &str, delta: i64) -> Result<i64, Problem> {
        let key = &*self.checked_key(key)?;
        let sum = self.port.increment(&self.space, key, delta).await?;
        self.record_read(key, Some(sum.wrapping_sub(delta).to_string().as_bytes()));
        self.record.answers.value_written(&self.space.bucket, key, Some(sum.to_string().as_bytes()));
        Ok(sum)
    }

    pub(super) async fn swap(&self, key: &str, seen: Option<Vec<u8>>, value: Vec<u8>) -> Result<SwapOutcome, Problem> {
        let key = &*self.checked_key(key)?;
        check_value(&value)?;
        let value = self.without_secrets(value);
        self.record.count_bytes_from_guest(value.len());
        let (before, after) = (seen.clone(), value.clone());
        let swapped = self.port.swap(&self.space, key, seen, value).await?;
        match &swapped {
            SwapOutcome::Done => {
                self.record_read(key, before.as_deref());
                self.record.answers.value_written(&self.space.bucket, key, Some(&after));
            }
            SwapOutcome::Other(value) => self.record_read(key, value.as_deref()),
        }
        Ok(swapped)
    }

    /// Checks and counts an operation on a key. Returns the key under which the value is stored: the guest's key
    /// without secrets.
    fn checked_key<'k>(&self, key: &'k str) -> Result<Cow<'k, str>, Problem> {
        self.count()?;
        check_key(key)?;
        let redaction = self.record.secrets.redaction();
        if redaction.is_empty() { Ok(Cow::Borrowed(key)) } else { Ok(Cow::Owned(redaction.whole(key.to_owned()))) }
    }

    /// Checks that the grant for key-value storage is still in force, and counts the operation.
    fn count(&self) -> Result<(), Problem> {
        self.check()?;
        if self.record.count_value_operation() < KEY_VALUE_OPERATIONS {
            return Ok(());
        }
        Err(Problem::Other(format!("a call may perform at most {KEY_VALUE_OPERATIONS} key-value operations")))
    }

    /// Removes the agent's secrets from a value, because secrets are never stored (row 41).
    fn without_secrets(&self, value: Vec<u8>) -> Vec<u8> {
        self.record.secrets.redaction().bytes(&value, Edges::Whole).unwrap_or(value)
    }

    fn record_read(&self, key: &str, value: Option<&[u8]>) {
        let found = value.map_or(FoundValue::Nothing, |value| FoundValue::Value(RecordedBytes(value.to_owned())));
        self.record.answers.value_read(&self.space.bucket, key, found);
    }

    /// Reads the values of several keys. Fails if the total size of the values is larger than a guest may receive
    /// at once.
    pub(super) async fn get_many(&self, keys: Vec<String>) -> Result<Vec<(String, Option<Vec<u8>>)>, Problem> {
        check_count(keys.len())?;
        let mut values = Vec::with_capacity(keys.len());
        let mut bytes = 0;
        for key in keys {
            let value = self.get(&key).await?;
            bytes += value.as_ref().map_or(0, Vec::len);
            if bytes > BATCH_BYTES {
                return Err(Problem::Other(
                    "these values have more than 4 MiB in total; request fewer keys at once".to_owned(),
                ));
            }
            values.push((key, value));
        }
        Ok(values)
    }

    pub(super) async fn set_many(&self, values: Vec<(String, Vec<u8>)>) -> Result<(), Problem> {
        check_count(values.len())?;
        for (key, value) in values {
            self.set(&key, value).await?;
        }
        Ok(())
    }

    pub(super) async fn delete_many(&self, keys: Vec<String>) -> Result<(), Problem> {
        check_count(keys.len())?;
        for key in keys {
            self.delete(&key).await?;
        }
        Ok(())
    }
}

fn check_key(key: &str) -> Result<(), Problem> {
    match key.len() {
        0 => Err(Problem::Other("the key is empty".to_owned())),
        1..=KEY_BYTES => Ok(()),
        size => Err(Problem::Other(format!("the key has {size} bytes; at most {KEY_BYTES} are allowed"))),
    }
}

fn check_value(value: &[u8]) -> Result<(), Problem> {
    let size = value.len();
    if size <= VALUE_BYTES {
        return Ok(());
    }
    Err(Problem::Other(format!("the value has {size} bytes; at most {VALUE_BYTES} are allowed")))
}

fn check_count(count: usize) -> Result<(), Problem> {
    if count <= BATCH_KEYS {
        return Ok(());
    }
    Err(Problem::Other(format!("the batch has {count} keys; at most {BATCH_KEYS} are allowed")))
}
