//! `wasi:http` (P6, P7): sends the requests that are granted to a plugin, and adds the granted secrets to them. Each
//! request is authorised by its URL and sent to an IP address that was checked. The name of the server is not resolved
//! a second time after the check.

mod body;
mod connect;
mod exchange;
mod linker;
mod method_field;
mod outgoing;
mod pool;
mod port;
mod rate;

pub(crate) use connect::Network;
pub use connect::{NameResolver, SystemResolver};
pub(crate) use linker::add_to_linker;

use super::CallContext;
use crate::grants::http_pattern::AskedRequests;
use crate::ports::http::HttpPort;
use agent_core::plugin::TraceContext;
use outgoing::Outgoing;
use std::sync::Arc;
use wasmtime::component::ResourceTable;
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView};

/// The HTTP capability of one call.
pub(crate) struct HttpState {
    network: Arc<Network>,
    /// The port that responds to requests instead of the network. `None` means that requests are sent to the network.
    port: Option<Arc<dyn HttpPort>>,
    /// The requests that the plugin's manifest asks for. `None` if the component has no manifest.
    asked: AskedRequests,
    /// The context of wasmtime-wasi-http, and the hooks that wasmtime-wasi-http calls. The context and the hooks are
    /// created when the guest first uses `wasi:http`.
    context: Option<Box<(WasiHttpCtx, Outgoing)>>,
}

impl HttpState {
    /// `asked` contains the requests that the plugin's manifest asks for, and is `None` if the component has no manifest.
    pub(crate) fn new(network: Arc<Network>, (port, asked): (Option<Arc<dyn HttpPort>>, AskedRequests)) -> Self {
        Self { network, port, asked, context: None }
    }

    /// The state that the functions of wasmtime-wasi-http use.
    pub(crate) fn view<'a>(
        &'a mut self,
        call: &CallContext,
        trace: Option<&TraceContext>,
        table: &'a mut ResourceTable,
    ) -> WasiHttpCtxView<'a> {
        let Self { network, port, asked, context } = self;
        let (ctx, hooks) = &mut **context.get_or_insert_with(|| {
            let mut ctx = WasiHttpCtx::new();
            ctx.set_field_size_limit(call.record.limits.headers);
            let (record, grants) = (Arc::clone(&call.record), Arc::clone(&call.live_grants));
            let (sender, to) = ((call.agent.clone(), trace.cloned()), (Arc::clone(network), port.clone()));
            Box::new((ctx, Outgoing::new(record, (grants, asked.clone()), sender, to)))
        });
        WasiHttpCtxView { hooks, table, ctx }
    }
}
