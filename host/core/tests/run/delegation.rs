//! Tests of delegation: the chain of agents and its limits, and a call that waits for another agent (L16).

use crate::session::{Session, kinds, plain, result};
use agent_core::change::CallState;
use agent_core::event::{Suspension, Wait, WaitCause};
use agent_core::message::{CallId, TurnInput};
use agent_core::plugin::TraceContext;
use agent_core::run::{Action, Answerer, Awaited, DispatchedCall, Input, LoopConfig, Run};
use agent_core::tool::ToolError;
use serde_json::json;

fn begun(mut run: Run, config: LoopConfig) -> Run {
    let trace = TraceContext { traceparent: "00-1-2-01".into(), tracestate: None };
    let input = TurnInput::Text("Do it.".into());
    run.apply(Input::Start { input, config, plugins: Vec::new(), pinned: None, trace })
        .expect("a new session takes an input");
    run
}

/// Returns the session of the last agent in a chain. Each agent delegates work to the next agent. `agents` contains the
/// name and the `max_depth` of each agent.
fn chain(agents: &[(&str, u32)]) -> Run {
    let mut run: Option<Run> = None;
    for (agent, max_depth) in agents {
        let own = LoopConfig { max_depth: *max_depth, ..LoopConfig::default() };
        let session = format!("{agent}/1");
        run = Some(match run {
            None => begun(Run::new(session, *agent), own),
            Some(parent) => begun(parent.delegated(session, *agent), parent.delegate_limits(own)),
        });
    }
    run.expect("a chain has an agent")
}

fn refusal(run: &Run, agent: &str) -> Option<String> {
    match run.may_delegate(agent) {
        Ok(()) => None,
        Err(ToolError::Denied { message }) => Some(message),
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn l16_a_delegated_session_contains_its_chain_of_agents() {
    let run = chain(&[("lead", 4), ("writer", 4), ("reader", 4)]);
    assert_eq!(run.delegated_by.as_deref(), Some("writer/1"));
    assert_eq!(run.delegation, ["lead", "writer"]);
    let stored = Run::restore(Some(&run.snapshot())).expect("the state can be restored");
    assert_eq!(stored, run);
}

#[test]
fn l16_row_13_a_cycle_of_any_length_is_refused() {
    let run = chain(&[("lead", 4), ("writer", 4), ("reader", 4)]);
    for agent in ["lead", "writer", "reader"] {
        let message = refusal(&run, agent).unwrap_or_else(|| panic!("{agent} would wait for itself"));
        assert!(message.contains("lead → writer → reader"), "{message}");
    }
    assert_eq!(refusal(&run, "checker"), None);
}

#[test]
fn l16_row_13_work_is_delegated_four_levels_deep_but_not_five() {
    let agents = [("a", 4), ("b", 4), ("c", 4), ("d", 4), ("e", 4)];
    for length in 1..=4 {
        assert_eq!(refusal(&chain(&agents[..length]), "z"), None, "from depth {}", length - 1);
    }
    let message = refusal(&chain(&agents), "z").expect("refused at depth 4");
    assert!(message.contains("at most 4 times") && message.contains("a → b → c → d → e"), "{message}");
}

#[test]
fn l16_a_delegate_cannot_exceed_the_depth_limits_of_its_delegators() {
    assert!(refusal(&chain(&[("a", 1), ("b", 16)]), "c").is_some());
    assert!(refusal(&chain(&[("a", 16), ("b", 1)]), "c").is_some(), "the delegate's own limit applies too");
    assert_eq!(refusal(&chain(&[("a", 16), ("b", 2)]), "c"), None);
}

/// L10, L16, D3: a session that delegates work waits for the other agent in the same way as for a service. The session
/// survives a crash, and accepts each answer once.
#[test]
fn l16_a_call_waits_for_the_agents_answer() {
    let mut session = Session::calling(LoopConfig::default());
    session.reply("", vec![plain("writer"), plain("reader")]);
    let calls = ["call_1_1_1", "call_1_1_2"].map(|id| CallId(id.into()));
    let awaits = |session: &str| Awaited { cause: WaitCause::Agent { session: session.into() }, event: None };
    let dispatched = ["writer/1", "reader/1"].into_iter().zip(&calls);
    let dispatched = dispatched.map(|(child, call)| DispatchedCall {
        awaits: Some(awaits(child)),
        ..DispatchedCall::running(call.clone(), json!({"task": "Do it."}))
    });
    let change = session.must(Input::Dispatched { calls: dispatched.collect() });
    assert_eq!(kinds(&change), ["tool_call", "tool_call", "suspended"]);
    assert_eq!(change.outbox, [], "an agent is not a service, so nothing is sent");
    session.crash();
    let wait = |index: usize, name: &str| Wait {
        call: calls[index].clone(),
        name: name.into(),
        cause: WaitCause::Agent { session: format!("{name}/1") },
    };
    let suspension = Suspension { waits: vec![wait(0, "writer"), wait(1, "reader")] };
    assert_eq!(session.run.action(), Action::Suspended(suspension));
    let respond =
        |index: usize| Input::Respond { call: calls[index].clone(), from: Answerer::Agent, result: result("written") };
    let child = |index: usize, name: &str| (calls[index].clone(), format!("{name}/1"));
    assert_eq!(session.run.delegations(), [child(0, "writer"), child(1, "reader")]);
    let change = session.must(respond(1));
    assert_eq!(session.run.delegations(), [child(0, "writer")]);
    assert_eq!(kinds(&change), ["tool_result", "suspended"]);
    assert_eq!(session.run.action(), Action::Suspended(Suspension { waits: vec![wait(0, "writer")] }));
    assert!(session.apply(respond(1)).is_err(), "an answer counts once");
    session.must(respond(0));
    assert!(matches!(session.run.action(), Action::CallModel(plan) if plan.step == 2));
    assert_eq!(session.ledger.in_state(CallState::Outstanding), []);
}
