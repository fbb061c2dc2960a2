//! Stores a digest of the inputs that a component was built from, so that a project is not built again if its
//! inputs did not change. Some toolchains store a snapshot of a running program in the component, so each build
//! produces different bytes. A component with different bytes is a different plugin, which must be compiled,
//! approved and shared again.

use super::{BuildError, BuildProgress, Project, process};
use crate::source_files::{MAX_FILES, SourceFiles, collect};
use agent_plugins::digest_of;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use tokio::process::Command;

/// Name of the file that stores the digest of a component's inputs and the digest of the component. The file is in
/// the component's folder.
const FILE: &str = "made-of";
/// Maximum total size of a project's sources, in bytes, for which a build can be skipped. A project with larger
/// sources is built every time, even if no source has changed.
const MAX_BYTES: u64 = 32 << 20;
/// Paths, relative to the folder of a project or to the parent folder, whose modification time changes when a package
/// is installed for the project.
const INSTALLED: [&str; 2] = [".venv/lib", "node_modules/.package-lock.json"];

/// Runs a command that builds `component` from the project and the files and folders in `others`, unless the existing
/// component was built from the same inputs.
pub(super) async fn compile(
    command: Command,
    (tool, project): (&'static str, &Project),
    (others, component): (&[PathBuf], &Path),
    progress: &BuildProgress<'_>,
) -> Result<(), BuildError> {
    let own = project.named_paths().chain([project.directory().to_owned()]);
    let paths: Vec<PathBuf> = own.chain(others.iter().cloned()).collect();
    compile_from(command, (tool, project), (&paths, component), progress).await
}

/// Runs a command that builds `component` from the files and folders in `paths`, unless the existing component was built
/// from the same inputs.
pub(super) async fn compile_from(
    command: Command,
    (tool, project): (&'static str, &Project),
    (paths, component): (&[PathBuf], &Path),
    progress: &BuildProgress<'_>,
) -> Result<(), BuildError> {
    let line = format!("{:?}", command.as_std());
    let program = PathBuf::from(command.as_std().get_program());
    let inputs = || Inputs::read(project, (&line, &program), paths, component);
    let before = inputs();
    if before.as_ref().is_some_and(|inputs| inputs.match_component(component)) {
        return Ok(());
    }
    process::compile(command, (tool, project.name()), progress).await?;
    // If an input changed during the build, the component may not contain the change.
    if let Some(before) = before.filter(|before| inputs().is_some_and(|after| after.digest == before.digest)) {
        before.save(component);
    }
    Ok(())
}

/// The sources of a component and the command that builds it.
struct Inputs {
    digest: String,
    file: PathBuf,
}

impl Inputs {
    /// Reads the inputs of the next build. Returns None if there are too many sources to compare, or if a source
    /// cannot be read.
    fn read(project: &Project, (line, program): (&str, &Path), paths: &[PathBuf], component: &Path) -> Option<Self> {
        let mut sources = SourceFiles::new();
        paths.iter().for_each(|path| collect(path, &mut sources));
        if sources.len() >= MAX_FILES || sources.values().map(|(_, size)| size).sum::<u64>() > MAX_BYTES {
            return None;
        }
        let mut text = format!("{line}\n");
        let program = program.canonicalize().ok()?;
        writeln!(text, "{} {:?}", program.display(), modified(&program)).ok()?;
        for path in sources.keys() {
            writeln!(text, "{} {}", path.display(), digest_of(&std::fs::read(path).ok()?)).ok()?;
        }
        for path in project.directory().ancestors().take(2).flat_map(|folder| INSTALLED.map(|name| folder.join(name))) {
            writeln!(text, "{:?}", installation_times(&path)).ok()?;
        }
        Some(Self { digest: digest_of(text.as_bytes()).hex().to_owned(), file: component.with_file_name(FILE) })
    }

    /// Whether the existing component was built from these inputs.
    fn match_component(&self, component: &Path) -> bool {
        self.line(component).is_some_and(|line| std::fs::read_to_string(&self.file).is_ok_and(|saved| saved == line))
    }

    /// Stores the digests of the inputs and of the component. If the digests cannot be stored, the next build is
    /// not skipped.
    fn save(&self, component: &Path) {
        if let Some(line) = self.line(component) {
            let _ = std::fs::write(&self.file, line);
        }
    }

    /// Returns the content of the cache file: the digest of the inputs and the digest of the component.
    fn line(&self, component: &Path) -> Option<String> {
        Some(format!("{} {}\n", self.digest, digest_of(&std::fs::read(component).ok()?)))
    }
}

fn modified(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).ok()?.modified().ok()
}

/// Returns the sorted modification times of `path` and of the folders `*/site-packages` in it. The `*` stands for the
/// folder of a Python version, because each Python version has its own `site-packages`.
fn installation_times(path: &Path) -> Vec<Option<SystemTime>> {
    let versions = std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut times: Vec<_> = versions.map(|version| modified(&version.path().join("site-packages"))).collect();
    times.push(modified(path));
    times.sort();
    times
}
