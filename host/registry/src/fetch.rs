//! Resolves the source of a plugin, and fetches the plugin's component and the component's signatures. If the
//! component comes from a registry, its digest is verified.

use crate::download::{Downloads, Progress};
use crate::error::RegistryError;
use crate::files::read;
use crate::keys::PublicKey;
use crate::oci::Descriptor;
use crate::push::Pushed;
use crate::reference::{Reference, Source};
use crate::registry::Registry;
use crate::signature::MAX_SIGNATURE_BYTES;
use crate::signature_search::{FoundSignatures, SignatureSearch};
use agent_core::message::Digest;
use agent_plugins::{PluginStore, digest_of};
use semver::Version;
use url::Url;

/// The plugin to which a source referred when the source was resolved.
#[derive(Clone, Debug)]
pub struct ResolvedPlugin {
    /// The source that was resolved.
    pub source: Source,
    /// Digest of the plugin's manifest in the registry. `None` if the source is not in a registry.
    pub manifest: Option<Digest>,
    /// Size of the manifest in bytes.
    size: u64,
    component: Option<Descriptor>,
}

/// A component that was fetched.
#[derive(Debug)]
pub struct FetchedPlugin {
    /// The source from which the component was fetched.
    pub source: Source,
    /// Digest of the plugin's manifest in the registry. `None` if the source is not in a registry.
    pub manifest: Option<Digest>,
    /// Bytes of the component.
    pub bytes: Vec<u8>,
    /// Unverified signatures of the component, which the caller must verify. If the search found a valid signature by a
    /// requested key, the list contains only that signature.
    pub signatures: Vec<String>,
    /// Reason why the search stopped before it had read all signatures, as a message for users. `None` if all
    /// signatures were read or a valid signature was found.
    pub search_stopped: Option<String>,
}

/// The signatures to fetch with a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignatureRequest<'k> {
    /// Fetches some of the existing signatures, no matter which keys made them.
    Any,
    /// Searches for a valid signature that one of these keys made, even if there are many other signatures.
    FromKeys(&'k [PublicKey]),
    /// Fetches no signatures.
    Skip,
}

/// The folder for fetched components, the folder for incomplete downloads, and the size limit for components.
#[derive(Clone, Debug)]
pub struct ComponentCache {
    /// Stored components, keyed by digest. A stored component is not downloaded again.
    pub store: PluginStore,
    /// Folder for incomplete downloads, and the size limit for components.
    pub downloads: Downloads,
}

impl Registry {
    /// Determines the plugin to which a source currently refers. This function reads only small documents from the
    /// registry and does not download the component.
    pub async fn resolve(&self, source: &Source) -> Result<ResolvedPlugin, RegistryError> {
        let Source::Registry(reference) = source else {
            return Ok(ResolvedPlugin { source: source.clone(), manifest: None, size: 0, component: None });
        };
        let tagged = self.with_resolved_tag(reference).await?;
        let (digest, size, manifest) = self.manifest(&tagged).await?;
        let not_a_plugin = |content: String| RegistryError::NotAPlugin { place: tagged.to_string(), content };
        let component = manifest.component().map_err(not_a_plugin)?.clone();
        Ok(ResolvedPlugin { source: source.clone(), manifest: Some(digest), size, component: Some(component) })
    }

    /// If a reference has neither a tag nor a digest, adds a tag to it: the tag of the newest version, or `latest` if
    /// no tag in the repository is a version.
    async fn with_resolved_tag(&self, reference: &Reference) -> Result<Reference, RegistryError> {
        if reference.tag().is_some() || reference.digest().is_some() {
            return Ok(reference.clone());
        }
        let tags = self.tags(reference.repository()).await?;
        Ok(reference.with_tag(newest_version_tag(&tags).unwrap_or("latest")))
    }

    /// Fetches the component of a resolved plugin, and the requested signatures. If the component is in the cache, it
    /// is not downloaded.
    pub async fn fetch(
        &self,
        resolved: &ResolvedPlugin,
        cache: &ComponentCache,
        signatures: SignatureRequest<'_>,
        progress: &Progress<'_>,
    ) -> Result<FetchedPlugin, RegistryError> {
        let max_bytes = cache.downloads.most;
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
                let FoundSignatures { texts, stop_reason } = match signatures {
                    SignatureRequest::Any => self.find_signatures(search(&[])).await?,
                    SignatureRequest::FromKeys(keys) => self.find_signatures(search(keys)).await?,
                    SignatureRequest::Skip => FoundSignatures::default(),
                };
                (bytes, texts, stop_reason)
            }
            Source::Web(url) => {
                let bytes = self.download_page(url, max_bytes, progress).await?;
                let advice = String::new();
                let bytes = bytes.ok_or_else(|| RegistryError::NotFound { place: url.to_string(), advice })?;
                (bytes, self.web_signature(url, signatures).await?, None)
            }
            Source::File(path) => (read(path, max_bytes)?, Vec::new(), None),
        };
        let (source, manifest) = (resolved.source.clone(), resolved.manifest.clone());
        Ok(FetchedPlugin { source, manifest, bytes, signatures, search_stopped })
    }

    /// Fetches the signature of a component on a web server from `URL.minisig`, because minisign uses this file name.
    async fn web_signature(&self, url: &Url, signatures: SignatureRequest<'_>) -> Result<Vec<String>, RegistryError> {
        if signatures == SignatureRequest::Skip {
            return Ok(Vec::new());
        }
        let mut signature_url = url.clone();
        signature_url.set_path(&format!("{}.minisig", url.path()));
        let bytes = self.download_page(&signature_url, MAX_SIGNATURE_BYTES, &|_, _| {}).await?;
        Ok(bytes.and_then(|bytes| String::from_utf8(bytes).ok()).into_iter().collect())
    }
}

impl ResolvedPlugin {
    /// Returns the component's description in the registry, which is needed to make a signature and attach it to the
    /// component. Returns `None` if the component is not in a registry.
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

    /// Returns the digest of the component, or `None` if the digest is known only after the component was fetched.
    pub fn component(&self) -> Option<&Digest> {
        self.component.as_ref().map(|component| &component.digest)
    }
}

impl FetchedPlugin {
    /// Computes the SHA-256 digest of the component.
    pub fn digest(&self) -> Digest {
        digest_of(&self.bytes)
    }
}

/// Returns the tag of the newest version, or `None` if no tag is a version. Releases are preferred to prereleases.
fn newest_version_tag(tags: &[String]) -> Option<&str> {
    let versions = tags.iter().filter_map(|tag| Some((parse_version_tag(tag)?, tag.as_str())));
    let newest =
        versions.max_by(|(left, _), (right, _)| (left.pre.is_empty(), left).cmp(&(right.pre.is_empty(), right)));
    newest.map(|(_, tag)| tag)
}

/// Parses a tag such as `1.2.3`, which may begin with `v` and may contain `_` instead of `+`.
fn parse_version_tag(tag: &str) -> Option<Version> {
    Version::parse(&tag.strip_prefix('v').unwrap_or(tag).replace('_', "+")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    // P11: a reference without a tag refers to the newest release.
    #[test]
    fn newest_release_is_chosen_from_tags() {
        let newest = |tags: &[&str]| {
            let tags: Vec<_> = tags.iter().map(|tag| (*tag).to_owned()).collect();
            newest_version_tag(&tags).map(str::to_owned)
        };
        assert_eq!(newest(&["1.9.0", "1.10.0", "latest", "2.0.0-rc.1"]).as_deref(), Some("1.10.0"));
        assert_eq!(newest(&["0.1.0-a", "0.1.0-b"]).as_deref(), Some("0.1.0-b"));
        assert_eq!(newest(&["v1.0.0", "0.9.0_build"]).as_deref(), Some("v1.0.0"));
        assert_eq!(newest(&["latest", "sha256-abc", "1"]), None);
    }
}
