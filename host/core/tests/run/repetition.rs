//! Tests of calls that repeatedly fail in the same way: the tool is disabled, and calls to it do not run (L28).

use crate::session::{Session, call, dispatched, grant, kinds, outcome, plain, refused, result, text_of};
use agent_core::approval::{ApprovalAnswer, ApprovalVerdict, GrantScope, ScopedGrant};
use agent_core::change::Change;
use agent_core::loop_break::{Finish, name};
use agent_core::message::CallId;
use agent_core::plugin::OutputData;
use agent_core::run::{Action, Answerer, Approval, Disposition, Input, LoopConfig, ResolvedCall};
use agent_core::tool::ToolError;
use serde_json::{Value, json};

fn by_tool() -> LoopConfig {
    LoopConfig { finish: Finish::Tool, ..Default::default() }
}

fn fail(session: &mut Session, call: &str) -> Change {
    let Input::Outcome { call, mut result } = outcome(call, "full") else { unreachable!() };
    result.is_error = true;
    session.must(Input::Outcome { call, result })
}

/// Returns a call whose arguments differ from the arguments of the failing calls.
fn with_other_arguments(name: &str) -> ResolvedCall {
    ResolvedCall { arguments: json!({"of": "something else"}), ..plain(name) }
}

fn unapproved(name: &str) -> ResolvedCall {
    ResolvedCall { approval: Approval::Needed(grant(name).digest), ..plain(name) }
}

/// Sends two replies whose only call fails in the same way. A third reply with the same failure would disable the tool.
fn fail_twice(session: &mut Session, call: impl Fn() -> ResolvedCall) {
    for step in 1..=2 {
        session.reply("", vec![call()]);
        if matches!(session.run.action(), Action::Dispatch(_)) {
            session.dispatch();
            fail(session, &format!("call_1_{step}_1"));
        }
    }
}

/// Approves the calls at these positions of the third reply.
fn allow(session: &mut Session, positions: std::ops::RangeInclusive<u32>) -> Change {
    let grant = |name| ScopedGrant { scope: GrantScope::Once, grant: grant(name) };
    let answer = |position: u32| ApprovalAnswer {
        call: CallId(format!("call_1_3_{position}")),
        verdict: ApprovalVerdict::Granted { edited: None, grant: grant("write") },
    };
    session.must(Input::Approval { answers: positions.map(answer).collect() })
}

#[test]
fn l28_the_third_identical_failure_disables_the_tool_after_a_warning() {
    let mut session = Session::calling(LoopConfig { max_interactions: 40, ..Default::default() });
    for step in 1..=3 {
        session.reply("", vec![plain("write")]);
        session.dispatch();
        let change = fail(&mut session, &format!("call_1_{step}_1"));
        let is_disabled = kinds(&change).contains(&"tool_disabled".to_owned());
        assert_eq!(is_disabled, step == 3);
    }
    assert_eq!(text_of(&session, "call_1_1_1").0, "full");
    let (second, _) = text_of(&session, "call_1_2_1");
    assert!(second.starts_with("[the same call") && second.contains("after one more such reply"), "{second}");
    let (third, _) = text_of(&session, "call_1_3_1");
    assert!(third.starts_with("[the same call") && third.ends_with("full"), "{third}");
    // The disabled tool does not run, even if it is called with other arguments. All other tools run.
    let other = ResolvedCall { arguments: json!({"of": "other"}), ..plain("write") };
    session.reply("", vec![other, plain("look")]);
    let (text, is_error) = text_of(&session, "call_1_4_1");
    assert!(is_error && text.contains("`write` is off for the rest of this turn"), "{text}");
    assert_eq!(session.dispatch(), [CallId("call_1_4_2".into())]);
    session.outcome("call_1_4_2", "ok");
    // In the next turn, no tool is disabled.
    session.answer("done");
    session.begin(LoopConfig::default());
    session.reply("", vec![plain("write")]);
    assert_eq!(session.dispatch(), [CallId("call_2_1_1".into())]);
}

#[test]
fn l28_other_arguments_or_another_error_count_as_another_failure() {
    let mut session = Session::calling(LoopConfig { max_interactions: 40, ..Default::default() });
    for number in 0..4 {
        session.reply("", vec![ResolvedCall { arguments: json!({ "n": number }), ..refused("write", "full") }]);
        session.reply("", vec![refused("write", &format!("error {number}"))]);
    }
    let change = session.reply("", vec![plain("write")]);
    assert!(!kinds(&change).contains(&"tool_disabled".to_owned()));
    assert!(matches!(session.run.action(), Action::Dispatch(_)));
}

#[test]
fn l28_the_order_of_argument_keys_does_not_matter() {
    let mut session = Session::calling(LoopConfig::default());
    let [original, reordered]: [Value; 2] =
        [r#"{"a": {"x": 1, "y": [1]}, "b": 2}"#, r#"{"b": 2, "a": {"y": [1], "x": 1}}"#]
            .map(|text| serde_json::from_str(text).unwrap());
    for arguments in [&original, &reordered] {
        session.reply("", vec![ResolvedCall { arguments: arguments.clone(), ..refused("write", "full") }]);
    }
    let change = session.reply("", vec![ResolvedCall { arguments: original, ..refused("write", "full") }]);
    assert!(kinds(&change).contains(&"tool_disabled".to_owned()));
}

/// L8: refused calls and errors of outstanding calls count as failures.
#[test]
fn l28_refused_and_outstanding_calls_count_as_failures() {
    let mut session = Session::calling(LoopConfig::default());
    session.reply("", vec![refused("order", "full")]);
    for step in 2..=3 {
        let id = CallId(format!("call_1_{step}_1"));
        session.reply("", vec![plain("order")]);
        session.must(crate::session::sent_to_service(std::slice::from_ref(&id)));
        let mut failed = result(&ToolError::Failed { message: "full".into() }.for_model());
        failed.is_error = true;
        let change = session.must(Input::Respond { call: id, from: Answerer::Service, result: failed });
        assert_eq!(kinds(&change).contains(&"tool_disabled".to_owned()), step == 3);
    }
}

/// L28: the same failure counts only once per reply, because the model sees the results only after the reply.
#[test]
fn l28_failures_are_counted_per_reply_and_not_per_call() {
    let mut session = Session::calling(LoopConfig::default());
    for step in 1..=3 {
        session.reply("", (0..4).map(|_| plain("write")).collect());
        session.dispatch();
        for position in 1..=4 {
            let change = fail(&mut session, &format!("call_1_{step}_{position}"));
            assert_eq!(kinds(&change).contains(&"tool_disabled".to_owned()), (step, position) == (3, 1));
        }
        let warned = text_of(&session, &format!("call_1_{step}_1")).0.starts_with("[the same call");
        assert_eq!(warned, step >= 2);
    }
}

/// L28: waiting calls of the same reply are refused when their tool is disabled.
#[test]
fn l28_waiting_calls_of_a_disabled_tool_do_not_run() {
    let mut session = Session::calling(LoopConfig { parallel_calls: 1, ..Default::default() });
    fail_twice(&mut session, || plain("write"));
    session.reply("", (0..5).map(|_| plain("write")).collect());
    session.must(dispatched(&[CallId("call_1_3_1".to_owned())]));
    fail(&mut session, "call_1_3_1");
    assert!(matches!(session.run.action(), Action::CallModel(_)));
    assert!(text_of(&session, "call_1_3_5").0.contains("is off"));
}

/// L28: if calls keep failing, the host warns the model but does not disable the tool in two cases: the tool does not
/// exist, or it is a loop-breaking tool, which the turn needs in order to end.
#[test]
fn l28_loop_breaking_and_missing_tools_only_cause_a_warning() {
    for (tool, disposition) in [
        (name::TASK_COMPLETION, Disposition::Refused(ToolError::Failed { message: "no".into() })),
        ("absent", Disposition::NotFound { message: "there is no tool `absent`".into() }),
    ] {
        let mut session = Session::calling(by_tool());
        for _ in 0..3 {
            let change = session.reply("", vec![call(tool, disposition.clone())]);
            assert!(!kinds(&change).contains(&"tool_disabled".to_owned()), "{tool}");
        }
        assert!(text_of(&session, "call_1_3_1").0.starts_with("[the same call"), "{tool}");
    }
}

/// L28: if a reply contains so many refused calls that their tool is disabled, the reply's other calls to this tool do
/// not run either, even if they precede the refused calls.
#[test]
fn l28_if_refused_calls_disable_a_tool_the_replys_other_calls_to_it_do_not_run() {
    let mut session = Session::calling(LoopConfig::default());
    let bad = || refused("write", "no such folder");
    fail_twice(&mut session, bad);
    let calls = vec![
        with_other_arguments("write"),
        bad(),
        bad(),
        bad(),
        with_other_arguments("write"),
        unapproved("write"),
        with_other_arguments("look"),
    ];
    let change = session.reply("", calls);
    assert!(kinds(&change).contains(&"tool_disabled".to_owned()));
    assert_eq!(session.dispatch(), [CallId("call_1_3_7".into())]);
    for position in [1, 5, 6] {
        let (text, is_error) = text_of(&session, &format!("call_1_3_{position}"));
        assert!(is_error && text.contains("`write` is off"), "{text}");
    }
    // If no call of the reply can run, the user is not asked for an approval, and the model is called next.
    let mut session = Session::calling(LoopConfig::default());
    fail_twice(&mut session, bad);
    session.reply("", vec![unapproved("write"), bad(), bad(), bad()]);
    assert!(matches!(session.run.action(), Action::CallModel(_)), "{:?}", session.run.action());
}

/// L17: if a tool is disabled while a user is being asked to approve a call to it, the approval does not re-enable
/// the tool.
#[test]
fn l28_l17_a_call_that_is_approved_after_its_tool_is_disabled_does_not_run() {
    let mut session = Session::calling(LoopConfig::default());
    fail_twice(&mut session, || plain("write"));
    session.reply("", (0..4).map(|_| unapproved("write")).chain([unapproved("pay")]).collect());
    allow(&mut session, 1..=3);
    session.dispatch();
    for position in 1..=3 {
        fail(&mut session, &format!("call_1_3_{position}"));
    }
    let Action::Suspended(suspension) = session.run.action() else { panic!("{:?}", session.run.action()) };
    assert_eq!(suspension.waits.len(), 2, "two calls still wait for approval");
    let change = allow(&mut session, 4..=4);
    assert_eq!(kinds(&change), ["approval_resolved", "tool_call", "tool_result_error", "suspended"]);
    let (text, is_error) = text_of(&session, "call_1_3_4");
    assert!(is_error && text.contains("`write` is off"), "{text}");
    assert_eq!(session.ledger.call(&CallId("call_1_3_4".into())).record.attempt, 0);
    // When the user has answered the last approval request, the turn continues.
    let denied = ApprovalVerdict::Denied { reason: None };
    let answers = vec![ApprovalAnswer { call: CallId("call_1_3_5".into()), verdict: denied }];
    session.must(Input::Approval { answers });
    session.answer("done");
}

/// L17, L28: if a call is approved after its tool was disabled, and it is the last open call of its batch, the
/// turn continues.
#[test]
fn l28_l17_the_turn_continues_after_a_call_that_is_approved_too_late() {
    let mut session = Session::calling(LoopConfig::default());
    fail_twice(&mut session, || plain("write"));
    session.reply("", (0..4).map(|_| unapproved("write")).collect());
    allow(&mut session, 1..=3);
    session.dispatch();
    for position in 1..=3 {
        fail(&mut session, &format!("call_1_3_{position}"));
    }
    let change = allow(&mut session, 4..=4);
    assert_eq!(
        kinds(&change)[..5],
        ["approval_resolved", "tool_call", "tool_result_error", "resumed", "loop_iteration"]
    );
    session.reply("", Vec::new());
    session.accept(OutputData::Text(String::new()));
}
