//! OTLP over HTTP: the messages of the protocol, and the collector that receives them.

mod collector;
mod encoding;

pub use collector::{Collector, CollectorConfig, InvalidCollector, SendError};
pub use encoding::request_of;
