//! Tables that are read from CSV, TSV or a JSON array of objects.

use crate::decimal::Decimal;
use schemars::JsonSchema;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::fmt;

/// Maximum number of rows in a table.
pub const MAX_ROWS: usize = 200_000;

/// Maximum number of columns in a table.
pub const MAX_COLUMNS: usize = 1_000;

/// Maximum number of invalid rows that a result describes. If a table has more invalid rows, the others are
/// only counted.
const MAX_PROBLEMS: usize = 20;

/// The format of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Comma-separated (RFC 4180), with a header line.
    Csv,
    /// Tab-separated, with a header line.
    Tsv,
    /// A JSON array of objects.
    Json,
}

/// The value of one cell of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// No value: an empty field, a JSON null, or a missing key.
    Empty,
    /// A JSON boolean. Text in CSV is never a boolean.
    Boolean(bool),
    /// An exact number.
    Number(Decimal),
    /// Text, including numbers in a CSV column that also has other values.
    Text(String),
    /// A JSON array or object inside a row, as its source text.
    Nested(String),
}

impl Cell {
    /// Returns the value as text, which is empty for an empty cell.
    pub fn text(&self) -> String {
        match self {
            Cell::Empty => String::new(),
            Cell::Boolean(value) => value.to_string(),
            Cell::Number(value) => value.to_string(),
            Cell::Text(value) | Cell::Nested(value) => value.clone(),
        }
    }
}

/// A row with one cell per column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Number of the line in the text, or of the object in the JSON array. Numbers start at 1.
    pub line: u64,
    /// The cells in the order of the columns.
    pub cells: Vec<Cell>,
}

/// A row that could not be read and is left out of every result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct BadRow {
    /// Line of the text, or number of the JSON object, from 1.
    pub line: u64,
    /// A description of the problem.
    pub problem: String,
}

/// A table that was read completely into memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Names of the columns in order, without duplicates.
    pub columns: Vec<String>,
    /// The rows that could be read.
    pub rows: Vec<Row>,
    /// The first rows that could not be read, at most 20.
    pub bad_rows: Vec<BadRow>,
    /// Number of all rows that could not be read, including rows that `bad_rows` does not contain.
    pub bad_row_count: usize,
}

/// The reason why a table cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// The text does not have the requested or detected format.
    #[error("not a table in {format:?}: {problem}")]
    Malformed {
        /// The requested or detected format.
        format: Format,
        /// Description of the problem. If the problem has a position in the text, the description contains
        /// the position.
        problem: String,
    },
    /// The table has more than [`MAX_ROWS`] rows or more than [`MAX_COLUMNS`] columns.
    #[error("the table has more than {limit} {what}; use a part of it")]
    TooLarge {
        /// The name of the limited quantity: `rows` or `columns`.
        what: &'static str,
        /// The maximum number of rows or columns.
        limit: usize,
    },
    /// The table has no column with the requested name.
    #[error("there is no column `{name}`; columns: {columns}")]
    NoSuchColumn {
        /// The requested name, which no column has.
        name: String,
        /// Names of all columns of the table, separated by commas.
        columns: String,
    },
    /// The function calculates with numbers, but a cell of the column is not a number.
    #[error("line {line}: `{value}` in column `{column}` is not a number; filter such rows out first")]
    NotANumber {
        /// Number of the line in the text, or of the object in the JSON array. Numbers start at 1.
        line: u64,
        /// Name of the column that contains the cell.
        column: String,
        /// The beginning of the cell's text.
        value: String,
    },
    /// The arguments cannot be used together, or an argument is missing. The variant contains the message for
    /// the model.
    #[error("{0}")]
    Request(String),
}

impl Table {
    /// Parses a text in the given format. A byte-order mark is skipped.
    pub fn parse(text: &str, format: Format) -> Result<Table, TableError> {
        let text = text.trim_start_matches('\u{feff}');
        let table = match format {
            Format::Csv => from_delimited(text, b',', format),
            Format::Tsv => from_delimited(text, b'\t', format),
            Format::Json => from_json(text),
        }?;
        if table.columns.len() > MAX_COLUMNS {
            return Err(TableError::TooLarge { what: "columns", limit: MAX_COLUMNS });
        }
        Ok(table)
    }

    /// Returns the index of the column `name`.
    pub fn column(&self, name: &str) -> Result<usize, TableError> {
        self.columns
            .iter()
            .position(|column| column == name)
            .ok_or_else(|| TableError::NoSuchColumn { name: name.to_owned(), columns: self.columns.join(", ") })
    }

    fn reject(&mut self, line: u64, problem: String) {
        self.bad_row_count += 1;
        if self.bad_rows.len() < MAX_PROBLEMS {
            self.bad_rows.push(BadRow { line, problem });
        }
    }
}

impl Format {
    /// Detects the format from the file's extension, or from the beginning of the text.
    pub fn guess(path: Option<&str>, text: &str) -> Format {
        let ending = path.and_then(|path| path.rsplit_once('.')).map(|(_, ending)| ending.to_ascii_lowercase());
        match ending.as_deref() {
            Some("json") => return Format::Json,
            Some("tsv" | "tab") => return Format::Tsv,
            Some("csv") => return Format::Csv,
            _ => {}
        }
        let text = text.trim_start_matches('\u{feff}').trim_start();
        let header = text.lines().next().unwrap_or_default();
        if text.starts_with('[') {
            Format::Json
        } else if header.contains('\t') {
            Format::Tsv
        } else {
            Format::Csv
        }
    }
}

fn from_delimited(text: &str, delimiter: u8, format: Format) -> Result<Table, TableError> {
    let malformed = |problem: String| TableError::Malformed { format, problem };
    let mut reader =
        csv::ReaderBuilder::new().delimiter(delimiter).has_headers(false).flexible(true).from_reader(text.as_bytes());
    let mut records = reader.records();
    let header = match records.next() {
        Some(header) => header.map_err(|error| malformed(error.to_string()))?,
        None => return Err(malformed("the text is empty; a header line is needed".into())),
    };
    let mut table = Table { columns: header.iter().map(|name| name.trim().to_owned()).collect(), ..Table::default() };
    check_header(&table.columns).map_err(malformed)?;
    for record in records {
        let record = record.map_err(|error| malformed(error.to_string()))?;
        let line = record.position().map_or(0, csv::Position::line);
        if record.len() != table.columns.len() {
            let problem = format!("{} fields, but the header has {}", record.len(), table.columns.len());
            table.reject(line, problem);
            continue;
        }
        if table.rows.len() == MAX_ROWS {
            return Err(TableError::TooLarge { what: "rows", limit: MAX_ROWS });
        }
        let cells =
            record.iter().map(|field| if field.is_empty() { Cell::Empty } else { Cell::Text(field.to_owned()) });
        table.rows.push(Row { line, cells: cells.collect() });
    }
    for column in 0..table.columns.len() {
        read_numbers(&mut table.rows, column);
    }
    Ok(table)
}

fn check_header(columns: &[String]) -> Result<(), String> {
    for (position, name) in columns.iter().enumerate() {
        if name.is_empty() {
            return Err(format!("column {} has no name in the header line", position + 1));
        }
        if columns[..position].contains(name) {
            return Err(format!("the header names column `{name}` twice"));
        }
    }
    Ok(())
}

/// Converts the values of a column of a CSV or TSV table to numbers, if all values of the column are numbers. A value
/// such as `01234` is an identifier: if a column contains such a value, all values of the column stay text.
fn read_numbers(rows: &mut [Row], column: usize) {
    let numbers: Option<Vec<Option<Decimal>>> = rows
        .iter()
        .map(|row| match &row.cells[column] {
            Cell::Text(text) => Decimal::parse(text.trim()).map(Some),
            _ => Some(None),
        })
        .collect();
    for (row, number) in rows.iter_mut().zip(numbers.unwrap_or_default()) {
        if let Some(number) = number {
            row.cells[column] = Cell::Number(number);
        }
    }
}

fn from_json(text: &str) -> Result<Table, TableError> {
    let malformed = |problem: String| TableError::Malformed { format: Format::Json, problem };
    let items: Vec<&RawValue> =
        serde_json::from_str(text).map_err(|error| malformed(format!("an array of objects is needed: {error}")))?;
    if items.len() > MAX_ROWS {
        return Err(TableError::TooLarge { what: "rows", limit: MAX_ROWS });
    }
    let mut table = Table::default();
    let mut positions: HashMap<String, usize> = HashMap::new();
    for (line, item) in (1u64..).zip(items) {
        let members = match serde_json::from_str::<Members>(item.get()) {
            Ok(members) => members.0,
            Err(_) => {
                table.reject(line, "not a JSON object".into());
                continue;
            }
        };
        let mut cells = vec![Cell::Empty; table.columns.len()];
        for (name, value) in members {
            let position = *positions.entry(name).or_insert_with_key(|name| {
                table.columns.push(name.clone());
                table.columns.len() - 1
            });
            cells.resize(table.columns.len().max(cells.len()), Cell::Empty);
            cells[position] = json_cell(value.get());
        }
        if table.columns.len() > MAX_COLUMNS {
            return Err(TableError::TooLarge { what: "columns", limit: MAX_COLUMNS });
        }
        table.rows.push(Row { line, cells });
    }
    let width = table.columns.len();
    table.rows.iter_mut().for_each(|row| row.cells.resize(width, Cell::Empty));
    Ok(table)
}

/// Converts the source text of a JSON value to a cell. A number is parsed from its digits, because a conversion to
/// binary floating point could change the number.
fn json_cell(text: &str) -> Cell {
    match text.as_bytes().first() {
        Some(b'"') => Cell::Text(serde_json::from_str(text).unwrap_or_else(|_| text.to_owned())),
        Some(b't') => Cell::Boolean(true),
        Some(b'f') => Cell::Boolean(false),
        Some(b'n') => Cell::Empty,
        Some(b'[' | b'{') => Cell::Nested(text.to_owned()),
        _ => Decimal::parse(text).map_or_else(|| Cell::Text(text.to_owned()), Cell::Number),
    }
}

/// The members of a JSON object in order, with unparsed values.
struct Members(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;
        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(MembersVisitor)
    }
}
