//! Opening a database file: what is not ours, not whole or not writable is refused before anything is written.

use super::failure::{Failure, speaks_of_an_index};
use super::queries::collect;
use super::{Indexes, Options, Synchronous, schema};
use crate::StoreError;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Files up to this size are checked whole at each start, which takes some milliseconds; in larger ones damage shows
/// when it is met, as the same error.
const CHECKED_BYTES: u64 = 4 << 20;

/// What every SQLite database begins with.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// Statements that a connection keeps compiled; the store has fewer.
const STATEMENTS: usize = 96;

/// Pages in the write-ahead log after which a commit moves them into the database.
const CHECKPOINT_PAGES: i64 = 4096;

/// What the write-ahead log is cut back to after that.
const LOG_BYTES: i64 = 16 << 20;

/// How often a new file is tried that another process is turning into a database at this moment.
const TRIES: u32 = 100;

/// A file that is not there yet is its owner's alone, and so are those that SQLite puts beside it: conversations stand in
/// them. One that is there stays as it is, since somebody may share it.
fn make_private(path: &Path) -> io::Result<()> {
    let mut new = fs::OpenOptions::new();
    new.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut new, 0o600);
    new.open(path).map(drop)
}

/// A file and how it is used.
pub(super) struct DatabaseFile {
    path: PathBuf,
    options: Options,
}

impl DatabaseFile {
    /// Makes the path the same for all processes and refuses what can be refused by looking.
    pub(super) fn locate(path: &Path, options: Options) -> Result<Self, StoreError> {
        let failed = |problem: String| StoreError::Failed { path: path.to_owned(), problem };
        let metadata = match fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self { path: in_real_folder(path).map_err(failed)?, options });
            }
            Err(error) => return Err(failed(error.to_string())),
        };
        let path = fs::canonicalize(path).map_err(|error| failed(error.to_string()))?;
        if !metadata.is_file() {
            return Err(failed("it is not a file: name a file in that folder".to_owned()));
        }
        // Checked by the permission itself, since the superuser could write nevertheless.
        if metadata.permissions().readonly() {
            return Err(StoreError::ReadOnly { path });
        }
        match begins_like_a_database(&path) {
            Ok(true) => Ok(Self { path, options }),
            Ok(false) => Err(StoreError::NotADatabase { path }),
            Err(error) => Err(StoreError::Failed { path, problem: error.to_string() }),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The write connection.
    pub(super) fn open(&self) -> Result<Connection, StoreError> {
        let size = fs::metadata(&self.path).map_or(0, |metadata| metadata.len());
        // What cannot be made is said by who opens it.
        let _ = make_private(&self.path);
        self.open_and_check(size).map_err(|failure| failure.at(&self.path))
    }

    fn open_and_check(&self, size: u64) -> Result<Connection, Failure> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        connection.busy_timeout(self.options.lock_wait)?;
        // Closing a refused database must not move its log into it.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        if connection.is_readonly("main")? {
            return Err(StoreError::ReadOnly { path: self.path.clone() }.into());
        }
        // In one transaction, so that what another process makes of a new file meanwhile is seen whole or not at all.
        let unchanged = Transaction::new_unchecked(&connection, TransactionBehavior::Deferred)?;
        schema::check(&unchanged, &self.path)?;
        drop(unchanged);
        if size <= CHECKED_BYTES {
            verdict(&connection, "PRAGMA quick_check(100)", self.options.indexes)?;
        }
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
        self.configure(&connection)?;
        schema::migrate(&connection, &self.path)?;
        Ok(connection)
    }

    fn configure(&self, connection: &Connection) -> Result<(), Failure> {
        turn_log_on(connection)?;
        let synchronous = match self.options.synchronous {
            Synchronous::Full => "FULL",
            Synchronous::Off => "OFF",
        };
        connection.pragma_update(None, "synchronous", synchronous)?;
        connection.pragma_update_and_check(None, "wal_autocheckpoint", CHECKPOINT_PAGES, |_| Ok(()))?;
        connection.pragma_update_and_check(None, "journal_size_limit", LOG_BYTES, |_| Ok(()))?;
        if let Some(bytes) = self.options.max_bytes {
            let page_size: i64 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
            let pages = i64::try_from(bytes).unwrap_or(i64::MAX) / page_size.max(1);
            connection.pragma_update_and_check(None, "max_page_count", pages.max(1), |_| Ok(()))?;
        }
        configure_all(connection, 16)
    }
}

/// What SQLite says of a file: the first thing that is not of an index comes first, since an index can be made anew.
pub(super) fn verdict(connection: &Connection, check: &str, indexes: Indexes) -> Result<(), Failure> {
    let said = match collect(connection, check, [], |row| Ok(row.get::<_, String>(0)?)) {
        // An index may be damaged beyond being checked, and ends the check of all else.
        Err(failure) if failure.is_of_an_index() => vec![failure.to_string()],
        said => said?,
    };
    let problems: Vec<String> = said.into_iter().filter(|line| line != "ok").collect();
    match problems.iter().find(|problem| !speaks_of_an_index(problem)).or(problems.first()) {
        None => Ok(()),
        Some(problem) if !speaks_of_an_index(problem) => Err(Failure::Unreadable(problem.clone())),
        Some(_) if indexes == Indexes::ToBeRebuilt => Ok(()),
        Some(problem) => Err(Failure::BrokenIndex(problem.clone())),
    }
}

/// A database in memory.
pub(super) fn open_in_memory() -> Result<Connection, Failure> {
    private(Connection::open_in_memory()?)
}

/// A database in a file without a name, which the system removes when it is closed, however the process ends. SQLite makes the file
/// when the cache is full (<https://www.sqlite.org/inmemorydb.html>, "Temporary Databases").
pub(super) fn open_temporary() -> Result<Connection, Failure> {
    private(Connection::open("")?)
}

fn private(connection: Connection) -> Result<Connection, Failure> {
    configure_all(&connection, 16)?;
    schema::migrate(&connection, Path::new(":memory:"))?;
    Ok(connection)
}

/// A connection that only reads a database that is open for writing already.
pub(super) fn open_reader(path: &Path) -> Result<Connection, Failure> {
    // Read-write for the log's shared memory; `query_only` keeps it from writing more.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(Options::default().lock_wait)?;
    configure_all(&connection, 4)?;
    connection.pragma_update(None, "query_only", "ON")?;
    Ok(connection)
}

/// A connection to a file that is not written to, and beside which nothing is written.
pub(super) fn open_to_read(path: &Path) -> Result<Connection, Failure> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    // Without a log the file is all there is; with one, SQLite reads it, and needs what other processes keep beside it.
    let is_whole = fs::metadata(&log).map_or(true, |found| found.len() == 0);
    let option = if is_whole { "immutable=1" } else { "mode=ro" };
    let name: String = path.to_string_lossy().chars().map(escaped).collect();
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(format!("file:{name}?{option}"), flags)?;
    connection.busy_timeout(Options::default().lock_wait)?;
    schema::check(&connection, path)?;
    if !schema::is_current(&connection)? {
        return Err(StoreError::ReadOnly { path: path.to_owned() }.into());
    }
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    Ok(connection)
}

/// Percent-encodes what a URI reserves.
fn escaped(character: char) -> String {
    match character {
        '%' | '?' | '#' => format!("%{:02X}", u32::from(character)),
        _ => character.to_string(),
    }
}

fn configure_all(connection: &Connection, cache_mebibytes: i64) -> Result<(), Failure> {
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // Statements are compiled once, not again for each value that is bound to them.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.pragma_update(None, "foreign_keys", "ON")?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // What is deleted is overwritten: no file keeps it where nothing refers to it.
    connection.pragma_update_and_check(None, "secure_delete", "ON", |_| Ok(()))?;
    // Negative: in KiB.
    connection.pragma_update(None, "cache_size", -1024 * cache_mebibytes)?;
    Ok(())
}

/// Two processes that make the same database at the same moment may find it locked without being made to wait.
fn turn_log_on(connection: &Connection) -> Result<(), Failure> {
    let mut tries = 0;
    loop {
        let mode = connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0));
        match mode {
            Ok(mode) if mode == "wal" => return Ok(()),
            Ok(mode) => {
                let problem = format!("its file system cannot share a write-ahead log (journal mode `{mode}`)");
                return Err(rusqlite::Error::ToSqlConversionFailure(problem.into()).into());
            }
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && tries < TRIES => {
                tries += 1;
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// An empty file may become a database.
fn begins_like_a_database(path: &Path) -> io::Result<bool> {
    let mut beginning = Vec::with_capacity(MAGIC.len());
    File::open(path)?.take(MAGIC.len() as u64).read_to_end(&mut beginning)?;
    Ok(beginning.is_empty() || beginning == MAGIC)
}

fn in_real_folder(path: &Path) -> Result<PathBuf, String> {
    let name = path.file_name().ok_or("it has no file name")?;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let folder = fs::canonicalize(folder).map_err(|error| format!("its folder `{}`: {error}", folder.display()))?;
    Ok(folder.join(name))
}
