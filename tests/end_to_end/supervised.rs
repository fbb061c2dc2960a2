//! Sessions that a supervisor runs: prompts while a turn runs, answers, deadlines, delegates, watchers and restarts (I9,
//! D3, L16, L30; rows 29 and 32).

mod acting;
mod delivering;
mod forwarding;
mod scheduling;
mod watching;

use crate::support::{TestHost, call_reply, script, text_reply, with_tree_grant};
use agent_core::event::{EventKind, WaitCause};
use agent_core::message::{CallId, TurnInput};
use agent_runtime::{
    Accepted, Agent, AgentConfig, DuringTurn, EventPosition, LiveAgent, Prompt, RequestProblem, SessionEvent,
    SessionEvents, SessionRequest, Supervisor, SupervisorOptions, UserName,
};
use agent_store::{SessionFilter, SessionIndex, SessionState, SessionSummary};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Maximum time that a test waits for something that must happen.
const PATIENCE: Duration = Duration::from_secs(60);

fn quick() -> SupervisorOptions {
    SupervisorOptions {
        idle_timeout: Duration::from_millis(100),
        scan_interval: Duration::from_millis(50),
        ..SupervisorOptions::default()
    }
}

fn supervisor(test_host: &TestHost, agents: &[&Arc<Agent>]) -> Supervisor {
    let named = |agent: &&Arc<Agent>| (agent.config().name.clone(), LiveAgent::new(Arc::clone(*agent)));
    Supervisor::start(test_host.host(), agents.iter().map(named).collect(), quick())
}

fn prompt(text: &str) -> Prompt {
    Prompt::new(TurnInput::Text(text.to_owned()))
}

async fn create(supervisor: &Supervisor, agent: &str, text: &str) -> String {
    supervisor.create(agent, prompt(text)).await.unwrap_or_else(|error| panic!("{error}"))
}

fn events(supervisor: &Supervisor, session: &str) -> SessionEvents {
    supervisor.events(session, EventPosition::default())
}

/// Reads the events until one of them matches, and returns it.
async fn until(events: &mut SessionEvents, matches: impl Fn(&EventKind) -> bool) -> EventKind {
    let found = async {
        loop {
            if let SessionEvent::Event(event) = events.next().await.expect("the events can be read")
                && matches(&event.kind)
            {
                return event.kind;
            }
        }
    };
    tokio::time::timeout(PATIENCE, found).await.expect("the event arrives")
}

async fn until_end(events: &mut SessionEvents) -> EventKind {
    until(events, |kind| matches!(kind, EventKind::LoopEnd { .. })).await
}

/// Reads the events until the turn waits, and returns the ids of the calls for which it waits.
async fn until_suspended(events: &mut SessionEvents) -> Vec<CallId> {
    match until(events, |kind| matches!(kind, EventKind::Suspended { .. })).await {
        EventKind::Suspended { suspension } => suspension.waits.into_iter().map(|wait| wait.call).collect(),
        _ => unreachable!("only this kind of event is accepted"),
    }
}

async fn summary(test_host: &TestHost, session: &str) -> SessionSummary {
    let filter = SessionFilter { subject: Some(session.to_owned()), ..SessionFilter::default() };
    test_host.store.sessions(filter, 1).await.expect("sessions are listed").remove(0)
}

/// Waits until the session is in this state and no process has it open.
async fn until_closed(test_host: &TestHost, session: &str, state: SessionState) -> SessionSummary {
    let closed = async {
        loop {
            let summary = summary(test_host, session).await;
            if summary.state == state && summary.open_in.is_none() {
                return summary;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, closed)
        .await
        .unwrap_or_else(|_| panic!("session {session} does not become {state:?}"))
}

/// I9, D2: the request to begin a turn is answered after the commit of its input. An idle session is closed, so that
/// another process can open it, and is opened again for the next prompt.
#[tokio::test(flavor = "multi_thread")]
async fn i9_a_prompt_begins_a_turn_and_an_idle_session_is_closed() {
    let test_host = TestHost::new(&[]).await;
    let replies = script(&[text_reply("One."), text_reply("Two.")]);
    let agent = test_host.agent(AgentConfig::new("clerk"), replies).await;
    let supervisor = supervisor(&test_host, &[&agent]);
    let session = create(&supervisor, "clerk", "First?").await;
    assert_eq!(summary(&test_host, &session).await.turns, 1, "the input is committed before the answer");
    let mut events = events(&supervisor, &session);
    until_end(&mut events).await;
    until_closed(&test_host, &session, SessionState::Idle).await;
    let accepted = supervisor.send(&session, SessionRequest::Prompt(prompt("Second?"))).await;
    assert_eq!(accepted, Ok(Accepted::Started { turn: 2 }));
    let complete = until(&mut events, |kind| matches!(kind, EventKind::StreamComplete { .. })).await;
    assert!(matches!(&complete, EventKind::StreamComplete { text, .. } if text == "Two."), "{complete:?}");
    supervisor.shutdown().await;
    assert!(summary(&test_host, &session).await.open_in.is_none());
}

/// I9, L1: prompts that arrive while the model writes are stored immediately. A prompt that steers the turn is part of the
/// next model call, and the other prompt begins the next turn.
#[tokio::test(flavor = "multi_thread")]
async fn i9_prompts_that_arrive_during_a_model_call_are_queued_or_steer_the_turn() {
    let test_host = TestHost::new(&["probe"]).await;
    let slow_call = json!({
        "chunks": ["Let ", "me ", "see."], "delay_ms": 300,
        "calls": [{"name": "probe.echo", "arguments": {"text": "a"}}],
    });
    let steered = json!({"text": "In German.", "expect": {"last_contains": "Answer in German."}});
    let next = json!({"text": "Also done.", "expect": {"last_contains": "And then?"}});
    let agent = test_host.agent(AgentConfig::new("clerk"), script(&[slow_call, steered, next])).await;
    let supervisor = supervisor(&test_host, &[&agent]);
    let session = create(&supervisor, "clerk", "Go.").await;
    let mut events = events(&supervisor, &session);
    until(&mut events, |kind| matches!(kind, EventKind::StreamToken { .. })).await;
    let later = supervisor.send(&session, SessionRequest::Prompt(prompt("And then?"))).await;
    let steering = Prompt { during_turn: DuringTurn::Steer, ..prompt("Answer in German.") };
    let steers = supervisor.send(&session, SessionRequest::Prompt(steering)).await;
    assert_eq!((later, steers), (Ok(Accepted::Queued), Ok(Accepted::Queued)));
    let next = until(&mut events, |kind| !matches!(kind, EventKind::StreamToken { .. })).await;
    assert!(matches!(next, EventKind::StreamComplete { .. } | EventKind::ContextBudget { .. }), "{next:?}");
    until(&mut events, |kind| matches!(kind, EventKind::Steered { text } if text == "Answer in German.")).await;
    until_end(&mut events).await;
    until_end(&mut events).await;
    let ended = until_closed(&test_host, &session, SessionState::Idle).await;
    assert_eq!(ended.turns, 2, "the other prompt began a turn of its own");
    supervisor.shutdown().await;
}

/// I9: a prompt for another user is not mixed into the turn of the first user.
#[tokio::test(flavor = "multi_thread")]
async fn i9_a_prompt_of_another_user_is_refused_while_a_turn_is_open() {
    let test_host = TestHost::new(&[]).await;
    let reply = json!({"chunks": ["Slow ", "reply."], "delay_ms": 400});
    let agent = test_host.agent(AgentConfig::new("clerk"), script(&[reply])).await;
    let supervisor = supervisor(&test_host, &[&agent]);
    let user = |name: &str| Some(UserName::new(name).expect("a user name"));
    let first = Prompt { user: user("ann"), ..prompt("Go.") };
    let session = supervisor.create("clerk", first).await.expect("the turn begins");
    let other = Prompt { user: user("bob"), ..prompt("And me?") };
    let refused = supervisor.send(&session, SessionRequest::Prompt(other)).await.expect_err("another user");
    assert_eq!(refused.kind, RequestProblem::Conflict, "{refused}");
    let own = Prompt { user: user("ann"), ..prompt("More.") };
    assert_eq!(supervisor.send(&session, SessionRequest::Prompt(own)).await, Ok(Accepted::Queued));
    supervisor.shutdown().await;
}

/// I9, L29: a running and a waiting turn are cancelled, and the answer follows the commit.
#[tokio::test(flavor = "multi_thread")]
async fn i9_l29_a_turn_is_cancelled_by_a_request() {
    let test_host = TestHost::new(&["payer"]).await;
    let pay = || call_reply(&[("payer.pay", json!({"to": "ann", "amount": 3}))]);
    let slow = json!({"chunks": ["Slow ", "reply."], "delay_ms": 60_000});
    let replies = script(&[pay(), slow]);
    let agent = test_host.agent(with_tree_grant(&test_host, "payer"), replies).await;
    let supervisor = supervisor(&test_host, &[&agent]);
    let session = create(&supervisor, "test", "Pay.").await;
    until_suspended(&mut events(&supervisor, &session)).await;
    until_closed(&test_host, &session, SessionState::Suspended).await;
    assert_eq!(supervisor.send(&session, SessionRequest::Cancel).await, Ok(Accepted::Cancelled));
    assert_eq!(summary(&test_host, &session).await.state, SessionState::Cancelled);
    assert_eq!(supervisor.send(&session, SessionRequest::Cancel).await, Ok(Accepted::Cancelled), "nothing is open");
    supervisor.send(&session, SessionRequest::Prompt(prompt("Again."))).await.expect("a turn begins");
    assert_eq!(supervisor.send(&session, SessionRequest::Cancel).await, Ok(Accepted::Cancelled));
    assert_eq!(summary(&test_host, &session).await.state, SessionState::Cancelled);
    supervisor.shutdown().await;
}

/// I9: requests that name nothing or come at the wrong time are refused, and change nothing.
#[tokio::test(flavor = "multi_thread")]
async fn i9_wrong_requests_are_refused() {
    let test_host = TestHost::new(&[]).await;
    let agent = test_host.agent(AgentConfig::new("clerk"), script(&[text_reply("One.")])).await;
    let other = test_host.agent(AgentConfig::new("other"), script(&[text_reply("One.")])).await;
    let both = supervisor(&test_host, &[&agent, &other]);
    let session = create(&both, "clerk", "First?").await;
    let hidden = create(&both, "other", "First?").await;
    until_end(&mut events(&both, &hidden)).await;
    both.shutdown().await;
    let supervisor = supervisor(&test_host, &[&agent]);
    let problem = async |session: &str, request| {
        supervisor.send(session, request).await.map_err(|error| error.kind).expect_err("the request is refused")
    };
    assert_eq!(problem("clerk/none", SessionRequest::Continue).await, RequestProblem::NotFound);
    assert_eq!(problem(&hidden, SessionRequest::Continue).await, RequestProblem::NotFound, "its agent is not run here");
    let answer = |call: &str| SessionRequest::Answer { call: CallId(call.to_owned()), text: "yes".to_owned() };
    assert_eq!(problem(&session, answer("call_1_1_1")).await, RequestProblem::Conflict);
    assert_eq!(
        supervisor.create("none", prompt("Hi.")).await.map_err(|error| error.kind),
        Err(RequestProblem::NotFound)
    );
    let revision = until_closed(&test_host, &session, SessionState::Idle).await.revision;
    assert_eq!(problem(&session, answer("call_1_1_1")).await, RequestProblem::Conflict);
    assert_eq!(until_closed(&test_host, &session, SessionState::Idle).await.revision, revision);
    supervisor.shutdown().await;
}

/// Returns the subjects of the sessions to which a session delegated work.
async fn children_of(test_host: &TestHost, session: &str) -> Vec<SessionSummary> {
    let filter = SessionFilter { delegated_by: Some(session.to_owned()), ..SessionFilter::default() };
    test_host.store.sessions(filter, 10).await.expect("sessions are listed")
}

/// Waits until the session to which a session delegates work exists, and returns its subject.
async fn child_of(test_host: &TestHost, session: &str) -> String {
    let found = async {
        loop {
            match children_of(test_host, session).await.pop() {
                Some(child) if child.revision > 0 => return child.subject,
                _ => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    tokio::time::timeout(PATIENCE, found).await.expect("the delegated session exists")
}

fn is_agent_wait(cause: &WaitCause) -> bool {
    matches!(cause, WaitCause::Agent { .. })
}

fn delegation(agent: &str) -> Value {
    call_reply(&[(agent, json!({"task": "Work."}))])
}

/// F2: a user with much work gets most places of a process, and another user still gets one at once.
#[tokio::test(flavor = "multi_thread")]
async fn f2_a_busy_user_leaves_places_for_others() {
    let test_host = TestHost::new(&[]).await;
    let slow = script(&[json!({"chunks": ["It ", "takes ", "long."], "delay_ms": 400})]);
    let agent = test_host.agent(AgentConfig::new("clerk"), slow).await;
    let agents = [("clerk".to_owned(), LiveAgent::new(agent))].into();
    let supervisor = Supervisor::start(test_host.host(), agents, SupervisorOptions { open_sessions: 4, ..quick() });
    let create_for = async |user: &str| {
        let user = UserName::new(user).expect("a name");
        supervisor.create("clerk", Prompt { user: Some(user), ..prompt("Go.") }).await.map_err(|error| error.kind)
    };
    let mut sessions = Vec::new();
    for _ in 0..3 {
        sessions.push(create_for("ann").await.expect("most places"));
    }
    assert_eq!(create_for("ann").await, Err(RequestProblem::Unavailable), "the last place is kept for others");
    sessions.push(create_for("bob").await.expect("a place for another user"));
    assert_eq!(create_for("carl").await, Err(RequestProblem::Unavailable), "all places are taken");
    for session in &sessions {
        until_end(&mut events(&supervisor, session)).await;
        until_closed(&test_host, session, SessionState::Idle).await;
    }
    assert!(create_for("ann").await.is_ok(), "the places are free again");
    supervisor.shutdown().await;
}
