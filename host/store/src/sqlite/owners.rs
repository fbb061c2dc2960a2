//! Determines which stores are alive. Every open store holds an operating-system lock on its own file, so that the
//! sessions of a killed process can be taken over without waiting (D3, limit 32).

use crate::{SessionHolder, StoreError};
use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use uuid::Uuid;

/// An open store. If the store opens a session, the session's row contains the store's id until the session is closed.
#[derive(Debug)]
pub(super) struct Owner {
    id: String,
    lock: Option<OwnerLock>,
}

#[derive(Debug)]
struct OwnerLock {
    folder: PathBuf,
    path: PathBuf,
    // The lock file is locked while it is open. The operating system closes the file when the process exits
    // for any reason.
    _file: File,
}

/// Whether the owner of a session is still running and can write to the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Liveness {
    Alive(SessionHolder),
    Dead,
}

impl Owner {
    /// Creates the owner of a database that no other process can open.
    pub(super) fn in_memory() -> Self {
        Self { id: Uuid::new_v4().to_string(), lock: None }
    }

    /// Creates an owner with a lock file next to the database, and removes the files of dead owners.
    pub(super) fn on_disk(database: &Path) -> Result<Self, StoreError> {
        let mut folder = database.as_os_str().to_owned();
        folder.push(".owners");
        let folder = PathBuf::from(folder);
        Self::create_lock_file(folder).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                StoreError::ReadOnly { path: database.to_owned() }
            }
            io::ErrorKind::StorageFull => StoreError::DiskFull { path: database.to_owned() },
            _ => StoreError::Failed { path: database.to_owned(), problem: format!("its `.owners` folder: {error}") },
        })
    }

    /// Returns whether other processes can open the database.
    pub(super) fn shares_a_file(&self) -> bool {
        self.lock.is_some()
    }

    /// Returns the id that is stored in the owner's sessions.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Returns whether the owner with this id is alive. The owner `self` always counts as alive.
    pub(super) fn liveness(&self, id: &str) -> Liveness {
        if id == self.id {
            return Liveness::Alive(SessionHolder::process(std::process::id()));
        }
        let Some(lock) = &self.lock else {
            return Liveness::Dead;
        };
        // The id comes from the database, so it is used in a path only if it is a UUID.
        match Uuid::parse_str(id) {
            Ok(id) => check_lock_file(&lock.folder.join(format!("{id}.lock"))),
            Err(_) => Liveness::Dead,
        }
    }

    /// Creates and locks the lock file under a temporary name, and then renames the file. Other processes check only
    /// files with final names, and the lock file of a living owner is always locked when it has its final name.
    fn create_lock_file(folder: PathBuf) -> io::Result<Self> {
        match fs::create_dir(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => remove_dead_locks(&folder),
        }
        let id = Uuid::new_v4().to_string();
        let unlocked = folder.join(format!("{id}.new"));
        let path = folder.join(format!("{id}.lock"));
        let mut file = File::options().read(true).write(true).create_new(true).open(&unlocked)?;
        file.try_lock().map_err(|error| match error {
            TryLockError::Error(error) => error,
            TryLockError::WouldBlock => io::Error::other("a new lock file is already locked"),
        })?;
        write!(file, "{}", std::process::id())?;
        fs::rename(&unlocked, &path)?;
        Ok(Self { id, lock: Some(OwnerLock { folder, path, _file: file }) })
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Some(lock) = &self.lock {
            // If the file cannot be removed here, the next store that is opened removes it.
            let _ = fs::remove_file(&lock.path);
        }
    }
}

/// Checks whether the owner of a lock file is alive. The check uses a shared lock, so that a concurrent check is not
/// mistaken for the owner.
fn check_lock_file(lock_file: &Path) -> Liveness {
    let file = match File::open(lock_file) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Liveness::Dead,
        // If the file cannot be checked, assume that its owner is alive. If two processes wrote to one session, the
        // damage would be worse than if one process had to wait.
        Err(_) => return Liveness::Alive(SessionHolder::process(0)),
    };
    match file.try_lock_shared() {
        Ok(()) => Liveness::Dead,
        Err(_) => Liveness::Alive(SessionHolder::process(process_id_in(lock_file))),
    }
}

fn process_id_in(lock_file: &Path) -> u32 {
    fs::read_to_string(lock_file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// Removes the lock files of dead owners. File names are never reused, so an owner that is dead cannot become alive
/// again.
fn remove_dead_locks(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        let extension = path.extension().and_then(OsStr::to_str);
        let dead = match extension {
            Some("lock") => check_lock_file(&path) == Liveness::Dead,
            Some("new") => is_abandoned(&path),
            _ => false,
        };
        if dead && fs::remove_file(&path).is_ok() {
            tracing::debug!(file = %path.display(), "removed the lock file of a store that no longer runs");
        }
    }
}

/// Returns whether a temporary lock file is so old that no store uses it any more. A store renames its file immediately
/// after it creates the file.
fn is_abandoned(path: &Path) -> bool {
    let age = fs::metadata(path).and_then(|metadata| metadata.modified()).ok().and_then(|time| time.elapsed().ok());
    age.is_some_and(|age| age > Duration::from_secs(3600))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Limit 32: an owner is alive as long as it holds its lock. The lock file is removed by its owner or by the
    /// next owner.
    #[test]
    fn owner_is_alive_as_long_as_its_lock() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("agent.db");
        let first = Owner::on_disk(&database).unwrap();
        let second = Owner::on_disk(&database).unwrap();
        let alive = Liveness::Alive(SessionHolder::process(std::process::id()));
        assert_eq!(first.liveness(second.id()), alive);
        assert_eq!(second.liveness(second.id()), alive);
        let second_id = second.id().to_owned();
        drop(second);
        assert_eq!(first.liveness(&second_id), Liveness::Dead);
        assert_eq!(first.liveness("../../etc/passwd"), Liveness::Dead);

        // A killed process leaves an unlocked lock file behind.
        let abandoned_lock = folder.path().join("agent.db.owners").join(format!("{}.lock", Uuid::new_v4()));
        fs::write(&abandoned_lock, "1").unwrap();
        assert_eq!(first.liveness(abandoned_lock.file_stem().unwrap().to_str().unwrap()), Liveness::Dead);
        let third = Owner::on_disk(&database).unwrap();
        assert!(!abandoned_lock.exists());
        assert_eq!(third.liveness(first.id()), alive, "the lock file of a living owner is kept");
    }
}
