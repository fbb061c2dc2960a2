//! Builds JavaScript projects with jco and QuickJS. In a project with the SDK, a script of the SDK bundles the source and
//! calls jco. In other projects, the project's module exports one object per interface of the world.

use super::contract::{World, write_files};
use super::python::in_project;
use super::{BuildError, BuildProgress, Project, Toolchain, build_cache};
use crate::embedded::javascript_sdk_files;
use crate::file_list::SDK_FOLDER;
use crate::project::{JAVASCRIPT_BUILD_SCRIPT, JAVASCRIPT_SOURCE, SdkPlace, TYPESCRIPT_SOURCE};
use std::path::{Path, PathBuf};
use tokio::process::Command;

/// Name of the build tool, for messages.
const TOOL: &str = "jco";
/// Command that installs the tested version of jco.
const INSTALL: &str = "npm install --save-dev @bytecodealliance/jco@1.35.0";

/// Builds the component of the project and returns the path of the component.
pub(super) async fn compile(
    toolchain: &Toolchain,
    project: &Project,
    progress: &BuildProgress<'_>,
) -> Result<PathBuf, BuildError> {
    let found = toolchain.tools.find("JCO", &[TOOL], project.directory());
    let jco = found.ok_or_else(|| BuildError::MissingTool {
        tool: TOOL,
        language: project.language(),
        variable: "JCO",
        install: in_project(project, install_command(project)),
    })?;
    let component = project.build_folder()?.join("component.wasm");
    let (command, inputs) = match project.sdk() {
        Some(place) => command_of_sdk(toolchain, project, &jco, &sdk_folder(project, place)?)?,
        None => command_of_jco(toolchain, project, &jco, &component)?,
    };
    build_cache::compile(command, (TOOL, project), (&inputs, &component), progress).await?;
    Ok(component)
}

/// Returns the folder of the SDK. If the project has no copy of the SDK, writes the SDK of this binary into the build folder.
fn sdk_folder(project: &Project, place: SdkPlace) -> Result<PathBuf, BuildError> {
    if place == SdkPlace::Project {
        return Ok(project.directory().join(SDK_FOLDER));
    }
    let folder = project.build_folder()?.join("sdk");
    write_files(&folder, &javascript_sdk_files())?;
    Ok(folder)
}

/// Returns the command that runs the script of the SDK, and the folders that the script reads. The script
/// writes the component to the build folder. Its world is generated, unless the project has its own world.
fn command_of_sdk(
    toolchain: &Toolchain,
    project: &Project,
    jco: &Path,
    sdk: &Path,
) -> Result<(Command, Vec<PathBuf>), BuildError> {
    let mut command = toolchain.command(node(toolchain, project)?);
    command.current_dir(project.directory()).arg(sdk.join(JAVASCRIPT_BUILD_SCRIPT)).arg("--jco").arg(jco);
    command.arg("--source").arg(source(project)?).arg("--build").arg(project.build_folder()?);
    if !project.has_own_wit() {
        return Ok((command, vec![sdk.to_owned()]));
    }
    let world = World::of(project)?;
    command.arg("--wit").arg(world.wit()).args(["--world", &world.name]);
    Ok((command, vec![sdk.to_owned(), world.wit]))
}

/// Returns the command that runs jco, and the folders that jco reads.
fn command_of_jco(
    toolchain: &Toolchain,
    project: &Project,
    jco: &Path,
    component: &Path,
) -> Result<(Command, Vec<PathBuf>), BuildError> {
    let mut command = if is_script(jco) {
        let mut command = toolchain.command(node(toolchain, project)?);
        command.arg(jco);
        command
    } else {
        toolchain.command(jco)
    };
    let world = World::of(project)?;
    command.current_dir(project.directory()).arg("componentize").arg(source(project)?).arg("--wit").arg(world.wit());
    command.args(["-n", &world.name, "--backend", "qjs", "-o"]).arg(component);
    Ok((command, vec![world.wit]))
}

fn node(toolchain: &Toolchain, project: &Project) -> Result<PathBuf, BuildError> {
    toolchain.tools.find_unnamed(&["node"], project.directory()).ok_or_else(|| BuildError::MissingTool {
        tool: "node",
        language: project.language(),
        variable: "PATH",
        install: "install Node.js 20 or newer from https://nodejs.org, or with your system's packages".to_owned(),
    })
}

/// Returns the path of the source: `app.js`, or `app.ts` if only that exists, or the source that `plugin.toml` sets.
fn source(project: &Project) -> Result<PathBuf, BuildError> {
    let exists = |name: &str| project.directory().join(name).is_file();
    let is_typescript = !exists(JAVASCRIPT_SOURCE) && exists(TYPESCRIPT_SOURCE);
    Ok(project.source(if is_typescript { TYPESCRIPT_SOURCE } else { JAVASCRIPT_SOURCE })?)
}

/// Whether the file is a script that Node.js must run. npm installs a tool as a link to such a script, and other
/// package managers install an executable.
fn is_script(jco: &Path) -> bool {
    let path = jco.canonicalize().unwrap_or_else(|_| jco.to_owned());
    path.extension().is_some_and(|extension| extension == "js" || extension == "mjs")
}

fn install_command(project: &Project) -> &'static str {
    let text = std::fs::read_to_string(project.directory().join("package.json")).unwrap_or_default();
    if text.contains("\"@bytecodealliance/jco\"") { "npm install" } else { INSTALL }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn install_command_uses_the_version_of_the_template() {
        let template = crate::embedded::file("host/devkit/templates/javascript/all/package.json");
        let (name, version) = INSTALL.rsplit(' ').next().expect("a package").rsplit_once('@').expect("a version");
        assert!(template.contains(&format!("\"{name}\": \"{version}\"")), "{template}");
    }
}
