//! Shows a reply while it is streamed (L21). The model's thinking is shown as dimmed text, and the reply is rendered as
//! Markdown. Text that was already shown is never redrawn.

use super::flow::{Flow, Prefix};
use super::markdown::{Markdown, Rendering};
use super::page::{Block, Page};
use super::{DIM, Output, Terminal, text};
use anstyle::Style;
use std::io;

/// Writer for one reply of the model, which is shown while it is streamed.
#[derive(Debug)]
pub(super) struct Reply<'t> {
    terminal: &'t Terminal,
    markdown: Markdown,
    thinking: Option<Thinking>,
    /// The part of the reply's text that was received so far.
    received: String,
    completeness: Completeness,
    on_screen: ScreenOutput,
}

/// Whether all streamed pieces of the reply were received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Completeness {
    All,
    NotAll,
}

/// Whether any part of a reply is on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScreenOutput {
    /// A part of the reply is on the screen.
    Something,
    /// None of the reply is on the screen.
    Nothing,
}

impl<'t> Reply<'t> {
    /// Creates a writer for a reply that has not started.
    pub(super) fn new(terminal: &'t Terminal) -> Self {
        let markdown = Markdown::new(terminal.rendering(Output::Stdout), terminal.width());
        Self {
            terminal,
            markdown,
            thinking: None,
            received: String::new(),
            completeness: Completeness::All,
            on_screen: ScreenOutput::Nothing,
        }
    }

    /// Shows a piece of the model's thinking.
    pub(super) fn think(&mut self, piece: &str, page: &mut Page<'_>) -> io::Result<()> {
        let mut shown = String::new();
        let thinking = self.thinking.get_or_insert_with(|| {
            let thinking = Thinking::new(self.terminal.rendering(Output::Stderr), self.terminal.width());
            shown = thinking.heading();
            thinking
        });
        shown.push_str(&thinking.push(piece, self.terminal.width()));
        self.on_screen = ScreenOutput::Something;
        page.stream(Block::Thinking, &shown)
    }

    /// Ends the output of the model's thinking, if any thinking was shown.
    pub(super) fn end_thinking(&mut self, page: &mut Page<'_>) -> io::Result<()> {
        match self.thinking.take() {
            Some(mut thinking) => page.stream(Block::Thinking, &thinking.finish()),
            None => Ok(()),
        }
    }

    /// Shows a piece of the reply's text, unless earlier pieces were missed.
    pub(super) fn write(&mut self, piece: &str, page: &mut Page<'_>) -> io::Result<()> {
        if self.completeness == Completeness::NotAll {
            return Ok(());
        }
        self.end_thinking(page)?;
        self.received.push_str(piece);
        self.markdown.resize(self.terminal.width());
        let shown = self.markdown.push(piece);
        self.show(&shown, page)?;
        if self.markdown.holds_table() {
            self.terminal.busy("writing a table");
        }
        Ok(())
    }

    /// Records that pieces of the streamed reply were missed. The remaining text is shown when the complete
    /// reply arrives.
    pub(super) fn note_missed_pieces(&mut self) {
        self.completeness = Completeness::NotAll;
    }

    /// Shows the part of the complete reply `whole` that is not shown yet.
    pub(super) fn complete(&mut self, whole: &str, page: &mut Page<'_>) -> io::Result<()> {
        self.completeness = Completeness::All;
        let received = std::mem::take(&mut self.received);
        match whole.strip_prefix(received.as_str()) {
            Some(rest) => self.write(rest, page)?,
            // The complete reply differs from the streamed text, so the complete reply is shown below the
            // streamed text.
            None => {
                self.stop(page)?;
                self.write(whole, page)?;
            }
        }
        self.stop(page)?;
        self.on_screen = ScreenOutput::Nothing;
        Ok(())
    }

    /// Discards the unfinished reply, and returns whether any of it is on the screen.
    pub(super) fn discard(&mut self, page: &mut Page<'_>) -> io::Result<ScreenOutput> {
        self.end_thinking(page)?;
        // Discard the text that the Markdown renderer still holds back.
        let _ = self.markdown.finish();
        (self.completeness, self.received) = (Completeness::All, String::new());
        Ok(std::mem::replace(&mut self.on_screen, ScreenOutput::Nothing))
    }

    fn stop(&mut self, page: &mut Page<'_>) -> io::Result<()> {
        self.end_thinking(page)?;
        let shown = self.markdown.finish();
        self.show(&shown, page)?;
        self.received.clear();
        Ok(())
    }

    fn show(&mut self, shown: &str, page: &mut Page<'_>) -> io::Result<()> {
        if !shown.is_empty() {
            self.on_screen = ScreenOutput::Something;
        }
        page.stream(Block::Words, shown)
    }
}

/// Formats the model's thinking as dimmed text, indented below a heading.
#[derive(Debug)]
struct Thinking {
    style: Style,
    flow: Flow,
    position: Position,
}

/// Position of the writer in the thinking text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    /// The first word of the thinking has not been written yet.
    Top,
    LineStart,
    WithinLine,
}

impl Thinking {
    fn new(rendering: Rendering, width: usize) -> Self {
        let style = if rendering == Rendering::Styled { DIM } else { Style::new() };
        Self { style, flow: Flow::new(width), position: Position::Top }
    }

    fn heading(&self) -> String {
        let style = self.style;
        format!("{style}thinking{style:#}\n")
    }

    fn push(&mut self, piece: &str, width: usize) -> String {
        self.flow.resize(width);
        for part in piece.split_inclusive('\n') {
            let words = part.trim_end_matches(['\r', '\n']);
            if !words.is_empty() {
                if self.position != Position::WithinLine {
                    self.flow.begin(&Prefix::spaces(2), Prefix::spaces(2));
                    self.position = Position::WithinLine;
                }
                self.flow.put(self.style, &text::harmless(words));
            }
            // Empty lines before the first word are skipped.
            if part.ends_with('\n') && self.position != Position::Top {
                self.flow.end_line();
                self.position = Position::LineStart;
            }
        }
        self.flow.take()
    }

    fn finish(&mut self) -> String {
        if self.position == Position::WithinLine {
            self.flow.end_line();
            self.position = Position::LineStart;
        }
        self.flow.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l21_wraps_thinking_below_its_heading() {
        let mut thinking = Thinking::new(Rendering::Plain, 24);
        let mut shown = thinking.heading();
        for piece in ["\n", "Let me ", "see what the fil", "e says.\n\nThe", "n count\u{1b}[2J."] {
            shown.push_str(&thinking.push(piece, 24));
        }
        shown.push_str(&thinking.finish());
        assert_eq!(shown, "thinking\n  Let me see what the\n  file says.\n\n  Then count\\u{1b}[2J.\n");
        assert_eq!(thinking.finish(), "");
    }
}
