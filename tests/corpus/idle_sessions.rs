//! Sessions that are only watched need little memory (I3).

use crate::scene::run_exclusively;
use crate::support::{TestHost, script, text_reply};
use agent_core::event::EventKind;
use agent_core::message::TurnInput;
use agent_runtime::{AgentConfig, EventPosition, LiveAgent, Prompt, SessionEvent, Supervisor, SupervisorOptions};
use std::collections::BTreeMap;
use std::time::Duration;

/// Number of sessions that are watched at the same time.
const SESSIONS: usize = 1_000;
/// Maximum memory of these sessions and their watches, in bytes.
const MAX_BYTES: usize = 50_000_000;

fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("the system reports the memory");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the memory is listed");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") << 10
}

/// I3: 1,000 idle sessions that are watched use at most 50 MB, and each watch still receives the next event.
#[test]
fn i3_idle_watched_sessions_need_little_memory() {
    run_exclusively(async {
        let test_host = TestHost::new(&[]).await;
        let replies = [text_reply("One."), text_reply("Two.")];
        let agent = test_host.agent(AgentConfig::new("clerk"), script(&replies)).await;
        let agents = BTreeMap::from([("clerk".to_owned(), LiveAgent::new(agent))]);
        let options = SupervisorOptions { idle_timeout: Duration::from_millis(50), ..SupervisorOptions::default() };
        let supervisor = Supervisor::start(test_host.host(), agents, options);
        let prompt = || Prompt::new(TurnInput::Text("Go.".to_owned()));
        let mut sessions = Vec::new();
        for _ in 0..SESSIONS {
            let (session, mut turn) = supervisor.begin_session("clerk", prompt()).await.expect("a turn begins");
            while turn.next().await.expect("the events are read").is_some() {}
            sessions.push(session);
        }
        let before = resident();
        let mut watches = Vec::new();
        for session in &sessions {
            let mut events = supervisor.events(session, EventPosition::default());
            while !is_end(&events.next().await.expect("the events are read")) {}
            watches.push(events);
        }
        let used = resident().saturating_sub(before);
        assert!(used <= MAX_BYTES, "{used} bytes");
        for (session, events) in sessions.iter().zip(&mut watches).step_by(100) {
            supervisor.begin(session, prompt()).await.expect("a turn begins");
            while !is_end(&events.next().await.expect("the events are read")) {}
        }
        supervisor.shutdown().await;
    });
}

fn is_end(event: &SessionEvent) -> bool {
    matches!(event, SessionEvent::Event(event) if matches!(event.kind, EventKind::LoopEnd { .. }))
}
