//! Spans of checks: output validators, the output schema, and the approvals of users. Their kind is GUARDRAIL.

use super::record_bodies::{VerdictBody, body_of};
use super::turn::TurnWalk;
use crate::conventions::host;
use crate::conventions::open_inference::kind;
use crate::span::{SpanStatus, Value};
use agent_core::event::{Event, EventKind};
use agent_core::plugin::Verdict;
use agent_core::tool::Violation;
use agent_core::trace::SpanKey;
use agent_store::StoredRecord;
use serde_json::json;

impl<'d> TurnWalk<'d> {
    /// Adds the span of an output validator. Validators run one after the other.
    pub(super) fn add_verdict(&mut self, record: &'d StoredRecord) {
        let Some(body) = body_of::<VerdictBody>(record) else { return };
        let parent = self.in_step(record.record.step);
        let key = (Some(SpanKey::Record(record.number, 0)), parent);
        let span = self.span(key, kind::GUARDRAIL, format!("validate {}", body.plugin));
        let end = self.boundary.saturating_add(body.cost.wall_us.saturating_mul(1_000)).min(self.now);
        let mut span = Self::timed(span, self.boundary, end);
        self.boundary = span.end;
        span.set(host::PLUGIN, self.data.scrubber.label(&body.plugin));
        let (verdict, problems) = match &body.answer {
            Verdict::Accept => ("accepted", None),
            Verdict::AcceptAs(_) => ("changed", None),
            Verdict::Reject(problems) => ("rejected", Some(described(problems))),
        };
        span.set(host::VERDICT, verdict);
        span.status = problems.as_ref().map_or(SpanStatus::Ok, |problems| self.failed(problems.clone()));
        let mut writer = self.writer(&mut span);
        writer.output(problems.unwrap_or_else(|| verdict.to_owned()));
        if let Some(text) = body.asked["text"].as_str() {
            writer.input(text);
        }
        writer.finish();
        self.spans.push(span);
    }

    /// Handles an event about a check.
    pub(super) fn add_check_event(&mut self, event: &'d Event) {
        match &event.kind {
            EventKind::OutputRejected { by, problems, .. } if !self.has_span_of_validator(by) => {
                let key = (Some(SpanKey::Event(event.sequence)), self.in_current_step());
                let mut span = self.span(key, kind::GUARDRAIL, format!("validate {by}"));
                span.set(host::VERDICT, "rejected");
                span.status = self.failed(described(problems));
                self.spans.push(span);
            }
            EventKind::ApprovalRequested { calls, .. } => {
                let requested = calls.iter().map(|item| (&item.call, (event.sequence, self.now, item.name.as_str())));
                self.approvals.extend(requested.collect::<Vec<_>>());
            }
            EventKind::ApprovalResolved { call, verdict, .. } => {
                if let Some(request) = self.approvals.remove(call) {
                    let verdict = json!(verdict).as_str().unwrap_or_default().to_owned();
                    self.end_approval(call, request, &verdict);
                }
            }
            _ => {}
        }
    }

    /// Ends the approvals that nobody has decided about when the turn ends.
    pub(super) fn end_approvals(&mut self) {
        for (call, request) in std::mem::take(&mut self.approvals) {
            self.end_approval(call, request, "undecided");
        }
    }

    fn end_approval(
        &mut self,
        call: &agent_core::message::CallId,
        (requested, start, name): (u64, u64, &str),
        verdict: &str,
    ) {
        let key = (Some(SpanKey::Approval(call, requested)), self.in_current_step());
        let span = self.span(key, kind::GUARDRAIL, format!("approve {name}"));
        let mut span = Self::timed(span, start, self.now);
        span.set(host::NAME, self.data.scrubber.label(name));
        span.set(host::VERDICT, Value::from(verdict));
        span.status = match verdict {
            "once" | "session" | "always" => SpanStatus::Ok,
            "undecided" => SpanStatus::Unset,
            _ => self.failed(format!("the call was not approved: {verdict}")),
        };
        self.spans.push(span);
    }

    /// Whether the current commit contains the span of the validator that rejected the output.
    fn has_span_of_validator(&self, by: &str) -> bool {
        let by = Value::Text(self.data.scrubber.label(by));
        self.spans.iter().any(|span| span.attributes.iter().any(|(name, value)| name == host::PLUGIN && *value == by))
    }
}

fn described(problems: &[Violation]) -> String {
    let lines = problems.iter().map(|problem| match problem.pointer.as_str() {
        "" => problem.message.clone(),
        pointer => format!("{pointer}: {}", problem.message),
    });
    lines.collect::<Vec<_>>().join("\n")
}
