//! Reads the tables `[providers.NAME]`, which describe how to connect to model providers.

use super::document::{Table, TomlValue};
use super::{Located, located_string, string_map};
use agent_models::{ModelConfig, Price, Protocol};
use std::collections::BTreeMap;

/// A table `[providers.NAME]`, which configures how one provider is reached.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProviderTable {
    /// Address of the provider, without `/chat/completions`.
    pub base_url: Option<String>,
    /// Wire format of requests and replies. `None`: the wire format of the known provider with this name, or Chat
    /// Completions.
    pub protocol: Option<Protocol>,
    /// Environment variable that contains the provider's key.
    pub key_env: Option<Located>,
    /// Values of the headers that are sent with every request, keyed by the names of the headers.
    pub headers: BTreeMap<String, String>,
    /// Environment variables that contain the values of headers, by the header's name.
    pub header_env: BTreeMap<String, Located>,
    /// Maximum time to connect, in milliseconds.
    pub connect_timeout_ms: Option<u32>,
    /// Maximum time to wait for the next bytes of the reply, in milliseconds.
    pub stall_timeout_ms: Option<u32>,
    /// Maximum time from the request to the end of the reply, in milliseconds.
    pub total_timeout_ms: Option<u32>,
    /// Settings of single models, keyed by the names of the models.
    pub models: BTreeMap<String, ModelConfig>,
}

/// Reads all tables `[providers.NAME]`. The keys of the map are the names of the providers.
pub(super) fn read(root: &Table<'_>) -> BTreeMap<String, ProviderTable> {
    let providers = root.table("providers");
    let entries = providers.iter().flat_map(Table::entries);
    entries.filter_map(|entry| Some((entry.name, provider(&entry.value.table()?)))).collect()
}

fn provider(table: &Table<'_>) -> ProviderTable {
    let number = |key| table.get(key).and_then(|value| value.number());
    let strings = |key| table.get(key).map(|value| string_map(&value)).unwrap_or_default();
    let variables = table.table("header_env");
    let variables = variables.iter().flat_map(Table::entries);
    let models = table.table("models");
    let models = models.iter().flat_map(Table::entries);
    ProviderTable {
        base_url: table.get("base_url").and_then(|value| value.text()),
        protocol: table.get("protocol").and_then(|value| value.text()?.parse().ok()),
        key_env: table.get("key_env").and_then(|value| located_string(&value)),
        headers: strings("headers"),
        header_env: variables.filter_map(|entry| Some((entry.name, located_string(&entry.value)?))).collect(),
        connect_timeout_ms: number("connect_timeout_ms"),
        stall_timeout_ms: number("stall_timeout_ms"),
        total_timeout_ms: number("total_timeout_ms"),
        models: models.filter_map(|entry| Some((entry.name, model(&entry.value)?))).collect(),
    }
}

fn model(value: &TomlValue<'_>) -> Option<ModelConfig> {
    let table = value.table()?;
    let price = |key| table.get(key).and_then(|value| value.number_f64());
    let prices = price("prompt_price").zip(price("completion_price"));
    Some(ModelConfig {
        window: table.get("window").and_then(|value| value.number()),
        price: prices.map(|(prompt, completion)| Price {
            cache_read: price("cache_read_price"),
            cache_write: price("cache_write_price"),
            ..Price::new(prompt, completion)
        }),
        effort: table.get("effort").and_then(|value| value.text()?.parse().ok()),
    })
}
