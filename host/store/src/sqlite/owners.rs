//! Who is alive: every store instance holds an operating-system lock on a file of its own for as long as it lives, so
//! that the sessions of a killed process can be taken over without waiting (D3, limit 32).

use crate::StoreError;
use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use uuid::Uuid;

/// This instance, as the sessions that it holds name it.
#[derive(Debug)]
pub(super) struct Owner {
    id: String,
    place: Option<Place>,
}

#[derive(Debug)]
struct Place {
    folder: PathBuf,
    lock_file: PathBuf,
    // Locked as long as it is open; the system closes it when the process ends, however it ends.
    _lock: File,
}

/// Whether an owner can still write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Liveness {
    Alive { process: u32 },
    Dead,
}

impl Owner {
    /// The owner of a database that nobody else can reach.
    pub(super) fn in_memory() -> Self {
        Self { id: Uuid::new_v4().to_string(), place: None }
    }

    /// Announces a new owner beside the database and removes what dead ones left.
    pub(super) fn on_disk(database: &Path) -> Result<Self, StoreError> {
        let mut folder = database.as_os_str().to_owned();
        folder.push(".owners");
        let folder = PathBuf::from(folder);
        Self::announce(folder).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                StoreError::ReadOnly { path: database.to_owned() }
            }
            io::ErrorKind::StorageFull => StoreError::DiskFull { path: database.to_owned() },
            _ => StoreError::Failed { path: database.to_owned(), problem: format!("its folder of owners: {error}") },
        })
    }

    /// Whether others can reach the database.
    pub(super) fn shares_a_file(&self) -> bool {
        self.place.is_some()
    }

    /// As it stands in the sessions.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Whether the owner of this id lives. This instance does.
    pub(super) fn liveness(&self, id: &str) -> Liveness {
        if id == self.id {
            return Liveness::Alive { process: std::process::id() };
        }
        let Some(place) = &self.place else {
            return Liveness::Dead;
        };
        // The id is from the database: only what could be one of ours becomes a path.
        match Uuid::parse_str(id) {
            Ok(id) => probe(&place.folder.join(format!("{id}.lock"))),
            Err(_) => Liveness::Dead,
        }
    }

    /// The lock is taken under a name that nobody probes: under its final name the file is never seen unlocked while
    /// its owner lives.
    fn announce(folder: PathBuf) -> io::Result<Self> {
        match fs::create_dir(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => sweep(&folder),
        }
        let id = Uuid::new_v4().to_string();
        let unlocked = folder.join(format!("{id}.new"));
        let lock_file = folder.join(format!("{id}.lock"));
        let mut lock = File::options().read(true).write(true).create_new(true).open(&unlocked)?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::Error(error) => error,
            TryLockError::WouldBlock => io::Error::other("a new lock file is locked already"),
        })?;
        write!(lock, "{}", std::process::id())?;
        fs::rename(&unlocked, &lock_file)?;
        Ok(Self { id, place: Some(Place { folder, lock_file, _lock: lock }) })
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Some(place) = &self.place {
            // Whatever remains is swept by the next one.
            let _ = fs::remove_file(&place.lock_file);
        }
    }
}

/// Probes share the lock, so that two of them at once don't take each other for the owner.
fn probe(lock_file: &Path) -> Liveness {
    let file = match File::open(lock_file) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Liveness::Dead,
        // Who cannot be probed counts as alive: a session with two writers is worse than one that waits.
        Err(_) => return Liveness::Alive { process: 0 },
    };
    match file.try_lock_shared() {
        Ok(()) => Liveness::Dead,
        Err(_) => Liveness::Alive { process: process_in(lock_file) },
    }
}

fn process_in(lock_file: &Path) -> u32 {
    fs::read_to_string(lock_file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// Removes the files of dead owners. Names are never used twice, so a file that is dead once stays dead.
fn sweep(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        let extension = path.extension().and_then(OsStr::to_str);
        let dead = match extension {
            Some("lock") => probe(&path) == Liveness::Dead,
            Some("new") => was_left_behind(&path),
            _ => false,
        };
        if dead && fs::remove_file(&path).is_ok() {
            tracing::debug!(file = %path.display(), "removed the lock file of a dead owner");
        }
    }
}

/// A file that is between creation and its final name is younger than any real hour.
fn was_left_behind(path: &Path) -> bool {
    let age = fs::metadata(path).and_then(|metadata| metadata.modified()).ok().and_then(|time| time.elapsed().ok());
    age.is_some_and(|age| age > Duration::from_secs(3600))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Limit 32: an owner lives as long as its lock, and its file goes with it or with the next one.
    #[test]
    fn an_owner_lives_as_long_as_its_lock() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("agent.db");
        let first = Owner::on_disk(&database).unwrap();
        let second = Owner::on_disk(&database).unwrap();
        let alive = Liveness::Alive { process: std::process::id() };
        assert_eq!(first.liveness(second.id()), alive);
        assert_eq!(second.liveness(second.id()), alive);
        let second_id = second.id().to_owned();
        drop(second);
        assert_eq!(first.liveness(&second_id), Liveness::Dead);
        assert_eq!(first.liveness("../../etc/passwd"), Liveness::Dead);

        // A killed process leaves its file, unlocked.
        let left = folder.path().join("agent.db.owners").join(format!("{}.lock", Uuid::new_v4()));
        fs::write(&left, "1").unwrap();
        assert_eq!(first.liveness(left.file_stem().unwrap().to_str().unwrap()), Liveness::Dead);
        let third = Owner::on_disk(&database).unwrap();
        assert!(!left.exists());
        assert_eq!(third.liveness(first.id()), alive, "the living are not swept");
    }
}
