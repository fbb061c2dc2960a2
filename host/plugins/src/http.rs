//! `wasi:http` (P6, P7): which requests a plugin may send, to which addresses, with which secrets, and how they are sent.
//! Each request is authorised by its URL; its connection goes to an address that was checked, not to a name.

mod address;
mod body;
mod connect;
mod exchange;
mod method_field;
mod outgoing;
mod pattern;
mod pool;
mod port;
mod rate;
mod request_rules;
mod secret;

pub(crate) use connect::Network;
pub use connect::{NameResolver, SystemResolver};
pub(crate) use outgoing::Outgoing;
pub(crate) use pattern::granted_by_both;
pub use pattern::{HttpPattern, PatternError, within};
pub use port::{HttpAnswer, HttpEnding, HttpPort, HttpQuestion, HttpRefusal};
pub use secret::{GivenTo, KnownSecrets, Secret, SecretError, SecretTemplate};
