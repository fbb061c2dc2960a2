//! The plugin index of a team. An index is a repository that contains a small artifact for each version of each plugin,
//! and each artifact has its own tag. The index is not stored as one list, because two clients can safely add different
//! tags at the same time but cannot safely update the same list.

use crate::error::{RegistryError, display_text};
use crate::oci::{DESCRIPTION, Descriptor, EMPTY, EMPTY_TYPE, KINDS, MANIFEST_TYPE, Manifest, TITLE, VERSION};
use crate::push::{Overwrite, PluginFacts, Pushed};
use crate::reference::Reference;
use crate::registry::{Access, Registry};
use crate::version::{VersionOrder, compare_versions};
use agent_core::message::Digest;
use agent_core::nearest::Index as WordIndex;
use agent_plugins::digest_of;
use bytes::Bytes;
use futures::StreamExt;
use std::collections::BTreeMap;
use std::time::Duration;

const ENTRY_TYPE: &str = "application/vnd.agent-host.plugin.entry.v1";
const ENTRY_TAG_PREFIX: &str = "plugin-";
const REFERENCE_ANNOTATION: &str = "host.agent.plugin.reference";
const MANIFEST_ANNOTATION: &str = "host.agent.plugin.manifest";
const SIGNER_ANNOTATION: &str = "host.agent.plugin.signer";
/// Maximum number of entries that are read from an index.
const MAX_ENTRIES: usize = 5_000;
/// Maximum time to read all entries of an index.
const READ_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// Maximum number of entries that are requested at the same time.
const MAX_CONCURRENT_READS: usize = 8;

/// A version of a plugin that is listed in an index.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct IndexEntry {
    /// Name of the plugin.
    pub name: String,
    /// Version of the plugin.
    pub version: String,
    /// Description of the plugin that is shown to users.
    pub description: String,
    /// Kinds of the plugin, such as `tool`.
    pub kinds: Vec<String>,
    /// Reference of the plugin, with its tag.
    pub reference: String,
    /// Digest that the plugin's manifest had when the entry was written.
    pub manifest: Option<Digest>,
    /// Key that signed the plugin, according to the entry. The host does not verify this claim, and anybody who may
    /// push to the index can write an entry with a false claim.
    pub signer: Option<String>,
}

/// A plugin that is listed in an index, with all of its versions.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct IndexedPlugin {
    /// Entry of the newest version.
    pub newest: IndexEntry,
    /// All versions of the plugin, newest first.
    pub versions: Vec<String>,
}

impl Registry {
    /// Adds a version of a plugin to an index. Fails if the index already has this version with a different
    /// manifest, unless `overwrite` allows the version to be replaced. If `overwrite` does not allow this, the
    /// content of a version never changes.
    pub async fn add_to_index(
        &self,
        index: &Reference,
        (facts, pushed): (&PluginFacts, &Pushed),
        signer: Option<&str>,
        overwrite: Overwrite,
    ) -> Result<(), RegistryError> {
        let repository = index.repository();
        let tag = entry_tag(&pushed.reference.repository().to_string(), facts);
        let mut manifest = Manifest::new(Descriptor::of(EMPTY_TYPE, EMPTY), vec![Descriptor::of(EMPTY_TYPE, EMPTY)]);
        manifest.artifact_type = Some(ENTRY_TYPE.to_owned());
        let (reference, digest, kinds) =
            (pushed.reference.to_string(), pushed.manifest.to_string(), facts.kinds.join(","));
        let annotations = [
            (TITLE, facts.name.as_str()),
            (VERSION, &facts.version),
            (DESCRIPTION, &facts.description),
            (KINDS, &kinds),
            (REFERENCE_ANNOTATION, &reference),
            (MANIFEST_ANNOTATION, &digest),
            (SIGNER_ANNOTATION, signer.unwrap_or_default()),
        ];
        let present = annotations.into_iter().filter(|(_, value)| !value.is_empty());
        manifest.annotations = present.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let existing =
            self.find_manifest((repository, Access::Push), &tag).await?.and_then(|stored| parse_entry(&stored.bytes));
        let is_different = existing.is_some_and(|existing| existing.manifest.as_ref() != Some(&pushed.manifest));
        if is_different && overwrite == Overwrite::Never {
            return Err(RegistryError::Conflict {
                place: format!("{repository}: {} {}", facts.name, facts.version),
                reason:
                    "the index already has this version with other content; raise `version` in plugin.toml, or use --overwrite"
                        .to_owned(),
            });
        }
        let bytes = serde_json::to_vec(&manifest).expect("the value serialises to JSON");
        self.put_blob(repository, &Bytes::from_static(EMPTY)).await?;
        self.put_manifest(repository, &tag, (&bytes, MANIFEST_TYPE)).await?;
        Ok(())
    }

    /// Searches an index and returns up to `limit` plugins, best match first. If `words` is empty, the plugins are
    /// ordered by name.
    pub async fn search(
        &self,
        index: &Reference,
        words: &str,
        limit: usize,
    ) -> Result<Vec<IndexedPlugin>, RegistryError> {
        let plugins = self.read_index(index).await?;
        if words.trim().is_empty() {
            return Ok(plugins.into_iter().take(limit).collect());
        }
        let text = |plugin: &IndexedPlugin| {
            let entry = &plugin.newest;
            format!("{} {} {}", entry.description, entry.kinds.join(" "), entry.reference)
        };
        let nearest = WordIndex::new(plugins.iter().map(|plugin| (plugin.newest.name.clone(), text(plugin))));
        Ok(nearest.nearest(words, limit).into_iter().map(|(position, _)| plugins[position].clone()).collect())
    }

    async fn read_index(&self, index: &Reference) -> Result<Vec<IndexedPlugin>, RegistryError> {
        let repository = index.repository();
        let tags = self.tags(repository).await?;
        if tags.is_empty() {
            let advice = ": the first `plugin push --index` creates it".to_owned();
            return Err(RegistryError::NotFound { place: format!("the index {repository}"), advice });
        }
        let tags = tags.into_iter().filter(|tag| tag.starts_with(ENTRY_TAG_PREFIX)).take(MAX_ENTRIES);
        let entries = futures::stream::iter(tags)
            .map(|tag| async move { self.find_manifest((repository, Access::Pull), &tag).await });
        let results =
            tokio::time::timeout(READ_TIMEOUT, entries.buffered(MAX_CONCURRENT_READS).collect::<Vec<_>>()).await;
        let reason = "reading the whole index takes too long".to_owned();
        let stored = results.map_err(|_| RegistryError::Unreachable { place: repository.to_string(), reason })?;
        let mut plugins: BTreeMap<(String, String), Vec<IndexEntry>> = BTreeMap::new();
        for stored in stored {
            let Some(entry) = stored?.and_then(|stored| parse_entry(&stored.bytes)) else { continue };
            let Ok(reference) = Reference::parse(&entry.reference) else { continue };
            plugins.entry((entry.name.clone(), reference.repository().to_string())).or_default().push(entry);
        }
        let newest_first = |mut entries: Vec<IndexEntry>| {
            entries.sort_by(|left, right| match compare_versions(&left.version, &right.version) {
                VersionOrder::Newer => std::cmp::Ordering::Less,
                VersionOrder::Older => std::cmp::Ordering::Greater,
                VersionOrder::Same | VersionOrder::Unknown => right.version.cmp(&left.version),
            });
            let versions = entries.iter().map(|entry| entry.version.clone()).collect();
            entries.into_iter().next().map(|newest| IndexedPlugin { newest, versions })
        };
        Ok(plugins.into_values().filter_map(newest_first).collect())
    }
}

/// Parses the manifest of an artifact in the index. Returns `None` if the artifact is not an index entry.
fn parse_entry(bytes: &[u8]) -> Option<IndexEntry> {
    let manifest: Manifest = serde_json::from_slice(bytes).ok()?;
    if manifest.artifact_type.as_deref() != Some(ENTRY_TYPE) {
        return None;
    }
    let annotation = |key: &str| manifest.annotations.get(key).map(|text| display_text(text)).unwrap_or_default();
    Some(IndexEntry {
        name: Some(annotation(TITLE)).filter(|name| !name.is_empty())?,
        version: annotation(VERSION),
        description: annotation(DESCRIPTION),
        kinds: annotation(KINDS).split(',').filter(|kind| !kind.is_empty()).map(str::to_owned).collect(),
        reference: Some(annotation(REFERENCE_ANNOTATION)).filter(|reference| !reference.is_empty())?,
        manifest: Digest::parse(&annotation(MANIFEST_ANNOTATION)).ok(),
        signer: Some(annotation(SIGNER_ANNOTATION)).filter(|signer| !signer.is_empty()),
    })
}

/// Returns the tag of an entry. The tag contains the name and the version in readable form, and a digest, so that each
/// combination of repository, plugin and version has a different tag.
fn entry_tag(repository: &str, facts: &PluginFacts) -> String {
    let readable = |text: &str| -> String {
        let allowed =
            |character: char| if character.is_ascii_alphanumeric() || character == '.' { character } else { '-' };
        text.chars().take(40).map(allowed).collect()
    };
    let digest = digest_of(format!("{repository}\0{}\0{}", facts.name, facts.version).as_bytes());
    format!("{ENTRY_TAG_PREFIX}{}-{}-{}", readable(&facts.name), readable(&facts.version), digest.short())
}

#[cfg(test)]
mod tests {
    use super::*;

    // P11: different entries always have different tags, regardless of the characters in their names and versions.
    #[test]
    fn each_version_has_its_own_tag() {
        let tag = |repository: &str, name: &str, version: &str| {
            let facts = PluginFacts { name: name.to_owned(), version: version.to_owned(), ..PluginFacts::default() };
            entry_tag(repository, &facts)
        };
        let tags = [
            tag("a.example/x", "calc-1", "2"),
            tag("a.example/x", "calc", "1-2"),
            tag("b.example/x", "calc", "1-2"),
            tag("a.example/x", "calc", "1+2"),
            tag("a.example/x", &"c".repeat(64), &"9".repeat(1000)),
        ];
        for (index, tag) in tags.iter().enumerate() {
            assert!(!tags[..index].contains(tag), "{tag}");
            assert!(Reference::parse(&format!("a.example/index:{tag}")).is_ok(), "{tag}");
        }
    }
}
