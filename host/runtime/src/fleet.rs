//! The connection of this process to the other processes of its fleet over NATS (F1, F2), and what is announced there.

use crate::news::AnnouncementId;
use agent_fleet::{FleetKey, Hint, Nats};
use agent_store::{Announcement, Bucket, News, Store, StoreError};
use uuid::Uuid;

/// Name of the stored key.
const KEY_NAME: &str = "key";
/// Maximum number of bytes that are stored for the fleet.
const KEY_QUOTA: u64 = 4 << 10;

/// This process as a part of a fleet that uses NATS.
#[derive(Clone)]
pub struct Fleet {
    /// The connection, which may be down at any time.
    pub nats: Nats,
    /// The key with which the processes sign their messages. It is in their database.
    pub key: FleetKey,
    /// The name of this process for people, which dead letters contain.
    pub process: String,
}

impl Fleet {
    /// Joins the fleet of the processes that share the store. The first process creates the key of the fleet.
    pub async fn join(store: &dyn Store, nats: Nats, process: String) -> Result<Self, StoreError> {
        // No agent and no plugin has an empty name, so no plugin can read this bucket.
        let nobody = String::new;
        let bucket = Bucket { agent: nobody(), plugin: nobody(), name: "fleet".to_owned(), quota: KEY_QUOTA };
        // A random UUID has 122 random bits.
        let created = [Uuid::new_v4().into_bytes(), Uuid::new_v4().into_bytes()].concat();
        store.compare_and_swap(&bucket, KEY_NAME, None, created).await?;
        let stored = store.get(&bucket, KEY_NAME).await?.unwrap_or_default();
        let key = FleetKey::new(&stored).ok_or_else(|| StoreError::Invalid {
            what: "the key of the fleet".to_owned(),
            problem: "it does not have 32 bytes".to_owned(),
        })?;
        Ok(Self { nats, key, process })
    }
}

/// Announces news to the other processes: over NATS, or with the store while NATS cannot be used.
pub(crate) async fn announce(store: &dyn Store, fleet: Option<&Fleet>, news: Vec<(Announcement, AnnouncementId)>) {
    let Some(nats) = fleet.map(|fleet| &fleet.nats).filter(|nats| nats.is_usable()) else {
        return store.announce(news.into_iter().map(|(announcement, _)| announcement).collect()).await;
    };
    let mut work = Vec::new();
    for (Announcement { news, session }, id) in news {
        match news {
            News::Work => work.push((session, id)),
            News::Events => drop(nats.tell(&Hint::Events(session)).await),
            News::Answer => drop(nats.tell(&Hint::Answer(session)).await),
        }
    }
    let failed = nats.announce_work(work).await;
    if !failed.is_empty() {
        let again = failed.into_iter().map(|session| Announcement { news: News::Work, session });
        store.announce(again.collect()).await;
    }
}
