//! Traces of turns (O1) and metrics of a process (O2). Spans are built from the committed events and step records of a session, and never from the live
//! state of the host. They are sent to a collector with OTLP over HTTP.
//!
//! - `span` describes a span, and `conventions` lists the names of its attributes.
//! - [`SessionTrace`] reads the turns of a stored session and builds their spans with the folder `derive`.
//! - [`TraceExporter`] follows the sessions of a store and sends their spans. The store keeps how far each session was
//!   exported, so the session log itself is the queue of the export (decision 0095).
//! - [`Metrics`] counts what happens in a process, and [`MetricsExporter`] sends the counts.

mod content;
mod conventions;
mod derive;
mod exporter;
mod metrics;
mod otlp;
mod session_trace;
mod span;

pub use content::{ContentLevel, InvalidPattern, Scrubber};
pub use exporter::{AgentGroup, ExporterOptions, SpansLeft, TraceExporter};
pub use metrics::{
    GuestReading, Metrics, MetricsExporter, ModelCallOutcome, OutboxReading, PluginCall, ReadingSource, Readings,
    StoreReading, VersionChangeKind,
};
pub use otlp::{Collector, CollectorConfig, InvalidCollector, SendError, request_of};
pub use session_trace::SessionTrace;
pub use span::{Attribute, CommitSpans, Span, SpanEvent, SpanKind, SpanStatus, Value};
