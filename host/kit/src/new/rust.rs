//! What a new project in Rust builds on: the SDK of its workspace, one that lies elsewhere, or the one that this binary carries,
//! with the versions of crates that it was built with.

use super::workspace::WorkspaceSdk;
use super::{NewError, NewProject, Place, ProjectFile, ProjectKind, Sdk};
use crate::carried;
use crate::vendored::{self, SDK_FOLDER};
use std::collections::{BTreeMap, BTreeSet};
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
        files.push(("Cargo.lock".to_owned(), lock(project)?));
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
    let about = carried::file(&format!("host/kit/templates/rust/all/{ABOUT}"));
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

/// One `[[package]]` of a lock file.
type Package = Table;

/// The versions with which the SDK is built here, so that a new project is built with the same; Cargo leaves out what the project
/// does not need.
fn lock(project: &NewProject) -> Result<String, NewError> {
    let bad = |reason: String| NewError::Carried { reason };
    let mut lock: Table =
        carried::file("Cargo.lock").parse().map_err(|error: toml::de::Error| bad(error.to_string()))?;
    let packages = lock.get("package").and_then(Value::as_array).cloned().unwrap_or_default();
    let packages: Vec<Package> = packages.into_iter().filter_map(|package| package.try_into().ok()).collect();
    let mut known: BTreeMap<String, Vec<Package>> = BTreeMap::new();
    packages.into_iter().for_each(|package| known.entry(text(&package, "name")).or_default().push(package));
    let mut needed = vec!["agent-host-sdk".to_owned()];
    needed.extend(dependencies(project.kind).iter().map(|(name, _)| (*name).to_owned()));
    let own = needed.clone();
    let mut taken: BTreeSet<(String, String)> = BTreeSet::new();
    let mut kept: Vec<Package> = Vec::new();
    while let Some(wanted) = needed.pop() {
        let package = one(&known, &wanted).ok_or_else(|| bad(format!("its Cargo.lock has no `{wanted}`")))?;
        if taken.insert((text(package, "name"), text(package, "version"))) {
            let dependencies = dependencies_of(package);
            needed.extend(dependencies.iter().cloned());
            let mut package = package.clone();
            if package.contains_key("dependencies") {
                let dependencies = dependencies.into_iter().map(Value::String).collect();
                package.insert("dependencies".to_owned(), Value::Array(dependencies));
            }
            kept.push(package);
        }
    }
    kept.push(package_of(project, own));
    kept.sort_by_key(|package| (text(package, "name"), text(package, "version")));
    lock.insert("package".to_owned(), Value::Array(kept.into_iter().map(Value::Table).collect()));
    let lock = toml::to_string(&lock).map_err(|error| bad(error.to_string()))?;
    Ok(format!("# This file is automatically @generated by Cargo.\n# It is not intended for manual editing.\n{lock}"))
}

fn text(package: &Package, key: &str) -> String {
    package.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// What generates bindings, which the SDK has as they were generated.
const GENERATES: &str = "wit-bindgen-rust-macro";

/// The SDK's own tests are not carried, and so what only they need is not either.
fn dependencies_of(package: &Package) -> Vec<String> {
    let names = package.get("dependencies").and_then(Value::as_array).into_iter().flatten();
    let names = names.filter_map(Value::as_str).map(str::to_owned);
    if text(package, "name") != "agent-host-sdk" {
        return names.filter(|name| name != GENERATES).collect();
    }
    let manifest: Table = carried::file("sdk/Cargo.toml").parse().unwrap_or_default();
    let of_tests = manifest.get("dev-dependencies").and_then(Value::as_table);
    names.filter(|name| !of_tests.is_some_and(|table| table.contains_key(name))).collect()
}

/// `NAME`, or `NAME VERSION` where there are several.
fn one<'p>(known: &'p BTreeMap<String, Vec<Package>>, wanted: &str) -> Option<&'p Package> {
    let mut words = wanted.split(' ');
    let packages = known.get(words.next()?)?;
    match words.next() {
        Some(version) => packages.iter().find(|package| text(package, "version") == version),
        None => packages.first(),
    }
}

fn package_of(project: &NewProject, mut dependencies: Vec<String>) -> Package {
    dependencies.sort();
    let dependencies = dependencies.into_iter().map(Value::String).collect();
    [
        ("name".to_owned(), Value::String(project.name.clone())),
        ("version".to_owned(), Value::String("0.1.0".to_owned())),
        ("dependencies".to_owned(), Value::Array(dependencies)),
    ]
    .into_iter()
    .collect()
}
