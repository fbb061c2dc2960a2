//! Rolls plugins back to earlier versions on request, and undoes rollbacks (P10). A running host notices the change and uses
//! the selected version without a restart.

use super::directory_name;
use agent_core::message::Digest;
use agent_plugins::{PluginStore, PluginStoreError};
use agent_store::{AuditAction, MAX_PAGE, PluginVersion, Rollback, Store, StoreError, VersionEndReason, VersionFilter};
use std::collections::BTreeSet;
use std::path::Path;

/// Selects a plugin, and the version to which it is rolled back.
#[derive(Clone, Copy, Debug)]
pub struct RollbackRequest<'r> {
    /// Name of the plugin.
    pub plugin: &'r str,
    /// Folder that contains the plugin. `None` means the only folder that has a plugin with this name.
    pub directory: Option<&'r Path>,
    /// Beginning of the digest of the version. `None` means the latest version that is neither in the plugin's file nor in
    /// use.
    pub digest: Option<&'r str>,
}

/// A rollback that was made or undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolledBack {
    /// Folder that contains the plugin.
    pub directory: String,
    /// The version that was in use before.
    pub from: Digest,
    /// The version that is used now.
    pub to: Digest,
}

/// Why a plugin cannot be rolled back, or why a rollback cannot be undone. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum RollbackError {
    /// The plugin or the version does not exist, or several plugins or versions match.
    #[error("{0}")]
    Selection(String),
    /// The component of the version is not stored any more.
    #[error("the component of the version cannot be used: {0}")]
    Component(#[from] PluginStoreError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Rolls a plugin back to an earlier version, until the plugin's file changes.
pub async fn roll_back(
    store: &dyn Store,
    components: &PluginStore,
    request: RollbackRequest<'_>,
) -> Result<RolledBack, RollbackError> {
    let (directory, versions) = versions_of(store, request).await?;
    let current = rollback_of(store, &directory, request.plugin).await?;
    let serving = versions.iter().find(|version| version.ended.is_none()).map(|version| &version.digest);
    let Some(in_file) = current.as_ref().map(|rollback| &rollback.from).or(serving) else {
        return Err(RollbackError::Selection(format!(
            "`{}` is no longer in {directory}: put its file back into the folder first",
            request.plugin
        )));
    };
    let to = target(&versions, (in_file, serving), request.digest)
        .map_err(|problem| RollbackError::Selection(format!("`{}`: {problem}", request.plugin)))?;
    components.get(&to)?;
    let (plugin, from) = (request.plugin.to_owned(), in_file.clone());
    let audit = AuditAction::RolledBack {
        directory: directory.clone(),
        plugin: plugin.clone(),
        from: from.clone(),
        to: to.clone(),
        because: "the user requested it".to_owned(),
    };
    let why = VersionEndReason::Requested;
    let rollback = Rollback { directory: directory.clone(), plugin, from: from.clone(), to: to.clone(), why };
    store.roll_back(rollback).await?;
    store.audit(vec![audit]).await?;
    Ok(RolledBack { directory, from, to })
}

/// Undoes the rollback of a plugin, so that the version in its file is used again. The digest of the request is ignored.
pub async fn undo_rollback(store: &dyn Store, request: RollbackRequest<'_>) -> Result<RolledBack, RollbackError> {
    let (directory, _) = versions_of(store, request).await?;
    let current = rollback_of(store, &directory, request.plugin).await?;
    let undone = store.undo_rollback(&directory, request.plugin).await?;
    let Some(Rollback { from: to, to: from, .. }) = current.filter(|_| undone) else {
        return Err(RollbackError::Selection(format!(
            "`{}` is not rolled back in {directory}: the version in its file is in use",
            request.plugin
        )));
    };
    let (plugin, undone) = (request.plugin.to_owned(), RolledBack { directory, from, to });
    let RolledBack { directory, from, to } = undone.clone();
    store.audit(vec![AuditAction::RollbackUndone { directory, plugin, from, to }]).await?;
    Ok(undone)
}

async fn rollback_of(store: &dyn Store, directory: &str, plugin: &str) -> Result<Option<Rollback>, StoreError> {
    Ok(store.rollbacks(directory).await?.into_iter().find(|rollback| rollback.plugin == plugin))
}

/// Finds the directory that contains the plugin, and returns the directory and the plugin's versions, latest first.
async fn versions_of(
    store: &dyn Store,
    RollbackRequest { plugin, directory, .. }: RollbackRequest<'_>,
) -> Result<(String, Vec<PluginVersion>), RollbackError> {
    let directory = directory.map(directory_name);
    let filter = VersionFilter { directory, plugin: Some(plugin.to_owned()) };
    let versions = store.versions(filter, MAX_PAGE).await?;
    let directories: BTreeSet<_> = versions.iter().map(|version| version.directory.clone()).collect();
    match directories.into_iter().collect::<Vec<_>>().as_slice() {
        [] => Err(RollbackError::Selection(format!("no version of a plugin `{plugin}` has been used"))),
        [one] => Ok((one.clone(), versions)),
        several => Err(RollbackError::Selection(format!(
            "several folders have a plugin `{plugin}`: {}; select one of them",
            several.join(", ")
        ))),
    }
}

/// Finds the version to roll back to. If `digest_prefix` is given, the target is the version whose digest begins with
/// the prefix. Without a prefix, the target is the latest version that is neither in the plugin's file nor in use.
fn target(
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
            Err(format!("{} is the version in the plugin's file; undo the rollback to use it", in_file.short()))
        }
        (false, [digest]) => Ok((*digest).clone()),
        (false, []) => Err(format!("no version has a digest that begins with `{prefix}`")),
        _ => Err(format!("the digests of several versions begin with `{prefix}`; write more characters")),
    }
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

    /// P10: a rollback returns to the previous version or to the version that the user names, and never to the version
    /// in the plugin's file.
    #[test]
    fn p10_rollback_target_is_the_previous_or_the_named_version() {
        let versions = [version(3), version(2), version(3), version(1)];
        let digest = |byte: u8| Digest::from_sha256([byte; 32]);
        let target_of = |prefix| target(&versions, (&digest(3), Some(&digest(3))), prefix);
        assert_eq!(target_of(None), Ok(digest(2)));
        assert_eq!(
            target(&versions, (&digest(3), Some(&digest(2))), None),
            Ok(digest(1)),
            "the version before the previous version"
        );
        assert_eq!(target_of(Some("0101")), Ok(digest(1)));
        let first = digest(1);
        assert_eq!(target_of(Some(first.as_str())), Ok(digest(1)));
        assert!(target_of(Some("0303")).unwrap_err().contains("undo the rollback"));
        assert!(target_of(Some("0")).unwrap_err().contains("several"));
        assert!(target_of(Some("")).unwrap_err().contains("several"));
        assert!(target_of(Some("ff")).unwrap_err().contains("no version has a digest"));
        assert!(target(&versions[..1], (&digest(3), None), None).is_err());
    }
}
