//! Blobs: equal bytes are stored once, sessions refer to the stored bytes, and a read returns a range of the bytes.

use super::PostgresStore;
use super::connections::{Connection, Parameters, Transaction};
use super::failure::Failure;
use super::objects::{Place, Uploads, doom};
use super::queries::{keep_session, number, of_session, optional_number, value};
use super::text::{Text, optional, optional_text};
use crate::encoding::blobs::{StoredBytes, hash, key_of};
use crate::encoding::values::{invalid, signed, sql_limit};
use crate::{BlobReference, Blobs, MAX_READ_BYTES, MediaDescription, StoreError};
use agent_core::message::{Digest, Dimensions, Media};
use async_trait::async_trait;
use futures::future::try_join_all;
use sha2::{Digest as _, Sha256};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

/// Size of a part of a blob, in bytes.
const PART_BYTES: usize = 1 << 20;
/// Number of bytes of an object that are checked together.
const CHECKED_BYTES: u64 = 8 << 20;
/// Size up to which the bytes of several blobs are sent together.
const SMALL_BYTES: usize = 16 << 10;

#[async_trait]
impl Blobs for PostgresStore {
    async fn put(&self, session: &str, bytes: Vec<u8>, about: MediaDescription) -> Result<Media, StoreError> {
        if about.mime_type.is_empty() {
            return Err(invalid("a media blob", "its media type is empty"));
        }
        let (stored, uploads) = (hash("a media blob", bytes).await?, Uploads::of(self));
        self.run_repeatable(|| async {
            self.upload(std::slice::from_ref(&stored), &uploads).await?;
            let transaction = self.transaction().await?;
            keep_session(&transaction, session).await?;
            insert_bytes(&transaction, session, std::slice::from_ref(&stored), &uploads).await?;
            set_description(&transaction, session, &stored, &about).await?;
            transaction.commit().await
        })
        .await?;
        let MediaDescription { mime_type, dimensions, name } = about;
        Ok(Media { digest: stored.digest.clone(), mime_type, size: stored.len() as u64, dimensions, name })
    }

    async fn media(&self, session: &str, digest: &Digest) -> Result<Option<Media>, StoreError> {
        let key = key_of(digest)?.to_vec();
        self.run(|| async {
            let sql = "SELECT b.digest, b.size, r.mime_type, r.width, r.height, r.name
                       FROM blob_references r JOIN blobs b ON b.digest = r.digest
                       WHERE r.session = $1 AND r.digest = $2 AND r.mime_type IS NOT NULL";
            let connection = self.connection().await?;
            let media = |row: &Row| media_from_row(row, digest.clone());
            Ok(of_session(&connection, session, (sql, &[&Text(session), &key]), media).await?.pop())
        })
        .await
    }

    async fn read(&self, session: &str, digest: &Digest, offset: u64, length: u32) -> Result<Vec<u8>, StoreError> {
        let key = key_of(digest)?;
        self.run(|| async {
            let connection = self.connection().await?;
            let sql = "SELECT b.size, b.object FROM blob_references r JOIN blobs b ON b.digest = r.digest
                       WHERE r.session = $1 AND r.digest = $2 AND r.mime_type IS NOT NULL";
            let parameters: Parameters<'_> = &[&Text(session), &key.as_slice()];
            let place = of_session(&connection, session, (sql, parameters), Place::of).await?.pop();
            let place = place.ok_or_else(|| StoreError::NoBlob { digest: digest.clone() })?;
            let start = offset.min(place.size);
            let end = start + (place.size - start).min(u64::from(length.min(MAX_READ_BYTES)));
            self.read_bytes(connection, (&key, &place), (start, end)).await
        })
        .await
    }

    async fn put_text(&self, session: &str, text: String) -> Result<Digest, StoreError> {
        let (stored, uploads) = (hash("a text", text.into_bytes()).await?, Uploads::of(self));
        self.run_repeatable(|| async {
            self.upload(std::slice::from_ref(&stored), &uploads).await?;
            let transaction = self.transaction().await?;
            keep_session(&transaction, session).await?;
            insert_bytes(&transaction, session, std::slice::from_ref(&stored), &uploads).await?;
            transaction.commit().await
        })
        .await?;
        Ok(stored.digest.clone())
    }

    async fn references(
        &self,
        session: &str,
        after: Option<&Digest>,
        limit: usize,
    ) -> Result<Vec<BlobReference>, StoreError> {
        // The empty byte string sorts before every digest.
        let after = after.map(key_of).transpose()?.map(Vec::from).unwrap_or_default();
        self.run(|| async {
            let sql = "SELECT b.digest, b.size, r.mime_type, r.width, r.height, r.name
                       FROM blob_references r JOIN blobs b ON b.digest = r.digest
                       WHERE r.session = $1 AND r.digest > $2 ORDER BY r.digest LIMIT $3";
            let connection = self.connection().await?;
            of_session(&connection, session, (sql, &[&Text(session), &after, &sql_limit(limit)]), reference).await
        })
        .await
    }

    async fn share(&self, from: &str, to: &str, media: &[Digest]) -> Result<(), StoreError> {
        self.run_repeatable(|| async {
            let transaction = self.transaction().await?;
            for session in [from, to] {
                keep_session(&transaction, session).await?;
            }
            for digest in media {
                share(&transaction, (from, to), digest).await?;
            }
            transaction.commit().await
        })
        .await
    }

    async fn text(&self, session: &str, digest: &Digest) -> Result<String, StoreError> {
        let key = key_of(digest)?;
        let bytes = self
            .run(|| async {
                let connection = self.connection().await?;
                let sql = "SELECT b.size, b.object FROM blob_references r JOIN blobs b ON b.digest = r.digest
                           WHERE r.session = $1 AND r.digest = $2";
                let parameters: Parameters<'_> = &[&Text(session), &key.as_slice()];
                let place = of_session(&connection, session, (sql, parameters), Place::of).await?.pop();
                let place = place.ok_or_else(|| StoreError::NoBlob { digest: digest.clone() })?;
                self.read_bytes(connection, (&key, &place), (0, place.size)).await
            })
            .await?;
        String::from_utf8(bytes).map_err(|_| invalid(digest.to_string(), "it is not UTF-8 text"))
    }
}

/// Stores the bytes that are not stored yet, and adds references from the session to the bytes. Large bytes were uploaded before.
pub(super) async fn insert_bytes(
    transaction: &Transaction,
    session: &str,
    stored: &[StoredBytes],
    uploads: &Uploads,
) -> Result<(), Failure> {
    if stored.is_empty() {
        return Ok(());
    }
    // All transactions insert in the same order, so that they do not wait for each other in a circle.
    let mut sorted: Vec<&StoredBytes> = stored.iter().collect();
    sorted.sort_by_key(|stored| stored.key);
    sorted.dedup_by_key(|stored| stored.key);
    let keys: Vec<&[u8]> = sorted.iter().map(|stored| stored.key.as_slice()).collect();
    insert_blobs(transaction, &sorted, uploads).await?;
    // Another transaction may delete bytes to which no session has referred so far.
    let sql = "SELECT digest FROM blobs WHERE digest = ANY($1) ORDER BY digest FOR KEY SHARE";
    if transaction.query(sql, &[&keys]).await?.len() < keys.len() {
        return Err(Failure::RunAgain);
    }
    transaction.execute(INSERT_REFERENCES, &[&Text(session), &keys]).await?;
    Ok(())
}

/// Stores the bytes that are not stored yet. The list is sorted by the keys.
pub(super) async fn insert_blobs(
    transaction: &Transaction,
    sorted: &[&StoredBytes],
    uploads: &Uploads,
) -> Result<(), Failure> {
    let keys: Vec<&[u8]> = sorted.iter().map(|stored| stored.key.as_slice()).collect();
    let sizes: Vec<i64> = sorted.iter().map(|stored| signed(stored.len() as u64)).collect();
    let objects: Vec<Option<String>> = sorted.iter().map(|stored| uploads.name(&stored.key)).collect();
    let sql = "INSERT INTO blobs (digest, size, object) SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::text[])
               ON CONFLICT (digest) DO NOTHING RETURNING digest";
    let new = transaction.query(sql, &[&keys, &sizes, &objects]).await?;
    let new = new.iter().map(|row| value::<&[u8]>(row, 0)).collect::<Result<Vec<_>, _>>()?;
    let new = sorted.iter().filter(|stored| new.contains(&stored.key.as_slice()));
    let (uploaded, new): (Vec<&&StoredBytes>, Vec<_>) = new.partition(|stored| uploads.takes(stored));
    for stored in uploaded {
        uploads.claim(transaction, &stored.key).await?;
    }
    let (small, large): (Vec<&&StoredBytes>, Vec<_>) = new.into_iter().partition(|stored| stored.len() <= SMALL_BYTES);
    try_join_all(small.into_iter().map(|stored| insert_parts(transaction, stored))).await?;
    // Only one part of a large blob at a time is in the buffers of the connection.
    for stored in large {
        insert_parts(transaction, stored).await?;
    }
    Ok(())
}

async fn insert_parts(transaction: &Transaction, stored: &StoredBytes) -> Result<(), Failure> {
    for (part, bytes) in (0_i64..).zip(stored.bytes.chunks(PART_BYTES)) {
        let sql = "INSERT INTO blob_parts (digest, part, bytes) VALUES ($1, $2, $3)";
        transaction.execute(sql, &[&stored.key.as_slice(), &part, &bytes]).await?;
    }
    Ok(())
}

/// Adds references to bytes. Uses the primary key, which begins with the session.
pub(super) const INSERT_REFERENCES: &str =
    "INSERT INTO blob_references (session, digest) SELECT $1::text, * FROM unnest($2::bytea[]) ON CONFLICT DO NOTHING";

/// Deletes those of the blobs to which no session refers. Their objects are deleted later.
pub(super) async fn delete_unreferenced(transaction: &Transaction, digests: Vec<Vec<u8>>) -> Result<(), Failure> {
    if digests.is_empty() {
        return Ok(());
    }
    // The rows are locked first, so that the next statement sees all references of other transactions.
    let sql = "SELECT 1 FROM blobs WHERE digest = ANY($1) ORDER BY digest FOR UPDATE";
    transaction.query(sql, &[&digests]).await?;
    let sql = "DELETE FROM blobs WHERE digest = ANY($1)
               AND NOT EXISTS (SELECT 1 FROM blob_references r WHERE r.digest = blobs.digest)
               RETURNING digest, object";
    let rows = transaction.query(sql, &[&digests]).await?;
    let deleted = rows.iter().map(|row| value::<Vec<u8>>(row, 0)).collect::<Result<Vec<_>, _>>()?;
    transaction.execute("DELETE FROM blob_parts WHERE digest = ANY($1)", &[&deleted]).await?;
    let objects = rows.iter().filter_map(|row| optional_text(row, 1).transpose()).collect::<Result<Vec<_>, _>>()?;
    doom(transaction, &objects).await
}

async fn set_description(
    transaction: &Transaction,
    session: &str,
    stored: &StoredBytes,
    about: &MediaDescription,
) -> Result<(), Failure> {
    let size = |size: fn(&Dimensions) -> u32| about.dimensions.as_ref().map(size).map(i64::from);
    let (width, height) = (size(|dimensions| dimensions.width), size(|dimensions| dimensions.height));
    let name = optional(about.name.as_deref());
    let sql = "UPDATE blob_references SET mime_type = $3, width = $4, height = $5, name = $6
               WHERE session = $1 AND digest = $2";
    let parameters: [&(dyn ToSql + Sync); 6] =
        [&Text(session), &stored.key.as_slice(), &Text(&about.mime_type), &width, &height, &name];
    transaction.execute(sql, &parameters).await?;
    Ok(())
}

async fn share(transaction: &Transaction, (from, to): (&str, &str), digest: &Digest) -> Result<(), Failure> {
    let sql = "INSERT INTO blob_references (session, digest, mime_type, width, height, name)
               SELECT $2, digest, mime_type, width, height, name FROM blob_references
               WHERE session = $1 AND digest = $3 AND mime_type IS NOT NULL
               ON CONFLICT (session, digest) DO UPDATE SET mime_type = excluded.mime_type, width = excluded.width,
                   height = excluded.height, name = excluded.name";
    let key = key_of(digest)?;
    if transaction.execute(sql, &[&Text(from), &Text(to), &key.as_slice()]).await? == 0 {
        return Err(StoreError::NoBlob { digest: digest.clone() }.into());
    }
    Ok(())
}

/// Reads a media item from the columns `digest`, `size`, `mime_type`, `width`, `height` and `name`.
fn media_from_row(row: &Row, digest: Digest) -> Result<Media, Failure> {
    let side = |column| Ok::<_, Failure>(optional_number(row, column)?.and_then(|side| u32::try_from(side).ok()));
    let dimensions = side(3)?.zip(side(4)?).map(|(width, height)| Dimensions { width, height });
    let mime_type = optional_text(row, 2)?.unwrap_or_default();
    Ok(Media { digest, mime_type, size: number(row, 1)?, dimensions, name: optional_text(row, 5)? })
}

fn reference(row: &Row) -> Result<BlobReference, Failure> {
    let key: [u8; 32] = value::<&[u8]>(row, 0)?
        .try_into()
        .map_err(|_| Failure::Unreadable("the digest of a blob does not have 32 bytes".to_owned()))?;
    let digest = Digest::from_sha256(key);
    if optional_text(row, 2)?.is_none() {
        return Ok(BlobReference::Text { digest, size: number(row, 1)? });
    }
    Ok(BlobReference::Media(media_from_row(row, digest)?))
}

/// Reads the bytes from `start` to `end` of a blob in the database.
pub(super) async fn read_parts(connection: &Connection, key: &[u8], start: u64, end: u64) -> Result<Vec<u8>, Failure> {
    let part_bytes = PART_BYTES as u64;
    let mut bytes = Vec::with_capacity(usize::try_from(end - start).unwrap_or(0));
    let mut position = start;
    while position < end {
        let (part, offset) = (position / part_bytes, position % part_bytes);
        let length = (part_bytes - offset).min(end - position);
        let sql = "SELECT substring(bytes FROM $3 FOR $4) FROM blob_parts WHERE digest = $1 AND part = $2";
        let (from, count) = (offset as i32 + 1, length as i32);
        let row = connection.query_opt(sql, &[&key, &signed(part), &from, &count]).await?;
        let missing = || Failure::Unreadable(format!("a part of the blob {} is missing", hex::encode(key)));
        let row = row.ok_or_else(missing)?;
        let found: &[u8] = value(&row, 0)?;
        if found.len() as u64 != length {
            return Err(missing());
        }
        bytes.extend_from_slice(found);
        position += length;
    }
    Ok(bytes)
}

/// Compares all blobs with their digests.
pub(super) async fn check_digests(store: &PostgresStore) -> Result<(), Failure> {
    let mut after: Vec<u8> = Vec::new();
    loop {
        let sql = "SELECT size, object, digest FROM blobs WHERE digest > $1 ORDER BY digest LIMIT 1000";
        let rows = store.connection().await?.query(sql, &[&after]).await?;
        if rows.is_empty() {
            return Ok(());
        }
        for row in &rows {
            let (place, key) = (Place::of(row)?, value::<Vec<u8>>(row, 2)?);
            let digest = <[u8; 32]>::try_from(key.as_slice()).map_err(|_| changed(&key))?;
            let step = if place.object.is_some() { CHECKED_BYTES } else { PART_BYTES as u64 };
            let (mut hasher, mut position) = (Sha256::new(), 0);
            while position < place.size {
                let end = place.size.min(position + step);
                let connection = store.connection().await?;
                hasher.update(store.read_bytes(connection, (&digest, &place), (position, end)).await?);
                position = end;
            }
            if hasher.finalize().as_slice() != digest {
                return Err(changed(&key));
            }
            after = key;
        }
    }
}

fn changed(key: &[u8]) -> Failure {
    Failure::Unreadable(format!("the bytes of the blob {} have changed", hex::encode(key)))
}
