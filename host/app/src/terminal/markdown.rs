//! Renders streamed Markdown for a terminal. Output is only appended and never redrawn, so text is held back until its
//! format is certain. For example, a word is held back until it ends, and a table is held back until its last row.

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

/// Style of inline code and code blocks.
const CODE: Style = AnsiColor::Cyan.on_default();
/// Maximum width of a horizontal rule in columns.
const MAX_RULE_WIDTH: usize = 40;
/// If a table has this many rows, the rows are shown before the end of the table arrives. After these rows are shown,
/// the widths of the table's columns no longer change.
const MAX_HELD_ROWS: usize = 200;

/// Whether Markdown marks are replaced by styles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rendering {
    /// Marks are replaced by styles.
    Styled,
    /// Marks are written unchanged. The renderer only wraps lines and aligns tables.
    Plain,
}

/// Renderer for Markdown text that arrives in pieces. Every line break of the text is kept, and long lines are wrapped.
#[derive(Debug)]
pub(crate) struct Markdown {
    rendering: Rendering,
    flow: Flow,
    /// Part of the current line that is not rendered yet.
    unrendered: String,
    state: State,
    gap: Gap,
    fence: Option<OpenFence>,
    table: Option<Table>,
    /// Column at which the text of the last list item starts. A line that starts at least four columns to the right of
    /// this column is code.
    item: usize,
    /// True if the previous line was empty or indented code, so that an indented line can be code.
    may_be_code: bool,
}

/// Position of the renderer in a line.
#[derive(Clone, Copy, Debug)]
enum State {
    /// The renderer is at the start of a line, after this number of `>` marks.
    Start(usize),
    /// The renderer is inside the text of a line.
    Words(Inline),
    /// The renderer is at the end of a line that is completely rendered.
    Done,
}

/// Whether an empty line must be written before the next output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gap {
    /// Nothing was written yet, so no empty line is needed.
    Beginning,
    /// No empty line is needed.
    None,
    /// An empty line must be written before the next output.
    Pending,
}

/// A code block that has not ended.
#[derive(Debug)]
struct OpenFence {
    fence: Fence,
    /// Number of nested quotes that contain the block.
    quotes: usize,
    /// Indentation of the block in columns.
    indent: usize,
}

impl Markdown {
    /// Creates a renderer for a terminal with `width` columns.
    pub(crate) fn new(rendering: Rendering, width: usize) -> Self {
        Self {
            rendering,
            flow: Flow::new(width),
            unrendered: String::new(),
            state: State::Start(0),
            gap: Gap::Beginning,
            fence: None,
            table: None,
            item: 0,
            may_be_code: true,
        }
    }

    /// Sets the width, in columns, of the lines that follow.
    pub(crate) fn resize(&mut self, width: usize) {
        self.flow.resize(width);
    }

    /// Adds a piece of text, and returns the output that later text can no longer change.
    pub(crate) fn push(&mut self, piece: &str) -> String {
        for part in piece.split_inclusive('\n') {
            let (words, is_over) = part.strip_suffix('\n').map_or((part, false), |words| (words, true));
            self.unrendered.push_str(&text::harmless(&words.replace('\r', "")));
            match is_over {
                true => self.end_line(),
                false => self.read(Ending::Open),
            }
        }
        self.flow.take()
    }

    /// Ends the text, and returns the output that was held back until now. The next piece starts a new text.
    pub(crate) fn finish(&mut self) -> String {
        if !self.unrendered.is_empty() || matches!(self.state, State::Words(_)) {
            self.end_line();
        }
        self.show_table();
        let out = self.flow.take();
        *self = Self::new(self.rendering, self.flow.width());
        out
    }

    /// Returns true if a table is held back until its last row.
    pub(crate) fn holds_table(&self) -> bool {
        self.table.as_ref().is_some_and(Table::is_table)
    }

    fn end_line(&mut self) {
        self.read(Ending::Over);
        if matches!(self.state, State::Words(_)) {
            self.flow.end_line();
        }
        self.unrendered.clear();
        self.state = State::Start(0);
    }

    fn read(&mut self, ending: Ending) {
        loop {
            match self.state {
                State::Done => return,
                State::Words(mut inline) => {
                    let flow = &mut self.flow;
                    let read = inline.read(&self.unrendered, ending, &mut |style, text| flow.put(style, text));
                    self.unrendered.drain(..read);
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

    /// Renders a line of a code block. Returns None if the line is not complete.
    fn code_line(&mut self, ending: Ending) -> Option<()> {
        let OpenFence { fence, quotes, indent } = self.fence.as_ref()?;
        if ending == Ending::Open {
            return None;
        }
        let (quotes, indent) = (*quotes, *indent);
        if fence.may_be_closed_by(&self.unrendered) && fence.is_closed_by(&self.unrendered) {
            self.fence = None;
            if self.rendering == Rendering::Plain {
                let line = self.unrendered.trim().to_owned();
                self.show_line(quotes, indent, Style::new(), &line);
            }
        } else {
            let spaces = self.unrendered.len() - self.unrendered.trim_start_matches(' ').len();
            let line = self.unrendered[spaces.min(indent)..].to_owned();
            self.show_code(quotes, indent, &line);
        }
        self.state = State::Done;
        Some(())
    }

    fn line_start(&mut self, quotes: usize, ending: Ending) -> Option<()> {
        let start = line::start(&self.unrendered, ending)?;
        if start.kind == Kind::Quote {
            self.unrendered.drain(..start.length);
            self.state = State::Start(quotes + 1);
            return Some(());
        }
        // A code block in a quote ends with the quote.
        self.fence = None;
        if self.is_code(&start) {
            if ending == Ending::Open {
                return None;
            }
            self.show_table();
            let line = self.unrendered[(self.item + 4).min(start.length)..].to_owned();
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

    /// Starts a line that is not a table row.
    fn begin(&mut self, quotes: usize, Start { indent, kind, length }: Start) {
        let indent = indent.min(self.flow.width() / 2);
        self.may_be_code = false;
        match kind {
            Kind::Blank | Kind::Quote | Kind::Row => {
                self.request_gap();
                self.may_be_code = true;
                self.state = State::Done;
            }
            Kind::Heading(level) => {
                self.item = 0;
                let style = if level == 1 { Style::new().bold().underline() } else { Style::new().bold() };
                match self.rendering {
                    Rendering::Styled => self.begin_words(quotes, Prefix::default(), (style, length)),
                    Rendering::Plain => self.begin_words(quotes, Prefix::default(), (Style::new(), 0)),
                }
            }
            Kind::Item(mark) => {
                self.item = indent + mark.len() + 1;
                let shown =
                    if self.rendering == Rendering::Styled && mark.len() == 1 { "•".to_owned() } else { mark };
                let first = Prefix::spaces(indent).with(Style::new(), &shown).with(Style::new(), " ");
                self.begin_words(quotes, first, (Style::new(), length));
            }
            Kind::Rule => {
                self.item = 0;
                let width = self.flow.width().saturating_sub(2 * quotes).min(MAX_RULE_WIDTH);
                let (style, rule) =
                    if self.rendering == Rendering::Styled { (DIM, "─") } else { (Style::new(), "-") };
                self.show_line(quotes, 0, style, &rule.repeat(width));
                self.state = State::Done;
            }
            Kind::Fence(fence) => {
                if self.rendering == Rendering::Plain {
                    let line = self.unrendered.trim().to_owned();
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

    /// Writes the prefix of a line and then starts its styled text. `marks` is the length of the marks to skip,
    /// in bytes.
    fn begin_words(&mut self, quotes: usize, first: Prefix, (style, marks): (Style, usize)) {
        self.write_gap();
        let hanging = self.quote_prefix(quotes).with(Style::new(), &" ".repeat(first.width()));
        let first = self.quote_prefix(quotes).followed_by(first);
        self.flow.begin(&first, hanging);
        self.unrendered.drain(..marks);
        self.state = State::Words(Inline::new(self.rendering, style));
    }

    /// Writes a line of code without wrapping it.
    fn show_code(&mut self, quotes: usize, indent: usize, line: &str) {
        self.may_be_code = true;
        match self.rendering {
            Rendering::Styled => self.show_line(quotes, indent + 2, CODE, line),
            Rendering::Plain => self.show_line(quotes, indent, Style::new(), line),
        }
    }

    fn show_line(&mut self, quotes: usize, indent: usize, style: Style, text: &str) {
        self.write_gap();
        let prefix = self.quote_prefix(quotes).with(Style::new(), &" ".repeat(indent));
        if text.trim().is_empty() {
            self.flow.line(prefix.trimmed());
        } else {
            let mut line = String::new();
            write_styled(&mut line, style, text);
            self.flow.begin(&prefix, Prefix::default());
            self.flow.line(&line);
        }
    }

    /// Handles a complete line that starts with `|`. The line belongs to the current table or starts a new table.
    fn row(&mut self, quotes: usize, indent: usize) {
        let line = self.unrendered.trim().to_owned();
        let prefix = self.quote_prefix(quotes).with(Style::new(), &" ".repeat(indent.min(self.flow.width() / 2)));
        let current_table = self.table.as_mut().filter(|table| table.prefix() == &prefix);
        let is_added = current_table.is_some_and(|table| table.add(&line));
        if !is_added {
            self.show_table();
            self.table = Some(Table::new(self.rendering, prefix, line));
        } else if self.table.as_ref().is_some_and(|table| table.held_rows() >= MAX_HELD_ROWS) {
            self.show_rows();
        }
        self.may_be_code = false;
        self.state = State::Done;
    }

    fn show_rows(&mut self) {
        self.write_gap();
        if let Some(table) = &mut self.table {
            table.show(&mut self.flow);
        }
    }

    /// Ends the current table and shows it. If the lines turn out not to be a table, they are shown as text.
    fn show_table(&mut self) {
        if self.table.is_some() {
            self.show_rows();
            self.table = None;
        }
    }

    fn quote_prefix(&self, quotes: usize) -> Prefix {
        let (style, mark) = if self.rendering == Rendering::Styled { (DIM, "│ ") } else { (Style::new(), "> ") };
        (0..quotes).fold(Prefix::default(), |prefix, _| prefix.with(style, mark))
    }

    fn request_gap(&mut self) {
        if self.gap == Gap::None {
            self.gap = Gap::Pending;
        }
    }

    fn write_gap(&mut self) {
        if self.gap == Gap::Pending {
            self.flow.line("");
        }
        self.gap = Gap::None;
    }
}
