//! Tools for tables in CSV, TSV and JSON: describe, filter, group, aggregate, sort. Numbers are exact decimals.

pub mod decimal;
pub mod describe;
pub mod group;
pub mod output;
pub mod select;
pub mod table;

mod tools;

use agent_host_sdk::prelude::*;

/// The plugin with five tools. Each works on a file or on a text.
pub struct TablePlugin;

impl ToolPlugin for TablePlugin {
    fn tools() -> Tools {
        tools::tools()
    }
}

agent_host_sdk::export_tools!(TablePlugin);
