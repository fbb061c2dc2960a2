//! The lock file `plugins.lock`, which stores the source and the exact digest of each plugin in a folder. Users should
//! commit the file to version control. Therefore the entries are sorted by plugin name, and a change to one plugin
//! changes only the lines of that plugin.

use crate::error::{RegistryError, display_text};
use crate::files::read_if_exists;
use crate::locked_paths;
use crate::reference::Source;
use crate::signature::Claims;
use agent_core::message::Digest;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Name of the lock file in a plugin folder.
pub const LOCK_FILE: &str = "plugins.lock";

/// Version of the lock file's format that this version of the host reads and writes.
const FORMAT: u32 = 1;
/// Maximum size of a lock file, in bytes.
const MAX_BYTES: u64 = 4 * 1024 * 1024;
/// Comment at the start of each lock file.
const HEADER: &str = "# Sources of the plugins in this folder. Written by agent-host: commit this file, but do not edit it.\n\
                      # `agent-host plugin verify` checks it, `agent-host plugin add` fetches what is missing.\n\n";

/// Contents of a lock file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockFile {
    /// The entries, sorted by plugin name.
    plugins: Vec<LockedPlugin>,
}

/// Entry of one plugin in a lock file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockedPlugin {
    /// Name of the plugin. The plugin's file has this name with the extension `.wasm`.
    pub name: String,
    /// Version of the plugin. Empty if the plugin has no version.
    #[serde(default)]
    pub version: String,
    /// Source of the plugin, as the user wrote it. An update fetches the version to which the tag in this source refers
    /// at the time of the update. The path of a file is absolute here; the lock file contains it relative to its folder.
    pub reference: String,
    /// Digest of the plugin's manifest in the registry. `None` if the source is a file or a web address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<Digest>,
    /// SHA-256 digest of the plugin's file.
    pub component: Digest,
    /// Trusted key that signed the plugin. `None` if no trusted key signed the plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signer: Option<String>,
    /// Signature of the plugin, so that the plugin can be verified offline. The signature may have been made with a key
    /// that is not trusted yet.
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
    /// Returns the name of the plugin's file.
    pub fn file_name(&self) -> String {
        format!("{}.wasm", self.name)
    }

    /// Returns this entry as text. The text is stored with the component and proves the component's origin.
    pub fn origin_entry(&self) -> String {
        #[derive(Serialize)]
        struct Entry<'e> {
            plugin: [&'e LockedPlugin; 1],
        }
        toml::to_string_pretty(&Entry { plugin: [self] }).expect("the value serialises to TOML")
    }

    /// Parses the source of the plugin.
    pub fn source(&self) -> Result<Source, RegistryError> {
        Source::parse_locked(&self.reference)
    }

    /// Returns the claims that the plugin's signature must contain.
    pub fn claims(&self) -> Claims {
        let repository = match self.source() {
            Ok(Source::Registry(reference)) => reference.repository().to_string(),
            _ => String::new(),
        };
        Claims { name: self.name.clone(), version: self.version.clone(), repository, manifest: self.manifest.clone() }
    }
}

/// Returns the namespace of a source, such as `HOST/PATH`. Returns `None` for a file on this machine, to which the
/// namespace `local` applies.
pub fn namespace_of(source: &Source) -> Option<String> {
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
    /// Returns the path of the lock file in a plugin folder.
    pub fn path(directory: &Path) -> PathBuf {
        directory.join(LOCK_FILE)
    }

    /// Reads the lock file of a folder. If there is no lock file in the folder, the result is empty.
    pub fn read(directory: &Path) -> Result<Self, RegistryError> {
        let path = Self::path(directory);
        let Some(bytes) = Self::bytes(directory)? else {
            // Report a broken link instead of treating it as a missing lock file, because the user who created the link
            // wanted plugins to be locked.
            if path.symlink_metadata().is_ok() {
                let reason = "it is a link to a file that does not exist; restore that file, or delete the link and add the \
                              plugins again";
                return Err(RegistryError::Lock { path, line: None, reason: reason.to_owned() });
            }
            return Ok(Self { plugins: Vec::new() });
        };
        match String::from_utf8(bytes) {
            Ok(text) => Self::parse(&text, &path),
            Err(error) => Err(RegistryError::file(path, "read", std::io::Error::other(error))),
        }
    }

    /// Reads the bytes of a folder's lock file. `None` if there is no file.
    pub(crate) fn bytes(directory: &Path) -> Result<Option<Vec<u8>>, RegistryError> {
        read_if_exists(&Self::path(directory), MAX_BYTES)
    }

    fn parse(text: &str, path: &Path) -> Result<Self, RegistryError> {
        let refused = |line, reason: String| RegistryError::Lock { path: path.to_owned(), line, reason };
        // A newer format may have keys that this version does not know. In this case, report the unsupported format and
        // not the keys.
        #[derive(Deserialize)]
        struct FormatHeader {
            format: u32,
        }
        if let Ok(FormatHeader { format }) = toml::from_str::<FormatHeader>(text)
            && format != FORMAT
        {
            return Err(refused(
                None,
                format!(
                    "it has format {format}, but this version of agent-host reads format {FORMAT}: update agent-host"
                ),
            ));
        }
        let document: Document = toml::from_str(text).map_err(|error| {
            let line = error.span().map(|span| text[..text.floor_char_boundary(span.start)].matches('\n').count() + 1);
            let reason = "restore it from version control, or delete it and add its plugins again";
            refused(line, format!("{}; {reason}", display_text(error.message())))
        })?;
        let mut plugins = document.plugins;
        let directory = path.parent().unwrap_or(Path::new("."));
        for plugin in &mut plugins {
            if let Some(absolute) = locked_paths::absolute(&plugin.reference, directory) {
                plugin.reference = absolute;
            }
        }
        plugins.sort_by(|left, right| left.name.cmp(&right.name));
        for plugin in &plugins {
            if !is_plugin_name(&plugin.name) {
                return Err(refused(None, format!("`{}` is not a valid plugin name", display_text(&plugin.name))));
            }
            // Without the digest of the manifest, the host could not check that the signature was made for this
            // manifest in this repository.
            if plugin.manifest.is_none() && matches!(plugin.source(), Ok(Source::Registry(_))) {
                let reason = format!(
                    "`{}` comes from a registry but has no `manifest`; remove it with `plugin remove` and add it again",
                    plugin.name
                );
                return Err(refused(None, reason));
            }
        }
        if let Some(duplicates) = plugins.windows(2).find(|pair| pair[0].name == pair[1].name) {
            return Err(refused(None, format!("`{}` is listed twice; keep one of the entries", duplicates[0].name)));
        }
        Ok(Self { plugins })
    }

    /// Parses text that is stored with a component and consists of one or more entries in the form that
    /// [`LockedPlugin::origin_entry`] returns.
    pub fn parse_origin_entries(text: &str) -> Result<Vec<LockedPlugin>, RegistryError> {
        let document: Result<Document, _> = toml::from_str(&format!("format = {FORMAT}\n{text}"));
        document.map(|document| document.plugins).map_err(|error| RegistryError::Lock {
            path: PathBuf::from("the stored origin of the component"),
            line: None,
            reason: format!("{}; `agent-host plugin add` fetches it again", display_text(error.message())),
        })
    }

    /// Returns all plugins, sorted by name.
    pub fn plugins(&self) -> &[LockedPlugin] {
        &self.plugins
    }

    /// Returns the entry of the plugin with this name, or `None` if the lock file has no such entry.
    pub fn plugin(&self, name: &str) -> Option<&LockedPlugin> {
        self.plugins.iter().find(|plugin| plugin.name == name)
    }

    /// Adds a plugin, or replaces the entry with the same name.
    pub fn set(&mut self, plugin: LockedPlugin) {
        match self.plugins.binary_search_by(|other| other.name.cmp(&plugin.name)) {
            Ok(index) => self.plugins[index] = plugin,
            Err(index) => self.plugins.insert(index, plugin),
        }
    }

    /// Removes and returns the entry with this name.
    pub fn take(&mut self, name: &str) -> Option<LockedPlugin> {
        let index = self.plugins.iter().position(|plugin| plugin.name == name)?;
        Some(self.plugins.remove(index))
    }

    /// Formats the lock file of a folder as text. The paths of files are written relative to the folder, so that they are also
    /// right in another copy of the project.
    pub fn to_text(&self, directory: &Path) -> String {
        let mut plugins = self.plugins.clone();
        for plugin in &mut plugins {
            if let Some(relative) = locked_paths::relative(&plugin.reference, directory) {
                plugin.reference = relative;
            }
        }
        let document = Document { format: FORMAT, plugins };
        let text = toml::to_string_pretty(&document).expect("the value serialises to TOML");
        format!("{HEADER}{text}")
    }
}

/// Returns whether the text is a valid plugin name. The name is used as a file name, so it must not be a path.
pub(crate) fn is_plugin_name(name: &str) -> bool {
    let is_allowed = |character: char| character.is_ascii_alphanumeric() || "_-.".contains(character);
    (1..=64).contains(&name.len()) && name.chars().all(is_allowed) && !name.chars().all(|character| character == '.')
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

    // P11: the content of the lock file does not depend on the order in which plugins were added.
    #[test]
    fn lock_file_is_sorted_and_read_back() {
        let mut first = LockFile { plugins: Vec::new() };
        let mut second = first.clone();
        for name in ["web", "calc", "text"] {
            first.set(plugin(name));
        }
        for name in ["text", "web", "calc", "web"] {
            second.set(plugin(name));
        }
        let reference = "https://plugins.example/a.wasm".to_owned();
        second.set(LockedPlugin { reference, manifest: None, signer: None, signature: None, ..plugin("a") });
        assert_eq!(read(&second.to_text(Path::new("plugins"))).as_ref(), Ok(&second));
        assert!(second.take("a").is_some() && second.take("a").is_none());
        assert_eq!(first.to_text(Path::new("plugins")), second.to_text(Path::new("plugins")));
        let names: Vec<_> = first.plugins().iter().map(|plugin| plugin.name.as_str()).collect();
        assert_eq!(names, ["calc", "text", "web"]);
        // A change to the component of one plugin changes one line of the lock file.
        let before = first.to_text(Path::new("plugins"));
        first.set(LockedPlugin { component: digest_of(b"new"), ..plugin("text") });
        let after = first.to_text(Path::new("plugins"));
        let changed = before.lines().zip(after.lines()).filter(|(before, after)| before != after).count();
        assert_eq!((changed, before.lines().count()), (1, after.lines().count()));
    }

    // P11: a file in the same project has a relative path, so that the lock file is right in every copy of the project. Absolute
    // paths of earlier versions are accepted.
    #[test]
    fn p11_paths_of_files_are_relative_to_the_folder() {
        let project = tempfile::tempdir().expect("a temporary folder");
        let root = project.path().canonicalize().expect("it exists");
        for folder in ["plugins", "src"] {
            std::fs::create_dir(root.join(folder)).expect("created");
        }
        let of_file = |name: &str, path: &Path| LockedPlugin {
            reference: path.display().to_string(),
            manifest: None,
            signer: None,
            signature: None,
            ..plugin(name)
        };
        let mut lock = LockFile { plugins: Vec::new() };
        lock.set(of_file("calc", &root.join("src/calc.wasm")));
        lock.set(of_file("inside", &root.join("plugins/built/inside.wasm")));
        lock.set(of_file("far", Path::new("/no-such-folder/far.wasm")));
        lock.set(plugin("web"));
        let text = lock.to_text(&root.join("plugins"));
        for expected in
            ["../src/calc.wasm", "./built/inside.wasm", "/no-such-folder/far.wasm", "registry.example/team/web:1"]
        {
            assert!(text.contains(&format!("reference = \"{expected}\"")), "{expected}: {text}");
        }
        std::fs::write(root.join("plugins").join(LOCK_FILE), &text).expect("written");
        assert_eq!(LockFile::read(&root.join("plugins")).expect("it is valid"), lock);
        // Another copy of the project.
        let copy = tempfile::tempdir().expect("a temporary folder");
        let copied = copy.path().canonicalize().expect("it exists");
        std::fs::write(copied.join(LOCK_FILE), &text).expect("written");
        let read = LockFile::read(&copied).expect("it is valid");
        let expected = copied.parent().expect("a parent").join("src/calc.wasm");
        assert!(matches!(read.plugin("calc").expect("listed").source(), Ok(Source::File(path)) if path == expected));
        // A lock file of an earlier version contains absolute paths.
        let absolute = text.replace("../src/calc.wasm", &root.join("src/calc.wasm").display().to_string());
        std::fs::write(root.join("plugins").join(LOCK_FILE), absolute).expect("written");
        assert_eq!(LockFile::read(&root.join("plugins")).expect("it is valid"), lock);
    }

    #[test]
    fn lock_file_errors_contain_the_line_and_advice() {
        assert!(read("").expect_err("the format is missing").contains("plugins/plugins.lock"));
        let conflict = "format = 1\n<<<<<<< ours\n";
        assert!(read(conflict).expect_err("the file has a merge conflict").contains("plugins/plugins.lock:2: "));
        assert!(
            read("format = 2\n[[plugin]]\nnew = 1\n").expect_err("the format is newer").contains("update agent-host")
        );
        let text = LockFile { plugins: vec![plugin("calc"), plugin("calc")] }.to_text(Path::new("plugins"));
        assert!(read(&text).expect_err("the entry is listed twice").contains("`calc` is listed twice"));
        for name in ["../calc", "a/b", "..", "", "a\\b"] {
            let text = LockFile { plugins: vec![LockedPlugin { name: name.to_owned(), ..plugin("x") }] }
                .to_text(Path::new("plugins"));
            assert!(read(&text).expect_err(name).contains("not a valid plugin name"), "{name}");
        }
        let text =
            LockFile { plugins: vec![LockedPlugin { manifest: None, ..plugin("calc") }] }.to_text(Path::new("plugins"));
        assert!(
            read(&text)
                .expect_err("the manifest is missing")
                .contains("`calc` comes from a registry but has no `manifest`")
        );
        let digest =
            LockFile { plugins: vec![plugin("calc")] }.to_text(Path::new("plugins")).replace("sha256:", "sha512:");
        assert!(read(&digest).expect_err("the digest is invalid").contains("digest"));
    }
}
