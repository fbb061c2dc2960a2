//! `/compact`: lets the next turn begin with a summary of the earlier messages (L27).

use super::Chat;
use crate::exit::Failure;
use agent_core::run::Run;
use agent_runtime::LiveAgent;

/// Percentages of the history budget with which a turn removes all earlier messages that it can remove: the threshold,
/// and the part that remains.
const REMOVE_ALL: (u32, u32) = (1, 0);

/// The agent's own percentages, which are restored after the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Percentages(u32, u32);

/// Whether the next turn begins with a summary of the earlier messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Compaction {
    /// The next turn keeps the messages as usual.
    #[default]
    None,
    /// The next turn summarises them first.
    AtNextTurn,
}

impl Chat<'_> {
    /// Records that the next turn begins with a summary of the earlier messages.
    pub(super) fn compact(&mut self) -> Result<(), Failure> {
        if self.session.state().is_open() {
            return Err(Failure::refused("a turn is open: /compact works between two turns"));
        }
        if self.session.state().view.is_empty() {
            self.note("there are no earlier messages");
            return Ok(());
        }
        self.compaction = Compaction::AtNextTurn;
        self.hint(
            "your next prompt begins with a summary of the earlier messages. They stay stored: `agent-host session show` \
             shows them, and the model can search them",
        );
        Ok(())
    }

    /// Lets the turn that begins now summarise the earlier messages, if the user has asked for it.
    pub(super) fn begin_compaction(&mut self) -> Result<Option<CompactingTurn>, Failure> {
        if std::mem::take(&mut self.compaction) == Compaction::None {
            return Ok(None);
        }
        let agent = self.agent.current();
        let bounds = &agent.config().bounds;
        let own = Percentages(bounds.evict_at, bounds.evict_to);
        set(&self.agent, Percentages(REMOVE_ALL.0, REMOVE_ALL.1))?;
        Ok(Some(CompactingTurn { own, summaries: summaries(self.session.state()) }))
    }

    /// Restores the agent's own configuration after a turn that summarised the earlier messages.
    pub(super) fn end_compaction(&self, turn: Option<CompactingTurn>) -> Result<(), Failure> {
        let Some(CompactingTurn { own, summaries: before }) = turn else { return Ok(()) };
        set(&self.agent, own)?;
        if summaries(self.session.state()) == before {
            self.hint("nothing was summarised, because the earlier messages use little of the context window");
        }
        Ok(())
    }
}

/// A turn that begins with a summary.
#[derive(Debug)]
pub(super) struct CompactingTurn {
    own: Percentages,
    /// Number of summaries that the session had before the turn.
    summaries: u64,
}

fn summaries(run: &Run) -> u64 {
    run.summary.as_ref().map_or(0, |summary| summary.evictions)
}

fn set(agent: &LiveAgent, Percentages(evict_at, evict_to): Percentages) -> Result<(), Failure> {
    let changed = agent.change(|agent| {
        let mut config = agent.config().clone();
        (config.bounds.evict_at, config.bounds.evict_to) = (evict_at, evict_to);
        agent.with_config(config)
    });
    changed.map(drop).map_err(Failure::refused)
}
