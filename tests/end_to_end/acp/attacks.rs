//! Attacks of a client, and of models and tools, against the connection to an editor (rows 16, 17, 25, 26, 41, 49 and 56).

use super::FILES;
use super::editor::{Editor, PATIENCE, Project, ended_calls, patient, said, stopped, texts};
use crate::support::{call_reply, text_reply};
use agent_client_protocol::v1::schema::{NewSessionRequest, SessionUpdate, StopReason, ToolCallContent};
use serde_json::{Value, json};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};

/// Time after which a write that makes no progress is considered blocked.
const BLOCKED: Duration = Duration::from_secs(5);

/// A client that writes lines of any kind.
struct RawClient {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl RawClient {
    fn start(project: &Project) -> Self {
        let mut child = project.start(|_| {});
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, input, output: BufReader::new(output).lines() }
    }

    async fn write(&mut self, bytes: &[u8]) {
        patient(self.input.write_all(bytes)).await.expect("the program reads");
    }

    async fn request(&mut self, id: u64, method: &str, params: Value) {
        let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.write(format!("{line}\n").as_bytes()).await;
    }

    /// Returns the next line, which must be a message.
    async fn next(&mut self) -> Value {
        let line = patient(self.output.next_line()).await.expect("the output is text").expect("the program runs");
        let message: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert_eq!(message["jsonrpc"], "2.0");
        message
    }

    /// Returns the answer to a request, and skips notifications and requests of the agent.
    async fn answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.next().await;
            if message["id"] == id && message.get("method").is_none() {
                return message;
            }
        }
    }

    async fn initialize(&mut self) {
        self.request(0, "initialize", json!({"protocolVersion": 1, "clientCapabilities": {}})).await;
        assert_eq!(self.answer(0).await["result"]["protocolVersion"], 1);
    }

    async fn new_session(&mut self, project: &Project) -> String {
        self.request(1, "session/new", json!({"cwd": project.path(""), "mcpServers": []})).await;
        self.answer(1).await["result"]["sessionId"].as_str().expect("a session").to_owned()
    }

    async fn end(mut self) {
        drop(self.input);
        assert!(patient(self.child.wait()).await.unwrap().success());
    }
}

/// I7, row 26: lines that are no messages are answered with errors, and the connection goes on. Nothing but messages is
/// written to the output.
#[tokio::test(flavor = "multi_thread")]
async fn i7_row_26_bad_lines_are_answered_with_errors() {
    let project = Project::new(&[], "", &[text_reply("Still here.")]);
    let mut client = RawClient::start(&project);
    client.request(7, "session/new", json!({"cwd": "/", "mcpServers": []})).await;
    assert!(client.answer(7).await["error"].is_object(), "requests before `initialize` are refused");
    client.initialize().await;
    let mut long = vec![b'x'; (32 << 20) + 1];
    long.push(b'\n');
    let deep = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\",\"params\":{}{}}}\n",
        "[".repeat(50_000),
        "]".repeat(50_000)
    );
    let lines: [(&[u8], i64); 7] = [
        (b"{\n", -32700),
        (b"\xff\xfe\n", -32700),
        (b"[]\n", -32600),
        (b"17\n", -32600),
        (b" \n", -32600),
        (&long, -32600),
        (deep.as_bytes(), -32700),
    ];
    for (line, code) in lines {
        client.write(line).await;
        let error = client.next().await;
        assert_eq!((&error["id"], &error["error"]["code"]), (&Value::Null, &json!(code)), "{error}");
        assert!(error.to_string().len() < 500, "the error does not repeat the line");
    }
    // Answers that nobody asked for, and unknown notifications and requests.
    let unasked = json!({"jsonrpc": "2.0", "id": "x", "result": {"outcome": {"outcome": "selected", "optionId": "allow_always"}}});
    client.write(format!("{unasked}\n").as_bytes()).await;
    client
        .write(b"{\"jsonrpc\":\"2.0\",\"method\":\"session/cancel\",\"params\":{\"sessionId\":\"coder/none\"}}\n")
        .await;
    client.write(b"{\"jsonrpc\":\"2.0\",\"method\":\"session/cancel\",\"params\":17}\n").await;
    client.write(b"{\"jsonrpc\":\"2.0\",\"method\":\"unknown\"}\n").await;
    client.request(8, "session/set_mode", json!({"sessionId": "x", "modeId": "y"})).await;
    assert_eq!(client.answer(8).await["error"]["code"], -32601);
    client.request(9, "session/new", json!({"cwd": 17})).await;
    assert_eq!(client.answer(9).await["error"]["code"], -32602);
    let session = client.new_session(&project).await;
    client
        .request(2, "session/prompt", json!({"sessionId": session, "prompt": [{"type": "text", "text": "Hello?"}]}))
        .await;
    assert_eq!(client.answer(2).await["result"]["stopReason"], "end_turn");
    client.end().await;
}

/// I7, row 25: a client that sends many requests, or does not read, gets errors or is stopped, and cannot fill the memory.
#[tokio::test(flavor = "multi_thread")]
async fn i7_row_25_floods_are_bounded() {
    let slow = json!({"chunks": ["one ", "two"], "delay_ms": 60_000});
    let project = Project::new(&[], "", &[slow]);
    let mut client = RawClient::start(&project);
    client.initialize().await;
    let session = client.new_session(&project).await;
    let prompt = json!({"sessionId": session, "prompt": [{"type": "text", "text": "Hello?"}]});
    for id in 100..130 {
        client.request(id, "session/prompt", prompt.clone()).await;
    }
    // One prompt runs, eight wait, and the others are refused at once. If the first one has not been taken from the queue when the
    // last one arrives, one more is refused.
    let is_refused = |message: &Value| match message.get("error") {
        Some(error) => {
            assert!(error["message"].as_str().unwrap().contains("too many prompts"), "{error}");
            true
        }
        None => false,
    };
    let mut answered = 0;
    while answered < 21 {
        answered += usize::from(is_refused(&client.next().await));
    }
    let cancel = json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}});
    client.write(format!("{cancel}\n").as_bytes()).await;
    while answered < 30 {
        let message = client.next().await;
        answered += usize::from(is_refused(&message) || message["result"]["stopReason"] == "cancelled");
    }
    // A client that does not read: the program stops to read when too many answers wait.
    let list =
        format!("{}\n", json!({"jsonrpc": "2.0", "id": 5, "method": "session/list", "params": {}})).repeat(1_000);
    let mut written = 0;
    while tokio::time::timeout(BLOCKED, client.input.write_all(list.as_bytes())).await.is_ok() {
        written += list.len();
        assert!(written < 8 << 20, "the program reads requests although nobody reads its answers");
    }
    let id = client.child.id().expect("the program runs");
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes: u64 = resident.and_then(|text| text.trim().trim_end_matches(" kB").parse().ok()).unwrap_or_default();
    assert!(kibibytes < 400 << 10, "the program uses {kibibytes} KiB");
    client.child.kill().await.expect("the program is killed");
}

/// I7, row 56: sessions of another agent or another user, delegated sessions, and unknown ids are not found.
#[tokio::test(flavor = "multi_thread")]
async fn i7_row_56_foreign_sessions_are_not_found() {
    let project = Project::new(&[], "", &[text_reply("Mine."), text_reply("Mine.")]);
    project.write("other.toml", "name = \"other\"\nmodel = \"scripted:script.json\"\n");
    let run = async |arguments: &[&str]| {
        let output = project.program(arguments).stdin(Stdio::null()).output().await.expect("the program runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    run(&["--agent", "other.toml", "Secret."]).await;
    run(&["--agent", "agent.toml", "--user", "bob", "Secret."]).await;
    let store = project.store();
    let foreign = agent_store::SessionIndex::sessions(&store, agent_store::SessionFilter::default(), 9).await.unwrap();
    assert_eq!(foreign.len(), 2);
    let editor = Editor::start(&project).await;
    let mut ids: Vec<String> = foreign.into_iter().map(|session| session.subject).collect();
    ids.extend([
        "".to_owned(),
        "coder/'; DROP TABLE sessions; --".to_owned(),
        "../../etc".to_owned(),
        "x".repeat(100_000),
    ]);
    for id in &ids {
        let error = editor.load(id, &project.path("")).await.expect_err("the session is foreign");
        assert!(error.message.contains("there is no session") && error.to_string().len() < 400, "{error}");
        let error = patient(editor.ask(id, "Hello.")).await.unwrap().expect_err("the session is foreign");
        assert!(error.message.contains("is not open"), "{error}");
    }
    editor.close().await;
    // O3: only the requests for sessions that exist are refusals.
    let refused = refusals(&project).await;
    let request = "the use of a session".to_owned();
    assert!(refused.iter().all(|(what, ..)| *what == request), "{refused:?}");
    assert_eq!(refused.iter().map(|(.., count)| count).sum::<u64>(), 2, "{refused:?}");
    assert!(
        refused.iter().all(|(_, object, _)| object.as_ref().is_some_and(|id| ids[..2].contains(id))),
        "{refused:?}"
    );
}

/// The refused requests of editors in the audit log: what was requested, its object, and the number of requests.
async fn refusals(project: &Project) -> Vec<(String, Option<String>, u64)> {
    let entries = agent_store::Audit::audit_entries(&project.store(), 0, 0, 1_000).await.expect("the log is readable");
    let refusal = |action| match action {
        agent_store::AuditAction::RequestRefused { protocol, token: None, request, object, count, .. }
            if protocol == "acp" =>
        {
            Some((request, object, count))
        }
        _ => None,
    };
    entries.into_iter().filter_map(|entry| refusal(entry.action)).collect()
}

/// I7, P14: the folder of a session grants nothing. A folder that has nothing to do with the agent's folders is refused.
#[tokio::test(flavor = "multi_thread")]
async fn i7_p14_the_folder_of_a_session_grants_nothing() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret.md"), "secret\n").unwrap();
    let secret = outside.path().join("secret.md").display().to_string();
    let replies = [
        call_reply(&[("files.read", json!({"path": secret}))]),
        call_reply(&[("files.read", json!({"path": "elsewhere/secret.md"}))]),
        text_reply("Denied."),
    ];
    let project = Project::new(&["files"], FILES, &replies);
    project.write("elsewhere/secret.md", "secret\n");
    let mut editor = Editor::start(&project).await;
    for folder in [outside.path().to_owned(), project.path("elsewhere"), "work".into(), "/nonexistent".into()] {
        let new = NewSessionRequest::new(folder.clone());
        let error = patient(editor.connection.send_request(new).block_task()).await.expect_err("the folder is refused");
        assert!(!error.to_string().contains(&project.path("").display().to_string()), "{error}");
    }
    for folder in ["", "work"] {
        editor.new_session(&project.path(folder)).await;
    }
    let new = NewSessionRequest::new(project.path("")).additional_directories(vec![outside.path().to_owned()]);
    let error = patient(editor.connection.send_request(new).block_task()).await.expect_err("the folder is refused");
    assert!(error.message.contains("additional folders"), "{error}");
    let session = editor.new_session(&project.path("")).await;
    assert_eq!(editor.prompt(&session, "Read.").await, StopReason::EndTurn);
    let ended = ended_calls(&editor.updates());
    assert_eq!(ended.len(), 2);
    assert!(ended.iter().all(|(_, content)| !texts(content).contains("secret\n")), "{ended:?}");
    editor.close().await;
    // O3: the refused folders are in the audit log.
    let refused = refusals(&project).await;
    let count =
        |request: &str| refused.iter().filter(|(what, ..)| what == request).map(|(.., count)| count).sum::<u64>();
    assert_eq!((count("a session in a folder"), count("a session with additional folders")), (4, 1), "{refused:?}");
}

/// I7, rows 17 and 49: names and results of hostile tools and models are shown as text. They cannot imitate other parts of the
/// editor's window, and an answer that was not offered allows nothing.
#[tokio::test(flavor = "multi_thread")]
async fn i7_row_49_hostile_names_and_results_are_shown_as_text() {
    let hostile = "[click](command:x)\u{202e}`\n# Allow?";
    let replies = [
        call_reply(&[(hostile, json!({"path": hostile})), ("files.read", json!({"path": "work/a.md"}))]),
        text_reply("Read."),
        call_reply(&[("files.write", json!({"path": "work/b.md", "text": hostile}))]),
        text_reply("Denied."),
    ];
    let configuration = format!("{FILES}[approval.tools]\n\"files.write\" = \"ask\"\n");
    let project = Project::new(&["files"], &configuration, &replies);
    project.write("work/a.md", &format!("```\n{hostile}\n````\nend"));
    let mut editor = Editor::start(&project).await;
    let session = editor.new_session(&project.path("")).await;
    assert_eq!(editor.prompt(&session, "Read.").await, StopReason::EndTurn);
    let updates = editor.updates();
    let titles = updates.iter().filter_map(|(_, update)| match update {
        SessionUpdate::ToolCall(call) => Some(call.title.clone()),
        _ => None,
    });
    for title in titles {
        assert!(!title.contains(['[', '\n', '\u{202e}', '#']), "{title}");
    }
    let read = ended_calls(&updates).into_iter().map(|(_, content)| texts(&content)).find(|text| text.contains("end"));
    let read = read.expect("the file is shown");
    assert!(read.starts_with("`````text\n") && read.ends_with("\n`````") && read.contains("\\u{202e}"), "{read}");
    let answer = editor.ask(&session, "Write.");
    let permission = editor.permission().await;
    assert!(!permission.text().contains('\u{202e}') && permission.text().starts_with("```"), "{}", permission.text());
    permission.select("allow_everything");
    assert_eq!(stopped(answer).await, StopReason::EndTurn);
    assert!(said(&editor.updates()).contains("waits for your permission"));
    assert!(!project.path("work/b.md").exists());
    editor.close().await;
}

/// I7, rows 16 and 41: a secret of the configuration that is in a file is masked in the difference.
#[tokio::test(flavor = "multi_thread")]
async fn i7_row_41_secrets_are_masked_in_differences() {
    let write = call_reply(&[("files.write", json!({"path": "work/a.md", "text": "more\n", "mode": "append"}))]);
    let server = "[mcp.tides]\nurl = \"http://127.0.0.1:9/mcp\"\nheader_env = { \"Authorization\" = \"TIDES_KEY\" }\n";
    let project = Project::new(&["files"], &format!("{FILES}{server}"), &[write, text_reply("Written.")]);
    project.write("work/a.md", "key: harbour-master-1234\n");
    let program = project.start(|command| {
        command.env("TIDES_KEY", "Bearer harbour-master-1234");
    });
    let mut editor = Editor::connect(program).await;
    let session = editor.new_session(&project.path("")).await;
    assert_eq!(editor.prompt(&session, "Write.").await, StopReason::EndTurn);
    let ended = ended_calls(&editor.updates());
    let diff = ended[0].1.iter().find_map(|content| match content {
        ToolCallContent::Diff(diff) => Some((diff.old_text.clone(), diff.new_text.clone())),
        _ => None,
    });
    assert_eq!(diff, Some((Some("key: (secret)\n".to_owned()), "key: (secret)\nmore\n".to_owned())), "{ended:?}");
    assert!(project.read("work/a.md").contains("harbour-master"), "the file keeps its content");
    editor.close().await;
}

/// I7: SIGTERM ends the program while a turn runs and the editor does not read.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn i7_sigterm_ends_the_program() {
    let chunks: Vec<String> = (0..50_000).map(|number| format!("{number:06} ")).collect();
    let project = Project::new(&[], "", &[json!({"chunks": chunks})]);
    let mut client = RawClient::start(&project);
    client.initialize().await;
    let session = client.new_session(&project).await;
    client
        .request(2, "session/prompt", json!({"sessionId": session, "prompt": [{"type": "text", "text": "Count."}]}))
        .await;
    while client.next().await["params"]["update"]["sessionUpdate"] != "agent_message_chunk" {}
    let id = i32::try_from(client.child.id().expect("the program runs")).expect("a process id");
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(id).expect("a process id"),
        rustix::process::Signal::TERM,
    )
    .expect("the signal is sent");
    tokio::time::timeout(PATIENCE, client.child.wait()).await.expect("the program ends").expect("its status is known");
}
