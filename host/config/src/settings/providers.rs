//! Determines the address, key and headers of each provider from the options, `agent.toml`, the list of known providers
//! and the environment (M2). The messages of this module never contain keys.

use super::Variables;
use super::models::{NamedModel, WantedModels, provider_of};
use crate::agent_file::{AgentFile, Located, ProviderTable, url_problem};
use agent_models::{KNOWN_PROVIDERS, ProviderConfig, Secret, Timeouts, known_provider};
use std::collections::BTreeSet;
use std::time::Duration;

/// Environment variable with the address of the provider `openai`. OpenAI's own clients also read this variable.
pub(super) const OPENAI_BASE_URL: &str = "OPENAI_BASE_URL";

/// Returns all known and all configured providers, and the problems of those providers that the agent's models use.
/// Each problem is returned with the index of the model in [`WantedModels::all_named`].
pub(super) fn providers(
    wanted: &WantedModels,
    file: &AgentFile,
    variable: Variables<'_>,
) -> (Vec<ProviderConfig>, Vec<(usize, String)>) {
    let chain = wanted.all_named();
    let names: BTreeSet<&str> =
        KNOWN_PROVIDERS.iter().map(|known| known.name).chain(file.providers.keys().map(String::as_str)).collect();
    let (mut configured, mut problems) = (Vec::new(), Vec::new());
    for name in names {
        let used_by = chain.iter().enumerate().find(|(_, model)| provider_of(&model.name) == Some(name));
        let mut provider_problems = Vec::new();
        configured.extend(provider(name, wanted, file, variable, &mut provider_problems));
        if let Some((index, NamedModel { name, place, .. })) = used_by {
            problems
                .extend(provider_problems.into_iter().map(|problem| (index, format!("{place}: `{name}` {problem}"))));
        }
    }
    (configured, problems)
}

/// Whether a provider has its default address or an address that the user configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Address {
    /// The default address of a known provider.
    Known,
    /// An address that the user configured. A server at a configured address can work without a key.
    Configured,
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
    let key_variable = table.key_env.as_ref().map(|located| located.value.as_str()).or(known_variable);
    let key = match (&table.key_env, known_variable) {
        (Some(Located { value, location }), _) => {
            let origin = format!("named in {location}");
            required_key(value, &origin, variable)
        }
        (None, Some(known)) if address == Address::Known => {
            let origin = format!("the default for `{name}`; `key_env` in [providers.{name}] names another variable");
            required_key(known, &origin, variable)
        }
        (None, Some(known)) => match variable(known) {
            Some(value) if !value.is_empty() => valid_key(known, value),
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
        key_advice: key_advice(name, key_variable),
        headers: headers(table, variable, problems),
        protocol: table.protocol.or(known_provider(name).map(|known| known.protocol)).unwrap_or_default(),
        timeouts: timeouts(table),
        models: table.models.clone(),
    })
}

/// Returns the address of a provider. Returns None if the provider has no address. The check of the file has already
/// reported that the address is missing.
fn address(
    name: &str,
    wanted: &WantedModels,
    table: &ProviderTable,
    variable: Variables<'_>,
    problems: &mut Vec<String>,
) -> Option<(String, Address)> {
    let from_options = wanted.provider_at_base_url().filter(|(provider, _)| *provider == name).map(|(_, url)| url);
    if let Some(url) = from_options.or(table.base_url.as_deref()) {
        return Some((url.trim_end_matches('/').to_owned(), Address::Configured));
    }
    let known = known_provider(name)?;
    let in_environment = variable(OPENAI_BASE_URL).filter(|url| name == "openai" && !url.is_empty());
    if let Some(url) = in_environment {
        if let Some(problem) = url_problem(&url) {
            problems.push(format!(
                "cannot be reached: the address in the environment variable `{OPENAI_BASE_URL}` {problem}"
            ));
        }
        return Some((url.trim_end_matches('/').to_owned(), Address::Configured));
    }
    Some((known.base_url.to_owned(), Address::Known))
}

fn required_key(name: &str, origin: &str, variable: Variables<'_>) -> Result<Option<Secret>, String> {
    match variable(name) {
        Some(value) => valid_key(name, value),
        None => Err(format!(
            "needs a key, and the environment variable `{name}` is not set ({origin}). Set it, for example with \
             `export {name}=YOUR_KEY`"
        )),
    }
}

fn valid_key(name: &str, value: String) -> Result<Option<Secret>, String> {
    let value_problem =
        value_problem(&value).or(value.starts_with("Bearer ").then_some("begins with `Bearer `, which the host adds"));
    match value_problem {
        Some(value_problem) => Err(format!(
            "needs a key, and the value of the environment variable `{name}` {value_problem}: set it to the key alone"
        )),
        None => Ok(Some(Secret::new(value))),
    }
}

/// If a key or header value is invalid, returns a description of the problem, which is the end of a sentence. The text
/// never contains the value.
fn value_problem(value: &str) -> Option<&'static str> {
    if value.trim().is_empty() {
        Some("is empty")
    } else if value.ends_with(['\n', '\r']) {
        Some("ends with a line break")
    } else if value.trim() != value {
        Some("begins or ends with white space")
    } else if value.contains(|character: char| !matches!(character, ' '..='~')) {
        Some("contains characters that are not allowed in a header")
    } else {
        None
    }
}

fn headers(table: &ProviderTable, variable: Variables<'_>, problems: &mut Vec<String>) -> Vec<(String, Secret)> {
    let mut headers: Vec<_> =
        table.headers.iter().map(|(name, value)| (name.clone(), Secret::new(value.clone()))).collect();
    for (name, Located { value: variable_name, location }) in &table.header_env {
        let origin = format!("named in {location}");
        match variable(variable_name) {
            None => problems.push(format!(
                "needs the header `{name}`, and the environment variable `{variable_name}` is not set ({origin}). Set it"
            )),
            Some(value) => match value_problem(&value) {
                None => headers.push((name.clone(), Secret::new(value))),
                Some(value_problem) => problems.push(format!(
                    "needs the header `{name}`, and the value of the environment variable `{variable_name}` ({origin}) \
                     {value_problem}"
                )),
            },
        }
    }
    headers
}

fn key_advice(name: &str, variable: Option<&str>) -> String {
    match variable {
        Some(variable) => format!("set `{variable}` to a valid key"),
        None => format!(
            "name the environment variable that contains the key, with `key_env` in [providers.{name}] of agent.toml"
        ),
    }
}

fn timeouts(table: &ProviderTable) -> Timeouts {
    let defaults = Timeouts::default();
    let duration_or = |value: Option<u32>, default| value.map_or(default, |ms| Duration::from_millis(u64::from(ms)));
    Timeouts {
        connect: duration_or(table.connect_timeout_ms, defaults.connect),
        stall: duration_or(table.stall_timeout_ms, defaults.stall),
        total: duration_or(table.total_timeout_ms, defaults.total),
    }
}

#[cfg(test)]
mod tests;
