//! Reads `[sharing]`: the rules about signatures of plugins (P11).

use super::document::Table;
use agent_registry::{PublicKey, SignaturePolicy, Trust};

/// Reads the signature policy and the trusted keys. Invalid values are ignored here, because the general check of the
/// keys reports invalid values, and the file is then rejected.
pub(super) fn trust(table: &Table<'_>) -> Trust {
    let policy = table.get("signatures").and_then(|value| value.text());
    let policy = match policy.as_deref() {
        Some("required") => SignaturePolicy::Required,
        Some("off") => SignaturePolicy::Off,
        _ => SignaturePolicy::Warn,
    };
    let keys = table.table("trusted_keys").into_iter().flat_map(|table| table.entries().collect::<Vec<_>>());
    let keys = keys.map(|entry| {
        let text = entry.value.text().unwrap_or_default();
        (entry.name, text.split_whitespace().filter_map(|key| PublicKey::parse(key).ok()).collect())
    });
    let unsigned = table.get("unsigned").and_then(|value| value.items()).unwrap_or_default();
    let unsigned = unsigned.iter().filter_map(|value| value.text()).collect();
    Trust { policy, keys: keys.collect(), unsigned }
}
