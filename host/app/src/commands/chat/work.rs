//! What is said to somebody who works on a plugin: what becomes of its source (S5).

use crate::terminal::{BOLD, DIM, GREEN, RED, YELLOW, text};
use agent_devkit::build::{BuiltPlugin, Written};
use agent_devkit::dev::News;
use agent_runtime::Notice;

/// Lines of a toolchain's errors that are shown; the first ones count.
const SHOWN_LINES: usize = 60;

/// Bytes of a component from which on its machine code is made in seconds.
const LARGE: u64 = 4 << 20;

/// What to say of a build, if anything.
pub(in crate::commands) fn words(news: &News) -> Option<String> {
    match news {
        News::Building { changed: Some(path) } => {
            let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
            Some(format!("{DIM}{} has changed: building{DIM:#}", text::one_line(&name, 100)))
        }
        News::Building { changed: None } | News::Superseded => None,
        News::Built(plugins) => {
            let is_new = |plugin: &&BuiltPlugin| plugin.written == Written::Changed;
            let lines: Vec<_> = plugins.iter().filter(is_new).map(built).collect();
            Some(match lines.is_empty() {
                true => format!("{DIM}built: nothing in the component has changed{DIM:#}"),
                false => lines.join("\n"),
            })
        }
        News::Failed(error) => {
            let said = text::harmless(&error.to_string()).into_owned();
            let mut lines: Vec<_> = said.trim_end().lines().collect();
            let more = lines.len().saturating_sub(SHOWN_LINES);
            lines.truncate(SHOWN_LINES);
            let more = if more == 0 { String::new() } else { format!("\n  … {}", text::count(more, "more line")) };
            let said = lines.join("\n");
            Some(format!("{RED}✗{RED:#} {said}{more}\n{DIM}  what was built before goes on serving{DIM:#}"))
        }
    }
}

fn built(plugin: &BuiltPlugin) -> String {
    let BuiltPlugin { name, digest, size, .. } = plugin;
    let next = if *size < LARGE { "" } else { "; compiling it takes a while" };
    format!("{DIM}built {name} {} ({}){next}{DIM:#}", digest.short(), text::size(*size))
}

/// What to say of another version.
pub(super) fn swapped(notice: &Notice) -> Option<String> {
    match notice {
        Notice::Swapped { plugin, to: Some(to), .. } => {
            let plugin = text::one_line(plugin, 64);
            Some(format!("{GREEN}✓{GREEN:#} {BOLD}{plugin}{BOLD:#} {} serves from the next turn on", to.short()))
        }
        Notice::Swapped { plugin, to: None, .. } => Some(format!(
            "{YELLOW}!{YELLOW:#} {BOLD}{}{BOLD:#} is gone from the next turn on",
            text::one_line(plugin, 64)
        )),
        Notice::RolledBack { plugin, from, to, because } => Some(format!(
            "{YELLOW}!{YELLOW:#} {BOLD}{}{BOLD:#} {} is taken back: {}; {} serves",
            text::one_line(plugin, 64),
            from.short(),
            text::one_line(because, 300),
            to.short()
        )),
        Notice::Refused { .. } => None,
    }
}
