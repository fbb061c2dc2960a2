//! Builds plugin projects with the toolchains of their languages (S2). Calls cargo once per workspace, and writes one
//! `NAME.wasm` per project.

mod build_cache;
mod c;
mod cargo;
mod component;
mod contract;
mod javascript;
mod lock;
mod process;
mod python;
mod shared_target;
mod toolchain;
mod tools;

pub use crate::project::{BuildTable, Project, ProjectError, is_project, projects_at, projects_in};
pub use toolchain::{Purpose, Toolchain};
pub use tools::{Tools, VARIABLES, program_in};

use crate::language::Language;
use crate::project;
use crate::renew::{self, VersionMismatch};
use agent_core::message::Digest;
use std::path::{Path, PathBuf};

/// The Rust target that plugins are compiled for, as a target triple.
pub const TARGET: &str = "wasm32-wasip2";

/// The result of building one plugin project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuiltPlugin {
    /// Path of the component file.
    pub path: PathBuf,
    /// Name of the plugin as written in its manifest.
    pub name: String,
    /// Version of the plugin as written in its manifest; empty if the manifest contains no version.
    pub version: String,
    /// Size of the component in bytes.
    pub size: u64,
    /// Digest of the component file, which includes the embedded manifest.
    pub digest: Digest,
    /// Names of the interfaces that the component imports, in the order in which the component lists them.
    pub imports: Vec<String>,
    /// Names of the interfaces and functions that the component exports, in the order in which the
    /// component lists them.
    pub exports: Vec<String>,
    /// Whether this build changed the component file.
    pub written: Written,
}

/// Whether a build changed the component file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// The build created the component file, or replaced an existing file that had other content.
    Changed,
    /// The file already contained exactly this component and was not touched.
    Unchanged,
}

/// An event that a build reports while it runs.
#[derive(Clone, Debug)]
pub enum BuildEvent<'a> {
    /// A toolchain is about to be called. Cargo is called once for a whole workspace; the other toolchains are called
    /// once for each plugin.
    Building {
        /// Name of the tool that is called.
        tool: &'a str,
        /// Names of the plugins that the tool builds, in the order of their projects.
        plugins: Vec<&'a str>,
    },
    /// The Rust target is missing, and rustup is about to add it.
    AddingTarget {
        /// The rustup command line that adds the target, as a user would type it in a shell.
        command: &'a str,
    },
    /// The toolchain printed a line.
    Line {
        /// Name of the tool that printed the line.
        tool: &'a str,
        /// The line without its line ending, cut to at most 4 KiB.
        line: &'a str,
    },
    /// A project contains a copy of the SDK or of the contract that another version of agent-host wrote. The build uses
    /// this older or newer copy and does not change the copy.
    VersionMismatch(&'a VersionMismatch),
    /// The component of a plugin has been built.
    Built(&'a BuiltPlugin),
}

/// A function that receives the events of a build. The build waits until the progress function returns, so the
/// function should return quickly.
pub type BuildProgress<'a> = dyn Fn(BuildEvent<'_>) + Send + Sync + 'a;

/// The reason why a build failed, with advice.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A file or folder could not be read or written.
    #[error("{action} {}: {source}", path.display())]
    File {
        /// Words that describe the failed action in the message, such as `cannot read`.
        action: &'static str,
        /// Path of the file or folder that could not be read or written.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The folder is not a plugin project that can be built.
    #[error(transparent)]
    Project(#[from] ProjectError),
    /// The WIT that the project implements cannot be used.
    #[error("the WIT in {}: {reason}", path.display())]
    Wit {
        /// Path of the folder that contains the WIT files.
        path: PathBuf,
        /// Description of the problem in the WIT, with file and line if they are known.
        reason: String,
    },
    /// A tool of the language's toolchain was not found.
    #[error(
        "`{tool}` builds plugins in {language}, but it was not found in the project or on the PATH; install it with\n  \
             {install}\nor set {variable} to its path"
    )]
    MissingTool {
        /// Name of the tool that was not found.
        tool: &'static str,
        /// Language of the project that cannot be built without the tool.
        language: Language,
        /// Environment variable in which a user can set the path of the tool.
        variable: &'static str,
        /// Command line that installs the tool.
        install: String,
    },
    /// Cargo was not found.
    #[error("cargo was not found: install Rust from https://rustup.rs, or set CARGO to the path of cargo")]
    NoCargo,
    /// A program of the toolchain could not be started.
    #[error("cannot start {}: {source}; {}", program.display(), start_advice(program))]
    Start {
        /// Path of the program that could not be started.
        program: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The Rust target is missing and could not be added.
    #[error("the Rust target {TARGET} is missing and could not be added: {reason}")]
    Target {
        /// Reason why the target could not be added, with advice on how to fix the problem.
        reason: String,
    },
    /// Cargo rejects the project's `Cargo.toml`.
    #[error("cargo cannot read {}:\n{messages}", manifest.display())]
    Metadata {
        /// Path of the project's `Cargo.toml`.
        manifest: PathBuf,
        /// The messages that cargo printed.
        messages: String,
    },
    /// The crate does not produce a component.
    #[error("{} does not produce a component: it needs a library with\n  [lib]\n  crate-type = [\"cdylib\", \"rlib\"]",
        manifest.display())]
    NoLibrary {
        /// Path of the project's `Cargo.toml`.
        manifest: PathBuf,
    },
    /// The compiler reported errors.
    #[error("{tool} could not build {}:\n{messages}", plugins.join(", "))]
    Compile {
        /// Name of the tool that failed.
        tool: &'static str,
        /// Names of the plugins that the tool was building.
        plugins: Vec<String>,
        /// The compiler's messages. If the messages exceed 64 KiB, the beginning is cut off.
        messages: String,
    },
    /// The toolchain's output is not a component.
    #[error("plugin `{name}`: {reason}")]
    NotAComponent {
        /// Name of the plugin as written in its manifest.
        name: String,
        /// Reason why the output is not a component.
        reason: String,
    },
}

fn start_advice(program: &Path) -> &'static str {
    match program.file_stem().and_then(std::ffi::OsStr::to_str) {
        Some("cargo" | "rustc" | "rustup") => "install Rust from https://rustup.rs, or set CARGO to the path of cargo",
        _ => "check that the file is complete and was built for this machine",
    }
}

/// Builds one project and writes `OUT/NAME.wasm`. Dropping the returned future stops the toolchain.
pub async fn build(
    toolchain: &Toolchain,
    project: &Path,
    out: &Path,
    progress: &BuildProgress<'_>,
) -> Result<BuiltPlugin, BuildError> {
    let project = Project::read(project)?;
    let mut built = build_projects(toolchain, &[project], out, progress).await?;
    Ok(built.remove(0))
}

/// Builds the project in `directory`, or, if `directory` is not a project, all projects directly below it. Writes
/// `OUT/NAME.wasm` for each project.
pub async fn build_directory(
    toolchain: &Toolchain,
    directory: &Path,
    out: &Path,
    progress: &BuildProgress<'_>,
) -> Result<Vec<BuiltPlugin>, BuildError> {
    build_projects(toolchain, &projects_at(directory)?, out, progress).await
}

/// Returns all local files and folders from which the projects in `directory` are built: `directory` itself, and
/// sources in other folders.
pub async fn sources(toolchain: &Toolchain, directory: &Path) -> Vec<PathBuf> {
    let mut sources = vec![directory.to_owned()];
    // If no project can be read, the error is ignored here, because the build reports it.
    let projects = projects_at(directory).unwrap_or_default();
    let mut external = cargo::local_dependencies(toolchain, &projects).await;
    external.extend(projects.iter().flat_map(Project::named_paths));
    let canonical = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let external = external.into_iter().filter_map(|path| path.canonicalize().ok());
    sources.extend(external.filter(|path| !path.starts_with(&canonical)));
    sources
}

/// Builds the projects and writes `OUT/NAME.wasm` for each project. Calls cargo once per workspace. The results are
/// in the order of `projects`.
pub async fn build_projects(
    toolchain: &Toolchain,
    projects: &[Project],
    out: &Path,
    progress: &BuildProgress<'_>,
) -> Result<Vec<BuiltPlugin>, BuildError> {
    project::check_names(projects)?;
    std::fs::create_dir_all(out).map_err(|source| BuildError::File {
        action: "cannot create",
        path: out.to_owned(),
        source,
    })?;
    for project in projects {
        if let Some(mismatch) = renew::version_mismatch(project) {
            progress(BuildEvent::VersionMismatch(&mismatch));
        }
    }
    let mut built = vec![None; projects.len()];
    let finish = |index: usize, compiled: &Path| {
        let plugin = component::finish(&projects[index], compiled, out)?;
        progress(BuildEvent::Built(&plugin));
        Ok::<_, BuildError>(Some(plugin))
    };
    for workspace in cargo::workspaces(toolchain, projects).await? {
        toolchain.ensure_target(&workspace.root, progress).await?;
        let plugins = workspace.members.iter().map(|member| projects[member.project].name()).collect();
        progress(BuildEvent::Building { tool: cargo::CARGO, plugins });
        let compiled = cargo::compile(toolchain, &workspace, projects, progress).await?;
        for (index, file) in &compiled.files {
            built[*index] = finish(*index, file)?;
        }
    }
    for (index, project) in projects.iter().enumerate() {
        if built[index].is_none() {
            let compiled = compile(toolchain, project, progress).await?;
            built[index] = finish(index, &compiled)?;
        }
    }
    Ok(built.into_iter().flatten().collect())
}

/// Compiles a project in a language other than Rust, and returns the path of its component. If the project is a Rust
/// project, returns an error: this function is called for a Rust project only if cargo has already run and has
/// produced no component.
async fn compile(
    toolchain: &Toolchain,
    project: &Project,
    progress: &BuildProgress<'_>,
) -> Result<PathBuf, BuildError> {
    let tool = match project.language() {
        Language::Rust => cargo::CARGO,
        Language::Python => "componentize-py",
        Language::JavaScript => "jco",
        Language::C => "the C compiler",
    };
    progress(BuildEvent::Building { tool, plugins: vec![project.name()] });
    match project.language() {
        Language::Rust => Err(BuildError::NoLibrary { manifest: project.cargo_manifest() }),
        Language::Python => python::compile(toolchain, project, progress).await,
        Language::JavaScript => javascript::compile(toolchain, project, progress).await,
        Language::C => c::compile(toolchain, project, progress).await,
    }
}
