//! Grants as an open turn keeps them over a restart: what was granted, without the values (P10).

use crate::grants::{Grants, TreeGrant};
use crate::http::Secret;
use agent_core::event_type::ServiceEventType;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What a plugin was granted when its turn began. Of variables, settings and secrets only the names are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PinnedGrants {
    /// File trees.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub trees: Vec<TreeGrant>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    env: BTreeSet<String>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    config: BTreeSet<String>,
    /// Patterns.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    http: Vec<String>,
    /// Each with where it goes.
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

impl Grants {
    /// As a turn keeps them.
    pub fn pinned(&self) -> PinnedGrants {
        let Grants { trees, env, config, http, secrets, key_value, model_tokens, events, media } = self;
        PinnedGrants {
            trees: trees.clone(),
            env: env.keys().cloned().collect(),
            config: config.keys().cloned().collect(),
            http: http.iter().map(ToString::to_string).collect(),
            secrets: secrets.iter().map(place_of).collect(),
            key_value: *key_value,
            model_tokens: *model_tokens,
            events: events.clone(),
            media: *media,
        }
    }
}

impl PinnedGrants {
    /// What was granted and still is, with the values that it has now.
    pub fn with_values_of(&self, current: &Grants) -> Grants {
        let of = |names: &BTreeSet<String>, values: &BTreeMap<String, String>| {
            let values = values.iter().filter(|(name, _)| names.contains(*name));
            values.map(|(name, value)| (name.clone(), value.clone())).collect()
        };
        let begun_with = Grants {
            trees: self.trees.clone(),
            env: of(&self.env, &current.env),
            config: of(&self.config, &current.config),
            // What cannot be read any more grants nothing.
            http: self.http.iter().filter_map(|pattern| pattern.parse().ok()).collect(),
            secrets: current
                .secrets
                .iter()
                .filter(|secret| self.secrets.contains(&place_of(secret)))
                .cloned()
                .collect(),
            key_value: self.key_value,
            model_tokens: self.model_tokens,
            events: self.events.clone(),
            media: self.media,
        };
        begun_with.within(current)
    }
}

/// A secret by its name, its header and its hosts, without its value.
fn place_of(secret: &Secret) -> String {
    let hosts: Vec<String> = secret.hosts().iter().map(ToString::to_string).collect();
    format!("{} in {} to {}", secret.name(), secret.header(), hosts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::SecretTemplate;
    use crate::manifest::Access;

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
        serde_json::from_value(serde_json::to_value(grants.pinned()).expect("it serialises")).expect("it is read")
    }

    // P10: pinned ∩ current, over a restart; P7: no value is stored.
    #[test]
    fn p10_what_a_turn_began_with_as_far_as_it_still_is_granted() {
        let begun = all("first-value");
        assert!(!serde_json::to_string(&begun.pinned()).expect("it serialises").contains("first-value"));
        assert_eq!(stored(&begun).with_values_of(&all("other-value")), all("other-value"), "values are today's");
        assert_eq!(stored(&begun).with_values_of(&Grants::default()), Grants::default(), "a revocation acts");
        assert_eq!(
            stored(&Grants::default()).with_values_of(&begun),
            Grants::default(),
            "nothing is granted meanwhile"
        );
        let less = Grants { trees: vec![tree("/srv", Access::Read)], ..all("first-value") };
        assert_eq!(stored(&begun).with_values_of(&less).trees, less.trees);
        assert_eq!(stored(&less).with_values_of(&begun).trees, less.trees);
        let elsewhere = Grants { secrets: vec![secret("b.example", "first-value")], ..all("first-value") };
        assert_eq!(stored(&begun).with_values_of(&elsewhere).secrets, [], "a secret for another host is another one");
    }
}
