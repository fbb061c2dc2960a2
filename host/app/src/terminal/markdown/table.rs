//! A table: its columns are known when all its rows are, so it is shown whole.

use super::Look;
use super::inline::{Ending, Inline};
use crate::terminal::DIM;
use crate::terminal::flow::{Flow, Prefix};
use anstyle::Style;
use unicode_width::UnicodeWidthStr;

/// Columns below which no column of a table is narrowed.
const NARROWEST: usize = 6;
/// Columns between two columns of a table.
const BETWEEN: usize = 3;

/// How the words of a column stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Left,
    Middle,
    Right,
}

/// Lines that begin with `|`. The second one tells whether they are a table.
#[derive(Debug)]
pub(super) struct Table {
    look: Look,
    prefix: Prefix,
    first: String,
    sides: Vec<Side>,
    rows: Vec<Vec<String>>,
    layout: Option<Layout>,
}

/// How a table is shown.
#[derive(Clone, Debug)]
enum Layout {
    /// Beside each other, so many columns each.
    Columns(Vec<usize>),
    /// Below each other, since the terminal is too narrow.
    Lines,
}

impl Table {
    /// From its first line.
    pub(super) fn new(look: Look, prefix: Prefix, first: String) -> Self {
        Self { look, prefix, first, sides: Vec::new(), rows: Vec::new(), layout: None }
    }

    /// What stands before each line.
    pub(super) fn prefix(&self) -> &Prefix {
        &self.prefix
    }

    /// Whether it is known to be a table.
    pub(super) fn is_one(&self) -> bool {
        !self.sides.is_empty()
    }

    /// Rows that have not been shown.
    pub(super) fn held_rows(&self) -> usize {
        self.rows.len()
    }

    /// Takes the next line; not if it belongs to no table.
    pub(super) fn add(&mut self, line: &str) -> bool {
        if self.is_one() {
            let mut row = cells(line);
            row.resize(self.sides.len(), String::new());
            self.rows.push(row);
            return true;
        }
        let header = cells(&self.first);
        match sides(line) {
            Some(sides) if sides.len() == header.len() => {
                self.sides = sides;
                true
            }
            _ => false,
        }
    }

    /// Shows the rows that have come since it was last shown.
    pub(super) fn show(&mut self, flow: &mut Flow) {
        if !self.is_one() {
            flow.begin(&self.prefix, self.prefix.clone());
            Inline::new(self.look, Style::new())
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
        let room = width.saturating_sub(self.prefix.width() + BETWEEN * (header.len() - 1));
        let mut widths: Vec<usize> = (0..header.len())
            .map(|column| {
                let cells = rows.iter().filter_map(|row| row.get(column)).chain(header.get(column));
                cells.map(|cell| self.width(cell).min(room)).max().unwrap_or(0).max(1)
            })
            .collect();
        while widths.iter().sum::<usize>() > room {
            let widest = widths.iter().enumerate().max_by_key(|(_, width)| **width);
            match widest.filter(|(_, width)| **width > NARROWEST) {
                Some((place, _)) => widths[place] -= 1,
                None => return Layout::Lines,
            }
        }
        Layout::Columns(widths)
    }

    /// Columns of a cell on one line.
    fn width(&self, cell: &str) -> usize {
        let mut width = 0;
        Inline::new(self.look, Style::new()).read(cell, Ending::Over, &mut |_, text| width += text.width());
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
                let free = widths[column].saturating_sub(visible(words));
                let before = match self.sides[column] {
                    Side::Left => 0,
                    Side::Middle => free / 2,
                    Side::Right => free,
                };
                let padding = |columns: usize| " ".repeat(columns);
                line = line.with(Style::new(), &padding(before)).with(Style::new(), words);
                line = line.with(Style::new(), &padding(free - before));
            }
            flow.line(line.trimmed());
        }
    }

    /// The words of a cell on lines of so many columns.
    fn wrapped(&self, cell: &str, width: usize, style: Style) -> Vec<String> {
        let style = if self.look == Look::Styled { style } else { Style::new() };
        let mut flow = Flow::new(width);
        Inline::new(self.look, style).read(cell, Ending::Over, &mut |style, text| flow.put(style, text));
        flow.end_line();
        flow.take().lines().map(str::to_owned).collect()
    }

    fn show_separator(&self, widths: &[usize], flow: &mut Flow) {
        let (style, crossing) = self.rule("─┼─", "-|-");
        let (_, rule) = self.rule("─", "-");
        let parts: Vec<_> = widths.iter().map(|width| rule.repeat(*width)).collect();
        flow.line(self.prefix.clone().with(style, &parts.join(crossing)).trimmed());
    }

    /// A row where there is no room for columns: each cell behind the name of its column.
    fn show_lines(&self, header: &[String], row: &[String], flow: &mut Flow) {
        let bold = if self.look == Look::Styled { Style::new().bold() } else { Style::new() };
        for (name, cell) in header.iter().zip(row) {
            flow.begin(&self.prefix, self.prefix.clone().with(Style::new(), "  "));
            let mut put = |style: Style, text: &str| flow.put(style, text);
            Inline::new(self.look, bold).read(name, Ending::Over, &mut put);
            put(bold, ": ");
            Inline::new(self.look, Style::new()).read(cell, Ending::Over, &mut put);
            flow.end_line();
        }
    }

    fn rule(&self, styled: &'static str, plain: &'static str) -> (Style, &'static str) {
        if self.look == Look::Styled { (DIM, styled) } else { (Style::new(), plain) }
    }
}

/// Columns of a text that holds codes of styles.
fn visible(text: &str) -> usize {
    anstream::adapter::strip_str(text).to_string().width()
}

/// The cells of a line; `\|` is no border.
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

/// How the columns stand, by the line below a table's header; nothing where the line is another.
fn sides(line: &str) -> Option<Vec<Side>> {
    let cells = cells(line);
    let sides = cells.iter().map(|cell| {
        let dashes = cell.trim_matches(':');
        if dashes.is_empty() || !dashes.chars().all(|character| character == '-') {
            return None;
        }
        Some(match (cell.starts_with(':'), cell.ends_with(':')) {
            (true, true) => Side::Middle,
            (false, true) => Side::Right,
            (_, false) => Side::Left,
        })
    });
    let sides: Option<Vec<_>> = sides.collect();
    sides.filter(|sides| !sides.is_empty())
}
