//! Collects the source files of a project, without build output and temporary files of editors.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Maximum number of source files that are collected.
pub(crate) const MAX_FILES: usize = 20_000;
/// Maximum depth of folders that are searched.
const MAX_DEPTH: usize = 12;
/// Names of folders that are skipped, because they contain no source files.
const FOLDERS_WITHOUT_SOURCES: [&str; 6] = ["target", "node_modules", "build", "__pycache__", "dist", "venv"];

/// Modification time and size in bytes of each file, to detect changes without reading the files.
pub(crate) type SourceFiles = BTreeMap<PathBuf, (SystemTime, u64)>;

/// Adds the file at `path`, or all source files in the folder at `path`.
pub(crate) fn collect(path: &Path, sources: &mut SourceFiles) {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => {
            sources.insert(path.to_owned(), time_and_size(&metadata));
        }
        _ => collect_folder(path, 0, sources),
    }
}

fn time_and_size(metadata: &Metadata) -> (SystemTime, u64) {
    (metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH), metadata.len())
}

fn collect_folder(folder: &Path, depth: usize, sources: &mut SourceFiles) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries {
        if sources.len() >= MAX_FILES {
            return;
        }
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        // Links are not followed, because they may form cycles.
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_dir() {
            if depth < MAX_DEPTH && !name.starts_with('.') && !FOLDERS_WITHOUT_SOURCES.contains(&&*name) {
                collect_folder(&path, depth + 1, sources);
            }
        } else if is_source(&name) {
            sources.insert(path, time_and_size(&metadata));
        }
    }
}

/// Whether a file with this name is a source file. Build output, test data and temporary files of editors are not
/// source files.
fn is_source(name: &str) -> bool {
    let is_generated =
        name.ends_with(".wasm") || name.ends_with(".minisig") || matches!(name, "Cargo.lock" | "package-lock.json");
    let is_test_data = [".scenario.toml", ".golden"].iter().any(|ending| name.ends_with(ending));
    let is_temporary = name.starts_with('.')
        || name.starts_with('#')
        || name.ends_with('~')
        || name.ends_with(".swp")
        || name == "4913";
    !is_generated && !is_test_data && !is_temporary
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S5: build output and temporary files of editors do not start a build.
    #[test]
    fn collects_only_source_files() {
        let top = tempfile::tempdir().expect("a temporary folder");
        let add = |path: &str| {
            let path = top.path().join(path);
            std::fs::create_dir_all(path.parent().expect("inside")).expect("made");
            std::fs::write(path, "").expect("written");
        };
        let sources = ["plugin.toml", "src/lib.rs", "src/deep/er/one.rs", "app.js", "wit/world.wit", "Cargo.toml"];
        let others = [
            "target/debug/a.rs",
            "node_modules/a/a.js",
            ".venv/lib/a.py",
            "build/bindings/plugin.h",
            "one.wasm",
            ".one.wasm.7.unfinished",
            "Cargo.lock",
            "package-lock.json",
            "src/.lib.rs.swp",
            "src/lib.rs~",
            "src/#lib.rs#",
            "src/4913",
            "__pycache__/a.pyc",
            "one.scenario.toml",
            "one.golden",
            ".git/HEAD",
        ];
        sources.iter().chain(&others).for_each(|path| add(path));
        let mut found = SourceFiles::new();
        collect_folder(top.path(), 0, &mut found);
        let mut expected: Vec<_> = sources.iter().map(|path| top.path().join(path)).collect();
        expected.sort();
        assert_eq!(found.into_keys().collect::<Vec<_>>(), expected);
    }
}
