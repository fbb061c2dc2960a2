//! `plugin update`: what is newer behind the tags of locked plugins, what it changes, and taking it.

use super::super::{describe, print};
use super::candidate::{self, Candidate};
use super::folder::{Place, named};
use super::{failed, registry, shelf};
use crate::arguments::sharing::UpdateArguments;
use crate::data::DataDirectory;
use crate::exit::{Exit, Failure};
use crate::setup;
use crate::terminal::{BOLD, DIM, Terminal, YELLOW, text};
use agent_plugins::{LoadedPlugin, Sandbox};
use agent_registry::{Age, LockFile, LockedPlugin, Registry, Replace, Shelf, Source, age, check_succession};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// Moves locked plugins along their tags.
pub(in super::super) async fn update(
    asked: UpdateArguments,
    data: Option<&Path>,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let data = DataDirectory::open(data)?;
    let place = Place::read(&asked.folder)?;
    let lock = place.folder.lock_file().map_err(failed)?;
    let plugins = chosen(&lock, &asked.names)?;
    let sandbox = setup::limited_sandbox(&data, place.limits, place.trust.clone())?;
    let registry = registry(&asked.folder.connection, terminal)?;
    let work = Updating { registry, shelf: shelf(&data), place, sandbox, asked: &asked, terminal };
    let (mut newer, mut wrong) = (0, 0);
    for plugin in plugins {
        match work.one(plugin).await {
            Ok(Outcome::Current) => {}
            Ok(Outcome::Newer) => newer += 1,
            Err(failure) => {
                terminal.failure(&format!("{}: {}", plugin.name, failure.message));
                wrong += 1;
            }
        }
    }
    if newer == 0 && wrong == 0 {
        terminal.note("nothing is newer");
    }
    Ok(if wrong > 0 || (asked.check && newer > 0) { Exit::Failed } else { Exit::Done })
}

fn chosen<'l>(lock: &'l LockFile, names: &[String]) -> Result<Vec<&'l LockedPlugin>, Failure> {
    if names.is_empty() {
        return Ok(lock.plugins().iter().collect());
    }
    let locked: Vec<_> = lock.plugins().iter().map(|plugin| plugin.name.as_str()).collect();
    let absent =
        |name: &String| Failure::refused(format!("no plugin `{name}` is locked; locked are: {}", locked.join(", ")));
    names.iter().map(|name| lock.plugin(name).ok_or_else(|| absent(name))).collect()
}

enum Outcome {
    Current,
    Newer,
}

/// One `plugin update`.
struct Updating<'u> {
    registry: Registry,
    shelf: Shelf,
    place: Place,
    sandbox: Sandbox,
    asked: &'u UpdateArguments,
    terminal: &'u Terminal,
}

impl Updating<'_> {
    async fn one(&self, locked: &LockedPlugin) -> Result<Outcome, Failure> {
        let source = locked.source().map_err(failed)?;
        if matches!(&source, Source::Registry(reference) if reference.digest().is_some()) {
            return Ok(Outcome::Current);
        }
        self.terminal.busy(format!("looking at {source}"));
        let found = self.registry.find(&source).await;
        self.terminal.idle();
        let found = found.map_err(failed)?;
        if found.manifest.is_some() && found.manifest == locked.manifest {
            return Ok(Outcome::Current);
        }
        let wanted = candidate::wanted(&source, &self.place.trust);
        let fetched = candidate::fetch(&self.registry, &found, &self.shelf, wanted, self.terminal).await?;
        if found.manifest.is_none() && fetched.digest() == locked.component {
            return Ok(Outcome::Current);
        }
        let judged = candidate::judged(fetched, &self.place.trust, self.terminal)?;
        let new = &judged.locked;
        if new.name != locked.name {
            return Err(Failure::failed(format!(
                "{} is the plugin `{}` now; it is not taken. `plugin remove {}` and `plugin add` do that",
                locked.reference,
                text::one_line(&new.name, 100),
                locked.name
            )));
        }
        check_succession(new, locked, &self.place.trust, self.asked.downgrade()).map_err(Failure::failed)?;
        let candidate = judged.load((&self.sandbox, &self.shelf), self.terminal).await?;
        print(self.terminal, self.changes(locked, &candidate).await)?;
        if !self.asked.check {
            let Candidate { fetched, locked: new, .. } = candidate;
            self.place.folder.place(new, &fetched.bytes, Replace::Locked).map_err(failed)?;
        }
        Ok(Outcome::Newer)
    }

    /// What a person wants to know before, or at least after: versions, imports, what it asks for, who signed.
    async fn changes(&self, locked: &LockedPlugin, Candidate { locked: new, plugin, .. }: &Candidate) -> String {
        let to = text::one_line(&new.version, 100);
        let mut lines = vec![format!("{} → {BOLD}{to}{BOLD:#} {DIM}{}{DIM:#}", named(locked), new.component.short())];
        if age(&new.version, &locked.version) == Age::Same && new.component != locked.component {
            lines.push(format!("  {YELLOW}!{YELLOW:#} its version is the same, and its content is not"));
        }
        if new.signer != locked.signer {
            let key =
                |plugin: &LockedPlugin| plugin.signer.clone().unwrap_or_else(|| "nobody who is trusted".to_owned());
            lines.push(format!("  {YELLOW}!{YELLOW:#} signed by {}, before by {}", key(new), key(locked)));
        }
        if let Some(before) = self.loaded(locked).await {
            let words = |plugin: &LoadedPlugin| {
                describe::wants(plugin).unwrap_or_else(|| vec!["whatever it is granted".to_owned()])
            };
            lines.extend(differences("asks for", &words(&before), &words(plugin)));
            lines.extend(differences("imports", before.imports(), plugin.imports()));
            let tools = |plugin: &LoadedPlugin| plugin.tools().iter().map(|tool| tool.name.clone()).collect::<Vec<_>>();
            lines.extend(differences("offers", &tools(&before), &tools(plugin)));
        }
        lines.join("\n")
    }

    async fn loaded(&self, locked: &LockedPlugin) -> Option<Arc<LoadedPlugin>> {
        if let Ok(plugin) = self.sandbox.load_stored(&locked.name, &locked.component).await {
            return Some(plugin);
        }
        let file = self.place.folder.file(locked);
        let plugin = self.sandbox.load_serving_file_with(&file, &|_| {}).await.ok()?;
        (*plugin.digest() == locked.component).then_some(plugin)
    }
}

/// `+` for what is new, `-` for what is gone.
fn differences(what: &str, before: &[String], after: &[String]) -> Vec<String> {
    let (before, after): (BTreeSet<_>, BTreeSet<_>) = (before.iter().collect(), after.iter().collect());
    let shown = |sign: char, thing: &String| format!("  {sign} {what} {}", text::one_line(thing, 200));
    let new = after.difference(&before).map(|thing| shown('+', thing));
    new.chain(before.difference(&after).map(|thing| shown('-', thing))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // P11: an update says what it changes.
    #[test]
    fn what_is_new_and_what_is_gone_is_told() {
        let list = |things: &[&str]| things.iter().map(|thing| (*thing).to_owned()).collect::<Vec<_>>();
        let told = differences("asks for", &list(&["reading files", "a"]), &list(&["a", "the request GET https://b"]));
        assert_eq!(told, ["  + asks for the request GET https://b", "  - asks for reading files"]);
        assert!(differences("imports", &list(&["a"]), &list(&["a"])).is_empty());
    }
}
