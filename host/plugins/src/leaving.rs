//! Paths that lead out of a granted tree, mostly by a symbolic link: WASI refuses them with the word that it has for writing
//! where only reading is granted, and no grant of the tree would help.

use crate::grants::left_tree;
use crate::opening::{Answer, FILESYSTEM, SHOWN};
use crate::state::CallState;
use crate::text::clean;
use wasmtime::component::{Linker, Resource};
use wasmtime::{Result, StoreContextMut};
use wasmtime_wasi::filesystem::{Descriptor, WasiFilesystemView};
use wasmtime_wasi::p2::bindings::filesystem::types::{DescriptorStat, ErrorCode, HostDescriptor, PathFlags};

/// What a guest gives to `stat-at`.
type Looking = (Resource<Descriptor>, PathFlags, String);

/// Puts the note before WASI's own function.
pub(crate) fn add_to_linker(linker: &mut Linker<CallState>) -> Result<()> {
    linker.instance(FILESYSTEM)?.func_wrap_async(
        "[method]descriptor.stat-at",
        |mut store: StoreContextMut<'_, CallState>, (directory, flags, path): Looking| {
            Box::new(async move { Ok((look(store.data_mut(), (directory, flags, path)).await?,)) })
        },
    )
}

async fn look(state: &mut CallState, (directory, flags, path): Looking) -> Result<Answer<DescriptorStat>> {
    let refused = match state.filesystem().stat_at(directory, flags, path.clone()).await {
        Ok(found) => return Ok(Ok(found)),
        Err(error) => error.downcast()?,
    };
    if matches!(refused, ErrorCode::NotPermitted) {
        state.deny_leaving(&path);
    }
    Ok(Err(refused))
}

impl CallState {
    /// Nothing of the tree itself is missing.
    pub(crate) fn deny_leaving(&self, path: &str) {
        let (thing, advice) = left_tree(&self.record.plugin.name, &clean(path, SHOWN));
        self.record.deny(thing, advice);
    }
}
