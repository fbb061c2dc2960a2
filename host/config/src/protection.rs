//! Protects the files that determine the rights of plugins, so that no grant covers these files (P13), and finds
//! granted folders that overlap.

mod native_builds;
mod secret_files;
mod servers;

pub use secret_files::SecretFiles;

use crate::agent_file::Located;
use crate::data_directory::DataDirectory;
use crate::environment::HostEnvironment;
use crate::error::ConfigError;
use crate::settings::{AGENT_FOLDER, Settings};
use agent_plugins::{Access, Grants, NO_EXTENSION, ProtectedKind, ProtectedPath, Sandbox, TreeGrant};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Returns the paths that are protected for every agent, such as the data folder and the host's program.
pub fn paths_of_host(data: &DataDirectory, environment: &HostEnvironment) -> Vec<ProtectedPath> {
    let program = environment.compiler.as_ref().map(|compiler| compiler.program.clone());
    let program = program.map(|program| protected_path(program, "the program agent-host", ProtectedKind::File));
    let installed = [
        (environment.installed_plugins(), "the folder of the installed plugins"),
        (environment.installed_code(), "the compiled code of the installed plugins"),
    ];
    let installed =
        installed.into_iter().filter_map(|(folder, what)| Some(protected_path(folder?, what, ProtectedKind::Folder)));
    let paths = private_paths(data, environment).chain(program).chain(installed);
    paths.chain(agent_files(Path::new("."))).collect()
}

/// Returns the paths of the host that contain secrets: the data folder, and Docker's credentials.
fn private_paths(data: &DataDirectory, environment: &HostEnvironment) -> impl Iterator<Item = ProtectedPath> + use<> {
    let folder = protected_path(data.root().to_owned(), "the data folder of agent-host", ProtectedKind::PrivateFolder);
    // The Docker configuration is protected because it names programs that Docker runs to get passwords.
    let docker = environment.docker_configuration.clone();
    let docker = docker
        .map(|file| protected_path(file, "the file in which `docker login` stores credentials", ProtectedKind::File));
    let user_file = environment.user_file.clone();
    let user_file = user_file.map(|file| protected_path(file, "the user-wide configuration", ProtectedKind::File));
    std::iter::once(folder).chain(docker).chain(user_file)
}

/// Returns the paths that are protected for an agent: its configuration file, and all files and folders that the
/// configuration names.
pub fn paths_of_agent(settings: &Settings) -> Vec<ProtectedPath> {
    let file = &settings.file;
    let folder = settings.folder();
    let resolve = |located: &Located| folder.join(&located.value);
    let configuration =
        settings.path.clone().map(|file| protected_path(file, "the agent's configuration", ProtectedKind::File));
    let delegates = file.agents.iter().map(|(tool, table)| {
        let what = format!("the configuration of the agent that `{tool}` delegates to");
        protected_path(resolve(&table.agent), &what, ProtectedKind::File)
    });
    // The folder in the file is protected even if an option replaces it.
    let plugins = settings.plugins.iter().chain(&file.plugin_directory);
    let plugins = plugins.map(|folder| protected_path(folder.clone(), "the plugin folder", ProtectedKind::Folder));
    let outbox = file.outbox.directory.as_ref().map(resolve);
    let outbox = outbox.map(|folder| protected_path(folder, "the outbox folder", ProtectedKind::Folder));
    let named = file.named_files.iter().map(|named| {
        protected_path(named.clone(), "a file that is named in the agent's configuration", ProtectedKind::File)
    });
    let scripts = settings.models.all_named().into_iter().filter_map(|model| {
        let (what, file) = match model.name.split_once(':')? {
            ("scripted", file) => ("the scripted model's replies", file),
            ("replay", file) => ("the cassette that the model replays", file),
            ("record", rest) => ("the cassette that the model records", rest.split_once(':')?.0),
            _ => return None,
        };
        Some(protected_path(model.base.join(file), what, ProtectedKind::File))
    });
    let servers = file
        .mcp
        .iter()
        .flat_map(|(name, table)| servers::server_paths(name, table, folder, settings.environment.variables()));
    let paths = configuration.into_iter().chain(delegates).chain(plugins).chain(outbox).chain(named);
    let sources = settings
        .plugins
        .iter()
        .chain(&settings.sources)
        .flat_map(|folder| native_builds::source_paths(folder, settings.folder()));
    paths.chain(scripts).chain(servers).chain(sources).chain(agent_files(folder)).collect()
}

/// Returns the files that the host reads to find an agent by its name.
fn agent_files(folder: &Path) -> [ProtectedPath; 2] {
    let files = |folder: PathBuf| protected_path(folder, "an agent's configuration", ProtectedKind::AgentFiles);
    [files(folder.to_owned()), files(folder.join(AGENT_FOLDER))]
}

fn protected_path(path: PathBuf, what: &str, kind: ProtectedKind) -> ProtectedPath {
    ProtectedPath { path, what: what.to_owned(), kind }
}

/// Returns all granted folders of an agent. Each folder is returned with the name of the plugin that has the grant, or
/// with `host`.
pub fn granted_trees(settings: &Settings) -> Vec<(String, TreeGrant)> {
    let of_plugin = |(name, grants): (&String, &Grants)| {
        grants.trees.iter().map(|tree| (name.clone(), tree.clone())).collect::<Vec<_>>()
    };
    let plugins = settings.grants.plugins.iter().flat_map(of_plugin);
    let host = settings.grants.host.iter().map(|tree| ("host".to_owned(), tree.clone()));
    plugins.chain(host).collect()
}

/// Opens all granted folders of the agents. Call this function before a plugin runs, because a plugin could replace a
/// folder with a link to another folder.
pub fn open_granted_trees<'s>(
    sandbox: &Sandbox,
    agents: impl IntoIterator<Item = &'s Settings>,
) -> Result<(), ConfigError> {
    let trees: Vec<_> = agents.into_iter().flat_map(granted_trees).map(|(_, tree)| tree).collect();
    let problems: Vec<_> = sandbox.open_trees(&trees).iter().map(ToString::to_string).collect();
    if problems.is_empty() { Ok(()) } else { Err(ConfigError::Settings(problems.join("\n"))) }
}

/// Maximum number of protected entries that are shown for each reason.
const SHOWN_ENTRIES: usize = 4;

/// Returns the parts of a folder that a grant for writing does not cover. The returned texts are relative paths and
/// patterns, for display. The agents' own files are not listed.
pub fn excluded_from_writing(protected: &[ProtectedPath], folder: &Path) -> Vec<String> {
    let Ok(folder) = folder.canonicalize() else { return Vec::new() };
    // The entries are grouped by the reason for their protection, because some reasons apply to many files.
    let mut entries_by_reason: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for protected in protected.iter().filter(|protected| protected.kind != ProtectedKind::AgentFiles) {
        let canonical = canonical_prefix(&protected.path);
        if protected.is_folder() && folder.starts_with(&canonical) {
            return vec![format!("everything, because it is in {}", protected.what)];
        }
        let entries = entries_by_reason.entry(&protected.what).or_default();
        match protected.kind {
            ProtectedKind::CodeFiles(endings) if folder.starts_with(&canonical) || canonical.starts_with(&folder) => {
                entries.extend(endings.iter().map(|ending| file_pattern(ending)));
            }
            ProtectedKind::CodeFiles(_) => {}
            _ => entries.extend(canonical.strip_prefix(&folder).ok().map(|below| {
                let end = if protected.is_folder() { "/" } else { "" };
                format!("{}{end}", below.display())
            })),
        }
    }
    let mut excluded = Vec::new();
    for (reason, entries) in entries_by_reason {
        let (patterns, mut names): (Vec<_>, Vec<_>) = entries.into_iter().partition(|name| name.starts_with('*'));
        names.extend(patterns);
        let mut seen = BTreeSet::new();
        names.retain(|name| seen.insert(name.clone()));
        let folders: Vec<_> = names.iter().filter(|name| name.ends_with('/')).cloned().collect();
        names.retain(|name| !folders.iter().any(|folder| folder != name && name.starts_with(folder)));
        // If only a single entry exceeds the maximum, this entry is shown, because its name takes no more space than
        // "and 1 more".
        if names.len() <= SHOWN_ENTRIES + 1 {
            excluded.extend(names);
        } else {
            let more = names.len() - SHOWN_ENTRIES;
            excluded.push(format!("{} and {more} more ({reason})", names[..SHOWN_ENTRIES].join(", ")));
        }
    }
    excluded.sort();
    excluded.dedup();
    excluded
}

fn file_pattern(ending: &str) -> String {
    match ending {
        NO_EXTENSION => "* without an extension".to_owned(),
        _ => format!("*{ending}"),
    }
}

/// Resolves symbolic links in the part of the path that exists.
fn canonical_prefix(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    match (path.canonicalize(), path.parent(), path.file_name()) {
        (Ok(canonical), ..) => canonical,
        (Err(_), Some(parent), Some(name)) => canonical_prefix(parent).join(name),
        _ => path,
    }
}

/// Returns warnings about MCP servers that load files from folders that plugins may write.
pub fn exposed_servers(settings: &Settings) -> Vec<String> {
    servers::in_writable_folders(settings, &granted_trees(settings))
}

/// Returns a warning for each folder that one plugin may read and that is inside a folder that another plugin may
/// write, because the plugin that writes would control the files that the other plugin reads.
pub fn overlapping_trees(trees: &[(String, TreeGrant)]) -> Vec<String> {
    let mut warnings = Vec::new();
    for (writer, outer) in trees.iter().filter(|(_, tree)| tree.access == Access::ReadWrite) {
        for (reader, inner) in trees.iter().filter(|(reader, tree)| (reader, &tree.guest) != (writer, &outer.guest)) {
            let (Ok(above), Ok(below)) = (outer.host.canonicalize(), inner.host.canonicalize()) else { continue };
            if below.starts_with(&above) && (below != above || reader != writer) {
                warnings.push(format!(
                    "`{}` of {reader} is inside `{}`, which {writer} may write, so {writer} controls what {reader} reads there",
                    inner.guest, outer.guest
                ));
            }
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::AgentOptions;

    pub(super) fn settings(folder: &Path, text: &str) -> Settings {
        std::fs::write(folder.join("agent.toml"), text).expect("written");
        let options = AgentOptions { agent: Some(folder.join("agent.toml")), ..AgentOptions::default() };
        let environment = HostEnvironment::new(|name| (name == "PATH").then(|| "/usr/bin:/bin".to_owned()));
        Settings::read(&options, &environment).unwrap_or_else(|error| panic!("{error}"))
    }

    /// P13: a grant for the agent's whole folder does not cover the files and folders whose paths are in
    /// the configuration.
    #[test]
    fn p13_grants_do_not_cover_files_that_the_configuration_names() {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let folder = directory.path();
        for name in ["plugins", "out", "agents", "servers/notes", "docs"] {
            std::fs::create_dir_all(folder.join(name)).expect("created");
        }
        for (name, text) in [("schema.json", "{\"type\": \"object\"}"), ("servers/notes/run.py", ""), ("top.py", "")] {
            std::fs::write(folder.join(name), text).expect("written");
        }
        let text = "model = \"scripted:replies.json\"\nplugin_directory = \"plugins\"\noutput_schema = \"schema.json\"\n\
                    [outbox]\ndirectory = \"out\"\n[agents.helper]\nagent = \"agents/helper.toml\"\ndescription = \"Helps.\"\n\
                    [mcp.notes]\ncommand = \"python3\"\nargs = [\"notes/run.py\"]\ndirectory = \"servers\"\n\
                    [mcp.other]\ncommand = \"bin/other\"\nargs = [\"--file=top.py\"]\n\
                    [plugins.files.grants]\nwrite = [\".\"]\nread = [\"docs\"]\n[host.grants]\nread = [\"docs\"]\n";
        let settings = settings(folder, text);
        let excluded = excluded_from_writing(&paths_of_agent(&settings), folder);
        let expected = [
            "agent.toml",
            "agents/helper.toml",
            "bin/other, top.py, pyvenv.cfg, *.py and 10 more (code that the MCP server `other` runs)",
            "out/",
            "plugins/",
            "pyvenv.cfg",
            "replies.json",
            "schema.json",
            "servers/",
        ];
        assert_eq!(excluded, expected);
        let inside_plugins = super::excluded_from_writing(&paths_of_agent(&settings), &folder.join("plugins"));
        assert_eq!(inside_plugins, ["everything, because it is in the plugin folder"]);
        assert_eq!(
            overlapping_trees(&granted_trees(&settings)).len(),
            2,
            "{:?}",
            overlapping_trees(&granted_trees(&settings))
        );
    }
}
