//! The question about a plugin that lacks grants, which the caller shows to the user.

use super::offers::{GrantOffers, OfferBounds, OfferedFolder, OfferedHosts};
use super::report::FirstUseReport;
use crate::environment::HostEnvironment;
use agent_plugins::{PluginIdentity, Unmet};
use async_trait::async_trait;
use std::path::{Component, Path};
use tokio_util::sync::CancellationToken;

/// Asks the user about plugins that lack grants.
#[async_trait]
pub trait FirstUsePrompt: Send + Sync {
    /// Shows the question and waits for an answer. The user may change the folder and the servers that are offered. When
    /// `stop` is cancelled, the turn has ended and no answer is needed.
    async fn ask(&self, question: &mut FirstUseQuestion<'_>, stop: &CancellationToken) -> FirstUseAnswer;

    /// Reports the effect of an answer.
    fn report(&self, report: &FirstUseReport);
}

/// The user's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstUseAnswer {
    /// Grants what is offered, as long as the host runs.
    ThisRun,
    /// Grants what is offered, and writes it into the agent's file.
    Always,
    /// Grants nothing, as long as the host runs.
    No,
    /// Grants nothing, and writes into the agent's file that the user is not asked again.
    Never,
    /// The turn ended before the user answered.
    Stopped,
}

/// Whether an answer can be kept for later runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// The answer can be written into the agent's file.
    File,
    /// The agent has no file, so the answer cannot be kept.
    Nowhere,
}

/// A plugin that is about to be used for the first time, and what can be granted to it.
pub struct FirstUseQuestion<'q> {
    /// The plugin that lacks grants.
    pub plugin: &'q PluginIdentity,
    /// Name of the agent whose plugin it is.
    pub agent: &'q str,
    /// The tool that is called. None: the plugin is used as the context builder.
    pub tool: Option<&'q str>,
    /// Whether an answer can be kept for later runs.
    pub keeping: Keeping,
    pub(super) unmet: Vec<Unmet>,
    pub(super) offers: GrantOffers,
    pub(super) folder: OfferedFolder,
    pub(super) bounds: OfferBounds,
    pub(super) environment: &'q HostEnvironment,
}

impl FirstUseQuestion<'_> {
    /// What the user can currently grant by answering yes, and what cannot be granted.
    pub fn offers(&self) -> &GrantOffers {
        &self.offers
    }

    /// Offers another folder. The path is relative to the current folder of the process.
    pub fn offer_folder(&mut self, typed: &str) {
        self.folder = typed_folder(&self.folder, typed);
        self.update_offers();
    }

    /// Offers requests to other servers.
    pub fn offer_hosts(&mut self, hosts: OfferedHosts) {
        self.bounds.hosts = hosts;
        self.update_offers();
    }

    fn update_offers(&mut self) {
        let within = (&self.folder, &self.bounds);
        self.offers = GrantOffers::new(&self.plugin.name, self.unmet.clone(), within, self.environment.variables());
    }
}

/// Converts a folder that the user types, relative to the current folder, to the path that is written into the agent's file,
/// because plugins use that path.
fn typed_folder(folder: &OfferedFolder, written: &str) -> OfferedFolder {
    let canonical = |path: &Path| std::fs::canonicalize(path).ok();
    let is_base_here = folder.base.as_os_str().is_empty() || canonical(&folder.base) == canonical(Path::new("."));
    let climbs = Path::new(written).components().any(|component| component == Component::ParentDir);
    let resolved = canonical(Path::new(written)).filter(|_| climbs || !is_base_here);
    let written = resolved.map_or_else(|| written.to_owned(), |resolved| resolved.to_string_lossy().into_owned());
    OfferedFolder { base: folder.base.clone(), written, is_typed: true }
}
