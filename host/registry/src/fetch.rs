//! From a source to the bytes of a component, verified, with the signatures that stand beside it.

use crate::download::{Downloads, Progress};
use crate::error::ShareError;
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

/// What a source has at this moment.
#[derive(Clone, Debug)]
pub struct Found {
    /// Where.
    pub source: Source,
    /// The manifest in the registry; none for others.
    pub manifest: Option<Digest>,
    /// Bytes of the manifest.
    size: u64,
    component: Option<Descriptor>,
}

/// A component that came.
#[derive(Debug)]
pub struct Fetched {
    /// From where.
    pub source: Source,
    /// The manifest in the registry; none for others.
    pub manifest: Option<Digest>,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Signatures that stand beside it, as they are: the one that fits alone, if there is one.
    pub signatures: Vec<String>,
    /// Why not all signatures were read, for people; none where all were, or one fits.
    pub search_stopped: Option<String>,
}

/// Which signatures are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signatures<'k> {
    /// Some of those that are there, whoever made them.
    Wanted,
    /// One of these keys, however many others there are.
    Of(&'k [PublicKey]),
    /// Nobody looks at them.
    Ignored,
}

/// Where components come to, and how large they may be.
#[derive(Clone, Debug)]
pub struct Shelf {
    /// Components by digest: what is there is not asked for again.
    pub store: PluginStore,
    /// Those that are on their way.
    pub downloads: Downloads,
}

impl Registry {
    /// What a source has now. Nothing large is asked for.
    pub async fn find(&self, source: &Source) -> Result<Found, ShareError> {
        let Source::Registry(reference) = source else {
            return Ok(Found { source: source.clone(), manifest: None, size: 0, component: None });
        };
        let chosen = self.chosen(reference).await?;
        let (digest, size, manifest) = self.manifest(&chosen).await?;
        let what = |what: String| ShareError::NotAPlugin { place: chosen.to_string(), what };
        let component = manifest.component().map_err(what)?.clone();
        Ok(Found { source: source.clone(), manifest: Some(digest), size, component: Some(component) })
    }

    /// Without a tag and a digest: the newest version among the tags, else `latest`.
    async fn chosen(&self, reference: &Reference) -> Result<Reference, ShareError> {
        if reference.tag().is_some() || reference.digest().is_some() {
            return Ok(reference.clone());
        }
        let tags = self.tags(reference.repository()).await?;
        Ok(reference.with_tag(newest(&tags).unwrap_or("latest")))
    }

    /// The component that was found: from the shelf where it is there, else from its source.
    pub async fn fetch(
        &self,
        found: &Found,
        shelf: &Shelf,
        signatures: Signatures<'_>,
        progress: &Progress<'_>,
    ) -> Result<Fetched, ShareError> {
        let most = shelf.downloads.most;
        let (bytes, signatures, search_stopped) = match &found.source {
            Source::Registry(reference) => {
                let (component, manifest) = found
                    .component
                    .as_ref()
                    .zip(found.manifest.as_ref())
                    .ok_or_else(|| ShareError::NotFound { place: reference.to_string(), advice: String::new() })?;
                let repository = reference.repository();
                let bytes = match shelf.store.get(&component.digest) {
                    Ok(bytes) => bytes,
                    Err(_) => self.download(repository, component, &shelf.downloads, progress).await?,
                };
                let search = |keys| SignatureSearch { repository, subject: manifest, component: &bytes, keys };
                let FoundSignatures { texts, stopped } = match signatures {
                    Signatures::Wanted => self.find_signatures(search(&[])).await?,
                    Signatures::Of(keys) => self.find_signatures(search(keys)).await?,
                    Signatures::Ignored => FoundSignatures::default(),
                };
                (bytes, texts, stopped)
            }
            Source::Web(url) => {
                let bytes = self.page(url, most, progress).await?;
                let advice = String::new();
                let bytes = bytes.ok_or_else(|| ShareError::NotFound { place: url.to_string(), advice })?;
                (bytes, self.signature_beside(url, signatures).await?, None)
            }
            Source::File(path) => (read(path, most)?, Vec::new(), None),
        };
        let (source, manifest) = (found.source.clone(), found.manifest.clone());
        Ok(Fetched { source, manifest, bytes, signatures, search_stopped })
    }

    /// `ADDRESS.minisig`, as minisign names it.
    async fn signature_beside(&self, url: &Url, signatures: Signatures<'_>) -> Result<Vec<String>, ShareError> {
        if signatures == Signatures::Ignored {
            return Ok(Vec::new());
        }
        let mut beside = url.clone();
        beside.set_path(&format!("{}.minisig", url.path()));
        let bytes = self.page(&beside, SIGNATURE_BYTES, &|_, _| {}).await?;
        Ok(bytes.and_then(|bytes| String::from_utf8(bytes).ok()).into_iter().collect())
    }
}

impl Found {
    /// What can be signed of it; none where it is in no registry.
    pub fn pushed(&self) -> Option<Pushed> {
        let Source::Registry(reference) = &self.source else { return None };
        Some(Pushed {
            reference: reference.clone(),
            manifest: self.manifest.clone()?,
            size: self.size,
            component: self.component()?.clone(),
            instead_of: None,
            was_there: true,
        })
    }

    /// The component's digest, where it is known before it has come.
    pub fn component(&self) -> Option<&Digest> {
        self.component.as_ref().map(|component| &component.digest)
    }
}

impl Fetched {
    /// SHA-256 of the bytes.
    pub fn digest(&self) -> Digest {
        digest_of(&self.bytes)
    }
}

/// The tag of the newest version; one that is a release before all that are not.
fn newest(tags: &[String]) -> Option<&str> {
    let versions = tags.iter().filter_map(|tag| Some((version_of(tag)?, tag.as_str())));
    let newest =
        versions.max_by(|(left, _), (right, _)| (left.pre.is_empty(), left).cmp(&(right.pre.is_empty(), right)));
    newest.map(|(_, tag)| tag)
}

/// `1.2.3`, also with a `v` before it, and with `_` for `+`.
fn version_of(tag: &str) -> Option<Version> {
    Version::parse(&tag.strip_prefix('v').unwrap_or(tag).replace('_', "+")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    // P11: without a tag it is the newest release.
    #[test]
    fn the_newest_version_is_found_among_tags() {
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
