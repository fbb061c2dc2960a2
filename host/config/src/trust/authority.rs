//! Finds out what an agent's file allows, and which files have a part in it: the file itself, the files of its delegates,
//! the lock files of the plugin folders, and the programs and scripts of MCP servers that are next to the file.

use crate::agent_file::{AgentFile, Located, McpTable, ProviderTable};
use crate::error::ConfigError;
use crate::grants::{Grant, Kind, Receiver};
use agent_registry::LOCK_FILE;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Maximum number of agents' files that are followed. The host refuses to load more delegates than this.
const MAX_AGENTS: usize = 65;
/// Digest of a file that does not exist or cannot be read. If such a file appears later, the files have changed.
const MISSING: &str = "missing";

/// What an agent's file allows, and the files that determine it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentAuthority {
    /// Path of the agent's file in its canonical folder.
    pub path: PathBuf,
    /// Digest of each file, by the file's path in its canonical folder.
    pub files: BTreeMap<String, String>,
    /// What the agent may do. Each line is one permission, and may contain text from the file.
    pub permissions: Vec<String>,
}

/// The folder to which the relative folders in grants refer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GrantFolder {
    /// The folder of the agent's file.
    OfFile,
    /// The folder in which agent-host is started.
    OfStart,
}

impl AgentAuthority {
    /// Reads the agent's file at `path` and all files with authority that it names. Fails if the agent's file itself
    /// cannot be read. If the file of a delegate cannot be read, a permission says so.
    pub fn of(path: &Path) -> Result<Self, ConfigError> {
        Self::read(path, GrantFolder::OfFile)
    }

    /// Reads the user-wide file at `path` as [`AgentAuthority::of`] does. Its relative grants refer to the folder in which
    /// agent-host is started.
    pub fn of_user_file(path: &Path) -> Result<Self, ConfigError> {
        Self::read(path, GrantFolder::OfStart)
    }

    fn read(path: &Path, grant_folder: GrantFolder) -> Result<Self, ConfigError> {
        let mut authority = Self { path: location(path), files: BTreeMap::new(), permissions: Vec::new() };
        let mut agents = 0;
        let mut waiting = vec![(path.to_owned(), String::new())];
        while let Some((file, prefix)) = waiting.pop() {
            let name = location(&file).to_string_lossy().into_owned();
            if authority.files.contains_key(&name) {
                continue;
            }
            agents += 1;
            if agents > MAX_AGENTS {
                authority.permissions.push(format!("{prefix}there are more than {MAX_AGENTS} agents"));
                break;
            }
            let text = match AgentFile::text(&file) {
                Ok(text) => text,
                Err(error) if prefix.is_empty() => return Err(error.into()),
                Err(_) => {
                    authority.files.insert(name, MISSING.to_owned());
                    authority.permissions.push(format!("{prefix}its file `{}` cannot be read", file.display()));
                    continue;
                }
            };
            authority.files.insert(name, digest(text.as_bytes()));
            match AgentFile::parse(&text, &file) {
                Ok(parsed) => {
                    // Only the grants of the user-wide file itself refer to the folder of the start.
                    let folder = if prefix.is_empty() { grant_folder } else { GrantFolder::OfFile };
                    authority.add(&parsed, (&text, folder), (&prefix, &mut waiting));
                }
                Err(error) if prefix.is_empty() => return Err(error.into()),
                Err(_) => {
                    authority.permissions.push(format!("{prefix}its file `{}` is not valid", file.display()));
                }
            }
        }
        Ok(authority)
    }

    fn add(
        &mut self,
        file: &AgentFile,
        (text, grant_folder): (&str, GrantFolder),
        (prefix, waiting): (&str, &mut Vec<(PathBuf, String)>),
    ) {
        let lines = permissions(file, text, grant_folder);
        self.permissions.extend(lines.into_iter().map(|line| format!("{prefix}{line}")));
        if let Some(folder) = &file.plugin_directory {
            self.add_file(&folder.join(LOCK_FILE));
        }
        for table in file.mcp.values() {
            for program in files_of_server(table, &file.folder) {
                self.add_file(&program);
            }
        }
        for (tool, table) in &file.agents {
            waiting.push((file.folder.join(&table.agent.value), format!("{prefix}delegate {tool}: ")));
        }
    }

    fn add_file(&mut self, path: &Path) {
        let digest = digest_of_file(path).unwrap_or_else(|_| MISSING.to_owned());
        self.files.insert(location(path).to_string_lossy().into_owned(), digest);
    }
}

/// Returns the path by which a file is known. Only the folder is resolved, because the relative paths in an agent's file
/// refer to the folder of a symbolic link, and not to the folder of the link's target.
pub(super) fn location(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let in_folder = || Some(absolute.parent()?.canonicalize().ok()?.join(absolute.file_name()?));
    in_folder().unwrap_or(absolute)
}

/// Resolves all symbolic links of a path. If the file does not exist, only its folder is resolved.
fn canonical(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| location(path))
}

pub(super) fn digest(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

fn digest_of_file(path: &Path) -> io::Result<String> {
    // The file is checked before it is opened, because opening a pipe can wait forever.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(File::open(path)?)?;
    Ok(hasher.finalize().to_hex().to_string())
}

/// Returns the program and the scripts of an MCP server that are in the folder of the agent's file. Files in other
/// folders, such as installed programs, do not come from the author of the agent's file.
fn files_of_server(table: &McpTable, folder: &Path) -> Vec<PathBuf> {
    let Some(command) = &table.command else { return Vec::new() };
    let inside = canonical(if folder.as_os_str().is_empty() { Path::new(".") } else { folder });
    let directory = table.directory.as_ref().map_or_else(|| folder.to_owned(), |directory| folder.join(directory));
    let program = command.value.contains(std::path::is_separator).then(|| folder.join(&command.value));
    let values = table.args.iter().flat_map(|word| [Some(word.as_str()), word.split_once('=').map(|(_, value)| value)]);
    let scripts = values.flatten().flat_map(|word| [directory.join(word), folder.join(word)]);
    let is_local = |path: &PathBuf| {
        path.is_file() && (location(path).starts_with(&inside) || canonical(path).starts_with(&inside))
    };
    program.into_iter().chain(scripts).filter(is_local).collect()
}

/// Lists what an agent's file allows.
pub(crate) fn permissions_of_file(file: &AgentFile, text: &str) -> Vec<String> {
    permissions(file, text, GrantFolder::OfFile)
}

fn permissions(file: &AgentFile, text: &str, grant_folder: GrantFolder) -> Vec<String> {
    let mut lines = Vec::new();
    // Sessions, memories and approvals belong to a name, so a name gives access to those of another agent.
    lines.extend(file.name.as_ref().map(|name| format!("name: {name}")));
    lines.extend(models(file));
    lines.extend(file.providers.iter().map(|(name, table)| provider(name, table)));
    lines.extend(file.plugin_directory.as_ref().map(|folder| format!("plugins: {}", shown(folder, &file.folder))));
    lines.extend(file.grants.iter().map(|given| grant(given, (&file.folder, grant_folder))));
    lines.extend(file.secrets.iter().map(|secret| {
        let hosts = secret.template.hosts.join(", ");
        format!("secret for {}: {} is sent to {hosts} in `{}`", secret.plugin, secret.env, secret.template.header)
    }));
    lines.extend(file.mcp.iter().map(|(name, table)| server(name, table, &file.folder)));
    lines.extend(settings_below(text, "approval", "approvals"));
    lines.extend(settings_below(text, "sharing", "signatures"));
    let service = |(name, _): (&String, _)| format!("service: {name}");
    lines.extend(file.services.iter().map(service));
    if let Some(directory) = &file.outbox.directory {
        lines.push(format!("events: written to {}", shown(&file.folder.join(&directory.value), &file.folder)));
    }
    if let Some(server) = &file.outbox.server {
        let keys = server.header_env.values().chain(&server.signing_key_env);
        lines.push(format!("events: sent to {}{}", server.url.value, with_variables(keys)));
    }
    if let Some(subject) = &file.outbox.subject {
        lines.push(format!("events: published to the subject {subject}"));
    }
    if let Some(endpoint) = &file.telemetry.endpoint {
        let variables = with_variables(file.telemetry.header_env.values());
        lines.push(format!("traces: sent to {}{variables}", endpoint.value));
    }
    lines.extend(file.schedules.keys().map(|name| format!("schedule: {name}")));
    lines
        .extend(file.webhooks.iter().map(|(name, table)| format!("webhook: {name}{}", with_variables(&table.key_env))));
    lines.extend(file.events.iter().map(|(name, table)| format!("events: {name} from the subject {}", table.subject)));
    let delegate = |(tool, table): (&String, &crate::agent_file::AgentTable)| {
        format!("delegate {tool}: {}", shown(&file.folder.join(&table.agent.value), &file.folder))
    };
    lines.extend(file.agents.iter().map(delegate));
    lines
}

fn models(file: &AgentFile) -> Vec<String> {
    let single = [
        ("model", &file.model),
        ("summary model", &file.summary_model),
        ("embedding model", &file.embedding_model),
        ("planner", &file.planner),
        ("executor", &file.executor),
    ];
    let mut lines: Vec<String> =
        single.iter().filter_map(|(what, model)| Some(format!("{what}: {}", model.as_ref()?.value))).collect();
    lines.extend(file.fallback_models.iter().map(|model| format!("fallback model: {}", model.value)));
    lines
}

fn provider(name: &str, table: &ProviderTable) -> String {
    let address = table.base_url.as_deref().unwrap_or("its usual address");
    format!(
        "provider {name}: requests go to {address}{}",
        with_variables(table.key_env.iter().chain(table.header_env.values()))
    )
}

fn with_variables<'l>(variables: impl IntoIterator<Item = &'l Located>) -> String {
    let names: Vec<&str> = variables.into_iter().map(|located| located.value.as_str()).collect();
    if names.is_empty() { String::new() } else { format!(" with the value of {}", names.join(", ")) }
}

fn grant(grant: &Grant, (folder, grant_folder): (&Path, GrantFolder)) -> String {
    let receiver: &str = match &grant.receiver {
        Receiver::Host => "the host's own tools",
        Receiver::Plugin(name) => name,
    };
    let value = match grant.kind {
        Kind::Read | Kind::Write if grant_folder == GrantFolder::OfStart && Path::new(&grant.value).is_relative() => {
            match grant.value.as_str() {
                "." => "the folder in which agent-host is started".to_owned(),
                below => format!("{below} in the folder in which agent-host is started"),
            }
        }
        Kind::Read | Kind::Write => shown(&grant.base.join(&grant.value), folder),
        _ => grant.value.clone(),
    };
    format!("grant for {receiver}: {} {value}", grant.kind.key())
}

fn server(name: &str, table: &McpTable, folder: &Path) -> String {
    let Some(command) = &table.command else {
        let url = table.url.as_deref().unwrap_or_default();
        return format!("MCP server {name}: {url}{}", with_variables(table.header_env.values()));
    };
    let words: Vec<&str> = std::iter::once(&command.value).chain(&table.args).map(String::as_str).collect();
    let directory = table.directory.as_ref().map(|directory| format!(" in {}", shown(&folder.join(directory), folder)));
    let set: Vec<String> = table.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let set = if set.is_empty() { String::new() } else { format!(" with {}", set.join(", ")) };
    let directory = directory.unwrap_or_default();
    let passed = with_variables(&table.pass_env);
    format!("MCP server {name}: starts `{}` outside the sandbox{directory}{set}{passed}", words.join(" "))
}

/// Lists the keys and values of a table of the file, including its subtables.
fn settings_below(text: &str, table: &str, topic: &str) -> Vec<String> {
    let document: Option<toml::Table> = text.parse().ok();
    let Some(toml::Value::Table(table)) = document.and_then(|mut document| document.remove(table)) else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    let mut waiting: Vec<(String, toml::Value)> = table.into_iter().rev().collect();
    while let Some((key, value)) = waiting.pop() {
        match value {
            toml::Value::Table(inner) => {
                waiting.extend(inner.into_iter().rev().map(|(name, value)| (format!("{key}.{name}"), value)));
            }
            value => lines.push(format!("{topic}: {key} = {value}")),
        }
    }
    lines
}

/// Returns a path for display. A path outside of the folder of the agent's file is shown in full and is marked.
fn shown(path: &Path, folder: &Path) -> String {
    let folder = canonical(if folder.as_os_str().is_empty() { Path::new(".") } else { folder });
    let full = canonical(path);
    match full.strip_prefix(&folder) {
        Ok(below) if below.as_os_str().is_empty() => "the whole folder of the file".to_owned(),
        Ok(below) => below.display().to_string(),
        Err(_) => format!("{} (outside the folder of the file)", full.display()),
    }
}
