//! Filters and sorts the rows of a table.

use crate::decimal::Decimal;
use crate::table::{Cell, Row, Table, TableError};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use std::cmp::Ordering;

/// One condition on a row.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// Name of the column.
    pub column: String,
    /// How the cell is compared with `value`.
    pub is: Comparison,
    /// The value to compare with: a number compares as a number, a string as text. Ignored by `empty` and
    /// `not_empty`.
    #[serde(default)]
    pub value: Value,
}

/// How a cell is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Comparison {
    /// The same number, text or boolean.
    Equal,
    /// A different number, text or boolean.
    NotEqual,
    /// Smaller number, or earlier text.
    Less,
    /// Smaller or equal number, or earlier or equal text.
    LessOrEqual,
    /// Larger number, or later text.
    Greater,
    /// Larger or equal number, or later or equal text.
    GreaterOrEqual,
    /// The cell's text contains `value`; case matters.
    Contains,
    /// The cell's text does not contain `value`.
    NotContains,
    /// The cell's text starts with `value`.
    StartsWith,
    /// The cell's text ends with `value`.
    EndsWith,
    /// The cell is empty.
    Empty,
    /// The cell is not empty.
    NotEmpty,
}

/// Whether all conditions must be met, or one is enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Require {
    /// Every condition must be met.
    #[default]
    All,
    /// At least one condition must be met.
    Any,
}

/// One key of a sort.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SortKey {
    /// Name of the column.
    pub column: String,
    /// Direction of the sort. Default: ascending.
    #[serde(default)]
    pub order: Order,
}

/// Direction of a sort.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Smallest first.
    #[default]
    Ascending,
    /// Largest first.
    Descending,
}

/// Removes the rows that do not meet the conditions. Returns the number of comparisons that have no result because the
/// cell and the value of the condition have different types, for example text and number.
pub fn filter(table: &mut Table, conditions: &[Condition], require: Require) -> Result<u64, TableError> {
    let mut prepared = Vec::new();
    for condition in conditions {
        prepared.push((table.column(&condition.column)?, condition.is, Operand::of(condition)?));
    }
    let mut incomparable = 0;
    table.rows.retain(|row| {
        let mut results = prepared.iter().map(|(column, comparison, operand)| {
            let result = compare(&row.cells[*column], *comparison, operand);
            incomparable += u64::from(result == ComparisonResult::Incomparable);
            result == ComparisonResult::Yes
        });
        match require {
            Require::All => results.all(|is_met| is_met),
            Require::Any => results.any(|is_met| is_met),
        }
    });
    Ok(incomparable)
}

/// Sorts the rows. Rows with equal keys keep their order. Numbers come before text, and empty cells come last.
pub fn sort(table: &mut Table, keys: &[SortKey]) -> Result<(), TableError> {
    let mut columns = Vec::new();
    for key in keys {
        columns.push((table.column(&key.column)?, key.order));
    }
    table.rows.sort_by(|first, second| by_keys(&columns, first, second));
    Ok(())
}

fn by_keys(columns: &[(usize, Order)], first: &Row, second: &Row) -> Ordering {
    columns
        .iter()
        .map(|(column, order)| compare_cells(&first.cells[*column], &second.cells[*column], *order))
        .fold(Ordering::Equal, Ordering::then)
}

fn compare_cells(first: &Cell, second: &Cell, order: Order) -> Ordering {
    match (first, second) {
        (Cell::Empty, Cell::Empty) => Ordering::Equal,
        (Cell::Empty, _) => Ordering::Greater,
        (_, Cell::Empty) => Ordering::Less,
        _ => {
            let ascending = natural_order(first, second);
            if order == Order::Ascending { ascending } else { ascending.reverse() }
        }
    }
}

/// Compares values that are not empty. Numbers come before booleans, and booleans before text.
pub fn natural_order(first: &Cell, second: &Cell) -> Ordering {
    match (first, second) {
        (Cell::Number(first), Cell::Number(second)) => first.cmp(second),
        (Cell::Boolean(first), Cell::Boolean(second)) => first.cmp(second),
        (Cell::Number(_), _) => Ordering::Less,
        (_, Cell::Number(_)) => Ordering::Greater,
        (Cell::Boolean(_), _) => Ordering::Less,
        (_, Cell::Boolean(_)) => Ordering::Greater,
        _ => first.text().cmp(&second.text()),
    }
}

#[derive(Debug)]
enum Operand {
    None,
    Number(Decimal),
    Text(String),
    Boolean(bool),
}

impl Operand {
    fn of(condition: &Condition) -> Result<Operand, TableError> {
        use Comparison::{Contains, Empty, EndsWith, NotContains, NotEmpty, StartsWith};
        let request = |message: String| Err(TableError::Request(message));
        let column = &condition.column;
        let textual = matches!(condition.is, Contains | NotContains | StartsWith | EndsWith);
        match (&condition.value, condition.is) {
            (_, Empty | NotEmpty) => Ok(Operand::None),
            (Value::String(text), _) => Ok(Operand::Text(text.clone())),
            (Value::Number(number), _) if textual => Ok(Operand::Text(number.to_string())),
            (Value::Number(number), _) => match Decimal::parse(&number.to_string()) {
                Some(number) => Ok(Operand::Number(number)),
                None => request(format!("the value {number} of the condition on `{column}` is too large or too small")),
            },
            (Value::Bool(value), _) if !textual => Ok(Operand::Boolean(*value)),
            (Value::Null, _) => request(format!("the condition on `{column}` needs a value; for no value use `empty`")),
            _ => request(format!("the value of the condition on `{column}` must be a number, a string or a boolean")),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ComparisonResult {
    Yes,
    No,
    Incomparable,
}

impl From<bool> for ComparisonResult {
    fn from(is_met: bool) -> Self {
        if is_met { ComparisonResult::Yes } else { ComparisonResult::No }
    }
}

fn compare(cell: &Cell, comparison: Comparison, operand: &Operand) -> ComparisonResult {
    match (comparison, operand) {
        (Comparison::Empty, _) => (*cell == Cell::Empty).into(),
        (Comparison::NotEmpty, _) => (*cell != Cell::Empty).into(),
        (Comparison::Contains, Operand::Text(part)) => cell.text().contains(part).into(),
        (Comparison::NotContains, Operand::Text(part)) => (!cell.text().contains(part)).into(),
        (Comparison::StartsWith, Operand::Text(part)) => cell.text().starts_with(part).into(),
        (Comparison::EndsWith, Operand::Text(part)) => cell.text().ends_with(part).into(),
        _ => match order_of(cell, operand) {
            Some(order) => decide(comparison, order).into(),
            None if *cell == Cell::Empty => (comparison == Comparison::NotEqual).into(),
            None if comparison == Comparison::NotEqual => ComparisonResult::Yes,
            None if comparison == Comparison::Equal => ComparisonResult::No,
            None => ComparisonResult::Incomparable,
        },
    }
}

fn decide(comparison: Comparison, order: Ordering) -> bool {
    match comparison {
        Comparison::Equal => order.is_eq(),
        Comparison::NotEqual => order.is_ne(),
        Comparison::Less => order.is_lt(),
        Comparison::LessOrEqual => order.is_le(),
        Comparison::Greater => order.is_gt(),
        Comparison::GreaterOrEqual => order.is_ge(),
        _ => false,
    }
}

/// Compares a cell with the value of a condition. Returns None if the types differ. If the cell is a number and the
/// value is a string that contains a number, the cell and the value are compared as numbers.
fn order_of(cell: &Cell, operand: &Operand) -> Option<Ordering> {
    match (cell, operand) {
        (Cell::Number(cell), Operand::Number(operand)) => Some(cell.cmp(operand)),
        (Cell::Number(cell), Operand::Text(operand)) => {
            Decimal::parse(operand.trim()).map(|operand| cell.cmp(&operand))
        }
        (Cell::Boolean(cell), Operand::Boolean(operand)) => Some(cell.cmp(operand)),
        (Cell::Boolean(cell), Operand::Text(operand)) => Some(cell.to_string().as_str().cmp(operand)),
        (Cell::Text(cell), Operand::Boolean(operand)) => Some(cell.as_str().cmp(&operand.to_string())),
        (Cell::Text(cell) | Cell::Nested(cell), Operand::Text(operand)) => Some(cell.cmp(operand)),
        _ => None,
    }
}
