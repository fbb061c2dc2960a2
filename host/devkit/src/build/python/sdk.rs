//! Builds Python projects with the SDK. A generated module, which is the main module of the component, imports the plugin and
//! the exports that the SDK implements.
//!
//! A development build consists of a component without the plugin, and of the plugin's sources. componentize-py builds this
//! component only once for all sources that import the same modules, because a build takes many seconds: most of
//! the time, it compiles Python itself for the machine, to run it and to store a snapshot of its memory. Projects that import
//! only modules of Python's standard library share the component.

use super::super::contract::{World, write_files};
use super::super::{BuildError, BuildProgress, Project, Purpose, Toolchain, build_cache};
use super::sources::Sources;
use super::{TOOL, runtime};
use crate::embedded::python_sdk_files;
use crate::file_list::PYTHON_SDK_FOLDER;
use crate::project::{PYTHON_SOURCE, SdkPlace};
use std::path::{Path, PathBuf};
use tokio::process::Command;

/// Name of the generated module.
const MAIN_MODULE: &str = "agent_host_plugin";

/// The folders and names of a build.
struct SdkBuild<'a> {
    toolchain: &'a Toolchain,
    program: PathBuf,
    project: &'a Project,
    /// The folder that contains the package of the SDK.
    sdk_folder: PathBuf,
    /// The folder that contains the plugin's main module.
    source_folder: PathBuf,
    /// Name of the plugin's main module.
    module: String,
    /// The folder for the files of the build.
    folder: PathBuf,
}

/// Builds the component of the project and returns the path of the component.
pub(super) async fn compile(
    program: PathBuf,
    toolchain: &Toolchain,
    (project, place): (&Project, SdkPlace),
    progress: &BuildProgress<'_>,
) -> Result<PathBuf, BuildError> {
    let source = project.source(PYTHON_SOURCE)?;
    let source_folder = source.parent().unwrap_or(project.directory()).to_owned();
    let module = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let folder = project.build_folder()?;
    let sdk_folder = match place {
        SdkPlace::Project => project.directory().to_owned(),
        SdkPlace::Binary => folder.join("sdk"),
    };
    if place == SdkPlace::Binary {
        write_files(&sdk_folder.join(PYTHON_SDK_FOLDER), &python_sdk_files())?;
    }
    let build = SdkBuild { toolchain, program, project, sdk_folder, source_folder, module, folder };
    // A project with its own WIT does not import the interface from which a development build gets its sources.
    if toolchain.purpose == Purpose::Development
        && !project.has_own_wit()
        && let Some(sources) = Sources::read(&build.source_folder)
    {
        return build.development(&sources, toolchain.shared.as_deref(), progress).await;
    }
    build.release(progress).await
}

impl SdkBuild<'_> {
    /// Builds a component that contains the plugin.
    async fn release(&self, progress: &BuildProgress<'_>) -> Result<PathBuf, BuildError> {
        let world = World::of_sdk(self.project, &self.folder.join("wit"), Purpose::Release)?;
        let text = format!(
            "import {}\nfrom {PYTHON_SDK_FOLDER} import component\n\nglobals().update(component.load())\n",
            self.module
        );
        let main = self.write_main(&self.folder.join("python"), &text)?;
        let component = self.folder.join("component.wasm");
        let folders = [&self.source_folder, self.project.directory(), &self.sdk_folder, &main];
        let mut command = self.command(&world, &folders);
        command.arg(&component);
        let inputs = [self.sdk_folder.join(PYTHON_SDK_FOLDER), world.wit().to_owned()];
        build_cache::compile(command, (TOOL, self.project), (&inputs, &component), progress).await?;
        Ok(component)
    }

    /// Puts the sources of the plugin into a component that was built before. If the component does not exist, builds it.
    async fn development(
        &self,
        sources: &Sources,
        shared: Option<&Path>,
        progress: &BuildProgress<'_>,
    ) -> Result<PathBuf, BuildError> {
        let runtime = self.runtime(sources, shared, progress).await?;
        let failed = |action, path: &Path| {
            let path = path.to_owned();
            move |source| BuildError::File { action, path, source }
        };
        let bytes = std::fs::read(&runtime).map_err(failed("cannot read", &runtime))?;
        let asks = &self.project.manifest().asks;
        let bytes = agent_plugins::with_sources(&bytes, &sources.to_json(&self.module, asks)).map_err(|error| {
            BuildError::NotAComponent { name: self.project.name().to_owned(), reason: error.to_string() }
        })?;
        let component = self.folder.join("development/component.wasm");
        std::fs::write(&component, bytes).map_err(failed("cannot write", &component))?;
        Ok(component)
    }

    /// Returns the path of a component with Python, the SDK and the modules that the plugin imports, but without the plugin.
    async fn runtime(
        &self,
        sources: &Sources,
        shared: Option<&Path>,
        progress: &BuildProgress<'_>,
    ) -> Result<PathBuf, BuildError> {
        let folder = self.folder.join("development");
        let world = World::of_sdk(self.project, &folder.join("wit"), Purpose::Development)?;
        let modules: Vec<String> =
            sources.runtime_modules().iter().map(|module| format!("    \"{module}\",\n")).collect();
        let text = format!(
            "from {PYTHON_SDK_FOLDER} import development\n\nglobals().update(development.load([\n{}]))\n",
            modules.concat()
        );
        let main = self.write_main(&folder.join("python"), &text)?;
        let sdk = self.sdk_folder.join(PYTHON_SDK_FOLDER);
        if let Some(shared) = shared.filter(|_| sources.imports_only_standard_modules()) {
            let name = runtime::name(&self.program, &[&sdk, world.wit(), &main])
                .map_err(|source| BuildError::File { action: "cannot read", path: sdk, source })?;
            let command = self.command(&world, &[&self.sdk_folder, &main]);
            return runtime::shared(command, self.project.name(), (shared, &name), progress).await;
        }
        let runtime = folder.join("runtime.wasm");
        let mut command = self.command(&world, &[self.project.directory(), &self.sdk_folder, &main]);
        command.arg(&runtime);
        let inputs = [sdk, world.wit().to_owned(), main];
        build_cache::compile_from(command, (TOOL, self.project), (&inputs, &runtime), progress).await?;
        Ok(runtime)
    }

    /// Writes the main module of the component into a folder, and returns the folder.
    fn write_main(&self, folder: &Path, text: &str) -> Result<PathBuf, BuildError> {
        let path = folder.join(format!("{MAIN_MODULE}.py"));
        let text = format!("# Generated by `agent-host`: the main module of the component.\n{text}");
        let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, text));
        written.map_err(|source| BuildError::File { action: "cannot write", path, source })?;
        Ok(folder.to_owned())
    }

    /// Returns the command that builds a component from the modules in these folders, without the path of the component.
    fn command(&self, world: &World, folders: &[&Path]) -> Command {
        let mut command = self.toolchain.command(&self.program);
        // The SDK uses the full names of the interfaces, because short names depend on the other interfaces of the world.
        command.current_dir(self.project.directory()).arg("--full-names").arg("-d").arg(world.wit());
        command.args(["-w", &world.name, "componentize"]);
        for folder in folders {
            command.arg("-p").arg(std::path::absolute(folder).unwrap_or_else(|_| (*folder).to_owned()));
        }
        // componentize-py would add its own stack to the traceback of an error in the plugin.
        command.arg(MAIN_MODULE).env("RUST_BACKTRACE", "0").arg("-o");
        command
    }
}
