//! Builds C projects with Zig's compiler or the clang of a wasi-sdk: generates bindings from the world, compiles a core
//! module, and converts the module to a component.

use super::contract::World;
use super::python::{in_project, packages};
use super::{BuildError, BuildProgress, Project, Purpose, Toolchain, process};
use crate::embedded;
use crate::project::is_c_source;
use std::path::{Path, PathBuf};
use tokio::process::Command;
use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER,
};
use wit_bindgen_core::Files;
use wit_component::ComponentEncoder;

/// Name of the SDK's header, which includes the other headers of the SDK.
const SDK_HEADER: &str = "agent_host.h";
/// Name of the world for which the SDK's headers are written, because the generated names contain the name of the world.
const SDK_WORLD: &str = "plugin";
/// The Python package with the tested version of Zig.
const PACKAGE: &str = "ziglang==0.17.1";

/// Builds the component of the project and returns the path of the component.
pub(super) async fn compile(
    toolchain: &Toolchain,
    project: &Project,
    progress: &BuildProgress<'_>,
) -> Result<PathBuf, BuildError> {
    let folder = project.build_folder()?;
    let compiler = compiler(toolchain, project)?;
    let sources = sources(project)?;
    let world = match uses_sdk(&sources) {
        true => World::of_sdk(project, &folder.join("wit"), Purpose::Release)?,
        false => World::of(project)?,
    };
    let bindings = bindings(world, &folder.join("bindings"))?;
    let module = folder.join("module.wasm");
    let (mut command, tool) = compiler;
    command.current_dir(project.directory()).env("ZIG_LOCAL_CACHE_DIR", folder.join("zig-cache"));
    // The stack has 1 MiB, because Zig's default of 16 MiB would be a quarter of the memory that a call may use.
    command.args(["-mexec-model=reactor", "-Os", "-Wl,-z,stack-size=1048576", "-I"]).arg(folder.join("bindings"));
    command.args(sources).args(bindings).arg("-o").arg(&module);
    process::compile(command, (tool, project.name()), progress).await?;
    let component = component(project, &module)?;
    let path = folder.join("component.wasm");
    std::fs::write(&path, component).map_err(|source| BuildError::File {
        action: "cannot write",
        path: path.clone(),
        source,
    })?;
    Ok(path)
}

/// Returns the beginning of the compiler's command line, and the name of the compiler for messages.
fn compiler(toolchain: &Toolchain, project: &Project) -> Result<(Command, &'static str), BuildError> {
    let tools = &toolchain.tools;
    if let Some(sdk) = tools.named.get("WASI_SDK_PATH").filter(|_| !tools.named.contains_key("ZIG")) {
        let mut command = toolchain.command(sdk.join("bin").join(format!("clang{}", std::env::consts::EXE_SUFFIX)));
        command.arg("--target=wasm32-wasip1");
        return Ok((command, "clang"));
    }
    let zig =
        tools.find("ZIG", &["python-zig", "zig"], project.directory()).ok_or_else(|| BuildError::MissingTool {
            tool: "zig",
            language: project.language(),
            variable: "ZIG (or, for a wasi-sdk, WASI_SDK_PATH)",
            install: in_project(
                project,
                &format!("python3 -m venv .venv && .venv/bin/pip install {}", packages(project, PACKAGE)),
            ),
        })?;
    let mut command = toolchain.command(zig);
    command.args(["cc", "-target", "wasm32-wasi"]);
    Ok((command, "zig cc"))
}

/// Returns all C files in the folder of the sources, except tests.
fn sources(project: &Project) -> Result<Vec<PathBuf>, BuildError> {
    let folder = match &project.build().source {
        Some(_) => project.source("")?,
        None => project.directory().to_owned(),
    };
    let failed = |source| BuildError::File { action: "cannot read", path: folder.clone(), source };
    let mut sources = Vec::new();
    for entry in std::fs::read_dir(&folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if is_c_source(&path) {
            sources.push(path);
        }
    }
    sources.sort();
    Ok(sources)
}

/// Whether one of the sources includes the header of the SDK.
fn uses_sdk(sources: &[PathBuf]) -> bool {
    sources.iter().any(|path| std::fs::read_to_string(path).is_ok_and(|text| text.contains(SDK_HEADER)))
}

/// Generates bindings for the world and writes them to `folder`, together with the SDK's headers. Returns the paths of the
/// files that must be compiled.
fn bindings(mut world: World, folder: &Path) -> Result<Vec<PathBuf>, BuildError> {
    let wit_error = |reason: String| BuildError::Wit { path: world.wit.clone(), reason };
    let mut files = Files::default();
    let mut generator = wit_bindgen_c::Opts::default().build();
    let generated = generator.generate(&mut world.resolve, world.id, &mut files);
    generated.map_err(|error| wit_error(format!("C bindings cannot be generated from this WIT: {error:#}")))?;
    if world.name == SDK_WORLD {
        for (name, text) in embedded::below("sdk/c/").filter(|(name, _)| name.ends_with(".h")) {
            files.push(name, text.as_bytes());
        }
    }
    let mut compiled = Vec::new();
    for (name, content) in files.iter() {
        let path = folder.join(name);
        let is_current = std::fs::read(&path).is_ok_and(|current| current == content);
        let written = if is_current {
            Ok(())
        } else {
            let created = path.parent().map_or(Ok(()), std::fs::create_dir_all);
            created.and_then(|()| std::fs::write(&path, content))
        };
        written.map_err(|source| BuildError::File { action: "cannot write", path: path.clone(), source })?;
        if path.extension().is_some_and(|extension| extension != "h") {
            compiled.push(path);
        }
    }
    Ok(compiled)
}

/// Converts a core module to a component that uses WASI 0.2 through the preview 1 adapter.
fn component(project: &Project, module: &Path) -> Result<Vec<u8>, BuildError> {
    let bytes = std::fs::read(module).map_err(|source| BuildError::File {
        action: "cannot read",
        path: module.to_owned(),
        source,
    })?;
    let (adapter_name, adapter) = (WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER);
    let mut encoder = ComponentEncoder::default();
    let prepared = encoder.validate(true).module(&bytes).and_then(|encoder| encoder.adapter(adapter_name, adapter));
    let encoded = prepared.and_then(ComponentEncoder::encode);
    encoded.map_err(|error| BuildError::NotAComponent {
        name: project.name().to_owned(),
        reason: format!("the compiler's output cannot be converted to a component: {error:#}"),
    })
}
