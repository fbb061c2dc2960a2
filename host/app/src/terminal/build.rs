//! A build, and plugins being loaded, while it goes on.

use super::{BOLD, DIM, Terminal, YELLOW, text};
use agent_devkit::build::{BuildEvent, BuiltPlugin, Written};
use agent_devkit::vendored::{Age, OtherVersion};
use agent_plugins::{CodeSource, LoadEvent};

/// Shows what a build tells: on a terminal the toolchain's lines pass by in the spinner, elsewhere they are lines.
pub(crate) fn show_build(terminal: &Terminal, event: &BuildEvent<'_>) {
    match event {
        BuildEvent::Building { tool, plugins } => {
            terminal.note(format!("building {}", plugins.join(", ")));
            terminal.busy(tool);
        }
        BuildEvent::AddingTarget { command } => {
            terminal.note(format!("the Rust target for plugins is missing; running `{command}`"));
        }
        BuildEvent::Line { line, .. } if !terminal.is_interactive() => terminal.note(text::harmless(line)),
        BuildEvent::Line { tool, line } => terminal.busy(format!("{tool}: {}", line.trim())),
        BuildEvent::OtherVersion(other) => terminal.note(other_version(other)),
        BuildEvent::Built(plugin) => {
            terminal.idle();
            tracing::info!(plugin = plugin.name, digest = plugin.digest.short(), "built");
        }
    }
}

fn other_version(other: &OtherVersion) -> String {
    let OtherVersion { plugin, project, what, version, age } = other;
    let version = text::one_line(version, 40);
    let whose = match (version == env!("CARGO_PKG_VERSION"), version.is_empty()) {
        (true, _) => format!("{what} of another build of agent-host {version}"),
        (_, true) => format!("{what} of another agent-host"),
        _ => format!("{what} of agent-host {version}, and this is {}", env!("CARGO_PKG_VERSION")),
    };
    let advice = match age {
        Age::Older => format!("`agent-host plugin renew {}` renews it", project.display()),
        Age::Newer => "update agent-host where that hinders".to_owned(),
    };
    format!("{YELLOW}!{YELLOW:#} {plugin} has {whose}; it is built with what it has: {advice}")
}

/// Shows which plugin is being compiled; that happens once per component.
pub(crate) fn show_load(terminal: &Terminal, event: &LoadEvent) {
    match event {
        LoadEvent::Compiling { name, size } => {
            tracing::info!(plugin = name, size, "compiling");
            terminal.compiling(name, *size);
        }
        LoadEvent::Refused { name } => terminal.compiled(name),
        LoadEvent::Loaded { name, code } => {
            tracing::info!(plugin = name, ?code, "loaded");
            if *code == CodeSource::Compiled {
                terminal.compiled(name);
            }
        }
    }
}

/// Components that are being compiled.
#[derive(Debug, Default)]
pub(super) struct Compiling {
    now: Vec<(String, u64)>,
    done: usize,
}

impl Compiling {
    pub(super) fn begin(&mut self, name: &str, size: u64) {
        self.now.push((name.to_owned(), size));
    }

    pub(super) fn end(&mut self, name: &str) {
        if let Some(index) = self.now.iter().position(|(other, _)| other == name) {
            self.now.remove(index);
            self.done += 1;
        }
    }

    /// Nothing waits for the next one: the count begins again.
    pub(super) fn rest(&mut self) {
        if self.now.is_empty() {
            self.done = 0;
        }
    }

    /// What a person sees while it goes on: of several the one that began first.
    pub(super) fn line(&self) -> Option<String> {
        let (name, size) = self.now.first()?;
        let count = match self.done + self.now.len() {
            1 => String::new(),
            all => format!(" {} of {all}:", self.done + 1),
        };
        let name = text::one_line(name, 100);
        Some(format!("compiling{count} {name} ({}); this happens once, the code is kept", text::size(*size)))
    }
}

/// What was built, for stdout.
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

    // P9: what is being compiled is said, with a count where there are several.
    #[test]
    fn what_is_compiled_is_counted() {
        let mut compiling = Compiling::default();
        assert_eq!(compiling.line(), None);
        compiling.begin("web", 18 * 1024 * 1024);
        let once = "; this happens once, the code is kept";
        assert_eq!(compiling.line(), Some(format!("compiling web (18.0 MiB){once}")));
        ["text", "calc"].into_iter().for_each(|name| compiling.begin(name, 2048));
        assert_eq!(compiling.line(), Some(format!("compiling 1 of 3: web (18.0 MiB){once}")));
        compiling.end("web");
        compiling.end("never begun");
        assert_eq!(compiling.line(), Some(format!("compiling 2 of 3: text (2.0 KiB){once}")));
        ["text", "calc"].into_iter().for_each(|name| compiling.end(name));
        assert_eq!(compiling.line(), None);
        compiling.rest();
        compiling.begin("web", 2048);
        assert_eq!(compiling.line(), Some(format!("compiling web (2.0 KiB){once}")));
    }
}
