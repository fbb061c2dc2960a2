//! The result of a search: the lines that were found, and a last line that says what was found and what was left out.

use super::LeftOut;
use std::collections::BTreeMap;
use std::fmt::{Arguments, Write};

/// The result of a search so far.
#[derive(Default)]
pub(super) struct Report {
    text: String,
    matches: u32,
    /// Number of files whose text was searched.
    searched: usize,
    /// Number of files with at least one match.
    files_with_matches: usize,
    /// Whether the current file has a match.
    current_file_matches: bool,
    /// For each reason, the number of entries that were left out, and the name of the first of these entries.
    left_out: BTreeMap<LeftOut, (usize, String)>,
    /// Why the search ended before all files were searched, or `None` if all files were searched.
    ended: Option<String>,
}

impl Report {
    pub(super) fn begin_file(&mut self) {
        self.searched += 1;
        self.current_file_matches = false;
    }

    pub(super) fn add_match(&mut self) {
        self.matches += 1;
        if !self.current_file_matches {
            self.files_with_matches += 1;
        }
        self.current_file_matches = true;
    }

    pub(super) fn matches(&self) -> u32 {
        self.matches
    }

    /// The size of the result so far, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.text.len()
    }

    pub(super) fn add_line(&mut self, line: Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{line}");
    }

    /// Separates the lines that follow from the lines before, because they do not follow each other in the file.
    pub(super) fn separate(&mut self) {
        if !self.text.is_empty() {
            self.text.push_str("--\n");
        }
    }

    pub(super) fn leave_out(&mut self, reason: LeftOut, name: &str) {
        self.left_out.entry(reason).or_insert_with(|| (0, name.to_owned())).0 += 1;
    }

    pub(super) fn end(&mut self, message: String) {
        self.ended = Some(message);
    }

    pub(super) fn finish(mut self) -> String {
        let (found, searched) = (counted(self.files_with_matches, "file"), counted(self.searched, "file"));
        let mut last = format!(
            "[{} in {found}; searched {searched}",
            match self.matches {
                1 => "1 match".to_owned(),
                matches => format!("{matches} matches"),
            }
        );
        for (position, (reason, (count, first))) in self.left_out.iter().enumerate() {
            let separator = if position == 0 { "; left out " } else { ", " };
            let _ = write!(last, "{separator}{} (such as `{first}`)", reason.describe(*count));
        }
        if let Some(ended) = &self.ended {
            let _ = write!(last, "; {ended}");
        }
        last.push(']');
        self.text.push_str(&last);
        self.text
    }
}

impl LeftOut {
    fn describe(self, count: usize) -> String {
        let (one, many) = match self {
            Self::Ignored => ("ignored entry", "ignored entries"),
            Self::Hidden => ("hidden entry", "hidden entries"),
            Self::Binary => ("binary file", "binary files"),
            Self::NotUtf8 => ("file that is not UTF-8 text", "files that are not UTF-8 text"),
            Self::Large => ("file over 4 MiB", "files over 4 MiB"),
            Self::Unreadable => ("unreadable file", "unreadable files"),
            Self::Directory => {
                ("directory that could not be read completely", "directories that could not be read completely")
            }
            Self::IgnoreFile => ("unusable ignore file", "unusable ignore files"),
        };
        format!("{count} {}", if count == 1 { one } else { many })
    }
}

fn counted(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}
