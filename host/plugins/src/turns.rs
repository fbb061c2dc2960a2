//! Turns that are shared fairly between agents: each agent's waiters stand in a line of their own, and the lines take turns.
//! An agent with a hundred calls gets no more of what is scarce than one with a single call (P8).

use crate::record::lock;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot;

/// So many turns, and who waits for one.
pub(crate) struct Turns {
    state: Mutex<State>,
}

struct State {
    free: usize,
    /// The agent that is served next comes first. No line is empty.
    lines: VecDeque<Line>,
}

struct Line {
    agent: Arc<str>,
    waiting: VecDeque<oneshot::Sender<Turn>>,
}

/// The right to one; it goes to the next agent when this is dropped.
pub(crate) struct Turn {
    /// None: it has been handed back already.
    turns: Option<Arc<Turns>>,
}

impl Turns {
    pub(crate) fn new(count: usize) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(State { free: count, lines: VecDeque::new() }) })
    }

    /// A turn, where nobody has to be waited for.
    pub(crate) fn try_acquire(self: &Arc<Self>) -> Option<Turn> {
        let mut state = lock(&self.state);
        state.free = state.free.checked_sub(1)?;
        Some(Turn::of(self))
    }

    /// Waits for a turn. Dropping the future leaves the line.
    pub(crate) async fn acquire(self: &Arc<Self>, agent: &Arc<str>) -> Turn {
        loop {
            let receiver = {
                let mut state = lock(&self.state);
                if let Some(free) = state.free.checked_sub(1) {
                    state.free = free;
                    return Turn::of(self);
                }
                state.wait(agent)
            };
            // Senders are dropped only with all turns, which this holds.
            if let Ok(turn) = receiver.await {
                return turn;
            }
        }
    }
}

impl State {
    fn wait(&mut self, agent: &Arc<str>) -> oneshot::Receiver<Turn> {
        let (sender, receiver) = oneshot::channel();
        match self.lines.iter_mut().find(|line| line.agent == *agent) {
            Some(line) => line.waiting.push_back(sender),
            None => self.lines.push_back(Line { agent: Arc::clone(agent), waiting: [sender].into() }),
        }
        receiver
    }

    /// The first of the next agent's line, which then stands behind all others.
    fn next(&mut self) -> Option<oneshot::Sender<Turn>> {
        let mut line = self.lines.pop_front()?;
        let first = line.waiting.pop_front();
        if !line.waiting.is_empty() {
            self.lines.push_back(line);
        }
        first
    }
}

impl Turn {
    fn of(turns: &Arc<Turns>) -> Self {
        Self { turns: Some(Arc::clone(turns)) }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(turns) = self.turns.take() else { return };
        let mut state = lock(&turns.state);
        while let Some(waiting) = state.next() {
            match waiting.send(Turn::of(&turns)) {
                Ok(()) => return,
                // Whoever waited has gone, and the turn is the next one's.
                Err(mut turn) => turn.turns = None,
            }
        }
        state.free += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use std::future::Future;
    use std::pin::Pin;

    type Waiting<'a> = Pin<Box<dyn Future<Output = Turn> + 'a>>;

    fn waiting<'a>(turns: &'a Arc<Turns>, agent: &'a Arc<str>) -> Waiting<'a> {
        let mut waiting: Waiting<'a> = Box::pin(turns.acquire(agent));
        assert!((&mut waiting).now_or_never().is_none(), "somebody is before it");
        waiting
    }

    // P8: whoever waits with a hundred calls has no more of it than who waits with one.
    #[test]
    fn agents_take_turns_however_many_calls_they_have() {
        let turns = Turns::new(1);
        let (many, one): (Arc<str>, Arc<str>) = ("many".into(), "one".into());
        let mut held = turns.try_acquire().expect("it is free");
        let mut lines: Vec<(&str, Waiting<'_>)> = (0..3).map(|_| ("many", waiting(&turns, &many))).collect();
        lines.extend((0..2).map(|_| ("one", waiting(&turns, &one))));
        let mut served = Vec::new();
        while !lines.is_empty() {
            drop(held);
            let next = lines.iter_mut().enumerate().find_map(|(place, (_, line))| Some((place, line.now_or_never()?)));
            let (place, turn) = next.expect("a turn that is given back goes to somebody");
            served.push(lines.remove(place).0);
            held = turn;
        }
        assert_eq!(served, ["many", "one", "many", "one", "many"]);
        drop(held);
        let _only = turns.try_acquire().expect("it is free again");
        assert!(turns.try_acquire().is_none());
    }

    // Row 10: who leaves the line, before or after its turn was given to it, takes no turn along.
    #[test]
    fn no_turn_is_lost_with_who_leaves() {
        let turns = Turns::new(2);
        let agents: Vec<Arc<str>> = (0..3).map(|number| Arc::from(format!("{number}"))).collect();
        for round in 0..500_usize {
            let mut held = vec![turns.try_acquire().expect("free"), turns.try_acquire().expect("free")];
            let mut lines: Vec<_> = (0..7).map(|place| waiting(&turns, &agents[(place * round) % 3])).collect();
            drop(lines.remove(round % 7));
            held.pop();
            drop(lines.remove(round % 6));
            held.pop();
            lines.truncate(round % 5);
            let got: Vec<_> = lines.iter_mut().filter_map(|line| line.now_or_never()).collect();
            drop(lines);
            drop(got);
            let free = [turns.try_acquire(), turns.try_acquire()];
            assert!(free.iter().all(Option::is_some), "round {round}");
            assert!(turns.try_acquire().is_none(), "round {round}");
        }
    }
}
