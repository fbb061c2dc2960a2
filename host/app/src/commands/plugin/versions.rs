//! `plugin history|rollback|prune`: lists the plugin versions that were used, rolls plugins back to earlier versions,
//! and removes stored components that are no longer needed (P10).

use super::print;
use crate::arguments::versions::{HistoryArguments, RollbackArguments};
use crate::environment;
use crate::exit::Failure;
use crate::terminal::{BOLD, DIM, Terminal, text};
use agent_config::{DataDirectory, DataLocation, assembly};
use agent_plugins::PluginStore;
use agent_runtime::swap::{
    RollbackError, RollbackRequest, RolledBack, directory_name, prune, roll_back, undo_rollback,
};
use agent_store::{PluginVersion, VersionEndReason, VersionFilter};
use std::path::Path;
use std::time::SystemTime;

/// Displayed length of a digest, in hexadecimal digits.
const DIGEST_DIGITS: usize = 12;

/// Prints the plugin versions that were used, latest first.
pub(super) async fn history(
    arguments: HistoryArguments,
    data: DataLocation<'_>,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let store = assembly::open_store(&DataDirectory::open(data, &environment::host())?).await?;
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
    data: DataLocation<'_>,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let data = DataDirectory::open(data, &environment::host())?;
    let store = assembly::open_store(&data).await?;
    let RollbackArguments { plugin, plugins, to, undo } = arguments;
    let (directory, digest) = (plugins.as_deref(), to.as_deref());
    let request = RollbackRequest { plugin: &plugin, directory, digest };
    if undo {
        let undone = undo_rollback(&*store, request).await.map_err(refused)?;
        terminal.note(format!("{BOLD}{plugin}{BOLD:#} is loaded again from its file in {}", undone.directory));
        return Ok(());
    }
    let RolledBack { from, to, .. } =
        roll_back(&*store, &PluginStore::new(data.plugins()), request).await.map_err(refused)?;
    let undo = format!("`agent-host plugin rollback {plugin} --undo` undoes this");
    terminal.note(format!("{BOLD}{plugin}{BOLD:#} {} → {}, until its file changes; {undo}", from.short(), to.short()));
    Ok(())
}

fn refused(error: RollbackError) -> Failure {
    match error {
        RollbackError::Selection(problem) => Failure::refused(format!(
            "{problem}; `agent-host plugin history` shows the used versions, `--undo` undoes a rollback, and `--plugins DIR` \
             selects a folder"
        )),
        RollbackError::Component(error) => Failure::refused(error),
        RollbackError::Store(error) => Failure::failed(error),
    }
}

/// Removes the stored components that are no longer needed.
pub(super) async fn prune_components(data: DataLocation<'_>, terminal: &Terminal) -> Result<(), Failure> {
    let data = DataDirectory::open(data, &environment::host())?;
    let store = assembly::open_store(&data).await?;
    let pruned = prune(&*store, &PluginStore::new(data.plugins()), SystemTime::now()).await;
    let pruned = pruned.map_err(Failure::failed)?;
    let (removed, kept) = (text::count(pruned.removed.len(), "component"), text::count(pruned.kept, "component"));
    print(terminal, format!("removed {removed} ({} bytes), kept {kept}", text::grouped(pruned.bytes)))
}

fn describe(version: &PluginVersion) -> String {
    let until = match (&version.ended, version.why) {
        (Some(ended), why) => {
            let why = match why {
                Some(VersionEndReason::Replaced) | None => "the file of the plugin changed",
                Some(VersionEndReason::Removed) => "the file of the plugin was removed",
                Some(VersionEndReason::Trapped) => "the version crashed too often",
                Some(VersionEndReason::Requested) => "another version was requested",
            };
            format!("until {}: {why}", text::local_time(ended))
        }
        (None, _) => "in use".to_owned(),
    };
    let digest = version.digest.hex().get(..DIGEST_DIGITS).unwrap_or_default();
    // Show the absolute path of the folder, because several folders may contain a file with this name, and the meaning
    // of a relative path depends on the current folder of the command that recorded it.
    let file = Path::new(&version.origin).file_name().map(Path::new).unwrap_or(Path::new(&version.origin));
    let origin = Path::new(&version.directory).join(file).display().to_string();
    let (name, origin) = (text::one_line(&version.plugin, 64), text::one_line(&origin, 200));
    format!("{BOLD}{name}{BOLD:#} {digest}  {} {until}  {DIM}{origin}{DIM:#}", text::local_time(&version.began))
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_core::message::Digest;

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
}
