//! Ids of traces and spans (O1). The ids are computed from the session and the turn, and from the part of the turn that
//! a span describes. Every process that reads the stored session computes the same ids, so that a restart or another
//! worker never exports a part of a turn under a second id.

use crate::message::CallId;
use crate::plugin::TraceContext;
use sha2::{Digest as _, Sha256};
use std::fmt;

/// Maximum size of a trace state in bytes, according to the W3C recommendation.
const MAX_TRACE_STATE_BYTES: usize = 512;
/// Number of hexadecimal digits of a trace id and of a span id.
const TRACE_ID_DIGITS: usize = 32;
const SPAN_ID_DIGITS: usize = 16;

/// The part of a turn that a span describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKey<'k> {
    /// The call of the context builder at the beginning of the turn.
    Context,
    /// A step of the turn, by its number.
    Step(u32),
    /// A tool call with all of its attempts.
    Call(&'k CallId),
    /// The approval of a tool call, by the number of the event that requested it.
    Approval(&'k CallId, u64),
    /// The part of the turn that a durable event describes, by the number of the event.
    Event(u64),
    /// The part of the turn that a step record describes, by the number of the record. If a record describes several
    /// parts, they are numbered in the order of the record.
    Record(u64, usize),
}

impl fmt::Display for SpanKey<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Context => formatter.write_str("context"),
            Self::Step(step) => write!(formatter, "step {step}"),
            Self::Call(call) => write!(formatter, "call {call}"),
            Self::Approval(call, event) => write!(formatter, "approval {event} {call}"),
            Self::Event(event) => write!(formatter, "event {event}"),
            Self::Record(record, part) => write!(formatter, "record {record} {part}"),
        }
    }
}

/// Identifies a turn, for the ids of its trace and of its spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnName<'n> {
    /// Subject of the session.
    pub session: &'n str,
    /// The suffix that makes the ids of the session unique (see [`crate::run::Run::id_ending`]).
    pub id_ending: &'n str,
    /// Number of the turn in its session, starting at 1.
    pub turn: u32,
}

impl TraceContext {
    /// Returns the trace context of a turn, whose span describes the whole turn. With a `parent`, such as the trace
    /// context of the event that contains the turn's input, the turn belongs to the parent's trace. Otherwise the turn has
    /// a trace of its own, which is sampled. A parent that is not valid is ignored.
    pub fn of_turn(name: TurnName<'_>, parent: Option<&TraceContext>) -> Self {
        let TurnName { session, id_ending, turn } = name;
        let turn = format!("turn {turn}");
        let id = |purpose: &str, digits: usize| hex_digits(&[purpose, session, id_ending, &turn], digits);
        let span = id("span", SPAN_ID_DIGITS);
        match parent.filter(|parent| parent.is_valid()) {
            Some(parent) => parent.with_span(&span),
            None => {
                let trace = id("trace", TRACE_ID_DIGITS);
                Self { traceparent: format!("00-{trace}-{span}-01"), tracestate: None }
            }
        }
    }

    /// Returns the trace context of a part of a turn. `self` is the trace context of the turn.
    #[must_use]
    pub fn part(&self, key: SpanKey<'_>) -> Self {
        self.with_span(&hex_digits(&["part", &self.traceparent, &key.to_string()], SPAN_ID_DIGITS))
    }

    /// Whether the trace context is valid according to the W3C recommendation. `traceparent` must have the form
    /// `00-<32 hex>-<16 hex>-<2 hex>`, and neither of its two ids may consist only of zeros.
    pub fn is_valid(&self) -> bool {
        let fields: Vec<&str> = self.traceparent.split('-').collect();
        let is_hex = |text: &str, length: usize| {
            text.len() == length && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
        };
        let [version, id, span, flags] = fields.as_slice() else { return false };
        let is_set = |text: &str| text.bytes().any(|byte| byte != b'0');
        let state = self.tracestate.as_ref();
        *version == "00"
            && is_hex(id, TRACE_ID_DIGITS)
            && is_set(id)
            && is_hex(span, SPAN_ID_DIGITS)
            && is_set(span)
            && is_hex(flags, 2)
            && state.is_none_or(|state| {
                state.len() <= MAX_TRACE_STATE_BYTES && state.bytes().all(|byte| (b' '..=b'~').contains(&byte))
            })
    }

    /// The id of the trace. `None` if the trace context is not valid.
    pub fn trace_id(&self) -> Option<[u8; 16]> {
        self.field(1).and_then(|id| hex::decode(id).ok()?.try_into().ok())
    }

    /// The id of the span. `None` if the trace context is not valid.
    pub fn span_id(&self) -> Option<[u8; 8]> {
        self.field(2).and_then(|id| hex::decode(id).ok()?.try_into().ok())
    }

    fn field(&self, index: usize) -> Option<&str> {
        self.traceparent.split('-').nth(index).filter(|_| self.is_valid())
    }

    fn with_span(&self, span: &str) -> Self {
        let mut fields = self.traceparent.split('-');
        let (version, trace) = (fields.next().unwrap_or("00"), fields.next().unwrap_or_default());
        let flags = fields.next_back().unwrap_or("01");
        let tracestate = self.tracestate.clone();
        Self { traceparent: format!("{version}-{trace}-{span}-{flags}"), tracestate }
    }
}

/// Returns the first hexadecimal digits of the hash of these texts. The digits are never all zero.
fn hex_digits(texts: &[&str], digits: usize) -> String {
    let mut hash = Sha256::new();
    for text in texts {
        // The length separates the texts from each other.
        hash.update(text.len().to_le_bytes());
        hash.update(text.as_bytes());
    }
    let mut id = hex::encode(hash.finalize());
    id.truncate(digits);
    if id.bytes().all(|digit| digit == b'0') {
        id.replace_range(digits - 1.., "1");
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn context(traceparent: &str, state: Option<&str>) -> TraceContext {
        TraceContext { traceparent: traceparent.to_owned(), tracestate: state.map(str::to_owned) }
    }

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

    // O1: a turn belongs to the trace of a valid parent, and keeps the parent's flags and state.
    #[test]
    fn o1_a_turn_continues_its_parents_trace() {
        let name = TurnName { session: "a/1", id_ending: "0123456789ab", turn: 2 };
        let (parent, own) = (context(PARENT, Some("v=1")), TraceContext::of_turn(name, None));
        let turn = TraceContext::of_turn(name, Some(&parent));
        assert_eq!((turn.trace_id(), turn.tracestate.as_deref()), (parent.trace_id(), Some("v=1")));
        assert_eq!(turn.span_id(), own.span_id());
        assert!(turn.traceparent.ends_with("-00") && own.traceparent.ends_with("-01"), "{turn:?} {own:?}");
        assert_ne!(own.trace_id(), parent.trace_id());
        let forged = context("00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", None);
        assert_eq!(TraceContext::of_turn(name, Some(&forged)), own, "an invalid parent is ignored");
    }

    // Row 38: an invalid trace context is recognised, so that the host can replace it with a new one.
    #[test]
    fn row_38_an_invalid_trace_context_is_recognised() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert!(context(good, None).is_valid() && context(good, Some("a=b")).is_valid());
        let zeros = "00-00000000000000000000000000000000-00f067aa0ba902b7-01";
        let long = "x".repeat(513);
        for invalid in ["", "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", zeros, "00-1-2-3", &good[..54]] {
            assert!(!context(invalid, None).is_valid(), "{invalid}");
            assert_eq!(context(invalid, None).span_id(), None);
        }
        for state in ["a\r\nb", long.as_str(), "ä"] {
            assert!(!context(good, Some(state)).is_valid(), "{state:?}");
        }
    }

    proptest! {
        // O1: ids are valid, depend on every part of their names, and do not change from one computation to the next.
        #[test]
        fn o1_ids_are_valid_and_unique(session in "\\PC{0,20}", ending in "[0-9a-f]{0,12}", turn: u32, number: u64) {
            let name = TurnName { session: &session, id_ending: &ending, turn };
            let trace = TraceContext::of_turn(name, None);
            prop_assert!(trace.is_valid());
            prop_assert_eq!(&trace, &TraceContext::of_turn(name, None));
            let other_session = format!("{session}x");
            let others = [
                TurnName { turn: turn.wrapping_add(1), ..name },
                TurnName { session: &other_session, ..name },
                TurnName { id_ending: "x", ..name },
            ];
            for other in others {
                let other = TraceContext::of_turn(other, None);
                prop_assert_ne!(trace.trace_id(), other.trace_id());
                prop_assert_ne!(trace.span_id(), other.span_id());
            }
            let call = CallId(format!("call_{number}"));
            let keys = [
                SpanKey::Context,
                SpanKey::Step(turn),
                SpanKey::Call(&call),
                SpanKey::Approval(&call, number),
                SpanKey::Event(number),
                SpanKey::Record(number, 0),
                SpanKey::Record(number, 1),
            ];
            let mut ids: Vec<_> = keys.iter().map(|key| trace.part(*key).span_id()).collect();
            ids.push(trace.span_id());
            prop_assert!(ids.iter().all(Option::is_some));
            ids.sort();
            ids.dedup();
            prop_assert_eq!(ids.len(), keys.len() + 1);
            prop_assert!(keys.iter().all(|key| trace.part(*key).trace_id() == trace.trace_id()));
        }
    }
}
