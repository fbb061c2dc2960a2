//! Finds the scenario files in a folder and its subfolders.

use std::path::{Path, PathBuf};

/// The suffix of the names of scenario files.
pub const SUFFIX: &str = ".scenario.toml";

/// Names of folders with build output or downloaded packages, which are not searched.
const SKIPPED_FOLDERS: [&str; 3] = ["target", "node_modules", "__pycache__"];

/// Maximum depth of subfolders that are searched.
const MAX_DEPTH: usize = 16;

/// A scenario file that was found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DiscoveredScenario {
    /// Name of the scenario: its path relative to the searched folder, without the suffix.
    pub name: String,
    /// Path of the scenario file.
    pub path: PathBuf,
}

/// A folder that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the folder `{}` cannot be read: {source}", folder.display())]
pub struct UnreadableFolder {
    /// Path of the folder: the searched folder or one of its subfolders.
    pub folder: PathBuf,
    /// Error of the operating system.
    pub source: std::io::Error,
}

/// Finds the scenarios in a folder and its subfolders, sorted by name. If `path` is a file, returns only this file.
/// Skips folders of build tools and folders whose names start with a dot. Does not follow links.
pub fn discover(path: &Path) -> Result<Vec<DiscoveredScenario>, UnreadableFolder> {
    if path.is_file() {
        return Ok(scenario_at(path, path.parent().unwrap_or(Path::new(""))).into_iter().collect());
    }
    let mut found = Vec::new();
    search(path, path, MAX_DEPTH, &mut found)?;
    found.sort();
    Ok(found)
}

fn search(
    folder: &Path,
    root: &Path,
    depth: usize,
    found: &mut Vec<DiscoveredScenario>,
) -> Result<(), UnreadableFolder> {
    let unreadable = |source| UnreadableFolder { folder: folder.to_owned(), source };
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let kind = entry.file_type().map_err(unreadable)?;
        let (name, path) = (entry.file_name().to_string_lossy().into_owned(), entry.path());
        if kind.is_dir() && depth > 0 && !name.starts_with('.') && !SKIPPED_FOLDERS.contains(&name.as_str()) {
            search(&path, root, depth - 1, found)?;
        } else if kind.is_file() {
            found.extend(scenario_at(&path, root));
        }
    }
    Ok(())
}

fn scenario_at(path: &Path, root: &Path) -> Option<DiscoveredScenario> {
    let relative = path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/");
    let name = relative.strip_suffix(SUFFIX).filter(|name| !name.is_empty() && !name.ends_with('/'))?.to_owned();
    Some(DiscoveredScenario { name, path: path.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S4: if a subfolder cannot be read, the error names this subfolder and not the searched folder.
    #[test]
    fn s4_the_error_contains_the_path_of_an_unreadable_folder() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let unreadable = folder.path().join("sub/closed");
        let error =
            search(&unreadable, folder.path(), MAX_DEPTH, &mut Vec::new()).expect_err("the folder does not exist");
        let expected = format!("the folder `{}` cannot be read: ", unreadable.display());
        assert!(error.to_string().starts_with(&expected), "{error}");
    }

    #[test]
    fn finds_scenarios_by_suffix() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for file in
            ["b.scenario.toml", "text/a.scenario.toml", "text/a.toml", "target/x.scenario.toml", ".git/y.scenario.toml"]
        {
            let path = folder.path().join(file);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, "").expect("written");
        }
        let names: Vec<_> = discover(folder.path()).expect("read").into_iter().map(|found| found.name).collect();
        assert_eq!(names, ["b", "text/a"]);
        let one = discover(&folder.path().join("text/a.scenario.toml")).expect("read");
        assert_eq!(one.len(), 1);
        assert_eq!(one[0].name, "a");
    }
}
