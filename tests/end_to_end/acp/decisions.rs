//! What the user of an editor decides: approvals, first-use questions, answers to the model, and cancellation.

use super::editor::{Editor, Project, ended_calls, patient, said, stopped, texts};
use crate::support::{call_reply, text_reply};
use agent_client_protocol::v1::schema::{
    CloseSessionRequest, PermissionOptionKind, SessionUpdate, StopReason, ToolCallContent, ToolCallStatus,
};
use agent_store::{CallFilter, SessionLog};
use serde_json::{Value, json};

/// Configuration of the plugin `payer`, whose tool declares that it needs an approval.
const PAYER: &str = "[plugins.payer.grants]\nwrite = [\"work\"]\n";

fn pay(amount: u32) -> Value {
    call_reply(&[("payer.pay", json!({"to": "ann", "amount": amount}))])
}

/// I7, L17: an approval can be given once, for the session and forever, and it can be denied.
#[tokio::test(flavor = "multi_thread")]
async fn i7_l17_approvals_are_permission_requests() {
    let denied = json!({"text": "Denied.", "expect": {"last_contains": "denied"}});
    let mut replies = vec![pay(1), text_reply("Paid."), pay(2), denied];
    replies.extend([pay(3), text_reply("Paid."), pay(4), text_reply("Paid."), pay(5), text_reply("Paid.")]);
    let project = Project::new(&["payer"], PAYER, &replies);
    let mut editor = Editor::start(&project).await;
    let session = editor.new_session(&project.path("")).await;
    for (option, is_asked) in [("allow_once", true), ("reject", true), ("allow_session", true), ("", false)] {
        let answer = editor.ask(&session, "Pay.");
        if is_asked {
            let permission = editor.permission().await;
            assert_eq!(permission.options(), ["allow_once", "allow_session", "allow_always", "reject"]);
            let text = permission.text();
            assert!(
                text.contains("payer") && text.contains("\"amount\"") && text.contains("the tool itself"),
                "{text}"
            );
            assert_eq!(permission.request.tool_call.fields.raw_input.as_ref().unwrap()["to"], "ann");
            permission.select(option);
        }
        assert_eq!(stopped(answer).await, StopReason::EndTurn);
    }
    let ended: Vec<_> = ended_calls(&editor.updates()).into_iter().map(|(status, _)| status).collect();
    let (done, failed) = (ToolCallStatus::Completed, ToolCallStatus::Failed);
    assert_eq!(ended, [done, failed, done, done]);
    // Another session asks again, until an approval is given forever.
    let (second, third) = (editor.new_session(&project.path("")).await, editor.new_session(&project.path("")).await);
    let answer = editor.ask(&second, "Pay.");
    editor.permission().await.select("allow_always");
    assert_eq!(stopped(answer).await, StopReason::EndTurn);
    assert_eq!(editor.prompt(&third, "Pay.").await, StopReason::EndTurn, "nothing is asked");
    assert_eq!(project.read("work/ledger.txt").lines().count(), 5);
    editor.close().await;
}

/// I7, L17, row 41: a permission request contains the change that the call would make, without secrets of the configuration. If
/// the user rejects the call, the file keeps its content.
#[tokio::test(flavor = "multi_thread")]
async fn i7_l17_row_41_a_permission_request_contains_the_difference() {
    let edit = json!({"path": "work/a.md", "edits": [{"old": "two", "new": "2"}]});
    let agent = "[plugins.files.grants]\nwrite = [\"work\"]\n[mcp.tides]\nurl = \"http://127.0.0.1:9/mcp\"\n\
                 header_env = { \"Authorization\" = \"TIDES_KEY\" }\n";
    let project = Project::new(&["files"], agent, &[call_reply(&[("files.edit", edit)]), text_reply("Well.")]);
    project.write("work/a.md", "harbour-master-1234\ntwo\n");
    let program = project.start(|command| {
        command.env("TIDES_KEY", "Bearer harbour-master-1234");
    });
    let mut editor = Editor::connect(program).await;
    let session = editor.new_session(&project.path("")).await;
    let answer = editor.ask(&session, "Edit.");
    let permission = editor.permission().await;
    let content = permission.request.tool_call.fields.content.clone().unwrap_or_default();
    let differences = content.iter().filter_map(|content| match content {
        ToolCallContent::Diff(diff) => Some((diff.path.clone(), diff.old_text.clone(), diff.new_text.clone())),
        _ => None,
    });
    let differences: Vec<_> = differences.collect();
    let expected = (project.path("work/a.md"), Some("(secret)\ntwo\n".to_owned()), "(secret)\n2\n".to_owned());
    assert_eq!(differences, [expected], "{content:?}");
    permission.select("reject");
    assert_eq!(stopped(answer).await, StopReason::EndTurn);
    assert_eq!(project.read("work/a.md"), "harbour-master-1234\ntwo\n");
    editor.close().await;
}

/// I7, L17: a permission request that is dismissed leaves the turn waiting. The next prompt asks again and runs after the
/// turn, `/continue` asks again, and a cancellation ends the turn even if the editor does not answer.
#[tokio::test(flavor = "multi_thread")]
async fn i7_l17_a_dismissed_request_leaves_the_turn_waiting() {
    let project = Project::new(&["payer"], PAYER, &[pay(1), text_reply("Paid."), text_reply("Next."), pay(2)]);
    let mut editor = Editor::start(&project).await;
    let session = editor.new_session(&project.path("")).await;
    let answer = editor.ask(&session, "Pay.");
    editor.permission().await.dismiss();
    assert_eq!(stopped(answer).await, StopReason::EndTurn);
    let text = said(&editor.updates());
    assert!(text.contains("your permission to run `payer.pay`"), "{text}");
    let answer = editor.ask(&session, "/continue");
    editor.permission().await.dismiss();
    assert_eq!(stopped(answer).await, StopReason::EndTurn);
    editor.updates();
    let answer = editor.ask(&session, "And then?");
    editor.permission().await.select("allow_once");
    assert_eq!(stopped(answer).await, StopReason::EndTurn);
    let text = said(&editor.updates());
    assert!(text.contains("Paid.") && text.ends_with("Next."), "the prompt runs after the open turn: {text}");
    let answer = editor.ask(&session, "Pay again.");
    let unanswered = editor.permission().await;
    editor.cancel(&session);
    assert_eq!(stopped(answer).await, StopReason::Cancelled);
    unanswered.select("allow_once");
    assert_eq!(editor.prompt(&session, "/session").await, StopReason::EndTurn);
    assert_eq!(project.read("work/ledger.txt").lines().count(), 1, "a late answer has no effect");
    editor.close().await;
}

/// I7, P6: a plugin without grants asks at its first use, in words that say what would be granted. The answer is written into
/// the configuration.
#[tokio::test(flavor = "multi_thread")]
async fn i7_p6_first_use_questions_are_permission_requests() {
    let write = |name: &str| call_reply(&[("files.write", json!({"path": name, "text": "x\n"}))]);
    let replies = [write("a.md"), text_reply("No."), write("b.md"), text_reply("Yes.")];
    for (first, second) in [("always", None), ("no", None), ("dismiss", Some("this_session"))] {
        let project = Project::new(&["files"], "[approval]\ndestructive = \"allow\"\n", &replies);
        let mut editor = Editor::start(&project).await;
        let session = editor.new_session(&project.path("")).await;
        let answer = editor.ask(&session, "Write.");
        let permission = editor.permission().await;
        assert_eq!(permission.options(), ["this_session", "always", "no", "never"]);
        let text = permission.text();
        let folder = project.path("").display().to_string();
        assert!(text.contains("asks for these grants to run files.write"), "{text}");
        assert!(text.contains(folder.trim_end_matches('/')) && text.contains("write = [\".\"]"), "{text}");
        if first == "dismiss" {
            permission.dismiss()
        } else {
            permission.select(first)
        }
        assert_eq!(stopped(answer).await, StopReason::EndTurn);
        let is_granted = first == "always";
        assert_eq!(
            (project.path("a.md").exists(), project.read("agent.toml").contains("write")),
            (is_granted, is_granted)
        );
        let answer = editor.ask(&session, "Write.");
        if let Some(second) = second {
            editor.permission().await.select(second);
        }
        assert_eq!(stopped(answer).await, StopReason::EndTurn);
        assert_eq!(project.path("b.md").exists(), is_granted || second.is_some(), "{first}");
        editor.close().await;
    }
}

/// I7, P6: a grant that is not written into the configuration applies only to the session in which the user has given it. It
/// ends when the editor closes the session. No option claims to apply only once, because none does.
#[tokio::test(flavor = "multi_thread")]
async fn i7_p6_temporary_grants_belong_to_one_session() {
    let write = |name: &str| call_reply(&[("files.write", json!({"path": name, "text": "x\n"}))]);
    // Each session begins with the first reply.
    let replies = ["a.md", "b.md", "c.md"].map(|name| [write(name), text_reply("Well.")]);
    let project = Project::new(&["files"], "[approval]\ndestructive = \"allow\"\n", &replies.concat());
    let mut editor = Editor::start(&project).await;
    let granted = editor.new_session(&project.path("")).await;
    let other = editor.new_session(&project.path("")).await;
    let written = |name: &str| project.path(name).exists();
    let answer = editor.ask(&granted, "Write a.");
    let permission = editor.permission().await;
    let kinds: Vec<_> = permission.request.options.iter().map(|option| option.kind).collect();
    let (allow, reject) = (PermissionOptionKind::AllowAlways, PermissionOptionKind::RejectAlways);
    assert_eq!(kinds, [allow, allow, reject, reject]);
    assert!(permission.request.options[0].name.contains("until this session is closed"));
    permission.select("this_session");
    assert_eq!(stopped(answer).await, StopReason::EndTurn);
    assert!(written("a.md"));
    std::fs::remove_file(project.path("a.md")).expect("removed");
    let answer = editor.ask(&other, "Write a.");
    editor.permission().await.select("no");
    assert_eq!(stopped(answer).await, StopReason::EndTurn);
    assert!(!written("a.md"), "the other session still lacks the grant");
    assert_eq!(editor.prompt(&granted, "Write b.").await, StopReason::EndTurn);
    assert!(written("b.md"), "the answer in the other session changes nothing");
    patient(editor.connection.send_request(CloseSessionRequest::new(granted.clone())).block_task()).await.unwrap();
    editor.load(&granted, &project.path("")).await.expect("the session is loaded");
    let answer = editor.ask(&granted, "Write c.");
    editor.permission().await.dismiss();
    assert_eq!(stopped(answer).await, StopReason::EndTurn);
    assert!(!written("c.md"), "the grant has ended");
    editor.close().await;
}

/// I7, L18: a question of the model ends the prompt, and the next prompt answers it.
#[tokio::test(flavor = "multi_thread")]
async fn i7_l18_the_next_prompt_answers_a_question() {
    let question = call_reply(&[("ask_question", json!({"question": "Which pier?"}))]);
    let mut done = call_reply(&[("task_completion", json!({"result": "Moored at pier 4."}))]);
    done["expect"] = json!({"last_contains": "Pier 4."});
    let project = Project::new(&[], "finish = \"tool\"\n", &[question, done]);
    let mut editor = Editor::start(&project).await;
    let session = editor.new_session(&project.path("")).await;
    assert_eq!(editor.prompt(&session, "Moor.").await, StopReason::EndTurn);
    let text = said(&editor.updates());
    assert!(text.contains("Which pier?"), "{text}");
    assert_eq!(editor.prompt(&session, "Pier 4.").await, StopReason::EndTurn);
    assert!(editor.prompt(&session, "/session").await == StopReason::EndTurn);
    let text = said(&editor.updates());
    assert!(text.contains("1 turns"), "the answer begins no turn: {text}");
    editor.close().await;
}

/// I7, L10: a turn that waits for a service ends the prompt. When the answer arrives, the turn continues in the editor.
#[tokio::test(flavor = "multi_thread")]
async fn i7_l10_a_turn_continues_when_a_service_answers() {
    let end = json!({"text": "Paid with R-7.", "expect": {"last_contains": "R-7"}});
    let replies = [call_reply(&[("pay", json!({}))]), end, text_reply("Kept prompt.")];
    let project = Project::new(&[], "[services.pay]\nemits = { \"*\" = {} }\n", &replies);
    let mut editor = Editor::start(&project).await;
    let session = editor.new_session(&project.path("")).await;
    assert_eq!(editor.prompt(&session, "Buy.").await, StopReason::EndTurn);
    let text = said(&editor.updates());
    assert!(text.contains("waits for the service `pay`"), "{text}");
    assert_eq!(editor.prompt(&session, "And then?").await, StopReason::EndTurn);
    assert!(said(&editor.updates()).contains("is kept"));
    let calls = project.store().calls(&session, CallFilter::Unfinished).await.expect("the calls are read");
    let event = json!({
        "specversion": "1.0", "id": "e1", "source": "/test", "type": "paid", "subject": session,
        "parentid": calls[0].id.0, "data": {"receipt": "R-7"},
    });
    project.write("answer.json", &event.to_string());
    let arguments = ["session", "respond", &session, "--event", "answer.json", "--no-run"];
    patient(async {
        // The session is closed some seconds after its last use.
        while !project.program(&arguments).output().await.expect("the program runs").status.success() {
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    })
    .await;
    let mut text = String::new();
    while !text.contains("Kept prompt.") {
        let update = editor.until(|update| matches!(update, SessionUpdate::AgentMessageChunk(_))).await;
        text.push_str(&said(&[(String::new(), update)]));
    }
    assert!(text.contains("Paid with R-7."), "{text}");
    editor.close().await;
}

/// I7, L16: the approvals of a delegate are asked in the session of the editor.
#[tokio::test(flavor = "multi_thread")]
async fn i7_l16_approvals_of_delegates_are_asked() {
    let replies = [call_reply(&[("worker", json!({"task": "Pay ann."}))]), text_reply("Finished.")];
    let project =
        Project::new(&["payer"], "[agents.worker]\nagent = \"worker.toml\"\ndescription = \"Works.\"\n", &replies);
    let head = "name = \"worker\"\nmodel = \"scripted:worker.json\"\nplugin_directory = \"plugins\"\n";
    project.write("worker.toml", &format!("{head}{PAYER}"));
    project.write("worker.json", &crate::support::script(&[pay(1), text_reply("Paid.")]).to_string());
    let mut editor = Editor::start(&project).await;
    let session = editor.new_session(&project.path("")).await;
    let answer = editor.ask(&session, "Go.");
    let permission = editor.permission().await;
    assert_eq!(permission.request.session_id.to_string(), session);
    assert!(permission.text().contains("agent to which the work was delegated"), "{}", permission.text());
    permission.select("allow_once");
    assert_eq!(stopped(answer).await, StopReason::EndTurn);
    let updates = editor.updates();
    assert!(said(&updates).ends_with("Finished."));
    assert!(texts(&ended_calls(&updates)[0].1).contains("Paid."));
    assert_eq!(project.read("work/ledger.txt").lines().count(), 1);
    editor.close().await;
}
