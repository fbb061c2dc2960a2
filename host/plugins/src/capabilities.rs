//! The capabilities that plugins can use during a call. Each capability has its own state, linker setup (`linker.rs`)
//! and host functions, and does not depend on other capabilities. The data of a wasmtime store contains the states of
//! all capabilities and implements [`HasCapability`] for each capability.

pub(crate) mod config;
pub(crate) mod files;
pub(crate) mod http;
pub(crate) mod key_value;
pub(crate) mod log;
pub(crate) mod media;
pub(crate) mod model;
pub(crate) mod process;
pub(crate) mod sockets;

use crate::grants::Grants;
use crate::grants::live_grants::LiveGrants;
use crate::identity::Authority;
use crate::limits::Limit;
use crate::recording::CallRecord;
use std::marker::PhantomData;
use std::sync::Arc;
use wasmtime::component::{HasData, Resource, ResourceTable, ResourceTableError};

/// The plugin call that uses a capability.
pub(crate) struct CallContext {
    /// The record of the call, to which the capability adds costs, denials and recorded responses.
    pub(crate) record: Arc<CallRecord>,
    /// The grants of the call. If a grant is revoked during the call, it is removed from these grants.
    pub(crate) live_grants: Arc<LiveGrants>,
    pub(crate) authority: Authority,
    /// Name of the agent that makes the call.
    pub(crate) agent: String,
    /// Id of the session to which the call belongs.
    pub(crate) session: String,
}

impl CallContext {
    /// The grants of the call that have not been revoked so far.
    pub(crate) fn grants(&self) -> Arc<Grants> {
        self.live_grants.now()
    }
}

/// The data that a host function of a capability can access: the state of the capability, the plugin call, and the
/// guest's handles.
pub(crate) struct CapabilityView<'a, S> {
    pub(crate) call: &'a CallContext,
    pub(crate) state: &'a mut S,
    pub(crate) table: &'a mut ResourceTable,
}

impl<S> CapabilityView<'_, S> {
    /// Creates a new handle for the guest. If the guest has too many handles, records the limit and fails.
    pub(crate) fn push<T: Send + 'static>(&mut self, entry: T) -> wasmtime::Result<Resource<T>> {
        self.table.push(entry).map_err(|error| {
            if matches!(error, ResourceTableError::Full) {
                let record = &self.call.record;
                record.record_limit(Limit::Handles(record.limits.handles));
            }
            error.into()
        })
    }
}

/// The data of a wasmtime store that was created for a plugin call.
pub(crate) trait HasCall: Send + 'static {
    fn call(&mut self) -> &mut CallContext;
}

/// The data of a wasmtime store that contains the state `S` of a capability.
pub(crate) trait HasCapability<S>: HasCall {
    fn capability(&mut self) -> CapabilityView<'_, S>;
}

/// Type argument for the generated linker functions. With this type, the linker functions pass a [`CapabilityView`] of
/// `S` to the host functions.
pub(crate) struct Capability<S>(PhantomData<S>);

impl<S: 'static> HasData for Capability<S> {
    type Data<'a> = CapabilityView<'a, S>;
}
