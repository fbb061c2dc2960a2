//! The messages about builds and plugin versions that `dev` shows to a plugin author (S5).

use crate::terminal::{BOLD, DIM, GREEN, RED, YELLOW, text};
use agent_devkit::build::{BuiltPlugin, Written};
use agent_devkit::dev::DevEvent;
use agent_runtime::Notice;

/// Maximum number of lines that are shown if a toolchain reports errors. The first errors are the most important ones.
const SHOWN_LINES: usize = 60;

/// Minimum size, in bytes, of a component for which `dev` announces that compiling it to machine code takes a while.
const LARGE_COMPONENT: u64 = 4 << 20;

/// Describes a build event, or returns `None` if the event needs no message.
pub(in crate::commands) fn describe(news: &DevEvent) -> Option<String> {
    match news {
        DevEvent::Building { changed: Some(path) } => {
            let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
            Some(format!("{DIM}{} has changed: building{DIM:#}", text::one_line(&name, 100)))
        }
        DevEvent::Building { changed: None } | DevEvent::Superseded => None,
        DevEvent::Built(plugins) => {
            let is_new = |plugin: &&BuiltPlugin| plugin.written == Written::Changed;
            let lines: Vec<_> = plugins.iter().filter(is_new).map(describe_built).collect();
            Some(match lines.is_empty() {
                true => format!("{DIM}built: the component has not changed{DIM:#}"),
                false => lines.join("\n"),
            })
        }
        DevEvent::Failed(error) => {
            let message = text::harmless(&error.to_string()).into_owned();
            let mut lines: Vec<_> = message.trim_end().lines().collect();
            let more = lines.len().saturating_sub(SHOWN_LINES);
            lines.truncate(SHOWN_LINES);
            let more = if more == 0 { String::new() } else { format!("\n  … {}", text::count(more, "more line")) };
            let shown = lines.join("\n");
            Some(format!("{RED}✗{RED:#} {shown}{more}\n{DIM}  the previous build stays in use{DIM:#}"))
        }
    }
}

fn describe_built(plugin: &BuiltPlugin) -> String {
    let BuiltPlugin { name, digest, size, .. } = plugin;
    let next = if *size < LARGE_COMPONENT { "" } else { "; compiling it takes a while" };
    format!("{DIM}built {name} {} ({}){next}{DIM:#}", digest.short(), text::size(*size))
}

/// Describes a change to the plugin version in use, or returns `None` if the version has not changed.
pub(in crate::commands) fn describe_version_change(notice: &Notice) -> Option<String> {
    match notice {
        Notice::Swapped { plugin, to: Some(to), .. } => {
            let plugin = text::one_line(plugin, 64);
            Some(format!("{GREEN}✓{GREEN:#} {BOLD}{plugin}{BOLD:#} {} is used from the next turn on", to.short()))
        }
        Notice::Swapped { plugin, to: None, .. } => Some(format!(
            "{YELLOW}!{YELLOW:#} {BOLD}{}{BOLD:#} is removed from the next turn on",
            text::one_line(plugin, 64)
        )),
        Notice::RolledBack { plugin, from, to, because } => Some(format!(
            "{YELLOW}!{YELLOW:#} {BOLD}{}{BOLD:#} {} was rolled back: {}; {} is used instead",
            text::one_line(plugin, 64),
            from.short(),
            text::one_line(because, 300),
            to.short()
        )),
        Notice::Refused { .. } => None,
    }
}
