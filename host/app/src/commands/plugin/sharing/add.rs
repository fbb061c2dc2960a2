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
use agent_registry::{
    Downgrade, Fetched, LockedPlugin, Reference, Registry, Replace, Shelf, Signatures, Signer, Source, State,
    check_succession,
};
use std::path::Path;

/// Takes one plugin, or all that is locked.
pub(in super::super) async fn add(
    asked: AddArguments,
    data: Option<&Path>,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let sources = asked.source.as_ref().map(each).transpose()?;
    let data = DataDirectory::open(data)?;
    let place = match &asked.source {
        Some(_) => Place::read_or_new(&asked.folder)?,
        None => Place::read(&asked.folder)?,
    };
    let sandbox = setup::limited_sandbox(&data, place.limits, place.trust.clone())?;
    let work = Adding {
        registry: registry(&asked.folder.connection, terminal)?,
        shelf: shelf(&data),
        replace: if asked.replace { Replace::Anything } else { Replace::Locked },
        downgrade: asked.downgrade(),
        place,
        sandbox,
        terminal,
    };
    let Some(sources) = sources else { return work.restore().await };
    for source in sources {
        work.take(&source).await?;
    }
    Ok(Exit::Done)
}

/// The components of a folder, else the source itself.
fn each(source: &Source) -> Result<Vec<Source>, Failure> {
    let Source::File(folder) = source else { return Ok(vec![source.clone()]) };
    if !folder.exists() {
        return Err(absent(folder));
    }
    if !folder.is_dir() {
        return Ok(vec![source.clone()]);
    }
    let unreadable = |error| Failure::refused(format!("`{}` cannot be read: {error}", folder.display()));
    let entries = std::fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(unreadable)?;
    let files = entries.into_iter().map(|entry| entry.path());
    let mut files: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|extension| extension == "wasm")).collect();
    files.sort_unstable();
    if files.is_empty() {
        return Err(Failure::refused(format!("there is no plugin (*.wasm) in `{}`", folder.display())));
    }
    Ok(files.into_iter().map(Source::File).collect())
}

/// What to say of a path where nothing is: it may have been meant as a reference, which a path looks like.
fn absent(path: &Path) -> Failure {
    let what = path.display();
    let advice = match Reference::parse(&path.to_string_lossy()) {
        Ok(_) => format!("what ends in .wasm is a path; of a registry it is written `oci://{what}`"),
        Err(_) => "`agent-host plugin build` makes components of plugin projects; what is elsewhere is written HOST/PATH[:TAG], or https://…".to_owned(),
    };
    Failure::refused(format!("there is no file or folder `{what}`: {advice}"))
}

/// Whether both are versions of one plugin: of one repository, one address, or a file.
fn is_same_place(locked: &LockedPlugin, source: &Source) -> bool {
    match (locked.source(), source) {
        (Ok(Source::Registry(one)), Source::Registry(other)) => one.repository() == other.repository(),
        (Ok(Source::Web(one)), Source::Web(other)) => one == *other,
        (Ok(Source::File(_)), Source::File(_)) => true,
        _ => false,
    }
}

fn added(Candidate { locked, plugin, .. }: &Candidate, path: &Path) -> String {
    let signer = locked.signer.as_ref().map(|signer| format!("\n  signed    {signer}")).unwrap_or_default();
    let wants = describe::wants(plugin);
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
    downgrade: Downgrade,
    place: Place,
    sandbox: Sandbox,
    terminal: &'t Terminal,
}

impl Adding<'_> {
    /// Takes one plugin.
    async fn take(&self, source: &Source) -> Result<(), Failure> {
        let lock = self.place.folder.lock_file().map_err(failed)?;
        let before = lock.plugins().iter().find(|plugin| plugin.reference == source.to_string());
        let fetched = match (self.registry.find(source).await, before) {
            (Ok(found), _) => {
                let wanted = candidate::wanted(source, &self.place.trust);
                candidate::fetch(&self.registry, &found, &self.shelf, wanted, self.terminal).await?
            }
            (Err(error), Some(before)) if error.is_offline() && self.shelf.store.get(&before.component).is_ok() => {
                let error = text::harmless(&error.to_string()).into_owned();
                self.terminal
                    .note(format!("{YELLOW}!{YELLOW:#} {error}; what is locked is taken from the plugin store"));
                return self.restored(before).await;
            }
            (Err(error), _) => return Err(failed(error)),
        };
        let judged = candidate::judged(fetched, &self.place.trust, self.terminal)?;
        if let Some(before) = lock.plugin(&judged.locked.name) {
            self.check_successor(before, &judged.locked, source)?;
        }
        let candidate = judged.load((&self.sandbox, &self.shelf), self.terminal).await?;
        let Candidate { fetched, locked, .. } = &candidate;
        let path = self.place.folder.place(locked.clone(), &fetched.bytes, self.replace).map_err(failed)?;
        print(self.terminal, added(&candidate, &path))
    }

    /// What has a name has its grants: another plugin does not get them unasked, and neither does an older version, which may
    /// have a known hole.
    fn check_successor(&self, before: &LockedPlugin, new: &LockedPlugin, source: &Source) -> Result<(), Failure> {
        if !is_same_place(before, source) {
            return match self.replace {
                Replace::Anything => Ok(()),
                Replace::Locked => Err(Failure::refused(format!(
                    "`{}` is locked to {}, and {} is of another place; --replace puts it there, with all that `{}` is granted",
                    before.name, before.reference, new.reference, before.name
                ))),
            };
        }
        check_succession(new, before, &self.place.trust, self.downgrade).map_err(Failure::refused)
    }

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
        let fetched = Fetched { source, manifest: plugin.manifest.clone(), bytes, signatures, search_stopped: None };
        let judged = candidate::judged(fetched, &self.place.trust, self.terminal)?;
        if judged.locked.name != plugin.name {
            let name = text::one_line(&judged.locked.name, 100);
            return Err(Failure::failed(format!("{} is the plugin `{name}`, not `{}`", plugin.reference, plugin.name)));
        }
        let candidate = judged.load((&self.sandbox, &self.shelf), self.terminal).await?;
        let path = self.place.folder.place(plugin.clone(), &candidate.fetched.bytes, self.replace).map_err(failed)?;
        print(self.terminal, format!("{}\n  file      {}", named(plugin), path.display()))
    }

    async fn fetched_again(&self, plugin: &LockedPlugin) -> Result<Vec<u8>, Failure> {
        let source = match (plugin.source().map_err(failed)?, &plugin.manifest) {
            (Source::Registry(reference), Some(manifest)) => Source::Registry(reference.with_digest(manifest)),
            (source, _) => source,
        };
        let found = self.registry.find(&source).await.map_err(failed)?;
        // The signature is the one in the lock.
        let ignored = Signatures::Ignored;
        let fetched = candidate::fetch(&self.registry, &found, &self.shelf, ignored, self.terminal).await?;
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
