//! People use the web console in a real browser (I3): Debian's Chromium, with Playwright and axe-core. The scenarios are in
//! `console/scenarios.mjs`.

use super::process::ServeProcess;
use super::{TestServer, clerk};
use crate::peers::{node, npm_package, peer};
use crate::support::{TestHost, agent_host, components, repository, text_reply};
use base64::Engine;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Number of words of the slow reply.
const WORDS: usize = 40;
/// Number of turns that the agent `chatter` can have, after its first.
const CHAT_TURNS: usize = 190;
/// Number of turns that the agent `novelist` can have, after its first. Each of its replies has about 40,000 characters.
const CHAPTERS: usize = 25;
/// An agent whose name is as long as a name can be. Only pictures show it.
const LONG_NAME: &str = "night-harbour-correspondence-and-tide-table-reporting-clerk1";
/// A text that tries to become markup, or to look like another text.
const HOSTILE: &str = "<script>window.hacked=1</script><img src=x onerror=\"window.hacked=1\"> [a](javascript:window.hacked=1) \
                       <a href=\"javascript:window.hacked=1\">b</a> <iframe srcdoc=\"<script>parent.hacked=1</script>\"></iframe> \
                       ![c](https://evil.example/c.png) safe\u{202e}txt.exe \u{7} \u{200b}";

/// The folder of a server whose agents answer with scripted replies.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir_all(folder.path().join("plugins")).expect("created");
    std::fs::create_dir_all(folder.path().join("accounts")).expect("created");
    for plugin in ["probe", "payer", "text"] {
        let file = format!("{plugin}.wasm");
        std::fs::copy(components().join(&file), folder.path().join("plugins").join(&file)).expect("copied");
    }
    for (name, settings, replies) in agents() {
        let agent = format!(
            "name = \"{name}\"\nmodel = \"scripted:{name}.json\"\nplugin_directory = \"plugins\"\n{settings}\
             [plugins.probe.grants]\nask = false\n[plugins.payer.grants]\nwrite = [\"accounts\"]\n"
        );
        std::fs::write(folder.path().join(format!("{name}.toml")), agent).expect("written");
        std::fs::write(folder.path().join(format!("{name}.json")), json!({"replies": replies}).to_string())
            .expect("written");
    }
    folder
}

/// The agents, with settings and replies.
fn agents() -> [(&'static str, &'static str, Value); 13] {
    let reply = "# Piers\n\nThe **harbourmaster** says:\n\n| Pier | Depth |\n|---|--:|\n| 3 | 12 m |\n| 4 | 9 m |\n\n- one\n- two\n\n\
                 ```rust\nfn main() {\n    println!(\"ahoy\"); // Greets.\n}\n```\n\nThe end.";
    let slow: Vec<String> = (0..WORDS).map(|word| format!("word{word} ")).collect();
    let endless: Vec<String> = (0..1_200).map(|word| format!("word{word} ")).collect();
    let mut chat = vec![json!({"text": "Hello."})];
    chat.extend((1..=CHAT_TURNS).map(|turn| json!({"text": format!("Reply {turn}. It has **two** sentences.")})));
    let mut chapters = vec![json!({"text": "A novel."})];
    chapters.extend(
        (1..=CHAPTERS)
            .map(|chapter| json!({"text": format!("Reply {chapter}. {}", "Once upon a tide. ".repeat(2_200))})),
    );
    let long = format!(
        "{} and https://example.com/{}\n\nSee [https://bank.example/sign-in](https://evil.example/) and [the notes](https://notes.example/).\n\n> A quote.\n\n1. first\n2. `a piece of code that is rather long`\n\n- [x] done\n\n\
         | a | b | c | d | e | f |\n|---|---|---|---|---|---|\n|{}",
        "L".repeat(150),
        "path/".repeat(40),
        " a cell with words |".repeat(6)
    );
    let right_to_left = "# مرحبا\n\nهذا نص مع كلمة English في الوسط.\n\n- بند\n- بند آخر\n\n> اقتباس";
    let pay = json!({"calls": [{"name": "payer.pay", "arguments": {"to": "ann", "amount": 3}}]});
    [
        (
            "everything",
            "",
            json!([
                {"thinking": "I think about piers.", "calls": [{"name": "probe.echo", "arguments": {"text": "ahoy"}}]},
                {"text": reply, "delay_ms": 60, "thinking": "Now I write."},
                {"text": "Second turn."},
                {"text": "Third turn."},
            ]),
        ),
        ("payer", "", json!([pay, {"text": "Decided."}])),
        (
            "asker",
            "finish = \"tool\"\n",
            json!([
                {"calls": [{"name": "ask_question", "arguments": {"question": "Which pier?"}}]},
                {"calls": [{"name": "task_completion", "arguments": {"result": "Pier 3 it is."}}]},
            ]),
        ),
        ("slow", "", json!([{"chunks": slow, "delay_ms": 120}, {"text": "Counted again."}, {"text": "Done."}])),
        ("seer", "", json!([{"text": "It is a plan."}])),
        ("talker", "", json!([{"chunks": endless, "delay_ms": 60}, {"text": "Done."}])),
        ("chatter", "", json!(chat)),
        ("novelist", "", json!(chapters)),
        ("writer", "", json!([{"text": long}, {"text": right_to_left}])),
        (
            "failer",
            "",
            json!([{"text": "I begin…", "error": {"status": 400, "message": "the model does not know the field `tempreature`"}}]),
        ),
        (
            LONG_NAME,
            "[schedules.yearly]\ntimes = \"0 0 1 1 *\"\nprompt = \"Report.\"\n[webhooks.tickets]\n",
            json!([{"text": "Reported."}]),
        ),
        (
            "counter",
            "",
            json!([{"calls": [{"name": "text.count_file", "arguments": {"path": "counter.json"}}]}, {"text": "Counted."}]),
        ),
        ("victim", "", json!([{"calls": [{"name": "probe.echo", "arguments": {"text": HOSTILE}}]}, {"text": HOSTILE}])),
    ]
}

/// Returns the programs that the scenarios need, or `None` if one of them is missing.
pub(crate) fn programs() -> Option<(PathBuf, Value)> {
    let node = node()?;
    npm_package("playwright-core", "package.json")?;
    npm_package("axe-core", "axe.min.js")?;
    let chromium = peer("chromium/usr/lib/chromium", "chromium-headless-shell")?;
    let usr = chromium.ancestors().nth(3).map(Path::to_path_buf).unwrap_or_default();
    let libraries = usr.join("lib").join(format!("{}-linux-gnu", std::env::consts::ARCH));
    let libraries = format!("{}:{}", libraries.display(), libraries.join("pulseaudio").display());
    Some((node, json!({"chromium": chromium, "libraries": libraries})))
}

/// Runs a scenario. `settings` has the address of the server and the tokens.
pub(crate) fn play(scenario: &str, settings: Value) {
    let Some((node, mut all)) = programs() else { return };
    let (Some(all_fields), Value::Object(fields)) = (all.as_object_mut(), settings) else {
        panic!("the settings are an object")
    };
    all_fields.extend(fields);
    let output = Command::new(node)
        .arg(repository().join("tests/end_to_end/serve/console/scenarios.mjs"))
        .args([scenario, &all.to_string()])
        .current_dir(repository().join("tests/.peers/node"))
        .stdin(Stdio::null())
        .output()
        .expect("the browser runs");
    assert!(output.status.success(), "{scenario}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Runs a scenario against the real server, with all agents.
fn play_with(scenario: &str, settings: impl Fn(&Path) -> Value) -> TempDir {
    let folder = folder();
    if programs().is_none() {
        return folder;
    }
    let files: Vec<String> = agents().iter().map(|(name, ..)| format!("{name}.toml")).collect();
    let arguments: Vec<&str> = files.iter().flat_map(|file| ["--agent", file]).collect();
    let server = ServeProcess::start(folder.path(), &arguments);
    let mut all = json!({"url": server.url(""), "token": server.token(), "words": WORDS});
    if let (Some(all), Value::Object(more)) = (all.as_object_mut(), settings(folder.path())) {
        all.extend(more);
    }
    play(scenario, all);
    folder
}

fn no_more(_: &Path) -> Value {
    json!({})
}

/// Creates a token with these rights.
fn token(folder: &Path, name: &str, rights: &[&str]) -> String {
    let rights = rights.iter().flat_map(|right| ["--right", *right]);
    let output = agent_host()
        .args(["--data", "data", "token", "create", name])
        .args(rights)
        .current_dir(folder)
        .output()
        .expect("the program runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout)
        .split_whitespace()
        .find(|word| word.starts_with("aht_"))
        .expect("a token")
        .to_owned()
}

/// I3: a turn is shown while it runs: thinking, a streamed reply, tools with results and costs, and what fills the window. The
/// session is found, copied, exported and undone.
#[test]
fn i3_the_console_shows_a_whole_turn() {
    play_with("whole_turn", no_more);
}

/// I3, L17: a key that is held allows one call, and not all calls that wait.
#[test]
fn i3_l17_a_held_key_decides_once() {
    play_with("held_key", no_more);
}

/// I3, P6: a plugin that lacks a grant is asked about while somebody looks, in the conversation and in the inbox.
#[test]
fn i3_p6_a_missing_grant_is_given_in_the_console() {
    let folder = play_with("first_use", no_more);
    if programs().is_some() {
        let file = std::fs::read_to_string(folder.path().join("counter.toml")).expect("a file");
        assert!(file.contains("[plugins.text.grants]") && file.contains("read = ["), "{file}");
    }
}

/// I3, P6: what a plugin did without while nobody looked is in the inbox, and an answer that is not kept says why.
#[test]
fn i3_p6_denied_grants_are_shown_in_the_console() {
    play_with("denied_grants", |folder| json!({"folder": folder}));
}

/// I3, L17: an approval is edited in the inbox, and the call runs with the changed arguments.
#[test]
fn i3_l17_an_approval_is_edited_in_the_console() {
    let folder = play_with("edited_approval", no_more);
    if programs().is_some() {
        let ledger = std::fs::read_to_string(folder.path().join("accounts/ledger.txt")).expect("the call ran");
        assert!(ledger.contains("bob") && ledger.contains('7') && !ledger.contains("ann"), "{ledger}");
    }
}

/// I3, L18: a question is answered in the conversation.
#[test]
fn i3_l18_a_question_is_answered_in_the_console() {
    play_with("question", no_more);
}

/// I3: a picture from the clipboard belongs to the prompt.
#[test]
fn i3_a_picture_is_pasted_into_the_console() {
    let mut picture = std::io::Cursor::new(Vec::new());
    let pixels = image::RgbImage::from_fn(320, 200, |x, y| image::Rgb([(x / 2) as u8, y as u8, 120]));
    pixels.write_to(&mut picture, image::ImageFormat::Png).expect("encoded");
    let picture = base64::engine::general_purpose::STANDARD.encode(picture.into_inner());
    play_with("pasted_image", |_| json!({"picture": picture}));
}

/// I3, L30: a reload in the middle of a reply loses nothing, and a prompt that was queued follows.
#[test]
fn i3_l30_a_reload_during_a_turn_loses_nothing() {
    play_with("reload", no_more);
}

/// I3, L29: a turn is stopped and tried again.
#[test]
fn i3_l29_a_turn_is_stopped_and_tried_again() {
    play_with("stop_and_retry", no_more);
}

/// I3, L17: if two people decide about a call, one wins and the other is told.
#[test]
fn i3_l17_the_second_of_two_people_is_told() {
    play_with("two_people", |folder| json!({"other": token(folder, "other", &["read", "talk", "approve"])}));
}

/// Row 24: results and replies never become markup, whatever they contain and however long they are.
#[test]
fn row_24_hostile_results_never_become_markup() {
    play_with("hostile_result", no_more);
}

/// I3: a token without a right sees what it may see, and its requests are refused.
#[test]
fn i3_a_token_without_the_right_only_looks() {
    play_with("token_without_the_right", |folder| json!({"reader": token(folder, "reader", &["read"])}));
}

/// I3: everything is done with the keyboard.
#[test]
fn i3_the_console_is_used_with_the_keyboard() {
    play_with("keyboard_only", no_more);
}

/// Row 24: a code signs in once. The browser stores neither the token nor the code.
#[tokio::test(flavor = "multi_thread")]
async fn row_24_a_code_signs_in_once() {
    if programs().is_none() {
        return;
    }
    let test_host = TestHost::new(&[]).await;
    let server = TestServer::start(&test_host, &[&clerk(&test_host, &[text_reply("One.")]).await]).await;
    let token = server.client_with_all_rights().token().expect("a token");
    let code = server.server.create_sign_in_code(&token);
    let settings = json!({"url": format!("http://{}", server.address()), "code": code});
    tokio::task::spawn_blocking(move || play("sign_in_code", settings)).await.expect("the scenario ends");
    server.stop().await;
}

/// I3: axe-core finds no violation on any page, in both themes and on a phone (WCAG 2.2 AA).
#[test]
fn i3_every_page_of_the_console_is_accessible() {
    play_with("accessibility", no_more);
}

/// I3, D1, S6: a turn is looked at step by step, with its exact prompts, its calls and a replay.
#[test]
fn i3_d1_a_turn_is_shown_step_by_step_in_the_console() {
    play_with("turn_view", no_more);
}

/// I3, P6: the page of a plugin shows what it may do and why, and calls its tools.
#[test]
fn i3_p6_the_console_shows_what_a_plugin_may_do() {
    play_with("plugin_page", no_more);
}

/// I3, I2: a configuration file is checked while somebody types, and saved with its difference and its new permissions.
#[test]
fn i3_i2_a_configuration_file_is_edited_in_the_console() {
    play_with("agent_editor", |folder| json!({"folder": folder}));
}

/// I3, P10: a plugin's file is replaced while its page and a session are open. Both show the new version, and it is rolled back.
#[test]
fn i3_p10_a_hot_swap_is_seen_in_the_console() {
    play_with("hot_swap", |folder| json!({"folder": folder}));
}

/// I3: a person reads an earlier part while a reply is written, and a stopped reply stays readable.
#[test]
fn i3_an_earlier_part_is_read_while_a_reply_is_written() {
    play_with("read_while_it_is_written", no_more);
}

/// I3: the requests of a page do not pile up if the server is slow.
#[test]
fn i3_a_slow_server_gets_one_request_for_the_inbox_at_a_time() {
    play_with("slow_inbox", no_more);
}

/// I3: a page that is open for many turns does not grow with them.
#[test]
fn i3_a_long_session_does_not_make_the_page_grow() {
    play_with("long_session", no_more);
}

/// I3: a page that is open for many long replies does not grow with them.
#[test]
fn i3_long_replies_do_not_make_the_page_grow() {
    play_with("long_replies", no_more);
}

/// I3: after an action, the focus is on what follows, and not lost.
#[test]
fn i3_the_focus_of_the_console_is_never_lost() {
    play_with("focus", no_more);
}

/// I3: a page whose module comes late does not replace the page that was chosen after it.
#[test]
fn i3_a_late_page_does_not_replace_another() {
    play_with("late_page", no_more);
}

/// I3: a token without the right `administer` sees neither prompts nor grants nor files.
#[test]
fn i3_the_pages_for_builders_need_rights() {
    play_with("builder_rights", |folder| json!({"reader": token(folder, "reader", &["read"])}));
}

/// I3: axe-core finds no violation on the pages for builders, in both themes and on a phone (WCAG 2.2 AA).
#[test]
fn i3_the_pages_for_builders_are_accessible() {
    play_with("builder_accessibility", no_more);
}

/// Writes pictures of every page into the folder of test data, for people to look at.
#[test]
#[ignore = "writes pictures for people, and checks nothing"]
fn pictures_of_the_console() {
    let pictures = Path::new(env!("CARGO_TARGET_TMPDIR")).join("console");
    std::fs::create_dir_all(&pictures).expect("created");
    play_with("screenshots", |folder| json!({"folder": pictures, "reader": token(folder, "reader", &["read"])}));
}
