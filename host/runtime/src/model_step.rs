//! One model call: the outgoing copy is made, masked, sent, and the reply's calls are looked up.

use crate::checkpoint::Checkpoint;
use crate::context::{answer, store_failed};
use crate::drive::Deed;
use crate::media::OutgoingMedia;
use crate::registry::Registry;
use crate::session::{Notes, Session};
use agent_core::message::{Message, MessageId, Part, Role};
use agent_core::model::{ModelRequest, Reply, StopReason};
use agent_core::plugin::{Section, StepRequest};
use agent_core::prompt;
use agent_core::run::{
    AfterFailure, Disposition, Input, Mask, ModelFailure, PromptBudget, RepliedStep, ResolvedCall, StepPlan, TurnError,
};
use agent_core::tool::{ToolError, ToolSource, Violation};
use agent_core::view::shown_message;
use agent_memory::{StepRecord, digest_of};
use agent_models::{ModelError, Provider, Purpose, RawReply, ReplyContext};
use agent_plugins::Kind;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc;

/// Calls of one reply: what a model means by more is not to be guessed.
const MAX_CALLS: usize = 128;
/// Pieces of a reply that may wait for the watchers.
const DELTAS: usize = 64;

/// The outgoing copy, with what is stored of it.
pub(crate) struct Outgoing {
    pub(crate) request: ModelRequest,
    /// Of each message, in the prompt's order.
    pub(crate) ids: Vec<MessageId>,
    pub(crate) new_masks: Vec<Mask>,
    pub(crate) notes: Notes,
}

impl Session {
    /// Makes one model call.
    pub(crate) async fn call_model(&mut self, plan: StepPlan) -> Deed {
        if let Some(failure) = self.passed_over(&plan) {
            return Ok((Input::ModelFailed(failure), Notes::default()));
        }
        self.wait_for_retry(&plan).await;
        let mut outgoing = self.outgoing(&plan).await?;
        self.mask(&mut outgoing, plan.step).await?;
        let prompt = self.prompt_record(&outgoing);
        self.note(&mut outgoing.notes, plan.step, "prompt", prompt);
        self.shared.pass(Checkpoint::BeforeModel);
        let asked = self.ask(&outgoing.request, &plan).await;
        self.shared.pass(Checkpoint::AfterModel);
        let raw = match asked {
            Ok(raw) => raw,
            Err(error) => return Ok((Input::ModelFailed(self.failure(&plan, &error)), outgoing.notes)),
        };
        let mut notes = outgoing.notes;
        self.note(&mut notes, plan.step, "reply", json!({"reply": raw.reply, "raw": raw.raw}));
        let registry = self.shared.agent.registry();
        let reply = raw.reply;
        if reply.calls.len() > MAX_CALLS {
            let message = format!("its reply has {} tool calls; at most {MAX_CALLS} are taken", reply.calls.len());
            return Err(TurnError::ModelFailed { message });
        }
        let calls = self.ask_where_needed(resolved(registry, &reply)).await.map_err(store_failed)?;
        let replied = RepliedStep {
            calls: self.within_depth(calls),
            text: reply.text,
            stop: reply.stop,
            model: reply.model,
            usage: reply.usage,
            execution_units: reply.usage.total(),
            replay: reply.replay,
            masks: outgoing.new_masks,
        };
        Ok((Input::Reply(replied), notes))
    }

    /// Calls of agents that would go round in a circle or too deep never run (L16, row 13).
    fn within_depth(&self, mut calls: Vec<ResolvedCall>) -> Vec<ResolvedCall> {
        for call in calls.iter_mut().filter(|call| matches!(call.disposition, Disposition::Ready { .. })) {
            if let Some(ToolSource::Agent { agent }) = &call.source
                && let Err(error) = self.run.may_delegate(agent)
            {
                call.disposition = Disposition::Refused(error);
            }
        }
        calls
    }

    pub(crate) fn note(&self, notes: &mut Notes, step: u32, kind: &str, body: Value) {
        notes.records.push(StepRecord { turn: self.run.turns, step, kind: kind.to_owned(), body });
    }

    async fn outgoing(&mut self, plan: &StepPlan) -> Result<Outgoing, TurnError> {
        let entries: Vec<_> = self.run.sent().copied().collect();
        let ids: Vec<MessageId> = entries.iter().map(|entry| entry.id).collect();
        let stored = self.load(&ids).await.map_err(store_failed)?;
        let mut notes = Notes::default();
        let step_sections = self.step_sections(plan, &mut notes).await?;
        let agent = self.shared.agent.clone();
        let limit = agent.config().bounds.result_characters as usize;
        let shown = stored.iter().zip(&entries).map(|(message, entry)| {
            let message = shown_message(message, self.run.seen_count(entry), limit);
            self.for_provider(message)
        });
        let mut messages: Vec<Message> = shown.collect();
        // Behind everything else, so that what stands before it is as it was in the step before (L22).
        messages.extend(step_message(&step_sections));
        let system = prompt::texts(&self.run.system_sections());
        // The turn's own sections are stored since it began, the session summary is not.
        notes.texts.extend(system.iter().filter(|_| self.run.summary.is_some()).cloned());
        let request = ModelRequest {
            model: self.model().facts().model.clone(),
            system,
            messages,
            downscaled: Vec::new(),
            tools: if plan.last { Vec::new() } else { agent.registry().offered().to_vec() },
            output_schema: agent.config().output_schema.clone(),
            max_tokens: agent.config().reply_tokens,
        };
        Ok(Outgoing { request, ids, new_masks: Vec::new(), notes })
    }

    /// What the builder's per-step export adds to this step only (L2).
    async fn step_sections(&mut self, plan: &StepPlan, notes: &mut Notes) -> Result<Vec<Section>, TurnError> {
        let agent = self.shared.agent.clone();
        let Some(builder) = agent.context_builder().filter(|setup| setup.plugin().has(Kind::StepContext)) else {
            return Ok(Vec::new());
        };
        let from = self.run.turn.as_ref().map_or(MessageId::MAX, |turn| turn.latest_from);
        let latest = self.shown(|entry| entry.id >= from).await.map_err(store_failed)?;
        let Some(turn) = &self.run.turn else { return Ok(Vec::new()) };
        let request = StepRequest {
            lifecycle: plan.lifecycle,
            scope: self.scope(),
            model: self.model().facts().model.clone(),
            step: turn.interactions,
            steps_left: plan.steps_left,
            latest,
            budget: turn.budget.for_plugins(),
            state: turn.state.clone(),
        };
        let report = self.shared.sandbox.build_step(builder, &request, &self.ports()).await;
        let sections = answer(builder, report)?;
        let body = json!({"plugin": builder.plugin().identity().to_string(), "answer": sections});
        self.note(notes, plan.step, "step_context", body);
        Ok(sections)
    }

    /// The history holds the authors' names of tools, and what the host put before an input; the provider knows its own
    /// names, and reads texts (L14, L22).
    fn for_provider(&self, mut message: Message) -> Message {
        let registry = self.shared.agent.registry();
        for part in &mut message.parts {
            let name = match part {
                Part::ToolCall(call) => &mut call.name,
                Part::ToolResult(result) => &mut result.name,
                Part::Preface(text) => {
                    *part = Part::Text(std::mem::take(text));
                    continue;
                }
                _ => continue,
            };
            let provider = registry.provider_name(name);
            if provider != name {
                *name = provider.to_owned();
            }
        }
        message
    }

    /// The exact prompt, by reference: texts by digest, messages by place (D1).
    fn prompt_record(&self, outgoing: &Outgoing) -> Value {
        let request = &outgoing.request;
        let digest = |text: &str| digest_of(text.as_bytes()).to_string();
        let messages = outgoing.ids.iter().zip(&request.messages);
        let messages: Vec<_> = messages.map(|(id, message)| json!([id, message.seen_count])).collect();
        json!({
            "model": request.model,
            "max_tokens": request.max_tokens,
            "system": request.system.iter().map(|text| digest(text)).collect::<Vec<_>>(),
            "messages": messages,
            "result_characters": self.shared.agent.config().bounds.result_characters,
            "masked": self.run.masks.iter().chain(&outgoing.new_masks).collect::<Vec<_>>(),
            "downscaled": request.downscaled,
            "tools": request.tools.iter().map(|tool| tool.author_name.as_str()).collect::<Vec<_>>(),
            "output_schema": request.output_schema,
        })
    }

    /// The model that the open turn asks.
    pub(crate) fn model(&self) -> &Arc<dyn Provider> {
        self.shared.agent.models().at(self.run.turn.as_ref().map_or(0, |turn| turn.place))
    }

    /// The window of a model, without any system text.
    pub(crate) fn empty_budget(&self, model: &Arc<dyn Provider>) -> PromptBudget {
        let agent = &self.shared.agent;
        let window = model.facts().model.window;
        let reserved = agent.config().reply_tokens.min(window / 4);
        PromptBudget { window, system: 0, tools: agent.registry().tokens(), reserved }
    }

    /// Where the model rests after failures and another one does not, it is not even asked.
    fn passed_over(&self, plan: &StepPlan) -> Option<ModelFailure> {
        let models = self.shared.agent.models();
        let place = models.instead_of(plan.place).filter(|_| plan.attempt == 1)?;
        let message = format!("it failed less than {} s ago", models.cooldown.as_secs());
        let model = self.model().facts().model.to_string();
        Some(ModelFailure { model, message, then: self.next_model(place) })
    }

    /// A try after the first waits for its time. The time is not stored: after a restart it has passed.
    async fn wait_for_retry(&mut self, plan: &StepPlan) {
        if plan.attempt == 1 {
            self.asking_since = Some(Instant::now());
        } else if let Some(time) = self.retry_at.take() {
            tokio::time::sleep_until(time.into()).await;
        }
    }

    fn failure(&mut self, plan: &StepPlan, error: &ModelError) -> ModelFailure {
        let models = self.shared.agent.models();
        let spent = self.asking_since.map(|since| since.elapsed()).unwrap_or_default();
        let then = match (models.retry.wait(plan.attempt, spent, error), models.after(plan.place)) {
            (Some(wait), _) => {
                self.retry_at = Some(Instant::now() + wait);
                AfterFailure::Retry { wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX) }
            }
            (None, next) => {
                if error.retryable() {
                    models.rest(plan.place);
                }
                next.map_or(AfterFailure::GiveUp, |place| self.next_model(place))
            }
        };
        ModelFailure { model: self.model().facts().model.to_string(), message: error.to_string(), then }
    }

    fn next_model(&self, place: u32) -> AfterFailure {
        let model = self.shared.agent.models().at(place);
        AfterFailure::Next { place, model: model.facts().model.to_string(), budget: self.empty_budget(model) }
    }

    /// Sends the request and passes the pieces of the reply on to the watchers.
    async fn ask(&self, request: &ModelRequest, plan: &StepPlan) -> Result<RawReply, ModelError> {
        let (sender, deltas) = mpsc::channel(DELTAS);
        let media = OutgoingMedia::new(&self.shared, &request.downscaled);
        let (session, call, attempt) = (self.run.session.as_str(), self.run.model_calls, plan.attempt);
        let context = ReplyContext { session, purpose: Purpose::Turn, call, attempt, media: &media };
        let reply = async {
            let reply = self.model().reply(request, context, &sender).await;
            drop(sender);
            reply
        };
        match &self.last_event {
            Some(event) => tokio::join!(reply, self.watchers.stream(event, deltas)).0,
            None => {
                drop(deltas);
                reply.await
            }
        }
    }
}

/// What a builder adds to one step, as the prompt's last message; none where it adds nothing.
fn step_message(sections: &[Section]) -> Option<Message> {
    let parts: Vec<Part> = prompt::texts(sections).into_iter().map(Part::Text).collect();
    (!parts.is_empty()).then_some(Message { role: Role::User, parts, seen_count: 0 })
}

/// The calls, looked up. Where the reply was cut before the arguments of its last call began, nothing says that there
/// were to be none.
fn resolved(registry: &Registry, reply: &Reply) -> Vec<ResolvedCall> {
    let mut calls: Vec<ResolvedCall> = reply.calls.iter().map(|call| registry.resolve(call)).collect();
    let is_cut = matches!(reply.stop, StopReason::Length | StopReason::ContentFilter);
    if let (true, Some(last), Some(asked)) = (is_cut, calls.last_mut(), reply.calls.last())
        && asked.arguments.trim().is_empty()
        && matches!(last.disposition, Disposition::Ready { .. })
    {
        let message = "the reply was cut before the arguments of this call came: call it again, and say less before it";
        let violation = Violation { pointer: String::new(), rule: None, message: message.to_owned() };
        last.disposition = Disposition::Refused(ToolError::InvalidArguments { violations: vec![violation] });
    }
    calls
}
