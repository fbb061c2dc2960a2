//! Grants: what a plugin may do is what its manifest asks for ∩ what the agent's configuration grants. Default:
//! nothing (P6).

mod partly;
mod revoked;

use crate::http::{self, HttpPattern, Secret};
use crate::identity::PluginIdentity;
use crate::manifest::{Access, Manifest};
use agent_core::event_type::ServiceEventType;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Component, Path, PathBuf};

pub use partly::Partly;
pub(crate) use partly::partly;

/// A directory with everything below it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeGrant {
    /// Where it is.
    pub host: PathBuf,
    /// What the guest calls it: as the user wrote it.
    pub guest: String,
    /// What may be done there.
    pub access: Access,
}

/// What an agent's configuration grants to one plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    /// File trees.
    pub trees: Vec<TreeGrant>,
    /// Environment variables with their values, which the binary has read already.
    pub env: BTreeMap<String, String>,
    /// Keys and values of `wasi:config`.
    pub config: BTreeMap<String, String>,
    /// Requests of `wasi:http`.
    pub http: Vec<HttpPattern>,
    /// Secrets that the host puts into requests.
    pub secrets: Vec<Secret>,
    /// Bytes that may be kept in `wasi:keyvalue`. None: nothing.
    pub key_value: Option<u64>,
    /// Tokens of the host's model in one turn of the agent. None: it is not asked.
    pub model_tokens: Option<u64>,
    /// Types of the service events that its tools may ask the host to send (P2).
    pub events: BTreeSet<ServiceEventType>,
    /// Whether it may read the media of the conversation, by digest (P5).
    pub media: bool,
}

impl Grants {
    /// What either gives. Where both give the same, it is as these have it, and the wider access and the larger room count.
    #[must_use]
    pub fn and(mut self, other: &Grants) -> Grants {
        for tree in &other.trees {
            match self.trees.iter_mut().find(|own| own.guest == tree.guest && own.host == tree.host) {
                Some(own) => own.access = own.access.max(tree.access),
                None => self.trees.push(tree.clone()),
            }
        }
        self.http.extend(other.http.iter().filter(|pattern| !self.http.contains(pattern)).cloned().collect::<Vec<_>>());
        let secrets = other.secrets.iter().filter(|other| !self.secrets.iter().any(|own| own.name() == other.name()));
        self.secrets.extend(secrets.cloned().collect::<Vec<_>>());
        for (name, value) in &other.env {
            self.env.entry(name.clone()).or_insert_with(|| value.clone());
        }
        for (key, value) in &other.config {
            self.config.entry(key.clone()).or_insert_with(|| value.clone());
        }
        self.key_value = self.key_value.max(other.key_value);
        self.model_tokens = self.model_tokens.max(other.model_tokens);
        self.events.extend(other.events.iter().cloned());
        self.media |= other.media;
        self
    }

    /// What both give. Values are these grants' own: what a value is was settled when it was granted.
    #[must_use]
    pub fn within(&self, current: &Grants) -> Grants {
        let env = self.env.iter().filter(|(name, _)| current.env.contains_key(*name));
        let config = self.config.iter().filter(|(key, _)| current.config.contains_key(*key));
        let owned = |(key, value): (&String, &String)| (key.clone(), value.clone());
        Grants {
            trees: trees_within(&self.trees, &current.trees),
            env: env.map(owned).collect(),
            config: config.map(owned).collect(),
            http: http::granted_by_both(&self.http, &current.http),
            // One that has changed is another one, and the next turn's.
            secrets: self.secrets.iter().filter(|secret| current.secrets.contains(secret)).cloned().collect(),
            key_value: smaller(self.key_value, current.key_value),
            model_tokens: smaller(self.model_tokens, current.model_tokens),
            events: self.events.intersection(&current.events).cloned().collect(),
            media: self.media && current.media,
        }
    }
}

/// What both give.
fn smaller(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.zip(other).map(|(one, other)| one.min(other))
}

/// Of these trees what the current ones hold, too, with the smaller access.
pub fn trees_within(trees: &[TreeGrant], current: &[TreeGrant]) -> Vec<TreeGrant> {
    let within = |tree: &TreeGrant| {
        let holding = current.iter().filter(|other| lies_within(&tree.host, &other.host));
        let access = holding.map(|other| other.access).max()?.min(tree.access);
        Some(TreeGrant { access, ..tree.clone() })
    };
    trees.iter().filter_map(within).collect()
}

/// Whether a path leads to the folder or to something below it: by components, and never where a `..` comes after the
/// folder's own components.
pub(crate) fn lies_within(path: &Path, folder: &Path) -> bool {
    let below = path.strip_prefix(folder);
    below.is_ok_and(|below| below.components().all(|component| matches!(component, Component::Normal(_))))
}

/// What is said where no grant helps, behind "to allow it,".
const UNGRANTABLE: &str = "do it yourself or change the plugin: no grant allows this";

/// How a missing grant is given. All fields are empty where no grant would help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantAdvice {
    /// The table in `agent.toml`. Example: `[plugins.files.grants]`.
    pub table: String,
    /// The line in it. Example: `read = ["."]`.
    pub line: String,
    /// The same on the command line; empty where it can only stand in the file. Example: `--grant files:read=DIR`.
    pub flag: String,
}

impl GrantAdvice {
    /// Nothing that could be granted would allow it.
    pub(crate) fn none() -> Self {
        Self::without_grant(UNGRANTABLE.to_owned())
    }

    /// What to do where no grant would allow it.
    pub fn without_grant(what_to_do: String) -> Self {
        Self { table: String::new(), line: what_to_do, flag: String::new() }
    }

    /// In one line: what to pass, or where there is no such option, what to write where.
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

/// One thing that a plugin asks for, as its manifest has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// File trees.
    Files(Access),
    /// A variable of the environment, by name.
    Env(String),
    /// A value of `wasi:config`, by key.
    Config(String),
    /// Requests: a pattern.
    Http(String),
    /// A secret, by name.
    Secret(String),
    /// To keep values between calls.
    KeyValue,
    /// So many tokens of the agent's model in a turn.
    Model(u64),
    /// To send service events of a type.
    Event(String),
    /// To read the media of the conversation.
    Media,
}

/// What a plugin asks for and does not get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmet {
    /// As the manifest has it; for a component without one, as it was guessed.
    pub need: Need,
    /// In words. Example: `reading files`.
    pub thing: String,
    /// How to grant it.
    pub advice: GrantAdvice,
}

/// Something that was refused during a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// Who asked.
    pub plugin: PluginIdentity,
    /// In words. Example: `the configuration value "region"`.
    pub thing: String,
    /// How to grant it.
    pub advice: GrantAdvice,
}

/// As events and the audit log have it.
impl From<&Denial> for agent_core::change::Denial {
    fn from(denial: &Denial) -> Self {
        let Denial { plugin, thing, advice } = denial;
        Self { plugin: plugin.to_string(), thing: thing.clone(), grant: advice.to_string() }
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} was denied {}; to allow it, {}", self.plugin, self.thing, self.advice)
    }
}

/// The part of the grants that the manifest asks for. A component without a manifest asks for all of them: the
/// configuration is then the only word.
pub(crate) fn effective(manifest: Option<&Manifest>, grants: Grants) -> Grants {
    let Some(manifest) = manifest else { return grants };
    let asks = &manifest.asks;
    let trees = grants.trees.into_iter().filter_map(|tree| {
        let access = tree.access.min(asks.files?);
        Some(TreeGrant { access, ..tree })
    });
    Grants {
        trees: trees.collect(),
        env: grants.env.into_iter().filter(|(name, _)| asks.env.contains(name)).collect(),
        config: grants.config.into_iter().filter(|(key, _)| asks.config.contains(key)).collect(),
        http: http::within(&grants.http, &patterns(&asks.http)),
        secrets: grants
            .secrets
            .into_iter()
            .filter(|secret| asks.secrets.iter().any(|name| name == secret.name()))
            .collect(),
        key_value: grants.key_value.filter(|_| asks.key_value),
        model_tokens: smaller(grants.model_tokens, asks.model_tokens),
        events: grants
            .events
            .into_iter()
            .filter(|granted| asks.events.iter().any(|asked| asked == granted.as_str()))
            .collect(),
        media: grants.media && asks.media,
    }
}

/// What the manifest asks for beyond the grants.
pub(crate) fn unmet(manifest: Option<&Manifest>, grants: &Grants) -> Vec<Unmet> {
    let Some(manifest) = manifest else { return Vec::new() };
    let (plugin, asks) = (manifest.name.as_str(), &manifest.asks);
    let granted = grants.trees.iter().map(|tree| tree.access).max();
    let files = asks.files.filter(|asked| granted < Some(*asked)).map(|asked| files_advice(plugin, asked));
    let env = asks.env.iter().filter(|name| !grants.env.contains_key(*name)).map(|name| Unmet {
        need: Need::Env(name.clone()),
        thing: format!("the environment variable {name}"),
        advice: advice(plugin, format!("env = [{}]", quoted(name)), format!("env={name}")),
    });
    let config = asks.config.iter().filter(|key| !grants.config.contains_key(*key)).map(|key| Unmet {
        need: Need::Config(key.clone()),
        thing: config_thing(key),
        advice: config_advice(plugin, key),
    });
    let requests = asks.http.iter().filter(|asked| http::within(&grants.http, &patterns(&[asked])).is_empty());
    let requests = requests.map(|asked| {
        let (thing, advice) = http_denied(plugin, asked, asked);
        Unmet { need: Need::Http(asked.clone()), thing, advice }
    });
    let secrets = asks.secrets.iter().filter(|name| !grants.secrets.iter().any(|secret| secret.name() == *name));
    let secrets = secrets.map(|name| Unmet {
        need: Need::Secret(name.clone()),
        thing: format!("the secret {name}"),
        advice: secret_advice(plugin, name),
    });
    let key_value = (asks.key_value && grants.key_value.is_none()).then(|| {
        let (thing, advice) = key_value_denied(plugin);
        Unmet { need: Need::KeyValue, thing, advice }
    });
    let model = asks.model_tokens.filter(|_| grants.model_tokens.is_none()).map(|asked| {
        let (thing, advice) = model_denied(plugin, Some(asked));
        Unmet { need: Need::Model(asked), thing, advice }
    });
    let events = asks.events.iter().filter(|asked| !grants.events.iter().any(|granted| granted.as_str() == *asked));
    let events = events.map(|asked| {
        let (thing, advice) = event_denied(plugin, asked);
        Unmet { need: Need::Event(asked.clone()), thing, advice }
    });
    let media = (asks.media && !grants.media).then(|| {
        let (thing, advice) = media_denied(plugin);
        Unmet { need: Need::Media, thing, advice }
    });
    let lists = files.into_iter().chain(env).chain(config).chain(requests).chain(secrets);
    lists.chain(key_value).chain(model).chain(events).chain(media).collect()
}

/// The patterns among texts of a manifest. What is none asks for nothing.
fn patterns(texts: &[impl AsRef<str>]) -> Vec<HttpPattern> {
    texts.iter().filter_map(|text| text.as_ref().parse().ok()).collect()
}

/// What may be missing when a component without a manifest says that it was denied something: it can only be guessed
/// from its imports.
pub(crate) fn guessed(plugin: &str, imports: &[String], grants: &Grants) -> Vec<Unmet> {
    let uses_files = imports.iter().any(|import| import.starts_with("wasi:filesystem/"));
    if uses_files && grants.trees.is_empty() { vec![files_advice(plugin, Access::Read)] } else { Vec::new() }
}

/// How a key of `wasi:config` is named to people.
pub(crate) fn config_thing(key: &str) -> String {
    format!("the configuration value {}", quoted(key))
}

/// How a key of `wasi:config` is granted.
pub(crate) fn config_advice(plugin: &str, key: &str) -> GrantAdvice {
    advice(plugin, format!("config = {{ {} = \"…\" }}", toml_key(key)), format!("config={key}=VALUE"))
}

/// How a request is named to people, and granted by the pattern `line`.
pub(crate) fn http_denied(plugin: &str, request: &str, line: &str) -> (String, GrantAdvice) {
    let advice = advice(plugin, format!("http = [{}]", quoted(line)), format!("http={line}"));
    (format!("the request {request}"), advice)
}

/// How `wasi:keyvalue` is named to people, and granted.
pub(crate) fn key_value_denied(plugin: &str) -> (String, GrantAdvice) {
    let advice = advice(plugin, "key_value_mib = 10".to_owned(), "key_value_mib=10".to_owned());
    ("keeping values between calls".to_owned(), advice)
}

/// Tokens that are proposed where the manifest names no number.
const PROPOSED_TOKENS: u64 = 20_000;

/// How the host's model is named to people, and granted.
pub(crate) fn model_denied(plugin: &str, asked: Option<u64>) -> (String, GrantAdvice) {
    let grant = format!("model_tokens={}", asked.unwrap_or(PROPOSED_TOKENS));
    let advice = advice(plugin, grant.replace('=', " = "), grant);
    ("asking the agent's model".to_owned(), advice)
}

/// How the sending of a service event is named to people, and granted.
pub fn event_denied(plugin: &str, event_type: &str) -> (String, GrantAdvice) {
    let advice = advice(plugin, format!("events = [{}]", quoted(event_type)), format!("events={event_type}"));
    (format!("sending the service event {event_type}"), advice)
}

/// How the reading of the conversation's media is named to people.
pub const MEDIA_THING: &str = "reading the media of the conversation";

/// How the media of the conversation are named to people, and granted.
pub(crate) fn media_denied(plugin: &str) -> (String, GrantAdvice) {
    let advice = advice(plugin, "media = true".to_owned(), "media=true".to_owned());
    (MEDIA_THING.to_owned(), advice)
}

/// How the opening of a file in a granted tree is named to people, and granted.
pub(crate) fn file_denied(plugin: &str, path: &str) -> (String, GrantAdvice) {
    (format!("opening {} for writing", quoted(path)), files_advice(plugin, Access::ReadWrite).advice)
}

/// What a denial of a path that leads out of its tree begins with.
pub(crate) const FOLLOWING: &str = "following ";

/// A path that leads out of its tree: what was denied, and how what it leads to is granted.
pub(crate) fn left_tree(plugin: &str, path: &str) -> (String, GrantAdvice) {
    let thing = format!("{FOLLOWING}{}, which leads out of the granted tree", quoted(path));
    (thing, advice(plugin, "read = [\"the folder that it leads to\"]".to_owned(), "read=DIR".to_owned()))
}

/// A file that no grant covers: what was denied, and that nothing can be granted.
pub(crate) fn protected(deed: &str, why: &str) -> (String, GrantAdvice) {
    (format!("{deed}: {why}"), GrantAdvice::none())
}

/// How reading is granted.
pub(crate) fn file_reading_advice(plugin: &str) -> GrantAdvice {
    files_advice(plugin, Access::Read).advice
}

/// How changes of a tree are granted.
pub(crate) fn file_change_advice(plugin: &str) -> GrantAdvice {
    files_advice(plugin, Access::ReadWrite).advice
}

fn secret_advice(plugin: &str, name: &str) -> GrantAdvice {
    GrantAdvice {
        table: format!("[plugins.{}.secrets]", toml_key(plugin)),
        line: format!("{} = {{ env = {}, hosts = [\"…\"] }}", toml_key(name), quoted(name)),
        flag: String::new(),
    }
}

pub(crate) fn files_advice(plugin: &str, access: Access) -> Unmet {
    let (thing, key) = match access {
        Access::Read => ("reading files", "read"),
        Access::ReadWrite => ("reading and writing files", "write"),
    };
    let advice = advice(plugin, format!("{key} = [\".\"]"), format!("{key}=DIR"));
    Unmet { need: Need::Files(access), thing: thing.to_owned(), advice }
}

fn advice(plugin: &str, line: String, grant: String) -> GrantAdvice {
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

/// A TOML key, in quotes where it needs them.
fn toml_key(key: &str) -> String {
    let bare = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    if bare { key.to_owned() } else { quoted(key) }
}

/// A TOML basic string.
pub(crate) fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::Asks;

    fn manifest(asks: Asks) -> Manifest {
        Manifest { name: "files".to_owned(), asks, ..Manifest::default() }
    }

    fn pattern(text: &str) -> HttpPattern {
        text.parse().expect("a pattern")
    }

    fn event(text: &str) -> ServiceEventType {
        text.parse().expect("an event type")
    }

    fn secret() -> Secret {
        let (name, header, format) = ("TOKEN".to_owned(), "Authorization".to_owned(), "Bearer {}".to_owned());
        let template = crate::http::SecretTemplate { name, hosts: vec!["a.example".to_owned()], header, format };
        Secret::new(template, "12345678").expect("a secret")
    }

    fn grants(access: Access) -> Grants {
        let tree = TreeGrant { host: PathBuf::from("/srv"), guest: ".".to_owned(), access };
        let entry = |key: &str| (key.to_owned(), "value".to_owned());
        Grants {
            trees: vec![tree],
            env: [entry("LANG")].into(),
            config: [entry("region")].into(),
            http: vec![pattern("https://a.example")],
            secrets: vec![secret()],
            key_value: Some(7),
            model_tokens: Some(100),
            events: [event("com.example.paid")].into(),
            media: true,
        }
    }

    // P6: what a plugin may do = what its manifest asks for ∩ what the configuration grants.
    #[test]
    fn neither_side_alone_gives_anything() {
        let nothing = manifest(Asks::default());
        assert_eq!(effective(Some(&nothing), grants(Access::ReadWrite)), Grants::default());
        let everything = manifest(Asks {
            files: Some(Access::ReadWrite),
            env: vec!["LANG".to_owned(), "HOME".to_owned()],
            config: vec!["region".to_owned()],
            http: vec!["https://*".to_owned()],
            secrets: vec!["TOKEN".to_owned()],
            key_value: true,
            model_tokens: Some(200),
            events: vec!["com.example.paid".to_owned(), "com.example.sent".to_owned()],
            media: true,
        });
        assert_eq!(effective(Some(&everything), Grants::default()), Grants::default());
        assert_eq!(effective(Some(&everything), grants(Access::Read)), grants(Access::Read));
        let frugal = manifest(Asks { model_tokens: Some(30), ..everything.asks.clone() });
        assert_eq!(effective(Some(&frugal), grants(Access::Read)).model_tokens, Some(30), "the smaller of both");
        let reader = manifest(Asks { files: Some(Access::Read), ..everything.asks.clone() });
        assert_eq!(effective(Some(&reader), grants(Access::ReadWrite)), grants(Access::Read));
        assert_eq!(effective(None, grants(Access::ReadWrite)), grants(Access::ReadWrite));
    }

    // P10: grants are those that a turn began with ∩ those of now.
    #[test]
    fn a_revocation_narrows_and_nothing_widens() {
        let all = grants(Access::ReadWrite);
        assert_eq!(all.within(&all), all);
        assert_eq!(all.within(&Grants::default()), Grants::default());
        assert_eq!(Grants::default().within(&all), Grants::default());
        assert_eq!(all.within(&grants(Access::Read)), grants(Access::Read));
        assert_eq!(grants(Access::Read).within(&all), grants(Access::Read));
        let tree = |host: &str| TreeGrant { host: host.into(), guest: ".".to_owned(), access: Access::Read };
        assert_eq!(trees_within(&[tree("/srv/a")], &[tree("/srv")]), [tree("/srv/a")], "a tree above holds it");
        assert_eq!(trees_within(&[tree("/srv")], &[tree("/srv/a")]), [], "a tree below does not");
        assert_eq!(trees_within(&[tree("/srv2")], &[tree("/srv")]), []);
        assert_eq!(trees_within(&[tree("/srv/../etc")], &[tree("/srv")]), [], "a path that leaves the tree");
    }

    // P6: a denial names the thing and the line to add.
    #[test]
    fn what_is_missing_comes_with_the_line_to_add() {
        let asks = Asks {
            files: Some(Access::ReadWrite),
            env: vec!["HOME".into()],
            config: vec!["a.b".into()],
            http: vec!["https://a.example/v1".into(), "GET https://b.example".into()],
            secrets: vec!["TOKEN".into(), "KEY".into()],
            key_value: true,
            model_tokens: Some(5_000),
            events: vec!["com.example.paid".into(), "com.example.Paid".into()],
            media: true,
        };
        let granted = Grants { key_value: None, model_tokens: None, media: false, ..grants(Access::Read) };
        let lines: Vec<_> = unmet(Some(&manifest(asks)), &granted)
            .into_iter()
            .map(|unmet| (unmet.thing, unmet.advice.line, unmet.advice.flag))
            .collect();
        let expected = [
            ("reading and writing files", "write = [\".\"]", "--grant files:write=DIR"),
            ("the environment variable HOME", "env = [\"HOME\"]", "--grant files:env=HOME"),
            ("the configuration value \"a.b\"", "config = { \"a.b\" = \"…\" }", "--grant files:config=a.b=VALUE"),
            (
                "the request GET https://b.example",
                "http = [\"GET https://b.example\"]",
                "--grant 'files:http=GET https://b.example'",
            ),
            ("the secret KEY", "KEY = { env = \"KEY\", hosts = [\"…\"] }", ""),
            ("keeping values between calls", "key_value_mib = 10", "--grant files:key_value_mib=10"),
            ("asking the agent's model", "model_tokens = 5000", "--grant files:model_tokens=5000"),
            // Row 51: another case is another type.
            (
                "sending the service event com.example.Paid",
                "events = [\"com.example.Paid\"]",
                "--grant files:events=com.example.Paid",
            ),
            ("reading the media of the conversation", "media = true", "--grant files:media=true"),
        ];
        assert_eq!(lines, expected.map(|(thing, line, flag)| (thing.into(), line.into(), flag.into())));
        let reader = manifest(Asks { files: Some(Access::Read), ..Asks::default() });
        assert!(unmet(Some(&reader), &grants(Access::Read)).is_empty());
        let advice = unmet(Some(&reader), &Grants::default())[0].advice.to_string();
        assert_eq!(
            advice,
            "add to agent.toml:\n[plugins.files.grants]\nread = [\".\"]\nor pass --grant files:read=DIR"
        );
    }
}
