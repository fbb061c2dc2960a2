//! Ways to states that the second set of stored states added: waits for somebody outside, plans, evictions, and the ways to end
//! that came with them.

use crate::session::{
    Session, WIDE, call, dispatched, grant, handed_on, plain, refused, reply, restored, result, waiting_for,
};
use crate::stored_states::{Told, failed_model, told};
use agent_core::approval::{ApprovalAnswer, ApprovalVerdict, GrantScope, ScopedGrant};
use agent_core::change::{CallResult, Change};
use agent_core::event::WaitCause;
use agent_core::loop_break::{Finish, LoopBreak, name};
use agent_core::message::{CallId, TurnInput};
use agent_core::plan::PlanStep;
use agent_core::plugin::{OutputData, Section, Stability};
use agent_core::run::{
    AfterFailure, Answerer, Approval, Awaited, DispatchedCall, Disposition, Input, LoopConfig, MadePlan, ModelFailure,
    PlanBudgets, PlannedStep, PromptBudget, Prospect, RepliedStep, ResolvedCall, Run, Summarised, TurnContext,
};
use agent_core::text_dialect::UnreadableCall;
use serde_json::{Value, json};

pub(crate) fn all() -> Vec<Told> {
    [waits(), loop_breaks(), efforts(), plans(), evictions(), ends()].into_iter().flatten().collect()
}

fn id(step: u32, place: u32) -> CallId {
    CallId(format!("call_1_{step}_{place}"))
}

fn asking(tool: &str) -> ResolvedCall {
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

/// A turn that begins with this reply.
fn replied(session: &mut Session, config: LoopConfig, calls: Vec<ResolvedCall>) -> Vec<Change> {
    vec![session.begin(config), session.reply("", calls)]
}

fn waits() -> Vec<Told> {
    let by_default = LoopConfig::default;
    vec![
        told("waiting_for_approval", move |session| {
            replied(session, by_default(), vec![asking("write"), asking("pay")])
        }),
        told("waiting_for_one_approval", move |session| {
            let mut changes = replied(session, by_default(), vec![asking("write"), asking("pay")]);
            changes.push(session.must(allowed(id(1, 1), "write", GrantScope::Once)));
            changes
        }),
        told("granted_for_the_session", move |session| {
            let mut changes = replied(session, by_default(), vec![asking("write")]);
            changes.push(session.must(allowed(id(1, 1), "write", GrantScope::Session)));
            changes.push(session.run_batch());
            changes
        }),
        told("granted_always", move |session| {
            let mut changes = replied(session, by_default(), vec![asking("write")]);
            changes.push(session.must(allowed(id(1, 1), "write", GrantScope::Always)));
            changes
        }),
        told("granted_before", move |session| {
            let remembered = ResolvedCall { approval: Approval::Remembered(grant("write")), ..plain("write") };
            replied(session, by_default(), vec![remembered])
        }),
        told("waiting_for_services", move |session| {
            let mut changes = replied(session, by_default(), vec![plain("pay"), plain("ship"), plain("look")]);
            changes.push(session.must(handed_on(&[id(1, 1), id(1, 2)])));
            changes.push(session.must(dispatched(&[id(1, 3)])));
            changes.push(session.must(Input::Outcome { call: id(1, 3), result: result("seen") }));
            changes.push(session.must(Input::Respond {
                call: id(1, 2),
                from: Answerer::Service,
                result: result("shipped"),
            }));
            changes
        }),
        told("waiting_for_a_service_until", move |session| {
            let mut changes = replied(session, by_default(), vec![plain("pay")]);
            let (event_type, expires_at) = ("com.example.pay".to_owned(), Some(1_700_000_000_000));
            let emits = Some(agent_core::message::Digest::from_sha256([5; 32]));
            let cause = WaitCause::Service { event_type, expires_at, emits };
            changes.push(session.must(awaiting(id(1, 1), cause)));
            changes
        }),
        told("waiting_for_an_agent", move |session| {
            let mut changes = replied(session, by_default(), vec![plain("reader")]);
            let cause = WaitCause::Agent { session: "reader/1".to_owned() };
            changes.push(session.must(awaiting(id(1, 1), cause)));
            changes
        }),
        told("delegated", |session| {
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
    let call = session.ledger.calls.last().expect("a call").record.clone();
    session.must(Input::Dispatched { calls: vec![DispatchedCall { call: call.id, arguments: call.arguments, awaits }] })
}

fn asked(session: &mut Session) -> Vec<Change> {
    let question = || "Which year?".to_owned();
    let ask = breaking(LoopBreak::Ask, name::ASK_QUESTION, json!({"question": question()}));
    let mut changes = replied(session, by_tool(), vec![ask]);
    let cause = WaitCause::Answer { question: question(), expires_at: Some(1_700_000_000_000) };
    changes.push(dispatch(session, Some(Awaited { cause, event: None })));
    changes
}

fn loop_breaks() -> Vec<Told> {
    let conversing = || breaking(LoopBreak::Converse, name::CONVERSE, json!({"message": "Hello."}));
    vec![
        told("waiting_for_an_answer", asked),
        told("completing", |session| replied(session, by_tool(), vec![plain("look"), completing(json!("42"))])),
        told("completion_checked", |session| {
            let mut changes = replied(session, by_tool(), vec![completing(json!({"n": 42}))]);
            changes.push(dispatch(session, None));
            changes
        }),
        told("completion_rejected", |session| {
            let mut changes = replied(session, by_tool(), vec![completing(json!("seven"))]);
            changes.push(dispatch(session, None));
            changes.push(session.reject("not a number"));
            changes
        }),
        told("conversing", move |session| replied(session, by_tool(), vec![conversing()])),
        told("ended_completed", |session| {
            let mut changes = replied(session, by_tool(), vec![completing(json!("42"))]);
            changes.push(dispatch(session, None));
            changes.push(session.accept(OutputData::Text("42".to_owned())));
            changes
        }),
        told("ended_converse", move |session| {
            let mut changes = replied(session, by_tool(), vec![conversing()]);
            changes.push(dispatch(session, None));
            changes
        }),
        told("ended_asked", |session| {
            let mut changes = asked(session);
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

fn efforts() -> Vec<Told> {
    let saying = |session: &mut Session, config: LoopConfig, texts: &[&str]| {
        let first = session.begin(config);
        let replies = texts.iter().map(|text| session.reply(text, Vec::new()));
        std::iter::once(first).chain(replies.collect::<Vec<_>>()).collect::<Vec<Change>>()
    };
    vec![
        told("reminded", move |session| saying(session, by_tool(), &["hm", "hm"])),
        told("nudged", move |session| saying(session, persistent(), &["4 remaining", "I can't do that.", ""])),
        told("summary_forced", move |session| saying(session, persistent(), &["", "", ""])),
        told("unreadable", |session| {
            let written = "<tool>{}</tool>".to_owned();
            let reply = RepliedStep { unreadable: unreadable(), written, ..reply("", Vec::new()) };
            vec![session.begin(LoopConfig::default()), session.must(Input::Reply(reply))]
        }),
        told("unreadable_beside_a_call", |session| {
            let reply = RepliedStep { unreadable: unreadable(), ..reply("", vec![plain("a")]) };
            vec![session.begin(LoopConfig::default()), session.must(Input::Reply(reply))]
        }),
        told("turned_off", |session| {
            let calls = (0..3).map(|_| refused("write", "full")).chain([plain("look"), plain("read")]);
            let mut changes = replied(session, LoopConfig::default(), calls.collect());
            session.dispatch();
            changes.push(session.outcome("call_1_1_4", "seen"));
            changes
        }),
        told("ended_no_tool_call", move |session| saying(session, by_tool(), &["hm"; 5])),
        told("ended_empty_replies", move |session| saying(session, persistent(), &[""; 4])),
        told("ended_same_error", |session| {
            let mut changes = vec![session.begin(by_tool())];
            let fails = |place: u32| refused(&format!("tool_{place}"), "full");
            changes.extend((0..5).map(|place| session.reply("", vec![fails(place)])));
            changes
        }),
    ]
}

/// A turn whose plan has these steps.
fn planned(session: &mut Session, steps: u32) -> Vec<Change> {
    let step = |place: u32| PlannedStep {
        step: PlanStep { tool: "look".to_owned(), task: format!("look at {place}") },
        offered: vec!["look".to_owned(), "read".to_owned()],
        tokens: 40,
    };
    let mut changes = planning(session);
    let plan = Some(MadePlan::Steps((1..=steps).map(step).collect()));
    changes.push(session.must(Input::Reply(RepliedStep { plan, ..reply("{}", Vec::new()) })));
    changes
}

fn planning(session: &mut Session) -> Vec<Change> {
    let start = session.start(TurnInput::Text("Look.".to_owned()), LoopConfig::default());
    let plan = Some(PlanBudgets { planner: WIDE, executor: PromptBudget { window: 50_000, ..WIDE } });
    let offered = Some(vec!["look".to_owned()]);
    vec![start, session.context(TurnContext { budget: WIDE, plan, offered, ..TurnContext::default() })]
}

fn plans() -> Vec<Told> {
    vec![
        told("planning", planning),
        told("plan_step", |session| planned(session, 2)),
        told("plan_step_called", |session| {
            let mut changes = planned(session, 2);
            changes.push(session.reply("", vec![plain("look"), plain("read")]));
            changes
        }),
        told("plan_step_in_trouble", |session| {
            let mut changes = planned(session, 2);
            changes.push(session.reply("", vec![plain("look")]));
            changes.push(session.must(handed_on(&[id(2, 1)])));
            changes
        }),
        told("plan_synthesis", |session| planned(session, 0)),
        told("plan_checked", |session| {
            let mut changes = planned(session, 0);
            changes.push(session.reply("seven", Vec::new()));
            changes
        }),
        told("plan_fallen_back", |session| {
            let mut changes = planned(session, 1);
            changes.push(session.reply("I can't.", Vec::new()));
            changes
        }),
    ]
}

/// A session whose next step is behind an eviction.
fn crowded(session: &mut Session) -> Vec<Change> {
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

fn evictions() -> Vec<Told> {
    vec![
        told("summarising", crowded),
        told("summarised", |session| {
            let mut changes = crowded(session);
            changes.push(session.must(summarised()));
            changes
        }),
        told("summarising_for_another_model", |session| {
            let mut changes = Vec::new();
            for _ in 0..2 {
                changes.push(session.begin(LoopConfig::default()));
                changes.push(session.answer(&"a".repeat(3_984)));
            }
            changes.push(session.begin(LoopConfig::default()));
            let budget = PromptBudget { window: 3_800, ..WIDE };
            let then = AfterFailure::Next { place: 1, model: "b/two".to_owned(), budget };
            changes.push(session.must(failed_model(then)));
            changes
        }),
    ]
}

fn ends() -> Vec<Told> {
    vec![
        told("ended_outstanding_mismatch", |session| {
            let mut changes = replied(session, LoopConfig::default(), vec![plain("pay")]);
            changes.push(session.must(handed_on(&[id(1, 1)])));
            let mut state: Value = serde_json::from_slice(&session.run.snapshot()).expect("JSON");
            *state.pointer_mut("/turn/phase/working/outstanding/pay").expect("it is stored") = json!(2);
            session.run = Run::restore(Some(state.to_string().as_bytes())).expect("it is read");
            changes.push(session.must(Input::Respond {
                call: id(1, 1),
                from: Answerer::Service,
                result: result("paid"),
            }));
            changes
        }),
        told("ended_fallback_at_the_bound", |session| {
            let fallback = Some(OutputData::Json(json!({"later": true})));
            let first = session.begin(LoopConfig { max_interactions: 0, fallback, ..LoopConfig::default() });
            vec![first, session.must(failed_model(AfterFailure::GiveUp))]
        }),
        told("failed_model_for_good", |session| {
            let failure = ModelFailure {
                model: "a/one".to_owned(),
                message: "no such model".to_owned(),
                prospect: Prospect::Never,
                then: AfterFailure::GiveUp,
            };
            vec![session.begin(LoopConfig::default()), session.must(Input::ModelFailed(failure))]
        }),
        told("cancelled_while_it_waits", |session| {
            let mut changes = replied(session, LoopConfig::default(), vec![asking("write"), plain("pay")]);
            changes.push(session.must(handed_on(&[id(1, 2)])));
            session.run = restored(&session.run);
            changes.push(session.must(Input::Cancel));
            changes
        }),
        told("failed_call", |session| {
            let mut changes = replied(session, LoopConfig::default(), vec![plain("write"), plain("look")]);
            session.dispatch();
            let result = CallResult { is_error: true, ..result("full") };
            changes.push(session.must(Input::Outcome { call: id(1, 1), result }));
            changes
        }),
    ]
}
