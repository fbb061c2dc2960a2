//! NATS for the processes of a fleet (F1, F2): announcements on a JetStream work queue, dead letters, streamed text, and events
//! from and to other systems. No other crate contains the protocol of NATS.
//!
//! Nothing here decides what is stored. A message may be lost, doubled, reordered or forged: whoever receives a message reads the
//! store, and a message can only make this happen sooner.
//!
//! Each module imports only modules that come before it in this list: `subjects`, `error`, `credentials`, `address`, `key`, `connection`,
//! `streams`, `puller`, `dead_letters`, `hints`, `live`, `work_queue`, `events`.

mod address;
mod client_certificate;
mod connection;
mod credentials;
mod dead_letters;
mod error;
mod events;
mod hints;
mod key;
mod live;
mod puller;
mod streams;
mod subjects;
mod work_queue;

pub use address::NatsAddress;
pub use connection::Nats;
pub use credentials::ReadFile;
pub use dead_letters::{DeadLetter, DeadLetterKind, EventOrigin, MAX_DEAD_LETTERS};
pub use error::FleetError;
pub use events::{EventSource, IncomingEvent, IncomingEvents, subject_problem};
pub use hints::{Hint, Hints};
pub use key::FleetKey;
pub use live::{LiveMessage, LiveMessages, MAX_LIVE_BYTES};
pub use work_queue::{MAX_DELIVERIES, Work, WorkQueue};
