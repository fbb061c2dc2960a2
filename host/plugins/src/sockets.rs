//! Sockets and names: no grant gives them to a guest, and a guest that asks for them was denied them (P6, O3).

use crate::grants::GrantAdvice;
use crate::record::CallRecord;
use crate::state::CallState;
use crate::text::clean;
use wasmtime::component::{Linker, Resource};
use wasmtime::{Result, StoreContextMut};
use wasmtime_wasi::p2::bindings::sockets::ip_name_lookup::ResolveAddressStream;
use wasmtime_wasi::p2::bindings::sockets::network::{ErrorCode, IpAddressFamily, Network};
use wasmtime_wasi::p2::bindings::sockets::tcp::TcpSocket;
use wasmtime_wasi::p2::bindings::sockets::udp::UdpSocket;

/// Bytes of a name that a denial shows.
const SHOWN: usize = 128;

/// What a guest is answered.
type Answer<T> = std::result::Result<Resource<T>, ErrorCode>;

type Store<'a> = StoreContextMut<'a, CallState>;

/// Puts refusals in the place of WASI's own functions.
pub(crate) fn add_to_linker(linker: &mut Linker<CallState>) -> Result<()> {
    // As wasmtime-wasi names them.
    linker.instance("wasi:sockets/tcp-create-socket@0.2.12")?.func_wrap(
        "create-tcp-socket",
        |store: Store<'_>, (_,): (IpAddressFamily,)| {
            store.data().record.deny_network("opening a TCP connection");
            Ok((Answer::<TcpSocket>::Err(ErrorCode::AccessDenied),))
        },
    )?;
    linker.instance("wasi:sockets/udp-create-socket@0.2.12")?.func_wrap(
        "create-udp-socket",
        |store: Store<'_>, (_,): (IpAddressFamily,)| {
            store.data().record.deny_network("opening a UDP socket");
            Ok((Answer::<UdpSocket>::Err(ErrorCode::AccessDenied),))
        },
    )?;
    linker.instance("wasi:sockets/ip-name-lookup@0.2.12")?.func_wrap(
        "resolve-addresses",
        |store: Store<'_>, (_, name): (Resource<Network>, String)| {
            store.data().record.deny_network(&format!("looking up the address of {:?}", clean(&name, SHOWN)));
            Ok((Answer::<ResolveAddressStream>::Err(ErrorCode::PermanentResolverFailure),))
        },
    )
}

impl CallRecord {
    fn deny_network(&self, what: &str) {
        self.deny(format!("{what}: plugins reach the network by `wasi:http` only"), GrantAdvice::none());
    }
}
