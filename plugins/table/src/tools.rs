//! Defines the tools and their arguments, and runs the calls.

use crate::describe::{Description, describe};
use crate::group::{Aggregate, group};
use crate::output::{DEFAULT_LIMIT, MAX_LIMIT, OutputFormat, Rows, rows};
use crate::select::{Condition, Require, SortKey, filter, sort};
use crate::table::{Format, Table, TableError};
use agent_host_sdk::prelude::*;
use agent_host_sdk::trees::read_text;

/// Maximum number of bytes of a file that contains a table.
const MAX_SIZE: u64 = 16 * 1024 * 1024;

/// The source of a table: exactly one of the two.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Source {
    /// A file in a granted tree. Example: `sales.csv`.
    Path(String),
    /// The table as text, for example CSV with a header line.
    Data(String),
}

/// Arguments of `table.describe`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DescribeArguments {
    /// `{"path": "sales.csv"}`, or `{"data": "name,price\npen,1.20\n"}`.
    from: Source,
    /// Format of the table. Default: detected from the file's extension or the text.
    format: Option<Format>,
}

/// Arguments of `table.filter`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FilterArguments {
    /// `{"path": "sales.csv"}`, or `{"data": "name,price\npen,1.20\n"}`.
    from: Source,
    /// Format of the table. Default: detected from the file's extension or the text.
    format: Option<Format>,
    /// The rows to keep. An empty list keeps all rows.
    #[schemars(length(max = 50))]
    conditions: Vec<Condition>,
    /// Whether all conditions must be met, or any. Default: all.
    #[serde(default)]
    require: Require,
    /// Columns of the result in order. Default: all.
    columns: Option<Vec<String>>,
    /// Format of the result. Default: json.
    #[serde(default)]
    output: OutputFormat,
    /// Maximum number of rows to return, at most 5000. Default: 50.
    #[schemars(range(min = 1, max = 5000))]
    limit: Option<u32>,
}

/// Arguments of `table.group`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GroupArguments {
    /// `{"path": "sales.csv"}`, or `{"data": "name,price\npen,1.20\n"}`.
    from: Source,
    /// Format of the table. Default: detected from the file's extension or the text.
    format: Option<Format>,
    /// Columns whose values define the groups.
    #[schemars(length(min = 1, max = 20))]
    by: Vec<String>,
    /// What to calculate for each group. Example: `[{"function": "sum", "column": "price"}]`.
    #[schemars(length(min = 1, max = 50))]
    aggregates: Vec<Aggregate>,
    /// Order of the groups by columns of the result. Default: order of their first rows.
    #[serde(default)]
    sort: Vec<SortKey>,
    /// Format of the result. Default: json.
    #[serde(default)]
    output: OutputFormat,
    /// Maximum number of groups to return, at most 5000. Default: 50.
    #[schemars(range(min = 1, max = 5000))]
    limit: Option<u32>,
}

/// Arguments of `table.aggregate`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AggregateArguments {
    /// `{"path": "sales.csv"}`, or `{"data": "name,price\npen,1.20\n"}`.
    from: Source,
    /// Format of the table. Default: detected from the file's extension or the text.
    format: Option<Format>,
    /// What to calculate. Example: `[{"function": "mean", "column": "price"}]`.
    #[schemars(length(min = 1, max = 50))]
    aggregates: Vec<Aggregate>,
    /// The rows to calculate with. Default: all.
    #[serde(default)]
    conditions: Vec<Condition>,
}

/// Arguments of `table.sort`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SortArguments {
    /// `{"path": "sales.csv"}`, or `{"data": "name,price\npen,1.20\n"}`.
    from: Source,
    /// Format of the table. Default: detected from the file's extension or the text.
    format: Option<Format>,
    /// Sort keys, the most important first. Example: `[{"column": "price", "order": "descending"}]`.
    #[schemars(length(min = 1, max = 20))]
    by: Vec<SortKey>,
    /// Columns of the result in order. Default: all.
    columns: Option<Vec<String>>,
    /// Format of the result. Default: json.
    #[serde(default)]
    output: OutputFormat,
    /// Maximum number of rows to return, at most 5000. Default: 50.
    #[schemars(range(min = 1, max = 5000))]
    limit: Option<u32>,
}

/// Returns all tools of the plugin.
pub(crate) fn tools() -> Tools {
    Tools::new()
        .tool(
            Tool::new("table.describe", DESCRIBE)
                .title("Describe a table")
                .read_only()
                .output::<Description>()
                .run(|arguments: DescribeArguments, _: &Call| run_describe(&arguments)),
        )
        .tool(
            Tool::new("table.filter", FILTER)
                .title("Filter a table")
                .read_only()
                .output::<Rows>()
                .run(|arguments: FilterArguments, _: &Call| run_filter(&arguments)),
        )
        .tool(
            Tool::new("table.group", GROUP)
                .title("Group a table")
                .read_only()
                .output::<Rows>()
                .run(|arguments: GroupArguments, _: &Call| run_group(&arguments)),
        )
        .tool(
            Tool::new("table.aggregate", AGGREGATE)
                .title("Aggregate a table")
                .read_only()
                .output::<Rows>()
                .run(|arguments: AggregateArguments, _: &Call| run_aggregate(&arguments)),
        )
        .tool(
            Tool::new("table.sort", SORT)
                .title("Sort a table")
                .read_only()
                .output::<Rows>()
                .run(|arguments: SortArguments, _: &Call| run_sort(&arguments)),
        )
}

const DESCRIBE: &str = "Describes a CSV, TSV or JSON table: rows, columns, inferred types, empty and distinct values, \
                        ranges, examples, and rows that cannot be read. Use it before the other table tools.";

const FILTER: &str = "Returns the rows of a CSV, TSV or JSON table that satisfy conditions on their columns. A number \
                      in a condition compares as a number, a string as text.";

const GROUP: &str = "Groups the rows of a CSV, TSV or JSON table by columns and calculates count, sum, mean, min or \
                     max of each group. Sums are exact.";

const AGGREGATE: &str = "Calculates count, sum, mean, min or max over a CSV, TSV or JSON table, or over the rows that \
                         satisfy conditions. Sums are exact.";

const SORT: &str = "Sorts the rows of a CSV, TSV or JSON table by one or more columns, ascending or descending. \
                    Numbers sort as numbers; empty cells come last.";

fn run_describe(arguments: &DescribeArguments) -> Result<Done, ToolError> {
    Done::json(&describe(&read(&arguments.from, arguments.format)?))
}

fn run_filter(arguments: &FilterArguments) -> Result<Done, ToolError> {
    let limit = limit(arguments.limit)?;
    let mut table = read(&arguments.from, arguments.format)?;
    let notes = filter_rows(&mut table, &arguments.conditions, arguments.require)?;
    let columns = chosen_columns(&table, arguments.columns.as_deref())?;
    Done::json(&rows(&table, &columns, arguments.output, limit, notes))
}

fn run_group(arguments: &GroupArguments) -> Result<Done, ToolError> {
    let limit = limit(arguments.limit)?;
    if arguments.by.is_empty() {
        return Err(ToolError::invalid("/by", "names no column; to aggregate the whole table, use table.aggregate"));
    }
    let table = read(&arguments.from, arguments.format)?;
    let (mut groups, notes) = group(&table, &arguments.by, &arguments.aggregates).map_err(invalid)?;
    sort(&mut groups, &arguments.sort).map_err(invalid)?;
    let columns = chosen_columns(&groups, None)?;
    Done::json(&rows(&groups, &columns, arguments.output, limit, notes))
}

fn run_aggregate(arguments: &AggregateArguments) -> Result<Done, ToolError> {
    let mut table = read(&arguments.from, arguments.format)?;
    let mut notes = filter_rows(&mut table, &arguments.conditions, Require::All)?;
    let (figures, more) = group(&table, &[], &arguments.aggregates).map_err(invalid)?;
    notes.extend(more);
    let columns = chosen_columns(&figures, None)?;
    Done::json(&rows(&figures, &columns, OutputFormat::Json, 1, notes))
}

fn run_sort(arguments: &SortArguments) -> Result<Done, ToolError> {
    let limit = limit(arguments.limit)?;
    let mut table = read(&arguments.from, arguments.format)?;
    sort(&mut table, &arguments.by).map_err(invalid)?;
    let columns = chosen_columns(&table, arguments.columns.as_deref())?;
    Done::json(&rows(&table, &columns, arguments.output, limit, Vec::new()))
}

fn read(source: &Source, format: Option<Format>) -> Result<Table, ToolError> {
    let (path, text) = match source {
        Source::Path(path) => (Some(path.as_str()), read_text(path, MAX_SIZE)?),
        Source::Data(data) => (None, data.clone()),
    };
    let format = format.unwrap_or_else(|| Format::guess(path, &text));
    Table::parse(&text, format).map_err(|error| ToolError::invalid("/from", error.to_string()))
}

fn filter_rows(table: &mut Table, conditions: &[Condition], require: Require) -> Result<Vec<String>, ToolError> {
    if conditions.is_empty() {
        return Ok(Vec::new());
    }
    let incomparable = filter(table, conditions, require).map_err(invalid)?;
    let note =
        format!("{incomparable} comparisons of text with a number, or of a number with text, count as not satisfied");
    Ok(if incomparable > 0 { vec![note] } else { Vec::new() })
}

fn chosen_columns(table: &Table, names: Option<&[String]>) -> Result<Vec<usize>, ToolError> {
    match names {
        None => Ok((0..table.columns.len()).collect()),
        Some(names) => names.iter().map(|name| table.column(name).map_err(invalid)).collect(),
    }
}

fn limit(limit: Option<u32>) -> Result<u32, ToolError> {
    let limit = limit.unwrap_or(DEFAULT_LIMIT);
    if (1..=MAX_LIMIT).contains(&limit) {
        Ok(limit)
    } else {
        Err(ToolError::invalid("/limit", format!("must be from 1 to {MAX_LIMIT}")))
    }
}

fn invalid(error: TableError) -> ToolError {
    ToolError::invalid("", error.to_string())
}
