//! Records in the audit log that a command refuses a plugin or the file of an agent (O3).

use agent_config::{ConfigError, DataDirectory, assembly};
use agent_store::AuditAction;
use std::path::Path;

/// Adds an entry about a refusal. `directory` is the folder of the plugins or of the agent's file, and `subject` is the
/// refused file or plugin. If the entry cannot be stored, the refusal still stands, and the host's log contains the reason.
pub(crate) async fn audit_refusal(data: &DataDirectory, directory: &Path, (subject, reason): (&str, &str)) {
    let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned()).display().to_string();
    let entry = AuditAction::Refused { directory, subject: subject.to_owned(), reason: reason.to_owned() };
    let stored = async {
        assembly::open_store(data).await?.audit(vec![entry]).await?;
        Ok::<(), ConfigError>(())
    };
    if let Err(error) = stored.await {
        tracing::error!(%error, "a refusal could not be recorded in the audit log");
    }
}
