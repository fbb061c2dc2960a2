//! Attaches signatures to artifacts, in registries with and without a list of referrers.
//!
//! Without such a list, the distribution specification stores one in an index under the tag `sha256-HEX`, which clients update.
//! Registries have no compare-and-swap, so if two clients write the index at once, one entry is lost. Each signature therefore also
//! has its own tag, which no other client writes. The search reads these tags, and the next client that signs adds missing entries
//! to the index.

use crate::error::RegistryError;
use crate::oci::{Descriptor, EMPTY, EMPTY_TYPE, INDEX_TYPE, Index, MANIFEST_TYPE, Manifest};
use crate::push::Pushed;
use crate::reference::Repository;
use crate::registry::{Access, Registry, StoredManifest};
use crate::signature::key_of;
use agent_core::message::Digest;
use bytes::Bytes;
use std::time::Duration;

/// Artifact type of a signature.
pub(crate) const SIGNATURE_TYPE: &str = "application/vnd.agent-host.plugin.signature.v1";
/// Media type of the signature itself: minisign's four lines.
const MINISIG_TYPE: &str = "application/vnd.minisign.signature.v1";
/// Annotation with the number of the signature's key. Anybody can write it, so it only says which signatures to read first.
pub(crate) const KEY: &str = "host.agent.plugin.signature.key";
/// Maximum number of missing signatures that are added to an index at once.
const MAX_RESTORED: usize = 32;
/// Maximum number of attempts to add an entry to an index that other clients write too.
const MAX_ATTEMPTS: u32 = 6;
const RETRY_DELAY: Duration = Duration::from_millis(100);

impl Registry {
    /// Attaches a signature to a pushed component, as an artifact that refers to it. If the registry does not list such
    /// artifacts, the signature also gets its own tag and an entry in the index under `sha256-…`.
    pub async fn attach_signature(&self, pushed: &Pushed, signature: &str) -> Result<(), RegistryError> {
        let repository = pushed.reference.repository();
        let subject =
            Descriptor { digest: pushed.manifest.clone(), size: pushed.size, ..Descriptor::of(MANIFEST_TYPE, b"") };
        let layer = Descriptor::of(MINISIG_TYPE, signature.as_bytes());
        let mut manifest = Manifest::new(Descriptor::of(EMPTY_TYPE, EMPTY), vec![layer]);
        manifest.artifact_type = Some(SIGNATURE_TYPE.to_owned());
        manifest.subject = Some(subject);
        manifest.annotations.extend(key_of(signature).map(|key| (KEY.to_owned(), key)));
        let bytes = serde_json::to_vec(&manifest).expect("the value serialises to JSON");
        let entry = entry(&bytes);
        self.put_blob(repository, &Bytes::from_static(EMPTY)).await?;
        self.put_blob(repository, &Bytes::copy_from_slice(signature.as_bytes())).await?;
        self.put(repository, entry.digest.as_str(), (&bytes, MANIFEST_TYPE)).await?;
        let listed = self.referrers((repository, &pushed.manifest), SIGNATURE_TYPE).await?;
        if listed.is_some_and(|listing| listing.entries.iter().any(|listed| listed.digest == entry.digest)) {
            return Ok(());
        }
        self.put(repository, &own_tag(&pushed.manifest, &entry.digest), (&bytes, MANIFEST_TYPE)).await?;
        self.list(repository, &pushed.manifest, entry).await
    }

    /// Adds an entry to the index. Other clients may write it at the same time, so it is read again until it has the entry.
    async fn list(&self, repository: &Repository, subject: &Digest, entry: Descriptor) -> Result<(), RegistryError> {
        let tag = fallback_tag(subject);
        for number in 0..MAX_ATTEMPTS {
            let mut index =
                self.fallback((repository, Access::Push), &tag).await?.unwrap_or_else(|| Index::of(Vec::new()));
            let mut missing = self.tagged((repository, Access::Push), subject, &index).await?;
            missing.retain(|(other, _)| other.digest != entry.digest);
            let is_in = contains_entry(&index, &entry.digest);
            if is_in && missing.is_empty() {
                return Ok(());
            }
            index.manifests.extend(missing.into_iter().map(|(entry, _)| entry));
            index.manifests.extend((!is_in).then(|| entry.clone()));
            let bytes = serde_json::to_vec(&index).expect("the value serialises to JSON");
            self.put(repository, &tag, (&bytes, INDEX_TYPE)).await?;
            tokio::time::sleep(RETRY_DELAY * (number + 1)).await;
        }
        // The search finds the signature by its own tag.
        tracing::warn!(%repository, %tag, "other clients keep writing this list of signatures; it lacks the new signature");
        Ok(())
    }

    /// Reads the index under the fallback tag.
    async fn fallback(
        &self,
        (repository, access): (&Repository, Access),
        tag: &str,
    ) -> Result<Option<Index>, RegistryError> {
        let Some(stored) = self.stored((repository, access), tag).await? else { return Ok(None) };
        let index: Option<Index> = serde_json::from_slice(&stored.bytes).ok();
        index.map(Some).ok_or_else(|| RegistryError::Server {
            place: format!("{repository}:{tag}"),
            message: "the content under this tag is not a list of artifacts".to_owned(),
        })
    }

    /// Reads the signatures that have their own tags and are not in the index.
    async fn tagged(
        &self,
        (repository, access): (&Repository, Access),
        subject: &Digest,
        listed: &Index,
    ) -> Result<Vec<(Descriptor, StoredManifest)>, RegistryError> {
        let known: Vec<_> = listed.manifests.iter().map(|entry| own_tag(subject, &entry.digest)).collect();
        let begin = format!("{}.", fallback_tag(subject));
        let tags = match self.tags(repository).await {
            Err(error) if error.is_offline() => return Err(error),
            // Some registries do not list tags; the index must then be enough.
            Err(error) => {
                tracing::warn!(%error, "could not list the tags of signatures");
                Vec::new()
            }
            Ok(tags) => tags,
        };
        let mut found = Vec::new();
        for tag in tags.iter().filter(|tag| tag.starts_with(&begin) && !known.contains(tag)).take(MAX_RESTORED) {
            match self.stored((repository, access), tag).await {
                Ok(stored) => found.extend(stored.map(|stored| (entry(&stored.bytes), stored))),
                Err(error) if error.is_offline() => return Err(error),
                Err(error) => tracing::warn!(%error, "could not read a signature"),
            }
        }
        Ok(found)
    }
}

/// The entry of a signature in an index. It has the annotations of the manifest, as in a registry's own list.
fn entry(manifest: &[u8]) -> Descriptor {
    let annotations = serde_json::from_slice::<Manifest>(manifest).map(|manifest| manifest.annotations);
    Descriptor {
        artifact_type: Some(SIGNATURE_TYPE.to_owned()),
        annotations: annotations.unwrap_or_default(),
        ..Descriptor::of(MANIFEST_TYPE, manifest)
    }
}

fn contains_entry(index: &Index, digest: &Digest) -> bool {
    index.manifests.iter().any(|entry| entry.digest == *digest)
}

/// The tag `sha256-…` that the distribution specification uses for the list of referrers of a digest.
pub(crate) fn fallback_tag(subject: &Digest) -> String {
    format!("sha256-{}", subject.hex())
}

/// The tag of a single signature.
pub(crate) fn own_tag(subject: &Digest, signature: &Digest) -> String {
    format!("{}.{}", fallback_tag(subject), signature.short())
}
