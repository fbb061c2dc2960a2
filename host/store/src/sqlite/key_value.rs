//! Key-value storage. Each method runs one statement or one writer job, and is therefore atomic.

use super::SqliteStore;
use super::failure::Failure;
use super::queries::{collect, sql_limit, unsigned};
use super::writer::Effort;
use crate::encoding::key_values::{EntryKey, Stored, check_usage, check_value, incremented};
use crate::{Bucket, KeyValue, StoreError, Swap};
use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, params};

#[async_trait]
impl KeyValue for SqliteStore {
    async fn get(&self, bucket: &Bucket, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let entry = EntryKey::new(bucket, key)?;
        self.read(move |connection| get(connection, &entry)).await
    }

    async fn set(&self, bucket: &Bucket, key: &str, value: Vec<u8>) -> Result<(), StoreError> {
        let entry = EntryKey::new(bucket, key)?;
        check_value(&value)?;
        self.write(Effort::of(value.len()), move |connection| set(connection, &entry, &value)).await
    }

    async fn delete_key(&self, bucket: &Bucket, key: &str) -> Result<(), StoreError> {
        let EntryKey { bucket, key } = EntryKey::new(bucket, key)?;
        self.write(Effort::Short, move |connection| {
            let sql = "DELETE FROM key_values WHERE agent = ?1 AND plugin = ?2 AND bucket = ?3 AND key = ?4";
            connection.prepare_cached(sql)?.execute(params![bucket.agent, bucket.plugin, bucket.name, key])?;
            Ok(())
        })
        .await
    }

    async fn exists(&self, bucket: &Bucket, key: &str) -> Result<bool, StoreError> {
        let EntryKey { bucket, key } = EntryKey::new(bucket, key)?;
        self.read(move |connection| {
            let sql = "SELECT 1 FROM key_values WHERE agent = ?1 AND plugin = ?2 AND bucket = ?3 AND key = ?4";
            Ok(connection.prepare_cached(sql)?.exists(params![bucket.agent, bucket.plugin, bucket.name, key])?)
        })
        .await
    }

    async fn keys(&self, bucket: &Bucket, after: &str, limit: usize) -> Result<Vec<String>, StoreError> {
        let (bucket, after) = (bucket.clone(), after.to_owned());
        self.read(move |connection| {
            let sql = "SELECT key FROM key_values WHERE agent = ?1 AND plugin = ?2 AND bucket = ?3 AND key > ?4
                       ORDER BY key LIMIT ?5";
            let parameters = params![bucket.agent, bucket.plugin, bucket.name, after, sql_limit(limit)];
            collect(connection, sql, parameters, |row| Ok(row.get(0)?))
        })
        .await
    }

    async fn increment(&self, bucket: &Bucket, key: &str, delta: i64) -> Result<i64, StoreError> {
        let entry = EntryKey::new(bucket, key)?;
        self.write(Effort::Short, move |connection| {
            let sum = incremented(&entry, get(connection, &entry)?.as_deref(), delta)?;
            set(connection, &entry, sum.to_string().as_bytes())?;
            Ok(sum)
        })
        .await
    }

    async fn compare_and_swap(
        &self,
        bucket: &Bucket,
        key: &str,
        expected: Option<Vec<u8>>,
        value: Vec<u8>,
    ) -> Result<Swap, StoreError> {
        let entry = EntryKey::new(bucket, key)?;
        check_value(&value)?;
        self.write(Effort::of(value.len()), move |connection| {
            let found = get(connection, &entry)?;
            if found != expected {
                return Ok(Swap::Other(found));
            }
            set(connection, &entry, &value)?;
            Ok(Swap::Done)
        })
        .await
    }
}

fn get(connection: &Connection, EntryKey { bucket, key }: &EntryKey) -> Result<Option<Vec<u8>>, Failure> {
    let sql = "SELECT value FROM key_values WHERE agent = ?1 AND plugin = ?2 AND bucket = ?3 AND key = ?4";
    let mut statement = connection.prepare_cached(sql)?;
    let value = statement.query_row(params![bucket.agent, bucket.plugin, bucket.name, key], |row| row.get(0));
    Ok(value.optional()?)
}

fn set(connection: &Connection, entry: &EntryKey, value: &[u8]) -> Result<(), Failure> {
    check_quota(connection, entry, value)?;
    let EntryKey { bucket, key } = entry;
    let sql = "INSERT INTO key_values (agent, plugin, bucket, key, value) VALUES (?1, ?2, ?3, ?4, ?5)
               ON CONFLICT (agent, plugin, bucket, key) DO UPDATE SET value = ?5";
    connection.prepare_cached(sql)?.execute(params![bucket.agent, bucket.plugin, bucket.name, key, value])?;
    Ok(())
}

/// Checks the quota in the transaction of the write, so that two processes cannot exceed the quota together. The check
/// reads totals that the database maintains. The check does not add up all values of a plugin, because other writers
/// wait while the check runs.
fn check_quota(connection: &Connection, entry: &EntryKey, value: &[u8]) -> Result<(), Failure> {
    let EntryKey { bucket, key } = entry;
    if bucket.quota == u64::MAX {
        return Ok(());
    }
    let sql = "SELECT entries, bytes FROM key_value_usage WHERE agent = ?1 AND plugin = ?2";
    let usage = connection
        .prepare_cached(sql)?
        .query_row(params![bucket.agent, bucket.plugin], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)));
    let (entries, bytes) = usage.optional()?.unwrap_or_default();
    let sql = "SELECT LENGTH(value) FROM key_values WHERE agent = ?1 AND plugin = ?2 AND bucket = ?3 AND key = ?4";
    let mut statement = connection.prepare_cached(sql)?;
    let replaced = statement.query_row(params![bucket.agent, bucket.plugin, bucket.name, key], |row| row.get(0));
    let replaced: Option<i64> = replaced.optional()?;
    let replaced = replaced.map(unsigned);
    check_usage(entry, value, Stored { entries: unsigned(entries), bytes: unsigned(bytes), replaced })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MAX_ENTRIES, Options, SqliteStore};

    fn bucket(quota: u64) -> Bucket {
        Bucket { agent: "a".to_owned(), plugin: "p".to_owned(), name: "b".to_owned(), quota }
    }

    /// Row 44: the totals that are compared with the quotas stay correct after writes, replacements and deletions.
    #[tokio::test]
    async fn row_44_database_maintains_the_totals() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memory.db");
        let store = SqliteStore::open(&path, Options::default()).unwrap();
        for number in 0..40_usize {
            let key = format!("kä{}", number % 7);
            match number % 5 {
                0 => store.delete_key(&bucket(1 << 20), &key).await.unwrap(),
                1 => drop(store.increment(&bucket(1 << 20), &format!("n{number}"), 5).await.unwrap()),
                _ => store.set(&bucket(1 << 20), &key, vec![0; number]).await.unwrap(),
            }
        }
        let connection = Connection::open(&path).unwrap();
        let sums = |sql: &str| {
            connection.query_row(sql, [], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))).unwrap()
        };
        let maintained = sums("SELECT entries, bytes FROM key_value_usage");
        let computed = "SELECT count(*), sum(length(CAST(key AS BLOB)) + length(value)) FROM key_values";
        assert_eq!(maintained, sums(computed));
        assert!(maintained.0 > 5);
        // A write compares the quota with the stored totals and does not add up the values.
        connection.execute("UPDATE key_value_usage SET bytes = 1 << 30", []).unwrap();
        let refused = store.set(&bucket(1 << 20), "new", Vec::new()).await;
        assert!(matches!(refused, Err(StoreError::TooLarge { .. })), "{refused:?}");
        connection.execute("UPDATE key_value_usage SET bytes = 0, entries = ?1", [MAX_ENTRIES as i64]).unwrap();
        let refused = store.set(&bucket(1 << 40), "new", Vec::new()).await;
        assert!(matches!(refused, Err(StoreError::Invalid { .. })), "{refused:?}");
        store.set(&bucket(1 << 40), "kä2", Vec::new()).await.expect("an existing value can be replaced");
    }
}
