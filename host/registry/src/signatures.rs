//! Attaches signatures to artifacts. Some registries list an artifact's referrers: the other artifacts that refer to
//! the artifact. The module also supports registries that do not list referrers.
//!
//! If a registry does not list referrers, the distribution specification requires clients to maintain the list
//! themselves, in an index under the tag `sha256-HEX`. Registries have no compare-and-swap operation, so an entry can
//! be lost if two clients write the index at the same time. Therefore each signature also has its own tag, which no
//! other client writes. The search for signatures reads the tags of the signatures, and the next client that signs the
//! artifact adds missing entries to the index.

use crate::error::RegistryError;
use crate::oci::{Descriptor, EMPTY, EMPTY_TYPE, INDEX_TYPE, Index, MANIFEST_TYPE, Manifest};
use crate::push::Pushed;
use crate::reference::Repository;
use crate::registry::{Access, Registry, StoredManifest};
use crate::signature::signing_key_id;
use agent_core::message::Digest;
use bytes::Bytes;
use std::time::Duration;

/// Artifact type of a signature.
pub(crate) const SIGNATURE_TYPE: &str = "application/vnd.agent-host.plugin.signature.v1";
/// Media type of a signature's content, which consists of the four lines of a minisign signature.
const MINISIG_TYPE: &str = "application/vnd.minisign.signature.v1";
/// Name of the annotation that contains the id of the key that made the signature. Anybody can write this annotation,
/// so the host uses it only to decide which signatures are read first.
pub(crate) const KEY_ANNOTATION: &str = "host.agent.plugin.signature.key";
/// Maximum number of missing signatures that one update adds to an index.
const MAX_RESTORED: usize = 32;
/// Maximum number of attempts to add an entry to an index that other clients also write.
const MAX_ATTEMPTS: u32 = 6;
const RETRY_DELAY: Duration = Duration::from_millis(100);

impl Registry {
    /// Attaches a signature to a pushed component, as an artifact that refers to the component. If the registry does
    /// not list such artifacts, the signature also gets its own tag and an entry in the index under `sha256-…`.
    pub async fn attach_signature(&self, pushed: &Pushed, signature: &str) -> Result<(), RegistryError> {
        let repository = pushed.reference.repository();
        let subject =
            Descriptor { digest: pushed.manifest.clone(), size: pushed.size, ..Descriptor::of(MANIFEST_TYPE, b"") };
        let layer = Descriptor::of(MINISIG_TYPE, signature.as_bytes());
        let mut manifest = Manifest::new(Descriptor::of(EMPTY_TYPE, EMPTY), vec![layer]);
        manifest.artifact_type = Some(SIGNATURE_TYPE.to_owned());
        manifest.subject = Some(subject);
        manifest.annotations.extend(signing_key_id(signature).map(|key| (KEY_ANNOTATION.to_owned(), key)));
        let bytes = serde_json::to_vec(&manifest).expect("the value serialises to JSON");
        let entry = index_entry(&bytes);
        self.put_blob(repository, &Bytes::from_static(EMPTY)).await?;
        self.put_blob(repository, &Bytes::copy_from_slice(signature.as_bytes())).await?;
        self.put_manifest(repository, entry.digest.as_str(), (&bytes, MANIFEST_TYPE)).await?;
        let listed = self.referrers((repository, &pushed.manifest), SIGNATURE_TYPE).await?;
        if listed.is_some_and(|listing| listing.entries.iter().any(|listed| listed.digest == entry.digest)) {
            return Ok(());
        }
        self.put_manifest(repository, &signature_tag(&pushed.manifest, &entry.digest), (&bytes, MANIFEST_TYPE)).await?;
        self.add_to_signature_index(repository, &pushed.manifest, entry).await
    }

    /// Adds an entry to the index. Other clients may write the index at the same time and thereby remove the entry, so
    /// this function reads the index again after each write, until the index contains the entry or the attempts are
    /// used up.
    async fn add_to_signature_index(
        &self,
        repository: &Repository,
        subject: &Digest,
        entry: Descriptor,
    ) -> Result<(), RegistryError> {
        let tag = fallback_tag(subject);
        for attempt in 0..MAX_ATTEMPTS {
            let mut index = self
                .read_signature_index((repository, Access::Push), &tag)
                .await?
                .unwrap_or_else(|| Index::of(Vec::new()));
            let mut missing = self.unlisted_signatures((repository, Access::Push), subject, &index).await?;
            missing.retain(|(other, _)| other.digest != entry.digest);
            let is_listed = contains_entry(&index, &entry.digest);
            if is_listed && missing.is_empty() {
                return Ok(());
            }
            index.manifests.extend(missing.into_iter().map(|(entry, _)| entry));
            index.manifests.extend((!is_listed).then(|| entry.clone()));
            let bytes = serde_json::to_vec(&index).expect("the value serialises to JSON");
            self.put_manifest(repository, &tag, (&bytes, INDEX_TYPE)).await?;
            tokio::time::sleep(RETRY_DELAY * (attempt + 1)).await;
        }
        // Ignore this problem, because the search also finds the signature by its own tag.
        tracing::warn!(%repository, %tag, "other clients keep writing this list of signatures, which does not contain the new signature");
        Ok(())
    }

    /// Reads the index of signatures under the fallback tag. Returns `None` if the index does not exist.
    async fn read_signature_index(
        &self,
        (repository, access): (&Repository, Access),
        tag: &str,
    ) -> Result<Option<Index>, RegistryError> {
        let Some(stored) = self.find_manifest((repository, access), tag).await? else { return Ok(None) };
        let index: Option<Index> = serde_json::from_slice(&stored.bytes).ok();
        index.map(Some).ok_or_else(|| RegistryError::Server {
            place: format!("{repository}:{tag}"),
            message: "the content under this tag is not a list of artifacts".to_owned(),
        })
    }

    /// Reads the signatures that have their own tags but are not in the index.
    async fn unlisted_signatures(
        &self,
        (repository, access): (&Repository, Access),
        subject: &Digest,
        listed: &Index,
    ) -> Result<Vec<(Descriptor, StoredManifest)>, RegistryError> {
        let listed_tags: Vec<_> = listed.manifests.iter().map(|entry| signature_tag(subject, &entry.digest)).collect();
        let prefix = format!("{}.", fallback_tag(subject));
        let tags = match self.tags(repository).await {
            Err(error) if error.is_offline() => return Err(error),
            // Some registries do not list tags. In a registry without lists of tags, only the signatures in the index
            // are found.
            Err(error) => {
                tracing::warn!(%error, "could not list the tags of signatures");
                Vec::new()
            }
            Ok(tags) => tags,
        };
        let mut found = Vec::new();
        for tag in tags.iter().filter(|tag| tag.starts_with(&prefix) && !listed_tags.contains(tag)).take(MAX_RESTORED) {
            match self.find_manifest((repository, access), tag).await {
                Ok(stored) => found.extend(stored.map(|stored| (index_entry(&stored.bytes), stored))),
                Err(error) if error.is_offline() => return Err(error),
                Err(error) => tracing::warn!(%error, "could not read a signature"),
            }
        }
        Ok(found)
    }
}

/// Returns the entry that describes a signature in the index. `manifest` is the manifest of the signature. The entry
/// contains the annotations of the manifest, as the entries in a registry's own list do.
fn index_entry(manifest: &[u8]) -> Descriptor {
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

/// Returns the tag `sha256-…` that the distribution specification uses for the list of referrers of a digest.
pub(crate) fn fallback_tag(subject: &Digest) -> String {
    format!("sha256-{}", subject.hex())
}

/// Returns the tag under which a single signature of the artifact `subject` is stored.
pub(crate) fn signature_tag(subject: &Digest, signature: &Digest) -> String {
    format!("{}.{}", fallback_tag(subject), signature.short())
}
