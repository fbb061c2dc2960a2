//! `plugin update`: finds newer versions of the plugins in the lock file, shows what each version changes, and installs
//! the newer versions.

use super::super::{describe, print};
use super::candidate::{self, Candidate};
use super::folder::{FolderUse, FolderWithTrust};
use super::version_report::{self, VersionReport};
use super::{component_cache, failed, registry};
use crate::arguments::sharing::UpdateArguments;
use crate::commands::audited_refusal::audit_refusal;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::terminal::{Terminal, text};
use agent_config::{DataDirectory, DataLocation, assembly};
use agent_plugins::{LoadedPlugin, Sandbox};
use agent_registry::{
    ComponentCache, LockFile, LockedPlugin, Registry, RegistryError, ReplacePolicy, Source, VersionChanges,
    VersionFacts, check_update,
};
use std::sync::Arc;

/// Updates the named plugins, or all plugins in the lock file. With `--check`, only reports newer versions.
pub(in super::super) async fn update(
    arguments: UpdateArguments,
    data: DataLocation<'_>,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let data = DataDirectory::open(data, &environment::host())?;
    let access = if arguments.check { FolderUse::Reads } else { FolderUse::Changes };
    let target = FolderWithTrust::read(&arguments.folder, access, terminal)?;
    let lock = target.folder.lock_file().map_err(failed)?;
    let plugins = select_plugins(&lock, &arguments.names)?;
    let sandbox = assembly::open_limited_sandbox((&data, &environment::host()), target.limits, target.trust.clone())?;
    let registry = registry(arguments.folder.connection.access(), terminal)?;
    let mut component_cache = component_cache(&data);
    // With `--check`, a download is deleted when the command ends, and neither the new version nor its code is stored.
    // No plugin has access to a folder in the data folder.
    let downloads = || tempfile::Builder::new().prefix("check-").tempdir_in(data.root());
    let temporary = if arguments.check { Some(downloads().map_err(Failure::failed)?) } else { None };
    let mut examining = None;
    if let Some(temporary) = &temporary {
        component_cache.downloads.directory = temporary.path().to_owned();
        examining = Some(assembly::open_examining_sandbox(&environment::host(), target.limits)?);
    }
    let update = PluginUpdate {
        data: &data,
        registry,
        component_cache,
        target,
        sandbox,
        examining,
        arguments: &arguments,
        terminal,
    };
    let (mut newer, mut wrong) = (0, 0);
    for plugin in plugins {
        match update.update_one(plugin).await {
            Ok(Outcome::Current) if arguments.json => print(terminal, version_report::current(plugin).to_string())?,
            Ok(Outcome::Current) => {}
            Ok(Outcome::Newer) => newer += 1,
            Err(failure) => {
                if arguments.json {
                    print(terminal, version_report::failed(plugin, &failure.message).to_string())?;
                }
                terminal.failure(&format!("{}: {}", plugin.name, failure.message));
                wrong += 1;
            }
        }
    }
    if newer == 0 && wrong == 0 && !arguments.json {
        terminal.note("all plugins are up to date");
    }
    Ok(if wrong > 0 || (arguments.check && newer > 0) { Exit::Failed } else { Exit::Done })
}

fn select_plugins<'l>(lock: &'l LockFile, names: &[String]) -> Result<Vec<&'l LockedPlugin>, Failure> {
    if names.is_empty() {
        return Ok(lock.plugins().iter().collect());
    }
    let locked: Vec<_> = lock.plugins().iter().map(|plugin| plugin.name.as_str()).collect();
    let absent = |name: &String| {
        Failure::refused(format!("the plugin `{name}` is not in plugins.lock, which contains: {}", locked.join(", ")))
    };
    names.iter().map(|name| lock.plugin(name).ok_or_else(|| absent(name))).collect()
}

/// Result of checking whether a plugin has a newer version.
enum Outcome {
    /// The version in the lock file is the newest version.
    Current,
    /// A newer version exists, and it was installed unless the user wrote `--check`.
    Newer,
}

/// Values that all steps of one `plugin update` command use.
struct PluginUpdate<'u> {
    data: &'u DataDirectory,
    registry: Registry,
    component_cache: ComponentCache,
    target: FolderWithTrust,
    /// Loads the installed versions.
    sandbox: Sandbox,
    /// Examines newer versions without storing anything. None if newer versions are installed.
    examining: Option<Sandbox>,
    arguments: &'u UpdateArguments,
    terminal: &'u Terminal,
}

impl PluginUpdate<'_> {
    async fn update_one(&self, locked: &LockedPlugin) -> Result<Outcome, Failure> {
        let source = locked.source().map_err(failed)?;
        if matches!(&source, Source::Registry(reference) if reference.digest().is_some()) {
            return Ok(Outcome::Current);
        }
        self.terminal.busy(format!("checking {source}"));
        let found = self.registry.resolve(&source).await;
        self.terminal.idle();
        let found = self.received(locked, found).await?;
        if found.manifest.is_some() && found.manifest == locked.manifest {
            return Ok(Outcome::Current);
        }
        let wanted = candidate::signatures_to_fetch(&source, &self.target.trust);
        let fetched = candidate::fetch(&self.registry, &found, &self.component_cache, wanted, self.terminal).await;
        let fetched = self.received(locked, fetched).await?;
        if found.manifest.is_none() && fetched.digest() == locked.component {
            return Ok(Outcome::Current);
        }
        let checked = candidate::check_signatures(fetched, &self.target.trust, self.terminal);
        let trusted = self.audited(locked, checked).await?;
        let new = &trusted.locked;
        if new.name != locked.name {
            let renamed = Failure::failed(format!(
                "{} is the plugin `{}` now, so it was not installed; to install it, run `agent-host plugin remove {}` and then \
                 `agent-host plugin add`",
                locked.reference,
                text::one_line(&new.name, 100),
                locked.name
            ));
            return self.audited(locked, Err(renamed)).await;
        }
        let checked = check_update(new, locked, &self.target.trust, self.arguments.downgrade());
        self.audited(locked, checked.map_err(Failure::failed)).await?;
        let candidate = match &self.examining {
            Some(sandbox) => trusted.examine(sandbox, self.terminal).await?,
            None => trusted.load((&self.sandbox, &self.component_cache), self.terminal).await?,
        };
        self.report(locked, &candidate).await?;
        if self.examining.is_none() {
            let Candidate { fetched, locked: new, .. } = candidate;
            self.target.folder.install(new, &fetched.bytes, ReplacePolicy::LockedFile).map_err(failed)?;
        }
        Ok(Outcome::Newer)
    }

    /// Returns what was downloaded. If the host refuses it, records this in the audit log.
    async fn received<T>(&self, plugin: &LockedPlugin, result: Result<T, RegistryError>) -> Result<T, Failure> {
        match result {
            Err(error) if error.is_refusal() => self.audited(plugin, Err(failed(error))).await,
            result => result.map_err(failed),
        }
    }

    /// If the host refuses a new version, records this in the audit log. With `--check`, nothing is stored.
    async fn audited<T>(&self, plugin: &LockedPlugin, result: Result<T, Failure>) -> Result<T, Failure> {
        if let Err(refused) = &result
            && !self.arguments.check
        {
            audit_refusal(self.data, self.target.folder.path(), (&plugin.reference, &refused.message)).await;
        }
        result
    }

    /// Prints what the newer version changes.
    async fn report(&self, locked: &LockedPlugin, candidate: &Candidate) -> Result<(), Failure> {
        let before = self.load_locked(locked).await;
        let changes = before.map(|before| {
            let facts = |plugin| VersionFacts::of(plugin, describe::requested_grants(plugin));
            VersionChanges::between(&facts(&before), &facts(&candidate.plugin))
        });
        let report = VersionReport { locked, new: &candidate.locked, changes };
        match self.arguments.json {
            true => print(self.terminal, report.document().to_string()),
            false => print(self.terminal, report.lines(self.terminal.width())),
        }
    }

    /// Loads the locked version from the plugin store or from its file. Returns `None` if neither the store nor the
    /// file contains the version.
    async fn load_locked(&self, locked: &LockedPlugin) -> Option<Arc<LoadedPlugin>> {
        if let Ok(plugin) = self.sandbox.load_stored(&locked.name, &locked.component).await {
            return Some(plugin);
        }
        let file = self.target.folder.file(locked);
        let plugin = self.sandbox.load_verified_file_with(&file, &|_| {}).await.ok()?;
        (*plugin.digest() == locked.component).then_some(plugin)
    }
}
