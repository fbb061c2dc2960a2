//! Describes the columns of a table: the type and the range of the values of each column.

use crate::output::cell_json;
use crate::select::natural_order;
use crate::table::{BadRow, Cell, Table};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use std::collections::HashSet;

/// Maximum number of distinct values of a column that are counted.
const MAX_DISTINCT: usize = 10_000;

/// Number of example values per column.
const EXAMPLES: usize = 3;

/// Maximum length of an example, in characters.
const EXAMPLE_LENGTH: usize = 60;

/// The description of a table.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub struct Description {
    /// Number of valid rows, without the header.
    pub rows: usize,
    /// The columns in order.
    pub columns: Vec<ColumnDescription>,
    /// The first 20 rows that could not be read.
    pub bad_rows: Vec<BadRow>,
    /// Number of all rows that could not be read.
    pub bad_row_count: usize,
}

/// The description of a column.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub struct ColumnDescription {
    /// Name from the header, or the key of the objects.
    pub name: String,
    /// Type inferred from all values.
    #[serde(rename = "type")]
    pub column_type: ColumnType,
    /// Number of cells with a value.
    pub filled: usize,
    /// Number of empty cells.
    pub empty: usize,
    /// Number of different values, counted up to 10,000.
    pub distinct: usize,
    /// Smallest number or first text; null for mixed columns.
    pub min: Option<Value>,
    /// Largest number or last text; null for mixed columns.
    pub max: Option<Value>,
    /// The first different values; long ones are cut.
    pub examples: Vec<Value>,
}

/// The type of all cells with a value in a column.
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
    /// Text, also for a CSV column with numbers and other values.
    Text,
    /// JSON arrays or objects.
    Nested,
    /// Several of these types.
    Mixed,
}

/// Returns a description of the table and of its columns.
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
    let column_type = cells().map(type_of).reduce(common_type).unwrap_or(ColumnType::Empty);
    let ranged = !matches!(column_type, ColumnType::Mixed | ColumnType::Nested);
    let first = cells().filter(|_| ranged).min_by(|a, b| natural_order(a, b));
    let last = cells().filter(|_| ranged).max_by(|a, b| natural_order(a, b));
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

fn common_type(first: ColumnType, second: ColumnType) -> ColumnType {
    match (first, second) {
        (first, second) if first == second => first,
        (ColumnType::Integer, ColumnType::Decimal) | (ColumnType::Decimal, ColumnType::Integer) => ColumnType::Decimal,
        _ => ColumnType::Mixed,
    }
}
