//! The JetStream streams of a fleet. They are created when they are needed, also after somebody has deleted them. A stream that
//! exists keeps its settings, so that operators can change them.

use crate::connection::Nats;
use crate::error::FleetError;
use crate::subjects::Kind;
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, Stream};
use std::time::Duration;

/// Number of copies in a cluster. A single server keeps one copy.
const COPIES: usize = 3;
/// Time after which an announcement is removed. Its work was found in the database long before.
const ANNOUNCEMENT_AGE: Duration = Duration::from_secs(24 * 60 * 60);
/// Maximum number of announcements. If there are more, the oldest are removed.
const MAX_ANNOUNCEMENTS: i64 = 1_000_000;
/// Maximum size of a message in the work queue, in bytes. Announcements are empty, and repeated events may be large.
pub(crate) const MAX_MESSAGE: i32 = 2 << 20;
/// Time in which the server recognises a doubled announcement.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(120);
/// Time after which a dead letter is removed.
const DEAD_LETTER_AGE: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Maximum number of dead letters, also of a single session or table of events, so that one sender does not remove those of others.
/// If there are more, the oldest are removed.
const KEPT_DEAD_LETTERS: i64 = 10_000;
const KEPT_OF_ONE_RECEIVER: i64 = 500;
/// Maximum size of all dead letters, in bytes.
const DEAD_LETTER_BYTES: i64 = 128 << 20;

impl Nats {
    /// Returns the work queue.
    pub(crate) async fn work_stream(&self) -> Result<Stream, FleetError> {
        self.stream(Config {
            name: format!("{}-work", self.subjects().fleet()),
            description: Some("Announcements of work for agent-host; all of it is in the database, too".to_owned()),
            subjects: vec![self.subjects().of_all(Kind::Work), self.subjects().of_all(Kind::Retry)],
            retention: RetentionPolicy::WorkQueue,
            discard: DiscardPolicy::Old,
            max_messages: MAX_ANNOUNCEMENTS,
            max_age: ANNOUNCEMENT_AGE,
            max_message_size: MAX_MESSAGE,
            duplicate_window: DUPLICATE_WINDOW,
            ..Config::default()
        })
        .await
    }

    /// Returns the stream of dead letters.
    pub(crate) async fn dead_letter_stream(&self) -> Result<Stream, FleetError> {
        self.stream(Config {
            name: format!("{}-dead", self.subjects().fleet()),
            description: Some("Messages that no process of agent-host could handle".to_owned()),
            subjects: vec![self.subjects().of_all(Kind::Dead)],
            discard: DiscardPolicy::Old,
            max_messages: KEPT_DEAD_LETTERS,
            max_messages_per_subject: KEPT_OF_ONE_RECEIVER,
            max_bytes: DEAD_LETTER_BYTES,
            max_age: DEAD_LETTER_AGE,
            max_message_size: MAX_MESSAGE,
            ..Config::default()
        })
        .await
    }

    async fn stream(&self, config: Config) -> Result<Stream, FleetError> {
        let in_cluster = Config { num_replicas: COPIES, ..config.clone() };
        if let Ok(stream) = self.context().get_or_create_stream(in_cluster).await {
            return Ok(stream);
        }
        // A single server, or a cluster in which too few servers run, cannot keep several copies.
        let alone = Config { num_replicas: 1, ..config };
        let created = self.context().get_or_create_stream(alone).await;
        created.map_err(|error| self.failed("create a stream", &error))
    }
}
