//! Python, by componentize-py: a module whose classes implement the world.

use super::contract::World;
use super::{BuildError, BuildProgress, Project, Toolchain, remembered};
use std::path::{Path, PathBuf};
use tokio::process::Command;

/// As it is named to people.
const TOOL: &str = "componentize-py";
/// The module where plugin.toml names none.
pub(super) const SOURCE: &str = "app.py";
/// What is known to work.
const PACKAGE: &str = "componentize-py==0.25.1";

/// Makes a component of the project; its file.
pub(super) async fn compile(
    toolchain: &Toolchain,
    project: &Project,
    progress: &BuildProgress<'_>,
) -> Result<PathBuf, BuildError> {
    let found = toolchain.tools.find("COMPONENTIZE_PY", &[TOOL], project.directory());
    let program = found.ok_or_else(|| BuildError::MissingTool {
        tool: TOOL,
        language: project.language(),
        variable: "COMPONENTIZE_PY",
        install: in_project(
            project,
            &format!("python3 -m venv .venv && .venv/bin/pip install {}", packages(project, PACKAGE)),
        ),
    })?;
    let world = World::of(project)?;
    let source = project.source(SOURCE)?;
    let (folder, module) = (source.parent(), source.file_stem());
    let made = project.made()?.join("component.wasm");
    let mut command = Command::new(program);
    command.current_dir(project.directory()).arg("-d").arg(world.wit()).args(["-w", &world.name, "componentize"]);
    if let Some(folder) = folder.filter(|folder| *folder != project.directory()) {
        command.arg("-p").arg(folder);
    }
    command.args(module).arg("-o").arg(&made);
    remembered::compile(command, (TOOL, project), (&world.wit, &made), progress).await?;
    Ok(made)
}

/// What `pip install` is told: the project's own list where it has one.
pub(super) fn packages(project: &Project, package: &str) -> String {
    let name = "requirements.txt";
    let text = std::fs::read_to_string(project.directory().join(name)).unwrap_or_default();
    let wanted = package.split("==").next().unwrap_or(package);
    if text.lines().any(|line| line.trim_start().starts_with(wanted)) {
        format!("-r {name}")
    } else {
        package.to_owned()
    }
}

/// A command as it is to be typed, from wherever the person is.
pub(super) fn in_project(project: &Project, command: &str) -> String {
    format!("cd {} && {command}", quoted(project.directory()))
}

/// A path for a shell.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "/._-+@:~".contains(character);
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}
