//! Data that is committed together with a change to the session, but is not a part of the change (D1).

use super::StepRecordBody;
use agent_core::change::Denial;
use agent_core::message::CallId;
use agent_core::run::Run;
use agent_core::tool::ServiceRequest;
use agent_plugins::HostCallLog;
use agent_store::StepRecord;

/// Records, texts and denials that are committed together with a change.
#[derive(Default)]
pub(crate) struct CommitNotes {
    pub(crate) records: Vec<StepRecord>,
    /// Texts that the records refer to by digest.
    pub(crate) texts: Vec<String>,
    /// Denials that are not recorded as part of a call's result. The denials are committed before the change.
    pub(crate) denials: Vec<(Option<CallId>, Denial)>,
    /// The host's answers to the plugin that executed a finished call, with the id of the call.
    pub(crate) host_answers: Option<(CallId, Box<HostCallLog>)>,
    /// The service request that a plugin made during a finished call, with the id of the call.
    pub(crate) service_request: Option<(CallId, ServiceRequest)>,
}

impl CommitNotes {
    /// Adds a step record for step `step` of the latest turn.
    pub(crate) fn add(&mut self, run: &Run, step: u32, body: StepRecordBody) {
        self.records.push(body.into_record(run.turns, step));
    }

    /// Adds a step record for the current step of the open turn.
    pub(crate) fn add_now(&mut self, run: &Run, body: StepRecordBody) {
        self.add(run, run.turn.as_ref().map_or(0, |turn| turn.interactions), body);
    }
}
