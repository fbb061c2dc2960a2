//! Searches the signatures of an artifact for a signature by a trusted key, within limits (row 54). Anybody who may
//! push can add signatures. Therefore the search does not rely on the order of the signatures, limits the number of
//! signatures that it reads, and reports whether it stopped before it had read all of them.

use crate::error::RegistryError;
use crate::keys::PublicKey;
use crate::oci::{Descriptor, Index, Manifest};
use crate::reference::Repository;
use crate::registry::{Access, Completeness, MAX_LIST_BYTES, Registry};
use crate::signature::{MAX_SIGNATURE_BYTES, formatted_key_id, is_signed_for};
use crate::signatures::{KEY_ANNOTATION, SIGNATURE_TYPE, fallback_tag, signature_tag};
use agent_core::message::Digest;
use futures::StreamExt;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

/// Maximum number of signatures that are read for one artifact.
const MAX_SIGNATURES: usize = 20_000;
/// The search stops when the signatures that it has read have more than this number of bytes in total.
const MAX_BYTES: u64 = 64 * 1024 * 1024;
/// Maximum time to read the signatures.
const TIMEOUT: Duration = Duration::from_secs(90);
/// Maximum number of signatures that are requested at the same time.
const MAX_CONCURRENT_READS: usize = 16;
/// Maximum number of signatures by untrusted keys that the search returns, so that the caller can report the keys. If
/// there are no trusted keys, only this number of signatures is read.
const MAX_UNTRUSTED: usize = 32;
/// Maximum size of the manifest of a signature, in bytes.
const MAX_MANIFEST_BYTES: u64 = 64 * 1024;

/// Parameters of a search for signatures.
#[derive(Clone, Copy)]
pub(crate) struct SignatureSearch<'s> {
    pub(crate) repository: &'s Repository,
    /// Digest of the signed manifest.
    pub(crate) subject: &'s Digest,
    pub(crate) component: &'s [u8],
    /// The trusted keys. The search ends when it finds a valid signature by any of these keys.
    pub(crate) keys: &'s [PublicKey],
}

/// Result of a search for signatures.
#[derive(Debug, Default)]
pub(crate) struct FoundSignatures {
    /// The valid signature, or some of the other signatures if no valid signature was found.
    pub(crate) texts: Vec<String>,
    /// Reason why the search stopped before it had read all signatures, as a message for users. `None` if the search
    /// read all signatures or found a valid signature.
    pub(crate) stop_reason: Option<String>,
}

/// A signature that the search can read. The manifest of the signature is requested by `name`, which is the manifest's
/// digest or the signature's own tag.
struct Candidate {
    name: String,
    /// Id of the key that made the signature, as the registry's list states it. The stated id can be false. `None` if
    /// the list states no id.
    key: Option<String>,
}

/// All signatures that the registry lists for an artifact.
#[derive(Default)]
struct Candidates {
    signatures: Vec<Candidate>,
    digests: BTreeSet<Digest>,
    /// Whether a list of signatures has more entries than were read.
    has_more: bool,
}

impl Candidates {
    fn add(&mut self, entries: Vec<Descriptor>) {
        for mut entry in entries {
            let is_other = entry.artifact_type.as_deref().is_some_and(|kind| kind != SIGNATURE_TYPE);
            if is_other || entry.size > MAX_MANIFEST_BYTES || !self.digests.insert(entry.digest.clone()) {
                continue;
            }
            self.signatures
                .push(Candidate { name: entry.digest.to_string(), key: entry.annotations.remove(KEY_ANNOTATION) });
        }
    }
}

impl Registry {
    /// Searches for a valid signature. If there is no valid signature, returns some of the other signatures.
    pub(crate) async fn find_signatures(&self, search: SignatureSearch<'_>) -> Result<FoundSignatures, RegistryError> {
        let deadline = Instant::now() + TIMEOUT;
        let Candidates { signatures: mut candidates, mut has_more, .. } = self.list_signatures(search).await?;
        // The signatures that the list attributes to a trusted key are read first. The other signatures are read too,
        // because the keys in the list can be false.
        let key_ids: Vec<_> = search.keys.iter().filter_map(formatted_key_id).collect();
        candidates.sort_by_key(|candidate| match &candidate.key {
            Some(key) if key_ids.contains(key) => 0,
            None => 1,
            Some(_) => 2,
        });
        let listed = candidates.len();
        let limit = if search.keys.is_empty() { MAX_UNTRUSTED } else { MAX_SIGNATURES };
        has_more |= listed > limit && !search.keys.is_empty();
        candidates.truncate(limit);
        let reads = candidates.into_iter().map(|candidate| self.read_signature(search, candidate));
        let mut reads = std::pin::pin!(futures::stream::iter(reads).buffered(MAX_CONCURRENT_READS));
        let (mut found, mut count, mut bytes) = (FoundSignatures::default(), 0_usize, 0);
        loop {
            let reason = match tokio::time::timeout_at(deadline, reads.next()).await {
                Ok(None) if has_more => "there are more signatures than the host reads for one plugin".to_owned(),
                Ok(None) => return Ok(found),
                Ok(Some(read)) => {
                    let (text, size) = read?;
                    (count, bytes) = (count + 1, bytes + size);
                    if let Some(text) = text {
                        if is_signed_for(
                            search.keys,
                            search.component,
                            &text,
                            (&search.repository.to_string(), search.subject),
                        ) {
                            return Ok(FoundSignatures { texts: vec![text], stop_reason: None });
                        }
                        if found.texts.len() < MAX_UNTRUSTED {
                            found.texts.push(text);
                        }
                    }
                    if bytes <= MAX_BYTES {
                        continue;
                    }
                    format!("their total size is more than {} MiB", MAX_BYTES / 1024 / 1024)
                }
                Err(_) => format!("it took more than {} s", TIMEOUT.as_secs()),
            };
            found.stop_reason = Some(format!(
                "the search for a signature stopped after {count} of {listed} attached signatures: {reason}"
            ));
            return Ok(found);
        }
    }

    /// Lists all signatures of an artifact, from the registry's lists and from the signatures' own tags.
    async fn list_signatures(&self, search: SignatureSearch<'_>) -> Result<Candidates, RegistryError> {
        let SignatureSearch { repository, subject, .. } = search;
        let mut candidates = Candidates::default();
        let referrers = self.referrers((repository, subject), SIGNATURE_TYPE).await?;
        let is_complete = referrers.as_ref().is_some_and(|listing| !listing.is_truncated);
        candidates.has_more = referrers.as_ref().is_some_and(|listing| listing.is_truncated);
        candidates.add(referrers.map(|listing| listing.entries).unwrap_or_default());
        let tag = fallback_tag(subject);
        match self.find_manifest_within((repository, Access::Pull), &tag, MAX_LIST_BYTES).await {
            Ok(stored) => {
                let index = stored.and_then(|stored| serde_json::from_slice::<Index>(&stored.bytes).ok());
                candidates.add(index.map(|index| index.manifests).unwrap_or_default());
            }
            Err(error) if error.is_offline() => return Err(error),
            Err(error) => {
                tracing::warn!(%error, "could not read the list of signatures");
                candidates.has_more = true;
            }
        }
        if is_complete {
            return Ok(candidates);
        }
        let listed_tags: BTreeSet<_> = candidates.digests.iter().map(|digest| signature_tag(subject, digest)).collect();
        let prefix = format!("{tag}.");
        match self.tags_with_completeness(repository).await {
            Ok((tags, completeness)) => {
                candidates.has_more |= completeness == Completeness::Truncated;
                let unlisted = tags.into_iter().filter(|tag| tag.starts_with(&prefix) && !listed_tags.contains(tag));
                candidates.signatures.extend(unlisted.map(|name| Candidate { name, key: None }));
            }
            Err(error) if error.is_offline() => return Err(error),
            // Some registries do not list tags. In a registry without lists of tags, only the signatures in the index
            // are found.
            Err(error) => tracing::warn!(%error, "could not list the tags of signatures"),
        }
        Ok(candidates)
    }

    /// Reads a signature. Returns the signature's text and the number of bytes that were read. The text is `None` if
    /// the signature is invalid.
    async fn read_signature(
        &self,
        SignatureSearch { repository, subject, .. }: SignatureSearch<'_>,
        candidate: Candidate,
    ) -> Result<(Option<String>, u64), RegistryError> {
        let unreadable = |error: RegistryError| match error.is_offline() {
            true => Err(error),
            false => {
                tracing::debug!(%error, "could not read a signature");
                Ok((None, MAX_MANIFEST_BYTES))
            }
        };
        let stored =
            match self.find_manifest_within((repository, Access::Pull), &candidate.name, MAX_MANIFEST_BYTES).await {
                Ok(Some(stored)) => stored,
                Ok(None) => return Ok((None, 0)),
                Err(error) => return unreadable(error),
            };
        let size = stored.bytes.len() as u64;
        let Ok(manifest) = serde_json::from_slice::<Manifest>(&stored.bytes) else { return Ok((None, size)) };
        let refers_to_subject = manifest.subject.as_ref().is_some_and(|wanted| wanted.digest == *subject);
        let is_signature = manifest.artifact_type.as_deref() == Some(SIGNATURE_TYPE);
        let Some(layer) = manifest.layers.first().filter(|_| refers_to_subject && is_signature) else {
            return Ok((None, size));
        };
        match self.read_blob(repository, layer, MAX_SIGNATURE_BYTES).await {
            Ok(bytes) => Ok((String::from_utf8(bytes.to_vec()).ok(), size + bytes.len() as u64)),
            Err(error) => unreadable(error),
        }
    }
}
