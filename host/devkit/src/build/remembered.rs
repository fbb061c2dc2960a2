//! What a component was made of, so that the same is not made twice: toolchains that take a snapshot make other bytes each time, and
//! other bytes are another plugin, which has to be compiled, approved and shared anew.

use super::{BuildError, BuildProgress, Project, process};
use crate::written::{FILES, Sources, look_at};
use agent_plugins::digest_of;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use tokio::process::Command;

/// Beside what was made.
const FILE: &str = "made-of";
/// Most bytes of sources that are read to compare them.
const BYTES: u64 = 32 << 20;
/// What changes when a package is installed for the project.
const INSTALLED: [&str; 2] = [".venv/lib", "node_modules/.package-lock.json"];

/// Runs a command that makes `component` of the project and of this WIT, unless it has made that of the same before.
pub(super) async fn compile(
    command: Command,
    (tool, project): (&'static str, &Project),
    (wit, component): (&Path, &Path),
    progress: &BuildProgress<'_>,
) -> Result<(), BuildError> {
    let line = format!("{:?}", command.as_std());
    let program = PathBuf::from(command.as_std().get_program());
    let inputs = || Inputs::of(project, (&line, &program), wit, component);
    let before = inputs();
    if before.as_ref().is_some_and(|inputs| inputs.made(component)) {
        return Ok(());
    }
    process::compile(command, (tool, project.name()), progress).await?;
    // What has changed meanwhile is not known to be in it.
    if let Some(before) = before.filter(|before| inputs().is_some_and(|after| after.digest == before.digest)) {
        before.remember(component);
    }
    Ok(())
}

/// What a component is made of, and by which command.
struct Inputs {
    digest: String,
    file: PathBuf,
}

impl Inputs {
    /// None: there is too much of it to compare.
    fn of(project: &Project, (line, program): (&str, &Path), wit: &Path, component: &Path) -> Option<Self> {
        let mut sources = Sources::new();
        look_at(project.directory(), &mut sources);
        project.named_paths().chain([wit.to_owned()]).for_each(|path| look_at(&path, &mut sources));
        if sources.len() >= FILES || sources.values().map(|(_, size)| size).sum::<u64>() > BYTES {
            return None;
        }
        let mut text = format!("{line}\n");
        let program = program.canonicalize().ok()?;
        writeln!(text, "{} {:?}", program.display(), changed(&program)).ok()?;
        for path in sources.keys() {
            writeln!(text, "{} {}", path.display(), digest_of(&std::fs::read(path).ok()?)).ok()?;
        }
        for place in project.directory().ancestors().take(2).flat_map(|folder| INSTALLED.map(|name| folder.join(name)))
        {
            writeln!(text, "{:?}", installed(&place)).ok()?;
        }
        Some(Self { digest: digest_of(text.as_bytes()).hex().to_owned(), file: component.with_file_name(FILE) })
    }

    /// Whether this component was made of the same.
    fn made(&self, component: &Path) -> bool {
        self.line(component).is_some_and(|line| std::fs::read_to_string(&self.file).is_ok_and(|kept| kept == line))
    }

    /// Remembers it. Where that fails, it is made again.
    fn remember(&self, component: &Path) {
        if let Some(line) = self.line(component) {
            let _ = std::fs::write(&self.file, line);
        }
    }

    fn line(&self, component: &Path) -> Option<String> {
        Some(format!("{} {}\n", self.digest, digest_of(&std::fs::read(component).ok()?)))
    }
}

fn changed(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).ok()?.modified().ok()
}

/// Python keeps packages in a folder for each of its versions.
fn installed(place: &Path) -> Vec<Option<SystemTime>> {
    let versions = std::fs::read_dir(place).into_iter().flatten().flatten();
    let mut times: Vec<_> = versions.map(|version| changed(&version.path().join("site-packages"))).collect();
    times.push(changed(place));
    times.sort();
    times
}
