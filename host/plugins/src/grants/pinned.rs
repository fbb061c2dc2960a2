//! The grants of an open turn, as they are stored with the turn so that the host still knows them after a restart
//! (P10). The values of variables, settings and secrets are not stored. Stored grants are not trusted: they can only
//! narrow the current grants (P14).

use super::manifest::Access;
use super::secret::Secret;
use super::{Grants, TreeGrant, http_pattern, is_within};
use agent_core::event_type::ServiceEventType;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Maximum number of patterns that are read from stored grants.
const MAX_PATTERNS: usize = 1_000;

/// The grants that a plugin had when the turn began. For variables, configuration values and secrets, only the names
/// are stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PinnedGrants {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    trees: Vec<PinnedTree>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    env: BTreeSet<String>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    config: BTreeSet<String>,
    /// The granted patterns of HTTP requests, in their text form.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    http: Vec<String>,
    /// For each granted secret, a text with the secret's name, header and hosts, but without its value.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    secrets: BTreeSet<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_value: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model_tokens: Option<u64>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    events: BTreeSet<ServiceEventType>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    media: bool,
}

/// A directory tree that was granted to the plugin when the turn began. The host never opens the stored path, and only
/// compares it with the trees in the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PinnedTree {
    host: PathBuf,
    guest: String,
    access: Access,
}

impl Grants {
    /// Converts grants to the form that a turn stores.
    pub fn pinned(&self) -> PinnedGrants {
        let Grants { trees, env, config, http, secrets, key_value, model_tokens, events, media } = self;
        let pinned_tree =
            |tree: &TreeGrant| PinnedTree { host: tree.host.clone(), guest: tree.guest.clone(), access: tree.access };
        PinnedGrants {
            trees: trees.iter().map(pinned_tree).collect(),
            env: env.keys().cloned().collect(),
            config: config.keys().cloned().collect(),
            http: http.iter().map(ToString::to_string).collect(),
            secrets: secrets.iter().map(secret_key).collect(),
            key_value: *key_value,
            model_tokens: *model_tokens,
            events: events.clone(),
            media: *media,
        }
    }
}

impl PinnedGrants {
    /// The part of the current grants that was already granted when the turn began. Every path, value and secret of
    /// the result comes from the current configuration, so that stored grants can narrow the current grants but never
    /// widen them.
    pub fn narrowing(&self, current: &Grants) -> Grants {
        let Grants { trees, env, config, http, secrets, key_value, model_tokens, events, media } = current;
        let named = |names: &BTreeSet<String>, values: &BTreeMap<String, String>| {
            let values = values.iter().filter(|(name, _)| names.contains(*name));
            values.map(|(name, value)| (name.clone(), value.clone())).collect()
        };
        // A stored text that is no longer a valid pattern grants nothing.
        let patterns: Vec<_> = self.http.iter().take(MAX_PATTERNS).filter_map(|pattern| pattern.parse().ok()).collect();
        Grants {
            trees: trees.iter().filter_map(|tree| self.narrowing_tree(tree)).collect(),
            env: named(&self.env, env),
            config: named(&self.config, config),
            http: http_pattern::granted_by_both(&patterns, http),
            secrets: secrets.iter().filter(|secret| self.secrets.contains(&secret_key(secret))).cloned().collect(),
            key_value: self.key_value.zip(*key_value).map(|(pinned, current)| pinned.min(current)),
            model_tokens: self.model_tokens.zip(*model_tokens).map(|(pinned, current)| pinned.min(current)),
            events: self.events.intersection(events).cloned().collect(),
            media: self.media && *media,
        }
    }

    /// Returns the configured tree `current` with at most the access that the turn had to this tree or to a tree that
    /// contains it. Returns `None` if the turn had no such access.
    fn narrowing_tree(&self, current: &TreeGrant) -> Option<TreeGrant> {
        let containing = self.trees.iter().filter(|pinned| is_contained(&current.host, &pinned.host));
        let access = containing.map(|pinned| pinned.access).max()?.min(current.access);
        Some(TreeGrant { access, ..current.clone() })
    }
}

/// Whether the pinned tree contains the configured path. The path is compared as it is written, and also after its
/// symbolic links are resolved.
fn is_contained(current: &Path, pinned: &Path) -> bool {
    is_within(current, pinned) || std::fs::canonicalize(current).is_ok_and(|resolved| is_within(&resolved, pinned))
}

/// Returns a text that identifies a secret by its name, header and hosts, but does not contain the secret value.
fn secret_key(secret: &Secret) -> String {
    let hosts: Vec<String> = secret.hosts().iter().map(ToString::to_string).collect();
    format!("{} in {} to {}", secret.name(), secret.header(), hosts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grants::manifest::Access;
    use crate::grants::secret::SecretTemplate;

    fn secret(host: &str, value: &str) -> Secret {
        let (name, header, format) = ("TOKEN".to_owned(), "Authorization".to_owned(), "Bearer {}".to_owned());
        Secret::new(SecretTemplate { name, hosts: vec![host.to_owned()], header, format }, value).expect("a secret")
    }

    fn tree(host: &str, access: Access) -> TreeGrant {
        TreeGrant { host: host.into(), guest: ".".to_owned(), access }
    }

    fn all(value: &str) -> Grants {
        let entry = |name: &str| (name.to_owned(), value.to_owned());
        Grants {
            trees: vec![tree("/srv", Access::ReadWrite)],
            env: [entry("LANG")].into(),
            config: [entry("region")].into(),
            http: vec!["GET https://*.example.com/v1/".parse().expect("a pattern")],
            secrets: vec![secret("a.example", value)],
            key_value: Some(7),
            model_tokens: None,
            events: ["com.example.paid".parse().expect("a type")].into(),
            media: true,
        }
    }

    fn stored(grants: &Grants) -> PinnedGrants {
        serde_json::from_value(serde_json::to_value(grants.pinned()).expect("the grants are serialised"))
            .expect("the grants are read back")
    }

    // P10: after a restart, only grants that are both stored with the turn and in the current configuration apply. P7:
    // the stored grants contain no values.
    #[test]
    fn p10_pinned_grants_are_narrowed_by_current_grants() {
        let begun = all("first-value");
        assert!(!serde_json::to_string(&begun.pinned()).expect("the grants are serialised").contains("first-value"));
        assert_eq!(
            stored(&begun).narrowing(&all("other-value")),
            all("other-value"),
            "values come from the current grants"
        );
        assert_eq!(stored(&begun).narrowing(&Grants::default()), Grants::default(), "a revocation takes effect");
        assert_eq!(stored(&Grants::default()).narrowing(&begun), Grants::default(), "later grants are not added");
        let less = Grants { trees: vec![tree("/srv", Access::Read)], ..all("first-value") };
        assert_eq!(stored(&begun).narrowing(&less).trees, less.trees);
        assert_eq!(stored(&less).narrowing(&begun).trees, less.trees);
        let below = Grants { trees: vec![tree("/srv/docs", Access::ReadWrite)], ..Grants::default() };
        assert_eq!(stored(&begun).narrowing(&below), below, "a directory inside a tree that the turn could use");
        assert_eq!(stored(&below).narrowing(&begun).trees, [], "a tree of which the turn could use only one directory");
        let elsewhere = Grants { secrets: vec![secret("b.example", "first-value")], ..all("first-value") };
        assert_eq!(stored(&begun).narrowing(&elsewhere).secrets, [], "a secret for another host is a different secret");
    }

    // P14, row 38: stored trees are compared by path components and are never opened.
    #[test]
    fn p14_stored_tree_never_leads_out_of_configured_trees() {
        let current = Grants { trees: vec![tree("tree", Access::Read)], ..Grants::default() };
        let outside = ["tree/../../../../etc", "/etc", "..", "tree/..", "tree2", "/tree", "tree/./../x", "a/tree"];
        let inside = ["tree", "tree/", "./tree", "", "."];
        let claiming = |host: &str| {
            let tree = serde_json::json!({"host": host, "guest": "../..", "access": "read-write"});
            serde_json::from_value::<PinnedGrants>(serde_json::json!({"trees": [tree]})).expect("the grants are read")
        };
        for host in outside {
            assert_eq!(claiming(host).narrowing(&current), Grants::default(), "{host}");
        }
        for host in inside {
            let narrowed = claiming(host).narrowing(&current).trees;
            assert!(narrowed.is_empty() || narrowed == current.trees, "{host}: {narrowed:?}");
        }
        assert_eq!(claiming("tree").narrowing(&current), current);
    }
}
