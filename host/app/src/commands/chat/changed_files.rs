//! `/diff`: shows which files the calls of plugins have changed in this session.

use super::Chat;
use crate::terminal::{BOLD, DIM, GREEN, RED, text};
use agent_devkit::unified_diff;
use agent_runtime::FileChange;
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

    /// Returns the differences as lines for a terminal of this width. Returns `None` if there are none.
    fn diff(&self, shown: Shown, folder: &Path, width: usize) -> Option<String> {
        let files = match shown {
            Shown::LastTurn => &self.last_turn,
            Shown::AllTurns => &self.all_turns,
        };
        let mut lines = Vec::new();
        for (path, Contents { old, new }) in files.iter().filter(|(_, file)| file.old.as_ref() != Some(&file.new)) {
            let name = path.strip_prefix(folder).unwrap_or(path).display().to_string();
            let what = if old.is_none() { " (new)" } else { "" };
            lines.push(format!("{BOLD}{}{BOLD:#}{what}", text::cut(&name, width.saturating_sub(what.len()))));
            let diff = unified_diff(("before", "after"), old.as_deref().unwrap_or_default(), new);
            // The first two lines are the header, which only repeats the names.
            lines.extend(diff.lines().skip(2).map(|line| coloured(line, width)));
        }
        let omitted = lines.len().saturating_sub(MAX_LINES);
        if omitted > 0 {
            lines.truncate(MAX_LINES);
            lines.push(format!("{DIM}… {}{DIM:#}", text::count(omitted, "more line")));
        }
        (!lines.is_empty()).then(|| lines.join("\n"))
    }
}

fn coloured(line: &str, width: usize) -> String {
    let shown = text::cut(line, width);
    match line.as_bytes().first() {
        Some(b'+') => format!("{GREEN}{shown}{GREEN:#}"),
        Some(b'-') => format!("{RED}{shown}{RED:#}"),
        Some(b'@' | b'\\') => format!("{DIM}{shown}{DIM:#}"),
        _ => shown,
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
        match self.changed_files.diff(shown, &folder, self.terminal.width()) {
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
            let diff = files.diff(shown, Path::new("/w"), 40).expect("changes");
            anstream::adapter::strip_str(&diff).to_string()
        };
        assert_eq!(shown(Shown::LastTurn), "a.txt\n@@ -1,2 +1,2 @@\n-one\n+1\n 2");
        let all = "a.txt\n@@ -1,2 +1,2 @@\n-one\n-two\n+1\n+2\nb.txt (new)\n@@ -0,0 +1 @@\n+new";
        assert_eq!(shown(Shown::AllTurns), all);
        assert_eq!(ChangedFiles::default().diff(Shown::AllTurns, Path::new("/w"), 40), None);
    }

    #[test]
    fn i1_long_differences_are_shortened() {
        let mut files = ChangedFiles::default();
        files.add(vec![change("/w/a.txt", None, &"x".repeat(100)), change("/w/b.txt", None, &"line\n".repeat(900))]);
        let diff = files.diff(Shown::LastTurn, Path::new("/w"), 40).expect("changes");
        let diff = anstream::adapter::strip_str(&diff).to_string();
        assert!(diff.contains(&format!("\n+{}…\n", "x".repeat(38))) && diff.ends_with("more lines"), "{diff}");
        assert_eq!(diff.lines().count(), MAX_LINES + 1);
    }
}
