//! The preopened directories of a guest. The WASI function that lists preopened directories cannot return an error, not
//! even to a guest without granted directories. The host therefore records that a guest without granted directories
//! has called the function.

use super::HasFiles;
use std::sync::Arc;
use wasmtime::component::Linker;
use wasmtime::{Result, StoreContextMut};
use wasmtime_wasi::filesystem::Descriptor;

pub(super) fn add_to_linker<T: HasFiles>(linker: &mut Linker<T>) -> Result<()> {
    // wasmtime-wasi adds its interfaces to the linker with this version in their names.
    linker.instance("wasi:filesystem/preopens@0.2.12")?.func_wrap(
        "get-directories",
        |mut store: StoreContextMut<'_, T>, ()| {
            let mut view = store.data_mut().capability();
            if view.state.trees.is_empty() {
                view.call.record.missed_lookups.note_no_trees();
            }
            let (mut preopens, mut given) = (Vec::new(), Vec::new());
            for tree in view.state.trees.clone() {
                let descriptor = tree.descriptor()?;
                let Descriptor::Dir(directory) = &descriptor else { continue };
                let directory = Arc::clone(&directory.dir);
                let handle = view.push(descriptor)?;
                given.push((handle.rep(), directory));
                let guest = tree.guest().to_owned();
                view.state.handles.insert(handle.rep(), tree);
                preopens.push((handle, guest));
            }
            view.call.record.record_tree_handles(&given)?;
            Ok((preopens,))
        },
    )
}
