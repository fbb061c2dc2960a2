//! Tests of servers that run as child processes (I5): their tools, the results of calls, and whether all their
//! processes end.

use crate::fixture::until;
use crate::support::{Fixture, call, call_with, failed_message, names, text};
use agent_core::plugin::TraceContext;
use agent_core::tool::ToolError;
use agent_mcp::{KeepConnected, McpContent, McpServers, ToolSelection};
use serde_json::json;
use std::time::Duration;

/// I5, L7, P2: the name of each tool begins with the name of its server, and all kinds of content in results
/// are converted.
#[tokio::test(flavor = "multi_thread")]
async fn i5_a_child_process_provides_its_tools() {
    let fixture = Fixture::new("good");
    let servers = fixture.servers();
    assert!(fixture.log.started().is_empty(), "no server starts before it is needed");
    let acquired = servers.acquire().await;
    assert_eq!(acquired.catalogue().problems(), []);
    let look = acquired.catalogue().tool("desk.look").unwrap();
    assert_eq!((look.server.as_str(), look.remote_name.as_str()), ("desk", "look"));
    assert!(look.definition.traits.read_only && !look.definition.traits.open_world);
    assert_eq!(look.definition.description, "does look");
    assert_eq!(look.definition.input_schema["properties"]["text"]["type"], "string");
    let echo = acquired.catalogue().tool("desk.echo").unwrap().definition.traits;
    assert!(
        echo.destructive && echo.open_world && !echo.repeatable(),
        "missing hints have cautious defaults: {echo:?}"
    );

    assert_eq!(text(call(&servers, "echo").await.unwrap()), "hi");
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    for (traceparent, tracestate, sent) in [
        (parent, Some("a=b"), format!("{parent} a=b")),
        (parent, None, format!("{parent} ")),
        ("00-zz", None, " ".to_owned()),
    ] {
        let trace = TraceContext { traceparent: traceparent.to_owned(), tracestate: tracestate.map(str::to_owned) };
        let called = servers.call("desk", "echo", &json!({"text": "the trace"}), Some(&trace)).await.unwrap();
        assert_eq!(text(called), sent, "I6: the server gets a valid trace context");
    }
    let image = call(&servers, "image").await.unwrap();
    let [McpContent::Text(_), McpContent::Media { bytes, mime_type, .. }] = image.content.as_slice() else {
        panic!("{image:?}")
    };
    assert!(bytes.starts_with(b"\x89PNG") && mime_type == "image/png");
    let structured = call(&servers, "structured").await.unwrap();
    assert_eq!((structured.content, structured.structured), (vec![], Some(json!({"warm": true, "degrees": 21.5}))));
    assert_eq!(failed_message(call(&servers, "error").await), "the disk is full");
    let refused = call(&servers, "refuse").await.unwrap_err();
    assert!(matches!(&refused, ToolError::InvalidArguments { .. }) && refused.for_model().contains("must be short"));
    let not_an_object = call_with(&servers, "echo", json!([1])).await.unwrap_err();
    assert!(matches!(not_an_object, ToolError::InvalidArguments { .. }));
    let no_server = servers.call("nobody", "echo", &json!({}), None).await.unwrap_err();
    assert!(matches!(no_server, ToolError::NotFound { .. }));
    acquired.release().await;
    assert_eq!(fixture.log.alive(), Vec::<u32>::new());
}

/// I5: some servers hang, exit or send an invalid response if the first message is one that they do not support. The
/// client can connect to such servers, because all of them support the message that the client sends first.
#[tokio::test(flavor = "multi_thread")]
async fn i5_servers_that_do_not_know_the_newer_handshake_are_connected() {
    for mode in ["deaf-to-new", "dies-of-new", "odd-to-new"] {
        let fixture = Fixture::new(mode);
        let servers = fixture.servers();
        let acquired = servers.acquire().await;
        assert_eq!(acquired.catalogue().problems(), [], "{mode}");
        assert_eq!(text(call(&servers, "echo").await.unwrap()), "hi");
        assert_eq!(fixture.log.started().len(), 1, "{mode}");
        acquired.release().await;
    }
}

/// I5: the newest protocol version has a different handshake from older versions. If a server supports only the newest
/// version, the first connection attempt fails, and the second attempt uses the handshake of that version.
#[tokio::test(flavor = "multi_thread")]
async fn i5_a_server_with_only_the_newest_protocol_is_connected_in_a_second_attempt() {
    let fixture = Fixture::new("newest");
    let servers = fixture.servers();
    let acquired = servers.acquire().await;
    assert_eq!(acquired.catalogue().problems(), []);
    assert!(names(&acquired).contains(&"desk.echo".to_owned()));
    assert_eq!((fixture.log.count("server/discover"), fixture.log.alive().len()), (1, 1));
    acquired.release().await;
    fixture.log.all_gone().await;
}

/// L29: a host that must stop quickly does not wait until a server's configured close time has passed.
#[tokio::test(flavor = "multi_thread")]
async fn l29_a_stopping_host_ends_servers_quickly() {
    let mut fixture = Fixture::new("stubborn");
    fixture.config.limits.close_time = Duration::from_secs(3600);
    let servers = fixture.servers();
    let acquired = servers.acquire().await;
    assert_eq!(fixture.log.alive().len(), 3);
    drop(acquired);
    servers.shorten_grace_periods();
    tokio::time::timeout(Duration::from_secs(60), servers.shutdown())
        .await
        .expect("the shutdown does not wait for an hour");
    fixture.log.all_gone().await;
}

/// I5: a server that is connected only during turns runs as long as a turn uses it. The server's process has ended when
/// `release` returns.
#[tokio::test(flavor = "multi_thread")]
async fn i5_a_server_is_closed_when_the_last_turn_releases_it() {
    let fixture = Fixture::new("good");
    let servers = fixture.servers();
    let (first, second) = (servers.acquire().await, servers.acquire().await);
    first.release().await;
    assert_eq!(fixture.log.alive().len(), 1, "the other turn still uses it");
    second.release().await;
    assert_eq!(fixture.log.alive(), Vec::<u32>::new());
    // The server exited because its standard input was closed, and no signal was necessary.
    assert_eq!(fixture.log.entries().last().unwrap(), "input closed");
    let third = servers.acquire().await;
    assert_eq!(fixture.log.started().len(), 2);
    assert_eq!(text(call(&servers, "echo").await.unwrap()), "hi");
    drop(third);
    fixture.log.all_gone().await;
}

/// I5: a server that stays connected serves several turns and runs until the host shuts it down.
#[tokio::test(flavor = "multi_thread")]
async fn i5_a_server_that_stays_connected_runs_until_shutdown() {
    let mut fixture = Fixture::new("good");
    fixture.config.keep = KeepConnected::Always;
    let servers = fixture.servers();
    servers.acquire().await.release().await;
    assert_eq!(fixture.log.alive().len(), 1);
    servers.acquire().await.release().await;
    assert_eq!(fixture.log.started().len(), 1);
    servers.shutdown().await;
    assert_eq!(fixture.log.alive(), Vec::<u32>::new());
    // Dropping the last `McpServers` also ends the server.
    servers.acquire().await.release().await;
    assert_eq!(fixture.log.alive().len(), 1);
    drop(servers);
    fixture.log.all_gone().await;
}

/// I5: dropping the Tokio runtime ends all processes of a server.
#[test]
fn i5_dropping_the_runtime_ends_the_processes() {
    let fixture = Fixture::new("stubborn");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let acquired = runtime.block_on(async { fixture.servers().acquire().await });
    assert_eq!(fixture.log.alive().len(), 3, "the server, its child and its grandchild");
    drop(runtime);
    let second_runtime = tokio::runtime::Runtime::new().unwrap();
    second_runtime.block_on(fixture.log.all_gone());
    drop(acquired);
}

/// I5: a server and the script that started it both ignore the end of their input and the signal to exit. The server
/// and the script are killed together with all processes that they started.
#[tokio::test(flavor = "multi_thread")]
async fn i5_whole_process_groups_are_killed() {
    let mut fixture = Fixture::new("stubborn");
    let (server, log) = (fixture.command().command.clone(), fixture.log.path.display().to_string());
    let script = format!("trap '' TERM; '{server}' stubborn '{log}'; true");
    *fixture.command() = agent_mcp::ChildCommand {
        command: "/bin/sh".to_owned(),
        args: vec!["-c".to_owned(), script],
        ..agent_mcp::ChildCommand::default()
    };
    let servers = fixture.servers();
    let acquired = servers.acquire().await;
    assert_eq!(fixture.log.alive().len(), 3);
    acquired.release().await;
    fixture.log.all_gone().await;
}

/// I5: dropping a call cancels the call on the server, and the server keeps working.
#[tokio::test(flavor = "multi_thread")]
async fn i5_a_dropped_call_is_cancelled_at_the_server() {
    let fixture = Fixture::new("good");
    let servers = fixture.servers();
    let acquired = servers.acquire().await;
    let arguments = json!({});
    let hanging = servers.call("desk", "hang", &arguments, None);
    let dropped = tokio::time::timeout(Duration::from_millis(200), hanging).await;
    assert!(dropped.is_err());
    fixture.log.wait_until_logged("notifications/cancelled").await;
    assert_eq!(text(call(&servers, "echo").await.unwrap()), "hi");
    acquired.release().await;
}

/// I5, P10: if a server changes its tools during a turn, this turn keeps the catalogue with which it started, and the
/// next turn gets the changed catalogue.
#[tokio::test(flavor = "multi_thread")]
async fn i5_a_changed_tool_list_applies_to_the_next_turn() {
    let mut fixture = Fixture::new("good");
    fixture.config.keep = KeepConnected::Always;
    let servers = fixture.servers();
    let acquired = servers.acquire().await;
    assert_eq!(text(call(&servers, "change").await.unwrap()), "changed");
    let list_requests = || fixture.log.count("tools/list");
    assert!(acquired.catalogue().tool("desk.new").is_none() && list_requests() == 1);
    // The server sends the notification of the change and the response to the call as separate messages. Until the
    // notification arrives, new turns get the old list.
    let mut next = servers.acquire().await;
    while next.catalogue().tool("desk.new").is_none() {
        tokio::time::sleep(Duration::from_millis(5)).await;
        next = servers.acquire().await;
    }
    assert!(acquired.catalogue().tool("desk.new").is_none());
    assert_eq!(list_requests(), 2);
    servers.acquire().await;
    assert_eq!(list_requests(), 2, "an unchanged list is not requested again");
    servers.shutdown().await;
}

/// Row 16: a child process has only the configured environment variables and none of the host's variables.
#[tokio::test(flavor = "multi_thread")]
async fn i5_a_child_does_not_inherit_the_environment() {
    let mut fixture = Fixture::new("good");
    fixture.command().env = [("GREETING".to_owned(), "hello".to_owned())].into();
    fixture.config.tools = ToolSelection::Only(vec!["env".to_owned()]);
    let servers = fixture.servers();
    let acquired = servers.acquire().await;
    assert_eq!(names(&acquired), ["desk.env"]);
    assert_eq!(text(call(&servers, "env").await.unwrap()), "GREETING");
    acquired.release().await;
}

/// L7: several servers are connected at the same time, and each call is sent to the server whose name is in the call.
#[tokio::test(flavor = "multi_thread")]
async fn l7_each_call_is_sent_to_the_named_server() {
    let (mut first, second) = (Fixture::new("good"), Fixture::new("good"));
    first.config.name = "shelf".to_owned();
    let servers = McpServers::new([first.config.clone(), second.config.clone()]).unwrap();
    let acquired = servers.acquire().await;
    assert!(names(&acquired).contains(&"shelf.echo".to_owned()) && names(&acquired).contains(&"desk.echo".to_owned()));
    servers.call("shelf", "echo", &json!({}), None).await.unwrap();
    let calls = |fixture: &Fixture| fixture.log.count("tools/call");
    assert_eq!((calls(&first), calls(&second)), (1, 0));
    drop(acquired);
    until("both servers have ended", || first.log.alive().is_empty() && second.log.alive().is_empty()).await;
}

/// L7: invalid and duplicate server names are rejected.
#[test]
fn l7_invalid_server_names_are_rejected() {
    let mut fixture = Fixture::new("good");
    let duplicate = McpServers::new([fixture.config.clone(), fixture.config.clone()]).err().unwrap();
    assert!(duplicate.to_string().contains("`desk`"), "{duplicate}");
    for name in ["", "a.b", "a b", "ä", &"x".repeat(65)] {
        fixture.config.name = name.to_owned();
        assert!(McpServers::new([fixture.config.clone()]).is_err(), "{name}");
    }
}
