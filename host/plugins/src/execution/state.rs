//! The data in the wasmtime store of one call: the states of all capabilities.

use super::call_spec::CallCapabilities;
use super::memory_limiter::{MemoryLimiter, table_growing};
use crate::capabilities::files::{FileInputs, FilesState};
use crate::capabilities::http::{HttpState, Network};
use crate::capabilities::key_value::KeyValueState;
use crate::capabilities::media::MediaState;
use crate::capabilities::model::ModelState;
use crate::capabilities::process::{ProcessInputs, ProcessState};
use crate::capabilities::{CallContext, CapabilityView, HasCall, HasCapability};
use crate::contract::v0_1::bindings::agent_host::plugin::types;
use crate::file_trees::{TreeHost, TreeProblem};
use crate::grants::live_grants::LiveGrants;
use crate::recording::CallRecord;
use std::sync::Arc;
use wasmtime::ResourceLimiter;
use wasmtime::component::ResourceTable;
use wasmtime_wasi::{WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtxView, WasiHttpView};

pub(crate) struct CallState {
    call: CallContext,
    /// The table of the resources to which the guest has handles.
    table: ResourceTable,
    process: ProcessState,
    files: FilesState,
    http: HttpState,
    key_values: KeyValueState,
    media: MediaState,
    model: ModelState,
    memory: MemoryLimiter,
}

impl CallState {
    /// Creates the state of a call and opens the granted directories. Fails if a granted directory cannot be opened.
    pub(crate) fn new(
        record: Arc<CallRecord>,
        capabilities: CallCapabilities,
        (trees, network): (&TreeHost, &Arc<Network>),
    ) -> Result<Self, TreeProblem> {
        let CallCapabilities { authority, grants, agent, session, replay, .. } = capabilities;
        let live_grants = LiveGrants::new(&record.plugin.name, Arc::clone(&grants), capabilities.current_grants);
        let call = CallContext { record, live_grants: Arc::new(live_grants), authority, agent, session };
        let recorded = replay.as_ref().and_then(|replay| replay.trees.clone());
        let scratch = capabilities.scratch.or_else(|| recorded.as_ref().map(|recorded| recorded.scratch()));
        let inputs = FileInputs { turn: capabilities.turn, recorded, scratch };
        let files = FilesState::open(trees, &call, &grants, inputs)?;
        let inputs =
            ProcessInputs { granted: grants, program: capabilities.program, trace: capabilities.trace, replay };
        let mut table = ResourceTable::new();
        table.set_max_capacity(call.record.limits.handles);
        Ok(Self {
            process: ProcessState::new(&call, inputs),
            call,
            table,
            files,
            http: HttpState::new(Arc::clone(network), (capabilities.http, capabilities.asked_requests)),
            key_values: KeyValueState::new(capabilities.key_value),
            media: MediaState::new(capabilities.media),
            model: ModelState::new(capabilities.model),
            memory: MemoryLimiter::default(),
        })
    }

    pub(crate) fn record(&self) -> &Arc<CallRecord> {
        &self.call.record
    }
}

impl HasCall for CallState {
    fn call(&mut self) -> &mut CallContext {
        &mut self.call
    }
}

/// Implements [`HasCapability`] for the type of each field in the list.
macro_rules! has_capability {
    ($($field:ident: $state:ty),* $(,)?) => {
        $(impl HasCapability<$state> for CallState {
            fn capability(&mut self) -> CapabilityView<'_, $state> {
                CapabilityView { call: &self.call, state: &mut self.$field, table: &mut self.table }
            }
        })*
    };
}

has_capability! {
    process: ProcessState,
    files: FilesState,
    key_values: KeyValueState,
    media: MediaState,
    model: ModelState,
}

impl WasiView for CallState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: self.process.context(&self.call), table: &mut self.table }
    }
}

impl WasiHttpView for CallState {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        self.http.view(&self.call, self.process.trace(), &mut self.table)
    }
}

impl types::Host for CallState {}

impl ResourceLimiter for CallState {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        Ok(self.memory.memory_growing(&self.call.record, (current, desired), maximum))
    }

    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        self.memory.memory_grow_failed(&error);
        Ok(())
    }

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(table_growing(&self.call.record, desired))
    }

    fn instances(&self) -> usize {
        self.call.record.limits.core_instances
    }

    fn tables(&self) -> usize {
        self.call.record.limits.tables
    }

    fn memories(&self) -> usize {
        self.call.record.limits.memories
    }
}
