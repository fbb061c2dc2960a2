//! I5 in turns: a session and the binary with an MCP server that is a real child process.

use crate::fixture::{Diary, mcp_server, until};
use crate::support::{House, calling, event_types, results, saying, script, turn};
use agent_core::loop_break::Finish;
use agent_core::message::{CallId, Content, TurnInput};
use agent_core::run::{Action, Decision, TurnError};
use agent_mcp::{ChildCommand, Keep, ServerConfig, Transport};
use agent_runtime::{AgentConfig, Checkpoint, Host, OpenSession, Session, TurnResult};
use agent_store::{CallFilter, SessionLog};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The fixture's server in that mode, as the server of that name, with its diary in the house.
fn server(house: &House, name: &str, mode: &str) -> (ServerConfig, Diary) {
    let diary = Diary { path: house.directory.path().join(format!("{name}-diary")) };
    let args = vec![mode.to_owned(), diary.path.display().to_string()];
    let command = ChildCommand { command: mcp_server().display().to_string(), args, ..ChildCommand::default() };
    (ServerConfig::new(name, Transport::Stdio(command)), diary)
}

fn configured(servers: Vec<ServerConfig>) -> AgentConfig {
    AgentConfig { mcp: servers, ..AgentConfig::new("test") }
}

async fn closed(session: Session) {
    let servers = session.agent().servers().clone();
    session.close().await.unwrap();
    servers.shutdown().await;
}

/// I5, L7, P2: every kind of result gets into the history, the picture as a stored medium, and nothing runs afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn i5_a_turn_uses_the_tools_of_an_mcp_server() {
    let house = House::new(&[]).await;
    let (config, diary) = server(&house, "desk", "good");
    let replies = [
        calling(&[
            ("desk.echo", json!({"text": "hello"})),
            ("desk.image", json!({})),
            ("desk.structured", json!({})),
            ("desk.error", json!({})),
            ("desk.echo", json!({"text": 7})),
        ]),
        saying("Done."),
    ];
    let mut session = house.session(configured(vec![config]), script(&replies)).await;
    assert!(diary.started().is_empty(), "no server is started before a turn");
    let result = turn(&mut session, "Go.").await;
    assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
    let results = results(&house, &session).await;
    assert_eq!(results[0], ("desk.echo".to_owned(), false, "hello".to_owned()));
    assert_eq!(
        (results[2].1, serde_json::from_str::<Value>(&results[2].2).unwrap()["warm"].clone()),
        (false, json!(true))
    );
    assert!(results[3].1 && results[3].2.contains("the disk is full"), "{}", results[3].2);
    assert!(results[4].1 && results[4].2.contains("invalid_arguments"), "{}", results[4].2);
    assert_eq!(diary.count("tools/call"), 4, "wrong arguments never reach the server (L8)");
    let calls = house.store.calls(session.subject(), CallFilter::Turn(1)).await.unwrap();
    let content = &calls[1].result.as_ref().unwrap().content;
    let media = content.iter().find_map(|content| if let Content::Media(media) = content { Some(media) } else { None });
    let media = media.unwrap_or_else(|| panic!("{content:?}"));
    assert_eq!(
        (media.mime_type.as_str(), media.dimensions.map(|size| (size.width, size.height))),
        ("image/png", Some((1, 1)))
    );
    closed(session).await;
    assert_eq!((diary.started().len(), diary.alive()), (1, vec![]));
}

/// I5: closed on a failed turn, too, and opened again for the next one; one that is kept stays.
#[tokio::test(flavor = "multi_thread")]
async fn i5_servers_of_a_turn_end_with_it_however_it_ends() {
    let house = House::new(&[]).await;
    let ((of_a_turn, turns), (mut kept, keeps)) = (server(&house, "desk", "good"), server(&house, "shelf", "good"));
    kept.keep = Keep::Always;
    let failing = json!({"error": {"status": 401, "message": "no key"}});
    let replies = [calling(&[("shelf.echo", json!({}))]), failing];
    let mut session = house.session(configured(vec![of_a_turn, kept]), script(&replies)).await;
    let result = turn(&mut session, "Go.").await;
    assert!(matches!(result, TurnResult::Failed(TurnError::ModelFailed { .. })), "{result:?}");
    turns.all_gone().await;
    assert_eq!(keeps.alive().len(), 1);
    turn(&mut session, "Again.").await;
    assert_eq!((turns.started().len(), keeps.started().len()), (2, 1));
    closed(session).await;
    assert_eq!((turns.alive(), keeps.alive()), (vec![], vec![]));
}

/// I5: closed while the turn waits for somebody, and opened again when it goes on.
#[tokio::test(flavor = "multi_thread")]
async fn i5_servers_of_a_turn_are_closed_while_it_waits() {
    let house = House::new(&[]).await;
    let (desk, diary) = server(&house, "desk", "good");
    let mut config = configured(vec![desk]);
    config.bounds.finish = Finish::Tool;
    let echo = |text: &str| ("desk.echo", json!({"text": text}));
    let replies = [
        calling(&[echo("before"), ("ask_question", json!({"question": "Which?"}))]),
        calling(&[echo("after"), ("task_completion", json!({"result": "Done."}))]),
    ];
    let mut session = house.session(config, script(&replies)).await;
    let result = turn(&mut session, "Go.").await;
    let TurnResult::Suspended(suspension) = result else { panic!("{result:?}") };
    diary.all_gone().await;
    assert_eq!(diary.started().len(), 1);
    session.answer(suspension.waits[0].call.clone(), "That one.".to_owned()).await.unwrap();
    let result = session.run(None, CancellationToken::new()).await.unwrap();
    assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
    assert_eq!((diary.started().len(), diary.count("tools/call")), (2, 2));
    diary.all_gone().await;
    closed(session).await;
}

/// L7, D3: a tool that was there when the model called it, and is not when the call runs again, is not found.
#[tokio::test(flavor = "multi_thread")]
async fn l7_a_tool_that_is_gone_at_dispatch_is_not_found() {
    let house = House::new(&[]).await;
    let (desk, _) = server(&house, "desk", "good");
    let replies = script(&[calling(&[("desk.hang", json!({}))]), saying("Done.")]);
    let agent = house.agent(configured(vec![desk]), replies.clone()).await;
    let started = Arc::new(Notify::new());
    let tell = started.clone();
    let observer = move |checkpoint: Checkpoint<'_>| {
        if checkpoint == Checkpoint::BeforeCall("desk.hang") {
            tell.notify_one();
        }
    };
    let host = Host { checkpoint: Some(Arc::new(observer)), ..house.host() };
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
    closed(session).await;
    let without = house.agent(configured(vec![]), replies).await;
    let mut session = Session::open(&house.host(), without, OpenSession::Existing(subject)).await.unwrap();
    if let Action::Suspended(suspension) = session.state().action() {
        session.resolve(suspension.waits[0].call.clone(), Decision::Retry).await.unwrap();
    }
    let result = session.run(None, CancellationToken::new()).await.unwrap();
    assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
    let types = event_types(&house, &session).await;
    let of_call: Vec<&str> = types.iter().map(String::as_str).filter(|kind| kind.starts_with("tool_")).collect();
    assert_eq!(of_call, ["tool_call", "tool_call", "tool_not_found", "tool_result_error"]);
    let results = results(&house, &session).await;
    assert!(results[0].1 && results[0].2.contains("no tool `desk.hang` any more"), "{}", results[0].2);
}

/// I5, D3: a call whose server dies in it is an error for the model and is not made again; the next call is answered.
#[tokio::test(flavor = "multi_thread")]
async fn i5_a_server_that_dies_in_a_call_is_started_again_for_the_next() {
    let house = House::new(&[]).await;
    let (config, diary) = server(&house, "desk", "good");
    let replies =
        [calling(&[("desk.die", json!({}))]), calling(&[("desk.echo", json!({"text": "back"}))]), saying("Done.")];
    let mut session = house.session(configured(vec![config]), script(&replies)).await;
    let result = turn(&mut session, "Go.").await;
    assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
    let results = results(&house, &session).await;
    assert!(results[0].1 && results[0].2.contains("whether the call took effect is not known"), "{}", results[0].2);
    assert_eq!(results[1], ("desk.echo".to_owned(), false, "back".to_owned()));
    assert_eq!((diary.count("tools/call"), diary.started().len()), (2, 2));
    closed(session).await;
}

/// P10: a call that was running when its process went away is tried again in one that finds the tool changed: it does not
/// run, and the model is told. Nobody is asked about this tool, so that nobody could have seen the change.
#[tokio::test(flavor = "multi_thread")]
async fn p10_a_tool_that_changed_over_a_restart_does_not_run_unseen() {
    let house = House::new(&[]).await;
    let (config, diary) = server(&house, "desk", "good");
    let replies = [calling(&[("desk.hang", json!({}))]), saying("I see.")];
    let mut session = house.session(configured(vec![config]), script(&replies)).await;
    let left = async {
        diary.until_noted("tools/call").await;
    };
    tokio::select! {
        result = session.run(Some(TurnInput::Text("Go.".to_owned())), CancellationToken::new()) => {
            panic!("it hangs: {result:?}");
        }
        () = left => {}
    }
    let subject = session.subject().to_owned();
    closed(session).await;
    let (config, diary) = server(&house, "desk", "renewed");
    let sent = diary.count("tools/call");
    let agent = house.agent(configured(vec![config]), script(&replies)).await;
    let open = agent_runtime::OpenSession::Existing(subject);
    let mut session = Session::open(&house.host(), agent, open).await.unwrap();
    let call = CallId("call_1_1_1".to_owned());
    session.resolve(call, Decision::Retry).await.unwrap();
    let result = session.run(None, CancellationToken::new()).await.unwrap();
    assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
    let (_, is_error, text) = results(&house, &session).await.remove(0);
    assert!(is_error && text.contains("says something else of `desk.hang`"), "{text}");
    assert_eq!(diary.count("tools/call"), sent, "nothing was sent");
    closed(session).await;
}

/// P10: a turn keeps a snapshot of all that its servers had when it began. In another process it calls what is still the
/// same; of what is another tool, is gone or came meanwhile the model is told so, and the next turn takes it as it is.
#[tokio::test(flavor = "multi_thread")]
async fn p10_a_turn_keeps_the_whole_lists_of_its_servers() {
    let was_changed = "`desk.echo` of MCP server desk was changed since this turn began";
    let is_gone = "MCP server desk has no tool `desk.echo` any more, which it had when this turn began";
    let came = "`desk.late` of MCP server desk is there only since this turn began";
    for (mode, echo, late) in [("renewed", was_changed, "there is no tool `desk"), ("fewer", is_gone, came)] {
        let house = House::new(&[]).await;
        let (config, diary) = server(&house, "desk", "good");
        let calls = [("desk.echo", json!({})), ("desk.look", json!({"text": "seen"})), ("desk.late", json!({}))];
        let replies = script(&[calling(&[("desk.hang", json!({}))]), calling(&calls), saying("I see.")]);
        let mut session = house.session(configured(vec![config]), replies.clone()).await;
        tokio::select! {
            result = session.run(Some(TurnInput::Text("Go.".to_owned())), CancellationToken::new()) => {
                panic!("it hangs: {result:?}");
            }
            _ = diary.until_noted("tools/call") => {}
        }
        let subject = session.subject().to_owned();
        closed(session).await;
        let (config, _) = server(&house, "desk", mode);
        let agent = house.agent(configured(vec![config]), replies).await;
        let mut session = Session::open(&house.host(), agent, OpenSession::Existing(subject)).await.unwrap();
        session.resolve(CallId("call_1_1_1".to_owned()), Decision::Retry).await.unwrap();
        let result = session.run(None, CancellationToken::new()).await.unwrap();
        assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
        let results = results(&house, &session).await;
        let [_, echoed, looked, later] = &results[..] else { panic!("{results:?}") };
        assert!(echoed.1 && echoed.2.contains(echo), "{mode}: {}", echoed.2);
        assert!(!looked.1 && looked.2.contains("seen"), "{mode}: what is the same is called: {}", looked.2);
        assert!(later.1 && later.2.contains(late), "{mode}: {}", later.2);
        closed(session).await;
    }
}

/// L29: cancelling a turn stops its call at the server.
#[tokio::test(flavor = "multi_thread")]
async fn l29_a_cancelled_turn_cancels_its_call_at_the_server() {
    let house = House::new(&[]).await;
    let (mut config, diary) = server(&house, "desk", "good");
    config.keep = Keep::Always;
    let replies = [calling(&[("desk.hang", json!({}))]), saying("unused")];
    let mut session = house.session(configured(vec![config]), script(&replies)).await;
    let cancel = CancellationToken::new();
    let running = session.run(Some(TurnInput::Text("Go.".to_owned())), cancel.clone());
    let cancelling = async {
        diary.until_noted("tools/call").await;
        cancel.cancel();
    };
    let (result, ()) = tokio::join!(running, cancelling);
    assert_eq!(result.unwrap(), TurnResult::Cancelled);
    diary.until_noted("notifications/cancelled").await;
    closed(session).await;
}

/// I5: a server that hangs keeps no turn from running: it is left out, and who calls it is told why.
#[tokio::test(flavor = "multi_thread")]
async fn i5_a_server_that_cannot_be_reached_is_left_out() {
    let house = House::new(&[]).await;
    let ((mut hung, diary), (good, _)) = (server(&house, "hung", "silent"), server(&house, "desk", "good"));
    hung.limits.connect_time = Duration::from_millis(300);
    let replies = [calling(&[("hung.echo", json!({})), ("desk.echo", json!({"text": "here"}))]), saying("Done.")];
    let mut session = house.session(configured(vec![hung, good]), script(&replies)).await;
    let result = turn(&mut session, "Go.").await;
    assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
    assert!(!event_types(&house, &session).await.contains(&"tool_not_found".to_owned()), "it is configured");
    let (_, is_error, told) = &results(&house, &session).await[0];
    assert!(*is_error && told.contains("unavailable") && told.contains("could not be reached"), "{told}");
    assert!(told.contains("MCP server hung did not connect"), "{told}");
    assert_eq!(results(&house, &session).await[1], ("desk.echo".to_owned(), false, "here".to_owned()));
    closed(session).await;
    diary.all_gone().await;
}

/// L7, row 55: where a plugin and a server have a tool of one name, the plugin keeps it, and the server is left out.
#[tokio::test(flavor = "multi_thread")]
async fn l7_a_server_with_the_name_of_a_plugins_tool_is_left_out() {
    let house = House::new(&["probe"]).await;
    let (config, diary) = server(&house, "probe", "good");
    let replies = [calling(&[("probe.echo", json!({"text": "hello"}))]), saying("Done.")];
    let mut session = house.session(configured(vec![config]), script(&replies)).await;
    let result = turn(&mut session, "Go.").await;
    assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
    let source = session.agent().registry().get("probe.echo").unwrap().source.to_string();
    assert!(source.contains("probe@"), "{source}");
    assert!(session.agent().registry().get("probe.structured").is_none(), "the server's other tools are left out, too");
    assert!(!results(&house, &session).await[0].1, "the plugin answers");
    assert_eq!(diary.count("tools/call"), 0, "the server is not called");
    closed(session).await;
    diary.all_gone().await;
}

fn binary(house: &House, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_agent-host"));
    command
        .current_dir(house.directory.path())
        .args(arguments)
        .env("AGENT_HOST_DATA", house.directory.path().join("data"));
    command.env_remove("MCP_TEST_TOKEN").stdin(Stdio::null()).output().unwrap()
}

/// An agent.toml with the fixture's server and a scripted model that calls it.
fn agent_file(house: &House, mode: &str, more: &str, replies: &[Value]) -> Diary {
    let diary = Diary { path: house.directory.path().join("diary") };
    std::fs::write(house.directory.path().join("script.json"), script(replies).to_string()).unwrap();
    let server = format!("[mcp.desk]\ncommand = {:?}\nargs = [\"{mode}\", {:?}]", mcp_server(), diary.path);
    let text = format!("name = \"test\"\nmodel = \"scripted:script.json\"\n{server}\n{more}\n");
    std::fs::write(house.directory.path().join("agent.toml"), text).unwrap();
    diary
}

fn printed(output: &Output) -> (String, String) {
    (String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// I2, I5: `[mcp.NAME]` of agent.toml is what a turn, `plugin list` and `config check` go by, and a stubborn server with a
/// grandchild is gone when the binary has ended.
#[tokio::test(flavor = "multi_thread")]
async fn i5_the_binary_starts_and_ends_the_servers_of_agent_toml() {
    let house = House::new(&[]).await;
    let replies = [calling(&[("desk.env", json!({}))]), saying("Done.")];
    let diary = agent_file(&house, "stubborn", "env = { MCP_TEST_PLAIN = \"x\" }\ntools = [\"env\"]", &replies);
    let checked = binary(&house, &["config", "check", "agent.toml"]);
    let (out, err) = printed(&checked);
    assert!(checked.status.success() && out.contains("desk: ") && out.contains("stubborn"), "{out}{err}");
    assert!(diary.started().is_empty(), "a check starts nothing");
    let ran = binary(&house, &["--agent", "agent.toml", "--json", "Go."]);
    let (out, err) = printed(&ran);
    assert!(ran.status.success(), "{out}{err}");
    assert!(out.contains("MCP_TEST_PLAIN") && !out.contains("AGENT_HOST_DATA"), "{out}{err}");
    assert_eq!(diary.started().len(), 3);
    diary.all_gone().await;
    let listed = binary(&house, &["plugin", "list", "--agent", "agent.toml"]);
    let (out, err) = printed(&listed);
    assert!(out.contains("MCP server") && out.contains("desk.env") && !out.contains("desk.echo"), "{out}{err}");
    diary.all_gone().await;
    let file = house.directory.path().join("agent.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text + "pass_env = [\"MCP_TEST_TOKEN\"]\n").unwrap();
    let refused = binary(&house, &["--agent", "agent.toml", "Go."]);
    let (_, err) = printed(&refused);
    assert!(!refused.status.success() && err.contains("MCP_TEST_TOKEN") && err.contains("agent.toml:"), "{err}");
}

/// L29, I5: Ctrl-C twice leaves at once, and leaves no process of a server behind.
#[tokio::test(flavor = "multi_thread")]
async fn i5_leaving_at_once_kills_the_servers() {
    let house = House::new(&[]).await;
    let replies = [calling(&[("desk.hang", json!({}))]), saying("unused")];
    let diary = agent_file(&house, "stubborn", "keep = \"always\"", &replies);
    let mut command = Command::new(env!("CARGO_BIN_EXE_agent-host"));
    command.current_dir(house.directory.path()).args(["--agent", "agent.toml", "Go."]);
    command.env("AGENT_HOST_DATA", house.directory.path().join("data"));
    let mut running = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    diary.until_noted("tools/call").await;
    assert_eq!(diary.alive().len(), 3);
    interrupt(running.id());
    diary.until_noted("notifications/cancelled").await;
    // The server is stubborn, so that the host is still ending it; where it is not any more, there is nobody to signal.
    interrupt(running.id());
    let status = running.wait().unwrap();
    assert!(!status.success());
    until("no process is left", || diary.alive().is_empty()).await;
}

/// L29, I5, row 21: Ctrl-C cancels the turn. A request to end and a closed terminal leave it open, so that it can go on. Each ends a
/// stubborn server with all that it started.
#[tokio::test(flavor = "multi_thread")]
async fn l29_a_closed_terminal_ends_the_turn_and_the_servers() {
    for signal in [Signal::HUP, Signal::TERM, Signal::INT] {
        let house = House::new(&[]).await;
        let replies = [calling(&[("desk.hang", json!({}))]), saying("unused")];
        let diary = agent_file(&house, "stubborn", "keep = \"always\"", &replies);
        let data = house.directory.path().join("data");
        // Whoever runs the tests may ignore hangups, and the host would inherit that.
        let mut command = Command::new("env");
        command.args(["--default-signal=HUP", env!("CARGO_BIN_EXE_agent-host")]).current_dir(house.directory.path());
        command.args(["--agent", "agent.toml", "Go."]).env("AGENT_HOST_DATA", &data);
        let mut running = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        diary.until_noted("tools/call").await;
        send(running.id(), signal);
        let status = running.wait().unwrap();
        assert_eq!(status.code(), Some(130), "{signal:?} is handled, and does not kill: {status:?}");
        diary.until_noted("notifications/cancelled").await;
        until("no process is left", || diary.alive().is_empty()).await;
        let mut listing = Command::new(env!("CARGO_BIN_EXE_agent-host"));
        let listed = listing.args(["session", "list", "--json"]).env("AGENT_HOST_DATA", &data).output().unwrap();
        let state = if signal == Signal::INT { "cancelled" } else { "interrupted" };
        let listed = String::from_utf8_lossy(&listed.stdout);
        assert!(listed.contains(&format!("\"state\":\"{state}\"")), "{signal:?}: {listed}");
    }
}

/// I5: Ctrl-\ leaves at once, and leaves no process of a server behind, stubborn as it may be, nor one of an agent below.
#[tokio::test(flavor = "multi_thread")]
async fn i5_quitting_kills_the_servers() {
    let house = House::new(&[]).await;
    let replies = [calling(&[("desk.hang", json!({}))]), saying("unused")];
    let diary = agent_file(&house, "stubborn", "keep = \"always\"", &replies);
    let path = |name: &str| house.directory.path().join(name);
    std::fs::write(path("lead.json"), script(&[calling(&[("worker", json!({"task": "Go."}))])]).to_string()).unwrap();
    let lead = "name = \"lead\"\nmodel = \"scripted:lead.json\"\n[agents.worker]\nagent = \"agent.toml\"\ndescription = \"Works.\"\n";
    std::fs::write(path("lead.toml"), lead).unwrap();
    for agent in ["agent.toml", "lead.toml"] {
        let _ = std::fs::remove_file(&diary.path);
        let mut command = Command::new(env!("CARGO_BIN_EXE_agent-host"));
        command.current_dir(house.directory.path()).args(["--agent", agent, "Go."]);
        command.env("AGENT_HOST_DATA", path("data"));
        let mut running = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        diary.until_noted("tools/call").await;
        assert_eq!(diary.alive().len(), 3, "{agent}");
        send(running.id(), Signal::QUIT);
        assert_eq!(running.wait().unwrap().code(), Some(130), "{agent}");
        diary.all_gone().await;
    }
}

/// I5: people read of a server that is down in a line like the terminal's others, and the card of a call says why.
#[tokio::test(flavor = "multi_thread")]
async fn i5_people_are_told_of_a_server_that_is_down() {
    let house = House::new(&[]).await;
    let replies = [calling(&[("desk.echo", json!({}))]), saying("Done.")];
    agent_file(&house, "exits", "", &replies);
    let ran = binary(&house, &["--agent", "agent.toml", "Go."]);
    let (out, err) = printed(&ran);
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
