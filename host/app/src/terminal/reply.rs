//! A reply while it is being written (L21): thinking dimmed, words as Markdown, both only ever added to.

use super::flow::{Flow, Prefix};
use super::markdown::{Look, Markdown};
use super::page::{Block, Page};
use super::{DIM, Output, Terminal, text};
use anstyle::Style;
use std::io;

/// One reply.
#[derive(Debug)]
pub(super) struct Reply<'t> {
    terminal: &'t Terminal,
    markdown: Markdown,
    thinking: Option<Thinking>,
    /// Its words so far.
    said: String,
    heard: Heard,
    /// Whether any of it can be seen.
    seen: Seen,
}

/// Whether pieces of the words were missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    All,
    NotAll,
}

/// Whether a reply has left anything on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// It has.
    Something,
    /// It has not.
    Nothing,
}

impl<'t> Reply<'t> {
    /// Nothing yet.
    pub(super) fn new(terminal: &'t Terminal) -> Self {
        let markdown = Markdown::new(terminal.look(Output::Stdout), terminal.width());
        Self { terminal, markdown, thinking: None, said: String::new(), heard: Heard::All, seen: Seen::Nothing }
    }

    /// A piece of its thinking.
    pub(super) fn think(&mut self, piece: &str, page: &mut Page<'_>) -> io::Result<()> {
        let mut shown = String::new();
        let thinking = self.thinking.get_or_insert_with(|| {
            let thinking = Thinking::new(self.terminal.look(Output::Stderr), self.terminal.width());
            shown = thinking.head();
            thinking
        });
        shown.push_str(&thinking.push(piece, self.terminal.width()));
        self.seen = Seen::Something;
        page.stream(Block::Thinking, &shown)
    }

    /// It has thought.
    pub(super) fn end_thinking(&mut self, page: &mut Page<'_>) -> io::Result<()> {
        match self.thinking.take() {
            Some(mut thinking) => page.stream(Block::Thinking, &thinking.finish()),
            None => Ok(()),
        }
    }

    /// A piece of its words.
    pub(super) fn say(&mut self, piece: &str, page: &mut Page<'_>) -> io::Result<()> {
        if self.heard == Heard::NotAll {
            return Ok(());
        }
        self.end_thinking(page)?;
        self.said.push_str(piece);
        self.markdown.resize(self.terminal.width());
        let shown = self.markdown.push(piece);
        self.show(&shown, page)?;
        if self.markdown.holds_table() {
            self.terminal.busy("writing a table");
        }
        Ok(())
    }

    /// Pieces were missed: the rest follows when the reply is whole.
    pub(super) fn miss(&mut self) {
        self.heard = Heard::NotAll;
    }

    /// It is whole, and this is its text.
    pub(super) fn complete(&mut self, whole: &str, page: &mut Page<'_>) -> io::Result<()> {
        self.heard = Heard::All;
        let said = std::mem::take(&mut self.said);
        match whole.strip_prefix(said.as_str()) {
            Some(rest) => self.say(rest, page)?,
            // The provider has set right what it had streamed.
            None => {
                self.stop(page)?;
                self.say(whole, page)?;
            }
        }
        self.stop(page)?;
        self.seen = Seen::Nothing;
        Ok(())
    }

    /// It stops here, and is void. Says whether anything of it is seen.
    pub(super) fn void(&mut self, page: &mut Page<'_>) -> io::Result<Seen> {
        self.end_thinking(page)?;
        // What was held back need not be seen any more.
        let _ = self.markdown.finish();
        (self.heard, self.said) = (Heard::All, String::new());
        Ok(std::mem::replace(&mut self.seen, Seen::Nothing))
    }

    fn stop(&mut self, page: &mut Page<'_>) -> io::Result<()> {
        self.end_thinking(page)?;
        let shown = self.markdown.finish();
        self.show(&shown, page)?;
        self.said.clear();
        Ok(())
    }

    fn show(&mut self, shown: &str, page: &mut Page<'_>) -> io::Result<()> {
        if !shown.is_empty() {
            self.seen = Seen::Something;
        }
        page.stream(Block::Words, shown)
    }
}

/// Thinking: dimmed words, indented below a head line.
#[derive(Debug)]
struct Thinking {
    style: Style,
    flow: Flow,
    place: Place,
}

/// Where in a line of thinking the writer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Top,
    Start,
    Within,
}

impl Thinking {
    fn new(look: Look, width: usize) -> Self {
        let style = if look == Look::Styled { DIM } else { Style::new() };
        Self { style, flow: Flow::new(width), place: Place::Top }
    }

    fn head(&self) -> String {
        let style = self.style;
        format!("{style}thinking{style:#}\n")
    }

    fn push(&mut self, piece: &str, width: usize) -> String {
        self.flow.resize(width);
        for part in piece.split_inclusive('\n') {
            let words = part.trim_end_matches(['\r', '\n']);
            if !words.is_empty() {
                if self.place != Place::Within {
                    self.flow.begin(&Prefix::spaces(2), Prefix::spaces(2));
                    self.place = Place::Within;
                }
                self.flow.put(self.style, &text::harmless(words));
            }
            // Empty lines before the first word say nothing.
            if part.ends_with('\n') && self.place != Place::Top {
                self.flow.end_line();
                self.place = Place::Start;
            }
        }
        self.flow.take()
    }

    fn finish(&mut self) -> String {
        if self.place == Place::Within {
            self.flow.end_line();
            self.place = Place::Start;
        }
        self.flow.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// L21
    #[test]
    fn thinking_is_wrapped_below_its_head() {
        let mut thinking = Thinking::new(Look::Plain, 24);
        let mut shown = thinking.head();
        for piece in ["\n", "Let me ", "see what the fil", "e says.\n\nThe", "n count\u{1b}[2J."] {
            shown.push_str(&thinking.push(piece, 24));
        }
        shown.push_str(&thinking.finish());
        assert_eq!(shown, "thinking\n  Let me see what the\n  file says.\n\n  Then count\\u{1b}[2J.\n");
        assert_eq!(thinking.finish(), "");
    }
}
