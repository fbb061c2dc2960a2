//! Translates the updates of a turn into the events of a run.

use super::input::RunInput;
use super::messages::{reply_id, result_id, snapshot};
use super::threads::StartedRun;
use crate::access::Caller;
use crate::state::{ApiState, OpenStream};
use agent_core::event::{EndReason, ErrorScope, Event, EventKind, Suspension, Wait, WaitCause};
use agent_core::model::Usage;
use agent_core::run::{Run, TurnEnd};
use agent_runtime::TurnUpdate;
use agent_store::StoreError;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Interval;

/// Time between two checks whether the token of a stream still exists.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The version of the protocol.
const PROTOCOL_VERSION: &str = "1.0";

/// The events of one run. The turn continues if the client stops reading.
pub(super) struct RunEvents {
    state: Arc<ApiState>,
    caller: Caller,
    input: RunInput,
    run: StartedRun,
    ready: VecDeque<Value>,
    /// The text message, the reasoning and the step that are open.
    message: Option<String>,
    reasoning: Option<String>,
    step: Option<String>,
    /// Number of messages and reasoning spans that were opened, so that no id is used twice.
    opened: u32,
    /// Number of complete replies of the turn.
    replies: u32,
    started_calls: HashSet<String>,
    /// The last error of the turn, as its code and its message.
    error: Option<(String, String)>,
    /// The calls of the last request for an approval, with their arguments.
    approvals: HashMap<String, Value>,
    usage: BTreeMap<String, Usage>,
    has_ended: bool,
    next_check: Interval,
    _open: OpenStream,
}

impl RunEvents {
    pub(super) fn new(
        state: Arc<ApiState>,
        caller: Caller,
        (input, run): (RunInput, StartedRun),
        open: OpenStream,
    ) -> Self {
        let mut events = Self {
            state,
            caller,
            replies: run.replies,
            ready: VecDeque::new(),
            message: None,
            reasoning: None,
            step: None,
            opened: 0,
            started_calls: HashSet::new(),
            error: None,
            approvals: HashMap::new(),
            usage: BTreeMap::new(),
            has_ended: false,
            next_check: tokio::time::interval(CHECK_INTERVAL),
            _open: open,
            input,
            run,
        };
        events.begin();
        events
    }

    fn begin(&mut self) {
        let (thread, run) = (self.input.thread_id.clone(), self.input.run_id.clone());
        self.push(json!({
            "type": "RUN_STARTED", "threadId": thread, "runId": run, "protocolVersion": PROTOCOL_VERSION,
        }));
        let state = json!({"session": self.run.session, "turn": self.run.events.turn(), "budget": null});
        self.push(json!({"type": "STATE_SNAPSHOT", "snapshot": state}));
        if let Some(messages) = self.run.messages.take() {
            self.push(json!({"type": "MESSAGES_SNAPSHOT", "messages": messages}));
        }
    }

    fn push(&mut self, mut event: Value) {
        event["timestamp"] = json!(Timestamp::now().as_millisecond());
        self.ready.push_back(event);
    }

    fn custom(&mut self, name: &str, value: Value) {
        self.push(json!({"type": "CUSTOM", "name": format!("agent-host.{name}"), "value": value}));
    }

    /// Waits for the next event. Returns `None` after the run has ended.
    pub(super) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.has_ended {
                return None;
            }
            let update = tokio::select! {
                biased;
                () = self.state.draining.cancelled() => Err(("interrupted", "the server shuts down; the run continues later")),
                _ = self.next_check.tick() => match self.state.is_still_valid(&self.caller) {
                    true => continue,
                    false => Err(("unauthorized", "the token was revoked")),
                },
                update = self.run.events.next() => Ok(update),
            };
            let added = match update {
                Ok(Ok(Some(update))) => self.add(update).await,
                // The turn waits only for something that the front end cannot answer.
                Ok(Ok(None)) => {
                    self.run.events.resume();
                    Ok(())
                }
                Ok(Err(error)) => Err(error),
                Err((code, message)) => {
                    self.fail(code, message);
                    Ok(())
                }
            };
            if let Err(error) = added {
                tracing::warn!(%error, "a run of a front end ends, because the session cannot be read");
                self.fail("failed", "the host cannot read the session");
            }
        }
    }

    async fn add(&mut self, update: TurnUpdate) -> Result<(), StoreError> {
        match update {
            TurnUpdate::Text(delta) => {
                self.close_reasoning();
                let message = self.open_message();
                self.push(json!({"type": "TEXT_MESSAGE_CONTENT", "messageId": message, "delta": delta}));
            }
            TurnUpdate::Thinking(delta) => {
                self.close_message();
                let reasoning = self.open_reasoning();
                self.push(json!({"type": "REASONING_MESSAGE_CONTENT", "messageId": reasoning, "delta": delta}));
            }
            TurnUpdate::Discard => self.discard().await?,
            TurnUpdate::Event(event) => self.add_event(event).await?,
        }
        Ok(())
    }

    async fn add_event(&mut self, event: Event) -> Result<(), StoreError> {
        match event.kind {
            EventKind::LoopIteration { step, .. } => {
                self.close_step();
                let name = format!("step {step}");
                self.push(json!({"type": "STEP_STARTED", "stepName": name}));
                self.step = Some(name);
            }
            EventKind::ContextBudget { total, remaining, .. } => {
                let budget = json!({"total": total, "remaining": remaining});
                self.push(json!({
                    "type": "STATE_DELTA", "delta": [{"op": "replace", "path": "/budget", "value": budget}],
                }));
            }
            EventKind::StreamComplete { model, usage, .. } => {
                self.close_content();
                self.replies += 1;
                *self.usage.entry(model).or_default() += usage;
            }
            EventKind::StreamClear => self.discard().await?,
            EventKind::ToolCall { call, name, arguments, .. } => self.start_call(&call.0, &name, &arguments),
            EventKind::ToolResult { call, name, content, .. }
            | EventKind::ToolResultError { call, name, content, .. } => {
                self.finish_call(&call.0, &name, &content);
            }
            EventKind::ToolNotFound { call, name } => {
                self.finish_call(&call.0, &name, "there is no tool with this name")
            }
            EventKind::ToolDeferred { call, name } => {
                self.finish_call(&call.0, &name, "deferred, because another call has priority");
            }
            EventKind::ApprovalRequested { calls, .. } => {
                for item in calls {
                    let arguments = item.details.map_or(Value::Null, |details| details.arguments);
                    self.approvals.insert(item.call.0, arguments);
                }
            }
            EventKind::Denied { denial, .. } => self.custom("denied", json!(denial)),
            EventKind::Plan { steps } => self.custom("plan", json!({"steps": steps})),
            EventKind::Steered { text } => self.custom("steered", json!({"text": text})),
            EventKind::PluginSwapped { plugin, to, .. } => {
                self.custom("plugin_swapped", json!({"plugin": plugin, "to": to}))
            }
            EventKind::Error { code, message, scope: ErrorScope::Turn } => {
                self.error = Some((code, message));
            }
            EventKind::Suspended { suspension } => self.suspend(&suspension),
            EventKind::LoopEnd { reason, .. } => self.end(reason).await?,
            _ => {}
        }
        Ok(())
    }

    fn open_message(&mut self) -> String {
        if let Some(message) = &self.message {
            return message.clone();
        }
        self.opened += 1;
        let own = reply_id(self.run.events.turn(), self.replies + 1);
        // A reply that was discarded has used the id already.
        let message =
            if self.opened == self.replies + 1 - self.run.replies { own } else { format!("{own}_{}", self.opened) };
        self.push(json!({"type": "TEXT_MESSAGE_START", "messageId": message, "role": "assistant"}));
        self.message = Some(message.clone());
        message
    }

    fn open_reasoning(&mut self) -> String {
        if let Some(reasoning) = &self.reasoning {
            return reasoning.clone();
        }
        self.opened += 1;
        let reasoning = format!("reasoning_{}_{}", self.run.events.turn(), self.opened);
        self.push(json!({"type": "REASONING_START", "messageId": reasoning}));
        self.push(json!({"type": "REASONING_MESSAGE_START", "messageId": reasoning, "role": "reasoning"}));
        self.reasoning = Some(reasoning.clone());
        reasoning
    }

    fn close_message(&mut self) {
        if let Some(message) = self.message.take() {
            self.push(json!({"type": "TEXT_MESSAGE_END", "messageId": message}));
        }
    }

    fn close_reasoning(&mut self) {
        if let Some(reasoning) = self.reasoning.take() {
            self.push(json!({"type": "REASONING_MESSAGE_END", "messageId": reasoning}));
            self.push(json!({"type": "REASONING_END", "messageId": reasoning}));
        }
    }

    fn close_content(&mut self) {
        self.close_message();
        self.close_reasoning();
    }

    fn close_step(&mut self) {
        self.close_content();
        if let Some(step) = self.step.take() {
            self.push(json!({"type": "STEP_FINISHED", "stepName": step}));
        }
    }

    /// Ends the text that was discarded. The snapshot that follows does not contain it, so that a client removes it.
    async fn discard(&mut self) -> Result<(), StoreError> {
        self.close_content();
        let messages = snapshot(self.state.store(), &self.run.session).await?.messages;
        self.push(json!({"type": "MESSAGES_SNAPSHOT", "messages": messages}));
        Ok(())
    }

    fn start_call(&mut self, call: &str, name: &str, arguments: &Value) {
        if !self.started_calls.insert(call.to_owned()) {
            return;
        }
        self.close_content();
        self.push(json!({"type": "TOOL_CALL_START", "toolCallId": call, "toolCallName": name}));
        self.push(json!({"type": "TOOL_CALL_ARGS", "toolCallId": call, "delta": arguments.to_string()}));
        self.push(json!({"type": "TOOL_CALL_END", "toolCallId": call}));
    }

    fn finish_call(&mut self, call: &str, name: &str, content: &str) {
        // The call may have begun in an earlier run of the same turn.
        let (name, arguments) = match self.run.calls.get(call) {
            Some((name, arguments)) => (name.clone(), arguments.clone()),
            None => (name.to_owned(), json!({})),
        };
        self.start_call(call, &name, &arguments);
        self.push(json!({
            "type": "TOOL_CALL_RESULT", "messageId": result_id(call), "toolCallId": call, "content": content, "role": "tool",
        }));
    }

    /// Ends the run with the interrupts that the front end can answer. If there are none, but the front end must run a call of
    /// its own tools, the run ends too, and the next run brings the result. Otherwise, the run goes on until a service or
    /// another agent has answered.
    fn suspend(&mut self, suspension: &Suspension) {
        let interrupts: Vec<_> = suspension.waits.iter().filter_map(|wait| self.interrupt(wait)).collect();
        if !interrupts.is_empty() {
            self.finish(json!({"type": "interrupt", "interrupts": interrupts}), None);
        } else if suspension.waits.iter().any(|wait| wait.cause == WaitCause::Client) {
            self.finish(json!({"type": "success"}), None);
        }
    }

    fn interrupt(&self, wait: &Wait) -> Option<Value> {
        let (reason, message, schema) = match &wait.cause {
            WaitCause::Approval { .. } => (
                "approval",
                format!("May the agent call `{}`?", wait.name),
                json!({"type": "object", "required": ["approved"], "properties": {
                    "approved": {"type": "boolean"}, "reason": {"type": "string"}, "arguments": {"type": "object"},
                }}),
            ),
            WaitCause::Answer { question, .. } => (
                "question",
                question.clone(),
                json!({"type": "object", "required": ["answer"], "properties": {"answer": {"type": "string"}}}),
            ),
            WaitCause::OutcomeUnknown => (
                "outcome_unknown",
                format!("The host stopped while `{}` ran. Has the call had its effect?", wait.name),
                json!({"type": "object", "required": ["decision"], "properties": {
                    "decision": {"enum": ["retry", "failed", "result"]}, "text": {"type": "string"},
                }}),
            ),
            WaitCause::Service { .. } | WaitCause::Agent { .. } | WaitCause::Client => return None,
        };
        let mut interrupt = json!({
            "id": wait.call.0, "reason": format!("agent-host.{reason}"), "message": message, "toolCallId": wait.call.0,
            "responseSchema": schema,
            "metadata": {"tool": wait.name, "arguments": self.approvals.get(&wait.call.0).unwrap_or(&Value::Null)},
        });
        let expires =
            wait.cause.expires_at().and_then(|time| Timestamp::from_millisecond(i64::try_from(time).ok()?).ok());
        if let Some(expires) = expires {
            interrupt["expiresAt"] = json!(expires.to_string());
        }
        Some(interrupt)
    }

    async fn end(&mut self, reason: EndReason) -> Result<(), StoreError> {
        match reason {
            EndReason::Error => {
                let (code, message) =
                    self.error.take().unwrap_or_else(|| ("failed".to_owned(), "the turn failed".to_owned()));
                self.fail(&code, &message);
            }
            EndReason::Cancelled => self.finish(json!({"type": "cancelled"}), None),
            _ => {
                let snapshot = self.state.store().snapshot(&self.run.session).await?;
                let run = snapshot.and_then(|snapshot| Run::restore(Some(&snapshot)).ok());
                let turn = run.and_then(|run| run.turn.filter(|turn| turn.number == self.run.events.turn()));
                let result = turn.as_ref().and_then(|turn| match turn.end() {
                    Some(TurnEnd::Finished(output)) => Some(output.data.clone()),
                    _ => None,
                });
                self.finish(json!({"type": "success"}), result);
            }
        }
        Ok(())
    }

    fn finish(&mut self, outcome: Value, result: Option<Value>) {
        self.close_step();
        let (thread, run, usage) = (self.input.thread_id.clone(), self.input.run_id.clone(), self.usage());
        let mut finished =
            json!({"type": "RUN_FINISHED", "threadId": thread, "runId": run, "outcome": outcome, "usage": usage});
        if let Some(result) = result {
            finished["result"] = result;
        }
        self.push(finished);
        self.has_ended = true;
    }

    fn fail(&mut self, code: &str, message: &str) {
        self.close_step();
        let usage = self.usage();
        self.push(json!({"type": "RUN_ERROR", "message": message, "code": code, "usage": usage}));
        self.has_ended = true;
    }

    fn usage(&self) -> Vec<Value> {
        let entry = |(model, usage): (&String, &Usage)| {
            let (provider, name) = model.split_once('/').unwrap_or(("", model));
            let mut entry = json!({
                "model": name, "inputTokens": usage.prompt_tokens, "outputTokens": usage.completion_tokens,
                "totalTokens": usage.prompt_tokens.saturating_add(usage.completion_tokens),
            });
            if !provider.is_empty() {
                entry["provider"] = json!(provider);
            }
            entry
        };
        self.usage.iter().map(entry).collect()
    }
}
