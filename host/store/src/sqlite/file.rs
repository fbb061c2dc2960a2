//! Opens database files. If a file belongs to another program, is damaged or is not writable, the store refuses the
//! file before it writes anything to the file.

use super::failure::{Failure, is_index_problem};
use super::queries::collect;
use super::{Indexes, Options, Synchronous, schema};
use crate::StoreError;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A file of up to this size, in bytes, is checked completely at each start. The check takes a few milliseconds. In
/// larger files, damage is reported with the same error when a query reads the damaged data.
const MAX_CHECKED_BYTES: u64 = 4 << 20;

/// The first bytes of every SQLite database.
const SQLITE_HEADER: &[u8; 16] = b"SQLite format 3\0";

/// Maximum number of compiled statements that a connection caches. The store has fewer statements than this maximum.
const MAX_CACHED_STATEMENTS: usize = 96;

/// Number of pages in the write-ahead log after which a commit moves the pages into the database file.
const CHECKPOINT_PAGES: i64 = 4096;

/// Size in bytes to which the write-ahead log is truncated after a checkpoint.
const MAX_LOG_BYTES: i64 = 16 << 20;

/// Maximum number of attempts to enable the write-ahead log while another process initialises the same new file.
const MAX_ATTEMPTS: u32 = 100;

/// Creates a new file that only its owner can access, because it will contain conversations. SQLite gives the same
/// permissions to the files that it creates next to the database file. An existing file keeps its permissions, because
/// it may be shared intentionally.
fn create_private(path: &Path) -> io::Result<()> {
    let mut new = fs::OpenOptions::new();
    new.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut new, 0o600);
    new.open(path).map(drop)
}

/// The path of a database file, and the options with which the file is opened.
pub(super) struct DatabaseFile {
    path: PathBuf,
    options: Options,
}

impl DatabaseFile {
    /// Resolves the path to its canonical form, so that all processes use the same path for the file. Refuses a file if
    /// its metadata or its header shows that the file cannot be used.
    pub(super) fn locate(path: &Path, options: Options) -> Result<Self, StoreError> {
        let failed = |problem: String| StoreError::Failed { path: path.to_owned(), problem };
        let metadata = match fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self { path: with_canonical_folder(path).map_err(failed)?, options });
            }
            Err(error) => return Err(failed(error.to_string())),
        };
        let path = fs::canonicalize(path).map_err(|error| failed(error.to_string()))?;
        if !metadata.is_file() {
            return Err(failed("it is not a regular file: choose a file name in that folder".to_owned()));
        }
        // Check the permission explicitly, because the superuser can write to a read-only file.
        if metadata.permissions().readonly() {
            return Err(StoreError::ReadOnly { path });
        }
        match has_database_header(&path) {
            Ok(true) => Ok(Self { path, options }),
            Ok(false) => Err(StoreError::NotADatabase { path }),
            Err(error) => Err(StoreError::Failed { path, problem: error.to_string() }),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the connection for writing.
    pub(super) fn open(&self) -> Result<Connection, StoreError> {
        let size = fs::metadata(&self.path).map_or(0, |metadata| metadata.len());
        // Ignore this error: if the file cannot be created, the function `open_and_check` reports the reason.
        let _ = create_private(&self.path);
        self.open_and_check(size).map_err(|failure| failure.into_error(&self.path))
    }

    fn open_and_check(&self, size: u64) -> Result<Connection, Failure> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        connection.busy_timeout(self.options.lock_wait)?;
        // Closing a refused database must not move its write-ahead log into the database file.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        if connection.is_readonly("main")? {
            return Err(StoreError::ReadOnly { path: self.path.clone() }.into());
        }
        // Use one transaction, because another process may be initialising the same new file, and this check must find
        // the file either complete or empty.
        let unchanged = Transaction::new_unchecked(&connection, TransactionBehavior::Deferred)?;
        schema::check(&unchanged, &self.path)?;
        drop(unchanged);
        if size <= MAX_CHECKED_BYTES {
            run_check(&connection, "PRAGMA quick_check(100)", self.options.indexes)?;
        }
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
        self.configure(&connection)?;
        schema::migrate(&connection, &self.path)?;
        Ok(connection)
    }

    fn configure(&self, connection: &Connection) -> Result<(), Failure> {
        enable_write_ahead_log(connection)?;
        let synchronous = match self.options.synchronous {
            Synchronous::Full => "FULL",
            Synchronous::Off => "OFF",
        };
        connection.pragma_update(None, "synchronous", synchronous)?;
        connection.pragma_update_and_check(None, "wal_autocheckpoint", CHECKPOINT_PAGES, |_| Ok(()))?;
        connection.pragma_update_and_check(None, "journal_size_limit", MAX_LOG_BYTES, |_| Ok(()))?;
        if let Some(bytes) = self.options.max_bytes {
            let page_size: i64 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
            let pages = i64::try_from(bytes).unwrap_or(i64::MAX) / page_size.max(1);
            connection.pragma_update_and_check(None, "max_page_count", pages.max(1), |_| Ok(()))?;
        }
        configure_connection(connection, 16)
    }
}

/// Runs one of SQLite's integrity checks. Damage outside of the search indexes is reported first, because only an index
/// can be rebuilt.
pub(super) fn run_check(connection: &Connection, check: &str, indexes: Indexes) -> Result<(), Failure> {
    let reported = match collect(connection, check, [], |row| Ok(row.get::<_, String>(0)?)) {
        // The integrity check stops early if an index is so damaged that SQLite cannot check the index.
        Err(failure) if failure.is_index_damage() => vec![failure.to_string()],
        reported => reported?,
    };
    let problems: Vec<String> = reported.into_iter().filter(|line| line != "ok").collect();
    match problems.iter().find(|problem| !is_index_problem(problem)).or(problems.first()) {
        None => Ok(()),
        Some(problem) if !is_index_problem(problem) => Err(Failure::Unreadable(problem.clone())),
        Some(_) if indexes == Indexes::ToBeRebuilt => Ok(()),
        Some(problem) => Err(Failure::DamagedIndex(problem.clone())),
    }
}

/// Opens a database in memory.
pub(super) fn open_in_memory() -> Result<Connection, Failure> {
    configure_private(Connection::open_in_memory()?)
}

/// Opens a database in an unnamed file, which the system deletes when the process exits. SQLite creates the file when
/// its cache is full (<https://www.sqlite.org/inmemorydb.html>, "Temporary Databases").
pub(super) fn open_temporary() -> Result<Connection, Failure> {
    configure_private(Connection::open("")?)
}

fn configure_private(connection: Connection) -> Result<Connection, Failure> {
    configure_connection(&connection, 16)?;
    schema::migrate(&connection, Path::new(":memory:"))?;
    Ok(connection)
}

/// Opens a read-only connection to a database that is already open for writing.
pub(super) fn open_reader(path: &Path) -> Result<Connection, Failure> {
    // Access to the shared memory of the write-ahead log needs write permission. The pragma `query_only` prevents
    // writes to the database itself.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(Options::default().lock_wait)?;
    configure_connection(&connection, 4)?;
    connection.pragma_update(None, "query_only", "ON")?;
    Ok(connection)
}

/// Opens a connection that writes neither to the database file nor to the files next to it.
pub(super) fn open_to_read(path: &Path) -> Result<Connection, Failure> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    // If there is no write-ahead log, the database file is complete. If there is a write-ahead log, SQLite must read
    // the log and needs the files that other processes created next to the database file.
    let has_no_log = fs::metadata(&log).map_or(true, |metadata| metadata.len() == 0);
    let option = if has_no_log { "immutable=1" } else { "mode=ro" };
    let name: String = path.to_string_lossy().chars().map(percent_encoded).collect();
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(format!("file:{name}?{option}"), flags)?;
    connection.busy_timeout(Options::default().lock_wait)?;
    schema::check(&connection, path)?;
    if !schema::is_current(&connection)? {
        return Err(StoreError::ReadOnly { path: path.to_owned() }.into());
    }
    connection.set_prepared_statement_cache_capacity(MAX_CACHED_STATEMENTS);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    Ok(connection)
}

/// Percent-encodes a character if it is reserved in URIs.
fn percent_encoded(character: char) -> String {
    match character {
        '%' | '?' | '#' => format!("%{:02X}", u32::from(character)),
        _ => character.to_string(),
    }
}

fn configure_connection(connection: &Connection, cache_mebibytes: i64) -> Result<(), Failure> {
    connection.set_prepared_statement_cache_capacity(MAX_CACHED_STATEMENTS);
    // Compile each statement once. By default, SQLite may compile a statement again when other values are bound to it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.pragma_update(None, "foreign_keys", "ON")?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // Overwrite deleted data with zeros, so that no file still contains the data.
    connection.pragma_update_and_check(None, "secure_delete", "ON", |_| Ok(()))?;
    // SQLite interprets a negative cache size as a number of KiB, and a positive cache size as a number of pages.
    connection.pragma_update(None, "cache_size", -1024 * cache_mebibytes)?;
    Ok(())
}

/// Enables the write-ahead log. A failed attempt is repeated, because SQLite does not wait for the lock when two
/// processes create the same database at the same time.
fn enable_write_ahead_log(connection: &Connection) -> Result<(), Failure> {
    let mut attempts = 0;
    loop {
        let mode = connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0));
        match mode {
            Ok(mode) if mode == "wal" => return Ok(()),
            Ok(mode) => {
                let problem =
                    format!("its file system does not support a shared write-ahead log (journal mode `{mode}`)");
                return Err(rusqlite::Error::ToSqlConversionFailure(problem.into()).into());
            }
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && attempts < MAX_ATTEMPTS => {
                attempts += 1;
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns whether the file starts with the header of a SQLite database. Also returns true for an empty file, because
/// SQLite can create a database in an empty file.
fn has_database_header(path: &Path) -> io::Result<bool> {
    let mut beginning = Vec::with_capacity(SQLITE_HEADER.len());
    File::open(path)?.take(SQLITE_HEADER.len() as u64).read_to_end(&mut beginning)?;
    Ok(beginning.is_empty() || beginning == SQLITE_HEADER)
}

fn with_canonical_folder(path: &Path) -> Result<PathBuf, String> {
    let name = path.file_name().ok_or("it has no file name")?;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let folder = fs::canonicalize(folder).map_err(|error| format!("its folder `{}`: {error}", folder.display()))?;
    Ok(folder.join(name))
}
