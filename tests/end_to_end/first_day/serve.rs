//! `serve` without options starts the agent that `agent-host` starts in the same folder (I1, I3).

use super::User;
use crate::serve::client::Client;
use crate::serve::console::{play, programs};
use crate::support::{call_reply, components, text_reply};
use crate::terminal::CTRL_C;
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::Duration;

const SERVE: [&str; 3] = ["serve", "--listen", "127.0.0.1:0"];

/// A server without a terminal, which is killed when this value is dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the server without a terminal, and returns what it has written until it says how to sign in.
fn start(user: &User, folder: &str) -> (Server, String) {
    let mut child =
        user.command(folder, &SERVE).stdin(Stdio::null()).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let (mut lines, mut text) = (BufReader::new(child.stderr.take().unwrap()).lines(), String::new());
    let server = Server(child);
    while !text.contains("to sign in, ") {
        let line = lines.next().unwrap_or_else(|| panic!("the server has ended: {text}")).unwrap();
        text += &format!("{line}\n");
    }
    std::thread::spawn(move || lines.for_each(drop));
    (server, text)
}

/// I1, I3, row 24: without a terminal, the server says where the console is and which file has the token, writes no secret, and
/// answers with the agent of the user.
#[tokio::test(flavor = "multi_thread")]
async fn i3_serve_starts_the_agent_of_the_user() {
    let user = User::new(&[text_reply("Good morning.")]);
    user.set_up();
    let (_server, text) = start(&user, "home/project");
    let token = user.read("data/server-token");
    assert!(text.contains(&user.path("data/server-token").display().to_string()), "{text}");
    assert!(!text.contains(token.trim()) && !text.contains("sign-in="), "{text}");
    let address =
        text.split("web console: http://").nth(1).and_then(|rest| rest.split('/').next()).expect("an address");
    let client = Client::new(address.parse().expect("an address"), Some(token.trim().to_owned()));
    let agents = client.get("/api/agents").await.json(200)["agents"].clone();
    let agent = agents[0]["name"].as_str().expect("an agent").to_owned();
    let created = client.post("/api/sessions", json!({"agent": agent, "prompt": "Hello."})).await.json(201);
    let path =
        format!("/api/sessions/{}/messages", crate::serve::client::encoded(created["session"].as_str().unwrap()));
    let answered = async {
        while !client.get(&path).await.body.contains("Good morning.") {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), answered).await.expect("the agent answers");
}

/// I1, P14: an untrusted file of the folder is not served, and without any agent the next step is said.
#[test]
fn i1_serve_without_an_agent_says_what_to_do() {
    let user = User::new(&[]);
    std::fs::remove_dir_all(user.path("installed")).unwrap();
    let refused = user.run("home/project", &SERVE);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    for expected in ["agent-host setup", "--yes", "--agent FILE", "--plugins DIR"] {
        assert!(refused.stderr.contains(expected), "{refused:?}");
    }
    user.write("home/project/agent.toml", "instructions = \"Be brief.\"\n");
    let untrusted = user.run("home/project", &SERVE);
    assert_eq!(untrusted.code, Some(2), "{untrusted:?}");
    assert!(untrusted.stderr.contains("agent-host trust agent.toml"), "{untrusted:?}");
}

/// I1: at a terminal, a person who has set up nothing answers some questions, and then gets the address that signs in.
#[test]
fn i1_serve_asks_for_a_model_and_plugins_first() {
    let user = User::new(&[text_reply("Good morning.")]);
    std::fs::rename(user.path("installed"), user.path("elsewhere")).unwrap();
    let mut screen = user.start("home/project", &SERVE);
    screen.wait_for("there is no agent yet");
    screen.wait_for("Model [");
    screen.send(&format!("{}\r", user.model()));
    screen.wait_for("Plugin folder");
    screen.send(&format!("{}\r", user.path("elsewhere").display()));
    screen.wait_for("read the folder in which agent-host is started?");
    screen.send("\r");
    screen.wait_for("listening on http://127.0.0.1:");
    screen.wait_for("/console/#sign-in=ahc_");
    screen.send(CTRL_C);
    screen.wait_for("shutting down");
    assert_eq!(screen.exit_code(), Some(0));
    assert!(user.user_text().contains("plugin_directory"), "{}", user.user_text());
}

/// I1, I3, L17, P6: a person who has set up nothing gets from `serve` to an answered prompt, an allowed call and a grant, with what the
/// terminal and the page show.
#[test]
fn i1_a_new_user_gets_an_answer_an_approval_and_a_grant() {
    if programs().is_none() {
        return;
    }
    let pay = call_reply(&[("payer.pay", json!({"to": "ann", "amount": 3}))]);
    let user = User::new(&[text_reply("Good morning."), pay, text_reply("I paid Ann.")]);
    std::fs::copy(components().join("payer.wasm"), user.path("installed/payer.wasm")).unwrap();
    let mut screen = user.start("home/project", &[&SERVE[..], &["--model", &user.model()]].concat());
    screen.wait_for("#sign-in=ahc_");
    screen.wait_for("do not share it");
    let text = screen.text();
    let address = text.split_whitespace().find(|word| word.contains("#sign-in=")).expect("an address").to_owned();
    let url = address.split("/console/").next().unwrap_or_default().to_owned();
    play("new_user", json!({"url": url, "address": address}));
    let ledger = std::fs::read_to_string(user.path("home/project/ledger.txt")).expect("the call ran");
    assert!(ledger.contains("ann"), "{ledger}");
    screen.send(CTRL_C);
    assert_eq!(screen.exit_code(), Some(0));
}
