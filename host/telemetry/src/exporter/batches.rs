//! Collects the spans of several sessions for one request. A request contains whole commits, because the position of an
//! export is between two commits.

use crate::span::{CommitSpans, Span, Value};
use agent_store::ExportPosition;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Estimated size of a span without its texts, and of an attribute without its value, in bytes.
const SPAN_BYTES: usize = 100;
const ATTRIBUTE_BYTES: usize = 40;
/// Maximum number of sessions that a message to users names.
const MAX_NAMES: usize = 3;

/// The maximum number of spans of a request, and the maximum size of their texts in bytes.
pub(super) type Limits = (usize, usize);

/// The spans that one commit of a session completes.
pub(super) struct SessionCommit {
    pub(super) session: Arc<str>,
    pub(super) commit: CommitSpans,
    bytes: usize,
}

impl SessionCommit {
    pub(super) fn new(session: &Arc<str>, commit: CommitSpans) -> Self {
        let bytes = commit.spans.iter().map(size).sum();
        Self { session: session.clone(), commit, bytes }
    }
}

/// Which commits may be in the same request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    /// The commits of any sessions.
    AllSessions,
    /// Only commits of one session, so that a span that the collector rejects does not affect other sessions.
    OneSession,
}

/// Commits that are sent together. The commits of a session are in order.
#[derive(Default)]
pub(super) struct Batch {
    commits: Vec<SessionCommit>,
    spans: usize,
    bytes: usize,
}

impl Batch {
    /// Whether the commit fits into the request. Every commit fits into an empty request.
    pub(super) fn has_room_for(&self, commit: &SessionCommit, (max_spans, max_bytes): Limits) -> bool {
        self.spans == 0
            || (self.spans + commit.commit.spans.len() <= max_spans && self.bytes + commit.bytes <= max_bytes)
    }

    pub(super) fn push(&mut self, commit: SessionCommit) {
        self.spans += commit.commit.spans.len();
        self.bytes += commit.bytes;
        self.commits.push(commit);
    }

    /// Returns the first commits that fit into one request. At least one commit fits.
    pub(super) fn first(&self, (max_spans, max_bytes): Limits, share: Share) -> &[SessionCommit] {
        let (mut spans, mut bytes) = (0_usize, 0_usize);
        let first = self.commits.first().map(|commit| &commit.session);
        let fits = self.commits.iter().take_while(|commit| {
            spans += commit.commit.spans.len();
            bytes += commit.bytes;
            let is_allowed = share == Share::AllSessions || Some(&commit.session) == first;
            is_allowed && spans <= max_spans && bytes <= max_bytes
        });
        let count = fits.count().max(1).min(self.commits.len());
        &self.commits[..count]
    }

    /// Removes the first commits after they were sent.
    pub(super) fn remove_first(&mut self, count: usize) {
        for commit in self.commits.drain(..count) {
            self.spans -= commit.commit.spans.len();
            self.bytes -= commit.bytes;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.commits.is_empty()
    }
}

/// Returns the position after the last of these commits for each session. With `only_with_spans`, sessions without spans in
/// these commits are left out.
pub(super) fn positions(commits: &[SessionCommit], only_with_spans: bool) -> Vec<(String, ExportPosition)> {
    let mut positions: BTreeMap<&str, (ExportPosition, bool)> = BTreeMap::new();
    for SessionCommit { session, commit, .. } in commits {
        let (position, has_spans) = positions.entry(session).or_insert((commit.position, false));
        *position = commit.position;
        *has_spans |= !commit.spans.is_empty();
    }
    let wanted = positions.into_iter().filter(|(_, (_, has_spans))| *has_spans || !only_with_spans);
    wanted.map(|(session, (position, _))| (session.to_owned(), position)).collect()
}

/// Returns the names of the sessions of these commits for a message to users.
pub(super) fn names_of(commits: &[SessionCommit]) -> String {
    let mut names: Vec<&str> = commits.iter().map(|commit| &*commit.session).collect();
    names.dedup();
    let more = names.len().saturating_sub(MAX_NAMES);
    names.truncate(MAX_NAMES);
    match more {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

/// Estimates the size of an encoded span.
fn size(span: &Span) -> usize {
    let attributes = span.events.iter().flat_map(|event| &event.attributes).chain(&span.attributes);
    let values = attributes.map(|(name, value)| {
        let value = match value {
            Value::Text(text) => text.len(),
            Value::Texts(texts) => texts.iter().map(|text| text.len() + ATTRIBUTE_BYTES).sum(),
            Value::Number(_) | Value::Fraction(_) | Value::Flag(_) => 0,
        };
        ATTRIBUTE_BYTES + name.len() + value
    });
    SPAN_BYTES + span.name.len() + values.sum::<usize>()
}
