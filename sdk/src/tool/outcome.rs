//! Constructors and methods of the results and errors of tools.

use super::{Content, Done, NewMedia, Outcome, ServiceRequest, ToolError, Unavailable, Violation};
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;

/// A value that the function of a tool may return: a finished result, a service request, a text, or `()`.
pub trait IntoOutcome {
    /// Converts the value to the outcome for the host.
    fn into_outcome(self) -> Outcome;
}

impl IntoOutcome for Outcome {
    fn into_outcome(self) -> Outcome {
        self
    }
}

impl IntoOutcome for Done {
    fn into_outcome(self) -> Outcome {
        Outcome::Done(self)
    }
}

impl IntoOutcome for ServiceRequest {
    fn into_outcome(self) -> Outcome {
        Outcome::Pending(self)
    }
}

impl IntoOutcome for String {
    fn into_outcome(self) -> Outcome {
        Outcome::Done(Done::text(self))
    }
}

impl IntoOutcome for &str {
    fn into_outcome(self) -> Outcome {
        Outcome::Done(Done::text(self))
    }
}

impl IntoOutcome for () {
    fn into_outcome(self) -> Outcome {
        Outcome::Done(Done::nothing())
    }
}

impl Done {
    /// Creates a successful result without content.
    pub fn nothing() -> Self {
        Self { content: Vec::new(), structured: None }
    }

    /// Creates a successful result with a text for the model.
    pub fn text(text: impl Into<String>) -> Self {
        Self::nothing().and_text(text)
    }

    /// Creates a successful result with JSON for the model. If the tool has an [`output`](super::ToolBuilder::output)
    /// type, the JSON is also the machine-readable result. This function fails only for values that JSON cannot
    /// express, such as maps whose keys are not strings.
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Result<Self, ToolError> {
        Ok(Self { content: vec![Content::Json(to_json(value)?)], structured: None })
    }

    /// Creates a successful result that consists of a machine-readable result and a text for the model.
    pub fn structured<T: Serialize + ?Sized>(value: &T, text: impl Into<String>) -> Result<Self, ToolError> {
        Ok(Self { content: vec![Content::Text(text.into())], structured: Some(to_json(value)?) })
    }

    /// Creates a successful result with a new media item of at most 4 MiB. For a larger media item, use
    /// [`crate::media::NewMedium`] and [`Done::stored`].
    pub fn media(bytes: Vec<u8>, mime_type: impl Into<String>, name: Option<&str>) -> Self {
        Self::nothing().and_media(bytes, mime_type, name)
    }

    /// Creates a successful result with a media item that is already stored in this session. The argument is the digest
    /// of the media item.
    pub fn stored(digest: impl Into<String>) -> Self {
        Self::nothing().and_stored(digest)
    }

    /// Adds a text for the model to the result.
    pub fn and_text(mut self, text: impl Into<String>) -> Self {
        self.content.push(Content::Text(text.into()));
        self
    }

    /// Adds a JSON value, which the model receives, to the result.
    pub fn and_json(mut self, value: &Value) -> Self {
        self.content.push(Content::Json(value.to_string()));
        self
    }

    /// Adds a new media item of at most 4 MiB to the result.
    pub fn and_media(mut self, data: Vec<u8>, mime_type: impl Into<String>, name: Option<&str>) -> Self {
        let name = name.map(str::to_owned);
        self.content.push(Content::NewMedia(NewMedia { mime_type: mime_type.into(), data, name }));
        self
    }

    /// Adds the stored media item with this digest to the result. The media item must already belong to this session,
    /// or this call must have written the media item with [`crate::media::NewMedium`].
    pub fn and_stored(mut self, digest: impl Into<String>) -> Self {
        self.content.push(Content::StoredMedia(digest.into()));
        self
    }

    /// Returns all texts and JSON texts of the result's content, joined with line breaks.
    pub fn texts(&self) -> String {
        let texts = self.content.iter().filter_map(|content| match content {
            Content::Text(text) | Content::Json(text) => Some(text.as_str()),
            Content::NewMedia(_) | Content::StoredMedia(_) => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }

    /// Returns the parsed machine-readable result. If the tool returned no machine-readable result, but its content is
    /// a single JSON value, returns this value. If there is neither, returns `None`.
    pub fn value(&self) -> Option<Value> {
        let text = self.structured.as_deref().or_else(|| self.only_json())?;
        serde_json::from_str(text).ok()
    }

    /// If there is no machine-readable result and the only content is JSON, the JSON becomes the
    /// machine-readable result.
    pub(super) fn use_only_json_as_structured(&mut self) {
        if self.structured.is_none() {
            self.structured = self.only_json().map(str::to_owned);
        }
    }

    fn only_json(&self) -> Option<&str> {
        match self.content.as_slice() {
            [Content::Json(text)] => Some(text),
            _ => None,
        }
    }
}

impl Outcome {
    /// Returns the finished result, or `None` if the call is pending.
    pub fn done(self) -> Option<Done> {
        match self {
            Self::Done(done) => Some(done),
            Self::Pending(_) => None,
        }
    }

    /// Returns the text of a finished result, as [`Done::texts`] does. The text is empty if the call is pending.
    pub fn texts(&self) -> String {
        match self {
            Self::Done(done) => done.texts(),
            Self::Pending(_) => String::new(),
        }
    }

    /// Returns the machine-readable result, as [`Done::value`] does, or `None` if the call is pending.
    pub fn value(&self) -> Option<Value> {
        match self {
            Self::Done(done) => done.value(),
            Self::Pending(_) => None,
        }
    }
}

impl ServiceRequest {
    /// Creates a request to an external service. The host emits a CloudEvent of this type with this data, and suspends
    /// the turn until the service answers.
    pub fn new(event_type: impl Into<String>, data: &Value) -> Self {
        Self {
            event_type: event_type.into(),
            data: data.to_string(),
            domain: None,
            answer_schema: None,
            answer_within: None,
        }
    }

    /// Sets the attribute `domain` of the event, which selects one of several services with the same event type.
    pub fn domain(mut self, domain: impl Into<String>) -> Self {
        self.domain = Some(domain.into());
        self
    }

    /// Requires that the data of the answer match the schema of `T`.
    pub fn answer<T: schemars::JsonSchema>(mut self) -> Self {
        self.answer_schema = Some(crate::schema::input::<T>().to_string());
        self
    }

    /// Sets the time limit for the answer of the service. If there is no answer within this time, the call fails
    /// with `unavailable`.
    pub fn within(mut self, time: Duration) -> Self {
        self.answer_within = Some(milliseconds(time));
        self
    }
}

impl ToolError {
    /// Creates an error for one invalid argument. `pointer` is a JSON pointer to the argument, for example
    /// `/rows/3/price`.
    pub fn invalid(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self::invalid_all([(pointer, message)])
    }

    /// Creates an error for several invalid arguments. Each pair is a JSON pointer and a message.
    pub fn invalid_all<P: Into<String>, M: Into<String>>(violations: impl IntoIterator<Item = (P, M)>) -> Self {
        let violations = violations.into_iter();
        let violation = |(pointer, message): (P, M)| Violation { pointer: pointer.into(), message: message.into() };
        Self::InvalidArguments(violations.map(violation).collect())
    }

    /// Creates an error for a call that refers to an object that does not exist, such as a missing file.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::NotFound(message.into())
    }

    /// Creates an error for a call that is not allowed. Such a call would fail again if it were repeated. The message
    /// should name the missing permission.
    pub fn denied(message: impl Into<String>) -> Self {
        Self::Denied(message.into())
    }

    /// Creates an error for a call that may succeed later. The host decides when to repeat the call.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::Unavailable(Unavailable { message: message.into(), retry_after: None })
    }

    /// Creates an error for a call that may succeed if it is repeated after this time.
    pub fn unavailable_for(message: impl Into<String>, time: Duration) -> Self {
        Self::Unavailable(Unavailable { message: message.into(), retry_after: Some(milliseconds(time)) })
    }

    /// Creates an error with a reason that no other constructor of this type covers.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed(message.into())
    }

    /// Returns all messages of the error as one text. The message about an invalid argument starts with the JSON
    /// pointer to the argument.
    pub fn message(&self) -> String {
        match self {
            Self::InvalidArguments(violations) => {
                let lines = violations.iter().map(|violation| match violation.pointer.as_str() {
                    "" => violation.message.clone(),
                    pointer => format!("{pointer}: {}", violation.message),
                });
                lines.collect::<Vec<_>>().join("\n")
            }
            Self::Unavailable(unavailable) => unavailable.message.clone(),
            Self::NotFound(message) | Self::Denied(message) | Self::Failed(message) => message.clone(),
        }
    }
}

impl From<std::io::Error> for ToolError {
    fn from(error: std::io::Error) -> Self {
        let message = error.to_string();
        match error.kind() {
            std::io::ErrorKind::NotFound => Self::NotFound(message),
            std::io::ErrorKind::PermissionDenied => Self::Denied(message),
            _ => Self::Failed(message),
        }
    }
}

impl From<crate::media::Error> for ToolError {
    fn from(error: crate::media::Error) -> Self {
        match error {
            crate::media::Error::NotFound => Self::NotFound(error.message()),
            _ => Self::Failed(error.message()),
        }
    }
}

impl From<crate::config::ConfigError> for ToolError {
    fn from(error: crate::config::ConfigError) -> Self {
        Self::Failed(error.to_string())
    }
}

fn to_json<T: Serialize + ?Sized>(value: &T) -> Result<String, ToolError> {
    serde_json::to_string(value)
        .map_err(|error| ToolError::failed(format!("the result cannot be written as JSON: {error}")))
}

fn milliseconds(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}
