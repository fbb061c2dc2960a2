//! A plugin with the grants and limits of one agent.

use crate::component::plugin::LoadedPlugin;
use crate::execution::trial::Trial;
use crate::file_trees::ScratchTrees;
use crate::grants::first_use::{CallEffect, narrowed};
use crate::grants::http_pattern::AskedRequests;
use crate::grants::secret::KnownSecrets;
use crate::grants::{self, Grants, UnmetNeed};
use crate::limits::CallLimits;
use std::borrow::Cow;
use std::sync::Arc;

/// A plugin with the grants and limits of one agent.
#[derive(Clone, Debug)]
pub struct PluginSetup {
    pub(crate) plugin: Arc<LoadedPlugin>,
    pub(crate) grants: Arc<Grants>,
    pub(crate) unmet: Arc<[UnmetNeed]>,
    /// The plugin's needs that are not granted. If the component has no manifest, its needs are guessed from its
    /// imports. If an action is denied to the plugin during a call, the error message advises the user to grant
    /// these needs.
    pub(crate) guessed: Arc<[UnmetNeed]>,
    pub(crate) limits: CallLimits,
    pub(crate) trial: Option<Arc<Trial>>,
    /// The scratch trees that calls use instead of granted trees.
    pub(crate) scratch: Option<Arc<ScratchTrees>>,
    /// Secrets that the host removes from the data that the plugin receives.
    pub(crate) secrets: Arc<KnownSecrets>,
    /// The requests that the manifest asks for. `None` if the component has no manifest.
    pub(crate) asked_requests: AskedRequests,
}

impl PluginSetup {
    /// Creates a setup for this plugin. The plugin's effective grants are the intersection of `grants` and the needs of
    /// the manifest. Each limit that exceeds its maximum is lowered to that maximum.
    pub fn new(plugin: Arc<LoadedPlugin>, grants: Grants, limits: CallLimits) -> Self {
        let unmet: Arc<[UnmetNeed]> = plugin.unmet(&grants).into();
        let guessed = match plugin.manifest() {
            Some(_) => Arc::clone(&unmet),
            None => grants::guessed(plugin.name(), plugin.imports(), &grants).into(),
        };
        let asked_requests = plugin.manifest().map(|manifest| grants::patterns(&manifest.asks.http).into());
        let grants = Arc::new(grants::effective(plugin.manifest(), grants));
        let secrets = Arc::new(KnownSecrets::new(&grants.secrets));
        let limits = limits.bounded();
        Self { plugin, grants, unmet, guessed, limits, trial: None, scratch: None, secrets, asked_requests }
    }

    /// Returns a setup whose missing grants are those that matter for calls with this effect, so that a call that only reads does not
    /// advise the user to grant writing.
    pub(crate) fn for_calls_with(&self, effect: CallEffect) -> Cow<'_, Self> {
        let is_narrowed =
            |unmet: &UnmetNeed| narrowed(self.plugin.name(), unmet, &self.grants, effect).as_ref() != Some(unmet);
        if !self.guessed.iter().any(is_narrowed) {
            return Cow::Borrowed(self);
        }
        let of_call = |unmet: &[UnmetNeed]| -> Arc<[UnmetNeed]> {
            unmet.iter().filter_map(|unmet| narrowed(self.plugin.name(), unmet, &self.grants, effect)).collect()
        };
        Cow::Owned(Self { unmet: of_call(&self.unmet), guessed: of_call(&self.guessed), ..self.clone() })
    }

    /// Adds these secrets of the agent. The host removes secrets from the data that servers send to the plugin.
    #[must_use]
    pub fn with_secrets(self, secrets: &Arc<KnownSecrets>) -> Self {
        let secrets = match self.grants.secrets.is_empty() {
            true => Arc::clone(secrets),
            false => Arc::new(secrets.and(&self.secrets)),
        };
        Self { secrets, ..self }
    }

    /// Returns the setup with this trial. The trial counts the calls that are made with the setup.
    #[must_use]
    pub fn on_trial(self, trial: Option<Arc<Trial>>) -> Self {
        Self { trial, ..self }
    }

    /// Returns a copy of the setup in which these grants replace the original grants.
    #[must_use]
    pub fn with_grants(&self, grants: Grants) -> Self {
        Self::new(self.plugin.clone(), grants, self.limits).on_trial(self.trial.clone()).with_secrets(&self.secrets)
    }

    /// Returns the setup with these scratch trees. Calls use them instead of the granted trees that
    /// [`ScratchTrees::replacing`] has replaced in the grants.
    #[must_use]
    pub fn with_scratch(self, scratch: Arc<ScratchTrees>) -> Self {
        Self { scratch: Some(scratch), ..self }
    }

    /// Returns a copy of the setup whose grants are limited to the agent's current grants, so that a revocation takes
    /// effect immediately (P10).
    #[must_use]
    pub fn within(&self, current: &Grants) -> Self {
        let narrowed = Self::new(self.plugin.clone(), self.grants.within(current), self.limits);
        narrowed.on_trial(self.trial.clone()).with_secrets(&self.secrets)
    }

    /// The loaded plugin to which the grants and limits apply.
    pub fn plugin(&self) -> &Arc<LoadedPlugin> {
        &self.plugin
    }

    /// The effective grants: those of the agent's grants that the plugin's manifest requests, or all of the agent's
    /// grants if the plugin has no manifest.
    pub fn grants(&self) -> &Grants {
        &self.grants
    }

    /// Returns the needs in the plugin's manifest that are not granted.
    pub fn unmet(&self) -> &[UnmetNeed] {
        &self.unmet
    }
}
