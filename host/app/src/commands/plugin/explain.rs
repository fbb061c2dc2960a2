//! `plugin explain`: shows the grants that a plugin requests, the grants that the plugin has, and the configuration
//! lines that would add the missing grants (P6).

use super::manifest_file;
use crate::terminal::{BOLD, DIM, GREEN, YELLOW, text};
use agent_config::grants;
use agent_plugins::{Access, Authority, CallLimits, GrantAdvice, Grants, Kind, LoadedPlugin, PluginSetup};
use std::path::Path;
use std::sync::Arc;

/// Maximum displayed length of a description, in characters.
const MAX_CHARACTERS: usize = 200;

/// Explains the plugin's grants, one per line.
pub(super) fn explained(plugin: &Arc<LoadedPlugin>, file: &Path, grants: Grants) -> String {
    let unused = grants::unused_grants(plugin, &grants);
    let partial = plugin.partially_met(&grants);
    let setup = PluginSetup::new(plugin.clone(), grants, CallLimits::default());
    let mut lines = vec![format!("{BOLD}{}{BOLD:#} {DIM}{}{DIM:#}", plugin.name(), plugin.digest().short())];
    if let Some(manifest) = manifest_file::shown(file) {
        lines.push(format!("  manifest  {manifest}"));
    }
    if plugin.manifest().is_none() {
        lines.push("  the plugin has no manifest, so it gets everything that it is granted".to_owned());
    }
    lines.extend(always_available(plugin.kinds()));
    for permission in effective_grants(setup.grants()) {
        lines.push(format!("  {GREEN}gets{GREEN:#}      {}", text::one_line(&permission, MAX_CHARACTERS)));
    }
    for part in &partial {
        let requested = text::one_line(&part.thing, MAX_CHARACTERS);
        let granted = text::one_line(&part.part, MAX_CHARACTERS);
        lines.push(format!("  {YELLOW}partly{YELLOW:#}    {requested}; the plugin gets {granted}"));
        lines.push(advice_line("to allow all of it", &part.advice));
    }
    for unmet in setup.unmet().iter().filter(|unmet| !partial.iter().any(|part| part.need == unmet.need)) {
        lines.push(format!("  {YELLOW}denied{YELLOW:#}    {}", text::one_line(&unmet.thing, MAX_CHARACTERS)));
        lines.push(advice_line("to allow it", &unmet.advice));
    }
    lines.extend(unused.iter().map(|grant| format!("  {YELLOW}unused{YELLOW:#}    `{}` {grant}", plugin.name())));
    if setup.unmet().is_empty() && effective_grants(setup.grants()).is_empty() && plugin.manifest().is_some() {
        lines.push("  the plugin asks for nothing, and gets nothing".to_owned());
    }
    lines.join("\n")
}

fn advice_line(purpose: &str, advice: &GrantAdvice) -> String {
    let (table, line) = (text::one_line(&advice.table, MAX_CHARACTERS), text::one_line(&advice.line, MAX_CHARACTERS));
    format!("            {DIM}{purpose}:{DIM:#} {table} {line}")
}

/// Describes the resources that plugins of these kinds can use without any grant (P5).
fn always_available(kinds: &[Kind]) -> Vec<String> {
    let inert: Vec<_> = kinds.iter().filter(|kind| kind.authority() == Authority::Inert).map(Kind::to_string).collect();
    let granted = "  always    clocks, random numbers and a limited number of log lines".to_owned();
    if inert.is_empty() {
        return vec![granted];
    }
    let nothing = format!(
        "  always    as {}: no grants, a clock that does not advance, and random numbers that repeat",
        inert.join(" and ")
    );
    if inert.len() == kinds.len() { vec![nothing] } else { vec![granted, nothing] }
}

/// Describes each grant that is in effect for the plugin.
fn effective_grants(grants: &Grants) -> Vec<String> {
    let trees = grants.trees.iter().map(|tree| match tree.access {
        Access::Read => format!("reading below {}", tree.guest),
        Access::ReadWrite => format!("reading and writing below {}", tree.guest),
    });
    let env = grants.env.keys().map(|name| format!("the variable {name}"));
    let config = grants.config.keys().map(|key| format!("the configuration value {key}"));
    let http = grants.http.iter().map(|pattern| format!("the request {pattern}"));
    let secrets = grants.secrets.iter().map(|secret| {
        let hosts: Vec<_> = secret.hosts().iter().map(ToString::to_string).collect();
        format!(
            "the secret {}, which the host puts into the header `{}` for {}",
            secret.name(),
            secret.header(),
            hosts.join(", ")
        )
    });
    let key_value = grants.key_value.map(|bytes| format!("keeping values of {} between calls", text::size(bytes)));
    let model =
        grants.model_tokens.map(|tokens| format!("asking the agent's model, {} tokens a turn", text::grouped(tokens)));
    let events = grants.events.iter().map(|event_type| {
        format!("sending the service event {event_type} through the host, if the service's own rules allow it")
    });
    let media = grants.media.then(|| "reading the media of the conversation".to_owned());
    let lists = trees.chain(env).chain(config).chain(http).chain(secrets);
    lists.chain(key_value).chain(model).chain(events).chain(media).collect()
}
