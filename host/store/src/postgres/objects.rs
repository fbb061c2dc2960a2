//! Blobs in an object store (F1, decision 0155).
//!
//! Every upload has a name of its own, which is never used again. The name is in `unused_objects` before the object is written. The
//! transaction that refers to the object deletes it there; from then on it is in `blobs`. The transaction that deletes the last
//! reference moves it back as doomed. So each object of which the bucket knows is in exactly one of the tables, no matter how long a
//! process pauses between two steps, and a process that was killed leaves an object that will be deleted.

use super::blobs::read_parts;
use super::connections::{Connection, Transaction};
use super::failure::Failure;
use super::queries::{NOW, number, value};
use super::text::{optional_text, text};
use super::{PostgresOptions, PostgresStore};
use crate::encoding::blobs::StoredBytes;
use crate::objects::{ObjectClient, ObjectProblem};
use crate::{ObjectStoreAddress, StoreError};
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use tokio_postgres::Row;
use uuid::Uuid;

/// Time for which an object without a reference is kept, in microseconds: one hour. An upload must be referred to in this time, and
/// a reader that began before the last reference was deleted can finish.
pub(super) const GRACE: i64 = 3_600_000_000;
/// Maximum number of bytes of one request that reads an object.
const READ_BYTES: u64 = 16 << 20;
/// Number of bytes up to which a digest is computed on the calling thread.
const HASHED_INLINE: usize = 64 << 10;

/// The object store of an open database.
pub(super) struct Objects {
    pub(super) client: Arc<ObjectClient>,
    smallest: usize,
}

/// The object store that the processes of a database use.
pub(super) struct Registered {
    /// The address without secrets.
    pub(super) address: String,
    id: String,
}

pub(super) async fn registered(connection: &Connection) -> Result<Option<Registered>, Failure> {
    let row = connection.query_opt("SELECT address, id FROM object_store", &[]).await?;
    row.map(|row| Ok(Registered { address: text(&row, 0)?, id: text(&row, 1)? })).transpose()
}

/// Refuses a process whose object store is not that of the database.
pub(super) async fn check_registered(
    connection: &Connection,
    path: &Path,
    chosen: Option<&ObjectStoreAddress>,
) -> Result<Option<Registered>, Failure> {
    match registered(connection).await? {
        Some(registered) if chosen.is_none_or(|chosen| chosen.to_string() != registered.address) => {
            Err(StoreError::OtherObjectStore { path: path.to_owned(), registered: registered.address }.into())
        }
        registered => Ok(registered),
    }
}

/// Opens the object store. The first process registers it after it has checked it.
pub(super) async fn register(store: &PostgresStore, options: &PostgresOptions) -> Result<Option<Objects>, Failure> {
    let chosen = options.object_store.as_ref();
    let connection = store.connection().await?;
    let found = check_registered(&connection, &store.path, chosen).await?;
    drop(connection);
    let Some(chosen) = chosen else { return Ok(None) };
    let id = match found {
        Some(found) => found.id,
        None => {
            chosen.check().await?;
            let id = Uuid::new_v4().simple().to_string();
            let transaction = store.transaction().await?;
            let sql =
                format!("INSERT INTO object_store (address, id, listed) VALUES ($1, $2, {NOW}) ON CONFLICT DO NOTHING");
            transaction.execute(&sql, &[&chosen.to_string(), &id]).await?;
            transaction.commit().await?;
            // Another process may have registered an object store in the meantime.
            let connection = store.connection().await?;
            let found = check_registered(&connection, &store.path, Some(chosen)).await?;
            found.map(|found| found.id).ok_or(Failure::RunAgain)?
        }
    };
    let client = Arc::new(ObjectClient::new(chosen)?.in_folder(&id));
    Ok(Some(Objects { client, smallest: options.smallest_object.max(1) }))
}

/// The objects that one operation has written, and to which no transaction refers yet.
pub(super) struct Uploads {
    /// Size from which bytes are objects. `None` if the store has no object store.
    smallest: Option<usize>,
    names: Mutex<HashMap<[u8; 32], String>>,
}

impl Uploads {
    pub(super) fn of(store: &PostgresStore) -> Self {
        Self { smallest: store.objects.as_ref().map(|objects| objects.smallest), names: Mutex::default() }
    }

    /// Whether bytes of this size are kept as an object.
    pub(super) fn takes(&self, stored: &StoredBytes) -> bool {
        self.smallest.is_some_and(|smallest| stored.len() >= smallest)
    }

    pub(super) fn name(&self, key: &[u8; 32]) -> Option<String> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    fn add(&self, key: [u8; 32], name: String) {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).insert(key, name);
    }

    fn forget(&self, key: &[u8; 32]) {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    /// Makes the transaction refer to an upload. If the collection was faster, the upload must be repeated.
    pub(super) async fn claim(&self, transaction: &Transaction, key: &[u8; 32]) -> Result<(), Failure> {
        let Some(name) = self.name(key) else { return Err(Failure::RunAgain) };
        let sql = "DELETE FROM unused_objects WHERE object = $1 AND NOT doomed";
        if transaction.execute(sql, &[&name]).await? == 1 {
            return Ok(());
        }
        self.forget(key);
        Err(Failure::RunAgain)
    }
}

/// Dooms objects to which no blob refers any more.
pub(super) async fn doom(transaction: &Transaction, objects: &[String]) -> Result<(), Failure> {
    if objects.is_empty() {
        return Ok(());
    }
    let sql = format!(
        "INSERT INTO unused_objects (object, due, doomed) SELECT object, {NOW} + $2::bigint, true
         FROM unnest($1::text[]) AS object ON CONFLICT (object) DO UPDATE SET doomed = true"
    );
    transaction.execute(&sql, &[&objects, &GRACE]).await?;
    Ok(())
}

/// The bytes of a blob: their number, and the object that contains them.
pub(super) struct Place {
    pub(super) size: u64,
    pub(super) object: Option<String>,
}

impl Place {
    /// Reads the columns `size` and `object`.
    pub(super) fn of(row: &Row) -> Result<Self, Failure> {
        Ok(Self { size: number(row, 0)?, object: optional_text(row, 1)? })
    }
}

impl PostgresStore {
    /// Writes large bytes that are not stored yet as objects, outside of every transaction.
    pub(super) async fn upload(&self, stored: &[StoredBytes], uploads: &Uploads) -> Result<(), Failure> {
        let Some(objects) = &self.objects else { return Ok(()) };
        let large = stored.iter().filter(|stored| uploads.takes(stored) && uploads.name(&stored.key).is_none());
        let mut large: HashMap<&[u8], &StoredBytes> = large.map(|stored| (stored.key.as_slice(), stored)).collect();
        if large.is_empty() {
            return Ok(());
        }
        let keys: Vec<&[u8]> = large.keys().copied().collect();
        let connection = self.connection().await?;
        for row in connection.query("SELECT digest FROM blobs WHERE digest = ANY($1)", &[&keys]).await? {
            large.remove(value::<&[u8]>(&row, 0)?);
        }
        let named: Vec<(String, &StoredBytes)> = large.into_values().map(|stored| (new_name(stored), stored)).collect();
        let names: Vec<&str> = named.iter().map(|(name, _)| name.as_str()).collect();
        let sql = format!(
            "INSERT INTO unused_objects (object, due, doomed) SELECT object, {NOW} + $2::bigint, false
             FROM unnest($1::text[]) AS object"
        );
        connection.execute(&sql, &[&names, &GRACE]).await?;
        drop(connection);
        for (name, stored) in named {
            let written = objects.client.put(&name, stored.bytes.clone(), &stored.key).await;
            written.map_err(|problem| self.object_failure(&name, problem))?;
            uploads.add(stored.key, name);
        }
        Ok(())
    }

    /// Reads the bytes from `start` to `end`. The connection is free while an object is read. All bytes of an object are compared with
    /// the digest.
    pub(super) async fn read_bytes(
        &self,
        connection: Connection,
        (key, place): (&[u8; 32], &Place),
        (start, end): (u64, u64),
    ) -> Result<Vec<u8>, Failure> {
        let Some(name) = &place.object else { return read_parts(&connection, key, start, end).await };
        drop(connection);
        let read = self.read_object(name, place.size, (start, end)).await;
        let problem = match read {
            Ok(bytes) if (start, end) == (0, place.size) => match has_digest(bytes, *key).await {
                Some(bytes) => return Ok(bytes),
                None => ObjectProblem::Changed,
            },
            Ok(bytes) => return Ok(bytes),
            Err(ReadProblem::Failure(failure)) => return Err(failure),
            Err(ReadProblem::Object(problem)) => problem,
        };
        if problem == ObjectProblem::Missing && !self.is_referred_to(key, name).await? {
            return Err(Failure::RunAgain);
        }
        Err(self.object_failure(name, problem))
    }

    /// Reads a range of an object, with several requests if it is long.
    async fn read_object(&self, name: &str, size: u64, (start, end): (u64, u64)) -> Result<Vec<u8>, ReadProblem> {
        let Some(objects) = &self.objects else {
            let connection = self.connection().await.map_err(ReadProblem::Failure)?;
            let found = check_registered(&connection, &self.path, None).await.map(drop);
            return Err(ReadProblem::Failure(found.err().unwrap_or(Failure::RunAgain)));
        };
        let mut bytes = Vec::with_capacity(usize::try_from(end - start).unwrap_or(0));
        let mut position = start;
        while position < end {
            let next = end.min(position + READ_BYTES);
            bytes.extend(objects.client.read(name, (position, next), size).await.map_err(ReadProblem::Object)?);
            position = next;
        }
        Ok(bytes)
    }

    async fn is_referred_to(&self, key: &[u8; 32], name: &str) -> Result<bool, Failure> {
        let sql = "SELECT 1 FROM blobs WHERE digest = $1 AND object = $2";
        Ok(self.connection().await?.query_opt(sql, &[&key.as_slice(), &name]).await?.is_some())
    }

    /// Adds the name of the object and of the object store to a problem.
    fn object_failure(&self, name: &str, problem: ObjectProblem) -> Failure {
        let store = self.objects.as_ref().map(|objects| objects.client.shown().to_owned()).unwrap_or_default();
        let damaged = |problem: &str| {
            let (store, object, problem) = (store.clone(), name.to_owned(), problem.to_owned());
            Failure::Store(StoreError::DamagedObject { store, object, problem })
        };
        match problem {
            ObjectProblem::Missing => damaged("is missing"),
            ObjectProblem::Changed => damaged("has other bytes than were written"),
            ObjectProblem::Temporary(problem) => Failure::NoObjectStore { store, problem },
            refused @ ObjectProblem::Refused(_) => refused.into_error(&store).into(),
        }
    }
}

/// Why a range of an object was not read.
enum ReadProblem {
    Object(ObjectProblem),
    Failure(Failure),
}

/// Returns the bytes if they have the digest.
async fn has_digest(bytes: Vec<u8>, key: [u8; 32]) -> Option<Vec<u8>> {
    let is_long = bytes.len() > HASHED_INLINE;
    let check = move || (Sha256::digest(&bytes).as_slice() == key).then_some(bytes);
    if is_long { tokio::task::spawn_blocking(check).await.ok().flatten() } else { check() }
}

/// Returns a name for an object that was never used, such as `ab/abcd…-0123…`.
fn new_name(stored: &StoredBytes) -> String {
    let digest = stored.digest.hex();
    format!("{}/{digest}-{}", &digest[..2], Uuid::new_v4().simple())
}

/// Whether the name is one that [`new_name`] returns.
pub(super) fn is_name(name: &str) -> bool {
    let is_hex = |text: &str, length| text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let Some((folder, rest)) = name.split_once('/') else { return false };
    let Some((digest, upload)) = rest.split_once('-') else { return false };
    is_hex(folder, 2) && is_hex(digest, 64) && digest.starts_with(folder) && is_hex(upload, 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F1: each upload has another name, from which the digest can be read, and names of other programs are not taken for one.
    #[test]
    fn f1_names_of_objects_are_used_once() {
        let stored = StoredBytes::new("bytes", b"bytes".to_vec()).unwrap();
        let (one, two) = (new_name(&stored), new_name(&stored));
        assert!(one != two && is_name(&one) && is_name(&two));
        assert_eq!(hex::decode(&one[3..67]).unwrap(), stored.key);
        let other_folder = format!("{}{}", if one.starts_with('0') { "1" } else { "0" }, &one[1..]);
        for wrong in ["", "notes.txt", &one[..67], &one[3..], &one[68..], &format!("{one}0"), &other_folder] {
            assert!(!is_name(wrong), "{wrong}");
        }
    }
}
