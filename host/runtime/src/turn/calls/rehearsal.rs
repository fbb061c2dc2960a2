//! Runs a plugin's call in advance, on copies of the files that its arguments name, so that a user who is asked to approve
//! the call sees what it would change (L17). A rehearsal cannot have an effect: the plugin can write only to the copies,
//! and can reach neither the network, nor stored values, nor the model.

mod copies;
mod named_paths;

use self::copies::{Copies, RehearsalOutcome};
use super::file_trees::HostTrees;
use crate::host::{FirstUse, PluginUse, SessionServices};
use crate::requests::ProposedChange;
use crate::session::{Session, SessionError};
use agent_core::change::CallRecord;
use agent_core::message::CallId;
use agent_core::plugin::Scope;
use agent_core::tool::{ToolOutcome, ToolSource};
use agent_plugins::{Access, PluginSetup, Ports, ToolCallContext, ToolCallRequest};
use serde_json::Value;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Maximum wall time of a rehearsal.
const TIME_LIMIT: Duration = Duration::from_secs(2);
/// Maximum number of times that a call runs until all files that it changes are copied.
const MAX_ROUNDS: u32 = 3;

impl Session {
    /// Returns the question about the grants that a call needs and its plugin lacks, for a user who is about to decide about the call:
    /// without the grants, [`Session::rehearse`] shows nothing. The question is open while the receiver exists. Returns `None` if
    /// nothing is missing, or if the tool does not come from a plugin.
    pub async fn first_use_of(
        &mut self,
        call: &CallId,
    ) -> Result<Option<(FirstUse, mpsc::Receiver<Infallible>)>, SessionError> {
        let records = self.history.load_calls(std::slice::from_ref(call)).await?;
        let Some(record) = records.into_iter().next() else { return Ok(None) };
        let registry = self.services.agent.registry();
        let Some(ToolSource::Plugin { plugin, .. }) = registry.source_of(&record.name) else { return Ok(None) };
        let needs = self.services.needs_of(&record);
        let plugin_use = PluginUse { tool: Some(&record.name), arguments: record.effective_arguments(), call: &needs };
        Ok(self.services.first_use_of(plugin, &plugin_use))
    }

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
    // If the time is over, this future is dropped, and the work on other threads ends as well.
    let cancelled = CancellationToken::new();
    let _cancel_on_drop = cancelled.clone().drop_guard();
    let (trees, values, stop) = (originals(services, setup), arguments.clone(), cancelled.clone());
    let find = move || named_paths::paths_in(&trees.granted, &values, &stop);
    let mut paths = tokio::task::spawn_blocking(find).await.ok()??;
    for _ in 0..MAX_ROUNDS {
        let (originals, copied, stop) = (originals(services, setup), paths.clone(), cancelled.clone());
        let copies = tokio::task::spawn_blocking(move || Copies::new(originals, &copied, &stop)).await.ok()??;
        let context =
            ToolCallContext { id: record.id.clone(), attempt: 1, time_limit: TIME_LIMIT, scope: scope.clone() };
        let request = ToolCallRequest { name: &record.name, args: arguments.to_string(), context };
        let setup = setup.with_grants(copies.grants(setup.grants())).on_trial(None);
        let setup = setup.with_scratch(Arc::clone(copies.scratch()));
        let report = services.sandbox.call_tool(&setup, request, &Ports::default()).await;
        let Ok(Ok(ToolOutcome::Done(_))) = report.result else { return None };
        let stop = cancelled.clone();
        match tokio::task::spawn_blocking(move || copies.outcome(&stop)).await.ok()?? {
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
