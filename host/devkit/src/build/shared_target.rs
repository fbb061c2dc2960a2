//! A target directory that several workspaces share, by `CARGO_TARGET_DIR` or cargo's configuration. There, cargo gives packages of
//! one name at the roots of two workspaces one place, and takes what the first has built for the second's where that one's sources
//! are older. So one build at a time has the directory, which remembers whose each name was last; another's leavings are removed.

use super::cargo::{CARGO, Workspace};
use super::{BuildError, BuildEvent, BuildProgress, TARGET, Toolchain, process};
use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Beside the profiles of the target.
const FILE: &str = "agent-host-plugins.json";
/// Most bytes of it.
const MAX_FILE: u64 = 1 << 20;
/// Between two looks whether another build has ended.
const LOOK: Duration = Duration::from_millis(100);

/// The directory is this build's until this is dropped.
pub(super) struct Claim {
    _locked: File,
}

/// Waits for the directory and makes it fit for this workspace. None: it is the workspace's own.
pub(super) async fn claim(
    toolchain: &Toolchain,
    workspace: &Workspace,
    profile: &[String],
    progress: &BuildProgress<'_>,
) -> Result<Option<Claim>, BuildError> {
    if workspace.target.starts_with(&workspace.root) {
        return Ok(None);
    }
    let directory = workspace.target.join(TARGET);
    let path = directory.join(FILE);
    let failed = |action| {
        let path = path.clone();
        move |source| BuildError::File { action, path, source }
    };
    std::fs::create_dir_all(&directory).map_err(failed("cannot create the folder of"))?;
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(failed("cannot open"))?;
    lock(&file, &workspace.target, progress).await.map_err(failed("cannot lock"))?;
    let mut text = String::new();
    // One that cannot be read remembers nothing: all is built anew.
    let read = (&mut file).take(MAX_FILE).read_to_string(&mut text);
    let mut owners: BTreeMap<String, PathBuf> =
        read.ok().and_then(|_| serde_json::from_str(&text).ok()).unwrap_or_default();
    for member in &workspace.members {
        if owners.get(&member.package) != Some(&member.manifest) {
            clean(toolchain, workspace, &member.package, profile, progress).await?;
            owners.insert(member.package.clone(), member.manifest.clone());
        }
    }
    let text = serde_json::to_vec_pretty(&owners).unwrap_or_default();
    let written = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(&text));
    written.map_err(failed("cannot write"))?;
    Ok(Some(Claim { _locked: file }))
}

async fn lock(file: &File, target: &Path, progress: &BuildProgress<'_>) -> std::io::Result<()> {
    let mut is_told = false;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if !is_told => {
                let line = format!("waiting for another build in {}", target.display());
                progress(BuildEvent::Line { tool: CARGO, line: &line });
                is_told = true;
            }
            Err(TryLockError::WouldBlock) => tokio::time::sleep(LOOK).await,
        }
    }
}

async fn clean(
    toolchain: &Toolchain,
    workspace: &Workspace,
    package: &str,
    profile: &[String],
    progress: &BuildProgress<'_>,
) -> Result<(), BuildError> {
    let mut command = toolchain.cargo(&workspace.root)?;
    command.args(["clean", "--quiet", "--package", package, "--target", TARGET]).args(profile);
    let (status, messages) = process::run(command, CARGO, progress, |_| {}).await?;
    if status.success() {
        return Ok(());
    }
    Err(BuildError::Compile { tool: CARGO, plugins: vec![package.to_owned()], messages: messages.text })
}
