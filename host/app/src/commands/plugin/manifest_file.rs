//! `plugin describe`: writes a manifest file beside a component that has no manifest, such as a command-line program or a
//! component that was built for another host (P3).

use crate::arguments::describe::DescribeArguments;
use crate::exit::Failure;
use crate::terminal::{BOLD, DIM, Terminal, show_load, text};
use agent_devkit::describe::manifest_text;
use agent_plugins::{
    ComponentMetadata, HostLimits, Manifest, Sandbox, existing_manifest_file, manifest_file_of, read_claims,
    read_component_alone, write_file_atomically,
};
use std::path::Path;

/// Writes the manifest file, and says what is in it.
pub(super) async fn describe(
    arguments: DescribeArguments,
    sandbox: &Sandbox,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let DescribeArguments { file: component, out, replace } = arguments;
    let refused = |error: &dyn std::fmt::Display| Failure::refused(format!("`{}`: {error}", component.display()));
    let bytes = read_component_alone(&component, HostLimits::default().component).map_err(|error| refused(&error))?;
    let stem = component.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    if read_claims(&stem, &bytes).map_err(|error| refused(&error))?.manifest.is_some() {
        return Err(refused(&format!(
            "it contains a manifest already; `agent-host plugin inspect {}` shows it",
            component.display()
        )));
    }
    let beside = manifest_file_of(&component);
    let target = out.or_else(|| beside.clone()).ok_or_else(|| {
        refused(
            &"its name does not end with `.wasm`, so a manifest beside it is not read: rename it, or use --out FILE",
        )
    })?;
    if !replace && target.symlink_metadata().is_ok() {
        return Err(Failure::refused(format!(
            "`{}` exists already; --replace replaces it, and --out FILE writes another file",
            target.display()
        )));
    }
    let metadata = ComponentMetadata::of(&bytes);
    let loaded = sandbox.load_bytes_with(&stem, bytes, &|event| show_load(terminal, &event)).await;
    terminal.idle();
    let plugin = loaded.map_err(|error| refused(&error))?;
    let written = manifest_text(&plugin, &metadata);
    Manifest::from_toml(&written, &target).map_err(Failure::failed)?;
    write_file_atomically(&target, written.as_bytes())
        .map_err(|error| Failure::failed(format!("`{}` cannot be written: {error}", target.display())))?;
    let tools = text::count(plugin.generic_tools().count(), "tool");
    let mut lines = vec![format!("{BOLD}{}{BOLD:#}  {} with {tools}", target.display(), plugin.name())];
    lines.push(
        "  the plugin gets only what the file asks for: remove the `#` from the lines under [asks] that it needs"
            .to_owned(),
    );
    match beside.filter(|beside| *beside == target) {
        Some(_) => lines.push(format!("  {DIM}agent-host plugin check {}{DIM:#}", component.display())),
        None => {
            lines.push(format!("  {DIM}agent-host reads it only beside the component, as {stem}.plugin.toml{DIM:#}"))
        }
    }
    super::print(terminal, lines.join("\n"))
}

/// Returns the path of the manifest file beside the component, for display.
pub(super) fn shown(component: &Path) -> Option<String> {
    existing_manifest_file(component).map(|file| file.display().to_string())
}
