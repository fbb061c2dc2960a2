//! Searches the signatures of an artifact for one by a trusted key, within limits (row 54). Anybody who may push can add signatures,
//! so the search does not rely on their order, does not read without end, and reports if it stopped early.

use crate::error::RegistryError;
use crate::keys::PublicKey;
use crate::oci::{Descriptor, Index, Manifest};
use crate::reference::Repository;
use crate::registry::{Access, Completeness, LIST_BYTES, Registry};
use crate::signature::{SIGNATURE_BYTES, is_signed_for, number_of};
use crate::signatures::{KEY, SIGNATURE_TYPE, fallback_tag, own_tag};
use agent_core::message::Digest;
use futures::StreamExt;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

/// Maximum number of signatures that are read for one artifact.
const MAX_READ: usize = 20_000;
/// Maximum size of all signatures that are read, in bytes.
const MAX_BYTES: u64 = 64 * 1024 * 1024;
/// Maximum time to read the signatures.
const TIMEOUT: Duration = Duration::from_secs(90);
/// Number of signatures that are requested at a time.
const CONCURRENCY: usize = 16;
/// Maximum number of signatures that are kept although they are not valid, to report their keys. Without trusted keys, only this
/// many are read.
const MAX_KEPT: usize = 32;
/// Maximum size of the manifest of a signature, in bytes.
const ENTRY_BYTES: u64 = 64 * 1024;

/// What to search for.
#[derive(Clone, Copy)]
pub(crate) struct SignatureSearch<'s> {
    pub(crate) repository: &'s Repository,
    /// Digest of the signed manifest.
    pub(crate) subject: &'s Digest,
    pub(crate) component: &'s [u8],
    /// The trusted keys. A valid signature of any of them ends the search.
    pub(crate) keys: &'s [PublicKey],
}

/// Result of a search.
#[derive(Debug, Default)]
pub(crate) struct FoundSignatures {
    /// The valid signature, or else some of the others.
    pub(crate) texts: Vec<String>,
    /// Why not all signatures were read, for people.
    pub(crate) stopped: Option<String>,
}

/// A signature that may be read, by the digest of its manifest or by its own tag.
struct Candidate {
    name: String,
    /// Number of its key, as the list claims.
    key: Option<String>,
}

/// All signatures that were listed.
#[derive(Default)]
struct Candidates {
    all: Vec<Candidate>,
    digests: BTreeSet<Digest>,
    /// Whether a list has more entries than were read.
    are_more: bool,
}

impl Candidates {
    fn add(&mut self, entries: Vec<Descriptor>) {
        for mut entry in entries {
            let is_other = entry.artifact_type.as_deref().is_some_and(|kind| kind != SIGNATURE_TYPE);
            if is_other || entry.size > ENTRY_BYTES || !self.digests.insert(entry.digest.clone()) {
                continue;
            }
            self.all.push(Candidate { name: entry.digest.to_string(), key: entry.annotations.remove(KEY) });
        }
    }
}

impl Registry {
    /// Searches for a valid signature, and returns some others if there is none.
    pub(crate) async fn find_signatures(&self, search: SignatureSearch<'_>) -> Result<FoundSignatures, RegistryError> {
        let deadline = Instant::now() + TIMEOUT;
        let Candidates { all: mut candidates, mut are_more, .. } = self.candidates(search).await?;
        // Read signatures first that claim to be of a trusted key. Read the others too, because a list can claim anything.
        let numbers: Vec<_> = search.keys.iter().filter_map(number_of).collect();
        candidates.sort_by_key(|candidate| match &candidate.key {
            Some(key) if numbers.contains(key) => 0,
            None => 1,
            Some(_) => 2,
        });
        let listed = candidates.len();
        let most = if search.keys.is_empty() { MAX_KEPT } else { MAX_READ };
        are_more |= listed > most && !search.keys.is_empty();
        candidates.truncate(most);
        let reads = candidates.into_iter().map(|candidate| self.read_signature(search, candidate));
        let mut reads = std::pin::pin!(futures::stream::iter(reads).buffered(CONCURRENCY));
        let (mut found, mut count, mut bytes) = (FoundSignatures::default(), 0_usize, 0);
        loop {
            let why = match tokio::time::timeout_at(deadline, reads.next()).await {
                Ok(None) if are_more => "there are more than the host reads for one plugin".to_owned(),
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
                            return Ok(FoundSignatures { texts: vec![text], stopped: None });
                        }
                        if found.texts.len() < MAX_KEPT {
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
            found.stopped = Some(format!(
                "the search for a signature stopped after {count} of {listed} attached signatures: {why}"
            ));
            return Ok(found);
        }
    }

    /// Lists all signatures of an artifact, from the registry's lists and from their own tags.
    async fn candidates(&self, search: SignatureSearch<'_>) -> Result<Candidates, RegistryError> {
        let SignatureSearch { repository, subject, .. } = search;
        let mut candidates = Candidates::default();
        let referrers = self.referrers((repository, subject), SIGNATURE_TYPE).await?;
        let is_whole = referrers.as_ref().is_some_and(|listing| !listing.stopped);
        candidates.are_more = referrers.as_ref().is_some_and(|listing| listing.stopped);
        candidates.add(referrers.map(|listing| listing.entries).unwrap_or_default());
        let tag = fallback_tag(subject);
        match self.stored_within((repository, Access::Pull), &tag, LIST_BYTES).await {
            Ok(stored) => {
                let index = stored.and_then(|stored| serde_json::from_slice::<Index>(&stored.bytes).ok());
                candidates.add(index.map(|index| index.manifests).unwrap_or_default());
            }
            Err(error) if error.is_offline() => return Err(error),
            Err(error) => {
                tracing::warn!(%error, "could not read the list of signatures");
                candidates.are_more = true;
            }
        }
        if is_whole {
            return Ok(candidates);
        }
        let known: BTreeSet<_> = candidates.digests.iter().map(|digest| own_tag(subject, digest)).collect();
        let begin = format!("{tag}.");
        match self.tags_with_completeness(repository).await {
            Ok((tags, completeness)) => {
                candidates.are_more |= completeness == Completeness::Cut;
                let own = tags.into_iter().filter(|tag| tag.starts_with(&begin) && !known.contains(tag));
                candidates.all.extend(own.map(|name| Candidate { name, key: None }));
            }
            Err(error) if error.is_offline() => return Err(error),
            // Some registries do not list tags; the index must then be enough.
            Err(error) => tracing::warn!(%error, "could not list the tags of signatures"),
        }
        Ok(candidates)
    }

    /// Reads a signature. Returns its text, or `None` if it is invalid, and the number of bytes that were read.
    async fn read_signature(
        &self,
        SignatureSearch { repository, subject, .. }: SignatureSearch<'_>,
        candidate: Candidate,
    ) -> Result<(Option<String>, u64), RegistryError> {
        let unreadable = |error: RegistryError| match error.is_offline() {
            true => Err(error),
            false => {
                tracing::debug!(%error, "could not read a signature");
                Ok((None, ENTRY_BYTES))
            }
        };
        let stored = match self.stored_within((repository, Access::Pull), &candidate.name, ENTRY_BYTES).await {
            Ok(Some(stored)) => stored,
            Ok(None) => return Ok((None, 0)),
            Err(error) => return unreadable(error),
        };
        let size = stored.bytes.len() as u64;
        let Ok(manifest) = serde_json::from_slice::<Manifest>(&stored.bytes) else { return Ok((None, size)) };
        let refers = manifest.subject.as_ref().is_some_and(|wanted| wanted.digest == *subject);
        let is_signature = manifest.artifact_type.as_deref() == Some(SIGNATURE_TYPE);
        let Some(layer) = manifest.layers.first().filter(|_| refers && is_signature) else { return Ok((None, size)) };
        match self.blob(repository, layer, SIGNATURE_BYTES).await {
            Ok(bytes) => Ok((String::from_utf8(bytes.to_vec()).ok(), size + bytes.len() as u64)),
            Err(error) => unreadable(error),
        }
    }
}
