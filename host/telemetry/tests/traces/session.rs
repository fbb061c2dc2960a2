//! Writes sessions into a real store: a real `Run` makes the transitions, and the records have the JSON that
//! `agent-runtime` stores.

use agent_core::change::CallResult;
use agent_core::cost::{Cost, TokenDetails};
use agent_core::event::EventKind;
use agent_core::message::{CallId, Content, Digest, TurnInput};
use agent_core::model::{StopReason, Usage};
use agent_core::plugin::{OutputData, TraceContext};
use agent_core::run::{
    Action, AfterFailure, Approval, DispatchedCall, Disposition, Input, LoopConfig, ModelFailure, OutputVerdict,
    PromptBudget, ResolvedCall, ResolvedReply, Retryability, Run, TurnContext,
};
use agent_core::tool::{CallCost, ToolSource};
use agent_core::trace::TurnName;
use agent_store::{
    Commit, ExportPosition, Lease, OpenMode, SessionMeta, Status, StepRecord, Store, StoredView, digest_of,
};
use agent_telemetry::{ContentLevel, Scrubber, SessionTrace, Span};
use serde_json::{Value, json};
use std::sync::Arc;

/// A secret that must never leave the host.
pub(crate) const CANARY: &str = "sk-canary-5e1f9b7a2c";

/// An open session, with which a test makes transitions.
pub(crate) struct StoredSession {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) run: Run,
    lease: Lease,
    revision: u64,
    texts: Vec<String>,
    /// When the next prompt is sent, in milliseconds since the Unix epoch.
    pub(crate) sent_at: Option<u64>,
}

impl StoredSession {
    pub(crate) async fn open(store: &Arc<dyn Store>, subject: &str) -> Self {
        Self::open_as(store, subject, "reader", None).await
    }

    /// Opens a session of an agent, which may work for another session.
    pub(crate) async fn open_as(
        store: &Arc<dyn Store>,
        subject: &str,
        agent: &str,
        delegated_by: Option<&str>,
    ) -> Self {
        let delegated_by = delegated_by.map(str::to_owned);
        let meta = SessionMeta { agent: agent.to_owned(), user: Some("ann".to_owned()), delegated_by };
        let opened = store.open(subject, OpenMode::Either, meta).await.expect("the session opens");
        let run = match opened.snapshot {
            None => Run::new(subject, agent).with_id_ending("0123456789ab"),
            Some(snapshot) => Run::restore(Some(&snapshot)).expect("a snapshot"),
        };
        Self {
            store: store.clone(),
            run,
            lease: opened.lease,
            revision: opened.revision,
            texts: Vec::new(),
            sent_at: None,
        }
    }

    /// Closes the session, as a process does that stops. Another process can continue it.
    pub(crate) async fn close(self) {
        self.store.release(self.lease).await.expect("released");
    }

    /// Applies an input and commits the change together with the records.
    pub(crate) async fn apply(&mut self, input: Input, records: Vec<StepRecord>) {
        let shown = format!("{input:?}");
        let change = self.run.apply_at(input, 1_000_000).unwrap_or_else(|error| panic!("{error}: {shown}"));
        let status = Status { state: self.run.session_state(), turn: self.run.turns, ..Status::default() };
        let texts = std::mem::take(&mut self.texts);
        let (snapshot, view) = (self.run.snapshot(), StoredView::InSnapshot);
        let commit = Commit { snapshot, view, change, records, texts, status, charge: None, answer: None };
        self.revision = self.store.commit(&self.lease, self.revision, commit).await.expect("committed");
        // The store distinguishes commits of a session by their times in microseconds.
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }

    /// Begins a turn up to its first model call.
    pub(crate) async fn begin(&mut self, input: &str, parent: Option<&TraceContext>) {
        let Run { session, id_ending, turns, next_message, .. } = &self.run;
        let turn = turns + 1;
        let trace = TraceContext::of_turn(TurnName { session, id_ending, turn }, parent);
        let mut body = json!({"traceparent": trace.traceparent, "first_message": next_message});
        if let Some(parent) = parent {
            body["parent"] = json!(parent.traceparent);
            body["tracestate"] = json!(parent.tracestate);
        }
        let record = StepRecord { turn, step: 0, kind: "trace".to_owned(), body };
        let (input, config) = (TurnInput::Text(input.to_owned()), LoopConfig::default());
        self.apply(Input::Start { input, config, plugins: Vec::new(), pinned: None, trace }, vec![record]).await;
        let budget = PromptBudget { window: 100_000, system: 100, tools: 200, reserved: 1_000 };
        let context = TurnContext { budget, ..TurnContext::default() };
        self.apply(Input::Context { context }, Vec::new()).await;
    }

    pub(crate) fn record(&self, kind: &str, body: Value) -> StepRecord {
        let step = self.run.turn.as_ref().map_or(0, |turn| turn.interactions);
        StepRecord { turn: self.run.turns, step, kind: kind.to_owned(), body }
    }

    /// Returns the record of a prompt, which contains all messages of the view.
    pub(crate) fn prompt(&mut self, model: &str) -> StepRecord {
        let system = format!("Be exact. {CANARY}");
        let messages: Vec<Value> = self.run.view.iter().map(|entry| json!([entry.id, 1])).collect();
        let tool = json!({"name": "read", "author_name": "read", "description": "Reads.", "input_schema": {}});
        let definition = tool.to_string();
        let list = json!({"names": "sha256:00", "definitions": [digest(&definition)]}).to_string();
        let body = json!({
            "model": {"provider": "openai", "name": model, "window": 100_000}, "lifecycle": "init", "max_tokens": 500,
            "system": [digest(&system)], "messages": messages, "tool_list": digest(&list), "sent_at": self.sent_at,
        });
        self.texts.extend([system, definition, list]);
        StepRecord { step: self.step() + 1, ..self.record("prompt", body) }
    }

    fn step(&self) -> u32 {
        self.run.turn.as_ref().map_or(0, |turn| turn.interactions)
    }

    /// Replies to the model call with a text or with calls.
    pub(crate) async fn reply(&mut self, text: &str, calls: Vec<ResolvedCall>) {
        let details = TokenDetails { uncached_prompt: 80, cache_read: 20, cache_write: 0, completion: 10, thinking: 4 };
        let cost = Some(Cost::from_dollars(0.0125));
        let usage = Usage { details: Some(details), cost, ..Usage::new(100, 10) };
        let requested: Vec<Value> = calls
            .iter()
            .map(|call| json!({"provider_id": "p1", "name": call.name, "arguments": call.arguments.to_string()}))
            .collect();
        let stop = if calls.is_empty() { StopReason::Stop } else { StopReason::ToolCalls };
        let reply = json!({"text": text, "calls": requested, "stop": stop, "usage": usage, "model": "openai/gpt-4.1"});
        let prompt = self.prompt("gpt-4.1");
        let record =
            StepRecord { kind: "reply".to_owned(), body: json!({"reply": reply, "raw": {"id": 1}}), ..prompt.clone() };
        let reply = ResolvedReply {
            text: text.to_owned(),
            calls,
            stop,
            model: "openai/gpt-4.1".to_owned(),
            usage,
            replay: None,
            masks: Vec::new(),
            saved_tokens: 0,
            unreadable: Vec::new(),
            written: String::new(),
            plan: None,
        };
        self.apply(Input::Reply(reply), vec![prompt, record]).await;
    }

    /// Lets the model call fail. The same model is asked again after a wait, or the next model is asked.
    pub(crate) async fn fail_model(&mut self, model: &str, reason: &str, then: AfterFailure) {
        let prompt = self.prompt(model);
        let (model, message) = (format!("openai/{model}"), reason.to_owned());
        let failure = ModelFailure { model, message, retryability: Retryability::Retryable, then };
        self.apply(Input::ModelFailed(failure), vec![prompt]).await;
    }

    /// Dispatches all calls that may run, and returns their ids.
    pub(crate) async fn dispatch(&mut self) -> Vec<CallId> {
        let Action::Dispatch(dispatches) = self.run.action() else { panic!("{:?}", self.run.action()) };
        let ids: Vec<CallId> = dispatches.into_iter().map(|dispatch| dispatch.call).collect();
        let calls = ids.iter().map(|call| DispatchedCall::running(call.clone(), json!({"path": "a.txt"})));
        self.apply(Input::Dispatched { calls: calls.collect() }, Vec::new()).await;
        ids
    }

    pub(crate) async fn outcome(&mut self, call: &CallId, text: &str, is_error: bool, records: Vec<StepRecord>) {
        let cost = CallCost { wall_us: 120, cpu_us: 90, memory_bytes: 4_096, ..CallCost::default() };
        let content = vec![Content::Text(text.to_owned())];
        let result = CallResult { content, is_error, cost, ..CallResult::default() };
        self.apply(Input::Outcome { call: call.clone(), result }, records).await;
    }

    /// Accepts the output.
    pub(crate) async fn accept(&mut self, text: &str, records: Vec<StepRecord>) {
        self.apply(Input::Verdict(OutputVerdict::Accepted(OutputData::Text(text.to_owned()))), records).await;
    }

    /// Runs a whole turn with one tool call.
    pub(crate) async fn turn_with_tool(&mut self, input: &str) {
        self.begin(input, None).await;
        self.reply("I read the file.", vec![plain("read")]).await;
        let calls = self.dispatch().await;
        self.outcome(&calls[0], "the content", false, Vec::new()).await;
        self.reply("It is empty.", Vec::new()).await;
        self.accept("It is empty.", Vec::new()).await;
    }
}

/// Returns a call of a plugin that needs no approval.
pub(crate) fn plain(name: &str) -> ResolvedCall {
    let source = Some(ToolSource::Plugin { plugin: "files".to_owned(), digest: Digest::from_sha256([7; 32]) });
    let disposition = Disposition::Ready { priority: 0, sequential: false, repeatable: true };
    ResolvedCall {
        name: name.to_owned(),
        arguments: json!({"path": "a.txt"}),
        source,
        disposition,
        approval: Approval::NotNeeded,
    }
}

pub(crate) fn digest(text: &str) -> String {
    digest_of(text.as_bytes()).to_string()
}

pub(crate) fn scrubber(level: ContentLevel) -> Scrubber {
    let redaction = agent_core::redaction::Redaction::new([CANARY]);
    Scrubber::new(level, redaction, &[]).expect("a scrubber")
}

/// Returns all spans of a stored session.
pub(crate) async fn spans_of(store: &Arc<dyn Store>, session: &str, level: ContentLevel) -> Vec<Span> {
    let mut trace = SessionTrace::new(store.clone(), session, scrubber(level), ExportPosition::default());
    let mut spans = Vec::new();
    while let Some(commits) = trace.next().await.expect("a read") {
        spans.extend(commits.into_iter().flat_map(|commit| commit.spans));
    }
    spans
}

/// Whether the stored session contains an event of this kind.
pub(crate) async fn has_event(store: &Arc<dyn Store>, session: &str, is_it: impl Fn(&EventKind) -> bool) -> bool {
    store.events(session, 0, 1_000).await.expect("events").iter().any(|event| is_it(&event.event.kind))
}
