//! A span: one part of a turn, with its time and its attributes. The spans of a session are grouped by the commits that
//! complete them.

use agent_store::ExportPosition;
use std::borrow::Cow;

/// The spans that one commit completes.
#[derive(Clone, Debug, PartialEq)]
pub struct CommitSpans {
    /// The position after the commit.
    pub position: ExportPosition,
    /// Time of the commit in nanoseconds since the Unix epoch.
    pub time: u64,
    /// The spans. Their parents may be completed by later commits.
    pub spans: Vec<Span>,
}

/// One part of a turn, such as a model call or a tool call. All texts are already redacted.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Id of the trace.
    pub trace_id: [u8; 16],
    /// Id of the span.
    pub span_id: [u8; 8],
    /// Id of the span to which this span belongs. `None` if the span begins the trace.
    pub parent: Option<[u8; 8]>,
    /// Whether the parent belongs to another program, or to another session.
    pub has_remote_parent: bool,
    /// The `tracestate` of the trace, or an empty text.
    pub trace_state: String,
    /// Name of the span, such as `chat gpt-4.1`.
    pub name: String,
    /// Kind of the span in OpenTelemetry. The kind in OpenInference is an attribute.
    pub kind: SpanKind,
    /// Beginning, in nanoseconds since the Unix epoch.
    pub start: u64,
    /// End, in nanoseconds since the Unix epoch. It is never before the beginning.
    pub end: u64,
    /// The attributes in order. Each name occurs once.
    pub attributes: Vec<Attribute>,
    /// Events during the span, in order.
    pub events: Vec<SpanEvent>,
    /// Trace ids and span ids of related spans of other traces.
    pub links: Vec<([u8; 16], [u8; 8])>,
    /// Whether the part of the turn succeeded.
    pub status: SpanStatus,
}

/// An attribute: its name and its value.
pub type Attribute = (Cow<'static, str>, Value);

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A text.
    Text(String),
    /// A whole number.
    Number(i64),
    /// A number with a fraction.
    Fraction(f64),
    /// A boolean.
    Flag(bool),
    /// A list of texts.
    Texts(Vec<String>),
}

impl Value {
    /// Converts a count. A count above the largest number becomes the largest number.
    pub(crate) fn count(count: u64) -> Self {
        Self::Number(i64::try_from(count).unwrap_or(i64::MAX))
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// The kind of a span in OpenTelemetry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpanKind {
    /// Work inside the host.
    #[default]
    Internal,
    /// A request to another program, such as a model.
    Client,
    /// An event that is sent to another program, which answers later or not at all.
    Producer,
}

/// Something that happened at one moment of a span.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanEvent {
    /// Name of the event.
    pub name: &'static str,
    /// Time in nanoseconds since the Unix epoch.
    pub time: u64,
    /// The attributes in order.
    pub attributes: Vec<Attribute>,
}

/// Whether the part of a turn that a span describes has succeeded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SpanStatus {
    /// Neither success nor failure, for example because the turn was cancelled.
    #[default]
    Unset,
    /// The part succeeded.
    Ok,
    /// The part failed. The message is empty if content is not exported.
    Error {
        /// Why the part failed.
        message: String,
    },
}

impl Span {
    /// Adds an attribute, unless there is already an attribute with this name.
    pub(crate) fn set(&mut self, name: impl Into<Cow<'static, str>>, value: impl Into<Value>) {
        let name = name.into();
        if self.attributes.iter().all(|(existing, _)| *existing != name) {
            self.attributes.push((name, value.into()));
        }
    }

    /// Adds an attribute if the value is known.
    pub(crate) fn set_if(&mut self, name: impl Into<Cow<'static, str>>, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.set(name, value);
        }
    }
}
