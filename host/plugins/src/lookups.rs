//! Where a guest looks for what it may have, and finds nothing: WASI has no word for "denied" there, so the host notes that
//! it looked. What the manifest asks for was denied then, however the call ends (P6, O3); what was only guessed from a component's
//! imports was denied to a call that fails.

use crate::failure::Refusal;
use crate::grants::Unmet;
use crate::record::CallRecord;
use crate::state::CallState;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use wasmtime::StoreContextMut;
use wasmtime::component::Linker;
use wasmtime_wasi::cli::WasiCliView;
use wasmtime_wasi::filesystem::Descriptor;
use wasmtime_wasi::p2::bindings::cli::environment::Host as _;

/// What one call has looked for in vain.
#[derive(Default)]
pub(crate) struct Lookups {
    trees: AtomicBool,
    environment: AtomicBool,
}

impl Lookups {
    fn looked_for(&self, unmet: &Unmet) -> bool {
        let looked = match unmet.thing.as_str() {
            "reading files" | "reading and writing files" => &self.trees,
            thing if thing.starts_with("the environment variable ") => &self.environment,
            _ => return false,
        };
        looked.load(Ordering::Relaxed)
    }
}

impl CallRecord {
    /// The guest says that it has failed: what it looked for and is not granted was denied to it. Where a request of it
    /// was stopped at a limit, that is why.
    pub(crate) fn failed(&self) -> Result<(), Refusal> {
        self.note_denials();
        self.request_limit().map_or(Ok(()), |limit| Err(Refusal::Limit(limit)))
    }

    /// The call has failed: what it looked for and is not granted was denied to it.
    pub(crate) fn note_denials(&self) {
        self.note_lookups(&self.unmet);
    }

    /// What the call looked for in vain, of these.
    pub(crate) fn note_lookups(&self, unmet: &[Unmet]) {
        for unmet in unmet.iter().filter(|unmet| self.lookups.looked_for(unmet)) {
            self.deny(unmet.thing.clone(), unmet.advice.clone());
        }
    }
}

/// Puts the notes before WASI's own functions.
pub(crate) fn add_to_linker(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    // As wasmtime-wasi names them.
    linker.instance("wasi:filesystem/preopens@0.2.12")?.func_wrap(
        "get-directories",
        |mut store: StoreContextMut<'_, CallState>, ()| {
            let state = store.data_mut();
            state.record.lookups.trees.fetch_or(state.trees.is_empty(), Ordering::Relaxed);
            let (mut found, mut given) = (Vec::new(), Vec::new());
            for tree in state.trees.clone() {
                let descriptor = tree.descriptor()?;
                let Descriptor::Dir(directory) = &descriptor else { continue };
                let directory = Arc::clone(&directory.dir);
                let handle = state.push(descriptor)?;
                given.push((handle.rep(), directory));
                let guest = tree.guest().to_owned();
                state.handles.insert(handle.rep(), tree);
                found.push((handle, guest));
            }
            state.record.gave_trees(&given)?;
            Ok((found,))
        },
    )?;
    linker.instance("wasi:cli/environment@0.2.12")?.func_wrap(
        "get-environment",
        |mut store: StoreContextMut<'_, CallState>, ()| {
            let state = store.data_mut();
            state.record.lookups.environment.store(true, Ordering::Relaxed);
            Ok((state.cli().get_environment()?,))
        },
    )
}
