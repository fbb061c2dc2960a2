//! The linkers: one with the host functions for calls that can have grants, and one with inert functions for calls
//! without authority.

use super::state::CallState;
use crate::binary::development::{SOURCES_FUNCTION, SOURCES_INTERFACE};
use crate::binary::imports::{self, Imports};
use crate::capabilities::{config, files, http, key_value, log, media, model, process, sockets};
use crate::contract::v0_1::bindings::agent_host::plugin::types;
use crate::identity::Authority;
use std::sync::Arc;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, HasSelf, InstancePre, Linker, ResourceType};
use wasmtime::{Engine, Result, StoreContextMut};

pub(crate) struct Linkers {
    granted: Linker<CallState>,
    inert: Linker<CallState>,
}

impl Linkers {
    pub(crate) fn new(engine: &Engine) -> Result<Self> {
        let mut granted = common(engine)?;
        media::add_to_linker(&mut granted)?;
        model::add_to_linker(&mut granted)?;
        let mut inert = common(engine)?;
        media::add_inert_to_linker(&mut inert)?;
        model::add_inert_to_linker(&mut inert)?;
        Ok(Self { granted, inert })
    }

    /// Links the component's imports to the host functions for calls with this authority. `sources` are the sources of a
    /// development build.
    pub(crate) fn link(
        &self,
        component: &Component,
        authority: Authority,
        (imports, sources): (Imports, Option<&Arc<str>>),
    ) -> Result<InstancePre<CallState>> {
        let linker = match authority {
            Authority::Granted => &self.granted,
            Authority::Inert => &self.inert,
        };
        if imports == Imports::Implemented && sources.is_none() {
            return linker.instantiate_pre(component);
        }
        let mut linker = linker.clone();
        if let Some(sources) = sources {
            provide(&mut linker, Arc::clone(sources))?;
        }
        if imports == Imports::SomeDenied {
            refuse_denied(&mut linker, component)?;
        }
        linker.instantiate_pre(component)
    }
}

/// Defines the function from which a development build gets its sources.
fn provide(linker: &mut Linker<CallState>, sources: Arc<str>) -> Result<()> {
    let mut interface = linker.instance(SOURCES_INTERFACE)?;
    interface.func_wrap(SOURCES_FUNCTION, move |_: StoreContextMut<'_, CallState>, (): ()| Ok((sources.to_string(),)))
}

/// Defines the functions of the interfaces that the host knows but does not implement, so that calls to these functions
/// fail. If a function belongs to an interface that the host does not know, the function remains undefined, so that
/// linking fails (P5).
fn refuse_denied(linker: &mut Linker<CallState>, component: &Component) -> Result<()> {
    let engine = component.engine();
    for (interface, import) in component.component_type().imports(engine) {
        let ComponentItem::ComponentInstance(instance) = import.ty else { continue };
        if !imports::is_denied(interface) {
            continue;
        }
        let mut defined = linker.instance(interface)?;
        for (name, export) in instance.exports(engine) {
            match export.ty {
                ComponentItem::ComponentFunc(_) => {
                    let function = format!("{interface}#{name}");
                    defined.func_new(name, move |_, _, _, _| Err(NotOffered(function.clone()).into()))?;
                }
                ComponentItem::Resource(_) => {
                    defined.resource(name, ResourceType::host::<NotOffered>(), |_, _| Ok(()))?;
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// The error for a call to a function of an interface that the host knows but does not implement.
#[derive(Clone, Debug, thiserror::Error)]
#[error("it called `{0}`, which this host does not offer to plugins")]
struct NotOffered(String);

/// Creates a linker with the functions that both linkers contain. These are the functions of WASI, which are restricted
/// by the WASI context of the call, and the functions of the capabilities, which check the call's grants.
fn common(engine: &Engine) -> Result<Linker<CallState>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    linker.allow_shadowing(true);
    process::add_to_linker(&mut linker)?;
    files::add_to_linker(&mut linker)?;
    sockets::add_to_linker(&mut linker)?;
    linker.allow_shadowing(false);
    http::add_to_linker(&mut linker)?;
    key_value::add_to_linker(&mut linker)?;
    config::add_to_linker(&mut linker)?;
    log::add_to_linker(&mut linker)?;
    types::add_to_linker::<_, HasSelf<CallState>>(&mut linker, |state| state)?;
    Ok(linker)
}
