//! The slash commands `/grant` and `/revoke`, with which the user changes the grants of plugins at any time (P6, P10).

use super::Chat;
use crate::exit::Failure;
use crate::interrupt::Activity;
use crate::terminal::text;
use agent_config::first_use::{Reconsidered, Revoked};
use agent_config::grants::Kind;

impl Chat<'_> {
    /// Lists the plugins that request something that they do not have.
    pub(super) fn list_lacking_grants(&self) {
        let agent = self.agent.current();
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
            true => self.note("every plugin has all grants that it asks for"),
            false => self.hint("/grant PLUGIN asks what to grant; /plugins shows the grants of each plugin"),
        }
    }

    /// Asks what to grant to the plugin, even if the user has refused it before.
    pub(super) async fn ask_about_grants(&mut self, plugin: &str) -> Result<(), Failure> {
        let stop = self.interrupts.begin(Activity::Turn);
        let (handler, protected) = (self.prompter.first_uses(), self.host.sandbox.protected());
        let asked = handler.reconsider((&self.agent, self.session.subject()), (plugin, protected), &stop);
        let outcome = asked.await.map_err(Failure::refused)?;
        drop(stop);
        self.terminal.idle();
        match outcome {
            Reconsidered::Asked => {}
            Reconsidered::NothingMissing => {
                self.note(format!("{} has all grants that it asks for", text::one_line(plugin, 100)));
            }
            Reconsidered::NotOffered(requests) => {
                self.prose(format!("only the configuration can grant what {} lacks:", text::one_line(plugin, 100)));
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
    pub(super) async fn grant(&mut self, plugin: &str, grant: &str) -> Result<(), Failure> {
        let granted = self.prompter.first_uses().grant(&self.agent, plugin, grant).await.map_err(Failure::refused)?;
        let line = format!("{}={}", granted.kind.key(), text::one_line(&granted.value, 200));
        self.note(format!("granted to {} for this session: {line}", text::one_line(plugin, 100)));
        Ok(())
    }

    /// Takes the grants of this kind away from the plugin, or all of its grants.
    pub(super) async fn revoke(&mut self, plugin: &str, kind: Option<&str>) -> Result<(), Failure> {
        let kind = kind.map(str::parse::<Kind>).transpose().map_err(Failure::refused)?;
        let revoked = self.prompter.first_uses().revoke(&self.agent, plugin, kind).await.map_err(Failure::refused)?;
        let grants = kind.map_or("grants".to_owned(), |kind| format!("`{}` grants", kind.key()));
        let plugin = text::one_line(plugin, 100);
        match revoked {
            Revoked::Nothing => self.note(format!("{plugin} has no {grants}")),
            Revoked::ForThisRun => self.note(format!("revoked the {grants} of {plugin}")),
            Revoked::FromFile(path) => {
                self.prose(format!("revoked the {grants} of {plugin}, and removed them from {}", path.display()));
            }
            Revoked::RemainsInFile(reason) => {
                self.warn(format!(
                    "revoked the {grants} of {plugin} until agent-host exits, but they remain in the file: {reason}"
                ));
            }
        }
        Ok(())
    }
}
