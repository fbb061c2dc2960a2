//! Stores values under keys, through `wasi:keyvalue`. Stored values are kept between calls. Plugins do not share
//! values, and a plugin has separate values for each agent that uses it. A plugin that uses this module needs the grant
//! `key_value_mib`. A plugin that does not use this module does not import `wasi:keyvalue`.

use crate::tool::ToolError;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The reason why the plugin could not read or store a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyValueError {
    /// The agent's configuration does not allow the plugin to store values.
    #[error("storing values is not granted")]
    Denied,
    /// The call exceeds a limit, or the store failed.
    #[error("{0}")]
    Failed(String),
}

impl From<KeyValueError> for ToolError {
    fn from(error: KeyValueError) -> Self {
        match error {
            KeyValueError::Denied => ToolError::denied(error.to_string()),
            KeyValueError::Failed(message) => ToolError::failed(message),
        }
    }
}

/// The result of a compare-and-swap operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Swap {
    /// The stored value was the expected value, so the operation replaced it.
    Done,
    /// Another call had changed the stored value, so the operation did not replace it. `Other` contains the current
    /// value, or `None` if the key has no value now.
    Other(Option<Vec<u8>>),
}

/// A named collection of values, each stored under a key.
pub struct Bucket(backend::Bucket);

impl Bucket {
    /// Opens the bucket with this name. The maximum length of a name is 1 KiB. If no bucket has this name, an empty
    /// bucket is opened.
    pub fn open(name: &str) -> Result<Self, KeyValueError> {
        backend::Bucket::open(name).map(Self)
    }

    /// Returns the value of the key, or `None` if the key has no value.
    pub fn get(&self, key: &str) -> Result<Option<Vec<u8>>, KeyValueError> {
        self.0.get(key)
    }

    /// Stores the value under the key, and replaces the previous value if there is one. The maximum size of a key is 1
    /// KiB, and the maximum size of a value is 1 MiB.
    pub fn set(&self, key: &str, value: &[u8]) -> Result<(), KeyValueError> {
        self.0.set(key, value)
    }

    /// Returns the value of the key, parsed as JSON, or `None` if the key has no value.
    pub fn get_json<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, KeyValueError> {
        let not_json = |error| KeyValueError::Failed(format!("the value of `{key}` is not the expected JSON: {error}"));
        self.get(key)?.map(|bytes| serde_json::from_slice(&bytes).map_err(not_json)).transpose()
    }

    /// Stores a value as JSON. This function fails for values that JSON cannot express, such as maps whose keys are not
    /// strings.
    pub fn set_json<T: Serialize + ?Sized>(&self, key: &str, value: &T) -> Result<(), KeyValueError> {
        let not_json =
            |error| KeyValueError::Failed(format!("the value of `{key}` cannot be written as JSON: {error}"));
        self.set(key, &serde_json::to_vec(value).map_err(not_json)?)
    }

    /// Removes the value that is stored under the key, if there is one.
    pub fn delete(&self, key: &str) -> Result<(), KeyValueError> {
        self.0.delete(key)
    }

    /// Returns the keys of all values in this bucket, in sorted order.
    pub fn keys(&self) -> Result<Vec<String>, KeyValueError> {
        self.0.keys()
    }

    /// Adds `delta` to the number that is stored under the key and returns the sum. The operation is atomic. If no
    /// value is stored under the key, `delta` is added to 0.
    pub fn increment(&self, key: &str, delta: i64) -> Result<i64, KeyValueError> {
        self.0.increment(key, delta)
    }

    /// Replaces the value that is stored under the key with the result of `change`. If another call changes the value
    /// at the same time, this function calls `change` again with the value that the other call stored. If `change`
    /// returns `None`, the value stays unchanged.
    pub fn update(
        &self,
        key: &str,
        mut change: impl FnMut(Option<Vec<u8>>) -> Option<Vec<u8>>,
    ) -> Result<(), KeyValueError> {
        for _ in 0..ATTEMPTS {
            let snapshot = self.0.snapshot(key)?;
            let Some(value) = change(snapshot.current()?) else { return Ok(()) };
            if let Swap::Done = snapshot.swap(&value)? {
                return Ok(());
            }
        }
        Err(KeyValueError::Failed(format!("other calls keep changing `{key}`; try again later")))
    }
}

/// The maximum number of attempts of [`Bucket::update`].
const ATTEMPTS: u32 = 16;

#[cfg(target_arch = "wasm32")]
mod backend {
    use super::{KeyValueError, Swap};
    use crate::bindings::key_value::wasi::keyvalue::{atomics, store};

    pub(super) struct Bucket(store::Bucket);

    pub(super) struct Snapshot(atomics::Cas);

    impl Bucket {
        pub(super) fn open(name: &str) -> Result<Self, KeyValueError> {
            store::open(name).map(Self).map_err(convert_error)
        }

        pub(super) fn get(&self, key: &str) -> Result<Option<Vec<u8>>, KeyValueError> {
            self.0.get(key).map_err(convert_error)
        }

        pub(super) fn set(&self, key: &str, value: &[u8]) -> Result<(), KeyValueError> {
            self.0.set(key, value).map_err(convert_error)
        }

        pub(super) fn delete(&self, key: &str) -> Result<(), KeyValueError> {
            self.0.delete(key).map_err(convert_error)
        }

        pub(super) fn keys(&self) -> Result<Vec<String>, KeyValueError> {
            let (mut keys, mut cursor) = (Vec::new(), None);
            loop {
                let page = self.0.list_keys(cursor.as_deref()).map_err(convert_error)?;
                keys.extend(page.keys);
                cursor = page.cursor;
                if cursor.is_none() {
                    return Ok(keys);
                }
            }
        }

        pub(super) fn increment(&self, key: &str, delta: i64) -> Result<i64, KeyValueError> {
            atomics::increment(&self.0, key, delta).map_err(convert_error)
        }

        pub(super) fn snapshot(&self, key: &str) -> Result<Snapshot, KeyValueError> {
            atomics::Cas::new(&self.0, key).map(Snapshot).map_err(convert_error)
        }
    }

    impl Snapshot {
        pub(super) fn current(&self) -> Result<Option<Vec<u8>>, KeyValueError> {
            self.0.current().map_err(convert_error)
        }

        pub(super) fn swap(self, value: &[u8]) -> Result<Swap, KeyValueError> {
            match atomics::swap(self.0, value) {
                Ok(()) => Ok(Swap::Done),
                Err(atomics::CasError::CasFailed(snapshot)) => {
                    snapshot.current().map(Swap::Other).map_err(convert_error)
                }
                Err(atomics::CasError::StoreError(problem)) => Err(convert_error(problem)),
            }
        }
    }

    fn convert_error(error: store::Error) -> KeyValueError {
        match error {
            store::Error::AccessDenied => KeyValueError::Denied,
            store::Error::NoSuchStore => KeyValueError::Failed("there is no such bucket".to_owned()),
            store::Error::Other(message) => KeyValueError::Failed(message),
        }
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod backend {
    use super::{KeyValueError, Swap};
    use crate::testing::with_state;

    pub(super) struct Bucket(String);

    pub(super) struct Snapshot {
        bucket_and_key: (String, String),
        value: Option<Vec<u8>>,
    }

    impl Bucket {
        pub(super) fn open(name: &str) -> Result<Self, KeyValueError> {
            if with_state(|state| state.keeps_values) { Ok(Self(name.to_owned())) } else { Err(KeyValueError::Denied) }
        }

        /// Returns the name of the bucket and the key, or an error if the length of the key is invalid.
        fn checked_key(&self, key: &str) -> Result<(String, String), KeyValueError> {
            if (1..=1024).contains(&key.len()) {
                return Ok((self.0.clone(), key.to_owned()));
            }
            Err(KeyValueError::Failed(format!("the key has {} bytes; it must have 1 to 1024", key.len())))
        }

        pub(super) fn get(&self, key: &str) -> Result<Option<Vec<u8>>, KeyValueError> {
            let bucket_and_key = self.checked_key(key)?;
            Ok(with_state(|state| state.values.get(&bucket_and_key).cloned()))
        }

        pub(super) fn set(&self, key: &str, value: &[u8]) -> Result<(), KeyValueError> {
            let bucket_and_key = self.checked_key(key)?;
            with_state(|state| state.values.insert(bucket_and_key, value.to_vec()));
            Ok(())
        }

        pub(super) fn delete(&self, key: &str) -> Result<(), KeyValueError> {
            let bucket_and_key = self.checked_key(key)?;
            with_state(|state| state.values.remove(&bucket_and_key));
            Ok(())
        }

        pub(super) fn keys(&self) -> Result<Vec<String>, KeyValueError> {
            let in_bucket = |(bucket, key): &(String, String)| (*bucket == self.0).then(|| key.clone());
            Ok(with_state(|state| state.values.keys().filter_map(in_bucket).collect()))
        }

        pub(super) fn increment(&self, key: &str, delta: i64) -> Result<i64, KeyValueError> {
            let stored = self.get(key)?.map(|value| String::from_utf8_lossy(&value).parse::<i64>());
            let number =
                stored.transpose().map_err(|_| KeyValueError::Failed("the value is not a number".to_owned()))?;
            let sum = number.unwrap_or(0) + delta;
            self.set(key, sum.to_string().as_bytes())?;
            Ok(sum)
        }

        pub(super) fn snapshot(&self, key: &str) -> Result<Snapshot, KeyValueError> {
            Ok(Snapshot { bucket_and_key: self.checked_key(key)?, value: self.get(key)? })
        }
    }

    impl Snapshot {
        pub(super) fn current(&self) -> Result<Option<Vec<u8>>, KeyValueError> {
            Ok(self.value.clone())
        }

        pub(super) fn swap(self, value: &[u8]) -> Result<Swap, KeyValueError> {
            with_state(|state| {
                let current = state.values.get(&self.bucket_and_key).cloned();
                if current != self.value {
                    return Ok(Swap::Other(current));
                }
                state.values.insert(self.bucket_and_key, value.to_vec());
                Ok(Swap::Done)
            })
        }
    }
}
