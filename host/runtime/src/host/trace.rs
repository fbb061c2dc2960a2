//! Creates and checks W3C trace contexts. Each turn has a trace, and each call in the turn has a span in this trace.

use agent_core::plugin::TraceContext;
use uuid::Uuid;

/// Maximum size of a trace state in bytes, according to the W3C recommendation.
const MAX_TRACE_STATE_BYTES: usize = 512;

/// Creates a new trace. The trace is marked as sampled, because the host samples every trace.
pub(crate) fn root() -> TraceContext {
    TraceContext { traceparent: format!("00-{}-{}-01", Uuid::new_v4().simple(), new_span_id()), tracestate: None }
}

/// Creates a new span that belongs to the same trace as `parent`.
pub(crate) fn child(parent: &TraceContext) -> TraceContext {
    let mut fields = parent.traceparent.split('-');
    let (version, trace) = (fields.next().unwrap_or("00"), fields.next().unwrap_or_default());
    let flags = fields.next_back().unwrap_or("01");
    TraceContext {
        traceparent: format!("{version}-{trace}-{}-{flags}", new_span_id()),
        tracestate: parent.tracestate.clone(),
    }
}

/// Returns whether a trace context is valid according to the W3C recommendation. `traceparent` must have the form
/// `00-<32 hex>-<16 hex>-<2 hex>`, and neither of its two ids may consist only of zeros.
pub(crate) fn is_trace(trace: &TraceContext) -> bool {
    let fields: Vec<&str> = trace.traceparent.split('-').collect();
    let is_hex = |text: &str, length: usize| {
        text.len() == length && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    };
    let [version, id, span, flags] = fields.as_slice() else { return false };
    let is_set = |text: &str| text.bytes().any(|byte| byte != b'0');
    let state = trace.tracestate.as_ref();
    *version == "00"
        && is_hex(id, 32)
        && is_set(id)
        && is_hex(span, 16)
        && is_set(span)
        && is_hex(flags, 2)
        && state.is_none_or(|state| {
            state.len() <= MAX_TRACE_STATE_BYTES && state.bytes().all(|byte| (b' '..=b'~').contains(&byte))
        })
}

fn new_span_id() -> String {
    let id = Uuid::new_v4().simple().to_string();
    id[..16].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p5_a_child_span_is_in_its_parents_trace() {
        let (parent, same) = (root(), root());
        let child = child(&parent);
        assert_eq!(child.traceparent.len(), "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".len());
        assert_eq!(child.traceparent[..36], parent.traceparent[..36]);
        assert_ne!(child, parent);
        assert_ne!(parent, same);
    }

    // Row 38: an invalid trace context is recognised, so that the host can replace it with a new one.
    #[test]
    fn row_38_an_invalid_trace_context_is_recognised() {
        let trace = |parent: &str, state: Option<&str>| TraceContext {
            traceparent: parent.to_owned(),
            tracestate: state.map(str::to_owned),
        };
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert!(is_trace(&trace(good, None)) && is_trace(&trace(good, Some("a=b"))) && is_trace(&root()));
        let zeros = "00-00000000000000000000000000000000-00f067aa0ba902b7-01";
        let long = "x".repeat(513);
        for invalid in ["", "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", zeros, "00-1-2-3", &good[..54]] {
            assert!(!is_trace(&trace(invalid, None)), "{invalid}");
        }
        for state in ["a\r\nb", long.as_str(), "ä"] {
            assert!(!is_trace(&trace(good, Some(state))), "{state:?}");
        }
    }
}
