//! Spacing of the output: writes an empty line between blocks of different kinds.

use super::{Output, Terminal};
use std::io;

/// A block of output. The variants differ in the origin of the text in the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Block {
    /// A prompt that the user typed.
    Prompt,
    /// The model's thinking, which is written to stderr.
    Thinking,
    /// The text of the model's reply, which is written to stdout.
    Words,
    /// Tool calls and the results of these calls.
    Calls,
    /// Messages from the host, such as a notice about a retry, or the cost of a turn.
    Note,
}

/// Whether empty lines separate blocks of different kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spacing {
    /// An empty line is written between blocks.
    Wide,
    /// No empty lines are written between blocks.
    Narrow,
}

/// Writer for the output of one session, which separates blocks of different kinds.
#[derive(Debug)]
pub(super) struct Page<'t> {
    terminal: &'t Terminal,
    spacing: Spacing,
    /// Kind of the block that was written last. None if nothing has been written yet.
    last: Option<Block>,
}

impl<'t> Page<'t> {
    /// Creates a page to which nothing has been written yet.
    pub(super) fn new(terminal: &'t Terminal, spacing: Spacing) -> Self {
        Self { terminal, spacing, last: None }
    }

    /// Records that the user has typed a prompt.
    pub(super) fn prompted(&mut self) {
        self.last = Some(Block::Prompt);
    }

    /// Writes complete lines of a block to stderr.
    pub(super) fn note(&mut self, block: Block, lines: impl AsRef<str>) {
        self.begin(block);
        self.terminal.note(lines);
    }

    /// Writes a piece of a block. The piece continues where the previous piece of the block ended. The model's reply
    /// goes to stdout, and all other blocks go to stderr.
    pub(super) fn stream(&mut self, block: Block, piece: &str) -> io::Result<()> {
        if piece.is_empty() {
            return Ok(());
        }
        self.begin(block);
        let output = if block == Block::Words { Output::Stdout } else { Output::Stderr };
        self.terminal.stream(output, piece)
    }

    fn begin(&mut self, block: Block) {
        if self.last.replace(block).is_some_and(|last| last != block) && self.spacing == Spacing::Wide {
            self.terminal.note("");
        }
    }
}
