//! Decides which signatures are accepted, according to the policy and the trusted keys of each namespace.

use crate::error::RegistryError;
use crate::keys::PublicKey;
use crate::signature::{Claims, SignatureProblem, signing_key_id, verify};
use agent_core::message::Digest;
use agent_plugins::PluginIdentity;

/// The treatment of a plugin that is not signed with a trusted key.
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
    /// What happens to a plugin that is not signed with a trusted key.
    pub policy: SignaturePolicy,
    /// Namespaces, each with its trusted keys. A namespace is the start of a reference, or [`LOCAL_NAMESPACE`] for
    /// components that were built on this machine.
    pub keys: Vec<(String, Vec<PublicKey>)>,
    /// Names and digests of plugins that may be loaded without a signature even if `policy` requires signatures.
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
        /// The signature that the key made.
        signature: String,
    },
    /// No trusted key signed the plugin, but the plugin is accepted by the policy or by an exception in
    /// the configuration.
    Untrusted {
        /// Reason why the plugin has no signature by a trusted key, as a message for users. Empty if signatures were
        /// not checked.
        reason: String,
    },
}

impl Trust {
    /// Returns whether signatures are checked.
    pub fn checks_signatures(&self) -> bool {
        self.policy != SignaturePolicy::Off
    }

    /// Returns whether every plugin needs a signature by a trusted key.
    pub fn requires_signature(&self) -> bool {
        self.policy == SignaturePolicy::Required
    }

    /// Returns whether the agent's own configuration allows a component with this digest to be loaded without a
    /// signature.
    pub(crate) fn allows_digest(&self, digest: &Digest) -> bool {
        self.unsigned.iter().any(|allowed| allowed == digest.as_str())
    }

    /// Returns whether the agent's own configuration allows a plugin that was built on this machine to be loaded
    /// without a signature.
    pub(crate) fn allows_local(&self, plugin: &PluginIdentity) -> bool {
        self.allows_digest(&plugin.digest) || self.unsigned.contains(&plugin.name)
    }

    /// Returns the trusted keys for a source, which is given as `HOST/PATH`. The trusted keys are those of the longest
    /// namespace that contains the source.
    pub fn keys_for(&self, source: &str) -> &[PublicKey] {
        let is_in = |namespace: &str| {
            let namespace = namespace.trim_end_matches('/');
            source.strip_prefix(namespace).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let namespaces = self.keys.iter().filter(|(namespace, _)| is_in(namespace));
        namespaces
            .max_by_key(|(namespace, _)| namespace.trim_end_matches('/').len())
            .map(|(_, keys)| keys.as_slice())
            .unwrap_or_default()
    }

    /// Checks the signatures of a component from a source, which is given as `HOST/PATH`. If signatures are checked at
    /// all, an invalid signature by a trusted key is always an error, because such a signature means that the component
    /// or the signature was changed.
    pub fn verify(
        &self,
        source: &str,
        component: &[u8],
        expected: &Claims,
        signatures: &[String],
    ) -> Result<Signer, RegistryError> {
        if !self.checks_signatures() {
            return Ok(Signer::Untrusted { reason: String::new() });
        }
        let keys = self.keys_for(source);
        let mut invalid = None;
        let mut untrusted_keys = Vec::new();
        for signature in signatures {
            let mut is_by_trusted_key = false;
            for key in keys {
                match verify(key, component, signature, expected) {
                    Ok(()) => return Ok(Signer::Trusted { key: key.clone(), signature: signature.clone() }),
                    Err(SignatureProblem::OtherKey(_)) => {}
                    Err(SignatureProblem::Unreadable) => {}
                    Err(SignatureProblem::Invalid) => {
                        is_by_trusted_key = true;
                        invalid = Some(format!(
                            "the signature of the key {key} does not match the component: one of them was changed"
                        ));
                    }
                    Err(SignatureProblem::OtherClaims(what)) => {
                        is_by_trusted_key = true;
                        invalid = Some(format!("the signature of the key {key} does not apply: {what}"));
                    }
                }
            }
            if !is_by_trusted_key {
                let untrusted_key = signing_key_id(signature).unwrap_or_else(|| "(unreadable)".to_owned());
                if !untrusted_keys.contains(&untrusted_key) {
                    untrusted_keys.push(untrusted_key);
                }
            }
        }
        let refused = |reason: String| RegistryError::Signature { place: source.to_owned(), reason };
        if let Some(invalid) = invalid {
            return Err(refused(format!("{invalid}; the plugin is not used")));
        }
        let reason = self.describe_missing_signature(source, keys, &untrusted_keys);
        match self.policy {
            SignaturePolicy::Required => {
                Err(refused(format!("{reason}, but [sharing] has `signatures = \"required\"`")))
            }
            _ => Ok(Signer::Untrusted { reason }),
        }
    }

    fn describe_missing_signature(&self, source: &str, keys: &[PublicKey], untrusted_keys: &[String]) -> String {
        match (untrusted_keys, keys) {
            ([], _) => "it is not signed".to_owned(),
            (untrusted_keys, []) => format!(
                "it is signed by the key {}, but no key is trusted for {source} ([sharing.trusted_keys] in agent.toml)",
                untrusted_keys.join(" and ")
            ),
            (untrusted_keys, _) => {
                format!("it is signed by the key {}, which is not trusted for {source}", untrusted_keys.join(" and "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{KeyFile, Protection, SigningKey, create};
    use crate::signature::sign;

    const SOURCE: &str = "registry.example/team/calc";

    fn key() -> SigningKey {
        let directory = tempfile::tempdir().expect("the directory is created");
        let path = directory.path().join("a.key");
        create(&path, Protection::None).expect("it is created");
        KeyFile::read(&path).expect("the file is read").open(None).expect("the key is opened")
    }

    fn claims() -> Claims {
        let manifest = Some(agent_plugins::digest_of(b"manifest"));
        Claims { name: "calc".to_owned(), version: "1.0.0".to_owned(), repository: SOURCE.to_owned(), manifest }
    }

    fn trust(policy: SignaturePolicy, keys: &[(&str, &SigningKey)]) -> Trust {
        let keys = keys.iter().map(|(namespace, key)| ((*namespace).to_owned(), vec![key.public.clone()]));
        Trust { policy, keys: keys.collect(), ..Trust::default() }
    }

    // Row 23: the policy determines what happens to a plugin that is not signed with a trusted key.
    #[test]
    fn policy_decides_whether_untrusted_plugins_are_accepted() {
        let (team, untrusted_key) = (key(), key());
        let signed_by = |key: &SigningKey| vec![sign(key, b"component", &claims()).expect("signing succeeds")];
        let verify = |policy, signatures: &[String]| {
            trust(policy, &[("registry.example/team", &team)]).verify(SOURCE, b"component", &claims(), signatures)
        };
        use SignaturePolicy::{Off, Required, Warn};
        for policy in [Required, Warn] {
            let signer = verify(policy, &signed_by(&team)).expect("the signature is trusted");
            assert!(matches!(signer, Signer::Trusted { key, .. } if key == team.public));
        }
        let refused = |signatures: &[String]| verify(Required, signatures).expect_err("it is refused").to_string();
        assert!(refused(&[]).contains("it is not signed, but [sharing] has `signatures = \"required\"`"));
        assert!(refused(&signed_by(&untrusted_key)).contains("not trusted for registry.example/team/calc"));
        let accepted_reason = |signatures: &[String]| match verify(Warn, signatures) {
            Ok(Signer::Untrusted { reason }) => reason,
            other => panic!("{other:?}"),
        };
        assert_eq!(accepted_reason(&[]), "it is not signed");
        assert!(accepted_reason(&signed_by(&untrusted_key)).contains("which is not trusted"));
        assert_eq!(verify(Off, &[]).ok(), Some(Signer::Untrusted { reason: String::new() }));
        // One valid signature by a trusted key is enough. Signatures by other keys are ignored.
        let signatures = [signed_by(&untrusted_key), signed_by(&team), vec!["nonsense".to_owned()]].concat();
        assert!(matches!(verify(Required, &signatures), Ok(Signer::Trusted { .. })));
    }

    // Row 23: if a trusted key signed the plugin, a changed component or claim is refused even if unsigned plugins are
    // accepted.
    #[test]
    fn changed_plugin_is_refused_even_if_the_policy_is_warn() {
        let team = key();
        let trust = trust(SignaturePolicy::Warn, &[("registry.example", &team)]);
        let signature = [sign(&team, b"component", &claims()).expect("signing succeeds")];
        let verify = |component: &[u8], claims: &Claims| trust.verify(SOURCE, component, claims, &signature);
        assert!(verify(b"component", &claims()).is_ok());
        assert!(verify(b"Component", &claims()).expect_err("it is refused").to_string().contains("was changed"));
        let other = Claims { name: "clac".to_owned(), ..claims() };
        assert!(verify(b"component", &other).expect_err("it is refused").to_string().contains("the plugin `calc`"));
    }

    // Row 23: a key is trusted only in its own namespace, and the longest matching namespace is used.
    #[test]
    fn keys_are_trusted_in_their_namespace() {
        let (registry_key, team) = (key(), key());
        let trust =
            trust(SignaturePolicy::Required, &[("registry.example", &registry_key), ("registry.example/team/", &team)]);
        let keys_for = |source: &str| trust.keys_for(source).to_vec();
        assert_eq!(keys_for("registry.example/team/calc"), std::slice::from_ref(&team.public));
        assert_eq!(keys_for("registry.example/teams/calc"), std::slice::from_ref(&registry_key.public));
        assert_eq!(keys_for("registry.example/calc"), std::slice::from_ref(&registry_key.public));
        assert_eq!(keys_for("registry.example:5000/calc"), []);
        assert_eq!(keys_for("registry.example.evil/calc"), []);
        let signature = [sign(&registry_key, b"component", &claims()).expect("signing succeeds")];
        let error = trust.verify(SOURCE, b"component", &claims(), &signature).expect_err("it is refused");
        assert!(error.to_string().contains("not trusted for registry.example/team/calc"), "{error}");
    }
}
