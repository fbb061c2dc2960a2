//! Values that last between calls, by key: `wasi:keyvalue` over the host's store. Each agent's plugin has its own. A plugin
//! that never keeps any does not import it; one that does needs the grant `key_value_mib`.

use crate::tool::ToolError;

/// Why a value could not be read or kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyValueError {
    /// The agent's configuration does not grant it.
    #[error("keeping values is not granted")]
    Denied,
    /// A bound was passed, or the store failed.
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

/// How a swap came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Swap {
    /// The value is set.
    Done,
    /// It was another by then, and stays.
    Other(Option<Vec<u8>>),
}

/// Some values with a name of their own.
pub struct Bucket(backend::Bucket);

impl Bucket {
    /// Opens the bucket of this name, of at most 1 KiB; it need not exist.
    pub fn open(name: &str) -> Result<Self, KeyValueError> {
        backend::Bucket::open(name).map(Self)
    }

    /// The value, if there is one.
    pub fn get(&self, key: &str) -> Result<Option<Vec<u8>>, KeyValueError> {
        self.0.get(key)
    }

    /// Makes or replaces the value: at most 1 KiB of key, 1 MiB of value.
    pub fn set(&self, key: &str, value: &[u8]) -> Result<(), KeyValueError> {
        self.0.set(key, value)
    }

    /// Removes the value, if there is one.
    pub fn delete(&self, key: &str) -> Result<(), KeyValueError> {
        self.0.delete(key)
    }

    /// All keys, in order.
    pub fn keys(&self) -> Result<Vec<String>, KeyValueError> {
        self.0.keys()
    }

    /// Adds to a number, which is 0 where there is none yet, and returns the sum. Nobody else can come between.
    pub fn increment(&self, key: &str, delta: i64) -> Result<i64, KeyValueError> {
        self.0.increment(key, delta)
    }

    /// Makes a value of the one that is there, and sets it if nobody else has set another meanwhile; else `change` is
    /// asked again. `None` from it leaves the value as it is.
    pub fn update(
        &self,
        key: &str,
        mut change: impl FnMut(Option<Vec<u8>>) -> Option<Vec<u8>>,
    ) -> Result<(), KeyValueError> {
        for _ in 0..ATTEMPTS {
            let seen = self.0.look(key)?;
            let Some(value) = change(seen.current()?) else { return Ok(()) };
            if let Swap::Done = seen.swap(&value)? {
                return Ok(());
            }
        }
        Err(KeyValueError::Failed(format!("`{key}` is changed all the time by others; try again later")))
    }
}

/// Swaps that are tried before giving up.
const ATTEMPTS: u32 = 16;

#[cfg(target_arch = "wasm32")]
mod backend {
    use super::{KeyValueError, Swap};
    use crate::bindings::key_value::wasi::keyvalue::{atomics, store};

    pub(super) struct Bucket(store::Bucket);

    pub(super) struct Seen(atomics::Cas);

    impl Bucket {
        pub(super) fn open(name: &str) -> Result<Self, KeyValueError> {
            store::open(name).map(Self).map_err(error)
        }

        pub(super) fn get(&self, key: &str) -> Result<Option<Vec<u8>>, KeyValueError> {
            self.0.get(key).map_err(error)
        }

        pub(super) fn set(&self, key: &str, value: &[u8]) -> Result<(), KeyValueError> {
            self.0.set(key, value).map_err(error)
        }

        pub(super) fn delete(&self, key: &str) -> Result<(), KeyValueError> {
            self.0.delete(key).map_err(error)
        }

        pub(super) fn keys(&self) -> Result<Vec<String>, KeyValueError> {
            let (mut keys, mut cursor) = (Vec::new(), None);
            loop {
                let page = self.0.list_keys(cursor.as_deref()).map_err(error)?;
                keys.extend(page.keys);
                cursor = page.cursor;
                if cursor.is_none() {
                    return Ok(keys);
                }
            }
        }

        pub(super) fn increment(&self, key: &str, delta: i64) -> Result<i64, KeyValueError> {
            atomics::increment(&self.0, key, delta).map_err(error)
        }

        pub(super) fn look(&self, key: &str) -> Result<Seen, KeyValueError> {
            atomics::Cas::new(&self.0, key).map(Seen).map_err(error)
        }
    }

    impl Seen {
        pub(super) fn current(&self) -> Result<Option<Vec<u8>>, KeyValueError> {
            self.0.current().map_err(error)
        }

        pub(super) fn swap(self, value: &[u8]) -> Result<Swap, KeyValueError> {
            match atomics::swap(self.0, value) {
                Ok(()) => Ok(Swap::Done),
                Err(atomics::CasError::CasFailed(seen)) => seen.current().map(Swap::Other).map_err(error),
                Err(atomics::CasError::StoreError(problem)) => Err(error(problem)),
            }
        }
    }

    fn error(error: store::Error) -> KeyValueError {
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

    pub(super) struct Seen {
        place: (String, String),
        value: Option<Vec<u8>>,
    }

    impl Bucket {
        pub(super) fn open(name: &str) -> Result<Self, KeyValueError> {
            if with_state(|state| state.keeps_values) { Ok(Self(name.to_owned())) } else { Err(KeyValueError::Denied) }
        }

        fn place(&self, key: &str) -> Result<(String, String), KeyValueError> {
            if (1..=1024).contains(&key.len()) {
                return Ok((self.0.clone(), key.to_owned()));
            }
            Err(KeyValueError::Failed(format!("the key has {} bytes; it may have 1 to 1024", key.len())))
        }

        pub(super) fn get(&self, key: &str) -> Result<Option<Vec<u8>>, KeyValueError> {
            let place = self.place(key)?;
            Ok(with_state(|state| state.values.get(&place).cloned()))
        }

        pub(super) fn set(&self, key: &str, value: &[u8]) -> Result<(), KeyValueError> {
            let place = self.place(key)?;
            with_state(|state| state.values.insert(place, value.to_vec()));
            Ok(())
        }

        pub(super) fn delete(&self, key: &str) -> Result<(), KeyValueError> {
            let place = self.place(key)?;
            with_state(|state| state.values.remove(&place));
            Ok(())
        }

        pub(super) fn keys(&self) -> Result<Vec<String>, KeyValueError> {
            let mine = |(bucket, key): &(String, String)| (*bucket == self.0).then(|| key.clone());
            Ok(with_state(|state| state.values.keys().filter_map(mine).collect()))
        }

        pub(super) fn increment(&self, key: &str, delta: i64) -> Result<i64, KeyValueError> {
            let stored = self.get(key)?.map(|value| String::from_utf8_lossy(&value).parse::<i64>());
            let number = stored.transpose().map_err(|_| KeyValueError::Failed("it is no number".to_owned()))?;
            let sum = number.unwrap_or(0) + delta;
            self.set(key, sum.to_string().as_bytes())?;
            Ok(sum)
        }

        pub(super) fn look(&self, key: &str) -> Result<Seen, KeyValueError> {
            Ok(Seen { place: self.place(key)?, value: self.get(key)? })
        }
    }

    impl Seen {
        pub(super) fn current(&self) -> Result<Option<Vec<u8>>, KeyValueError> {
            Ok(self.value.clone())
        }

        pub(super) fn swap(self, value: &[u8]) -> Result<Swap, KeyValueError> {
            with_state(|state| {
                let found = state.values.get(&self.place).cloned();
                if found != self.value {
                    return Ok(Swap::Other(found));
                }
                state.values.insert(self.place, value.to_vec());
                Ok(Swap::Done)
            })
        }
    }
}
