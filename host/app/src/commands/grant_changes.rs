//! Changes of grants that the user types: `/grant` and `/revoke` (P6, P10).

use crate::exit::Failure;
use crate::terminal::{DIM, Terminal, YELLOW, text};
use agent_config::first_use::{FirstUseHandler, Reconsidered, Revoked};
use agent_config::grants::Kind;
use agent_runtime::Session;
use tokio_util::sync::CancellationToken;

/// A change of grants that the user has typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum GrantChange {
    /// List the plugins that lack grants.
    List,
    /// Ask what to grant to this plugin.
    Ask(String),
    /// Give a plugin a grant: the name of the plugin, and the grant as `KIND=VALUE`.
    Grant(String, String),
    /// Revoke the grants of a plugin: all, or those of one kind.
    Revoke(String, Option<String>),
}

impl GrantChange {
    /// Parses the words of a slash command. Returns `None` if they are another command.
    pub(super) fn parse(name: &str, words: &[&str]) -> Option<Self> {
        let owned = |word: &str| word.to_owned();
        Some(match (name, words) {
            ("/grant", []) => Self::List,
            ("/grant", [plugin]) => Self::Ask(owned(plugin)),
            ("/grant", [plugin, grant @ ..]) => Self::Grant(owned(plugin), grant.join(" ")),
            ("/revoke", [plugin]) => Self::Revoke(owned(plugin), None),
            // The value after `=`, as in `/grant`, does not matter: all grants of the kind are revoked.
            ("/revoke", [plugin, kind]) => {
                Self::Revoke(owned(plugin), Some(owned(kind.split_once('=').map_or(kind, |(kind, _)| kind))))
            }
            _ => return None,
        })
    }
}

/// Changes the grants of the plugins of a session's agent.
pub(super) struct GrantChanger<'c> {
    pub(super) session: &'c Session,
    pub(super) first_uses: &'c mut FirstUseHandler,
    pub(super) terminal: &'c Terminal,
}

impl GrantChanger<'_> {
    /// Makes a change, and shows its result. `stop` ends a question to the user.
    pub(super) async fn apply(&mut self, change: &GrantChange, stop: &CancellationToken) -> Result<(), Failure> {
        match change {
            GrantChange::List => self.list_lacking(),
            GrantChange::Ask(plugin) => self.ask(plugin, stop).await?,
            GrantChange::Grant(plugin, grant) => self.grant(plugin, grant).await?,
            GrantChange::Revoke(plugin, kind) => self.revoke(plugin, kind.as_deref()).await?,
        }
        Ok(())
    }

    /// Lists the plugins that request something that they do not have.
    fn list_lacking(&self) {
        let agent = self.session.agent();
        let mut has_all = true;
        for (name, setup) in agent.setups() {
            let required = setup.unmet().iter().filter(|unmet| !setup.plugin().is_optional(&unmet.need));
            let lacking: Vec<_> = required.map(|unmet| text::one_line(&unmet.thing, 100)).collect();
            if !lacking.is_empty() {
                has_all = false;
                self.entry(&format!("{} lacks {}", text::one_line(name, 100), lacking.join(", ")));
            }
        }
        match has_all {
            true => self.say("every plugin has all grants that it asks for"),
            false => self
                .say(format!("{DIM}/grant PLUGIN asks what to grant; /plugins shows the grants of each plugin{DIM:#}")),
        }
    }

    /// Asks what to grant to the plugin, even if the user has refused it before.
    async fn ask(&mut self, plugin: &str, stop: &CancellationToken) -> Result<(), Failure> {
        let (agent, subject) = (self.session.live(), self.session.subject());
        let protected = self.session.protected_paths();
        let asked = self.first_uses.reconsider((agent, subject), (plugin, protected), stop);
        let outcome = asked.await.map_err(Failure::refused)?;
        self.terminal.idle();
        let plugin = text::one_line(plugin, 100);
        match outcome {
            Reconsidered::Asked => {}
            Reconsidered::NothingMissing => self.say(format!("{plugin} has all grants that it asks for")),
            Reconsidered::NotOffered(requests) => {
                self.say(format!("only the configuration can grant what {plugin} lacks:"));
                for request in requests {
                    let advice = &request.unmet.advice;
                    let (thing, why) = (text::one_line(&request.unmet.thing, 100), text::one_line(&request.why, 200));
                    self.entry(&format!("  {thing}, because {why}: {} {}", advice.table, advice.line));
                }
            }
        }
        Ok(())
    }

    /// Gives the plugin a grant until the user leaves the session.
    async fn grant(&mut self, plugin: &str, grant: &str) -> Result<(), Failure> {
        let granted = self.first_uses.grant(self.session.live(), plugin, grant).await.map_err(Failure::refused)?;
        let line = format!("{}={}", granted.kind.key(), text::one_line(&granted.value, 200));
        self.say(format!("granted to {} for this session: {line}", text::one_line(plugin, 100)));
        Ok(())
    }

    /// Takes the grants of this kind away from the plugin, or all of its grants.
    async fn revoke(&mut self, plugin: &str, kind: Option<&str>) -> Result<(), Failure> {
        let kind = kind.map(str::parse::<Kind>).transpose().map_err(Failure::refused)?;
        let revoked = self.first_uses.revoke(self.session.live(), plugin, kind).await.map_err(Failure::refused)?;
        let grants = kind.map_or("grants".to_owned(), |kind| format!("`{}` grants", kind.key()));
        let plugin = text::one_line(plugin, 100);
        match revoked {
            Revoked::Nothing => self.say(format!("{plugin} has no {grants}")),
            Revoked::ForThisRun => self.say(format!("revoked the {grants} of {plugin}")),
            Revoked::FromFile(path) => {
                self.say(format!("revoked the {grants} of {plugin}, and removed them from {}", path.display()));
            }
            Revoked::RemainsInFile(reason) => self.say(format!(
                "{YELLOW}!{YELLOW:#} {}",
                text::harmless(&format!(
                    "revoked the {grants} of {plugin} until agent-host exits, but they remain in the file: {reason}"
                ))
            )),
        }
        Ok(())
    }

    fn entry(&self, lines: &str) {
        self.terminal.note(text::wrapped_entry(lines, self.terminal.width()));
    }

    fn say(&self, words: impl AsRef<str>) {
        self.terminal.note(text::wrapped(words.as_ref(), self.terminal.width()));
    }
}
