//! Decides whose signatures are accepted: the policy, and the trusted keys of each namespace.

use crate::error::RegistryError;
use crate::keys::PublicKey;
use crate::signature::{Claims, SignatureProblem, key_of, verify};
use agent_core::message::Digest;
use agent_plugins::PluginIdentity;

/// What happens to a plugin from elsewhere without a signature of a trusted key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SignaturePolicy {
    /// The plugin is refused.
    Required,
    /// The plugin is accepted with a warning.
    #[default]
    Warn,
    /// Signatures are not checked.
    Off,
}

impl SignaturePolicy {
    /// Returns the value that is used in configuration files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Required => "required",
            Self::Warn => "warn",
            Self::Off => "off",
        }
    }
}

/// The signature policy and the trusted keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// What happens to plugins without a trusted signature.
    pub policy: SignaturePolicy,
    /// Namespaces, each with its trusted keys. A namespace is the start of a reference, or [`LOCAL_NAMESPACE`] for components that were
    /// built on this machine.
    pub keys: Vec<(String, Vec<PublicKey>)>,
    /// Names and digests of plugins that may serve without a signature although signatures are required.
    pub unsigned: Vec<String>,
}

/// The namespace of components that were built on this machine.
pub const LOCAL_NAMESPACE: &str = "local";

/// Result of checking a plugin's signatures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signer {
    /// A trusted key signed the plugin.
    Trusted {
        /// The trusted key.
        key: PublicKey,
        /// The signature of the key.
        signature: String,
    },
    /// No trusted key signed the plugin, but the policy accepts it.
    Untrusted {
        /// Why there is no trusted signature, for people. Empty if signatures were not checked.
        reason: String,
    },
}

impl Trust {
    /// Returns whether signatures are checked.
    pub fn checks_signatures(&self) -> bool {
        self.policy != SignaturePolicy::Off
    }

    /// Returns whether every plugin needs a trusted signature.
    pub fn requires_signature(&self) -> bool {
        self.policy == SignaturePolicy::Required
    }

    /// Whether the agent's own configuration lets exactly these bytes serve without a signature.
    pub(crate) fn allows_digest(&self, digest: &Digest) -> bool {
        self.unsigned.iter().any(|allowed| allowed == digest.as_str())
    }

    /// Whether the agent's own configuration lets a plugin that was built here serve without a signature.
    pub(crate) fn allows_local(&self, plugin: &PluginIdentity) -> bool {
        self.allows_digest(&plugin.digest) || self.unsigned.contains(&plugin.name)
    }

    /// Returns the trusted keys for `place`, `HOST/PATH`: those of the longest namespace that contains it.
    pub fn keys_for(&self, place: &str) -> &[PublicKey] {
        let is_in = |space: &str| {
            let space = space.trim_end_matches('/');
            place.strip_prefix(space).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let spaces = self.keys.iter().filter(|(space, _)| is_in(space));
        spaces
            .max_by_key(|(space, _)| space.trim_end_matches('/').len())
            .map(|(_, keys)| keys.as_slice())
            .unwrap_or_default()
    }

    /// Checks the signatures of a component from `place` (`HOST/PATH`). An invalid signature of a trusted key is always an error
    /// unless signatures are not checked, because somebody has changed something.
    pub fn verify(
        &self,
        place: &str,
        component: &[u8],
        wanted: &Claims,
        signatures: &[String],
    ) -> Result<Signer, RegistryError> {
        if !self.checks_signatures() {
            return Ok(Signer::Untrusted { reason: String::new() });
        }
        let keys = self.keys_for(place);
        let mut invalid = None;
        let mut untrusted_keys = Vec::new();
        for signature in signatures {
            let mut is_known = false;
            for key in keys {
                match verify(key, component, signature, wanted) {
                    Ok(()) => return Ok(Signer::Trusted { key: key.clone(), signature: signature.clone() }),
                    Err(SignatureProblem::OtherKey(_)) => {}
                    Err(SignatureProblem::Unreadable) => {}
                    Err(SignatureProblem::Invalid) => {
                        is_known = true;
                        invalid = Some(format!(
                            "the signature of the key {key} does not match the component: one of them was changed"
                        ));
                    }
                    Err(SignatureProblem::OtherClaims(what)) => {
                        is_known = true;
                        invalid = Some(format!("the signature of the key {key} does not apply: {what}"));
                    }
                }
            }
            if !is_known {
                let untrusted_key = key_of(signature).unwrap_or_else(|| "(unreadable)".to_owned());
                if !untrusted_keys.contains(&untrusted_key) {
                    untrusted_keys.push(untrusted_key);
                }
            }
        }
        let refused = |reason: String| RegistryError::Signature { place: place.to_owned(), reason };
        if let Some(invalid) = invalid {
            return Err(refused(format!("{invalid}; the plugin is not used")));
        }
        let reason = self.describe_missing_signature(place, keys, &untrusted_keys);
        match self.policy {
            SignaturePolicy::Required => {
                Err(refused(format!("{reason}, but [sharing] has `signatures = \"required\"`")))
            }
            _ => Ok(Signer::Untrusted { reason }),
        }
    }

    fn describe_missing_signature(&self, place: &str, keys: &[PublicKey], untrusted_keys: &[String]) -> String {
        match (untrusted_keys, keys) {
            ([], _) => "it is not signed".to_owned(),
            (untrusted_keys, []) => format!(
                "it is signed by the key {}, but no key is trusted for {place} ([sharing.trusted_keys] in agent.toml)",
                untrusted_keys.join(" and ")
            ),
            (untrusted_keys, _) => {
                format!("it is signed by the key {}, which is not trusted for {place}", untrusted_keys.join(" and "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{KeyFile, Protection, SigningKey, create};
    use crate::signature::sign;

    const PLACE: &str = "registry.example/team/calc";

    fn key() -> SigningKey {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.key");
        create(&path, Protection::None).expect("created");
        KeyFile::read(&path).expect("read").open(None).expect("opened")
    }

    fn claims() -> Claims {
        let manifest = Some(agent_plugins::digest_of(b"manifest"));
        Claims { name: "calc".to_owned(), version: "1.0.0".to_owned(), repository: PLACE.to_owned(), manifest }
    }

    fn trust(policy: SignaturePolicy, keys: &[(&str, &SigningKey)]) -> Trust {
        let keys = keys.iter().map(|(space, key)| ((*space).to_owned(), vec![key.public.clone()]));
        Trust { policy, keys: keys.collect(), ..Trust::default() }
    }

    // Row 23: plugins without a trusted signature are handled by the policy.
    #[test]
    fn policy_decides_about_untrusted_plugins() {
        let (team, untrusted_key) = (key(), key());
        let by = |key: &SigningKey| vec![sign(key, b"component", &claims()).expect("signed")];
        let judged = |policy, signatures: &[String]| {
            trust(policy, &[("registry.example/team", &team)]).verify(PLACE, b"component", &claims(), signatures)
        };
        use SignaturePolicy::{Off, Required, Warn};
        for policy in [Required, Warn] {
            let signer = judged(policy, &by(&team)).expect("trusted");
            assert!(matches!(signer, Signer::Trusted { key, .. } if key == team.public));
        }
        let refused = |signatures: &[String]| judged(Required, signatures).expect_err("refused").to_string();
        assert!(refused(&[]).contains("it is not signed, but [sharing] has `signatures = \"required\"`"));
        assert!(refused(&by(&untrusted_key)).contains("not trusted for registry.example/team/calc"));
        let passed = |signatures: &[String]| match judged(Warn, signatures) {
            Ok(Signer::Untrusted { reason }) => reason,
            other => panic!("{other:?}"),
        };
        assert_eq!(passed(&[]), "it is not signed");
        assert!(passed(&by(&untrusted_key)).contains("which is not trusted"));
        assert_eq!(judged(Off, &[]).ok(), Some(Signer::Untrusted { reason: String::new() }));
        // One valid signature is enough; signatures of other keys do not matter.
        let both = [by(&untrusted_key), by(&team), vec!["nonsense".to_owned()]].concat();
        assert!(matches!(judged(Required, &both), Ok(Signer::Trusted { .. })));
    }

    // Row 23: a changed component or claim of a trusted key is refused even if unsigned plugins are accepted.
    #[test]
    fn changed_plugin_is_refused_by_policy_warn_too() {
        let team = key();
        let trust = trust(SignaturePolicy::Warn, &[("registry.example", &team)]);
        let signature = [sign(&team, b"component", &claims()).expect("signed")];
        let judge = |component: &[u8], claims: &Claims| trust.verify(PLACE, component, claims, &signature);
        assert!(judge(b"component", &claims()).is_ok());
        assert!(judge(b"Component", &claims()).expect_err("refused").to_string().contains("was changed"));
        let other = Claims { name: "clac".to_owned(), ..claims() };
        assert!(judge(b"component", &other).expect_err("refused").to_string().contains("the plugin `calc`"));
    }

    // Row 23: a key is trusted in its own namespace only, and the longest namespace decides.
    #[test]
    fn keys_are_trusted_in_their_namespace() {
        let (all, team) = (key(), key());
        let trust = trust(SignaturePolicy::Required, &[("registry.example", &all), ("registry.example/team/", &team)]);
        let of = |place: &str| trust.keys_for(place).to_vec();
        assert_eq!(of("registry.example/team/calc"), std::slice::from_ref(&team.public));
        assert_eq!(of("registry.example/teams/calc"), std::slice::from_ref(&all.public));
        assert_eq!(of("registry.example/calc"), std::slice::from_ref(&all.public));
        assert_eq!(of("registry.example:5000/calc"), []);
        assert_eq!(of("registry.example.evil/calc"), []);
        let signature = [sign(&all, b"component", &claims()).expect("signed")];
        let error = trust.verify(PLACE, b"component", &claims(), &signature).expect_err("refused");
        assert!(error.to_string().contains("not trusted for registry.example/team/calc"), "{error}");
    }
}
