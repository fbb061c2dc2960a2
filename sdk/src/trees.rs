//! The file trees that the host grants, under the paths in the grant. Use `std::fs` to read and write files in them.
//! This module adds errors that name the granted trees, and bounded ways to read files.

use crate::tool::ToolError;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Component, Path, PathBuf};

/// The granted trees as the grant names them: `.`, `notes`, `/home/me/docs` … In native tests, those of the current
/// [`testing::Host`](crate::testing::Host).
pub fn granted() -> Vec<String> {
    #[cfg(target_arch = "wasm32")]
    return wasip2::filesystem::preopens::get_directories().into_iter().map(|(_, path)| path).collect();
    #[cfg(not(target_arch = "wasm32"))]
    crate::testing::with_state(|state| state.trees.clone())
}

/// The path to use with `std::fs` for `path`, if it is in a granted tree. Otherwise the error is *denied* and names
/// the granted trees. The host follows symbolic links, but only within the tree.
pub fn locate(path: &str) -> Result<PathBuf, ToolError> {
    let trees = granted();
    let wanted = normal(Path::new(path));
    if let Some(wanted) = wanted
        && trees
            .iter()
            .filter_map(|tree| normal(Path::new(tree)))
            .any(|tree| wanted.starts_with(&tree) && same_kind(&wanted, &tree))
    {
        return Ok(if wanted.as_os_str().is_empty() { PathBuf::from(".") } else { wanted });
    }
    Err(ToolError::denied(format!("`{path}` is outside of the granted trees: {}", names(&trees))))
}

/// Reads a whole UTF-8 text file of at most `limit` bytes in a granted tree. Errors: *not found* and *denied* as for
/// [`error`]; *failed* if the file is larger, is not UTF-8, or is not a regular file (a pipe or device could be
/// endless).
pub fn read_text(path: &str, limit: u64) -> Result<String, ToolError> {
    let bytes = read(path, limit)?;
    String::from_utf8(bytes).map_err(|error| no_text(path, error.utf8_error().valid_up_to() as u64))
}

/// Reads a whole file of at most `limit` bytes in a granted tree. Errors are the same as for [`read_text`].
pub fn read(path: &str, limit: u64) -> Result<Vec<u8>, ToolError> {
    let (file, length) = regular_file(path)?;
    let too_large =
        |size: u64| ToolError::failed(format!("`{path}` has {size} bytes or more; at most {limit} can be read"));
    if length > limit {
        return Err(too_large(length));
    }
    // Reserve the memory at once, because growing the buffer would briefly take three times as much.
    let mut bytes = Vec::with_capacity(length as usize + 1);
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(|failure| error(path, &failure))?;
    // The length in the metadata may be outdated, or 0 for files that have no length, as in `/proc`.
    if bytes.len() as u64 > limit {
        return Err(too_large(bytes.len() as u64));
    }
    Ok(bytes)
}

/// Opens a regular file in a granted tree for reading in parts. Errors are the same as for [`read_text`].
pub fn open(path: &str) -> Result<File, ToolError> {
    regular_file(path).map(|(file, _)| file)
}

/// The error *failed* for a file that is not UTF-8 text at `offset`.
pub fn no_text(path: &str, offset: u64) -> ToolError {
    ToolError::failed(format!("`{path}` is not UTF-8 text: byte {offset} (from 0) is not part of a character"))
}

/// Converts an error of `std::fs` for `path` to a tool error: *not found*, *denied* (with the granted trees) or
/// *failed*.
pub fn error(path: &str, error: &io::Error) -> ToolError {
    match error.kind() {
        ErrorKind::NotFound => ToolError::not_found(format!("there is no `{path}`")),
        ErrorKind::NotADirectory => ToolError::not_found(format!("part of `{path}` is not a directory")),
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => ToolError::denied(format!(
            "access to `{path}` was refused: it is outside its tree, its tree is granted for reading only, or the file \
             system denies access. Granted trees: {}",
            names(&granted())
        )),
        _ => ToolError::failed(format!("`{path}`: {error}")),
    }
}

/// The open file and its length.
fn regular_file(path: &str) -> Result<(File, u64), ToolError> {
    let located = locate(path)?;
    let failed = |failure: io::Error| error(path, &failure);
    // Checked before opening, because opening a pipe would wait for its other end.
    let metadata = fs::metadata(&located).map_err(failed)?;
    if !metadata.is_file() {
        return Err(ToolError::failed(format!("`{path}` is not a regular file")));
    }
    Ok((File::open(&located).map_err(failed)?, metadata.len()))
}

fn names(trees: &[String]) -> String {
    match trees {
        [] => "no file tree is granted".to_owned(),
        trees => trees.iter().map(|tree| format!("`{tree}`")).collect::<Vec<_>>().join(", "),
    }
}

/// Distinguishes relative from absolute paths, because both start with the empty path.
fn same_kind(wanted: &Path, tree: &Path) -> bool {
    wanted.has_root() == tree.has_root()
}

/// The path without `.` and `..`; `None` if it leaves its starting point.
fn normal(path: &Path) -> Option<PathBuf> {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                if !normal.pop() {
                    return None;
                }
            }
            other => normal.push(other),
        }
    }
    Some(normal)
}

#[cfg(test)]
mod tests {
    use super::{error, locate, read_text};
    use crate::testing::Host;
    use crate::tool::ToolError;
    use std::io::{Error, ErrorKind};

    // P6: a denial names the granted trees.
    #[test]
    fn p6_locates_paths_only_in_granted_trees() {
        let located = |trees: &[&str], path: &str| {
            let mut host = trees.iter().fold(Host::new(), |host, tree| host.tree(*tree));
            host.run(|| locate(path)).map(|path| path.display().to_string())
        };
        assert_eq!(located(&["."], "a/./b/../c.txt"), Ok("a/c.txt".to_owned()));
        assert_eq!(located(&["."], "./"), Ok(".".to_owned()));
        assert_eq!(located(&["/data", "notes"], "/data/x"), Ok("/data/x".to_owned()));
        assert_eq!(located(&["/data", "notes"], "notes"), Ok("notes".to_owned()));
        for path in ["../x", "a/../../x", "/etc/passwd"] {
            let message = format!("`{path}` is outside of the granted trees: `.`");
            assert_eq!(located(&["."], path), Err(ToolError::Denied(message)));
        }
        assert!(located(&["/data"], "/database").is_err());
        assert!(located(&["/data"], "/data/../etc").is_err());
        let message = "`a` is outside of the granted trees: no file tree is granted".to_owned();
        assert_eq!(located(&[], "a"), Err(ToolError::Denied(message)));
    }

    #[test]
    fn converts_file_system_errors() {
        assert!(matches!(error("a", &Error::from(ErrorKind::NotFound)), ToolError::NotFound(_)));
        assert!(matches!(error("a", &Error::from(ErrorKind::PermissionDenied)), ToolError::Denied(_)));
        assert!(matches!(error("a", &Error::from(ErrorKind::InvalidData)), ToolError::Failed(_)));
    }

    // P6: only granted files are read, and only up to the limit.
    #[test]
    fn p6_reads_texts_within_bounds() {
        let directory = tempfile::tempdir().expect("a directory");
        let tree = directory.path().display().to_string();
        let path = |name: &str| directory.path().join(name).display().to_string();
        std::fs::write(path("four"), "four").expect("written");
        std::fs::write(path("bytes"), b"a\xff").expect("written");
        let mut host = Host::new().tree(tree.as_str());
        let mut read = |path: &str, limit| host.run(|| read_text(path, limit));
        assert_eq!(read(&path("four"), 4), Ok("four".to_owned()));
        let message = |result: Result<String, ToolError>| result.expect_err("refused").message();
        assert_eq!(host.run(|| super::read(&path("bytes"), 2)), Ok(b"a\xff".to_vec()));
        let mut read = |path: &str, limit| host.run(|| read_text(path, limit));
        assert!(message(read(&path("four"), 3)).contains("4 bytes or more; at most 3 can be read"));
        assert!(message(read(&path("bytes"), 9)).contains("byte 1 (from 0)"));
        assert!(message(read(&tree, 9)).contains("not a regular file"));
        assert!(matches!(read(&path("none"), 9), Err(ToolError::NotFound(_))));
        assert!(matches!(read("/etc/hostname", 9), Err(ToolError::Denied(_))));
    }
}
