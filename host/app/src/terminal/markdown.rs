//! Markdown for a terminal, written as it streams in: only ever added to, never drawn again. What cannot be decided yet is
//! held back: a word until it ends, a mark until its other end, a line of code until its end, a table until its last row.

mod inline;
mod line;
mod table;
#[cfg(test)]
mod tests;

use crate::terminal::DIM;
use crate::terminal::flow::{Flow, Prefix, write_styled};
use crate::terminal::text;
use anstyle::{AnsiColor, Style};
use inline::{Ending, Inline};
use line::{Fence, Kind, Start};
use table::Table;

/// Code, within a line and in blocks.
const CODE: Style = AnsiColor::Cyan.on_default();
/// Longest rule.
const RULE: usize = 40;
/// Rows after which a table is shown with the columns that it has by then.
const MOST_HELD_ROWS: usize = 200;

/// How it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Marks become styles.
    Styled,
    /// Marks stay; only lines are wrapped, and tables aligned.
    Plain,
}

/// A text in Markdown, of which more may come. Every line that the author ended is a line; only longer ones are wrapped.
#[derive(Debug)]
pub(crate) struct Markdown {
    look: Look,
    flow: Flow,
    /// Of the current line, not read yet.
    held: String,
    state: State,
    /// Whether anything was written, and whether an empty line is owed before what is written next.
    gap: Gap,
    fence: Option<OpenFence>,
    table: Option<Table>,
    /// Column of the words of the last list item: four further, and it is code.
    item: usize,
    /// Whether the line before was empty, or code by its indentation.
    may_be_code: bool,
}

/// Where in a line the reader is.
#[derive(Clone, Copy, Debug)]
enum State {
    /// Within the marks at its beginning, of which so many were `>`.
    Start(usize),
    /// Within its words.
    Words(Inline),
    /// It is read, and shows nothing.
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gap {
    Beginning,
    None,
    Owed,
}

#[derive(Debug)]
struct OpenFence {
    fence: Fence,
    quotes: usize,
    indent: usize,
}

impl Markdown {
    /// For a terminal of so many columns.
    pub(crate) fn new(look: Look, width: usize) -> Self {
        Self {
            look,
            flow: Flow::new(width),
            held: String::new(),
            state: State::Start(0),
            gap: Gap::Beginning,
            fence: None,
            table: None,
            item: 0,
            may_be_code: true,
        }
    }

    /// The terminal has so many columns from now on.
    pub(crate) fn resize(&mut self, width: usize) {
        self.flow.resize(width);
    }

    /// Takes a piece, and returns what is to be written now.
    pub(crate) fn push(&mut self, piece: &str) -> String {
        for part in piece.split_inclusive('\n') {
            let (words, is_over) = part.strip_suffix('\n').map_or((part, false), |words| (words, true));
            self.held.push_str(&text::harmless(&words.replace('\r', "")));
            match is_over {
                true => self.end_line(),
                false => self.read(Ending::Open),
            }
        }
        self.flow.take()
    }

    /// The text is over, or stops here for good: whatever is held is to be written now. The next piece begins anew.
    pub(crate) fn finish(&mut self) -> String {
        if !self.held.is_empty() || matches!(self.state, State::Words(_)) {
            self.end_line();
        }
        self.show_table();
        let out = self.flow.take();
        *self = Self::new(self.look, self.flow.width());
        out
    }

    /// Whether a table waits for its last row.
    pub(crate) fn holds_table(&self) -> bool {
        self.table.as_ref().is_some_and(Table::is_one)
    }

    fn end_line(&mut self) {
        self.read(Ending::Over);
        if matches!(self.state, State::Words(_)) {
            self.flow.end_line();
        }
        self.held.clear();
        self.state = State::Start(0);
    }

    fn read(&mut self, ending: Ending) {
        loop {
            match self.state {
                State::Done => return,
                State::Words(mut inline) => {
                    let flow = &mut self.flow;
                    let read = inline.read(&self.held, ending, &mut |style, text| flow.put(style, text));
                    self.held.drain(..read);
                    self.state = State::Words(inline);
                    return;
                }
                State::Start(quotes) => {
                    let decided = match &self.fence {
                        Some(fence) if quotes == fence.quotes => self.code_line(ending),
                        _ => self.line_start(quotes, ending),
                    };
                    if decided.is_none() {
                        return;
                    }
                }
            }
        }
    }

    /// A line within a block of code, once it is whole.
    fn code_line(&mut self, ending: Ending) -> Option<()> {
        let OpenFence { fence, quotes, indent } = self.fence.as_ref()?;
        if ending == Ending::Open {
            return None;
        }
        let (quotes, indent) = (*quotes, *indent);
        if fence.may_be_closed_by(&self.held) && fence.is_closed_by(&self.held) {
            self.fence = None;
            if self.look == Look::Plain {
                let line = self.held.trim().to_owned();
                self.show_line(quotes, indent, Style::new(), &line);
            }
        } else {
            let spaces = self.held.len() - self.held.trim_start_matches(' ').len();
            let line = self.held[spaces.min(indent)..].to_owned();
            self.show_code(quotes, indent, &line);
        }
        self.state = State::Done;
        Some(())
    }

    fn line_start(&mut self, quotes: usize, ending: Ending) -> Option<()> {
        let start = line::start(&self.held, ending)?;
        if start.kind == Kind::Quote {
            self.held.drain(..start.length);
            self.state = State::Start(quotes + 1);
            return Some(());
        }
        // Who leaves the quote leaves the code in it.
        self.fence = None;
        if self.is_code(&start) {
            if ending == Ending::Open {
                return None;
            }
            self.show_table();
            let line = self.held[(self.item + 4).min(start.length)..].to_owned();
            self.show_code(quotes, self.item, &line);
            self.state = State::Done;
            return Some(());
        }
        if start.kind == Kind::Row {
            if ending == Ending::Open {
                return None;
            }
            self.row(quotes, start.indent);
        } else {
            self.show_table();
            self.begin(quotes, start);
        }
        Some(())
    }

    fn is_code(&self, start: &Start) -> bool {
        start.kind == Kind::Text && start.indent >= self.item + 4 && self.may_be_code
    }

    /// Begins a line that is no row of a table.
    fn begin(&mut self, quotes: usize, Start { indent, kind, length }: Start) {
        let indent = indent.min(self.flow.width() / 2);
        self.may_be_code = false;
        match kind {
            Kind::Blank | Kind::Quote | Kind::Row => {
                self.owe();
                self.may_be_code = true;
                self.state = State::Done;
            }
            Kind::Heading(level) => {
                self.item = 0;
                let style = if level == 1 { Style::new().bold().underline() } else { Style::new().bold() };
                match self.look {
                    Look::Styled => self.begin_words(quotes, Prefix::default(), (style, length)),
                    Look::Plain => self.begin_words(quotes, Prefix::default(), (Style::new(), 0)),
                }
            }
            Kind::Item(mark) => {
                self.item = indent + mark.len() + 1;
                let shown = if self.look == Look::Styled && mark.len() == 1 { "•".to_owned() } else { mark };
                let first = Prefix::spaces(indent).with(Style::new(), &shown).with(Style::new(), " ");
                self.begin_words(quotes, first, (Style::new(), length));
            }
            Kind::Rule => {
                self.item = 0;
                let width = self.flow.width().saturating_sub(2 * quotes).min(RULE);
                let (style, rule) = if self.look == Look::Styled { (DIM, "─") } else { (Style::new(), "-") };
                self.show_line(quotes, 0, style, &rule.repeat(width));
                self.state = State::Done;
            }
            Kind::Fence(fence) => {
                if self.look == Look::Plain {
                    let line = self.held.trim().to_owned();
                    self.show_line(quotes, indent, Style::new(), &line);
                } else if !fence.info.is_empty() {
                    let info = fence.info.clone();
                    self.show_line(quotes, indent + 2, DIM, &info);
                }
                self.fence = Some(OpenFence { fence, quotes, indent });
                self.state = State::Done;
            }
            Kind::Text => {
                if indent < self.item {
                    self.item = 0;
                }
                self.begin_words(quotes, Prefix::spaces(indent), (Style::new(), length));
            }
        }
    }

    /// Begins a line of words of a style, behind so many bytes of marks.
    fn begin_words(&mut self, quotes: usize, first: Prefix, (style, marks): (Style, usize)) {
        self.pay();
        let hanging = self.quoted(quotes).with(Style::new(), &" ".repeat(first.width()));
        let first = self.quoted(quotes).followed_by(first);
        self.flow.begin(&first, hanging);
        self.held.drain(..marks);
        self.state = State::Words(Inline::new(self.look, style));
    }

    /// A line of code: as it is, never wrapped.
    fn show_code(&mut self, quotes: usize, indent: usize, line: &str) {
        self.may_be_code = true;
        match self.look {
            Look::Styled => self.show_line(quotes, indent + 2, CODE, line),
            Look::Plain => self.show_line(quotes, indent, Style::new(), line),
        }
    }

    fn show_line(&mut self, quotes: usize, indent: usize, style: Style, text: &str) {
        self.pay();
        let prefix = self.quoted(quotes).with(Style::new(), &" ".repeat(indent));
        if text.trim().is_empty() {
            self.flow.line(prefix.trimmed());
        } else {
            let mut line = String::new();
            write_styled(&mut line, style, text);
            self.flow.begin(&prefix, Prefix::default());
            self.flow.line(&line);
        }
    }

    /// A whole line that begins with `|`.
    fn row(&mut self, quotes: usize, indent: usize) {
        let line = self.held.trim().to_owned();
        let prefix = self.quoted(quotes).with(Style::new(), &" ".repeat(indent.min(self.flow.width() / 2)));
        let of_this_table = self.table.as_mut().filter(|table| table.prefix() == &prefix);
        let taken = of_this_table.is_some_and(|table| table.add(&line));
        if !taken {
            self.show_table();
            self.table = Some(Table::new(self.look, prefix, line));
        } else if self.table.as_ref().is_some_and(|table| table.held_rows() >= MOST_HELD_ROWS) {
            self.show_rows();
        }
        self.may_be_code = false;
        self.state = State::Done;
    }

    fn show_rows(&mut self) {
        self.pay();
        if let Some(table) = &mut self.table {
            table.show(&mut self.flow);
        }
    }

    /// The table is over: it is shown, or as the text that it was if it was none.
    fn show_table(&mut self) {
        if self.table.is_some() {
            self.show_rows();
            self.table = None;
        }
    }

    fn quoted(&self, quotes: usize) -> Prefix {
        let (style, mark) = if self.look == Look::Styled { (DIM, "│ ") } else { (Style::new(), "> ") };
        (0..quotes).fold(Prefix::default(), |prefix, _| prefix.with(style, mark))
    }

    fn owe(&mut self) {
        if self.gap == Gap::None {
            self.gap = Gap::Owed;
        }
    }

    fn pay(&mut self) {
        if self.gap == Gap::Owed {
            self.flow.line("");
        }
        self.gap = Gap::None;
    }
}
