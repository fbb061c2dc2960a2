//! Runs a plugin's call in advance, on copies of the files that its arguments name, so that a user who is asked to approve
//! the call sees what it would change (L17). A rehearsal cannot have an effect: the plugin can write only to the copies,
//! and can reach neither the network, nor stored values, nor the model.

use super::changed_files::{MAX_BYTES, path_on_host, text_of};
use super::file_trees::HostTrees;
use crate::host::SessionServices;
use crate::requests::ProposedChange;
use crate::session::{Session, SessionError};
use agent_core::change::CallRecord;
use agent_core::message::CallId;
use agent_core::plugin::Scope;
use agent_core::tool::{ToolOutcome, ToolSource};
use agent_plugins::{Access, Grants, PluginSetup, Ports, ToolCallContext, ToolCallRequest, TreeGrant};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// Maximum wall time of a rehearsal.
const TIME_LIMIT: Duration = Duration::from_secs(2);
/// Maximum number of times that a call runs until all files that it changes are copied.
const MAX_ROUNDS: u32 = 3;
/// Maximum number of files that are copied, and of files that are read after the rehearsal.
const MAX_FILES: usize = 64;
/// Maximum size of all copied files together, and of all files that are read after the rehearsal, in bytes.
const MAX_TOTAL_BYTES: usize = 4 << 20;
/// Maximum length in bytes of an argument that may be the path of a file.
const MAX_PATH: usize = 4096;
/// Maximum depth of the folders that are read after the rehearsal.
const MAX_DEPTH: usize = 32;

/// Contents of text files by the number of the tree and the path in the tree.
type Files = BTreeMap<(usize, PathBuf), String>;

impl Session {
    /// Runs the call of a plugin in advance on copies of the files that its arguments name, and returns the changes that
    /// it makes to the copies. `edited` replaces the arguments of the call. The rehearsal changes nothing, and the
    /// plugin can read only what its grants allow.
    ///
    /// The result is empty if the call changes no files, if the call fails on the copies, or if the tool does not come
    /// from a plugin. A plugin that reads other files than those that its arguments name can behave differently when the
    /// call runs, so the result is not guaranteed.
    pub async fn rehearse(
        &mut self,
        call: &CallId,
        edited: Option<&Value>,
    ) -> Result<Vec<ProposedChange>, SessionError> {
        let records = self.history.load_calls(std::slice::from_ref(call)).await?;
        let Some(record) = records.into_iter().next() else { return Ok(Vec::new()) };
        let edited = edited.cloned().or(record.edited.clone());
        let scope = self.services.scope(&self.run, None);
        Ok(rehearse(&self.services, &CallRecord { edited, ..record }, scope).await.unwrap_or_default())
    }
}

/// Returns the changes that the call makes to copies of its files, or `None` if the call cannot be rehearsed.
async fn rehearse(services: &SessionServices, record: &CallRecord, scope: Scope) -> Option<Vec<ProposedChange>> {
    let tool = services.agent.registry().get(&record.name)?;
    let ToolSource::Plugin { plugin, .. } = &tool.source else { return None };
    if tool.definition.traits.read_only {
        return None;
    }
    let arguments = tool.outgoing(record.effective_arguments(), &scope.session).into_owned();
    let setup = services.current_setup(services.agent.setups().get(plugin)?).into_owned();
    let changes = tokio::time::timeout(TIME_LIMIT, run_on_copies(services, &setup, (record, &arguments), &scope));
    let changes = changes.await.ok()??;
    // Secrets that the agent's configuration names are never shown, even if they are in a file of the user.
    let redacted = |text: Option<String>| text.map(|text| services.agent.redaction().whole(text));
    let redact =
        |change: ProposedChange| ProposedChange { old: redacted(change.old), new: redacted(change.new), ..change };
    Some(changes.into_iter().map(redact).collect())
}

/// Runs the call on copies of its files. If the call changes files that its arguments do not name, these files are copied,
/// too, and the call runs again.
async fn run_on_copies(
    services: &SessionServices,
    setup: &PluginSetup,
    (record, arguments): (&CallRecord, &Value),
    scope: &Scope,
) -> Option<Vec<ProposedChange>> {
    let mut paths = paths_in(arguments);
    for _ in 0..MAX_ROUNDS {
        let (originals, copied) = (originals(services, setup), paths.clone());
        let copies = tokio::task::spawn_blocking(move || Copies::new(originals, &copied)).await.ok()??;
        let context =
            ToolCallContext { id: record.id.clone(), attempt: 1, time_limit: TIME_LIMIT, scope: scope.clone() };
        let request = ToolCallRequest { name: &record.name, args: arguments.to_string(), context };
        let setup = setup.with_grants(copies.grants(setup.grants())).on_trial(None);
        let report = services.sandbox.call_tool(&setup, request, &Ports::default()).await;
        let Ok(Ok(ToolOutcome::Done(_))) = report.result else { return None };
        match tokio::task::spawn_blocking(move || copies.outcome()).await.ok()?? {
            RehearsalOutcome::Changes(changes) => return Some(changes),
            RehearsalOutcome::AlsoCopy(more) => paths.extend(more),
        }
    }
    None
}

/// Returns the directories in which the plugin may write at this moment.
fn originals(services: &SessionServices, setup: &PluginSetup) -> HostTrees {
    let writable = setup.grants().trees.iter().filter(|tree| tree.access == Access::ReadWrite);
    HostTrees { sandbox: services.sandbox.clone(), granted: writable.cloned().collect() }
}

/// Returns all texts in the arguments that may be paths.
fn paths_in(arguments: &Value) -> Vec<String> {
    let mut paths = Vec::new();
    let mut values = vec![arguments];
    while let Some(value) = values.pop() {
        match value {
            Value::String(text) if text.len() <= MAX_PATH && !text.contains('\n') => paths.push(text.clone()),
            Value::Array(items) => values.extend(items),
            Value::Object(fields) => values.extend(fields.values()),
            _ => {}
        }
    }
    paths
}

/// What a call did to the copies.
enum RehearsalOutcome {
    /// The call made these changes.
    Changes(Vec<ProposedChange>),
    /// The call wrote files that exist and were not copied. These are the paths of the files.
    AlsoCopy(Vec<String>),
}

/// Copies of the files that a call names, in one temporary folder for each tree that the plugin may change.
struct Copies {
    folder: TempDir,
    originals: HostTrees,
    before: Files,
}

impl Copies {
    /// Copies the text files that the paths name. Only the directories in which the plugin may write at this moment are
    /// read, and through the same descriptors. Returns `None` if there are no such directories, or if there are too many
    /// files.
    fn new(originals: HostTrees, paths: &[String]) -> Option<Self> {
        if originals.granted.is_empty() {
            return None;
        }
        let mut copies = Self { folder: tempfile::tempdir().ok()?, originals, before: Files::new() };
        for number in 0..copies.trees().len() {
            std::fs::create_dir(copies.root(number)).ok()?;
        }
        for path in paths {
            let Some(place) = copies.place_of(path) else { continue };
            if let Some(parent) = copies.path_of(&place).parent() {
                std::fs::create_dir_all(parent).ok()?;
            }
            if let Some(Some(text)) = text_of(&copies.originals, path) {
                std::fs::write(copies.path_of(&place), &text).ok()?;
                copies.before.insert(place, text);
            }
            if is_too_much(&copies.before) {
                return None;
            }
        }
        Some(copies)
    }

    fn trees(&self) -> &[TreeGrant] {
        &self.originals.granted
    }

    /// Returns the grants of the rehearsal: those of the original grants with which a plugin can only read, and the right
    /// to change the copies.
    fn grants(&self, original: &Grants) -> Grants {
        let read_only = original.trees.iter().filter(|tree| tree.access == Access::Read).cloned();
        let copies = self.trees().iter().enumerate();
        let copies = copies.map(|(number, tree)| TreeGrant { host: self.root(number), ..tree.clone() });
        let Grants { env, config, .. } = original.clone();
        Grants { trees: read_only.chain(copies).collect(), env, config, ..Grants::default() }
    }

    /// Compares the copies with the original files. Returns `None` if there are too many files, or if a file cannot be
    /// compared.
    fn outcome(self) -> Option<RehearsalOutcome> {
        let mut after = Files::new();
        for number in 0..self.trees().len() {
            read_files(&self.root(number), (number, Path::new("")), &mut after)?;
        }
        let mut also_copy = Vec::new();
        for place in after.keys().filter(|place| !self.before.contains_key(*place)) {
            let path = Path::new(&self.trees()[place.0].guest).join(&place.1).to_string_lossy().into_owned();
            if text_of(&self.originals, &path)?.is_some() {
                also_copy.push(path);
            }
        }
        if !also_copy.is_empty() {
            return Some(RehearsalOutcome::AlsoCopy(also_copy));
        }
        let mut places: Vec<_> = self.before.keys().chain(after.keys()).cloned().collect();
        places.sort();
        places.dedup();
        let changes = places.into_iter().filter_map(|place| {
            let (old, new) = (self.before.get(&place).cloned(), after.get(&place).cloned());
            let path = self.trees()[place.0].host.join(&place.1);
            (old != new).then(|| ProposedChange { path: std::path::absolute(&path).unwrap_or(path), old, new })
        });
        Some(RehearsalOutcome::Changes(changes.collect()))
    }

    fn root(&self, number: usize) -> PathBuf {
        self.folder.path().join(number.to_string())
    }

    fn path_of(&self, (number, path): &(usize, PathBuf)) -> PathBuf {
        self.root(*number).join(path)
    }

    /// Returns the most specific tree that contains the path, and the path in the tree.
    fn place_of(&self, path: &str) -> Option<(usize, PathBuf)> {
        let on_host = path_on_host(self.trees(), path)?;
        let containing = self.trees().iter().enumerate().filter_map(|(number, tree)| {
            let host = std::path::absolute(&tree.host).ok()?;
            let inner = on_host.strip_prefix(&host).ok()?;
            Some((host.as_os_str().len(), number, inner.to_owned()))
        });
        let (_, number, inner) = containing.max_by_key(|(length, ..)| *length)?;
        (!inner.as_os_str().is_empty()).then_some((number, inner))
    }
}

/// Reads the text files below a folder of the copies. Links and special files, which the plugin may have made, are not
/// followed. Returns `None` if there are too many files.
fn read_files(root: &Path, (number, inner): (usize, &Path), files: &mut Files) -> Option<()> {
    if inner.components().count() > MAX_DEPTH {
        return None;
    }
    for entry in std::fs::read_dir(root.join(inner)).ok()?.take(MAX_FILES + 1) {
        let entry = entry.ok()?;
        let (kind, path) = (entry.file_type().ok()?, inner.join(entry.file_name()));
        if kind.is_dir() {
            read_files(root, (number, &path), files)?;
        } else if kind.is_file()
            && entry.metadata().ok()?.len() <= MAX_BYTES
            && let Ok(text) = std::fs::read_to_string(entry.path())
        {
            files.insert((number, path), text);
        }
        if is_too_much(files) {
            return None;
        }
    }
    Some(())
}

/// Returns whether there are too many files, or the files are too large, to show their changes.
fn is_too_much(files: &Files) -> bool {
    files.len() > MAX_FILES || files.values().map(String::len).sum::<usize>() > MAX_TOTAL_BYTES
}
