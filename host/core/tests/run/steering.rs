//! Tests of prompts that steer the open turn (I9).

use crate::session::{Session, WIDE, kinds, plain, reply, restored};
use agent_core::change::{Body, Change};
use agent_core::event::{Event, EventKind};
use agent_core::message::{Message, Part, Role, TurnInput};
use agent_core::model::StopReason;
use agent_core::plan::PlanStep;
use agent_core::run::{
    Action, Input, LoopConfig, ModelRole, PlanBudgets, PlannedStep, PlannerReply, QueuedPrompt, ResolvedReply,
    TurnContext,
};

fn steering(text: &str) -> Input {
    Input::QueuePrompt { prompt: QueuedPrompt { steers: true, ..queued(text) } }
}

fn queued(text: &str) -> QueuedPrompt {
    QueuedPrompt { input: TurnInput::Text(text.into()), trace: None, steers: false }
}

/// Returns the texts of the messages of the user that a change appends.
fn user_texts(change: &Change) -> Vec<String> {
    let messages = change.messages.iter().filter(|message| message.role == Role::User);
    let text = |body: &Body| match body {
        Body::Parts(parts) => Message { role: Role::User, parts: parts.clone(), seen_count: 0 }.plain_text(),
        Body::ResultOf(_) => String::new(),
    };
    messages.map(|message| text(&message.body)).collect()
}

/// Returns the texts of the prompts that the change reports as added to the turn.
fn steered(change: &Change) -> Vec<String> {
    let text = |event: &Event| match &event.kind {
        EventKind::Steered { text } => Some(text.clone()),
        _ => None,
    };
    change.events.iter().filter_map(text).collect()
}

/// I9: a prompt that steers the turn follows the results of the step in which it arrived. A prompt that does not steer
/// the turn stays in the queue.
#[test]
fn i9_a_steering_prompt_is_added_before_the_next_model_call() {
    let mut session = Session::calling(LoopConfig::default());
    assert_eq!(session.must(steering("Only the first page.")).events, []);
    session.must(Input::QueuePrompt { prompt: queued("And then?") });
    let change = session.reply("", vec![plain("count")]);
    assert_eq!(user_texts(&change), [""; 0], "calls of the reply still need their results");
    session.must(steering("In German."));
    session.run = restored(&session.run);
    let change = session.run_batch();
    let roles: Vec<_> = change.messages.iter().map(|message| message.role).collect();
    assert_eq!(roles, [Role::Tool, Role::User, Role::User]);
    assert_eq!(user_texts(&change), ["Only the first page.", "In German."]);
    assert_eq!(steered(&change), ["Only the first page.", "In German."]);
    let order = kinds(&change);
    let position = |name: &str| order.iter().position(|kind| kind == name).unwrap_or_else(|| panic!("{order:?}"));
    assert!(position("steered") < position("loop_iteration"), "{order:?}");
    assert_eq!(session.run.queued_prompts, [queued("And then?")]);
}

/// I9, L1: if the turn makes no other model call, the prompt begins a turn.
#[test]
fn i9_a_steering_prompt_that_arrives_too_late_begins_a_turn() {
    let mut session = Session::calling(LoopConfig::default());
    session.must(steering("In German."));
    session.must(steering("Please."));
    session.answer("Three.");
    assert_eq!(session.run.queued_prompts.len(), 2);
    session.start(TurnInput::Text("In German.".into()), LoopConfig::default());
    let change = session.context(TurnContext { budget: WIDE, ..Default::default() });
    assert_eq!(user_texts(&change), ["In German.", "Please."], "the second prompt steers the new turn");
    assert_eq!(session.run.queued_prompts, []);
}

/// I9, L12: a rejected answer is followed by the feedback and then by the prompt.
#[test]
fn i9_a_steering_prompt_follows_the_feedback_about_a_rejected_answer() {
    let mut session = Session::calling(LoopConfig::default());
    session.reply("Three", Vec::new());
    session.must(steering("In German."));
    let change = session.reject("it is too short");
    let texts = user_texts(&change);
    assert_eq!((texts.len(), texts[1].as_str()), (2, "In German."), "{texts:?}");
}

/// I9: a reply that the provider interrupted is continued before the prompt is added, because the provider continues a
/// reply only if the reply is the last message.
#[test]
fn i9_a_steering_prompt_waits_until_an_interrupted_reply_is_complete() {
    let mut session = Session::calling(LoopConfig::default());
    session.must(steering("In German."));
    let paused = ResolvedReply { stop: StopReason::Paused, ..reply("First part", Vec::new()) };
    let change = session.must(Input::Reply(paused));
    assert_eq!(steered(&change), [""; 0]);
    session.reply("", vec![plain("count")]);
    assert_eq!(steered(&session.run_batch()), ["In German."]);
}

/// I9, L24: a plan that was made before the prompt arrived is abandoned. The planner itself still sees the prompt.
#[test]
fn i9_l24_a_steering_prompt_ends_a_plan_that_does_not_consider_it() {
    let mut session = Session::new();
    session.start(TurnInput::Text("Rename them.".into()), LoopConfig::default());
    let plan = Some(PlanBudgets { planner: WIDE, executor: WIDE });
    session.context(TurnContext { budget: WIDE, plan, ..Default::default() });
    let step = |tool: &str| PlannedStep {
        step: PlanStep { tool: tool.into(), task: format!("do {tool}") },
        offered: vec![tool.into()],
        tokens: 40,
    };
    let plan = PlannerReply::Steps(vec![step("read"), step("write")]);
    session.must(Input::Reply(ResolvedReply { plan: Some(plan), ..reply("{…}", Vec::new()) }));
    session.must(steering("Not the pictures."));
    session.reply("", vec![plain("read")]);
    let change = session.run_batch();
    assert!(kinds(&change).contains(&"plan_fallback".to_owned()), "{:?}", kinds(&change));
    assert_eq!(user_texts(&change), ["Not the pictures."]);
    let Action::CallModel(plan) = session.run.action() else { panic!("{:?}", session.run.action()) };
    assert_eq!(plan.role, ModelRole::Agent);
}

/// P4, I9: media of the prompt are kept.
#[test]
fn i9_a_steering_prompt_keeps_its_parts() {
    let mut session = Session::calling(LoopConfig::default());
    let parts = vec![Part::Text("See:".into()), Part::Json(serde_json::json!({"page": 1}))];
    let prompt = QueuedPrompt { input: TurnInput::Message(parts.clone()), trace: None, steers: true };
    session.must(Input::QueuePrompt { prompt });
    session.reply("", vec![plain("count")]);
    let change = session.run_batch();
    assert_eq!(change.messages.last().map(|message| &message.body), Some(&Body::Parts(parts)));
}
