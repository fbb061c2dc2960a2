//! Stops the sessions whose leases this process has lost, for example because it was paused or cut off from the database for
//! too long (F1). Another process runs these sessions. Without a lease, nothing can be committed anyway.

use super::Shared;
use agent_store::{MAX_PAGE, StoreError};
use std::sync::Arc;
use std::time::Duration;

/// Time between two checks.
const INTERVAL: Duration = Duration::from_secs(2);

/// Checks the leases of the open sessions until the supervisor shuts down.
pub(super) async fn watch_leases(shared: Arc<Shared>) {
    loop {
        tokio::select! {
            () = shared.stop.cancelled() => return,
            () = tokio::time::sleep(INTERVAL) => {}
        }
        if let Err(error) = leave_lost_sessions(&shared).await {
            tracing::warn!(%error, "cannot check whether other processes have taken sessions over; the host tries again");
        }
    }
}

async fn leave_lost_sessions(shared: &Shared) -> Result<(), StoreError> {
    for page in shared.host.sessions.leases().chunks(MAX_PAGE) {
        for lost in shared.host.store.lost_leases(page).await? {
            if shared.host.sessions.leave(&lost) {
                tracing::warn!(
                    session = lost.session,
                    epoch = lost.epoch,
                    "another process has taken the session over, because this process did not renew its lease in time; its \
                     plugins are stopped here"
                );
            }
        }
    }
    Ok(())
}
