//! Machines whose clocks are wrong by an hour (F1). Deadlines, stored times and leases follow the clock of the database.

use super::Fleet;
use crate::peers::faketime;
use crate::serve::client::{Client, encoded};
use crate::serve::process::ServeProcess;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The clocks of the servers, as the difference to the real time.
const CLOCKS: [&str; 3] = ["+0", "+1h", "-1h"];
/// Time in which people must decide and answer.
const DEADLINE: Duration = Duration::from_secs(25);
/// Time by which stored times may differ from the clock of this test.
const TOLERANCE: i64 = 120;

fn agents() -> [super::TestAgent<'static>; 4] {
    [
        (
            "payer",
            "[plugins.payer.grants]\nwrite = [\".\"]\n[approval]\ndecide_within_ms = 25000\n",
            json!([{"calls": [{"name": "payer.pay", "arguments": {"to": "ann", "amount": 3}}]}, {"text": "Decided."}]),
        ),
        (
            "asker",
            "finish = \"tool\"\nanswer_within_ms = 25000\n",
            json!([
                {"calls": [{"name": "ask_question", "arguments": {"question": "Which pier?"}}]},
                {"calls": [{"name": "task_completion", "arguments": {"result": "Done."}}]},
            ]),
        ),
        (
            "parent",
            "[agents.child]\nagent = \"child.toml\"\ndescription = \"Works.\"\n",
            json!([{"calls": [{"name": "child", "arguments": {"task": "Work."}}]}, {"text": "The child has worked."}]),
        ),
        ("child", "", json!([{"text": "I work."}])),
    ]
}

async fn details(client: &Client, session: &str) -> Value {
    client.get(&format!("/api/sessions/{}", encoded(session))).await.json(200)
}

fn seconds_from_now(time: &Value) -> i64 {
    let time: jiff::Timestamp = time.as_str().expect("a time").parse().expect("RFC 3339");
    time.as_second() - jiff::Timestamp::now().as_second()
}

/// F1: servers whose clocks are right, an hour fast and an hour slow work on the same sessions. No deadline passes too early or
/// too late, and every stored time is right.
#[tokio::test(flavor = "multi_thread")]
async fn f1_wrong_clocks_of_machines_change_nothing() {
    let Some(library) = faketime() else { return };
    let Some(fleet) = Fleet::new(&agents(), CLOCKS.len()) else { return };
    let library = library.to_string_lossy();
    let servers: Vec<ServeProcess> = CLOCKS
        .iter()
        .enumerate()
        .map(|(number, clock)| {
            let variables = [("LD_PRELOAD", &*library), ("FAKETIME", clock), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")];
            fleet.start_with("serve", number, &variables)
        })
        .collect();
    let clients: Vec<Client> = servers.iter().map(ServeProcess::client).collect();
    let begun = Instant::now();
    let mut sessions = BTreeMap::new();
    for client in &clients {
        for agent in ["payer", "payer", "asker", "asker", "parent"] {
            let created = client.post("/api/sessions", json!({"agent": agent, "prompt": "Go."})).await.json(201);
            sessions.insert(created["session"].as_str().expect("an id").to_owned(), agent);
        }
    }
    let waiting: Vec<&String> = sessions.iter().filter(|(_, agent)| **agent != "parent").map(|(id, _)| id).collect();
    // All servers search for overdue sessions twice a second. The fast one must not find any.
    tokio::time::sleep(Duration::from_secs(3)).await;
    for (number, session) in waiting.iter().enumerate() {
        let details = details(&clients[number % clients.len()], session).await;
        assert_eq!(details["state"], "suspended", "{details}");
        let expires = details["waits"][0]["expires_at"].as_i64().expect("milliseconds since 1970");
        let left = expires / 1_000 - jiff::Timestamp::now().as_second();
        assert!((0..=25).contains(&left), "{left} s are left: {details}");
        assert!(seconds_from_now(&details["created"]).abs() < TOLERANCE, "{details}");
    }
    assert!(begun.elapsed() < DEADLINE, "the sessions were checked in time");
    // Every second session is decided in time, through the door of a machine with another clock.
    for (number, session) in waiting.iter().enumerate().step_by(2) {
        let client = &clients[(number + 1) % clients.len()];
        let call = &details(client, session).await["waits"][0]["call"];
        let path = format!("/api/sessions/{}", encoded(session));
        let answer = match sessions[*session] {
            "payer" => {
                let decision = json!({"decisions": [{"call": call, "verdict": "granted"}]});
                client.post(&format!("{path}/approvals"), decision).await
            }
            _ => client.post(&format!("{path}/answers"), json!({"call": call, "text": "Pier 3."})).await,
        };
        assert!((200..300).contains(&answer.status), "{session}: {} {}", answer.status, answer.body);
    }
    // The others end at their deadline.
    let ended = async {
        loop {
            let listed = clients[2].get("/api/sessions?limit=100").await.json(200);
            let listed = listed["sessions"].as_array().expect("a list").clone();
            if listed.iter().all(|session| session["state"] == "idle") {
                return listed;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let listed = tokio::time::timeout(Duration::from_secs(60), ended).await.expect("all turns end");
    for session in &listed {
        assert!(seconds_from_now(&session["updated"]).abs() < TOLERANCE, "{session}");
    }
    let paid: usize = super::effects(fleet.folder.path()).values().sum();
    let granted = waiting.iter().step_by(2).filter(|session| sessions[**session] == "payer").count();
    assert_eq!(paid, granted, "exactly the payments that were allowed in time");
}
