//! `plugin history|rollback|prune`: lists the plugin versions that were used, rolls plugins back to earlier versions,
//! and removes stored components that are no longer needed (P10).

use super::print;
use crate::arguments::versions::{HistoryArguments, RollbackArguments};
use crate::environment;
use crate::exit::Failure;
use crate::terminal::{BOLD, DIM, Terminal, text};
use agent_config::{DataDirectory, assembly};
use agent_core::message::Digest;
use agent_plugins::PluginStore;
use agent_runtime::swap::{directory_name, prune};
use agent_store::{AuditAction, MAX_PAGE, PluginVersion, Rollback, Store, VersionEndReason, VersionFilter};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Displayed length of a digest, in hexadecimal digits.
const DIGEST_DIGITS: usize = 12;

/// Prints the plugin versions that were used, latest first.
pub(super) async fn history(
    arguments: HistoryArguments,
    data: Option<&Path>,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let store = assembly::open_store(&DataDirectory::open(data, &environment::host())?)?;
    let filter =
        VersionFilter { directory: arguments.plugins.as_deref().map(directory_name), plugin: arguments.plugin.clone() };
    let versions = store.versions(filter, arguments.limit as usize).await.map_err(Failure::failed)?;
    for version in &versions {
        let line = match arguments.json {
            true => serde_json::to_string(version).map_err(Failure::failed)?,
            false => describe(version),
        };
        print(terminal, line)?;
    }
    if versions.is_empty() && !arguments.json {
        terminal.note(match arguments.plugin {
            Some(plugin) => format!("no version of a plugin `{plugin}` has been used yet"),
            None => "no plugin has been used yet".to_owned(),
        });
    }
    Ok(())
}

/// Rolls a plugin back to an earlier version, or undoes a rollback. A running host then uses the
/// selected version without a restart.
pub(super) async fn rollback(
    arguments: RollbackArguments,
    data: Option<&Path>,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let data = DataDirectory::open(data, &environment::host())?;
    let store = assembly::open_store(&data)?;
    let (directory, versions) = versions_of(&*store, &arguments.plugin, arguments.plugins).await?;
    let plugin = arguments.plugin;
    let rollbacks = store.rollbacks(&directory).await.map_err(Failure::failed)?;
    let current = rollbacks.into_iter().find(|rollback| rollback.plugin == plugin);
    if arguments.undo {
        let undone = store.undo_rollback(&directory, &plugin).await.map_err(Failure::failed)?;
        let Some(rollback) = current.filter(|_| undone) else {
            return Err(Failure::refused(format!(
                "`{plugin}` is not rolled back in {directory}: the version in its file is in use"
            )));
        };
        let Rollback { from: to, to: from, .. } = rollback;
        let action = AuditAction::RollbackUndone { directory: directory.clone(), plugin: plugin.clone(), from, to };
        store.audit(vec![action]).await.map_err(Failure::failed)?;
        terminal.note(format!("{BOLD}{plugin}{BOLD:#} is loaded again from its file in {directory}"));
        return Ok(());
    }
    let serving = versions.iter().find(|version| version.ended.is_none()).map(|version| &version.digest);
    let Some(in_file) = current.as_ref().map(|rollback| &rollback.from).or(serving) else {
        return Err(Failure::refused(format!(
            "`{plugin}` is no longer in {directory}: put its file back into the folder first"
        )));
    };
    let to = rollback_target(&versions, (in_file, serving), arguments.to.as_deref())
        .map_err(|problem| Failure::refused(format!("`{plugin}`: {problem}")))?;
    PluginStore::new(data.plugins()).get(&to).map_err(|error| Failure::refused(format!("`{plugin}`: {error}")))?;
    let (from, name) = (in_file.clone(), plugin.clone());
    let because = "the user requested it".to_owned();
    let action = AuditAction::RolledBack {
        directory: directory.clone(),
        plugin: name.clone(),
        from: from.clone(),
        to: to.clone(),
        because,
    };
    let rollback =
        Rollback { directory, plugin: name, from: from.clone(), to: to.clone(), why: VersionEndReason::Requested };
    store.roll_back(rollback).await.map_err(Failure::failed)?;
    store.audit(vec![action]).await.map_err(Failure::failed)?;
    let undo = format!("`agent-host plugin rollback {plugin} --undo` undoes this");
    terminal.note(format!("{BOLD}{plugin}{BOLD:#} {} → {}, until its file changes; {undo}", from.short(), to.short()));
    Ok(())
}

/// Removes the stored components that are no longer needed.
pub(super) async fn prune_components(data: Option<&Path>, terminal: &Terminal) -> Result<(), Failure> {
    let data = DataDirectory::open(data, &environment::host())?;
    let store = assembly::open_store(&data)?;
    let pruned = prune(&*store, &PluginStore::new(data.plugins()), SystemTime::now()).await;
    let pruned = pruned.map_err(Failure::failed)?;
    let (removed, kept) = (text::count(pruned.removed.len(), "component"), text::count(pruned.kept, "component"));
    print(terminal, format!("removed {removed} ({} bytes), kept {kept}", text::grouped(pruned.bytes)))
}

/// Finds the directory that contains the plugin, and returns the directory and the plugin's versions, latest first.
/// Returns an error if several directories contain the plugin.
async fn versions_of(
    store: &dyn Store,
    plugin: &str,
    directory: Option<PathBuf>,
) -> Result<(String, Vec<PluginVersion>), Failure> {
    let directory = directory.as_deref().map(directory_name);
    let filter = VersionFilter { directory, plugin: Some(plugin.to_owned()) };
    let versions = store.versions(filter, MAX_PAGE).await.map_err(Failure::failed)?;
    let directories: BTreeSet<_> = versions.iter().map(|version| version.directory.clone()).collect();
    match directories.into_iter().collect::<Vec<_>>().as_slice() {
        [] => Err(Failure::refused(format!(
            "no version of a plugin `{plugin}` has been used; `agent-host plugin history` shows the used versions"
        ))),
        [one] => Ok((one.clone(), versions)),
        several => Err(Failure::refused(format!(
            "several folders have a plugin `{plugin}`: {}; select one with --plugins DIR",
            several.join(", ")
        ))),
    }
}

/// Finds the version to roll back to. If `digest_prefix` is given, the target is the version whose digest begins with
/// the prefix. Without a prefix, the target is the latest version that is neither in the plugin's file nor in use.
fn rollback_target(
    versions: &[PluginVersion],
    (in_file, serving): (&Digest, Option<&Digest>),
    digest_prefix: Option<&str>,
) -> Result<Digest, String> {
    let Some(prefix) = digest_prefix else {
        let is_unused = |version: &&PluginVersion| version.digest != *in_file && Some(&version.digest) != serving;
        let found = versions.iter().find(is_unused).map(|version| version.digest.clone());
        return found.ok_or_else(|| "there is no earlier version to roll back to".to_owned());
    };
    let digits = prefix.strip_prefix("sha256:").unwrap_or(prefix);
    let found: BTreeSet<_> =
        versions.iter().map(|version| &version.digest).filter(|digest| digest.hex().starts_with(digits)).collect();
    match (digits.is_empty(), found.into_iter().collect::<Vec<_>>().as_slice()) {
        (false, [digest]) if *digest == in_file => {
            Err(format!("{} is the version in the plugin's file; `--undo` returns to that version", in_file.short()))
        }
        (false, [digest]) => Ok((*digest).clone()),
        (false, []) => {
            Err(format!("no version has a digest that begins with `{prefix}`; `agent-host plugin history` shows all"))
        }
        _ => Err(format!("the digests of several versions begin with `{prefix}`; write more characters")),
    }
}

fn describe(version: &PluginVersion) -> String {
    let time = |time: &str| time.get(..19).unwrap_or(time).replace('T', " ");
    let until = match (&version.ended, version.why) {
        (Some(ended), why) => {
            let why = match why {
                Some(VersionEndReason::Replaced) | None => "the file of the plugin changed",
                Some(VersionEndReason::Removed) => "the file of the plugin was removed",
                Some(VersionEndReason::Trapped) => "the version crashed too often",
                Some(VersionEndReason::Requested) => "another version was requested",
            };
            format!("until {}: {why}", time(ended))
        }
        (None, _) => "in use".to_owned(),
    };
    let digest = version.digest.hex().get(..DIGEST_DIGITS).unwrap_or_default();
    // Show the absolute path of the folder, because several folders may contain a file with this name, and the meaning
    // of a relative path depends on the current folder of the command that recorded it.
    let file = Path::new(&version.origin).file_name().map(Path::new).unwrap_or(Path::new(&version.origin));
    let origin = Path::new(&version.directory).join(file).display().to_string();
    let (name, origin) = (text::one_line(&version.plugin, 64), text::one_line(&origin, 200));
    format!("{BOLD}{name}{BOLD:#} {digest}  {} {until}  {DIM}{origin}{DIM:#}", time(&version.began))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(byte: u8) -> PluginVersion {
        PluginVersion {
            number: u64::from(byte),
            directory: "/plugins".to_owned(),
            plugin: "text".to_owned(),
            digest: Digest::from_sha256([byte; 32]),
            origin: "text.wasm".to_owned(),
            began: "2026-01-31T12:00:00Z".to_owned(),
            ended: None,
            why: None,
        }
    }

    /// P10: the output distinguishes files with the same name in two folders, even if their paths were typed as
    /// relative paths.
    #[test]
    fn p10_a_version_is_described_with_its_folder() {
        let typed =
            PluginVersion { origin: "p/calc.wasm".to_owned(), directory: "/home/ann/p".to_owned(), ..version(1) };
        assert!(describe(&typed).contains("/home/ann/p/calc.wasm"), "{}", describe(&typed));
    }

    /// P10: a rollback returns to the previous version or to the version that the user names, and never to the version
    /// in the plugin's file.
    #[test]
    fn p10_rollback_target_is_the_previous_or_the_named_version() {
        let versions = [version(3), version(2), version(3), version(1)];
        let digest = |byte: u8| Digest::from_sha256([byte; 32]);
        let target_of = |prefix| rollback_target(&versions, (&digest(3), Some(&digest(3))), prefix);
        assert_eq!(target_of(None), Ok(digest(2)));
        assert_eq!(
            rollback_target(&versions, (&digest(3), Some(&digest(2))), None),
            Ok(digest(1)),
            "the version before the previous version"
        );
        assert_eq!(target_of(Some("0101")), Ok(digest(1)));
        let first = digest(1);
        assert_eq!(target_of(Some(first.as_str())), Ok(digest(1)));
        assert!(target_of(Some("0303")).unwrap_err().contains("--undo"));
        assert!(target_of(Some("0")).unwrap_err().contains("several"));
        assert!(target_of(Some("")).unwrap_err().contains("several"));
        assert!(target_of(Some("ff")).unwrap_err().contains("plugin history"));
        assert!(rollback_target(&versions[..1], (&digest(3), None), None).is_err());
    }
}
