//! Row 55: If a plugin or an MCP server offers a tool under a name that another tool already has, the host leaves out
//! that plugin or server. The agent still works.

use crate::support::{TestHost, agent_host, call_reply, components, results, run_turn, script, text_reply};
use agent_mcp::{ChildCommand, ServerConfig, Transport};
use agent_plugins::{Manifest, with_manifest};
use agent_runtime::{AgentConfig, TurnResult};
use serde_json::json;
use std::path::Path;
use std::process::Stdio;

/// Creates a copy of the plugin `text` with another name.
fn text_plugin_named(name: &str) -> Vec<u8> {
    let manifest = Manifest { name: name.to_owned(), ..Manifest::default() };
    with_manifest(&std::fs::read(components().join("text.wasm")).unwrap(), &manifest).unwrap()
}

fn run_with_merged_output(folder: &Path, arguments: &[&str]) -> (bool, String) {
    let mut command = agent_host();
    command.current_dir(folder).args(arguments).env("AGENT_HOST_DATA", folder.join("data")).stdin(Stdio::null());
    let output = command.output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.success(), text)
}

/// Row 55: If two plugins offer the same tool, and one of the plugins is named in the agent's file, this plugin
/// keeps its tools. If neither plugin is named in the file, the plugin whose name is first in alphabetical order keeps
/// its tools.
#[test]
fn row_55_leaves_out_a_plugin_with_an_existing_tool_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    std::fs::create_dir(path.join("plugins")).unwrap();
    std::fs::copy(components().join("text.wasm"), path.join("plugins/text.wasm")).unwrap();
    std::fs::write(path.join("plugins/aaa.wasm"), text_plugin_named("aaa")).unwrap();
    std::fs::write(path.join("replies.json"), script(&[text_reply("I still work.")]).to_string()).unwrap();
    let file = "model = \"scripted:replies.json\"\nplugin_directory = \"plugins\"\n";
    for (plugin_settings, left_out) in
        [("", "text"), ("[plugins.text.grants]\nread = [\".\"]\n", "aaa"), ("[plugins.text]\n", "aaa")]
    {
        std::fs::write(path.join("agent.toml"), format!("{file}{plugin_settings}")).unwrap();
        let (done, text) = run_with_merged_output(path, &["--agent", "agent.toml", "hello"]);
        assert!(done && text.contains("I still work."), "{text}");
        assert!(text.contains(&format!("the plugin `{left_out}` is left out: two tools are named `text.")), "{text}");
    }
    // A service in the agent's own file has precedence over every plugin that offers the same tool name.
    let service = "[services.\"text.count\"]\ntype = \"com.example.count\"\n";
    std::fs::remove_file(path.join("plugins/aaa.wasm")).unwrap();
    std::fs::write(path.join("agent.toml"), format!("{file}{service}")).unwrap();
    let (done, text) = run_with_merged_output(path, &["--agent", "agent.toml", "hello"]);
    assert!(done && text.contains("the plugin `text` is left out") && text.contains("com.example.count"), "{text}");
}

/// The script of an MCP server with the tools `count` and `other`. The script runs with `sh -c`.
pub(crate) const SERVER: &str = r#"while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9][0-9]*\).*/\1/p')
  [ -n "$id" ] || continue
  case $line in
    *'"method":"initialize"'*)
      outcome='"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"clash","version":"1"}}' ;;
    *'"method":"tools/list"'*)
      outcome='"result":{"tools":[{"name":"count","inputSchema":{"type":"object"}},{"name":"other","inputSchema":{"type":"object"}}]}' ;;
    *'"method":"tools/call"'*) outcome='"result":{"content":[{"type":"text","text":"the server answers"}]}' ;;
    *) outcome='"error":{"code":-32601,"message":"unknown method"}' ;;
  esac
  printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$outcome"
done"#;

/// Row 55: If an MCP server and a plugin offer the same tool name, the host leaves out the server with all its tools.
/// The plugin and a server without a conflicting tool name keep their tools.
#[tokio::test(flavor = "multi_thread")]
async fn row_55_leaves_out_a_server_with_an_existing_tool_name() {
    let test_host = TestHost::new(&["text"]).await;
    let args = vec!["-c".to_owned(), SERVER.to_owned()];
    let command = || ChildCommand { command: "sh".to_owned(), args: args.clone(), ..ChildCommand::default() };
    let servers = ["text", "desk"].map(|name| ServerConfig::new(name, Transport::Stdio(command())));
    let config = AgentConfig { mcp: servers.to_vec(), ..AgentConfig::new("test") };
    let calls = [("text.count", json!({"text": "one two"})), ("text.other", json!({})), ("desk.count", json!({}))];
    let mut session = test_host.session(config, script(&[call_reply(&calls), text_reply("Done.")])).await;
    let result = run_turn(&mut session, "Go.").await;
    assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
    let results = results(&test_host, &session).await;
    assert!(!results[0].2.contains("the server answers"), "the plugin's tool is called: {results:?}");
    assert!(results[1].1 && results[1].2.contains("there is no tool `text.other`"), "{results:?}");
    assert_eq!(results[2].2, "the server answers", "the other server answers: {results:?}");
    let source = session.agent().registry().get("text.count").unwrap().source.to_string();
    assert!(source.contains("text@"), "{source}");
    let servers = session.agent().servers().clone();
    session.close().await.unwrap();
    servers.shutdown().await;
}
