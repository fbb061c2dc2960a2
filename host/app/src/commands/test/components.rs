//! Finds the components of the plugins that a scenario names. If the scenario names no plugins, finds the component of
//! the scenario's own project.

use crate::exit::Failure;
use agent_devkit::build::{Project, is_project};
use agent_devkit::scenario::{AgentSource, Scenario};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Maximum number of folders in which the host looks for a plugin by its name: the scenario's folder and folders
/// above it.
const SEARCHED_FOLDERS: usize = 6;

/// Finds the components that scenarios use.
#[derive(Debug)]
pub(crate) struct Components {
    /// The folder or file that the user passed to `agent-host test`.
    root: PathBuf,
    /// The folder that `--plugins` names, which contains all components. `None` without `--plugins`.
    component_folder: Option<PathBuf>,
    /// Maps the folder of each project that was built to the path of the project's component.
    built: BTreeMap<PathBuf, PathBuf>,
    /// Maps the folder of each project whose build failed to the error of the build.
    build_errors: BTreeMap<PathBuf, String>,
}

/// Source of a plugin's component.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Origin {
    /// The folder of a plugin project.
    Project(PathBuf),
    /// A component file.
    File(PathBuf),
}

impl Components {
    /// Creates a finder of components. `component_folder` is the folder that `--plugins` names, which contains
    /// all components.
    pub(super) fn new(root: &Path, component_folder: Option<PathBuf>) -> Result<Self, Failure> {
        component_folder.as_deref().map_or(Ok(()), has_components)?;
        Ok(Self { root: root.to_owned(), component_folder, built: BTreeMap::new(), build_errors: BTreeMap::new() })
    }

    /// Returns the folder that `--plugins` names, which contains all components.
    pub(crate) fn component_folder(&self) -> Option<&Path> {
        self.component_folder.as_deref()
    }

    /// Records the error of a failed build. The error is reported by each scenario that needs the project.
    pub(super) fn add_build_error(&mut self, project: &Path, error: String) {
        self.build_errors.insert(canonical(project), error);
    }

    /// Records the component that a build produced.
    pub(super) fn add_built(&mut self, project: &Path, component: PathBuf) {
        self.built.insert(project.to_owned(), component);
    }

    /// Returns the projects that these scenarios need, grouped by the folder into which the components of the projects
    /// are written. If the tested folder contains a project, its component is written into the tested folder, as with
    /// `--plugins DIR --build`. If not, its component is written into the project's own folder, as with `plugin build`.
    pub(super) fn projects<'s>(
        &mut self,
        scenarios: impl Iterator<Item = &'s Scenario>,
    ) -> Vec<(PathBuf, Vec<Project>)> {
        let mut folders = BTreeSet::new();
        for scenario in scenarios {
            // An error is ignored here, because it is reported when the scenario runs.
            for origin in self.origins(scenario).unwrap_or_default() {
                if let Origin::Project(folder) = origin
                    && is_project(&folder)
                {
                    folders.insert(canonical(&folder));
                }
            }
        }
        let root = canonical(&self.root);
        let mut groups: BTreeMap<PathBuf, Vec<Project>> = BTreeMap::new();
        for folder in folders {
            let project = match Project::read(&folder) {
                Ok(project) => project,
                Err(error) => {
                    self.add_build_error(&folder, error.to_string());
                    continue;
                }
            };
            let beside = folder.parent().filter(|parent| *parent == root);
            groups.entry(beside.unwrap_or(&folder).to_owned()).or_default().push(project);
        }
        groups.into_iter().collect()
    }

    /// Returns the components of the scenario's plugins. The result is empty if the plugins come from the plugin folder
    /// of the scenario's agent.
    pub(crate) fn of(&self, scenario: &Scenario) -> Result<Vec<PathBuf>, Failure> {
        let origins = self.origins(scenario).map_err(Failure::refused)?;
        origins.into_iter().map(|origin| self.component(&origin)).collect()
    }

    fn origins(&self, scenario: &Scenario) -> Result<Vec<Origin>, String> {
        let named = scenario.plugins().map(|(place, plugin)| {
            let found = match self.component_folder.as_deref().filter(|_| !is_path(plugin)) {
                Some(component_folder) => component_in(component_folder, plugin).map(Origin::File),
                None => origin(scenario.folder(), plugin),
            };
            found.map_err(|problem| format!("{place}: {problem}"))
        });
        let named = named.collect::<Result<Vec<_>, _>>()?;
        let own =
            || folder_and_parents(scenario.folder()).into_iter().find(|folder| folder.join("plugin.toml").is_file());
        match (named.is_empty(), scenario.agent()) {
            (false, _) => Ok(named),
            (true, AgentSource::File(_)) => Ok(Vec::new()),
            (true, _) => Ok(own().map(Origin::Project).into_iter().collect()),
        }
    }

    fn component(&self, origin: &Origin) -> Result<PathBuf, Failure> {
        let folder = match origin {
            Origin::File(file) => return Ok(file.clone()),
            Origin::Project(folder) => folder,
        };
        if let Some(why) = self.build_errors.get(&canonical(folder)) {
            return Err(Failure::refused(why));
        }
        let name = plugin_name(folder).map_err(Failure::refused)?;
        let file = format!("{name}.wasm");
        if let Some(component_folder) = &self.component_folder {
            return component_in(component_folder, &name).map_err(Failure::refused);
        }
        if let Some(component) = self.built.get(&canonical(folder)) {
            return Ok(component.clone());
        }
        let beside = folder.parent().map(|parent| parent.join(&file));
        let found = [Some(folder.join(&file)), beside]
            .into_iter()
            .flatten()
            .filter_map(|path| Some((modification_time(&path)?, path)));
        found.max().map(|(_, path)| path).ok_or_else(|| {
            let (shown, build) = (folder.display(), "run without --no-build to build it");
            Failure::refused(format!(
                "the plugin `{name}` has no component: there is no {file} in `{shown}` or its parent folder; {build}"
            ))
        })
    }
}

/// Returns an error if the folder contains no components. If a folder without components were accepted, the command
/// would test components from other folders.
fn has_components(folder: &Path) -> Result<(), Failure> {
    let problem = |problem: String| {
        let advice = "name the folder with the components (NAME.wasm), or omit --plugins to build them";
        Failure::refused(format!("--plugins: {problem}; {advice}"))
    };
    let shown = folder.display();
    let entries = std::fs::read_dir(folder).map_err(|error| match error.kind() {
        ErrorKind::NotFound => problem(format!("there is no folder `{shown}`")),
        ErrorKind::NotADirectory => problem(format!("`{shown}` is not a folder")),
        _ => problem(format!("`{shown}` cannot be read: {error}")),
    })?;
    let is_component = |path: PathBuf| path.extension().is_some_and(|extension| extension == "wasm");
    match entries.flatten().any(|entry| is_component(entry.path())) {
        true => Ok(()),
        false => Err(problem(format!("there is no component (*.wasm) in `{shown}`"))),
    }
}

fn component_in(component_folder: &Path, name: &str) -> Result<PathBuf, String> {
    let file = component_folder.join(format!("{name}.wasm"));
    if file.is_file() {
        return Ok(file);
    }
    Err(format!(
        "there is no {name}.wasm in `{}`, and with --plugins, all components must be in that folder",
        component_folder.display()
    ))
}

/// Returns true if a scenario names the plugin by a path.
fn is_path(plugin: &str) -> bool {
    plugin.contains('/') || plugin.ends_with(".wasm")
}

fn modification_time(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).ok()?.modified().ok()
}

/// Resolves symbolic links, as cargo does in the paths of packages.
fn canonical(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Finds a plugin by its path relative to the scenario's folder, or by its name in the scenario's folder and the
/// parents of that folder.
fn origin(folder: &Path, plugin: &str) -> Result<Origin, String> {
    let of_path = |path: PathBuf| {
        let is_component = path.extension().is_some_and(|extension| extension == "wasm") && path.is_file();
        if is_component {
            return Some(Origin::File(path));
        }
        path.join("plugin.toml").is_file().then_some(Origin::Project(path))
    };
    if is_path(plugin) {
        let path = folder.join(plugin);
        let shown = path.display().to_string();
        return of_path(path).ok_or_else(|| format!("`{shown}` is neither a plugin project nor a component (*.wasm)"));
    }
    let candidates = folder_and_parents(folder).into_iter().flat_map(|folder| {
        let file = format!("{plugin}.wasm");
        [
            folder.join(plugin),
            folder.join("plugins").join(plugin),
            folder.join(&file),
            folder.join("plugins").join(file),
        ]
    });
    candidates.filter_map(of_path).next().ok_or_else(|| {
        format!(
            "there is no plugin `{plugin}`: neither a folder with that name and a plugin.toml nor {plugin}.wasm was found in \
             the folders above or in their subfolders `plugins`"
        )
    })
}

/// Returns the folder, its parent, the parent's parent, and so on.
fn folder_and_parents(folder: &Path) -> Vec<PathBuf> {
    canonical(folder).ancestors().take(SEARCHED_FOLDERS).map(Path::to_owned).collect()
}

/// Reads the name of the plugin from the project's manifest.
fn plugin_name(folder: &Path) -> Result<String, String> {
    let path = folder.join("plugin.toml");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let manifest = agent_plugins::Manifest::from_toml(&text, &path).map_err(|error| error.to_string())?;
    Ok(manifest.name)
}
