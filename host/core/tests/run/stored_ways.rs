//! The inputs that produce the second set of stored states. In these states, calls wait for external events,
//! loop-breaking calls run, turns have plans, messages were evicted, or turns ended in a way that one of these
//! features introduced.

use crate::session::{
    Session, WIDE, call, dispatched, grant, plain, refused, reply, restored, result, sent_to_service, waiting_for,
};
use crate::stored_states::{WayToState, failed_model, way_to};
use agent_core::approval::{ApprovalAnswer, ApprovalVerdict, GrantScope, ScopedGrant};
use agent_core::change::{CallResult, Change};
use agent_core::event::WaitCause;
use agent_core::loop_break::{Finish, LoopBreak, name};
use agent_core::message::{CallId, TurnInput};
use agent_core::plan::PlanStep;
use agent_core::plugin::{OutputData, Section, Stability};
use agent_core::run::{
    AfterFailure, Answerer, Approval, Awaited, DispatchedCall, Disposition, Input, LoopConfig, ModelFailure,
    PlanBudgets, PlannedStep, PlannerReply, PromptBudget, ResolvedCall, ResolvedReply, Retryability, Run, Summarised,
    TurnContext,
};
use agent_core::text_dialect::UnreadableCall;
use serde_json::{Value, json};

pub(crate) fn all() -> Vec<WayToState> {
    [waits(), loop_breaks(), efforts(), plans(), evictions(), ends()].into_iter().flatten().collect()
}

fn id(step: u32, position: u32) -> CallId {
    CallId(format!("call_1_{step}_{position}"))
}

fn unapproved(tool: &str) -> ResolvedCall {
    ResolvedCall { approval: Approval::Needed(grant(tool).digest), ..plain(tool) }
}

fn allowed(call: CallId, tool: &str, scope: GrantScope) -> Input {
    let grant = ScopedGrant { scope, grant: grant(tool) };
    let verdict = ApprovalVerdict::Granted { edited: Some(json!({"of": "less"})), grant };
    Input::Approval { answers: vec![ApprovalAnswer { call, verdict }] }
}

fn awaiting(call: CallId, cause: WaitCause) -> Input {
    let awaits = Some(waiting_for(&call, cause));
    Input::Dispatched { calls: vec![DispatchedCall { awaits, ..DispatchedCall::running(call, json!({})) }] }
}

/// Begins a turn whose first reply contains these calls.
fn replied(session: &mut Session, config: LoopConfig, calls: Vec<ResolvedCall>) -> Vec<Change> {
    vec![session.begin(config), session.reply("", calls)]
}

fn waits() -> Vec<WayToState> {
    let by_default = LoopConfig::default;
    vec![
        way_to("waiting_for_approval", move |session| {
            replied(session, by_default(), vec![unapproved("write"), unapproved("pay")])
        }),
        way_to("waiting_for_one_approval", move |session| {
            let mut changes = replied(session, by_default(), vec![unapproved("write"), unapproved("pay")]);
            changes.push(session.must(allowed(id(1, 1), "write", GrantScope::Once)));
            changes
        }),
        way_to("granted_for_the_session", move |session| {
            let mut changes = replied(session, by_default(), vec![unapproved("write")]);
            changes.push(session.must(allowed(id(1, 1), "write", GrantScope::Session)));
            changes.push(session.run_batch());
            changes
        }),
        way_to("granted_always", move |session| {
            let mut changes = replied(session, by_default(), vec![unapproved("write")]);
            changes.push(session.must(allowed(id(1, 1), "write", GrantScope::Always)));
            changes
        }),
        way_to("granted_before", move |session| {
            let remembered = ResolvedCall { approval: Approval::Remembered(grant("write")), ..plain("write") };
            replied(session, by_default(), vec![remembered])
        }),
        way_to("waiting_for_services", move |session| {
            let mut changes = replied(session, by_default(), vec![plain("pay"), plain("ship"), plain("look")]);
            changes.push(session.must(sent_to_service(&[id(1, 1), id(1, 2)])));
            changes.push(session.must(dispatched(&[id(1, 3)])));
            changes.push(session.must(Input::Outcome { call: id(1, 3), result: result("seen") }));
            changes.push(session.must(Input::Respond {
                call: id(1, 2),
                from: Answerer::Service,
                result: result("shipped"),
            }));
            changes
        }),
        way_to("waiting_for_a_service_until", move |session| {
            let mut changes = replied(session, by_default(), vec![plain("pay")]);
            let (event_type, expires_at) = ("com.example.pay".to_owned(), Some(1_700_000_000_000));
            let emits = Some(agent_core::message::Digest::from_sha256([5; 32]));
            let cause = WaitCause::Service { event_type, expires_at, emits };
            changes.push(session.must(awaiting(id(1, 1), cause)));
            changes
        }),
        way_to("waiting_for_an_agent", move |session| {
            let mut changes = replied(session, by_default(), vec![plain("reader")]);
            let cause = WaitCause::Agent { session: "reader/1".to_owned() };
            changes.push(session.must(awaiting(id(1, 1), cause)));
            changes
        }),
        way_to("waiting_for_a_client", move |session| {
            let mut changes = replied(session, by_default(), vec![plain("open_page")]);
            let awaits = Some(Awaited { cause: WaitCause::Client, event: None });
            let dispatched = DispatchedCall { awaits, ..DispatchedCall::running(id(1, 1), json!({})) };
            changes.push(session.must(Input::Dispatched { calls: vec![dispatched] }));
            changes
        }),
        way_to("delegated", |session| {
            session.run = Run::new("lead/1", "lead").delegated("subject", "agent");
            Vec::new()
        }),
    ]
}

pub(crate) fn completing(result: Value) -> ResolvedCall {
    breaking(LoopBreak::Complete, name::TASK_COMPLETION, json!({ "result": result }))
}

fn breaking(breaks: LoopBreak, name: &str, arguments: Value) -> ResolvedCall {
    ResolvedCall { arguments, ..call(name, Disposition::Breaks(breaks)) }
}

fn by_tool() -> LoopConfig {
    LoopConfig { finish: Finish::Tool, answer_within_ms: Some(60_000), ..LoopConfig::default() }
}

fn dispatch(session: &mut Session, awaits: Option<Awaited>) -> Change {
    let call = session.ledger.calls.last().expect("the session has a call").record.clone();
    session.must(Input::Dispatched { calls: vec![DispatchedCall { call: call.id, arguments: call.arguments, awaits }] })
}

fn question_asked(session: &mut Session) -> Vec<Change> {
    let question = || "Which year?".to_owned();
    let ask = breaking(LoopBreak::Ask, name::ASK_QUESTION, json!({"question": question()}));
    let mut changes = replied(session, by_tool(), vec![ask]);
    let cause = WaitCause::Answer { question: question(), expires_at: Some(1_700_000_000_000) };
    changes.push(dispatch(session, Some(Awaited { cause, event: None })));
    changes
}

fn loop_breaks() -> Vec<WayToState> {
    let conversing = || breaking(LoopBreak::Converse, name::CONVERSE, json!({"message": "Hello."}));
    vec![
        way_to("waiting_for_an_answer", question_asked),
        way_to("completing", |session| replied(session, by_tool(), vec![plain("look"), completing(json!("42"))])),
        way_to("completion_checked", |session| {
            let mut changes = replied(session, by_tool(), vec![completing(json!({"n": 42}))]);
            changes.push(dispatch(session, None));
            changes
        }),
        way_to("completion_rejected", |session| {
            let mut changes = replied(session, by_tool(), vec![completing(json!("seven"))]);
            changes.push(dispatch(session, None));
            changes.push(session.reject("not a number"));
            changes
        }),
        way_to("conversing", move |session| replied(session, by_tool(), vec![conversing()])),
        way_to("ended_completed", |session| {
            let mut changes = replied(session, by_tool(), vec![completing(json!("42"))]);
            changes.push(dispatch(session, None));
            changes.push(session.accept(OutputData::Text("42".to_owned())));
            changes
        }),
        way_to("ended_converse", move |session| {
            let mut changes = replied(session, by_tool(), vec![conversing()]);
            changes.push(dispatch(session, None));
            changes
        }),
        way_to("ended_asked", |session| {
            let mut changes = question_asked(session);
            changes.push(session.must(Input::Expire { call: id(1, 1) }));
            changes
        }),
    ]
}

fn persistent() -> LoopConfig {
    LoopConfig { persistence: true, ..LoopConfig::default() }
}

fn unreadable() -> Vec<UnreadableCall> {
    vec![UnreadableCall::MissingField { field: "tool_name".to_owned(), written: "{}".to_owned() }]
}

fn efforts() -> Vec<WayToState> {
    let saying = |session: &mut Session, config: LoopConfig, texts: &[&str]| {
        let first = session.begin(config);
        let replies = texts.iter().map(|text| session.reply(text, Vec::new()));
        std::iter::once(first).chain(replies.collect::<Vec<_>>()).collect::<Vec<Change>>()
    };
    vec![
        way_to("reminded", move |session| saying(session, by_tool(), &["hm", "hm"])),
        way_to("nudged", move |session| saying(session, persistent(), &["4 remaining", "I can't do that.", ""])),
        way_to("summary_forced", move |session| saying(session, persistent(), &["", "", ""])),
        way_to("unreadable", |session| {
            let written = "<tool>{}</tool>".to_owned();
            let reply = ResolvedReply { unreadable: unreadable(), written, ..reply("", Vec::new()) };
            vec![session.begin(LoopConfig::default()), session.must(Input::Reply(reply))]
        }),
        way_to("unreadable_beside_a_call", |session| {
            let reply = ResolvedReply { unreadable: unreadable(), ..reply("", vec![plain("a")]) };
            vec![session.begin(LoopConfig::default()), session.must(Input::Reply(reply))]
        }),
        way_to("turned_off", |session| {
            let calls = (0..3).map(|_| refused("write", "full")).chain([plain("look"), plain("read")]);
            let mut changes = replied(session, LoopConfig::default(), calls.collect());
            session.dispatch();
            changes.push(session.outcome("call_1_1_4", "seen"));
            changes
        }),
        way_to("ended_no_tool_call", move |session| saying(session, by_tool(), &["hm"; 5])),
        way_to("ended_empty_replies", move |session| saying(session, persistent(), &[""; 4])),
        way_to("ended_same_error", |session| {
            let mut changes = vec![session.begin(by_tool())];
            let fails = |position: u32| refused(&format!("tool_{position}"), "full");
            changes.extend((0..5).map(|position| session.reply("", vec![fails(position)])));
            changes
        }),
    ]
}

/// Begins a turn whose plan has this number of steps.
fn planned(session: &mut Session, steps: u32) -> Vec<Change> {
    let step = |number: u32| PlannedStep {
        step: PlanStep { tool: "look".to_owned(), task: format!("look at {number}") },
        offered: vec!["look".to_owned(), "read".to_owned()],
        tokens: 40,
    };
    let mut changes = planning(session);
    let plan = Some(PlannerReply::Steps((1..=steps).map(step).collect()));
    changes.push(session.must(Input::Reply(ResolvedReply { plan, ..reply("{}", Vec::new()) })));
    changes
}

fn planning(session: &mut Session) -> Vec<Change> {
    let start = session.start(TurnInput::Text("Look.".to_owned()), LoopConfig::default());
    let plan = Some(PlanBudgets { planner: WIDE, executor: PromptBudget { window: 50_000, ..WIDE } });
    let offered = Some(vec!["look".to_owned()]);
    vec![start, session.context(TurnContext { budget: WIDE, plan, offered, ..TurnContext::default() })]
}

fn plans() -> Vec<WayToState> {
    vec![
        way_to("planning", planning),
        way_to("plan_step", |session| planned(session, 2)),
        way_to("plan_step_called", |session| {
            let mut changes = planned(session, 2);
            changes.push(session.reply("", vec![plain("look"), plain("read")]));
            changes
        }),
        way_to("plan_step_in_trouble", |session| {
            let mut changes = planned(session, 2);
            changes.push(session.reply("", vec![plain("look")]));
            changes.push(session.must(sent_to_service(&[id(2, 1)])));
            changes
        }),
        way_to("plan_synthesis", |session| planned(session, 0)),
        way_to("plan_checked", |session| {
            let mut changes = planned(session, 0);
            changes.push(session.reply("seven", Vec::new()));
            changes
        }),
        way_to("plan_fallen_back", |session| {
            let mut changes = planned(session, 1);
            changes.push(session.reply("I can't.", Vec::new()));
            changes
        }),
    ]
}

/// Adds turns that fill the context window, so that messages must be evicted before the next step.
fn fill_window(session: &mut Session) -> Vec<Change> {
    let small = PromptBudget { window: 10_000, ..WIDE };
    let mut changes = Vec::new();
    for turn in 1..=4 {
        changes.push(session.start(TurnInput::Text("q".repeat(3_984)), LoopConfig::default()));
        let preface =
            vec![Section { name: "tool-rules".to_owned(), text: "Count.".to_owned(), stability: Stability::Fixed }];
        changes.push(session.context(TurnContext { budget: small, preface, ..TurnContext::default() }));
        if turn < 4 {
            changes.push(session.answer(&"a".repeat(3_984)));
        }
    }
    changes
}

fn summarised() -> Input {
    Input::Summarised(Summarised {
        text: "They counted.".to_owned(),
        files: vec!["notes.txt".to_owned()],
        by: "extract".to_owned(),
        ..Summarised::default()
    })
}

fn evictions() -> Vec<WayToState> {
    vec![
        way_to("summarising", fill_window),
        way_to("summarised", |session| {
            let mut changes = fill_window(session);
            changes.push(session.must(summarised()));
            changes
        }),
        way_to("summarising_for_another_model", |session| {
            let mut changes = Vec::new();
            for _ in 0..2 {
                changes.push(session.begin(LoopConfig::default()));
                changes.push(session.answer(&"a".repeat(3_984)));
            }
            changes.push(session.begin(LoopConfig::default()));
            let budget = PromptBudget { window: 3_800, ..WIDE };
            let then = AfterFailure::Next { model_index: 1, model: "b/two".to_owned(), budget };
            changes.push(session.must(failed_model(then)));
            changes
        }),
    ]
}

fn ends() -> Vec<WayToState> {
    vec![
        way_to("ended_outstanding_mismatch", |session| {
            let mut changes = replied(session, LoopConfig::default(), vec![plain("pay")]);
            changes.push(session.must(sent_to_service(&[id(1, 1)])));
            let mut state: Value = serde_json::from_slice(&session.run.snapshot()).expect("JSON");
            *state.pointer_mut("/turn/phase/working/outstanding/pay").expect("the count is stored") = json!(2);
            session.run = Run::restore(Some(state.to_string().as_bytes())).expect("the state is valid");
            changes.push(session.must(Input::Respond {
                call: id(1, 1),
                from: Answerer::Service,
                result: result("paid"),
            }));
            changes
        }),
        way_to("ended_fallback_at_the_bound", |session| {
            let fallback = Some(OutputData::Json(json!({"later": true})));
            let first = session.begin(LoopConfig { max_interactions: 0, fallback, ..LoopConfig::default() });
            vec![first, session.must(failed_model(AfterFailure::GiveUp))]
        }),
        way_to("failed_model_for_good", |session| {
            let failure = ModelFailure {
                model: "a/one".to_owned(),
                message: "no such model".to_owned(),
                retryability: Retryability::Permanent,
                then: AfterFailure::GiveUp,
            };
            vec![session.begin(LoopConfig::default()), session.must(Input::ModelFailed(failure))]
        }),
        way_to("cancelled_while_it_waits", |session| {
            let mut changes = replied(session, LoopConfig::default(), vec![unapproved("write"), plain("pay")]);
            changes.push(session.must(sent_to_service(&[id(1, 2)])));
            session.run = restored(&session.run);
            changes.push(session.must(Input::Cancel));
            changes
        }),
        way_to("failed_call", |session| {
            let mut changes = replied(session, LoopConfig::default(), vec![plain("write"), plain("look")]);
            session.dispatch();
            let result = CallResult { is_error: true, ..result("full") };
            changes.push(session.must(Input::Outcome { call: id(1, 1), result }));
            changes
        }),
    ]
}
