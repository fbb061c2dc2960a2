//! `agent-host:model`: requests to the agent's model, through the port that the runtime implements and within a granted
//! budget (P5).

mod bindings;
mod host;
mod linker;

pub(crate) use linker::{add_inert_to_linker, add_to_linker};

use super::CapabilityView;
use crate::ports::model::ModelPort;
use std::sync::Arc;

/// The model capability of one call.
pub(crate) struct ModelState {
    /// The port to the agent's model. `None` means that the call cannot send requests to a model.
    port: Option<Arc<dyn ModelPort>>,
}

type ModelView<'a> = CapabilityView<'a, ModelState>;

impl ModelState {
    pub(crate) fn new(port: Option<Arc<dyn ModelPort>>) -> Self {
        Self { port }
    }
}
