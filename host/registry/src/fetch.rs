//! Resolves a source and fetches the component from it: verified, and with its signatures.

use crate::download::{Downloads, Progress};
use crate::error::RegistryError;
use crate::files::read;
use crate::keys::PublicKey;
use crate::oci::Descriptor;
use crate::push::Pushed;
use crate::reference::{Reference, Source};
use crate::registry::Registry;
use crate::signature::SIGNATURE_BYTES;
use crate::signature_search::{FoundSignatures, SignatureSearch};
use agent_core::message::Digest;
use agent_plugins::{PluginStore, digest_of};
use semver::Version;
use url::Url;

/// What a source refers to at this moment.
#[derive(Clone, Debug)]
pub struct ResolvedPlugin {
    /// The source that was resolved.
    pub source: Source,
    /// Digest of the manifest in the registry. `None` for other sources.
    pub manifest: Option<Digest>,
    /// Size of the manifest in bytes.
    size: u64,
    component: Option<Descriptor>,
}

/// A component that was fetched.
#[derive(Debug)]
pub struct FetchedPlugin {
    /// The source that it came from.
    pub source: Source,
    /// Digest of the manifest in the registry. `None` for other sources.
    pub manifest: Option<Digest>,
    /// Bytes of the component.
    pub bytes: Vec<u8>,
    /// Signatures of the component, unverified. If a signature of a requested key is valid, only that one.
    pub signatures: Vec<String>,
    /// Why not all signatures were read, for people. `None` if all were read or a valid one was found.
    pub search_stopped: Option<String>,
}

/// Which signatures to fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignatureRequest<'k> {
    /// Some of the existing signatures, of any key.
    Any,
    /// A valid signature of one of these keys, however many other signatures exist.
    FromKeys(&'k [PublicKey]),
    /// No signatures.
    Skip,
}

/// Where fetched components are stored, and how large they may be.
#[derive(Clone, Debug)]
pub struct ComponentCache {
    /// Stored components by digest. They are not downloaded again.
    pub store: PluginStore,
    /// Incomplete downloads.
    pub downloads: Downloads,
}

impl Registry {
    /// Resolves what a source refers to now. This only reads small documents.
    pub async fn resolve(&self, source: &Source) -> Result<ResolvedPlugin, RegistryError> {
        let Source::Registry(reference) = source else {
            return Ok(ResolvedPlugin { source: source.clone(), manifest: None, size: 0, component: None });
        };
        let chosen = self.chosen(reference).await?;
        let (digest, size, manifest) = self.manifest(&chosen).await?;
        let what = |what: String| RegistryError::NotAPlugin { place: chosen.to_string(), what };
        let component = manifest.component().map_err(what)?.clone();
        Ok(ResolvedPlugin { source: source.clone(), manifest: Some(digest), size, component: Some(component) })
    }

    /// A reference without tag and digest means the newest version among the tags, or `latest` if no tag is a version.
    async fn chosen(&self, reference: &Reference) -> Result<Reference, RegistryError> {
        if reference.tag().is_some() || reference.digest().is_some() {
            return Ok(reference.clone());
        }
        let tags = self.tags(reference.repository()).await?;
        Ok(reference.with_tag(newest(&tags).unwrap_or("latest")))
    }

    /// Fetches the resolved component, from the cache if it is stored there.
    pub async fn fetch(
        &self,
        resolved: &ResolvedPlugin,
        cache: &ComponentCache,
        signatures: SignatureRequest<'_>,
        progress: &Progress<'_>,
    ) -> Result<FetchedPlugin, RegistryError> {
        let most = cache.downloads.most;
        let (bytes, signatures, search_stopped) = match &resolved.source {
            Source::Registry(reference) => {
                let (component, manifest) =
                    resolved.component.as_ref().zip(resolved.manifest.as_ref()).ok_or_else(|| {
                        RegistryError::NotFound { place: reference.to_string(), advice: String::new() }
                    })?;
                let repository = reference.repository();
                let bytes = match cache.store.get(&component.digest) {
                    Ok(bytes) => bytes,
                    Err(_) => self.download(repository, component, &cache.downloads, progress).await?,
                };
                let search = |keys| SignatureSearch { repository, subject: manifest, component: &bytes, keys };
                let FoundSignatures { texts, stopped } = match signatures {
                    SignatureRequest::Any => self.find_signatures(search(&[])).await?,
                    SignatureRequest::FromKeys(keys) => self.find_signatures(search(keys)).await?,
                    SignatureRequest::Skip => FoundSignatures::default(),
                };
                (bytes, texts, stopped)
            }
            Source::Web(url) => {
                let bytes = self.page(url, most, progress).await?;
                let advice = String::new();
                let bytes = bytes.ok_or_else(|| RegistryError::NotFound { place: url.to_string(), advice })?;
                (bytes, self.web_signature(url, signatures).await?, None)
            }
            Source::File(path) => (read(path, most)?, Vec::new(), None),
        };
        let (source, manifest) = (resolved.source.clone(), resolved.manifest.clone());
        Ok(FetchedPlugin { source, manifest, bytes, signatures, search_stopped })
    }

    /// Fetches `URL.minisig`, the name that minisign uses for signatures.
    async fn web_signature(&self, url: &Url, signatures: SignatureRequest<'_>) -> Result<Vec<String>, RegistryError> {
        if signatures == SignatureRequest::Skip {
            return Ok(Vec::new());
        }
        let mut signature_url = url.clone();
        signature_url.set_path(&format!("{}.minisig", url.path()));
        let bytes = self.page(&signature_url, SIGNATURE_BYTES, &|_, _| {}).await?;
        Ok(bytes.and_then(|bytes| String::from_utf8(bytes).ok()).into_iter().collect())
    }
}

impl ResolvedPlugin {
    /// Returns what a signature of the component refers to. `None` if it is not in a registry.
    pub fn pushed(&self) -> Option<Pushed> {
        let Source::Registry(reference) = &self.source else { return None };
        Some(Pushed {
            reference: reference.clone(),
            manifest: self.manifest.clone()?,
            size: self.size,
            component: self.component()?.clone(),
            replaced: None,
            already_present: true,
        })
    }

    /// Digest of the component, if it is known before the component is fetched.
    pub fn component(&self) -> Option<&Digest> {
        self.component.as_ref().map(|component| &component.digest)
    }
}

impl FetchedPlugin {
    /// Computes the SHA-256 digest of the bytes.
    pub fn digest(&self) -> Digest {
        digest_of(&self.bytes)
    }
}

/// Returns the tag of the newest version. Releases come before prereleases.
fn newest(tags: &[String]) -> Option<&str> {
    let versions = tags.iter().filter_map(|tag| Some((version_of(tag)?, tag.as_str())));
    let newest =
        versions.max_by(|(left, _), (right, _)| (left.pre.is_empty(), left).cmp(&(right.pre.is_empty(), right)));
    newest.map(|(_, tag)| tag)
}

/// Parses `1.2.3`, optionally with a leading `v`, and with `_` instead of `+`.
fn version_of(tag: &str) -> Option<Version> {
    Version::parse(&tag.strip_prefix('v').unwrap_or(tag).replace('_', "+")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    // P11: a reference without a tag means the newest release.
    #[test]
    fn newest_release_is_chosen_from_tags() {
        let of = |tags: &[&str]| {
            let tags: Vec<_> = tags.iter().map(|tag| (*tag).to_owned()).collect();
            newest(&tags).map(str::to_owned)
        };
        assert_eq!(of(&["1.9.0", "1.10.0", "latest", "2.0.0-rc.1"]).as_deref(), Some("1.10.0"));
        assert_eq!(of(&["0.1.0-a", "0.1.0-b"]).as_deref(), Some("0.1.0-b"));
        assert_eq!(of(&["v1.0.0", "0.9.0_build"]).as_deref(), Some("v1.0.0"));
        assert_eq!(of(&["latest", "sha256-abc", "1"]), None);
    }
}
