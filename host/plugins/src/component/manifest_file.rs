//! A manifest in a file beside a component: `NAME.plugin.toml` beside `NAME.wasm`. The host puts such a manifest into the
//! bytes of the component as soon as it has read both files. The digest of the plugin therefore covers both files, and so
//! do plugins.lock, signatures and approvals.

use super::load_error::LoadError;
use super::regular_file::read_regular_file;
use crate::binary::scan::check_header;
use crate::binary::sections::find_manifest;
use crate::grants::manifest::{Manifest, ManifestError, with_manifest};
use crate::limits::MANIFEST_BYTES;
use crate::text::clean;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Ending of the name of a manifest file, in place of the component's `wasm`.
const ENDING: &str = "plugin.toml";

/// Returns the path of the file that contains the manifest of a component without a manifest of its own:
/// `NAME.plugin.toml` for `NAME.wasm`. The file does not have to exist. Returns None if the file name does not end
/// with `.wasm`.
pub fn manifest_file_of(component: &Path) -> Option<PathBuf> {
    component.extension().is_some_and(|extension| extension == "wasm").then(|| component.with_extension(ENDING))
}

/// Returns the path of the manifest file if there is one beside the component.
pub fn existing_manifest_file(component: &Path) -> Option<PathBuf> {
    // A link whose target is missing counts as a file, so that reading it fails. If it were ignored, the component would
    // have no manifest and would get all configured grants.
    let is_missing = |error: &std::io::Error| matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory);
    manifest_file_of(component).filter(|file| !file.symlink_metadata().is_err_and(|error| is_missing(&error)))
}

/// Puts the manifest beside the component at `path` into `component`, the bytes of that file. If there is no manifest
/// file, returns the bytes unchanged. Fails if the manifest file is invalid, or if the component has a manifest already.
pub(crate) fn with_manifest_file(path: &Path, component: Vec<u8>) -> Result<Vec<u8>, LoadError> {
    let Some(file) = existing_manifest_file(path) else { return Ok(component) };
    // The caller refuses a file that is not a component, with a reason that helps more than one about its manifest.
    if check_header(&component).is_err() {
        return Ok(component);
    }
    if find_manifest(&component)?.json.is_some() {
        return Err(ManifestError::Two { path: file }.into());
    }
    Ok(with_manifest(&component, &read(&file)?)?)
}

fn read(file: &Path) -> Result<Manifest, ManifestError> {
    let problem = |reason: String| ManifestError::File { path: file.to_owned(), reason: clean(&reason, 1024) };
    let bytes = read_regular_file(file, MANIFEST_BYTES as u64).map_err(|error| problem(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|error| problem(error.to_string()))?;
    Manifest::from_toml(&text, file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::load::read_component;
    use crate::component::plugin_store::digest_of;

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Self {
            let folder = Self(tempfile::tempdir().expect("a folder"));
            folder.write("words.wasm", &wat::parse_str("(component (core module))").expect("a component"));
            folder
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn write(&self, name: &str, contents: &[u8]) {
            std::fs::write(self.path(name), contents).expect("written");
        }

        fn read(&self) -> Result<Vec<u8>, String> {
            read_component(&self.path("words.wasm"), 10_000).map_err(|error| error.to_string())
        }

        fn refusal(&self, manifest: &[u8]) -> String {
            self.write("words.plugin.toml", manifest);
            self.read().expect_err("refused")
        }
    }

    // P11: plugins.lock, signatures and approvals are bound to this digest, so a later version of the host must compute
    // the same digest for the same two files.
    #[test]
    fn p11_digest_covers_the_component_and_the_meaning_of_its_manifest_file() {
        let folder = Folder::new();
        let bare = folder.read().expect("read");
        folder.write("words.plugin.toml", b"# A comment.\nname = \"words\"\n[asks]\nfiles = \"read\"\n");
        let described = folder.read().expect("read");
        let section = br#"{"name":"words","version":"","description":"","asks":{"files":"read","env":[],"config":[]}}"#;
        assert!(described.starts_with(&bare) && described.ends_with(section), "{described:?}");
        folder.write("words.plugin.toml", b"name = 'words'\nasks.files = \"read\"\n");
        assert_eq!(digest_of(&folder.read().expect("read")), digest_of(&described), "the meaning is the same");
        folder.write("words.plugin.toml", b"name = 'words'\nasks.files = \"read-write\"\n");
        assert_ne!(digest_of(&folder.read().expect("read")), digest_of(&described));
        std::fs::rename(folder.path("words.wasm"), folder.path("words.bin")).expect("renamed");
        assert_eq!(
            read_component(&folder.path("words.bin"), 10_000).expect("read"),
            bare,
            "only *.wasm has such a file"
        );
    }

    // Row 47, P14: a manifest file that cannot be used makes the component unusable. It is never ignored, because a
    // component without a manifest gets all configured grants.
    #[test]
    fn row_47_unusable_manifest_files_are_refused() {
        let folder = Folder::new();
        let unknown = folder.refusal(b"name = \"words\"\n[asks]\nnetwork = true\n");
        assert!(unknown.contains("words.plugin.toml:3: ") && unknown.contains("`network`"), "{unknown}");
        let name = folder.refusal(b"name = \"../files\"\n");
        assert!(name.contains("words.plugin.toml:1: `name`"), "{name}");
        assert!(folder.refusal(b"name = \"host\"\n").contains("reserved for the host"));
        assert!(folder.refusal(b"\xff\xfe").contains("words.plugin.toml cannot be read"));
        let escape = folder.refusal(b"name = \"words\"\n\"\\u001b[2J\" = 1\n");
        assert!(!escape.contains('\u{1b}'), "{escape}");
        let large = format!("name = \"words\"\n# {}", "x".repeat(MANIFEST_BYTES));
        assert!(folder.refusal(large.as_bytes()).contains("more than 64 KiB"));
        let file = folder.path("words.plugin.toml");
        for (target, reason) in [("missing", "cannot be read"), ("/dev/zero", "not a file")] {
            std::fs::remove_file(&file).expect("removed");
            std::os::unix::fs::symlink(target, &file).expect("linked");
            let error = folder.read().expect_err(target);
            assert!(error.contains("words.plugin.toml") && error.contains(reason), "{error}");
        }
        // A link to a regular file is read like the file, as for components.
        folder.write("elsewhere.toml", b"name = \"words\"\n");
        std::fs::remove_file(&file).expect("removed");
        std::os::unix::fs::symlink("elsewhere.toml", &file).expect("linked");
        assert!(folder.read().is_ok());
    }

    #[test]
    fn a_component_with_two_manifests_is_refused() {
        let folder = Folder::new();
        folder.write("words.plugin.toml", b"name = \"words\"\n");
        let described = folder.read().expect("read");
        folder.write("words.wasm", &described);
        let error = folder.read().expect_err("two manifests");
        assert!(error.contains("two manifests") && error.contains("words.plugin.toml; delete that file"), "{error}");
        folder.write("words.wasm", b"text");
        assert_eq!(folder.read().expect("the loader refuses the file itself"), b"text");
    }
}
