//! The index of a folder of plugins: a file that lists what the plugins are and what they ask for. The packages of this
//! host contain an index of the standard plugins, so that it can be shown without reading every component.

use crate::error::{RegistryError, display_text};
use crate::files::{MAX_COMPONENT_BYTES, read, read_if_exists};
use crate::lock::LockedPlugin;
use agent_core::message::Digest;
use agent_core::nearest::Index as WordIndex;
use agent_plugins::{Asks, digest_of, interfaces, read_claims};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Name of the index in the folder of the plugins.
pub const INDEX_FILE: &str = "plugins.index.json";
/// Version of the format.
const FORMAT: u32 = 1;
/// Maximum size of the index in bytes.
const MAX_BYTES: u64 = 1024 * 1024;
/// Maximum number of plugins in the index.
const MAX_ENTRIES: usize = 1_000;
/// The prefix of the exports that implement a plugin kind.
const KIND_PREFIX: &str = "agent-host:plugin/";

/// The index of a folder of plugins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolderIndex {
    /// Version of the format.
    format: u32,
    /// The plugins, sorted by name.
    pub plugins: Vec<FolderEntry>,
}

/// A plugin in the index of a folder. All texts are claims of the plugin's author.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolderEntry {
    /// Name of the plugin.
    pub name: String,
    /// Version of the plugin. Empty if the plugin has no manifest.
    pub version: String,
    /// Description for users.
    pub description: String,
    /// What the plugin is: the names of its kinds, such as `tool`, `command` for a command-line program, and `functions`
    /// for other exports.
    pub kinds: Vec<String>,
    /// What the plugin asks for. None if it has no manifest, because such a plugin may use everything it is granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asks: Option<Asks>,
    /// Name of the component's file in the folder.
    pub file: String,
    /// Size of the component in bytes.
    pub size: u64,
    /// Digest of the component.
    pub component: Digest,
}

impl FolderIndex {
    /// Creates an index of the components in a folder. Reads the manifests, the names of the exports and the digests, and
    /// runs nothing. Fails if a component cannot be read or if two plugins have the same name.
    pub fn of_folder(folder: &Path) -> Result<Self, RegistryError> {
        let unreadable = |source| RegistryError::file(folder, "read", source);
        let entries = std::fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(unreadable)?;
        let files = entries.into_iter().map(|entry| entry.path());
        let mut plugins = Vec::new();
        for file in files.filter(|file| file.extension().is_some_and(|extension| extension == "wasm")) {
            plugins.push(FolderEntry::of_file(&file)?);
        }
        plugins.sort_by(|left, right| left.name.cmp(&right.name));
        if let Some(pair) = plugins.windows(2).find(|pair| pair[0].name == pair[1].name) {
            let reason = format!("`{}` contains the plugin `{}` as well", pair[1].file, pair[0].name);
            return Err(RegistryError::Conflict { place: folder.join(&pair[0].file).display().to_string(), reason });
        }
        Ok(Self { format: FORMAT, plugins })
    }

    /// Reads the index of a folder. Returns None if the folder has no index.
    pub fn read(folder: &Path) -> Result<Option<Self>, RegistryError> {
        let path = folder.join(INDEX_FILE);
        let Some(bytes) = read_if_exists(&path, MAX_BYTES)? else { return Ok(None) };
        let invalid = |reason: String| RegistryError::file(&path, "read", std::io::Error::other(display_text(&reason)));
        let index: Self = serde_json::from_slice(&bytes).map_err(|error| invalid(error.to_string()))?;
        if index.format != FORMAT {
            return Err(invalid(format!(
                "it has the format {}; this agent-host reads the format {FORMAT}",
                index.format
            )));
        }
        if index.plugins.len() > MAX_ENTRIES {
            return Err(invalid(format!("it lists more than {MAX_ENTRIES} plugins")));
        }
        // The names become paths, so they must not lead out of the folder.
        let is_usable = |entry: &FolderEntry| {
            let path = Path::new(&entry.file);
            path.file_name().is_some_and(|name| name == entry.file.as_str())
                && path.extension().is_some_and(|extension| extension == "wasm")
                && crate::lock::is_plugin_name(&entry.name)
        };
        match index.plugins.iter().find(|entry| !is_usable(entry)) {
            Some(entry) => {
                Err(invalid(format!("`{}` in `{}` is not the name of a plugin and its file", entry.name, entry.file)))
            }
            None => Ok(Some(index)),
        }
    }

    /// Formats the index as text.
    pub fn to_text(&self) -> String {
        serde_json::to_string_pretty(self).expect("the value serialises to JSON") + "\n"
    }

    /// Returns the plugin with this name.
    pub fn plugin(&self, name: &str) -> Option<&FolderEntry> {
        self.plugins.iter().find(|entry| entry.name == name)
    }

    /// Returns up to `limit` plugins that match these words, best match first. Without words, returns the plugins by name.
    pub fn search(&self, words: &str, limit: usize) -> Vec<&FolderEntry> {
        if words.trim().is_empty() {
            return self.plugins.iter().take(limit).collect();
        }
        let text = |entry: &FolderEntry| format!("{} {}", entry.description, entry.kinds.join(" "));
        let index = WordIndex::new(self.plugins.iter().map(|entry| (entry.name.clone(), text(entry))));
        index.nearest(words, limit).into_iter().map(|(position, _)| &self.plugins[position]).collect()
    }
}

impl FolderEntry {
    fn of_file(file: &Path) -> Result<Self, RegistryError> {
        let unusable = |error: &dyn std::fmt::Display| {
            RegistryError::file(file, "read", std::io::Error::other(display_text(&error.to_string())))
        };
        let bytes = read(file, MAX_COMPONENT_BYTES)?;
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        let claims = read_claims(&stem, &bytes).map_err(|error| unusable(&error))?;
        let exports = interfaces(&bytes).map_err(|error| unusable(&error))?.exports;
        let manifest = claims.manifest;
        let text = |text: Option<&String>| text.map(|text| display_text(text)).unwrap_or_default();
        Ok(Self {
            version: text(manifest.as_ref().map(|manifest| &manifest.version)),
            description: text(manifest.as_ref().map(|manifest| &manifest.description)),
            kinds: kinds(&exports),
            asks: manifest.map(|manifest| manifest.asks),
            file: file.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            size: bytes.len() as u64,
            component: claims.identity.digest,
            name: claims.identity.name,
        })
    }

    /// Reads the component from the folder of the index. Fails if it is not the component that the index describes.
    /// Returns its bytes, and its entry for a lock file.
    pub fn component_in(&self, folder: &Path) -> Result<(Vec<u8>, LockedPlugin), RegistryError> {
        let path = folder.join(&self.file);
        let bytes = read(&path, MAX_COMPONENT_BYTES)?;
        let found = digest_of(&bytes);
        if found != self.component {
            return Err(RegistryError::tampered(path.display().to_string(), &self.component, &found));
        }
        let path: PathBuf = std::path::absolute(&path).unwrap_or(path);
        let locked = LockedPlugin {
            name: self.name.clone(),
            version: self.version.clone(),
            reference: path.display().to_string(),
            manifest: None,
            component: found,
            signer: None,
            signature: None,
        };
        Ok((bytes, locked))
    }
}

fn kinds(exports: &[String]) -> Vec<String> {
    let of_contract = |export: &String| {
        let kind = export.strip_prefix(KIND_PREFIX)?.split('@').next()?;
        Some(kind.to_owned())
    };
    let mut kinds: Vec<String> = exports.iter().filter_map(of_contract).collect();
    if exports.iter().any(|export| export.starts_with("wasi:cli/run@")) {
        kinds.push("command".to_owned());
    }
    if kinds.is_empty() {
        kinds.push("functions".to_owned());
    }
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_plugins::{Access, Manifest, with_manifest};

    fn component(name: &str, description: &str) -> Vec<u8> {
        let manifest = Manifest {
            name: name.to_owned(),
            version: "1.2.0".to_owned(),
            description: description.to_owned(),
            asks: Asks { files: Some(Access::Read), ..Asks::default() },
            ..Manifest::default()
        };
        // The header of a component without any section.
        with_manifest(b"\0asm\x0d\0\x01\0", &manifest).expect("a component")
    }

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("tides.wasm"), component("tides", "Predicts the tides.")).expect("written");
        std::fs::write(folder.path().join("moon.wasm"), component("moon", "Phases of the moon.")).expect("written");
        folder
    }

    // P11: the index says what the plugins are, and its digests prove which components it describes.
    #[test]
    fn p11_index_describes_the_components_of_a_folder() {
        let folder = folder();
        let index = FolderIndex::of_folder(folder.path()).expect("an index");
        assert_eq!(FolderIndex::read(folder.path()).expect("no index yet"), None);
        std::fs::write(folder.path().join(INDEX_FILE), index.to_text()).expect("written");
        assert_eq!(FolderIndex::read(folder.path()).expect("an index").as_ref(), Some(&index));
        let names: Vec<_> = index.plugins.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["moon", "tides"]);
        let tides = index.plugin("tides").expect("an entry");
        assert_eq!((tides.version.as_str(), tides.kinds.as_slice()), ("1.2.0", &["functions".to_owned()][..]));
        assert_eq!(tides.asks.as_ref().and_then(|asks| asks.files), Some(Access::Read));
        assert_eq!(index.search("predicts", 5).first().map(|entry| entry.name.as_str()), Some("tides"));
        let (bytes, locked) = tides.component_in(folder.path()).expect("the component");
        assert_eq!((digest_of(&bytes), locked.version.as_str()), (locked.component, "1.2.0"));
        std::fs::write(folder.path().join("tides.wasm"), component("tides", "Something else.")).expect("written");
        assert!(tides.component_in(folder.path()).expect_err("changed").to_string().contains("tides.wasm"));
    }

    #[test]
    fn kinds_come_from_the_exports() {
        let of = |exports: &[&str]| kinds(&exports.iter().map(|export| (*export).to_owned()).collect::<Vec<_>>());
        assert_eq!(
            of(&["agent-host:plugin/tool@0.1.0", "agent-host:plugin/media-policy@0.1.0", "init"]),
            ["tool", "media-policy"]
        );
        assert_eq!(of(&["wasi:cli/run@0.2.3"]), ["command"]);
        assert_eq!(of(&["docs:words/store@0.1.0"]), ["functions"]);
    }

    // Row 47: an index from elsewhere cannot name files outside of its folder, and has bounds.
    #[test]
    fn row_47_hostile_indexes_are_refused() {
        let folder = folder();
        let good = FolderIndex::of_folder(folder.path()).expect("an index").to_text();
        let read = |text: &str| {
            std::fs::write(folder.path().join(INDEX_FILE), text).expect("written");
            FolderIndex::read(folder.path()).expect_err("refused").to_string()
        };
        for name in ["../tides.wasm", "/etc/passwd", "a/tides.wasm", "tides.toml", ".."] {
            let error = read(&good.replace("\"tides.wasm\"", &format!("\"{name}\"")));
            assert!(error.contains("is not the name of a plugin"), "{error}");
        }
        assert!(read(&good.replace("\"name\": \"tides\"", "\"name\": \"../tides\"")).contains("is not the name"));
        assert!(read(&good.replace("\"format\": 1", "\"format\": 2")).contains("the format 2"));
        assert!(!read("{\"\u{1b}\": 1").contains('\u{1b}'));
        read(&" ".repeat(MAX_BYTES as usize + 1));
        std::fs::copy(folder.path().join("moon.wasm"), folder.path().join("copy.wasm")).expect("copied");
        assert!(FolderIndex::of_folder(folder.path()).expect_err("twice").to_string().contains("`moon`"));
    }
}
