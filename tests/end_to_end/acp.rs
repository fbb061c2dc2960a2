//! The agent inside an editor (I7), with the protocol's own client over the real program's standard input and output.

mod attacks;
mod decisions;
mod editor;
mod loading;
mod typescript;

use crate::support::{call_reply, components, text_reply};
use agent_client_protocol::v1::schema::{
    CloseSessionRequest, ContentBlock, DeleteSessionRequest, Diff, ImageContent, ListSessionsRequest, McpServer,
    McpServerStdio, NewSessionRequest, PlanEntryStatus, ResourceLink, SessionUpdate, StopReason, ToolCallContent,
    ToolCallStatus, ToolKind,
};
use agent_core::message::Part;
use agent_store::{MessageRange, SessionLog};
use editor::{Editor, Project, block, ended_calls, patient, said, stopped, texts, thought};
use serde_json::json;

/// The agent's configuration with the plugin `files`, which may write in the folder `work` without a question.
const FILES: &str = "[approval]\ndestructive = \"allow\"\n[plugins.files.grants]\nwrite = [\"work\"]\n";

/// I7: text and thinking arrive in pieces and in order, the reasons for the end are those of the protocol, and sessions are
/// listed, closed and deleted.
#[tokio::test(flavor = "multi_thread")]
async fn i7_a_session_streams_and_is_listed_and_deleted() {
    let words = ["The ", "harbour ", "has ", "12 ", "berths."];
    // The host asks the model twice to correct a reply that was cut.
    let refused = json!({"text": "I cannot help with that.", "stop": "content_filter"});
    let replies =
        [json!({"chunks": words, "thinking": "Counting.", "delay_ms": 10}), refused.clone(), refused.clone(), refused];
    let project = Project::new(&[], "", &replies);
    let mut editor = Editor::start(&project).await;
    let capabilities = &editor.capabilities.agent_capabilities;
    assert!(capabilities.load_session && capabilities.prompt_capabilities.image);
    assert!(capabilities.prompt_capabilities.embedded_context && editor.capabilities.auth_methods.is_empty());
    let session = editor.new_session(&project.path("")).await;
    assert_eq!(editor.prompt(&session, "How many?").await, StopReason::EndTurn);
    let updates = editor.updates();
    assert_eq!((said(&updates), thought(&updates)), (words.concat(), "Counting.".to_owned()));
    let pieces = updates.iter().filter(|(_, update)| matches!(update, SessionUpdate::AgentMessageChunk(_))).count();
    assert!(pieces > 1, "the text arrives in pieces");
    assert!(updates.iter().any(|(_, update)| matches!(update, SessionUpdate::UsageUpdate(usage) if usage.size > 0)));
    assert!(updates.iter().all(|(of, _)| *of == session));
    assert_eq!(editor.prompt(&session, "Something else.").await, StopReason::Refusal);
    let text = said(&editor.updates());
    assert!(text.matches("The host has discarded this text").count() >= 2, "rejected replies are marked: {text}");
    let error = patient(editor.ask(&session, "More.")).await.unwrap().expect_err("the script has ended");
    assert!(error.message.contains("script"), "{error}");
    editor.updates();
    editor.load(&session, &project.path("")).await.expect("the session is loaded");
    assert_eq!(said(&editor.updates()), words.concat(), "rejected replies are not shown again");
    let listed = patient(editor.connection.send_request(ListSessionsRequest::new()).block_task()).await.unwrap();
    assert_eq!((listed.sessions.len(), listed.sessions[0].session_id.to_string()), (1, session.clone()));
    assert_eq!(listed.sessions[0].title.as_deref(), Some("How many?"));
    patient(editor.connection.send_request(CloseSessionRequest::new(session.clone())).block_task()).await.unwrap();
    let closed = patient(editor.ask(&session, "Again.")).await.unwrap().expect_err("the session is closed");
    assert!(closed.message.contains("is not open"), "{closed}");
    let delete = async || editor.connection.send_request(DeleteSessionRequest::new(session.clone())).block_task().await;
    patient(async {
        while delete().await.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    })
    .await;
    let listed = patient(editor.connection.send_request(ListSessionsRequest::new()).block_task()).await.unwrap();
    assert!(listed.sessions.is_empty(), "{listed:?}");
    editor.close().await;
}

/// I7: a call that writes a file shows its kind, its location, and the file before and after the call. The second call of the
/// turn fails, and shows no difference.
#[tokio::test(flavor = "multi_thread")]
async fn i7_calls_show_the_files_that_they_change() {
    let write = |path: &str, text: &str, mode: &str| {
        call_reply(&[("files.write", json!({"path": path, "text": text, "mode": mode}))])
    };
    let replies = [
        write("work/new.md", "one\n", "create"),
        write("work/old.md", "two\n", "append"),
        write("work/new.md", "three\n", "create"),
        write("elsewhere/x.md", "four\n", "create"),
        call_reply(&[("files.read", json!({"path": "work/old.md"}))]),
        text_reply("Written."),
    ];
    let project = Project::new(&["files"], FILES, &replies);
    project.write("work/old.md", "one\n");
    let mut editor = Editor::start(&project).await;
    let session = editor.new_session(&project.path("")).await;
    assert_eq!(editor.prompt(&session, "Write.").await, StopReason::EndTurn);
    let updates = editor.updates();
    let begun = updates.iter().find_map(|(_, update)| match update {
        SessionUpdate::ToolCall(call) => Some(call.clone()),
        _ => None,
    });
    let begun = begun.expect("a call begins");
    assert_eq!((begun.kind, begun.title.as_str()), (ToolKind::Edit, "Write a file `work/new.md`"));
    assert_eq!(begun.locations[0].path, project.path("work/new.md"));
    assert_eq!(begun.raw_input, Some(json!({"path": "work/new.md", "text": "one\n", "mode": "create"})));
    let ended = ended_calls(&updates);
    let diffs: Vec<Vec<Diff>> = ended
        .iter()
        .map(|(_, content)| {
            content
                .iter()
                .filter_map(|content| match content {
                    ToolCallContent::Diff(diff) => Some(diff.clone()),
                    _ => None,
                })
                .collect()
        })
        .collect();
    let statuses: Vec<_> = ended.iter().map(|(status, _)| *status).collect();
    let (done, failed) = (ToolCallStatus::Completed, ToolCallStatus::Failed);
    assert_eq!(statuses, [done, done, failed, failed, done]);
    assert_eq!(diffs[0], [Diff::new(project.path("work/new.md"), "one\n")]);
    assert_eq!(diffs[1], [Diff::new(project.path("work/old.md"), "one\ntwo\n").old_text("one\n".to_owned())]);
    assert!(diffs[2..].iter().all(Vec::is_empty), "calls that change nothing show no difference");
    assert!(texts(&ended[4].1).contains("two"), "{ended:?}");
    editor.close().await;
}

/// I7: two sessions work at the same time, and one of them can be cancelled.
#[tokio::test(flavor = "multi_thread")]
async fn i7_l29_two_sessions_work_at_the_same_time() {
    let slow = json!({"chunks": ["one ", "two ", "three ", "four"], "delay_ms": 400});
    let project = Project::new(&[], "", &[slow, text_reply("Second.")]);
    let mut editor = Editor::start(&project).await;
    let (first, second) = (editor.new_session(&project.path("")).await, editor.new_session(&project.path("")).await);
    let (one, two) = (editor.ask(&first, "Count."), editor.ask(&second, "Count."));
    let is_text = |update: &SessionUpdate| matches!(update, SessionUpdate::AgentMessageChunk(_));
    editor.until(is_text).await;
    editor.cancel(&first);
    assert_eq!((stopped(one).await, stopped(two).await), (StopReason::Cancelled, StopReason::EndTurn));
    let own: Vec<_> = editor.updates().into_iter().filter(|(session, _)| *session == second).collect();
    assert!(said(&own).ends_with("four"), "{own:?}");
    assert_eq!(editor.prompt(&first, "Go on.").await, StopReason::EndTurn, "a cancelled session continues");
    // Prompts of one session are handled in order, and a cancellation reaches those that wait.
    let waiting = [editor.ask(&second, "/session"), editor.ask(&second, "/tools"), editor.ask(&second, "/session")];
    for answer in waiting {
        assert_eq!(stopped(answer).await, StopReason::EndTurn);
    }
    editor.close().await;
}

/// I7: images become media of the session, and links become paths that the tools understand.
#[tokio::test(flavor = "multi_thread")]
async fn i7_prompts_contain_images_and_links() {
    let reply = json!({"text": "A dot.", "expect": {"last_contains": "`work/a.md`"}});
    let project = Project::new(&["files"], FILES, &[reply]);
    let mut editor = Editor::start(&project).await;
    let session = editor.new_session(&project.path("")).await;
    let mut image = Vec::new();
    let dot = image::RgbImage::new(3, 2);
    dot.write_to(&mut std::io::Cursor::new(&mut image), image::ImageFormat::Png).unwrap();
    let encoded = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, &image);
    let link = format!("file://{}", project.path("work/a.md").display());
    let prompt = vec![
        block("What is in "),
        ContentBlock::ResourceLink(ResourceLink::new("a.md", link)),
        ContentBlock::Image(ImageContent::new(encoded.clone(), "image/png")),
    ];
    assert_eq!(stopped(editor.send(&session, prompt)).await, StopReason::EndTurn);
    let messages = project.store().messages(&session, MessageRange::After { id: 0, limit: 1 }).await.unwrap();
    let media = messages[0].parts.iter().find_map(|part| match part {
        Part::Media(media) => Some((media.size, media.dimensions.map(|size| (size.width, size.height)))),
        _ => None,
    });
    assert_eq!(media, Some((image.len() as u64, Some((3, 2)))));
    editor.updates();
    editor.load(&session, &project.path("")).await.expect("the session is loaded");
    let images = editor.updates().into_iter().filter_map(|(_, update)| match update {
        SessionUpdate::UserMessageChunk(chunk) => match chunk.content {
            ContentBlock::Image(image) => Some(image.data),
            _ => None,
        },
        _ => None,
    });
    assert_eq!(images.collect::<Vec<_>>(), [encoded]);
    editor.close().await;
}

/// I7, D5: slash commands answer without the model, and `/undo` removes the last turn from the prompt and from the replayed
/// conversation.
#[tokio::test(flavor = "multi_thread")]
async fn i7_d5_slash_commands_work() {
    let expects_one_prompt = json!({"text": "Three.", "expect": {"roles": ["user", "assistant", "user"]}});
    let project = Project::new(&["files"], "", &[text_reply("One."), text_reply("Two."), expects_one_prompt]);
    let mut editor = Editor::start(&project).await;
    let session = editor.new_session(&project.path("")).await;
    let commands = editor.until(|update| matches!(update, SessionUpdate::AvailableCommandsUpdate(_))).await;
    let SessionUpdate::AvailableCommandsUpdate(commands) = commands else { unreachable!("this update was awaited") };
    let names: Vec<_> = commands.available_commands.iter().map(|command| command.name.as_str()).collect();
    assert_eq!(names, ["plugins", "grants", "tools", "session", "continue", "undo"]);
    let mut run = async |text: &str| {
        editor.updates();
        assert_eq!(editor.prompt(&session, text).await, StopReason::EndTurn, "{text}");
        said(&editor.updates())
    };
    assert!(run("/session").await.contains("no turn has begun"));
    assert!(run("/undo").await.contains("Nothing was undone"));
    assert_eq!(run("First.").await, "One.");
    assert_eq!(run("Second.").await, "Two.");
    assert!(run("/plugins").await.contains("`files`"));
    assert!(run("/grants").await.contains("`files` may not use"));
    assert!(run("/tools").await.contains("`files.write`"));
    assert!(run("/session").await.contains("2 turns"));
    assert!(run("/continue").await.contains("No turn waits"));
    assert!(run("/undo").await.contains("was undone"));
    assert_eq!(run("Third.").await, "Three.");
    editor.updates();
    editor.load(&session, &project.path("")).await.expect("the session is loaded");
    let updates = editor.updates();
    assert_eq!(
        (editor::asked(&updates).as_str(), said(&updates).contains("Two.")),
        ("First.Third.", false),
        "{updates:?}"
    );
    editor.close().await;
}

/// I7, L24: the plan and its progress are shown.
#[tokio::test(flavor = "multi_thread")]
async fn i7_l24_the_plan_is_shown() {
    let step = |task: &str| json!({"tool": "read_file", "task": task});
    let plan = json!({"steps": [step("Read one."), step("Read two.")]}).to_string();
    let read = |path: &str| call_reply(&[("read_file", json!({"path": path}))]);
    let replies = [text_reply(&plan), read("work/one.md"), read("work/two.md"), text_reply("Both are read.")];
    let planner =
        "planner = \"scripted:script.json\"\nexecutor = \"scripted:script.json\"\n[host.grants]\nread = [\"work\"]\n";
    let project = Project::new(&[], planner, &replies);
    project.write("work/one.md", "one\n");
    project.write("work/two.md", "two\n");
    let mut editor = Editor::start(&project).await;
    let session = editor.new_session(&project.path("")).await;
    assert_eq!(editor.prompt(&session, "Read both.").await, StopReason::EndTurn);
    let updates = editor.updates();
    let plans = updates.iter().filter_map(|(_, update)| match update {
        SessionUpdate::Plan(plan) => Some(plan.entries.iter().map(|entry| entry.status.clone()).collect::<Vec<_>>()),
        _ => None,
    });
    let (waits, runs, done) = (PlanEntryStatus::Pending, PlanEntryStatus::InProgress, PlanEntryStatus::Completed);
    let expected = [vec![runs.clone(), waits], vec![done.clone(), runs], vec![done.clone(), done]];
    assert_eq!(plans.collect::<Vec<_>>(), expected);
    assert!(said(&updates).ends_with("Both are read."), "{updates:?}");
    editor.close().await;
}

/// I7, L4: a turn that reaches its maximum number of model calls ends with the reason of the protocol.
#[tokio::test(flavor = "multi_thread")]
async fn i7_l4_a_limit_ends_the_turn() {
    let read = call_reply(&[("read_file", json!({"path": "work/one.md"}))]);
    let limit = "max_interactions = 1\n[host.grants]\nread = [\"work\"]\n";
    let project = Project::new(&[], limit, &[read, text_reply("That is all.")]);
    let mut editor = Editor::start(&project).await;
    let session = editor.new_session(&project.path("")).await;
    assert_eq!(editor.prompt(&session, "Read.").await, StopReason::MaxTurnRequests);
    assert!(said(&editor.updates()).ends_with("That is all."));
    editor.close().await;
}

/// I7: MCP servers of the editor are not used, and the user is told how to use them.
#[tokio::test(flavor = "multi_thread")]
async fn i7_servers_of_the_editor_are_not_started() {
    let project = Project::new(&[], "", &[text_reply("Hello.")]);
    let mut editor = Editor::start(&project).await;
    let started = project.path("started");
    let server =
        McpServerStdio::new("tides`x", "/bin/sh").args(vec!["-c".to_owned(), format!("touch {}", started.display())]);
    let new = NewSessionRequest::new(project.path("")).mcp_servers(vec![McpServer::Stdio(server)]);
    let session = patient(editor.connection.send_request(new).block_task()).await.unwrap().session_id.to_string();
    assert_eq!(editor.prompt(&session, "Hello.").await, StopReason::EndTurn);
    let text = said(&editor.updates());
    assert!(text.contains("`tides'x`") && text.contains("[mcp]") && text.ends_with("Hello."), "{text}");
    assert!(!started.exists(), "the server is not started");
    editor.close().await;
}

/// I7, P10, P6: plugins that are added and grants that change while the editor is connected are used from then on.
#[tokio::test(flavor = "multi_thread")]
async fn i7_p10_plugins_and_grants_change_while_the_editor_is_connected() {
    let project = Project::new(&[], "", &[text_reply("Hello.")]);
    let mut editor = Editor::start(&project).await;
    let session = editor.new_session(&project.path("")).await;
    let mut until_listed = async |expected: &str| {
        patient(async {
            loop {
                editor.updates();
                assert_eq!(editor.prompt(&session, "/plugins").await, StopReason::EndTurn);
                if said(&editor.updates()).contains(expected) {
                    return;
                }
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        })
        .await;
    };
    until_listed("no plugins").await;
    std::fs::copy(components().join("files.wasm"), project.path("plugins/files.wasm")).expect("the plugin is copied");
    until_listed("`files`").await;
    project.write("agent.toml", &format!("{}{FILES}", project.read("agent.toml")));
    until_listed("may read and write `work`").await;
    editor.close().await;
}
