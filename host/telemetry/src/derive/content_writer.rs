//! Adds content to a span, up to the maximum size of a span.

use crate::content::Scrubber;
use crate::conventions::{host, open_inference};
use crate::span::Span;
use serde_json::Value;
use std::borrow::Cow;

const TEXT: &str = "text/plain";
const JSON: &str = "application/json";

/// Adds content to a span. Content that does not fit is left out and counted.
pub(super) struct ContentWriter<'w> {
    scrubber: &'w Scrubber,
    span: &'w mut Span,
    left: usize,
    omitted: u64,
}

impl<'w> ContentWriter<'w> {
    pub(super) fn new(scrubber: &'w Scrubber, span: &'w mut Span) -> Self {
        Self { scrubber, span, left: scrubber.level().span_bytes(), omitted: 0 }
    }

    /// Adds a text.
    pub(super) fn add(&mut self, name: impl Into<Cow<'static, str>>, text: impl Into<String>) {
        let Some(text) = self.scrubber.content(text) else { return };
        match self.left.checked_sub(text.len()) {
            Some(left) => {
                self.left = left;
                self.span.set(name, text);
            }
            None => self.omitted += 1,
        }
    }

    /// Adds a name, which is exported even if no content is.
    pub(super) fn label(&mut self, name: impl Into<Cow<'static, str>>, text: impl Into<String>) {
        let text = self.scrubber.label(text);
        self.span.set(name, text);
    }

    pub(super) fn input(&mut self, text: impl Into<String>) {
        let text = text.into();
        self.typed((open_inference::INPUT, open_inference::INPUT_TYPE), text);
    }

    pub(super) fn output(&mut self, text: impl Into<String>) {
        let text = text.into();
        self.typed((open_inference::OUTPUT, open_inference::OUTPUT_TYPE), text);
    }

    fn typed(&mut self, (name, type_name): (&'static str, &'static str), text: String) {
        let is_json = serde_json::from_str::<Value>(&text).is_ok_and(|value| value.is_object() || value.is_array());
        self.add(name, text);
        if self.span.attributes.iter().any(|(existing, _)| existing == name) {
            self.span.set(type_name, if is_json { JSON } else { TEXT });
        }
    }

    /// Adds the number of texts that were left out.
    pub(super) fn finish(self) {
        if self.omitted > 0 {
            self.span.set(host::CONTENT_OMITTED, crate::span::Value::count(self.omitted));
        }
    }
}
