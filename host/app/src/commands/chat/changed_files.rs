//! `/diff`: shows which files the calls of plugins have changed in this session.

use super::Chat;
use crate::terminal::file_changes::{self, Extent};
use crate::terminal::{DIM, text};
use agent_runtime::{FileChange, ProposedChange};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Maximum number of files whose changes are kept.
const MAX_FILES: usize = 256;
/// Maximum number of lines that `/diff` shows.
const MAX_LINES: usize = 500;

/// The turns whose changes `/diff` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// Only the last turn.
    LastTurn,
    /// All turns since this process opened the session.
    AllTurns,
}

/// A text file before its first change and after its last change. `None` means that the file did not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Contents {
    old: Option<String>,
    new: String,
}

/// The files that the turns of an interactive session have changed.
#[derive(Debug, Default)]
pub(super) struct ChangedFiles {
    last_turn: BTreeMap<PathBuf, Contents>,
    all_turns: BTreeMap<PathBuf, Contents>,
}

impl ChangedFiles {
    /// Records that a turn begins.
    pub(super) fn begin_turn(&mut self) {
        self.last_turn.clear();
    }

    /// Adds changes of the current turn, in the order of the calls.
    pub(super) fn add(&mut self, changes: Vec<FileChange>) {
        for FileChange { path, old, new } in changes {
            for files in [&mut self.last_turn, &mut self.all_turns] {
                if let Some(contents) = files.get_mut(&path) {
                    contents.new.clone_from(&new);
                } else if files.len() < MAX_FILES {
                    files.insert(path.clone(), Contents { old: old.clone(), new: new.clone() });
                }
            }
        }
    }

    /// Returns the differences as lines for a terminal. Returns `None` if there are none.
    fn diff(&self, shown: Shown, folder: &Path) -> Option<String> {
        let files = match shown {
            Shown::LastTurn => &self.last_turn,
            Shown::AllTurns => &self.all_turns,
        };
        let changed = files.iter().filter(|(_, file)| file.old.as_ref() != Some(&file.new));
        let changes: Vec<_> = changed
            .map(|(path, Contents { old, new })| ProposedChange {
                path: path.clone(),
                old: old.clone(),
                new: Some(new.clone()),
            })
            .collect();
        let diff = file_changes::changes(&changes, folder, (Extent::All, ""));
        let mut lines: Vec<&str> = diff.lines().collect();
        let omitted = lines.len().saturating_sub(MAX_LINES);
        lines.truncate(MAX_LINES);
        let more = format!("{DIM}… {}{DIM:#}", text::count(omitted, "more line"));
        lines.extend((omitted > 0).then_some(more.as_str()));
        (!lines.is_empty()).then(|| lines.join("\n"))
    }
}

impl Chat<'_> {
    /// Takes the changes that the runtime has reported since the last call of this method.
    pub(super) fn take_file_changes(&mut self) {
        if let Some(changes) = &self.host.file_changes {
            self.changed_files.add(changes.take_all());
        }
    }

    /// Shows the files that the last turn or all turns have changed.
    pub(super) fn show_changed_files(&self, shown: Shown) {
        let folder = std::env::current_dir().unwrap_or_default();
        match self.changed_files.diff(shown, &folder) {
            Some(diff) => self.note(diff),
            None if shown == Shown::LastTurn && !self.changed_files.all_turns.is_empty() => {
                self.hint("the last turn changed no file; /diff all shows the changes of this session");
            }
            None => self.hint(
                "no tool of a plugin has changed a text file here. Files that MCP servers change, and files that are not \
                 named in a call's arguments, are not compared",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(path: &str, old: Option<&str>, new: &str) -> FileChange {
        FileChange { path: PathBuf::from(path), old: old.map(str::to_owned), new: new.to_owned() }
    }

    #[test]
    fn i1_the_changes_of_the_last_turn_and_of_all_turns_are_shown() {
        let mut files = ChangedFiles::default();
        files.add(vec![change("/w/a.txt", Some("one\ntwo\n"), "one\n2\n"), change("/w/b.txt", None, "new\u{1b}\n")]);
        files.begin_turn();
        files.add(vec![change("/w/a.txt", Some("one\n2\n"), "1\n2\n"), change("/w/b.txt", Some("new"), "newer")]);
        files.add(vec![change("/w/b.txt", Some("newer"), "new")]);
        let shown = |shown| {
            let diff = files.diff(shown, Path::new("/w")).expect("changes");
            anstream::adapter::strip_str(&diff).to_string()
        };
        assert_eq!(shown(Shown::LastTurn), "  a.txt  +1 -1\n  - one\n  + 1\n    2");
        let all = "  a.txt  +2 -2\n  - one\n  - two\n  + 1\n  + 2\n  b.txt  new file, +1 -0\n  + new\n    (no newline at the end)";
        assert_eq!(shown(Shown::AllTurns), all);
        assert_eq!(ChangedFiles::default().diff(Shown::AllTurns, Path::new("/w")), None);
    }

    #[test]
    fn i1_long_differences_are_shortened() {
        let mut files = ChangedFiles::default();
        files.add(vec![change("/w/b.txt", None, &"line\n".repeat(900))]);
        let diff = files.diff(Shown::LastTurn, Path::new("/w")).expect("changes");
        let diff = anstream::adapter::strip_str(&diff).to_string();
        assert!(diff.ends_with("… 401 more lines"), "{diff}");
        assert_eq!(diff.lines().count(), MAX_LINES + 1);
    }
}
