//! Sends the spans of commits to a collector, and decides which spans are dropped.

use super::batches::{SessionCommit, names_of};
use crate::otlp::{Collector, SendError};
use crate::span::Span;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Sends spans to a collector.
pub(super) struct Sender {
    collector: Arc<Collector>,
}

impl Sender {
    pub(super) fn new(collector: Arc<Collector>) -> Self {
        Self { collector }
    }

    /// Sends the spans of these commits in one request. Spans that the collector will never accept are dropped and reported,
    /// and so are spans that ended longer than `max_age` ago. Fails with [`SendError::TooLarge`] if fewer commits must be
    /// tried, and with [`SendError::Rejected`] if the commits of one session alone must be tried.
    pub(super) async fn send(&self, commits: &[SessionCommit], max_age: Duration) -> Result<(), SendError> {
        let oldest = SystemTime::now().checked_sub(max_age).unwrap_or(UNIX_EPOCH);
        let oldest = oldest.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let (mut spans, mut old): (Vec<&Span>, usize) = (Vec::new(), 0);
        for SessionCommit { commit, .. } in commits {
            match u128::from(commit.time) >= oldest {
                true => spans.extend(&commit.spans),
                false => old += commit.spans.len(),
            }
        }
        if old > 0 {
            let sessions = names_of(commits);
            tracing::warn!(sessions, spans = old, "spans are too old and are not sent; see `telemetry.max_age_hours`");
        }
        if spans.is_empty() {
            return Ok(());
        }
        let is_one_session = commits.iter().all(|commit| commit.session == commits[0].session);
        match self.collector.send(&spans).await {
            Ok(None) => Ok(()),
            Ok(Some((refused, reason))) => {
                let sessions = names_of(commits);
                tracing::warn!(sessions, refused, reason, "the collector refused spans");
                Ok(())
            }
            Err(SendError::TooLarge { message }) if commits.len() == 1 || spans.len() == 1 => {
                self.send_one_by_one(&names_of(commits), &spans, &message).await
            }
            Err(SendError::Rejected { message }) if is_one_session => {
                let session = names_of(commits);
                tracing::error!(session, spans = spans.len(), message, "the collector rejected spans");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Sends the spans of one commit that is too large for one request. Spans that are too large are dropped.
    async fn send_one_by_one(&self, session: &str, spans: &[&Span], message: &str) -> Result<(), SendError> {
        for span in spans {
            let sent = if spans.len() == 1 {
                Err(SendError::TooLarge { message: message.to_owned() })
            } else {
                self.collector.send(&[*span]).await
            };
            match sent {
                Err(error @ SendError::Retryable { .. }) => return Err(error),
                Err(SendError::TooLarge { message } | SendError::Rejected { message }) => {
                    tracing::error!(session, span = span.name, message, "the collector rejected a span");
                }
                Ok(_) => {}
            }
        }
        Ok(())
    }
}
