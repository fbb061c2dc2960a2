//! Decides to which folders a question offers access.

use super::offers::OfferedFolder;
use crate::grants::Kind;
use agent_plugins::{Access, TreeGrant};
use serde_json::Value;
use std::path::{Component, Path, PathBuf};

/// The folders that a plugin has or had, which decide to which folders a question offers access.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownFolders<'b> {
    /// Grants of folders that were revoked. If there are any, no other folders are offered (row 48).
    pub(super) revoked: &'b [TreeGrant],
    /// The folders that the plugin may use now.
    pub(super) granted: &'b [TreeGrant],
    /// The arguments of the call.
    pub(super) arguments: &'b Value,
}

/// Returns the kinds of the offered grants, and the folders as they would be written into the agent's file.
///
/// If the arguments name a path in a folder that the plugin may only read, changing this folder is offered: writing in a folder
/// around it would not help, because the innermost grant decides about a path.
pub(super) fn offered_folders(
    access: Access,
    folder: &OfferedFolder,
    KnownFolders { revoked, granted, arguments }: &KnownFolders<'_>,
) -> Vec<(Kind, String)> {
    let kind = |access| if access == Access::Read { Kind::Read } else { Kind::Write };
    if folder.is_typed {
        return vec![(kind(access), folder.written.clone())];
    }
    if !revoked.is_empty() {
        return revoked.iter().map(|tree| (kind(tree.access.min(access)), written(tree, folder))).collect();
    }
    let readable: Vec<_> = granted.iter().filter(|tree| access > tree.access).collect();
    let named = named_folders(arguments, &readable);
    if named.is_empty() {
        return vec![(kind(access), folder.written.clone())];
    }
    named.into_iter().map(|tree| (kind(access), written(tree, folder))).collect()
}

/// Returns the folder below `base` that contains all files and folders that the arguments name, relative to `base`. Returns
/// `None` if the arguments name none, or name some that are directly in `base` or outside of it.
pub(super) fn folder_of_call(arguments: &Value, base: &Path) -> Option<PathBuf> {
    let canonical = |path: &Path| {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        std::fs::canonicalize(path).ok()
    };
    let top = canonical(base)?;
    let mut folders = texts(arguments).into_iter().filter_map(|text| {
        let named = Path::new(text);
        let parent = named.parent().filter(|_| named.is_relative())?;
        // A text that names nothing is not a path.
        let folder = canonical(&base.join(parent)).filter(|folder| folder.is_dir())?;
        let may_be_new = !parent.as_os_str().is_empty() && !text.contains(char::is_whitespace);
        let is_path = may_be_new || base.join(named).exists();
        is_path.then_some(folder)
    });
    let first = folders.next()?;
    let below = first.strip_prefix(&top).ok().filter(|below| !below.as_os_str().is_empty())?;
    folders.all(|folder| folder == first).then(|| below.to_owned())
}

/// Returns all texts in the arguments, at any depth.
fn texts(arguments: &Value) -> Vec<&str> {
    match arguments {
        Value::String(text) => vec![text],
        Value::Array(values) => values.iter().flat_map(texts).collect(),
        Value::Object(values) => values.values().flat_map(texts).collect(),
        _ => Vec::new(),
    }
}

fn written(tree: &TreeGrant, folder: &OfferedFolder) -> String {
    match folder.base.join(&tree.guest) == tree.host {
        true => tree.guest.clone(),
        false => std::path::absolute(&tree.host).unwrap_or_else(|_| tree.host.clone()).to_string_lossy().into_owned(),
    }
}

/// Returns the innermost folder of each text in the arguments that is a path in one of the folders. A text counts as a path if it has
/// no white space, and if it or the folder around it exists.
fn named_folders<'t>(arguments: &Value, folders: &[&'t TreeGrant]) -> Vec<&'t TreeGrant> {
    let exists = |path: &Path| path.exists() || path.parent().is_some_and(Path::is_dir);
    let mut named = Vec::new();
    for text in texts(arguments).into_iter().filter(|text| !text.contains(char::is_whitespace)) {
        let around = folders.iter().filter(|tree| is_within(text, &tree.guest));
        let innermost = around.max_by_key(|tree| tree.guest.len());
        let is_path = |tree: &&&'t TreeGrant| tree.path_on_host(text).is_some_and(|path| exists(&path));
        if let Some(tree) = innermost.filter(is_path).filter(|tree| !named.contains(*tree)) {
            named.push(*tree);
        }
    }
    named
}

/// Whether a path is written as one in a folder. The folder `.` does not count, because each text could be such a path, and it is
/// offered anyway.
fn is_within(path: &str, folder: &str) -> bool {
    let parts = |text| Path::new(text).components().filter(|part| *part != Component::CurDir).collect::<Vec<_>>();
    let (path, folder) = (parts(path), parts(folder));
    !folder.is_empty() && path.starts_with(&folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// P6: the folder that a call needs is found only if all of its paths are in it.
    #[cfg(unix)]
    #[test]
    fn p6_finds_the_folder_of_a_call() {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let base = directory.path();
        std::fs::create_dir_all(base.join("docs/old")).expect("created");
        std::fs::create_dir(base.join("src")).expect("created");
        std::fs::write(base.join("a.md"), "").expect("written");
        std::fs::write(base.join("docs/b.md"), "").expect("written");
        std::os::unix::fs::symlink("/", base.join("outside")).expect("linked");
        let found = |arguments: Value| folder_of_call(&arguments, base).map(|path| path.to_string_lossy().into_owned());
        assert_eq!(found(json!({"path": "docs/b.md"})).as_deref(), Some("docs"));
        assert_eq!(
            found(json!({"path": "docs/old/new.md", "text": "src/a.rs is\nmissing"})).as_deref(),
            Some("docs/old")
        );
        assert_eq!(found(json!([{"path": "docs/b.md"}, {"path": "./docs/c.md"}])).as_deref(), Some("docs"));
        let others = [
            json!({"path": "a.md"}),
            json!([{"path": "docs/b.md"}, {"path": "a.md"}]),
            json!([{"path": "docs/b.md"}, {"path": "docs/old/c.md"}]),
            json!({"path": "../elsewhere"}),
            json!({"path": "outside/etc"}),
            json!({"path": "/etc/passwd"}),
            json!({"query": "words"}),
            json!(null),
        ];
        for arguments in others {
            assert_eq!(found(arguments.clone()), None, "{arguments}");
        }
    }
}
