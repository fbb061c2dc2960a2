//! Converts a table to the result of a tool. The result contains a limited number of rows, as JSON objects or as
//! CSV text.

use crate::decimal::Decimal;
use crate::table::{BadRow, Cell, Row, Table};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Maximum number of rows in a result if the call sets no limit.
pub const DEFAULT_LIMIT: u32 = 50;

/// Maximum value of the argument `limit`.
pub const MAX_LIMIT: u32 = 5_000;

/// The format of returned rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OutputFormat {
    /// One object per row.
    #[default]
    Json,
    /// Text with a header line.
    Csv,
}

/// The rows of a result.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub struct Rows {
    /// The rows with `output = "json"`. Numbers that JSON parsers would round are strings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<Vec<Map<String, Value>>>,
    /// The rows with `output = "csv"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub csv: Option<String>,
    /// Number of rows in the result, including those left out.
    pub row_count: usize,
    /// Number of rows that are not shown because of `limit`.
    pub left_out: usize,
    /// The first 20 rows of the source that could not be read. They are not part of any result.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bad_rows: Vec<BadRow>,
    /// Notes about the result.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Creates a result with these columns and with at most `limit` rows of the table.
pub fn rows(table: &Table, columns: &[usize], format: OutputFormat, limit: u32, mut notes: Vec<String>) -> Rows {
    let shown = &table.rows[..table.rows.len().min(limit as usize)];
    let left_out = table.rows.len() - shown.len();
    if left_out > 0 {
        notes.push(format!("{left_out} of {} rows are left out because of the limit of {limit}", table.rows.len()));
    }
    if table.bad_row_count > 0 {
        notes.push(format!("{} rows of the source could not be read and are left out", table.bad_row_count));
    }
    let (json, csv) = match format {
        OutputFormat::Json => (Some(shown.iter().map(|row| object(table, columns, row)).collect()), None),
        OutputFormat::Csv => (None, Some(to_csv(table, columns, shown))),
    };
    Rows { rows: json, csv, row_count: table.rows.len(), left_out, bad_rows: table.bad_rows.clone(), notes }
}

/// Converts a cell to JSON. A number becomes a JSON number only if a parser that uses binary floating point would read
/// the same number. Any other number becomes a string.
pub fn cell_json(cell: &Cell) -> Value {
    match cell {
        Cell::Empty => Value::Null,
        Cell::Boolean(value) => Value::Bool(*value),
        Cell::Number(number) => number_json(number),
        Cell::Text(text) => Value::String(text.clone()),
        Cell::Nested(json) => serde_json::from_str(json).unwrap_or_else(|_| Value::String(json.clone())),
    }
}

fn number_json(number: &Decimal) -> Value {
    let text = number.to_string();
    match serde_json::from_str::<Value>(&text) {
        Ok(value @ Value::Number(_)) if Decimal::parse(&value.to_string()).as_ref() == Some(number) => value,
        _ => Value::String(text),
    }
}

fn object(table: &Table, columns: &[usize], row: &Row) -> Map<String, Value> {
    columns.iter().map(|column| (table.columns[*column].clone(), cell_json(&row.cells[*column]))).collect()
}

fn to_csv(table: &Table, columns: &[usize], rows: &[Row]) -> String {
    let header = columns.iter().map(|column| quote(&table.columns[*column]));
    let mut text = header.collect::<Vec<_>>().join(",");
    text.push('\n');
    for row in rows {
        let fields: Vec<String> = columns.iter().map(|column| quote(&row.cells[*column].text())).collect();
        text.push_str(&fields.join(","));
        text.push('\n');
    }
    text
}

fn quote(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}
