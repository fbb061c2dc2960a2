//! Tools that describe, filter, group, aggregate and sort tables in CSV, TSV and JSON. Numbers are exact decimals.

pub mod decimal;
pub mod describe;
pub mod group;
pub mod output;
pub mod select;
pub mod table;

mod tools;

use agent_host_sdk::prelude::*;

/// The plugin, which has five tools for tables. Each tool accepts the path of a file with a table, or the text of
/// a table.
pub struct TablePlugin;

impl ToolPlugin for TablePlugin {
    fn tools() -> Tools {
        tools::tools()
    }
}

agent_host_sdk::export_tools!(TablePlugin);
