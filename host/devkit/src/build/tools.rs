//! Finds the programs of the Python, JavaScript and C toolchains: in an environment variable, in the project, or on the
//! PATH.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Environment variables that set the path of a program. These variables take precedence over programs in the project
/// and on the `PATH`. `WASI_SDK_PATH` is the folder of a wasi-sdk.
pub const VARIABLES: [&str; 4] = ["COMPONENTIZE_PY", "JCO", "ZIG", "WASI_SDK_PATH"];

/// The folders and environment variables, taken from the caller's environment, in which a build searches for programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tools {
    /// The folders that are searched for programs, in the format of the variable `PATH`.
    pub path: OsString,
    /// Values of the [`VARIABLES`] that are set. The keys are the names of the variables.
    pub named: BTreeMap<&'static str, PathBuf>,
}

/// Folders in which package managers install programs for a single project. The paths are relative to
/// the project's folder.
const IN_PROJECT: [&str; 3] = [".venv/bin", ".venv/Scripts", "node_modules/.bin"];

impl Tools {
    /// Returns the value of `variable` if it is set, otherwise the path of the first program in `programs` that is
    /// found in the project, in the parent folder of the project or in `PATH`. The parent folder is searched because
    /// projects in one folder may share their tools.
    pub(super) fn find(&self, variable: &str, programs: &[&str], project: &Path) -> Option<PathBuf> {
        if let Some(named) = self.named.get(variable) {
            return Some(named.clone());
        }
        self.find_unnamed(programs, project)
    }

    /// Finds a program whose path cannot be set with an environment variable.
    pub(super) fn find_unnamed(&self, programs: &[&str], project: &Path) -> Option<PathBuf> {
        let project_folders =
            project.ancestors().take(2).flat_map(|folder| IN_PROJECT.iter().map(move |tools| folder.join(tools)));
        let project_folders: Vec<PathBuf> = project_folders.collect();
        let local = programs
            .iter()
            .find_map(|program| project_folders.iter().find_map(|folder| program_at(&folder.join(program))));
        local.or_else(|| programs.iter().find_map(|program| program_in(program, &self.path)))
    }
}

/// Finds the program `name` in the folders of a `PATH`. A name that contains a path separator is the path of the
/// program.
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
    std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_program(path: &Path) -> bool {
    path.is_file()
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// S2: the tools of the project take precedence over the tools of the system. A tool in an environment variable
    /// takes precedence over the tools of the project and of the system.
    #[test]
    fn finds_tools_of_variable_then_project_then_system() {
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
        assert_eq!(find(&tools), None, "a file that is not executable is not a program");
        let system = add("bin/zig", 0o755);
        assert_eq!(find(&tools), Some(system));
        let shared = add("plugins/.venv/bin/python-zig", 0o755);
        assert_eq!(find(&tools), Some(shared));
        let project_tool = add("plugins/one/.venv/bin/python-zig", 0o755);
        assert_eq!(find(&tools), Some(project_tool));
        tools.named.insert("ZIG", "elsewhere/zig".into());
        assert_eq!(find(&tools), Some("elsewhere/zig".into()));
    }
}
