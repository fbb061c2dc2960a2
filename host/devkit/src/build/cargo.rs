//! Builds Rust projects with cargo: finds the projects that are members of the same workspace, and compiles the
//! projects of each workspace with one call of cargo.

use super::shared_target::{self, Claim};
use super::{BuildError, BuildProgress, Project, TARGET, Toolchain, process};
use crate::language::Language;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Name of cargo in messages to the user.
pub(super) const CARGO: &str = "cargo";

/// Maximum number of local packages whose dependencies are searched for further local packages.
const MAX_PACKAGES: usize = 200;

/// A cargo workspace and the projects to build in it.
pub(super) struct Workspace {
    pub(super) root: PathBuf,
    /// The workspace's target directory, to which cargo writes its output.
    pub(super) target: PathBuf,
    pub(super) members: Vec<Member>,
}

/// A project to build, which is a member of a cargo workspace.
pub(super) struct Member {
    /// Index of this project in the list of all projects to build.
    pub(super) project: usize,
    pub(super) package: String,
    /// Path of the project's `Cargo.toml`.
    pub(super) manifest: PathBuf,
    id: String,
}

/// The components that cargo compiled from the projects of one workspace. No other build overwrites the component
/// files while this value exists.
pub(super) struct Compiled {
    /// For each compiled project: the project's index in the list of all projects to build, and the
    /// path of its component.
    pub(super) files: Vec<(usize, PathBuf)>,
    _claim: Option<Claim>,
}

#[derive(Clone, Deserialize)]
struct Metadata {
    workspace_root: PathBuf,
    target_directory: PathBuf,
    packages: Vec<Package>,
}

#[derive(Clone, Deserialize)]
struct Package {
    name: String,
    id: String,
    manifest_path: PathBuf,
    targets: Vec<Target>,
    #[serde(default)]
    dependencies: Vec<Dependency>,
}

#[derive(Clone, Deserialize)]
struct Dependency {
    /// Folder of the package that a dependency refers to by path. `None` means that the dependency does not have a
    /// path, so the package comes from a registry or from git.
    path: Option<PathBuf>,
}

#[derive(Clone, Deserialize)]
struct Target {
    crate_types: Vec<String>,
}

#[derive(Deserialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
enum Message {
    CompilerArtifact {
        package_id: String,
        target: Target,
        filenames: Vec<PathBuf>,
    },
    #[serde(other)]
    Other,
}

/// Groups the Rust projects by workspace. Calls `cargo metadata` once per workspace.
pub(super) async fn workspaces(toolchain: &Toolchain, projects: &[Project]) -> Result<Vec<Workspace>, BuildError> {
    let mut known: BTreeMap<PathBuf, Package> = BTreeMap::new();
    let mut roots: BTreeMap<PathBuf, (PathBuf, PathBuf)> = BTreeMap::new();
    let mut workspaces: Vec<Workspace> = Vec::new();
    let rust_projects = projects.iter().enumerate().filter(|(_, project)| project.language() == Language::Rust);
    for (index, project) in rust_projects {
        let manifest = project.cargo_manifest();
        if !known.contains_key(&manifest) {
            let metadata = metadata(toolchain, &manifest).await?;
            for package in metadata.packages {
                let directories = (metadata.workspace_root.clone(), metadata.target_directory.clone());
                roots.insert(package.manifest_path.clone(), directories);
                known.insert(package.manifest_path.clone(), package);
            }
        }
        let (Some(package), Some((root, target))) = (known.get(&manifest), roots.get(&manifest)) else {
            return Err(BuildError::Metadata { manifest, messages: "the file contains no [package]".to_owned() });
        };
        if !package.targets.iter().any(is_component_library) {
            return Err(BuildError::NoLibrary { manifest });
        }
        let (name, id) = (package.name.clone(), package.id.clone());
        let member = Member { project: index, package: name, manifest, id };
        match workspaces.iter_mut().find(|workspace| workspace.root == *root) {
            Some(workspace) => workspace.members.push(member),
            None => workspaces.push(Workspace { root: root.clone(), target: target.clone(), members: vec![member] }),
        }
    }
    Ok(workspaces)
}

/// Compiles the projects of the workspace with one call of cargo.
pub(super) async fn compile(
    toolchain: &Toolchain,
    workspace: &Workspace,
    projects: &[Project],
    progress: &BuildProgress<'_>,
) -> Result<Compiled, BuildError> {
    let profile = plugin_profile(&workspace.root)?;
    let claim = shared_target::claim(toolchain, workspace, &profile, progress).await?;
    let mut command = toolchain.cargo(&workspace.root)?;
    command.args(["build", "--lib", "--target", TARGET]).args(&profile);
    command.args(["--message-format", "json-render-diagnostics"]);
    for member in &workspace.members {
        command.args(["--package", &member.package]);
    }
    let mut files = Vec::new();
    let on_line = |line: &str| files.extend(component_artifact(line, workspace));
    let (status, messages) = process::run(command, CARGO, progress, on_line).await?;
    if status.success() {
        files.sort();
        return Ok(Compiled { files, _claim: claim });
    }
    let names = workspace.members.iter().map(|member| projects[member.project].name().to_owned());
    Err(BuildError::Compile { tool: CARGO, plugins: names.collect(), messages: messages.text })
}

/// Settings of the cargo profile `plugin` for workspaces that do not define this profile. The settings produce small
/// code without unwinding.
const PLUGIN_PROFILE: &[&str] =
    &["inherits=\"release\"", "opt-level=\"s\"", "lto=true", "codegen-units=1", "panic=\"abort\"", "strip=true"];

/// Finds the sources that the projects depend on and that are outside the folders of the projects: the folders of
/// other local packages, and the manifests of the projects' workspaces. Projects that cargo cannot read are skipped,
/// because the build reports them.
pub(super) async fn local_dependencies(toolchain: &Toolchain, projects: &[Project]) -> BTreeSet<PathBuf> {
    let mut known: BTreeMap<PathBuf, Package> = BTreeMap::new();
    let (mut found, mut seen) = (BTreeSet::new(), BTreeSet::new());
    let rust_projects = projects.iter().filter(|project| project.language() == Language::Rust);
    let mut pending: Vec<PathBuf> = rust_projects.map(|project| project.directory().to_owned()).collect();
    while let Some(folder) = pending.pop().filter(|_| seen.len() < MAX_PACKAGES) {
        if !seen.insert(folder.clone()) {
            continue;
        }
        let manifest = folder.join("Cargo.toml");
        if !known.contains_key(&manifest)
            && let Ok(metadata) = metadata(toolchain, &manifest).await
        {
            found.insert(metadata.workspace_root.join("Cargo.toml"));
            known.extend(metadata.packages.into_iter().map(|package| (package.manifest_path.clone(), package)));
        }
        let dependencies = known.get(&manifest).into_iter().flat_map(|package| &package.dependencies);
        let paths: Vec<_> = dependencies.filter_map(|dependency| dependency.path.clone()).collect();
        found.extend(paths.iter().cloned());
        pending.extend(paths);
    }
    found
}

async fn metadata(toolchain: &Toolchain, manifest: &Path) -> Result<Metadata, BuildError> {
    let manifest = manifest.to_owned();
    let mut command = toolchain.cargo(manifest.parent().unwrap_or(Path::new(".")))?;
    let program = command.as_std().get_program().into();
    command.args(["metadata", "--no-deps", "--format-version", "1", "--manifest-path"]).arg(&manifest);
    let output = command.output().await.map_err(|source| BuildError::Start { program, source })?;
    if !output.status.success() {
        let messages = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
        return Err(BuildError::Metadata { manifest, messages });
    }
    serde_json::from_slice(&output.stdout).map_err(|error| BuildError::Metadata {
        manifest,
        messages: format!("cargo returned unexpected metadata: {error}"),
    })
}

/// Returns cargo's arguments that select the profile for plugins.
fn plugin_profile(root: &Path) -> Result<Vec<String>, BuildError> {
    let mut arguments = vec!["--profile".to_owned(), "plugin".to_owned()];
    if !has_plugin_profile(root)? {
        for setting in PLUGIN_PROFILE {
            arguments.extend(["--config".to_owned(), format!("profile.plugin.{setting}")]);
        }
    }
    Ok(arguments)
}

fn has_plugin_profile(root: &Path) -> Result<bool, BuildError> {
    let path = root.join("Cargo.toml");
    let text = std::fs::read_to_string(&path).map_err(|source| BuildError::File {
        action: "cannot read",
        path: path.clone(),
        source,
    })?;
    let manifest: toml::Table =
        toml::from_str(&text).map_err(|error| BuildError::Metadata { manifest: path, messages: error.to_string() })?;
    Ok(manifest.get("profile").and_then(|profile| profile.get("plugin")).is_some())
}

fn is_component_library(target: &Target) -> bool {
    target.crate_types.iter().any(|kind| kind == "cdylib")
}

/// Parses a line of cargo's JSON messages. If the line reports the component of a workspace member, returns the index
/// of the member's project and the path of the component, otherwise None.
fn component_artifact(line: &str, workspace: &Workspace) -> Option<(usize, PathBuf)> {
    let Ok(Message::CompilerArtifact { package_id, target, filenames }) = serde_json::from_str(line) else {
        return None;
    };
    let member = workspace.members.iter().find(|member| member.id == package_id)?;
    let file = filenames.into_iter().find(|file| file.extension().is_some_and(|extension| extension == "wasm"))?;
    is_component_library(&target).then_some((member.project, file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_only_components_of_workspace_members() {
        let workspace = Workspace {
            root: "/w".into(),
            target: "/t".into(),
            members: vec![Member {
                project: 7,
                package: "calc".into(),
                manifest: "/w/calc/Cargo.toml".into(),
                id: "path+file:///w/calc#0.1.0".into(),
            }],
        };
        let line = |id: &str, kind: &str, file: &str| {
            serde_json::json!({
                "reason": "compiler-artifact", "package_id": id, "filenames": [file, "/t/libcalc.rlib"],
                "target": {"name": "calc", "kind": [kind], "crate_types": [kind, "rlib"]}, "fresh": true,
            })
            .to_string()
        };
        let member_id = "path+file:///w/calc#0.1.0";
        assert_eq!(
            component_artifact(&line(member_id, "cdylib", "/t/calc.wasm"), &workspace),
            Some((7, PathBuf::from("/t/calc.wasm")))
        );
        assert_eq!(component_artifact(&line("registry#serde", "cdylib", "/t/serde.wasm"), &workspace), None);
        assert_eq!(component_artifact(&line(member_id, "lib", "/t/calc.wasm"), &workspace), None);
        assert_eq!(component_artifact(&line(member_id, "cdylib", "/t/calc.so"), &workspace), None);
        assert_eq!(component_artifact(r#"{"reason":"build-finished","success":true}"#, &workspace), None);
        assert_eq!(component_artifact("not JSON", &workspace), None);
    }
}
