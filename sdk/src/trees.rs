//! File trees that the host grants, under the paths with which they were granted. Files in them are read and written
//! with `std::fs`; what this module adds are errors that say what is granted, and bounded ways to read them.

use crate::tool::ToolError;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Component, Path, PathBuf};

/// The granted trees, as the grant names them: `.`, `notes`, `/home/me/docs` … In native tests: those of the
/// surrounding [`testing::Host`](crate::testing::Host).
pub fn granted() -> Vec<String> {
    #[cfg(target_arch = "wasm32")]
    return wasip2::filesystem::preopens::get_directories().into_iter().map(|(_, path)| path).collect();
    #[cfg(not(target_arch = "wasm32"))]
    crate::testing::with_state(|state| state.trees.clone())
}

/// The path to use with `std::fs` for `path`, if it lies in a granted tree; otherwise an error of kind *denied* that
/// names the granted trees. Symbolic links are followed by the host, and only within the tree.
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

/// The whole of a UTF-8 text file of at most `limit` bytes that lies in a granted tree. Errors: *not found* and *denied*
/// as for [`error`]; *failed* for what is larger, is no UTF-8, or is no regular file (a pipe or device could be endless).
pub fn read_text(path: &str, limit: u64) -> Result<String, ToolError> {
    let bytes = read(path, limit)?;
    String::from_utf8(bytes).map_err(|error| no_text(path, error.utf8_error().valid_up_to() as u64))
}

/// The whole of a file of at most `limit` bytes that lies in a granted tree. Errors as for [`read_text`].
pub fn read(path: &str, limit: u64) -> Result<Vec<u8>, ToolError> {
    let (file, length) = regular_file(path)?;
    let too_large =
        |size: u64| ToolError::failed(format!("`{path}` has {size} bytes or more; at most {limit} are read"));
    if length > limit {
        return Err(too_large(length));
    }
    // With room from the start, since growing would take three times the memory for a moment.
    let mut bytes = Vec::with_capacity(length as usize + 1);
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(|failure| error(path, &failure))?;
    // The length that was asked for may be old, or that of a file that has none, as below `/proc`.
    if bytes.len() as u64 > limit {
        return Err(too_large(bytes.len() as u64));
    }
    Ok(bytes)
}

/// A regular file in a granted tree, open for reading piece by piece. Errors as for [`read_text`].
pub fn open(path: &str) -> Result<File, ToolError> {
    regular_file(path).map(|(file, _)| file)
}

/// The error of kind *failed* for a file that is no UTF-8 text at `offset`.
pub fn no_text(path: &str, offset: u64) -> ToolError {
    ToolError::failed(format!("`{path}` is not UTF-8 text: byte {offset} (from 0) is not part of a character"))
}

/// A tool's error for what `std::fs` said about `path`: not found, denied (with the granted trees), or failed.
pub fn error(path: &str, error: &io::Error) -> ToolError {
    match error.kind() {
        ErrorKind::NotFound => ToolError::not_found(format!("there is no `{path}`")),
        ErrorKind::NotADirectory => ToolError::not_found(format!("a part of `{path}` is not a directory")),
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => ToolError::denied(format!(
            "`{path}` was refused: it leads out of its tree, or its tree is granted for reading only, or the file \
             system denies it. Granted trees: {}",
            names(&granted())
        )),
        _ => ToolError::failed(format!("`{path}`: {error}")),
    }
}

/// The file and its length.
fn regular_file(path: &str) -> Result<(File, u64), ToolError> {
    let located = locate(path)?;
    let failed = |failure: io::Error| error(path, &failure);
    // Asked before opening, since opening a pipe would wait for its other end.
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

/// A relative path begins with the empty one, and so would an absolute one.
fn same_kind(wanted: &Path, tree: &Path) -> bool {
    wanted.has_root() == tree.has_root()
}

/// Without `.` and `..`; none if it climbs above its beginning.
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

    // P6: a denial names what is granted.
    #[test]
    fn paths_are_located_in_granted_trees_only() {
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
    fn errors_of_the_file_system_keep_their_kind() {
        assert!(matches!(error("a", &Error::from(ErrorKind::NotFound)), ToolError::NotFound(_)));
        assert!(matches!(error("a", &Error::from(ErrorKind::PermissionDenied)), ToolError::Denied(_)));
        assert!(matches!(error("a", &Error::from(ErrorKind::InvalidData)), ToolError::Failed(_)));
    }

    // P6: only what is granted is read, and only as much as is bearable.
    #[test]
    fn texts_are_read_within_bounds() {
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
        assert!(message(read(&path("four"), 3)).contains("4 bytes or more; at most 3 are read"));
        assert!(message(read(&path("bytes"), 9)).contains("byte 1 (from 0)"));
        assert!(message(read(&tree, 9)).contains("not a regular file"));
        assert!(matches!(read(&path("none"), 9), Err(ToolError::NotFound(_))));
        assert!(matches!(read("/etc/hostname", 9), Err(ToolError::Denied(_))));
    }
}
