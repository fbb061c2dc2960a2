//! `wasi:config`: the configuration values that the agent grants to the plugin.

mod bindings;
mod linker;

pub(crate) use linker::add_to_linker;

use super::CallContext;
use crate::grants::{config_advice, config_description};
use crate::identity::Authority;
use crate::text::clean;
use bindings::wasi::config::store::{Error, Host};

impl CallContext {
    /// Returns a granted configuration value. If the key is not granted, records a denial and returns None.
    fn config_value(&self, key: &str) -> Option<String> {
        if self.authority == Authority::Inert {
            return None;
        }
        let value = self.grants().config.get(key).cloned();
        if value.is_none() {
            let key = clean(key, 128);
            self.record.deny(config_description(&key), config_advice(&self.record.plugin.name, &key));
        }
        value
    }

    /// Returns the configuration values that are granted to the plugin.
    fn config_values(&self) -> Vec<(String, String)> {
        if self.authority == Authority::Inert {
            return Vec::new();
        }
        self.grants().config.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
    }
}

impl Host for CallContext {
    async fn get(&mut self, key: String) -> wasmtime::Result<Result<Option<String>, Error>> {
        Ok(Ok(self.config_value(&key)))
    }

    async fn get_all(&mut self) -> wasmtime::Result<Result<Vec<(String, String)>, Error>> {
        Ok(Ok(self.config_values()))
    }
}
