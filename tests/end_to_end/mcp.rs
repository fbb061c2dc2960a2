//! Tests turns that use an MCP server in a real child process, in a session and in the binary (I5).

use crate::fixture::{ServerLog, mcp_server, until};
use crate::support::{TestHost, agent_host, call_reply, event_types, results, run_turn, script, text_reply};
use agent_core::loop_break::Finish;
use agent_core::message::{CallId, Content, TurnInput};
use agent_core::plugin::TraceContext;
use agent_core::run::{Action, Decision, TurnError};
use agent_core::trace::SpanKey;
use agent_mcp::{ChildCommand, KeepConnected, ServerConfig, Transport};
use agent_runtime::{AgentConfig, Checkpoint, Host, OpenSession, Session, TurnResult};
use agent_store::{CallFilter, RecordRange, SessionLog};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Returns a configuration that starts the fixture server under this name and in this mode, and the path of the log
/// that the server writes into the test host's folder.
fn server(test_host: &TestHost, name: &str, mode: &str) -> (ServerConfig, ServerLog) {
    let log = ServerLog { path: test_host.directory.path().join(format!("{name}-log")) };
    let args = vec![mode.to_owned(), log.path.display().to_string()];
    let command = ChildCommand { command: mcp_server().display().to_string(), args, ..ChildCommand::default() };
    (ServerConfig::new(name, Transport::Stdio(command)), log)
}

fn config_with_servers(servers: Vec<ServerConfig>) -> AgentConfig {
    AgentConfig { mcp: servers, ..AgentConfig::new("test") }
}

async fn close_with_servers(session: Session) {
    let servers = session.agent().servers().clone();
    session.close().await.unwrap();
    servers.shutdown().await;
}

/// Returns the recorded trace context of the first turn.
async fn trace_of_turn(test_host: &TestHost, session: &Session) -> TraceContext {
    let records = test_host.store.records(session.subject(), RecordRange::Turn(1)).await.unwrap();
    let record = records.into_iter().find(|stored| stored.record.kind == "trace").unwrap();
    serde_json::from_value(record.record.body).unwrap()
}

/// I5, I6, L7, P2: Every kind of tool result is stored in the history. An image is stored as a media item. After the
/// session is closed, no server process is left.
#[tokio::test(flavor = "multi_thread")]
async fn i5_a_turn_uses_the_tools_of_an_mcp_server() {
    let test_host = TestHost::new(&[]).await;
    let (config, log) = server(&test_host, "desk", "good");
    let replies = [
        call_reply(&[
            ("desk.echo", json!({"text": "hello"})),
            ("desk.image", json!({})),
            ("desk.structured", json!({})),
            ("desk.error", json!({})),
            ("desk.echo", json!({"text": 7})),
            ("desk.echo", json!({"text": "the trace"})),
        ]),
        text_reply("Done."),
    ];
    let mut session = test_host.session(config_with_servers(vec![config]), script(&replies)).await;
    assert!(log.started().is_empty(), "no server is started before a turn");
    let result = run_turn(&mut session, "Go.").await;
    assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
    let results = results(&test_host, &session).await;
    assert_eq!(results[0], ("desk.echo".to_owned(), false, "hello".to_owned()));
    assert_eq!(
        (results[2].1, serde_json::from_str::<Value>(&results[2].2).unwrap()["warm"].clone()),
        (false, json!(true))
    );
    assert!(results[3].1 && results[3].2.contains("the disk is full"), "{}", results[3].2);
    assert!(results[4].1 && results[4].2.contains("invalid_arguments"), "{}", results[4].2);
    assert_eq!(log.count("tools/call"), 5, "wrong arguments never reach the server (L8)");
    let calls = test_host.store.calls(session.subject(), CallFilter::Turn(1)).await.unwrap();
    let trace = trace_of_turn(&test_host, &session).await.part(SpanKey::Call(&calls[5].id));
    assert_eq!(results[5].2, format!("{} ", trace.traceparent), "I6: the call is the parent of what the server does");
    let content = &calls[1].result.as_ref().unwrap().content;
    let media = content.iter().find_map(|content| if let Content::Media(media) = content { Some(media) } else { None });
    let media = media.unwrap_or_else(|| panic!("{content:?}"));
    assert_eq!(
        (media.mime_type.as_str(), media.dimensions.map(|size| (size.width, size.height))),
        ("image/png", Some((1, 1)))
    );
    close_with_servers(session).await;
    assert_eq!((log.started().len(), log.alive()), (1, vec![]));
}

/// I5: Servers that a turn has started are closed at the end of the turn, even if the turn fails, and are started again
/// for the next turn. A server with `keep = "always"` keeps running.
#[tokio::test(flavor = "multi_thread")]
async fn i5_servers_of_a_turn_end_with_the_turn() {
    let test_host = TestHost::new(&[]).await;
    let ((turn_server, turn_log), (mut kept_server, kept_log)) =
        (server(&test_host, "desk", "good"), server(&test_host, "shelf", "good"));
    kept_server.keep = KeepConnected::Always;
    let failing = json!({"error": {"status": 401, "message": "no key"}});
    let replies = [call_reply(&[("shelf.echo", json!({}))]), failing];
    let mut session = test_host.session(config_with_servers(vec![turn_server, kept_server]), script(&replies)).await;
    let result = run_turn(&mut session, "Go.").await;
    assert!(matches!(result, TurnResult::Failed(TurnError::ModelFailed { .. })), "{result:?}");
    turn_log.all_gone().await;
    assert_eq!(kept_log.alive().len(), 1);
    run_turn(&mut session, "Again.").await;
    assert_eq!((turn_log.started().len(), kept_log.started().len()), (2, 1));
    close_with_servers(session).await;
    assert_eq!((turn_log.alive(), kept_log.alive()), (vec![], vec![]));
}

/// I5: Servers are closed while the turn waits for a decision, and are started again when the turn continues.
#[tokio::test(flavor = "multi_thread")]
async fn i5_closes_servers_while_the_turn_waits() {
    let test_host = TestHost::new(&[]).await;
    let (server_config, log) = server(&test_host, "desk", "good");
    let mut config = config_with_servers(vec![server_config]);
    config.bounds.finish = Finish::Tool;
    let echo = |text: &str| ("desk.echo", json!({"text": text}));
    let replies = [
        call_reply(&[echo("before"), ("ask_question", json!({"question": "Which?"}))]),
        call_reply(&[echo("after"), ("task_completion", json!({"result": "Done."}))]),
    ];
    let mut session = test_host.session(config, script(&replies)).await;
    let result = run_turn(&mut session, "Go.").await;
    let TurnResult::Suspended(suspension) = result else { panic!("{result:?}") };
    log.all_gone().await;
    assert_eq!(log.started().len(), 1);
    session.answer(suspension.waits[0].call.clone(), "That one.".to_owned()).await.unwrap();
    let result = session.run(None, CancellationToken::new()).await.unwrap();
    assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
    assert_eq!((log.started().len(), log.count("tools/call")), (2, 2));
    log.all_gone().await;
    close_with_servers(session).await;
}

/// L7, D3: If a tool existed when the model called it but no longer exists when the call is retried, the result is
/// `not found`.
#[tokio::test(flavor = "multi_thread")]
async fn l7_a_tool_removed_before_dispatch_is_not_found() {
    let test_host = TestHost::new(&[]).await;
    let (server_config, _) = server(&test_host, "desk", "good");
    let replies = script(&[call_reply(&[("desk.hang", json!({}))]), text_reply("Done.")]);
    let agent = test_host.agent(config_with_servers(vec![server_config]), replies.clone()).await;
    let started = Arc::new(Notify::new());
    let notify_start = started.clone();
    let observer = move |checkpoint: Checkpoint<'_>| {
        if checkpoint == Checkpoint::BeforeCall("desk.hang") {
            notify_start.notify_one();
        }
    };
    let host = Host { checkpoint: Some(Arc::new(observer)), ..test_host.host() };
    let mut session = Session::open(&host, agent, OpenSession::New).await.unwrap();
    {
        let running = session.run(Some(TurnInput::Text("Go.".to_owned())), CancellationToken::new());
        tokio::pin!(running);
        tokio::select! {
            biased;
            () = started.notified() => {}
            result = &mut running => panic!("{result:?}"),
        }
    }
    let subject = session.subject().to_owned();
    close_with_servers(session).await;
    let agent_without_server = test_host.agent(config_with_servers(vec![]), replies).await;
    let mut session =
        Session::open(&test_host.host(), agent_without_server, OpenSession::Existing(subject)).await.unwrap();
    if let Action::Suspended(suspension) = session.state().action() {
        session.resolve(suspension.waits[0].call.clone(), Decision::Retry).await.unwrap();
    }
    let result = session.run(None, CancellationToken::new()).await.unwrap();
    assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
    let types = event_types(&test_host, &session).await;
    let tool_events: Vec<&str> = types.iter().map(String::as_str).filter(|kind| kind.starts_with("tool_")).collect();
    assert_eq!(tool_events, ["tool_call", "tool_call", "tool_not_found", "tool_result_error"]);
    let results = results(&test_host, &session).await;
    assert!(results[0].1 && results[0].2.contains("the tool `desk.hang` no longer exists"), "{}", results[0].2);
}

/// I5, D3: If a server dies during a call, the model gets an error and the call is not repeated. The next call starts
/// the server again.
#[tokio::test(flavor = "multi_thread")]
async fn i5_restarts_a_server_that_died_during_a_call() {
    let test_host = TestHost::new(&[]).await;
    let (config, log) = server(&test_host, "desk", "good");
    let replies = [
        call_reply(&[("desk.die", json!({}))]),
        call_reply(&[("desk.echo", json!({"text": "back"}))]),
        text_reply("Done."),
    ];
    let mut session = test_host.session(config_with_servers(vec![config]), script(&replies)).await;
    let result = run_turn(&mut session, "Go.").await;
    assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
    let results = results(&test_host, &session).await;
    assert!(results[0].1 && results[0].2.contains("it is not known whether the call took effect"), "{}", results[0].2);
    assert_eq!(results[1], ("desk.echo".to_owned(), false, "back".to_owned()));
    assert_eq!((log.count("tools/call"), log.started().len()), (2, 2));
    close_with_servers(session).await;
}

/// P10: If a call is retried after a restart and the server has changed the definition of the tool in the meantime, the
/// call does not run, and the model gets an error. The tool needs no approval, so the user would otherwise not notice
/// the change.
#[tokio::test(flavor = "multi_thread")]
async fn p10_a_tool_that_changed_across_a_restart_does_not_run() {
    let test_host = TestHost::new(&[]).await;
    let (config, log) = server(&test_host, "desk", "good");
    let replies = [call_reply(&[("desk.hang", json!({}))]), text_reply("I see.")];
    let mut session = test_host.session(config_with_servers(vec![config]), script(&replies)).await;
    let call_received = async {
        log.wait_until_logged("tools/call").await;
    };
    tokio::select! {
        result = session.run(Some(TurnInput::Text("Go.".to_owned())), CancellationToken::new()) => {
            panic!("the call hangs: {result:?}");
        }
        () = call_received => {}
    }
    let subject = session.subject().to_owned();
    close_with_servers(session).await;
    let (config, log) = server(&test_host, "desk", "renewed");
    let sent = log.count("tools/call");
    let agent = test_host.agent(config_with_servers(vec![config]), script(&replies)).await;
    let open = agent_runtime::OpenSession::Existing(subject);
    let mut session = Session::open(&test_host.host(), agent, open).await.unwrap();
    let call = CallId("call_1_1_1".to_owned());
    session.resolve(call, Decision::Retry).await.unwrap();
    let result = session.run(None, CancellationToken::new()).await.unwrap();
    assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
    let (_, is_error, text) = results(&test_host, &session).await.remove(0);
    assert!(is_error && text.contains("has changed `desk.hang`"), "{text}");
    assert_eq!(log.count("tools/call"), sent, "nothing was sent");
    close_with_servers(session).await;
}

/// P10: When a turn starts, it stores which tools its servers offer. If another process continues the turn, calls to
/// unchanged tools run, and calls to changed, removed and new tools return an error to the model.
#[tokio::test(flavor = "multi_thread")]
async fn p10_a_turn_keeps_the_tool_lists_from_its_start() {
    let was_changed = "`desk.echo` of MCP server desk was changed since this turn began";
    let is_gone = "MCP server desk no longer has the tool `desk.echo`, which it had when this turn began";
    let is_new = "`desk.late` of MCP server desk was added after this turn began";
    for (mode, echo, late) in [("renewed", was_changed, "there is no tool `desk"), ("fewer", is_gone, is_new)] {
        let test_host = TestHost::new(&[]).await;
        let (config, log) = server(&test_host, "desk", "good");
        let calls = [("desk.echo", json!({})), ("desk.look", json!({"text": "seen"})), ("desk.late", json!({}))];
        let replies = script(&[call_reply(&[("desk.hang", json!({}))]), call_reply(&calls), text_reply("I see.")]);
        let mut session = test_host.session(config_with_servers(vec![config]), replies.clone()).await;
        tokio::select! {
            result = session.run(Some(TurnInput::Text("Go.".to_owned())), CancellationToken::new()) => {
                panic!("the call hangs: {result:?}");
            }
            _ = log.wait_until_logged("tools/call") => {}
        }
        let subject = session.subject().to_owned();
        close_with_servers(session).await;
        let (config, _) = server(&test_host, "desk", mode);
        let agent = test_host.agent(config_with_servers(vec![config]), replies).await;
        let mut session = Session::open(&test_host.host(), agent, OpenSession::Existing(subject)).await.unwrap();
        session.resolve(CallId("call_1_1_1".to_owned()), Decision::Retry).await.unwrap();
        let result = session.run(None, CancellationToken::new()).await.unwrap();
        assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
        let results = results(&test_host, &session).await;
        let [_, echoed, looked, later] = &results[..] else { panic!("{results:?}") };
        assert!(echoed.1 && echoed.2.contains(echo), "{mode}: {}", echoed.2);
        assert!(!looked.1 && looked.2.contains("seen"), "{mode}: an unchanged tool is called: {}", looked.2);
        assert!(later.1 && later.2.contains(late), "{mode}: {}", later.2);
        close_with_servers(session).await;
    }
}

/// L29: If a turn is cancelled, the host informs the server that the call is cancelled.
#[tokio::test(flavor = "multi_thread")]
async fn l29_a_cancelled_turn_cancels_its_call_at_the_server() {
    let test_host = TestHost::new(&[]).await;
    let (mut config, log) = server(&test_host, "desk", "good");
    config.keep = KeepConnected::Always;
    let replies = [call_reply(&[("desk.hang", json!({}))]), text_reply("unused")];
    let mut session = test_host.session(config_with_servers(vec![config]), script(&replies)).await;
    let cancel = CancellationToken::new();
    let running = session.run(Some(TurnInput::Text("Go.".to_owned())), cancel.clone());
    let cancelling = async {
        log.wait_until_logged("tools/call").await;
        cancel.cancel();
    };
    let (result, ()) = tokio::join!(running, cancelling);
    assert_eq!(result.unwrap(), TurnResult::Cancelled);
    log.wait_until_logged("notifications/cancelled").await;
    close_with_servers(session).await;
}

/// I5: A server that hangs does not block a turn. The turn runs without the server, and the result of a call to the
/// server contains the reason.
#[tokio::test(flavor = "multi_thread")]
async fn i5_a_turn_runs_without_an_unreachable_server() {
    let test_host = TestHost::new(&[]).await;
    let ((mut hung, log), (good, _)) = (server(&test_host, "hung", "silent"), server(&test_host, "desk", "good"));
    hung.limits.connect_time = Duration::from_millis(300);
    let replies =
        [call_reply(&[("hung.echo", json!({})), ("desk.echo", json!({"text": "here"}))]), text_reply("Done.")];
    let mut session = test_host.session(config_with_servers(vec![hung, good]), script(&replies)).await;
    let result = run_turn(&mut session, "Go.").await;
    assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
    assert!(
        !event_types(&test_host, &session).await.contains(&"tool_not_found".to_owned()),
        "the registry contains the tool"
    );
    let (_, is_error, result_text) = &results(&test_host, &session).await[0];
    assert!(
        *is_error && result_text.contains("unavailable") && result_text.contains("could not be reached"),
        "{result_text}"
    );
    assert!(result_text.contains("MCP server hung did not connect"), "{result_text}");
    assert_eq!(results(&test_host, &session).await[1], ("desk.echo".to_owned(), false, "here".to_owned()));
    close_with_servers(session).await;
    log.all_gone().await;
}

/// L7, row 55: If a plugin and a server have a tool of the same name, the plugin's tool is used and the server is left
/// out.
#[tokio::test(flavor = "multi_thread")]
async fn l7_leaves_out_a_server_whose_tool_name_a_plugin_uses() {
    let test_host = TestHost::new(&["probe"]).await;
    let (config, log) = server(&test_host, "probe", "good");
    let replies = [call_reply(&[("probe.echo", json!({"text": "hello"}))]), text_reply("Done.")];
    let mut session = test_host.session(config_with_servers(vec![config]), script(&replies)).await;
    let result = run_turn(&mut session, "Go.").await;
    assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
    let source = session.agent().registry().get("probe.echo").unwrap().source.to_string();
    assert!(source.contains("probe@"), "{source}");
    assert!(session.agent().registry().get("probe.structured").is_none(), "the server's other tools are left out, too");
    assert!(!results(&test_host, &session).await[0].1, "the plugin answers");
    assert_eq!(log.count("tools/call"), 0, "the server is not called");
    close_with_servers(session).await;
    log.all_gone().await;
}

fn binary(test_host: &TestHost, arguments: &[&str]) -> Output {
    let mut command = agent_host();
    command
        .current_dir(test_host.directory.path())
        .args(arguments)
        .env("AGENT_HOST_DATA", test_host.directory.path().join("data"));
    command.env_remove("MCP_TEST_TOKEN").stdin(Stdio::null()).output().unwrap()
}

/// Writes an agent.toml with the fixture server and a scripted model that calls the server.
fn agent_file(test_host: &TestHost, mode: &str, extra_settings: &str, replies: &[Value]) -> ServerLog {
    let log = ServerLog { path: test_host.directory.path().join("log") };
    std::fs::write(test_host.directory.path().join("script.json"), script(replies).to_string()).unwrap();
    let server = format!("[mcp.desk]\ncommand = {:?}\nargs = [\"{mode}\", {:?}]", mcp_server(), log.path);
    let text = format!(
        "name = \"test\"\nmodel = \"scripted:script.json\"\n{server}\n{extra_settings}\n[approval]\ndestructive = \"allow\"\n"
    );
    std::fs::write(test_host.directory.path().join("agent.toml"), text).unwrap();
    log
}

fn stdout_and_stderr(output: &Output) -> (String, String) {
    (String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// I2, I5: A turn, `plugin list` and `config check` all use the servers in `[mcp.NAME]` of agent.toml. When the binary
/// exits, all processes of a server have ended, even if the server ignores requests to stop.
#[tokio::test(flavor = "multi_thread")]
async fn i5_the_binary_starts_and_ends_the_servers_of_agent_toml() {
    let test_host = TestHost::new(&[]).await;
    let replies = [call_reply(&[("desk.env", json!({}))]), text_reply("Done.")];
    let log = agent_file(&test_host, "stubborn", "env = { MCP_TEST_PLAIN = \"x\" }\ntools = [\"env\"]", &replies);
    let checked = binary(&test_host, &["config", "check", "agent.toml"]);
    let (out, err) = stdout_and_stderr(&checked);
    assert!(checked.status.success() && out.contains("desk: ") && out.contains("stubborn"), "{out}{err}");
    assert!(log.started().is_empty(), "a check starts no server");
    let ran = binary(&test_host, &["--agent", "agent.toml", "--json", "Go."]);
    let (out, err) = stdout_and_stderr(&ran);
    assert!(ran.status.success(), "{out}{err}");
    assert!(out.contains("MCP_TEST_PLAIN") && !out.contains("AGENT_HOST_DATA"), "{out}{err}");
    assert_eq!(log.started().len(), 3);
    log.all_gone().await;
    let listed = binary(&test_host, &["plugin", "list", "--agent", "agent.toml"]);
    let (out, err) = stdout_and_stderr(&listed);
    assert!(out.contains("MCP server") && out.contains("desk.env") && !out.contains("desk.echo"), "{out}{err}");
    log.all_gone().await;
    let file = test_host.directory.path().join("agent.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text + "pass_env = [\"MCP_TEST_TOKEN\"]\n").unwrap();
    let refused = binary(&test_host, &["--agent", "agent.toml", "Go."]);
    let (_, err) = stdout_and_stderr(&refused);
    assert!(!refused.status.success() && err.contains("MCP_TEST_TOKEN") && err.contains("agent.toml:"), "{err}");
}

/// L29, I5: A second Ctrl-C exits immediately and leaves no server process behind.
#[tokio::test(flavor = "multi_thread")]
async fn i5_a_second_ctrl_c_kills_the_servers() {
    let test_host = TestHost::new(&[]).await;
    let replies = [call_reply(&[("desk.hang", json!({}))]), text_reply("unused")];
    let log = agent_file(&test_host, "stubborn", "keep = \"always\"", &replies);
    let mut command = agent_host();
    command.current_dir(test_host.directory.path()).args(["--agent", "agent.toml", "Go."]);
    command.env("AGENT_HOST_DATA", test_host.directory.path().join("data"));
    let mut running = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    log.wait_until_logged("tools/call").await;
    assert_eq!(log.alive().len(), 3);
    interrupt(running.id());
    log.wait_until_logged("notifications/cancelled").await;
    // The server ignores requests to stop, so the host is usually still waiting for the server to end. If the host has
    // already exited, the second signal has no effect.
    interrupt(running.id());
    let status = running.wait().unwrap();
    assert!(!status.success());
    until("no process is left", || log.alive().is_empty()).await;
}

/// L29, I5, row 21: Ctrl-C cancels the turn. SIGTERM and a closed terminal (SIGHUP) leave the turn open, so that it can
/// continue. After each of the three signals, the host also ends the server and all processes that the server started,
/// even if the server ignores requests to stop.
#[tokio::test(flavor = "multi_thread")]
async fn l29_a_signal_ends_the_host_and_the_servers() {
    for signal in [Signal::HUP, Signal::TERM, Signal::INT] {
        let test_host = TestHost::new(&[]).await;
        let replies = [call_reply(&[("desk.hang", json!({}))]), text_reply("unused")];
        let log = agent_file(&test_host, "stubborn", "keep = \"always\"", &replies);
        let data = test_host.directory.path().join("data");
        // The test runner may ignore SIGHUP, and the host would inherit this setting, so `env` resets it.
        let mut command = Command::new("env");
        command
            .args(["--default-signal=HUP", env!("CARGO_BIN_EXE_agent-host")])
            .current_dir(test_host.directory.path());
        command.args(["--agent", "agent.toml", "Go."]).env("AGENT_HOST_DATA", &data);
        let mut running = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        log.wait_until_logged("tools/call").await;
        send(running.id(), signal);
        let status = running.wait().unwrap();
        assert_eq!(status.code(), Some(130), "{signal:?} must be handled and not kill the host: {status:?}");
        log.wait_until_logged("notifications/cancelled").await;
        until("no process is left", || log.alive().is_empty()).await;
        let mut listing = agent_host();
        let listed = listing.args(["session", "list", "--json"]).env("AGENT_HOST_DATA", &data).output().unwrap();
        let state = if signal == Signal::INT { "cancelled" } else { "interrupted" };
        let listed = String::from_utf8_lossy(&listed.stdout);
        assert!(listed.contains(&format!("\"state\":\"{state}\"")), "{signal:?}: {listed}");
    }
}

/// I5: Ctrl-\ exits immediately and also ends the server processes, even if a server ignores requests to stop or
/// belongs to a child agent.
#[tokio::test(flavor = "multi_thread")]
async fn i5_ctrl_backslash_kills_the_servers() {
    let test_host = TestHost::new(&[]).await;
    let replies = [call_reply(&[("desk.hang", json!({}))]), text_reply("unused")];
    let log = agent_file(&test_host, "stubborn", "keep = \"always\"", &replies);
    let path = |name: &str| test_host.directory.path().join(name);
    std::fs::write(path("lead.json"), script(&[call_reply(&[("worker", json!({"task": "Go."}))])]).to_string())
        .unwrap();
    let lead = "name = \"lead\"\nmodel = \"scripted:lead.json\"\n[agents.worker]\nagent = \"agent.toml\"\ndescription = \"Works.\"\n";
    std::fs::write(path("lead.toml"), lead).unwrap();
    for agent in ["agent.toml", "lead.toml"] {
        let _ = std::fs::remove_file(&log.path);
        let mut command = agent_host();
        command.current_dir(test_host.directory.path()).args(["--agent", agent, "Go."]);
        command.env("AGENT_HOST_DATA", path("data"));
        let mut running = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        log.wait_until_logged("tools/call").await;
        assert_eq!(log.alive().len(), 3, "{agent}");
        send(running.id(), Signal::QUIT);
        assert_eq!(running.wait().unwrap().code(), Some(130), "{agent}");
        log.all_gone().await;
    }
}

/// I5: If a server cannot be reached, the terminal shows one line about the server, and the result of a call to the
/// server shows the reason.
#[tokio::test(flavor = "multi_thread")]
async fn i5_the_terminal_reports_a_server_that_is_down() {
    let test_host = TestHost::new(&[]).await;
    let replies = [call_reply(&[("desk.echo", json!({}))]), text_reply("Done.")];
    agent_file(&test_host, "exits", "", &replies);
    let ran = binary(&test_host, &["--agent", "agent.toml", "Go."]);
    let (out, err) = stdout_and_stderr(&ran);
    assert!(ran.status.success(), "{out}{err}");
    assert!(err.lines().any(|line| line.starts_with("! MCP server desk: no connection: ")), "{err}");
    assert!(!err.contains("WARN") && !err.contains("agent_runtime") && !err.contains("no such tool"), "{err}");
    assert!(err.contains("MCP server desk could not be reached, so its tools are not"), "{err}");
}

fn interrupt(process: u32) {
    send(process, Signal::INT);
}

fn send(process: u32, signal: Signal) {
    let process = Pid::from_raw(i32::try_from(process).unwrap()).unwrap();
    let _ = kill_process(process, signal);
}
