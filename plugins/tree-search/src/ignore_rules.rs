//! The rules of the ignore files `.gitignore` and `.ignore` that apply to the entries of a directory.
//!
//! An ignore file applies to its directory and to everything below. If several ignore files have a rule for an entry,
//! the deepest file decides, and within a file the last matching line. Each `.ignore` takes precedence over every
//! `.gitignore`. The `.gitignore` files above a Git repository do not apply within the repository.

use agent_host_sdk::trees;
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

/// The maximum size of an ignore file in bytes. A larger file is not used.
const MAX_SIZE: u64 = 256 * 1024;
const GITIGNORE: &str = ".gitignore";
const IGNORE: &str = ".ignore";
/// The directory of a Git repository, or the file that names this directory.
pub(crate) const GIT: &str = ".git";

/// The ignore files of the directories from the root of the granted tree down to the current directory of a walk.
#[derive(Default)]
pub(crate) struct IgnoreRules {
    levels: Vec<Level>,
    /// The ignore files that could not be used, with the reason.
    pub(crate) unusable: Vec<String>,
}

/// The rules of one directory.
struct Level {
    /// Length of the path of this directory relative to the granted tree, including a final `/`. Zero for the root.
    prefix: usize,
    gitignore: Gitignore,
    ignore: Gitignore,
    is_repository: bool,
}

/// What the ignore files say about an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// No rule applies.
    None,
    /// The last rule excludes the entry.
    Excluded,
    /// The last rule, which begins with `!`, includes the entry.
    Included,
}

/// Which of the special names a directory contains.
#[derive(Clone, Copy, Default)]
pub(crate) struct SpecialNames {
    gitignore: bool,
    ignore: bool,
    git: bool,
}

impl SpecialNames {
    /// Records the name of an entry of the directory.
    pub(crate) fn note(&mut self, name: &str) {
        match name {
            GITIGNORE => self.gitignore = true,
            IGNORE => self.ignore = true,
            GIT => self.git = true,
            _ => {}
        }
    }

    /// The special names that may exist in a directory whose entries are not known.
    fn unknown() -> Self {
        Self { gitignore: true, ignore: true, git: true }
    }
}

impl IgnoreRules {
    /// Reads the ignore files of the directories above `root`, up to the root of the granted tree. Returns the rules,
    /// and the path of `root` relative to the granted tree with a final `/` (or an empty text).
    pub(crate) fn above(root: &Path) -> (Self, String) {
        let mut rules = Self::default();
        let Some((tree, names)) = outermost_tree(root) else {
            return (rules, String::new());
        };
        let (mut directory, mut prefix) = (tree, String::new());
        for name in names {
            rules.enter(&directory, &prefix, SpecialNames::unknown());
            directory.push(&name);
            prefix.push_str(&name);
            prefix.push('/');
        }
        (rules, prefix)
    }

    /// Adds the rules of a directory, which is in the directory that was entered last. `prefix` is the path of the
    /// directory relative to the granted tree, with a final `/`.
    pub(crate) fn enter(&mut self, directory: &Path, prefix: &str, names: SpecialNames) {
        let gitignore = self.read(directory, prefix, GITIGNORE, names.gitignore);
        let ignore = self.read(directory, prefix, IGNORE, names.ignore);
        let is_repository = names.git && fs::symlink_metadata(directory.join(GIT)).is_ok();
        self.levels.push(Level { prefix: prefix.len(), gitignore, ignore, is_repository });
    }

    /// The number of directories that were entered and not left.
    pub(crate) fn depth(&self) -> usize {
        self.levels.len()
    }

    /// Leaves directories until only `depth` directories remain.
    pub(crate) fn leave_to(&mut self, depth: usize) {
        self.levels.truncate(depth);
    }

    /// Returns what the ignore files say about an entry of the directory that was entered last. `path` is relative to
    /// the granted tree.
    pub(crate) fn rule(&self, path: &str, is_directory: bool) -> Rule {
        let (mut by_ignore, mut by_gitignore) = (Match::None, Match::None);
        let mut in_repository = true;
        for level in self.levels.iter().rev() {
            let path = &path[level.prefix..];
            if by_ignore.is_none() {
                by_ignore = level.ignore.matched(path, is_directory);
            }
            if by_gitignore.is_none() && in_repository {
                by_gitignore = level.gitignore.matched(path, is_directory);
            }
            in_repository &= !level.is_repository;
        }
        match by_ignore.or(by_gitignore) {
            Match::None => Rule::None,
            Match::Ignore(_) => Rule::Excluded,
            Match::Whitelist(_) => Rule::Included,
        }
    }

    fn read(&mut self, directory: &Path, prefix: &str, name: &str, may_exist: bool) -> Gitignore {
        if !may_exist {
            return Gitignore::empty();
        }
        let parsed = match read_file(&directory.join(name)) {
            Ok(None) => return Gitignore::empty(),
            Ok(Some(content)) => parse(&content),
            Err(error) => Err(error.to_string()),
        };
        parsed.unwrap_or_else(|reason| {
            self.unusable.push(format!("{prefix}{name}: {reason}"));
            Gitignore::empty()
        })
    }
}

/// Parses an ignore file. Lines that are not valid rules are skipped, as in Git.
fn parse(content: &str) -> Result<Gitignore, String> {
    // The paths that are matched are relative to the directory of the file.
    let mut builder = GitignoreBuilder::new(".");
    for line in content.trim_start_matches('\u{feff}').lines() {
        let _ = builder.add_line(None, line);
    }
    builder.build().map_err(|error| error.to_string())
}

/// Reads an ignore file. Returns `None` if there is no such file. Only regular files are opened.
fn read_file(path: &Path) -> io::Result<Option<String>> {
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => return Ok(None),
        Ok(metadata) if metadata.len() > MAX_SIZE => {
            return Err(io::Error::other(format!("has more than {MAX_SIZE} bytes")));
        }
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
        Ok(_) => {}
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_SIZE).read_to_end(&mut bytes)?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Returns the outermost granted tree that contains `path`, and the names of the directories from this tree to `path`.
fn outermost_tree(path: &Path) -> Option<(PathBuf, Vec<String>)> {
    let without_dots = |path: &Path| path.components().filter(|part| *part != Component::CurDir).collect::<PathBuf>();
    let path = without_dots(path);
    let granted = trees::granted();
    let containing = granted.iter().filter_map(|tree| {
        let inner = path.strip_prefix(without_dots(Path::new(tree))).ok()?;
        let is_same_kind = path.has_root() == Path::new(tree).has_root();
        let names = inner.components().map(|part| part.as_os_str().to_string_lossy().into_owned());
        is_same_kind.then(|| (PathBuf::from(tree), names.collect::<Vec<_>>()))
    });
    containing.max_by_key(|(_, names)| names.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(content: &str, path: &str, is_directory: bool) -> Rule {
        let level = |gitignore| Level { prefix: 0, gitignore, ignore: Gitignore::empty(), is_repository: false };
        let rules = IgnoreRules { levels: vec![level(parse(content).expect("rules"))], unusable: Vec::new() };
        rules.rule(path, is_directory)
    }

    #[test]
    fn lines_have_the_meaning_that_git_gives_them() {
        for (content, path, is_directory, expected) in [
            ("*.log", "deep/a.log", false, Rule::Excluded),
            ("/a.log", "deep/a.log", false, Rule::None),
            ("/a.log", "a.log", false, Rule::Excluded),
            ("deep/a", "other/deep/a", false, Rule::None),
            ("**/deep/a", "other/deep/a", false, Rule::Excluded),
            ("build/", "x/build", true, Rule::Excluded),
            ("build/", "x/build", false, Rule::None),
            ("a/**", "a/b/c", false, Rule::Excluded),
            ("a/*", "a/b", true, Rule::Excluded),
            ("*.log\n!keep.log", "x/keep.log", false, Rule::Included),
            ("!keep.log\n*.log", "keep.log", false, Rule::Excluded),
            ("# comment\n\n", "# comment", false, Rule::None),
            ("\\#name", "#name", false, Rule::Excluded),
            ("\\!name", "!name", false, Rule::Excluded),
            ("name   ", "name", false, Rule::Excluded),
            ("name\\ ", "name ", false, Rule::Excluded),
            ("[ab]?.rs", "ax.rs", false, Rule::Excluded),
            ("foo\r\nbar\r\n", "bar", false, Rule::Excluded),
            ("\u{feff}first", "first", false, Rule::Excluded),
            ("[\nnext", "next", false, Rule::Excluded),
        ] {
            assert_eq!(rule(content, path, is_directory), expected, "{content:?} {path}");
        }
    }
}
