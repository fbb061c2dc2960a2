//! Reads the records of a commit in their order, and builds the spans of the plugins that build and mask the prompt.

use super::commits::StoredCommit;
use super::model_calls::ModelCallRecords;
use super::record_bodies::{PluginCall, body_of};
use super::turn::{Parent, TurnWalk};
use crate::conventions::host;
use crate::conventions::open_inference::kind;
use crate::span::SpanStatus;
use agent_core::trace::SpanKey;
use agent_store::StoredRecord;
use serde::Deserialize;

impl<'d> TurnWalk<'d> {
    /// Adds the spans that the records of a commit describe.
    pub(super) fn add_records(&mut self, commit: &StoredCommit<'d>) {
        let mut model_call = ModelCallRecords::default();
        for record in commit.records.iter().copied() {
            match record.record.kind.as_str() {
                "embedding" => self.add_embedding(record),
                "context" => self.add_context(record),
                "step_context" => self.add_plugin_call(record, "build step context"),
                "media_policy" => self.add_plugin_call(record, "apply media policy"),
                "prompt" => model_call.prompt = Some(record),
                "plan_prompt" => model_call.plan = Some(record),
                "reply" => model_call.reply = Some(record),
                "summary" => self.add_summary(record),
                "verdict" => self.add_verdict(record),
                "host_model" => self.add_question(record),
                "host_answers" => self.add_host_answers(record),
                "service_request" => self.add_service_request(record),
                "service_answer" => self.add_service_answer(record),
                _ => {}
            }
        }
        self.add_model_call(&model_call, commit);
    }

    /// Adds the span of the context builder that ran at the beginning of the turn.
    fn add_context(&mut self, record: &'d StoredRecord) {
        let builder = &record.record.body["builder"];
        if let Ok(call) = PluginCall::deserialize(builder) {
            self.add_call((Some(SpanKey::Context), None), (record.number, "build context"), &call);
        }
    }

    fn add_plugin_call(&mut self, record: &'d StoredRecord, name: &str) {
        let Some(call) = body_of::<PluginCall>(record) else { return };
        let parent = self.in_step(record.record.step);
        self.add_call((Some(SpanKey::Record(record.number, 0)), parent), (record.number, name), &call);
    }

    fn add_call(&mut self, key: (Parent<'_>, Parent<'_>), (record, name): (u64, &str), call: &PluginCall) {
        let span = self.span(key, kind::CHAIN, format!("{name} {}", call.plugin));
        let end = self.boundary.saturating_add(call.cost.wall_us.saturating_mul(1_000)).min(self.now);
        let mut span = Self::timed(span, self.boundary, end);
        span.set(host::PLUGIN, self.data.scrubber.label(&call.plugin));
        span.status = SpanStatus::Ok;
        let mut writer = self.writer(&mut span);
        let mut answer = call.answer.clone();
        // The state consists of bytes that only the plugin can read.
        if let Some(fields) = answer.as_object_mut() {
            fields.shift_remove("state");
        }
        writer.output(answer.to_string());
        writer.finish();
        let (start, end) = (span.start, span.end);
        self.spans.push(span);
        self.add_host_calls((record, start), key.0, &call.host.answers);
        // What follows in the same commit began when the plugin had answered.
        self.boundary = end;
    }
}
