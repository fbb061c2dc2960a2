//! Blobs: equal bytes are stored once, sessions refer to the stored bytes, and a read returns a range of the bytes.

use super::SqliteStore;
use super::failure::{Failure, invalid};
use super::queries::{collect, session_number, signed, sql_limit, unsigned};
use super::writer::Effort;
use crate::encoding::blobs::{StoredBytes, hash, key_of};
use crate::{BlobReference, Blobs, MAX_READ_BYTES, MediaDescription, StoreError};
use agent_core::message::{Digest, Dimensions, Media};
use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row, params};

#[async_trait]
impl Blobs for SqliteStore {
    async fn put(&self, session: &str, bytes: Vec<u8>, about: MediaDescription) -> Result<Media, StoreError> {
        if about.mime_type.is_empty() {
            return Err(invalid("a media blob", "its media type is empty"));
        }
        let stored = hash("a media blob", bytes).await?;
        let session = session.to_owned();
        self.write(Effort::of(stored.len()), move |connection| {
            let session = session_number(connection, &session)?;
            let blob = insert_bytes(connection, session, &stored)?;
            set_description(connection, session, blob, &about)?;
            Ok(Media {
                digest: stored.digest.clone(),
                mime_type: about.mime_type.clone(),
                size: stored.bytes.len() as u64,
                dimensions: about.dimensions,
                name: about.name.clone(),
            })
        })
        .await
    }

    async fn media(&self, session: &str, digest: &Digest) -> Result<Option<Media>, StoreError> {
        let (session, digest) = (session.to_owned(), digest.clone());
        self.read(move |connection| {
            let session = session_number(connection, &session)?;
            media(connection, session, &digest)
        })
        .await
    }

    async fn read(&self, session: &str, digest: &Digest, offset: u64, length: u32) -> Result<Vec<u8>, StoreError> {
        let (session, digest) = (session.to_owned(), digest.clone());
        self.read(move |connection| {
            let session = session_number(connection, &session)?;
            let sql = "SELECT blobs.id FROM blobs JOIN blob_references ON blob = blobs.id
                       WHERE session = ?1 AND digest = ?2 AND mime_type IS NOT NULL";
            let found = connection
                .prepare_cached(sql)?
                .query_row(params![session, key_of(&digest)?], |row| row.get(0))
                .optional()?;
            let blob = found.ok_or(StoreError::NoBlob { digest })?;
            read_range(connection, blob, offset, length)
        })
        .await
    }

    async fn put_text(&self, session: &str, text: String) -> Result<Digest, StoreError> {
        let stored = hash("a text", text.into_bytes()).await?;
        let session = session.to_owned();
        self.write(Effort::of(stored.len()), move |connection| {
            let session = session_number(connection, &session)?;
            insert_bytes(connection, session, &stored)?;
            Ok(stored.digest.clone())
        })
        .await
    }

    async fn references(
        &self,
        session: &str,
        after: Option<&Digest>,
        limit: usize,
    ) -> Result<Vec<BlobReference>, StoreError> {
        // The empty byte string sorts before every digest.
        let after = after.map(key_of).transpose()?.map(Vec::from).unwrap_or_default();
        let session = session.to_owned();
        self.read(move |connection| {
            let session = session_number(connection, &session)?;
            let sql = "SELECT digest, size, mime_type, width, height, name FROM blob_references
                       JOIN blobs ON blobs.id = blob WHERE session = ?1 AND digest > ?2 ORDER BY digest LIMIT ?3";
            collect(connection, sql, params![session, after, sql_limit(limit)], reference)
        })
        .await
    }

    async fn share(&self, from: &str, to: &str, media: &[Digest]) -> Result<(), StoreError> {
        let (from, to, media) = (from.to_owned(), to.to_owned(), media.to_vec());
        self.write(Effort::Long, move |connection| {
            let (from, to) = (session_number(connection, &from)?, session_number(connection, &to)?);
            let mut share = connection.prepare_cached(
                "INSERT INTO blob_references (session, blob, mime_type, width, height, name)
                 SELECT ?2, blob, mime_type, width, height, name FROM blob_references
                 WHERE session = ?1 AND blob = (SELECT id FROM blobs WHERE digest = ?3) AND mime_type IS NOT NULL
                 ON CONFLICT (session, blob) DO UPDATE SET mime_type = excluded.mime_type, width = excluded.width,
                     height = excluded.height, name = excluded.name",
            )?;
            for digest in &media {
                if share.execute(params![from, to, key_of(digest)?])? == 0 {
                    return Err(StoreError::NoBlob { digest: digest.clone() }.into());
                }
            }
            Ok(())
        })
        .await
    }

    async fn text(&self, session: &str, digest: &Digest) -> Result<String, StoreError> {
        let (session, digest) = (session.to_owned(), digest.clone());
        self.read(move |connection| {
            let session = session_number(connection, &session)?;
            let sql =
                "SELECT bytes FROM blobs JOIN blob_references ON blob = blobs.id WHERE digest = ?2 AND session = ?1";
            let bytes: Option<Vec<u8>> = connection
                .prepare_cached(sql)?
                .query_row(params![session, key_of(&digest)?], |row| row.get(0))
                .optional()?;
            let bytes = bytes.ok_or_else(|| StoreError::NoBlob { digest: digest.clone() })?;
            String::from_utf8(bytes).map_err(|_| invalid(digest.to_string(), "it is not UTF-8 text").into())
        })
        .await
    }
}

/// Stores the bytes if the table does not contain them yet, and adds a reference from the session to the bytes. Returns
/// the row number of the blob.
pub(super) fn insert_bytes(connection: &Connection, session: i64, stored: &StoredBytes) -> Result<i64, Failure> {
    let existing = connection
        .prepare_cached("SELECT id FROM blobs WHERE digest = ?1")?
        .query_row([stored.key], |row| row.get(0))
        .optional()?;
    let blob: i64 = match existing {
        Some(blob) => blob,
        None => {
            connection
                .prepare_cached("INSERT INTO blobs (digest, size, bytes) VALUES (?1, ?2, ?3)")?
                .execute(params![stored.key, signed(stored.bytes.len() as u64), &stored.bytes[..]])?;
            connection.last_insert_rowid()
        }
    };
    connection
        .prepare_cached("INSERT INTO blob_references (session, blob) VALUES (?1, ?2) ON CONFLICT DO NOTHING")?
        .execute(params![session, blob])?;
    Ok(blob)
}

fn set_description(connection: &Connection, session: i64, blob: i64, about: &MediaDescription) -> Result<(), Failure> {
    let (width, height) = about.dimensions.map(|dimensions| (dimensions.width, dimensions.height)).unzip();
    connection
        .prepare_cached(
            "UPDATE blob_references SET mime_type = ?3, width = ?4, height = ?5, name = ?6
             WHERE session = ?1 AND blob = ?2",
        )?
        .execute(params![session, blob, about.mime_type, width, height, about.name])?;
    Ok(())
}

fn media(connection: &Connection, session: i64, digest: &Digest) -> Result<Option<Media>, Failure> {
    let sql = "SELECT size, mime_type, width, height, name FROM blobs JOIN blob_references ON blob = blobs.id
               WHERE session = ?1 AND digest = ?2 AND mime_type IS NOT NULL";
    let found = connection
        .prepare_cached(sql)?
        .query_row(params![session, key_of(digest)?], |row| media_from_row(row, digest.clone()));
    Ok(found.optional()?)
}

/// Reads a media item from the columns `size`, `mime_type`, `width`, `height` and `name`.
fn media_from_row(row: &Row<'_>, digest: Digest) -> rusqlite::Result<Media> {
    let dimensions = row.get::<_, Option<u32>>("width")?.zip(row.get::<_, Option<u32>>("height")?);
    Ok(Media {
        digest,
        mime_type: row.get("mime_type")?,
        size: unsigned(row.get("size")?),
        dimensions: dimensions.map(|(width, height)| Dimensions { width, height }),
        name: row.get("name")?,
    })
}

fn reference(row: &Row<'_>) -> Result<BlobReference, Failure> {
    let digest = Digest::from_sha256(row.get("digest")?);
    if row.get_ref("mime_type")?.as_str_or_null().map_err(rusqlite::Error::from)?.is_none() {
        return Ok(BlobReference::Text { digest, size: unsigned(row.get("size")?) });
    }
    Ok(BlobReference::Media(media_from_row(row, digest)?))
}

fn read_range(connection: &Connection, blob: i64, offset: u64, length: u32) -> Result<Vec<u8>, Failure> {
    let blob = connection.blob_open("main", "blobs", "bytes", blob, true)?;
    let size = blob.len();
    let start = usize::try_from(offset).unwrap_or(usize::MAX).min(size);
    let mut bytes = vec![0; (size - start).min(length.min(MAX_READ_BYTES) as usize)];
    blob.read_at_exact(&mut bytes, start)?;
    Ok(bytes)
}
