//! Renders a table. The column widths depend on all rows, so the table is shown when its last row has arrived.

use super::Rendering;
use super::inline::{Ending, Inline};
use crate::terminal::DIM;
use crate::terminal::flow::{Flow, Prefix};
use anstyle::Style;
use unicode_width::UnicodeWidthStr;

/// Minimum width to which a table column can be narrowed, in terminal columns.
const MIN_COLUMN_WIDTH: usize = 6;
/// Width of the separator between two table columns, in terminal columns.
const SEPARATOR_WIDTH: usize = 3;

/// Alignment of the text in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Alignment {
    Left,
    Middle,
    Right,
}

/// Successive lines that start with `|` and may be a table. The lines are a table if the second line is a separator
/// such as `|---|---|`.
#[derive(Debug)]
pub(super) struct Table {
    rendering: Rendering,
    prefix: Prefix,
    /// The first line, which is the header if the lines are a table.
    first: String,
    /// Alignment of the text in each column. Empty until the second line has shown that the lines are a table.
    alignments: Vec<Alignment>,
    /// Cells of the rows that have not been shown.
    rows: Vec<Vec<String>>,
    /// Layout of the table's columns. None until the first rows of the table are shown.
    layout: Option<Layout>,
}

/// Whether the cells of a table are shown in columns or below one another.
#[derive(Clone, Debug)]
enum Layout {
    /// The cells of a row are shown side by side, in columns of these widths.
    Columns(Vec<usize>),
    /// Each cell is shown on its own line, because the terminal is too narrow for columns.
    Lines,
}

impl Table {
    /// Creates a possible table from the first line that starts with `|`.
    pub(super) fn new(rendering: Rendering, prefix: Prefix, first: String) -> Self {
        Self { rendering, prefix, first, alignments: Vec::new(), rows: Vec::new(), layout: None }
    }

    /// Returns the prefix of each line of the table, such as the indentation or the mark of a quote.
    pub(super) fn prefix(&self) -> &Prefix {
        &self.prefix
    }

    /// Returns true if the second line has shown that the lines are a table.
    pub(super) fn is_table(&self) -> bool {
        !self.alignments.is_empty()
    }

    /// Returns the number of rows that have been added but not yet shown.
    pub(super) fn held_rows(&self) -> usize {
        self.rows.len()
    }

    /// Adds the next line of the page to the table. Returns false if the line does not belong to this table.
    pub(super) fn add(&mut self, line: &str) -> bool {
        if self.is_table() {
            let mut row = cells(line);
            row.resize(self.alignments.len(), String::new());
            self.rows.push(row);
            return true;
        }
        let header = cells(&self.first);
        match parse_alignments(line) {
            Some(alignments) if alignments.len() == header.len() => {
                self.alignments = alignments;
                true
            }
            _ => false,
        }
    }

    /// Shows the rows that were added since the last call.
    pub(super) fn show(&mut self, flow: &mut Flow) {
        if !self.is_table() {
            flow.begin(&self.prefix, self.prefix.clone());
            Inline::new(self.rendering, Style::new())
                .read(&self.first, Ending::Over, &mut |style, text| flow.put(style, text));
            return flow.end_line();
        }
        let header = cells(&self.first);
        let rows = std::mem::take(&mut self.rows);
        let layout = self.layout.clone();
        let is_first = layout.is_none();
        let layout = layout.unwrap_or_else(|| self.layout(&header, &rows, flow.width()));
        match &layout {
            Layout::Columns(widths) => {
                if is_first {
                    self.show_row(&header, widths, Style::new().bold(), flow);
                    self.show_separator(widths, flow);
                }
                rows.iter().for_each(|row| self.show_row(row, widths, Style::new(), flow));
            }
            Layout::Lines => {
                for (number, row) in rows.iter().enumerate() {
                    if number > 0 || !is_first {
                        flow.line(self.prefix.trimmed());
                    }
                    self.show_lines(&header, row, flow);
                }
            }
        }
        self.layout = Some(layout);
    }

    fn layout(&self, header: &[String], rows: &[Vec<String>], width: usize) -> Layout {
        let available = width.saturating_sub(self.prefix.width() + SEPARATOR_WIDTH * (header.len() - 1));
        let mut widths: Vec<usize> = (0..header.len())
            .map(|column| {
                let cells = rows.iter().filter_map(|row| row.get(column)).chain(header.get(column));
                cells.map(|cell| self.width(cell).min(available)).max().unwrap_or(0).max(1)
            })
            .collect();
        while widths.iter().sum::<usize>() > available {
            let widest = widths.iter().enumerate().max_by_key(|(_, width)| **width);
            match widest.filter(|(_, width)| **width > MIN_COLUMN_WIDTH) {
                Some((position, _)) => widths[position] -= 1,
                None => return Layout::Lines,
            }
        }
        Layout::Columns(widths)
    }

    /// Returns the width in terminal columns of a cell that is shown on one line.
    fn width(&self, cell: &str) -> usize {
        let mut width = 0;
        Inline::new(self.rendering, Style::new()).read(cell, Ending::Over, &mut |_, text| width += text.width());
        width
    }

    fn show_row(&self, row: &[String], widths: &[usize], style: Style, flow: &mut Flow) {
        let cells: Vec<Vec<String>> =
            row.iter().zip(widths).map(|(cell, width)| self.wrapped(cell, *width, style)).collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(0);
        let (rule_style, rule) = self.rule(" │ ", " | ");
        for number in 0..height {
            let mut line = self.prefix.clone();
            for (column, cell) in cells.iter().enumerate() {
                if column > 0 {
                    line = line.with(rule_style, rule);
                }
                let words = cell.get(number).map(String::as_str).unwrap_or_default();
                let free = widths[column].saturating_sub(visible_width(words));
                let before = match self.alignments[column] {
                    Alignment::Left => 0,
                    Alignment::Middle => free / 2,
                    Alignment::Right => free,
                };
                let padding = |columns: usize| " ".repeat(columns);
                line = line.with(Style::new(), &padding(before)).with(Style::new(), words);
                line = line.with(Style::new(), &padding(free - before));
            }
            flow.line(line.trimmed());
        }
    }

    /// Wraps the text of a cell into lines of `width` columns.
    fn wrapped(&self, cell: &str, width: usize, style: Style) -> Vec<String> {
        let style = if self.rendering == Rendering::Styled { style } else { Style::new() };
        let mut flow = Flow::new(width);
        Inline::new(self.rendering, style).read(cell, Ending::Over, &mut |style, text| flow.put(style, text));
        flow.end_line();
        flow.take().lines().map(str::to_owned).collect()
    }

    fn show_separator(&self, widths: &[usize], flow: &mut Flow) {
        let (style, crossing) = self.rule("─┼─", "-|-");
        let (_, rule) = self.rule("─", "-");
        let parts: Vec<_> = widths.iter().map(|width| rule.repeat(*width)).collect();
        flow.line(self.prefix.clone().with(style, &parts.join(crossing)).trimmed());
    }

    /// Shows a row with one line per cell. Each line starts with the name of the column.
    fn show_lines(&self, header: &[String], row: &[String], flow: &mut Flow) {
        let bold = if self.rendering == Rendering::Styled { Style::new().bold() } else { Style::new() };
        for (name, cell) in header.iter().zip(row) {
            flow.begin(&self.prefix, self.prefix.clone().with(Style::new(), "  "));
            let mut put = |style: Style, text: &str| flow.put(style, text);
            Inline::new(self.rendering, bold).read(name, Ending::Over, &mut put);
            put(bold, ": ");
            Inline::new(self.rendering, Style::new()).read(cell, Ending::Over, &mut put);
            flow.end_line();
        }
    }

    fn rule(&self, styled: &'static str, plain: &'static str) -> (Style, &'static str) {
        if self.rendering == Rendering::Styled { (DIM, styled) } else { (Style::new(), plain) }
    }
}

/// Returns how many terminal columns a text takes. The escape codes of styles in the text take no columns.
fn visible_width(text: &str) -> usize {
    anstream::adapter::strip_str(text).to_string().width()
}

/// Splits a line of a table into cells at each `|`, but not at an escaped `\|`.
fn cells(line: &str) -> Vec<String> {
    let line = line.trim();
    let line = line.strip_prefix('|').unwrap_or(line);
    let (mut cells, mut cell, mut escaped) = (Vec::new(), String::new(), false);
    for character in line.chars() {
        match character {
            '|' if escaped => {
                cell.pop();
                cell.push('|');
            }
            '|' => cells.push(std::mem::take(&mut cell)),
            _ => cell.push(character),
        }
        escaped = character == '\\' && !escaped;
    }
    if !cell.trim().is_empty() {
        cells.push(cell);
    }
    cells.iter().map(|cell| cell.trim().to_owned()).collect()
}

/// Parses the line below a table's header, such as `|---|:-:|`. Returns None if the line does not have this form.
fn parse_alignments(line: &str) -> Option<Vec<Alignment>> {
    let cells = cells(line);
    let alignments = cells.iter().map(|cell| {
        let dashes = cell.trim_matches(':');
        if dashes.is_empty() || !dashes.chars().all(|character| character == '-') {
            return None;
        }
        Some(match (cell.starts_with(':'), cell.ends_with(':')) {
            (true, true) => Alignment::Middle,
            (false, true) => Alignment::Right,
            (_, false) => Alignment::Left,
        })
    });
    let alignments: Option<Vec<_>> = alignments.collect();
    alignments.filter(|alignments| !alignments.is_empty())
}
