//! What a component says and is, found by starting it without grants: its tools, its plain functions, the types of its
//! exports.

use super::linking::link_plain;
use super::{LoadError, blocking, reason};
use crate::admission::LaneName;
use crate::failure::{CallFailure, Stop};
use crate::identity::{Authority, Kind, PluginIdentity};
use crate::imports;
use crate::limits::{CallLimits, DEFINITIONS_TIME, Limit};
use crate::plain::{self, Docs, Told};
use crate::plugin::{Facts, Links};
use crate::room::Room;
use crate::run::{CallReport, GuestStore, Ticket};
use crate::sandbox::Sandbox;
use crate::state::{CallState, Reach};
use crate::tools;
use agent_core::tool::ToolDefinition;
use std::sync::Arc;
use wasmtime::component::{Component, InstancePre};

/// A component that is being loaded.
#[derive(Clone)]
pub(super) struct New {
    pub(super) identity: Arc<PluginIdentity>,
    pub(super) room: Arc<Room>,
    /// Of each look at it.
    pub(super) limits: CallLimits,
}

impl New {
    /// With the limits that calls have by default.
    pub(super) fn of(identity: Arc<PluginIdentity>, room: Arc<Room>) -> Self {
        Self { identity, room, limits: CallLimits::default() }
    }
}

impl Sandbox {
    /// Its tools and plain functions, which enter the facts.
    pub(super) async fn learn_all(
        &self,
        new: &New,
        (component, docs): (&Component, &Arc<Docs>),
        links: &Links,
        facts: &mut Facts,
    ) -> Result<Option<plain::PlainLinks>, LoadError> {
        facts.tools = self.learn(new, links).await?;
        self.learn_functions(new, component, Arc::clone(docs), facts).await
    }

    /// Finds the plain functions (P3). They are looked at off the async threads, and the component is started once.
    async fn learn_functions(
        &self,
        new: &New,
        component: &Component,
        docs: Arc<Docs>,
        facts: &mut Facts,
    ) -> Result<Option<plain::PlainLinks>, LoadError> {
        let (looked_at, known) = (component.clone(), facts.clone());
        let (found, tools) = blocking(move || {
            let (manifest, imports) = (known.manifest.as_ref(), known.imports.as_slice());
            plain::survey(&looked_at, &Told { docs: &docs, manifest, imports, tools: &known.tools })
        })
        .await?;
        if facts.kinds.is_empty() && tools.is_empty() {
            return Err(LoadError::NothingOffered { left_out: found.left_out });
        }
        for function in &found.left_out {
            tracing::info!(plugin = %new.identity, "{function}");
        }
        facts.plain = found;
        facts.tools.extend(tools);
        let imports = imports::check(facts.imports.iter().map(String::as_str))?;
        let links = link_plain(&new.room, component, facts, imports)?;
        if let Some(links) = &links {
            self.check_kind(new, Kind::Tool, links.instance(), |_, _| Ok(())).await?;
        }
        Ok(links)
    }

    /// Instantiates each exported kind once without grants, which checks all types of its functions, and asks for the
    /// tools.
    async fn learn(&self, new: &New, links: &Links) -> Result<Vec<ToolDefinition>, LoadError> {
        macro_rules! check {
            ($entrance:expr, $kind:expr) => {
                if let Some(entrance) = $entrance {
                    let load = |store: &mut _, instance: &_| entrance.indices.load(store, instance).map(drop);
                    self.check_kind(new, $kind, &entrance.instance, load).await?;
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
            .run(load_ticket(new, Kind::Tool), |mut store, _| async move {
                let instance = tool.instance.instantiate_async(&mut store).await?;
                let guest = tool.indices.load(&mut store, &instance)?;
                Ok::<_, Stop>(guest.call_definitions(&mut store).await?)
            })
            .await;
        let definitions = self.started(new, report)?;
        let refused = |reason| LoadError::Definitions { plugin: Arc::clone(&new.identity), reason };
        tools::definitions_in(definitions).map_err(refused)
    }

    async fn check_kind(
        &self,
        new: &New,
        kind: Kind,
        pre: &InstancePre<CallState>,
        load: impl FnOnce(&mut GuestStore, &wasmtime::component::Instance) -> wasmtime::Result<()>,
    ) -> Result<(), LoadError> {
        let report = self
            .run(load_ticket(new, kind), |mut store, _| async move {
                let instance = pre.instantiate_async(&mut store).await?;
                Ok::<_, Stop>(load(&mut store, &instance))
            })
            .await;
        let loaded = self.started(new, report)?;
        loaded.map_err(|error| LoadError::Export { kind, reason: reason(&error) })
    }

    /// What a component answered when it was started. One that computes without an end would cost that time at every look at
    /// it, so it goes into quarantine; one for which the machine had no time does not.
    fn started<T>(&self, new: &New, report: CallReport<T>) -> Result<T, LoadError> {
        let is_time = |limit: &Limit| matches!(limit, Limit::WallTime(_) | Limit::CpuTime(_));
        if let (Err(failure @ CallFailure::Limit { limit, .. }), Some(quarantine)) =
            (&report.result, &self.shared.quarantine)
            && is_time(limit)
            && u128::from(report.cost.cpu_us) * 2 >= DEFINITIONS_TIME.as_micros()
        {
            let (plugin, reason) = (&new.identity, failure.to_string());
            if let Err(error) = quarantine.put(&plugin.digest, &plugin.name, &reason, &new.room.judge) {
                tracing::warn!(%plugin, %error, "the component cannot be put in quarantine");
            }
        }
        report.result.map_err(LoadError::Start)
    }
}

fn load_ticket(new: &New, kind: Kind) -> Ticket {
    Ticket {
        plugin: Arc::clone(&new.identity),
        room: Arc::clone(&new.room),
        call: "load".to_owned(),
        agent: Arc::from(""),
        asked: 0,
        lane: LaneName::Loading,
        wall: DEFINITIONS_TIME,
        limits: new.limits,
        lifted: new.limits.lifted(Authority::Inert),
        reach: Reach::nothing(kind.authority()),
        unmet: Arc::default(),
        declared: Arc::default(),
        trial: None,
    }
}
