//! `plugin explain`: shows the grants that a plugin requests, the grants that the plugin has, and the configuration
//! lines that would add the missing grants (P6).

use super::manifest_file;
use crate::terminal::{BOLD, DIM, GREEN, YELLOW};
use agent_config::{MissingAccess, PluginAccess};
use agent_plugins::{Grants, LoadedPlugin};
use std::path::Path;
use std::sync::Arc;

/// Explains the plugin's grants, one per line.
pub(super) fn explained(plugin: &Arc<LoadedPlugin>, file: &Path, grants: Grants) -> String {
    let access = PluginAccess::of(plugin, grants);
    let mut lines = vec![format!("{BOLD}{}{BOLD:#} {DIM}{}{DIM:#}", plugin.name(), plugin.digest().short())];
    if let Some(manifest) = manifest_file::shown(file) {
        lines.push(format!("  manifest  {manifest}"));
    }
    if !access.has_manifest {
        lines.push("  the plugin has no manifest, so it gets everything that it is granted".to_owned());
    }
    lines.extend(access.always.iter().map(|text| format!("  always    {text}")));
    lines.extend(access.gets.iter().map(|text| format!("  {GREEN}gets{GREEN:#}      {text}")));
    for missing in &access.partly {
        let part = missing.part.as_deref().unwrap_or_default();
        lines.push(format!("  {YELLOW}partly{YELLOW:#}    {}; the plugin gets {part}", missing.thing));
        lines.push(advice_line("to allow all of it", missing));
    }
    for missing in &access.denied {
        lines.push(format!("  {YELLOW}denied{YELLOW:#}    {}", missing.thing));
        lines.push(advice_line("to allow it", missing));
    }
    if let Some((table, line)) = &access.all_requests {
        lines.push(format!("  requests  {DIM}to allow all of them:{DIM:#} {table} {line}"));
    }
    lines
        .extend(access.unused.iter().map(|grant| format!("  {YELLOW}unused{YELLOW:#}    `{}` {grant}", plugin.name())));
    if access.is_nothing() {
        lines.push("  the plugin asks for nothing, and gets nothing".to_owned());
    }
    lines.join("\n")
}

fn advice_line(purpose: &str, MissingAccess { table, line, .. }: &MissingAccess) -> String {
    format!("            {DIM}{purpose}:{DIM:#} {table} {line}")
}
