//! Writes the manifest and the lock file of a new Rust project. The project uses the SDK of its workspace, an SDK in
//! another folder, or the SDK that is embedded in this binary.

use super::workspace::{CargoMembership, WorkspaceSdk};
use super::{NewError, NewProject, ProjectKind, SAMPLE_NAME, Sdk};
use crate::embedded::{self, ProjectFile, SDK_README_TEMPLATE, sdk_files};
use crate::file_list::SDK_FOLDER;
use std::path::Path;
use toml::{Table, Value};

/// Dependencies of a tool project in addition to the SDK.
const TOOL_DEPENDENCIES: [(&str, &str); 2] =
    [("schemars", "\"1\""), ("serde", "{ version = \"1\", features = [\"derive\"] }")];

/// Adds `Cargo.toml`. If the project uses the embedded SDK, this function also adds the SDK and a `Cargo.lock`.
pub(super) fn add(project: &NewProject, files: &mut Vec<ProjectFile>) -> Result<(), NewError> {
    // Skip the template `agent-host.md`, because `sdk_files` adds this template as the README in the SDK's folder.
    files.retain(|(name, _)| name != SDK_README_TEMPLATE);
    let membership = CargoMembership::of(&project.directory, &project.name)?;
    let sdk = match (&project.sdk, &membership) {
        (Sdk::At(path), _) => format!("{{ path = {} }}", Value::String(sdk_path(path)?)),
        (Sdk::Embedded, CargoMembership::Member { sdk: WorkspaceSdk::Declared }) => "{ workspace = true }".to_owned(),
        (Sdk::Embedded, _) => {
            let sdk = sdk_files().map_err(|error| NewError::Embedded { reason: error.to_string() })?;
            super::add_folder(SDK_FOLDER, sdk, files);
            format!("{{ path = \"{SDK_FOLDER}/sdk\" }}")
        }
    };
    if membership == CargoMembership::Standalone {
        files.push(("Cargo.lock".to_owned(), lock(project)));
    }
    files.push(("Cargo.toml".to_owned(), manifest(project, &membership, &sdk)));
    Ok(())
}

/// Returns the absolute path of the SDK. `path` is the folder of the SDK, or a checkout that contains this folder.
fn sdk_path(path: &Path) -> Result<String, NewError> {
    let is_sdk = |folder: &Path| {
        let text = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
        let manifest: Table = text.parse().unwrap_or_default();
        manifest.get("package").and_then(|package| package.get("name")).and_then(Value::as_str)
            == Some("agent-host-sdk")
    };
    let folders = [path.to_owned(), path.join("sdk")];
    let folder = folders.iter().find(|folder| is_sdk(folder)).and_then(|folder| folder.canonicalize().ok());
    let text = folder.and_then(|folder| folder.to_str().map(str::to_owned));
    text.ok_or_else(|| NewError::NoSdk { path: path.to_owned() })
}

fn manifest(project: &NewProject, membership: &CargoMembership, sdk: &str) -> String {
    let mut text = format!(
        "[package]\nname = \"{}\"\nversion = \"0.1.0\"\nedition = \"2024\"\npublish = false\n\n[lib]\n# cdylib for the component, rlib for \
         the tests.\ncrate-type = [\"cdylib\", \"rlib\"]\n\n[dependencies]\nagent-host-sdk = {sdk}\n",
        project.name
    );
    for (name, version) in dependencies(project.kind) {
        text.push_str(&format!("{name} = {version}\n"));
    }
    if *membership == CargoMembership::Standalone {
        text.push_str("\n# Keeps the project independent of workspaces in parent folders.\n[workspace]\n");
    }
    text
}

fn dependencies(kind: ProjectKind) -> &'static [(&'static str, &'static str)] {
    if kind == ProjectKind::Tool { &TOOL_DEPENDENCIES } else { &[] }
}

/// The template of the lock file. A new project gets a complete lock file, so cargo does not have to change it.
const LOCK: &str = "host/devkit/templates/rust/Cargo.lock";
/// The text before each entry of a lock file.
const ENTRY_START: &str = "\n[[package]]\n";

/// Returns the lock file of the project. The lock file contains the versions of the dependencies with which the SDK is
/// built in this checkout.
fn lock(project: &NewProject) -> String {
    let text = embedded::file(LOCK);
    let mut packages: Vec<String> = text.split(ENTRY_START).map(str::to_owned).collect();
    let head = packages.remove(0);
    let sample = format!("name = \"{SAMPLE_NAME}\"\n");
    packages.retain(|package| !package.starts_with(&sample));
    packages.push(package_of(project));
    // Each entry starts with its name and its version, so sorting the entries as text sorts them by name,
    // then by version.
    packages.sort();
    let packages: Vec<&str> = packages.iter().map(|package| package.trim_end()).collect();
    let separator = format!("\n{ENTRY_START}");
    format!("{}{separator}{}\n", head.trim_end(), packages.join(&separator))
}

/// Returns the entry of the project in its lock file.
fn package_of(project: &NewProject) -> String {
    let names = dependencies(project.kind).iter().map(|(name, _)| *name);
    let dependencies: String =
        std::iter::once("agent-host-sdk").chain(names).map(|name| format!(" \"{name}\",\n")).collect();
    format!("name = \"{}\"\nversion = \"0.1.0\"\ndependencies = [\n{dependencies}]\n", project.name)
}
