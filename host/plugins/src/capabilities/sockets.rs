//! `wasi:sockets`: sockets and name lookup. No grant allows plugins to use sockets or name lookup, so the host refuses
//! every attempt and records it as a denial (P6, O3).

use super::HasCall;
use crate::grants::GrantAdvice;
use crate::text::clean;
use wasmtime::component::{Linker, Resource};
use wasmtime::{Result, StoreContextMut};
use wasmtime_wasi::p2::bindings::sockets::ip_name_lookup::ResolveAddressStream;
use wasmtime_wasi::p2::bindings::sockets::network::{ErrorCode, IpAddressFamily, Network};
use wasmtime_wasi::p2::bindings::sockets::tcp::TcpSocket;
use wasmtime_wasi::p2::bindings::sockets::udp::UdpSocket;

/// Maximum number of bytes of a host name that a denial quotes.
const SHOWN_NAME_BYTES: usize = 128;

/// The result that a host function returns to the guest.
type Answer<T> = std::result::Result<Resource<T>, ErrorCode>;

/// Replaces the functions of `wasi:sockets` with functions that record a denial and return an error.
pub(crate) fn add_to_linker<T: HasCall>(linker: &mut Linker<T>) -> Result<()> {
    // wasmtime-wasi adds its interfaces to the linker with this version in their names.
    linker.instance("wasi:sockets/tcp-create-socket@0.2.12")?.func_wrap(
        "create-tcp-socket",
        |mut store: StoreContextMut<'_, T>, (_,): (IpAddressFamily,)| {
            deny_network(store.data_mut(), "opening a TCP connection");
            Ok((Answer::<TcpSocket>::Err(ErrorCode::AccessDenied),))
        },
    )?;
    linker.instance("wasi:sockets/udp-create-socket@0.2.12")?.func_wrap(
        "create-udp-socket",
        |mut store: StoreContextMut<'_, T>, (_,): (IpAddressFamily,)| {
            deny_network(store.data_mut(), "opening a UDP socket");
            Ok((Answer::<UdpSocket>::Err(ErrorCode::AccessDenied),))
        },
    )?;
    linker.instance("wasi:sockets/ip-name-lookup@0.2.12")?.func_wrap(
        "resolve-addresses",
        |mut store: StoreContextMut<'_, T>, (_, name): (Resource<Network>, String)| {
            deny_network(store.data_mut(), &format!("looking up the address of {:?}", clean(&name, SHOWN_NAME_BYTES)));
            Ok((Answer::<ResolveAddressStream>::Err(ErrorCode::PermanentResolverFailure),))
        },
    )
}

fn deny_network<T: HasCall>(state: &mut T, what: &str) {
    let record = &state.call().record;
    record.deny(format!("{what}: plugins can use the network only through `wasi:http`"), GrantAdvice::none());
}
