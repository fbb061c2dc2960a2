//! Measures the time that a turn works, which its budgets limit (O4). The time in which a turn waits for people, services
//! or other agents does not count, and neither does the time in which no process has the session open.

use agent_core::run::Run;
use agent_core::session_state::SessionState;
use agent_store::Charge;
use std::time::{Duration, Instant};

/// Time of work after which a commit charges it even if it uses no tokens. If a budget limits the time, every commit charges
/// it.
const CHARGE_INTERVAL: Duration = Duration::from_secs(1);

/// The time of work that is not charged yet.
#[derive(Default)]
pub(super) struct WorkClock {
    /// The time until which work is counted in `uncharged`. `None` while the turn does not work.
    counted_until: Option<Instant>,
    uncharged: Duration,
}

impl WorkClock {
    /// Returns what the commit of a transition must charge. `None` if it is charged by a later commit.
    pub(super) fn charge(&mut self, before: &Run, after: &Run) -> Option<Charge> {
        if let Some(since) = self.counted_until {
            let now = Instant::now();
            self.uncharged += now.saturating_duration_since(since);
            self.counted_until = Some(now);
        }
        let turn = after.turn.as_ref()?;
        let has_usage = before.turn.as_ref().map(|turn| (turn.number, turn.usage)) != Some((turn.number, turn.usage));
        let is_due = self.uncharged >= CHARGE_INTERVAL || turn.config.budgets.limit_time();
        if !has_usage && !is_due && is_working(after) {
            return None;
        }
        let delegators =
            turn.config.budgets.delegators.iter().map(|turn| (turn.session.clone(), turn.number)).collect();
        Some(Charge {
            agent: after.agent.clone(),
            user: turn.config.user.clone(),
            delegators,
            milliseconds: u64::try_from(self.uncharged.as_millis()).unwrap_or(u64::MAX),
        })
    }

    /// Continues after the commit of a transition.
    pub(super) fn committed(&mut self, after: &Run, is_charged: bool) {
        if is_charged {
            self.uncharged = Duration::ZERO;
        }
        self.counted_until = match is_working(after) {
            true => Some(self.counted_until.unwrap_or_else(Instant::now)),
            false => None,
        };
    }
}

fn is_working(run: &Run) -> bool {
    run.session_state() == SessionState::Running
}
