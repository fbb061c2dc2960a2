//! Finds the scenarios of a folder.

use std::path::{Path, PathBuf};

/// What the name of a scenario's file ends with.
pub const SUFFIX: &str = ".scenario.toml";

/// Folders that hold what was built or fetched.
const PASSED_OVER: [&str; 3] = ["target", "node_modules", "__pycache__"];

/// Deepest folder that is looked into.
const DEPTH: usize = 16;

/// A scenario's file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Discovered {
    /// Its name: the way to it from the folder that was looked in, without the ending.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
}

/// A folder that cannot be looked into.
#[derive(Debug, thiserror::Error)]
#[error("the folder `{}` cannot be read: {source}", folder.display())]
pub struct Unreadable {
    /// Which: the one that was named, or one below it.
    pub folder: PathBuf,
    /// Why not.
    pub source: std::io::Error,
}

/// The scenarios in a folder and below it, by name; of a file, itself. Folders whose names begin with a dot, and those of
/// build tools, are passed over; links are not followed.
pub fn discover(at: &Path) -> Result<Vec<Discovered>, Unreadable> {
    if at.is_file() {
        return Ok(of(at, at.parent().unwrap_or(Path::new(""))).into_iter().collect());
    }
    let mut found = Vec::new();
    look(at, at, DEPTH, &mut found)?;
    found.sort();
    Ok(found)
}

fn look(folder: &Path, root: &Path, depth: usize, found: &mut Vec<Discovered>) -> Result<(), Unreadable> {
    let unreadable = |source| Unreadable { folder: folder.to_owned(), source };
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let kind = entry.file_type().map_err(unreadable)?;
        let (name, path) = (entry.file_name().to_string_lossy().into_owned(), entry.path());
        if kind.is_dir() && depth > 0 && !name.starts_with('.') && !PASSED_OVER.contains(&name.as_str()) {
            look(&path, root, depth - 1, found)?;
        } else if kind.is_file() {
            found.extend(of(&path, root));
        }
    }
    Ok(())
}

fn of(path: &Path, root: &Path) -> Option<Discovered> {
    let below = path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/");
    let name = below.strip_suffix(SUFFIX).filter(|name| !name.is_empty() && !name.ends_with('/'))?.to_owned();
    Some(Discovered { name, path: path.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S4: the folder that cannot be read is the one that is named.
    #[test]
    fn a_folder_that_cannot_be_read_is_named() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let closed = folder.path().join("sub/closed");
        let error = look(&closed, folder.path(), DEPTH, &mut Vec::new()).expect_err("it is not there");
        let expected = format!("the folder `{}` cannot be read: ", closed.display());
        assert!(error.to_string().starts_with(&expected), "{error}");
    }

    #[test]
    fn scenarios_are_found_by_their_ending() {
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
