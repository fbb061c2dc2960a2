//! Missing grants of plugins, which people decide over HTTP while they look at the inbox (P6, I3).

use super::client::{Client, encoded};
use super::process::ServeProcess;
use super::{until, until_idle};
use crate::support::{agent_host, components};
use serde_json::{Value, json};
use std::path::Path;
use tempfile::TempDir;

/// Reads the inbox as a person does who looks at it.
const INBOX: &str = "/api/inbox?present=true";

/// An agent whose plugin requests to read files, and has no grants.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("plugins")).expect("created");
    std::fs::copy(components().join("text.wasm"), folder.path().join("plugins/text.wasm")).expect("copied");
    std::fs::write(folder.path().join("a.txt"), "one\ntwo\n").expect("written");
    let agent = "name = \"clerk\"\nmodel = \"scripted:clerk.json\"\nplugin_directory = \"plugins\"\n";
    std::fs::write(folder.path().join("clerk.toml"), agent).expect("written");
    let call = json!({"calls": [{"name": "text.count_file", "arguments": {"path": "a.txt"}}]});
    let script = json!({"replies": [call, {"text": "Counted."}]});
    std::fs::write(folder.path().join("clerk.json"), script.to_string()).expect("written");
    folder
}

async fn begin(client: &Client) -> String {
    let created = client.post("/api/sessions", json!({"agent": "clerk", "prompt": "Count."})).await.json(201);
    created["session"].as_str().expect("an id").to_owned()
}

/// Returns the result of the only call of a session, after its turn has ended.
async fn result(client: &Client, session: &str) -> String {
    until_idle(client, session).await;
    let turn = client.get(&format!("/api/sessions/{}/turns/1", encoded(session))).await.json(200);
    turn["calls"][0]["result"].to_string()
}

async fn question(client: &Client, session: &str) -> Value {
    until(async || {
        let items = client.get(INBOX).await.json(200)["items"].clone();
        let items = items.as_array().cloned().unwrap_or_default();
        items.into_iter().find(|item| item["kind"] == "first_use" && item["session"] == session)
    })
    .await
}

fn limited_token(folder: &Path, name: &str, arguments: &[&str]) -> String {
    let output = agent_host()
        .args(["--data", "data", "token", "create", name])
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("the program runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

/// P6: while nobody looks at the inbox, nobody is asked. While somebody does, a missing grant is asked for in plain words, with
/// the line of the configuration, and only somebody who may administer the session's agent and see the session can give it. A
/// grant for a session is for this session only, and `always` writes the configuration.
#[tokio::test(flavor = "multi_thread")]
async fn p6_missing_grants_are_given_in_the_inbox() {
    let folder = folder();
    let server = ServeProcess::start(folder.path(), &["--agent", "clerk.toml"]);
    let client = server.client();
    let alone = begin(&client).await;
    assert!(result(&client, &alone).await.contains("denied"), "without a reader, the call runs without the grant");

    client.get(INBOX).await.json(200);
    let session = begin(&client).await;
    let item = question(&client, &session).await;
    let asked = &item["first_use"];
    assert_eq!(
        (&asked["plugin"], &item["tool"], &asked["can_be_kept"]),
        (&json!("text"), &json!("text.count_file"), &json!(true))
    );
    let line = asked["offered"][0]["line"].as_str().expect("a line");
    assert!(
        line.contains("read = [") && asked["offered"][0]["meaning"].as_str().is_some_and(|text| !text.is_empty()),
        "{item}"
    );
    let path = format!("/api/sessions/{}/first-uses", encoded(&session));
    let allow = json!({"question": asked["question"], "answer": "this_session"});
    let approver =
        server.client_with(&limited_token(folder.path(), "approver", &["--right", "read", "--right", "approve"]));
    assert_eq!(
        approver.post(&path, allow.clone()).await.status,
        403,
        "an approver must not widen what a plugin may do"
    );
    let bob = limited_token(folder.path(), "bob", &["--right", "read", "--right", "administer", "--user", "bob"]);
    let bob = server.client_with(&bob);
    assert_eq!(bob.get(INBOX).await.json(200)["items"], json!([]));
    assert_eq!(bob.post(&path, allow.clone()).await.status, 404, "the session belongs to somebody else");
    let elsewhere = format!("/api/sessions/{}/first-uses", encoded(&alone));
    assert_eq!(client.post(&elsewhere, allow.clone()).await.status, 409, "the question belongs to another session");
    assert_eq!(client.post(&path, json!({"question": asked["question"], "answer": "yes"})).await.status, 422);
    assert_eq!(client.post(&path, allow.clone()).await.json(200), json!({"status": "used", "reason": null}));
    assert_eq!(client.post(&path, allow).await.status, 409, "a question has one answer");
    assert!(result(&client, &session).await.contains("2 lines"), "the call runs with the grant");

    // A token for one agent may answer for a session, but must not change the file for all.
    let next = begin(&client).await;
    let limited = ["--right", "read", "--right", "administer", "--right", "talk", "--agent", "clerk"];
    let limited = server.client_with(&limited_token(folder.path(), "limited", &limited));
    let item = question(&limited, &next).await;
    assert_eq!(item["first_use"]["can_be_kept"], json!(false), "{item}");
    for answer in ["always", "never"] {
        let kept = json!({"question": item["first_use"]["question"], "answer": answer});
        let path = format!("/api/sessions/{}/first-uses", encoded(&next));
        assert_eq!(limited.post(&path, kept).await.status, 403, "{answer}");
    }
    let item = question(&client, &next).await;
    let always = json!({"question": item["first_use"]["question"], "answer": "always"});
    let kept = client.post(&format!("/api/sessions/{}/first-uses", encoded(&next)), always).await.json(200);
    assert_eq!(kept, json!({"status": "kept", "reason": null}));
    let file = std::fs::read_to_string(folder.path().join("clerk.toml")).expect("a file");
    assert!(file.contains("read = ["), "the file is written before the answer: {file}");
    assert!(result(&client, &next).await.contains("2 lines"));
    let file = std::fs::read_to_string(folder.path().join("clerk.toml")).expect("a file");
    assert!(file.contains("[plugins.text.grants]") && file.contains("read = ["), "{file}");
    let last = begin(&client).await;
    assert!(result(&client, &last).await.contains("2 lines"), "nobody is asked again");
    let audit = agent_host()
        .args(["--data", "data", "audit", "export"])
        .current_dir(folder.path())
        .output()
        .expect("the program runs");
    let audit = String::from_utf8_lossy(&audit.stdout).into_owned();
    assert!(audit.contains("\"granted\"") && audit.contains("request_refused"), "{audit}");
    for answer in ["this_session", "always"] {
        let is_entry =
            |line: &&str| line.contains("grants_answered") && line.contains(answer) && line.contains("read = [");
        assert_eq!(audit.lines().filter(is_entry).count(), 1, "{answer}: {audit}");
    }
}

/// P6: a question ends with its turn, and with the last reader of the inbox.
#[tokio::test(flavor = "multi_thread")]
async fn p6_a_question_ends_with_its_turn() {
    let folder = folder();
    let server = ServeProcess::start(folder.path(), &["--agent", "clerk.toml"]);
    let client = server.client();
    client.get(INBOX).await.json(200);
    let session = begin(&client).await;
    let asked = question(&client, &session).await["first_use"]["question"].clone();
    client.post(&format!("/api/sessions/{}/cancel", encoded(&session)), json!({})).await;
    until(async || {
        let items = client.get(INBOX).await.json(200)["items"].clone();
        (items == json!([])).then_some(())
    })
    .await;
    let late = json!({"question": asked, "answer": "always"});
    let path = format!("/api/sessions/{}/first-uses", encoded(&session));
    assert_eq!(client.post(&path, late).await.status, 409);
    let file = std::fs::read_to_string(folder.path().join("clerk.toml")).expect("a file");
    assert!(!file.contains("grants"), "{file}");
}

/// Returns the item about what a plugin did without in a session, when it is listed.
async fn denied(client: &Client, session: &str) -> Value {
    until(async || {
        let items = client.get("/api/inbox").await.json(200)["items"].clone();
        let items = items.as_array().cloned().unwrap_or_default();
        items.into_iter().find(|item| item["kind"] == "denied_grants" && item["session"] == session)
    })
    .await
}

/// P6: an answer that cannot be written into the agent's file says so, with the reason, and applies to the session.
#[tokio::test(flavor = "multi_thread")]
async fn p6_an_answer_that_is_not_kept_says_why() {
    for answer in ["always", "never"] {
        let folder = folder();
        let server = ServeProcess::start(folder.path(), &["--agent", "clerk.toml"]);
        let client = server.client();
        client.get(INBOX).await.json(200);
        let session = begin(&client).await;
        let asked = question(&client, &session).await["first_use"]["question"].clone();
        // Somebody changes the file while the question waits.
        let file = folder.path().join("clerk.toml");
        let text = std::fs::read_to_string(&file).expect("a file") + "# A remark.\n";
        std::fs::write(&file, &text).expect("written");
        let path = format!("/api/sessions/{}/first-uses", encoded(&session));
        let used = client.post(&path, json!({"question": asked, "answer": answer})).await.json(200);
        assert_eq!(used["status"], json!("not_kept"), "{used}");
        assert!(used["reason"].as_str().is_some_and(|reason| reason.contains("changed")), "{used}");
        assert_eq!(std::fs::read_to_string(&file).expect("a file"), text, "the file is not changed");
        let expected = if answer == "always" { "2 lines" } else { "denied" };
        assert!(result(&client, &session).await.contains(expected), "the answer applies to the session");
    }
}

/// P6: a program that reads the inbox, and a person who looks, make no turn of a webhook wait. What the plugin did
/// without is in the inbox afterwards, until the plugin has the grants or a person has seen it.
#[tokio::test(flavor = "multi_thread")]
async fn p6_unattended_turns_never_wait_for_grants() {
    let folder = folder();
    let file = folder.path().join("clerk.toml");
    let agent = std::fs::read_to_string(&file).expect("a file");
    std::fs::write(&file, format!("{agent}[webhooks.tickets]\n")).expect("written");
    let call = json!({"calls": [{"name": "text.count_file", "arguments": {"path": "a.txt"}}]});
    let script = json!({"replies": [call, {"text": "Counted."}, call, {"text": "Counted again."}]});
    std::fs::write(folder.path().join("clerk.json"), script.to_string()).expect("written");
    let server = ServeProcess::start(folder.path(), &["--agent", "clerk.toml"]);
    let client = server.client();
    // A program reads the inbox, and says nothing about a person.
    client.get("/api/inbox").await.json(200);
    let polled = begin(&client).await;
    assert!(
        result(&client, &polled).await.contains("denied"),
        "reading the inbox does not show that a person is present"
    );
    let item = denied(&client, &polled).await;
    assert_eq!((&item["expires"], &item["first_use"]["plugin"]), (&Value::Null, &json!("text")), "{item}");
    let offered = &item["first_use"]["offered"][0];
    assert_eq!(offered["table"], json!("[plugins.text.grants]"), "{item}");
    let turn = client.get(&format!("/api/sessions/{}/transcript", encoded(&polled))).await.json(200);
    let denial = &turn["calls"][0]["result"]["denials"][0];
    assert_eq!(denial["table"], offered["table"], "{turn}");
    assert!(denial["line"].as_str().is_some_and(|line| line.starts_with("read = [")), "{turn}");

    // A person looks, and a webhook begins turns: without an id, and with one.
    for headers in [vec![], vec![("webhook-id".to_owned(), "7".to_owned())]] {
        client.get(INBOX).await.json(200);
        let started = std::time::Instant::now();
        let sent = client.send("POST", "/webhooks/clerk/tickets", "application/json", &headers, "{}".to_owned()).await;
        let session = sent.json(202)["session"].as_str().expect("an id").to_owned();
        assert!(result(&client, &session).await.contains("denied"));
        assert!(started.elapsed() < std::time::Duration::from_secs(25), "{:?}", started.elapsed());
        let item = denied(&client, &session).await;
        // The same grants of the same plugin are listed once.
        let all = client.get("/api/inbox").await.json(200)["items"].as_array().cloned().unwrap_or_default();
        assert_eq!(all.len(), 1, "{all:?}");
        // A prompt of the person in the same session may wait.
        client.get(INBOX).await.json(200);
        let path = format!("/api/sessions/{}", encoded(&session));
        client.post(&format!("{path}/prompts"), json!({"prompt": "Count."})).await;
        let asked = question(&client, &session).await["first_use"]["question"].clone();
        let refused = client.post(&format!("{path}/first-uses"), json!({"question": asked, "answer": "no"})).await;
        assert_eq!(refused.json(200)["status"], json!("used"));
        until_idle(&client, &session).await;
        let question = &item["first_use"]["question"];
        let late = client.post(&format!("{path}/first-uses"), json!({"question": question, "answer": "always"})).await;
        assert_eq!(late.status, 409, "the plugin has run: {}", late.body);
        let dismissed = client.post(&format!("{path}/first-uses"), json!({"question": question, "answer": "no"})).await;
        assert_eq!(dismissed.json(200)["status"], json!("dismissed"));
        assert_eq!(client.get("/api/inbox").await.json(200)["items"], json!([]));
    }
    // What a plugin did without is not listed any more when the plugin has the grants.
    let sent = client.post("/webhooks/clerk/tickets", json!({})).await.json(202);
    denied(&client, sent["session"].as_str().expect("an id")).await;
    let grants = "[plugins.text.grants]\nread = [\".\"]\n";
    std::fs::write(&file, format!("{agent}[webhooks.tickets]\n{grants}")).expect("written");
    until(async || (client.get("/api/inbox").await.json(200)["items"] == json!([])).then_some(())).await;
}

/// P6: a turn of a schedule does not wait for grants, although a person looks at the inbox.
#[tokio::test(flavor = "multi_thread")]
async fn p6_a_turn_of_a_schedule_never_waits_for_grants() {
    let folder = folder();
    let file = folder.path().join("clerk.toml");
    let agent = std::fs::read_to_string(&file).expect("a file");
    let schedule = "[schedules.often]\ntimes = \"* * * * *\"\nprompt = \"Count.\"\n";
    std::fs::write(&file, format!("{agent}{schedule}")).expect("written");
    let server = ServeProcess::start(folder.path(), &["--agent", "clerk.toml"]);
    let client = server.client();
    // The person looks again and again, so that a question would wait for 10 minutes.
    let look = async || {
        let items = client.get(INBOX).await.json(200)["items"].clone();
        assert!(
            items.as_array().is_some_and(|items| items.iter().all(|item| item["kind"] == "denied_grants")),
            "{items}"
        );
        let sessions = client.get("/api/sessions?state=idle").await.json(200)["sessions"].clone();
        let of_schedule = |session: &&Value| session["session"].as_str().is_some_and(|id| id.contains("/schedule-"));
        sessions.as_array().and_then(|sessions| sessions.iter().find(of_schedule).cloned())
    };
    // The schedule begins its first turn within a minute.
    let ended = async {
        loop {
            if let Some(session) = look().await {
                return session;
            }
            tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        }
    };
    let ended = tokio::time::timeout(std::time::Duration::from_secs(100), ended).await.expect("the turn ends");
    assert!(result(&client, ended["session"].as_str().expect("an id")).await.contains("denied"));
}

/// P6: the user-wide file applies in all folders, so an answer about a session in one folder never changes it.
#[tokio::test(flavor = "multi_thread")]
async fn p6_an_answer_never_changes_the_user_wide_file() {
    let folder = folder();
    let configuration = folder.path().join("home");
    std::fs::create_dir_all(configuration.join("agent-host")).expect("created");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let text = format!(
        "name = \"clerk\"\nmodel = \"scripted:{}\"\nplugin_directory = \"{}\"\n",
        path("clerk.json"),
        path("plugins")
    );
    let file = configuration.join("agent-host/agent.toml");
    std::fs::write(&file, &text).expect("written");
    std::fs::remove_file(folder.path().join("clerk.toml")).expect("removed");
    let configuration = configuration.display().to_string();
    let server = ServeProcess::start_with(folder.path(), &[], &[("XDG_CONFIG_HOME", configuration.as_str())]);
    let client = server.client();
    client.get(INBOX).await.json(200);
    let session = begin(&client).await;
    let asked = question(&client, &session).await["first_use"].clone();
    assert_eq!(asked["can_be_kept"], json!(false), "{asked}");
    let answers = format!("/api/sessions/{}/first-uses", encoded(&session));
    for answer in ["always", "never"] {
        let kept = client.post(&answers, json!({"question": asked["question"], "answer": answer})).await;
        assert_eq!(kept.status, 422, "{answer}: {}", kept.body);
    }
    let used = client.post(&answers, json!({"question": asked["question"], "answer": "this_session"})).await.json(200);
    assert_eq!(used["status"], json!("used"));
    assert!(result(&client, &session).await.contains("2 lines"), "the answer applies to the session");
    assert_eq!(std::fs::read_to_string(&file).expect("a file"), text);
}
