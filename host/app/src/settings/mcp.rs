//! How each MCP server is started or reached (I5): agent.toml and the environment together. Values are read here and
//! shown nowhere.

use super::Variables;
use crate::configuration::{AgentFile, McpTable, Placed};
use agent_mcp::{
    ChildCommand, HttpAddress, Keep, MCP_LIMITS, McpLimits, Secrets, ServerConfig, ToolSelection, Transport,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Variables without which few programs run.
const ALWAYS_PASSED: [&str; 6] = ["PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR"];

/// All servers of the file, or all that is wrong with them, each led by where it was written.
pub(super) fn servers(file: &AgentFile, variable: Variables<'_>) -> Result<Vec<ServerConfig>, Vec<String>> {
    let (mut servers, mut problems) = (Vec::new(), Vec::new());
    for (name, table) in &file.mcp {
        // The reader has refused a table with neither, or with both.
        let transport = match (&table.command, &table.url) {
            (Some(command), _) => {
                Transport::Stdio(child(&command.value, table, (&file.folder, variable), &mut problems))
            }
            (None, url) => Transport::Http(address(url.as_deref().unwrap_or_default(), table, variable, &mut problems)),
        };
        let mut server = ServerConfig::new(name, transport);
        server.limits = limits(table);
        let passed = table.pass_env.iter().chain(table.header_env.values());
        server.secrets = Secrets::new(passed.filter_map(|Placed { value: name, .. }| variable(name)));
        if let Some(tools) = &table.tools {
            server.tools = ToolSelection::Only(tools.clone());
        }
        if table.keep.as_deref() == Some("always") {
            server.keep = Keep::Always;
        }
        servers.push(server);
    }
    if problems.is_empty() { Ok(servers) } else { Err(problems) }
}

fn child(
    command: &str,
    table: &McpTable,
    (folder, variable): (&Path, Variables<'_>),
    problems: &mut Vec<String>,
) -> ChildCommand {
    let mut env: BTreeMap<String, String> =
        ALWAYS_PASSED.into_iter().filter_map(|name| Some((name.to_owned(), variable(name)?))).collect();
    for Placed { value: name, place } in &table.pass_env {
        match variable(name) {
            Some(value) => drop(env.insert(name.clone(), value)),
            None => problems.push(format!("{place}: the environment variable `{name}` is not set: set it")),
        }
    }
    env.extend(table.env.clone());
    let is_path = command.contains('/') || command.contains(std::path::MAIN_SEPARATOR);
    let command = if is_path { absolute(folder, command).display().to_string() } else { command.to_owned() };
    let directory = table.directory.as_ref().map(|directory| absolute(folder, directory));
    ChildCommand { command, args: table.args.clone(), env, directory }
}

fn address(url: &str, table: &McpTable, variable: Variables<'_>, problems: &mut Vec<String>) -> HttpAddress {
    let mut headers = table.headers.clone();
    for (header, Placed { value: name, place }) in &table.header_env {
        match variable(name).filter(|value| !value.trim().is_empty()) {
            Some(value) => drop(headers.insert(header.clone(), value)),
            None => problems.push(format!("{place}: the environment variable `{name}` is not set, or empty: set it")),
        }
    }
    HttpAddress { url: url.to_owned(), headers }
}

/// The process runs in a folder of its own, so that a relative path would mean something else there.
fn absolute(folder: &Path, path: &str) -> PathBuf {
    let path = folder.join(path);
    std::path::absolute(&path).unwrap_or(path)
}

fn limits(table: &McpTable) -> McpLimits {
    let defaults = McpLimits::default();
    let or = |given: Option<u32>, default| given.map_or(default, |ms| Duration::from_millis(u64::from(ms)));
    let mut limits = McpLimits {
        call_time: or(table.timeout_ms, defaults.call_time),
        connect_time: or(table.start_timeout_ms, defaults.connect_time),
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

    /// I5
    #[test]
    fn a_process_gets_what_is_said_and_no_more() {
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
        assert_eq!(server.secrets, Secrets::new(["hush".to_owned()]), "what is passed is secret");
        assert_eq!((server.keep, server.tools.clone()), (Keep::Always, ToolSelection::Only(vec!["one".to_owned()])));
        assert_eq!((server.limits.call_time.as_millis(), server.limits.connect_time.as_millis()), (5, 6));
        let on_the_path = read("[mcp.notes]\ncommand = \"notes\"").unwrap();
        assert!(matches!(&on_the_path[0].transport, Transport::Stdio(child) if child.command == "notes"));
    }

    /// I5
    #[test]
    fn an_address_gets_its_headers_and_what_is_not_set_is_named() {
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
