//! Where the components of a scenario's plugins are: of its own project, of those that it names, built or found.

use crate::exit::Failure;
use agent_devkit::build::{Project, is_project};
use agent_devkit::scenario::{AgentSource, Scenario};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Folders above a scenario in which a plugin is looked for by its name.
const ABOVE: usize = 6;

/// Finds components.
#[derive(Debug)]
pub(crate) struct Components {
    /// What the scenarios were looked for in.
    root: PathBuf,
    /// A folder that holds them all.
    given: Option<PathBuf>,
    /// By folder of the project.
    built: BTreeMap<PathBuf, PathBuf>,
    /// Why there is none, by folder of the project.
    unbuilt: BTreeMap<PathBuf, String>,
}

/// Where a plugin comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Origin {
    /// The folder of its project.
    Project(PathBuf),
    /// A component.
    File(PathBuf),
}

impl Components {
    /// `given` is a folder with components.
    pub(super) fn new(root: &Path, given: Option<PathBuf>) -> Result<Self, Failure> {
        given.as_deref().map_or(Ok(()), has_components)?;
        Ok(Self { root: root.to_owned(), given, built: BTreeMap::new(), unbuilt: BTreeMap::new() })
    }

    /// The folder that holds all components, where one was named.
    pub(crate) fn given(&self) -> Option<&Path> {
        self.given.as_deref()
    }

    /// Notes why nothing came of a build: whoever needs the project is told.
    pub(super) fn unbuilt(&mut self, project: &Path, why: String) {
        self.unbuilt.insert(canonical(project), why);
    }

    /// Notes what came of a build.
    pub(super) fn built(&mut self, project: &Path, component: PathBuf) {
        self.built.insert(project.to_owned(), component);
    }

    /// The projects that these scenarios need, by the folder that their components are written to: beside them where the
    /// folder of all projects is tested, as `--plugins DIR --build` does, else into them, as `plugin build` does.
    pub(super) fn projects<'s>(
        &mut self,
        scenarios: impl Iterator<Item = &'s Scenario>,
    ) -> Vec<(PathBuf, Vec<Project>)> {
        let mut folders = BTreeSet::new();
        for scenario in scenarios {
            // What is wrong with it is said where it is played.
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
                    self.unbuilt(&folder, error.to_string());
                    continue;
                }
            };
            let beside = folder.parent().filter(|parent| *parent == root);
            groups.entry(beside.unwrap_or(&folder).to_owned()).or_default().push(project);
        }
        groups.into_iter().collect()
    }

    /// The components of the scenario's plugins; none where its agent's folder says which there are.
    pub(crate) fn of(&self, scenario: &Scenario) -> Result<Vec<PathBuf>, Failure> {
        let origins = self.origins(scenario).map_err(Failure::refused)?;
        origins.into_iter().map(|origin| self.component(&origin)).collect()
    }

    fn origins(&self, scenario: &Scenario) -> Result<Vec<Origin>, String> {
        let named = scenario.plugins().map(|(place, plugin)| {
            let found = match self.given.as_deref().filter(|_| !is_path(plugin)) {
                Some(given) => given_component(given, plugin).map(Origin::File),
                None => origin(scenario.folder(), plugin),
            };
            found.map_err(|problem| format!("{place}: {problem}"))
        });
        let named = named.collect::<Result<Vec<_>, _>>()?;
        let own = || above(scenario.folder()).into_iter().find(|folder| folder.join("plugin.toml").is_file());
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
        if let Some(why) = self.unbuilt.get(&canonical(folder)) {
            return Err(Failure::refused(why));
        }
        let name = name_of(folder).map_err(Failure::refused)?;
        let file = format!("{name}.wasm");
        if let Some(given) = &self.given {
            return given_component(given, &name).map_err(Failure::refused);
        }
        if let Some(component) = self.built.get(&canonical(folder)) {
            return Ok(component.clone());
        }
        let beside = folder.parent().map(|parent| parent.join(&file));
        let found =
            [Some(folder.join(&file)), beside].into_iter().flatten().filter_map(|path| Some((changed(&path)?, path)));
        found.max().map(|(_, path)| path).ok_or_else(|| {
            let (shown, build) = (folder.display(), "without --no-build it is built first");
            Failure::refused(format!(
                "the plugin `{name}` has no component: there is no {file} in `{shown}` or beside it; {build}"
            ))
        })
    }
}

/// Refuses a folder in which nothing could be found: what lies elsewhere would be tested instead.
fn has_components(folder: &Path) -> Result<(), Failure> {
    let problem = |problem: String| {
        let advice = "name the folder with the components (NAME.wasm), or leave --plugins out, and they are built";
        Failure::refused(format!("--plugins: {problem}; {advice}"))
    };
    let shown = folder.display();
    let entries = std::fs::read_dir(folder).map_err(|error| match error.kind() {
        ErrorKind::NotFound => problem(format!("there is no folder `{shown}`")),
        ErrorKind::NotADirectory => problem(format!("`{shown}` is no folder")),
        _ => problem(format!("`{shown}` cannot be read: {error}")),
    })?;
    let is_component = |path: PathBuf| path.extension().is_some_and(|extension| extension == "wasm");
    match entries.flatten().any(|entry| is_component(entry.path())) {
        true => Ok(()),
        false => Err(problem(format!("there is no component (*.wasm) in `{shown}`"))),
    }
}

fn given_component(given: &Path, name: &str) -> Result<PathBuf, String> {
    let file = given.join(format!("{name}.wasm"));
    if file.is_file() {
        return Ok(file);
    }
    Err(format!("there is no {name}.wasm in `{}`, from which --plugins takes all components", given.display()))
}

/// Whether a plugin is named by a path.
fn is_path(plugin: &str) -> bool {
    plugin.contains('/') || plugin.ends_with(".wasm")
}

fn changed(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).ok()?.modified().ok()
}

/// Without links, as cargo names packages.
fn canonical(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

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
    let places = above(folder).into_iter().flat_map(|folder| {
        let file = format!("{plugin}.wasm");
        [
            folder.join(plugin),
            folder.join("plugins").join(plugin),
            folder.join(&file),
            folder.join("plugins").join(file),
        ]
    });
    places.filter_map(of_path).next().ok_or_else(|| {
        format!("there is no plugin `{plugin}`: no folder of that name with a plugin.toml, and no {plugin}.wasm, in the folders above or in their `plugins`")
    })
}

/// The folder and those above it, the nearest first.
fn above(folder: &Path) -> Vec<PathBuf> {
    canonical(folder).ancestors().take(ABOVE).map(Path::to_owned).collect()
}

/// The name that a project's manifest gives the plugin.
fn name_of(folder: &Path) -> Result<String, String> {
    let path = folder.join("plugin.toml");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let manifest = agent_plugins::Manifest::from_toml(&text, &path).map_err(|error| error.to_string())?;
    Ok(manifest.name)
}
