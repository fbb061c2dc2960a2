//! Pulls the messages of a durable consumer, whatever happens to the server, the stream and the consumer in the meantime.

use crate::connection::Nats;
use crate::error::FleetError;
use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::pull::{Batch, Config};
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer};
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
    batch: Option<Batch>,
    failures: u32,
}

impl Puller {
    pub(crate) fn new(nats: Nats, source: PullSource) -> Self {
        Self { nats, source, consumer: None, batch: None, failures: 0 }
    }

    /// Waits for the next message. Dropping the future loses no message, because it is delivered again.
    pub(crate) async fn next(&mut self) -> Message {
        loop {
            if let Some(batch) = &mut self.batch {
                match batch.next().await {
                    Some(Ok(message)) => {
                        self.failures = 0;
                        return message;
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

    async fn consumer(&self) -> Result<PullConsumer, FleetError> {
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
        let failed = |error: &dyn std::fmt::Display| self.nats.failed("create a consumer", error);
        let found = stream.get_or_create_consumer(&self.source.consumer, config.clone()).await;
        let consumer = found.map_err(|error| failed(&error))?;
        let found = &consumer.cached_info().config;
        if found.filter_subject == self.source.filter && found.filter_subjects.is_empty() {
            return Ok(consumer);
        }
        // The subject in the configuration has changed, or somebody else has created the consumer.
        stream.create_consumer(config).await.map_err(|error| failed(&error))
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

/// Returns how often a message was delivered, including this time.
pub(crate) fn deliveries(message: &Message) -> u32 {
    message.info().map_or(1, |info| u32::try_from(info.delivered).unwrap_or(u32::MAX))
}
