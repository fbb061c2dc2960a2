//! A supervisor begins sessions at the times of schedules (I9).

use super::{PATIENCE, supervisor};
use crate::support::{TestHost, script, text_reply};
use agent_runtime::{Agent, AgentConfig, MissedRuns, Schedule, ScheduleTimes};
use agent_store::{ScheduleState, Schedules, SessionFilter, SessionIndex, SessionState, SessionSummary};
use jiff::Timestamp;
use std::sync::Arc;
use std::time::Duration;

/// Returns an agent with a schedule that runs at the beginning of each year.
async fn agent(test_host: &TestHost, missed: MissedRuns) -> Arc<Agent> {
    let times = ScheduleTimes::parse("0 0 1 1 *", "UTC").expect("valid times");
    let mut config = AgentConfig::new("clerk");
    let schedule = Schedule { times, prompt: "Write the report.".into(), missed, user: None };
    config.schedules.insert("report".to_owned(), schedule);
    test_host.agent(config, script(&vec![text_reply("Written."); 8])).await
}

/// Stores that the schedule was due at this time, as if no host had run since then.
async fn set_due(test_host: &TestHost, due: &str) {
    let due: Timestamp = due.parse().expect("a time");
    let state = ScheduleState {
        agent: "clerk".to_owned(),
        name: "report".to_owned(),
        definition: "0 0 1 1 * UTC".to_owned(),
        due: due.as_millisecond(),
        ..ScheduleState::default()
    };
    test_host.store.set_schedule(state).await.expect("the state is stored");
}

async fn sessions(test_host: &TestHost) -> Vec<SessionSummary> {
    test_host.store.sessions(SessionFilter::default(), 100).await.expect("sessions are listed")
}

/// Waits until this many sessions have ended their turn, and the schedule is due in the future.
async fn until_sessions(test_host: &TestHost, count: usize) -> Vec<SessionSummary> {
    let reached = async {
        loop {
            let sessions = sessions(test_host).await;
            let is_done = |session: &SessionSummary| session.state == SessionState::Idle && session.turns == 1;
            let schedules = test_host.store.schedules("clerk").await.expect("schedules are read");
            let is_ahead = schedules.iter().any(|state| state.due > Timestamp::now().as_millisecond());
            if sessions.len() == count && sessions.iter().all(is_done) && is_ahead {
                return sessions;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, reached).await.expect("the sessions end")
}

/// I9: the latest of the missed runs is made up for once, even if two hosts start at the same time.
#[tokio::test(flavor = "multi_thread")]
async fn i9_the_latest_missed_run_begins_once_on_two_hosts() {
    let test_host = TestHost::new(&[]).await;
    set_due(&test_host, "2020-01-01T00:00:00Z").await;
    let agent = agent(&test_host, MissedRuns::Latest).await;
    let (one, two) = (supervisor(&test_host, &[&agent]), supervisor(&test_host, &[&agent]));
    let ended = until_sessions(&test_host, 1).await.remove(0);
    let title = ended.title.expect("a title");
    assert!(title.starts_with("Write the report."), "{title}");
    let state = test_host.store.schedules("clerk").await.expect("schedules are read").remove(0);
    assert_eq!(state.last_session.as_deref(), Some(ended.subject.as_str()));
    let last: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
    assert!(state.last_run.is_some_and(|run| run >= last.as_millisecond()), "{state:?}");
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    one.shutdown().await;
    two.shutdown().await;
    assert_eq!(sessions(&test_host).await.len(), 1, "the run begins only once");
}

/// I9: all missed runs are made up for, one after the other.
#[tokio::test(flavor = "multi_thread")]
async fn i9_all_missed_runs_are_made_up_for() {
    let test_host = TestHost::new(&[]).await;
    set_due(&test_host, "2024-01-01T00:00:00Z").await;
    let agent = agent(&test_host, MissedRuns::All).await;
    let years = usize::try_from(Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).year() - 2023).expect("a number");
    let supervisor = supervisor(&test_host, &[&agent]);
    let ended = until_sessions(&test_host, years).await;
    assert!(ended.iter().all(|session| session.subject.starts_with("clerk/schedule-")), "{ended:?}");
    supervisor.shutdown().await;
}

/// I9: skipped runs begin nothing, and a new schedule does not run for times before it existed.
#[tokio::test(flavor = "multi_thread")]
async fn i9_skipped_runs_and_new_schedules_begin_nothing() {
    for due in [Some("2020-01-01T00:00:00Z"), None] {
        let test_host = TestHost::new(&[]).await;
        if let Some(due) = due {
            set_due(&test_host, due).await;
        }
        let missed = if due.is_some() { MissedRuns::Skip } else { MissedRuns::All };
        let agent = agent(&test_host, missed).await;
        let supervisor = supervisor(&test_host, &[&agent]);
        until_sessions(&test_host, 0).await;
        supervisor.shutdown().await;
    }
}
