//! Groups the events and records of a turn by the commits that stored them, and walks through the commits in order.

use super::TurnData;
use super::turn::TurnWalk;
use crate::span::CommitSpans;
use agent_core::event::{Event, EventKind};
use agent_store::{ExportPosition, StoredRecord, StoredTurn};
use jiff::Timestamp;

/// One commit of a turn.
pub(super) struct StoredCommit<'d> {
    /// Time of the commit in nanoseconds since the Unix epoch.
    pub(super) time: u64,
    pub(super) events: Vec<&'d Event>,
    /// The records of the commit, and of commits without events directly before it.
    pub(super) records: Vec<&'d StoredRecord>,
}

/// Returns the spans that each commit after the position completes.
pub(crate) fn commit_spans(data: &TurnData<'_>) -> Vec<CommitSpans> {
    let mut walk = TurnWalk::new(data);
    let mut position = data.position;
    let mut found = Vec::new();
    for commit in commits(data.stored, data.position) {
        let spans = walk.commit(&commit);
        let Some(last) = commit.events.last().filter(|event| event.sequence > data.position.event) else { continue };
        let record = commit.records.last().map_or(0, |record| record.number);
        let has_ended = commit.events.iter().any(|event| matches!(event.kind, EventKind::LoopEnd { .. }));
        position = ExportPosition {
            event: last.sequence,
            record: position.record.max(record),
            turn_start: if has_ended { last.sequence } else { position.turn_start },
        };
        found.push(CommitSpans { position, time: commit.time, spans });
    }
    // If a later turn has begun, nothing can follow in this turn.
    if let Some(last) = found.last_mut().filter(|_| data.stored.is_followed) {
        last.position.turn_start = last.position.event;
    }
    found
}

/// Groups events and records by commits. The store gives all events and records of a commit the same time.
fn commits(stored: &StoredTurn, position: ExportPosition) -> Vec<StoredCommit<'_>> {
    let mut commits: Vec<StoredCommit<'_>> = Vec::new();
    for event in &stored.events {
        let time = nanoseconds(&event.time);
        match commits.last_mut().filter(|last| last.time == time) {
            Some(last) => last.events.push(&event.event),
            None => commits.push(StoredCommit { time, events: vec![&event.event], records: Vec::new() }),
        }
    }
    let is_exported =
        |commit: &StoredCommit<'_>| commit.events.last().is_some_and(|event| event.sequence <= position.event);
    let mut next = commits.iter().take_while(|commit| is_exported(commit)).count();
    let has_ended =
        stored.is_followed || stored.events.iter().any(|event| matches!(event.event.kind, EventKind::LoopEnd { .. }));
    for record in stored.records.iter().filter(|record| record.number > position.record) {
        let time = nanoseconds(&record.time);
        match commits[next.min(commits.len())..].iter().position(|commit| commit.time >= time) {
            Some(offset) => next += offset,
            // The event that the record belongs to is not committed yet, or the clock was set back.
            None if has_ended && !commits.is_empty() => next = commits.len() - 1,
            None => break,
        }
        commits[next].records.push(record);
    }
    commits
}

/// Converts a stored time to nanoseconds since the Unix epoch.
fn nanoseconds(time: &str) -> u64 {
    let time = time.parse::<Timestamp>().map(Timestamp::as_nanosecond).unwrap_or_default();
    u64::try_from(time).unwrap_or_default()
}
