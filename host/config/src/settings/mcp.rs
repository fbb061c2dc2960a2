//! Builds the configuration of MCP servers (I5) from `agent.toml` and the environment. Values of environment variables
//! are never shown.

use super::Variables;
use crate::agent_file::{AgentFile, Located, McpTable};
use agent_mcp::{
    ChildCommand, HttpAddress, KeepConnected, MCP_LIMITS, McpLimits, Secrets, ServerConfig, ToolSelection, Transport,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Environment variables that are passed to every server, because most programs need them.
const ALWAYS_PASSED: [&str; 6] = ["PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR"];

/// Returns all servers that the file configures. If the configuration has problems, returns all problems, each with its
/// location in the file.
pub(super) fn servers(file: &AgentFile, variable: Variables<'_>) -> Result<Vec<ServerConfig>, Vec<String>> {
    let (mut servers, mut problems) = (Vec::new(), Vec::new());
    for (name, table) in &file.mcp {
        // The check of the file rejects tables that have neither `command` nor `url`, and tables that have both keys.
        let transport = match (&table.command, &table.url) {
            (Some(command), _) => {
                Transport::Stdio(child_command(&command.value, table, (&file.folder, variable), &mut problems))
            }
            (None, url) => {
                Transport::Http(http_address(url.as_deref().unwrap_or_default(), table, variable, &mut problems))
            }
        };
        let mut server = ServerConfig::new(name, transport);
        server.limits = limits(table);
        let passed = table.pass_env.iter().chain(table.header_env.values());
        server.secrets = Secrets::new(passed.filter_map(|Located { value: name, .. }| variable(name)));
        if let Some(tools) = &table.tools {
            server.tools = ToolSelection::Only(tools.clone());
        }
        if table.keep.as_deref() == Some("always") {
            server.keep = KeepConnected::Always;
        }
        servers.push(server);
    }
    if problems.is_empty() { Ok(servers) } else { Err(problems) }
}

fn child_command(
    command: &str,
    table: &McpTable,
    (folder, variable): (&Path, Variables<'_>),
    problems: &mut Vec<String>,
) -> ChildCommand {
    let mut env: BTreeMap<String, String> =
        ALWAYS_PASSED.into_iter().filter_map(|name| Some((name.to_owned(), variable(name)?))).collect();
    for Located { value: name, location } in &table.pass_env {
        match variable(name) {
            Some(value) => drop(env.insert(name.clone(), value)),
            None => problems
                .push(format!("{location}: the environment variable `{name}` is not set; set it, or remove the key")),
        }
    }
    env.extend(table.env.clone());
    let is_path = command.contains('/') || command.contains(std::path::MAIN_SEPARATOR);
    let command = if is_path { absolute(folder, command).display().to_string() } else { command.to_owned() };
    let directory = table.directory.as_ref().map(|directory| absolute(folder, directory));
    ChildCommand { command, args: table.args.clone(), env, directory }
}

fn http_address(url: &str, table: &McpTable, variable: Variables<'_>, problems: &mut Vec<String>) -> HttpAddress {
    let mut headers = table.headers.clone();
    for (header, Located { value: name, location }) in &table.header_env {
        match variable(name).filter(|value| !value.trim().is_empty()) {
            Some(value) => drop(headers.insert(header.clone(), value)),
            None => problems.push(format!(
                "{location}: the environment variable `{name}` is not set or is empty; set it, or remove the key"
            )),
        }
    }
    HttpAddress { url: url.to_owned(), headers }
}

/// Makes a path absolute, because the server may run in another folder.
fn absolute(folder: &Path, path: &str) -> PathBuf {
    let path = folder.join(path);
    std::path::absolute(&path).unwrap_or(path)
}

fn limits(table: &McpTable) -> McpLimits {
    let defaults = McpLimits::default();
    let duration_or = |value: Option<u32>, default| value.map_or(default, |ms| Duration::from_millis(u64::from(ms)));
    let mut limits = McpLimits {
        call_time: duration_or(table.timeout_ms, defaults.call_time),
        connect_time: duration_or(table.start_timeout_ms, defaults.connect_time),
        ..defaults
    };
    table.limits.set(&MCP_LIMITS, &mut limits);
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<ServerConfig>, Vec<String>> {
        let file = AgentFile::parse(text, Path::new("/agents/agent.toml")).unwrap_or_else(|error| panic!("{error}"));
        let variable = |name: &str| {
            let known = [("PATH", "/bin"), ("NOTES_TOKEN", "hush"), ("SECRET", "hush"), ("EMPTY", " ")];
            known.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        servers(&file, &variable)
    }

    /// I5: a server that is a process gets the variables of `env` and `pass_env`, and the variables that every server
    /// gets.
    #[test]
    fn mcp_process_gets_only_the_configured_environment() {
        let text = "[mcp.notes]\ncommand = \"bin/notes\"\nargs = [\"-r\"]\nenv = { A = \"b\" }\npass_env = [\"NOTES_TOKEN\"]\n\
                    directory = \"work\"\ntools = [\"one\"]\nkeep = \"always\"\ntimeout_ms = 5\nstart_timeout_ms = 6";
        let servers = read(text).unwrap();
        let [server] = servers.as_slice() else { panic!("{servers:?}") };
        let Transport::Stdio(child) = &server.transport else { panic!("{server:?}") };
        let env = [("A", "b"), ("NOTES_TOKEN", "hush"), ("PATH", "/bin")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(child.env, env.into());
        assert_eq!(
            (child.command.as_str(), child.directory.as_deref()),
            ("/agents/bin/notes", Some(Path::new("/agents/work")))
        );
        assert_eq!(server.secrets, Secrets::new(["hush".to_owned()]), "passed values are secrets");
        assert_eq!(
            (server.keep, server.tools.clone()),
            (KeepConnected::Always, ToolSelection::Only(vec!["one".to_owned()]))
        );
        assert_eq!((server.limits.call_time.as_millis(), server.limits.connect_time.as_millis()), (5, 6));
        let on_the_path = read("[mcp.notes]\ncommand = \"notes\"").unwrap();
        assert!(matches!(&on_the_path[0].transport, Transport::Stdio(child) if child.command == "notes"));
    }

    /// I5: headers contain the values of environment variables, and missing or empty variables are reported.
    #[test]
    fn mcp_headers_come_from_variables_and_missing_variables_are_reported() {
        let address = "[mcp.issues]\nurl = \"https://a/mcp\"\nheaders = { A = \"b\" }\nheader_env = ";
        let servers = read(&format!("{address}{{ Authorization = \"SECRET\" }}")).unwrap();
        let Transport::Http(found) = &servers[0].transport else { panic!("{servers:?}") };
        let headers = [("A", "b"), ("Authorization", "hush")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(servers[0].secrets, Secrets::new(["hush".to_owned()]));
        assert_eq!((found.url.as_str(), &found.headers), ("https://a/mcp", &headers.into()));
        let problems =
            read(&format!("{address}{{ Authorization = \"EMPTY\" }}\n[mcp.a]\ncommand = \"a\"\npass_env = [\"B\"]"));
        let problems = problems.unwrap_err().join("\n");
        assert!(problems.contains("agent.toml:4") && problems.contains("`EMPTY`"), "{problems}");
        assert!(problems.contains("agent.toml:7") && problems.contains("`B`"), "{problems}");
    }
}
