//! `wasi:keyvalue`: values that plugins store between calls, through the port that the runtime implements (P5). A call
//! with the grant for key-value storage can access only the buckets of the agent and plugin to which the call belongs.

mod bindings;
mod draft;
mod draft2;
mod linker;
mod values;

pub(crate) use linker::add_to_linker;

use super::CapabilityView;
use crate::grants::key_value_denied;
use crate::limits::KEY_BYTES;
use crate::ports::PortError;
use crate::ports::key_value::{KeyValueBucket, KeyValuePort};
use std::sync::Arc;
use values::Values;
use wasmtime::component::Resource;

/// The key-value capability of one call.
pub(crate) struct KeyValueState {
    /// The port to the key-value store. `None` means that the call has no key-value store.
    port: Option<Arc<dyn KeyValuePort>>,
    /// Number of compare-and-swap handles that the guest has open.
    cas_values: usize,
}

type KeyValueView<'a> = CapabilityView<'a, KeyValueState>;

impl KeyValueState {
    pub(crate) fn new(port: Option<Arc<dyn KeyValuePort>>) -> Self {
        Self { port, cas_values: 0 }
    }
}

/// A bucket that a guest has opened.
#[allow(unreachable_pub, reason = "the generated bindings re-export this type")]
pub struct OpenBucket {
    values: Arc<Values>,
    /// The last key of each page that the guest has read. In the first draft of the interface, a cursor is a number,
    /// which is a position in this list.
    pages: Vec<String>,
}

/// A value that a guest has read for a compare-and-swap operation.
#[allow(unreachable_pub, reason = "the generated bindings re-export this type")]
pub struct CasValue {
    values: Arc<Values>,
    key: String,
    value: Option<Vec<u8>>,
}

/// The reason why a key-value operation failed. Each draft of the interface has its own error type, and the host
/// functions of the draft convert the reason to this type.
pub(crate) enum Problem {
    Denied,
    Other(String),
}

impl From<PortError> for Problem {
    fn from(error: PortError) -> Self {
        Problem::Other(error.to_string())
    }
}

type Outcome<T> = wasmtime::Result<Result<T, Problem>>;

impl KeyValueView<'_> {
    fn open_bucket(&mut self, name: String) -> Outcome<Resource<OpenBucket>> {
        let (Some(quota), Some(port)) = (self.call.grants().key_value, self.state.port.clone()) else {
            let (thing, advice) = key_value_denied(&self.call.record.plugin.name);
            self.call.record.deny(thing, advice);
            self.call.record.answers.key_value_store_denied();
            return Ok(Err(Problem::Denied));
        };
        if name.len() > KEY_BYTES {
            return Ok(Err(Problem::Other(format!("a bucket's name can have at most {KEY_BYTES} bytes"))));
        }
        let (agent, plugin) = (self.call.agent.clone(), self.call.record.plugin.name.clone());
        let (space, record) = (KeyValueBucket { agent, plugin, bucket: name, quota }, Arc::clone(&self.call.record));
        let values = Arc::new(Values { port, space, record, live_grants: Arc::clone(&self.call.live_grants) });
        Ok(Ok(self.push(OpenBucket { values, pages: Vec::new() })?))
    }

    fn values(&self, bucket: &Resource<OpenBucket>) -> wasmtime::Result<Arc<Values>> {
        Ok(Arc::clone(&self.table.get(bucket)?.values))
    }
}
