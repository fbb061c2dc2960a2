//! One model call: the outgoing copy is made, masked, sent, and the reply's calls are looked up.

use crate::calls::denials_in;
use crate::checkpoint::Checkpoint;
use crate::context::{answer, store_failed};
use crate::dialect::{Shown, relay};
use crate::drive::Deed;
use crate::media::OutgoingMedia;
use crate::places::Places;
use crate::registry::Registry;
use crate::session::{Notes, Session};
use agent_core::message::{Message, MessageId, Part, Role};
use agent_core::model::{ModelRequest, OfferedTool, Reply, StopReason};
use agent_core::plugin::{Section, StepRequest};
use agent_core::prompt;
use agent_core::run::{
    AfterFailure, Asked, Disposition, Input, Mask, ModelFailure, Offer, PromptBudget, Prospect, RepliedStep,
    ResolvedCall, StepPlan, TurnError,
};
use agent_core::tool::{ToolError, ToolSource, Violation};
use agent_core::view::shown_message;
use agent_core::visible::visible_request;
use agent_models::{ModelError, Provider, Purpose, RawReply, ReplyContext};
use agent_plugins::Kind;
use agent_store::{StepRecord, digest_of};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc;

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

impl Outgoing {
    /// Adds to the prompt's last words, which are in no history.
    pub(crate) fn add_last(&mut self, parts: Vec<Part>) {
        let messages = &mut self.request.messages;
        match messages.get_mut(self.ids.len()) {
            Some(message) => message.parts.extend(parts),
            None if parts.is_empty() => {}
            None => messages.push(Message { role: Role::User, parts, seen_count: 0 }),
        }
    }
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
        let (prompt, blocks) = self.prompt_record(&outgoing);
        outgoing.notes.texts.extend(blocks);
        self.note(&mut outgoing.notes, plan.step, "prompt", prompt);
        self.put_in_words(&mut outgoing);
        // What is stored stays as it is; the model reads nothing that a person would not see (row 49).
        visible_request(&mut outgoing.request);
        self.shared.pass(Checkpoint::BeforeModel);
        let asked = self.ask(&outgoing.request, &plan).await;
        self.shared.pass(Checkpoint::AfterModel);
        let raw = match asked {
            Ok(raw) => raw,
            Err(error) => return Ok((Input::ModelFailed(self.failure(&plan, &error)), outgoing.notes)),
        };
        let mut notes = outgoing.notes;
        self.note(&mut notes, plan.step, "reply", json!({"reply": raw.reply, "raw": raw.raw}));
        let mut reply = raw.reply;
        let made = self.made_plan(&plan, &reply).await;
        let read = self.read_words(&mut reply);
        let mut calls = resolved(self.shared.agent.registry(), &reply);
        calls.extend(read.calls);
        let calls = self.ask_where_needed(calls).await.map_err(store_failed)?;
        let replied = RepliedStep {
            calls: self.within_depth(calls),
            text: reply.text,
            stop: reply.stop,
            model: reply.model,
            usage: reply.usage,
            replay: reply.replay,
            masks: outgoing.new_masks,
            unreadable: read.unreadable,
            written: read.written,
            plan: made,
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
            self.for_provider(self.run.without_left_out(message))
        });
        let messages: Vec<Message> = shown.collect();
        // Behind everything else, so that what stands before it is as it was in the step before (L22).
        let step_parts: Vec<Part> = prompt::texts(&step_sections).into_iter().map(Part::Text).collect();
        let system = prompt::texts(&self.run.system_sections());
        // The turn's own sections are stored since it began, the session summary is not.
        notes.texts.extend(system.iter().filter(|_| self.run.summary.is_some()).cloned());
        let request = ModelRequest {
            model: self.model().facts().model.clone(),
            lifecycle: plan.lifecycle,
            system,
            messages,
            downscaled: Vec::new(),
            tools: self.offered_in(plan),
            output_schema: agent.config().output_schema.clone(),
            max_tokens: agent.config().reply_tokens,
        };
        let mut outgoing = Outgoing { request, ids, new_masks: Vec::new(), notes };
        outgoing.add_last(step_parts);
        self.add_plan_prompt(plan, &mut outgoing);
        Ok(outgoing)
    }

    /// The tools of a model call; none where they are withheld (L4, L24, L25).
    fn offered_in(&self, plan: &StepPlan) -> Vec<OfferedTool> {
        let registry = self.shared.agent.registry();
        match self.run.turn.as_ref().map_or(Offer::All, |turn| turn.offer()) {
            _ if plan.last => Vec::new(),
            Offer::All => registry.offered().to_vec(),
            Offer::These(names) => registry.offered_among(Some(names)).into_iter().cloned().collect(),
            Offer::Nothing => Vec::new(),
        }
    }

    /// What the builder's per-step export adds to this step only (L2).
    async fn step_sections(&mut self, plan: &StepPlan, notes: &mut Notes) -> Result<Vec<Section>, TurnError> {
        let agent = self.shared.agent.clone();
        let Some(builder) = agent.context_builder().filter(|setup| setup.plugin().has(Kind::StepContext)) else {
            return Ok(Vec::new());
        };
        let builder = self.shared.setup(builder).into_owned();
        let from = self.run.turn.as_ref().map_or(MessageId::MAX, |turn| turn.latest_from);
        let latest = self.shown(|entry| entry.id >= from).await.map_err(store_failed)?;
        let (places, blocks) = Places::new(&self.places(|entry| entry.id >= from), self.run.model_calls);
        notes.texts.extend(blocks);
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
        // What `init` returned stands in the record of the turn's beginning.
        let asked = json!({
            "lifecycle": request.lifecycle,
            "model": request.model,
            "step": request.step,
            "steps_left": request.steps_left,
            "messages": places,
            "result_characters": agent.config().bounds.result_characters,
            "budget": request.budget,
        });
        let mut report = self.shared.sandbox.build_step(&builder, &request, &self.ports()).await;
        self.note_denials(&report.denials);
        let (cost, by) = (report.cost, builder.plugin().identity().to_string());
        let host = json!({"answers": report.answers.take(), "denials": denials_in(&report.denials)});
        let sections = answer(&builder, report)?;
        let body = json!({"plugin": by, "asked": asked, "host": host, "answer": sections, "cost": cost});
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

    /// The exact prompt, by reference: texts by digest, messages by place (D1). With texts that it refers to.
    fn prompt_record(&self, outgoing: &Outgoing) -> (Value, Vec<String>) {
        let request = &outgoing.request;
        let digest = |text: &str| digest_of(text.as_bytes()).to_string();
        let messages = outgoing.ids.iter().zip(&request.messages);
        let messages: Vec<_> = messages.map(|(id, message)| (*id, message.seen_count)).collect();
        let (messages, blocks) = Places::new(&messages, self.run.model_calls);
        let record = json!({
            "model": request.model,
            "lifecycle": request.lifecycle,
            "max_tokens": request.max_tokens,
            "system": request.system.iter().map(|text| digest(text)).collect::<Vec<_>>(),
            "messages": messages,
            "result_characters": self.shared.agent.config().bounds.result_characters,
            "left_out": self.run.left_out,
            "masked": self.run.masks.iter().chain(&outgoing.new_masks).collect::<Vec<_>>(),
            "downscaled": request.downscaled,
            "tools": request.tools.iter().map(|tool| tool.author_name.as_str()).collect::<Vec<_>>(),
            "tool_dialect": self.shared.agent.config().tool_dialect,
            "output_schema": request.output_schema,
        });
        (record, blocks)
    }

    /// The model that the open turn asks.
    pub(crate) fn model(&self) -> &Arc<dyn Provider> {
        let (asked, place) = self.run.turn.as_ref().map_or_else(Default::default, |turn| (turn.asked(), turn.place));
        self.shared.agent.models().asked_for(asked, place)
    }

    /// The window of a model, without any system text.
    pub(crate) fn budget_of(&self, model: &Arc<dyn Provider>, tools: u32) -> PromptBudget {
        let window = model.facts().model.window;
        let reserved = self.shared.agent.config().reply_tokens.min(window / 4);
        PromptBudget { window, system: 0, tools, reserved }
    }

    /// Where the model rests after failures and another one does not, it is not even asked.
    fn passed_over(&self, plan: &StepPlan) -> Option<ModelFailure> {
        let models = self.shared.agent.models();
        let place = models.instead_of(plan.place).filter(|_| plan.attempt == 1 && plan.asked == Asked::Model)?;
        let message = format!("it failed less than {} s ago", models.cooldown.as_secs());
        let model = self.model().facts().model.to_string();
        Some(ModelFailure { model, message, prospect: Prospect::Later, then: self.next_model(place) })
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
            // A plan's models have nobody behind them: the loop goes on without the plan.
            (None, _) if plan.asked != Asked::Model => AfterFailure::GiveUp,
            (None, next) => {
                if error.retryable() {
                    models.rest(plan.place);
                }
                next.map_or(AfterFailure::GiveUp, |place| self.next_model(place))
            }
        };
        let prospect = if error.retryable() { Prospect::Later } else { Prospect::Never };
        ModelFailure { model: self.model().facts().model.to_string(), message: error.to_string(), prospect, then }
    }

    fn next_model(&self, place: u32) -> AfterFailure {
        let model = self.shared.agent.models().at(place);
        let offered = self.run.turn.as_ref().and_then(|turn| turn.offered.as_deref());
        let budget = self.budget_of(model, self.tool_tokens(offered));
        AfterFailure::Next { place, model: model.facts().model.to_string(), budget }
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
            Some(event) => match Shown::of(self.shared.agent.config().tool_dialect, plan.asked) {
                Shown::Whole => tokio::join!(reply, self.watchers.stream(event, deltas)).0,
                shown => {
                    let (relayed, watched) = mpsc::channel(DELTAS);
                    let relay = relay(shown, deltas, relayed);
                    tokio::join!(reply, relay, self.watchers.stream(event, watched)).0
                }
            },
            None => {
                drop(deltas);
                reply.await
            }
        }
    }
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
