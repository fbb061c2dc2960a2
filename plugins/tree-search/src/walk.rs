//! Visits the entries of a directory tree up to a maximum depth, in the order of their names. Links are visited but not
//! followed. If the target of a link is in the same tree, the walk visits the target at its own path.

use crate::ignore_rules::{GIT, IgnoreRules, Rule, SpecialNames};
use agent_host_sdk::prelude::*;
use agent_host_sdk::trees;
use std::cmp::Reverse;
use std::fs;
use std::path::{Path, PathBuf};

/// Maximum number of entries of one directory that are visited, so that a directory with very many entries cannot fill
/// the memory.
const MAX_DIRECTORY: usize = 20_000;

/// The type of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A pipe, a device or another special file.
    Other,
}

/// Whether tools that look for files should leave an entry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// The entry is neither ignored nor hidden.
    Visible,
    /// The entry is named `.git`.
    Git,
    /// A rule of an ignore file excludes the entry.
    Ignored,
    /// The name of the entry begins with a dot, and no rule of an ignore file includes the entry.
    Hidden,
}

/// An entry of a directory tree.
pub struct Entry {
    /// The path to pass to `std::fs`.
    pub path: PathBuf,
    /// The path relative to the directory in which the walk started, with `/` as the separator.
    pub name: String,
    /// The type of the entry.
    pub kind: Kind,
    /// Whether the entry should be left out.
    pub visibility: Visibility,
}

/// What the walk does after it visited an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Visits the entries of this entry if it is a directory, and then continues with the next entry.
    Enter,
    /// Continues with the next entry.
    Skip,
    /// Ends the walk.
    Stop,
}

/// What a walk could not read.
#[derive(Default)]
pub struct Skipped {
    /// Names of directories that could not be read.
    pub unreadable: Vec<String>,
    /// Names of directories that have more than 20,000 entries and were therefore visited only in part.
    pub truncated: Vec<String>,
    /// Ignore files that could not be used, relative to the granted tree and with the reason.
    pub ignore_files: Vec<String>,
}

/// Visits the entries below `root`. A directory is visited before its entries. `shown` is the path of `root` in the
/// arguments of the call, and is used in error messages.
pub fn walk(root: &Path, shown: &str, depth: u32, mut visit: impl FnMut(&Entry) -> Next) -> Result<Skipped, ToolError> {
    let mut skipped = Skipped::default();
    let (mut rules, prefix) = IgnoreRules::above(root);
    let depth_above = rules.depth();
    let (entries, names) = read_directory(root, "", 1, &mut skipped).map_err(|error| trees::error(shown, &error))?;
    rules.enter(root, &prefix, names);
    let mut pending = entries;
    while let Some((level, mut found)) = pending.pop() {
        // An entry of level 1 is in `root`, whose rules are the first below those of the directories above.
        rules.leave_to(depth_above + level as usize);
        found.visibility = visibility(&rules, &prefix, &found);
        match visit(&found) {
            Next::Stop => break,
            Next::Enter if found.kind == Kind::Directory && level < depth => {}
            Next::Enter | Next::Skip => continue,
        }
        match read_directory(&found.path, &found.name, level + 1, &mut skipped) {
            Ok((inner, names)) => {
                rules.enter(&found.path, &format!("{prefix}{}/", found.name), names);
                pending.extend(inner);
            }
            Err(_) => skipped.unreadable.push(found.name),
        }
    }
    skipped.ignore_files = rules.unusable;
    Ok(skipped)
}

fn visibility(rules: &IgnoreRules, prefix: &str, entry: &Entry) -> Visibility {
    let file_name = entry.name.rsplit('/').next().unwrap_or(&entry.name);
    if file_name == GIT {
        return Visibility::Git;
    }
    match rules.rule(&format!("{prefix}{}", entry.name), entry.kind == Kind::Directory) {
        Rule::Excluded => Visibility::Ignored,
        Rule::None if file_name.starts_with('.') => Visibility::Hidden,
        Rule::None | Rule::Included => Visibility::Visible,
    }
}

/// An entry and its level. The entries of the directory in which the walk started have level 1.
type Pending = (u32, Entry);

/// Reads the entries of one directory. The entries are sorted in reverse order, so that `pop` returns the first
/// name first.
fn read_directory(
    path: &Path,
    prefix: &str,
    level: u32,
    skipped: &mut Skipped,
) -> std::io::Result<(Vec<Pending>, SpecialNames)> {
    let (mut entries, mut names) = (Vec::new(), SpecialNames::default());
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let file_name = entry.file_name().to_string_lossy().into_owned();
        names.note(&file_name);
        if entries.len() == MAX_DIRECTORY {
            skipped.truncated.push(if prefix.is_empty() { ".".to_owned() } else { prefix.to_owned() });
            break;
        }
        let name = if prefix.is_empty() { file_name } else { format!("{prefix}/{file_name}") };
        let kind = match entry.file_type()? {
            kind if kind.is_symlink() => Kind::Link,
            kind if kind.is_dir() => Kind::Directory,
            kind if kind.is_file() => Kind::File,
            _ => Kind::Other,
        };
        entries.push((level, Entry { path: entry.path(), name, kind, visibility: Visibility::Visible }));
    }
    entries.sort_by(|left, right| Reverse(&left.1.name).cmp(&Reverse(&right.1.name)));
    Ok((entries, names))
}
