//! Users' decisions about calls that wait for an approval (L17), including decisions that arrive as events (I6).

use super::responses::{RespondError, ResponseOutcome};
use crate::approvals::{
    APPROVAL_RESOLVED, ApprovalDecision, REASON_CHARACTERS, Verdict, add_item_details, approval_request_number,
};
use crate::host::SessionServices;
use crate::session::{Session, SessionError};
use agent_core::approval::{ApprovalAnswer, ApprovalVerdict, GrantScope};
use agent_core::cloud_event::CloudEvent;
use agent_core::event::{ApprovalItem, EventKind};
use agent_core::message::CallId;
use agent_core::run::{Input, InputError, Run};
use agent_core::tool::Violation;
use agent_store::MAX_PAGE;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeSet;
use tokio_util::sync::CancellationToken;

/// The `data` of an event that answers an approval request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ApprovalAnswerData {
    decisions: Vec<DecisionData>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case", deny_unknown_fields)]
enum DecisionData {
    Granted {
        call: CallId,
        #[serde(default)]
        scope: GrantScope,
        /// The changed arguments, which are used instead of the arguments that the model wrote.
        #[serde(default)]
        arguments: Option<Value>,
    },
    Denied {
        call: CallId,
        #[serde(default)]
        reason: Option<String>,
    },
}

impl From<DecisionData> for ApprovalDecision {
    fn from(decision: DecisionData) -> Self {
        match decision {
            DecisionData::Granted { call, scope, arguments } => {
                Self { call, verdict: Verdict::Allow { scope, edited: arguments } }
            }
            DecisionData::Denied { call, reason } => Self { call, verdict: Verdict::Deny { reason } },
        }
    }
}

impl Session {
    /// Returns the calls that wait for an approval, with the details that a user needs to decide about the calls.
    pub async fn pending_approvals(&mut self) -> Result<Vec<ApprovalItem>, SessionError> {
        let mut items = self.run.asking();
        let ids: Vec<CallId> = items.iter().map(|item| item.call.clone()).collect();
        let records = self.history.load_calls(&ids).await?;
        self.connect_for_calls(&records, &CancellationToken::new()).await?;
        let (context, history) = self.approvals_and_history();
        add_item_details(context, history, &mut items, &[]).await?;
        Ok(items)
    }

    /// Stores decisions about calls that wait for an approval (L17). If an error is returned, none of the decisions is
    /// stored. The turn continues when [`Session::run`] is called. If a tool has changed since its approval was
    /// requested, the host ignores the decision and requests the approval again.
    pub async fn approve(&mut self, mut decisions: Vec<ApprovalDecision>) -> Result<(), SessionError> {
        self.require_stored_state()?;
        for decision in &mut decisions {
            decision.call = self.run.named_call(decision.call.clone());
        }
        let ids: Vec<CallId> = decisions.iter().map(|decision| decision.call.clone()).collect();
        let records = self.history.load_calls(&ids).await?;
        self.connect_for_calls(&records, &CancellationToken::new()).await?;
        let context = self.approvals();
        let mut answers = Vec::with_capacity(decisions.len());
        for ApprovalDecision { call, verdict } in decisions {
            let record = records.iter().find(|record| record.id == call);
            let record = record.ok_or_else(|| InputError::UnknownCall(call.clone()))?;
            if let Some(request) = context.unapproved_request(&call).await? {
                let verdict = context.decide_held_request(request, record, verdict).await??;
                answers.push(ApprovalAnswer { call, verdict });
                continue;
            }
            let verdict = match verdict {
                Verdict::Allow { scope, edited } => context.grant_call(record, scope, edited).await??,
                Verdict::Deny { reason } => {
                    let reason = reason.map(|reason| reason.chars().take(REASON_CHARACTERS).collect());
                    ApprovalVerdict::Denied { reason }
                }
            };
            answers.push(ApprovalAnswer { call, verdict });
        }
        self.apply(Input::Approval { answers }, Default::default()).await
    }

    /// Checks edited arguments against the tool's schema (L8). If the agent has no tool with this name, nothing is
    /// checked and the result is `Ok`.
    pub fn check_edited(&self, tool: &str, edited: &Value) -> Result<(), Vec<Violation>> {
        self.services.agent.registry().get(tool).map_or(Ok(()), |tool| tool.check_arguments(edited))
    }

    /// Processes an answer to an approval request. The answer applies to the calls that still wait for an answer to
    /// exactly this request. If the host has requested the approval of a call again because the call's tool changed,
    /// only an answer to the later request is accepted.
    pub(super) async fn respond_to_approval(&mut self, event: &CloudEvent) -> Result<ResponseOutcome, RespondError> {
        let decisions = open_decisions(&self.services, &self.run, event).await?;
        if decisions.is_empty() {
            return Ok(ResponseOutcome::Late);
        }
        self.approve(decisions).await?;
        Ok(ResponseOutcome::Taken { violations: Vec::new(), waits: self.run.waits() })
    }
}

/// Reads an answer to an approval request, and returns the decisions about calls that still wait for an answer to this request.
/// Only the store is read.
pub(super) async fn open_decisions(
    services: &SessionServices,
    run: &Run,
    event: &CloudEvent,
) -> Result<Vec<ApprovalDecision>, RespondError> {
    let session = services.subject.clone();
    let request = event.parentid.clone().ok_or(RespondError::NoParent)?;
    if event.subject.is_none() {
        return Err(RespondError::NoSubject { session });
    }
    let answer = event.data.clone().unwrap_or_default();
    let answer: ApprovalAnswerData = serde_json::from_value(answer)
        .map_err(|error| RespondError::Decisions { problem: error.to_string(), event_type: APPROVAL_RESOLVED })?;
    if answer.decisions.is_empty() {
        let problem = "its `decisions` list is empty".to_owned();
        return Err(RespondError::Decisions { problem, event_type: APPROVAL_RESOLVED });
    }
    let requested = calls_of_request(services, run, &request).await?;
    let requested = requested.ok_or_else(|| RespondError::NoRequest { request: request.clone(), session })?;
    let mut decisions: Vec<ApprovalDecision> = answer.decisions.into_iter().map(Into::into).collect();
    for decision in &mut decisions {
        let matching = requested.calls.iter().find(|call| call.is_named(&decision.call.0));
        let unknown = || RespondError::NotRequested { call: decision.call.clone(), request: request.clone() };
        decision.call = matching.cloned().ok_or_else(unknown)?;
    }
    let waiting: BTreeSet<CallId> = run.asking().into_iter().map(|item| item.call).collect();
    let is_open = |call: &CallId| waiting.contains(call) && !requested.superseded.contains(call);
    Ok(decisions.into_iter().filter(|decision| is_open(&decision.call)).collect())
}

/// Returns the calls of an approval request of this session, or `None` if the session has no request with this id.
/// Only the session's durable events are searched, because the host itself committed them. Neither an event in the
/// outbox nor a text from a plugin, service or model is ever treated as an approval request (row 51).
async fn calls_of_request(
    services: &SessionServices,
    run: &Run,
    request: &str,
) -> Result<Option<RequestedCalls>, RespondError> {
    let Some(number) = approval_request_number(run, request) else { return Ok(None) };
    let (mut after, mut requested): (_, Option<RequestedCalls>) = (number.saturating_sub(1), None);
    loop {
        let page = services.store.events(&services.subject, after, MAX_PAGE).await?;
        let Some(last) = page.last() else { return Ok(requested) };
        after = last.event.sequence;
        for stored in page {
            let EventKind::ApprovalRequested { calls, .. } = stored.event.kind else { continue };
            let calls = calls.into_iter().map(|item| item.call);
            match &mut requested {
                Some(requested) => requested.superseded.extend(calls),
                None if stored.event.sequence == number => {
                    requested = Some(RequestedCalls { calls: calls.collect(), superseded: BTreeSet::new() });
                }
                None => return Ok(None),
            }
        }
    }
}

/// The calls that an approval request of this session contains.
struct RequestedCalls {
    calls: BTreeSet<CallId>,
    /// Calls whose approval was requested again by a later request.
    superseded: BTreeSet<CallId>,
}
