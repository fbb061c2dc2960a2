//! Stores the decisions to trust agents' files. Each decision is a separate file, so that two processes never overwrite
//! each other's decisions. The name of the file is a hash of the path of the agent's file.

use super::authority::AgentAuthority;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Maximum size of a stored decision, in bytes. A larger file is not a decision.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// A stored decision to trust an agent's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustRecord {
    /// Path of the agent's file in its canonical folder.
    pub path: PathBuf,
    /// Digest of each trusted file, by the file's path in its canonical folder.
    pub files: BTreeMap<String, String>,
    /// What the agent could do when the user decided. Each line is one permission.
    pub permissions: Vec<String>,
    /// When the user decided, in seconds since 1970.
    pub trusted_at: u64,
}

/// Returns the decision about the agent's file at this path.
pub(super) fn read(folder: &Path, path: &Path) -> Option<TrustRecord> {
    let record = read_file(&folder.join(name(path)))?;
    // The path is compared as well, because a file that was copied from another name is not a decision about this path.
    (record.path == Path::new(&*path.to_string_lossy())).then_some(record)
}

/// Stores a decision, and replaces an earlier decision about the same path.
pub(super) fn write(folder: &Path, authority: &AgentAuthority) -> io::Result<()> {
    create(folder)?;
    let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs());
    let document = json!({
        "path": authority.path.to_string_lossy(),
        "files": authority.files,
        "permissions": authority.permissions,
        "trusted_at": seconds,
    });
    let temporary = folder.join(format!(".{}", uuid::Uuid::new_v4().simple()));
    let written = write_private(&temporary, document.to_string().as_bytes())
        .and_then(|()| std::fs::rename(&temporary, folder.join(name(&authority.path))));
    written.inspect_err(|_| drop(std::fs::remove_file(&temporary)))
}

/// Deletes the decision about the agent's file at this path. Returns false if there is none.
pub(super) fn remove(folder: &Path, path: &Path) -> io::Result<bool> {
    match std::fs::remove_file(folder.join(name(path))) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns all decisions, sorted by path. Files that are not decisions are left out.
pub(super) fn list(folder: &Path) -> io::Result<Vec<TrustRecord>> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut records = Vec::new();
    for entry in entries {
        records.extend(read_file(&entry?.path()));
    }
    records.sort_by(|left, right| left.path.cmp(&right.path));
    Ok(records)
}

fn name(path: &Path) -> String {
    format!("{}.json", blake3::hash(path.as_os_str().as_encoded_bytes()).to_hex())
}

fn read_file(path: &Path) -> Option<TrustRecord> {
    let bytes = agent_plugins::read_regular_file(path, MAX_BYTES).ok()?;
    let document: Value = serde_json::from_slice(&bytes).ok()?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let files = document["files"].as_object()?;
    Some(TrustRecord {
        path: PathBuf::from(document["path"].as_str()?),
        files: files.iter().map(|(name, digest)| Some((name.clone(), text(digest)?))).collect::<Option<_>>()?,
        permissions: document["permissions"].as_array()?.iter().map(text).collect::<Option<_>>()?,
        trusted_at: document["trusted_at"].as_u64()?,
    })
}

fn create(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file: File = options.open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
