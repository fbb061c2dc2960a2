//! Row 49: Invisible characters are shown in visible form, both in requests to a model and in the terminal. The stored
//! text keeps the invisible characters (invariant 4).

use crate::chat_server::{Answer, ChatServer, local_provider};
use crate::support::{TestHost, agent_host, results, run_turn};
use agent_mcp::{ChildCommand, ServerConfig, Transport};
use agent_runtime::{Agent, AgentConfig, Models, OpenSession, Session, TurnResult};
use serde_json::json;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A tag character, a direction override, a joiner that joins nothing, and a control character.
const HIDDEN_CHARACTERS: [&str; 4] = ["\u{e0049}", "\u{202e}", "\u{200b}", "\u{9b}"];
/// A text whose joiner characters the host keeps, because the joiners have an effect: a Persian word and an emoji that
/// consists of two characters.
const TEXT_WITH_JOINERS: &str = "می\u{200c}خواهم 👩\u{200d}💻";

/// A server whose tool description and result contain the hidden characters in UTF-8.
fn server() -> ServerConfig {
    let hidden = HIDDEN_CHARACTERS.concat();
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
      outcome='"result":{{"content":[{{"type":"text","text":"found{hidden} {TEXT_WITH_JOINERS}"}}]}}' ;;
    *) outcome='"error":{{"code":-32601,"message":"no{hidden}"}}' ;;
  esac
  printf '{{"jsonrpc":"2.0","id":%s,%s}}\n' "$id" "$outcome"
done"#
    );
    let args = vec!["-c".to_owned(), script];
    ServerConfig::new("h", Transport::Stdio(ChildCommand { command: "sh".to_owned(), args, ..ChildCommand::default() }))
}

#[tokio::test(flavor = "multi_thread")]
async fn row_49_a_model_gets_no_invisible_characters() {
    let test_host = TestHost::new(&[]).await;
    let hidden = HIDDEN_CHARACTERS.concat();
    let model_server =
        ChatServer::start([Answer::Calls("", vec![("h_read", json!({"path": "a"}))]), Answer::Text("Done.")]).await;
    let mut config = AgentConfig { mcp: vec![server()], ..AgentConfig::new("test") };
    config.prompt.instructions = Some(format!("Be brief.{hidden}"));
    let model = local_provider(&model_server.base_url).model("local/served", Path::new(".")).expect("a model");
    let agent = Agent::new(config, Models::from(model), test_host.generation().await).unwrap();
    let mut session = Session::open(&test_host.host(), Arc::new(agent), OpenSession::New).await.unwrap();
    let result = run_turn(&mut session, &format!("Read it.{hidden}")).await;
    assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
    let sent = json!(model_server.requests()).to_string();
    for character in HIDDEN_CHARACTERS {
        let number = format!("u{{{:x}}}", u32::from(character.chars().next().unwrap()));
        assert!(!sent.contains(character), "{number} was sent");
        // Each hidden character occurs in the instructions, the input, two descriptions and the result.
        assert!(sent.matches(&number).count() >= 5, "{number}: {sent}");
    }
    assert!(sent.contains(TEXT_WITH_JOINERS), "{sent}");
    let stored = &results(&test_host, &session).await[0].2;
    assert!(
        stored.contains(&format!("found{hidden}")),
        "the stored text keeps the hidden characters: {}",
        stored.escape_unicode()
    );
    let servers = session.agent().servers().clone();
    session.close().await.unwrap();
    servers.shutdown().await;
}

/// Row 49: In the terminal, invisible characters in tool descriptions are shown in visible form. Models whose names
/// contain invisible characters are not listed.
#[tokio::test(flavor = "multi_thread")]
async fn row_49_the_terminal_shows_invisible_characters_in_visible_form() {
    let folder = tempfile::tempdir().unwrap();
    let hidden = HIDDEN_CHARACTERS.concat();
    let names = [
        format!("evil{hidden}"),
        "two\nlines".to_owned(),
        "x".repeat(5000),
        "fine:1b".to_owned(),
        "good one".to_owned(),
    ];
    let listed = json!({"object": "list", "data": names.map(|id| json!({"id": id, "object": "model"}))}).to_string();
    let (url, served) = serve_model_list(listed);
    let run = |arguments: &[&str]| {
        let mut command = agent_host();
        command.current_dir(folder.path()).args(arguments).env("AGENT_HOST_DATA", folder.path().join("data"));
        let output = command.stdin(Stdio::null()).output().unwrap();
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    };
    std::fs::write(folder.path().join("plain.toml"), "name = \"plain\"\n").unwrap();
    let output_text = run(&["--agent", "plain.toml", "--base-url", &url, "hello"]);
    served.join().unwrap();
    assert!(output_text.contains("has 2 models") && output_text.contains("--model fine:1b\n"), "{output_text}");
    assert!(output_text.contains("--model 'good one'"), "{output_text}");
    assert!(
        !output_text.contains("evil") && !output_text.contains("lines") && !output_text.contains("xxxx"),
        "{output_text}"
    );

    let Transport::Stdio(ChildCommand { args, .. }) = server().transport else { panic!("a process") };
    std::fs::write(folder.path().join("server.sh"), &args[1]).unwrap();
    let agent = "model = \"offline\"\n[mcp.h]\ncommand = \"sh\"\nargs = [\"server.sh\"]\n";
    std::fs::write(folder.path().join("agent.toml"), agent).unwrap();
    let output_text = run(&["plugin", "list", "--agent", "agent.toml"]);
    for character in HIDDEN_CHARACTERS {
        assert!(!output_text.contains(character), "{}", output_text.escape_unicode());
    }
    assert!(output_text.contains("h.read") && output_text.contains(r"\u{202e}"), "{output_text}");
}

/// Answers one request with a list of models and then stops.
fn serve_model_list(body: String) -> (String, std::thread::JoinHandle<()>) {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let served = std::thread::spawn(move || {
        // Accepting a connection does not block the thread, so that the test fails at the deadline if the host sends
        // no request.
        listener.set_nonblocking(true).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut connection = loop {
            match listener.accept() {
                Ok((connection, _)) => break connection,
                Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(10)),
                Err(error) => panic!("no request arrived: {error}"),
            }
        };
        connection.set_nonblocking(false).unwrap();
        let _ = connection.read(&mut [0; 4096]).unwrap();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
        write!(connection, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
    });
    (url, served)
}
