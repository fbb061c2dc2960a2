//! What of a project is written by hand: neither what a build makes, nor what editors leave behind for a moment.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Most files that are looked at.
pub(crate) const FILES: usize = 20_000;
/// Levels of folders that are looked into.
const DEPTH: usize = 12;
/// Folders in which nothing is written by hand.
const NOT_SOURCES: [&str; 6] = ["target", "node_modules", "build", "__pycache__", "dist", "venv"];

/// Files by what shows a change without reading them.
pub(crate) type Sources = BTreeMap<PathBuf, (SystemTime, u64)>;

/// Adds a file, or all of a folder.
pub(crate) fn look_at(place: &Path, sources: &mut Sources) {
    match std::fs::metadata(place) {
        Ok(metadata) if metadata.is_file() => {
            sources.insert(place.to_owned(), stamp(&metadata));
        }
        _ => gather(place, 0, sources),
    }
}

fn stamp(metadata: &Metadata) -> (SystemTime, u64) {
    (metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH), metadata.len())
}

fn gather(folder: &Path, depth: usize, sources: &mut Sources) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries {
        if sources.len() >= FILES {
            return;
        }
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        // Links are not followed: they may lead in circles.
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_dir() {
            if depth < DEPTH && !name.starts_with('.') && !NOT_SOURCES.contains(&&*name) {
                gather(&path, depth + 1, sources);
            }
        } else if is_source(&name) {
            sources.insert(path, stamp(&metadata));
        }
    }
}

/// Neither what a build writes or does not read, nor what editors leave behind for a moment.
fn is_source(name: &str) -> bool {
    let is_made = name.ends_with(".wasm") || matches!(name, "Cargo.lock" | "package-lock.json");
    let is_told = [".scenario.toml", ".golden"].iter().any(|ending| name.ends_with(ending));
    let is_passing = name.starts_with('.')
        || name.starts_with('#')
        || name.ends_with('~')
        || name.ends_with(".swp")
        || name == "4913";
    !is_made && !is_told && !is_passing
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S5: what a build writes itself, and what editors leave behind, begins no build.
    #[test]
    fn only_sources_are_watched() {
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
        let mut found = Sources::new();
        gather(top.path(), 0, &mut found);
        let mut expected: Vec<_> = sources.iter().map(|path| top.path().join(path)).collect();
        expected.sort();
        assert_eq!(found.into_keys().collect::<Vec<_>>(), expected);
    }
}
