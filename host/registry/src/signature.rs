//! Signatures of components in minisign's format. The trusted comment contains the name, version, repository and
//! manifest of the signed plugin.

use crate::error::{RegistryError, display_text};
use crate::keys::{PublicKey, SigningKey};
use agent_core::message::Digest;
use base64::Engine;
use std::time::{SystemTime, UNIX_EPOCH};

/// Maximum size of a signature with its comments, in bytes.
pub(crate) const MAX_SIGNATURE_BYTES: u64 = 16 * 1024;

/// The claims of a signature: the plugin, version, repository and manifest for which the signature was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// Name of the plugin.
    pub name: String,
    /// Version of the plugin. Empty if the plugin has no version.
    pub version: String,
    /// Repository that the plugin was pushed to, as `HOST/PATH`. Empty for files.
    pub repository: String,
    /// Digest of the plugin's manifest in the repository. `None` for files.
    pub manifest: Option<Digest>,
}

/// Reason why a signature is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SignatureProblem {
    /// The text is not a signature.
    Unreadable,
    /// The signature was made with another key. The variant contains the id of the other key.
    OtherKey(String),
    /// The signature does not match the bytes of the component, or does not match its own trusted comment.
    Invalid,
    /// The signature is valid, but its claims differ from the expected claims. Contains a description of the
    /// difference.
    OtherClaims(String),
}

/// Signs a component, and includes the claims in the signature's trusted comment.
pub fn sign(key: &SigningKey, component: &[u8], claims: &Claims) -> Result<String, RegistryError> {
    let refused = |reason: String| RegistryError::Signature { place: claims.name.clone(), reason };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map(|time| time.as_secs()).unwrap_or_default();
    let mut comment = format!("timestamp:{now}\tname:{}\tversion:{}", claims.name, claims.version);
    if let Some(manifest) = &claims.manifest {
        comment += &format!("\trepository:{}\tmanifest:{manifest}", claims.repository);
    }
    let fields = [&claims.name, &claims.version, &claims.repository];
    if fields.iter().any(|field| field.contains(char::is_control)) {
        return Err(refused(
            "its name or version contains a control character, which a signature cannot contain".to_owned(),
        ));
    }
    let signed = minisign::sign(Some(&key.pair.pk), &key.pair.sk, component, Some(&comment), Some("agent-host plugin"));
    signed.map(|signature| signature.into_string()).map_err(|error| refused(error.to_string()))
}

/// Verifies that this key signed these bytes with exactly these claims.
pub(crate) fn verify(key: &PublicKey, component: &[u8], text: &str, expected: &Claims) -> Result<(), SignatureProblem> {
    compare_claims(&verify_and_read_claims(key, component, text)?, expected)
}

/// Verifies that this key signed these bytes, and returns the signed claims.
fn verify_and_read_claims(key: &PublicKey, component: &[u8], text: &str) -> Result<Claims, SignatureProblem> {
    let signature = minisign_verify::Signature::decode(text).map_err(|_| SignatureProblem::Unreadable)?;
    let id = key_id_bytes(text).ok_or(SignatureProblem::Unreadable)?;
    if key.id() != Some(id) {
        return Err(SignatureProblem::OtherKey(format_key_id(id)));
    }
    key.verifier().verify(component, &signature, false).map_err(|_| SignatureProblem::Invalid)?;
    Ok(parse_claims(signature.trusted_comment()))
}

/// Returns whether one of the keys signed these bytes for this repository and manifest. The name and the version in the
/// claims are checked later, because the component must be parsed first.
pub(crate) fn is_signed_for(
    keys: &[PublicKey],
    component: &[u8],
    text: &str,
    (repository, manifest): (&str, &Digest),
) -> bool {
    let is_for = |claims: Claims| claims.repository == repository && claims.manifest.as_ref() == Some(manifest);
    keys.iter().any(|key| verify_and_read_claims(key, component, text).is_ok_and(is_for))
}

/// Returns the id of a key, in the format that [`signing_key_id`] uses for ids.
pub(crate) fn formatted_key_id(key: &PublicKey) -> Option<String> {
    key.id().map(format_key_id)
}

/// Returns the time at which the signature was made, in seconds since 1970. The time is part of the signed comment.
pub(crate) fn signed_at(text: &str) -> Option<u64> {
    let comment = text.lines().nth(2)?.strip_prefix("trusted comment: ")?;
    comment.split('\t').find_map(|field| field.strip_prefix("timestamp:"))?.trim().parse().ok()
}

/// Returns whether a text has the form of a signature. The signature is not verified.
pub fn is_signature(text: &str) -> bool {
    minisign_verify::Signature::decode(text).is_ok()
}

/// Returns the id of the key with which a signature claims to have been made, in minisign's format.
pub(crate) fn signing_key_id(text: &str) -> Option<String> {
    key_id_bytes(text).map(format_key_id)
}

fn key_id_bytes(text: &str) -> Option<[u8; 8]> {
    let line = text.lines().nth(1)?;
    let bytes = base64::engine::general_purpose::STANDARD.decode(line.trim()).ok()?;
    bytes.get(2..10)?.try_into().ok()
}

fn format_key_id(id: [u8; 8]) -> String {
    format!("{:016X}", u64::from_le_bytes(id))
}

/// Parses a comment with `key:value` fields that are separated by tabs, as in minisign's own comments.
fn parse_claims(comment: &str) -> Claims {
    let value = |name: &str| {
        let mut fields = comment.split('\t').filter_map(|field| field.split_once(':'));
        fields.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
    };
    Claims {
        name: value("name").unwrap_or_default(),
        version: value("version").unwrap_or_default(),
        repository: value("repository").unwrap_or_default(),
        manifest: value("manifest").and_then(|digest| Digest::parse(&digest).ok()),
    }
}

fn compare_claims(signed: &Claims, expected: &Claims) -> Result<(), SignatureProblem> {
    let differs = |what: &str, signed: &str, expected: &str| {
        let signed = if signed.is_empty() { "none".to_owned() } else { format!("`{}`", display_text(signed)) };
        SignatureProblem::OtherClaims(format!("it was made for the {what} {signed}, not `{}`", display_text(expected)))
    };
    if signed.name != expected.name {
        return Err(differs("plugin", &signed.name, &expected.name));
    }
    if signed.version != expected.version {
        return Err(differs("version", &signed.version, &expected.version));
    }
    let Some(manifest) = &expected.manifest else { return Ok(()) };
    if signed.repository != expected.repository {
        return Err(differs("repository", &signed.repository, &expected.repository));
    }
    match &signed.manifest {
        Some(signed) if signed == manifest => Ok(()),
        signed => Err(differs("manifest", signed.as_ref().map(Digest::as_str).unwrap_or_default(), manifest.as_str())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{KeyFile, Protection, create};

    fn key() -> SigningKey {
        let directory = tempfile::tempdir().expect("the directory is created");
        let path = directory.path().join("a.key");
        create(&path, Protection::None).expect("it is created");
        KeyFile::read(&path).expect("the file is read").open(None).expect("the key is opened")
    }

    fn expected_claims() -> Claims {
        Claims {
            name: "calc".to_owned(),
            version: "1.0.0".to_owned(),
            repository: "registry.example/team/calc".to_owned(),
            manifest: Some(agent_plugins::digest_of(b"manifest")),
        }
    }

    // Row 23: a signature is accepted only for the bytes, plugin, version, repository and manifest for which it
    // was made.
    #[test]
    fn signature_is_valid_for_its_claims_only() {
        let key = key();
        let text = sign(&key, b"component", &expected_claims()).expect("signing succeeds");
        assert_eq!(verify(&key.public, b"component", &text, &expected_claims()), Ok(()));
        assert_eq!(verify(&key.public, b"Component", &text, &expected_claims()), Err(SignatureProblem::Invalid));
        let other = |change: fn(&mut Claims)| {
            let mut claims = expected_claims();
            change(&mut claims);
            match verify(&key.public, b"component", &text, &claims) {
                Err(SignatureProblem::OtherClaims(message)) => message,
                other => panic!("{other:?}"),
            }
        };
        assert!(other(|claims| claims.name = "calculator".to_owned()).contains("the plugin `calc`, not `calculator`"));
        assert!(other(|claims| claims.version = "1.0.1".to_owned()).contains("the version `1.0.0`"));
        assert!(other(|claims| claims.repository = "registry.example/evil/calc".to_owned()).contains("the repository"));
        assert!(other(|claims| claims.manifest = Some(agent_plugins::digest_of(b"other"))).contains("the manifest"));
    }

    #[test]
    fn invalid_signatures_are_distinguished() {
        let (own_key, other_key) = (key(), key());
        let text = sign(&own_key, b"component", &expected_claims()).expect("signing succeeds");
        let verified = verify(&other_key.public, b"component", &text, &expected_claims());
        assert_eq!(verified, Err(SignatureProblem::OtherKey(signing_key_id(&text).expect("there is a key"))));
        // The signature covers the trusted comment in addition to the component.
        let forged = text.replace("version:1.0.0", "version:2.0.0");
        let claims = Claims { version: "2.0.0".to_owned(), ..expected_claims() };
        assert_eq!(verify(&own_key.public, b"component", &forged, &claims), Err(SignatureProblem::Invalid));
        for length in 0..text.len() {
            assert!(
                verify(&own_key.public, b"component", &text[..length], &expected_claims()).is_err()
                    || text[length..].trim().is_empty(),
                "{length}"
            );
        }
        for unreadable in ["", "\n\n\n\n", "untrusted comment: a\nRUQ=\ntrusted comment: b\nAA==\n"] {
            assert_eq!(
                verify(&own_key.public, b"component", unreadable, &expected_claims()),
                Err(SignatureProblem::Unreadable)
            );
        }
        let with_tab = Claims { version: "1\tname:evil".to_owned(), ..expected_claims() };
        assert!(sign(&own_key, b"component", &with_tab).is_err(), "a tab would start another claim");
    }
}
