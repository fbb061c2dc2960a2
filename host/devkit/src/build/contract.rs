//! Loads the WIT world that a Python, JavaScript or C project implements.

use super::{BuildError, Project, Purpose};
use crate::embedded;
use std::path::{Path, PathBuf};
use wit_bindgen_core::wit_parser::{Resolve, WorldId};

/// Name of the contract's world that a project without its own WIT implements, unless plugin.toml sets another world.
const DEFAULT_WORLD: &str = "tool-plugin";

/// The worlds of the contract that a project can implement.
const WORLDS: [&str; 5] =
    [DEFAULT_WORLD, "context-builder-plugin", "step-context-plugin", "output-validator-plugin", "media-policy-plugin"];

/// The interface from which a development build gets its sources.
const SOURCES_WIT: &str =
    "package agent-host:development@0.1.0;\n\ninterface sources {\n  read: func() -> string;\n}\n";

/// The parsed WIT of a project.
pub(super) struct World {
    /// The folder that the WIT was read from, for tools that read the folder themselves.
    pub(super) wit: PathBuf,
    /// Name of the world that the project implements.
    pub(super) name: String,
    pub(super) resolve: Resolve,
    pub(super) id: WorldId,
}

impl World {
    /// Loads the project's own WIT, or the contract that is embedded in this binary if the project has no WIT.
    pub(super) fn of(project: &Project) -> Result<Self, BuildError> {
        let own = project.directory().join(project.build().wit.as_deref().unwrap_or("wit"));
        let world_name = project.build().world.as_deref();
        if own.exists() || project.build().wit.is_some() {
            return Self::read(own, world_name);
        }
        let contract = project.build_folder()?.join("wit");
        for (name, text) in embedded::below("wit/").filter(|(name, _)| name.ends_with(".wit") && !name.contains('/')) {
            let path = contract.join(name);
            let written = std::fs::create_dir_all(&contract).and_then(|()| std::fs::write(&path, text));
            written.map_err(|source| BuildError::File { action: "cannot write", path, source })?;
        }
        Self::read(contract, world_name.or(Some(DEFAULT_WORLD)))
    }

    /// Writes the world of a project with the Python SDK into a folder, unless the project has its own WIT. The world exports
    /// the kind of the plugin, and imports the interfaces for which the manifest requests permissions.
    pub(super) fn of_python_sdk(project: &Project, folder: &Path, purpose: Purpose) -> Result<Self, BuildError> {
        if project.has_own_wit() {
            let own = project.directory().join(project.build().wit.as_deref().unwrap_or("wit"));
            return Self::read(own, project.build().world.as_deref());
        }
        let name = project.build().world.as_deref().unwrap_or(DEFAULT_WORLD);
        if !WORLDS.contains(&name) {
            let reason = format!("the contract has no world `{name}`; its worlds are: {}", WORLDS.join(", "));
            return Err(BuildError::Wit { path: project.directory().join("plugin.toml"), reason });
        }
        let world = ("world.wit".to_owned(), python_world(project, name, purpose));
        let mut files = vec![world];
        files.extend(embedded::python_wit_files().into_iter().map(|(name, text)| (format!("deps/{name}"), text)));
        if purpose == Purpose::Development {
            files.push(("deps/agent-host-development/sources.wit".to_owned(), SOURCES_WIT.to_owned()));
        }
        let failed = |path: &Path| {
            let path = path.to_owned();
            |source| BuildError::File { action: "cannot write", path, source }
        };
        if folder.exists() {
            std::fs::remove_dir_all(folder).map_err(failed(folder))?;
        }
        for (name, text) in files {
            let path = folder.join(name);
            let created = path.parent().map_or(Ok(()), std::fs::create_dir_all);
            created.and_then(|()| std::fs::write(&path, text)).map_err(failed(&path))?;
        }
        Self::read(folder.to_owned(), None)
    }

    fn read(wit: PathBuf, world_name: Option<&str>) -> Result<Self, BuildError> {
        let wit_error = |reason: String| BuildError::Wit { path: wit.clone(), reason };
        let mut resolve = Resolve::default();
        let (package, _) = resolve.push_path(&wit).map_err(|error| wit_error(resolve.render_error(&error)))?;
        let id = resolve.select_world(&[package], world_name).map_err(|error| {
            let worlds = resolve.packages[package].worlds.keys().map(|name| format!("`{name}`")).collect::<Vec<_>>();
            wit_error(match (world_name, worlds.len()) {
                (_, 0) => "the WIT package contains no world".to_owned(),
                (Some(name), _) => {
                    format!("the WIT package contains no world `{name}`; it contains {}", worlds.join(", "))
                }
                (None, 1) => format!("{error:#}"),
                (None, _) => format!(
                    "the WIT package contains several worlds: choose one in plugin.toml with [build] world = \"…\": {}",
                    worlds.join(", ")
                ),
            })
        })?;
        let name = resolve.worlds[id].name.clone();
        Ok(Self { wit, name, resolve, id })
    }

    /// Returns the folder with the WIT, as an argument for tools.
    pub(super) fn wit(&self) -> &Path {
        &self.wit
    }
}

/// Returns the WIT of the world that a project with the Python SDK implements.
fn python_world(project: &Project, name: &str, purpose: Purpose) -> String {
    let asks = &project.manifest().asks;
    let imports = [
        (true, "wasi:logging/logging"),
        (!asks.config.is_empty(), "wasi:config/store@0.2.0-rc.1"),
        (!asks.http.is_empty(), "wasi:http/outgoing-handler@0.2.0"),
        (asks.key_value, "wasi:keyvalue/store@0.2.0-draft2"),
        (asks.key_value, "wasi:keyvalue/atomics@0.2.0-draft2"),
        (asks.model_tokens.is_some(), "agent-host:model/host-model@0.1.0"),
        (purpose == Purpose::Development, "agent-host:development/sources@0.1.0"),
    ];
    let imports = imports.iter().filter(|(is_needed, _)| *is_needed).map(|(_, import)| format!("  import {import};\n"));
    format!(
        "package author:project;\n\nworld plugin {{\n  include agent-host:plugin/{name}@0.1.0;\n{}}}\n",
        imports.collect::<String>()
    )
}
