//! One model call: builds the outgoing prompt, masks media in it, sends it, and resolves the tool calls in the reply.

use super::action::{ActionContext, ActionResult, plugin_answer, store_failed};
use super::media_policy::apply_media_policy;
use super::outgoing::OutgoingPrompt;
use super::plan_step::{add_plan_prompt, read_plan};
use super::text_dialect::{StreamFilter, forward_visible_pieces, read_text_calls, write_tools_as_text};
use super::tool_selection::tool_tokens;
use crate::host::{BudgetRefusal, Checkpoint, MeteredCall, ModelCallEnding, Observation, ObservedModelCall};
use crate::prompts;
use crate::records::{
    BuilderCallRecord, BuilderSurroundings, CommitNotes, MessagePositions, PromptRecord, Question, ReplyRecord,
    StepQuestion, StepRecordBody,
};
use crate::tools::commands;
use crate::tools::registry::Registry;
use crate::tools::results::denials_in;
use crate::tools::tool_list::ReferencedText;
use agent_core::message::{Message, MessageId, Part};
use agent_core::model::{ModelRequest, OfferedTool, Reply, StopReason};
use agent_core::plugin::{Section, StepRequest};
use agent_core::prompt;
use agent_core::run::{
    AfterFailure, Disposition, Input, ModelFailure, ModelRole, OfferedTools, ResolvedCall, ResolvedReply, Retryability,
    StepPlan, Turn, TurnError,
};
use agent_core::tool::{ToolError, ToolSource, Violation};
use agent_core::trace::SpanKey;
use agent_core::view::shown_message;
use agent_core::visible::visible_request;
use agent_models::{CallProgress, ModelError, Purpose, RawReply, ReplyContext};
use agent_plugins::Kind;
use agent_store::digest_of;
use serde_json::json;
use std::time::Instant;
use tokio::sync::mpsc;

/// Capacity of the channels for the pieces of a streamed reply.
const DELTA_CHANNEL_CAPACITY: usize = 64;

/// Makes one model call.
pub(super) async fn call_model(context: &mut ActionContext<'_>, plan: StepPlan) -> ActionResult {
    if let Some(failure) = skip_cooling_model(context, &plan) {
        return Ok((Input::ModelFailed(failure), CommitNotes::default()));
    }
    wait_for_retry(context, &plan).await;
    let mut outgoing = outgoing_prompt(context, &plan).await?;
    apply_media_policy(context, &mut outgoing, plan.step).await?;
    record_prompt(context, &plan, &mut outgoing);
    // `visible_request` escapes the invisible characters in the outgoing prompt (row 49). The history keeps
    // these characters unchanged.
    visible_request(&mut outgoing.request);
    let model = context.model();
    context.reserve_budget(model, &outgoing.request).await.map_err(|refusal| match refusal {
        BudgetRefusal::Exceeded(budget) => TurnError::BudgetExceeded(budget),
        BudgetRefusal::Store(error) => store_failed(error),
    })?;
    context.services.reach_checkpoint(Checkpoint::BeforeModel);
    let services = context.services;
    let mut metered = MeteredCall::begin(context.model(), &outgoing.request, &services.abandoned);
    let reply = observed_request(context, &outgoing.request, &plan, metered.progress()).await;
    context.services.reach_checkpoint(Checkpoint::AfterModel);
    let raw = match reply {
        Ok(raw) => raw,
        Err(error) => {
            drop(metered);
            return Ok((Input::ModelFailed(model_failure(context, &plan, &error)), outgoing.notes));
        }
    };
    metered.replied(raw.reply.usage);
    let mut notes = outgoing.notes;
    let record = ReplyRecord { reply: raw.reply.clone(), raw: raw.raw };
    notes.add(context.run, plan.step, StepRecordBody::Reply(Box::new(record)));
    let mut reply = raw.reply;
    let planned = read_plan(context, &plan, &reply, &mut notes).await;
    let read = read_text_calls(context, &mut reply);
    let mut calls = resolve_calls(context.services.agent.registry(), &reply);
    calls.extend(read.calls);
    let calls = context.approvals().mark_needed_approvals(calls).await.map_err(store_failed)?;
    let replied = ResolvedReply {
        calls: refuse_deep_delegation(context, calls),
        text: reply.text,
        stop: reply.stop,
        model: reply.model,
        usage: reply.usage,
        replay: reply.replay,
        masks: outgoing.new_masks,
        saved_tokens: outgoing.saved_tokens,
        unreadable: read.unreadable,
        written: read.written,
        plan: planned,
    };
    metered.committed();
    Ok((Input::Reply(replied), notes))
}

/// Refuses calls to other agents if the delegation would form a cycle or be nested too deeply (L16, row 13).
fn refuse_deep_delegation(context: &ActionContext<'_>, mut calls: Vec<ResolvedCall>) -> Vec<ResolvedCall> {
    for call in calls.iter_mut().filter(|call| matches!(call.disposition, Disposition::Ready { .. })) {
        if let Some(ToolSource::Agent { agent }) = &call.source
            && let Err(error) = context.run.may_delegate(agent)
        {
            call.disposition = Disposition::Refused(error);
        }
    }
    calls
}

async fn outgoing_prompt(context: &mut ActionContext<'_>, plan: &StepPlan) -> Result<OutgoingPrompt, TurnError> {
    let entries: Vec<_> = context.run.sent().copied().collect();
    let ids: Vec<MessageId> = entries.iter().map(|entry| entry.id).collect();
    let stored = context.history.load(&ids).await.map_err(store_failed)?;
    let mut notes = CommitNotes::default();
    let step_sections = step_sections(context, plan, &mut notes).await?;
    let agent = context.agent();
    let limit = context.result_characters();
    let registry = agent.registry();
    let shown = stored.iter().zip(&entries).map(|(message, entry)| {
        let message = shown_message(message, context.run.seen_count(entry), limit);
        let message = context.run.without_rejected_results(message);
        let message = commands::as_calls_of_one_tool(message, |name| registry.is_run_by_name(name));
        prompts::for_provider(message, |name| registry.changed_name(name))
    });
    let messages: Vec<Message> = shown.collect();
    // The sections of this step are added at the end, so that the prompt before these sections is the same as in the
    // previous step (L22).
    let step_parts: Vec<Part> = prompt::texts(&step_sections).into_iter().map(Part::Text).collect();
    let system = prompt::texts(&context.run.system_sections());
    // The texts of the turn's sections were stored when the turn started, but the text of the session's summary was
    // not. If there is a summary, all system texts are therefore stored with this step.
    notes.texts.extend(system.iter().filter(|_| context.run.summary.is_some()).cloned());
    let request = ModelRequest {
        model: context.model().info().model.clone(),
        lifecycle: plan.lifecycle,
        system,
        messages,
        downscaled: Vec::new(),
        tools: tools_for_step(context, plan),
        output_schema: agent.config().output_schema.clone(),
        max_tokens: agent.config().reply_tokens,
    };
    let mut outgoing = OutgoingPrompt { request, ids, new_masks: Vec::new(), saved_tokens: 0, labels: false, notes };
    outgoing.add_last(step_parts);
    add_plan_prompt(context, plan, &mut outgoing);
    outgoing.add_last(last_call_notice(context).map(Part::Text).into_iter().collect());
    Ok(outgoing)
}

/// Returns the text that tells the model that this is the last model call of the turn (L4), or `None` if further model
/// calls may follow.
fn last_call_notice(context: &ActionContext<'_>) -> Option<String> {
    let is_last = context.run.turn.as_ref().is_some_and(Turn::is_last_call);
    is_last.then(|| prompt::LAST_CALL.to_owned())
}

/// Returns the tools that a model call offers (L4, L24, L25). The list is empty if the model call must not offer tools.
fn tools_for_step(context: &ActionContext<'_>, plan: &StepPlan) -> Vec<OfferedTool> {
    let registry = context.services.agent.registry();
    match context.run.turn.as_ref().map_or(OfferedTools::All, |turn| turn.offered_tools()) {
        _ if plan.last => Vec::new(),
        OfferedTools::All => registry.offered().to_vec(),
        OfferedTools::Only(names) => registry.offered_among(Some(names)).into_iter().cloned().collect(),
        OfferedTools::None => Vec::new(),
    }
}

/// Returns the sections that the context builder adds to the prompt of this step, but not to the prompts of later
/// steps (L2).
async fn step_sections(
    context: &mut ActionContext<'_>,
    plan: &StepPlan,
    notes: &mut CommitNotes,
) -> Result<Vec<Section>, TurnError> {
    let Some(builder) = context.agent().context_builder().filter(|setup| setup.plugin().has(Kind::StepContext)) else {
        return Ok(Vec::new());
    };
    let builder = context.services.current_setup(builder).into_owned();
    let from = context.run.turn.as_ref().map_or(MessageId::MAX, |turn| turn.latest_from);
    let latest = context.shown(|entry| entry.id >= from).await?;
    let (positions, blocks) = context.positions(|entry| entry.id >= from);
    notes.texts.extend(blocks);
    let Some(turn) = &context.run.turn else { return Ok(Vec::new()) };
    let request = StepRequest {
        lifecycle: plan.lifecycle,
        scope: context.scope(Some(SpanKey::Step(plan.step))),
        model: context.model().info().model.clone(),
        step: turn.interactions,
        steps_left: plan.steps_left,
        latest,
        budget: turn.budget.for_plugins(),
        state: turn.state.clone(),
    };
    // The recorded question does not contain the state that the builder returned when the turn started, because the
    // turn's context record contains it.
    let question = StepQuestion {
        lifecycle: request.lifecycle,
        model: request.model.clone(),
        step: request.step,
        steps_left: request.steps_left,
        messages: positions,
        result_characters: context.result_characters(),
        budget: request.budget,
    };
    let mut report = context.services.sandbox.build_step(&builder, &request, &context.services.ports).await;
    context.note_denials(&report.denials);
    let (cost, plugin) = (report.cost, builder.plugin().identity().to_string());
    let host = BuilderSurroundings { answers: report.answers.take(), denials: denials_in(&report.denials) };
    let sections = plugin_answer(&builder, report)?;
    let record = BuilderCallRecord { plugin, asked: Question::Recorded(question), host, answer: json!(sections), cost };
    notes.add(context.run, plan.step, StepRecordBody::StepContext(Box::new(record)));
    Ok(sections)
}

/// Adds the record of the exact prompt (D1), and writes the tools as text if the agent uses the text dialect. The record
/// contains digests instead of texts, and positions instead of messages. The texts are stored with the record.
fn record_prompt(context: &ActionContext<'_>, plan: &StepPlan, outgoing: &mut OutgoingPrompt) {
    let (tool_texts, offered) = (context.agent().registry().tool_texts(), &outgoing.request.tools);
    let list = tool_texts.list(offered);
    let digest = list.digest.to_string();
    if !context.stored_texts.contains(&list.digest) {
        let is_new = |text: &&ReferencedText| !context.stored_texts.contains(&text.digest);
        let texts = tool_texts.texts(offered).filter(is_new).map(|text| text.text.clone());
        outgoing.notes.texts.extend(texts.chain([list.text]));
    }
    let (mut record, texts) = prompt_record(context, outgoing, digest);
    outgoing.notes.texts.extend(texts);
    let sections = write_tools_as_text(context, outgoing);
    for section in sections {
        let digest = digest_of(section.as_bytes());
        record.tool_sections.push(digest.to_string());
        outgoing.notes.texts.extend((!context.stored_texts.contains(&digest)).then_some(section));
    }
    outgoing.notes.add(context.run, plan.step, StepRecordBody::Prompt(Box::new(record)));
}

/// Returns the record of a prompt, and the texts that must be stored with the record.
fn prompt_record(
    context: &ActionContext<'_>,
    outgoing: &OutgoingPrompt,
    tool_list: String,
) -> (PromptRecord, Vec<String>) {
    let request = &outgoing.request;
    let digest = |text: &str| digest_of(text.as_bytes()).to_string();
    let messages = outgoing.ids.iter().zip(&request.messages);
    let messages: Vec<_> = messages.map(|(id, message)| (*id, message.seen_count)).collect();
    let (messages, blocks) = MessagePositions::new(&messages, context.run.model_calls);
    let record = PromptRecord {
        model: request.model.clone(),
        lifecycle: request.lifecycle,
        max_tokens: request.max_tokens,
        system: request.system.iter().map(|text| digest(text)).collect(),
        messages,
        result_characters: context.agent().config().bounds.result_characters,
        left_out: context.run.left_out.clone(),
        masked: context.run.masks.iter().chain(&outgoing.new_masks).cloned().collect(),
        downscaled: request.downscaled.clone(),
        tools: request.tools.iter().map(|tool| tool.author_name.clone()).collect(),
        tool_list: Some(tool_list),
        tool_sections: Vec::new(),
        labels: outgoing.labels,
        tool_dialect: context.agent().config().tool_dialect,
        output_schema: request.output_schema.clone(),
        last_call: last_call_notice(context),
        sent_at: Some(context.services.now_ms()),
    };
    (record, blocks)
}

/// If the model is cooling down after a failure and a later model of the fallback chain is available, returns a
/// failure. The caller then sends no request to the model.
fn skip_cooling_model(context: &ActionContext<'_>, plan: &StepPlan) -> Option<ModelFailure> {
    let models = context.services.agent.models();
    let index =
        models.replacement_for(plan.model_index).filter(|_| plan.attempt == 1 && plan.role == ModelRole::Agent)?;
    let message = format!("it failed less than {} s ago", models.cooldown.as_secs());
    let model = context.model().info().model.to_string();
    Some(ModelFailure { model, message, retryability: Retryability::Retryable, then: next_model(context, index) })
}

/// Waits until the time of the next attempt, if this model call is a retry. The time of the next attempt is not stored,
/// so after a restart of the host the retry starts immediately.
async fn wait_for_retry(context: &mut ActionContext<'_>, plan: &StepPlan) {
    if plan.attempt == 1 {
        context.model_retry.first_try = Some(Instant::now());
    } else if let Some(time) = context.model_retry.next_try.take() {
        tokio::time::sleep_until(time.into()).await;
    }
}

fn model_failure(context: &mut ActionContext<'_>, plan: &StepPlan, error: &ModelError) -> ModelFailure {
    let models = context.services.agent.models();
    let spent = context.model_retry.first_try.map(|since| since.elapsed()).unwrap_or_default();
    let then = match (models.retry.wait(plan.attempt, spent, error), models.next_after(plan.model_index)) {
        (Some(wait), _) => {
            context.model_retry.next_try = Some(Instant::now() + wait);
            AfterFailure::Retry { wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX) }
        }
        // A planning model has no fallback models. If a planning model fails, the loop continues without the plan.
        (None, _) if plan.role != ModelRole::Agent => AfterFailure::GiveUp,
        (None, next) => {
            if error.retryable() {
                models.start_cooldown(plan.model_index);
            }
            next.map_or(AfterFailure::GiveUp, |index| next_model(context, index))
        }
    };
    let retryability = if error.retryable() { Retryability::Retryable } else { Retryability::Permanent };
    ModelFailure { model: context.model().info().model.to_string(), message: error.to_string(), retryability, then }
}

fn next_model(context: &ActionContext<'_>, index: u32) -> AfterFailure {
    let model = context.services.agent.models().at(index);
    let offered = context.run.turn.as_ref().and_then(|turn| turn.offered.as_deref());
    let budget = context.budget_of(model, tool_tokens(context.services, offered));
    AfterFailure::Next { model_index: index, model: model.info().model.to_string(), budget }
}

/// Sends the request, and tells the observer how long the model took (O2).
async fn observed_request(
    context: &ActionContext<'_>,
    request: &ModelRequest,
    plan: &StepPlan,
    progress: &CallProgress,
) -> Result<RawReply, ModelError> {
    let started = Instant::now();
    let (reply, first_piece) = send_request(context, request, plan, progress).await;
    if let Some(observer) = &context.services.observer {
        let ending = match &reply {
            Ok(_) => ModelCallEnding::Replied,
            Err(error) if error.retryable() => ModelCallEnding::FailedTemporarily,
            Err(_) => ModelCallEnding::FailedPermanently,
        };
        let (agent, model) = (context.agent().config().name.as_str(), &request.model.to_string());
        let first_piece = first_piece.map(|first| first.saturating_duration_since(started));
        let call = ObservedModelCall { agent, model, ending, time: started.elapsed(), first_piece };
        observer.observe(&Observation::ModelCall(call));
    }
    reply
}

/// Sends the request and forwards the pieces of the reply to the watchers. Also returns the time of the first piece that a
/// watcher could see.
async fn send_request(
    context: &ActionContext<'_>,
    request: &ModelRequest,
    plan: &StepPlan,
    progress: &CallProgress,
) -> (Result<RawReply, ModelError>, Option<Instant>) {
    let (sender, deltas) = mpsc::channel(DELTA_CHANNEL_CAPACITY);
    let media = context.services.outgoing_media(&request.downscaled);
    let (session, call, attempt) = (context.run.session.as_str(), context.run.model_calls, plan.attempt);
    let reply_context = ReplyContext { session, purpose: Purpose::Turn, call, attempt, media: &media, progress };
    let reply = async {
        let reply = context.model().reply(request, reply_context, &sender).await;
        drop(sender);
        reply
    };
    match context.last_event {
        Some(event) => match StreamFilter::of(context.services.agent.config().tool_dialect, plan.role) {
            StreamFilter::Whole => tokio::join!(reply, context.watchers.stream(event, deltas)),
            filter => {
                let (relayed, watched) = mpsc::channel(DELTA_CHANNEL_CAPACITY);
                let relay = forward_visible_pieces(filter, deltas, relayed);
                let (reply, (), first) = tokio::join!(reply, relay, context.watchers.stream(event, watched));
                (reply, first)
            }
        },
        None => {
            drop(deltas);
            (reply.await, None)
        }
    }
}

/// Resolves the calls of a reply. If the reply was cut off before the arguments of its last call, this call is refused,
/// because missing arguments must not be treated as empty arguments.
fn resolve_calls(registry: &Registry, reply: &Reply) -> Vec<ResolvedCall> {
    let mut calls: Vec<ResolvedCall> = reply.calls.iter().map(|call| registry.resolve(call)).collect();
    let is_cut = matches!(reply.stop, StopReason::Length | StopReason::ContentFilter);
    if let (true, Some(last), Some(written)) = (is_cut, calls.last_mut(), reply.calls.last())
        && written.arguments.trim().is_empty()
        && matches!(last.disposition, Disposition::Ready { .. })
    {
        let message = "the reply was cut before the arguments of this call: repeat the call with less text before it";
        let violation = Violation { pointer: String::new(), rule: None, message: message.to_owned() };
        last.disposition = Disposition::Refused(ToolError::InvalidArguments { violations: vec![violation] });
    }
    calls
}
