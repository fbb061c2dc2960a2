//! Spacing of the output: writes an empty line between blocks of different kinds.

use super::{Output, Terminal};
use std::io;

/// Kind of a block of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Block {
    /// A prompt that the user typed.
    Prompt,
    /// The model's thinking.
    Thinking,
    /// The model's reply.
    Words,
    /// Tool calls and their results.
    Calls,
    /// Messages of the host.
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

/// The output of one session.
#[derive(Debug)]
pub(super) struct Page<'t> {
    terminal: &'t Terminal,
    spacing: Spacing,
    /// Kind of the last block. None if nothing was written yet.
    last: Option<Block>,
}

impl<'t> Page<'t> {
    /// Creates an empty page.
    pub(super) fn new(terminal: &'t Terminal, spacing: Spacing) -> Self {
        Self { terminal, spacing, last: None }
    }

    /// Records that the user has typed a prompt.
    pub(super) fn prompted(&mut self) {
        self.last = Some(Block::Prompt);
    }

    /// Writes lines of a block to stderr.
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
