//! The question to the user about the missing grants of a plugin. The caller of this crate shows the question.

use super::folders::folder_of_call;
use super::offers::{GrantOffer, GrantOffers, OfferBounds, OfferedFolder, OfferedHosts};
use super::report::FirstUseReport;
use crate::environment::HostEnvironment;
use crate::grants::Kind;
use agent_plugins::{CallNeeds, PluginIdentity, UnmetNeed};
use async_trait::async_trait;
use std::path::{Component, Path};
use tokio_util::sync::CancellationToken;

/// Asks the user about the missing grants of plugins.
#[async_trait]
pub trait FirstUsePrompt: Send + Sync {
    /// Shows the question and waits for an answer. The user may change the folder and the servers that are offered. If
    /// `stop` is cancelled, the turn has ended and the method should return without an answer.
    async fn ask(&self, question: &mut FirstUseQuestion<'_>, stop: &CancellationToken) -> FirstUseAnswer;

    /// Reports the effect of an answer.
    fn report(&self, report: &FirstUseReport);

    /// Called after the answer to a question was applied, and its effect was reported.
    fn applied(&self) {}
}

/// The user's answer to the question whether the plugin gets the offered grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstUseAnswer {
    /// Gives the offered grants to the plugin until the user leaves the session, or until the host exits.
    ThisSession,
    /// Gives the offered grants to the plugin, and writes them into the agent's file.
    Always,
    /// Does not give the plugin any further grants until the user leaves the session, or until the host exits.
    No,
    /// Does not give the plugin any further grants, and writes `ask = false` into the agent's file, so that the user is
    /// not asked again.
    Never,
    /// The turn ended before the user answered.
    Stopped,
}

/// Whether an answer can be stored for later runs of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// The answer can be written into the agent's file.
    File,
    /// The agent has no file, so the answer cannot be stored.
    Nowhere,
}

/// A question about the missing grants of a plugin that is about to be used for the first time.
pub struct FirstUseQuestion<'q> {
    /// The plugin that is about to be used and lacks grants.
    pub plugin: &'q PluginIdentity,
    /// Name of the agent that uses the plugin.
    pub agent: &'q str,
    /// The tool of the plugin that is called. None if the plugin is used as the context builder.
    pub tool: Option<&'q str>,
    /// Whether the user has asked for this question, and the plugin is not about to be used.
    pub by_user: bool,
    /// What is known about the needs of the call.
    pub call: &'q CallNeeds,
    /// Whether an answer can be stored for later runs of the host.
    pub keeping: Keeping,
    pub(super) unmet: Vec<UnmetNeed>,
    pub(super) offers: GrantOffers,
    pub(super) folder: OfferedFolder,
    pub(super) bounds: OfferBounds,
    pub(super) environment: &'q HostEnvironment,
}

impl FirstUseQuestion<'_> {
    /// Returns the grants that the plugin gets if the user answers yes, and the requests that no answer can grant.
    pub fn offers(&self) -> &GrantOffers {
        &self.offers
    }

    /// Replaces the offered folder by the folder that the user has typed. A relative path is relative to the current
    /// folder of the process.
    pub fn offer_folder(&mut self, typed: &str) {
        self.folder = typed_folder(&self.folder, typed);
        self.update_offers();
    }

    /// Returns the folder that contains all files which the call names, as the user would type it, if the question offers a folder
    /// around it.
    pub fn narrower_folder(&self) -> Option<String> {
        let is_offered = |offer: &GrantOffer| {
            matches!(offer.grant.kind, Kind::Read | Kind::Write) && offer.grant.value == self.folder.written
        };
        if self.folder.is_typed || !self.offers.offered.iter().any(is_offered) {
            return None;
        }
        let base = self.folder.base.join(&self.folder.written);
        let below = folder_of_call(&self.bounds.arguments, &base)?;
        let canonical = |path: &Path| std::fs::canonicalize(path).ok();
        let is_current = canonical(&base) == canonical(Path::new("."));
        let typed = if is_current { below } else { canonical(&base.join(below))? };
        Some(typed.to_string_lossy().into_owned())
    }

    /// Offers only reading, although the plugin requests to change files.
    pub fn offer_read_only(&mut self) {
        self.bounds.read_only = true;
        self.update_offers();
    }

    /// Sets the servers that the question offers: the user can allow the plugin to send requests to these servers.
    pub fn offer_hosts(&mut self, hosts: OfferedHosts) {
        self.bounds.hosts = hosts;
        self.update_offers();
    }

    fn update_offers(&mut self) {
        let bounds = (&self.folder, &self.bounds);
        self.offers = GrantOffers::new(&self.plugin.name, self.unmet.clone(), bounds, self.environment.variables());
    }
}

/// Converts a path that the user has typed, so that it can be written into the agent's file. The typed path is relative
/// to the current folder, and the written path is relative to the folder of the agent's file.
fn typed_folder(folder: &OfferedFolder, written: &str) -> OfferedFolder {
    let canonical = |path: &Path| std::fs::canonicalize(path).ok();
    let is_base_current = folder.base.as_os_str().is_empty() || canonical(&folder.base) == canonical(Path::new("."));
    let has_parent_component = Path::new(written).components().any(|component| component == Component::ParentDir);
    let resolved = canonical(Path::new(written)).filter(|_| has_parent_component || !is_base_current);
    let written = resolved.map_or_else(|| written.to_owned(), |resolved| resolved.to_string_lossy().into_owned());
    OfferedFolder { base: folder.base.clone(), written, is_typed: true }
}
