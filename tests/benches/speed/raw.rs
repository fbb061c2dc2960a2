//! Runs the component of the tool call benchmark with wasmtime alone, without the host. Each call has a new store with
//! a WASI context, a new instance, and typed arguments.

use crate::engine::{self, AddressSpace, CodeOptions, Metering};
use crate::limits::HostLimits;
use bindings::exports::agent_host::plugin::tool;
use std::path::Path;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, InstancePre, Linker, ResourceTable, ResourceType};
use wasmtime::{Engine, Store, format_err};
use wasmtime_wasi::{FsPerms, WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};

mod bindings {
    #![allow(missing_docs, unreachable_pub, clippy::all, reason = "generated")]

    wasmtime::component::bindgen!({
        world: "agent-host:plugin/tool-plugin",
        path: "../../wit",
        imports: { default: async | trappable },
        exports: { default: async },
    });
}

/// The name prefixes of the standard interfaces that wasmtime-wasi does not implement.
const NOT_IN_WASMTIME_WASI: [&str; 2] = ["wasi:config/", "wasi:logging/"];

pub(crate) use bindings::agent_host::plugin::types::{Scope, TraceContext};
pub(crate) use tool::{CallContext, Content, Outcome};

/// The component, compiled and linked by raw wasmtime.
pub(crate) struct Raw {
    engine: Engine,
    instance: InstancePre<State>,
    indices: tool::GuestIndices,
}

struct State {
    wasi: WasiCtx,
    table: ResourceTable,
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

impl Raw {
    /// Compiles and links the component.
    pub(crate) fn new(component: &Path) -> wasmtime::Result<Self> {
        let engine = engine::engine(
            HostLimits::default(),
            CodeOptions { metering: Metering::Off, space: AddressSpace::Reserved },
        )?;
        let component = Component::from_file(&engine, component)?;
        let mut linker = Linker::new(&engine);
        wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
        trap_on_foreign_imports(&mut linker, &component)?;
        let instance = linker.instantiate_pre(&component)?;
        let indices = tool::GuestIndices::new(&instance)?;
        Ok(Self { engine, instance, indices })
    }

    /// Calls the tool once, in a new instance of the component. If the directory `tree` is given, the component can
    /// read it.
    pub(crate) async fn call(
        &self,
        name: &str,
        arguments: &String,
        context: &CallContext,
        tree: Option<&Path>,
    ) -> wasmtime::Result<Outcome> {
        let mut wasi = WasiCtxBuilder::new();
        if let Some(tree) = tree {
            wasi.preopened_dir(tree, ".", FsPerms::ReadOnly)?;
        }
        let mut store = Store::new(&self.engine, State { wasi: wasi.build(), table: ResourceTable::new() });
        // The call never reaches this deadline, because nothing advances the engine's epoch.
        store.set_epoch_deadline(1);
        let instance = self.instance.instantiate_async(&mut store).await?;
        let guest = self.indices.load(&mut store, &instance)?;
        let answer = guest.call_call(&mut store, name, arguments, context).await?;
        answer.map_err(|error| format_err!("the tool failed: {error:?}"))
    }
}

/// If wasmtime-wasi does not implement an import, defines the import as a function that traps. The called tool does not
/// use foreign imports. (Wasmtime's own function for unknown imports cannot be used here, because it would also define
/// imports that are known to wasmtime-wasi under another WASI version.)
fn trap_on_foreign_imports(linker: &mut Linker<State>, component: &Component) -> wasmtime::Result<()> {
    let engine = linker.engine().clone();
    for (name, import) in component.component_type().imports(&engine) {
        let is_implemented =
            name.starts_with("wasi:") && !NOT_IN_WASMTIME_WASI.iter().any(|foreign| name.starts_with(foreign));
        let ComponentItem::ComponentInstance(interface) = import.ty else { continue };
        if is_implemented {
            continue;
        }
        let mut instance = linker.instance(name)?;
        for (export, item) in interface.exports(&engine) {
            match item.ty {
                ComponentItem::ComponentFunc(_) => {
                    instance.func_new(export, |_, _, _, _| Err(format_err!("this import is not implemented")))?;
                }
                ComponentItem::Resource(_) => {
                    instance.resource(export, ResourceType::host::<()>(), |_, _| Ok(()))?;
                }
                _ => {}
            }
        }
    }
    Ok(())
}
