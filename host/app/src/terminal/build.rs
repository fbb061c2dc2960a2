//! A build, and plugins being loaded, while it goes on.

use super::{BOLD, DIM, Terminal, text};
use agent_kit::build::{BuildEvent, BuiltPlugin, Written};
use agent_plugins::{CodeSource, LoadEvent};

/// Shows what a build tells: on a terminal cargo's lines pass by in the spinner, elsewhere they are lines.
pub(crate) fn show_build(terminal: &Terminal, event: &BuildEvent<'_>) {
    match event {
        BuildEvent::Building { plugins } => {
            terminal.note(format!("building {}", plugins.join(", ")));
            terminal.busy("cargo");
        }
        BuildEvent::AddingTarget { command } => {
            terminal.note(format!("the Rust target for plugins is missing; running `{command}`"));
        }
        BuildEvent::Line(line) if !terminal.is_interactive() => terminal.note(text::harmless(line)),
        BuildEvent::Line(line) => terminal.busy(format!("cargo: {}", line.trim())),
        BuildEvent::Built(plugin) => {
            terminal.idle();
            tracing::info!(plugin = plugin.name, digest = plugin.digest.short(), "built");
        }
    }
}

/// Shows which plugin is being compiled; that happens once per component.
pub(crate) fn show_load(terminal: &Terminal, event: &LoadEvent) {
    match event {
        LoadEvent::Compiling { name } => {
            tracing::info!(plugin = name, "compiling");
            terminal.compiling();
        }
        LoadEvent::Loaded { name, code } => {
            tracing::info!(plugin = name, ?code, "loaded");
            if *code == CodeSource::Compiled {
                terminal.compiled();
            }
        }
    }
}

/// What was built, for stdout.
pub(crate) fn built(plugin: &BuiltPlugin) -> String {
    let state = match plugin.written {
        Written::Changed => "written",
        Written::Unchanged => "unchanged",
    };
    let imports = text::imports(&plugin.imports).join("\n            ");
    format!(
        "{BOLD}{}{BOLD:#} {} {DIM}{} ({state}){DIM:#}\n  size      {}\n  digest    {}\n  imports   {imports}",
        plugin.name,
        plugin.version,
        plugin.path.display(),
        text::size(plugin.size),
        plugin.digest,
    )
}
