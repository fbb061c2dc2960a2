//! `plugin history|rollback|prune`: which versions of plugins have served, and which shall (P10).

use super::print;
use crate::arguments::versions::{HistoryArguments, RollbackArguments};
use crate::data::DataDirectory;
use crate::exit::Failure;
use crate::setup;
use crate::terminal::{BOLD, DIM, Terminal, text};
use agent_core::message::Digest;
use agent_plugins::PluginStore;
use agent_runtime::swap::{directory_name, prune};
use agent_store::{
    Audit, Deed, MAX_PAGE, PluginVersion, PluginVersions, Rollback, SqliteStore, VersionEnd, VersionFilter,
};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Digits of a digest that a list shows.
const DIGITS: usize = 12;

/// Prints versions, the latest first.
pub(super) async fn history(asked: HistoryArguments, data: Option<&Path>, terminal: &Terminal) -> Result<(), Failure> {
    let store = setup::store(&DataDirectory::open(data)?)?;
    let which = VersionFilter { directory: asked.plugins.as_deref().map(directory_name), plugin: asked.plugin.clone() };
    let versions = store.versions(which, asked.limit as usize).await.map_err(Failure::failed)?;
    for version in &versions {
        let line = match asked.json {
            true => serde_json::to_string(version).map_err(Failure::failed)?,
            false => shown(version),
        };
        print(terminal, line)?;
    }
    if versions.is_empty() && !asked.json {
        terminal.note(match asked.plugin {
            Some(plugin) => format!("no version of a plugin `{plugin}` has served yet"),
            None => "no plugin has served yet".to_owned(),
        });
    }
    Ok(())
}

/// Goes back to an earlier version, or lets the file decide again. A host that runs takes it by itself.
pub(super) async fn rollback(
    asked: RollbackArguments,
    data: Option<&Path>,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let data = DataDirectory::open(data)?;
    let store = setup::store(&data)?;
    let (directory, versions) = versions_of(&store, &asked.plugin, asked.plugins).await?;
    let plugin = asked.plugin;
    let standing = store.rollbacks(&directory).await.map_err(Failure::failed)?;
    let standing = standing.into_iter().find(|rollback| rollback.plugin == plugin);
    if asked.undo {
        let undone = store.undo_rollback(&directory, &plugin).await.map_err(Failure::failed)?;
        let Some(rollback) = standing.filter(|_| undone) else {
            return Err(Failure::refused(format!("`{plugin}` is not rolled back in {directory}: its file serves")));
        };
        let Rollback { from: to, to: from, .. } = rollback;
        let deed = Deed::RollbackUndone { directory: directory.clone(), plugin: plugin.clone(), from, to };
        store.audit(vec![deed]).await.map_err(Failure::failed)?;
        terminal.note(format!("{BOLD}{plugin}{BOLD:#} is again what its file in {directory} holds"));
        return Ok(());
    }
    let serving = versions.iter().find(|version| version.ended.is_none()).map(|version| &version.digest);
    let Some(held) = standing.as_ref().map(|rollback| &rollback.from).or(serving) else {
        return Err(Failure::refused(format!("`{plugin}` is not in {directory} any more: bring its file back first")));
    };
    let to = target(&versions, (held, serving), asked.to.as_deref())
        .map_err(|problem| Failure::refused(format!("`{plugin}`: {problem}")))?;
    PluginStore::new(data.plugins()).get(&to).map_err(|error| Failure::refused(format!("`{plugin}`: {error}")))?;
    let (from, name) = (held.clone(), plugin.clone());
    let because = "somebody asked for it".to_owned();
    let deed = Deed::RolledBack {
        directory: directory.clone(),
        plugin: name.clone(),
        from: from.clone(),
        to: to.clone(),
        because,
    };
    let rollback = Rollback { directory, plugin: name, from: from.clone(), to: to.clone(), why: VersionEnd::Asked };
    store.roll_back(rollback).await.map_err(Failure::failed)?;
    store.audit(vec![deed]).await.map_err(Failure::failed)?;
    let undo = format!("`plugin rollback {plugin} --undo` takes that back");
    terminal.note(format!("{BOLD}{plugin}{BOLD:#} {} → {}, until its file changes; {undo}", from.short(), to.short()));
    Ok(())
}

/// Forgets components that nobody needs.
pub(super) async fn forget(data: Option<&Path>, terminal: &Terminal) -> Result<(), Failure> {
    let data = DataDirectory::open(data)?;
    let store = setup::store(&data)?;
    let pruned = prune(&*store, &PluginStore::new(data.plugins()), SystemTime::now()).await;
    let pruned = pruned.map_err(Failure::failed)?;
    let (removed, kept) = (text::count(pruned.removed.len(), "component"), text::count(pruned.kept, "component"));
    print(terminal, format!("{removed} of {} bytes removed, {kept} kept", text::grouped(pruned.bytes)))
}

/// The one directory that is meant, and its versions of the plugin, the latest first.
async fn versions_of(
    store: &SqliteStore,
    plugin: &str,
    directory: Option<PathBuf>,
) -> Result<(String, Vec<PluginVersion>), Failure> {
    let directory = directory.as_deref().map(directory_name);
    let which = VersionFilter { directory, plugin: Some(plugin.to_owned()) };
    let versions = store.versions(which, MAX_PAGE).await.map_err(Failure::failed)?;
    let directories: BTreeSet<_> = versions.iter().map(|version| version.directory.clone()).collect();
    match directories.into_iter().collect::<Vec<_>>().as_slice() {
        [] => Err(Failure::refused(format!(
            "no version of a plugin `{plugin}` has served; `agent-host plugin history` shows those that have"
        ))),
        [one] => Ok((one.clone(), versions)),
        several => Err(Failure::refused(format!(
            "several folders have a plugin `{plugin}`: {}; name one with --plugins DIR",
            several.join(", ")
        ))),
    }
}

/// The version that somebody means: of that digest, else the latest that is another one than what serves.
fn target(
    versions: &[PluginVersion],
    (held, serving): (&Digest, Option<&Digest>),
    asked: Option<&str>,
) -> Result<Digest, String> {
    let Some(asked) = asked else {
        let other = |version: &&PluginVersion| version.digest != *held && Some(&version.digest) != serving;
        let found = versions.iter().find(other).map(|version| version.digest.clone());
        return found.ok_or_else(|| "there is no earlier version of it to go back to".to_owned());
    };
    let digits = asked.strip_prefix("sha256:").unwrap_or(asked);
    let found: BTreeSet<_> =
        versions.iter().map(|version| &version.digest).filter(|digest| digest.hex().starts_with(digits)).collect();
    match (digits.is_empty(), found.into_iter().collect::<Vec<_>>().as_slice()) {
        (false, [digest]) if *digest == held => {
            Err(format!("{} is what its file holds; `--undo` lets the file serve", held.short()))
        }
        (false, [digest]) => Ok((*digest).clone()),
        (false, []) => Err(format!("no version of it begins with `{asked}`; `plugin history` shows all")),
        _ => Err(format!("several versions begin with `{asked}`; write more of the digest")),
    }
}

fn shown(version: &PluginVersion) -> String {
    let time = |time: &str| time.get(..19).unwrap_or(time).replace('T', " ");
    let until = match (&version.ended, version.why) {
        (Some(ended), why) => {
            let why = match why {
                Some(VersionEnd::Replaced) | None => "its file changed",
                Some(VersionEnd::Removed) => "its file went away",
                Some(VersionEnd::Trapped) => "it crashed too often",
                Some(VersionEnd::Asked) => "somebody asked for another",
            };
            format!("until {}: {why}", time(ended))
        }
        (None, _) => "serves".to_owned(),
    };
    let digest = version.digest.hex().get(..DIGITS).unwrap_or_default();
    // The folder as it is, since several may have a file of that name; as it was typed, it means something else elsewhere.
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

    /// P10: two folders with a file of one name are told apart, however they were typed.
    #[test]
    fn p10_a_version_is_shown_with_its_folder() {
        let typed =
            PluginVersion { origin: "p/calc.wasm".to_owned(), directory: "/home/ann/p".to_owned(), ..version(1) };
        assert!(shown(&typed).contains("/home/ann/p/calc.wasm"), "{}", shown(&typed));
    }

    /// P10: back to the version before, or to one that is named; never to what the file holds.
    #[test]
    fn p10_the_version_that_is_meant() {
        let versions = [version(3), version(2), version(3), version(1)];
        let digest = |byte: u8| Digest::from_sha256([byte; 32]);
        let meant = |asked| target(&versions, (&digest(3), Some(&digest(3))), asked);
        assert_eq!(meant(None), Ok(digest(2)));
        assert_eq!(target(&versions, (&digest(3), Some(&digest(2))), None), Ok(digest(1)), "one further back");
        assert_eq!(meant(Some("0101")), Ok(digest(1)));
        let first = digest(1);
        assert_eq!(meant(Some(first.as_str())), Ok(digest(1)));
        assert!(meant(Some("0303")).unwrap_err().contains("--undo"));
        assert!(meant(Some("0")).unwrap_err().contains("several"));
        assert!(meant(Some("")).unwrap_err().contains("several"));
        assert!(meant(Some("ff")).unwrap_err().contains("plugin history"));
        assert!(target(&versions[..1], (&digest(3), None), None).is_err());
    }
}
