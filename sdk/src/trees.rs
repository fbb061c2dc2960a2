//! Functions for the granted trees: directories that the agent grants to the plugin. `std::fs` can read and write
//! files in a granted tree, too. Unlike `std::fs`, the functions in this module return errors that name the granted trees,
//! and can limit the size of a file that is read.

use crate::tool::ToolError;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Component, Path, PathBuf};

/// Returns the paths of the granted trees. The paths are written as in the grant, for example `.`, `notes` and
/// `/home/me/docs`. In native tests, returns the trees of the current [`testing::Host`](crate::testing::Host).
pub fn granted() -> Vec<String> {
    #[cfg(target_arch = "wasm32")]
    return wasip2::filesystem::preopens::get_directories().into_iter().map(|(_, path)| path).collect();
    #[cfg(not(target_arch = "wasm32"))]
    crate::testing::with_state(|state| state.trees.clone())
}

/// If `path` is in a granted tree, returns the path to pass to `std::fs`. If `path` is not in a granted tree, returns
/// the error *denied*, which names the granted trees. The host follows symbolic links only within the same tree.
pub fn locate(path: &str) -> Result<PathBuf, ToolError> {
    let trees = granted();
    let requested = normalised(Path::new(path));
    if let Some(requested) = requested
        && trees
            .iter()
            .filter_map(|tree| normalised(Path::new(tree)))
            .any(|tree| requested.starts_with(&tree) && are_both_absolute_or_relative(&requested, &tree))
    {
        return Ok(if requested.as_os_str().is_empty() { PathBuf::from(".") } else { requested });
    }
    Err(ToolError::denied(format!("`{path}` is outside of the granted trees: {}", quoted_list(&trees))))
}

/// Reads a complete UTF-8 text file of at most `limit` bytes in a granted tree. Errors of the file system are converted
/// to tool errors by [`error`]. If the file is larger than `limit`, is not UTF-8, or is not a regular file, the result
/// is the error *failed*. Pipes and devices are rejected because their content could be endless.
pub fn read_text(path: &str, limit: u64) -> Result<String, ToolError> {
    let bytes = read(path, limit)?;
    String::from_utf8(bytes).map_err(|error| no_text(path, error.utf8_error().valid_up_to() as u64))
}

/// Reads a complete file of at most `limit` bytes in a granted tree. This function returns the same errors as
/// [`read_text`], except that it accepts files that are not UTF-8.
pub fn read(path: &str, limit: u64) -> Result<Vec<u8>, ToolError> {
    let (file, length) = regular_file(path)?;
    let too_large =
        |size: u64| ToolError::failed(format!("`{path}` has {size} bytes or more; at most {limit} can be read"));
    if length > limit {
        return Err(too_large(length));
    }
    // Reserve the memory in one step, because growing the buffer would temporarily need three times as much memory.
    let mut bytes = Vec::with_capacity(length as usize + 1);
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(|failure| error(path, &failure))?;
    // The length in the metadata may be outdated. The length is 0 for files that do not report a length, such as files
    // in `/proc`.
    if bytes.len() as u64 > limit {
        return Err(too_large(bytes.len() as u64));
    }
    Ok(bytes)
}

/// Writes a file in a granted tree, and replaces the file if it exists. Errors of the file system are converted to tool
/// errors by [`error`], also in the functions below.
pub fn write(path: &str, content: impl AsRef<[u8]>) -> Result<(), ToolError> {
    fs::write(locate(path)?, content).map_err(|failure| error(path, &failure))
}

/// An entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Name of the file or folder, without the path.
    pub name: String,
    /// Whether the entry is a folder. A symbolic link is not a folder.
    pub is_folder: bool,
}

/// Returns the entries of a folder in a granted tree, sorted by name.
pub fn list(path: &str) -> Result<Vec<Entry>, ToolError> {
    let failed = |failure: io::Error| error(path, &failure);
    let mut entries = Vec::new();
    for entry in fs::read_dir(locate(path)?).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let is_folder = entry.file_type().map_err(failed)?.is_dir();
        entries.push(Entry { name: entry.file_name().to_string_lossy().into_owned(), is_folder });
    }
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(entries)
}

/// Creates a folder in a granted tree.
pub fn create_folder(path: &str) -> Result<(), ToolError> {
    fs::create_dir(locate(path)?).map_err(|failure| error(path, &failure))
}

/// Removes a file or an empty folder in a granted tree.
pub fn remove(path: &str) -> Result<(), ToolError> {
    let located = locate(path)?;
    let failed = |failure: io::Error| error(path, &failure);
    let is_folder = fs::symlink_metadata(&located).map_err(failed)?.is_dir();
    if is_folder { fs::remove_dir(&located) } else { fs::remove_file(&located) }.map_err(failed)
}

/// Opens a regular file in a granted tree for reading. Unlike [`read`], this function has no size limit.
pub fn open(path: &str) -> Result<File, ToolError> {
    regular_file(path).map(|(file, _)| file)
}

/// Creates the error *failed* for a file whose bytes at `offset` are not UTF-8.
pub fn no_text(path: &str, offset: u64) -> ToolError {
    ToolError::failed(format!("`{path}` is not UTF-8 text: byte {offset} (from 0) is not part of a character"))
}

/// Converts an error of `std::fs` for `path` to a tool error: *not found*, *denied* or *failed*. The message of
/// a *denied* error lists the granted trees.
pub fn error(path: &str, error: &io::Error) -> ToolError {
    match error.kind() {
        ErrorKind::NotFound => ToolError::not_found(format!("there is no `{path}`")),
        ErrorKind::NotADirectory => ToolError::not_found(format!("part of `{path}` is not a directory")),
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => ToolError::denied(format!(
            "access to `{path}` was refused: it is outside its tree, its tree is granted for reading only, or the file \
             system denies access. Granted trees: {}",
            quoted_list(&granted())
        )),
        _ => ToolError::failed(format!("`{path}`: {error}")),
    }
}

/// Opens a regular file in a granted tree. Returns the file, and the length of the file in bytes.
fn regular_file(path: &str) -> Result<(File, u64), ToolError> {
    let located = locate(path)?;
    let failed = |failure: io::Error| error(path, &failure);
    // Check the type before opening the file, because opening a pipe would block until another process opens the other
    // end of the pipe.
    let metadata = fs::metadata(&located).map_err(failed)?;
    if !metadata.is_file() {
        return Err(ToolError::failed(format!("`{path}` is not a regular file")));
    }
    Ok((File::open(&located).map_err(failed)?, metadata.len()))
}

/// Lists the granted trees for an error message.
fn quoted_list(trees: &[String]) -> String {
    match trees {
        [] => "no file tree is granted".to_owned(),
        trees => trees.iter().map(|tree| format!("`{tree}`")).collect::<Vec<_>>().join(", "),
    }
}

/// Returns `true` if both paths are absolute or both are relative. This check is necessary because the empty path,
/// which represents the current directory, is a prefix of every path, including absolute paths.
fn are_both_absolute_or_relative(path: &Path, tree: &Path) -> bool {
    path.has_root() == tree.has_root()
}

/// Resolves `.` and `..` in the path. Returns `None` if the path contains a `..` that has no directory before it
/// to remove.
fn normalised(path: &Path) -> Option<PathBuf> {
    let mut normalised = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                if !normalised.pop() {
                    return None;
                }
            }
            other => normalised.push(other),
        }
    }
    Some(normalised)
}

#[cfg(test)]
mod tests {
    use super::{create_folder, error, list, locate, read_text, remove, write};
    use crate::testing::Host;
    use crate::tool::ToolError;
    use std::io::{Error, ErrorKind};

    // P6: the error *denied* contains the names of the granted trees.
    #[test]
    fn p6_locates_paths_only_in_granted_trees() {
        let locate_in = |trees: &[&str], path: &str| {
            let mut host = trees.iter().fold(Host::new(), |host, tree| host.tree(*tree));
            host.run(|| locate(path)).map(|path| path.display().to_string())
        };
        assert_eq!(locate_in(&["."], "a/./b/../c.txt"), Ok("a/c.txt".to_owned()));
        assert_eq!(locate_in(&["."], "./"), Ok(".".to_owned()));
        assert_eq!(locate_in(&["/data", "notes"], "/data/x"), Ok("/data/x".to_owned()));
        assert_eq!(locate_in(&["/data", "notes"], "notes"), Ok("notes".to_owned()));
        for path in ["../x", "a/../../x", "/etc/passwd"] {
            let message = format!("`{path}` is outside of the granted trees: `.`");
            assert_eq!(locate_in(&["."], path), Err(ToolError::Denied(message)));
        }
        assert!(locate_in(&["/data"], "/database").is_err());
        assert!(locate_in(&["/data"], "/data/../etc").is_err());
        let message = "`a` is outside of the granted trees: no file tree is granted".to_owned();
        assert_eq!(locate_in(&[], "a"), Err(ToolError::Denied(message)));
    }

    #[test]
    fn converts_file_system_errors() {
        assert!(matches!(error("a", &Error::from(ErrorKind::NotFound)), ToolError::NotFound(_)));
        assert!(matches!(error("a", &Error::from(ErrorKind::PermissionDenied)), ToolError::Denied(_)));
        assert!(matches!(error("a", &Error::from(ErrorKind::InvalidData)), ToolError::Failed(_)));
    }

    // P6: the functions that change files work only in granted trees.
    #[test]
    fn p6_files_are_written_listed_and_removed_in_granted_trees() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let tree = directory.path().display().to_string();
        let path = |name: &str| format!("{tree}/{name}");
        Host::new().tree(tree.as_str()).run(|| {
            write(&path("b.txt"), "text").expect("the file is written");
            create_folder(&path("a")).expect("the folder is created");
            let entries = list(&tree).expect("the folder is listed");
            let names: Vec<_> = entries.iter().map(|entry| (entry.name.as_str(), entry.is_folder)).collect();
            assert_eq!(names, [("a", true), ("b.txt", false)]);
            remove(&path("a")).and_then(|()| remove(&path("b.txt"))).expect("both are removed");
            assert_eq!(list(&tree), Ok(Vec::new()));
            assert!(matches!(remove(&path("b.txt")), Err(ToolError::NotFound(_))));
            for result in [write("/x", ""), create_folder("/x"), remove("/x"), list("/").map(drop)] {
                assert!(matches!(result, Err(ToolError::Denied(_))), "{result:?}");
            }
        });
    }

    // P6: `read_text` reads only granted files, and only up to the limit.
    #[test]
    fn p6_read_text_checks_grant_size_and_encoding() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let tree = directory.path().display().to_string();
        let path = |name: &str| directory.path().join(name).display().to_string();
        std::fs::write(path("four"), "four").expect("the file is written");
        std::fs::write(path("bytes"), b"a\xff").expect("the file is written");
        let mut host = Host::new().tree(tree.as_str());
        let mut read = |path: &str, limit| host.run(|| read_text(path, limit));
        assert_eq!(read(&path("four"), 4), Ok("four".to_owned()));
        let message = |result: Result<String, ToolError>| result.expect_err("the read fails").message();
        assert_eq!(host.run(|| super::read(&path("bytes"), 2)), Ok(b"a\xff".to_vec()));
        let mut read = |path: &str, limit| host.run(|| read_text(path, limit));
        assert!(message(read(&path("four"), 3)).contains("4 bytes or more; at most 3 can be read"));
        assert!(message(read(&path("bytes"), 9)).contains("byte 1 (from 0)"));
        assert!(message(read(&tree, 9)).contains("not a regular file"));
        assert!(matches!(read(&path("none"), 9), Err(ToolError::NotFound(_))));
        assert!(matches!(read("/etc/hostname", 9), Err(ToolError::Denied(_))));
    }
}
