//! Locks a file, so that only one build at a time uses a shared folder.

use super::{BuildEvent, BuildProgress};
use std::fs::{File, TryLockError};
use std::path::Path;
use std::time::Duration;

/// Interval between two attempts to lock a file while another build uses the folder.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Waits until no other build uses the folder `place`, and locks the file until it is closed. Reports the wait as a line of
/// `tool`.
pub(super) async fn lock(
    file: &File,
    (tool, place): (&str, &Path),
    progress: &BuildProgress<'_>,
) -> std::io::Result<()> {
    let mut is_reported = false;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if !is_reported => {
                let line = format!("waiting for another build in {}", place.display());
                progress(BuildEvent::Line { tool, line: &line });
                is_reported = true;
            }
            Err(TryLockError::WouldBlock) => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
}
