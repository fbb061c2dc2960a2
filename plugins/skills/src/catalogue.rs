//! Finds the skills in the project's folders of skills. Everything that cannot be used is reported as a problem, and
//! never prevents that the other skills are found.

use crate::front_matter;
use agent_host_sdk::{config, trees};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// The folders of skills, relative to the project, if the agent's configuration does not name any.
const DEFAULT_FOLDERS: [&str; 2] = ["skills", ".agents/skills"];
/// The name of the file with the instructions of a skill.
pub(crate) const SKILL_FILE: &str = "SKILL.md";
/// Maximum number of folders in the configuration.
const MAX_FOLDERS: usize = 16;
/// Maximum number of entries of a folder of skills that are considered.
const MAX_ENTRIES: usize = 1_000;
/// Maximum number of skills.
const MAX_SKILLS: usize = 200;
/// Maximum size of the front matter, in bytes.
const MAX_FRONT_MATTER: u64 = 16 * 1024;

/// A skill.
pub(crate) struct Skill {
    pub(crate) name: String,
    pub(crate) description: String,
    /// The path of the folder, as a call of a file tool would name it.
    pub(crate) folder: String,
}

/// The skills of the project.
#[derive(Default)]
pub(crate) struct Catalogue {
    /// The skills in the order of the folders, and within a folder in the order of their names.
    pub(crate) skills: Vec<Skill>,
    /// What could not be used, and why.
    pub(crate) problems: Vec<String>,
    /// Whether the agent grants a directory tree to the plugin.
    pub(crate) is_granted: bool,
}

impl Catalogue {
    /// Reads the names and descriptions of all skills.
    pub(crate) fn read() -> Self {
        let mut catalogue = Self::default();
        let Some(project) = project() else {
            return catalogue;
        };
        catalogue.is_granted = true;
        let configured = catalogue.configured_folders();
        let is_default = configured.is_none();
        let mut seen = Vec::new();
        for folder in configured.unwrap_or_else(|| DEFAULT_FOLDERS.map(str::to_owned).to_vec()) {
            let path = project.join(&folder);
            let Ok(located) = trees::locate(&path.to_string_lossy()) else {
                catalogue.problems.push(format!("the folder `{folder}` is outside of the granted trees"));
                continue;
            };
            if seen.contains(&located) {
                continue;
            }
            match entries(&located) {
                Ok(names) => catalogue.read_folder(&located, &names),
                Err(error) if is_missing(&error) && is_default => {}
                Err(error) if is_missing(&error) => catalogue.problems.push(format!("there is no folder `{folder}`")),
                Err(error) => catalogue.problems.push(format!("the folder `{folder}` cannot be read: {error}")),
            }
            seen.push(located);
        }
        catalogue
    }

    /// Returns the folders that the agent's configuration names, separated by commas, or `None` if there are none.
    fn configured_folders(&mut self) -> Option<Vec<String>> {
        // `config::get` would report a denial if the setting is not granted, although the setting is optional.
        let settings = config::get_all().unwrap_or_else(|error| {
            self.problems.push(format!("{error}; the default folders are used"));
            BTreeMap::new()
        });
        let setting = settings.get("folders")?;
        let names = setting.split([',', '\n']).map(str::trim).filter(|name| !name.is_empty());
        let mut names = names.map(str::to_owned).collect::<Vec<_>>();
        if names.len() > MAX_FOLDERS {
            self.problems.push(format!("`folders` names more than {MAX_FOLDERS} folders; the others were left out"));
            names.truncate(MAX_FOLDERS);
        }
        (!names.is_empty()).then_some(names)
    }

    /// Reads the skills in one folder of skills.
    fn read_folder(&mut self, folder: &Path, names: &[String]) {
        if names.len() > MAX_ENTRIES {
            self.problems.push(format!("`{}` has more than {MAX_ENTRIES} entries; some were left out", shown(folder)));
        }
        for name in names.iter().take(MAX_ENTRIES) {
            let skill_folder = folder.join(name);
            let file = skill_folder.join(SKILL_FILE);
            match fs::symlink_metadata(&file) {
                Err(error) if is_missing(&error) => continue,
                Err(error) => self.problems.push(format!("`{}`: {error}", shown(&file))),
                Ok(metadata) if !metadata.is_file() => {
                    self.problems.push(format!("`{}`: it is not a regular file", shown(&file)));
                }
                // The files of a skill must be in its folder, and the target of a link could be anywhere in the tree.
                Ok(_) if skill_folder.is_symlink() => {
                    self.problems.push(format!("`{}`: it is a link, and links are not followed", shown(&skill_folder)));
                }
                Ok(_) if self.skills.len() == MAX_SKILLS => {
                    let file = shown(&file);
                    self.problems
                        .push(format!("there are more than {MAX_SKILLS} skills; `{file}` and the rest were left out"));
                    return;
                }
                Ok(_) => self.read_skill(&skill_folder, name, &file),
            }
        }
    }

    fn read_skill(&mut self, folder: &Path, folder_name: &str, file: &Path) {
        let parsed = head(file).and_then(|text| {
            let (front_matter, _) = front_matter::split(&text).map_err(|problem| match text.len() as u64 {
                size if size >= MAX_FRONT_MATTER => {
                    format!("the first {MAX_FRONT_MATTER} bytes have no complete front matter")
                }
                _ => problem.to_owned(),
            })?;
            front_matter::parse(front_matter)
        });
        let front_matter = match parsed {
            Ok(front_matter) => front_matter,
            Err(problem) => return self.problems.push(format!("`{}`: {problem}", shown(file))),
        };
        let name = front_matter.name;
        if let Some(other) = self.skills.iter().find(|skill| skill.name == name) {
            let problem = format!("`{}`: the name `{name}` is already used by `{}`", shown(file), other.folder);
            return self.problems.push(problem);
        }
        for warning in front_matter.warnings {
            self.problems.push(format!("`{}`: {warning}", shown(file)));
        }
        if name != folder_name {
            self.problems.push(format!("`{}`: the name `{name}` differs from the name of the folder", shown(file)));
        }
        self.skills.push(Skill { name, description: front_matter.description, folder: shown(folder) });
    }
}

/// Returns the root of the project: the granted tree `.`, or the first granted tree.
fn project() -> Option<PathBuf> {
    let granted = trees::granted();
    let root = granted.iter().find(|tree| *tree == ".").or(granted.first())?;
    Some(PathBuf::from(root))
}

/// Returns the sorted names of the entries of a folder of skills that are not hidden, and at most one more than
/// [`MAX_ENTRIES`].
fn entries(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') {
            continue;
        }
        names.push(name);
        if names.len() > MAX_ENTRIES {
            break;
        }
    }
    names.sort();
    Ok(names)
}

/// Reads the part of a file that may contain front matter.
fn head(path: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_FRONT_MATTER).read_to_end(&mut bytes));
    read.map_err(|error| error.to_string())?;
    let valid = match std::str::from_utf8(&bytes) {
        Ok(_) => bytes.len(),
        // The last character was cut.
        Err(error) if error.error_len().is_none() && bytes.len() as u64 == MAX_FRONT_MATTER => error.valid_up_to(),
        Err(_) => return Err("it is not UTF-8 text".to_owned()),
    };
    bytes.truncate(valid);
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// Returns the path for a message, in one line.
pub(crate) fn shown(path: &Path) -> String {
    front_matter::one_line(&path.to_string_lossy(), 300)
}
