//! What agent-host reads to decide what plugins may do, so that no grant covers it (P13), and how granted trees lie to one another.

mod native_builds;
mod servers;

use crate::configuration::Placed;
use crate::data::DataDirectory;
use crate::environment;
use crate::exit::Failure;
use crate::settings::{AGENT_FOLDER, Settings};
use agent_plugins::{Access, Grants, ProtectedKind, ProtectedPath, Sandbox, TreeGrant, WITHOUT_ENDING};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What is protected for every agent: the data folder and the program itself.
pub(crate) fn of_host(data: &DataDirectory) -> Vec<ProtectedPath> {
    let folder = path(data.root().to_owned(), "the data folder of agent-host", ProtectedKind::PrivateFolder);
    let program =
        environment::this_program().map(|program| path(program, "the program agent-host", ProtectedKind::File));
    // It names programs that are asked for passwords.
    let docker = environment::docker_configuration();
    let docker = docker.map(|file| path(file, "where `docker login` keeps credentials", ProtectedKind::File));
    std::iter::once(folder).chain(program).chain(docker).chain(agent_files(Path::new("."))).collect()
}

/// What is protected for an agent: its configuration, and everything that this names.
pub(crate) fn of_agent(settings: &Settings) -> Vec<ProtectedPath> {
    let file = &settings.file;
    let folder = settings.folder();
    let beside = |placed: &Placed| folder.join(&placed.value);
    let own = settings.path.clone().map(|file| path(file, "the agent's configuration", ProtectedKind::File));
    let delegates = file.agents.iter().map(|(tool, table)| {
        let what = format!("the configuration of the agent behind `{tool}`");
        path(beside(&table.agent), &what, ProtectedKind::File)
    });
    let plugins = settings.plugins.clone().map(|folder| path(folder, "the plugin folder", ProtectedKind::Folder));
    let outbox = file.outbox.directory.as_ref().map(beside);
    let outbox = outbox.map(|folder| path(folder, "the folder of the outbox", ProtectedKind::Folder));
    let named = file
        .named_files
        .iter()
        .map(|named| path(named.clone(), "a file that the agent's configuration names", ProtectedKind::File));
    let scripts = settings.models.all_named().into_iter().filter_map(|model| {
        let script = model.base.join(model.name.strip_prefix("scripted:")?);
        Some(path(script, "the scripted model's replies", ProtectedKind::File))
    });
    let servers =
        file.mcp.iter().flat_map(|(name, table)| servers::of_server(name, table, folder, &environment::variable));
    let lists = own.into_iter().chain(delegates).chain(plugins).chain(outbox).chain(named);
    let sources = settings
        .plugins
        .iter()
        .chain(&settings.sources)
        .flat_map(|folder| native_builds::of_sources(folder, settings.folder()));
    lists.chain(scripts).chain(servers).chain(sources).chain(agent_files(folder)).collect()
}

/// Files in which agents are looked for by name.
fn agent_files(folder: &Path) -> [ProtectedPath; 2] {
    let files = |folder: PathBuf| path(folder, "an agent's configuration", ProtectedKind::AgentFiles);
    [files(folder.to_owned()), files(folder.join(AGENT_FOLDER))]
}

fn path(path: PathBuf, what: &str, kind: ProtectedKind) -> ProtectedPath {
    ProtectedPath { path, what: what.to_owned(), kind }
}

/// All trees of an agent, each with who has it.
pub(crate) fn trees(settings: &Settings) -> Vec<(String, TreeGrant)> {
    let of_plugin = |(name, grants): (&String, &Grants)| {
        grants.trees.iter().map(|tree| (name.clone(), tree.clone())).collect::<Vec<_>>()
    };
    let plugins = settings.grants.plugins.iter().flat_map(of_plugin);
    let host = settings.grants.host.iter().map(|tree| ("host".to_owned(), tree.clone()));
    plugins.chain(host).collect()
}

/// Opens all trees of these agents together, before any plugin could change where their paths lead.
pub(crate) fn hold_trees<'s>(sandbox: &Sandbox, all: impl IntoIterator<Item = &'s Settings>) -> Result<(), Failure> {
    let trees: Vec<_> = all.into_iter().flat_map(trees).map(|(_, tree)| tree).collect();
    let problems: Vec<_> = sandbox.open_trees(&trees).iter().map(ToString::to_string).collect();
    if problems.is_empty() { Ok(()) } else { Err(Failure::refused(problems.join("\n"))) }
}

/// Entries of a long list that are named.
const NAMED: usize = 4;

/// What of a folder no grant for writing covers, as a person would write it there. Rules about agents' names are left out.
pub(crate) fn excluded(protected: &[ProtectedPath], folder: &Path) -> Vec<String> {
    let Ok(folder) = folder.canonicalize() else { return Vec::new() };
    // By what they are, since a package manager reads many files.
    let mut inside: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for protected in protected.iter().filter(|protected| protected.kind != ProtectedKind::AgentFiles) {
        let whole = canonical_as_far(&protected.path);
        if protected.is_folder() && folder.starts_with(&whole) {
            return vec![format!("all of it, since it is in {}", protected.what)];
        }
        let list = inside.entry(&protected.what).or_default();
        match protected.kind {
            ProtectedKind::CodeFiles(endings) if folder.starts_with(&whole) || whole.starts_with(&folder) => {
                list.extend(endings.iter().map(|ending| pattern(ending)));
            }
            ProtectedKind::CodeFiles(_) => {}
            _ => list.extend(whole.strip_prefix(&folder).ok().map(|below| {
                let end = if protected.is_folder() { "/" } else { "" };
                format!("{}{end}", below.display())
            })),
        }
    }
    let mut all = Vec::new();
    for (what, list) in inside {
        let (patterns, mut names): (Vec<_>, Vec<_>) = list.into_iter().partition(|name| name.starts_with('*'));
        names.extend(patterns);
        let mut seen = BTreeSet::new();
        names.retain(|name| seen.insert(name.clone()));
        let folders: Vec<_> = names.iter().filter(|name| name.ends_with('/')).cloned().collect();
        names.retain(|name| !folders.iter().any(|folder| folder != name && name.starts_with(folder)));
        // Where one is left, to name it is as short as to say so.
        if names.len() <= NAMED + 1 {
            all.extend(names);
        } else {
            let more = names.len() - NAMED;
            all.push(format!("{} and {more} more ({what})", names[..NAMED].join(", ")));
        }
    }
    all.sort();
    all.dedup();
    all
}

fn pattern(ending: &str) -> String {
    match ending {
        WITHOUT_ENDING => "* without an ending".to_owned(),
        _ => format!("*{ending}"),
    }
}

/// A path without links, also where its end does not exist.
fn canonical_as_far(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    match (path.canonicalize(), path.parent(), path.file_name()) {
        (Ok(whole), ..) => whole,
        (Err(_), Some(parent), Some(name)) => canonical_as_far(parent).join(name),
        _ => path,
    }
}

/// MCP servers that plugins could reach by what they write, as far as nobody can tell.
pub(crate) fn exposed_servers(settings: &Settings) -> Vec<String> {
    servers::in_writable_folders(settings, &trees(settings))
}

/// Trees of which one lies in another that may be written: what is written there is read here.
pub(crate) fn overlaps(trees: &[(String, TreeGrant)]) -> Vec<String> {
    let mut found = Vec::new();
    for (writer, outer) in trees.iter().filter(|(_, tree)| tree.access == Access::ReadWrite) {
        for (reader, inner) in trees.iter().filter(|(reader, tree)| (reader, &tree.guest) != (writer, &outer.guest)) {
            let (Ok(above), Ok(below)) = (outer.host.canonicalize(), inner.host.canonicalize()) else { continue };
            if below.starts_with(&above) && (below != above || reader != writer) {
                found.push(format!(
                    "`{}` of {reader} lies in `{}`, which {writer} may write: {writer} decides what {reader} finds there",
                    inner.guest, outer.guest
                ));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::AgentArguments;

    pub(super) fn settings(folder: &Path, text: &str) -> Settings {
        std::fs::write(folder.join("agent.toml"), text).expect("written");
        let arguments = AgentArguments { agent: Some(folder.join("agent.toml")), ..AgentArguments::default() };
        Settings::read(&arguments, &|_| None).unwrap_or_else(|failure| panic!("{}", failure.message))
    }

    /// P13: everything that the configuration names is left out of a grant for the whole folder.
    #[test]
    fn p13_everything_that_is_read_to_decide_is_left_out() {
        let place = tempfile::tempdir().expect("a temporary folder");
        let folder = place.path();
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
        let excluded = excluded(&of_agent(&settings), folder);
        let expected = [
            "agent.toml",
            "agents/helper.toml",
            "bin/other, top.py, pyvenv.cfg, *.py and 10 more (what the MCP server `other` runs)",
            "out/",
            "plugins/",
            "pyvenv.cfg",
            "replies.json",
            "schema.json",
            "servers/",
        ];
        assert_eq!(excluded, expected);
        let below = super::excluded(&of_agent(&settings), &folder.join("plugins"));
        assert_eq!(below, ["all of it, since it is in the plugin folder"]);
        assert_eq!(overlaps(&trees(&settings)).len(), 2, "{:?}", overlaps(&trees(&settings)));
    }
}
