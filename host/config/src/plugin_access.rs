//! Explains what a plugin may do: what it asks for, what it gets, and the configuration lines that would add what is missing
//! (P6).

use crate::grants;
use crate::text::{grouped, one_line, size};
use agent_plugins::{
    Access, Authority, CallLimits, GrantAdvice, Grants, Kind, LoadedPlugin, Need, PluginSetup, UnmetNeed,
};
use std::sync::Arc;

/// Maximum length of a description, in characters.
const MAX_CHARACTERS: usize = 200;
/// Maximum length of a line that grants several requests, in characters.
const MAX_LINE_CHARACTERS: usize = 4_000;

/// What a plugin may do. All texts are one line, and safe to show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginAccess {
    /// Whether the plugin has a manifest. A plugin without a manifest gets everything that it is granted.
    pub has_manifest: bool,
    /// What the plugin can use without a grant.
    pub always: Vec<String>,
    /// What the plugin gets.
    pub gets: Vec<String>,
    /// What the plugin asks for and gets only in part.
    pub partly: Vec<MissingAccess>,
    /// What the plugin asks for and does not get.
    pub denied: Vec<MissingAccess>,
    /// The table and the line that would grant all requests that are missing. `None` if fewer than two are missing. A table can
    /// contain only one list of requests, so the lines of the requests cannot be used together.
    pub all_requests: Option<(String, String)>,
    /// The grants that have no effect or only a partial effect. Each text continues a sentence that begins with the name of
    /// the plugin.
    pub unused: Vec<String>,
}

/// Access that a plugin asks for and does not get completely.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingAccess {
    /// What the plugin asks for.
    pub thing: String,
    /// The part that the plugin gets. `None` if it gets nothing of it.
    pub part: Option<String>,
    /// The table of the configuration file to which the line belongs, such as `[plugins.files.grants]`.
    pub table: String,
    /// The line that would grant the access.
    pub line: String,
}

impl MissingAccess {
    fn new(thing: &str, part: Option<&str>, advice: &GrantAdvice) -> Self {
        let shown = |text: &str| one_line(text, MAX_CHARACTERS);
        Self { thing: shown(thing), part: part.map(shown), table: shown(&advice.table), line: shown(&advice.line) }
    }
}

/// Returns the line that grants all of these requests. Returns `None` if the needs contain fewer than two requests.
fn line_for_all_requests<'n>(needs: impl Iterator<Item = &'n Need>) -> Option<String> {
    let requests: Vec<String> = needs
        .filter_map(|need| match need {
            Need::Http(pattern) => Some(toml::Value::String(pattern.clone()).to_string()),
            _ => None,
        })
        .collect();
    (requests.len() > 1).then(|| format!("http = [{}]", requests.join(", ")))
}

impl PluginAccess {
    /// Explains what the plugin may do with these grants.
    pub fn of(plugin: &Arc<LoadedPlugin>, grants: Grants) -> Self {
        let unused = grants::unused_grants(plugin, &grants);
        let partial = plugin.partially_met(&grants);
        let setup = PluginSetup::new(plugin.clone(), grants, CallLimits::default());
        let denied = setup.unmet().iter().filter(|unmet| !partial.iter().any(|part| part.need == unmet.need));
        let denied: Vec<&UnmetNeed> = denied.collect();
        let of_denied = denied.iter().map(|unmet| (&unmet.need, &unmet.advice));
        let requests = partial.iter().map(|part| (&part.need, &part.advice)).chain(of_denied);
        let requests: Vec<_> = requests.filter(|(need, _)| matches!(need, Need::Http(_))).collect();
        let line = line_for_all_requests(requests.iter().map(|(need, _)| *need));
        let all_requests = line
            .zip(requests.first())
            .map(|(line, (_, advice))| (one_line(&advice.table, MAX_CHARACTERS), one_line(&line, MAX_LINE_CHARACTERS)));
        let missing = |unmet: &UnmetNeed| {
            let remark = if plugin.is_optional(&unmet.need) { ", which is optional" } else { "" };
            MissingAccess::new(&format!("{}{remark}", unmet.thing), None, &unmet.advice)
        };
        Self {
            has_manifest: plugin.manifest().is_some(),
            always: always_available(plugin.kinds()),
            gets: effective_grants(setup.grants()).iter().map(|text| one_line(text, MAX_CHARACTERS)).collect(),
            partly: partial
                .iter()
                .map(|part| MissingAccess::new(&part.thing, Some(&part.part), &part.advice))
                .collect(),
            denied: denied.into_iter().map(missing).collect(),
            all_requests,
            unused,
        }
    }

    /// Returns whether the plugin asks for nothing and gets nothing.
    pub fn is_nothing(&self) -> bool {
        self.has_manifest && self.gets.is_empty() && self.partly.is_empty() && self.denied.is_empty()
    }
}

/// Describes the resources that plugins of these kinds can use without any grant (P5).
fn always_available(kinds: &[Kind]) -> Vec<String> {
    let inert: Vec<_> = kinds.iter().filter(|kind| kind.authority() == Authority::Inert).map(Kind::to_string).collect();
    let granted = "clocks, random numbers and a limited number of log lines".to_owned();
    if inert.is_empty() {
        return vec![granted];
    }
    let nothing =
        format!("as {}: no grants, a clock that does not advance, and random numbers that repeat", inert.join(" and "));
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
    let key_value = grants.key_value.map(|bytes| format!("keeping values of {} between calls", size(bytes)));
    let model =
        grants.model_tokens.map(|tokens| format!("asking the agent's model, {} tokens a turn", grouped(tokens)));
    let events = grants.events.iter().map(|event_type| {
        format!("sending the service event {event_type} through the host, if the service's own rules allow it")
    });
    let media = grants.media.then(|| "reading the media of the conversation".to_owned());
    let lists = trees.chain(env).chain(config).chain(http).chain(secrets);
    lists.chain(key_value).chain(model).chain(events).chain(media).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// P6: one line grants several requests, because a table can contain only one list of them.
    #[test]
    fn p6_one_line_grants_all_missing_requests() {
        let request = |pattern: &str| Need::Http(pattern.to_owned());
        let needs = [request("GET https://a.example"), Need::KeyValue, request("POST https://b.example/v1/")];
        let line = line_for_all_requests(needs.iter()).expect("two requests");
        assert_eq!(line, r#"http = ["GET https://a.example", "POST https://b.example/v1/"]"#);
        assert!(toml::from_str::<toml::Table>(&line).is_ok());
        assert_eq!(line_for_all_requests(needs[..2].iter()), None);
    }
}
