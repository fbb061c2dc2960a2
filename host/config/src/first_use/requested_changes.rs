//! Changes of grants that the user requests at any time, and not because a plugin is about to be used (P6, P10).

use super::handler::FirstUseHandler;
use super::offers::NotOffered;
use crate::agent_file::Draft;
use crate::grants::{self, Grant, Kind, Receiver};
use agent_plugins::ProtectedPath;
use agent_runtime::{AnsweredGrants, FirstUse, LiveAgent, swap};
use std::path::{Component, Path, PathBuf};
use tokio_util::sync::CancellationToken;

/// The reason why the grants of a plugin were not changed as requested. Each message is one sentence without a full stop.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The agent has no plugin with this name.
    #[error("the agent has no plugin `{0}`; /plugins lists its plugins")]
    NoSuchPlugin(String),
    /// The text is not a grant.
    #[error("{0}")]
    InvalidGrant(String),
    /// The plugin does not request the grant, so the grant would have no effect.
    #[error("`{plugin}` {problem}")]
    NotRequested {
        /// Name of the plugin.
        plugin: String,
        /// What the plugin does not request.
        problem: String,
    },
    /// The grants could not be applied, or the change could not be recorded.
    #[error("{0}")]
    Failed(String),
}

/// The effect of a request to ask about the grants of a plugin.
#[derive(Clone, Debug, PartialEq)]
pub enum Reconsidered {
    /// The user was asked.
    Asked,
    /// The plugin has everything that it requests.
    NothingMissing,
    /// No answer can grant what the plugin lacks; only the configuration can.
    NotOffered(Vec<NotOffered>),
}

/// The effect of a revocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Revoked {
    /// The plugin had no such grants.
    Nothing,
    /// The grants are revoked until the host exits. The configuration contains no such grants, so they do not return.
    ForThisRun,
    /// The grants are revoked and were removed from the file.
    FromFile(PathBuf),
    /// The grants are revoked until the host exits. They remain in the file for this reason.
    RemainsInFile(String),
}

/// Returns the absolute path of a folder that is written with `..`, because plugins use the path of a grant as it is written.
/// Other paths, and folders that do not exist, are returned unchanged.
fn folder_without_parents(written: &str) -> String {
    let has_parent = Path::new(written).components().any(|component| component == Component::ParentDir);
    let resolved = std::fs::canonicalize(written).ok().filter(|_| has_parent);
    resolved.map_or_else(|| written.to_owned(), |resolved| resolved.to_string_lossy().into_owned())
}

impl FirstUseHandler {
    /// Asks the user about everything that a plugin of the agent requests and does not have, even what the user has
    /// refused before.
    pub async fn reconsider(
        &mut self,
        (agent, session): (&LiveAgent, &str),
        (plugin, protected): (&str, Vec<ProtectedPath>),
        stop: &CancellationToken,
    ) -> Result<Reconsidered, ChangeError> {
        let question = FirstUse::requested_by_user(agent, session, (plugin, protected));
        let (question, _open) = question.ok_or_else(|| ChangeError::NoSuchPlugin(plugin.to_owned()))?;
        if question.lacking.is_empty() {
            return Ok(Reconsidered::NothingMissing);
        }
        if let Some(not_offered) = self.not_offered(&question) {
            return Ok(Reconsidered::NotOffered(not_offered));
        }
        self.forget_refusals(&agent.current().config().name, plugin);
        self.serve(question, stop).await;
        Ok(Reconsidered::Asked)
    }

    /// Gives a plugin of the agent a grant until the user leaves the session, or until the host exits. `assignment` has the form `KIND=VALUE`, as in `--grant`.
    pub async fn grant(&mut self, agent: &LiveAgent, plugin: &str, assignment: &str) -> Result<Grant, ChangeError> {
        let current = agent.current();
        let setup = current.setups().get(plugin).ok_or_else(|| ChangeError::NoSuchPlugin(plugin.to_owned()))?;
        let grant = Grant::parse(&format!("{plugin}:{assignment}")).map_err(ChangeError::InvalidGrant)?;
        let value = match grant.kind {
            Kind::Read | Kind::Write => folder_without_parents(&grant.value),
            _ => grant.value,
        };
        let grant = Grant { receiver: Receiver::Plugin(plugin.to_owned()), origin: String::new(), value, ..grant };
        let resolved = grants::resolve(std::slice::from_ref(&grant), self.environment().variables());
        let mut resolved = resolved
            .map_err(|problems| ChangeError::InvalidGrant(problems.concat().trim_start_matches(": ").to_owned()))?;
        let granted = resolved.plugins.remove(plugin).unwrap_or_default();
        if let Some(problem) = grants::unused_grants(setup.plugin(), &granted).into_iter().next() {
            return Err(ChangeError::NotRequested { plugin: plugin.to_owned(), problem });
        }
        let answered = AnsweredGrants { temporary: granted, ..AnsweredGrants::default() };
        self.note_changed(agent);
        agent.answer(plugin, &answered).map_err(|error| ChangeError::Failed(error.to_string()))?;
        self.record(agent).await?;
        Ok(grant)
    }

    /// Revokes the grants of this kind of a plugin, or all of its grants if there is no kind. The revocation takes effect
    /// immediately, also for open turns and running calls. Grants in the agent's file are removed from the file.
    pub async fn revoke(
        &mut self,
        agent: &LiveAgent,
        plugin: &str,
        kind: Option<Kind>,
    ) -> Result<Revoked, ChangeError> {
        let current = agent.current();
        let setup = current.setups().get(plugin).ok_or_else(|| ChangeError::NoSuchPlugin(plugin.to_owned()))?;
        if grants::without(setup.grants(), kind) == *setup.grants() {
            return Ok(Revoked::Nothing);
        }
        let revoked = agent.revoke(plugin, &|grants| grants::without(grants, kind));
        revoked.map_err(|error| ChangeError::Failed(error.to_string()))?;
        self.forget_refusals(&current.config().name, plugin);
        self.record(agent).await?;
        let Some(file) = self.file_of(&current.config().name) else { return Ok(Revoked::ForThisRun) };
        match self.keeping_trust(|| Draft::read(file).and_then(|draft| draft.remove(plugin, kind))) {
            Ok(true) => Ok(Revoked::FromFile(file.to_owned())),
            Ok(false) => Ok(Revoked::ForThisRun),
            Err(error) => Ok(Revoked::RemainsInFile(error.to_string())),
        }
    }

    async fn record(&self, agent: &LiveAgent) -> Result<(), ChangeError> {
        let recorded = swap::record_grants(self.store(), agent).await;
        recorded.map_err(|error| {
            ChangeError::Failed(format!(
                "the grants were changed, but the change could not be recorded in the audit log: {error}"
            ))
        })
    }
}
