//! Begins sessions at the times of the agents' schedules (I9).

use super::Shared;
use crate::agent::{MissedRuns, Schedule};
use crate::requests::{Prompt, RequestError, RequestProblem, SessionKind, SessionName};
use crate::supervisor::Supervisor;
use agent_core::message::TurnInput;
use agent_store::{ScheduleState, SessionState, StoreError};
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Maximum time between two checks of the schedules. A changed configuration takes effect after this time.
const INTERVAL: Duration = Duration::from_secs(1);
/// A run that is later than this counts as missed.
const MISSED_AFTER: SignedDuration = SignedDuration::from_secs(60);
/// Maximum number of missed runs that are made up for.
const MAX_MISSED: usize = 100;

/// Runs the schedules until the supervisor shuts down.
pub(super) async fn run_schedules(shared: Arc<Shared>) {
    let mut states = States::default();
    loop {
        for (agent, live) in &shared.agents {
            for (name, schedule) in &live.current().config().schedules {
                if let Err(error) = states.run_if_due(&shared, (agent, name), schedule).await {
                    tracing::warn!(agent, schedule = name, %error, "cannot run a schedule now; the host tries again");
                }
            }
        }
        tokio::select! {
            () = shared.stop.cancelled() => return,
            () = tokio::time::sleep(INTERVAL) => {}
        }
    }
}

/// The states of the schedules, as they were last read or written. Other processes may have changed them in the store.
#[derive(Default)]
struct States(BTreeMap<(String, String), ScheduleState>);

impl States {
    async fn run_if_due(
        &mut self,
        shared: &Arc<Shared>,
        (agent, name): (&str, &str),
        schedule: &Schedule,
    ) -> Result<(), RequestError> {
        let now = Timestamp::from_microsecond(shared.host.store.now()).unwrap_or_else(|_| Timestamp::now());
        let key = (agent.to_owned(), name.to_owned());
        let is_current = |state: &&ScheduleState| state.definition == schedule.times.definition();
        if self.0.get(&key).filter(is_current).is_some_and(|state| state.due > now.as_millisecond()) {
            return Ok(());
        }
        let stored = shared.host.store.schedules(agent).await?.into_iter().find(|state| state.name == name);
        let mut state = match stored {
            Some(state) if is_current(&&state) => state,
            earlier => {
                let state = ScheduleState { agent: key.0.clone(), name: key.1.clone(), ..earlier.unwrap_or_default() };
                let state = with_next(state, schedule, now);
                shared.host.store.set_schedule(state.clone()).await?;
                state
            }
        };
        if state.due <= now.as_millisecond() {
            for time in times_to_run(schedule, state.due, now) {
                if is_working(shared, state.last_session.as_deref()).await? {
                    if schedule.missed == MissedRuns::All {
                        // The run begins when the session of the run before it has stopped.
                        let state = ScheduleState { due: time.as_millisecond(), ..state };
                        return Ok(shared.host.store.set_schedule(state).await?);
                    }
                    tracing::warn!(agent, schedule = name, "skipped a run, because the run before it is still working");
                    continue;
                }
                begin(shared, &mut state, (schedule, time)).await?;
            }
            state = with_next(state, schedule, now);
            shared.host.store.set_schedule(state.clone()).await?;
        }
        self.0.insert(key, state);
        Ok(())
    }
}

/// Returns the state of a schedule whose next time is after `now`.
fn with_next(state: ScheduleState, schedule: &Schedule, now: Timestamp) -> ScheduleState {
    let due = schedule.times.next_after(now).map_or(i64::MAX, Timestamp::as_millisecond);
    ScheduleState { definition: schedule.times.definition().to_owned(), due, ..state }
}

/// Returns the times from `due` until `now` for which a session begins, oldest first.
fn times_to_run(schedule: &Schedule, due: i64, now: Timestamp) -> Vec<Timestamp> {
    let Ok(due) = Timestamp::from_millisecond(due) else { return Vec::new() };
    let mut times = schedule.times.latest(due, now, MAX_MISSED);
    let is_missed = |time: &Timestamp| now.duration_since(*time) > MISSED_AFTER;
    match schedule.missed {
        MissedRuns::All => {}
        MissedRuns::Latest => drop(times.drain(..times.len().saturating_sub(1))),
        MissedRuns::Skip => times.retain(|time| !is_missed(time)),
    }
    times
}

/// Begins the session for one time. It begins only once, even if several processes try it, because its subject contains the
/// time.
async fn begin(
    shared: &Arc<Shared>,
    state: &mut ScheduleState,
    (schedule, time): (&Schedule, Timestamp),
) -> Result<(), RequestError> {
    let (agent, name) = (&state.agent, &state.name);
    let shown = schedule.times.display(time);
    let text = format!("{}\n\nThe schedule `{name}` begins this turn for {shown}.", schedule.prompt);
    let prompt = Prompt { user: schedule.user.clone(), ..Prompt::new(TurnInput::Text(text)) };
    let session = SessionName::new(SessionKind::Schedule, &format!("{name} {}", time.as_millisecond()));
    match Supervisor(shared.clone()).create_once(agent, &session, prompt).await {
        Ok((subject, is_new)) => {
            tracing::info!(agent, schedule = name, session = subject, is_new, "ran a schedule for {shown}");
            (state.last_run, state.last_session) = (Some(time.as_millisecond()), Some(subject));
            Ok(())
        }
        Err(error) if error.kind == RequestProblem::Unavailable => Err(error),
        Err(error) => {
            tracing::error!(agent, schedule = name, %error, "a schedule could not begin a turn");
            Ok(())
        }
    }
}

async fn is_working(shared: &Shared, session: Option<&str>) -> Result<bool, StoreError> {
    let Some(session) = session else { return Ok(false) };
    Ok(shared.stored(session).await?.is_some_and(|found| found.state == SessionState::Running))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule_times::ScheduleTimes;

    fn schedule(missed: MissedRuns) -> Schedule {
        let times = ScheduleTimes::parse("0 * * * *", "UTC").expect("valid times");
        Schedule { times, prompt: "Go.".into(), missed, user: None }
    }

    fn run(missed: MissedRuns, due: &str, now: &str) -> Vec<String> {
        let time = |text: &str| text.parse::<Timestamp>().unwrap_or_else(|error| panic!("{error}"));
        let times = times_to_run(&schedule(missed), time(due).as_millisecond(), time(now));
        times.iter().map(Timestamp::to_string).collect()
    }

    /// I9: the policy decides about the times at which no host was running.
    #[test]
    fn i9_missed_runs_are_skipped_or_made_up_for() {
        let (due, now) = ("2026-11-27T10:00:00Z", "2026-11-27T12:10:00Z");
        assert_eq!(run(MissedRuns::Skip, due, now), [""; 0]);
        assert_eq!(run(MissedRuns::Latest, due, now), ["2026-11-27T12:00:00Z"]);
        let all = ["2026-11-27T10:00:00Z", "2026-11-27T11:00:00Z", "2026-11-27T12:00:00Z"];
        assert_eq!(run(MissedRuns::All, due, now), all);
        assert_eq!(run(MissedRuns::All, "2020-01-01T00:00:00Z", now).len(), MAX_MISSED);
    }

    #[test]
    fn i9_a_run_on_time_is_never_missed() {
        for missed in [MissedRuns::Skip, MissedRuns::Latest, MissedRuns::All] {
            assert_eq!(run(missed, "2026-11-27T12:00:00Z", "2026-11-27T12:00:59Z"), ["2026-11-27T12:00:00Z"]);
            assert_eq!(run(missed, "2026-11-27T13:00:00Z", "2026-11-27T12:00:59Z"), [""; 0]);
        }
    }
}
