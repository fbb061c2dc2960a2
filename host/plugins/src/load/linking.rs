//! Imports resolved, and the functions of each exported kind found.

use super::{LoadError, reason};
use crate::bindings::exports::agent_host::plugin as exports;
use crate::identity::{Authority, Kind};
use crate::imports::{self, Imports};
use crate::plain;
use crate::plugin::{Entrance, Facts, Links};
use crate::room::Room;
use crate::state::CallState;
use wasmtime::component::{Component, InstancePre};

/// Resolves imports and finds the functions of each exported kind.
pub(super) fn link(room: &Room, component: &Component, facts: &Facts) -> Result<Links, LoadError> {
    let imports = imports::check(facts.imports.iter().map(String::as_str))?;
    let has = |kind: &Kind| facts.kinds.contains(kind);
    let instance = |authority| link_with(room, component, authority, imports);
    let mut links = Links::default();
    if facts.kinds.iter().any(|kind| kind.authority() == Authority::Granted) {
        let granted = instance(Authority::Granted)?;
        links.tool = entrance(Kind::Tool, has, &granted, exports::tool::GuestIndices::new)?;
        links.context_builder =
            entrance(Kind::ContextBuilder, has, &granted, exports::context_builder::GuestIndices::new)?;
        links.step_context = entrance(Kind::StepContext, has, &granted, exports::step_context::GuestIndices::new)?;
    }
    if facts.kinds.iter().any(|kind| kind.authority() == Authority::Inert) {
        let inert = instance(Authority::Inert)?;
        links.output_validator =
            entrance(Kind::OutputValidator, has, &inert, exports::output_validator::GuestIndices::new)?;
        links.media_policy = entrance(Kind::MediaPolicy, has, &inert, exports::media_policy::GuestIndices::new)?;
    }
    links.plain = link_plain(room, component, facts, imports)?;
    Ok(links)
}

fn link_with(
    room: &Room,
    component: &Component,
    authority: Authority,
    imports: Imports,
) -> Result<InstancePre<CallState>, LoadError> {
    let linked = room.linkers.link(component, authority, imports);
    linked.map_err(|error| LoadError::Link { reason: reason(&error) })
}

pub(super) fn link_plain(
    room: &Room,
    component: &Component,
    facts: &Facts,
    imports: Imports,
) -> Result<Option<plain::PlainLinks>, LoadError> {
    if facts.plain.functions.is_empty() {
        return Ok(None);
    }
    let instance = link_with(room, component, Authority::Granted, imports)?;
    plain::link(&facts.plain, instance).map(Some)
}

fn entrance<Indices>(
    kind: Kind,
    has: impl Fn(&Kind) -> bool,
    instance: &InstancePre<CallState>,
    indices: impl FnOnce(&InstancePre<CallState>) -> wasmtime::Result<Indices>,
) -> Result<Option<Entrance<Indices>>, LoadError> {
    if !has(&kind) {
        return Ok(None);
    }
    let indices = indices(instance).map_err(|error| LoadError::Export { kind, reason: reason(&error) })?;
    Ok(Some(Entrance { instance: instance.clone(), indices }))
}
