//! Grants: a plugin may do only what its manifest asks for and what the agent's configuration also grants. By default,
//! nothing is granted (P6).

pub(crate) mod address;
mod advice;
pub(crate) mod called_servers;
pub(crate) mod first_use;
pub(crate) mod http_pattern;
pub(crate) mod live_grants;
pub(crate) mod manifest;
mod partial;
pub(crate) mod pinned;
pub(crate) mod request_rules;
mod revoked;
pub(crate) mod secret;

use crate::grants::http_pattern::HttpPattern;
use crate::grants::manifest::{Access, Manifest};
use crate::grants::secret::Secret;
use crate::identity::PluginIdentity;
use agent_core::event_type::ServiceEventType;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Component, Path, PathBuf};

pub(crate) use advice::{
    FOLLOWING, config_advice, config_description, file_change_advice, file_denied, file_reading_advice, files_advice,
    http_denied, key_value_denied, left_tree, media_denied, model_denied, protected, quoted,
};
pub use advice::{GrantAdvice, MEDIA_DESCRIPTION, event_denied};
use advice::{grant_advice, secret_advice};
pub use partial::PartialGrant;
pub(crate) use partial::partial_grants;

/// A directory that a plugin may use, with everything below it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeGrant {
    /// Path of the directory on the host.
    pub host: PathBuf,
    /// Path under which the guest sees the directory, as the user wrote it.
    pub guest: String,
    /// Whether the guest may only read the directory or also write to it.
    pub access: Access,
}

impl TreeGrant {
    /// Returns the path on the host of a path as a guest writes it, without accessing the file system. Returns `None` if
    /// the path is not in the directory, or contains `..`.
    pub fn path_on_host(&self, path: &str) -> Option<PathBuf> {
        let is_current = |component: &Component<'_>| *component == Component::CurDir;
        let normalized =
            |path: &Path| path.components().filter(|component| !is_current(component)).collect::<PathBuf>();
        let (path, guest) = (normalized(Path::new(path)), normalized(Path::new(&self.guest)));
        let inner = path.strip_prefix(&guest).or_else(|_| path.strip_prefix(&self.host)).ok()?;
        let stays_inside = inner.components().all(|component| matches!(component, Component::Normal(_)));
        stays_inside.then(|| self.host.join(inner))
    }

    /// Returns the path under which a guest sees this path of the host, without accessing the file system. Returns `None`
    /// if the path is not in the directory.
    pub fn path_in_guest(&self, path: &Path) -> Option<PathBuf> {
        let inner = path.strip_prefix(&self.host).ok()?;
        let stays_inside = inner.components().all(|component| matches!(component, Component::Normal(_)));
        stays_inside.then(|| match self.guest.as_str() {
            "." => inner.to_owned(),
            guest => Path::new(guest).join(inner),
        })
    }
}

/// What an agent's configuration grants to one plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    /// Directories that the plugin may open.
    pub trees: Vec<TreeGrant>,
    /// Environment variables that the plugin sees, with their values, which the host has already read.
    pub env: BTreeMap<String, String>,
    /// Keys and values that the plugin can read with `wasi:config`.
    pub config: BTreeMap<String, String>,
    /// Requests that the plugin may send with `wasi:http`.
    pub http: Vec<HttpPattern>,
    /// Secrets that the host adds to the plugin's HTTP requests.
    pub secrets: Vec<Secret>,
    /// Maximum number of bytes that the plugin may store in `wasi:keyvalue`. `None` means that the plugin may not
    /// store values.
    pub key_value: Option<u64>,
    /// Number of tokens of the agent's model that the plugin may use in one turn. `None` means that the plugin may not
    /// use the model.
    pub model_tokens: Option<u64>,
    /// Types of the service events that the plugin's tools may ask the host to send (P2).
    pub events: BTreeSet<ServiceEventType>,
    /// Whether the plugin may read the media items of the conversation, which it identifies by their digests (P5).
    pub media: bool,
}

impl Grants {
    /// Returns the union of `self` and `other`. If `self` and `other` grant the same variable, configuration key or
    /// secret, the value in `self` applies. If `self` and `other` grant the same directory or quota, the wider
    /// access or the larger quota applies.
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

    /// The intersection of `self` and `current`. If `self` and `current` grant an environment variable or a
    /// configuration key with different values, the value in `self` applies, because a turn keeps the values with which
    /// it started.
    #[must_use]
    pub fn within(&self, current: &Grants) -> Grants {
        let env = self.env.iter().filter(|(name, _)| current.env.contains_key(*name));
        let config = self.config.iter().filter(|(key, _)| current.config.contains_key(*key));
        let owned = |(key, value): (&String, &String)| (key.clone(), value.clone());
        Grants {
            trees: intersect_trees(&self.trees, &current.trees),
            env: env.map(owned).collect(),
            config: config.map(owned).collect(),
            http: http_pattern::granted_by_both(&self.http, &current.http),
            // A secret whose value has changed counts as a different secret: the changed secret is not in the
            // intersection, and only the next turn uses it.
            secrets: self.secrets.iter().filter(|secret| current.secrets.contains(secret)).cloned().collect(),
            key_value: smaller(self.key_value, current.key_value),
            model_tokens: smaller(self.model_tokens, current.model_tokens),
            events: self.events.intersection(&current.events).cloned().collect(),
            media: self.media && current.media,
        }
    }
}

fn smaller(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.zip(other).map(|(one, other)| one.min(other))
}

/// The trees that are equal to or inside one of the `current` trees. The access to each tree is limited to what both
/// trees allow.
pub fn intersect_trees(trees: &[TreeGrant], current: &[TreeGrant]) -> Vec<TreeGrant> {
    let within = |tree: &TreeGrant| {
        let containing = current.iter().filter(|other| is_within(&tree.host, &other.host));
        let access = containing.map(|other| other.access).max()?.min(tree.access);
        Some(TreeGrant { access, ..tree.clone() })
    };
    trees.iter().filter_map(within).collect()
}

/// Whether a path is equal to the folder or is below it. Paths are compared component by component. A path that
/// continues with `..` after the components of the folder is not considered to be below the folder.
pub(crate) fn is_within(path: &Path, folder: &Path) -> bool {
    let below = path.strip_prefix(folder);
    below.is_ok_and(|below| below.components().all(|component| matches!(component, Component::Normal(_))))
}

/// One need that a plugin states in its manifest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// Access to directories: only reading, or reading and writing.
    Files(Access),
    /// An environment variable with this name.
    Env(String),
    /// The value of `wasi:config` with this key.
    Config(String),
    /// HTTP requests that match a pattern.
    Http(String),
    /// A secret with this name.
    Secret(String),
    /// Storage for values that the plugin keeps between calls.
    KeyValue,
    /// Use of the agent's model, with this number of tokens per turn.
    Model(u64),
    /// Permission to send service events of this type.
    Event(String),
    /// Permission to read the media items of the conversation.
    Media,
}

/// A need of a plugin that is not granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnmetNeed {
    /// The need as it is written in the manifest. If the component has no manifest, the need is guessed
    /// from its imports.
    pub need: Need,
    /// Description for users, for example `reading files`.
    pub thing: String,
    /// Advice on how to add the missing grant.
    pub advice: GrantAdvice,
}

/// The denial of something that a plugin tried to do or use during a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The plugin to which something was denied.
    pub plugin: PluginIdentity,
    /// Description for users, for example `the configuration value "region"`.
    pub thing: String,
    /// Advice on how to add the missing grant.
    pub advice: GrantAdvice,
}

/// Converts the denial to the form that events and the audit log use.
impl From<&Denial> for agent_core::change::Denial {
    fn from(denial: &Denial) -> Self {
        let Denial { plugin, thing, advice } = denial;
        Self { plugin: plugin.to_string(), thing: thing.clone(), grant: advice.to_string() }
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} is not granted {}. To allow it, {}", self.plugin, self.thing, self.advice)
    }
}

/// The part of the configured grants that the manifest asks for. If the component has no manifest, all grants of the
/// configuration apply.
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
        http: http_pattern::within(&grants.http, &patterns(&asks.http)),
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

/// Describes, for users, what a plugin lacks that may read files and asks to change them, too.
pub(crate) const CHANGING_FILES: &str = "changing files";

/// The need to send the requests that a pattern matches.
pub(crate) fn request_need(plugin: &str, pattern: &str) -> UnmetNeed {
    let (thing, advice) = http_denied(plugin, pattern, pattern);
    UnmetNeed { need: Need::Http(pattern.to_owned()), thing, advice }
}

/// Everything that the manifest asks for and that is not granted.
pub(crate) fn unmet(manifest: Option<&Manifest>, grants: &Grants) -> Vec<UnmetNeed> {
    let Some(manifest) = manifest else { return Vec::new() };
    let (plugin, asks) = (manifest.name.as_str(), &manifest.asks);
    let granted = grants.trees.iter().map(|tree| tree.access).max();
    let files = asks.files.filter(|asked| granted < Some(*asked)).map(|asked| match granted {
        Some(_) => UnmetNeed { thing: CHANGING_FILES.to_owned(), ..files_advice(plugin, asked) },
        None => files_advice(plugin, asked),
    });
    let env = asks.env.iter().filter(|name| !grants.env.contains_key(*name)).map(|name| UnmetNeed {
        need: Need::Env(name.clone()),
        thing: format!("the environment variable {name}"),
        advice: grant_advice(plugin, format!("env = [{}]", quoted(name)), format!("env={name}")),
    });
    let config = asks.config.iter().filter(|key| !grants.config.contains_key(*key)).map(|key| UnmetNeed {
        need: Need::Config(key.clone()),
        thing: config_description(key),
        advice: config_advice(plugin, key),
    });
    let requests = asks.http.iter().filter(|asked| http_pattern::within(&grants.http, &patterns(&[asked])).is_empty());
    let requests = requests.map(|asked| request_need(plugin, asked));
    let secrets = asks.secrets.iter().filter(|name| !grants.secrets.iter().any(|secret| secret.name() == *name));
    let secrets = secrets.map(|name| UnmetNeed {
        need: Need::Secret(name.clone()),
        thing: format!("the secret {name}"),
        advice: secret_advice(plugin, name, &asks.http),
    });
    let key_value = (asks.key_value && grants.key_value.is_none()).then(|| {
        let (thing, advice) = key_value_denied(plugin);
        UnmetNeed { need: Need::KeyValue, thing, advice }
    });
    let model = asks.model_tokens.filter(|_| grants.model_tokens.is_none()).map(|asked| {
        let (thing, advice) = model_denied(plugin, Some(asked));
        UnmetNeed { need: Need::Model(asked), thing, advice }
    });
    let events = asks.events.iter().filter(|asked| !grants.events.iter().any(|granted| granted.as_str() == *asked));
    let events = events.map(|asked| {
        let (thing, advice) = event_denied(plugin, asked);
        UnmetNeed { need: Need::Event(asked.clone()), thing, advice }
    });
    let media = (asks.media && !grants.media).then(|| {
        let (thing, advice) = media_denied(plugin);
        UnmetNeed { need: Need::Media, thing, advice }
    });
    let lists = files.into_iter().chain(env).chain(config).chain(requests).chain(secrets);
    lists.chain(key_value).chain(model).chain(events).chain(media).collect()
}

/// Parses the request patterns of a manifest. Ignores texts that are not patterns.
pub(crate) fn patterns(texts: &[impl AsRef<str>]) -> Vec<HttpPattern> {
    texts.iter().filter_map(|text| text.as_ref().parse().ok()).collect()
}

/// Guesses, from the imports of a component without a manifest, which needs of the component are not granted. The
/// guessed needs are shown if something is denied to the component or if the component reports a denial.
pub(crate) fn guessed(plugin: &str, imports: &[String], grants: &Grants) -> Vec<UnmetNeed> {
    let uses_files = imports.iter().any(|import| import.starts_with("wasi:filesystem/"));
    if uses_files && grants.trees.is_empty() { vec![files_advice(plugin, Access::Read)] } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grants::manifest::Asks;

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
        let template =
            crate::grants::secret::SecretTemplate { name, hosts: vec!["a.example".to_owned()], header, format };
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

    // P6: a plugin may do only what its manifest asks for and what the configuration also grants.
    #[test]
    fn p6_effective_grants_are_the_intersection_of_manifest_and_configuration() {
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
            optional: Vec::new(),
        });
        assert_eq!(effective(Some(&everything), Grants::default()), Grants::default());
        assert_eq!(effective(Some(&everything), grants(Access::Read)), grants(Access::Read));
        let frugal = manifest(Asks { model_tokens: Some(30), ..everything.asks.clone() });
        assert_eq!(effective(Some(&frugal), grants(Access::Read)).model_tokens, Some(30), "the smaller number applies");
        let reader = manifest(Asks { files: Some(Access::Read), ..everything.asks.clone() });
        assert_eq!(effective(Some(&reader), grants(Access::ReadWrite)), grants(Access::Read));
        assert_eq!(effective(None, grants(Access::ReadWrite)), grants(Access::ReadWrite));
    }

    // P10: the grants in force are the intersection of the grants at the start of the turn and the current grants.
    #[test]
    fn p10_revoking_narrows_grants_and_nothing_widens_them() {
        let everything = grants(Access::ReadWrite);
        assert_eq!(everything.within(&everything), everything);
        assert_eq!(everything.within(&Grants::default()), Grants::default());
        assert_eq!(Grants::default().within(&everything), Grants::default());
        assert_eq!(everything.within(&grants(Access::Read)), grants(Access::Read));
        assert_eq!(grants(Access::Read).within(&everything), grants(Access::Read));
        let tree = |host: &str| TreeGrant { host: host.into(), guest: ".".to_owned(), access: Access::Read };
        assert_eq!(intersect_trees(&[tree("/srv/a")], &[tree("/srv")]), [tree("/srv/a")], "a tree above contains it");
        assert_eq!(intersect_trees(&[tree("/srv")], &[tree("/srv/a")]), [], "a tree below does not");
        assert_eq!(intersect_trees(&[tree("/srv2")], &[tree("/srv")]), []);
        assert_eq!(intersect_trees(&[tree("/srv/../etc")], &[tree("/srv")]), [], "a path that leaves the tree");
    }

    // P6: a denial names the missing grant and the line of agent.toml that adds it.
    #[test]
    fn p6_unmet_needs_include_the_line_to_add() {
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
            optional: Vec::new(),
        };
        let granted = Grants { key_value: None, model_tokens: None, media: false, ..grants(Access::Read) };
        let lines: Vec<_> = unmet(Some(&manifest(asks)), &granted)
            .into_iter()
            .map(|unmet| (unmet.thing, unmet.advice.line, unmet.advice.flag))
            .collect();
        let expected = [
            (CHANGING_FILES, "write = [\".\"]", "--grant files:write=DIR"),
            ("the environment variable HOME", "env = [\"HOME\"]", "--grant files:env=HOME"),
            ("the configuration value \"a.b\"", "config = { \"a.b\" = \"…\" }", "--grant files:config=a.b=VALUE"),
            (
                "the request GET https://b.example",
                "http = [\"GET https://b.example\"]",
                "--grant 'files:http=GET https://b.example'",
            ),
            ("the secret KEY", "KEY = { env = \"KEY\", hosts = [\"a.example\", \"b.example\"] }", ""),
            ("keeping values between calls", "key_value_mib = 10", "--grant files:key_value_mib=10"),
            ("asking the agent's model", "model_tokens = 5000", "--grant files:model_tokens=5000"),
            // Row 51: event types are case-sensitive.
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
