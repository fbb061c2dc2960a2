//! Links a component: resolves its imports, and finds the functions of each exported plugin kind.

use super::reason;
use crate::binary::imports::{self, Imports};
use crate::component::engine_context::EngineContext;
use crate::component::generic;
use crate::component::load_error::LoadError;
use crate::component::plugin::{ExportHandle, Facts, Links};
use crate::contract::v0_1::bindings::exports::agent_host::plugin as exports;
use crate::execution::state::CallState;
use crate::identity::{Authority, Kind};
use wasmtime::component::{Component, InstancePre};

/// Resolves the component's imports, and finds the functions of each exported plugin kind.
pub(super) fn link(context: &EngineContext, component: &Component, facts: &Facts) -> Result<Links, LoadError> {
    let imports = imports::check(facts.imports.iter().map(String::as_str))?;
    let has = |kind: &Kind| facts.kinds.contains(kind);
    let instance = |authority| link_with(context, component, authority, (imports, facts));
    let mut links = Links::default();
    if facts.kinds.iter().any(|kind| kind.authority() == Authority::Granted) {
        let granted = instance(Authority::Granted)?;
        links.tool = export_handle(Kind::Tool, has, &granted, exports::tool::GuestIndices::new)?;
        links.context_builder =
            export_handle(Kind::ContextBuilder, has, &granted, exports::context_builder::GuestIndices::new)?;
        links.step_context = export_handle(Kind::StepContext, has, &granted, exports::step_context::GuestIndices::new)?;
    }
    if facts.kinds.iter().any(|kind| kind.authority() == Authority::Inert) {
        let inert = instance(Authority::Inert)?;
        links.output_validator =
            export_handle(Kind::OutputValidator, has, &inert, exports::output_validator::GuestIndices::new)?;
        links.media_policy = export_handle(Kind::MediaPolicy, has, &inert, exports::media_policy::GuestIndices::new)?;
    }
    links.generic = link_generic(context, component, facts, imports)?;
    Ok(links)
}

fn link_with(
    context: &EngineContext,
    component: &Component,
    authority: Authority,
    (imports, facts): (Imports, &Facts),
) -> Result<InstancePre<CallState>, LoadError> {
    let linked = context.linkers.link(component, authority, (imports, facts.sources.as_ref()));
    linked.map_err(|error| LoadError::Link { reason: reason(&error) })
}

pub(super) fn link_generic(
    context: &EngineContext,
    component: &Component,
    facts: &Facts,
    imports: Imports,
) -> Result<Option<generic::GenericLinks>, LoadError> {
    if facts.generic.functions.is_empty() {
        return Ok(None);
    }
    let instance = link_with(context, component, Authority::Granted, (imports, facts))?;
    generic::link(&facts.generic, instance).map(Some).map_err(|reason| LoadError::Link { reason })
}

fn export_handle<Indices>(
    kind: Kind,
    has: impl Fn(&Kind) -> bool,
    instance: &InstancePre<CallState>,
    indices: impl FnOnce(&InstancePre<CallState>) -> wasmtime::Result<Indices>,
) -> Result<Option<ExportHandle<Indices>>, LoadError> {
    if !has(&kind) {
        return Ok(None);
    }
    let indices = indices(instance).map_err(|error| LoadError::Export { kind, reason: reason(&error) })?;
    Ok(Some(ExportHandle { instance: instance.clone(), indices }))
}
