//! Names of places: `HOST/PATH[:TAG][@DIGEST]` in a registry, an address of the web, a file.

use crate::error::ShareError;
use agent_core::message::Digest;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use url::Url;

/// Longest name of a repository, by the OCI distribution specification.
const LONGEST_PATH: usize = 255;
/// Longest tag.
const LONGEST_TAG: usize = 128;

/// A place in a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    repository: Repository,
    tag: Option<String>,
    digest: Option<Digest>,
}

/// A repository of a registry: all versions of one plugin.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Repository {
    host: String,
    path: String,
}

/// From where a plugin is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A registry.
    Registry(Reference),
    /// A web server.
    Web(Url),
    /// This machine.
    File(PathBuf),
}

impl Source {
    /// What is written as a path is one, what can be a reference is one, and only what is neither is looked for among the files:
    /// what somebody has laid into the current folder under a reference's name is not what was asked for.
    pub fn parse(text: &str) -> Result<Self, ShareError> {
        let looks_like_a_path = text.starts_with(['/', '.', '~']) || (text.ends_with(".wasm") && !text.contains("://"));
        if looks_like_a_path {
            return Ok(Self::File(PathBuf::from(text)));
        }
        match Self::not_a_path(text) {
            Err(_) if Path::new(text).exists() => Ok(Self::File(PathBuf::from(text))),
            source => source,
        }
    }

    /// As it was written down: a file by its whole path. Where it is read changes nothing.
    pub fn parse_written(text: &str) -> Result<Self, ShareError> {
        if Path::new(text).is_absolute() { Ok(Self::File(PathBuf::from(text))) } else { Self::not_a_path(text) }
    }

    fn not_a_path(text: &str) -> Result<Self, ShareError> {
        if text.starts_with("https://") || text.starts_with("http://") {
            let refused = |text: &str, reason| ShareError::Reference { text: text.to_owned(), reason };
            let mut url = Url::parse(text).map_err(|_| refused("the address", "it is no address of the web"))?;
            if url.username().is_empty() && url.password().is_none() {
                return Ok(Self::Web(url));
            }
            // What is refused is shown without the password.
            let _ = url.set_username("").and_then(|()| url.set_password(None));
            return Err(refused(url.as_str(), "it had a user or a password in it, which would be stored and shown"));
        }
        Reference::parse(text).map(Self::Registry)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Registry(reference) => reference.fmt(formatter),
            Self::Web(url) => url.fmt(formatter),
            Self::File(path) => path.display().fmt(formatter),
        }
    }
}

impl Reference {
    /// Reads `[oci://]HOST[:PORT]/PATH[:TAG][@sha256:…]`. There is no registry that is meant when none is named.
    pub fn parse(text: &str) -> Result<Self, ShareError> {
        let refused = |reason| ShareError::Reference { text: text.chars().take(300).collect(), reason };
        let rest = text.strip_prefix("oci://").unwrap_or(text);
        let (rest, digest) = match rest.split_once('@') {
            None => (rest, None),
            Some((rest, digest)) => {
                let digest = Digest::parse(digest);
                (rest, Some(digest.map_err(|_| refused("behind the `@` stands no digest (`sha256:` and 64 digits)"))?))
            }
        };
        let (host, rest) = rest.split_once('/').ok_or_else(|| refused("it names no registry"))?;
        let (path, tag) = match rest.rsplit_once(':') {
            None => (rest, None),
            Some((path, tag)) => (path, Some(tag.to_owned())),
        };
        if !(host.contains(['.', ':']) || host == "localhost") || !is_host(host) {
            return Err(refused("it does not begin with the host of a registry"));
        }
        if path.len() > LONGEST_PATH || !path.split('/').all(is_step) {
            return Err(refused("its path has other than lower-case letters, digits, and `.`, `_`, `-` between them"));
        }
        if tag.as_deref().is_some_and(|tag| !is_tag(tag)) {
            return Err(refused("its tag has other than letters, digits, `_`, `.` and `-`, or is too long"));
        }
        let repository = Repository { host: host.to_ascii_lowercase(), path: path.to_owned() };
        Ok(Self { repository, tag, digest })
    }

    /// Where it is.
    pub fn repository(&self) -> &Repository {
        &self.repository
    }

    /// Its tag, where one was written.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// Its digest, where one was written: then the tag says nothing.
    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// The same place under this tag.
    pub fn with_tag(&self, tag: &str) -> Self {
        Self { tag: Some(tag.to_owned()), digest: None, ..self.clone() }
    }

    /// Exactly this content of the same place.
    pub fn with_digest(&self, digest: &Digest) -> Self {
        Self { digest: Some(digest.clone()), ..self.clone() }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.repository)?;
        if let Some(tag) = &self.tag {
            write!(formatter, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(formatter, "@{digest}")?;
        }
        Ok(())
    }
}

impl Repository {
    /// The registry's host, with its port where it has one.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Its path in the registry.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The last step of its path.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

impl fmt::Display for Repository {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.host, self.path)
    }
}

/// Whether a host, with or without a port, is this machine.
pub(crate) fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.split(':').next().unwrap_or(host),
    };
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// A version as a tag: `+` is none of its characters.
pub(crate) fn tag_of_version(version: &str) -> Option<String> {
    let tag = version.replace('+', "_");
    is_tag(&tag).then_some(tag)
}

fn is_host(host: &str) -> bool {
    let is_part = |character: char| character.is_ascii_alphanumeric() || ".-:[]".contains(character);
    let begins = |character: char| character.is_ascii_alphanumeric() || character == '[';
    host.starts_with(begins)
        && host.chars().all(is_part)
        && Url::parse(&format!("https://{host}/")).is_ok_and(|url| url.host().is_some())
}

fn is_step(step: &str) -> bool {
    let inner = |character: char| character.is_ascii_lowercase() || character.is_ascii_digit();
    step.starts_with(inner)
        && step.ends_with(inner)
        && step.chars().all(|character| inner(character) || "._-".contains(character))
}

pub(crate) fn is_tag(tag: &str) -> bool {
    let first = |character: char| character.is_ascii_alphanumeric() || character == '_';
    tag.len() <= LONGEST_TAG
        && tag.starts_with(first)
        && tag.chars().all(|character| first(character) || ".-".contains(character))
}

#[cfg(test)]
mod tests {
    use super::*;

    // P11: a reference is read and written as it is, and nothing is guessed.
    #[test]
    fn references_are_read_and_written() {
        let digest = format!("sha256:{}", "a".repeat(64));
        for text in [
            "registry.example/team/calc",
            "registry.example/team/calc:1.0.0",
            "localhost:5000/calc:latest",
            "[::1]:5000/calc",
            &format!("127.0.0.1:5000/a/b/c:1@{digest}"),
            &format!("registry.example/calc@{digest}"),
        ] {
            assert_eq!(Reference::parse(text).expect(text).to_string(), text);
        }
        let reference = Reference::parse("oci://Registry.example:443/team/calc:v1_2.3-x").expect("a reference");
        assert_eq!(reference.repository().host(), "registry.example:443");
        assert_eq!((reference.repository().name(), reference.tag()), ("calc", Some("v1_2.3-x")));
    }

    #[test]
    fn what_is_no_reference_says_why() {
        for (text, said) in [
            ("calc", "names no registry"),
            ("team/calc:1", "does not begin with the host"),
            ("registry.example/Team/calc", "lower-case"),
            ("registry.example/../calc", "lower-case"),
            ("registry.example//calc", "lower-case"),
            ("registry.example/calc:", "its tag"),
            ("registry.example/calc:-a", "its tag"),
            ("registry.example/calc@sha256:12", "no digest"),
            ("user@registry.example/calc", "no digest"),
            ("a b.example/calc", "does not begin with the host"),
            ("./calc", "does not begin with the host"),
            ("../calc", "does not begin with the host"),
        ] {
            let error = Reference::parse(text).expect_err(text).to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn sources_are_told_apart() {
        assert!(matches!(Source::parse("https://example.com/calc.wasm"), Ok(Source::Web(_))));
        assert!(matches!(Source::parse("./calc"), Ok(Source::File(_))));
        assert!(matches!(Source::parse("out/calc.wasm"), Ok(Source::File(_))));
        assert!(matches!(Source::parse("registry.example/calc:1"), Ok(Source::Registry(_))));
        let error = Source::parse("https://user:secret@example.com/calc.wasm").expect_err("refused").to_string();
        assert!(error.contains("`https://example.com/calc.wasm`") && !error.contains("secret"), "row 16: {error}");
        // Row 18: as it stands in a lock it is the same wherever it is read, whatever lies there.
        assert!(matches!(Source::parse_written("registry.example/team/calc.wasm"), Ok(Source::Registry(_))));
        assert!(matches!(Source::parse_written("/home/ann/calc.wasm"), Ok(Source::File(_))));
        for text in ["calc.wasm", "./calc", "../calc.wasm"] {
            assert!(Source::parse_written(text).is_err(), "{text}");
        }
    }

    #[test]
    fn this_machine_is_known_by_its_addresses() {
        assert!(
            ["localhost", "localhost:5000", "127.0.0.1:5000", "127.9.9.9", "[::1]:5000"]
                .map(is_loopback)
                .iter()
                .all(|is| *is)
        );
        assert!(
            !["registry.example", "10.0.0.1:5000", "localhost.example", "[2001:db8::1]:5000"]
                .map(is_loopback)
                .iter()
                .any(|is| *is)
        );
    }

    #[test]
    fn versions_become_tags() {
        assert_eq!(tag_of_version("1.0.0-rc.1+build"), Some("1.0.0-rc.1_build".to_owned()));
        assert_eq!([tag_of_version(""), tag_of_version("a b")], [None, None]);
    }
}
