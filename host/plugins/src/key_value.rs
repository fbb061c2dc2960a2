//! What plugins keep between calls: `wasi:keyvalue` over the port that the runtime implements (P5). A call reaches the
//! buckets of its own agent and plugin, if that is granted.

mod draft;
mod draft2;

use crate::answers::{Bytes, FoundValue};
use crate::grants::key_value_denied;
use crate::in_force::GrantsInForce;
use crate::limits::{KEY_BYTES, KEY_PAGE, VALUE_BYTES, VALUE_USES, VALUES_AT_ONCE, VALUES_BYTES};
use crate::media::PortError;
use crate::record::CallRecord;
use crate::state::CallState;
use agent_core::redaction::Edges;
use std::borrow::Cow;
use std::sync::Arc;
use wasmtime::component::Resource;

/// Values by key. Each operation is one transaction: it happens whole or not at all, also when several processes share
/// the store.
#[async_trait::async_trait]
pub trait KeyValuePort: Send + Sync {
    /// The value.
    async fn get(&self, space: &KeySpace, key: &str) -> Result<Option<Vec<u8>>, PortError>;

    /// Makes or replaces the value.
    async fn set(&self, space: &KeySpace, key: &str, value: Vec<u8>) -> Result<(), PortError>;

    /// Removes the value where it is there.
    async fn delete(&self, space: &KeySpace, key: &str) -> Result<(), PortError>;

    /// Whether there is a value.
    async fn exists(&self, space: &KeySpace, key: &str) -> Result<bool, PortError>;

    /// Keys behind `after` (empty: from the first), in the order of their bytes, at most `limit`.
    async fn keys(&self, space: &KeySpace, after: &str, limit: usize) -> Result<Vec<String>, PortError>;

    /// Adds to a number kept as decimal digits; a missing one is 0. Returns the sum.
    async fn increment(&self, space: &KeySpace, key: &str, delta: i64) -> Result<i64, PortError>;

    /// Sets the value where the stored one is `expected` (none: where there is none).
    async fn swap(
        &self,
        space: &KeySpace,
        key: &str,
        expected: Option<Vec<u8>>,
        value: Vec<u8>,
    ) -> Result<Swapped, PortError>;
}

/// One bucket of one plugin of one agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySpace {
    /// The agent's configured name.
    pub agent: String,
    /// The plugin's name.
    pub plugin: String,
    /// The plugin's own name for the bucket.
    pub bucket: String,
    /// Bytes that the plugin may keep in all its buckets together, keys and values.
    pub quota: u64,
}

/// How a compare-and-swap came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swapped {
    /// The value is set.
    Done,
    /// Another stands there, and stays.
    Other(Option<Vec<u8>>),
}

/// A bucket that a guest holds open.
#[allow(unreachable_pub, reason = "the generated bindings re-export it")]
pub struct OpenBucket {
    values: Arc<Values>,
    /// The last keys of the pages that were given out, for cursors that are numbers.
    pages: Vec<String>,
}

/// A value as a guest saw it.
#[allow(unreachable_pub, reason = "the generated bindings re-export it")]
pub struct SeenValue {
    values: Arc<Values>,
    key: String,
    value: Option<Vec<u8>>,
}

/// Why an operation failed, for either draft's own type.
pub(crate) enum Problem {
    Denied,
    Other(String),
}

type Outcome<T> = wasmtime::Result<Result<T, Problem>>;

impl CallState {
    fn open_bucket(&mut self, name: String) -> Outcome<Resource<OpenBucket>> {
        let (Some(quota), Some(port)) = (self.grants().key_value, self.key_value.clone()) else {
            let (thing, advice) = key_value_denied(&self.record.plugin.name);
            self.record.deny(thing, advice);
            self.record.answers.no_values();
            return Ok(Err(Problem::Denied));
        };
        if name.len() > KEY_BYTES {
            return Ok(Err(Problem::Other(format!("a bucket's name has at most {KEY_BYTES} bytes"))));
        }
        let (agent, plugin) = (self.agent.clone(), self.record.plugin.name.clone());
        let (space, record) = (KeySpace { agent, plugin, bucket: name, quota }, Arc::clone(&self.record));
        let values = Arc::new(Values { port, space, record, in_force: Arc::clone(&self.in_force) });
        Ok(Ok(self.push(OpenBucket { values, pages: Vec::new() })?))
    }

    fn values(&self, bucket: &Resource<OpenBucket>) -> wasmtime::Result<Arc<Values>> {
        Ok(Arc::clone(&self.table.get(bucket)?.values))
    }
}

/// A bucket's values, within bounds.
struct Values {
    port: Arc<dyn KeyValuePort>,
    space: KeySpace,
    record: Arc<CallRecord>,
    in_force: Arc<GrantsInForce>,
}

impl Values {
    /// The grant may have been revoked since the bucket was opened (row 48).
    fn check(&self) -> Result<(), Problem> {
        if self.in_force.now().key_value.is_some() {
            return Ok(());
        }
        let (thing, advice) = key_value_denied(&self.record.plugin.name);
        self.record.deny(thing, advice);
        Err(Problem::Denied)
    }

    async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Problem> {
        let key = &*self.ready(key)?;
        let value = self.port.get(&self.space, key).await?;
        self.found(key, value.as_deref());
        self.record.give(value.as_ref().map_or(0, Vec::len));
        Ok(value)
    }

    async fn set(&self, key: &str, value: Vec<u8>) -> Result<(), Problem> {
        let key = &*self.ready(key)?;
        check_value(&value)?;
        let value = self.without_secrets(value);
        self.record.take(value.len());
        self.port.set(&self.space, key, value.clone()).await?;
        self.record.answers.wrote(&self.space.bucket, key, Some(&value));
        Ok(())
    }

    async fn delete(&self, key: &str) -> Result<(), Problem> {
        let key = &*self.ready(key)?;
        self.port.delete(&self.space, key).await?;
        self.record.answers.wrote(&self.space.bucket, key, None);
        Ok(())
    }

    async fn has(&self, key: &str) -> Result<bool, Problem> {
        let key = &*self.ready(key)?;
        let is_there = self.port.exists(&self.space, key).await?;
        let found = if is_there { FoundValue::Something } else { FoundValue::Nothing };
        self.record.answers.found(&self.space.bucket, key, found);
        Ok(is_there)
    }

    async fn page_of_keys(&self, after: &str) -> Result<Vec<String>, Problem> {
        self.count()?;
        let keys = self.port.keys(&self.space, after, KEY_PAGE).await?;
        self.record.give(keys.iter().map(String::len).sum());
        self.record.answers.listed(&self.space.bucket, after, &keys);
        Ok(keys)
    }

    async fn add(&self, key: &str, delta: i64) -> Result<i64, Problem> {
        let key = &*self.ready(key)?;
        let sum = self.port.increment(&self.space, key, delta).await?;
        self.found(key, Some(sum.wrapping_sub(delta).to_string().as_bytes()));
        self.record.answers.wrote(&self.space.bucket, key, Some(sum.to_string().as_bytes()));
        Ok(sum)
    }

    async fn swap(&self, key: &str, seen: Option<Vec<u8>>, value: Vec<u8>) -> Result<Swapped, Problem> {
        let key = &*self.ready(key)?;
        check_value(&value)?;
        let value = self.without_secrets(value);
        self.record.take(value.len());
        let (before, after) = (seen.clone(), value.clone());
        let swapped = self.port.swap(&self.space, key, seen, value).await?;
        match &swapped {
            Swapped::Done => {
                self.found(key, before.as_deref());
                self.record.answers.wrote(&self.space.bucket, key, Some(&after));
            }
            Swapped::Other(value) => self.found(key, value.as_deref()),
        }
        Ok(swapped)
    }

    /// The key as it is stored. Each use of one is counted.
    fn ready<'k>(&self, key: &'k str) -> Result<Cow<'k, str>, Problem> {
        self.count()?;
        check_key(key)?;
        let redaction = self.record.secrets.redaction();
        if redaction.is_empty() { Ok(Cow::Borrowed(key)) } else { Ok(Cow::Owned(redaction.whole(key.to_owned()))) }
    }

    /// Each use of values needs the grant as it is now, and counts.
    fn count(&self) -> Result<(), Problem> {
        self.check()?;
        if self.record.use_values() < VALUE_USES {
            return Ok(());
        }
        Err(Problem::Other(format!("a call may use values at most {VALUE_USES} times")))
    }

    /// What the host keeps secret is stored nowhere (row 41).
    fn without_secrets(&self, value: Vec<u8>) -> Vec<u8> {
        self.record.secrets.redaction().bytes(&value, Edges::Whole).unwrap_or(value)
    }

    fn found(&self, key: &str, value: Option<&[u8]>) {
        let found = value.map_or(FoundValue::Nothing, |value| FoundValue::Value(Bytes(value.to_owned())));
        self.record.answers.found(&self.space.bucket, key, found);
    }

    /// Values are read until they are as much as a guest may be handed at once.
    async fn get_many(&self, keys: Vec<String>) -> Result<Vec<(String, Option<Vec<u8>>)>, Problem> {
        check_count(keys.len())?;
        let mut values = Vec::with_capacity(keys.len());
        let mut bytes = 0;
        for key in keys {
            let value = self.get(&key).await?;
            bytes += value.as_ref().map_or(0, Vec::len);
            if bytes > VALUES_BYTES {
                return Err(Problem::Other("these values are more than 4 MiB together; ask for fewer".to_owned()));
            }
            values.push((key, value));
        }
        Ok(values)
    }

    async fn set_many(&self, values: Vec<(String, Vec<u8>)>) -> Result<(), Problem> {
        check_count(values.len())?;
        for (key, value) in values {
            self.set(&key, value).await?;
        }
        Ok(())
    }

    async fn delete_many(&self, keys: Vec<String>) -> Result<(), Problem> {
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
    if count <= VALUES_AT_ONCE {
        return Ok(());
    }
    Err(Problem::Other(format!("{count} keys at once; at most {VALUES_AT_ONCE} are allowed")))
}

impl From<PortError> for Problem {
    fn from(error: PortError) -> Self {
        Problem::Other(error.to_string())
    }
}
