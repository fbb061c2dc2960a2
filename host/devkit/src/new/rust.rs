//! What a new project in Rust builds on: the SDK of its workspace, one that lies elsewhere, or the one that this binary carries,
//! with the versions of crates that it was built with.

use super::workspace::WorkspaceSdk;
use super::{NewError, NewProject, Place, ProjectFile, ProjectKind, SAMPLE, Sdk};
use crate::carried;
use crate::vendored::{self, SDK_FOLDER};
use std::path::Path;
use toml::{Table, Value};

/// Says of the SDK's folder what it is.
const ABOUT: &str = "agent-host.md";
/// What templates of tools depend on beside the SDK.
const FOR_TOOLS: [(&str, &str); 2] = [("schemars", "\"1\""), ("serde", "{ version = \"1\", features = [\"derive\"] }")];

/// Adds `Cargo.toml`, and the SDK with a `Cargo.lock` where it is carried.
pub(super) fn add(project: &NewProject, files: &mut Vec<ProjectFile>) -> Result<(), NewError> {
    // What lies in the folder of the template itself has its place elsewhere.
    files.retain(|(name, _)| name != ABOUT);
    let place = Place::of(&project.directory, &project.name)?;
    let sdk = match (&project.sdk, &place) {
        (Sdk::At(path), _) => format!("{{ path = {} }}", Value::String(found(path)?)),
        (Sdk::Carried, Place::Member { sdk: WorkspaceSdk::Named }) => "{ workspace = true }".to_owned(),
        (Sdk::Carried, _) => {
            let sdk = sdk_files()?;
            let list = vendored::list(sdk.iter().cloned());
            let below = sdk.into_iter().chain([(vendored::LIST.to_owned(), list)]);
            files.extend(below.map(|(name, text)| (format!("{SDK_FOLDER}/{name}"), text)));
            format!("{{ path = \"{SDK_FOLDER}/sdk\" }}")
        }
    };
    if place == Place::Alone {
        files.push(("Cargo.lock".to_owned(), lock(project)));
    }
    files.push(("Cargo.toml".to_owned(), manifest(project, &place, &sdk)));
    Ok(())
}

/// The folder of an SDK, whole: as it was named, or within a checkout that was named.
fn found(path: &Path) -> Result<String, NewError> {
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

fn manifest(project: &NewProject, place: &Place, sdk: &str) -> String {
    let mut text = format!(
        "[package]\nname = \"{}\"\nversion = \"0.1.0\"\nedition = \"2024\"\npublish = false\n\n[lib]\n# The component, and a \
         library for the tests.\ncrate-type = [\"cdylib\", \"rlib\"]\n\n[dependencies]\nagent-host-sdk = {sdk}\n",
        project.name
    );
    for (name, version) in dependencies(project.kind) {
        text.push_str(&format!("{name} = {version}\n"));
    }
    if *place == Place::Alone {
        text.push_str("\n# A workspace of its own, whatever folder it lies in.\n[workspace]\n");
    }
    text
}

fn dependencies(kind: ProjectKind) -> &'static [(&'static str, &'static str)] {
    if kind == ProjectKind::Tool { &FOR_TOOLS } else { &[] }
}

/// The SDK and its contract, as they lie to each other here, by their paths in one folder.
pub(super) fn sdk_files() -> Result<Vec<ProjectFile>, NewError> {
    let about = carried::file(&format!("host/devkit/templates/rust/all/{ABOUT}"));
    let mut files = vec![("README.md".to_owned(), about.to_owned())];
    for manifest in ["sdk/Cargo.toml", "sdk/bindings/Cargo.toml"] {
        files.push((manifest.to_owned(), alone(carried::file(manifest))?));
    }
    files.push(("sdk/README.md".to_owned(), carried::file("sdk/README.md").to_owned()));
    for folder in ["sdk/src/", "sdk/bindings/src/", "sdk/wit/", "wit/"] {
        let below = carried::below(folder).filter(|(name, _)| !name.ends_with(".md"));
        files.extend(below.map(|(name, text)| (format!("{folder}{name}"), text.to_owned())));
    }
    Ok(files)
}

/// A manifest of the SDK without the workspace of this checkout: what it has from there stands in it.
fn alone(text: &str) -> Result<String, NewError> {
    let read = |text: &str| text.parse::<Table>().map_err(|error| NewError::Carried { reason: error.to_string() });
    let (mut manifest, top) = (read(text)?, read(carried::file("Cargo.toml"))?);
    let none = Table::new();
    let workspace = top.get("workspace").and_then(Value::as_table).unwrap_or(&none);
    let shared = |key: &str| workspace.get(key).and_then(Value::as_table).unwrap_or(&none);
    // Its own tests are not carried.
    manifest.remove("dev-dependencies");
    manifest.remove("lints");
    if let Some(package) = manifest.get_mut("package").and_then(Value::as_table_mut) {
        inherit(package, shared("package"));
    }
    let inherit_dependencies = |table: &mut Table| {
        table
            .get_mut("dependencies")
            .and_then(Value::as_table_mut)
            .into_iter()
            .for_each(|table| inherit(table, shared("dependencies")));
    };
    inherit_dependencies(&mut manifest);
    let targets = manifest.get_mut("target").and_then(Value::as_table_mut);
    targets
        .into_iter()
        .flat_map(|targets| targets.iter_mut())
        .filter_map(|(_, target)| target.as_table_mut())
        .for_each(inherit_dependencies);
    toml::to_string(&manifest).map_err(|error| NewError::Carried { reason: error.to_string() })
}

/// Puts what the workspace says in place of `workspace = true`.
fn inherit(table: &mut Table, shared: &Table) {
    for (key, value) in table.iter_mut() {
        if value.get("workspace") == Some(&Value::Boolean(true))
            && let Some(inherited) = shared.get(key)
        {
            *value = inherited.clone();
        }
    }
}

/// What cargo itself has written for a project made of the templates, so that it has nothing to change there.
const LOCK: &str = "host/devkit/templates/rust/Cargo.lock";
const PACKAGE: &str = "\n[[package]]\n";

/// The versions with which the SDK is built here, so that a new project is built with the same.
fn lock(project: &NewProject) -> String {
    let text = carried::file(LOCK);
    let mut packages: Vec<String> = text.split(PACKAGE).map(str::to_owned).collect();
    let head = packages.remove(0);
    let sample = format!("name = \"{SAMPLE}\"\n");
    packages.retain(|package| !package.starts_with(&sample));
    packages.push(package_of(project));
    // By name, then version, as the first lines of each have them.
    packages.sort();
    let packages: Vec<&str> = packages.iter().map(|package| package.trim_end()).collect();
    let between = format!("\n{PACKAGE}");
    format!("{}{between}{}\n", head.trim_end(), packages.join(&between))
}

/// The project as cargo locks it.
fn package_of(project: &NewProject) -> String {
    let names = dependencies(project.kind).iter().map(|(name, _)| *name);
    let dependencies: String =
        std::iter::once("agent-host-sdk").chain(names).map(|name| format!(" \"{name}\",\n")).collect();
    format!("name = \"{}\"\nversion = \"0.1.0\"\ndependencies = [\n{dependencies}]\n", project.name)
}
