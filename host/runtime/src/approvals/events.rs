//! Approvals as events (I6, L17): the request goes out with the commit that asks, and the answer comes in as services' do.

use super::{ApprovalDecision, Verdict};

use crate::respond::{RespondError, Responded};
use crate::services;
use crate::session::Session;
use agent_core::approval::GrantScope;
use agent_core::change::{Change, OutboxEffect, OutboxItem};
use agent_core::cloud_event::CloudEvent;
use agent_core::event::EventKind;
use agent_core::event_type::HostEventType;
use agent_core::message::CallId;
use agent_core::outgoing_event::OutgoingEvent;
use agent_core::run::{Emission, Run};
use agent_store::MAX_PAGE;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Type of the event that asks; its data are the calls, as in the event `approval_requested`.
pub const APPROVAL_REQUESTED: HostEventType = HostEventType::ApprovalRequested;
/// Type of the event that answers: its `parentid` is the request's `id`, its `subject` the session.
pub const APPROVAL_RESOLVED: HostEventType = HostEventType::ApprovalResolved;

/// What the ids of requests begin with.
const REQUEST_ID: &str = "approval_";

/// Data of an answer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    decisions: Vec<Decision>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case", deny_unknown_fields)]
enum Decision {
    Granted {
        call: CallId,
        #[serde(default)]
        scope: GrantScope,
        /// Changed ones.
        #[serde(default)]
        arguments: Option<Value>,
    },
    Denied {
        call: CallId,
        #[serde(default)]
        reason: Option<String>,
    },
}

impl From<Decision> for ApprovalDecision {
    fn from(decision: Decision) -> Self {
        match decision {
            Decision::Granted { call, scope, arguments } => {
                Self { call, verdict: Verdict::Allow { scope, edited: arguments } }
            }
            Decision::Denied { call, reason } => Self { call, verdict: Verdict::Deny { reason } },
        }
    }
}

impl Session {
    /// Adds an event for each request of the change, where the agent wants them.
    pub(crate) fn announce_approvals(&self, after: &Run, change: &mut Change) {
        let announced = after.turn.as_ref().map(|turn| turn.config.announced).unwrap_or_default();
        if announced.approvals == Emission::Silent {
            return;
        }
        for event in &change.events {
            let EventKind::ApprovalRequested { calls } = &event.kind else { continue };
            let id = self.request_id(event.sequence);
            let attributes = services::attributes(&self.scope(), id.clone());
            let sent = OutgoingEvent::of_host(HostEventType::ApprovalRequested, attributes, json!({"calls": calls}));
            change.outbox.push(OutboxItem { id, effect: OutboxEffect::Event(sent) });
        }
    }

    /// Takes an answer to an approval request. It holds for the calls that still wait for just this request: one that was
    /// asked about again, since its tool has changed, needs an answer to the later request.
    pub(crate) async fn respond_to_approval(&mut self, event: &CloudEvent) -> Result<Responded, RespondError> {
        let session = self.subject().to_owned();
        let request = event.parentid.clone().ok_or(RespondError::NoParent)?;
        if event.subject.is_none() {
            return Err(RespondError::NoSubject { session });
        }
        let answer = event.data.clone().unwrap_or_default();
        let answer: Answer = serde_json::from_value(answer)
            .map_err(|error| RespondError::Decisions { problem: error.to_string(), event_type: APPROVAL_RESOLVED })?;
        if answer.decisions.is_empty() {
            let problem = "its `decisions` are empty, so that it decides nothing".to_owned();
            return Err(RespondError::Decisions { problem, event_type: APPROVAL_RESOLVED });
        }
        let asked = self.asked_with(&request).await?;
        let asked = asked.ok_or_else(|| RespondError::NoRequest { request: request.clone(), session })?;
        let mut named: Vec<ApprovalDecision> = answer.decisions.into_iter().map(Into::into).collect();
        for decision in &mut named {
            let meant = asked.calls.iter().find(|call| call.is_named(&decision.call.0));
            let unknown = || RespondError::NotRequested { call: decision.call.clone(), request: request.clone() };
            decision.call = meant.cloned().ok_or_else(unknown)?;
        }
        let waiting: BTreeSet<CallId> = self.run.asking().into_iter().map(|item| item.call).collect();
        let open = |call: &CallId| waiting.contains(call) && !asked.again.contains(call);
        let decisions: Vec<_> = named.into_iter().filter(|decision| open(&decision.call)).collect();
        if decisions.is_empty() {
            return Ok(Responded::Late);
        }
        self.approve(decisions).await?;
        Ok(Responded::Taken { violations: Vec::new(), waits: self.run.waits() })
    }

    /// What a request of this session asked about; none where there is no such request. Only what the host itself committed
    /// counts, which is the session's durable events: nothing that stands in an event of the outbox, or that a plugin, a
    /// service or a model wrote, can be taken for a request (row 51).
    async fn asked_with(&self, request: &str) -> Result<Option<Asked>, RespondError> {
        let Some(number) = self.request_number(request) else { return Ok(None) };
        let (mut after, mut asked): (_, Option<Asked>) = (number.saturating_sub(1), None);
        loop {
            let page = self.shared.store.events(&self.shared.subject, after, MAX_PAGE).await?;
            let Some(last) = page.last() else { return Ok(asked) };
            after = last.event.sequence;
            for stored in page {
                let EventKind::ApprovalRequested { calls } = stored.event.kind else { continue };
                let calls = calls.into_iter().map(|item| item.call);
                match &mut asked {
                    Some(asked) => asked.again.extend(calls),
                    None if stored.event.sequence == number => {
                        asked = Some(Asked { calls: calls.collect(), again: BTreeSet::new() });
                    }
                    None => return Ok(None),
                }
            }
        }
    }

    /// The number of the durable event that a request's id stands for. The id must be whole: its ending is random, so that
    /// nobody who has not seen the request can name it.
    fn request_number(&self, request: &str) -> Option<u64> {
        let digits: String = request.strip_prefix(REQUEST_ID)?.chars().take_while(char::is_ascii_digit).collect();
        let number = digits.parse().ok()?;
        (self.request_id(number) == request).then_some(number)
    }

    /// No other request of the session has its number.
    fn request_id(&self, number: u64) -> String {
        self.run.unique_id(&format!("{REQUEST_ID}{number}"))
    }
}

/// The calls of a request, and those of them that were asked about again later.
struct Asked {
    calls: BTreeSet<CallId>,
    again: BTreeSet<CallId>,
}
