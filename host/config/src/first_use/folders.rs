//! Decides to which folders a question offers access.

use super::offers::OfferedFolder;
use crate::grants::Kind;
use agent_plugins::{Access, TreeGrant};
use serde_json::Value;
use std::path::{Component, Path};

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
/// A plugin that may only read some folders gets to change these, and no others: writing in a folder around them would not help,
/// because the innermost grant decides about a path. If the arguments name a path in one of the folders, only this folder is
/// offered.
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
    if readable.is_empty() {
        return vec![(kind(access), folder.written.clone())];
    }
    let mut named = Vec::new();
    add_named_folders(arguments, &readable, &mut named);
    let chosen = if named.is_empty() { readable } else { named };
    chosen.into_iter().map(|tree| (kind(access), written(tree, folder))).collect()
}

fn written(tree: &TreeGrant, folder: &OfferedFolder) -> String {
    match folder.base.join(&tree.guest) == tree.host {
        true => tree.guest.clone(),
        false => std::path::absolute(&tree.host).unwrap_or_else(|_| tree.host.clone()).to_string_lossy().into_owned(),
    }
}

/// Adds the innermost folder of each text in the arguments that is a path in one of the folders.
fn add_named_folders<'t>(arguments: &Value, folders: &[&'t TreeGrant], named: &mut Vec<&'t TreeGrant>) {
    match arguments {
        Value::String(text) => {
            let innermost =
                folders.iter().filter(|tree| is_within(text, &tree.guest)).max_by_key(|tree| tree.guest.len());
            if let Some(tree) = innermost.filter(|tree| !named.contains(tree)) {
                named.push(tree);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| add_named_folders(value, folders, named)),
        Value::Object(values) => values.values().for_each(|value| add_named_folders(value, folders, named)),
        _ => {}
    }
}

/// Whether a path is written as one in a folder. The folder `.` does not count, because each text could be such a path.
fn is_within(path: &str, folder: &str) -> bool {
    let parts = |text| Path::new(text).components().filter(|part| *part != Component::CurDir).collect::<Vec<_>>();
    let (path, folder) = (parts(path), parts(folder));
    !folder.is_empty() && path.starts_with(&folder)
}
