//! Builds Python projects with componentize-py. In a project with the SDK, functions of the project's module have decorators
//! of the SDK. In a project without the SDK, classes of the module implement the interfaces of the world.

mod runtime;
mod sdk;
mod sources;

use super::contract::World;
use super::{BuildError, BuildProgress, Project, Toolchain, build_cache};
use crate::project::PYTHON_SOURCE;
use std::path::{Path, PathBuf};

/// Name of the build tool, for messages.
const TOOL: &str = "componentize-py";
/// The Python package with the tested version of componentize-py.
const PACKAGE: &str = "componentize-py==0.25.1";

/// Builds the component of the project and returns the path of the component.
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
    if let Some(place) = project.sdk() {
        return sdk::compile(program, toolchain, (project, place), progress).await;
    }
    let world = World::of(project)?;
    let source = project.source(PYTHON_SOURCE)?;
    let (folder, module) = (source.parent(), source.file_stem());
    let component = project.build_folder()?.join("component.wasm");
    let mut command = toolchain.command(program);
    command.current_dir(project.directory()).arg("-d").arg(world.wit()).args(["-w", &world.name, "componentize"]);
    if let Some(folder) = folder.filter(|folder| *folder != project.directory()) {
        command.arg("-p").arg(folder);
    }
    command.args(module).arg("-o").arg(&component);
    build_cache::compile(command, (TOOL, project), (&[world.wit], &component), progress).await?;
    Ok(component)
}

/// Returns the arguments with which `pip install` installs `package`: `-r requirements.txt` if the project's
/// `requirements.txt` lists `package`, otherwise `package`.
pub(super) fn packages(project: &Project, package: &str) -> String {
    let name = "requirements.txt";
    let text = std::fs::read_to_string(project.directory().join(name)).unwrap_or_default();
    let name_of_package = package.split("==").next().unwrap_or(package);
    if text.lines().any(|line| line.trim_start().starts_with(name_of_package)) {
        format!("-r {name}")
    } else {
        package.to_owned()
    }
}

/// Returns a command line that changes to the project's folder and runs `command`, so that the user can run the command
/// line from any folder.
pub(super) fn in_project(project: &Project, command: &str) -> String {
    format!("cd {} && {command}", quoted(project.directory()))
}

/// Quotes a path for a shell.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let needs_no_quotes = |character: char| character.is_ascii_alphanumeric() || "/._-+@:~".contains(character);
    if text.chars().all(needs_no_quotes) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}
