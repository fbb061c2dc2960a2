//! Calculates count, sum, mean, minimum and maximum, for all rows of a table or for each group of rows.

use crate::decimal::{Decimal, MEAN_DIGITS, Precision};
use crate::select::natural_order;
use crate::table::{Cell, Row, Table, TableError};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::HashMap;

/// One value to calculate.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Aggregate {
    /// The function to calculate. Empty cells are ignored.
    pub function: Function,
    /// The column to aggregate. Only `count` works without a column; it then counts rows.
    pub column: Option<String>,
    /// Name of the result. Default: `sum_price` for the sum of `price`, `count` for the count of rows.
    #[serde(rename = "as")]
    pub name: Option<String>,
}

/// The available functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Function {
    /// Number of rows, or of cells that are not empty.
    Count,
    /// Exact sum of numbers.
    Sum,
    /// Sum divided by the number of cells that are not empty.
    Mean,
    /// Smallest number, or first text.
    Min,
    /// Largest number, or last text.
    Max,
}

impl Function {
    fn name(self) -> &'static str {
        match self {
            Function::Count => "count",
            Function::Sum => "sum",
            Function::Mean => "mean",
            Function::Min => "min",
            Function::Max => "max",
        }
    }
}

/// Groups the rows and calculates the aggregates of each group. Returns notes, and a table with one row for each group.
/// The order of the groups is the order of the first rows of the groups. If there are no key columns, all rows belong
/// to one group.
pub fn group(table: &Table, keys: &[String], aggregates: &[Aggregate]) -> Result<(Table, Vec<String>), TableError> {
    let key_columns: Vec<usize> = keys.iter().map(|name| table.column(name)).collect::<Result<_, _>>()?;
    let aggregations: Vec<Aggregation> =
        aggregates.iter().map(|aggregate| Aggregation::of(table, aggregate)).collect::<Result<_, _>>()?;
    let columns: Vec<String> =
        keys.iter().cloned().chain(aggregations.iter().map(|aggregation| aggregation.name.clone())).collect();
    if let Some(duplicate) = columns.iter().enumerate().find(|(position, name)| columns[..*position].contains(name)) {
        return Err(TableError::Request(format!(
            "the result has two columns named `{}`; name one with `as`",
            duplicate.1
        )));
    }
    let groups = split_into_groups(table, &key_columns);
    let mut rows = Vec::with_capacity(groups.len());
    let mut notes = Vec::new();
    for members in groups {
        let mut cells: Vec<Cell> = match members.first() {
            Some(row) => key_columns.iter().map(|column| row.cells[*column].clone()).collect(),
            None => Vec::new(),
        };
        for aggregation in &aggregations {
            let (cell, precision) = aggregation.calculate(table, &members)?;
            let note =
                format!("`{}` is rounded to {MEAN_DIGITS} digits after the point if it has more", aggregation.name);
            if precision == Precision::Rounded && !notes.contains(&note) {
                notes.push(note);
            }
            cells.push(cell);
        }
        rows.push(Row { line: members.first().map_or(0, |row| row.line), cells });
    }
    Ok((Table { columns, rows, bad_rows: table.bad_rows.clone(), bad_row_count: table.bad_row_count }, notes))
}

fn split_into_groups<'a>(table: &'a Table, keys: &[usize]) -> Vec<Vec<&'a Row>> {
    if keys.is_empty() {
        return vec![table.rows.iter().collect()];
    }
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    let mut positions: HashMap<Vec<(u8, String)>, usize> = HashMap::new();
    for row in &table.rows {
        // The key of a group contains the type of each value in addition to its text, because the text `true` and the
        // boolean `true` belong to different groups.
        let key = keys.iter().map(|column| (type_number(&row.cells[*column]), row.cells[*column].text())).collect();
        let position = *positions.entry(key).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[position].push(row);
    }
    groups
}

fn type_number(cell: &Cell) -> u8 {
    match cell {
        Cell::Empty => 0,
        Cell::Boolean(_) => 1,
        Cell::Number(_) => 2,
        Cell::Text(_) => 3,
        Cell::Nested(_) => 4,
    }
}

struct Aggregation {
    function: Function,
    column: Option<usize>,
    name: String,
}

impl Aggregation {
    fn of(table: &Table, aggregate: &Aggregate) -> Result<Aggregation, TableError> {
        let function = aggregate.function;
        let column = aggregate.column.as_deref().map(|name| table.column(name)).transpose()?;
        if column.is_none() && function != Function::Count {
            return Err(TableError::Request(format!("`{}` needs a column", function.name())));
        }
        let default_name = match &aggregate.column {
            Some(column) => format!("{}_{column}", function.name()),
            None => function.name().to_owned(),
        };
        Ok(Aggregation { function, column, name: aggregate.name.clone().unwrap_or(default_name) })
    }

    fn calculate(&self, table: &Table, rows: &[&Row]) -> Result<(Cell, Precision), TableError> {
        let Some(column) = self.column else {
            return Ok((whole_number(rows.len()), Precision::Exact));
        };
        let filled = || rows.iter().filter(move |row| row.cells[column] != Cell::Empty);
        let cell = match self.function {
            Function::Count => whole_number(filled().count()),
            Function::Min => filled()
                .map(|row| &row.cells[column])
                .min_by(|a, b| natural_order(a, b))
                .map_or(Cell::Empty, Cell::clone),
            Function::Max => filled()
                .map(|row| &row.cells[column])
                .max_by(|a, b| natural_order(a, b))
                .map_or(Cell::Empty, Cell::clone),
            Function::Sum | Function::Mean => {
                let mut sum = Decimal::default();
                let mut count = 0;
                for row in filled() {
                    sum = sum.plus(number(table, row, column)?);
                    count += 1;
                }
                if self.function == Function::Sum {
                    Cell::Number(sum)
                } else if count == 0 {
                    Cell::Empty
                } else {
                    let (mean, precision) = sum.mean_of(count);
                    return Ok((Cell::Number(mean), precision));
                }
            }
        };
        Ok((cell, Precision::Exact))
    }
}

fn number<'a>(table: &Table, row: &'a Row, column: usize) -> Result<&'a Decimal, TableError> {
    match &row.cells[column] {
        Cell::Number(number) => Ok(number),
        other => {
            // The error names the first row whose value is not a number, because this value is the reason why the
            // column is a text column.
            let offending = table.rows.iter().find(|row| match &row.cells[column] {
                Cell::Number(_) | Cell::Empty => false,
                Cell::Text(text) => Decimal::parse(text.trim()).is_none(),
                _ => true,
            });
            let (line, value) = offending.map_or((row.line, other.text()), |row| (row.line, row.cells[column].text()));
            Err(TableError::NotANumber {
                line,
                column: table.columns[column].clone(),
                value: value.chars().take(40).collect(),
            })
        }
    }
}

fn whole_number(count: usize) -> Cell {
    Decimal::parse(&count.to_string()).map_or(Cell::Empty, Cell::Number)
}
