//! Tests of planned turns and of plans that fail (L24).

use crate::session::{Session, WIDE, call, grant, kinds, of_priority, plain, refused, reply, result, sent_to_service};
use agent_core::approval::{ApprovalAnswer, ApprovalVerdict, GrantScope, ScopedGrant};
use agent_core::change::Change;
use agent_core::event::EventKind;
use agent_core::loop_break::LoopBreak;
use agent_core::message::{CallId, TurnInput};
use agent_core::model::StopReason;
use agent_core::plan::PlanStep;
use agent_core::plugin::OutputData;
use agent_core::run::{
    Action, AfterFailure, Answerer, Approval, Disposition, Input, LoopConfig, ModelFailure, ModelRole, OfferedTools,
    PlanBudgets, PlannedStep, PlannerReply, PromptBudget, ResolvedCall, ResolvedReply, Retryability, TurnContext,
};
use agent_core::text_dialect::UnreadableCall;
use agent_core::tool::ToolError;
use serde_json::json;

const PLANNER: PromptBudget = PromptBudget { window: 50_000, system: 0, tools: 70, reserved: 500 };
const EXECUTOR: PromptBudget = PromptBudget { window: 8_000, system: 0, tools: 0, reserved: 300 };

fn planning(config: LoopConfig) -> Session {
    let mut session = Session::new();
    session.start(TurnInput::Text("Rename them.".into()), config);
    let plan = Some(PlanBudgets { planner: PLANNER, executor: EXECUTOR });
    session.context(TurnContext { budget: WIDE, plan, ..Default::default() });
    session
}

fn planner_reply(plan: PlannerReply) -> Input {
    Input::Reply(ResolvedReply { plan: Some(plan), ..reply("{…}", Vec::new()) })
}

fn steps(tools: &[&str]) -> PlannerReply {
    let step = |(index, tool): (usize, &&str)| PlannedStep {
        step: PlanStep { tool: (*tool).into(), task: format!("do {tool}") },
        offered: vec![(*tool).into(), "other".into()],
        tokens: 40 + index as u32,
    };
    PlannerReply::Steps(tools.iter().enumerate().map(step).collect())
}

fn role(session: &Session) -> ModelRole {
    match session.run.action() {
        Action::CallModel(plan) => plan.role,
        other => panic!("{other:?}"),
    }
}

fn offered(session: &Session) -> Vec<String> {
    match session.run.turn.as_ref().unwrap().offered_tools() {
        OfferedTools::Only(tools) => tools.to_vec(),
        OfferedTools::All => vec!["all".into()],
        OfferedTools::None => Vec::new(),
    }
}

fn reason(change: &Change) -> String {
    let reason = change.events.iter().find_map(|event| match &event.kind {
        EventKind::PlanFallback { reason } => Some(reason.clone()),
        _ => None,
    });
    reason.unwrap_or_else(|| panic!("no fallback: {:?}", kinds(change)))
}

fn total(change: &Change) -> Option<(u32, u32)> {
    change.events.iter().find_map(|event| match event.kind {
        EventKind::ContextBudget { total, tools, .. } => Some((total, tools)),
        _ => None,
    })
}

/// L24: a planner makes a plan, an executor makes one call for each step, and the planner's answer is validated.
#[test]
fn l24_a_turn_makes_a_plan_executes_it_and_writes_the_answer() {
    let mut session = planning(LoopConfig::default());
    assert_eq!((role(&session), offered(&session)), (ModelRole::Planner, vec![]));
    let change = session.must(planner_reply(steps(&["ocr.extract", "files.move"])));
    assert_eq!(kinds(&change), ["stream_complete", "plan", "loop_iteration", "context_budget", "context_built"]);
    assert!(matches!(&change.events[0].kind, EventKind::StreamComplete { text, .. } if text.is_empty()));
    assert!(change.messages.is_empty(), "a plan is not part of the history");
    assert_eq!(total(&change), Some((8_000, 40)));
    assert_eq!(role(&session), ModelRole::Executor { step: 1, of: 2 });
    assert_eq!(offered(&session), ["ocr.extract", "other"]);
    session.reply("", vec![plain("ocr.extract")]);
    let change = session.run_batch();
    assert_eq!(total(&change), Some((8_000, 41)));
    assert_eq!(role(&session), ModelRole::Executor { step: 2, of: 2 });
    session.reply("", vec![plain("files.move")]);
    let change = session.run_batch();
    assert_eq!((role(&session), offered(&session)), (ModelRole::Synthesizer, vec![]));
    assert_eq!(total(&change), Some((50_000, 0)));
    session.reply("Renamed.", Vec::new());
    session.reject("too short");
    assert_eq!(role(&session), ModelRole::Synthesizer, "a rejected answer is corrected by the planner (L12)");
    session.answer("I have renamed it.");
    assert_eq!(session.output().data, json!("I have renamed it."));
    assert_eq!(session.output().interactions, 5);
}

/// L24: if a plan has no steps, the planner writes the answer and no tool is called.
#[test]
fn l24_after_an_empty_plan_the_planner_answers() {
    let mut session = planning(LoopConfig::default());
    session.must(planner_reply(PlannerReply::Steps(Vec::new())));
    assert_eq!(role(&session), ModelRole::Synthesizer);
    session.answer("Hello.");
}

/// L6, L24: only the first call with the highest priority in a step runs, and the other calls are deferred.
#[test]
fn l24_a_step_makes_one_call() {
    let mut session = planning(LoopConfig::default());
    session.must(planner_reply(steps(&["a"])));
    let change = session.reply("", vec![plain("a"), of_priority("b", 3), of_priority("c", 3)]);
    assert_eq!(kinds(&change).iter().filter(|kind| *kind == "tool_deferred").count(), 2);
    let result = format!("{:?}", session.ledger.calls[2].record.result);
    assert!(result.contains("a step of the plan makes one call"), "{result}");
    assert_eq!(session.dispatch(), [CallId("call_1_2_2".into())]);
    session.outcome("call_1_2_2", "ok");
    assert_eq!(role(&session), ModelRole::Synthesizer, "a deferred call is not a failure");
}

/// A function that applies inputs that make a plan fail. Returns the change in which the plan is abandoned.
type Failure = fn(&mut Session) -> Change;

/// L24: every failure abandons the plan. The `plan_fallback` event contains the reason, and the results of the calls
/// that have already run stay in the history.
#[test]
fn l24_every_failure_abandons_the_plan() {
    let invalid = |session: &mut Session| session.must(planner_reply(PlannerReply::Invalid("it is not JSON".into())));
    let no_call = |session: &mut Session| {
        session.must(planner_reply(steps(&["a", "b"])));
        session.reply("", vec![plain("a")]);
        session.run_batch();
        session.reply("I cannot do that.", Vec::new())
    };
    let refused = |session: &mut Session| {
        session.must(planner_reply(steps(&["a"])));
        let denied = ToolError::Denied { message: "not granted".into() };
        session.reply("", vec![call("a", Disposition::Refused(denied))])
    };
    let failed = |session: &mut Session| {
        session.must(planner_reply(steps(&["a", "b"])));
        session.reply("", vec![plain("a")]);
        session.dispatch();
        let result = agent_core::change::CallResult { is_error: true, ..result("disk full") };
        session.must(Input::Outcome { call: CallId("call_1_2_1".into()), result })
    };
    let empty = |session: &mut Session| {
        session.must(planner_reply(steps(&["a"])));
        session.reply("", vec![plain("a")]);
        session.run_batch();
        session.reply(" \n", vec![plain("b")])
    };
    let silent = |session: &mut Session| {
        let failure = ModelFailure {
            model: "local/p".into(),
            message: "busy".into(),
            retryability: Retryability::Retryable,
            then: AfterFailure::GiveUp,
        };
        session.must(Input::ModelFailed(failure))
    };
    let cases: [(Failure, &str, usize); 6] = [
        (invalid, "the planner's reply is not a plan: it is not JSON", 0),
        (no_call, "the executor called no tool in step 2 of 2", 1),
        (refused, "no call of step 1 of 1 could run: `a`: denied: not granted", 1),
        (failed, "`a` failed in step 1 of 2: disk full", 1),
        (empty, "the planner's answer is empty", 1),
        (silent, "local/p did not answer: busy", 0),
    ];
    for (case, expected, calls) in cases {
        let mut session = planning(LoopConfig::default());
        let change = case(&mut session);
        assert_eq!(reason(&change), expected);
        assert_eq!((role(&session), offered(&session)), (ModelRole::Agent, vec!["all".to_owned()]), "{expected}");
        assert_eq!(session.ledger.calls.len(), calls, "{expected}");
        assert_eq!(total(&change), Some((100_000, 200)), "{expected}: the budget of the agent's model is used");
        // The agent's own model continues the turn, and the turn does not return to the plan.
        session.reply("", vec![plain("z")]);
        session.run_batch();
        assert_eq!(role(&session), ModelRole::Agent);
        session.answer("done");
        assert_eq!(session.output().data, json!("done"));
    }
}

/// L24: if a model call of a plan fails, the call is retried before the plan is abandoned.
#[test]
fn l24_a_retry_keeps_the_plan() {
    let mut session = planning(LoopConfig::default());
    let then = AfterFailure::Retry { wait_ms: 5 };
    session.must(Input::ModelFailed(ModelFailure {
        model: "local/p".into(),
        message: "busy".into(),
        retryability: Retryability::Retryable,
        then,
    }));
    assert_eq!(role(&session), ModelRole::Planner);
}

/// L4, L24: if the turn reaches its limit of interactions, the planner writes the answer from the results of the steps
/// that were performed.
#[test]
fn l4_the_limit_applies_to_plans() {
    let mut session = planning(LoopConfig { max_interactions: 2, ..Default::default() });
    session.must(planner_reply(steps(&["a", "b", "c"])));
    session.reply("", vec![plain("a")]);
    session.run_batch();
    assert!(
        matches!(session.run.action(), Action::CallModel(plan) if plan.last && plan.role == ModelRole::Synthesizer)
    );
    session.reply("As far as it goes.", Vec::new());
    session.accept(OutputData::Text("As far as it goes.".into()));
    assert!(session.output().limit_reached);
}

/// L24, L26: if the prompt is too large for the executor's context window, the plan is abandoned and the agent's own
/// model continues.
#[test]
fn l26_a_window_that_is_too_small_abandons_the_plan() {
    let mut session = Session::new();
    session.start(TurnInput::Text("Rename them.".into()), LoopConfig::default());
    let executor = PromptBudget { window: 1_500, ..EXECUTOR };
    let plan = Some(PlanBudgets { planner: PLANNER, executor });
    session.context(TurnContext { budget: WIDE, plan, ..Default::default() });
    let change = session.must(planner_reply(steps(&["a"])));
    assert_eq!(reason(&change), "too few tokens of the executor's context window are left");
    assert_eq!(role(&session), ModelRole::Agent);
}

/// D3, L24: if the outcome of a step's call is unknown, the turn waits for a user's decision about the call. After
/// the user's decision, the plan continues.
#[test]
fn l24_a_plan_survives_a_crash_and_a_suspension() {
    let mut session = planning(LoopConfig::default());
    session.must(planner_reply(steps(&["a", "b"])));
    session.crash();
    assert_eq!(role(&session), ModelRole::Executor { step: 1, of: 2 });
    session.reply("", vec![plain("a")]);
    session.dispatch();
    session.crash();
    assert!(matches!(session.run.action(), Action::Suspended(_)));
    session.resolve("call_1_2_1", agent_core::run::Decision::Result("done".into()));
    assert_eq!(role(&session), ModelRole::Executor { step: 2, of: 2 });
    assert_eq!(session.ledger.calls.len(), 1, "no call runs twice");
}

/// L25: the tools that a turn offers are selected once, and an event reports the number of these tools.
#[test]
fn l25_a_turn_offers_the_selected_tools() {
    let mut session = Session::new();
    session.start(TurnInput::Text("Count.".into()), LoopConfig::default());
    let selected = vec!["text.count".to_owned(), "read_result".to_owned()];
    let change = session.context(TurnContext { budget: WIDE, offered: Some(selected.clone()), ..Default::default() });
    let built = change.events.iter().find_map(|event| match &event.kind {
        EventKind::ContextBuilt { offered_tools, .. } => Some(*offered_tools),
        _ => None,
    });
    assert_eq!(built, Some(Some(2)));
    session.reply("", vec![plain("text.count")]);
    session.run_batch();
    assert_eq!(offered(&session), selected);
}

/// L23, L24: if persistence is on, a planner's answer that leaves work undone is not accepted, and the agent's own
/// model continues the turn.
#[test]
fn l23_a_planners_answer_that_leaves_work_undone_is_not_accepted() {
    for (text, accepted) in [("Renamed 1 file. 4 remaining.", false), ("All files have been renamed.", true)] {
        let mut session = planning(LoopConfig { persistence: true, ..LoopConfig::default() });
        session.must(planner_reply(steps(&["files.move"])));
        session.reply("", vec![plain("files.move")]);
        session.run_batch();
        assert_eq!(role(&session), ModelRole::Synthesizer);
        let change = session.reply(text, Vec::new());
        if accepted {
            assert!(matches!(session.run.action(), Action::Validate(_)), "{:?}", kinds(&change));
        } else {
            assert!(reason(&change).contains("leaves work undone") && kinds(&change).contains(&"nudge".to_owned()));
            assert_eq!((role(&session), offered(&session)), (ModelRole::Agent, vec!["all".to_owned()]));
        }
    }
}

/// Returns a call whose arguments are nested more deeply than the host allows.
fn nested_call(tool: &str) -> ResolvedCall {
    ResolvedCall { arguments: (0..65).fold(json!(1), |inner, _| json!([inner])), ..plain(tool) }
}

/// L24: if no call of a step can run, the plan is abandoned.
#[test]
fn l24_a_step_whose_calls_cannot_run_abandons_the_plan() {
    let cut = |session: &mut Session| {
        session.must(Input::Reply(ResolvedReply { stop: StopReason::Length, ..reply("", vec![plain("a")]) }))
    };
    let too_deep = |session: &mut Session| session.reply("", vec![nested_call("a")]);
    let too_many = |session: &mut Session| session.reply("", (0..129).map(|_| plain("a")).collect());
    let unreadable = |session: &mut Session| {
        let broken = UnreadableCall::ParseError { problem: "it is not JSON".into(), written: "{\"server".into() };
        session.must(Input::Reply(ResolvedReply { unreadable: vec![broken], ..reply("", Vec::new()) }))
    };
    let cases: [(Failure, &str, usize); 4] = [
        (cut, "no call of step 1 of 2 could run: `a`: failed: the reply was cut", 1),
        (too_deep, "`a`: invalid arguments: the arguments have more than 64 levels", 1),
        (too_many, "too many calls in one reply: 129, at most 128", 128),
        (unreadable, "could not be read: it is not JSON. The call was written as `{\"server`", 0),
    ];
    for (case, expected, calls) in cases {
        let mut session = planning(LoopConfig::default());
        session.must(planner_reply(steps(&["a", "b"])));
        let change = case(&mut session);
        assert!(reason(&change).contains(expected), "{}", reason(&change));
        assert_eq!((role(&session), session.ledger.calls.len()), (ModelRole::Agent, calls), "{expected}");
        // L20: if the executor's call is unreadable, an `error` event is emitted.
        let is_reported = kinds(&change).contains(&"error".to_owned());
        assert_eq!(is_reported, calls == 0, "{:?}", kinds(&change));
        session.answer("done");
    }
}

/// L24, L28: a tool that was disabled in one step cannot be called in a later step.
#[test]
fn l24_a_disabled_tool_cannot_be_called_in_a_later_step() {
    let with_disabled_tool = || {
        let mut session = planning(LoopConfig::default());
        session.must(planner_reply(steps(&["x", "x", "x", "y"])));
        for _ in 0..3 {
            session.reply("", vec![refused("x", "no such folder"), plain("y")]);
            session.run_batch();
        }
        assert_eq!(role(&session), ModelRole::Executor { step: 4, of: 4 }, "the steps' calls have run");
        session
    };
    let mut session = with_disabled_tool();
    let change = session.reply("", vec![plain("x")]);
    assert!(reason(&change).contains("`x` is off"), "{}", reason(&change));
    assert_eq!(role(&session), ModelRole::Agent);

    let mut session = with_disabled_tool();
    session.reply("", vec![plain("x"), plain("y"), plain("z")]);
    assert_eq!(session.dispatch(), [CallId("call_1_5_2".into())], "one call per step");
    session.outcome("call_1_5_2", "ok");
    assert_eq!(role(&session), ModelRole::Synthesizer);
}

/// L18, L24: a loop-breaking call is deferred if the reply also contains the call of a step. If the reply does not
/// contain the call of a step, the loop-breaking call is performed. If the result of the loop-breaking call is
/// rejected, the plan is abandoned.
#[test]
fn l24_a_steps_call_takes_precedence_over_a_loop_breaking_call() {
    let done = || {
        let complete = call("task_completion", Disposition::Breaks(LoopBreak::Complete));
        ResolvedCall { arguments: json!({"result": "half"}), ..complete }
    };
    let mut session = planning(LoopConfig::default());
    session.must(planner_reply(steps(&["a", "b"])));
    session.reply("", vec![plain("a"), done()]);
    session.run_batch();
    assert_eq!(role(&session), ModelRole::Executor { step: 2, of: 2 });
    session.reply("", vec![done()]);
    session.dispatch();
    let change = session.reject("no");
    assert!(reason(&change).contains("failed in step 2 of 2"), "{}", reason(&change));
    assert_eq!(role(&session), ModelRole::Agent);
}

/// L10, L24: a step that calls a service suspends the turn, and the plan continues after the response.
#[test]
fn l10_a_step_waits_for_its_service() {
    let mut session = planning(LoopConfig::default());
    session.must(planner_reply(steps(&["pay", "b"])));
    session.reply("", vec![plain("pay")]);
    let id = CallId("call_1_2_1".into());
    let change = session.must(sent_to_service(std::slice::from_ref(&id)));
    assert_eq!(kinds(&change), ["tool_call", "suspended"]);
    session.crash();
    let change = session.must(Input::Respond { call: id.clone(), from: Answerer::Service, result: result("paid") });
    assert!(kinds(&change).contains(&"resumed".to_owned()));
    assert_eq!(role(&session), ModelRole::Executor { step: 2, of: 2 });
    // If a service responds with an error, the step fails.
    session.reply("", vec![plain("pay")]);
    let id = CallId("call_1_3_1".into());
    session.must(sent_to_service(std::slice::from_ref(&id)));
    let failed = agent_core::change::CallResult { is_error: true, ..result("no money") };
    let change = session.must(Input::Respond { call: id, from: Answerer::Service, result: failed });
    assert_eq!(reason(&change), "`pay` failed in step 2 of 2: no money");
}

/// L17, L24: the call of a step may need approval, and a denial makes the step fail.
#[test]
fn l17_a_denied_step_abandons_the_plan() {
    let asking = |tool: &str| ResolvedCall { approval: Approval::Needed(grant(tool).digest), ..plain(tool) };
    let mut session = planning(LoopConfig::default());
    session.must(planner_reply(steps(&["a", "b"])));
    session.reply("", vec![asking("a")]);
    let allowed = ScopedGrant { scope: GrantScope::Once, grant: grant("a") };
    let answer =
        |call: &str, verdict| Input::Approval { answers: vec![ApprovalAnswer { call: CallId(call.into()), verdict }] };
    session.must(answer("call_1_2_1", ApprovalVerdict::Granted { edited: None, grant: allowed }));
    session.run_batch();
    assert_eq!(role(&session), ModelRole::Executor { step: 2, of: 2 });
    session.reply("", vec![asking("b")]);
    let change = session.must(answer("call_1_3_1", ApprovalVerdict::Denied { reason: Some("not today".into()) }));
    assert!(reason(&change).starts_with("`b` failed in step 2 of 2") && reason(&change).contains("not today"));
    assert_eq!(role(&session), ModelRole::Agent);
}
