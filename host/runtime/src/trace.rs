//! W3C trace context: one trace a turn, one span a call.

use agent_core::plugin::TraceContext;
use uuid::Uuid;

/// A new trace. Sampled, since nothing here decides against it.
pub(crate) fn root() -> TraceContext {
    TraceContext { traceparent: format!("00-{}-{}-01", Uuid::new_v4().simple(), span()), tracestate: None }
}

/// A new span in the same trace.
pub(crate) fn child(parent: &TraceContext) -> TraceContext {
    let mut fields = parent.traceparent.split('-');
    let (version, trace) = (fields.next().unwrap_or("00"), fields.next().unwrap_or_default());
    let flags = fields.next_back().unwrap_or("01");
    TraceContext { traceparent: format!("{version}-{trace}-{}-{flags}", span()), tracestate: parent.tracestate.clone() }
}

fn span() -> String {
    let id = Uuid::new_v4().simple().to_string();
    id[..16].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p5_a_child_is_in_its_parents_trace() {
        let (parent, same) = (root(), root());
        let child = child(&parent);
        assert_eq!(child.traceparent.len(), "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".len());
        assert_eq!(child.traceparent[..36], parent.traceparent[..36]);
        assert_ne!(child, parent);
        assert_ne!(parent, same);
    }
}
