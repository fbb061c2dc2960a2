//! Finds the signature of a trusted key among all that stand beside an artifact, within bounds (row 54). Anybody who may push
//! can put signatures there, so the search neither trusts their order nor reads without end, and it says where it stopped.

use crate::error::ShareError;
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

/// Signatures of one artifact that are read.
const MOST_READ: usize = 20_000;
/// Bytes of all of them.
const MOST_BYTES: u64 = 64 * 1024 * 1024;
/// Time for all of them.
const LONGEST: Duration = Duration::from_secs(90);
/// Signatures that are asked for at once.
const AT_ONCE: usize = 16;
/// Signatures that don't fit and are kept, to say whose they are; also all that are read where no key is trusted.
const KEPT: usize = 32;
/// Largest manifest of a signature.
const ENTRY_BYTES: u64 = 64 * 1024;

/// What is looked for.
#[derive(Clone, Copy)]
pub(crate) struct SignatureSearch<'s> {
    pub(crate) repository: &'s Repository,
    /// The manifest that was signed.
    pub(crate) subject: &'s Digest,
    pub(crate) component: &'s [u8],
    /// Whose signature ends the search.
    pub(crate) keys: &'s [PublicKey],
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct FoundSignatures {
    /// The one that fits alone, else some of those that don't.
    pub(crate) texts: Vec<String>,
    /// Why not all were read, for people.
    pub(crate) stopped: Option<String>,
}

/// A signature that stands in a list, by the digest of its manifest, or has a tag of its own.
struct Candidate {
    name: String,
    /// The number of its key, as its list says.
    key: Option<String>,
}

/// Everything that is listed.
#[derive(Default)]
struct Candidates {
    all: Vec<Candidate>,
    digests: BTreeSet<Digest>,
    /// A list goes on where it was not read any further.
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
    /// The signature that fits, else what there is instead.
    pub(crate) async fn find_signatures(&self, search: SignatureSearch<'_>) -> Result<FoundSignatures, ShareError> {
        let deadline = Instant::now() + LONGEST;
        let Candidates { all: mut candidates, mut are_more, .. } = self.candidates(search).await?;
        // Those that say that they are of a trusted key come first; the others follow, since a list can say what it likes.
        let numbers: Vec<_> = search.keys.iter().filter_map(number_of).collect();
        candidates.sort_by_key(|candidate| match &candidate.key {
            Some(key) if numbers.contains(key) => 0,
            None => 1,
            Some(_) => 2,
        });
        let listed = candidates.len();
        let most = if search.keys.is_empty() { KEPT } else { MOST_READ };
        are_more |= listed > most && !search.keys.is_empty();
        candidates.truncate(most);
        let reads = candidates.into_iter().map(|candidate| self.read_signature(search, candidate));
        let mut reads = std::pin::pin!(futures::stream::iter(reads).buffered(AT_ONCE));
        let (mut found, mut count, mut bytes) = (FoundSignatures::default(), 0_usize, 0);
        loop {
            let why = match tokio::time::timeout_at(deadline, reads.next()).await {
                Ok(None) if are_more => "there are more than are read of one plugin".to_owned(),
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
                        if found.texts.len() < KEPT {
                            found.texts.push(text);
                        }
                    }
                    if bytes <= MOST_BYTES {
                        continue;
                    }
                    format!("they have more than {} MiB", MOST_BYTES / 1024 / 1024)
                }
                Err(_) => format!("it took more than {} s", LONGEST.as_secs()),
            };
            found.stopped = Some(format!(
                "the search for a signature stopped after {count} of {listed} that stand beside it: {why}"
            ));
            return Ok(found);
        }
    }

    /// All signatures that are listed beside an artifact, or have tags of their own.
    async fn candidates(&self, search: SignatureSearch<'_>) -> Result<Candidates, ShareError> {
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
                tracing::warn!(%error, "the list of signatures cannot be read");
                candidates.are_more = true;
            }
        }
        if is_whole {
            return Ok(candidates);
        }
        let known: BTreeSet<_> = candidates.digests.iter().map(|digest| own_tag(subject, digest)).collect();
        let begin = format!("{tag}.");
        match self.tag_list(repository).await {
            Ok((tags, completeness)) => {
                candidates.are_more |= completeness == Completeness::Cut;
                let own = tags.into_iter().filter(|tag| tag.starts_with(&begin) && !known.contains(tag));
                candidates.all.extend(own.map(|name| Candidate { name, key: None }));
            }
            Err(error) if error.is_offline() => return Err(error),
            // Some registries list tags for nobody; then the index has to do.
            Err(error) => tracing::warn!(%error, "the tags of signatures cannot be listed"),
        }
        Ok(candidates)
    }

    /// The text of a signature, and how many bytes were read for it. What cannot be read is none.
    async fn read_signature(
        &self,
        SignatureSearch { repository, subject, .. }: SignatureSearch<'_>,
        candidate: Candidate,
    ) -> Result<(Option<String>, u64), ShareError> {
        let unreadable = |error: ShareError| match error.is_offline() {
            true => Err(error),
            false => {
                tracing::debug!(%error, "a signature cannot be read");
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
