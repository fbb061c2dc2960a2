//! Converts the events of a session to updates for the editor. Live events and stored events are converted in the same way.

use crate::shared::{Shared, chunk};
use crate::text::{code, plain};
use crate::tool_call::{content, diff, kind, locations, raw, raw_output, text, title};
use agent_client_protocol::v1::schema::{
    Plan, PlanEntry, PlanEntryPriority, PlanEntryStatus, SessionUpdate, ToolCall, ToolCallId, ToolCallStatus,
    ToolCallUpdate, ToolCallUpdateFields, UsageUpdate,
};
use agent_core::event::{ApprovalItem, ErrorScope, Event, EventKind};
use agent_core::message::CallId;
use agent_core::plan::PlanStep;
use agent_runtime::Agent;
use agent_store::CallFilter;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Replaces text that the editor has already shown and cannot remove.
const WITHDRAWN: &str = "\n\n*(The host has discarded this text. The model writes another reply.)*\n\n";

/// Converts the events of one session.
#[derive(Debug, Default)]
pub(crate) struct Updates {
    /// The calls of the open turn that the editor knows.
    known_calls: HashSet<CallId>,
    /// The calls for which the open turn has requested approvals.
    pub(crate) approvals: HashMap<CallId, ApprovalItem>,
    plan: Vec<PlanEntry>,
    /// Whether the next text begins a new paragraph, because it belongs to another reply.
    begins_paragraph: bool,
    /// Whether the text of the last reply was shown, so that it must be withdrawn if the reply is rejected.
    has_shown_reply: bool,
    /// The error that ends the turn, as a code and a message.
    pub(crate) error: Option<(String, String)>,
}

impl Updates {
    /// Returns the update for a piece of the reply.
    pub(crate) fn text(&mut self, text: String) -> SessionUpdate {
        let text = if self.begins_paragraph { format!("\n\n{text}") } else { text };
        self.begins_paragraph = false;
        SessionUpdate::AgentMessageChunk(chunk(text))
    }

    /// Begins a new paragraph with the next text.
    pub(crate) fn begin_paragraph(&mut self) {
        self.begins_paragraph = true;
    }

    /// Returns the update for text that is no longer valid.
    pub(crate) fn withdrawn(&mut self) -> SessionUpdate {
        self.begins_paragraph = false;
        SessionUpdate::AgentMessageChunk(chunk(WITHDRAWN))
    }

    /// Returns the updates for an event.
    pub(crate) async fn event(&mut self, shared: &Shared, event: Event) -> Vec<SessionUpdate> {
        let Some(agent) = shared.agent() else { return Vec::new() };
        let session = event.session;
        match event.kind {
            EventKind::LoopStart { .. } => *self = Self::default(),
            EventKind::StreamComplete { text, .. } => {
                self.has_shown_reply = !text.is_empty();
                self.begins_paragraph |= self.has_shown_reply;
            }
            EventKind::StreamClear if std::mem::take(&mut self.has_shown_reply) => return vec![self.withdrawn()],
            EventKind::ToolCall { call, name, arguments, .. } => {
                return self.started(&agent, call, (&name, &arguments));
            }
            EventKind::ToolResult { call, name, content, .. } => {
                return self.ended(shared, &session, (call, &name), (content, ToolCallStatus::Completed)).await;
            }
            EventKind::ToolResultError { call, name, content, .. } => {
                return self.ended(shared, &session, (call, &name), (content, ToolCallStatus::Failed)).await;
            }
            EventKind::ToolNotFound { call, name } => {
                let reason = format!("there is no tool {}", plain(&name));
                return self.ended(shared, &session, (call, &name), (reason, ToolCallStatus::Failed)).await;
            }
            EventKind::ToolDeferred { call, name } => {
                let reason = "deferred: a call with a higher priority ran first".to_owned();
                return self.ended(shared, &session, (call, &name), (reason, ToolCallStatus::Failed)).await;
            }
            EventKind::ApprovalRequested { calls, .. } => return self.requested(&agent, calls),
            EventKind::OutcomeUnknown { call, name } => return self.started(&agent, call, (&name, &Value::Null)),
            EventKind::Plan { steps } => return vec![self.planned(&steps)],
            EventKind::PlanFallback { reason } => {
                return vec![thought(format!("The plan was abandoned: {}", plain(&reason)))];
            }
            EventKind::ContextBudget { total, remaining, .. } => {
                let used = u64::from(total.saturating_sub(remaining));
                return vec![SessionUpdate::UsageUpdate(UsageUpdate::new(used, u64::from(total)))];
            }
            EventKind::Steered { text } => return vec![SessionUpdate::UserMessageChunk(chunk(text))],
            EventKind::Error { code, message, scope: ErrorScope::Turn } => self.error = Some((code, message)),
            EventKind::LoopEnd { .. } => {
                self.known_calls.clear();
                self.begins_paragraph = true;
            }
            kind => return notice(&kind).into_iter().map(thought).collect(),
        }
        Vec::new()
    }

    fn started(&mut self, agent: &Arc<Agent>, call: CallId, (name, arguments): (&str, &Value)) -> Vec<SessionUpdate> {
        self.begins_paragraph = false;
        let id = ToolCallId::new(call.0.clone());
        if !self.known_calls.insert(call) {
            let mut fields = ToolCallUpdateFields::new().status(ToolCallStatus::InProgress);
            if !arguments.is_null() {
                fields = fields.raw_input(raw(arguments)).title(title(agent, name, arguments));
            }
            return vec![SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(id, fields))];
        }
        vec![SessionUpdate::ToolCall(described(agent, id, (name, arguments)).status(ToolCallStatus::InProgress))]
    }

    async fn ended(
        &mut self,
        shared: &Shared,
        session: &str,
        (call, name): (CallId, &str),
        (shown, status): (String, ToolCallStatus),
    ) -> Vec<SessionUpdate> {
        let Some(agent) = shared.agent() else { return Vec::new() };
        let mut updates = Vec::new();
        if !self.known_calls.contains(&call) {
            updates = self.started(&agent, call.clone(), (name, &Value::Null));
        }
        let stored = shared.store().calls(session, CallFilter::Ids(vec![call.clone()])).await;
        let result = stored.ok().and_then(|calls| calls.into_iter().next()?.result);
        let changes = shared.options.file_changes.take(session, &call);
        let mut contents: Vec<_> = changes.into_iter().map(diff).collect();
        match &result {
            Some(result) if status == ToolCallStatus::Completed => {
                contents.extend(content(shared.store(), session, result).await);
            }
            _ => contents.push(text(&shown)),
        }
        let fields = ToolCallUpdateFields::new()
            .status(status)
            .content(contents)
            .raw_output(result.as_ref().and_then(raw_output));
        updates.push(SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(ToolCallId::new(call.0), fields)));
        updates.extend(self.next_step());
        updates
    }

    /// Shows the calls that wait for an approval.
    fn requested(&mut self, agent: &Arc<Agent>, items: Vec<ApprovalItem>) -> Vec<SessionUpdate> {
        self.begins_paragraph = false;
        let mut updates = Vec::new();
        for item in items {
            if self.known_calls.insert(item.call.clone()) {
                let arguments = item.details.as_ref().map(|details| details.arguments.clone()).unwrap_or_default();
                let call = described(agent, ToolCallId::new(item.call.0.clone()), (&item.name, &arguments));
                updates.push(SessionUpdate::ToolCall(call));
            }
            self.approvals.insert(item.call.clone(), item);
        }
        updates
    }

    fn planned(&mut self, steps: &[PlanStep]) -> SessionUpdate {
        let entry = |(index, step): (usize, &PlanStep)| {
            let status = if index == 0 { PlanEntryStatus::InProgress } else { PlanEntryStatus::Pending };
            let content = format!("{} ({})", plain(&step.task), code(&step.tool));
            PlanEntry::new(content, PlanEntryPriority::Medium, status)
        };
        self.plan = steps.iter().enumerate().map(entry).collect();
        SessionUpdate::Plan(Plan::new(self.plan.clone()))
    }

    /// Marks the current step of the plan as completed, because each step makes one call.
    fn next_step(&mut self) -> Option<SessionUpdate> {
        let current = self.plan.iter().position(|entry| entry.status == PlanEntryStatus::InProgress)?;
        self.plan[current].status = PlanEntryStatus::Completed;
        if let Some(next) = self.plan.get_mut(current + 1) {
            next.status = PlanEntryStatus::InProgress;
        }
        Some(SessionUpdate::Plan(Plan::new(self.plan.clone())))
    }
}

/// Describes a call that has not run yet.
pub(crate) fn described(agent: &Agent, id: ToolCallId, (name, arguments): (&str, &Value)) -> ToolCall {
    ToolCall::new(id, title(agent, name, arguments))
        .kind(kind(agent, name, arguments))
        .locations(locations(agent, arguments))
        .raw_input(raw(arguments).filter(|arguments| !arguments.is_null()))
}

fn thought(text: impl Into<String>) -> SessionUpdate {
    SessionUpdate::AgentThoughtChunk(chunk(format!("{}\n\n", text.into())))
}

/// Returns a sentence about an event that explains what the host does.
fn notice(kind: &EventKind) -> Option<String> {
    Some(match kind {
        EventKind::Retry { model, attempt, reason, .. } => {
            format!(
                "The model {} did not answer: {}. The host tries again (attempt {attempt}).",
                plain(model),
                plain(reason)
            )
        }
        EventKind::ModelFallback { from, to, reason } => {
            format!("The model {} did not answer: {}. The host uses {}.", plain(from), plain(reason), plain(to))
        }
        EventKind::Denied { denial, .. } => {
            format!(
                "{} is not granted {}. To allow it, {}",
                plain(&denial.plugin),
                plain(&denial.thing),
                plain(&denial.grant)
            )
        }
        EventKind::PluginSwapped { plugin, .. } => {
            format!("The plugin {} has another version than in the previous turn.", plain(plugin))
        }
        EventKind::ToolDisabled { name, .. } => {
            format!(
                "The tool {} is disabled for this turn, because it failed three times in the same way.",
                plain(name)
            )
        }
        EventKind::Evicted { messages, .. } => {
            format!("The {messages} oldest messages were summarised, because the conversation is long.")
        }
        _ => return None,
    })
}
