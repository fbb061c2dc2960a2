//! What a person is shown at the first use of a plugin, and how their answer is read (P6).

use super::approval::escaped;
use super::{BOLD, DIM, YELLOW};
use crate::first_use::Offers;
use agent_plugins::PluginIdentity;

/// Most things that are shown each on a line of their own.
const SHOWN: usize = 24;
/// Characters of one thing.
const CHARACTERS: usize = 300;

/// What somebody types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Yes, as long as the host runs.
    ThisRun,
    /// Yes, written into the configuration.
    Always,
    /// No, as long as the host runs.
    No,
    /// No, written into the configuration.
    Never,
    /// Another folder.
    Folder(String),
    /// Say what may be typed.
    Help,
}

/// Who asks, and for what.
pub(crate) struct Asking<'a> {
    /// The plugin.
    pub(crate) plugin: &'a PluginIdentity,
    /// Whose it is.
    pub(crate) agent: &'a str,
    /// The tool that is called; none where it builds the context.
    pub(crate) tool: Option<&'a str>,
}

/// The question behind what is shown.
pub(crate) const QUESTION: &str = "grant this? y this run, a always, n no, ? help > ";

/// What may be typed.
pub(crate) fn help(offers: &Offers) -> String {
    let mut help = "  y      yes, until this agent-host ends
  a      always: yes, and the lines go into the agent's configuration
  n      no, until this agent-host ends; Enter and Ctrl-D, too
  never  no, and nobody is asked again: `ask = false` goes into the configuration"
        .to_owned();
    if offers.has_folder() {
        help.push_str("\n  d DIR  another folder instead of the one that is shown");
    }
    help.push_str("\n  Ctrl-C cancels the turn");
    help
}

impl Answer {
    /// Reads a line. What is not understood is no answer, and an empty one is a no.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let line = line.trim();
        if let Some(folder) = line.strip_prefix("d ").map(str::trim).filter(|folder| !folder.is_empty()) {
            return Some(Self::Folder(folder.to_owned()));
        }
        match line.to_lowercase().as_str() {
            "y" | "yes" => Some(Self::ThisRun),
            "a" | "always" => Some(Self::Always),
            "" | "n" | "no" => Some(Self::No),
            "never" => Some(Self::Never),
            "?" | "h" | "help" => Some(Self::Help),
            _ => None,
        }
    }
}

/// A line for each thing, with the line of the configuration that it would become.
pub(crate) fn card(asking: &Asking<'_>, offers: &Offers) -> String {
    let Asking { plugin, agent, tool } = asking;
    let purpose = tool.map_or_else(|| "to build the context".to_owned(), |tool| format!("for {}", shown(tool)));
    let mut lines = vec![format!(
        "{YELLOW}first use{YELLOW:#}: {BOLD}{}{BOLD:#} {DIM}{}{DIM:#}, {purpose} of the agent {}, asks for",
        shown(&plugin.name),
        plugin.digest.short(),
        shown(agent)
    )];
    for offer in offers.given.iter().take(SHOWN) {
        lines.push(format!("  {}  {DIM}{}{DIM:#}", shown(&offer.meaning), shown(&offer.line())));
    }
    if let more @ 1.. = offers.given.len().saturating_sub(SHOWN) {
        lines.push(format!(
            "  {YELLOW}and {more} more things, which are not shown: say n, and grant what you want{YELLOW:#}"
        ));
    }
    for beyond in offers.beyond.iter().take(SHOWN) {
        let (thing, why) = (shown(&beyond.asked.thing), shown(&beyond.why));
        let advice = &beyond.asked.advice;
        lines.push(format!(
            "  {DIM}not by a yes: {thing}, {why}: {} {}{DIM:#}",
            shown(&advice.table),
            shown(&advice.line)
        ));
    }
    lines.join("\n")
}

/// Nothing that a plugin wrote steers the terminal or hides anything.
fn shown(text: &str) -> String {
    let beginning: String = text.chars().take(CHARACTERS).collect();
    let more = if beginning.len() < text.len() { "…" } else { "" };
    format!("{}{more}", escaped(&beginning))
}
