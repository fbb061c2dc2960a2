//! OTLP over HTTP: the messages of the protocol, and the collector that receives them.

mod collector;
mod encoding;
mod metrics;

pub use collector::{Collector, CollectorConfig, InvalidCollector, SendError};
pub use encoding::request_of;
pub(crate) use metrics::{ExportTimes, metrics_request};
