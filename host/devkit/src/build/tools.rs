//! Programs beside cargo: in the project, where somebody has named them, or where the system looks for programs.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Variables that name programs, each before all other places; `WASI_SDK_PATH` is the folder of a wasi-sdk, as that calls it.
pub const VARIABLES: [&str; 4] = ["COMPONENTIZE_PY", "JCO", "ZIG", "WASI_SDK_PATH"];

/// What the caller knows from its environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tools {
    /// Folders in which programs are looked for, as in `PATH`.
    pub path: OsString,
    /// What each of the [`VARIABLES`] that is set says.
    pub named: BTreeMap<&'static str, PathBuf>,
}

/// Folders of a project in which its own tools lie.
const IN_PROJECT: [&str; 3] = [".venv/bin", ".venv/Scripts", "node_modules/.bin"];

impl Tools {
    /// What the variable says, else the first of these programs that is in the project or on the path. A project may be in a
    /// folder with others, which share their tools.
    pub(super) fn find(&self, variable: &str, programs: &[&str], project: &Path) -> Option<PathBuf> {
        if let Some(named) = self.named.get(variable) {
            return Some(named.clone());
        }
        self.find_unnamed(programs, project)
    }

    /// The same for what no variable names.
    pub(super) fn find_unnamed(&self, programs: &[&str], project: &Path) -> Option<PathBuf> {
        let near =
            project.ancestors().take(2).flat_map(|folder| IN_PROJECT.iter().map(move |tools| folder.join(tools)));
        let near: Vec<PathBuf> = near.collect();
        let own = programs.iter().find_map(|program| near.iter().find_map(|folder| program_at(&folder.join(program))));
        own.or_else(|| programs.iter().find_map(|program| program_in(program, &self.path)))
    }
}

/// The program of that name in the folders of a `PATH`; for a path, the file itself.
pub fn program_in(name: &str, folders: &OsStr) -> Option<PathBuf> {
    if name.contains(std::path::is_separator) {
        return Some(PathBuf::from(name)).filter(|path| is_program(path));
    }
    std::env::split_paths(folders).find_map(|folder| program_at(&folder.join(name)))
}

fn program_at(path: &Path) -> Option<PathBuf> {
    let mut path = path.as_os_str().to_owned();
    path.push(std::env::consts::EXE_SUFFIX);
    Some(PathBuf::from(path)).filter(|path| is_program(path))
}

#[cfg(unix)]
fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_program(path: &Path) -> bool {
    path.is_file()
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// S2: the project's own tools come before those of the system, and a variable before both.
    #[test]
    fn tools_are_found_from_the_nearest_on() {
        let top = tempfile::tempdir().expect("a temporary folder");
        let add = |path: &str, mode: u32| {
            let path = top.path().join(path);
            std::fs::create_dir_all(path.parent().expect("inside")).expect("made");
            std::fs::write(&path, "").expect("written");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("set");
            path
        };
        let project = top.path().join("plugins/one");
        let mut tools = Tools { path: top.path().join("bin").into_os_string(), named: BTreeMap::new() };
        let find = |tools: &Tools| tools.find("ZIG", &["python-zig", "zig"], &project);
        assert_eq!(find(&tools), None);
        add("bin/python-zig", 0o644);
        assert_eq!(find(&tools), None, "what cannot be run is no program");
        let system = add("bin/zig", 0o755);
        assert_eq!(find(&tools), Some(system));
        let shared = add("plugins/.venv/bin/python-zig", 0o755);
        assert_eq!(find(&tools), Some(shared));
        let own = add("plugins/one/.venv/bin/python-zig", 0o755);
        assert_eq!(find(&tools), Some(own));
        tools.named.insert("ZIG", "elsewhere/zig".into());
        assert_eq!(find(&tools), Some("elsewhere/zig".into()));
    }
}
