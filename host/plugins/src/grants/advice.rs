//! Texts for users: what was denied to a plugin, and how to grant it.

use super::manifest::Access;
use super::{Need, UnmetNeed};
use std::fmt;

/// The advice if no grant would help. The text completes a sentence that starts with "to allow it,".
const UNGRANTABLE: &str = "do it yourself or change the plugin: no grant allows this";

/// Advice for the user on how to add a missing grant. If no grant would help, `table` and `flag` are empty and `line`
/// describes what the user can do instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantAdvice {
    /// Table in `agent.toml`, for example `[plugins.files.grants]`.
    pub table: String,
    /// Line to add to the table, for example `read = ["."]`.
    pub line: String,
    /// Command-line option with the same effect, for example `--grant files:read=DIR`. The text is empty if only
    /// `agent.toml` can add the grant.
    pub flag: String,
}

impl GrantAdvice {
    /// Creates the advice for an action that no grant would allow.
    pub(crate) fn none() -> Self {
        Self::without_grant(UNGRANTABLE.to_owned())
    }

    /// Creates the advice for an action that no grant would allow. `what_to_do` tells the user what to do instead of
    /// adding a grant.
    pub fn without_grant(what_to_do: String) -> Self {
        Self { table: String::new(), line: what_to_do, flag: String::new() }
    }

    /// Returns the advice in one line: the command-line option to pass or, if there is no such option, the line to
    /// add to `agent.toml`.
    pub fn short(&self) -> String {
        match (self.flag.is_empty(), self.table.is_empty()) {
            (false, _) => self.flag.clone(),
            (true, true) => self.line.clone(),
            (true, false) => format!("{} {} in agent.toml", self.table, self.line),
        }
    }
}

impl fmt::Display for GrantAdvice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.table.is_empty() {
            return formatter.write_str(&self.line);
        }
        write!(formatter, "add to agent.toml:\n{}\n{}", self.table, self.line)?;
        if self.flag.is_empty() { Ok(()) } else { write!(formatter, "\nor pass {}", self.flag) }
    }
}

/// Describes a `wasi:config` key to users.
pub(crate) fn config_description(key: &str) -> String {
    format!("the configuration value {}", quoted(key))
}

/// Advice on how to grant a `wasi:config` key.
pub(crate) fn config_advice(plugin: &str, key: &str) -> GrantAdvice {
    grant_advice(plugin, format!("config = {{ {} = \"…\" }}", toml_key(key)), format!("config={key}=VALUE"))
}

/// Returns texts for users: a description of an HTTP request, and advice on how to grant the request with the pattern
/// `line`, which matches it.
pub(crate) fn http_denied(plugin: &str, request: &str, line: &str) -> (String, GrantAdvice) {
    let advice = grant_advice(plugin, format!("http = [{}]", quoted(line)), format!("http={line}"));
    (format!("the request {request}"), advice)
}

/// Returns texts for users: a description of the use of `wasi:keyvalue`, and advice on how to grant it.
pub(crate) fn key_value_denied(plugin: &str) -> (String, GrantAdvice) {
    let advice = grant_advice(plugin, "key_value_mib = 10".to_owned(), "key_value_mib=10".to_owned());
    ("keeping values between calls".to_owned(), advice)
}

/// Number of tokens that the advice proposes if the manifest does not set a number.
const PROPOSED_TOKENS: u64 = 20_000;

/// Returns texts for users: a description of the use of the agent's model, and advice on how to grant it.
pub(crate) fn model_denied(plugin: &str, asked: Option<u64>) -> (String, GrantAdvice) {
    let grant = format!("model_tokens={}", asked.unwrap_or(PROPOSED_TOKENS));
    let advice = grant_advice(plugin, grant.replace('=', " = "), grant);
    ("asking the agent's model".to_owned(), advice)
}

/// Returns two texts for users about a denied service event: a description of the denied action, and advice on how to
/// grant this action.
pub fn event_denied(plugin: &str, event_type: &str) -> (String, GrantAdvice) {
    let advice = grant_advice(plugin, format!("events = [{}]", quoted(event_type)), format!("events={event_type}"));
    (format!("sending the service event {event_type}"), advice)
}

/// Description, for users, of reading the conversation's media items.
pub const MEDIA_DESCRIPTION: &str = "reading the media of the conversation";

/// Returns two texts for users about denied access to the conversation's media items: a description of the denied
/// action, and advice on how to grant this action.
pub(crate) fn media_denied(plugin: &str) -> (String, GrantAdvice) {
    let advice = grant_advice(plugin, "media = true".to_owned(), "media=true".to_owned());
    (MEDIA_DESCRIPTION.to_owned(), advice)
}

/// Returns a description, for users, of the denied attempt to open a file for writing, and advice on how to grant it.
pub(crate) fn file_denied(plugin: &str, path: &str) -> (String, GrantAdvice) {
    (format!("opening {} for writing", quoted(path)), files_advice(plugin, Access::ReadWrite).advice)
}

/// The first word of the denial that is recorded if a guest's path leads out of its tree.
pub(crate) const FOLLOWING: &str = "following ";

/// Returns the denial for a guest's path that leads out of its tree, as a description for users, and advice on how to
/// grant the target of the path.
pub(crate) fn left_tree(plugin: &str, path: &str) -> (String, GrantAdvice) {
    let thing = format!("{FOLLOWING}{}, which leads out of the granted tree", quoted(path));
    (thing, grant_advice(plugin, "read = [\"the folder that it leads to\"]".to_owned(), "read=DIR".to_owned()))
}

/// Description of an action that no grant allows, because the file is protected.
pub(crate) fn protected(action: &str, why: &str) -> (String, GrantAdvice) {
    (format!("{action}: {why}"), GrantAdvice::none())
}

/// Returns advice on how to grant a plugin read access to files.
pub(crate) fn file_reading_advice(plugin: &str) -> GrantAdvice {
    files_advice(plugin, Access::Read).advice
}

/// Advice on how to grant writing to a tree.
pub(crate) fn file_change_advice(plugin: &str) -> GrantAdvice {
    files_advice(plugin, Access::ReadWrite).advice
}

/// Advice on how to grant a secret. `requested` contains the patterns of the requests that the plugin asks for. The servers that
/// they name exactly are written into the advice, so that the user sees where the secret would be sent.
pub(super) fn secret_advice(plugin: &str, name: &str, requested: &[String]) -> GrantAdvice {
    let mut hosts: Vec<String> =
        requested.iter().filter_map(|pattern| origin_of(pattern)).map(|host| quoted(&host)).collect();
    hosts.dedup();
    let hosts = if hosts.is_empty() { "\"…\"".to_owned() } else { hosts.join(", ") };
    GrantAdvice {
        table: format!("[plugins.{}.secrets]", toml_key(plugin)),
        line: format!("{} = {{ env = {}, hosts = [{hosts}] }}", toml_key(name), quoted(name)),
        flag: String::new(),
    }
}

/// Returns the server of a request pattern such as `GET https://a.example`, in the form that a secret's `hosts` accept.
/// Returns `None` if the pattern contains wildcards.
fn origin_of(pattern: &str) -> Option<String> {
    let origin = pattern.split_whitespace().find(|word| word.contains("://"))?;
    let (scheme, rest) = origin.split_once("://")?;
    let server = rest.split('/').next().filter(|server| !server.is_empty() && !server.contains('*'))?;
    Some(if scheme == "https" { server.to_owned() } else { format!("{scheme}://{server}") })
}

pub(crate) fn files_advice(plugin: &str, access: Access) -> UnmetNeed {
    let (thing, key) = match access {
        Access::Read => ("reading files", "read"),
        Access::ReadWrite => ("reading and writing files", "write"),
    };
    let advice = grant_advice(plugin, format!("{key} = [\".\"]"), format!("{key}=DIR"));
    UnmetNeed { need: Need::Files(access), thing: thing.to_owned(), advice }
}

pub(super) fn grant_advice(plugin: &str, line: String, grant: String) -> GrantAdvice {
    GrantAdvice {
        table: format!("[plugins.{}.grants]", toml_key(plugin)),
        line,
        flag: if grant.contains([' ', '*']) {
            format!("--grant '{plugin}:{grant}'")
        } else {
            format!("--grant {plugin}:{grant}")
        },
    }
}

/// The text as a TOML key, which is quoted if necessary.
fn toml_key(key: &str) -> String {
    let bare = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    if bare { key.to_owned() } else { quoted(key) }
}

/// The text as a TOML basic string.
pub(crate) fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}
