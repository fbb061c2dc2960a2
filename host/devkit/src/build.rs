//! Builds plugin projects with their languages' own toolchains: one cargo call per workspace, one `NAME.wasm` per project (S2).

mod c;
mod cargo;
mod component;
mod contract;
mod javascript;
mod process;
mod project;
mod python;
mod remembered;
mod shared_target;
mod toolchain;
mod tools;

pub use project::{BuildTable, Project, is_project, projects_in};
pub use toolchain::Toolchain;
pub use tools::{Tools, VARIABLES, program_in};

use crate::language::Language;
use crate::vendored::{self, OtherVersion};
use agent_core::message::Digest;
use std::path::{Path, PathBuf};

/// The target that guests are compiled for.
pub const TARGET: &str = "wasm32-wasip2";

/// A plugin that was built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuiltPlugin {
    /// The component file.
    pub path: PathBuf,
    /// From the manifest.
    pub name: String,
    /// From the manifest.
    pub version: String,
    /// Bytes of the component.
    pub size: u64,
    /// Of the component, manifest included.
    pub digest: Digest,
    /// Interfaces that the component imports, in its own order.
    pub imports: Vec<String>,
    /// Interfaces and functions that it exports, in its own order.
    pub exports: Vec<String>,
    /// Whether the file had to be written.
    pub written: Written,
}

/// Whether a build changed the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// The component is new or differs from the file that was there.
    Changed,
    /// The file held exactly this component; it was not touched.
    Unchanged,
}

/// What a build tells while it runs.
#[derive(Clone, Debug)]
pub enum BuildEvent<'a> {
    /// A toolchain is about to be called: cargo for a whole workspace, others for one plugin.
    Building {
        /// What is called.
        tool: &'a str,
        /// Names of the plugins, in order.
        plugins: Vec<&'a str>,
    },
    /// The Rust target is missing and is being added with rustup.
    AddingTarget {
        /// The command, as a person would type it.
        command: &'a str,
    },
    /// A line of the toolchain's own output.
    Line {
        /// Whose.
        tool: &'a str,
        /// At most 4 KiB, without its line end.
        line: &'a str,
    },
    /// A project has the SDK, or the contract, of another agent-host. It is built with what it has.
    OtherVersion(&'a OtherVersion),
    /// A component is in place.
    Built(&'a BuiltPlugin),
}

/// Listens to a build. Called from the task that builds, so it should return soon.
pub type BuildProgress<'a> = dyn Fn(BuildEvent<'_>) + Send + Sync + 'a;

/// Why a build failed, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A file or folder of the project could not be read or written.
    #[error("{action} {}: {source}", path.display())]
    File {
        /// What was tried, in words: `cannot read` …
        action: &'static str,
        /// Which.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// There is no such folder.
    #[error("there is no folder `{}`: {PROJECT}", path.display())]
    NoFolder {
        /// What was named.
        path: PathBuf,
    },
    /// It is something else than a folder.
    #[error("`{}` is no folder: {PROJECT}", path.display())]
    NotAFolder {
        /// What was named.
        path: PathBuf,
    },
    /// There is nothing to build.
    #[error("`{}` is no plugin project and holds none: {PROJECT}", path.display())]
    NoProject {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// There is a source without a manifest.
    #[error("`{}` has no `plugin.toml`: {PROJECT}", path.display())]
    NoManifest {
        /// The folder.
        path: PathBuf,
    },
    /// There is a manifest without a source.
    #[error("`{}` has nothing to build beside its plugin.toml: {PROJECT}", path.display())]
    NothingToBuild {
        /// The folder.
        path: PathBuf,
    },
    /// It is not clear in what it is written.
    #[error("`{}` has sources in {}: say in its plugin.toml which are the plugin's\n  [build]\n  language = \"{}\"",
        path.display(), listed(languages), languages.first().map_or("", |language| language.key()))]
    SeveralLanguages {
        /// The folder.
        path: PathBuf,
        /// Those that were found.
        languages: Vec<Language>,
    },
    /// Its source is not where it should be.
    #[error("there is no `{}`; where it is elsewhere, say so in plugin.toml: [build] source = \"…\"", path.display())]
    NoSource {
        /// What should be there.
        path: PathBuf,
    },
    /// The WIT that it implements cannot be used.
    #[error("the WIT in {}: {reason}", path.display())]
    Wit {
        /// The folder.
        path: PathBuf,
        /// Why not, and where.
        reason: String,
    },
    /// A tool of the toolchain is nowhere.
    #[error(
        "`{tool}` builds plugins in {language}, and was found neither in the project nor on the PATH; install it with\n  \
             {install}\nor name yours by {variable}"
    )]
    MissingTool {
        /// Which.
        tool: &'static str,
        /// What it is needed for.
        language: Language,
        /// What names it.
        variable: &'static str,
        /// The command.
        install: String,
    },
    /// There is no cargo.
    #[error("no cargo was found: install Rust from https://rustup.rs, or set CARGO to your cargo")]
    NoCargo,
    /// The manifest cannot be used; the message names file, line and key.
    #[error("{message}")]
    Manifest {
        /// For people.
        message: String,
    },
    /// Two projects would write the same file.
    #[error("two plugin projects are named `{name}`: {} and {}; rename one in its plugin.toml",
        first.display(), second.display())]
    SameName {
        /// The manifest's name.
        name: String,
        /// A project's folder.
        first: PathBuf,
        /// The other's.
        second: PathBuf,
    },
    /// A program of the toolchain could not be started.
    #[error("cannot start {}: {source}; {}", program.display(), start_advice(program))]
    Start {
        /// Which.
        program: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The Rust target is missing and cannot be added.
    #[error("the Rust target {TARGET} is missing and could not be added: {reason}")]
    Target {
        /// Why not, and what to do.
        reason: String,
    },
    /// Cargo does not accept the project.
    #[error("cargo cannot read {}:\n{messages}", manifest.display())]
    Metadata {
        /// The project's Cargo.toml.
        manifest: PathBuf,
        /// Cargo's own words.
        messages: String,
    },
    /// The crate makes no component.
    #[error("{} makes no component: it needs a library with\n  [lib]\n  crate-type = [\"cdylib\", \"rlib\"]",
        manifest.display())]
    NoLibrary {
        /// The project's Cargo.toml.
        manifest: PathBuf,
    },
    /// The compiler found errors.
    #[error("{tool} could not build {}:\n{messages}", plugins.join(", "))]
    Compile {
        /// Whose errors they are.
        tool: &'static str,
        /// Names of the plugins that were being built.
        plugins: Vec<String>,
        /// The rendered compiler messages, the last 64 KiB of them.
        messages: String,
    },
    /// What came out is no component.
    #[error("plugin `{name}`: {reason}")]
    NotAComponent {
        /// The manifest's name.
        name: String,
        /// What it is instead.
        reason: String,
    },
}

/// What a project is, for those who have none.
const PROJECT: &str = "a plugin project is a folder with `plugin.toml` and a source, that is `Cargo.toml` (Rust), `app.py` \
                       (Python), `app.js` (JavaScript) or `*.c` (C); `agent-host plugin new NAME` makes one";

fn listed(languages: &[Language]) -> String {
    languages.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
}

fn start_advice(program: &Path) -> &'static str {
    match program.file_stem().and_then(std::ffi::OsStr::to_str) {
        Some("cargo" | "rustc" | "rustup") => "install Rust from https://rustup.rs, or set CARGO to your cargo",
        _ => "is it whole, and made for this machine?",
    }
}

/// Builds one project and writes `OUT/NAME.wasm`. Dropping the future stops the toolchain.
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

/// Builds the project that `directory` is, or all projects that it holds, and writes `OUT/NAME.wasm` for each.
pub async fn build_directory(
    toolchain: &Toolchain,
    directory: &Path,
    out: &Path,
    progress: &BuildProgress<'_>,
) -> Result<Vec<BuiltPlugin>, BuildError> {
    build_projects(toolchain, &projects_at(directory)?, out, progress).await
}

/// The project that the folder is, or all that it holds.
pub fn projects_at(directory: &Path) -> Result<Vec<Project>, BuildError> {
    let projects =
        if project::is_project(directory) { vec![Project::read(directory)?] } else { projects_in(directory)? };
    if projects.is_empty() { Err(project::no_project(directory)) } else { Ok(projects) }
}

/// All that these projects are built of on this machine: what lies in `directory`, and what lies elsewhere.
pub async fn sources(toolchain: &Toolchain, directory: &Path) -> Vec<PathBuf> {
    let mut sources = vec![directory.to_owned()];
    // What is no project the build says.
    let projects = projects_at(directory).unwrap_or_default();
    let mut elsewhere = cargo::elsewhere(toolchain, &projects).await;
    elsewhere.extend(projects.iter().flat_map(Project::named_paths));
    let own = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let elsewhere = elsewhere.into_iter().filter_map(|path| path.canonicalize().ok());
    sources.extend(elsewhere.filter(|path| !path.starts_with(&own)));
    sources
}

/// Builds these projects, those of one cargo workspace in one call, and writes `OUT/NAME.wasm` for each, in order.
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
        if let Some(other) = vendored::other_version(project) {
            progress(BuildEvent::OtherVersion(&other));
        }
    }
    let mut built = vec![None; projects.len()];
    let finish = |index: usize, made: &Path| {
        let plugin = component::finish(&projects[index], made, out)?;
        progress(BuildEvent::Built(&plugin));
        Ok(Some(plugin))
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
            let made = compile(toolchain, project, progress).await?;
            built[index] = finish(index, &made)?;
        }
    }
    Ok(built.into_iter().flatten().collect())
}

/// Makes the component of a project that has its toolchain to itself.
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
