//! Adds `wasi:logging` to a linker, under its name without a version and under the name with the version of the draft.

use super::bindings::wasi::logging::logging::{self, Level};
use crate::capabilities::{CallContext, HasCall};
use wasmtime::component::{HasSelf, Linker};
use wasmtime::{Result, StoreContextMut};

pub(crate) fn add_to_linker<T: HasCall>(linker: &mut Linker<T>) -> Result<()> {
    logging::add_to_linker::<T, HasSelf<CallContext>>(linker, T::call)?;
    linker.instance("wasi:logging/logging@0.1.0-draft")?.func_wrap(
        "log",
        |mut store: StoreContextMut<'_, T>, (level, context, message): (Level, String, String)| {
            store.data_mut().call().record.log_message(level.into(), &context, &message);
            Ok(())
        },
    )
}
