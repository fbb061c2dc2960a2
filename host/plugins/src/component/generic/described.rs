//! Applies the tables `[[tools]]` of a manifest to the tools that are made from exported functions.

use super::{GenericFacts, KnownFacts};
use crate::contract::v0_1::tools::{check_input_schema, check_name};
use crate::grants::manifest::DescribedTool;
use crate::limits::DESCRIPTION_BYTES;
use crate::text::{clean, cut};
use agent_core::tool::ToolDefinition;
use std::collections::BTreeSet;

/// Maximum number of exported functions that an error message lists.
const LISTED: usize = 8;

impl GenericFacts {
    /// Changes the tools as the manifest describes them. `tools` are the tools of these facts' functions, in the same
    /// order. Fails if the manifest describes a function that is not a tool, because a trait for that function would
    /// otherwise be lost without notice. The error message is written for the author of the manifest.
    pub(crate) fn describe(&mut self, known: &KnownFacts<'_>, tools: &mut [ToolDefinition]) -> Result<(), String> {
        let described = known.manifest.into_iter().flat_map(|manifest| &manifest.tools);
        let mut seen = BTreeSet::new();
        for table in described {
            if !seen.insert(table.export.as_str()) {
                return Err(format!("the manifest describes `{}` twice", shown(&table.export)));
            }
            let index = self.functions.iter().position(|function| function.export() == table.export);
            let Some(index) = index else { return Err(self.no_such_export(&table.export)) };
            apply(table, &mut tools[index])?;
            self.functions[index].tool.clone_from(&tools[index].name);
        }
        let mut names: BTreeSet<&str> = known.tools.iter().map(|tool| tool.name.as_str()).collect();
        match tools.iter().find(|tool| !names.insert(&tool.name)) {
            Some(tool) => Err(format!("two tools are named `{}`; change a `name` in the manifest", tool.name)),
            None => Ok(()),
        }
    }

    fn no_such_export(&self, export: &str) -> String {
        let exports: Vec<_> =
            self.functions.iter().take(LISTED).map(|function| format!("`{}`", shown(&function.export()))).collect();
        let more = if self.functions.len() > LISTED { ", …" } else { "" };
        let offered = match exports.as_slice() {
            [] => "none, because only functions that the host itself turns into tools can be described".to_owned(),
            exports => format!("{}{more}", exports.join(", ")),
        };
        format!(
            "the manifest describes the function `{}`, which is not a tool; its functions are {offered}",
            shown(export)
        )
    }
}

fn shown(export: &str) -> String {
    clean(export, 256)
}

fn apply(table: &DescribedTool, tool: &mut ToolDefinition) -> Result<(), String> {
    if let Some(name) = &table.name {
        check_name(name)?;
        tool.name.clone_from(name);
    }
    if let Some(title) = &table.title {
        tool.title = Some(clean(title, DESCRIPTION_BYTES));
    }
    if let Some(description) = &table.description {
        tool.description = cut(&clean(description, DESCRIPTION_BYTES), DESCRIPTION_BYTES).to_owned();
    }
    if let Some(schema) = &table.input_schema {
        check_input_schema(schema, &tool.name)?;
        tool.input_schema.clone_from(schema);
    }
    tool.traits.destructive |= table.destructive;
    tool.traits.read_only &= !table.destructive;
    tool.traits.sequential |= table.sequential;
    tool.traits.open_world |= table.open_world;
    tool.traits.needs_approval |= table.needs_approval;
    Ok(())
}
