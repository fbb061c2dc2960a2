//! Tests with third-party servers, which `tests/install-peers` installs. If a server is not installed, its test prints
//! a message and does nothing else. With `AGENT_HOST_REQUIRE_PEERS=1`, the test fails instead.

use crate::fixture::until;
use crate::support::{names, problems};
use agent_core::tool::ToolError;
use agent_mcp::{ChildCommand, HttpAddress, McpContent, McpServers, McpToolResult, ServerConfig, Transport};
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Returns the paths of Node.js and of the entry point of a package. Prints a message and returns `None` if the package
/// is not installed.
fn installed_server(package: &str) -> Option<(PathBuf, PathBuf)> {
    let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/.peers/node/node_modules");
    let entry = modules.join("@modelcontextprotocol").join(package).join("dist/index.js");
    let node = modules.join("node/bin/node");
    if entry.exists() && node.exists() {
        return Some((node, entry));
    }
    let required = std::env::var_os("AGENT_HOST_REQUIRE_PEERS").is_some();
    assert!(!required, "{package} is required but not installed: run tests/install-peers");
    // Do not use `eprintln!`, because the test runner captures its output.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {package} is not installed (tests/install-peers installs it)");
    None
}

/// Returns the configuration of a server that runs as a child process in Node.js.
fn stdio(name: &str, (node, entry): (PathBuf, PathBuf), args: &[&str]) -> ServerConfig {
    let entry = entry.display().to_string();
    let args = std::iter::once(entry.as_str()).chain(args.iter().copied()).map(str::to_owned).collect();
    let command = ChildCommand { command: node.display().to_string(), args, ..ChildCommand::default() };
    ServerConfig::new(name, Transport::Stdio(command))
}

async fn call(servers: &McpServers, tool: &str, arguments: Value) -> Result<McpToolResult, ToolError> {
    servers.call("every", tool, &arguments, None).await
}

fn text(result: &McpToolResult) -> String {
    let texts = result.content.iter().filter_map(|content| match content {
        McpContent::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// Calls tools of the reference server and checks each kind of content that the results of these tools contain.
async fn check_reference_server(servers: &McpServers) {
    let acquired = servers.acquire().await;
    assert_eq!(problems(&acquired), "");
    assert!(names(&acquired).contains(&"every.echo".to_owned()), "{:?}", names(&acquired));
    let echo = call(servers, "echo", json!({"message": "grüße"})).await.unwrap();
    assert!(text(&echo).contains("grüße"), "{echo:?}");
    let refused = call(servers, "echo", json!({"message": 1})).await.unwrap_err();
    assert!(refused.for_model().contains("message"), "{refused:?}");
    let image = call(servers, "get-tiny-image", json!({})).await.unwrap();
    let media = image.content.iter().find_map(|content| match content {
        McpContent::Media { bytes, mime_type, .. } => Some((bytes, mime_type.as_str())),
        _ => None,
    });
    assert!(media.is_some_and(|(bytes, mime)| bytes.starts_with(b"\x89PNG") && mime == "image/png"), "{image:?}");
    let weather = call(servers, "get-structured-content", json!({"location": "Chicago"})).await.unwrap();
    assert!(weather.structured.is_some_and(|json| json["temperature"].is_number()));
    let links = call(servers, "get-resource-links", json!({"count": 2})).await.unwrap();
    let links = links.content.iter().filter(|content| matches!(content, McpContent::Json(_))).count();
    assert_eq!(links, 2);
    let embedded = call(servers, "get-resource-reference", json!({"resourceType": "Text", "resourceId": 1}));
    assert!(text(&embedded.await.unwrap()).contains("[demo://"));
    acquired.release().await;
}

/// I5: `@modelcontextprotocol/server-everything` works as a child process.
#[tokio::test(flavor = "multi_thread")]
async fn i5_the_reference_server_works_over_stdio() {
    let Some(installed_server) = installed_server("server-everything") else { return };
    check_reference_server(&McpServers::new([stdio("every", installed_server, &["stdio"])]).unwrap()).await;
}

/// I5: `@modelcontextprotocol/server-everything` works over streamable HTTP.
#[tokio::test(flavor = "multi_thread")]
async fn i5_the_reference_server_works_over_http() {
    let Some((node, entry)) = installed_server("server-everything") else { return };
    let free_port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = tokio::process::Command::new(node);
    command.arg(entry).arg("streamableHttp").env("PORT", free_port.to_string()).kill_on_drop(true);
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let _server_process = command.spawn().unwrap();
    until("the server listens", || std::net::TcpStream::connect(("127.0.0.1", free_port)).is_ok()).await;
    let address = HttpAddress { url: format!("http://127.0.0.1:{free_port}/mcp"), ..HttpAddress::default() };
    check_reference_server(&McpServers::new([ServerConfig::new("every", Transport::Http(address))]).unwrap()).await;
}

/// I5: `@modelcontextprotocol/server-filesystem` writes and reads files, and refuses paths outside its directory.
#[tokio::test(flavor = "multi_thread")]
async fn i5_the_filesystem_server_works_over_stdio() {
    let Some(installed_server) = installed_server("server-filesystem") else { return };
    let directory = tempfile::tempdir().unwrap();
    let allowed_directory = directory.path().canonicalize().unwrap();
    let servers =
        McpServers::new([stdio("every", installed_server, &[&allowed_directory.display().to_string()])]).unwrap();
    let acquired = servers.acquire().await;
    assert_eq!(problems(&acquired), "");
    let traits = |name: &str| acquired.catalogue().tool(name).unwrap().definition.traits;
    assert!(traits("every.read_text_file").read_only && !traits("every.write_file").read_only);
    let path = allowed_directory.join("note.txt");
    let path = path.to_str().unwrap();
    call(&servers, "write_file", json!({"path": path, "content": "kept"})).await.unwrap();
    let read = call(&servers, "read_text_file", json!({"path": path})).await.unwrap();
    assert_eq!(text(&read), "kept");
    let denied = call(&servers, "read_text_file", json!({"path": "/etc/passwd"})).await.unwrap_err();
    assert!(matches!(&denied, ToolError::Failed { message } if message.contains("denied")), "{denied:?}");
    acquired.release().await;
}
