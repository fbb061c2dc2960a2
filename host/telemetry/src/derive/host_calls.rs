//! Spans of the host calls of a plugin: requests, stored values and files. The spans contain neither the bodies nor the
//! headers of requests, nor the contents of values and files.

use super::record_bodies::Timing;
use super::turn::{Parent, TurnWalk};
use crate::conventions::open_inference::kind;
use crate::conventions::{common, host};
use crate::span::{Span, SpanKind, SpanStatus, Value};
use agent_core::trace::SpanKey;
use serde::Deserialize;
use serde_json::Value as Json;
use url::Url;

/// Maximum number of host calls of one call of a plugin that become spans.
const MAX_HOST_CALLS: usize = 100;

impl TurnWalk<'_> {
    /// Adds a span for each recorded host call, up to the maximum. Returns the number of host calls that were left out.
    /// Only requests have recorded times. The spans of other host calls have no duration and are at `start`.
    pub(super) fn add_host_calls(&mut self, (record, start): (u64, u64), parent: Parent<'_>, log: &Json) -> usize {
        let answers = log["answers"].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut omitted = log["left_out"].as_u64().and_then(|count| usize::try_from(count).ok()).unwrap_or_default();
        let mut added = 0;
        for (index, answer) in answers.iter().enumerate() {
            let key = (Some(SpanKey::Record(record, index + 1)), parent);
            let Some(span) = self.host_call(key, start, answer) else { continue };
            if added < MAX_HOST_CALLS {
                self.spans.push(span);
                added += 1;
            } else {
                omitted += 1;
            }
        }
        omitted
    }

    fn host_call(&self, key: (Parent<'_>, Parent<'_>), start: u64, answer: &Json) -> Option<Span> {
        let name = match answer["of"].as_str()? {
            "request" => return Some(self.request(key, start, answer)),
            "value" => "values get",
            "wrote" => "values set",
            "keys" => "values list",
            "no_values" => "values denied",
            "file" => "file read",
            "left_file" => "file write",
            // The clock, random numbers and the list of granted directories are not interesting for a trace.
            _ => return None,
        };
        let mut span = Self::timed(self.span(key, kind::CHAIN, name.to_owned()), start, start);
        span.status = if name == "values denied" { self.failed("not granted") } else { SpanStatus::Ok };
        if let Some(tree) = answer["tree"].as_u64() {
            span.set(host::TREE, Value::count(tree));
        }
        for (name, field) in [(host::BUCKET, "bucket"), (host::KEY, "key"), (host::PATH, "path")] {
            let text = answer[field].as_str().filter(|text| !text.is_empty());
            span.set_if(name, text.and_then(|text| self.data.scrubber.content(text)));
        }
        Some(span)
    }

    fn request(&self, key: (Parent<'_>, Parent<'_>), start: u64, answer: &Json) -> Span {
        let method = answer["method"].as_str().unwrap_or("GET");
        let url: Option<Url> = answer["url"].as_str().and_then(|url| url.parse().ok());
        let server = url.as_ref().and_then(Url::host_str).unwrap_or("unknown");
        let span = self.span(key, kind::CHAIN, format!("{method} {server}"));
        let mut span = match Timing::deserialize(&answer["timing"]) {
            Ok(timing) => self.measured(span, timing),
            Err(_) => Self::timed(span, start, start),
        };
        span.kind = SpanKind::Client;
        span.set(common::METHOD, self.data.scrubber.label(method));
        span.set(common::SERVER, self.data.scrubber.label(server));
        span.set_if(common::URL, url.as_ref().and_then(|url| self.data.scrubber.content(url.as_str())));
        let outcome = &answer["answer"];
        match outcome["came"]["status"].as_u64() {
            Some(status) => {
                span.set(common::STATUS, Value::count(status));
                if status >= 400 {
                    span.set(common::ERROR_TYPE, status.to_string());
                    span.status = SpanStatus::Error { message: String::new() };
                }
            }
            // The response did not fit into the record, so that its status is not known.
            None if outcome == "too_large" => {}
            None => {
                span.set(common::ERROR_TYPE, "refused");
                span.status = self.failed(outcome["refused"].to_string());
            }
        }
        span
    }

    /// Sets the times of a recorded action. They come from another clock than the commits, and are moved into the time of
    /// the turn.
    pub(super) fn measured(&self, span: Span, timing: Timing) -> Span {
        let start = timing.started_us.saturating_mul(1_000).min(self.now);
        Self::timed(span, start, start.saturating_add(timing.took_us.saturating_mul(1_000)).min(self.now))
    }
}
