//! The world that a project in another language than Rust implements.

use super::{BuildError, Project};
use crate::carried;
use std::path::{Path, PathBuf};
use wit_bindgen_core::wit_parser::{Resolve, WorldId};

/// The world where a project has no WIT of its own.
const USUAL_WORLD: &str = "tool-plugin";

/// A project's WIT, read.
pub(super) struct World {
    /// The folder that it was read from, for tools that read it again.
    pub(super) wit: PathBuf,
    /// Its name.
    pub(super) name: String,
    pub(super) resolve: Resolve,
    pub(super) id: WorldId,
}

impl World {
    /// Of the project's own WIT, else of the contract that this binary carries.
    pub(super) fn of(project: &Project) -> Result<Self, BuildError> {
        let own = project.directory().join(project.build().wit.as_deref().unwrap_or("wit"));
        let asked = project.build().world.as_deref();
        if own.exists() || project.build().wit.is_some() {
            return Self::read(own, asked);
        }
        let carried = project.made()?.join("wit");
        for (name, text) in carried::below("wit/").filter(|(name, _)| name.ends_with(".wit") && !name.contains('/')) {
            let path = carried.join(name);
            let made = std::fs::create_dir_all(&carried).and_then(|()| std::fs::write(&path, text));
            made.map_err(|source| BuildError::File { action: "cannot write", path, source })?;
        }
        Self::read(carried, asked.or(Some(USUAL_WORLD)))
    }

    fn read(wit: PathBuf, asked: Option<&str>) -> Result<Self, BuildError> {
        let bad = |reason: String| BuildError::Wit { path: wit.clone(), reason };
        let mut resolve = Resolve::default();
        let (package, _) = resolve.push_path(&wit).map_err(|error| bad(resolve.render_error(&error)))?;
        let id = resolve.select_world(&[package], asked).map_err(|error| {
            let worlds = resolve.packages[package].worlds.keys().map(|name| format!("`{name}`")).collect::<Vec<_>>();
            bad(match (asked, worlds.len()) {
                (_, 0) => "its own package has no world".to_owned(),
                (Some(name), _) => format!("it has no world `{name}`, but {}", worlds.join(", ")),
                (None, 1) => format!("{error:#}"),
                (None, _) => format!(
                    "it has several worlds: say which in plugin.toml, as [build] world = \"…\": {}",
                    worlds.join(", ")
                ),
            })
        })?;
        let name = resolve.worlds[id].name.clone();
        Ok(Self { wit, name, resolve, id })
    }

    /// The folder, as an argument.
    pub(super) fn wit(&self) -> &Path {
        &self.wit
    }
}
