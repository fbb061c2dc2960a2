//! Shows the progress of builds and of loading plugins.

use super::{Announced, BOLD, DIM, Terminal, YELLOW, text};
use agent_devkit::build::{BuildEvent, BuiltPlugin, Written};
use agent_devkit::renew::{Age, VersionMismatch};
use agent_plugins::{CodeSource, LoadEvent};
use std::path::{Path, PathBuf};

/// Shows a build event. On a terminal, the toolchain's output appears in the spinner. On other outputs, the toolchain's
/// output is printed as lines.
pub(crate) fn show_build(terminal: &Terminal, event: &BuildEvent<'_>) {
    match event {
        BuildEvent::Building { tool, plugins } => {
            terminal.note(format!("building {}", plugins.join(", ")));
            terminal.show_activity(tool, Announced::Already);
        }
        BuildEvent::AddingTarget { command } => {
            terminal.note(format!("the Rust target for plugins is missing; running `{command}`"));
        }
        BuildEvent::Line { line, .. } if !terminal.is_interactive() => terminal.note(text::harmless(line)),
        BuildEvent::Line { tool, line } => terminal.busy(format!("{tool}: {}", line.trim())),
        BuildEvent::VersionMismatch(mismatch) => terminal.note(version_warning(mismatch)),
        BuildEvent::Built(plugin) => {
            terminal.idle();
            tracing::info!(plugin = plugin.name, digest = plugin.digest.short(), "built");
            if plugin.written == Written::Changed && signature_of(&plugin.path).is_file() {
                terminal.note(format!(
                    "{YELLOW}!{YELLOW:#} {} has changed, so its signature is no longer valid: sign it again with `agent-host plugin sign`",
                    plugin.path.display()
                ));
            }
        }
    }
}

/// Returns the path of the signature of a component file.
fn signature_of(component: &Path) -> PathBuf {
    let mut path = component.as_os_str().to_owned();
    path.push(".minisig");
    PathBuf::from(path)
}

fn version_warning(mismatch: &VersionMismatch) -> String {
    let VersionMismatch { plugin, project, description, version, age } = mismatch;
    let version = text::one_line(version, 40);
    let difference = match (version == env!("CARGO_PKG_VERSION"), version.is_empty()) {
        (true, _) => format!("{description} of another build of agent-host {version}"),
        (_, true) => format!("{description} of another version of agent-host"),
        _ => format!("{description} of agent-host {version}, but this is version {}", env!("CARGO_PKG_VERSION")),
    };
    let advice = match age {
        Age::Older => format!("`agent-host plugin renew {}` updates the project", project.display()),
        Age::Newer => "update agent-host if this causes problems".to_owned(),
    };
    format!("{YELLOW}!{YELLOW:#} {plugin} is built with {difference}; {advice}")
}

/// Shows which component is being compiled.
pub(crate) fn show_load(terminal: &Terminal, event: &LoadEvent) {
    match event {
        LoadEvent::Compiling { name, size } => {
            tracing::info!(plugin = name, size, "compiling");
            terminal.compilation_started(name, *size);
        }
        LoadEvent::Refused { name } => terminal.compilation_ended(name),
        LoadEvent::Loaded { name, code } => {
            tracing::info!(plugin = name, ?code, "loaded");
            if *code == CodeSource::Compiled {
                terminal.compilation_ended(name);
            }
        }
    }
}

/// The compilations that are running, and the number of compilations that have ended.
#[derive(Debug, Default)]
pub(super) struct Compiling {
    /// Name and size in bytes of each component, in the order in which the compilations started.
    running: Vec<(String, u64)>,
    /// Number of compilations that have ended. The count starts from zero again when no compilation is running.
    ended: usize,
}

impl Compiling {
    /// Records that the compilation of a component with this size in bytes has started.
    pub(super) fn start(&mut self, name: &str, size: u64) {
        self.running.push((name.to_owned(), size));
    }

    /// Records that a compilation has ended. The call is ignored if no component with this name is being compiled.
    pub(super) fn end(&mut self, name: &str) {
        if let Some(index) = self.running.iter().position(|(other, _)| other == name) {
            self.running.remove(index);
            self.ended += 1;
        }
    }

    /// Starts counting from zero again if no compilation is running.
    pub(super) fn reset_if_idle(&mut self) {
        if self.running.is_empty() {
            self.ended = 0;
        }
    }

    /// Returns the text for the spinner, which names the running compilation that started first. Returns None if no
    /// compilation is running.
    pub(super) fn line(&self) -> Option<String> {
        let (name, size) = self.running.first()?;
        let count = match self.ended + self.running.len() {
            1 => String::new(),
            total => format!(" {} of {total}:", self.ended + 1),
        };
        let name = text::one_line(name, 100);
        Some(format!("compiling{count} {name} ({}); this happens once, then the code is cached", text::size(*size)))
    }
}

/// Describes a built plugin, for stdout.
pub(crate) fn built(plugin: &BuiltPlugin) -> String {
    let state = match plugin.written {
        Written::Changed => "written",
        Written::Unchanged => "unchanged",
    };
    let lines = |names: &[String]| text::imports(names).join("\n            ");
    let (imports, exports) = (lines(&plugin.imports), lines(&plugin.exports));
    format!(
        "{BOLD}{}{BOLD:#} {} {DIM}{} ({state}){DIM:#}\n  size      {}\n  digest    {}\n  imports   {imports}\n  exports   {exports}",
        plugin.name,
        plugin.version,
        plugin.path.display(),
        text::size(plugin.size),
        plugin.digest,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// P9: the spinner names the component that is being compiled. If several components are being compiled, the
    /// spinner also shows how many there are.
    #[test]
    fn p9_shows_and_counts_compilations() {
        let mut compiling = Compiling::default();
        assert_eq!(compiling.line(), None);
        compiling.start("web", 18 * 1024 * 1024);
        let once = "; this happens once, then the code is cached";
        assert_eq!(compiling.line(), Some(format!("compiling web (18.0 MiB){once}")));
        ["text", "calc"].into_iter().for_each(|name| compiling.start(name, 2048));
        assert_eq!(compiling.line(), Some(format!("compiling 1 of 3: web (18.0 MiB){once}")));
        compiling.end("web");
        compiling.end("never started");
        assert_eq!(compiling.line(), Some(format!("compiling 2 of 3: text (2.0 KiB){once}")));
        ["text", "calc"].into_iter().for_each(|name| compiling.end(name));
        assert_eq!(compiling.line(), None);
        compiling.reset_if_idle();
        compiling.start("web", 2048);
        assert_eq!(compiling.line(), Some(format!("compiling web (2.0 KiB){once}")));
    }
}
