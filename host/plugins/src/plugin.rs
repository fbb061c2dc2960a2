//! A loaded plugin: checked, compiled, linked, immutable; and the same plugin with what one agent grants it.

use crate::bindings::exports::agent_host::plugin as exports;
use crate::grants::{self, Grants, Partly, Unmet};
use crate::http::KnownSecrets;
use crate::identity::{Kind, PluginIdentity};
use crate::limits::CallLimits;
use crate::manifest::Manifest;
use crate::plain::{Form, LeftOut, PlainFacts, PlainLinks};
use crate::room::Room;
use crate::scan::Interfaces;
use crate::state::CallState;
use crate::trial::Trial;
use agent_core::message::Digest;
use agent_core::tool::ToolDefinition;
use std::fs::File;
use std::sync::Arc;
use tokio::sync::OnceCell;
use wasmtime::component::InstancePre;

/// A component that is ready to be called.
pub struct LoadedPlugin {
    pub(crate) identity: Arc<PluginIdentity>,
    pub(crate) facts: Facts,
    pub(crate) size: u64,
    pub(crate) links: Links,
    /// Where it runs.
    pub(crate) room: Arc<Room>,
    /// The same with code that counts fuel, once that was needed.
    pub(crate) metered: OnceCell<Arc<LoadedPlugin>>,
    /// Keeps its compiled code in the cache as long as it is in use.
    pub(crate) _pin: Option<File>,
}

/// What was learned about a component when it was first loaded. It depends on nothing but its bytes and this host.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Facts {
    pub(crate) manifest: Option<Manifest>,
    pub(crate) kinds: Vec<Kind>,
    /// Imports that need an implementation.
    pub(crate) imports: Vec<String>,
    /// All imports and exports, as its bytes have them.
    pub(crate) interfaces: Interfaces,
    /// Those that it describes itself, then its plain functions.
    pub(crate) tools: Vec<ToolDefinition>,
    #[serde(default)]
    pub(crate) plain: PlainFacts,
}

/// How each exported kind is entered.
#[derive(Default)]
pub(crate) struct Links {
    pub(crate) tool: Option<Entrance<exports::tool::GuestIndices>>,
    pub(crate) context_builder: Option<Entrance<exports::context_builder::GuestIndices>>,
    pub(crate) step_context: Option<Entrance<exports::step_context::GuestIndices>>,
    pub(crate) output_validator: Option<Entrance<exports::output_validator::GuestIndices>>,
    pub(crate) media_policy: Option<Entrance<exports::media_policy::GuestIndices>>,
    pub(crate) plain: Option<PlainLinks>,
}

/// A component linked with the authority of one kind, and where that kind's functions are.
pub(crate) struct Entrance<Indices> {
    pub(crate) instance: InstancePre<CallState>,
    pub(crate) indices: Indices,
}

impl LoadedPlugin {
    /// Its name and digest.
    pub fn identity(&self) -> &PluginIdentity {
        &self.identity
    }

    /// From the manifest, else the file's stem.
    pub fn name(&self) -> &str {
        &self.identity.name
    }

    /// SHA-256 of its bytes.
    pub fn digest(&self) -> &Digest {
        &self.identity.digest
    }

    /// What it says about itself. Components of other toolchains may have none.
    pub fn manifest(&self) -> Option<&Manifest> {
        self.facts.manifest.as_ref()
    }

    /// The kinds that it exports.
    pub fn kinds(&self) -> &[Kind] {
        &self.facts.kinds
    }

    /// Whether it exports this kind.
    pub fn has(&self, kind: Kind) -> bool {
        self.facts.kinds.contains(&kind)
    }

    /// What it is, in words: the names of its kinds, `functions` for tools that are plain functions (P3), `command` for a
    /// command-line program.
    pub fn sorts(&self) -> Vec<&'static str> {
        let of = |command: bool| {
            let functions = &self.facts.plain.functions;
            functions.iter().any(|function| (function.form == Form::Command) == command)
        };
        let plain = [(of(false), "functions"), (of(true), "command")];
        let kinds = self.facts.kinds.iter().map(|kind| kind.interface());
        kinds.chain(plain.into_iter().filter_map(|(is_so, word)| is_so.then_some(word))).collect()
    }

    /// Exported functions that are no tools, and why: at most 64 of them and a last line that counts the rest.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.facts.plain.left_out
    }

    /// Names of its imports. They are no requests: the manifest is.
    pub fn imports(&self) -> &[String] {
        &self.facts.imports
    }

    /// Names of all imports and exports, those of types included.
    pub fn interfaces(&self) -> &Interfaces {
        &self.facts.interfaces
    }

    /// Bytes of the component.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Its tools, in its own order.
    pub fn tools(&self) -> &[ToolDefinition] {
        &self.facts.tools
    }

    /// What it asks for and these grants do not give (P6).
    pub fn unmet(&self, grants: &Grants) -> Vec<Unmet> {
        grants::unmet(self.manifest(), grants)
    }

    /// What it asks for and these grants give in part (P6).
    pub fn partly_met(&self, grants: &Grants) -> Vec<Partly> {
        grants::partly(self.manifest(), grants)
    }
}

impl std::fmt::Debug for LoadedPlugin {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("LoadedPlugin").field("identity", &self.identity).field("facts", &self.facts).finish()
    }
}

/// A plugin with what one agent grants it and the limits of its calls.
#[derive(Clone, Debug)]
pub struct PluginSetup {
    pub(crate) plugin: Arc<LoadedPlugin>,
    pub(crate) grants: Arc<Grants>,
    pub(crate) unmet: Arc<[Unmet]>,
    /// What to grant when the plugin says that it was denied something.
    pub(crate) guessed: Arc<[Unmet]>,
    pub(crate) limits: CallLimits,
    pub(crate) trial: Option<Arc<Trial>>,
    /// Everything that must not come back to it.
    pub(crate) secrets: Arc<KnownSecrets>,
}

impl PluginSetup {
    /// What takes effect is what the manifest asks for ∩ these grants, within the host's largest limits.
    pub fn new(plugin: Arc<LoadedPlugin>, grants: Grants, limits: CallLimits) -> Self {
        let unmet: Arc<[Unmet]> = plugin.unmet(&grants).into();
        let guessed = match plugin.manifest() {
            Some(_) => Arc::clone(&unmet),
            None => grants::guessed(plugin.name(), plugin.imports(), &grants).into(),
        };
        let grants = Arc::new(grants::effective(plugin.manifest(), grants));
        let secrets = Arc::new(KnownSecrets::new(&grants.secrets));
        Self { plugin, grants, unmet, guessed, limits: limits.bounded(), trial: None, secrets }
    }

    /// The same, with everything else that its agent keeps secret: no server's answer brings it to the plugin.
    #[must_use]
    pub fn knowing(self, secrets: &Arc<KnownSecrets>) -> Self {
        let secrets = match self.grants.secrets.is_empty() {
            true => Arc::clone(secrets),
            false => Arc::new(secrets.and(&self.secrets)),
        };
        Self { secrets, ..self }
    }

    /// The same, its calls counting for a trial.
    #[must_use]
    pub fn on_trial(self, trial: Option<Arc<Trial>>) -> Self {
        Self { trial, ..self }
    }

    /// The same with these grants.
    #[must_use]
    pub fn granted(&self, grants: Grants) -> Self {
        Self::new(self.plugin.clone(), grants, self.limits).on_trial(self.trial.clone()).knowing(&self.secrets)
    }

    /// The same with no more than these grants: what was granted once and is not any more is gone at once (P10).
    #[must_use]
    pub fn within(&self, current: &Grants) -> Self {
        let narrowed = Self::new(self.plugin.clone(), self.grants.within(current), self.limits);
        narrowed.on_trial(self.trial.clone()).knowing(&self.secrets)
    }

    /// The plugin.
    pub fn plugin(&self) -> &Arc<LoadedPlugin> {
        &self.plugin
    }

    /// What it really gets.
    pub fn grants(&self) -> &Grants {
        &self.grants
    }

    /// What it asks for and does not get.
    pub fn unmet(&self) -> &[Unmet] {
        &self.unmet
    }
}
