//! What a person is shown at the first use of a plugin, and how their answer is read (P6).

use super::approval::escaped;
use super::{BOLD, DIM, YELLOW};
use crate::first_use::Offers;
use agent_plugins::PluginIdentity;

/// Most things that cannot be given that are shown.
const SHOWN: usize = 12;
/// Characters of one of them.
const CHARACTERS: usize = 200;

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
    /// Requests to one server alone; `*`: whatever the plugin asks for.
    Host(String),
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

/// Whether an answer can be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeping {
    /// In the agent's configuration.
    File,
    /// The agent has none.
    Nowhere,
}

/// The question behind what is shown.
pub(crate) fn question(keeping: Keeping) -> &'static str {
    match keeping {
        Keeping::File => "grant this? y this run, a always, n no, ? help > ",
        Keeping::Nowhere => "grant this? y this run, n no, ? help > ",
    }
}

/// What may be typed.
pub(crate) fn help(offers: &Offers, keeping: Keeping) -> String {
    let mut help = match keeping {
        Keeping::File => {
            "  y      yes, until this agent-host ends
  a      always: yes, and the lines go into the agent's configuration
  n      no, until this agent-host ends; Enter and Ctrl-D, too
  never  no, and nobody is asked again: `ask = false` goes into the configuration"
        }
        Keeping::Nowhere => {
            "  y      yes, until this agent-host ends
  n      no, until this agent-host ends; Enter and Ctrl-D, too
  (nothing can be kept: this agent has no configuration file, --agent FILE)"
        }
    }
    .to_owned();
    if offers.has_folder() {
        help.push_str("\n  d DIR  another folder instead of the one that is shown");
    }
    if offers.has_requests() {
        help.push_str("\n  h HOST requests to this server alone; `h *`: all that the plugin asks for");
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
        if let Some(host) = line.strip_prefix("h ").map(str::trim).filter(|host| !host.is_empty()) {
            return Some(Self::Host(host.to_owned()));
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
    let purpose = tool.map_or_else(|| "build the context".to_owned(), |tool| format!("run {}", shown(tool)));
    let mut lines = vec![format!(
        "{YELLOW}first use{YELLOW:#}: {BOLD}{}{BOLD:#} {DIM}{}{DIM:#} asks for this, to {purpose} (agent {})",
        shown(&plugin.name),
        plugin.digest.short(),
        shown(agent)
    )];
    for offer in &offers.given {
        // Whole: what is granted is what is read.
        lines.push(format!("  {}  {DIM}{}{DIM:#}", escaped(&offer.meaning), escaped(&offer.line())));
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
    if let more @ 1.. = offers.beyond.len().saturating_sub(SHOWN) {
        lines.push(format!("  {DIM}nor {more} more things: `agent-host plugin explain` shows all{DIM:#}"));
    }
    lines.join("\n")
}

/// Nothing that a plugin wrote steers the terminal or hides anything.
fn shown(text: &str) -> String {
    let beginning: String = text.chars().take(CHARACTERS).collect();
    let more = if beginning.len() < text.len() { "…" } else { "" };
    format!("{}{more}", escaped(&beginning))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::first_use::{Bounds, Folder};
    use agent_core::message::Digest;
    use agent_plugins::{Access, GrantAdvice, Need, Unmet};

    /// P6: a card says who asks for what, with the line that it would become, and nothing in it steers the terminal.
    #[test]
    fn p6_a_card_says_who_asks_for_what() {
        let lacking = |need| Unmet {
            need,
            thing: "the secret K\u{1b}[2J\u{202e}".into(),
            advice: GrantAdvice { table: "[t]".into(), line: "l".into(), flag: String::new() },
        };
        let lacking = vec![
            lacking(Need::Files(Access::Read)),
            lacking(Need::Http("GET https://*:*".into())),
            lacking(Need::Secret("K\u{1b}[2J\u{202e}".into())),
        ];
        let place = tempfile::tempdir().expect("a temporary folder");
        let base = place.path().canonicalize().expect("there");
        let folder = Folder { base: base.clone(), written: ".".into(), is_typed: false };
        let offers = Offers::new("p", lacking, (&folder, &Bounds::default()), &|_| None);
        let plugin = PluginIdentity { name: "p\u{1b}]0;x\u{7}".into(), digest: Digest::from_sha256([7; 32]) };
        let shown = card(&Asking { plugin: &plugin, agent: "reader", tool: Some("p.read") }, &offers);
        let shown = anstream::adapter::strip_str(&shown).to_string();
        insta::assert_snapshot!(shown.replace(&base.display().to_string(), "/base"), @r#"
        first use: p\u{1b}]0;x\u{7} 070707070707 asks for this, to run p.read (agent reader)
          reading whatever is in /base  read = ["."]
          requests GET https://*:*, which is any server of the internet  http = ["GET https://*:*"]
          not by a yes: the secret K\u{1b}[2J\u{202e}, it needs hosts to go to: [t] l
        "#);
        assert!(help(&offers, Keeping::File).contains("d DIR") && help(&offers, Keeping::File).contains("always"));
        assert!(!help(&offers, Keeping::Nowhere).contains("always") && !question(Keeping::Nowhere).contains("always"));
    }

    /// P6: only a clear yes is one, and no is the default.
    #[test]
    fn p6_only_a_clear_yes_is_one() {
        let cases = [
            ("y", Some(Answer::ThisRun)),
            (" YES ", Some(Answer::ThisRun)),
            ("a", Some(Answer::Always)),
            ("", Some(Answer::No)),
            ("n", Some(Answer::No)),
            ("never", Some(Answer::Never)),
            ("d ../docs ", Some(Answer::Folder("../docs".into()))),
            ("h a.example", Some(Answer::Host("a.example".into()))),
            ("h", Some(Answer::Help)),
            ("?", Some(Answer::Help)),
            ("d", None),
            ("ok", None),
            ("y but", None),
            ("all", None),
        ];
        for (line, expected) in cases {
            assert_eq!(Answer::parse(line), expected, "{line}");
        }
    }
}
