//! A team's index: a repository with one small artifact for each version of a plugin, each under a tag of its own. Registries
//! cannot change one list for two writers at once; two tags they can.

use crate::error::{ShareError, shown};
use crate::oci::{DESCRIPTION, Descriptor, EMPTY, EMPTY_TYPE, KINDS, MANIFEST_TYPE, Manifest, TITLE, VERSION};
use crate::push::{Overwrite, PluginFacts, Pushed};
use crate::reference::Reference;
use crate::registry::{Access, Registry};
use crate::version::{Age, age};
use agent_core::message::Digest;
use agent_core::nearest::Index as Nearest;
use agent_plugins::digest_of;
use bytes::Bytes;
use futures::StreamExt;
use std::collections::BTreeMap;
use std::time::Duration;

const ENTRY_TYPE: &str = "application/vnd.agent-host.plugin.entry.v1";
const PREFIX: &str = "plugin-";
const REFERENCE: &str = "host.agent.plugin.reference";
const MANIFEST: &str = "host.agent.plugin.manifest";
const SIGNER: &str = "host.agent.plugin.signer";
/// Entries that are read.
const MOST_ENTRIES: usize = 5_000;
/// All of them together.
const WHOLE: Duration = Duration::from_secs(5 * 60);
/// Entries that are asked for at once.
const AT_ONCE: usize = 8;

/// A version of a plugin, as an index has it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct IndexEntry {
    /// The plugin's name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// For people.
    pub description: String,
    /// What it is.
    pub kinds: Vec<String>,
    /// Where it is, with its tag.
    pub reference: String,
    /// Which manifest that was.
    pub manifest: Option<Digest>,
    /// The key that signed it, as who pushed it says.
    pub signer: Option<String>,
}

/// A plugin with its versions.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct IndexedPlugin {
    /// Its newest version.
    pub newest: IndexEntry,
    /// All versions, the newest first.
    pub versions: Vec<String>,
}

impl Registry {
    /// Adds a version to an index. Another manifest under the same version is refused: who has it would have two things of
    /// one name.
    pub async fn add_to_index(
        &self,
        index: &Reference,
        (facts, pushed): (&PluginFacts, &Pushed),
        signer: Option<&str>,
        overwrite: Overwrite,
    ) -> Result<(), ShareError> {
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
            (REFERENCE, &reference),
            (MANIFEST, &digest),
            (SIGNER, signer.unwrap_or_default()),
        ];
        let said = annotations.into_iter().filter(|(_, value)| !value.is_empty());
        manifest.annotations = said.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let before = self.stored((repository, Access::Push), &tag).await?.and_then(|stored| entry(&stored.bytes));
        let is_other = before.is_some_and(|before| before.manifest.as_ref() != Some(&pushed.manifest));
        if is_other && overwrite == Overwrite::Never {
            return Err(ShareError::Taken {
                place: format!("{repository}: {} {}", facts.name, facts.version),
                reason:
                    "the index has this version with another content; raise `version` in plugin.toml, or --overwrite it"
                        .to_owned(),
            });
        }
        let bytes = serde_json::to_vec(&manifest).expect("texts are JSON");
        self.put_blob(repository, &Bytes::from_static(EMPTY)).await?;
        self.put(repository, &tag, (&bytes, MANIFEST_TYPE)).await?;
        Ok(())
    }

    /// The plugins of an index that are nearest to some words, the nearest first; all, by name, where there are no words.
    pub async fn search(&self, index: &Reference, words: &str, most: usize) -> Result<Vec<IndexedPlugin>, ShareError> {
        let plugins = self.indexed(index).await?;
        if words.trim().is_empty() {
            return Ok(plugins.into_iter().take(most).collect());
        }
        let text = |plugin: &IndexedPlugin| {
            let entry = &plugin.newest;
            format!("{} {} {}", entry.description, entry.kinds.join(" "), entry.reference)
        };
        let nearest = Nearest::new(plugins.iter().map(|plugin| (plugin.newest.name.clone(), text(plugin))));
        Ok(nearest.nearest(words, most).into_iter().map(|(at, _)| plugins[at].clone()).collect())
    }

    async fn indexed(&self, index: &Reference) -> Result<Vec<IndexedPlugin>, ShareError> {
        let repository = index.repository();
        let tags = self.tags(repository).await?;
        if tags.is_empty() {
            let advice = ": the first `plugin push --index` makes it".to_owned();
            return Err(ShareError::NotFound { place: format!("an index {repository}"), advice });
        }
        let tags = tags.into_iter().filter(|tag| tag.starts_with(PREFIX)).take(MOST_ENTRIES);
        let entries =
            futures::stream::iter(tags).map(|tag| async move { self.stored((repository, Access::Pull), &tag).await });
        let all = tokio::time::timeout(WHOLE, entries.buffered(AT_ONCE).collect::<Vec<_>>()).await;
        let reason = "all of it takes too long".to_owned();
        let stored = all.map_err(|_| ShareError::Unreachable { place: repository.to_string(), reason })?;
        let mut plugins: BTreeMap<(String, String), Vec<IndexEntry>> = BTreeMap::new();
        for stored in stored {
            let Some(entry) = stored?.and_then(|stored| entry(&stored.bytes)) else { continue };
            let Ok(reference) = Reference::parse(&entry.reference) else { continue };
            plugins.entry((entry.name.clone(), reference.repository().to_string())).or_default().push(entry);
        }
        let newest_first = |mut entries: Vec<IndexEntry>| {
            entries.sort_by(|left, right| match age(&left.version, &right.version) {
                Age::Newer => std::cmp::Ordering::Less,
                Age::Older => std::cmp::Ordering::Greater,
                Age::Same | Age::Unknown => right.version.cmp(&left.version),
            });
            let versions = entries.iter().map(|entry| entry.version.clone()).collect();
            entries.into_iter().next().map(|newest| IndexedPlugin { newest, versions })
        };
        Ok(plugins.into_values().filter_map(newest_first).collect())
    }
}

/// What stands under a tag, if it is an entry.
fn entry(bytes: &[u8]) -> Option<IndexEntry> {
    let manifest: Manifest = serde_json::from_slice(bytes).ok()?;
    if manifest.artifact_type.as_deref() != Some(ENTRY_TYPE) {
        return None;
    }
    let said = |key: &str| manifest.annotations.get(key).map(|text| shown(text)).unwrap_or_default();
    Some(IndexEntry {
        name: Some(said(TITLE)).filter(|name| !name.is_empty())?,
        version: said(VERSION),
        description: said(DESCRIPTION),
        kinds: said(KINDS).split(',').filter(|kind| !kind.is_empty()).map(str::to_owned).collect(),
        reference: Some(said(REFERENCE)).filter(|reference| !reference.is_empty())?,
        manifest: Digest::parse(&said(MANIFEST)).ok(),
        signer: Some(said(SIGNER)).filter(|signer| !signer.is_empty()),
    })
}

/// One tag for each version of each plugin of each repository: what can be read of it, and what makes it unlike any other.
fn entry_tag(repository: &str, facts: &PluginFacts) -> String {
    let readable = |text: &str| -> String {
        let allowed =
            |character: char| if character.is_ascii_alphanumeric() || character == '.' { character } else { '-' };
        text.chars().take(40).map(allowed).collect()
    };
    let whole = digest_of(format!("{repository}\0{}\0{}", facts.name, facts.version).as_bytes());
    format!("{PREFIX}{}-{}-{}", readable(&facts.name), readable(&facts.version), whole.short())
}

#[cfg(test)]
mod tests {
    use super::*;

    // P11: no two entries share a tag, whatever their names and versions are made of.
    #[test]
    fn each_version_has_a_tag_of_its_own() {
        let tag = |repository: &str, name: &str, version: &str| {
            let facts = PluginFacts { name: name.to_owned(), version: version.to_owned(), ..PluginFacts::default() };
            entry_tag(repository, &facts)
        };
        let all = [
            tag("a.example/x", "calc-1", "2"),
            tag("a.example/x", "calc", "1-2"),
            tag("b.example/x", "calc", "1-2"),
            tag("a.example/x", "calc", "1+2"),
            tag("a.example/x", &"c".repeat(64), &"9".repeat(1000)),
        ];
        for (index, tag) in all.iter().enumerate() {
            assert!(!all[..index].contains(tag), "{tag}");
            assert!(Reference::parse(&format!("a.example/index:{tag}")).is_ok(), "{tag}");
        }
    }
}
