//! Whose signatures count: the policy, and the trusted keys of each name space.

use crate::error::ShareError;
use crate::keys::PublicKey;
use crate::signature::{Broken, Claims, key_of, verify};
use agent_core::message::Digest;
use agent_plugins::PluginIdentity;

/// What follows where a plugin from elsewhere has no signature of a trusted key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SignaturePolicy {
    /// It is refused.
    Required,
    /// It is said.
    #[default]
    Warn,
    /// Nobody looks.
    Off,
}

impl SignaturePolicy {
    /// As it is written in configurations.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Required => "required",
            Self::Warn => "warn",
            Self::Off => "off",
        }
    }
}

/// The policy with its keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// What follows.
    pub policy: SignaturePolicy,
    /// Beginnings of references, each with the keys that sign there; and [`LOCAL`] with those that sign what is built here.
    pub keys: Vec<(String, Vec<PublicKey>)>,
    /// Names and digests of plugins that serve without a signature where one is required.
    pub unsigned: Vec<String>,
}

/// The name space of what was built on this machine, for its trusted keys.
pub const LOCAL: &str = "local";

/// What is known of who signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signer {
    /// A trusted key, with its signature.
    Trusted {
        /// Which.
        key: PublicKey,
        /// Its signature.
        signature: String,
    },
    /// Nobody whose word counts here, and why that is so; the policy lets it pass.
    Nobody {
        /// For people; empty where nobody looked.
        because: String,
    },
}

impl Trust {
    /// Whether signatures are looked at.
    pub fn looks(&self) -> bool {
        self.policy != SignaturePolicy::Off
    }

    /// Whether nothing may serve without a trusted signature.
    pub fn requires(&self) -> bool {
        self.policy == SignaturePolicy::Required
    }

    /// Whether the agent's own file lets exactly these bytes serve without a signature.
    pub(crate) fn allows_digest(&self, digest: &Digest) -> bool {
        self.unsigned.iter().any(|allowed| allowed == digest.as_str())
    }

    /// Whether the agent's own file lets a plugin that was built here serve without a signature.
    pub(crate) fn allows_local(&self, plugin: &PluginIdentity) -> bool {
        self.allows_digest(&plugin.digest) || self.unsigned.contains(&plugin.name)
    }

    /// The keys for a place, `HOST/PATH`: those of the longest name space that it is in.
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

    /// Judges a component from `place` (`HOST/PATH`) by its signatures. A signature of a trusted key that does not fit is
    /// refused unless nobody looks: somebody has changed something.
    pub fn judge(
        &self,
        place: &str,
        component: &[u8],
        wanted: &Claims,
        signatures: &[String],
    ) -> Result<Signer, ShareError> {
        if !self.looks() {
            return Ok(Signer::Nobody { because: String::new() });
        }
        let keys = self.keys_for(place);
        let mut broken = None;
        let mut strangers = Vec::new();
        for signature in signatures {
            let mut is_known = false;
            for key in keys {
                match verify(key, component, signature, wanted) {
                    Ok(()) => return Ok(Signer::Trusted { key: key.clone(), signature: signature.clone() }),
                    Err(Broken::OtherKey(_)) => {}
                    Err(Broken::Unreadable) => {}
                    Err(Broken::Forged) => {
                        is_known = true;
                        broken = Some(format!(
                            "the signature of the key {key} does not fit what came: one of them was changed"
                        ));
                    }
                    Err(Broken::For(what)) => {
                        is_known = true;
                        broken = Some(format!("the signature of the key {key} does not fit: {what}"));
                    }
                }
            }
            if !is_known {
                let stranger = key_of(signature).unwrap_or_else(|| "(unreadable)".to_owned());
                if !strangers.contains(&stranger) {
                    strangers.push(stranger);
                }
            }
        }
        let refused = |reason: String| ShareError::Signature { place: place.to_owned(), reason };
        if let Some(broken) = broken {
            return Err(refused(format!("{broken}; it is not used")));
        }
        let because = self.because(place, keys, &strangers);
        match self.policy {
            SignaturePolicy::Required => {
                Err(refused(format!("{because}, and `signatures = \"required\"` in [sharing]")))
            }
            _ => Ok(Signer::Nobody { because }),
        }
    }

    fn because(&self, place: &str, keys: &[PublicKey], strangers: &[String]) -> String {
        match (strangers, keys) {
            ([], _) => "it is not signed".to_owned(),
            (strangers, []) => format!(
                "it is signed by the key {}, and no key is trusted for {place} ([sharing.trusted_keys] in agent.toml)",
                strangers.join(" and ")
            ),
            (strangers, _) => {
                format!("it is signed by the key {}, which is not trusted for {place}", strangers.join(" and "))
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
        create(&path, Protection::None).expect("made");
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

    // Row 23: unsigned or wrongly signed.
    #[test]
    fn the_policy_decides_about_what_nobody_trusted_signed() {
        let (team, stranger) = (key(), key());
        let by = |key: &SigningKey| vec![sign(key, b"component", &claims()).expect("signed")];
        let judged = |policy, signatures: &[String]| {
            trust(policy, &[("registry.example/team", &team)]).judge(PLACE, b"component", &claims(), signatures)
        };
        use SignaturePolicy::{Off, Required, Warn};
        for policy in [Required, Warn] {
            let signer = judged(policy, &by(&team)).expect("trusted");
            assert!(matches!(signer, Signer::Trusted { key, .. } if key == team.public));
        }
        let refused = |signatures: &[String]| judged(Required, signatures).expect_err("refused").to_string();
        assert!(refused(&[]).contains("it is not signed, and `signatures = \"required\"`"));
        assert!(refused(&by(&stranger)).contains("not trusted for registry.example/team/calc"));
        let passed = |signatures: &[String]| match judged(Warn, signatures) {
            Ok(Signer::Nobody { because }) => because,
            other => panic!("{other:?}"),
        };
        assert_eq!(passed(&[]), "it is not signed");
        assert!(passed(&by(&stranger)).contains("which is not trusted"));
        assert_eq!(judged(Off, &[]).ok(), Some(Signer::Nobody { because: String::new() }));
        // One good signature among others is enough; those of strangers don't count against it.
        let both = [by(&stranger), by(&team), vec!["nonsense".to_owned()]].concat();
        assert!(matches!(judged(Required, &both), Ok(Signer::Trusted { .. })));
    }

    // Row 23: what a trusted key signed and somebody changed is refused, also where unsigned plugins pass.
    #[test]
    fn what_was_changed_is_refused_under_warn_too() {
        let team = key();
        let trust = trust(SignaturePolicy::Warn, &[("registry.example", &team)]);
        let signature = [sign(&team, b"component", &claims()).expect("signed")];
        let judge = |component: &[u8], claims: &Claims| trust.judge(PLACE, component, claims, &signature);
        assert!(judge(b"component", &claims()).is_ok());
        assert!(judge(b"Component", &claims()).expect_err("refused").to_string().contains("was changed"));
        let other = Claims { name: "clac".to_owned(), ..claims() };
        assert!(judge(b"component", &other).expect_err("refused").to_string().contains("the plugin `calc`"));
    }

    // Row 23: a key counts for its name space alone, and the longest name space decides.
    #[test]
    fn keys_count_for_their_name_space() {
        let (all, team) = (key(), key());
        let trust = trust(SignaturePolicy::Required, &[("registry.example", &all), ("registry.example/team/", &team)]);
        let of = |place: &str| trust.keys_for(place).to_vec();
        assert_eq!(of("registry.example/team/calc"), std::slice::from_ref(&team.public));
        assert_eq!(of("registry.example/teams/calc"), std::slice::from_ref(&all.public));
        assert_eq!(of("registry.example/calc"), std::slice::from_ref(&all.public));
        assert_eq!(of("registry.example:5000/calc"), []);
        assert_eq!(of("registry.example.evil/calc"), []);
        let signature = [sign(&all, b"component", &claims()).expect("signed")];
        let error = trust.judge(PLACE, b"component", &claims(), &signature).expect_err("refused");
        assert!(error.to_string().contains("not trusted for registry.example/team/calc"), "{error}");
    }
}
