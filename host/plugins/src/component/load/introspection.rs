//! Instantiates a component once without grants, to check the types of its exports and to find its tools and
//! generic functions.

use super::linking::link_generic;
use super::{blocking, reason};
use crate::binary::docs::Docs;
use crate::binary::imports;
use crate::component::engine_context::EngineContext;
use crate::component::generic::{self, KnownFacts};
use crate::component::load_error::LoadError;
use crate::component::plugin::{Facts, Links};
use crate::component::sandbox::Sandbox;
use crate::contract::v0_1::tools;
use crate::execution::admission::LaneName;
use crate::execution::call_spec::{CallCapabilities, CallSpec};
use crate::execution::failure::{CallFailure, Stop};
use crate::execution::report::CallReport;
use crate::execution::runner::GuestStore;
use crate::execution::state::CallState;
use crate::identity::{Authority, Kind, PluginIdentity};
use crate::limits::{CallLimits, DEFINITIONS_TIME, Limit};
use agent_core::tool::ToolDefinition;
use std::sync::Arc;
use wasmtime::component::{Component, InstancePre};

/// A component that is being loaded.
#[derive(Clone)]
pub(super) struct NewComponent {
    pub(super) identity: Arc<PluginIdentity>,
    pub(super) context: Arc<EngineContext>,
    /// The limits of each call that the host makes while it loads the component.
    pub(super) limits: CallLimits,
}

impl NewComponent {
    /// Describes a component that is being loaded. The calls that load the component have the default call limits.
    pub(super) fn of(identity: Arc<PluginIdentity>, context: Arc<EngineContext>) -> Self {
        Self { identity, context, limits: CallLimits::default() }
    }
}

impl Sandbox {
    /// Finds the tools and the generic functions, and adds them to the facts.
    pub(super) async fn introspect(
        &self,
        new: &NewComponent,
        (component, docs): (&Component, &Arc<Docs>),
        links: &Links,
        facts: &mut Facts,
    ) -> Result<Option<generic::GenericLinks>, LoadError> {
        facts.tools = self.find_tools(new, links).await?;
        self.find_functions(new, component, Arc::clone(docs), facts).await
    }

    /// Finds the generic functions (P3). Examines the types of the functions on a blocking thread, and instantiates the
    /// component once.
    async fn find_functions(
        &self,
        new: &NewComponent,
        component: &Component,
        docs: Arc<Docs>,
        facts: &mut Facts,
    ) -> Result<Option<generic::GenericLinks>, LoadError> {
        let (examined, known) = (component.clone(), facts.clone());
        let discovered = blocking(move || {
            let (manifest, imports) = (known.manifest.as_ref(), known.imports.as_slice());
            let known = KnownFacts { docs: &docs, manifest, imports, tools: &known.tools };
            let (mut facts, mut tools) = generic::discover(&examined, &known);
            facts.describe(&known, &mut tools)?;
            Ok::<_, String>((facts, tools))
        })
        .await?;
        let refused = |reason| LoadError::Definitions { plugin: Arc::clone(&new.identity), reason };
        let (generic_facts, tools) = discovered.map_err(refused)?;
        if facts.kinds.is_empty() && tools.is_empty() {
            return Err(LoadError::NothingOffered { skipped: generic_facts.skipped });
        }
        for function in &generic_facts.skipped {
            tracing::info!(plugin = %new.identity, "{function}");
        }
        facts.generic = generic_facts;
        facts.tools.extend(tools);
        let imports = imports::check(facts.imports.iter().map(String::as_str))?;
        let links = link_generic(&new.context, component, facts, imports)?;
        if let Some(links) = &links {
            self.check_kind(new, Kind::Tool, links.instance(), |_, _| Ok(())).await?;
        }
        Ok(links)
    }

    /// Gets the tool definitions, and checks the types of all functions of each exported kind. To check a kind, this
    /// method instantiates the component once without grants.
    async fn find_tools(&self, new: &NewComponent, links: &Links) -> Result<Vec<ToolDefinition>, LoadError> {
        macro_rules! check {
            ($handle:expr, $kind:expr) => {
                if let Some(handle) = $handle {
                    let load = |store: &mut _, instance: &_| handle.indices.load(store, instance).map(drop);
                    self.check_kind(new, $kind, &handle.instance, load).await?;
                }
            };
        }
        check!(&links.context_builder, Kind::ContextBuilder);
        check!(&links.step_context, Kind::StepContext);
        check!(&links.output_validator, Kind::OutputValidator);
        check!(&links.media_policy, Kind::MediaPolicy);
        check!(&links.tool, Kind::Tool);
        let Some(tool) = &links.tool else { return Ok(Vec::new()) };
        let report = self
            .shared
            .runner
            .run(load_spec(new, Kind::Tool), |mut store, _| async move {
                let instance = tool.instance.instantiate_async(&mut store).await?;
                let guest = tool.indices.load(&mut store, &instance)?;
                Ok::<_, Stop>(guest.call_definitions(&mut store).await?)
            })
            .await;
        let definitions = self.check_started(new, report)?;
        let refused = |reason| LoadError::Definitions { plugin: Arc::clone(&new.identity), reason };
        tools::definitions_in(definitions).map_err(refused)
    }

    async fn check_kind(
        &self,
        new: &NewComponent,
        kind: Kind,
        pre: &InstancePre<CallState>,
        load: impl FnOnce(&mut GuestStore, &wasmtime::component::Instance) -> wasmtime::Result<()>,
    ) -> Result<(), LoadError> {
        let report = self
            .shared
            .runner
            .run(load_spec(new, kind), |mut store, _| async move {
                let instance = pre.instantiate_async(&mut store).await?;
                Ok::<_, Stop>(load(&mut store, &instance))
            })
            .await;
        let loaded = self.check_started(new, report)?;
        loaded.map_err(|error| LoadError::Export { kind, reason: reason(&error) })
    }

    /// Returns the result of a call that the host made to the component while loading it. A component that used
    /// processor time until it reached the time limit would do the same at every start, so such a component is put in
    /// quarantine. If the call took too long only because the machine was busy, the component is not put in quarantine.
    fn check_started<T>(&self, new: &NewComponent, report: CallReport<T>) -> Result<T, LoadError> {
        let is_time_limit = |limit: &Limit| matches!(limit, Limit::WallTime(_) | Limit::CpuTime(_));
        if let (Err(failure @ CallFailure::Limit { limit, .. }), Some(quarantine)) =
            (&report.result, &self.shared.quarantine)
            && is_time_limit(limit)
            && u128::from(report.cost.cpu_us) * 2 >= DEFINITIONS_TIME.as_micros()
        {
            let (plugin, reason) = (&new.identity, failure.to_string());
            if let Err(error) = quarantine.put(&plugin.digest, &plugin.name, &reason, &new.context.examiner) {
                tracing::warn!(%plugin, %error, "the component cannot be put in quarantine");
            }
        }
        report.result.map_err(LoadError::Start)
    }
}

fn load_spec(new: &NewComponent, kind: Kind) -> CallSpec {
    CallSpec {
        plugin: Arc::clone(&new.identity),
        kind,
        engine: new.context.engine.clone(),
        metering: new.context.metering,
        call: "load".to_owned(),
        agent: Arc::from(""),
        request_bytes: 0,
        lane: LaneName::Loading,
        wall: DEFINITIONS_TIME,
        limits: new.limits,
        lifted_bytes: new.limits.lifted(Authority::Inert),
        capabilities: CallCapabilities::nothing(kind.authority()),
        unmet: Arc::default(),
        declared: Arc::default(),
        trial: None,
    }
}
