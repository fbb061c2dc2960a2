//! Loads the WIT world that a Python, JavaScript or C project implements.

use super::{BuildError, Project};
use crate::embedded;
use std::path::{Path, PathBuf};
use wit_bindgen_core::wit_parser::{Resolve, WorldId};

/// Name of the contract's world that a project without its own WIT implements, unless plugin.toml sets another world.
const DEFAULT_WORLD: &str = "tool-plugin";

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
