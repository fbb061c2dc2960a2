//! Checks the data folder, its disk, the database and the clock.

use super::{Finding, Level};
use crate::commands::serve::token_file_in;
use crate::terminal::text;
use agent_config::{DataDirectory, MediaStore, SharedDatabase, assembly, shell_word};
use agent_store::{DatabaseState, StoreError};
use std::path::Path;
use std::time::{Duration, SystemTime};

const FOLDER: &str = "data folder";
const DATABASE: &str = "database";
const MEDIA_STORE: &str = "media store";
const SERVER: &str = "server";
const CLOCK: &str = "clock";

/// Free space below which a warning is reported, in bytes.
const LITTLE_SPACE: u64 = 1 << 30;
/// Free space below which sessions cannot be stored reliably, in bytes.
const NO_SPACE: u64 = 64 << 20;
/// A time before which no version of this program existed: 2025-01-01, in seconds since 1970.
const EARLIEST: u64 = 1_735_689_600;
/// Maximum difference between the clock and the times of stored files.
const MAX_AHEAD: Duration = Duration::from_secs(24 * 60 * 60);

/// Checks the data folder, and the database in it or the shared database. `root` is None if there is no default data folder.
pub(super) async fn check(root: Option<&Path>, shared: Option<&SharedDatabase>) -> Vec<Finding> {
    let mut findings = folder(root, shared.is_none()).await;
    if let Some(database) = shared {
        findings.push(shared_database(database).await);
        if let Some(media) = database.media() {
            findings.push(media_store(media).await);
        }
    }
    findings
}

/// Checks the data folder. `has_database` says whether the sessions are in this folder.
async fn folder(root: Option<&Path>, has_database: bool) -> Vec<Finding> {
    let Some(root) = root else {
        let fix = "set HOME, or name a data folder with --data DIR or AGENT_HOST_DATA";
        return vec![Finding::new(FOLDER, Level::Error, "there is no home folder to store data in", fix)];
    };
    let shown = root.display();
    if !root.exists() {
        return vec![Finding::ok(FOLDER, format!("`{shown}` does not exist yet; the first session creates it"))];
    }
    if let Err(problem) = DataDirectory::examine(root) {
        let fix = "see the message, or name another folder with --data DIR";
        return vec![Finding::new(FOLDER, Level::Error, format!("`{shown}` cannot be used: {problem}"), fix)];
    }
    let mut findings = vec![space(root)];
    if has_database {
        findings.extend(database(root).await);
    }
    findings.extend(server_tokens(root));
    findings
}

/// Checks the tokens of `agent-host serve`. Without them, no server has run with this data folder.
fn server_tokens(root: &Path) -> Option<Finding> {
    let file = token_file_in(root);
    if !file.path().exists() {
        return None;
    }
    Some(match file.tokens() {
        Ok(tokens) => Finding::ok(SERVER, format!("{} can use the server", text::count(tokens.len(), "token"))),
        Err(error) => Finding::new(
            SERVER,
            Level::Error,
            error.to_string(),
            "see the message; `agent-host serve` does not start before",
        ),
    })
}

fn space(root: &Path) -> Finding {
    let shown = root.display();
    let Some(free) = free_bytes(root) else { return Finding::ok(FOLDER, format!("`{shown}`")) };
    let message = format!("`{shown}` is private and has {} of free space", text::size(free));
    let fix = "free some space, or name a folder on another disk with --data DIR";
    match free {
        free if free < NO_SPACE => Finding::new(FOLDER, Level::Error, message, fix),
        free if free < LITTLE_SPACE => Finding::new(FOLDER, Level::Warning, message, fix),
        _ => Finding::ok(FOLDER, message),
    }
}

#[cfg(unix)]
fn free_bytes(root: &Path) -> Option<u64> {
    let space = rustix::fs::statvfs(root).ok()?;
    Some(space.f_bavail.saturating_mul(space.f_frsize))
}

#[cfg(not(unix))]
fn free_bytes(_root: &Path) -> Option<u64> {
    None
}

/// Checks the database file without writing to it. The indexes are compared only by `store check`, because this can take
/// minutes.
async fn database(root: &Path) -> Option<Finding> {
    if !DataDirectory::has_database(root) {
        return None;
    }
    let path = root.join("agent-host.db");
    let opened = tokio::task::spawn_blocking(move || assembly::open_store_unchanged(&path)).await.ok()?;
    let data = shell_word(&root.display().to_string());
    let advice = format!(
        "`agent-host store check --data {data}` checks all parts; restore the file from a backup if it is damaged"
    );
    Some(match opened {
        Ok(store) => match store.integrity_check().await {
            Ok(()) => Finding::ok(DATABASE, "the file is intact"),
            Err(error) => Finding::new(DATABASE, Level::Error, error.to_string(), advice),
        },
        Err(StoreError::ReadOnly { .. }) => {
            let message =
                "the file was written by an older version, or another process is changing it, so it was not checked";
            Finding::new(DATABASE, Level::Hint, message, "the next session brings the file up to date")
        }
        Err(error) => Finding::new(DATABASE, Level::Error, error.to_string(), advice),
    })
}

/// Checks whether the shared database can be used (F1). Nothing is changed.
async fn shared_database(database: &SharedDatabase) -> Finding {
    match assembly::examine_shared_database(database).await {
        Ok(DatabaseState::Current) => Finding::ok(DATABASE, format!("{database} can be used")),
        Ok(DatabaseState::Empty) => {
            Finding::ok(DATABASE, format!("{database} is empty; the first session creates the tables"))
        }
        Ok(DatabaseState::Older) => {
            let message = format!("the tables of {database} are those of an older version");
            Finding::new(DATABASE, Level::Hint, message, "the next session brings them up to date")
        }
        Err(error @ StoreError::OtherObjectStore { .. }) => {
            let fix = "see the message; `agent-host store copy` moves the media with a copy of the database";
            Finding::new(DATABASE, Level::Error, error.to_string(), fix)
        }
        Err(error) => {
            let fix = "check the address in --store or AGENT_HOST_STORE, the password in PGPASSWORD, and the server";
            Finding::new(DATABASE, Level::Error, error.to_string(), fix)
        }
    }
}

/// Checks whether the object store with the media can be used (F1). A small object is written and deleted again.
async fn media_store(media: &MediaStore) -> Finding {
    match assembly::examine_media_store(media).await {
        Ok(()) => Finding::ok(MEDIA_STORE, format!("{media} can be used")),
        Err(error) => {
            let fix = "see the message; sessions with images and long texts fail until it is solved";
            Finding::new(MEDIA_STORE, Level::Error, error.to_string(), fix)
        }
    }
}

/// Compares the clock with the age of this program and with the times of the stored files.
pub(super) fn clock(root: Option<&Path>) -> Finding {
    let now = SystemTime::now();
    let fix = "set the clock: connections with TLS, schedules and tokens depend on it";
    let seconds = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs());
    if seconds < EARLIEST {
        return Finding::new(CLOCK, Level::Error, "the clock is years behind", fix);
    }
    let entries = root.and_then(|root| std::fs::read_dir(root).ok()).into_iter().flatten().flatten();
    let latest = entries.filter_map(|entry| entry.metadata().ok()?.modified().ok()).max();
    let ahead = latest.and_then(|latest| latest.duration_since(now).ok());
    if ahead.is_some_and(|ahead| ahead > MAX_AHEAD) {
        let message = "files in the data folder were written more than a day in the future of the clock";
        return Finding::new(CLOCK, Level::Warning, message, fix);
    }
    Finding::ok(CLOCK, "the time is plausible")
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A missing folder is created later, and a folder that other users can read is an error with its fix.
    #[tokio::test]
    async fn findings_about_the_data_folder_name_the_fix() {
        let parent = tempfile::tempdir().expect("a temporary folder");
        let root = parent.path().join("data");
        let levels = |findings: &[Finding]| findings.iter().map(|finding| finding.level).collect::<Vec<_>>();
        assert_eq!(levels(&check(Some(&root), None).await), [Level::Ok]);
        assert!(!root.exists(), "nothing is created");
        assert_eq!(levels(&check(None, None).await), [Level::Error]);
        std::fs::create_dir(&root).expect("created");
        std::fs::write(root.join("history"), "").expect("written");
        std::fs::set_permissions(&root, PermissionsExt::from_mode(0o755)).expect("set");
        let findings = check(Some(&root), None).await;
        assert_eq!(levels(&findings), [Level::Error]);
        assert!(findings[0].message.contains("chmod 700"), "{findings:?}");
        let mode = std::fs::metadata(&root).expect("exists").permissions().mode() & 0o777;
        assert_eq!(mode, 0o755, "nothing is changed");
        std::fs::set_permissions(&root, PermissionsExt::from_mode(0o700)).expect("set");
        std::fs::write(root.join("agent-host.db"), "not a database, although it is long enough to have a header")
            .expect("written");
        let findings = check(Some(&root), None).await;
        assert!(
            findings.iter().any(|finding| finding.area == DATABASE && finding.level == Level::Error),
            "{findings:?}"
        );
    }

    /// Tokens that other users can read, or that are damaged, are reported.
    #[test]
    fn tokens_must_be_private_and_readable() {
        let root = tempfile::tempdir().expect("a temporary folder");
        assert_eq!(server_tokens(root.path()), None);
        let file = token_file_in(root.path());
        file.create_first().expect("created");
        assert_eq!(server_tokens(root.path()).map(|finding| finding.level), Some(Level::Ok));
        std::fs::set_permissions(file.path(), PermissionsExt::from_mode(0o644)).expect("set");
        assert_eq!(server_tokens(root.path()).map(|finding| finding.level), Some(Level::Error));
        std::fs::set_permissions(file.path(), PermissionsExt::from_mode(0o600)).expect("set");
        std::fs::write(file.path(), "{").expect("written");
        assert_eq!(server_tokens(root.path()).map(|finding| finding.level), Some(Level::Error));
    }

    /// Files from the future show that the clock is behind.
    #[test]
    fn files_from_the_future_show_a_wrong_clock() {
        let root = tempfile::tempdir().expect("a temporary folder");
        assert_eq!(clock(Some(root.path())).level, Level::Ok);
        let file = std::fs::File::create(root.path().join("history")).expect("created");
        file.set_modified(SystemTime::now() + 2 * MAX_AHEAD).expect("set");
        assert_eq!(clock(Some(root.path())).level, Level::Warning);
    }
}
