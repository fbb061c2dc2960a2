//! Formats the question about a plugin's grants at its first use, and parses the answer (P6).

use super::approval::escaped;
use super::{BOLD, DIM, YELLOW};
use agent_config::first_use::{FirstUseQuestion, GrantOffers, Keeping};
use agent_plugins::PluginIdentity;

/// Maximum number of entries in the list of grants that the plugin requests but that the user cannot give by
/// an answer.
const MAX_NOT_OFFERED: usize = 12;
/// Maximum displayed length of a plugin's text, in characters.
const MAX_CHARACTERS: usize = 200;

/// The user's answer to the question about a plugin's grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Give the plugin the grants until the user leaves the session.
    ThisSession,
    /// Give the plugin the grants, and write them into the configuration.
    Always,
    /// Refuse the grants until the user leaves the session.
    No,
    /// Refuse the grants, and write the refusal into the configuration.
    Never,
    /// Ask again, but offer access to this folder instead of the folder in the question.
    Folder(String),
    /// Ask again, but offer only reading.
    ReadOnly,
    /// Ask again, but offer only requests to this server. If the text is `*`, offer requests to all servers that the
    /// plugin asks for.
    Host(String),
    /// Show the possible answers.
    Help,
}

/// The plugin that asks for grants, and its purpose.
pub(crate) struct RequestingPlugin<'a> {
    /// Name and digest of the plugin.
    pub(crate) plugin: &'a PluginIdentity,
    /// Name of the agent that uses the plugin.
    pub(crate) agent: &'a str,
    /// Tool that is called. `None` if the agent uses the plugin to build the context of a model call.
    pub(crate) tool: Option<&'a str>,
    /// Whether the user has asked for this question, and the plugin is not about to be used.
    pub(crate) by_user: bool,
}

impl<'a> From<&FirstUseQuestion<'a>> for RequestingPlugin<'a> {
    fn from(question: &FirstUseQuestion<'a>) -> Self {
        Self { plugin: question.plugin, agent: question.agent, tool: question.tool, by_user: question.by_user }
    }
}

/// Returns the prompt that is shown below the card.
pub(crate) fn question(keeping: Keeping) -> &'static str {
    match keeping {
        Keeping::File => "grant this? y this session, a always, n no, ? help > ",
        Keeping::Nowhere => "grant this? y this session, n no, ? help > ",
    }
}

/// Returns a help text that explains the possible answers.
pub(crate) fn help(offers: &GrantOffers, keeping: Keeping) -> String {
    let mut help = match keeping {
        Keeping::File => {
            "  y      yes, until you leave this session
  a      always: yes, and write the lines into the agent's configuration
  n      no, until you leave this session (also Enter or Ctrl-D)
  never  no, and never ask again: write `ask = false` into the configuration"
        }
        Keeping::Nowhere => {
            "  y      yes, until you leave this session
  n      no, until you leave this session (also Enter or Ctrl-D)
  (no answer can be saved, because this folder has no agent.toml; `agent-host config init` creates one)"
        }
    }
    .to_owned();
    if offers.has_write() {
        help.push_str("\n  r      offer only reading, not changing or deleting");
    }
    if offers.has_folder() {
        help.push_str("\n  d DIR  use another folder instead of the folder that is shown");
    }
    if offers.has_requests() {
        help.push_str("\n  h HOST allow requests to this server only; `h *`: to all that the plugin asks for");
    }
    help.push_str("\n  /grant and /revoke change the answer later; Ctrl-C cancels the turn");
    help
}

impl Answer {
    /// Parses a typed line. An empty line means no. Returns None if the line is not a valid answer.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let line = line.trim();
        if let Some(folder) = line.strip_prefix("d ").map(str::trim).filter(|folder| !folder.is_empty()) {
            return Some(Self::Folder(folder.to_owned()));
        }
        if let Some(host) = line.strip_prefix("h ").map(str::trim).filter(|host| !host.is_empty()) {
            return Some(Self::Host(host.to_owned()));
        }
        match line.to_lowercase().as_str() {
            "y" | "yes" => Some(Self::ThisSession),
            "a" | "always" => Some(Self::Always),
            "" | "n" | "no" => Some(Self::No),
            "never" => Some(Self::Never),
            "r" | "read" => Some(Self::ReadOnly),
            "?" | "h" | "help" => Some(Self::Help),
            _ => None,
        }
    }
}

/// Describes each requested grant, with the configuration line that grants it.
pub(crate) fn card(plugin: &RequestingPlugin<'_>, offers: &GrantOffers) -> String {
    let RequestingPlugin { plugin, agent, tool, by_user } = plugin;
    let (occasion, purpose) = match tool {
        _ if *by_user => ("grants", String::new()),
        Some(tool) => ("first use", format!(" to run {}", shortened(tool))),
        None => ("first use", " to build the context".to_owned()),
    };
    let mut lines = vec![format!(
        "{YELLOW}{occasion}{YELLOW:#}: {BOLD}{}{BOLD:#} {DIM}{}{DIM:#} asks for these grants{purpose} (agent {})",
        shortened(&plugin.name),
        plugin.digest.short(),
        shortened(agent)
    )];
    for offer in &offers.offered {
        // The offer is not shortened, because users must see everything that they grant.
        lines.push(format!("  {}  {DIM}{}{DIM:#}", escaped(&offer.meaning), escaped(&offer.line())));
    }
    for refused in offers.not_offered.iter().take(MAX_NOT_OFFERED) {
        let (permission, why) = (shortened(&refused.unmet.thing), shortened(&refused.why));
        let advice = &refused.unmet.advice;
        lines.push(format!(
            "  {DIM}cannot be granted here: {permission}, {why}: {} {}{DIM:#}",
            shortened(&advice.table),
            shortened(&advice.line)
        ));
    }
    if let more @ 1.. = offers.not_offered.len().saturating_sub(MAX_NOT_OFFERED) {
        lines.push(format!("  {DIM}and {more} more: `agent-host plugin explain` shows all{DIM:#}"));
    }
    lines.join("\n")
}

/// Shortens a text that comes from the plugin, and escapes control and invisible characters.
fn shortened(text: &str) -> String {
    let beginning: String = text.chars().take(MAX_CHARACTERS).collect();
    let more = if beginning.len() < text.len() { "…" } else { "" };
    format!("{}{more}", escaped(&beginning))
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_config::first_use::{OfferBounds, OfferedFolder};
    use agent_core::message::Digest;
    use agent_plugins::{Access, GrantAdvice, Need, UnmetNeed};

    /// P6: the card contains the plugin's name, the grants and their configuration lines, and cannot control
    /// the terminal.
    #[test]
    fn p6_card_contains_plugin_name_and_requested_grants() {
        let lacking = |need| UnmetNeed {
            need,
            thing: "the secret K\u{1b}[2J\u{202e}".into(),
            advice: GrantAdvice { table: "[t]".into(), line: "l".into(), flag: String::new() },
        };
        let lacking = vec![
            lacking(Need::Files(Access::Read)),
            lacking(Need::Http("GET https://*:*".into())),
            lacking(Need::Secret("K\u{1b}[2J\u{202e}".into())),
        ];
        let directory = tempfile::tempdir().expect("a temporary folder");
        let base = directory.path().canonicalize().expect("there");
        let folder = OfferedFolder { base: base.clone(), written: ".".into(), is_typed: false };
        let offers = GrantOffers::new("p", lacking, (&folder, &OfferBounds::default()), &|_| None);
        let plugin = PluginIdentity { name: "p\u{1b}]0;x\u{7}".into(), digest: Digest::from_sha256([7; 32]) };
        let shown =
            card(&RequestingPlugin { plugin: &plugin, agent: "reader", tool: Some("p.read"), by_user: false }, &offers);
        let shown = anstream::adapter::strip_str(&shown).to_string();
        insta::assert_snapshot!(shown.replace(&base.display().to_string(), "/base"), @r#"
        first use: p\u{1b}]0;x\u{7} 070707070707 asks for these grants to run p.read (agent reader)
          reading everything in /base  read = ["."]
          requests GET https://*:*, which is any server on the internet  http = ["GET https://*:*"]
          cannot be granted here: the secret K\u{1b}[2J\u{202e}, the configuration must name its hosts: [t] l
        "#);
        assert!(help(&offers, Keeping::File).contains("d DIR") && help(&offers, Keeping::File).contains("always"));
        assert!(!help(&offers, Keeping::Nowhere).contains("always") && !question(Keeping::Nowhere).contains("always"));
    }

    /// P6: only a clear yes counts as a yes, and no is the default.
    #[test]
    fn p6_accepts_only_a_clear_yes() {
        let cases = [
            ("y", Some(Answer::ThisSession)),
            (" YES ", Some(Answer::ThisSession)),
            ("a", Some(Answer::Always)),
            ("", Some(Answer::No)),
            ("n", Some(Answer::No)),
            ("never", Some(Answer::Never)),
            ("r", Some(Answer::ReadOnly)),
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
