//! A loaded plugin: checked, compiled, linked and immutable.

use super::engine_context::EngineContext;
use super::generic::{COMMAND_USAGE, Form, GenericFacts, GenericLinks, SkippedExport};
use crate::binary::scan::Interfaces;
use crate::contract::v0_1::bindings::exports::agent_host::plugin as exports;
use crate::execution::state::CallState;
use crate::grants::first_use::CallNeeds;
use crate::grants::manifest::Manifest;
use crate::grants::{self, Grants, Need, PartialGrant, UnmetNeed};
use crate::identity::{Kind, PluginIdentity};
use agent_core::message::Digest;
use agent_core::tool::ToolDefinition;
use std::fs::File;
use std::sync::Arc;
use tokio::sync::OnceCell;
use wasmtime::component::InstancePre;

/// A plugin that is ready to be called.
pub struct LoadedPlugin {
    pub(crate) identity: Arc<PluginIdentity>,
    pub(crate) facts: Facts,
    pub(crate) size: u64,
    pub(crate) links: Links,
    pub(crate) engine_context: Arc<EngineContext>,
    /// This plugin with compiled code that counts fuel. The code that counts fuel is loaded when a call first needs it.
    pub(crate) metered: OnceCell<Arc<LoadedPlugin>>,
    /// Prevents the cache from deleting the compiled code while it is in use.
    pub(crate) _pin: Option<File>,
}

/// The facts about a component that the host collects when it first loads the component. These facts depend only on the
/// component's bytes and on this host.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Facts {
    pub(crate) manifest: Option<Manifest>,
    pub(crate) kinds: Vec<Kind>,
    /// Names of the imports that need an implementation. An import that contains only types does not need
    /// an implementation.
    pub(crate) imports: Vec<String>,
    /// Names of all imports and exports.
    pub(crate) interfaces: Interfaces,
    /// The tools that the component defines itself, followed by its generic functions.
    pub(crate) tools: Vec<ToolDefinition>,
    #[serde(default, rename = "plain")]
    pub(crate) generic: GenericFacts,
    /// The sources of a development build. They are part of the component, and are not stored in the cache.
    #[serde(skip)]
    pub(crate) sources: Option<Arc<str>>,
}

/// For each exported plugin kind, the linked component and the functions of the kind that the host calls.
#[derive(Default)]
pub(crate) struct Links {
    pub(crate) tool: Option<ExportHandle<exports::tool::GuestIndices>>,
    pub(crate) context_builder: Option<ExportHandle<exports::context_builder::GuestIndices>>,
    pub(crate) step_context: Option<ExportHandle<exports::step_context::GuestIndices>>,
    pub(crate) output_validator: Option<ExportHandle<exports::output_validator::GuestIndices>>,
    pub(crate) media_policy: Option<ExportHandle<exports::media_policy::GuestIndices>>,
    pub(crate) generic: Option<GenericLinks>,
}

/// A component that is linked with the authority of one plugin kind, and the export indices of the functions of
/// that kind.
pub(crate) struct ExportHandle<Indices> {
    pub(crate) instance: InstancePre<CallState>,
    pub(crate) indices: Indices,
}

/// The tool of a command-line program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramTool<'p> {
    /// Name of the tool.
    pub name: &'p str,
    /// What the program does, from its manifest. None if nothing is known about it.
    pub about: Option<&'p str>,
}

impl LoadedPlugin {
    /// The name and the digest that identify the plugin.
    pub fn identity(&self) -> &PluginIdentity {
        &self.identity
    }

    /// Name from the manifest, or the name of the file without its extension if there is no manifest.
    pub fn name(&self) -> &str {
        &self.identity.name
    }

    /// SHA-256 digest of the component.
    pub fn digest(&self) -> &Digest {
        &self.identity.digest
    }

    /// Returns the manifest in the component or in the file beside it, or None if there is none. Components that were not built with the SDK may
    /// have no manifest.
    pub fn manifest(&self) -> Option<&Manifest> {
        self.facts.manifest.as_ref()
    }

    /// The plugin kinds that the component exports.
    pub fn kinds(&self) -> &[Kind] {
        &self.facts.kinds
    }

    /// Whether the component exports this plugin kind.
    pub fn has(&self, kind: Kind) -> bool {
        self.facts.kinds.contains(&kind)
    }

    /// Labels for the kinds of functions that the plugin offers: the names of its plugin kinds, `functions` if generic
    /// functions are tools (P3), and `command` if the plugin is a command-line program.
    pub fn kind_labels(&self) -> Vec<&'static str> {
        let has_generic = |is_command: bool| {
            let functions = &self.facts.generic.functions;
            functions.iter().any(|function| (function.form == Form::Command) == is_command)
        };
        let generic = [(has_generic(false), "functions"), (has_generic(true), "command")];
        let kinds = self.facts.kinds.iter().map(|kind| kind.interface());
        kinds.chain(generic.into_iter().filter_map(|(is_present, label)| is_present.then_some(label))).collect()
    }

    /// Exported functions that are not tools, each with the reason. At most 64 functions are listed. If there are more
    /// such functions, the last entry of the list states how many are not listed.
    pub fn skipped_exports(&self) -> &[SkippedExport] {
        &self.facts.generic.skipped
    }

    /// The tools that the host makes from exported functions (P3), each with the exported function: its interface and its
    /// name, such as `docs:words/store@0.1.0 find`.
    pub fn generic_tools(&self) -> impl Iterator<Item = (String, &ToolDefinition)> {
        let tool_of = |name: &str| self.facts.tools.iter().find(|tool| tool.name == name);
        let functions = self.facts.generic.functions.iter();
        functions.filter_map(move |function| Some((function.export(), tool_of(&function.tool)?)))
    }

    /// The tool of a command-line program (`wasi:cli/run`), or None if the plugin is not a program.
    pub fn program(&self) -> Option<ProgramTool<'_>> {
        let function = self.facts.generic.functions.iter().find(|function| function.form == Form::Command)?;
        let tool = self.facts.tools.iter().find(|tool| tool.name == function.tool)?;
        let about = tool.description.strip_suffix(COMMAND_USAGE).unwrap_or(&tool.description).trim();
        Some(ProgramTool { name: &tool.name, about: Some(about).filter(|about| !about.is_empty()) })
    }

    /// Names of the imports that need an implementation. An import is not a request for a grant: plugins ask for grants
    /// only in their manifests.
    pub fn imports(&self) -> &[String] {
        &self.facts.imports
    }

    /// Names of all imports and exports, including imports that contain only types.
    pub fn interfaces(&self) -> &Interfaces {
        &self.facts.interfaces
    }

    /// Size of the component in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The tools, in the order in which the component defines them.
    pub fn tools(&self) -> &[ToolDefinition] {
        &self.facts.tools
    }

    /// The needs in the plugin's manifest that these grants do not cover (P6). A need for write access to a directory
    /// is not covered by a grant of read access.
    pub fn unmet(&self, grants: &Grants) -> Vec<UnmetNeed> {
        grants::unmet(self.manifest(), grants)
    }

    /// The secrets that the plugin needs and these grants do not contain. Without them, the plugin sends its requests unsigned, and learns
    /// of it only from the server's answer.
    pub fn missing_secrets(&self, grants: &Grants) -> Vec<UnmetNeed> {
        let is_missing = |unmet: &UnmetNeed| matches!(unmet.need, Need::Secret(_)) && !self.is_optional(&unmet.need);
        self.unmet(grants).into_iter().filter(is_missing).collect()
    }

    /// Whether the plugin works without this grant, too.
    pub fn is_optional(&self, need: &Need) -> bool {
        self.manifest().is_some_and(|manifest| manifest.asks.is_optional(need))
    }

    /// The needs in the plugin's manifest that are relevant for a call and that these grants do not cover (P6).
    pub fn needed(&self, grants: &Grants, call: &CallNeeds) -> Vec<UnmetNeed> {
        grants::first_use::needed(self.manifest(), grants, call)
    }

    /// The needs in the plugin's manifest that these grants cover only in part (P6).
    pub fn partially_met(&self, grants: &Grants) -> Vec<PartialGrant> {
        grants::partial_grants(self.manifest(), grants)
    }
}

impl std::fmt::Debug for LoadedPlugin {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("LoadedPlugin").field("identity", &self.identity).field("facts", &self.facts).finish()
    }
}
