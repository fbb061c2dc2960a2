//! `plugin add`: installs a plugin from a registry, a web server or a file into the plugin folder, or restores the
//! plugins that are in the lock file but missing from the folder.

use super::super::{describe, print};
use super::candidate::{self, Candidate};
use super::folder::{FolderUse, FolderWithTrust, summary};
use super::{component_cache, failed, registry};
use crate::arguments::sharing::AddArguments;
use crate::commands::audited_refusal::audit_refusal;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::terminal::{Terminal, YELLOW, text};
use agent_config::{DataDirectory, DataLocation, assembly};
use agent_plugins::Sandbox;
use agent_registry::{
    ComponentCache, Downgrade, FetchedPlugin, LockedPlugin, PluginState, Reference, Registry, RegistryError,
    ReplacePolicy, Signer, Source, check_update,
};
use std::path::Path;

/// Installs the plugins of a source. Without a source, restores all plugins in the lock file.
pub(in super::super) async fn add(
    arguments: AddArguments,
    data: DataLocation<'_>,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let sources = arguments.source.as_ref().map(expand_source).transpose()?;
    let data = DataDirectory::open(data, &environment::host())?;
    let target = match &arguments.source {
        Some(_) => FolderWithTrust::read_or_new(&arguments.folder, FolderUse::Changes, terminal)?,
        None => FolderWithTrust::read(&arguments.folder, FolderUse::Changes, terminal)?,
    };
    let sandbox = assembly::open_limited_sandbox((&data, &environment::host()), target.limits, target.trust.clone())?;
    let addition = PluginAddition {
        data: &data,
        registry: registry(arguments.folder.connection.access(), terminal)?,
        component_cache: component_cache(&data),
        replace: if arguments.replace { ReplacePolicy::AnyFile } else { ReplacePolicy::LockedFile },
        downgrade: arguments.downgrade(),
        target,
        sandbox,
        terminal,
    };
    let Some(sources) = sources else { return addition.restore().await };
    for source in sources {
        addition.install(&source).await?;
    }
    Ok(Exit::Done)
}

/// If the source is a folder, returns the components in the folder. If the source is not a
/// folder, returns the source itself.
fn expand_source(source: &Source) -> Result<Vec<Source>, Failure> {
    let Source::File(folder) = source else { return Ok(vec![source.clone()]) };
    if !folder.exists() {
        return Err(missing_path(folder));
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

/// Returns the error for a path that does not exist. The user may have meant a registry reference, which looks like
/// a path.
fn missing_path(path: &Path) -> Failure {
    let what = path.display();
    let advice = match Reference::parse(&path.to_string_lossy()) {
        Ok(_) => format!("a name that ends in .wasm is read as a path; for a registry, write `oci://{what}`"),
        Err(_) => {
            "build plugin projects with `agent-host plugin build`; write a plugin in a registry as HOST/PATH[:TAG], \
                   and a plugin on a web server as https://…"
                .to_owned()
        }
    };
    Failure::refused(format!("there is no file or folder `{what}`: {advice}"))
}

/// Returns true if the locked plugin came from the same repository or web address as `source`. A file counts as the
/// same source as any other file.
fn is_same_source(locked: &LockedPlugin, source: &Source) -> bool {
    match (locked.source(), source) {
        (Ok(Source::Registry(locked)), Source::Registry(new)) => locked.repository() == new.repository(),
        (Ok(Source::Web(locked)), Source::Web(new)) => locked == *new,
        (Ok(Source::File(_)), Source::File(_)) => true,
        _ => false,
    }
}

fn describe_added(Candidate { locked, plugin, .. }: &Candidate, path: &Path) -> String {
    let signer = locked.signer.as_ref().map(|signer| format!("\n  signed    {signer}")).unwrap_or_default();
    let requests = describe::requested_grants(plugin);
    let requests = match &requests {
        None => "the plugin has no manifest, so it may use everything that it is granted".to_owned(),
        Some(requests) if requests.is_empty() => "nothing".to_owned(),
        Some(requests) => requests.join(", "),
    };
    format!("{}\n  file      {}\n  asks      {requests}{signer}", summary(locked), path.display())
}

/// Values that all steps of one `plugin add` command use.
struct PluginAddition<'t> {
    data: &'t DataDirectory,
    registry: Registry,
    component_cache: ComponentCache,
    replace: ReplacePolicy,
    downgrade: Downgrade,
    target: FolderWithTrust,
    sandbox: Sandbox,
    terminal: &'t Terminal,
}

impl PluginAddition<'_> {
    /// Installs one plugin.
    async fn install(&self, source: &Source) -> Result<(), Failure> {
        let lock = self.target.folder.lock_file().map_err(failed)?;
        let before = lock.plugins().iter().find(|plugin| plugin.reference == source.to_string());
        let fetched = match (self.registry.resolve(source).await, before) {
            (Ok(found), _) => {
                let wanted = candidate::signatures_to_fetch(source, &self.target.trust);
                let fetched =
                    candidate::fetch(&self.registry, &found, &self.component_cache, wanted, self.terminal).await;
                self.received(source, fetched).await?
            }
            (Err(error), Some(before))
                if error.is_offline() && self.component_cache.store.get(&before.component).is_ok() =>
            {
                let error = text::harmless(&error.to_string()).into_owned();
                self.terminal
                    .note(format!("{YELLOW}!{YELLOW:#} {error}; the locked version is taken from the plugin store"));
                return self.restore_one(before).await;
            }
            (Err(error), _) => self.received(source, Err(error)).await?,
        };
        let trusted =
            self.audited(source, candidate::check_signatures(fetched, &self.target.trust, self.terminal)).await?;
        if let Some(before) = lock.plugin(&trusted.locked.name) {
            self.audited(source, self.check_successor(before, &trusted.locked, source)).await?;
        }
        let candidate = trusted.load((&self.sandbox, &self.component_cache), self.terminal).await?;
        let Candidate { fetched, locked, .. } = &candidate;
        let path = self.target.folder.install(locked.clone(), &fetched.bytes, self.replace).map_err(failed)?;
        print(self.terminal, describe_added(&candidate, &path))
    }

    /// If the host refuses a plugin, records this in the audit log.
    async fn audited<T>(&self, plugin: impl std::fmt::Display, result: Result<T, Failure>) -> Result<T, Failure> {
        if let Err(refused) = &result {
            let subject = plugin.to_string();
            audit_refusal(self.data, self.target.folder.path(), (&subject, &refused.message)).await;
        }
        result
    }

    /// Returns what was downloaded. If the host refuses it, records this in the audit log.
    async fn received<T>(
        &self,
        plugin: impl std::fmt::Display,
        result: Result<T, RegistryError>,
    ) -> Result<T, Failure> {
        match result {
            Err(error) if error.is_refusal() => self.audited(plugin, Err(failed(error))).await,
            result => result.map_err(failed),
        }
    }

    /// Checks that the new plugin may replace the locked plugin. The check is needed because grants belong to a plugin
    /// name, so the new plugin gets all grants of the locked plugin. The user must explicitly allow the replacement if
    /// the new plugin comes from another source, or if it is an older version, because an older version may have a
    /// known vulnerability.
    fn check_successor(&self, before: &LockedPlugin, new: &LockedPlugin, source: &Source) -> Result<(), Failure> {
        if !is_same_source(before, source) {
            return match self.replace {
                ReplacePolicy::AnyFile => Ok(()),
                ReplacePolicy::LockedFile => Err(Failure::refused(format!(
                    "`{}` was installed from {}, and {} is another source; --replace installs the new plugin, which \
                     then gets all grants that belong to the name `{}`",
                    before.name, before.reference, new.reference, before.name
                ))),
            };
        }
        check_update(new, before, &self.target.trust, self.downgrade).map_err(Failure::refused)
    }

    /// Restores each plugin in the lock file whose component is missing, cannot be read or differs from the lock
    /// file's entry.
    async fn restore(&self) -> Result<Exit, Failure> {
        let lock = self.target.folder.lock_file().map_err(failed)?;
        if lock.plugins().is_empty() {
            let folder = self.target.folder.path().display();
            return Err(Failure::refused(format!(
                "the plugins.lock of `{folder}` contains no plugins; name a plugin to add: HOST/PATH[:TAG], a web \
                 address or a file"
            )));
        }
        let mut exit = Exit::Done;
        for plugin in lock.plugins() {
            match self.target.folder.state(plugin, &self.target.trust) {
                PluginState::Valid(Signer::Trusted { .. } | Signer::Untrusted { .. }) => continue,
                PluginState::Missing | PluginState::Modified(_) | PluginState::Unreadable(_) => {}
                PluginState::Untrusted(error) => {
                    let refused: Result<(), _> = self.audited(&plugin.reference, Err(failed(error))).await;
                    self.terminal.failure(&refused.err().map(|failure| failure.message).unwrap_or_default());
                    exit = Exit::Failed;
                    continue;
                }
            }
            if let Err(failure) = self.restore_one(plugin).await {
                self.terminal.failure(&failure.message);
                exit = Exit::Failed;
            }
        }
        if exit == Exit::Done {
            self.terminal.note("all plugins of plugins.lock are present");
        }
        Ok(exit)
    }

    /// Restores the component whose digest is in the lock file. Takes the component from the plugin store or, if the
    /// store does not contain it, from its source.
    async fn restore_one(&self, plugin: &LockedPlugin) -> Result<(), Failure> {
        let bytes = match self.component_cache.store.get(&plugin.component) {
            Ok(bytes) => bytes,
            Err(_) => self.fetch_locked(plugin).await?,
        };
        let source = plugin.source().map_err(failed)?;
        let signatures = plugin.signature.iter().cloned().collect();
        let fetched =
            FetchedPlugin { source, manifest: plugin.manifest.clone(), bytes, signatures, search_stopped: None };
        let checked = candidate::check_signatures(fetched, &self.target.trust, self.terminal);
        let trusted = self.audited(&plugin.reference, checked).await?;
        if trusted.locked.name != plugin.name {
            let name = text::one_line(&trusted.locked.name, 100);
            return Err(Failure::failed(format!(
                "{} contains the plugin `{name}`, not `{}`",
                plugin.reference, plugin.name
            )));
        }
        let candidate = trusted.load((&self.sandbox, &self.component_cache), self.terminal).await?;
        let path =
            self.target.folder.install(plugin.clone(), &candidate.fetched.bytes, self.replace).map_err(failed)?;
        print(self.terminal, format!("{}\n  file      {}", summary(plugin), path.display()))
    }

    async fn fetch_locked(&self, plugin: &LockedPlugin) -> Result<Vec<u8>, Failure> {
        let what = format!("downloading {}", plugin.reference);
        let progress = |done, total| self.terminal.downloaded(&what, done, total);
        let fetched = self.registry.fetch_locked(plugin, &self.component_cache, &progress).await;
        self.terminal.idle();
        self.received(&plugin.reference, fetched).await
    }
}
