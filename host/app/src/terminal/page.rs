//! What stands on the terminal so far: an empty line comes between blocks of different kinds.

use super::{Output, Terminal};
use std::io;

/// A kind of what is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Block {
    /// What the person typed.
    Prompt,
    /// The model's thinking.
    Thinking,
    /// The model's words.
    Words,
    /// Calls of tools.
    Calls,
    /// What the host has to say.
    Note,
}

/// How blocks are set apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spacing {
    /// By empty lines.
    Wide,
    /// Not at all.
    Narrow,
}

/// The page of one session.
#[derive(Debug)]
pub(super) struct Page<'t> {
    terminal: &'t Terminal,
    spacing: Spacing,
    last: Option<Block>,
}

impl<'t> Page<'t> {
    /// An empty one.
    pub(super) fn new(terminal: &'t Terminal, spacing: Spacing) -> Self {
        Self { terminal, spacing, last: None }
    }

    /// The person has typed something.
    pub(super) fn prompted(&mut self) {
        self.last = Some(Block::Prompt);
    }

    /// Lines of a block, on stderr.
    pub(super) fn note(&mut self, block: Block, lines: impl AsRef<str>) {
        self.begin(block);
        self.terminal.note(lines);
    }

    /// A piece of a block, which goes on where the last piece has ended.
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
