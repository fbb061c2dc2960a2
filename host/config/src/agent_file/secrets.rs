//! Reads the tables of secrets that the host inserts into a plugin's requests (P7).

use super::document::{Entry, Table};
use crate::grants::SecretGrant;
use agent_plugins::SecretTemplate;

/// Reads a table `[plugins.NAME.secrets.SECRET]`. The table does not contain the secret itself, but the name of an
/// environment variable, which is read later.
pub(super) fn read(plugin: &str, entry: &Entry<'_>) -> Option<SecretGrant> {
    let table = entry.value.table()?;
    let text = |key: &str| table.get(key).and_then(|value| value.text());
    let header = text("header").unwrap_or_else(|| "Authorization".to_owned());
    let bearer = header.eq_ignore_ascii_case("authorization");
    let format = text("format").unwrap_or_else(|| if bearer { "Bearer {}" } else { "{}" }.to_owned());
    let hosts = table.get("hosts").and_then(|value| value.items()).unwrap_or_default();
    let hosts = hosts.iter().filter_map(|host| host.text()).collect();
    let template = SecretTemplate { name: entry.name.clone(), hosts, header, format };
    Some(SecretGrant { plugin: plugin.to_owned(), env: text("env")?, template, origin: entry.value.location() })
}

/// Checks that the required keys are set. The list of keys does not define which keys are required, so this function
/// defines the required keys.
pub(super) fn check(parent: &Table<'_>, entry: &Entry<'_>, table: &Table<'_>) {
    let key = parent.key_of(&entry.name);
    for (needed, example) in [("env", "env = \"API_TOKEN\""), ("hosts", "hosts = [\"api.example.com\"]")] {
        if table.get(needed).is_none() {
            parent.problem(entry.span.clone(), format!("`{key}` has no `{needed}`"), format!("add `{example}`"));
        }
    }
}
