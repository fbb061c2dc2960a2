//! Reads the settings that the agent grants to the plugin. A plugin that does not use this module does not import
//! `wasi:config`.

use std::collections::BTreeMap;

/// The error that is returned if the settings could not be read. A key without a value does not cause an error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the configuration could not be read: {0}")]
pub struct ConfigError(pub String);

/// Returns the value of the setting with this key, or `None` if the setting has no value or is not granted.
pub fn get(key: &str) -> Result<Option<String>, ConfigError> {
    backend::get(key)
}

/// Returns the keys and values of all granted settings.
pub fn get_all() -> Result<BTreeMap<String, String>, ConfigError> {
    backend::get_all()
}

#[cfg(target_arch = "wasm32")]
mod backend {
    use super::{BTreeMap, ConfigError};
    use crate::bindings::imports::wasi::config::store;

    pub(super) fn get(key: &str) -> Result<Option<String>, ConfigError> {
        store::get(key).map_err(convert_error)
    }

    pub(super) fn get_all() -> Result<BTreeMap<String, String>, ConfigError> {
        store::get_all().map(|pairs| pairs.into_iter().collect()).map_err(convert_error)
    }

    fn convert_error(error: store::Error) -> ConfigError {
        let (store::Error::Upstream(message) | store::Error::Io(message)) = error;
        ConfigError(message)
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod backend {
    use super::{BTreeMap, ConfigError};
    use crate::testing::with_state;

    pub(super) fn get(key: &str) -> Result<Option<String>, ConfigError> {
        Ok(with_state(|state| state.config.get(key).cloned()))
    }

    pub(super) fn get_all() -> Result<BTreeMap<String, String>, ConfigError> {
        Ok(with_state(|state| state.config.clone()))
    }
}
