//! File trees that the host grants, under the paths with which they were granted. Files in them are read and written
//! with
//! `std::fs`; what this module adds are errors that say what is granted.

use crate::tool::ToolError;
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};

/// The granted trees, as the grant names them: `.`, `notes`, `/home/me/docs` … In native tests: those of the
/// surrounding
/// [`testing::Host`](crate::testing::Host).
pub fn granted() -> Vec<String> {
    #[cfg(target_arch = "wasm32")]
    return wasip2::filesystem::preopens::get_directories().into_iter().map(|(_, path)| path).collect();
    #[cfg(not(target_arch = "wasm32"))]
    crate::testing::with_state(|state| state.trees.clone())
}

/// The path to use with `std::fs` for `path`, if it lies in a granted tree; otherwise an error of kind *denied* that
/// names
/// the granted trees. Symbolic links are followed by the host, and only within the tree.
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
    use super::{error, locate};
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
}
