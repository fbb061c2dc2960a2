//! Handles a target directory that several workspaces share, through `CARGO_TARGET_DIR` or cargo's configuration.
//!
//! In a shared target directory, cargo stores the output of all root packages with the same name at the same path. If
//! the sources of a package are older than the output that another workspace has left at the path of the package,
//! cargo reuses this output instead of compiling the package. Therefore, only one build at a time uses a shared
//! target directory, and a file records for each package name which workspace last built it. Before a build, the
//! output that other workspaces left for the same package names is removed.

use super::cargo::{CARGO, Workspace};
use super::lock::lock;
use super::{BuildError, BuildProgress, TARGET, Toolchain, process};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::PathBuf;

/// Name of the file that records, for each package name, which workspace last built a package with this name. The file
/// is in the folder [`TARGET`] of the target directory.
const FILE: &str = "agent-host-plugins.json";
/// Maximum size of the file that records the workspaces, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The exclusive right to use the shared target directory, until this value is dropped.
pub(super) struct Claim {
    _lock: File,
}

/// Waits until no other build uses the target directory, and prepares the directory for this workspace. Returns None if
/// the directory is inside the workspace, and therefore not shared.
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
    lock(&file, (CARGO, &workspace.target), progress).await.map_err(failed("cannot lock"))?;
    let mut text = String::new();
    // If the file cannot be read, the workspaces of earlier builds are unknown, and all packages are built again.
    let read = (&mut file).take(MAX_FILE_BYTES).read_to_string(&mut text);
    let mut owners: BTreeMap<String, PathBuf> =
        read.ok().and_then(|_| serde_json::from_str(&text).ok()).unwrap_or_default();
    for member in &workspace.members {
        if owners.get(&member.package) != Some(&member.manifest) {
            remove_output(toolchain, workspace, &member.package, profile, progress).await?;
            owners.insert(member.package.clone(), member.manifest.clone());
        }
    }
    let text = serde_json::to_vec_pretty(&owners).unwrap_or_default();
    let written = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(&text));
    written.map_err(failed("cannot write"))?;
    Ok(Some(Claim { _lock: file }))
}

async fn remove_output(
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
