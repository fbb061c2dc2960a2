//! Loads the WIT world that a Python, JavaScript or C project implements.

use super::{BuildError, Project, Purpose};
use crate::embedded::{self, ProjectFile};
use crate::language::Language;
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
        let files = embedded::below("wit/").filter(|(name, _)| name.ends_with(".wit") && !name.contains('/'));
        write_files(&contract, &files.map(|(name, text)| (name.to_owned(), text.to_owned())).collect::<Vec<_>>())?;
        Self::read(contract, world_name.or(Some(DEFAULT_WORLD)))
    }

    /// Writes the world of a Python or C project with the SDK into a folder, unless the project has its own WIT. The world
    /// exports the kind of the plugin, and imports the interfaces for which the manifest requests permissions. The world of
    /// a development build imports all interfaces, because it is the same for all projects.
    pub(super) fn of_sdk(project: &Project, folder: &Path, purpose: Purpose) -> Result<Self, BuildError> {
        if project.has_own_wit() {
            let own = project.directory().join(project.build().wit.as_deref().unwrap_or("wit"));
            return Self::read(own, project.build().world.as_deref());
        }
        let name = project.build().world.as_deref().unwrap_or(DEFAULT_WORLD);
        if !WORLDS.contains(&name) {
            let reason = format!("the contract has no world `{name}`; its worlds are: {}", WORLDS.join(", "));
            return Err(BuildError::Wit { path: project.directory().join("plugin.toml"), reason });
        }
        let world = ("world.wit".to_owned(), sdk_world(project, name, purpose));
        let mut files = vec![world];
        files.extend(embedded::standard_wit_files().into_iter().map(|(name, text)| (format!("deps/{name}"), text)));
        if purpose == Purpose::Development {
            files.push(("deps/agent-host-development/sources.wit".to_owned(), SOURCES_WIT.to_owned()));
        }
        if folder.exists() {
            std::fs::remove_dir_all(folder).map_err(|source| BuildError::File {
                action: "cannot remove",
                path: folder.to_owned(),
                source,
            })?;
        }
        write_files(folder, &files)?;
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

/// Writes files into a folder, and creates missing folders. A file that already has the text is not changed, so that
/// toolchains do not compile it again.
pub(super) fn write_files(folder: &Path, files: &[ProjectFile]) -> Result<(), BuildError> {
    for (name, text) in files {
        let path = folder.join(name);
        if std::fs::read(&path).is_ok_and(|current| current == text.as_bytes()) {
            continue;
        }
        let created = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        let written = created.and_then(|()| std::fs::write(&path, text));
        written.map_err(|source| BuildError::File { action: "cannot write", path, source })?;
    }
    Ok(())
}

/// Returns the WIT of the world that a project with the SDK implements. Validators and media policies have no permissions.
fn sdk_world(project: &Project, name: &str, purpose: Purpose) -> String {
    let asks = &project.manifest().asks;
    let is_development = purpose == Purpose::Development;
    let has_all = is_development && !matches!(name, "output-validator-plugin" | "media-policy-plugin");
    let imports = [
        (true, "wasi:logging/logging"),
        (has_all || !asks.config.is_empty(), "wasi:config/store@0.2.0-rc.1"),
        // C programs find the granted folders through their C library.
        (project.language() != Language::C && (has_all || asks.files.is_some()), "wasi:filesystem/preopens@0.2.0"),
        (has_all || !asks.http.is_empty(), "wasi:http/outgoing-handler@0.2.0"),
        (has_all || asks.key_value, "wasi:keyvalue/store@0.2.0-draft2"),
        (has_all || asks.key_value, "wasi:keyvalue/atomics@0.2.0-draft2"),
        (has_all || asks.model_tokens.is_some(), "agent-host:model/host-model@0.1.0"),
        (is_development, "agent-host:development/sources@0.1.0"),
    ];
    let imports = imports.iter().filter(|(is_needed, _)| *is_needed).map(|(_, import)| format!("  import {import};\n"));
    format!(
        "package author:project;\n\nworld plugin {{\n  include agent-host:plugin/{name}@0.1.0;\n{}}}\n",
        imports.collect::<String>()
    )
}
