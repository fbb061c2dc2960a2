//! Builds JavaScript projects with jco and QuickJS. The project's module exports one object per interface of the world.

use super::contract::World;
use super::python::in_project;
use super::{BuildError, BuildProgress, Project, Toolchain, build_cache};
use crate::project::JAVASCRIPT_SOURCE;
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
    let missing = |tool, variable, install: String| BuildError::MissingTool {
        tool,
        language: project.language(),
        variable,
        install,
    };
    let found = toolchain.tools.find("JCO", &[TOOL], project.directory());
    let jco = found.ok_or_else(|| missing(TOOL, "JCO", in_project(project, install_command(project))))?;
    let mut command = if is_script(&jco) {
        let node = toolchain.tools.find_unnamed(&["node"], project.directory());
        let node = node.ok_or_else(|| {
            missing(
                "node",
                "PATH",
                "install Node.js 20 or newer from https://nodejs.org, or with your system's packages".to_owned(),
            )
        })?;
        let mut command = Command::new(node);
        command.arg(jco);
        command
    } else {
        Command::new(jco)
    };
    let world = World::of(project)?;
    let source = project.source(JAVASCRIPT_SOURCE)?;
    let component = project.build_folder()?.join("component.wasm");
    command.current_dir(project.directory()).arg("componentize").arg(source).arg("--wit").arg(world.wit());
    command.args(["-n", &world.name, "--backend", "qjs", "-o"]).arg(&component);
    build_cache::compile(command, (TOOL, project), (&world.wit, &component), progress).await?;
    Ok(component)
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
