//! Prepares the SDKs for new projects: adds the contract, and changes the manifests of the Rust SDK so that they need no
//! workspace.

use super::{ProjectFile, below, file, standard_wit_files};
use toml::{Table, Value};

/// Name of the template for the README in the SDK's folder. Each language with an SDK has a template file in its folder with
/// templates.
pub(crate) const SDK_README_TEMPLATE: &str = "agent-host.md";

/// The reason why a manifest that is embedded in this binary cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub(crate) struct EmbedError {
    reason: String,
}

/// Returns the files of the Rust SDK and the contract, each with its path relative to the SDK's folder in a project.
pub(crate) fn sdk_files() -> Result<Vec<ProjectFile>, EmbedError> {
    let about = file(&format!("host/devkit/templates/rust/all/{SDK_README_TEMPLATE}"));
    let mut files = vec![("README.md".to_owned(), about.to_owned())];
    for manifest in ["sdk/Cargo.toml", "sdk/bindings/Cargo.toml"] {
        files.push((manifest.to_owned(), without_workspace(file(manifest))?));
    }
    files.push(("sdk/README.md".to_owned(), file("sdk/README.md").to_owned()));
    for folder in ["sdk/src/", "sdk/bindings/src/", "sdk/wit/", "wit/"] {
        let below = below(folder).filter(|(name, _)| !name.ends_with(".md"));
        files.extend(below.map(|(name, text)| (format!("{folder}{name}"), text.to_owned())));
    }
    Ok(files)
}

/// Returns the files of the Python SDK, each with its path relative to the package's folder in a project.
pub(crate) fn python_sdk_files() -> Vec<ProjectFile> {
    let about = file(&format!("host/devkit/templates/python/all/{SDK_README_TEMPLATE}"));
    let modules = below("sdk/python/agent_host_sdk/").map(|(name, text)| (name.to_owned(), text.to_owned()));
    std::iter::once(("README.md".to_owned(), about.to_owned())).chain(modules).collect()
}

/// Returns the files of the SDK for JavaScript and the contract, each with its path relative to the SDK's folder in a
/// project. The folder `wit` contains the contract and the standard interfaces that the SDK uses.
pub(crate) fn javascript_sdk_files() -> Vec<ProjectFile> {
    let sdk = below("sdk/javascript/").map(|(name, text)| (name.to_owned(), text.to_owned()));
    sdk.chain(standard_wit_files().into_iter().map(|(name, text)| (format!("wit/{name}"), text))).collect()
}

/// Returns a manifest of the SDK in which each reference to a value of the workspace is replaced by this value.
fn without_workspace(text: &str) -> Result<String, EmbedError> {
    let parse = |text: &str| text.parse::<Table>().map_err(|error| EmbedError { reason: error.to_string() });
    let (mut manifest, top) = (parse(text)?, parse(file("Cargo.toml"))?);
    let empty = Table::new();
    let workspace = top.get("workspace").and_then(Value::as_table).unwrap_or(&empty);
    let shared = |key: &str| workspace.get(key).and_then(Value::as_table).unwrap_or(&empty);
    // Dependencies for tests are removed, because the tests of the SDK are not embedded.
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
    toml::to_string(&manifest).map_err(|error| EmbedError { reason: error.to_string() })
}

/// Replaces `workspace = true` with the value that the workspace defines.
fn inherit(table: &mut Table, shared: &Table) {
    for (key, value) in table.iter_mut() {
        if value.get("workspace") == Some(&Value::Boolean(true))
            && let Some(inherited) = shared.get(key)
        {
            *value = inherited.clone();
        }
    }
}
