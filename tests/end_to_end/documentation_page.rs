//! Parses a Markdown page into the files that it shows and the commands that a reader types.

use crate::support::repository;

/// A code block of a Markdown page.
#[derive(Debug)]
pub(crate) struct Block {
    /// The text of the last heading before the block.
    pub(crate) section: String,
    /// The text after the block's opening fence, such as `rust`.
    pub(crate) language: String,
    pub(crate) text: String,
    /// The last file name in the paragraph before the block. `None` if the paragraph contains no file name.
    pub(crate) file: Option<String>,
}

/// A command in a code block, and the output that the block shows for the command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TypedCommand {
    pub(crate) command: String,
    pub(crate) prints: String,
}

/// The file name extensions by which a file name in a paragraph is recognised.
const FILE_EXTENSIONS: [&str; 8] = [".toml", ".rs", ".wit", ".py", ".js", ".ts", ".c", ".h"];

/// Reads a page of this repository.
pub(crate) fn page(path: &str) -> String {
    std::fs::read_to_string(repository().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns all code blocks of a page, in order.
pub(crate) fn blocks(page: &str) -> Vec<Block> {
    let (mut found, mut section, mut paragraph) = (Vec::new(), String::new(), String::new());
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let inside: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            let block = Block {
                section: section.clone(),
                language: language.to_owned(),
                text: inside.join("\n") + "\n",
                file: last_named_file(&paragraph),
            };
            found.push(block);
            // Only the paragraph directly before a block can name the block's file, so the next block starts without
            // a paragraph.
            paragraph.clear();
        } else if line.starts_with('#') {
            section = line.trim_start_matches('#').trim().to_owned();
            paragraph.clear();
        } else if line.is_empty() && lines.clone().next().is_none_or(|next| !next.starts_with("```")) {
            paragraph.clear();
        } else {
            paragraph.push_str(line);
            paragraph.push(' ');
        }
    }
    found
}

/// Returns the last of the file names that are in backticks in this paragraph.
fn last_named_file(paragraph: &str) -> Option<String> {
    let spans = paragraph.split('`').skip(1).step_by(2);
    spans
        .filter(|span| FILE_EXTENSIONS.iter().any(|ending| span.ends_with(ending)) && !span.contains(' '))
        .last()
        .map(str::to_owned)
}

impl Block {
    /// Returns the commands of the block. If no line starts with the prompt `$`, every line is a command.
    pub(crate) fn typed(&self) -> Vec<TypedCommand> {
        let has_prompts = self.text.lines().any(|line| line.starts_with("$ "));
        let mut typed: Vec<TypedCommand> = Vec::new();
        for line in self.text.lines() {
            let command = if has_prompts { line.strip_prefix("$ ") } else { Some(line) };
            match (command, typed.last_mut()) {
                (Some(command), _) => typed.push(TypedCommand { command: command.to_owned(), prints: String::new() }),
                (None, Some(before)) => before.prints.push_str(&format!("{line}\n")),
                (None, None) => panic!("no command prints `{line}`"),
            }
        }
        typed
    }
}

#[test]
fn reads_blocks_files_and_commands_of_a_page() {
    let page = "# One\n\nThe file `a.toml` is no `b.rs file`.\n\nSee `c.rs`, then `src/d.rs`:\n\n```rust\nx\n```\n\n```console\n$ one 'a b'\n1\n2\n$ two\n```\n## Two\n```\nthree\n```\n";
    let found = blocks(page);
    let seen: Vec<_> =
        found.iter().map(|block| (block.section.as_str(), block.language.as_str(), block.file.as_deref())).collect();
    assert_eq!(seen, [("One", "rust", Some("src/d.rs")), ("One", "console", None), ("Two", "", None)]);
    let typed = |command: &str, prints: &str| TypedCommand { command: command.to_owned(), prints: prints.to_owned() };
    assert_eq!(found[1].typed(), [typed("one 'a b'", "1\n2\n"), typed("two", "")]);
    assert_eq!(found[2].typed(), [typed("three", "")]);
}
