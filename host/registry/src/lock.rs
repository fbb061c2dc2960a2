//! `plugins.lock`: which plugins of a folder come from where, and exactly which bytes they are. It is committed, so it is
//! sorted and changes only where something has changed.

use crate::error::{ShareError, shown};
use crate::files::read_if_there;
use crate::reference::Source;
use crate::signature::Claims;
use agent_core::message::Digest;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Its name, beside the components.
pub const LOCK_FILE: &str = "plugins.lock";

/// Of the format.
const FORMAT: u32 = 1;
const MOST_BYTES: u64 = 4 * 1024 * 1024;
const HEADER: &str = "# Which plugins of this folder come from where. Written by agent-host: commit it, don't edit it.\n\
                      # `agent-host plugin verify` checks it, `agent-host plugin add` fetches what is missing.\n\n";

/// The file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockFile {
    /// Sorted by name.
    plugins: Vec<LockedPlugin>,
}

/// One plugin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockedPlugin {
    /// Its name, which is its file's, too.
    pub name: String,
    /// Its own version; empty where it has none.
    #[serde(default)]
    pub version: String,
    /// From where it is, as it was asked for: a tag in it is where updates come from.
    pub reference: String,
    /// The manifest in the registry; none for files and addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<Digest>,
    /// SHA-256 of the file.
    pub component: Digest,
    /// The trusted key that signed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signer: Option<String>,
    /// Its signature, so that it can be checked offline; also of a key that is not trusted yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    format: u32,
    #[serde(default, rename = "plugin", skip_serializing_if = "Vec::is_empty")]
    plugins: Vec<LockedPlugin>,
}

impl LockedPlugin {
    /// The name of its file.
    pub fn file_name(&self) -> String {
        format!("{}.wasm", self.name)
    }

    /// What is kept of it beside its component: its entry alone.
    pub fn voucher(&self) -> String {
        #[derive(Serialize)]
        struct Entry<'e> {
            plugin: [&'e LockedPlugin; 1],
        }
        toml::to_string_pretty(&Entry { plugin: [self] }).expect("texts and tables are TOML")
    }

    /// From where it is.
    pub fn source(&self) -> Result<Source, ShareError> {
        Source::parse_written(&self.reference)
    }

    /// What its signature must say.
    pub fn claims(&self) -> Claims {
        let repository = match self.source() {
            Ok(Source::Registry(reference)) => reference.repository().to_string(),
            _ => String::new(),
        };
        Claims { name: self.name.clone(), version: self.version.clone(), repository, manifest: self.manifest.clone() }
    }
}

/// The name space of a source, `HOST/PATH`; none for files, which are somebody's own.
pub fn place_of(source: &Source) -> Option<String> {
    match source {
        Source::Registry(reference) => Some(reference.repository().to_string()),
        Source::Web(url) => {
            let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
            Some(format!("{}{port}{}", url.host_str().unwrap_or_default(), url.path()))
        }
        Source::File(_) => None,
    }
}

impl LockFile {
    /// Where it stands.
    pub fn path(directory: &Path) -> PathBuf {
        directory.join(LOCK_FILE)
    }

    /// The folder's; empty where there is none.
    pub fn read(directory: &Path) -> Result<Self, ShareError> {
        let path = Self::path(directory);
        let Some(bytes) = read_if_there(&path, MOST_BYTES)? else {
            // A link to nothing is no missing lock file: whoever made it meant plugins to be locked.
            if path.symlink_metadata().is_ok() {
                let reason = "it is a link to a file that does not exist; restore that file, or delete the link and add the \
                              plugins again";
                return Err(ShareError::Lock { path, line: None, reason: reason.to_owned() });
            }
            return Ok(Self { plugins: Vec::new() });
        };
        match String::from_utf8(bytes) {
            Ok(text) => Self::parse(&text, &path),
            Err(error) => Err(ShareError::file(path, "read", std::io::Error::other(error))),
        }
    }

    fn parse(text: &str, path: &Path) -> Result<Self, ShareError> {
        let refused = |line, reason: String| ShareError::Lock { path: path.to_owned(), line, reason };
        // A newer format may have other keys: that is said, and not which key is unknown.
        #[derive(Deserialize)]
        struct Head {
            format: u32,
        }
        if let Ok(Head { format }) = toml::from_str::<Head>(text)
            && format != FORMAT
        {
            return Err(refused(
                None,
                format!("it has the format {format}, and this agent-host reads {FORMAT}: update agent-host"),
            ));
        }
        let document: Document = toml::from_str(text).map_err(|error| {
            let line = error.span().map(|span| text[..text.floor_char_boundary(span.start)].matches('\n').count() + 1);
            let reason = "take it from the version control again, or delete it and add its plugins again";
            refused(line, format!("{}; {reason}", shown(error.message())))
        })?;
        let mut plugins = document.plugins;
        plugins.sort_by(|left, right| left.name.cmp(&right.name));
        for plugin in &plugins {
            if !is_plugin_name(&plugin.name) {
                return Err(refused(None, format!("`{}` is no name of a plugin", shown(&plugin.name))));
            }
            // Without it a signature could not be compared with the place that it was made for.
            if plugin.manifest.is_none() && matches!(plugin.source(), Ok(Source::Registry(_))) {
                let reason = format!(
                    "`{}` is of a registry and has no `manifest`; `plugin remove` it and add it again",
                    plugin.name
                );
                return Err(refused(None, reason));
            }
        }
        if let Some(twice) = plugins.windows(2).find(|pair| pair[0].name == pair[1].name) {
            return Err(refused(None, format!("`{}` is there twice; keep one of them", twice[0].name)));
        }
        Ok(Self { plugins })
    }

    /// What one component came as, of [`LockedPlugin::voucher`]s one after the other.
    pub fn vouched(text: &str) -> Result<Vec<LockedPlugin>, ShareError> {
        let document: Result<Document, _> = toml::from_str(&format!("format = {FORMAT}\n{text}"));
        document.map(|document| document.plugins).map_err(|error| ShareError::Lock {
            path: PathBuf::from("what vouched for it in the plugin store"),
            line: None,
            reason: format!("{}; `agent-host plugin add` fetches it again", shown(error.message())),
        })
    }

    /// All plugins, sorted by name.
    pub fn plugins(&self) -> &[LockedPlugin] {
        &self.plugins
    }

    /// The plugin of that name.
    pub fn plugin(&self, name: &str) -> Option<&LockedPlugin> {
        self.plugins.iter().find(|plugin| plugin.name == name)
    }

    /// Adds a plugin, or changes it.
    pub fn set(&mut self, plugin: LockedPlugin) {
        match self.plugins.binary_search_by(|other| other.name.cmp(&plugin.name)) {
            Ok(index) => self.plugins[index] = plugin,
            Err(index) => self.plugins.insert(index, plugin),
        }
    }

    /// Takes a plugin out; it, if it was there.
    pub fn take(&mut self, name: &str) -> Option<LockedPlugin> {
        let index = self.plugins.iter().position(|plugin| plugin.name == name)?;
        Some(self.plugins.remove(index))
    }

    /// As it is written.
    pub fn to_text(&self) -> String {
        let document = Document { format: FORMAT, plugins: self.plugins.clone() };
        let text = toml::to_string_pretty(&document).expect("texts and tables are TOML");
        format!("{HEADER}{text}")
    }
}

/// A name becomes a file's: it must be no path.
fn is_plugin_name(name: &str) -> bool {
    let is_part = |character: char| character.is_ascii_alphanumeric() || "_-.".contains(character);
    (1..=64).contains(&name.len()) && name.chars().all(is_part) && !name.chars().all(|character| character == '.')
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_plugins::digest_of;

    fn plugin(name: &str) -> LockedPlugin {
        LockedPlugin {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            reference: format!("registry.example/team/{name}:1"),
            manifest: Some(digest_of(b"manifest")),
            component: digest_of(name.as_bytes()),
            signer: Some("RWQkey".to_owned()),
            signature: Some("untrusted comment: a\nRUQ=\ntrusted comment: name:a\tversion:\"1\"\nAA==\n".to_owned()),
        }
    }

    fn read(text: &str) -> Result<LockFile, String> {
        LockFile::parse(text, Path::new("plugins/plugins.lock")).map_err(|error| error.to_string())
    }

    // P11: the lock file is stable: whatever the order in which plugins came, the same text.
    #[test]
    fn the_lock_file_is_sorted_and_read_as_it_was_written() {
        let mut one = LockFile { plugins: Vec::new() };
        let mut other = one.clone();
        for name in ["web", "calc", "text"] {
            one.set(plugin(name));
        }
        for name in ["text", "web", "calc", "web"] {
            other.set(plugin(name));
        }
        let reference = "https://plugins.example/a.wasm".to_owned();
        other.set(LockedPlugin { reference, manifest: None, signer: None, signature: None, ..plugin("a") });
        assert_eq!(read(&other.to_text()).as_ref(), Ok(&other));
        assert!(other.take("a").is_some() && other.take("a").is_none());
        assert_eq!(one.to_text(), other.to_text());
        let names: Vec<_> = one.plugins().iter().map(|plugin| plugin.name.as_str()).collect();
        assert_eq!(names, ["calc", "text", "web"]);
        // One plugin that changes is one place that changes.
        let before = one.to_text();
        one.set(LockedPlugin { component: digest_of(b"new"), ..plugin("text") });
        let after = one.to_text();
        let changed = before.lines().zip(after.lines()).filter(|(before, after)| before != after).count();
        assert_eq!((changed, before.lines().count()), (1, after.lines().count()));
    }

    #[test]
    fn what_cannot_be_read_says_where_and_what_to_do() {
        assert!(read("").expect_err("no format").contains("plugins/plugins.lock"));
        let conflict = "format = 1\n<<<<<<< ours\n";
        assert!(read(conflict).expect_err("a conflict").contains("plugins/plugins.lock:2: "));
        assert!(read("format = 2\n[[plugin]]\nnew = 1\n").expect_err("newer").contains("update agent-host"));
        let text = LockFile { plugins: vec![plugin("calc"), plugin("calc")] }.to_text();
        assert!(read(&text).expect_err("twice").contains("`calc` is there twice"));
        for name in ["../calc", "a/b", "..", "", "a\\b"] {
            let text = LockFile { plugins: vec![LockedPlugin { name: name.to_owned(), ..plugin("x") }] }.to_text();
            assert!(read(&text).expect_err(name).contains("no name of a plugin"), "{name}");
        }
        let text = LockFile { plugins: vec![LockedPlugin { manifest: None, ..plugin("calc") }] }.to_text();
        assert!(read(&text).expect_err("no place").contains("`calc` is of a registry and has no `manifest`"));
        let digest = LockFile { plugins: vec![plugin("calc")] }.to_text().replace("sha256:", "sha512:");
        assert!(read(&digest).expect_err("no digest").contains("digest"));
    }
}
