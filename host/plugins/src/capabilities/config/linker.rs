//! Adds `wasi:config` to a linker under its current name and under the names of earlier drafts.

use super::bindings::wasi::config::store::{self, Error};
use crate::capabilities::{CallContext, HasCall};
use wasmtime::component::{HasSelf, Linker};
use wasmtime::{Result, StoreContextMut};

pub(crate) fn add_to_linker<T: HasCall>(linker: &mut Linker<T>) -> Result<()> {
    store::add_to_linker::<T, HasSelf<CallContext>>(linker, T::call)?;
    for name in ["wasi:config/store@0.2.0-draft", "wasi:config/runtime@0.2.0-draft"] {
        let mut interface = linker.instance(name)?;
        interface.func_wrap("get", |mut store: StoreContextMut<'_, T>, (key,): (String,)| {
            Ok((Ok::<_, Error>(store.data_mut().call().config_value(&key)),))
        })?;
        interface.func_wrap("get-all", |mut store: StoreContextMut<'_, T>, (): ()| {
            Ok((Ok::<_, Error>(store.data_mut().call().config_values()),))
        })?;
    }
    Ok(())
}
