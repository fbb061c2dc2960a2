//! The tables `[providers.NAME]`.

use super::document::{Found, Table};
use super::{Placed, pairs, placed};
use agent_models::{ModelConfig, Price};
use std::collections::BTreeMap;

/// What the file says of one provider.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ProviderTable {
    /// Its address.
    pub(crate) base_url: Option<String>,
    /// The variable that holds its key.
    pub(crate) key_env: Option<Placed>,
    /// Headers by name.
    pub(crate) headers: BTreeMap<String, String>,
    /// Variables that hold headers, by the header's name.
    pub(crate) header_env: BTreeMap<String, Placed>,
    /// To connect.
    pub(crate) connect_timeout_ms: Option<u32>,
    /// Without a byte.
    pub(crate) stall_timeout_ms: Option<u32>,
    /// The whole reply.
    pub(crate) total_timeout_ms: Option<u32>,
    /// Single models, by name.
    pub(crate) models: BTreeMap<String, ModelConfig>,
}

/// All of them.
pub(super) fn read(root: &Table<'_>) -> BTreeMap<String, ProviderTable> {
    let providers = root.table("providers");
    let entries = providers.iter().flat_map(Table::entries);
    entries.filter_map(|entry| Some((entry.name, provider(&entry.found.table()?)))).collect()
}

fn provider(table: &Table<'_>) -> ProviderTable {
    let number = |key| table.get(key).and_then(|found| found.number());
    let texts = |key| table.get(key).map(|found| pairs(&found)).unwrap_or_default();
    let variables = table.table("header_env");
    let variables = variables.iter().flat_map(Table::entries);
    let models = table.table("models");
    let models = models.iter().flat_map(Table::entries);
    ProviderTable {
        base_url: table.get("base_url").and_then(|found| found.text()),
        key_env: table.get("key_env").and_then(|found| placed(&found)),
        headers: texts("headers"),
        header_env: variables.filter_map(|entry| Some((entry.name, placed(&entry.found)?))).collect(),
        connect_timeout_ms: number("connect_timeout_ms"),
        stall_timeout_ms: number("stall_timeout_ms"),
        total_timeout_ms: number("total_timeout_ms"),
        models: models.filter_map(|entry| Some((entry.name, model(&entry.found)?))).collect(),
    }
}

fn model(found: &Found<'_>) -> Option<ModelConfig> {
    let table = found.table()?;
    let amount = |key| table.get(key).and_then(|found| found.amount());
    let price = amount("prompt_price").zip(amount("completion_price"));
    Some(ModelConfig {
        window: table.get("window").and_then(|found| found.number()),
        price: price.map(|(prompt, completion)| Price { prompt, completion }),
    })
}
