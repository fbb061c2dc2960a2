//! Deletes objects to which nothing refers (decision 0155). Every process with an object store does this now and then; the
//! database tells them apart.

use super::PostgresStore;
use super::connections::Connection;
use super::failure::Failure;
use super::objects::{GRACE, is_name};
use super::queries::NOW;
use super::text::text;
use crate::StoreError;
use crate::objects::ObjectClient;
use deadpool_postgres::Pool;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::AbortHandle;

/// Time between two collections of a process.
const PAUSE: Duration = Duration::from_secs(600);
/// Time after which a process collects for the first time. Commands that end earlier collect nothing.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
/// Time after which an object whose deletion has failed is tried again, in microseconds: ten minutes.
const RETRY: i64 = 600_000_000;
/// Time between two searches for objects of which the database does not know, in microseconds: one day.
const LIST_PAUSE: i64 = 86_400_000_000;
/// Number of objects that are deleted before the database is told.
const BATCH: i64 = 50;

/// Maximum number of pages of a list that a search reads: ten million objects.
const MAX_PAGES: usize = 10_000;
/// Maximum number of unknown objects of a search, except for those of its last page.
const MAX_FOUND: u64 = 100_000;

/// What a collection did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectedObjects {
    /// Number of objects that were deleted.
    pub deleted: u64,
    /// Number of objects of which the database did not know, and which a later collection deletes.
    pub found: u64,
}

/// Collects for one process.
#[derive(Clone)]
pub(super) struct Collector {
    pool: Pool,
    client: Arc<ObjectClient>,
}

/// Runs a collector until it is dropped.
#[derive(Default)]
pub(super) struct CollectionTask(Option<AbortHandle>);

impl CollectionTask {
    pub(super) fn start(&mut self, collector: Option<Collector>) {
        let Some(collector) = collector else { return };
        let task = tokio::spawn(async move {
            tokio::time::sleep(FIRST_PAUSE).await;
            loop {
                if let Err(failure) = collector.run_if_due().await {
                    let store = collector.client.shown();
                    tracing::warn!(
                        ?failure,
                        store,
                        "objects to which nothing refers were not deleted; this is tried again"
                    );
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
        self.0 = Some(task.abort_handle());
    }
}

impl Drop for CollectionTask {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

impl PostgresStore {
    /// Deletes the objects to which nothing has referred for an hour, and searches for objects of which the database does not know.
    /// Such objects exist if a process was stopped for more than an hour while it wrote them, or if the database was restored from a
    /// backup; they are deleted an hour after they were found. A store without an object store collects nothing.
    pub async fn collect_objects(&self) -> Result<CollectedObjects, StoreError> {
        let Some(collector) = self.collector() else { return Ok(CollectedObjects::default()) };
        let collected =
            async { Ok(CollectedObjects { deleted: collector.delete_due().await?, found: collector.find().await? }) };
        collected.await.map_err(|failure: Failure| failure.into_error(&self.path))
    }

    pub(super) fn collector(&self) -> Option<Collector> {
        let client = self.objects.as_ref()?.client.clone();
        Some(Collector { pool: self.pool.clone(), client })
    }
}

impl Collector {
    /// Deletes objects, and searches for unknown objects if no process has done so for a day.
    async fn run_if_due(&self) -> Result<(), Failure> {
        self.delete_due().await?;
        let sql = format!("UPDATE object_store SET listed = {NOW} WHERE listed < {NOW} - $1::bigint");
        let is_due = Connection::of(&self.pool).await?.execute(&sql, &[&LIST_PAUSE]).await? == 1;
        if is_due {
            self.find().await?;
        }
        Ok(())
    }

    /// Deletes the objects whose time has come, and returns their number.
    async fn delete_due(&self) -> Result<u64, Failure> {
        let mut deleted = 0;
        loop {
            let doomed = self.doom_due().await?;
            if doomed.is_empty() {
                return Ok(deleted);
            }
            for object in &doomed {
                self.client.delete(object).await.map_err(|problem| problem.into_error(self.client.shown()))?;
            }
            let sql = "DELETE FROM unused_objects WHERE object = ANY($1)";
            deleted += Connection::of(&self.pool).await?.execute(sql, &[&doomed]).await?;
        }
    }

    /// Dooms objects whose time has come, so that no transaction refers to them any more, and returns them. The time moves on, so that
    /// another process deletes them if this one does not.
    async fn doom_due(&self) -> Result<Vec<String>, Failure> {
        let sql = format!(
            "UPDATE unused_objects SET doomed = true, due = {NOW} + $1::bigint WHERE object IN
                 (SELECT object FROM unused_objects WHERE due <= {NOW} ORDER BY due LIMIT $2 FOR UPDATE SKIP LOCKED)
             RETURNING object"
        );
        let rows = Connection::of(&self.pool).await?.query(&sql, &[&RETRY, &BATCH]).await?;
        rows.iter().map(|row| text(row, 0)).collect()
    }

    /// Dooms objects in the bucket of which the database does not know, and returns their number. An object is in one of the tables
    /// from the time before it is written, so an object that is in none of them will never be referred to. The search ends after
    /// [`MAX_PAGES`] or [`MAX_FOUND`], so that a server that makes names up does not fill the database.
    async fn find(&self) -> Result<u64, Failure> {
        let (mut found, mut after) = (0, String::new());
        for _ in 0..MAX_PAGES {
            if found >= MAX_FOUND {
                break;
            }
            let names = self.client.list(&after).await.map_err(|problem| problem.into_error(self.client.shown()))?;
            let Some(last) = names.last() else { return Ok(found) };
            after.clone_from(last);
            let names: Vec<&str> = names.iter().map(String::as_str).filter(|name| is_name(name)).collect();
            let sql = format!(
                "INSERT INTO unused_objects (object, due, doomed) SELECT listed.object, {NOW} + $2::bigint, true
                 FROM unnest($1::text[]) AS listed(object)
                 WHERE NOT EXISTS (SELECT 1 FROM unused_objects u WHERE u.object = listed.object)
                     AND NOT EXISTS (SELECT 1 FROM blobs b WHERE b.digest = decode(substring(listed.object FROM 4 FOR 64), 'hex')
                         AND b.object = listed.object)
                 ON CONFLICT DO NOTHING"
            );
            found += Connection::of(&self.pool).await?.execute(&sql, &[&names, &GRACE]).await?;
        }
        tracing::warn!(
            found,
            store = self.client.shown(),
            "a search for unknown objects ended before the end of the bucket"
        );
        Ok(found)
    }
}
