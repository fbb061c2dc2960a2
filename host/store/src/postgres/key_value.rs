//! Key-value storage. A write locks the row with the totals of its plugin, and is therefore atomic.

use super::PostgresStore;
use super::connections::{Connection, Transaction};
use super::failure::Failure;
use super::queries::{number, value};
use super::text::{Text, text};
use crate::encoding::key_values::{EntryKey, Stored, check_usage, check_value, incremented};
use crate::encoding::values::{signed, sql_limit};
use crate::{Bucket, KeyValue, StoreError, Swap};
use async_trait::async_trait;
use sha2::{Digest as _, Sha256};
use tokio_postgres::types::ToSql;

#[async_trait]
impl KeyValue for PostgresStore {
    async fn get(&self, bucket: &Bucket, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let entry = EntryKey::new(bucket, key)?;
        self.run(|| async { get(&self.connection().await?, &entry).await }).await
    }

    async fn set(&self, bucket: &Bucket, key: &str, value: Vec<u8>) -> Result<(), StoreError> {
        let entry = EntryKey::new(bucket, key)?;
        check_value(&value)?;
        self.run_repeatable(|| async {
            let transaction = self.transaction().await?;
            let usage = Totals::lock(&transaction, bucket).await?;
            set(&transaction, &entry, (&value, usage)).await?;
            transaction.commit().await
        })
        .await
    }

    async fn delete_key(&self, bucket: &Bucket, key: &str) -> Result<(), StoreError> {
        let entry = EntryKey::new(bucket, key)?;
        self.run_repeatable(|| async {
            let transaction = self.transaction().await?;
            let totals = Totals::lock(&transaction, bucket).await?;
            let sql =
                "DELETE FROM key_values WHERE bucket_hash = $1 AND key = $2 RETURNING octet_length(value)::bigint";
            let (hash, key) = (bucket_hash(bucket), Text(&entry.key));
            let Some(row) = transaction.query_opt(sql, &[&hash, &key]).await? else {
                return transaction.roll_back().await;
            };
            let bytes = number(&row, 0)? + entry.key.len() as u64;
            totals.store(&transaction, bucket, (-1, -signed(bytes))).await?;
            transaction.commit().await
        })
        .await
    }

    async fn exists(&self, bucket: &Bucket, key: &str) -> Result<bool, StoreError> {
        let entry = EntryKey::new(bucket, key)?;
        self.run(|| async {
            let sql = "SELECT 1 FROM key_values WHERE bucket_hash = $1 AND key = $2";
            let (hash, key) = (bucket_hash(bucket), Text(&entry.key));
            Ok(self.connection().await?.query_opt(sql, &[&hash, &key]).await?.is_some())
        })
        .await
    }

    async fn keys(&self, bucket: &Bucket, after: &str, limit: usize) -> Result<Vec<String>, StoreError> {
        self.run(|| async {
            let sql = "SELECT key FROM key_values WHERE bucket_hash = $1 AND key > $2 ORDER BY key LIMIT $3";
            let parameters: [&(dyn ToSql + Sync); 3] = [&bucket_hash(bucket), &Text(after), &sql_limit(limit)];
            self.connection().await?.query(sql, &parameters).await?.iter().map(|row| text(row, 0)).collect()
        })
        .await
    }

    async fn increment(&self, bucket: &Bucket, key: &str, delta: i64) -> Result<i64, StoreError> {
        let entry = EntryKey::new(bucket, key)?;
        self.run(|| async {
            let transaction = self.transaction().await?;
            let usage = Totals::lock(&transaction, bucket).await?;
            let sum = incremented(&entry, get(&transaction, &entry).await?.as_deref(), delta)?;
            set(&transaction, &entry, (sum.to_string().as_bytes(), usage)).await?;
            transaction.commit().await?;
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
        self.run(|| async {
            let transaction = self.transaction().await?;
            let usage = Totals::lock(&transaction, bucket).await?;
            let found = get(&transaction, &entry).await?;
            if found != expected {
                transaction.roll_back().await?;
                return Ok(Swap::Other(found));
            }
            set(&transaction, &entry, (&value, usage)).await?;
            transaction.commit().await?;
            Ok(Swap::Done)
        })
        .await
    }
}

async fn get(connection: &Connection, entry: &EntryKey) -> Result<Option<Vec<u8>>, Failure> {
    let sql = "SELECT value FROM key_values WHERE bucket_hash = $1 AND key = $2";
    let row = connection.query_opt(sql, &[&bucket_hash(&entry.bucket), &Text(&entry.key)]).await?;
    row.map(|row| value(&row, 0)).transpose()
}

/// Stores a value in the transaction that has locked the totals of its plugin.
async fn set(transaction: &Transaction, entry: &EntryKey, (bytes, totals): (&[u8], Totals)) -> Result<(), Failure> {
    let EntryKey { bucket, key } = entry;
    let hash = bucket_hash(bucket);
    let sql = "SELECT octet_length(value)::bigint FROM key_values WHERE bucket_hash = $1 AND key = $2";
    let replaced = transaction.query_opt(sql, &[&hash, &Text(key)]).await?;
    let replaced = replaced.map(|row| number(&row, 0)).transpose()?;
    if bucket.quota != u64::MAX {
        check_usage(entry, bytes, Stored { entries: totals.entries, bytes: totals.bytes, replaced })?;
    }
    let sql = "INSERT INTO key_values (bucket_hash, key, agent, plugin, bucket, value) VALUES ($1, $2, $3, $4, $5, $6)
               ON CONFLICT (bucket_hash, key) DO UPDATE SET value = excluded.value";
    let Bucket { agent, plugin, name, .. } = bucket;
    let parameters: [&(dyn ToSql + Sync); 6] = [&hash, &Text(key), &Text(agent), &Text(plugin), &Text(name), &bytes];
    transaction.execute(sql, &parameters).await?;
    let change = match replaced {
        Some(replaced) => (0, signed(bytes.len() as u64) - signed(replaced)),
        None => (1, signed((key.len() + bytes.len()) as u64)),
    };
    totals.store(transaction, bucket, change).await
}

/// What a plugin has stored.
struct Totals {
    entries: u64,
    bytes: u64,
}

impl Totals {
    /// Locks the totals of a plugin until the end of the transaction, so that two processes cannot exceed a quota together.
    async fn lock(transaction: &Transaction, bucket: &Bucket) -> Result<Self, Failure> {
        let sql = "INSERT INTO key_value_usage AS u (plugin_hash, entries, bytes) VALUES ($1, 0, 0)
                   ON CONFLICT (plugin_hash) DO UPDATE SET entries = u.entries RETURNING entries, bytes";
        let row = transaction.query_one(sql, &[&plugin_hash(bucket)]).await?;
        Ok(Self { entries: number(&row, 0)?, bytes: number(&row, 1)? })
    }

    async fn store(
        self,
        transaction: &Transaction,
        bucket: &Bucket,
        (entries, bytes): (i64, i64),
    ) -> Result<(), Failure> {
        let sql = "UPDATE key_value_usage SET entries = entries + $2, bytes = bytes + $3 WHERE plugin_hash = $1";
        transaction.execute(sql, &[&plugin_hash(bucket), &entries, &bytes]).await?;
        Ok(())
    }
}

/// Computes the totals of all plugins again, after values were copied.
pub(super) async fn rebuild_totals(transaction: &Transaction) -> Result<(), Failure> {
    transaction.execute("DELETE FROM key_value_usage", &[]).await?;
    // The characters that are escaped count as one byte each.
    let sql = "SELECT agent, plugin, count(*), sum(octet_length(value) + octet_length(
                   replace(replace(key, chr(1) || chr(1), '.'), chr(1) || chr(2), '.')))::bigint
               FROM key_values GROUP BY agent, plugin";
    for row in transaction.query(sql, &[]).await? {
        let hash = hash_of(&[&text(&row, 0)?, &text(&row, 1)?]);
        let (entries, bytes): (i64, i64) = (value(&row, 2)?, value(&row, 3)?);
        let sql = "INSERT INTO key_value_usage (plugin_hash, entries, bytes) VALUES ($1, $2, $3)";
        transaction.execute(sql, &[&hash, &entries, &bytes]).await?;
    }
    Ok(())
}

fn bucket_hash(bucket: &Bucket) -> Vec<u8> {
    hash_of(&[&bucket.agent, &bucket.plugin, &bucket.name])
}

fn plugin_hash(bucket: &Bucket) -> Vec<u8> {
    hash_of(&[&bucket.agent, &bucket.plugin])
}

/// Returns a hash of names. The length of each name is part of the hash, so that different lists have different hashes.
pub(super) fn hash_of(names: &[&str]) -> Vec<u8> {
    let mut hasher = Sha256::new();
    for name in names {
        hasher.update((name.len() as u64).to_be_bytes());
        hasher.update(name);
    }
    hasher.finalize().to_vec()
}
