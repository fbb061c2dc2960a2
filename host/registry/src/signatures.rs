//! Signatures beside what they sign, in registries with and without a list of referrers.
//!
//! Where there is no such list, the distribution specification has one in an index under the tag `sha256-HEX`, which its writers
//! keep. No registry compares and sets, so of two who write it at once one is lost. So each signature has a tag of its own, too,
//! which nobody else writes: by those none is lost, and whoever signs next puts what is missing back into the index.

use crate::error::ShareError;
use crate::oci::{Descriptor, EMPTY, EMPTY_TYPE, INDEX_TYPE, Index, MANIFEST_TYPE, Manifest};
use crate::push::Pushed;
use crate::reference::Repository;
use crate::registry::{Access, Registry, Stored};
use crate::signature::key_of;
use agent_core::message::Digest;
use bytes::Bytes;
use std::time::Duration;

/// What a signature is, in the registry.
pub(crate) const SIGNATURE_TYPE: &str = "application/vnd.agent-host.plugin.signature.v1";
/// The signature itself: minisign's four lines.
const MINISIG_TYPE: &str = "application/vnd.minisign.signature.v1";
/// The number of the key that made it, as an annotation. Anybody can write it: it says where to look first, and nothing else.
pub(crate) const KEY: &str = "host.agent.plugin.signature.key";
/// Signatures that are put back into a list at once.
const MOST: usize = 32;
/// Tries to get an entry into an index that others write, too.
const TRIES: u32 = 6;
const BETWEEN_TRIES: Duration = Duration::from_millis(100);

impl Registry {
    /// Puts a signature beside what it signs: as an artifact that refers to it, and, where the registry keeps no list of
    /// those, under a tag of its own and in the index under `sha256-…`.
    pub async fn attach_signature(&self, pushed: &Pushed, signature: &str) -> Result<(), ShareError> {
        let repository = pushed.reference.repository();
        let subject =
            Descriptor { digest: pushed.manifest.clone(), size: pushed.size, ..Descriptor::of(MANIFEST_TYPE, b"") };
        let layer = Descriptor::of(MINISIG_TYPE, signature.as_bytes());
        let mut manifest = Manifest::new(Descriptor::of(EMPTY_TYPE, EMPTY), vec![layer]);
        manifest.artifact_type = Some(SIGNATURE_TYPE.to_owned());
        manifest.subject = Some(subject);
        manifest.annotations.extend(key_of(signature).map(|key| (KEY.to_owned(), key)));
        let bytes = serde_json::to_vec(&manifest).expect("texts are JSON");
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

    /// Adds to the index, which anybody else may write at the same moment: it is read again until the entry stands in it.
    async fn list(&self, repository: &Repository, subject: &Digest, entry: Descriptor) -> Result<(), ShareError> {
        let tag = fallback_tag(subject);
        for number in 0..TRIES {
            let mut index =
                self.fallback((repository, Access::Push), &tag).await?.unwrap_or_else(|| Index::of(Vec::new()));
            let mut missing = self.tagged((repository, Access::Push), subject, &index).await?;
            missing.retain(|(other, _)| other.digest != entry.digest);
            let is_in = holds(&index, &entry.digest);
            if is_in && missing.is_empty() {
                return Ok(());
            }
            index.manifests.extend(missing.into_iter().map(|(entry, _)| entry));
            index.manifests.extend((!is_in).then(|| entry.clone()));
            let bytes = serde_json::to_vec(&index).expect("texts are JSON");
            self.put(repository, &tag, (&bytes, INDEX_TYPE)).await?;
            tokio::time::sleep(BETWEEN_TRIES * (number + 1)).await;
        }
        // Who looks for it by its own tag finds it all the same.
        tracing::warn!(%repository, %tag, "others write this list of signatures all the time; it does not hold this one");
        Ok(())
    }

    /// The index under the fallback tag.
    async fn fallback(
        &self,
        (repository, access): (&Repository, Access),
        tag: &str,
    ) -> Result<Option<Index>, ShareError> {
        let Some(stored) = self.stored((repository, access), tag).await? else { return Ok(None) };
        let index: Option<Index> = serde_json::from_slice(&stored.bytes).ok();
        index.map(Some).ok_or_else(|| ShareError::Server {
            place: format!("{repository}:{tag}"),
            said: "what stands there is no list of artifacts".to_owned(),
        })
    }

    /// The signatures that have tags of their own and stand in no list.
    async fn tagged(
        &self,
        (repository, access): (&Repository, Access),
        subject: &Digest,
        listed: &Index,
    ) -> Result<Vec<(Descriptor, Stored)>, ShareError> {
        let known: Vec<_> = listed.manifests.iter().map(|entry| own_tag(subject, &entry.digest)).collect();
        let begin = format!("{}.", fallback_tag(subject));
        let tags = match self.tags(repository).await {
            Err(error) if error.is_offline() => return Err(error),
            // Some registries list tags for nobody; then the index has to do.
            Err(error) => {
                tracing::warn!(%error, "the tags of signatures cannot be listed");
                Vec::new()
            }
            Ok(tags) => tags,
        };
        let mut found = Vec::new();
        for tag in tags.iter().filter(|tag| tag.starts_with(&begin) && !known.contains(tag)).take(MOST) {
            match self.stored((repository, access), tag).await {
                Ok(stored) => found.extend(stored.map(|stored| (entry(&stored.bytes), stored))),
                Err(error) if error.is_offline() => return Err(error),
                Err(error) => tracing::warn!(%error, "a signature cannot be read"),
            }
        }
        Ok(found)
    }
}

/// A signature's manifest in a list, with its annotations, as registries list them.
fn entry(manifest: &[u8]) -> Descriptor {
    let annotations = serde_json::from_slice::<Manifest>(manifest).map(|manifest| manifest.annotations);
    Descriptor {
        artifact_type: Some(SIGNATURE_TYPE.to_owned()),
        annotations: annotations.unwrap_or_default(),
        ..Descriptor::of(MANIFEST_TYPE, manifest)
    }
}

fn holds(index: &Index, digest: &Digest) -> bool {
    index.manifests.iter().any(|entry| entry.digest == *digest)
}

/// `sha256-…`, as the distribution specification names the list of what refers to a digest.
pub(crate) fn fallback_tag(subject: &Digest) -> String {
    format!("sha256-{}", subject.hex())
}

/// Of one signature alone.
pub(crate) fn own_tag(subject: &Digest, signature: &Digest) -> String {
    format!("{}.{}", fallback_tag(subject), signature.short())
}
