//! Signatures: minisign's, over the component, with a trusted comment that says of which plugin, version, place and manifest.

use crate::error::{ShareError, shown};
use crate::keys::{PublicKey, SigningKey};
use agent_core::message::Digest;
use base64::Engine;
use std::time::{SystemTime, UNIX_EPOCH};

/// Largest signature with its comments.
pub(crate) const SIGNATURE_BYTES: u64 = 16 * 1024;

/// What a signature says beside the bytes that it covers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// The plugin's name.
    pub name: String,
    /// Its version; empty where it has none.
    pub version: String,
    /// The repository that it was pushed to, `HOST/PATH`; empty for files.
    pub repository: String,
    /// The manifest under which it stands there.
    pub manifest: Option<Digest>,
}

/// Why a signature does not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// It is none.
    Unreadable,
    /// Its key is another one.
    OtherKey(String),
    /// It does not fit the bytes, or its comment.
    Forged,
    /// It is right, and was made for something else.
    For(String),
}

/// Signs a component.
pub fn sign(key: &SigningKey, component: &[u8], claims: &Claims) -> Result<String, ShareError> {
    let refused = |reason: String| ShareError::Signature { place: claims.name.clone(), reason };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map(|time| time.as_secs()).unwrap_or_default();
    let mut comment = format!("timestamp:{now}\tname:{}\tversion:{}", claims.name, claims.version);
    if let Some(manifest) = &claims.manifest {
        comment += &format!("\trepository:{}\tmanifest:{manifest}", claims.repository);
    }
    let fields = [&claims.name, &claims.version, &claims.repository];
    if fields.iter().any(|field| field.contains(char::is_control)) {
        return Err(refused(
            "its name or version has a control character in it, which no signature can carry".to_owned(),
        ));
    }
    let signed = minisign::sign(Some(&key.pair.pk), &key.pair.sk, component, Some(&comment), Some("agent-host plugin"));
    signed.map(|signature| signature.into_string()).map_err(|error| refused(error.to_string()))
}

/// Checks a signature of this key over these bytes, and for what it was made.
pub(crate) fn verify(key: &PublicKey, component: &[u8], text: &str, wanted: &Claims) -> Result<(), Broken> {
    check(&verified(key, component, text)?, wanted)
}

/// What a signature of this key over these bytes says.
fn verified(key: &PublicKey, component: &[u8], text: &str) -> Result<Claims, Broken> {
    let signature = minisign_verify::Signature::decode(text).map_err(|_| Broken::Unreadable)?;
    let id = key_id(text).ok_or(Broken::Unreadable)?;
    if key.id() != Some(id) {
        return Err(Broken::OtherKey(shown_id(id)));
    }
    key.verifier().verify(component, &signature, false).map_err(|_| Broken::Forged)?;
    Ok(claims(signature.trusted_comment()))
}

/// Whether one of the keys has signed these bytes for this place and manifest. Name and version are in the bytes, and are
/// checked when the component has been read.
pub(crate) fn is_signed_for(
    keys: &[PublicKey],
    component: &[u8],
    text: &str,
    (repository, manifest): (&str, &Digest),
) -> bool {
    let is_for = |claims: Claims| claims.repository == repository && claims.manifest.as_ref() == Some(manifest);
    keys.iter().any(|key| verified(key, component, text).is_ok_and(is_for))
}

/// The number of a key, as [`key_of`] shows that of a signature.
pub(crate) fn number_of(key: &PublicKey) -> Option<String> {
    key.id().map(shown_id)
}

/// When a signature says that it was made, in seconds since 1970. It is part of what is signed.
pub(crate) fn signed_at(text: &str) -> Option<u64> {
    let comment = text.lines().nth(2)?.strip_prefix("trusted comment: ")?;
    comment.split('\t').find_map(|field| field.strip_prefix("timestamp:"))?.trim().parse().ok()
}

/// Whether a text has the form of a signature. Whose it is, and of what, is not looked at.
pub fn is_signature(text: &str) -> bool {
    minisign_verify::Signature::decode(text).is_ok()
}

/// The key that a signature says it was made with, as minisign shows it.
pub(crate) fn key_of(text: &str) -> Option<String> {
    key_id(text).map(shown_id)
}

fn key_id(text: &str) -> Option<[u8; 8]> {
    let line = text.lines().nth(1)?;
    let bytes = base64::engine::general_purpose::STANDARD.decode(line.trim()).ok()?;
    bytes.get(2..10)?.try_into().ok()
}

fn shown_id(id: [u8; 8]) -> String {
    format!("{:016X}", u64::from_le_bytes(id))
}

/// `key:value`, separated by tabs, as minisign's own comments are.
fn claims(comment: &str) -> Claims {
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

fn check(signed: &Claims, wanted: &Claims) -> Result<(), Broken> {
    let differs = |what: &str, signed: &str, wanted: &str| {
        let signed = if signed.is_empty() { "none".to_owned() } else { format!("`{}`", shown(signed)) };
        Broken::For(format!("it was made for the {what} {signed}, not `{}`", shown(wanted)))
    };
    if signed.name != wanted.name {
        return Err(differs("plugin", &signed.name, &wanted.name));
    }
    if signed.version != wanted.version {
        return Err(differs("version", &signed.version, &wanted.version));
    }
    let Some(manifest) = &wanted.manifest else { return Ok(()) };
    if signed.repository != wanted.repository {
        return Err(differs("place", &signed.repository, &wanted.repository));
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
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.key");
        create(&path, Protection::None).expect("made");
        KeyFile::read(&path).expect("read").open(None).expect("opened")
    }

    fn wanted() -> Claims {
        Claims {
            name: "calc".to_owned(),
            version: "1.0.0".to_owned(),
            repository: "registry.example/team/calc".to_owned(),
            manifest: Some(agent_plugins::digest_of(b"manifest")),
        }
    }

    // Row 23: a signature counts for these bytes, this plugin, this version, this place and this manifest alone.
    #[test]
    fn a_signature_counts_for_one_thing_alone() {
        let key = key();
        let text = sign(&key, b"component", &wanted()).expect("signed");
        assert_eq!(verify(&key.public, b"component", &text, &wanted()), Ok(()));
        assert_eq!(verify(&key.public, b"Component", &text, &wanted()), Err(Broken::Forged));
        let other = |change: fn(&mut Claims)| {
            let mut claims = wanted();
            change(&mut claims);
            match verify(&key.public, b"component", &text, &claims) {
                Err(Broken::For(said)) => said,
                other => panic!("{other:?}"),
            }
        };
        assert!(other(|claims| claims.name = "calculator".to_owned()).contains("the plugin `calc`, not `calculator`"));
        assert!(other(|claims| claims.version = "1.0.1".to_owned()).contains("the version `1.0.0`"));
        assert!(other(|claims| claims.repository = "registry.example/evil/calc".to_owned()).contains("the place"));
        assert!(other(|claims| claims.manifest = Some(agent_plugins::digest_of(b"other"))).contains("the manifest"));
    }

    #[test]
    fn forged_foreign_and_broken_signatures_are_told_apart() {
        let (mine, other) = (key(), key());
        let text = sign(&mine, b"component", &wanted()).expect("signed");
        let foreign = verify(&other.public, b"component", &text, &wanted());
        assert_eq!(foreign, Err(Broken::OtherKey(key_of(&text).expect("a key"))));
        // The comment is part of what is signed.
        let forged = text.replace("version:1.0.0", "version:2.0.0");
        let claims = Claims { version: "2.0.0".to_owned(), ..wanted() };
        assert_eq!(verify(&mine.public, b"component", &forged, &claims), Err(Broken::Forged));
        for cut in 0..text.len() {
            assert!(
                verify(&mine.public, b"component", &text[..cut], &wanted()).is_err() || text[cut..].trim().is_empty(),
                "{cut}"
            );
        }
        for nonsense in ["", "\n\n\n\n", "untrusted comment: a\nRUQ=\ntrusted comment: b\nAA==\n"] {
            assert_eq!(verify(&mine.public, b"component", nonsense, &wanted()), Err(Broken::Unreadable));
        }
        let tabs = Claims { version: "1\tname:evil".to_owned(), ..wanted() };
        assert!(sign(&mine, b"component", &tabs).is_err(), "a version that would write other claims");
    }
}
