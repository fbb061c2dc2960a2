//! Sessions that an editor loads, also after the program or the editor was killed (D3).

use super::FILES;
use super::editor::{Editor, Project, asked, ended_calls, patient, said, stopped};
use crate::support::{call_reply, text_reply};
use agent_client_protocol::v1::schema::{SessionUpdate, StopReason, ToolCallContent, ToolCallStatus};
use serde_json::json;

/// I7: a loaded session shows the same conversation as before, in the same order, and continues.
#[tokio::test(flavor = "multi_thread")]
async fn i7_a_loaded_session_shows_its_conversation() {
    let write = call_reply(&[("files.write", json!({"path": "work/a.md", "text": "one\n"}))]);
    let replies = [write, text_reply("Written."), text_reply("Second."), text_reply("Third.")];
    let project = Project::new(&["files"], FILES, &replies);
    let editor = Editor::start(&project).await;
    let session = editor.new_session(&project.path("")).await;
    assert_eq!(editor.prompt(&session, "First?").await, StopReason::EndTurn);
    assert_eq!(editor.prompt(&session, "Second?").await, StopReason::EndTurn);
    editor.close().await;
    let mut editor = Editor::start(&project).await;
    editor.load(&session, &project.path("")).await.expect("the session is loaded");
    let order: Vec<String> = editor
        .updates()
        .into_iter()
        .filter_map(|(_, update)| match update {
            SessionUpdate::UserMessageChunk(_) => Some(format!("> {}", asked(&[(String::new(), update)]))),
            SessionUpdate::AgentMessageChunk(_) => Some(said(&[(String::new(), update)]).trim().to_owned()),
            SessionUpdate::ToolCall(call) => Some(call.title),
            SessionUpdate::ToolCallUpdate(update) => Some(format!("{:?}", update.fields.status?)),
            _ => None,
        })
        .collect();
    assert_eq!(order, ["> First?", "Write a file `work/a.md`", "Completed", "Written.", "> Second?", "Second."]);
    assert_eq!(editor.prompt(&session, "Third?").await, StopReason::EndTurn);
    assert_eq!(said(&editor.updates()).trim(), "Third.");
    editor.close().await;
}

/// I7, D3: after `kill -9` during a reply, the turn continues, and the loaded session shows its end once.
#[tokio::test(flavor = "multi_thread")]
async fn i7_d3_a_killed_turn_continues() {
    let slow = json!({"chunks": ["one ", "two ", "three"], "delay_ms": 500});
    let project = Project::new(&[], "", &[slow, text_reply("Next.")]);
    let mut editor = Editor::start(&project).await;
    let session = editor.new_session(&project.path("")).await;
    let answer = editor.ask(&session, "Count.");
    editor.until(|update| matches!(update, SessionUpdate::AgentMessageChunk(_))).await;
    editor.kill().await;
    patient(answer).await.expect("the task ends").expect_err("the program was killed");
    let mut editor = Editor::start(&project).await;
    editor.load(&session, &project.path("")).await.expect("the session is loaded");
    let mut text = String::new();
    while !text.contains("three") {
        let update = editor.until(|update| matches!(update, SessionUpdate::AgentMessageChunk(_))).await;
        text.push_str(&said(&[(String::new(), update)]));
    }
    assert_eq!(text.trim(), "one two three");
    assert_eq!(editor.prompt(&session, "And then?").await, StopReason::EndTurn);
    assert_eq!(said(&editor.updates()).trim(), "Next.");
    editor.close().await;
}

/// I7, D3: a call that ran when the program was killed is asked about: it runs again, or it counts as failed.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn i7_d3_calls_with_unknown_outcome_are_asked() {
    for (option, status, lines) in [("retry", ToolCallStatus::Completed, 2), ("failed", ToolCallStatus::Failed, 1)] {
        let pay = call_reply(&[("payer.wipe", json!({"to": "ann", "amount": 1}))]);
        let configuration = "[approval]\ndestructive = \"allow\"\n[plugins.payer.grants]\nwrite = [\"work\"]\n";
        let project = Project::new(&["payer"], configuration, &[pay, text_reply("Done.")]);
        let killed = project.start(|command| {
            command.env("AGENT_HOST_KILL_AT", "after-call:payer.wipe");
        });
        let mut editor = Editor::connect(killed).await;
        let session = editor.new_session(&project.path("")).await;
        let answer = editor.ask(&session, "Pay.");
        patient(answer).await.expect("the task ends").expect_err("the program was killed");
        patient(editor.child.wait()).await.expect("the program was killed");
        let mut editor = Editor::start(&project).await;
        editor.load(&session, &project.path("")).await.expect("the session is loaded");
        let permission = editor.permission().await;
        assert_eq!(permission.options(), ["retry", "failed"]);
        assert!(permission.text().contains("may have had its effect"), "{}", permission.text());
        permission.select(option);
        editor.until(|update| said(&[(String::new(), update.clone())]).contains("Done.")).await;
        editor.load(&session, &project.path("")).await.expect("the session is loaded again");
        let ended: Vec<_> = ended_calls(&editor.updates()).into_iter().map(|(status, _)| status).collect();
        assert_eq!((ended.last().copied(), project.read("work/ledger.txt").lines().count()), (Some(status), lines));
        editor.close().await;
    }
}

/// I7, L17: an approval that was requested before the program was killed is requested again when the session is loaded.
#[tokio::test(flavor = "multi_thread")]
async fn i7_l17_an_approval_is_requested_again_after_a_kill() {
    let pay = call_reply(&[("payer.pay", json!({"to": "ann", "amount": 1}))]);
    let project = Project::new(&["payer"], "[plugins.payer.grants]\nwrite = [\"work\"]\n", &[pay, text_reply("Paid.")]);
    let mut editor = Editor::start(&project).await;
    let session = editor.new_session(&project.path("")).await;
    let answer = editor.ask(&session, "Pay.");
    let unanswered = editor.permission().await;
    editor.kill().await;
    drop((unanswered, answer));
    let mut editor = Editor::start(&project).await;
    editor.load(&session, &project.path("")).await.expect("the session is loaded");
    let permission = editor.permission().await;
    assert_eq!(permission.options(), ["allow_once", "allow_session", "allow_always", "reject"]);
    permission.select("allow_once");
    editor.until(|update| said(&[(String::new(), update.clone())]).contains("Paid.")).await;
    assert_eq!(project.read("work/ledger.txt").lines().count(), 1);
    editor.close().await;
}

/// I7: the end of the input stops the program. The open turn is not cancelled, and continues later.
#[tokio::test(flavor = "multi_thread")]
async fn i7_the_end_of_the_input_cancels_nothing() {
    let slow = json!({"chunks": ["one ", "two"], "delay_ms": 500});
    let project = Project::new(&[], "", &[slow]);
    let mut editor = Editor::start(&project).await;
    let session = editor.new_session(&project.path("")).await;
    let answer = editor.ask(&session, "Count.");
    editor.until(|update| matches!(update, SessionUpdate::AgentMessageChunk(_))).await;
    editor.close().await;
    patient(answer).await.expect("the task ends").expect_err("the connection has ended");
    let mut editor = Editor::start(&project).await;
    editor.load(&session, &project.path("")).await.expect("the session is loaded");
    let mut text = String::new();
    while !text.contains("two") {
        let update = editor.until(|update| matches!(update, SessionUpdate::AgentMessageChunk(_))).await;
        text.push_str(&said(&[(String::new(), update)]));
    }
    editor.close().await;
}

/// I7: results that the model sees only in part are shown in the editor, and differences are shown only while a call runs.
#[tokio::test(flavor = "multi_thread")]
async fn i7_a_resumed_session_sends_no_conversation() {
    let write = call_reply(&[("files.write", json!({"path": "work/a.md", "text": "one\n"}))]);
    let project = Project::new(&["files"], FILES, &[write, text_reply("Written."), text_reply("Next.")]);
    let mut editor = Editor::start(&project).await;
    let session = editor.new_session(&project.path("")).await;
    assert_eq!(stopped(editor.ask(&session, "First?")).await, StopReason::EndTurn);
    let is_diff = |content: &ToolCallContent| matches!(content, ToolCallContent::Diff(_));
    assert!(ended_calls(&editor.updates())[0].1.iter().any(is_diff));
    let folder = project.path("");
    let resume = agent_client_protocol::v1::schema::ResumeSessionRequest::new(session.clone(), folder.clone());
    patient(editor.connection.send_request(resume).block_task()).await.expect("the session is resumed");
    let updates = editor.updates();
    assert_eq!((asked(&updates), said(&updates)), (String::new(), String::new()));
    assert_eq!(editor.prompt(&session, "Next?").await, StopReason::EndTurn);
    editor.load(&session, &folder).await.expect("the session is loaded");
    assert!(!ended_calls(&editor.updates())[0].1.iter().any(is_diff), "differences are not stored");
    editor.close().await;
}
