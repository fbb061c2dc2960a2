//! How each provider is reached: its address, its key and its headers, from the command line, agent.toml, what is known of
//! it, and the environment (M2). Keys are read here and shown nowhere.

use super::Variables;
use super::models::{NamedModel, WantedModels, provider_of};
use crate::configuration::{AgentFile, Placed, ProviderTable, url_problem};
use agent_models::{KNOWN_PROVIDERS, ProviderConfig, Secret, Timeouts, known_provider};
use std::collections::BTreeSet;
use std::time::Duration;

/// Where the official clients, too, look for the address of `openai`.
pub(crate) const OPENAI_BASE_URL: &str = "OPENAI_BASE_URL";

/// Every provider that is known or configured, and what those lack that are to be asked: each with its model's place in the
/// chain.
pub(crate) fn providers(
    wanted: &WantedModels,
    file: &AgentFile,
    variable: Variables<'_>,
) -> (Vec<ProviderConfig>, Vec<(usize, String)>) {
    let chain = wanted.all_named();
    let names: BTreeSet<&str> =
        KNOWN_PROVIDERS.iter().map(|known| known.name).chain(file.providers.keys().map(String::as_str)).collect();
    let (mut configured, mut problems) = (Vec::new(), Vec::new());
    for name in names {
        let asked = chain.iter().enumerate().find(|(_, model)| provider_of(&model.name) == Some(name));
        let mut found = Vec::new();
        configured.extend(provider(name, wanted, file, variable, &mut found));
        if let Some((index, NamedModel { name, place, .. })) = asked {
            problems.extend(found.into_iter().map(|problem| (index, format!("{place}: `{name}` {problem}"))));
        }
    }
    (configured, problems)
}

/// Where the address of a provider was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Address {
    /// The provider's own.
    Known,
    /// Somebody put another server, which may need no key, in its place.
    Given,
}

fn provider(
    name: &str,
    wanted: &WantedModels,
    file: &AgentFile,
    variable: Variables<'_>,
    problems: &mut Vec<String>,
) -> Option<ProviderConfig> {
    let empty = ProviderTable::default();
    let table = file.providers.get(name).unwrap_or(&empty);
    let (base_url, address) = address(name, wanted, table, variable, problems)?;
    let known_variable = known_provider(name).and_then(|known| known.key_variable);
    let key_variable = table.key_env.as_ref().map(|placed| placed.value.as_str()).or(known_variable);
    let key = match (&table.key_env, known_variable) {
        (Some(Placed { value, place }), _) => {
            let named = format!("named by {place}");
            needed(value, &named, variable)
        }
        (None, Some(known)) if address == Address::Known => {
            let named = format!("where `{name}` has its key unless `key_env` in [providers.{name}] names another one");
            needed(known, &named, variable)
        }
        (None, Some(known)) => match variable(known) {
            Some(value) if !value.is_empty() => checked(known, value),
            _ => Ok(None),
        },
        (None, None) => Ok(None),
    };
    let key = key.unwrap_or_else(|problem| {
        problems.push(problem);
        None
    });
    Some(ProviderConfig {
        name: name.to_owned(),
        base_url,
        key,
        key_advice: advice(name, key_variable),
        headers: headers(table, variable, problems),
        timeouts: timeouts(table),
        models: table.models.clone(),
    })
}

/// None only where nobody says where it is, which the reader of the file has refused.
fn address(
    name: &str,
    wanted: &WantedModels,
    table: &ProviderTable,
    variable: Variables<'_>,
    problems: &mut Vec<String>,
) -> Option<(String, Address)> {
    let on_the_line = wanted.provider_at_base_url().filter(|(provider, _)| *provider == name).map(|(_, url)| url);
    if let Some(url) = on_the_line.or(table.base_url.as_deref()) {
        return Some((url.trim_end_matches('/').to_owned(), Address::Given));
    }
    let known = known_provider(name)?;
    let in_environment = variable(OPENAI_BASE_URL).filter(|url| name == "openai" && !url.is_empty());
    if let Some(url) = in_environment {
        if let Some(problem) = url_problem(&url) {
            problems.push(format!("is at the address in the variable `{OPENAI_BASE_URL}`, which {problem}"));
        }
        return Some((url.trim_end_matches('/').to_owned(), Address::Given));
    }
    Some((known.base_url.to_owned(), Address::Known))
}

fn needed(name: &str, named: &str, variable: Variables<'_>) -> Result<Option<Secret>, String> {
    match variable(name) {
        Some(value) => checked(name, value),
        None => Err(format!(
            "needs a key, and the environment variable `{name}` is not set ({named}). Set it, such as with \
             `export {name}=YOUR_KEY`"
        )),
    }
}

fn checked(name: &str, value: String) -> Result<Option<Secret>, String> {
    let fault = fault(&value).or(value.starts_with("Bearer ").then_some("begins with `Bearer `, which the host adds"));
    match fault {
        Some(fault) => Err(format!(
            "needs a key, and what the environment variable `{name}` holds {fault}: set it to the key alone"
        )),
        None => Ok(Some(Secret::new(value))),
    }
}

/// What is wrong with a key or another secret of a header. Never shows it.
fn fault(value: &str) -> Option<&'static str> {
    if value.trim().is_empty() {
        Some("is empty")
    } else if value.ends_with(['\n', '\r']) {
        Some("ends with a line break")
    } else if value.trim() != value {
        Some("begins or ends with white space")
    } else if value.contains(|character: char| !matches!(character, ' '..='~')) {
        Some("has characters in it that no header takes")
    } else {
        None
    }
}

fn headers(table: &ProviderTable, variable: Variables<'_>, problems: &mut Vec<String>) -> Vec<(String, Secret)> {
    let mut headers: Vec<_> =
        table.headers.iter().map(|(name, value)| (name.clone(), Secret::new(value.clone()))).collect();
    for (name, Placed { value: variable_name, place }) in &table.header_env {
        let named = format!("named by {place}");
        match variable(variable_name) {
            None => problems.push(format!(
                "needs the header `{name}`, and the environment variable `{variable_name}` is not set ({named}): set it"
            )),
            Some(value) => match fault(&value) {
                None => headers.push((name.clone(), Secret::new(value))),
                Some(fault) => problems.push(format!(
                    "needs the header `{name}`, and what the environment variable `{variable_name}` holds ({named}) \
                     {fault}"
                )),
            },
        }
    }
    headers
}

fn advice(name: &str, variable: Option<&str>) -> String {
    match variable {
        Some(variable) => format!("set `{variable}` to a key that is right"),
        None => format!("name the variable that holds its key: `key_env` in [providers.{name}] of agent.toml"),
    }
}

fn timeouts(table: &ProviderTable) -> Timeouts {
    let defaults = Timeouts::default();
    let or = |given: Option<u32>, default| given.map_or(default, |ms| Duration::from_millis(u64::from(ms)));
    Timeouts {
        connect: or(table.connect_timeout_ms, defaults.connect),
        stall: or(table.stall_timeout_ms, defaults.stall),
        total: or(table.total_timeout_ms, defaults.total),
    }
}

#[cfg(test)]
mod tests;
