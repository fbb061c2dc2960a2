//! The binary with third-party MCP servers from `agent.toml`, over stdio and over HTTP in one turn (I5). If the servers
//! are not installed, the tests print a message and are skipped.

use crate::peers::{mcp_package, node};
use crate::support::{agent_host, call_reply, text_reply};
use serde_json::{Value, json};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A server process that is killed when this value is dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the reference server over streamable HTTP. Returns the server and the port of the server.
fn serve_everything(node: &Path, entry: &Path) -> (Server, u16) {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = Command::new(node);
    command.arg(entry).arg("streamableHttp").env("PORT", port.to_string());
    let server = Server(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let started = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(started.elapsed() < Duration::from_secs(60), "the server accepts no connections");
        std::thread::sleep(Duration::from_millis(20));
    }
    (server, port)
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = agent_host();
    command.current_dir(folder).args(arguments).args(["--data", "data"]).stdin(Stdio::null());
    command.output().unwrap()
}

/// I5, L7, L17: A turn uses the reference server over HTTP and the file server over stdio. The calls of this test cover
/// tool names, images, errors, and a write that needs an approval.
#[test]
fn i5_one_turn_uses_real_servers_over_stdio_and_http() {
    let Some(node) = node() else { return };
    let (Some(everything), Some(files)) = (mcp_package("server-everything"), mcp_package("server-filesystem")) else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().canonicalize().unwrap();
    let tree = folder.join("tree");
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("list.txt"), "three eggs").unwrap();
    let (_server, port) = serve_everything(&node, &everything);
    let agent = format!(
        "model = \"scripted:script.json\"\noffered_tools = 100\n\
         [mcp.every]\nurl = \"http://127.0.0.1:{port}/mcp\"\n\
         [mcp.files]\ncommand = {node:?}\nargs = [{files:?}, {tree:?}]\n\
         [approval]\ndestructive = \"allow\"\n[approval.tools]\n\"files.write_file\" = \"ask\"\n"
    );
    std::fs::write(folder.join("agent.toml"), agent).unwrap();
    let calls = [
        ("every.echo", json!({"message": "grüße"})),
        ("every.get-tiny-image", json!({})),
        ("files.read_text_file", json!({"path": tree.join("list.txt")})),
        ("files.read_text_file", json!({"path": "/etc/passwd"})),
        ("files.write_file", json!({"path": tree.join("note.txt"), "content": "kept"})),
    ];
    let mut done = text_reply("Done.");
    done["expect"] = json!({"contains": ["grüße", "three eggs", "denied"]});
    std::fs::write(folder.join("script.json"), json!({"replies": [call_reply(&calls), done]}).to_string()).unwrap();

    let waiting_run = run(&folder, &["--agent", "agent.toml", "--json", "Go."]);
    let stderr = String::from_utf8_lossy(&waiting_run.stderr);
    assert_eq!(waiting_run.status.code(), Some(3), "the file is not written without approval: {stderr}");
    assert!(!tree.join("note.txt").exists());
    let events: Vec<Value> = String::from_utf8(waiting_run.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of_type = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
    assert_eq!((of_type("tool_result"), of_type("tool_result_error")), (3, 1), "{events:?}");
    let session = events.last().unwrap()["session"].as_str().unwrap().to_owned();
    let allowed = run(&folder, &["session", "approve", &session, "--agent", "agent.toml"]);
    let stderr = String::from_utf8_lossy(&allowed.stderr);
    assert_eq!(String::from_utf8_lossy(&allowed.stdout), "Done.\n", "{stderr}");
    assert_eq!(std::fs::read_to_string(tree.join("note.txt")).unwrap(), "kept");
}

/// I5: If an HTTP server is not running, calls to its tools return errors, and the turn continues.
#[test]
fn i5_the_tools_of_a_stopped_http_server_return_errors() {
    let directory = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let agent = format!(
        "model = \"scripted:script.json\"\n[approval]\ndestructive = \"allow\"\n[mcp.every]\nurl = \"http://127.0.0.1:{port}/mcp\"\n"
    );
    std::fs::write(directory.path().join("agent.toml"), agent).unwrap();
    let mut done = text_reply("Without it.");
    done["expect"] = json!({"last_contains": "MCP server every could not be reached"});
    let replies = json!({"replies": [call_reply(&[("every.echo", json!({}))]), done]});
    std::fs::write(directory.path().join("script.json"), replies.to_string()).unwrap();
    let output = run(directory.path(), &["--agent", "agent.toml", "Go."]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        (output.status.code(), String::from_utf8_lossy(&output.stdout).as_ref()),
        (Some(0), "Without it.\n"),
        "{stderr}"
    );
}
