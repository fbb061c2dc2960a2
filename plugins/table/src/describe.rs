//! What a table holds: its columns, their types, their ranges.

use crate::output::cell_json;
use crate::select::natural;
use crate::table::{BadRow, Cell, Table};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use std::collections::HashSet;

/// Distinct values are counted up to this many.
const MAX_DISTINCT: usize = 10_000;

/// Values shown of each column.
const EXAMPLES: usize = 3;

/// Longest text shown of one value, in characters.
const EXAMPLE_LENGTH: usize = 60;

/// A whole table in brief.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub struct Description {
    /// Good rows, without the header.
    pub rows: usize,
    /// In their order.
    pub columns: Vec<ColumnDescription>,
    /// Rows that could not be read: the first 20.
    pub bad_rows: Vec<BadRow>,
    /// All rows that could not be read.
    pub bad_row_count: usize,
}

/// One column in brief.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub struct ColumnDescription {
    /// From the header, or the key of the objects.
    pub name: String,
    /// Inferred from all values.
    #[serde(rename = "type")]
    pub column_type: ColumnType,
    /// Cells with something in them.
    pub filled: usize,
    /// Cells with nothing in them.
    pub empty: usize,
    /// Different values; counted up to 10,000.
    pub distinct: usize,
    /// Smallest number or first text; none for mixed columns.
    pub min: Option<Value>,
    /// Largest number or last text; none for mixed columns.
    pub max: Option<Value>,
    /// The first different values, long ones cut.
    pub examples: Vec<Value>,
}

/// What all filled cells of a column are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ColumnType {
    /// All cells are empty.
    Empty,
    /// Whole numbers.
    Integer,
    /// Numbers, some with digits after the point.
    Decimal,
    /// True or false.
    Boolean,
    /// Text; also a CSV column of numbers and something else.
    Text,
    /// JSON arrays or objects.
    Nested,
    /// More than one of these.
    Mixed,
}

/// Describes a table.
pub fn describe(table: &Table) -> Description {
    Description {
        rows: table.rows.len(),
        columns: (0..table.columns.len()).map(|column| describe_column(table, column)).collect(),
        bad_rows: table.bad_rows.clone(),
        bad_row_count: table.bad_row_count,
    }
}

fn describe_column(table: &Table, column: usize) -> ColumnDescription {
    let cells = || table.rows.iter().map(move |row| &row.cells[column]).filter(|cell| **cell != Cell::Empty);
    let mut distinct = HashSet::new();
    let mut examples = Vec::new();
    let mut filled = 0;
    for cell in cells() {
        filled += 1;
        if distinct.len() < MAX_DISTINCT && distinct.insert(cell.text()) && examples.len() < EXAMPLES {
            examples.push(example(cell));
        }
    }
    let column_type = cells().map(type_of).reduce(join).unwrap_or(ColumnType::Empty);
    let ranged = !matches!(column_type, ColumnType::Mixed | ColumnType::Nested);
    let first = cells().filter(|_| ranged).min_by(|a, b| natural(a, b));
    let last = cells().filter(|_| ranged).max_by(|a, b| natural(a, b));
    ColumnDescription {
        name: table.columns[column].clone(),
        column_type,
        filled,
        empty: table.rows.len() - filled,
        distinct: distinct.len(),
        min: first.map(example),
        max: last.map(example),
        examples,
    }
}

fn example(cell: &Cell) -> Value {
    match cell {
        Cell::Text(text) | Cell::Nested(text) if text.chars().count() > EXAMPLE_LENGTH => {
            Value::String(text.chars().take(EXAMPLE_LENGTH).chain(['…']).collect())
        }
        _ => cell_json(cell),
    }
}

fn type_of(cell: &Cell) -> ColumnType {
    match cell {
        Cell::Empty => ColumnType::Empty,
        Cell::Boolean(_) => ColumnType::Boolean,
        Cell::Number(number) if number.is_integer() => ColumnType::Integer,
        Cell::Number(_) => ColumnType::Decimal,
        Cell::Text(_) => ColumnType::Text,
        Cell::Nested(_) => ColumnType::Nested,
    }
}

fn join(first: ColumnType, second: ColumnType) -> ColumnType {
    match (first, second) {
        (first, second) if first == second => first,
        (ColumnType::Integer, ColumnType::Decimal) | (ColumnType::Decimal, ColumnType::Integer) => ColumnType::Decimal,
        _ => ColumnType::Mixed,
    }
}
