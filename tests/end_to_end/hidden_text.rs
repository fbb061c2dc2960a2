//! Row 49: what nobody sees is shown as what it is, to a model over the wire and to a person at the terminal; what is stored
//! keeps it (invariant 4).

use crate::chat_server::{Answer, ChatServer, local};
use crate::support::{House, results, turn};
use agent_mcp::{ChildCommand, ServerConfig, Transport};
use agent_runtime::{Agent, AgentConfig, Models, OpenSession, Session, TurnResult};
use serde_json::json;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Tags that spell something, an override, a joiner that joins nothing, and a control character.
const HIDDEN: [&str; 4] = ["\u{e0049}", "\u{202e}", "\u{200b}", "\u{9b}"];
/// What Persian and a family need.
const ORDINARY: &str = "می\u{200c}خواهم 👩\u{200d}💻";

/// A server whose tool says and answers the hidden characters, in UTF-8.
fn server() -> ServerConfig {
    let hidden = HIDDEN.concat();
    let script = format!(
        r#"while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9][0-9]*\).*/\1/p')
  [ -n "$id" ] || continue
  case $line in
    *'"method":"initialize"'*)
      outcome='"result":{{"protocolVersion":"2025-11-25","capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"h","version":"1"}}}}' ;;
    *'"method":"tools/list"'*)
      outcome='"result":{{"tools":[{{"name":"read","title":"t{hidden}","description":"d{hidden}","inputSchema":{{"type":"object","properties":{{"path":{{"type":"string","description":"p{hidden}"}}}}}}}}]}}' ;;
    *'"method":"tools/call"'*)
      outcome='"result":{{"content":[{{"type":"text","text":"found{hidden} {ORDINARY}"}}]}}' ;;
    *) outcome='"error":{{"code":-32601,"message":"no{hidden}"}}' ;;
  esac
  printf '{{"jsonrpc":"2.0","id":%s,%s}}\n' "$id" "$outcome"
done"#
    );
    let args = vec!["-c".to_owned(), script];
    ServerConfig::new("h", Transport::Stdio(ChildCommand { command: "sh".to_owned(), args, ..ChildCommand::default() }))
}

#[tokio::test(flavor = "multi_thread")]
async fn row_49_a_model_reads_nothing_that_nobody_sees() {
    let house = House::new(&[]).await;
    let hidden = HIDDEN.concat();
    let server_of_models =
        ChatServer::start([Answer::Calls("", vec![("h_read", json!({"path": "a"}))]), Answer::Text("Done.")]).await;
    let mut config = AgentConfig { mcp: vec![server()], ..AgentConfig::new("test") };
    config.prompt.instructions = Some(format!("Be brief.{hidden}"));
    let model = local(&server_of_models.base_url).model("local/served", Path::new(".")).expect("a model");
    let agent = Agent::new(config, Models::from(model), house.generation().await).unwrap();
    let mut session = Session::open(&house.host(), Arc::new(agent), OpenSession::New).await.unwrap();
    let result = turn(&mut session, &format!("Read it.{hidden}")).await;
    assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
    let sent = json!(server_of_models.requests()).to_string();
    for character in HIDDEN {
        let number = format!("u{{{:x}}}", u32::from(character.chars().next().unwrap()));
        assert!(!sent.contains(character), "{number} was sent");
        // Instructions, input, two descriptions and the result.
        assert!(sent.matches(&number).count() >= 5, "{number}: {sent}");
    }
    assert!(sent.contains(ORDINARY), "{sent}");
    let stored = &results(&house, &session).await[0].2;
    assert!(stored.contains(&format!("found{hidden}")), "what is stored keeps it: {}", stored.escape_unicode());
    let servers = session.agent().servers().clone();
    session.close().await.unwrap();
    servers.shutdown().await;
}

/// A person at the terminal: descriptions of tools, and names of models that a server lists.
#[tokio::test(flavor = "multi_thread")]
async fn row_49_a_person_sees_everything() {
    let folder = tempfile::tempdir().unwrap();
    let hidden = HIDDEN.concat();
    let names = [
        format!("evil{hidden}"),
        "two\nlines".to_owned(),
        "x".repeat(5000),
        "fine:1b".to_owned(),
        "good one".to_owned(),
    ];
    let listed = json!({"object": "list", "data": names.map(|id| json!({"id": id, "object": "model"}))}).to_string();
    let (url, served) = list_of_models(listed);
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_agent-host"));
        command.current_dir(folder.path()).args(arguments).env("AGENT_HOST_DATA", folder.path().join("data"));
        let output = command.stdin(Stdio::null()).output().unwrap();
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    };
    std::fs::write(folder.path().join("plain.toml"), "name = \"plain\"\n").unwrap();
    let said = run(&["--agent", "plain.toml", "--base-url", &url, "hello"]);
    served.join().unwrap();
    assert!(said.contains("has 2 models") && said.contains("--model fine:1b\n"), "{said}");
    assert!(said.contains("--model 'good one'"), "{said}");
    assert!(!said.contains("evil") && !said.contains("lines") && !said.contains("xxxx"), "{said}");

    let Transport::Stdio(ChildCommand { args, .. }) = server().transport else { panic!("a process") };
    std::fs::write(folder.path().join("server.sh"), &args[1]).unwrap();
    let agent = "model = \"offline\"\n[mcp.h]\ncommand = \"sh\"\nargs = [\"server.sh\"]\n";
    std::fs::write(folder.path().join("agent.toml"), agent).unwrap();
    let said = run(&["plugin", "list", "--agent", "agent.toml"]);
    for character in HIDDEN {
        assert!(!said.contains(character), "{}", said.escape_unicode());
    }
    assert!(said.contains("h.read") && said.contains(r"\u{202e}"), "{said}");
}

/// Serves one list of models and ends.
fn list_of_models(body: String) -> (String, std::thread::JoinHandle<()>) {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let served = std::thread::spawn(move || {
        // A host that does not ask must fail the test, not stop it.
        listener.set_nonblocking(true).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut connection = loop {
            match listener.accept() {
                Ok((connection, _)) => break connection,
                Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(10)),
                Err(error) => panic!("nobody asked: {error}"),
            }
        };
        connection.set_nonblocking(false).unwrap();
        let _ = connection.read(&mut [0; 4096]).unwrap();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
        write!(connection, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
    });
    (url, served)
}
