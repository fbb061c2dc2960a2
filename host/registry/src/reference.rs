//! The sources of plugins: a reference `HOST/PATH[:TAG][@DIGEST]` in a registry, a web address, or a file.

use crate::error::RegistryError;
use agent_core::message::Digest;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use url::Url;

/// Maximum length of a repository's path in characters, from the OCI distribution specification.
const MAX_PATH_LENGTH: usize = 255;
/// Maximum length of a tag in characters, from the OCI distribution specification.
const MAX_TAG_LENGTH: usize = 128;

/// A reference to an artifact in a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    repository: Repository,
    tag: Option<String>,
    digest: Option<Digest>,
}

/// A repository in a registry, which contains all versions of one plugin.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Repository {
    host: String,
    path: String,
}

/// The source of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// An artifact in a registry.
    Registry(Reference),
    /// A file on a web server.
    Web(Url),
    /// A file on this machine.
    File(PathBuf),
}

impl Source {
    /// Parses a source from the command line. A text that looks like a path is parsed as the path of a file. Any other
    /// text is parsed as a reference or a web address. If the text is neither a valid reference nor a valid web
    /// address, but a file with that name exists, the text is parsed as the path of that file. A file in the current
    /// folder therefore never takes precedence over a valid reference.
    pub fn parse(text: &str) -> Result<Self, RegistryError> {
        let has_path_form = text.starts_with(['/', '.', '~']) || (text.ends_with(".wasm") && !text.contains("://"));
        if has_path_form {
            return Ok(Self::File(PathBuf::from(text)));
        }
        match Self::parse_reference_or_url(text) {
            Err(_) if Path::new(text).exists() => Ok(Self::File(PathBuf::from(text))),
            source => source,
        }
    }

    /// Parses the source of an entry of a lock file, in which the path of a file has been made absolute. The result does not
    /// depend on the current folder.
    pub fn parse_locked(text: &str) -> Result<Self, RegistryError> {
        if Path::new(text).is_absolute() {
            Ok(Self::File(PathBuf::from(text)))
        } else {
            Self::parse_reference_or_url(text)
        }
    }

    fn parse_reference_or_url(text: &str) -> Result<Self, RegistryError> {
        if text.starts_with("https://") || text.starts_with("http://") {
            let refused = |text: &str, reason| RegistryError::Reference { text: text.to_owned(), reason };
            let mut url = Url::parse(text).map_err(|_| refused("the address", "it is not a valid web address"))?;
            if url.username().is_empty() && url.password().is_none() {
                return Ok(Self::Web(url));
            }
            // Show the refused web address without its user name and password.
            let _ = url.set_username("").and_then(|()| url.set_password(None));
            return Err(refused(
                url.as_str(),
                "it contained a user name or a password, which would be stored and shown",
            ));
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
    /// Parses a reference of the form `[oci://]HOST[:PORT]/PATH[:TAG][@sha256:…]`. The host of the registry is
    /// required, because no registry is used by default.
    pub fn parse(text: &str) -> Result<Self, RegistryError> {
        let refused = |reason| RegistryError::Reference { text: text.chars().take(300).collect(), reason };
        let rest = text.strip_prefix("oci://").unwrap_or(text);
        let (rest, digest) = match rest.split_once('@') {
            None => (rest, None),
            Some((rest, digest)) => {
                let digest = Digest::parse(digest);
                (rest, Some(digest.map_err(|_| refused("expected a digest (`sha256:` and 64 hex digits) after `@`"))?))
            }
        };
        let (host, rest) = rest.split_once('/').ok_or_else(|| refused("it does not name a registry"))?;
        let (path, tag) = match rest.rsplit_once(':') {
            None => (rest, None),
            Some((path, tag)) => (path, Some(tag.to_owned())),
        };
        if !(host.contains(['.', ':']) || host == "localhost") || !is_host(host) {
            return Err(refused("it does not start with the host of a registry"));
        }
        if path.len() > MAX_PATH_LENGTH || !path.split('/').all(is_path_segment) {
            return Err(refused(
                "its path may only contain lower-case letters and digits, separated by `/`, `.`, `_` or `-`",
            ));
        }
        if tag.as_deref().is_some_and(|tag| !is_tag(tag)) {
            return Err(refused("its tag may only contain letters, digits, `_`, `.` and `-`, at most 128 of them"));
        }
        let repository = Repository { host: host.to_ascii_lowercase(), path: path.to_owned() };
        Ok(Self { repository, tag, digest })
    }

    /// Returns the repository that the reference refers to.
    pub fn repository(&self) -> &Repository {
        &self.repository
    }

    /// Returns the tag, if the reference has one.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// Returns the digest, if the reference has one. If there is a digest, the tag is ignored.
    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// Returns a reference to the same repository with this tag and without a digest.
    pub fn with_tag(&self, tag: &str) -> Self {
        Self { tag: Some(tag.to_owned()), digest: None, ..self.clone() }
    }

    /// Returns this reference with a digest.
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
    /// Returns the registry's host, followed by the port if there is one.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the path of the repository within the registry.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the last segment of the path.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

impl fmt::Display for Repository {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.host, self.path)
    }
}

/// Returns whether a host, with or without a port, refers to this machine.
pub(crate) fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.split(':').next().unwrap_or(host),
    };
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Converts a version to a tag. Tags cannot contain `+`, so each `+` is replaced by `_`. Returns `None` if the result
/// is not a valid tag.
pub(crate) fn tag_of_version(version: &str) -> Option<String> {
    let tag = version.replace('+', "_");
    is_tag(&tag).then_some(tag)
}

fn is_host(host: &str) -> bool {
    let is_allowed = |character: char| character.is_ascii_alphanumeric() || ".-:[]".contains(character);
    let is_allowed_first = |character: char| character.is_ascii_alphanumeric() || character == '[';
    host.starts_with(is_allowed_first)
        && host.chars().all(is_allowed)
        && Url::parse(&format!("https://{host}/")).is_ok_and(|url| url.host().is_some())
}

fn is_path_segment(segment: &str) -> bool {
    let is_alphanumeric = |character: char| character.is_ascii_lowercase() || character.is_ascii_digit();
    segment.starts_with(is_alphanumeric)
        && segment.ends_with(is_alphanumeric)
        && segment.chars().all(|character| is_alphanumeric(character) || "._-".contains(character))
}

pub(crate) fn is_tag(tag: &str) -> bool {
    let is_allowed_first = |character: char| character.is_ascii_alphanumeric() || character == '_';
    tag.len() <= MAX_TAG_LENGTH
        && tag.starts_with(is_allowed_first)
        && tag.chars().all(|character| is_allowed_first(character) || ".-".contains(character))
}

#[cfg(test)]
mod tests {
    use super::*;

    // P11: formatting a parsed reference returns the text from which it was parsed, without added default values.
    #[test]
    fn references_are_parsed_and_formatted() {
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
        let reference =
            Reference::parse("oci://Registry.example:443/team/calc:v1_2.3-x").expect("the reference is valid");
        assert_eq!(reference.repository().host(), "registry.example:443");
        assert_eq!((reference.repository().name(), reference.tag()), ("calc", Some("v1_2.3-x")));
    }

    #[test]
    fn reference_errors_contain_the_reason() {
        for (text, message) in [
            ("calc", "does not name a registry"),
            ("team/calc:1", "does not start with the host"),
            ("registry.example/Team/calc", "lower-case"),
            ("registry.example/../calc", "lower-case"),
            ("registry.example//calc", "lower-case"),
            ("registry.example/calc:", "its tag"),
            ("registry.example/calc:-a", "its tag"),
            ("registry.example/calc@sha256:12", "expected a digest"),
            ("user@registry.example/calc", "expected a digest"),
            ("a b.example/calc", "does not start with the host"),
            ("./calc", "does not start with the host"),
            ("../calc", "does not start with the host"),
        ] {
            let error = Reference::parse(text).expect_err(text).to_string();
            assert!(error.contains(message), "{text}: {error}");
        }
    }

    #[test]
    fn sources_are_distinguished() {
        assert!(matches!(Source::parse("https://example.com/calc.wasm"), Ok(Source::Web(_))));
        assert!(matches!(Source::parse("./calc"), Ok(Source::File(_))));
        assert!(matches!(Source::parse("out/calc.wasm"), Ok(Source::File(_))));
        assert!(matches!(Source::parse("registry.example/calc:1"), Ok(Source::Registry(_))));
        let error = Source::parse("https://user:secret@example.com/calc.wasm").expect_err("it is refused").to_string();
        assert!(error.contains("`https://example.com/calc.wasm`") && !error.contains("secret"), "row 16: {error}");
        // Row 18: a source in a lock file has the same meaning in every folder, regardless of the files in that folder.
        assert!(matches!(Source::parse_locked("registry.example/team/calc.wasm"), Ok(Source::Registry(_))));
        assert!(matches!(Source::parse_locked("/home/ann/calc.wasm"), Ok(Source::File(_))));
        for text in ["calc.wasm", "./calc", "../calc.wasm"] {
            assert!(Source::parse_locked(text).is_err(), "{text}");
        }
    }

    #[test]
    fn loopback_hosts_are_recognised() {
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
    fn versions_are_converted_to_tags() {
        assert_eq!(tag_of_version("1.0.0-rc.1+build"), Some("1.0.0-rc.1_build".to_owned()));
        assert_eq!([tag_of_version(""), tag_of_version("a b")], [None, None]);
    }
}
