//! What components link to: one set of functions for calls with grants, one that is inert for pure functions.

use crate::bindings::agent_host::model::host_model;
use crate::bindings::agent_host::plugin::{media_store, types};
use crate::bindings::wasi::{config, logging};
use crate::identity::Authority;
use crate::imports::{self, Imports};
use crate::media::{GrowingMedium, OpenMedium};
use crate::state::CallState;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, HasData, HasSelf, InstancePre, Linker, Resource, ResourceType};
use wasmtime::{Engine, Result, StoreContextMut};
use wasmtime_wasi::p2::bindings::random::{insecure, random};

pub(crate) struct Linkers {
    granted: Linker<CallState>,
    inert: Linker<CallState>,
}

impl Linkers {
    pub(crate) fn new(engine: &Engine) -> Result<Self> {
        let mut granted = common(engine)?;
        media_store::add_to_linker::<_, HasSelf<CallState>>(&mut granted, |state| state)?;
        host_model::add_to_linker::<_, HasSelf<CallState>>(&mut granted, |state| state)?;
        let mut inert = common(engine)?;
        media_store::add_to_linker::<_, Inert>(&mut inert, |_| Inert)?;
        host_model::add_to_linker::<_, Inert>(&mut inert, |_| Inert)?;
        Ok(Self { granted, inert })
    }

    /// Resolves the component's imports with this authority.
    pub(crate) fn link(
        &self,
        component: &Component,
        authority: Authority,
        imports: Imports,
    ) -> Result<InstancePre<CallState>> {
        let linker = match authority {
            Authority::Granted => &self.granted,
            Authority::Inert => &self.inert,
        };
        if imports == Imports::Implemented {
            return linker.instantiate_pre(component);
        }
        let mut linker = linker.clone();
        refuse_denied(&mut linker, component)?;
        linker.instantiate_pre(component)
    }
}

/// Defines what is known and not offered, and nothing else: a function that some other interface lacks stays an import that
/// nobody has (P5).
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
                    let called = format!("{interface}#{name}");
                    defined.func_new(name, move |_, _, _, _| Err(NotOffered(called.clone()).into()))?;
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

/// A function of an interface that is known and not offered.
#[derive(Clone, Debug, thiserror::Error)]
#[error("it called `{0}`, which this host does not offer to plugins")]
struct NotOffered(String);

/// What both have: WASI, whose context decides what it reaches, and logging.
fn common(engine: &Engine) -> Result<Linker<CallState>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    linker.allow_shadowing(true);
    random::add_to_linker::<_, HasSelf<CallState>>(&mut linker, |state| state)?;
    insecure::add_to_linker::<_, HasSelf<CallState>>(&mut linker, |state| state)?;
    crate::opening::add_to_linker(&mut linker)?;
    crate::leaving::add_to_linker(&mut linker)?;
    crate::changing::add_to_linker(&mut linker)?;
    crate::listing::add_to_linker(&mut linker)?;
    crate::lookups::add_to_linker(&mut linker)?;
    crate::sockets::add_to_linker(&mut linker)?;
    crate::writing::add_to_linker(&mut linker)?;
    linker.allow_shadowing(false);
    // Without a grant each request and each bucket is denied, so pure functions may have these, too.
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
    add_key_value(&mut linker)?;
    add_config(&mut linker)?;
    types::add_to_linker::<_, HasSelf<CallState>>(&mut linker, |state| state)?;
    logging::logging::add_to_linker::<_, HasSelf<CallState>>(&mut linker, |state| state)?;
    linker.instance("wasi:logging/logging@0.1.0-draft")?.func_wrap(
        "log",
        |store: StoreContextMut<'_, CallState>,
         (level, context, message): (logging::logging::Level, String, String)| {
            store.data().record.log_message(level, &context, &message);
            Ok(())
        },
    )?;
    Ok(linker)
}

/// Under its name, and under those that it had in earlier drafts, with the same functions.
fn add_config(linker: &mut Linker<CallState>) -> Result<()> {
    config::store::add_to_linker::<_, HasSelf<CallState>>(linker, |state| state)?;
    for name in ["wasi:config/store@0.2.0-draft", "wasi:config/runtime@0.2.0-draft"] {
        let mut interface = linker.instance(name)?;
        interface.func_wrap("get", |mut store: StoreContextMut<'_, CallState>, (key,): (String,)| {
            Ok((Ok::<_, config::store::Error>(store.data_mut().config_value(&key)),))
        })?;
        interface.func_wrap("get-all", |store: StoreContextMut<'_, CallState>, (): ()| {
            Ok((Ok::<_, config::store::Error>(store.data().config_values()),))
        })?;
    }
    Ok(())
}

/// Both drafts: components of today are built for either.
fn add_key_value(linker: &mut Linker<CallState>) -> Result<()> {
    use crate::bindings::wasi::{keyvalue0_2_0_draft as draft, keyvalue0_2_0_draft2 as draft2};
    draft::store::add_to_linker::<_, HasSelf<CallState>>(linker, |state| state)?;
    draft::atomics::add_to_linker::<_, HasSelf<CallState>>(linker, |state| state)?;
    draft::batch::add_to_linker::<_, HasSelf<CallState>>(linker, |state| state)?;
    draft2::store::add_to_linker::<_, HasSelf<CallState>>(linker, |state| state)?;
    draft2::atomics::add_to_linker::<_, HasSelf<CallState>>(linker, |state| state)?;
    draft2::batch::add_to_linker::<_, HasSelf<CallState>>(linker, |state| state)
}

impl types::Host for CallState {}

/// Answers as if nothing were there.
struct Inert;

impl HasData for Inert {
    type Data<'a> = Inert;
}

impl host_model::Host for Inert {
    async fn ask(&mut self, _: host_model::Question) -> Result<Result<host_model::Answer, host_model::Error>> {
        Ok(Err(host_model::Error::Denied))
    }
}

impl media_store::Host for Inert {
    async fn open(&mut self, _: String) -> Result<Result<Resource<OpenMedium>, media_store::Error>> {
        Ok(Err(media_store::Error::NotFound))
    }
}

impl media_store::HostMedium for Inert {
    async fn describe(&mut self, _: Resource<OpenMedium>) -> Result<types::Media> {
        Err(no_media())
    }

    async fn read(&mut self, _: Resource<OpenMedium>, _: u64, _: u32) -> Result<Result<Vec<u8>, media_store::Error>> {
        Err(no_media())
    }

    async fn drop(&mut self, _: Resource<OpenMedium>) -> Result<()> {
        Ok(())
    }
}

impl media_store::HostNewMedium for Inert {
    async fn new(&mut self, _: String, _: Option<String>) -> Result<Resource<GrowingMedium>> {
        Err(no_media())
    }

    async fn write(&mut self, _: Resource<GrowingMedium>, _: Vec<u8>) -> Result<Result<(), media_store::Error>> {
        Err(no_media())
    }

    async fn finish(&mut self, _: Resource<GrowingMedium>) -> Result<Result<types::Media, media_store::Error>> {
        Err(no_media())
    }

    async fn drop(&mut self, _: Resource<GrowingMedium>) -> Result<()> {
        Ok(())
    }
}

fn no_media() -> wasmtime::Error {
    wasmtime::Error::msg("validators and media policies have no media store")
}
