//! Divides the spans of a turn into requests. A request contains whole commits, because the position of the export is
//! between two commits.

use crate::span::{CommitSpans, Span, Value};

/// Estimated size of a span without its texts, and of an attribute without its value, in bytes.
const SPAN_BYTES: usize = 100;
const ATTRIBUTE_BYTES: usize = 40;

/// Returns how many of the first commits fit into one request. At least one commit fits.
pub(super) fn first_batch(commits: &[CommitSpans], (max_spans, max_bytes): (usize, usize)) -> usize {
    let (mut spans, mut bytes) = (0_usize, 0_usize);
    let fits = commits.iter().take_while(|commit| {
        spans += commit.spans.len();
        bytes += commit.spans.iter().map(size).sum::<usize>();
        spans <= max_spans && bytes <= max_bytes
    });
    fits.count().max(1).min(commits.len())
}

/// Estimates the size of an encoded span.
fn size(span: &Span) -> usize {
    let attributes = span.events.iter().flat_map(|event| &event.attributes).chain(&span.attributes);
    let values = attributes.map(|(name, value)| {
        let value = match value {
            Value::Text(text) => text.len(),
            Value::Texts(texts) => texts.iter().map(|text| text.len() + ATTRIBUTE_BYTES).sum(),
            Value::Number(_) | Value::Fraction(_) | Value::Flag(_) => 0,
        };
        ATTRIBUTE_BYTES + name.len() + value
    });
    SPAN_BYTES + span.name.len() + values.sum::<usize>()
}
