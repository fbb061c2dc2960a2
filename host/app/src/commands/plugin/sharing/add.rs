//! `plugin add`: a plugin from elsewhere is taken into the folder; or all that is locked there and missing.

use super::super::{describe, print};
use super::candidate::{self, Candidate};
use super::folder::{Place, named};
use super::{failed, registry, shelf};
use crate::arguments::sharing::AddArguments;
use crate::data::DataDirectory;
use crate::exit::{Exit, Failure};
use crate::setup;
use crate::terminal::{Terminal, YELLOW, text};
use agent_plugins::Sandbox;
use agent_share::{Age, Fetched, LockedPlugin, Registry, Replace, Shelf, Signer, Source, State, age};
use std::path::Path;

/// Takes one plugin, or all that is locked.
pub(in super::super) async fn add(
    asked: AddArguments,
    data: Option<&Path>,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let data = DataDirectory::open(data)?;
    let place = Place::read(&asked.folder)?;
    let sandbox = setup::limited_sandbox(&data, place.limits, place.trust.clone())?;
    let work = Adding {
        registry: registry(&asked.folder.connection)?,
        shelf: shelf(&data),
        replace: if asked.replace { Replace::Anything } else { Replace::Locked },
        place,
        sandbox,
        terminal,
    };
    let Some(source) = &asked.source else { return work.restore().await };
    let lock = work.place.folder.lock_file().map_err(failed)?;
    let before = lock.plugins().iter().find(|plugin| plugin.reference == source.to_string());
    let candidate = match (work.registry.find(source).await, before) {
        (Ok(found), _) => candidate::fetch(&work.registry, &found, (&work.sandbox, &work.shelf), terminal).await?,
        (Err(error), Some(before)) if error.is_offline() && work.shelf.store.get(&before.component).is_ok() => {
            terminal.note(format!("{YELLOW}!{YELLOW:#} {error}; what is locked is taken from the plugin store"));
            return work.restored(before).await.map(|()| Exit::Done);
        }
        (Err(error), _) => return Err(failed(error)),
    };
    let locked = candidate.judged(&work.place.trust, terminal)?;
    // The same place, whatever the tag: an older version there may be one with a known hole.
    let is_same_place = |before: &LockedPlugin| matches!((before.source(), source), (Ok(Source::Registry(one)), Source::Registry(other)) if one.repository() == other.repository());
    let before = lock.plugin(&locked.name);
    if let Some(before) = before.filter(|before| !asked.allow_downgrade && is_same_place(before))
        && age(&locked.version, &before.version) == Age::Older
    {
        return Err(Failure::refused(older(&locked, before)));
    }
    let path = work.place.folder.place(locked.clone(), &candidate.fetched.bytes, work.replace).map_err(failed)?;
    print(terminal, added(&locked, &candidate, &path))?;
    Ok(Exit::Done)
}

/// Why an older version is not taken.
pub(super) fn older(new: &LockedPlugin, locked: &LockedPlugin) -> String {
    format!(
        "{} has {} {}, which is older than {}, which is locked; --allow-downgrade takes it",
        new.reference, new.name, new.version, locked.version
    )
}

fn added(locked: &LockedPlugin, candidate: &Candidate, path: &Path) -> String {
    let signer = locked.signer.as_ref().map(|signer| format!("\n  signed    {signer}")).unwrap_or_default();
    let wants = describe::wants(&candidate.plugin);
    let wants = match &wants {
        None => "it has no manifest, so it may use whatever it is granted".to_owned(),
        Some(wants) if wants.is_empty() => "nothing".to_owned(),
        Some(wants) => wants.join(", "),
    };
    format!("{}\n  file      {}\n  asks      {wants}{signer}", named(locked), path.display())
}

/// One `plugin add`.
struct Adding<'t> {
    registry: Registry,
    shelf: Shelf,
    replace: Replace,
    place: Place,
    sandbox: Sandbox,
    terminal: &'t Terminal,
}

impl Adding<'_> {
    /// Puts back what is locked and not there, or not what it was.
    async fn restore(&self) -> Result<Exit, Failure> {
        let lock = self.place.folder.lock_file().map_err(failed)?;
        if lock.plugins().is_empty() {
            let folder = self.place.folder.path().display();
            return Err(Failure::refused(format!(
                "`{folder}` locks no plugin; say what to add: HOST/PATH[:TAG], an address or a file"
            )));
        }
        let mut exit = Exit::Done;
        for plugin in lock.plugins() {
            match self.place.folder.state(plugin, &self.place.trust) {
                State::Right(Signer::Trusted { .. } | Signer::Nobody { .. }) => continue,
                State::Missing | State::Differs(_) | State::Unreadable(_) => {}
                State::Untrusted(error) => {
                    self.terminal.failure(&error.to_string());
                    exit = Exit::Failed;
                    continue;
                }
            }
            if let Err(failure) = self.restored(plugin).await {
                self.terminal.failure(&failure.message);
                exit = Exit::Failed;
            }
        }
        if exit == Exit::Done {
            self.terminal.note("all that is locked is there");
        }
        Ok(exit)
    }

    /// Puts back exactly what is locked: from the plugin store, else from where it is.
    async fn restored(&self, plugin: &LockedPlugin) -> Result<(), Failure> {
        let bytes = match self.shelf.store.get(&plugin.component) {
            Ok(bytes) => bytes,
            Err(_) => self.fetched_again(plugin).await?,
        };
        let source = plugin.source().map_err(failed)?;
        let signatures = plugin.signature.iter().cloned().collect();
        let fetched = Fetched { source, manifest: plugin.manifest.clone(), bytes, signatures };
        let candidate = candidate::of(fetched, (&self.sandbox, &self.shelf), self.terminal).await?;
        if candidate.plugin.name() != plugin.name {
            let name = text::one_line(candidate.plugin.name(), 100);
            return Err(Failure::failed(format!("{} is the plugin `{name}`, not `{}`", plugin.reference, plugin.name)));
        }
        candidate.judged(&self.place.trust, self.terminal)?;
        let path = self.place.folder.place(plugin.clone(), &candidate.fetched.bytes, self.replace).map_err(failed)?;
        print(self.terminal, format!("{}\n  file      {}", named(plugin), path.display()))
    }

    async fn fetched_again(&self, plugin: &LockedPlugin) -> Result<Vec<u8>, Failure> {
        let source = match (plugin.source().map_err(failed)?, &plugin.manifest) {
            (Source::Registry(reference), Some(manifest)) => Source::Registry(reference.with_digest(manifest)),
            (source, _) => source,
        };
        let found = self.registry.find(&source).await.map_err(failed)?;
        let fetched = candidate::bytes(&self.registry, &found, &self.shelf, self.terminal).await?;
        if fetched.digest() != plugin.component {
            return Err(Failure::failed(format!(
                "{} is another one now: it has {}, and {} is locked; `agent-host plugin update {}` takes it",
                plugin.reference,
                fetched.digest().short(),
                plugin.component.short(),
                plugin.name
            )));
        }
        Ok(fetched.bytes)
    }
}
