//! With the real binary: plugins cannot write files that the host reads to make decisions (row 40), and a grant that is
//! revoked in agent.toml is also revoked for the running call (row 48).

use crate::support::{SharedCompiledCode, agent_host, call_reply, components, script, text_reply};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;

/// A folder with an agent, its plugins and its data. The plugin `intruder` tries to change files in this folder.
pub(crate) struct IntruderFolder {
    _compiled_code: SharedCompiledCode,
    folder: TempDir,
}

impl IntruderFolder {
    pub(crate) fn new(agent: &str, operations: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let compiled_code = SharedCompiledCode::in_data(&folder.path().join("data"));
        let folder = Self { _compiled_code: compiled_code, folder };
        for name in ["plugins", "agents", "out"] {
            std::fs::create_dir(folder.path(name)).unwrap();
        }
        std::fs::copy(components().join("intruder.wasm"), folder.path("plugins/intruder.wasm")).unwrap();
        std::fs::write(folder.path("agents/below.toml"), "name = \"below\"\nmodel = \"offline\"\n").unwrap();
        let replies = [call_reply(&[("intruder.deeds", json!({"deeds": operations}))]), text_reply("Done.")];
        let mut script = script(&replies);
        script["answers"] = json!([text_reply("Yes."), text_reply("Yes.")]);
        std::fs::write(folder.path("script.json"), script.to_string()).unwrap();
        folder.configure(agent);
        folder
    }

    fn configure(&self, agent: &str) {
        let text =
            format!("name = \"clerk\"\nmodel = \"scripted:script.json\"\nplugin_directory = \"plugins\"\n{agent}");
        std::fs::write(self.path("agent.new"), text).unwrap();
        std::fs::rename(self.path("agent.new"), self.path("agent.toml")).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(name)
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = agent_host();
        command.args(arguments).args(["--data", "data"]).current_dir(self.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs the binary and returns everything that it printed.
    pub(crate) fn run(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    }

    /// Returns every file with its content, except the host's own files in its data folder.
    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        let mut folders = vec![self.path("")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let metadata = path.symlink_metadata().unwrap();
                match metadata.is_dir() {
                    true if path.ends_with("data") => {}
                    true => folders.push(path),
                    false if metadata.is_symlink() => drop(files.insert(path, b"a link".to_vec())),
                    false => drop(files.insert(path.clone(), std::fs::read(path).unwrap())),
                }
            }
        }
        files
    }
}

/// Row 40: If a grant lets a plugin write to the agent's own folder (`write = ["."]`), the plugin still cannot change a
/// file that the host reads to make decisions. The host tells the user in advance which files the grant excludes.
#[test]
fn row_40_a_grant_of_the_agents_folder_excludes_decision_files() {
    let attacks = [
        "write agent.toml x",
        "append agent.toml x",
        "remove agent.toml",
        "move agent.toml old.toml",
        "size agent.toml 0",
        "write evil.toml x",
        "move evil.toml agent.toml",
        "twin agent.toml twin",
        "write plugins/evil.wasm x",
        "write plugins/intruder.wasm x",
        "write plugins/plugins.lock x",
        "mkdir plugins/new",
        "move plugins elsewhere",
        "symlink /etc plugins/link",
        "symlink agent.toml link",
        "write link x",
        "write agents/below.toml x",
        "move agents elsewhere",
        "write data/agent-host.db x",
        "write data/stray x",
        "read data/agent-host.db",
        "move data elsewhere",
        "write out/forged.json x",
        "symlink / out/link",
    ];
    let agent = "agents.below = { agent = \"agents/below.toml\", description = \"Helps.\" }\n[outbox]\ndirectory = \"out\"\n\
                 [plugins.intruder.grants]\nwrite = [\".\"]\n";
    let folder = IntruderFolder::new(agent, &format!("{}; write honest x", attacks.join("; ")));
    let checked = folder.run(&["config", "check", "agent.toml"]);
    for excluded in ["agent.toml", "plugins", "data", "out"] {
        assert!(checked.contains(excluded), "{excluded}: {checked}");
    }
    let before = folder.files();
    let output_text = folder.run(&["--agent", "agent.toml", "--json", "Go."]);
    assert_eq!(std::fs::read(folder.path("honest")).unwrap(), b"x", "the grant itself works: {output_text}");
    let mut files_after = folder.files();
    for path in ["honest", "evil.toml", "twin", "link"] {
        files_after.remove(&folder.path(path));
    }
    assert_eq!(before.keys().collect::<Vec<_>>(), files_after.keys().collect::<Vec<_>>(), "{output_text}");
    assert!(before == files_after, "{output_text}");
    assert!(!folder.path("data/stray").exists() && folder.path("data/agent-host.db").exists(), "{output_text}");
    assert!(!output_text.contains("SQLite format"), "the database is not read either: {output_text}");
    let listed = folder.run(&["session", "list", "--json"]);
    assert!(listed.contains("\"subject\""), "the store is intact: {listed}");
}

/// Row 40: A file next to the script of an MCP server, or a file that the server's package manager reads, would run as
/// native code at the next start. A plugin can neither write such a file, nor move a folder that contains such a file
/// next to the script.
#[test]
fn row_40_protects_files_that_an_mcp_server_would_load() {
    let attacks = [
        "write json.py x",
        "write JSON.PY x",
        "append server.py x",
        "mkdir typing; write typing/__init__.py x",
        "write work/re.py x",
        "write notes.txt x; move notes.txt re.py",
        "write notes.txt x; twin notes.txt abc.py",
        "symlink notes.txt os.py",
        "mkdir node_modules",
        "write .npmrc x",
        "write package.json x",
        "write main x",
        "write lib/helper.cjs x",
        "write tools/three x",
    ];
    let agent = "[mcp.one]\ncommand = \"python3\"\nargs = [\"server.py\"]\n[mcp.two]\ncommand = \"npx\"\nargs = [\"--offline\", \"absent-server\"]\n\
                 [mcp.three]\ncommand = \"sh\"\nargs = [\"-c\", \"exec node main.js\"]\nenv = { PATH = \"tools:/usr/bin\" }\n\
                 [plugins.intruder.grants]\nwrite = [\".\"]\n";
    let folder = IntruderFolder::new(agent, &format!("mkdir work; {}; write honest x", attacks.join("; ")));
    std::fs::write(folder.path("server.py"), "raise SystemExit(3)\n").unwrap();
    std::fs::write(folder.path("main.js"), "process.exit(3)\n").unwrap();
    for name in ["lib", "tools"] {
        std::fs::create_dir(folder.path(name)).unwrap();
    }
    let checked = folder.run(&["config", "check", "agent.toml"]);
    assert!(checked.contains("the MCP server `one` runs in"), "{checked}");
    for excluded in ["server.py", "code that the MCP server `one` runs", "code that the MCP server `two` runs"] {
        assert!(checked.contains(excluded), "{excluded}: {checked}");
    }
    let output_text = folder.run(&["--agent", "agent.toml", "--json", "Go."]);
    assert!(folder.path("honest").exists() && folder.path("work").is_dir(), "the grant itself works: {output_text}");
    assert_eq!(std::fs::read_to_string(folder.path("server.py")).unwrap(), "raise SystemExit(3)\n");
    for path in folder.files().keys() {
        let name = path.file_name().unwrap().to_string_lossy().to_lowercase();
        let is_loaded = name.ends_with(".py") && name != "server.py"
            || [".npmrc", "package.json", "main", "helper.cjs", "three"].contains(&&*name);
        assert!(!is_loaded && !path.to_string_lossy().contains("node_modules"), "{}: {output_text}", path.display());
    }
    assert!(!folder.path("node_modules").exists(), "{output_text}");
}

/// Row 40: A plugin that is run with `plugin call` cannot change files that the host reads to make decisions.
#[test]
fn row_40_plugin_call_cannot_change_decision_files() {
    let folder = IntruderFolder::new("[plugins.intruder.grants]\nwrite = [\".\"]\n", "list .");
    let before = std::fs::read(folder.path("agent.toml")).unwrap();
    let arguments =
        "{\"deeds\": \"write agent.toml x; write plugins/evil.wasm x; write data/stray x; write honest x\"}";
    let output_text =
        folder.run(&["plugin", "call", "plugins/intruder.wasm", "intruder.deeds", arguments, "--agent", "agent.toml"]);
    assert!(folder.path("honest").exists(), "the grant itself works: {output_text}");
    assert_eq!(std::fs::read(folder.path("agent.toml")).unwrap(), before, "{output_text}");
    assert!(!folder.path("plugins/evil.wasm").exists() && !folder.path("data/stray").exists(), "{output_text}");
}

/// A server that answers all requests and counts them.
struct CountingServer {
    address: SocketAddr,
    requests: Arc<AtomicUsize>,
}

impl CountingServer {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, requests) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (Ok(mut stream), counted) = (stream, Arc::clone(&counted)) else { continue };
                std::thread::spawn(move || {
                    let mut buffer = [0; 4096];
                    while stream.read(&mut buffer).is_ok_and(|read| read > 0) {
                        counted.fetch_add(1, Ordering::SeqCst);
                        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
                    }
                });
            }
        });
        Self { address, requests }
    }
}

/// Runs the agent without a terminal, edits agent.toml once the plugin's call has started, and returns the result of
/// that call.
fn result_after_edit(folder: &IntruderFolder, started_marker: &Path, edited: &str) -> String {
    let mut running = folder.command(&["--agent", "agent.toml", "--json", "Go."]).spawn().unwrap();
    let lines = BufReader::new(running.stdout.take().unwrap()).lines();
    let started = std::time::Instant::now();
    while !started_marker.exists() {
        assert!(started.elapsed().as_secs() < 60, "the call does not start");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    folder.configure(edited);
    let event_lines: Vec<String> = lines.map(|line| line.unwrap()).collect();
    assert!(running.wait().unwrap().success(), "{event_lines:#?}");
    let result = event_lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let result = result.filter(|event| event["type"].as_str().is_some_and(|kind| kind.starts_with("tool_result")));
    result.map(|event| event.to_string()).collect::<Vec<_>>().concat()
}

/// Row 48: If a grant is revoked in agent.toml while a call runs, the call's next use of that grant fails. The grants
/// of the call that are not revoked still apply. The test covers every kind of grant.
#[test]
fn row_48_revoking_a_grant_affects_the_running_call() {
    let server = CountingServer::start();
    let url = format!("http://{}/", server.address);
    let get = format!("get {url}");
    let kinds = [
        ("write = [\"tree\", \"begun\"]".to_owned(), "write tree/x x"),
        (format!("http = [\"GET {url}\"]"), get.as_str()),
        ("key_value_mib = 1".to_owned(), "keep x"),
        ("model_tokens = 10000".to_owned(), "ask Really?"),
    ];
    let each = kinds.each_ref().map(|(_, operation)| *operation).join("; ");
    for revoked in 0..kinds.len() {
        let mut grants = kinds.each_ref().map(|(grant, _)| grant.clone());
        let agent = |grants: &[String]| format!("[plugins.intruder.grants]\nask = false\n{}\n", grants.join("\n"));
        let folder = IntruderFolder::new(&agent(&grants), &format!("{each}; write begun/now x; sleep 4000; {each}"));
        for name in ["tree", "begun"] {
            std::fs::create_dir(folder.path(name)).unwrap();
        }
        grants[revoked] = if revoked == 0 { "write = [\"begun\"]".to_owned() } else { String::new() };
        let before = server.requests.load(Ordering::SeqCst);
        let result = result_after_edit(&folder, &folder.path("begun/now"), &agent(&grants));
        for (index, (grant, operation)) in kinds.iter().enumerate() {
            // In the result, the line about a failed operation also contains the kind of the error.
            let succeeded = result.matches(&format!("{operation}: \\n")).count();
            assert_eq!(succeeded, if index == revoked { 1 } else { 2 }, "{grant}, without {revoked}: {result}");
        }
        let sent = server.requests.load(Ordering::SeqCst) - before;
        assert_eq!(sent, if revoked == 1 { 1 } else { 2 }, "without {revoked}: {result}");
    }
}
