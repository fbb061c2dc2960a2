//! Missing grants of plugins, which people decide over HTTP while they look at the inbox (P6, I3).

use super::client::{Client, encoded};
use super::process::ServeProcess;
use super::{until, until_idle};
use crate::support::components;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

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
        let items = client.get("/api/inbox").await.json(200)["items"].clone();
        let items = items.as_array().cloned().unwrap_or_default();
        items.into_iter().find(|item| item["kind"] == "first_use" && item["session"] == session)
    })
    .await
}

fn limited_token(folder: &Path, name: &str, arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_agent-host"))
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

    client.get("/api/inbox").await.json(200);
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
    assert_eq!(bob.get("/api/inbox").await.json(200)["items"], json!([]));
    assert_eq!(bob.post(&path, allow.clone()).await.status, 404, "the session belongs to somebody else");
    let elsewhere = format!("/api/sessions/{}/first-uses", encoded(&alone));
    assert_eq!(client.post(&elsewhere, allow.clone()).await.status, 409, "the question belongs to another session");
    assert_eq!(client.post(&path, json!({"question": asked["question"], "answer": "yes"})).await.status, 422);
    assert_eq!(client.post(&path, allow.clone()).await.json(200), json!({"status": "used"}));
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
    client.post(&format!("/api/sessions/{}/first-uses", encoded(&next)), always).await.json(200);
    assert!(result(&client, &next).await.contains("2 lines"));
    let file = std::fs::read_to_string(folder.path().join("clerk.toml")).expect("a file");
    assert!(file.contains("[plugins.text.grants]") && file.contains("read = ["), "{file}");
    let last = begin(&client).await;
    assert!(result(&client, &last).await.contains("2 lines"), "nobody is asked again");
    let audit = Command::new(env!("CARGO_BIN_EXE_agent-host"))
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
    client.get("/api/inbox").await.json(200);
    let session = begin(&client).await;
    let asked = question(&client, &session).await["first_use"]["question"].clone();
    client.post(&format!("/api/sessions/{}/cancel", encoded(&session)), json!({})).await;
    until(async || {
        let items = client.get("/api/inbox").await.json(200)["items"].clone();
        (items == json!([])).then_some(())
    })
    .await;
    let late = json!({"question": asked, "answer": "always"});
    let path = format!("/api/sessions/{}/first-uses", encoded(&session));
    assert_eq!(client.post(&path, late).await.status, 409);
    let file = std::fs::read_to_string(folder.path().join("clerk.toml")).expect("a file");
    assert!(!file.contains("grants"), "{file}");
}
