//! Reads an agent's settings for commands that show which secrets and variables a plugin gets, but never use their values.

use crate::environment;
use crate::exit::Failure;
use crate::terminal::{Terminal, YELLOW, text};
use agent_config::grants::Kind;
use agent_config::{AgentOptions, Settings};
use std::collections::BTreeSet;

/// The value that is used in place of a secret or a granted variable that is not set. No plugin runs with it.
const PLACEHOLDER: &str = "placeholder-for-a-value";

/// Reads the settings, and warns of secrets and granted variables that are not set, instead of failing.
pub(super) fn read(options: &AgentOptions, terminal: &Terminal) -> Result<Settings, Failure> {
    let environment = environment::host();
    let (settings, _) = Settings::examine(options, &environment)?;
    let is_unset = |name: &str| environment.variable(name).is_none_or(|value| value.trim().is_empty());
    let secrets = settings.file.secrets.iter().map(|secret| (&secret.env, &secret.origin));
    let granted = settings.file.grants.iter().chain(&options.grants).filter(|grant| grant.kind == Kind::Env);
    let granted = granted.map(|grant| (&grant.value, &grant.origin));
    let unset = secrets.chain(granted).filter(|(name, _)| is_unset(name));
    for (name, origin) in unset.clone() {
        let problem =
            format!("{origin}: the environment variable `{name}` is not set; set it before you start the agent");
        terminal.note(format!("{YELLOW}!{YELLOW:#} {}", text::harmless(&problem)));
    }
    let names: BTreeSet<String> = unset.map(|(name, _)| name.clone()).collect();
    let variables = environment.clone();
    let completed = environment.with_variables(move |name| match names.contains(name) {
        true => Some(PLACEHOLDER.to_owned()),
        false => variables.variable(name),
    });
    Ok(Settings::read(options, &completed)?)
}
