//! Pulls the messages of a durable consumer, whatever happens to the server, the stream and the consumer in the meantime.

use crate::connection::{Nats, STORE_TIME};
use crate::error::FleetError;
use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::pull::{Batch, Config};
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer};
use async_nats::jetstream::message::AckKind;
use async_nats::jetstream::stream::Stream;
use futures::StreamExt;
use std::time::Duration;

/// Number of messages that are requested at once. They wait in this process while it is busy, so the number is small.
const BATCH: usize = 4;
/// Time for which the server keeps a request for messages.
const EXPIRES: Duration = Duration::from_secs(10);
/// Time until a message that was not confirmed is delivered again.
const ACK_WAIT: Duration = Duration::from_secs(30);
/// Maximum number of messages that were delivered and not confirmed.
const MAX_PENDING: i64 = 10_000;
/// Time between two attempts after a failure.
const RETRY: Duration = Duration::from_secs(1);
/// Number of failures in a row that the log reports once.
const REPORTED_FAILURES: u32 = 5;

/// Where the messages come from.
#[derive(Clone, Debug)]
pub(crate) struct PullSource {
    pub(crate) stream: PullStream,
    /// Name of the durable consumer.
    pub(crate) consumer: String,
    /// Subjects of the messages.
    pub(crate) filter: String,
}

/// The stream of the messages.
#[derive(Clone, Debug)]
pub(crate) enum PullStream {
    /// The work queue of the fleet.
    Work,
    /// A stream of another system with this name.
    Named(String),
    /// The stream of another system that contains the subject.
    OfSubject,
}

/// Pulls messages.
pub(crate) struct Puller {
    nats: Nats,
    source: PullSource,
    /// The consumer, as long as it has not failed.
    consumer: Option<PullConsumer>,
    /// When the stream was created, in seconds of Unix time. A stream that was deleted and created again repeats its positions.
    stream_created: i64,
    batch: Option<Batch>,
    failures: u32,
}

impl Puller {
    pub(crate) fn new(nats: Nats, source: PullSource) -> Self {
        Self { nats, source, consumer: None, stream_created: 0, batch: None, failures: 0 }
    }

    /// Waits for the next message. Dropping the future loses no message, because it is delivered again.
    pub(crate) async fn next(&mut self) -> Message {
        loop {
            if let Some(batch) = &mut self.batch {
                match batch.next().await {
                    Some(Ok(message)) => {
                        self.failures = 0;
                        // Somebody else may have changed the consumer.
                        if is_selected(&self.source.filter, &message.subject) {
                            return message;
                        }
                        tracing::warn!(
                            subject = &*message.subject,
                            expected = self.source.filter,
                            "a message was ignored, because it has another subject than was asked for"
                        );
                        answer(&message, AckKind::Term).await;
                    }
                    // The request has ended. Its consumer may have been deleted.
                    Some(Err(error)) => {
                        self.batch = None;
                        self.note_failure(&error).await;
                    }
                    None => self.batch = None,
                }
                continue;
            }
            match self.request().await {
                Ok(batch) => self.batch = Some(batch),
                Err(error) => self.note_failure(&error).await,
            }
        }
    }

    async fn note_failure(&mut self, error: &(dyn std::fmt::Display + Send + Sync)) {
        (self.consumer, self.failures) = (None, self.failures + 1);
        let (failures, filter) = (self.failures, &self.source.filter);
        // If NATS does not answer at all, the log says so already.
        match failures == REPORTED_FAILURES && self.nats.is_usable() {
            true => tracing::warn!(subject = filter, "messages cannot be received from NATS now: {error}"),
            false => tracing::debug!(subject = filter, failures, "messages cannot be received from NATS now: {error}"),
        }
        tokio::time::sleep(RETRY).await;
    }

    async fn request(&mut self) -> Result<Batch, FleetError> {
        let consumer = match self.consumer.take() {
            Some(consumer) => consumer,
            None => self.consumer().await?,
        };
        let consumer = &*self.consumer.insert(consumer);
        let failed = |error: &dyn std::fmt::Display| self.nats.failed("deliver messages", error);
        consumer.batch().max_messages(BATCH).expires(EXPIRES).messages().await.map_err(|error| failed(&error))
    }

    /// Returns where a message is in its stream: the name of the stream, when it was created, and the position.
    pub(crate) fn position(&self, message: &Message) -> String {
        let position =
            message.info().map(|info| format!("{} {} {}", info.stream, self.stream_created, info.stream_sequence));
        position.unwrap_or_default()
    }

    /// Returns the consumer, with the subjects of the configuration. It begins with the oldest message when it is created.
    async fn consumer(&mut self) -> Result<PullConsumer, FleetError> {
        let config = Config {
            durable_name: Some(self.source.consumer.clone()),
            filter_subject: self.source.filter.clone(),
            ack_policy: AckPolicy::Explicit,
            ack_wait: ACK_WAIT,
            // The receiver counts the deliveries, so that a message is never forgotten without a dead letter.
            max_deliver: -1,
            max_ack_pending: MAX_PENDING,
            ..Config::default()
        };
        let stream = self.stream().await?;
        self.stream_created = stream.cached_info().created.unix_timestamp();
        let consumer = stream.get_or_create_consumer(&self.source.consumer, config.clone()).await;
        let consumer = consumer.map_err(|error| self.nats.failed("create a consumer", &error))?;
        let found = &consumer.cached_info().config;
        if found.filter_subject == config.filter_subject && found.filter_subjects.is_empty() {
            return Ok(consumer);
        }
        // Where a consumer begins cannot be changed.
        let config = Config { deliver_policy: found.deliver_policy, ..config };
        let updated = stream.update_consumer(config).await;
        updated.map_err(|error| self.nats.failed("change the subjects of a consumer", &error))
    }

    async fn stream(&self) -> Result<Stream, FleetError> {
        let failed = |error: &dyn std::fmt::Display| self.nats.failed("find the stream of the subject", error);
        let name = match &self.source.stream {
            PullStream::Work => return self.nats.work_stream().await,
            PullStream::Named(name) => name.clone(),
            PullStream::OfSubject => {
                let found = self.nats.context().stream_by_subject(&*self.source.filter).await;
                found.map_err(|error| failed(&error))?
            }
        };
        self.nats.context().get_stream(&name).await.map_err(|error| failed(&error))
    }
}

/// Whether a subject is one of those that a filter with `*` and `>` selects.
fn is_selected(filter: &str, subject: &str) -> bool {
    let (mut filter, mut subject) = (filter.split('.'), subject.split('.'));
    loop {
        match (filter.next(), subject.next()) {
            (None, None) => return true,
            (Some(">"), Some(_)) => return true,
            (Some(expected), Some(found)) if expected == "*" || expected == found => {}
            _ => return false,
        }
    }
}

/// Returns how often a message was delivered, including this time.
pub(crate) fn deliveries(message: &Message) -> u32 {
    message.info().map_or(1, |info| u32::try_from(info.delivered).unwrap_or(u32::MAX))
}

/// Answers a message. If the answer is lost, the message is delivered again.
pub(crate) async fn answer(message: &Message, kind: AckKind) {
    match tokio::time::timeout(STORE_TIME, message.ack_with(kind)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a message of NATS was not answered"),
        Err(_) => tracing::debug!("a message of NATS was not answered in time"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// I6: only messages of the configured subjects are taken.
    #[test]
    fn i6_subjects_are_compared_with_a_filter() {
        for (filter, subject) in
            [("a.b", "a.b"), ("a.*", "a.b"), ("*.b", "a.b"), ("a.>", "a.b"), ("a.>", "a.b.c"), ("a.*.c", "a.b.c")]
        {
            assert!(is_selected(filter, subject), "{filter} {subject}");
        }
        for (filter, subject) in [
            ("a.b", "a.c"),
            ("a.b", "a"),
            ("a.b", "a.b.c"),
            ("a.*", "a"),
            ("a.*", "a.b.c"),
            ("a.>", "a"),
            ("a", ""),
            ("a.>", "b.c"),
        ] {
            assert!(!is_selected(filter, subject), "{filter} {subject}");
        }
    }
}
